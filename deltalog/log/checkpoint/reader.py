"""Reads a checkpoint: its small actions, its file actions (in pieces), and the sidecars to which it refers.

Spec: PROTOCOL.md#checkpoints-1, #v1-spec, #v2-spec, #checkpoint-schema, #sidecar-files, #sidecar-file-information,
#v2-checkpoint-table-feature. A top-level file is in Parquet, or in JSON like a commit; sidecars are in Parquet.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from deltalog.errors import (
    CorruptTableError,
    InvalidCheckpointError,
    InvalidCommitError,
    ObjectNotFoundError,
    StoreError,
)
from deltalog.lazy_arrow import pq
from deltalog.log.checkpoint.footer import check_footer
from deltalog.log.checkpoint.rows import Wanted, file_actions, present, small_actions
from deltalog.log.file_tables import files_table, tombstones_table
from deltalog.log.replay import PartialState, advance
from deltalog.log.segment import Checkpoint
from deltalog.parallel import in_order, mapped, opened_ahead
from deltalog.parquet.column_ranges import another_view, expect_columns
from deltalog.parquet.footers import open_parquet
from deltalog.protocol.actions import DomainMetadata, Metadata, Protocol, SetTransaction, Sidecar
from deltalog.protocol.codec import CommitActions, decode_commit
from deltalog.protocol.paths import log_path
from deltalog.storage.base import LogStore
from deltalog.storage.remote import parallel_gets
from deltalog.storage.table_files import TableFiles

# Decoding is CPU-bound, so more threads than cores only use more memory.
THREADS = min(4, os.cpu_count() or 4)
# The kinds of small actions, each with one of its required fields.
_SINGLETONS = {
    "protocol": "protocol.minReaderVersion",
    "metaData": "metaData.id",
    "txn": "txn.appId",
    "domainMetadata": "domainMetadata.domain",
}
# The parts of a V2 checkpoint's top-level file that describe the rest of the checkpoint.
_CONTENTS = ("sidecar.path", "checkpointMetadata.tags")
Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class ReadParallelism:
    """How to read file actions in parallel: in pieces of ``rows`` rows, with ``threads`` threads that are at most
    ``ahead`` pieces ahead of the caller. With 0 threads, the caller's thread reads one piece at a time."""

    rows: int = 32_768
    threads: int = THREADS
    ahead: int = 4


FAST, LEAN, ALONE = ReadParallelism(), ReadParallelism(16_384, 1, 1), ReadParallelism(4_096, 0, 0)


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A Parquet file, open until the ``with`` block ends, with its footer and the dotted paths of its columns. Threads
    can share it."""

    path: str
    source: Any
    footer: pq.FileMetaData
    paths: frozenset[str]

    @property
    def groups(self) -> list[int]:
        """The indices of the file's row groups."""
        return list(range(self.footer.num_row_groups))

    def __enter__(self) -> _OpenFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.source.close()


class CheckpointReader:
    """Reads ``checkpoint`` from the log in ``store``. ``files``: gives access to the files that the log names.

    The methods raise InvalidCheckpointError for a damaged or missing checkpoint, CorruptTableError for a missing
    sidecar, and StoreError.
    """

    def __init__(self, store: LogStore, files: TableFiles, checkpoint: Checkpoint, checks_number: bool = True) -> None:
        """``checks_number``: whether ``file_pieces`` compares the number of add actions with the checkpoint's own
        count."""
        self._store = store
        self._files = files
        self._checkpoint = checkpoint
        self._checks_number = checks_number

    def state(self) -> PartialState:
        """The state that results from the protocol, metaData, txn and domainMetadata actions of the checkpoint. Raises
        CorruptTableError if protocol or metaData is missing. Cost: some ranged GETs for each part; a remote store reads
        the parts concurrently."""
        checkpoint = self._checkpoint
        if checkpoint.is_json:
            return advance(PartialState(), [self._json_file()])
        protocol: Protocol | None = None
        metadata: Metadata | None = None
        transactions: dict[str, SetTransaction] = {}
        domains: dict[str, DomainMetadata] = {}
        parts = map(log_path, checkpoint.names)
        for actions in mapped(parts, self._small_actions, parallel_gets(self._store), 0):
            for key, body in actions:
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
            # InvalidCheckpointError does not fit here: the checkpoint file is complete, so the action was already
            # missing from the state from which the file was written.
            raise CorruptTableError(
                f"{self._store.url}: checkpoint {checkpoint.names[0]} has no {missing} action. If no commit before "
                "it is missing, delete the checkpoint; the state is then rebuilt from the commits."
            )
        return PartialState(protocol, metadata, transactions, domains)

    def sidecars(self) -> list[str]:
        """The paths of the sidecars, as written in the checkpoint. Cost: 1 or 2 ranged GETs for each part."""
        if self._checkpoint.is_json:
            return [sidecar.path for sidecar in self._json_file().sidecars]
        found: list[str] = []
        for name in self._checkpoint.names:
            with self._open(log_path(name)) as file:
                self._expect(file, ["sidecar.path"], file.groups, ahead=False)
                found += self._sidecars_in(file)
        return found

    def _sidecars_in(self, file: _OpenFile) -> list[str]:
        return self._contents_of(file, ["sidecar.path"])[0]

    def _contents_of(self, file: _OpenFile, columns: Sequence[str] = _CONTENTS) -> tuple[list[str], dict[str, Any]]:
        """The sidecar paths in a top-level file, and the tags of its checkpointMetadata."""
        paths: list[str] = []
        tags: dict[str, Any] = {}
        for piece in self._parquet(file, columns):
            for key, body in small_actions(piece, ("sidecar", "checkpointMetadata")):
                if key == "sidecar":
                    paths.append(body["path"])
                else:
                    tags.update(body["tags"])
        return paths, tags

    def _small_actions(self, path: str) -> list[tuple[str, dict[str, Any]]]:
        """The actions other than file actions. The null counts of these actions' required fields show which row groups
        contain such actions."""
        found: list[tuple[str, dict[str, Any]]] = []
        with self._open(path) as file:
            self._expect(file, [*_SINGLETONS, *_SINGLETONS.values()], file.groups, ahead=False)
            for group in file.groups:
                required = self._parquet(file, list(_SINGLETONS.values()), [group])
                if any(column.null_count < len(column) for piece in required for column in piece.flatten().columns):
                    for piece in self._parquet(file, list(_SINGLETONS), [group]):
                        found.extend(small_actions(piece, _SINGLETONS))
        return found

    def file_pieces(
        self, wanted: Wanted, convert: Callable[[pa.Table], Piece], parallelism: ReadParallelism = FAST
    ) -> Iterator[Piece]:
        """The file actions in order, in batches of ``parallelism.rows`` rows; ``convert`` converts each batch.

        ``convert`` receives a table as returned by ``rows.file_actions``. ``convert`` runs in the reading threads, so
        that each thread can reuse the memory of the rows and columns that ``convert`` drops. After the last piece,
        raises InvalidCheckpointError if the number of add actions differs from the checkpoint's own count. Cost: the
        columns, in ranged GETs.
        """
        checkpoint = self._checkpoint
        if checkpoint.is_json:
            actions = self._json_file()
            counts, counted = _counting(convert)
            yield counted(_of_json(actions, wanted))
            yield from self._sidecars(map(_path_of, actions.sidecars), wanted, counted, parallelism)
            self._check_number(wanted, counts, actions.checkpoint_tags)
        elif len(checkpoint.names) > 1:
            yield from self._parts(map(log_path, checkpoint.names), wanted, convert, parallelism)
        else:
            yield from self._only_file(wanted, convert, parallelism)

    def _only_file(
        self, wanted: Wanted, convert: Callable[[pa.Table], Piece], parallelism: ReadParallelism
    ) -> Iterator[Piece]:
        """The row groups of the top-level file, followed by those of its sidecars."""
        with self._open(log_path(self._checkpoint.names[0])) as file:
            self._expect(file, [*wanted.stored(file.paths), *_CONTENTS], file.groups, ahead=False)
            sidecars, tags = self._contents_of(file)
            counts, counted = _counting(convert)
            # Starting threads would take longer than reading, if there is only one piece to read.
            split = [file.groups] if file.footer.num_rows <= parallelism.rows else [[group] for group in file.groups]
            read = partial(self._file_actions, file, wanted, counted, parallelism)
            rows = (partial(read, groups) for groups in split)
            yield from in_order(rows, parallelism.threads, parallelism.ahead)
            yield from self._sidecars(sidecars, wanted, counted, parallelism)
            self._check_number(wanted, counts, tags)

    def _parts(
        self,
        paths: Iterable[str],
        wanted: Wanted,
        convert: Callable[[pa.Table], Piece],
        parallelism: ReadParallelism,
        have_sidecars: bool = True,
    ) -> Iterator[Piece]:
        """The actions of several files. Each file is read as a whole. On a remote store, up to 32 files are opened
        ahead. PROTOCOL.md allows no sidecars in a multi-part checkpoint; if a part names some, they are read anyway, so
        that no file is lost."""
        named = ["sidecar.path"] if have_sidecars else []

        def begin(path: str) -> _OpenFile:
            file = self._open(path)
            self._expect(file, [*wanted.stored(file.paths), *named], file.groups, ahead=True)
            return file

        def read(path: str, file: _OpenFile) -> Iterator[Piece]:
            with file:
                yield from self._file_actions(file, wanted, convert, parallelism, None)
                sidecars = self._sidecars_in(file) if have_sidecars else ()
                yield from self._sidecars(sidecars, wanted, convert, parallelism)

        openers, threads, ahead = parallel_gets(self._store), parallelism.threads, parallelism.ahead
        yield from opened_ahead(paths, begin, read, openers, threads, ahead)

    def _sidecars(
        self,
        names: Iterable[str],
        wanted: Wanted,
        convert: Callable[[pa.Table], Piece],
        parallelism: ReadParallelism,
    ) -> Iterator[Piece]:
        paths = (self._files.find_sidecar(name)[1] for name in names)
        yield from self._parts(paths, wanted, convert, parallelism, have_sidecars=False)

    def _file_actions(
        self,
        file: _OpenFile,
        wanted: Wanted,
        convert: Callable[[pa.Table], Piece],
        parallelism: ReadParallelism,
        groups: Sequence[int] | None,
    ) -> Iterator[Piece]:
        for piece in self._parquet(file, wanted.stored(file.paths), groups, parallelism.rows):
            with self._reading(file.path):
                rows = file_actions(piece, wanted)
            yield convert(rows)
        # Releases freed memory that the allocators still keep for this thread.
        pa.default_memory_pool().release_unused()

    def _check_number(self, wanted: Wanted, counts: Sequence[int], tags: Mapping[str, Any]) -> None:
        """Compare the number of add actions with the tag numOfAddFiles, if it exists, to detect missing files."""
        named = str(tags.get("numOfAddFiles"))
        is_number = named.isdecimal() and len(named) < 20
        if self._checks_number and wanted.action == "add" and is_number and int(named) != sum(counts):
            text = f"it has {sum(counts)} add actions, and its tag numOfAddFiles is {named}"
            raise self._unreadable(log_path(self._checkpoint.names[0]), ValueError(text))

    def _open(self, path: str) -> _OpenFile:
        """Open a Parquet file of a checkpoint and validate its footer."""
        with self._reading(path), contextlib.ExitStack() as stack:
            source = self._store.open_input(path)
            stack.callback(source.close)
            with open_parquet(source) as file:
                footer, schema = file.metadata, file.schema_arrow
            groups = map(footer.row_group, range(footer.num_row_groups))
            check_footer(schema, footer.num_rows, (group.total_byte_size for group in groups))
            # The null counts in the metadata of column chunks are not used: pyarrow crashes the process if that
            # metadata is wrong.
            paths = frozenset(footer.schema.column(leaf).path for leaf in range(footer.num_columns))
            stack.pop_all()
            return _OpenFile(path, source, footer, paths)

    def _expect(self, file: _OpenFile, columns: Sequence[str], groups: Sequence[int], ahead: bool) -> None:
        """Announce which columns of a file will be read, so that a remote store can fetch them concurrently."""
        with self._reading(file.path):
            expect_columns(file.source, file.footer, groups, present(columns, file.paths), ahead=ahead)

    def _parquet(
        self,
        file: _OpenFile,
        columns: Sequence[str],
        groups: Sequence[int] | None = None,
        rows: int = FAST.rows,
    ) -> Iterator[pa.Table]:
        """The rows of the file, in batches of ``rows`` rows, with those of the ``columns`` that exist in the file."""
        columns = present(columns, file.paths)
        if not columns:
            return
        with (
            self._reading(file.path),
            open_parquet(
                another_view(file.source),
                metadata=file.footer,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit="us",
            ) as parquet,
        ):
            for batch in parquet.iter_batches(rows, row_groups=groups, columns=columns, use_threads=False):
                yield pa.Table.from_batches([batch])

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        """Convert an error raised while reading a file of the checkpoint into an error that names the file."""
        try:
            yield
        except ObjectNotFoundError as error:
            if path in map(log_path, self._checkpoint.names):
                raise self._unreadable(path, error) from error
            raise CorruptTableError(
                f"{self._store.url}: the sidecar {path} of checkpoint {self._checkpoint.version} is missing; another "
                "process deleted it. Restore it from a copy."
            ) from error
        except StoreError:
            raise  # the store failed, so the checkpoint itself may be valid
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(path, error) from error

    def _json_file(self) -> CommitActions:
        """The actions of a JSON top-level file."""
        path = log_path(self._checkpoint.names[0])
        try:
            return decode_commit(self._store.get(path), self._checkpoint.version)
        except (InvalidCommitError, ObjectNotFoundError) as error:
            raise self._unreadable(path, error) from error

    def _unreadable(self, path: str, error: Exception) -> InvalidCheckpointError:
        return InvalidCheckpointError(
            f"{self._store.url}: {path} of checkpoint {self._checkpoint.version} cannot be read: {error}",
            version=self._checkpoint.version,
        )


def _counting(convert: Callable[[pa.Table], Piece]) -> tuple[list[int], Callable[[pa.Table], Piece]]:
    """``convert``, wrapped to append the number of rows of each call to the returned list. Thread-safe."""
    counts: list[int] = []

    def counted(rows: pa.Table) -> Piece:
        counts.append(rows.num_rows)
        return convert(rows)

    return counts, counted


def _path_of(sidecar: Sidecar) -> str:
    return sidecar.path


def _of_json(actions: CommitActions, wanted: Wanted) -> pa.Table:
    table = files_table(actions.adds) if wanted.action == "add" else tombstones_table(actions.removes)
    return table.select(wanted.text_schema.names)
