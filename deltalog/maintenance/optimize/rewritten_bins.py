"""Rewrites the rows of files into new files, in order, and verifies the row counts.

Spec: PROTOCOL.md#add-file-and-remove-file, #deletion-vectors, #row-tracking, #per-file-statistics.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from deltalog.errors import RowCountError
from deltalog.log.file_statistics import live_rows
from deltalog.log.file_tables import add_actions, files_table
from deltalog.parallel import opened_ahead
from deltalog.parquet.file_reader import DataFile, FileLayout, OpenFile, open_file
from deltalog.parquet.file_writer import ROW_GROUP_ROWS, GrowingFile
from deltalog.parquet.small_files import read_small_files
from deltalog.parquet.stats import nan_columns
from deltalog.protocol import column_mapping, row_tracking
from deltalog.protocol.actions import AddFile
from deltalog.protocol.paths import encode_path
from deltalog.protocol.schema import StructType
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.storage.remote import parallel_gets
from deltalog.storage.table_files import TableFiles
from deltalog.write.data_files import WriteLayout, conformed
from deltalog.write.task_files import Groups, storage_of
from deltalog.write.transaction import Transaction

# The size of a row group in memory.
GROUP_BYTES = 32 << 20
#: Rewritten files are read more often than written, so they use zstd: it needs half the bytes of snappy, but writing
#: takes a third longer.
CODEC = "zstd"
# Small batches are combined up to this size before they are converted.
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of rewriting a bin. ``rows``: the number of rows."""

    adds: Sequence[AddFile]
    rows: int


class _NanFoundError(Exception):
    """A row group contains NaN in columns for which an earlier row group of the file has bounds."""

    def __init__(self, columns: frozenset[str]) -> None:
        super().__init__()
        self.columns = columns


@dataclass(frozen=True)
class BinWriter:
    """Rewrites files of a version. Threads may share a writer. ``files``: locates the data files. ``paths``: the paths,
    as in the log, of all files that this writer wrote; the caller owns the files."""

    files: TableFiles
    read: FileLayout
    write: WriteLayout
    new_uuid: Callable[[], str]
    now_ms: Callable[[], int]
    paths: list[str] = field(default_factory=list)

    @classmethod
    def for_transaction(cls, transaction: Transaction, snapshot: Snapshot, now_ms: Callable[[], int]) -> BinWriter:
        """A writer for rows copied from ``snapshot``, the version on which the transaction is based. Files contain row
        ids and row commit versions, but no partition columns."""
        configuration = snapshot.metadata.configuration
        tracking = row_tracking.kept_columns(configuration, snapshot.url)
        write = transaction.row_writer.layout_of_copies()
        read = FileLayout(write.file_columns.columns, (), column_mapping.mode_of(configuration), tracking)
        return cls(snapshot.reader.files, read, write, transaction.row_writer.new_uuid, now_ms)

    def for_tasks(self) -> BinWriter:
        """A writer that can be pickled. The pickle contains the storage options, including any secrets."""
        files = TableFiles(storage_of(self.store), self.files.allowed_paths)
        return replace(self, files=files, new_uuid=_new_uuid, now_ms=_now_ms, paths=[])

    @property
    def store(self) -> LogStore:
        """The store for new files."""
        return self.files.store

    def rewrite(self, files: pa.Table) -> Rewritten:
        """Rewrite the live rows of files of one partition (schema FILES) into a new file, in order.

        Memory: about GROUP_BYTES plus a few batches. Raises InvalidDataFileError, RowCountError, StoreError. Cost: the
        GETs of the files and their vectors, 1 PUT.
        """
        counted: list[int] = []
        adds = add_actions(files)

        def pieces() -> Iterator[pa.Table]:
            counted.clear()
            return self.conformed(self.batches(adds, self.read, counted))

        written = self.write_rows(pieces, adds[0].partition_values)
        self.check_rows(files, counted, written.rows)
        pa.default_memory_pool().release_unused()
        return written

    def write_rows(self, pieces: Callable[[], Iterator[pa.Table]], values: Mapping[str, str | None]) -> Rewritten:
        """Write rows of one partition as one new file. ``pieces``: a function that returns the rows, cast to the
        table's types; the function is called again if a row group contains NaN in a column for which bounds were
        already written. Cost: 1 PUT."""
        without: frozenset[str] = frozenset()
        while True:
            try:
                return self._write_one(pieces(), values, without)
            except _NanFoundError as found:
                without |= found.columns

    def _write_one(
        self, pieces: Iterator[pa.Table], values: Mapping[str, str | None], without: frozenset[str]
    ) -> Rewritten:
        groups = Groups(pieces, self.write.file_columns, GROUP_BYTES)
        if not groups.has_more:
            return Rewritten((), 0)
        first = groups.take(ROW_GROUP_ROWS)
        options = self.write.stored_options.with_codec(CODEC)
        path = self.write.path(values, self.new_uuid(), str(options.compression))
        with self.store.open_output(path) as output:
            grown = GrowingFile(output, first, self.write.file_columns, options=options, without_bounds=without)
            try:
                pa.default_memory_pool().release_unused()
                grown.write(first)
                rows = first.num_rows
                del first
                while groups.has_more:
                    group = groups.take(ROW_GROUP_ROWS)
                    if not grown.takes(group):
                        raise _NanFoundError(frozenset(nan_columns(group)))
                    grown.write(group)
                    rows += group.num_rows
            finally:
                grown.close()
        return Rewritten((self.described(path, values, grown),), rows)

    def described(self, path: str, values: Mapping[str, str | None], grown: GrowingFile) -> AddFile:
        """The add action of a closed file."""
        written = grown.written()
        add = AddFile(
            path=encode_path(path),
            partition_values=dict(values),
            size=written.size_bytes,
            modification_time=self.now_ms(),
            data_change=False,
            stats=written.statistics,
        )
        self.paths.append(add.path)
        return add

    # ---------------------------------------------------------------------------------------------- reading

    def conformed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Cast rows to the types of the table. Small batches are combined before they are cast."""
        schema = StructType((*self.write.file_columns.columns.fields, *self.write.extra_columns))
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for batch in batches:
            held.append(batch)
            held_bytes += batch.nbytes
            if held_bytes >= _PIECE_BYTES:
                yield conformed(pa.Table.from_batches(held).combine_chunks(), schema)
                held, held_bytes = [], 0
        if held:
            yield conformed(pa.Table.from_batches(held).combine_chunks(), schema)

    def batches(self, adds: Sequence[AddFile], layout: FileLayout, counted: list[int]) -> Iterator[pa.RecordBatch]:
        """The rows of files, in order. Appends the number of live rows of each file to ``counted``; the number is
        computed from the file's footer and deletion vector. On a remote store, threads open the next files in advance;
        on a local store, no threads are used."""
        found, openers = self.files, parallel_gets(self.store)
        wanted = [DataFile.from_add(add) for add in adds]
        if not openers:
            return read_small_files(found, wanted, layout, counted.append)

        def read(_: DataFile, opened: OpenFile) -> Iterator[pa.RecordBatch]:
            counted.append(opened.live_rows)
            yield from opened.batches()

        return opened_ahead(wanted, lambda file: open_file(found, file, layout), read, openers, threads=1)

    def live_rows_by_log(self, adds: Sequence[AddFile]) -> int | None:
        """The number of live rows according to the statistics in the log; None if a file has no statistics."""
        return live_rows(files_table(adds))

    def check_rows(self, files: pa.Table, counted: Sequence[int], written: int) -> None:
        """Raise RowCountError unless the number of rows written equals the number of live rows according to the files'
        footers and deletion vectors, and also according to the log if all files have statistics."""
        for live, source in ((sum(counted), "their footers and deletion vectors"), (live_rows(files), "the log")):
            if live is not None and live != written:
                raise RowCountError(
                    f"{self.store.url}: {files.num_rows} files have {live} live rows by {source}, but {written} were "
                    f"read and written; the first file is {files['path'][0]}. The rewrite of these files was not "
                    "committed. DeltaTable.check(deep=True) reports which file differs from the log.",
                    written=live,
                    found=written,
                )


#: Rewrites the files of one bin (schema FILES).
Rewrite = Callable[[BinWriter, pa.Table], Rewritten]


def _new_uuid() -> str:
    return str(uuid.uuid4())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
