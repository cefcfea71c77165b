"""LogSnapshot: a version of a table with its log segment, state and file cache."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from deltalog.errors import InvalidCheckpointError, InvalidEnablementError
from deltalog.log.file_cache import FileCache, NewCheckpoint
from deltalog.log.file_list import FileList
from deltalog.log.reader import LogReader
from deltalog.log.replay import Commits, PartialState, State, advance
from deltalog.log.segment import Segment
from deltalog.log.table_totals import NO_FILES, totals_after
from deltalog.log.tip import Tip
from deltalog.parallel import Lazy
from deltalog.protocol import features, timestamps, widening
from deltalog.protocol.actions import Metadata, Protocol
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.paths import commit_path
from deltalog.protocol.schema import StructType

_WIDENING = frozenset({widening.FEATURE, f"{widening.FEATURE}-preview"})


@dataclass(frozen=True, eq=False, repr=False)
class LogSnapshot:
    """One version of a table: the log files from which it is rebuilt, and its state. Immutable; threads may share it.

    ``reader``: reads the log. ``segment``: the log files. ``state``: protocol, metadata, application transactions and
    domains. ``cache``: reads the live files and tombstones, and caches them. ``recorded_ict_ms``: the version's
    in-commit timestamp, in milliseconds since 1970, if it was read during loading. ``rebuilt``: the same version based
    on a newer checkpoint that hooks have written; None before that. Users get a deltalog.read.snapshot.Snapshot, which
    wraps a LogSnapshot.
    """

    reader: LogReader
    segment: Segment
    state: State
    cache: FileCache
    recorded_ict_ms: int | None = None
    rebuilt: LogSnapshot | None = field(default=None, init=False)

    @classmethod
    def created(cls, reader: LogReader, commit: CommitActions, ict_ms: int | None) -> LogSnapshot:
        """The snapshot of version 0, from the commit that was just written. Cost: none."""
        state = advance(PartialState(), [commit]).complete(reader.store.url, 0)
        segment = Segment(0, None, (0,), False)
        totals = totals_after(NO_FILES, commit)
        listed = FileList.from_adds(commit.adds)
        commits = Commits([commit])
        cache = FileCache(
            reader, segment, state, Tip.from_commit(commit), totals=totals, commits=commits, listed=listed
        )
        return cls(reader, segment, state, cache, ict_ms)

    def is_in_log(self) -> bool:
        """Whether the log still contains the commit of this version. If the log does not contain the commit, files
        derived from the commit must be deleted, because readers of a table that replaced this one would use them. Also
        True if the commit is missing but may have been deleted by log clean-up, which deletes only commits that are
        followed by later ones. Cost: 1 HEAD, 2 more if the commit does not exist."""
        store, path = self.reader.store, commit_path(self.version)
        found = store.head(path)
        if found is None and self.version not in self.segment.commits:
            return True  # log clean-up deleted this commit before the log was listed
        if found is None and store.head(commit_path(self.version + 1)) is not None:
            found = store.head(path)
            if found is None:
                return True
        return found is not None and (not self.tip.is_identified or self.tip.is_file(self.reader, found))

    @property
    def url(self) -> str:
        """The URL of the table root."""
        return self.reader.store.url

    @property
    def tip(self) -> Tip:
        """Identifies the commit of this version. Snapshots of the same version share this object, even if these
        snapshots use different checkpoints or readers."""
        return self.cache.tip

    @Lazy
    def version(self) -> int:
        return self.segment.version

    @Lazy
    def protocol(self) -> Protocol:
        return self.state.protocol

    @Lazy
    def metadata(self) -> Metadata:
        return self.state.metadata

    @Lazy
    def schema(self) -> StructType:
        """The table's columns, including partition columns. Raises CorruptTableError, and UnsupportedFeatureError for a
        schema that records a forbidden type change."""
        text = self.metadata.schema_string
        # A new instance, because the cached instance is shared.
        schema = StructType.from_json(text) if text else StructType()
        if widening.TYPE_CHANGES_KEY in text and not _WIDENING.isdisjoint(features.reader_features(self.protocol)):
            widening.check_recorded_changes(schema, self.url)
        return schema

    @Lazy
    def in_commit_timestamps_enabled(self) -> bool:
        """Whether in-commit timestamps are enabled at this version."""
        return features.is_ict_active(self.protocol, self.metadata)

    @Lazy
    def in_commit_timestamp_ms(self) -> int | None:
        """The version's in-commit timestamp, in milliseconds since 1970; None if in-commit timestamps are disabled.

        Raises MissingInCommitTimestampError if the commit lacks it. Cost: at most 1 GET of 4 KiB.
        """
        if not self.in_commit_timestamps_enabled:
            return None
        return self.recorded_ict_ms or self.reader.in_commit_timestamp_ms(self.version)

    @property
    def enablement(self) -> timestamps.Enablement | None:
        """The version and the timestamp at which in-commit timestamps were enabled; None if they are disabled, or
        enabled since version 0.

        Raises InvalidEnablementError.
        """
        if not self.in_commit_timestamps_enabled:
            return None
        return timestamps.read_enablement(self.metadata.configuration, self.version)

    @property
    def known_in_commit_timestamps(self) -> Mapping[int, int]:
        """The in-commit timestamps that are in memory, keyed by version. Cost: none."""
        if not self.in_commit_timestamps_enabled:
            return {}
        try:
            # Commits before the enablement may contain in-commit timestamps, but those must not be used.
            first = 0 if self.enablement is None else self.enablement.version
        except InvalidEnablementError:
            return {}  # which timestamps apply is unknown; versions can still be read by number
        infos = ((commit.version, commit.commit_info) for commit in self.cache.known_commits)
        known = {version: info.in_commit_timestamp_ms for version, info in infos if info is not None}
        known[self.version] = self.recorded_ict_ms if self.recorded_ict_ms is not None else known.get(self.version)
        return {version: ict_ms for version, ict_ms in known.items() if ict_ms is not None and version >= first}

    # ------------------------------------------------------------------------------------------ succession

    def after(self, commit: CommitActions, ict_ms: int | None, new: Collection[str] = ()) -> LogSnapshot:
        """The snapshot of the next version, derived from this snapshot and the commit that was just written. ``new``:
        as for ``FileCache.after``. Raises ValueError for any other version. Cost: none."""
        if commit.version != self.version + 1:
            raise ValueError(f"version {commit.version} does not follow {self.version}")
        state = advance(self.state, [commit]).complete(self.url, commit.version)
        commits = (*self.segment.commits, commit.version)
        segment = msgspec.structs.replace(self.segment, version=commit.version, commits=commits, has_checksum=False)
        cache = self.cache.after(commit, segment, state, new)
        return LogSnapshot(self.reader, segment, state, cache, ict_ms)

    def on_checkpoint(self, written: NewCheckpoint) -> LogSnapshot:
        """A snapshot of the same version whose segment is a checkpoint that was just written. File lists in memory are
        kept; nothing is read. Cost: none."""
        segment = Segment(self.version, written.checkpoint, (), self.segment.has_checksum)
        return replace(self, segment=segment, cache=self.cache.on_checkpoint(written, segment))

    def note_rebuilt(self, rebuilt: LogSnapshot) -> None:
        """Keep ``rebuilt``, a snapshot of this version that is based on a new checkpoint, for the hooks of later
        commits. Cost: none."""
        object.__setattr__(self, "rebuilt", rebuilt)  # the only mutable attribute of a snapshot

    def through(self, reader: LogReader) -> LogSnapshot:
        """A snapshot of the same version with another reader of the same table. Cost: none."""
        return replace(self, reader=reader, cache=self.cache.through(reader))

    def without_checkpoint(self, error: InvalidCheckpointError) -> LogSnapshot:
        """A snapshot of the same version that does not use the checkpoint which ``error`` reports as unreadable. Raises
        ``error`` if neither an older checkpoint nor the commits can rebuild it. Cost: 1 LIST."""
        cache = self.cache.without_checkpoint(error)
        return replace(self, segment=cache.segment, cache=cache)
