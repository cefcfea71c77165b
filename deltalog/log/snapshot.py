"""A version of a table: read-only, loaded as far as it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from deltalog.arguments import checked
from deltalog.arrow_arrays import empty
from deltalog.errors import CallError, InvalidCheckpointError, MissingVersionError, VersionNotFoundError
from deltalog.log import file_statistics
from deltalog.log.checkpoint.reader import FAST, LEAN, ReadParallelism
from deltalog.log.checkpoint.rows import Wanted
from deltalog.log.checksum import check_against
from deltalog.log.commit_summary import CommitSummary, summary_of
from deltalog.log.file_statistics import Leaf
from deltalog.log.reader import LogReader
from deltalog.log.replay import FILES, TOMBSTONES, Commits, PartialState, State, advance, live_files, tail
from deltalog.log.segment import Checkpoint, Listing, Segment, choose_segment
from deltalog.log.table_totals import Totals, totals_after, totals_of
from deltalog.parallel import Lazy, in_order
from deltalog.protocol import column_mapping, features, timestamps
from deltalog.protocol.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.paths import commit_path
from deltalog.protocol.retention import unexpired_tombstones
from deltalog.protocol.schema import StructType

if TYPE_CHECKING:
    from deltalog.expressions.tree import Predicate
    from deltalog.read.scan import Scan, VariantForm

_MAX_PENDING = 64
# File actions that a handle that writes may keep in memory, so that its next checkpoint reads nothing.
FEW_FILES = 16_384
_SLICE_ROWS = 131_072
_NO_FILES = empty(FILES)
Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint of a snapshot, the totals of the files that writing it has counted, and its tombstones where they
    are few."""

    checkpoint: Checkpoint
    totals: Totals | None
    tombstones: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """Live files in memory: those of an earlier version, and the commits since."""

    files: pa.Table
    since: tuple[CommitActions, ...] = ()


@checked
class Snapshot:
    """The state of a table at one version; never changes. Threads may share it.

    Protocol, metadata and totals come from the version's ``.crc`` where it is sound, else from the checkpoint
    and the commits after it; the file list is read when first asked for and kept.
    """

    # What is read later replaces an attribute by one that says the same: once there, it never goes. Another thread may
    # do so at any moment, so a method reads each of them once.

    def __init__(
        self,
        reader: LogReader,
        segment: Segment,
        state: State,
        *,
        totals: Totals | None = None,
        commits: Commits | None = None,
        loaded: Loaded | None = None,
        tombstones: pa.Table | None = None,
        in_commit_timestamp_ms: int | None = None,
    ) -> None:
        self._reader = reader
        self._segment = segment
        self._state = state
        self._totals = totals
        self._commits = commits
        # Checkpoints that turned out to be unreadable.
        self._passed_over: tuple[Checkpoint, ...] = ()
        self._loaded = loaded
        # The tombstones in the checkpoint, where a handle that wrote it has kept them.
        self._tombstones = tombstones
        self._known_ict_ms = in_commit_timestamp_ms
        # Whether the caller named the version or its time, and so knows that it may be an old one.
        self.is_asked_for = False

    def asked_for(self) -> Snapshot:
        """The same version, as one that the caller has named."""
        same: Snapshot = object.__new__(type(self))
        same.__dict__.update(self.__dict__, is_asked_for=True)
        return same

    def __repr__(self) -> str:
        return f"Snapshot(table={self.url!r}, version={self.version})"

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: the version is loaded anew there. Cost: as ``DeltaTable.snapshot(version)``."""
        return _loaded_again, (self._reader, self.version, self.is_asked_for)

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

    @Lazy
    def schema(self) -> StructType:
        """The table's columns, partition columns included."""
        text = self.metadata.schema_string
        return StructType.from_json(text) if text else StructType()  # the caller's own

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

    @Lazy
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
        commits = self._commits
        infos = ((c.version, c.commit_info) for c in (() if commits is None else commits.actions))
        known = {v: info.in_commit_timestamp_ms for v, info in infos if info is not None}
        known[self.version] = self._known_ict_ms if self._known_ict_ms is not None else known.get(self.version)
        return {version: ict_ms for version, ict_ms in known.items() if ict_ms is not None}

    @Lazy
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

    @Lazy
    def commit_summary(self) -> CommitSummary:
        """What this version's commit added to the version before: files, rows, times, and its author's metadata.
        Cost: 1 GET. Raises MissingVersionError when the commit file was cleaned up, InvalidCommitError."""
        return summary_of(self._reader.commit(self.version))

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
    def clustering_columns(self) -> tuple[tuple[str, ...], ...]:
        """The columns that a clustered table is clustered by, each as its path of names; empty for other tables.

        Spec: PROTOCOL.md#clustered-table. Raises CorruptTableError.
        """
        domain = self._state.domains.get(column_mapping.CLUSTERING_DOMAIN)
        if domain is None or domain.removed:
            return ()
        mode = column_mapping.mode_of(self.metadata.configuration)
        return column_mapping.clustering_columns(domain.configuration, self.schema, mode)

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
        return self.known_totals or self._counted

    @Lazy
    def _counted(self) -> Totals:
        """The totals by the files themselves, which count more than what a ``.crc`` says of them."""
        return totals_of(self.files())

    @property
    def known_totals(self) -> Totals | None:
        """Totals when they are known without reading the files."""
        loaded = self._loaded
        return self._totals if loaded is None or loaded.since else self._counted

    def files(self, columns: Sequence[str] | None = None) -> pa.Table:
        """A row per live file; columns as deltalog.log.replay.FILES, or those of them that are named.

        Raises CallError for a name that is not one of them. Cost: the columns in the checkpoint and one GET for each
        commit after it; all columns are kept for the next call, and named ones are read anew.
        """
        if columns is None:
            return self._all_files()
        unknown = [name for name in columns if name not in FILES.names]
        if unknown:
            raise CallError(f"The list of files has no column {unknown[0]!r}. It has {', '.join(FILES.names)}.")
        schema = pa.schema([FILES.field(name) for name in columns])
        pieces = self.file_pieces(lambda piece: piece.select(schema.names), columns)
        return pa.concat_tables([empty(schema), *pieces])

    def _all_files(self) -> pa.Table:
        loaded = self._loaded
        if loaded is None:
            files = pa.concat_tables([empty(FILES), *self.file_pieces(lambda piece: piece)])
        elif loaded.since:
            files = live_files(loaded.files, loaded.since)
        else:
            return loaded.files
        self._loaded = Loaded(files)
        return files

    def statistics(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The statistics of the live files, a row per row of ``files``: ``num_records``, ``tight_bounds``, and the
        structs ``min_values``, ``max_values`` and ``null_count`` with a field per column, in the columns' types.

        ``columns``: which columns of the table; None: all that are no partition columns. Bounds are as they were
        written: those of text and timestamps may be cut short. What a file lacks is null. Raises
        SchemaMismatchError. Cost: the statistics in the checkpoint, and the commits after it.
        """
        names = self.schema.names if columns is None else columns
        fields = [self.schema.field(name) for name in names if name not in self.partition_columns]
        mapping = column_mapping.mode_of(self.metadata.configuration)
        leaves = file_statistics.leaves_of(StructType(tuple(fields)), mapping)
        pieces = self.file_pieces(lambda piece: _statistics_table(piece, leaves), (), leaves)
        return pa.concat_tables([_statistics_table(_NO_FILES, leaves), *pieces])

    def file_pieces(
        self,
        convert: Callable[[pa.Table], Piece],
        columns: Sequence[str] = tuple(FILES.names),
        leaves: Sequence[Leaf] | None = None,
    ) -> list[Piece]:
        """``convert`` of the live files, some ten thousand rows at a time: large tables need not be held whole.

        ``convert`` gets the columns named, path and deletion_vector in any case, and where ``leaves`` is given
        what deltalog.log.file_statistics.of_files reads them from. It is called by threads. Cost: as ``files``.
        """
        try:
            return list(self.stream_files(convert, columns, leaves))
        except InvalidCheckpointError as error:
            return self.passing_over(error).file_pieces(convert, columns, leaves)

    def stream_files(
        self,
        convert: Callable[[pa.Table], Piece],
        columns: Sequence[str] = tuple(FILES.names),
        leaves: Sequence[Leaf] | None = None,
        parallelism: ReadParallelism = FAST,
    ) -> Iterator[Piece]:
        """As ``file_pieces``, one after the other.

        Raises InvalidCheckpointError, after some of them it may be; ``passing_over`` then has another way.
        """
        if self._loaded is not None:
            yield from in_order(_slices(self.files(), convert))
            return
        names = {"path", "deletion_vector", *columns}
        wanted = Wanted("add", pa.schema([field for field in FILES if field.name in names]), leaves)
        after = tail(self._tail())
        checkpoint = self._segment.checkpoint
        if checkpoint is not None:
            yield from self._reader.checkpoint(checkpoint).file_pieces(
                wanted, lambda piece: convert(after.on(piece)), parallelism
            )
        if after.files.num_rows:
            yield from in_order(_slices(after.files, convert))

    def tombstones(self, cutoff_ms: int) -> pa.Table:
        """Tombstones that had not expired at a cut-off, for checkpoints; columns as deltalog.log.replay.TOMBSTONES."""
        try:
            return pa.concat_tables([empty(TOMBSTONES), *self.stream_tombstones(cutoff_ms)])
        except InvalidCheckpointError as error:
            return self.passing_over(error).tombstones(cutoff_ms)

    def stream_tombstones(self, cutoff_ms: int) -> Iterator[pa.Table]:
        """As ``tombstones``, some ten thousand at a time. Raises InvalidCheckpointError, as ``stream_files``."""
        after = tail(self._tail())
        checkpoint = self._segment.checkpoint
        if self._tombstones is not None:
            yield after.on(unexpired_tombstones(self._tombstones, cutoff_ms))
        elif checkpoint is not None:
            wanted = Wanted("remove", TOMBSTONES)
            yield from self._reader.checkpoint(checkpoint).file_pieces(
                wanted, lambda piece: after.on(unexpired_tombstones(piece, cutoff_ms)), LEAN
            )
        yield after.tombstones(cutoff_ms)

    def passing_over(self, error: InvalidCheckpointError) -> Snapshot:
        """This version without the checkpoint that ``error`` is about: from an older one or from the commits alone.
        Raises ``error`` when they are gone. Cost: 1 LIST and as ``load``."""
        checkpoint = self._segment.checkpoint
        bad = self._passed_over if checkpoint is None else (*self._passed_over, checkpoint)
        return load(self._reader, self._reader.list_from(), self.version, unusable=bad, failure=error)

    def _tail(self) -> Commits:
        commits = self._commits
        if commits is None:
            commits = self._reader.segment_commits(self._segment)
            check_against(self._state, commits.actions, self.url, self.version)
            self._commits = commits
        return commits

    def file_path(self, add_path: str) -> str:
        """Where the data file that the log names ``add_path`` lies: in the table, or in a place that
        ``DeltaTable.open(allowed_paths=)`` named. Raises UnsafePathError."""
        return self._reader.files.location(add_path)

    @property
    def reader(self) -> LogReader:
        """The log that this snapshot was read from."""
        return self._reader

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        *,
        variants: VariantForm = "binary",
    ) -> Scan:
        """The rows, lazily. ``columns``: names to read, in that order; None: all. ``where``: SQL text or a
        predicate made with ``col``; only rows for which it is true are returned, and files that cannot hold one
        are not read.

        Where row tracking is enabled, ``_metadata.row_id`` and ``_metadata.row_commit_version`` can be asked for
        among the columns. ``variants="json"`` gives variants as JSON text; else they are structs of metadata and
        value, which ``variant_to_python`` takes. Raises CallError, SchemaMismatchError. Cost: none until it is read.
        """
        from deltalog.read.scan import Scan

        return Scan(self, columns, where, variants)

    # ------------------------------------------------------------------------------------------ succession

    def after(self, commit: CommitActions, in_commit_timestamp_ms: int | None) -> Snapshot:
        """The next version, built from this one and the commit that was just written. Cost: none."""
        if commit.version != self.version + 1:
            raise ValueError(f"version {commit.version} does not follow {self.version}")
        state = advance(self._state, [commit]).complete(self.url, commit.version)
        commits = (*self._segment.commits, commit.version)
        segment = replace(self._segment, version=commit.version, commits=commits, has_checksum=False)
        return Snapshot(
            self._reader,
            segment,
            state,
            totals=totals_after(self.known_totals, commit),
            commits=self._commits_with(commit),
            loaded=self._loaded_after(commit),
            tombstones=self._tombstones,
            in_commit_timestamp_ms=in_commit_timestamp_ms,
        )

    def _commits_with(self, commit: CommitActions) -> Commits | None:
        """The commits after the checkpoint, in memory as long as they are small: the next checkpoint need not read
        them again."""
        known = self._commits
        if known is None or known.added:
            return None
        commits = [*known.actions, commit]
        small = sum(len(each.adds) + len(each.removes) for each in commits) <= FEW_FILES
        return Commits(commits) if small else None

    def _loaded_after(self, commit: CommitActions) -> Loaded | None:
        loaded = self._loaded
        if loaded is None or len(loaded.since) >= _MAX_PENDING:
            return None
        return Loaded(loaded.files, (*loaded.since, commit))

    def through(self, reader: LogReader) -> Snapshot:
        """The same version, reached through another reader of the same table. Cost: none."""
        return Snapshot(
            reader,
            self._segment,
            self._state,
            totals=self._totals,
            commits=self._commits,
            loaded=self._loaded,
            tombstones=self._tombstones,
            in_commit_timestamp_ms=self._known_ict_ms,
        )

    def rebased_on(self, written: NewCheckpoint) -> Snapshot:
        """The same version, to be read from a checkpoint of it that was just written. Files that are in memory stay
        there, and others are not read. Cost: none."""
        return Snapshot(
            self._reader,
            Segment(self.version, written.checkpoint, (), self._segment.has_checksum),
            self._state,
            totals=written.totals or self.known_totals,
            commits=Commits(),
            loaded=self._loaded,
            tombstones=written.tombstones,
            in_commit_timestamp_ms=self._known_ict_ms,
        )


class UnreadSnapshot(Snapshot):
    """A version that is known to be in the log but was not read yet. The first access to it reads it, and raises and
    costs as ``load_latest``."""

    def __init__(self, reader: LogReader, version: int) -> None:
        self._reader = reader
        self._version = version
        self.is_asked_for = False

    @property
    def version(self) -> int:
        return self._version

    def __getattr__(self, name: str) -> Any:
        """Called for what is not there: what Snapshot.__init__ would have set."""
        if name not in _READ:
            raise AttributeError(name)
        found = load(self._reader, self._reader.list_from(), self._version)
        self.__dict__.update({**vars(found), **self.__dict__})
        return self.__dict__[name]


_READ = frozenset(
    {"_segment", "_state", "_totals", "_commits", "_passed_over", "_loaded", "_tombstones", "_known_ict_ms"}
)


def _slices(files: pa.Table, convert: Callable[[pa.Table], Piece]) -> Iterator[Callable[[], Iterator[Piece]]]:
    for start in range(0, files.num_rows, _SLICE_ROWS):
        yield partial(_converted, files.slice(start, _SLICE_ROWS), convert)


def _converted(files: pa.Table, convert: Callable[[pa.Table], Piece]) -> Iterator[Piece]:
    yield convert(files)


def _statistics_table(files: pa.Table, leaves: Sequence[Leaf]) -> pa.Table:
    flat = file_statistics.of_files(files, leaves)
    groups = file_statistics.nested(flat, leaves, lambda leaf: leaf.path)
    columns = {"num_records": flat.column("numRecords"), "tight_bounds": flat.column("tightBounds")}
    names = {"minValues": "min_values", "maxValues": "max_values", "nullCount": "null_count"}
    nothing = pa.nulls(flat.num_rows, pa.struct([]))
    return pa.table({**columns, **{name: groups.get(group, nothing) for group, name in names.items()}})


def load_latest(reader: LogReader) -> Snapshot:
    """The latest version. Cost: 1 GET, 1 LIST, then 2 GETs with a sound ``.crc``, else the log's small columns.

    Raises TableNotFoundError, CorruptTableError, UnsupportedFeatureError.
    """
    return load(reader, reader.list_latest(), None)


def _loaded_again(reader: LogReader, version: int, is_asked_for: bool) -> Snapshot:
    found = load(reader, reader.list_from(), version)
    return found.asked_for() if is_asked_for else found


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
            found = _load_segment(reader, segment)
            found._passed_over = tuple(passed_over)
            return found
        except InvalidCheckpointError as error:
            if segment.checkpoint is None:
                raise
            failure = failure or error
            passed_over.append(segment.checkpoint)


def _load_segment(reader: LogReader, segment: Segment) -> Snapshot:
    from_checksum = _from_checksum(reader, segment) if segment.has_checksum else None
    if from_checksum is not None:
        features.check_reached(from_checksum.protocol, reader.store.url, reader.store.catalog)
        return from_checksum
    base = PartialState() if segment.checkpoint is None else reader.checkpoint(segment.checkpoint).state()
    commits = reader.segment_commits(segment)
    state = advance(base, commits.actions).complete(reader.store.url, segment.version)
    features.check_reached(state.protocol, reader.store.url, reader.store.catalog)
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
