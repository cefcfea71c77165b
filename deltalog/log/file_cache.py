"""The file actions of a version, that is, its live files and tombstones. These actions are read from the log on first
use, and then cached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from deltalog.errors import CallError, InvalidCheckpointError, MissingVersionError
from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules
from deltalog.log.reader import LogReader
from deltalog.log.replay import Commits, State, Tail, live_files, tail
from deltalog.log.segment import Checkpoint, Segment
from deltalog.log.tip import Tip
from deltalog.parallel import Lazy, in_order, meanwhile
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.paths import checksum_path
from deltalog.protocol.retention import unexpired_tombstones

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalog import arrow_arrays
    from deltalog.log import checksum as checksums
    from deltalog.log import file_list as file_lists
    from deltalog.log import file_statistics, file_tables, table_totals
    from deltalog.log.checkpoint import reader as checkpoint_reader
    from deltalog.log.checkpoint import rows as checkpoint_rows
else:
    lazy_modules(
        __name__,
        "deltalog.arrow_arrays",
        "deltalog.log.file_statistics",
        "deltalog.log.file_tables",
        "deltalog.log.table_totals",
        checkpoint_reader="deltalog.log.checkpoint.reader",
        checkpoint_rows="deltalog.log.checkpoint.rows",
        checksums="deltalog.log.checksum",
        file_lists="deltalog.log.file_list",
        pa="pyarrow",
    )

# The maximum number of file actions that a handle keeps in memory after writes; from these actions it can write its
# next checkpoint without reading the log.
FEW_FILES = 16_384
_MAX_PENDING = 64
_SLICE_ROWS = 131_072
Piece = TypeVar("Piece")


class NewCheckpoint(msgspec.Struct, frozen=True):
    """The cached contents of a checkpoint that was just written. ``totals``: the totals of the live files in the
    checkpoint; None if they were not counted. ``tombstones``: the tombstones in the checkpoint (schema TOMBSTONES);
    None if there are more than FEW_FILES."""

    checkpoint: Checkpoint
    totals: table_totals.Totals | None
    tombstones: pa.Table | None = None


class LoadedFiles(msgspec.Struct, frozen=True):
    """Live files in memory: the ``files`` (schema FILES) of an earlier version, and the commits ``since`` that
    version."""

    files: pa.Table
    since: tuple[CommitActions, ...] = ()


class FileCache:
    """Reads the file actions of the version that ``segment`` rebuilds, and caches them.

    A table handle keeps the cache of its latest version. ``after``, ``on_checkpoint`` and ``through`` create the cache
    for the next snapshot from the contents of this cache, so that only new log files are read for the next version.
    Filling a cache does not change the results of any snapshot. Threads may share it.

    ``tip``: identifies the commit of the version. ``state``: the version's state, against which the commits are
    checked. ``totals``: the totals of the live files, if known. ``commits``: the commits of the segment, if they were
    read. ``loaded``: the live files, if they are in memory. ``tombstones``: the tombstones of the checkpoint, if they
    were loaded into memory. ``unusable``: the checkpoints that could not be read. ``checksum``: the version's ``.crc``,
    if read. ``listed``: the live files to list in the ``.crc`` of a version that was just committed.
    """

    # While a cache is read, its attributes may be replaced with equivalent values, at any moment and by any thread.
    # Therefore each method reads each attribute of the shared state only once.

    def __init__(
        self,
        reader: LogReader,
        segment: Segment,
        state: State,
        tip: Tip,
        *,
        totals: table_totals.Totals | None = None,
        commits: Commits | None = None,
        loaded: LoadedFiles | None = None,
        tombstones: pa.Table | None = None,
        unusable: tuple[Checkpoint, ...] = (),
        checksum: checksums.VersionChecksum | None = None,
        listed: file_lists.FileList | None = None,
    ) -> None:
        self._reader = reader
        self.segment = segment
        self._state = state
        self.tip = tip
        self._totals = totals
        self._commits = commits
        self._loaded = loaded
        self._tombstones = tombstones
        self._unusable = unusable
        self._checksum = checksum
        self._listed = listed
        #: Whether a commit of the segment was missing when it was read, because log clean-up ran after the listing.
        self.is_outdated = False

    @property
    def unusable(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that could not be read so far. Cost: none."""
        return self._unusable

    @property
    def uses_checksum(self) -> bool:
        """Whether the state and the totals come from the version's ``.crc``. Cost: none."""
        return self._checksum is not None

    # ------------------------------------------------------------------------------------------- live files

    def files(self, columns: Sequence[str] | None = None) -> pa.Table:
        """One row per live file, with all columns of deltalog.log.file_tables.FILES, or only those in ``columns``.

        Raises CallError for an unknown column. Cost: the columns in the checkpoint and 1 GET for each commit after it.
        The result is cached only if ``columns`` is not given.
        """
        if columns is None:
            return self._all_files()
        unknown = [name for name in columns if name not in file_tables.FILES.names]
        if unknown:
            raise CallError(
                f"The list of files has no column {unknown[0]!r}. It has {', '.join(file_tables.FILES.names)}."
            )
        schema = pa.schema([file_tables.FILES.field(name) for name in columns])
        pieces = self.file_pieces(lambda piece: piece.select(schema.names), columns)
        return pa.concat_tables([arrow_arrays.empty(schema), *pieces])

    def _all_files(self) -> pa.Table:
        loaded = self._loaded
        if loaded is None:
            files = pa.concat_tables([arrow_arrays.empty(file_tables.FILES), *self.file_pieces(lambda piece: piece)])
            if self._listed is not None and not self._listed.names_paths_of(files):
                self._listed = None  # the list came from a .crc that differs from the log, and the log takes precedence
        elif loaded.since:
            files = live_files(loaded.files, loaded.since)
        else:
            return loaded.files
        self._loaded = LoadedFiles(files)
        return files

    def file_pieces(
        self,
        convert: Callable[[pa.Table], Piece],
        columns: Sequence[str] | None = None,
        leaves: Sequence[file_statistics.Leaf] | None = None,
    ) -> list[Piece]:
        """``convert`` applied to the live files, in pieces of at most _SLICE_ROWS rows, so that the file list of a
        large table is never in memory as a whole.

        ``convert`` receives ``columns``, in any case path and deletion_vector, and if ``leaves`` is passed, also the
        column from which ``statistics_of_files`` reads their statistics. In that case, a requested ``stats`` column may
        be missing, and ``with_text`` adds it. ``convert`` runs in several threads. Cost: as ``files``.
        """
        try:
            return list(self.stream_files(convert, columns, leaves))
        except InvalidCheckpointError as error:
            other = self.without_checkpoint(error)
            pieces = other.file_pieces(convert, columns, leaves)
            self._unusable = other.unusable
            return pieces

    def stream_files(
        self,
        convert: Callable[[pa.Table], Piece],
        columns: Sequence[str] | None = None,
        leaves: Sequence[file_statistics.Leaf] | None = None,
        parallelism: checkpoint_reader.ReadParallelism | None = None,
    ) -> Iterator[Piece]:
        """Like ``file_pieces``, but as an iterator.

        Raises InvalidCheckpointError, possibly after the last piece, also if the checkpoint lacks files according to
        its own count or to the ``.crc``. If the error is raised, read again from the cache that ``without_checkpoint``
        returns, which uses an older checkpoint or the commits.
        """
        if self._loaded is not None:
            yield from in_order(_slices(self.files(), convert))
            return
        names = {"path", "deletion_vector", *(file_tables.FILES.names if columns is None else columns)}
        wanted = checkpoint_rows.Wanted(
            "add", pa.schema([field for field in file_tables.FILES if field.name in names]), leaves
        )
        checkpoint = self.segment.checkpoint
        counts: list[tuple[int, int]] = []
        with self._tail() as after:
            if checkpoint is not None:

                def live(piece: pa.Table) -> Piece:
                    files = after().on(piece)
                    counts.append((piece.num_rows, files.num_rows))
                    return convert(files)

                yield from self._reader.checkpoint(checkpoint).file_pieces(
                    wanted, live, parallelism or checkpoint_reader.FAST
                )
                read, left = (sum(each) for each in zip((0, 0), *counts, strict=True))
                self._check_number(checkpoint, read, left + after().files.num_rows)
                self.tip.check_after_read(self._reader)
            if after().files.num_rows:
                yield from in_order(_slices(after().files, convert))

    def _check_number(self, checkpoint: Checkpoint, read: int, found: int) -> None:
        """Raise InvalidCheckpointError if the number of files in the ``.crc`` exceeds both of two counts: the live
        files (``found``), and the files in the checkpoint (``read``) plus the net number of files added by the commits,
        which is how writers count. The two counts differ if a commit removes a file that is not live or adds a file
        that already is live."""
        stated = 0 if self._checksum is None else self._checksum.totals.num_files
        if found < stated and read + self.commits().num_files_added < stated:
            version = self.segment.version
            raise InvalidCheckpointError(
                f"{self._reader.store.url}: version {version} has {found} live files by checkpoint "
                f"{checkpoint.version} and the commits after it, and {stated} by {checksum_path(version)}. "
                "Restore the checkpoint from a copy; if all files of the table are in it, delete the .crc.",
                version=checkpoint.version,
            )

    @property
    def totals(self) -> table_totals.Totals:
        """The totals of the live files. Cost: none if ``known_totals`` has them, else as ``files``."""
        return self.known_totals or self._counted

    @Lazy
    def _counted(self) -> table_totals.Totals:
        """The totals computed from the files; they take precedence over the totals in a ``.crc``."""
        return table_totals.totals_of(self.files())

    @property
    def known_totals(self) -> table_totals.Totals | None:
        """The totals of the live files, if they are known without reading the files. Cost: none."""
        loaded = self._loaded
        return self._totals if loaded is None or loaded.since else self._counted

    @property
    def listed(self) -> file_lists.FileList | None:
        """The live files to list in the version's ``.crc``, if they are known without reading the log. Cost: none."""
        return self._listed

    # ------------------------------------------------------------------------------------------- tombstones

    def tombstones(self, cutoff_ms: int) -> pa.Table:
        """The tombstones that have not expired at ``cutoff_ms``, with the columns of
        deltalog.log.file_tables.TOMBSTONES.

        Cost: the remove columns of the checkpoint, and 1 GET for each commit after it that is not in memory.
        """
        try:
            return pa.concat_tables([arrow_arrays.empty(file_tables.TOMBSTONES), *self.stream_tombstones(cutoff_ms)])
        except InvalidCheckpointError as error:
            return self.without_checkpoint(error).tombstones(cutoff_ms)

    def stream_tombstones(
        self,
        cutoff_ms: int,
        columns: Sequence[str] | None = None,
        parallelism: checkpoint_reader.ReadParallelism | None = None,
    ) -> Iterator[pa.Table]:
        """Like ``tombstones``, but as an iterator over pieces with ``columns``, which must include path,
        deletion_timestamp and deletion_vector. Raises InvalidCheckpointError, as ``stream_files``."""
        schema = (
            file_tables.TOMBSTONES
            if columns is None
            else pa.schema([file_tables.TOMBSTONES.field(name) for name in columns])
        )
        checkpoint = self.segment.checkpoint
        with self._tail() as after:
            if self._tombstones is not None:
                yield after().on(unexpired_tombstones(self._tombstones.select(schema.names), cutoff_ms))
            elif checkpoint is not None:
                yield from self._reader.checkpoint(checkpoint).file_pieces(
                    checkpoint_rows.Wanted("remove", schema),
                    lambda piece: after().on(unexpired_tombstones(piece, cutoff_ms)),
                    parallelism or checkpoint_reader.LEAN,
                )
            yield after().tombstones(cutoff_ms).select(schema.names)

    def _tail(self) -> AbstractContextManager[Callable[[], Tail]]:
        """The changes made by the commits after the checkpoint; on a remote store they are read concurrently with the
        checkpoint."""
        is_apart = self._reader.store.is_remote and self.segment.checkpoint is not None and self._commits is None
        return meanwhile(lambda: tail(self.commits()), is_apart)

    # ---------------------------------------------------------------------------------------------- commits

    def commits(self) -> Commits:
        """The commits after the checkpoint. Raises CorruptTableError if they contradict the version's state,
        TableReplacedError if the log has another commit of this version. Cost: on the first call, 1 GET each and
        the cost of ``Tip.check_after_read``."""
        commits = self._commits
        if commits is None:
            try:
                commits = self._reader.segment_commits(self.segment)
            except MissingVersionError:
                self.is_outdated = True
                raise
            if self.segment.commits:
                self.tip.check_after_read(self._reader, commits.actions)
            checksums.check_against(self._state, commits.actions, self._reader.store.url, self.segment.version)
            self._commits = commits
        return commits

    @property
    def known_commits(self) -> Sequence[CommitActions]:
        """The commits after the checkpoint, if they are in memory; otherwise an empty sequence. Cost: none."""
        commits = self._commits
        return () if commits is None else commits.actions

    # ------------------------------------------------------------------------------------------- succession

    def after(self, commit: CommitActions, segment: Segment, state: State, new: Collection[str] = ()) -> FileCache:
        """The cache of the version that ``commit`` creates. ``new``: the paths that this commit is the first to
        add. Cost: none."""
        totals = table_totals.totals_after(self.known_totals, commit, new or self._known_new(commit))
        listed = self._listed_after(commit, totals)
        if listed is not None and totals is not None and totals.sizes is None and not listed.has(totals):
            totals = listed = None  # they are counted independently, and no histogram says which of them is right
        return FileCache(
            self._reader,
            segment,
            state,
            Tip.from_commit(commit),
            totals=totals,
            commits=self._commits_with(commit),
            loaded=self._loaded_after(commit),
            tombstones=self._tombstones,
            unusable=self._unusable,
            listed=listed,
        )

    def _listed_after(self, commit: CommitActions, totals: table_totals.Totals | None) -> file_lists.FileList | None:
        """The file list of the next version: derived from the commit alone if the commit adds all live files, otherwise
        from the previous list."""
        if totals is None or totals.num_files > file_lists.MAX_FILES:
            return None
        if totals.num_files == len(commit.adds):
            return file_lists.FileList.from_adds(commit.adds)
        before = self._known_list()
        return None if before is None else before.after(commit)

    def _known_list(self) -> file_lists.FileList | None:
        """The file list of this version, from the first source that is available: the last commit, the files in memory,
        the version's ``.crc``."""
        listed, loaded, checksum, totals = self._listed, self._loaded, self._checksum, self.known_totals
        if listed is None and totals is not None and totals.num_files <= file_lists.MAX_FILES:
            if loaded is not None:
                listed = file_lists.FileList.from_adds(file_tables.add_actions(self.files()))
            elif checksum is not None and checksum.all_files is not None:
                listed = file_lists.FileList.decoded(checksum.all_files)
            self._listed = listed
        return listed

    def _known_new(self, commit: CommitActions) -> Collection[str]:
        """The paths from ``maybe_again`` that, according to the files in memory, are not live; empty if no files are in
        memory."""
        loaded = self._loaded
        wanted = [] if loaded is None else table_totals.maybe_again(commit)
        if loaded is None or not wanted:
            return ()
        paths = loaded.files["path"]
        live = set(paths.filter(pc.is_in(paths, value_set=arrow_arrays.strings(wanted))).to_pylist())
        for each in loaded.since:
            live.difference_update(remove.path for remove in each.removes)
            live.update(add.path for add in each.adds)
        return set(wanted) - live

    def _commits_with(self, commit: CommitActions) -> Commits | None:
        """The commits after the checkpoint, including ``commit``. Up to FEW_FILES file actions are kept in memory, so
        that the next checkpoint need not read them again."""
        known = self._commits
        if known is None or known.runs:
            return None
        commits = [*known.actions, commit]
        small = sum(len(each.adds) + len(each.removes) for each in commits) <= FEW_FILES
        return Commits(commits) if small else None

    def _loaded_after(self, commit: CommitActions) -> LoadedFiles | None:
        loaded = self._loaded
        if loaded is None or len(loaded.since) >= _MAX_PENDING:
            return None
        return LoadedFiles(loaded.files, (*loaded.since, commit))

    def on_checkpoint(self, written: NewCheckpoint, segment: Segment) -> FileCache:
        """The cache of the same version, based on a checkpoint of this version that was just written. Cost: none."""
        return FileCache(
            self._reader,
            segment,
            self._state,
            self.tip,
            totals=written.totals or self.known_totals,
            commits=Commits(),
            loaded=self._loaded,
            tombstones=written.tombstones,
            checksum=self._checksum,
            listed=self._listed,
        )

    def through(self, reader: LogReader) -> FileCache:
        """The cache of the same version, for another reader of the same table. Cost: none."""
        return FileCache(
            reader,
            self.segment,
            self._state,
            self.tip,
            totals=self._totals,
            commits=self._commits,
            loaded=self._loaded,
            tombstones=self._tombstones,
            unusable=self._unusable,
            checksum=self._checksum,
            listed=self._listed,
        )

    def without_checkpoint(self, error: InvalidCheckpointError) -> FileCache:
        """The cache of the same version, but without the segment's checkpoint, which ``error`` reports as unreadable.
        The new cache uses an older checkpoint, or only the commits. Raises ``error`` if these are missing. Cost: 1
        LIST."""
        checkpoint = self.segment.checkpoint
        known = self._unusable
        unusable = known if checkpoint is None or checkpoint in known else (*known, checkpoint)
        segment = self._reader.segment(self._reader.list_from(), self.segment.version, unusable, error)
        return FileCache(
            self._reader,
            segment,
            self._state,
            self.tip,
            totals=self._totals,
            unusable=unusable,
            checksum=self._checksum,
        )


def _slices(files: pa.Table, convert: Callable[[pa.Table], Piece]) -> Iterator[Callable[[], Iterator[Piece]]]:
    for start in range(0, files.num_rows, _SLICE_ROWS):
        yield partial(_converted, files.slice(start, _SLICE_ROWS), convert)


def _converted(files: pa.Table, convert: Callable[[pa.Table], Piece]) -> Iterator[Piece]:
    yield convert(files)
