"""The file actions of a version: live files and tombstones, read from the log at their first use, and cached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.arrow_arrays import empty, strings
from deltalog.errors import CallError, InvalidCheckpointError, MissingVersionError
from deltalog.log.checkpoint.reader import FAST, LEAN, ReadParallelism
from deltalog.log.checkpoint.rows import Wanted
from deltalog.log.checksum import VersionChecksum, check_against
from deltalog.log.file_list import MAX_FILES, FileList
from deltalog.log.file_statistics import Leaf
from deltalog.log.file_tables import FILES, TOMBSTONES, add_actions
from deltalog.log.reader import LogReader
from deltalog.log.replay import Commits, State, Tail, live_files, tail
from deltalog.log.segment import Checkpoint, Segment
from deltalog.log.table_totals import Totals, maybe_again, totals_after, totals_of
from deltalog.log.tip import Tip
from deltalog.parallel import Lazy, in_order, meanwhile
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.paths import checksum_path
from deltalog.protocol.retention import unexpired_tombstones

# Maximum number of file actions that a writing handle keeps in memory, so that its next checkpoint reads nothing.
FEW_FILES = 16_384
_MAX_PENDING = 64
_SLICE_ROWS = 131_072
Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint that was just written. ``totals``: of its live files; None where they were not counted.
    ``tombstones``: schema TOMBSTONES, or None where they are more than FEW_FILES."""

    checkpoint: Checkpoint
    totals: Totals | None
    tombstones: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """Live files in memory: ``files`` (schema FILES) of an earlier version, and the commits since."""

    files: pa.Table
    since: tuple[CommitActions, ...] = ()


class FileCache:
    """Reads the file actions of the version that ``segment`` rebuilds, and caches them.

    A table handle holds the cache of its latest version. ``after``, ``on_checkpoint`` and ``through`` pass its contents
    on to the next snapshot, so that a version that follows another reads new files only. Filling a cache changes no
    result: an older snapshot keeps its own. Threads may share it.

    ``tip``: which commit the version is. ``state``: the state of the version, which the commits must not contradict.
    ``totals``: of the live files, where they are known. ``commits``: those of the segment, where they were read.
    ``loaded``: the live files, where they are in memory. ``tombstones``: those in the checkpoint, where they are in
    memory. ``unusable``: checkpoints that cannot be read. ``checksum``: the version's ``.crc``, where it was read.
    ``listed``: the live files for the ``.crc`` of a version that was just committed.
    """

    # Reading replaces an attribute by an equivalent one. Another thread may do so at any moment, so a method reads
    # each attribute once.

    def __init__(
        self,
        reader: LogReader,
        segment: Segment,
        state: State,
        tip: Tip,
        *,
        totals: Totals | None = None,
        commits: Commits | None = None,
        loaded: LoadedFiles | None = None,
        tombstones: pa.Table | None = None,
        unusable: tuple[Checkpoint, ...] = (),
        checksum: VersionChecksum | None = None,
        listed: FileList | None = None,
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
        #: Whether a commit of the segment was gone when it was to be read: the log was cleaned up since it was listed.
        self.is_outdated = False

    # ------------------------------------------------------------------------------------------- live files

    def files(self, columns: Sequence[str] | None = None) -> pa.Table:
        """A row per live file; columns as deltalog.log.file_tables.FILES, or those of them that are named.

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
            if self._listed is not None and not self._listed.names_paths_of(files):
                self._listed = None  # it began with a .crc, and the log takes precedence
        elif loaded.since:
            files = live_files(loaded.files, loaded.since)
        else:
            return loaded.files
        self._loaded = LoadedFiles(files)
        return files

    def file_pieces(
        self,
        convert: Callable[[pa.Table], Piece],
        columns: Sequence[str] = tuple(FILES.names),
        leaves: Sequence[Leaf] | None = None,
    ) -> list[Piece]:
        """``convert`` of the live files, in pieces of at most _SLICE_ROWS rows: a large table is never in memory whole.

        ``convert`` gets the named columns, always path and deletion_vector, and with ``leaves`` the column that
        deltalog.log.file_statistics.of_files reads their statistics from; then ``stats``, where it is named, may
        have to be made by ``with_text``. Threads call it. Cost: as ``files``.
        """
        try:
            return list(self.stream_files(convert, columns, leaves))
        except InvalidCheckpointError as error:
            return self.without_checkpoint(error).file_pieces(convert, columns, leaves)

    def stream_files(
        self,
        convert: Callable[[pa.Table], Piece],
        columns: Sequence[str] = tuple(FILES.names),
        leaves: Sequence[Leaf] | None = None,
        parallelism: ReadParallelism = FAST,
    ) -> Iterator[Piece]:
        """As ``file_pieces``, as an iterator.

        Raises InvalidCheckpointError, possibly after all pieces: also where the checkpoint lacks files by its own count
        or by the ``.crc``. The cache that ``without_checkpoint`` returns then reads an older checkpoint or the commits.
        """
        if self._loaded is not None:
            yield from in_order(_slices(self.files(), convert))
            return
        names = {"path", "deletion_vector", *columns}
        wanted = Wanted("add", pa.schema([field for field in FILES if field.name in names]), leaves)
        checkpoint = self.segment.checkpoint
        counts: list[tuple[int, int]] = []
        with self._tail() as after:
            if checkpoint is not None:

                def live(piece: pa.Table) -> Piece:
                    files = after().on(piece)
                    counts.append((piece.num_rows, files.num_rows))
                    return convert(files)

                yield from self._reader.checkpoint(checkpoint).file_pieces(wanted, live, parallelism)
                read, left = (sum(each) for each in zip((0, 0), *counts, strict=True))
                self._check_number(checkpoint, read, left + after().files.num_rows)
                self.tip.check_after_read(self._reader)
            if after().files.num_rows:
                yield from in_order(_slices(after().files, convert))

    def _check_number(self, checkpoint: Checkpoint, read: int, found: int) -> None:
        """Raise InvalidCheckpointError where files of the ``.crc`` are neither among the live ones (``found``) nor in
        the checkpoint (``read``) and the commits by addition, as writers count: a commit that removes a file which is
        not live, or adds one that is, changes the one number and not the other."""
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
    def totals(self) -> Totals:
        """The totals of the live files. Cost: none where ``known_totals`` has them, else as ``files``."""
        return self.known_totals or self._counted

    @Lazy
    def _counted(self) -> Totals:
        """The totals counted from the files, which take precedence over those of a ``.crc``."""
        return totals_of(self.files())

    @property
    def known_totals(self) -> Totals | None:
        """The totals of the live files, where they are known without reading the files. Cost: none."""
        loaded = self._loaded
        return self._totals if loaded is None or loaded.since else self._counted

    @property
    def listed(self) -> FileList | None:
        """The live files for the version's ``.crc``, where they are known without reading. Cost: none."""
        return self._listed

    # ------------------------------------------------------------------------------------------- tombstones

    def tombstones(self, cutoff_ms: int) -> pa.Table:
        """The tombstones that had not expired at ``cutoff_ms``; columns as deltalog.log.file_tables.TOMBSTONES.

        Cost: the remove columns of the checkpoint, and 1 GET for each commit after it that is not in memory.
        """
        try:
            return pa.concat_tables([empty(TOMBSTONES), *self.stream_tombstones(cutoff_ms)])
        except InvalidCheckpointError as error:
            return self.without_checkpoint(error).tombstones(cutoff_ms)

    def stream_tombstones(
        self,
        cutoff_ms: int,
        columns: Sequence[str] = tuple(TOMBSTONES.names),
        parallelism: ReadParallelism = LEAN,
    ) -> Iterator[pa.Table]:
        """As ``tombstones``, as an iterator over pieces with the named columns, path, deletion_timestamp and
        deletion_vector among them. Raises InvalidCheckpointError, as ``stream_files``."""
        schema = pa.schema([TOMBSTONES.field(name) for name in columns])
        checkpoint = self.segment.checkpoint
        with self._tail() as after:
            if self._tombstones is not None:
                yield after().on(unexpired_tombstones(self._tombstones.select(schema.names), cutoff_ms))
            elif checkpoint is not None:
                yield from self._reader.checkpoint(checkpoint).file_pieces(
                    Wanted("remove", schema),
                    lambda piece: after().on(unexpired_tombstones(piece, cutoff_ms)),
                    parallelism,
                )
            yield after().tombstones(cutoff_ms).select(schema.names)

    def _tail(self) -> AbstractContextManager[Callable[[], Tail]]:
        """What the commits after the checkpoint change; on a remote store they are read beside the checkpoint."""
        is_apart = self._reader.store.is_remote and self.segment.checkpoint is not None and self._commits is None
        return meanwhile(lambda: tail(self.commits()), is_apart)

    # ---------------------------------------------------------------------------------------------- commits

    def commits(self) -> Commits:
        """The commits after the checkpoint. Raises CorruptTableError where they contradict the version's state,
        TableReplacedError where the log has another commit of this version. Cost: 1 GET each, at the first call; and
        as ``Tip.check_after_read``."""
        commits = self._commits
        if commits is None:
            try:
                commits = self._reader.segment_commits(self.segment)
            except MissingVersionError:
                self.is_outdated = True
                raise
            if self.segment.commits:
                self.tip.check_after_read(self._reader, commits.actions)
            check_against(self._state, commits.actions, self._reader.store.url, self.segment.version)
            self._commits = commits
        return commits

    @property
    def known_commits(self) -> Sequence[CommitActions]:
        """The commits after the checkpoint, where they are in memory; else empty. Cost: none."""
        commits = self._commits
        return () if commits is None else commits.actions

    # ------------------------------------------------------------------------------------------- succession

    def after(self, commit: CommitActions, segment: Segment, state: State, new: Collection[str] = ()) -> FileCache:
        """The cache of the next version, that of ``commit``. ``new``: paths that it adds and that were never added
        before. Cost: none."""
        totals = totals_after(self.known_totals, commit, new or self._known_new(commit))
        return FileCache(
            self._reader,
            segment,
            state,
            Tip.of(commit),
            totals=totals,
            commits=self._commits_with(commit),
            loaded=self._loaded_after(commit),
            tombstones=self._tombstones,
            unusable=self._unusable,
            listed=self._listed_after(commit, totals),
        )

    def _listed_after(self, commit: CommitActions, totals: Totals | None) -> FileList | None:
        """The list of the next version: of the commit alone where that adds all files, else by the list before it."""
        if totals is None or totals.num_files > MAX_FILES:
            return None
        if totals.num_files == len(commit.adds):
            return FileList.of(commit.adds)
        before = self._known_list()
        return None if before is None else before.after(commit)

    def _known_list(self) -> FileList | None:
        """By the commits before it, else by the files in memory, else by the version's ``.crc``."""
        listed, loaded, checksum, totals = self._listed, self._loaded, self._checksum, self.known_totals
        if listed is None and totals is not None and totals.num_files <= MAX_FILES:
            if loaded is not None:
                listed = FileList.of(add_actions(self.files()))
            elif checksum is not None and checksum.all_files is not None:
                listed = FileList.decoded(checksum.all_files)
            self._listed = listed
        return listed

    def _known_new(self, commit: CommitActions) -> Collection[str]:
        """Those of the paths that may be added again that are not live, as far as the files in memory say."""
        loaded = self._loaded
        wanted = [] if loaded is None else maybe_again(commit)
        if loaded is None or not wanted:
            return ()
        paths = loaded.files["path"]
        live = set(paths.filter(pc.is_in(paths, value_set=strings(wanted))).to_pylist())
        for each in loaded.since:
            live.difference_update(remove.path for remove in each.removes)
            live.update(add.path for add in each.adds)
        return set(wanted) - live

    def _commits_with(self, commit: CommitActions) -> Commits | None:
        """The commits after the checkpoint with ``commit``, which stay in memory up to FEW_FILES file actions: the next
        checkpoint need not read them again."""
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
        """The cache of the same version on a checkpoint of it that was just written. Cost: none."""
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
        """The cache of the same version, reached through another reader of the same table. Cost: none."""
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
        """The cache of the same version without the segment's checkpoint, which ``error`` reports as unreadable: from
        an older one, or from the commits alone. Raises ``error`` when those are missing. Cost: 1 LIST."""
        checkpoint = self.segment.checkpoint
        unusable = self._unusable if checkpoint is None else (*self._unusable, checkpoint)
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
