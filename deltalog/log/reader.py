"""Reads log files from a store: listings, commits, the heads of commits, checkpoints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.errors import (
    CorruptTableError,
    InvalidCheckpointError,
    InvalidCommitError,
    MissingInCommitTimestampError,
    MissingVersionError,
    ObjectNotFoundError,
    StoreError,
)
from deltalog.log.checkpoint.footer import check_footer
from deltalog.log.checkpoint.last_checkpoint import read_hint
from deltalog.log.checkpoint.rows import Wanted, file_actions, present, small_actions
from deltalog.log.checksum import VersionChecksum, decode_checksum
from deltalog.log.commit_decoder import decode_commits
from deltalog.log.replay import Commits, PartialState, advance, files_table, tombstones_table
from deltalog.log.segment import Checkpoint, Compaction, Listing, Segment, parse_listing, parse_names
from deltalog.parallel import in_order
from deltalog.protocol.actions import CommitInfo, DomainMetadata, Metadata, Protocol, SetTransaction
from deltalog.protocol.codec import CommitActions, decode_commit, first_commit_info
from deltalog.protocol.paths import (
    LAST_CHECKPOINT,
    LOG_DIRECTORY,
    checksum_path,
    commit_path,
    log_path,
    version_prefix,
)
from deltalog.storage.base import LogStore
from deltalog.storage.table_files import TableFiles

HEAD_BYTES = 4096
_HEADS_AT_ONCE = 1000
# Decoding is the processor's work: more threads than it has cores only hold more pieces.
THREADS = min(4, os.cpu_count() or 4)
# The small actions, and a field of each that is never null.
_SINGLETONS = {
    "protocol": "protocol.minReaderVersion",
    "metaData": "metaData.id",
    "txn": "txn.appId",
    "domainMetadata": "domainMetadata.domain",
}
Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class ReadParallelism:
    """How file actions are read: so many at a time, by so many threads, each so many pieces ahead of the caller."""

    rows: int = 32_768
    threads: int = THREADS
    ahead: int = 4


FAST, LEAN = ReadParallelism(), ReadParallelism(16_384, 1, 1)


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A Parquet file with its footer and the dotted paths of its columns. Threads may share it."""

    path: str
    source: Any
    footer: pq.FileMetaData
    paths: frozenset[str]


class LogReader:
    """The files of one table's ``_delta_log``, and ``files``, those that they name. Holds no state but the stores.

    ``allowed_paths``: places besides the table where the log may name files; see TableFiles.
    """

    def __init__(self, store: LogStore, allowed_paths: Sequence[str] = ()) -> None:
        self.store = store
        self.files = TableFiles(store, allowed_paths)

    def __reduce__(self) -> tuple[Any, ...]:
        return LogReader, (self.store, self.files.allowed_paths)

    def list_from(self, version: int = 0, *, stat: bool = False) -> Listing:
        """The log from a version on. Cost: 1 LIST."""
        start = version_prefix(version) if version > 0 else ""
        if not stat:
            return parse_names(self.store.list_names(LOG_DIRECTORY, start))
        return parse_listing(self.store.list_from(LOG_DIRECTORY, start))

    def list_latest(self) -> Listing:
        """Enough of the log to build the latest version. Cost: 1 GET of the hint and 1 LIST (2 if it is wrong)."""
        try:
            hint = read_hint(self.store.get(log_path(LAST_CHECKPOINT)))
        except ObjectNotFoundError:
            hint = None
        if hint:
            listing = self.list_from(hint)
            if any(c.version >= hint for c in listing.checkpoints):
                return listing
        return self.list_from()

    def commit(self, version: int) -> CommitActions:
        """Raises InvalidCommitError, MissingVersionError. Cost: 1 GET."""
        return self.commits([version])[0]

    def commits(self, versions: Sequence[int]) -> list[CommitActions]:
        """The actions of several commits. Cost: 1 GET each, in parallel where the store does that."""
        files = self.commit_files(versions)
        return [decode_commit(data, version) for version, data in zip(versions, files, strict=True)]

    def commit_files(self, versions: Sequence[int], length: int | None = None) -> list[bytes]:
        """The bytes of commits, or their first ``length``. Raises MissingVersionError. Cost: 1 GET each."""
        try:
            return self.store.get_many([commit_path(v) for v in versions], length)
        except ObjectNotFoundError as error:
            raise self._gone(error.path.rsplit("/", 1)[-1]) from error  # type: ignore[attr-defined]

    def segment_commits(self, segment: Segment) -> Commits:
        """What the commits of a segment amount to. A compaction stands for its commits, as one commit of its last
        version; where it cannot be read, they are read themselves. Cost: 1 GET for each file."""
        found = Commits()
        rest = list(segment.commits)
        for compaction in segment.compactions:
            within = range(compaction.start, compaction.end + 1)
            found += self._in_bulk([v for v in rest if v < compaction.start])
            found += self._compacted(compaction) or self._in_bulk(within)
            rest = [v for v in rest if v > compaction.end]
        return found + self._in_bulk(rest)

    def _in_bulk(self, versions: Sequence[int]) -> Commits:
        return decode_commits(versions, self.commit_files(versions))

    def _compacted(self, compaction: Compaction) -> Commits | None:
        try:
            return Commits([decode_commit(self.store.get(log_path(compaction.name)), compaction.end)])
        except (ObjectNotFoundError, InvalidCommitError):
            return None

    def commit_info(self, version: int) -> CommitInfo | None:
        """The commitInfo of a commit, from its first bytes where it comes first, as it must with ICT.

        Cost: 1 GET of 4 KiB; 1 more of the whole file when commitInfo is longer or not first. Raises
        MissingVersionError.
        """
        return self._info_of(version, self.commit_files([version], HEAD_BYTES)[0])

    def commit_infos(self, versions: Sequence[int]) -> list[CommitInfo | None]:
        """As ``commit_info`` of several commits; None also where a commit is damaged. Cost: 1 GET of 4 KiB each, in
        parallel where the store does that."""
        found: list[CommitInfo | None] = []
        for start in range(0, len(versions), _HEADS_AT_ONCE):
            some = versions[start : start + _HEADS_AT_ONCE]
            for version, head in zip(some, self.commit_files(some, HEAD_BYTES), strict=True):
                try:
                    found.append(self._info_of(version, head))
                except InvalidCommitError:
                    found.append(None)
        return found

    def _info_of(self, version: int, head: bytes) -> CommitInfo | None:
        whole = len(head) < HEAD_BYTES
        info = first_commit_info(head, whole)
        if info is not None:
            return info
        return decode_commit(head if whole else self.commit_files([version])[0], version).commit_info

    def in_commit_timestamp_ms(self, version: int) -> int:
        """Raises MissingInCommitTimestampError when the commit has none. Cost: as ``commit_info``."""
        try:
            info = self.commit_info(version)
        except InvalidCommitError as error:
            raise MissingInCommitTimestampError(
                f"{self.store.url}: the in-commit timestamp of version {version} cannot be read: {error}",
                version=version,
            ) from error
        return required_ict(info, version, self.store.url)

    def checksum(self, version: int) -> VersionChecksum | None:
        """The ``.crc`` of a version, or None when there is none that can be read. Cost: 1 GET."""
        try:
            return decode_checksum(self.store.get(checksum_path(version)))
        except ObjectNotFoundError:
            return None

    # -------------------------------------------------------------------------------------- checkpoints

    def checkpoint_state(self, checkpoint: Checkpoint) -> PartialState:
        """Protocol, metaData, txn and domainMetadata of a checkpoint. Cost: some ranged GETs for each part."""
        if checkpoint.is_json:
            return advance(PartialState(), [self._json_checkpoint(checkpoint)])
        protocol: Protocol | None = None
        metadata: Metadata | None = None
        transactions: dict[str, SetTransaction] = {}
        domains: dict[str, DomainMetadata] = {}
        for name in checkpoint.names:
            for key, body in self._small_actions(log_path(name), checkpoint):
                if key == "protocol":
                    protocol = Protocol.from_json(body)
                elif key == "metaData":
                    metadata = Metadata.from_json(body)
                elif key == "txn":
                    transaction = SetTransaction.from_json(body)
                    transactions[transaction.app_id] = transaction
                elif not body.get("removed"):
                    domain = DomainMetadata.from_json({"removed": False, **body})
                    domains[domain.domain] = domain
        if protocol is None or metadata is None:
            missing = "protocol" if protocol is None else "metaData"
            # Not InvalidCheckpointError: this file is whole, so what it lacks was never in the table's state.
            raise CorruptTableError(
                f"{self.store.url}: checkpoint {checkpoint.names[0]} has no {missing} action. If the commits before "
                "it are all there, delete it and the state is rebuilt from them."
            )
        return PartialState(protocol, metadata, transactions, domains)

    def sidecars_of(self, checkpoint: Checkpoint) -> list[str]:
        """The sidecars that a checkpoint names, as it names them. Raises InvalidCheckpointError. Cost: a ranged GET or
        two for each part."""
        if checkpoint.is_json:
            return [sidecar.path for sidecar in self._json_checkpoint(checkpoint).sidecars]
        found: list[str] = []
        for name in checkpoint.names:
            with contextlib.ExitStack() as stack:
                file = self._open(log_path(name), checkpoint, stack)
                found += self._sidecars(file, checkpoint)
        return found

    def _sidecars(self, file: _OpenFile, checkpoint: Checkpoint) -> list[str]:
        pieces = self._parquet(file, checkpoint, ["sidecar.path"])
        return [body["path"] for piece in pieces for _, body in small_actions(piece, ["sidecar"])]

    def _small_actions(self, path: str, checkpoint: Checkpoint) -> list[tuple[str, dict[str, Any]]]:
        """The few rows that are no file actions. One column of each kind tells which row groups have them."""
        found: list[tuple[str, dict[str, Any]]] = []
        with contextlib.ExitStack() as stack:
            file = self._open(path, checkpoint, stack)
            for group in range(file.footer.num_row_groups):
                required = self._parquet(file, checkpoint, list(_SINGLETONS.values()), [group])
                if any(column.null_count < len(column) for piece in required for column in piece.flatten().columns):
                    for piece in self._parquet(file, checkpoint, list(_SINGLETONS), [group]):
                        found.extend(small_actions(piece, _SINGLETONS))
        return found

    def file_pieces(
        self,
        checkpoint: Checkpoint,
        wanted: Wanted,
        convert: Callable[[pa.Table], Piece],
        parallelism: ReadParallelism = FAST,
    ) -> Iterator[Piece]:
        """The file actions of a checkpoint in order, some ten thousand at a time, each piece through ``convert``.

        ``convert`` is called by threads that read and decode side by side. What a piece drops makes room for the
        next one, so less memory is touched. Raises InvalidCheckpointError. Cost: the columns, in ranged GETs.
        """
        sources: list[Callable[[], Iterator[Piece]]] = []
        sidecars: list[str] = []
        with contextlib.ExitStack() as stack:
            if checkpoint.is_json:
                top_level = self._json_checkpoint(checkpoint)
                sources.append(lambda: iter([convert(_of_json(top_level, wanted))]))
                sidecars = [sidecar.path for sidecar in top_level.sidecars]
            else:
                for name in checkpoint.names:
                    file = self._open(log_path(name), checkpoint, stack)
                    read = partial(self._file_actions, file, checkpoint, wanted, convert, parallelism)
                    groups = range(file.footer.num_row_groups)
                    # Threads take longer to begin than one piece takes to read.
                    parts = (
                        [list(groups)] if file.footer.num_rows <= parallelism.rows else [[group] for group in groups]
                    )
                    sources.extend(partial(read, part) for part in parts)
                    sidecars += self._sidecars(file, checkpoint)
            sources.extend(partial(self._sidecar, name, checkpoint, wanted, convert, parallelism) for name in sidecars)
            yield from in_order(sources, parallelism.threads, parallelism.ahead)

    def _sidecar(
        self,
        named: str,
        checkpoint: Checkpoint,
        wanted: Wanted,
        convert: Callable[[pa.Table], Piece],
        parallelism: ReadParallelism,
    ) -> Iterator[Piece]:
        with contextlib.ExitStack() as stack:
            file = self._open(self.files.find_sidecar(named)[1], checkpoint, stack)
            yield from self._file_actions(file, checkpoint, wanted, convert, parallelism, None)

    def _file_actions(
        self,
        file: _OpenFile,
        checkpoint: Checkpoint,
        wanted: Wanted,
        convert: Callable[[pa.Table], Piece],
        parallelism: ReadParallelism,
        groups: Sequence[int] | None,
    ) -> Iterator[Piece]:
        for piece in self._parquet(file, checkpoint, wanted.stored(file.paths), groups, parallelism.rows):
            with self._reading(file.path, checkpoint):
                rows = file_actions(piece, wanted)
            yield convert(rows)

    def _open(self, path: str, checkpoint: Checkpoint, stack: contextlib.ExitStack) -> _OpenFile:
        """Open a Parquet file of a checkpoint for as long as ``stack`` lasts, and look at its footer."""
        with self._reading(path, checkpoint):
            source = self.store.open_input(path)
            stack.callback(source.close)
            with pq.ParquetFile(source) as file:
                footer, schema = file.metadata, file.schema_arrow
            groups = map(footer.row_group, range(footer.num_row_groups))
            check_footer(schema, footer.num_rows, (group.total_byte_size for group in groups))
            # The metadata of column chunks could tell those that are null throughout, but where a footer lies about
            # a chunk, pyarrow ends the process.
            paths = frozenset(footer.schema.column(leaf).path for leaf in range(footer.num_columns))
            return _OpenFile(path, source, footer, paths)

    def _parquet(
        self,
        file: _OpenFile,
        checkpoint: Checkpoint,
        columns: Sequence[str],
        groups: Sequence[int] | None = None,
        rows: int = FAST.rows,
    ) -> Iterator[pa.Table]:
        """The rows of those of ``columns`` that the file has, ``rows`` at a time."""
        columns = present(columns, file.paths)
        if not columns:
            return
        with (
            self._reading(file.path, checkpoint),
            pq.ParquetFile(
                file.source,
                metadata=file.footer,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit="us",
            ) as parquet,
        ):
            for batch in parquet.iter_batches(rows, row_groups=groups, columns=columns, use_threads=False):
                yield pa.Table.from_batches([batch])

    @contextlib.contextmanager
    def _reading(self, path: str, checkpoint: Checkpoint) -> Iterator[None]:
        """What goes wrong with a file of a checkpoint, as an error that says so."""
        try:
            yield
        except ObjectNotFoundError as error:
            if path in map(log_path, checkpoint.names):
                raise self._unreadable(checkpoint, path, error) from error
            raise CorruptTableError(
                f"{self.store.url}: checkpoint {checkpoint.version} is there, but its sidecar {path} is missing; "
                "something deletes files of the log. Restore it from a copy."
            ) from error
        except StoreError:
            raise  # the store failed, which says nothing about the checkpoint
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(checkpoint, path, error) from error

    def _json_checkpoint(self, checkpoint: Checkpoint) -> CommitActions:
        path = log_path(checkpoint.names[0])
        try:
            return decode_commit(self.store.get(path), checkpoint.version)
        except (InvalidCommitError, ObjectNotFoundError) as error:
            raise self._unreadable(checkpoint, path, error) from error

    def _unreadable(self, checkpoint: Checkpoint, path: str, error: Exception) -> InvalidCheckpointError:
        return InvalidCheckpointError(
            f"{self.store.url}: {path} of checkpoint {checkpoint.version} cannot be read: {error}",
            version=checkpoint.version,
        )

    def _gone(self, name: str) -> MissingVersionError:
        return MissingVersionError(
            f"{self.store.url}: commit {name} was listed and is gone. "
            "Log clean-up may be running: open the table again.",
            version=int(name[:20]),
        )


def required_ict(info: CommitInfo | None, version: int, table: str) -> int:
    """The in-commit timestamp of a commit that must carry one. Raises MissingInCommitTimestampError."""
    if info is not None and info.in_commit_timestamp_ms is not None:
        return info.in_commit_timestamp_ms
    what = "no commitInfo action" if info is None else "no valid inCommitTimestamp in its commitInfo"
    raise MissingInCommitTimestampError(
        f"{table}: version {version} has {what}, though in-commit timestamps are enabled for it. "
        "No time is made up for it. Restore the commit file, or disable in-commit timestamps and enable them again.",
        version=version,
    )


def _of_json(actions: CommitActions, wanted: Wanted) -> pa.Table:
    table = files_table(actions.adds) if wanted.action == "add" else tombstones_table(actions.removes)
    return table.select(wanted.text_schema.names)
