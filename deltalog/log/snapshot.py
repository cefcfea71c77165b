"""A version of a table: read-only, loaded as far as it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.errors import InvalidCheckpointError, MissingVersionError, VersionNotFoundError
from deltalog.log.checksum import Totals
from deltalog.log.reader import LogReader
from deltalog.log.replay import PartialState, State, advance, live_files, tombstones
from deltalog.log.segment import Checkpoint, Listing, Segment, choose_segment
from deltalog.spec import features, timestamps
from deltalog.spec.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from deltalog.spec.codec import CommitActions
from deltalog.spec.paths import commit_path, resolve_path
from deltalog.spec.schema import StructType

if TYPE_CHECKING:
    from deltalog.read.predicates import Predicate
    from deltalog.read.scan import Scan

_MAX_PENDING = 64


class Snapshot:
    """The state of a table at one version; never changes.

    Protocol, metadata and totals come from the version's ``.crc`` where it is sound, else from the checkpoint
    and the commits after it; the file list is read when first asked for and kept.
    """

    def __init__(
        self,
        reader: LogReader,
        segment: Segment,
        state: State,
        *,
        totals: Totals | None = None,
        commits: Sequence[CommitActions] | None = None,
        loaded: tuple[pa.Table, tuple[CommitActions, ...]] | None = None,
        in_commit_timestamp_ms: int | None = None,
    ) -> None:
        self._reader = reader
        self._segment = segment
        self._state = state
        self._totals = totals
        self._commits = commits
        # Files of an earlier version and the commits since: what a commit of our own leaves behind.
        self._loaded = loaded
        self._known_ict_ms = in_commit_timestamp_ms

    def __repr__(self) -> str:
        return f"Snapshot(table={self.url!r}, version={self.version})"

    # ------------------------------------------------------------------------------------- description

    @property
    def url(self) -> str:
        """The table's root."""
        return self._reader.store.url

    @property
    def version(self) -> int:
        return self._segment.version

    @property
    def protocol(self) -> Protocol:
        return self._state.protocol

    @property
    def metadata(self) -> Metadata:
        return self._state.metadata

    @cached_property
    def schema(self) -> StructType:
        """The table's columns, partition columns included."""
        return self.metadata.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @property
    def in_commit_timestamps_enabled(self) -> bool:
        """Whether this version is judged by its in-commit timestamp."""
        return features.is_ict_active(self.protocol, self.metadata)

    @property
    def enablement(self) -> timestamps.Enablement | None:
        """The enablement pair; None when in-commit timestamps are off or on since version 0.

        Raises InvalidEnablementError.
        """
        if not self.in_commit_timestamps_enabled:
            return None
        return timestamps.read_enablement(self.metadata.configuration, self.version)

    @cached_property
    def in_commit_timestamp_ms(self) -> int | None:
        """The version's in-commit timestamp; None when they are off.

        Raises MissingInCommitTimestampError when the commit lacks it. Cost: at most 1 GET of 4 KiB.
        """
        if not self.in_commit_timestamps_enabled:
            return None
        return self._known_ict_ms or self._reader.in_commit_timestamp_ms(self.version)

    @property
    def known_in_commit_timestamps(self) -> Mapping[int, int]:
        """The in-commit timestamps by version that loading this one has shown. Cost: none."""
        if self.enablement is not None or not self.in_commit_timestamps_enabled:
            return {}  # commits before the enablement may carry some that do not count
        infos = ((c.version, c.commit_info) for c in self._commits or ())
        known = {v: info.in_commit_timestamp_ms for v, info in infos if info is not None}
        known[self.version] = self._known_ict_ms if self._known_ict_ms is not None else known.get(self.version)
        return {version: ict_ms for version, ict_ms in known.items() if ict_ms is not None}

    @cached_property
    def timestamp_ms(self) -> int:
        """The version's time by its own rules: in-commit, else the commit file's modification time.

        Time travel and ``history`` judge all commits by the rules of the latest version (in-commit timestamps may
        have been disabled since) and make file times increasing: ask ``version_at`` for those.
        Cost: at most 1 GET or 1 HEAD. Raises MissingVersionError when the commit file was cleaned up.
        """
        ict_ms = self.in_commit_timestamp_ms
        if ict_ms is not None:
            return ict_ms
        meta = self._reader.store.head(commit_path(self.version))
        if meta is None or meta.modification_time_ms is None:
            raise MissingVersionError(
                f"{self.url}: the commit file of version {self.version} is gone, and its time with it.",
                version=self.version,
            )
        return meta.modification_time_ms

    @property
    def set_transactions(self) -> list[SetTransaction]:
        """The last recorded version of each application id."""
        return list(self._state.transactions.values())

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that ``app_id`` recorded, or None."""
        found = self._state.transactions.get(app_id)
        return None if found is None else found.version

    @property
    def domain_metadata(self) -> list[DomainMetadata]:
        """The live domain metadata."""
        return list(self._state.domains.values())

    @property
    def state(self) -> State:
        """Protocol, metadata, transactions and domains together."""
        return self._state

    @property
    def segment(self) -> Segment:
        """The log files that this version is built from."""
        return self._segment

    # -------------------------------------------------------------------------------------------- files

    @property
    def num_files(self) -> int:
        """Live files. Cost: none when the ``.crc`` told, else as ``files``."""
        return self.totals.num_files

    @property
    def size_bytes(self) -> int:
        """Bytes of the live files. Cost: as ``num_files``."""
        return self.totals.size_bytes

    @property
    def totals(self) -> Totals:
        if self._totals is None:
            files = self.files()
            self._totals = Totals(files.num_rows, pc.sum(files["size"]).as_py() or 0)
        return self._totals

    @property
    def known_totals(self) -> Totals | None:
        """Totals when they are known without reading the files."""
        return self._totals

    def files(self) -> pa.Table:
        """A row per live file; columns as deltalog.log.replay.FILES.

        Cost: the checkpoint's columns and one GET for each commit after it, the first time.
        """
        return self._files

    @cached_property
    def _files(self) -> pa.Table:
        if self._loaded is not None:
            base, commits = self._loaded
            self._loaded = None
            return live_files(base, commits)
        checkpoint = self._segment.checkpoint
        if checkpoint is None:
            return live_files(None, self._tail())
        try:
            return live_files(self._reader.checkpoint_files(checkpoint), self._tail())
        except InvalidCheckpointError as error:
            return self._without_checkpoint(checkpoint, error).files()

    def tombstones(self, keep_after_ms: int) -> pa.Table:
        """Removes younger than a time, for checkpoints; columns as deltalog.log.replay.TOMBSTONES."""
        checkpoint = self._segment.checkpoint
        if checkpoint is None:
            return tombstones(None, self._tail(), keep_after_ms, self.files())
        try:
            base = self._reader.checkpoint_tombstones(checkpoint)
        except InvalidCheckpointError as error:
            return self._without_checkpoint(checkpoint, error).tombstones(keep_after_ms)
        return tombstones(base, self._tail(), keep_after_ms, self.files())

    def _without_checkpoint(self, checkpoint: Checkpoint, error: InvalidCheckpointError) -> Snapshot:
        """This version from an older checkpoint or from the commits alone; ``error`` when they are gone."""
        return load(self._reader, self._reader.list_from(), self.version, unusable=[checkpoint], failure=error)

    def _tail(self) -> Sequence[CommitActions]:
        if self._commits is None:
            self._commits = self._reader.commits(self._segment.commits)
        return self._commits

    def file_path(self, add_path: str) -> str:
        """Where the data file that the log names ``add_path`` lies. Raises UnsafePathError."""
        return self._reader.store.location(resolve_path(add_path, self.url))

    @property
    def reader(self) -> LogReader:
        """The log that this snapshot was read from."""
        return self._reader

    def scan(self, columns: Sequence[str] | None = None, where: Predicate | str | None = None) -> Scan:
        """The rows, lazily. ``columns``: names to read, in that order; None: all. ``where``: SQL text or a
        predicate made with ``col``; only rows for which it is true are returned, and files that cannot hold one
        are not read. Raises CallError, SchemaMismatchError. Cost: none until it is read.
        """
        from deltalog.read.scan import Scan

        return Scan(self, columns, where)

    # ------------------------------------------------------------------------------------------ succession

    def after(self, commit: CommitActions, in_commit_timestamp_ms: int | None) -> Snapshot:
        """The next version, built from this one and the commit that was just written. Cost: none."""
        if commit.version != self.version + 1:
            raise ValueError(f"version {commit.version} does not follow {self.version}")
        state = advance(self._state, [commit]).complete(self.url, commit.version)
        segment = Segment(commit.version, self._segment.checkpoint, (*self._segment.commits, commit.version), False)
        return Snapshot(
            self._reader,
            segment,
            state,
            totals=_totals_after(self._totals, commit),
            loaded=self._loaded_after(commit),
            in_commit_timestamp_ms=in_commit_timestamp_ms,
        )

    def _loaded_after(self, commit: CommitActions) -> tuple[pa.Table, tuple[CommitActions, ...]] | None:
        if "_files" in self.__dict__:
            return self._files, (commit,)
        if self._loaded is None or len(self._loaded[1]) >= _MAX_PENDING:
            return None
        return self._loaded[0], (*self._loaded[1], commit)

    def rebased_on(self, checkpoint: Checkpoint) -> Snapshot:
        """The same version, to be read from a checkpoint of it that was just written. Cost: none."""
        twin = Snapshot(
            self._reader,
            Segment(self.version, checkpoint, (), self._segment.has_checksum),
            self._state,
            totals=self._totals,
            loaded=(self._files, ()),
            in_commit_timestamp_ms=self._known_ict_ms,
        )
        return twin


def _totals_after(totals: Totals | None, commit: CommitActions) -> Totals | None:
    # A file that is added again without new rows was live already, and counts once.
    again = any(not add.data_change for add in commit.adds)
    if totals is None or again or any(r.size is None for r in commit.removes):
        return None
    removed = sum(r.size or 0 for r in commit.removes)
    return Totals(
        totals.num_files + len(commit.adds) - len(commit.removes),
        totals.size_bytes + sum(a.size for a in commit.adds) - removed,
    )


def load_latest(reader: LogReader) -> Snapshot:
    """The latest version. Cost: 1 GET, 1 LIST, then 2 GETs with a sound ``.crc``, else the log's small columns.

    Raises TableNotFoundError, CorruptTableError, UnsupportedFeatureError.
    """
    return load(reader, reader.list_latest(), None)


def load(
    reader: LogReader,
    listing: Listing,
    version: int | None,
    *,
    unusable: Sequence[Checkpoint] = (),
    failure: InvalidCheckpointError | None = None,
) -> Snapshot:
    """A version of a listing, falling back to older checkpoints when one cannot be read.

    ``unusable``: checkpoints known to be bad, and ``failure`` what is raised when there is no way round them.
    Raises VersionNotFoundError, MissingVersionError, InvalidCheckpointError and as ``load_latest``.
    """
    passed_over = list(unusable)
    whole = False
    while True:
        try:
            segment = choose_segment(listing, reader.store.url, version, passed_over)
        except (MissingVersionError, VersionNotFoundError):
            if not whole and (not listing.commits or listing.commits[0] > 0):
                listing, whole = reader.list_from(), True
                continue
            if failure is not None:
                raise failure from None
            raise
        try:
            return _load_segment(reader, segment)
        except InvalidCheckpointError as error:
            if segment.checkpoint is None:
                raise
            failure = failure or error
            passed_over.append(segment.checkpoint)


def _load_segment(reader: LogReader, segment: Segment) -> Snapshot:
    from_checksum = _from_checksum(reader, segment) if segment.has_checksum else None
    if from_checksum is not None:
        features.check_readable(from_checksum.protocol, reader.store.url)
        return from_checksum
    base = PartialState() if segment.checkpoint is None else reader.checkpoint_state(segment.checkpoint)
    commits = reader.commits(segment.commits)
    state = advance(base, commits).complete(reader.store.url, segment.version)
    features.check_readable(state.protocol, reader.store.url)
    return Snapshot(reader, segment, state, commits=commits)


def _from_checksum(reader: LogReader, segment: Segment) -> Snapshot | None:
    """The snapshot by its ``.crc``, or None when that is not the checksum of this very commit."""
    checksum = reader.checksum(segment.version)
    state = None if checksum is None else checksum.state()
    if checksum is None or state is None:
        return None
    info = reader.commit_info(segment.version)
    if not checksum.matches(info):
        return None
    ict_ms = None if info is None else info.in_commit_timestamp_ms
    return Snapshot(reader, segment, state, totals=checksum.totals, in_commit_timestamp_ms=ict_ms)
