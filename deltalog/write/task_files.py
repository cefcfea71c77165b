"""Writes data files in the tasks of a distributed job. Each task writes its rows and returns the add actions of its
files; one transaction commits all these actions.

A task may be attempted more than once, even concurrently, and several attempts may complete. Each attempt uses its own
file names, so attempts do not overwrite each other's files. Only the files that the job returns are committed; no
version refers to any other file.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from deltalog.errors import CallError
from deltalog.parquet.file_options import FileOptions
from deltalog.parquet.file_writer import ROW_GROUP_ROWS, FileColumns, GrowingFile
from deltalog.protocol.actions import AddFile
from deltalog.protocol.paths import encode_path
from deltalog.storage.base import LogStore, keep_cleanup_errors
from deltalog.storage.wrapped import WrappedStore
from deltalog.write.data_files import WriteLayout, by_partition, conformed, discard, remove_job_files
from deltalog.write.input_streams import as_batches

#: The size of the rows that are held in memory and written as one row group.
GROUP_BYTES = 64 << 20
# The codec names of pyarrow, keyed by the names in Spark. The two LZ4 codecs differ only in framing.
_CODECS = {
    "none": "none",
    "uncompressed": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
    "brotli": "brotli",
    "lz4": "lz4",
    "lz4_raw": "lz4",
}


@dataclass(frozen=True)
class TaskFiles:
    """Writes the files of the tasks of one job. The object can be pickled; the pickle contains the storage options,
    including secrets.

    ``job``: an id that follows ``part-`` or ``cdc-`` in the names of the job's files. ``compression``: the name of the
    codec in Spark. ``max_rows``: the maximum number of rows in a file; 0: no limit. ``target_bytes``: once a file has
    this size, no row group is added to it.
    """

    store: LogStore
    layout: WriteLayout
    job: str
    compression: str = "snappy"
    max_rows: int = 0
    target_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if self.compression not in _CODECS:
            raise CallError(f"Unknown compression {self.compression!r}. Known: {', '.join(_CODECS)}.")

    def write(self, batches: Iterable[pa.RecordBatch], task: int, attempt: int) -> tuple[list[AddFile], list[int]]:
        """Write the rows of one attempt of a task. Returns the add actions of the new files, and the row counts of
        these files.

        Rows should be grouped by partition, because each change of partition begins a new file. On an error, the files
        are deleted, best effort. Memory: about GROUP_BYTES, and the store's buffer for one part of an upload. Raises
        SchemaMismatchError, StoreError. Cost: 1 PUT for each file, or a multipart upload for large ones.
        """
        adds: list[AddFile] = []
        rows: list[int] = []
        columns = self.layout.file_columns
        try:
            for values, pieces in _runs(batches, self.layout):
                groups = Groups(pieces, columns)
                while groups.has_more:
                    unique = f"{self.job}-{task:05d}-{attempt}-{len(adds):04d}-{uuid.uuid4().hex[:12]}"
                    add, written = self._write_file(groups, values, columns, unique)
                    adds.append(add)
                    rows.append(written)
        except BaseException as error:
            keep_cleanup_errors(error, discard(self.store, [add.path for add in adds]))
            raise
        return adds, rows

    def remove_all(self) -> int:
        """After the job has failed, try to delete all of its files; no version can refer to these files. Returns
        the number of files found. Cost: as ``remove_job_files``."""
        return remove_job_files(self.store, self.job, self.layout)

    def _write_file(
        self, groups: Groups, values: Mapping[str, str | None], columns: FileColumns, unique: str
    ) -> tuple[AddFile, int]:
        codec = _CODECS[self.compression]
        path, rows = self.layout.path(values, unique, codec), 0
        limit = self.max_rows or ROW_GROUP_ROWS
        with self.store.open_output(path) as output:
            group = groups.take(limit)
            file = GrowingFile(output, group, columns, options=FileOptions(codec))
            try:
                while True:
                    file.write(group)
                    rows += group.num_rows
                    if file.tell() >= self.target_bytes or rows == self.max_rows or not groups.has_more:
                        break
                    group = groups.take(self.max_rows - rows if self.max_rows else limit)
                    if not file.takes(group):
                        groups.put_back(group)
                        break
            finally:
                file.close()
        written = file.written()
        add = AddFile(
            path=encode_path(path),
            partition_values=dict(values),
            size=written.size_bytes,
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=written.statistics,
        )
        return add, rows


def _runs(
    batches: Iterable[pa.RecordBatch], layout: WriteLayout
) -> Iterator[tuple[Mapping[str, str | None], Iterator[pa.Table]]]:
    """Split batches into runs of consecutive rows of the same partition. Yields, for each run, the partition values and
    the rows without the partition columns."""

    def pieces() -> Iterator[tuple[Mapping[str, str | None], pa.Table]]:
        for batch in as_batches(batches):
            if batch.num_rows:
                table = conformed(pa.Table.from_batches([batch]), layout.row_schema, layout.rules)
                yield from by_partition(table, layout)

    for values, run in groupby(pieces(), key=lambda piece: tuple(piece[0].items())):
        yield dict(values), (table for _, table in run)


class Groups:
    """Rows with the columns as they are stored in the files, taken in groups of about ``group_bytes`` (0: GROUP_BYTES)
    or ROW_GROUP_ROWS."""

    def __init__(self, pieces: Iterator[pa.Table], columns: FileColumns, group_bytes: int = 0) -> None:
        self._group_bytes = group_bytes or GROUP_BYTES
        self._pieces = pieces
        self._columns = columns
        self._held: deque[pa.Table] = deque()

    @property
    def has_more(self) -> bool:
        """Whether rows are left."""
        if not self._held:
            table = next(self._pieces, None)
            if table is not None:
                self._held.append(self._columns.stored_rows(table))
        return bool(self._held)

    def take(self, limit: int) -> pa.Table:
        """Read the next rows, at most ``limit`` of them."""
        limit = min(limit, ROW_GROUP_ROWS)
        taken: list[pa.Table] = []
        rows = size_bytes = 0
        while rows < limit and size_bytes < self._group_bytes and self.has_more:
            table = self._held.popleft()
            if table.num_rows > limit - rows:
                self._held.appendleft(table.slice(limit - rows))
                table = table.slice(0, limit - rows)
            taken.append(table)
            rows += table.num_rows
            size_bytes += table.nbytes
        return pa.concat_tables(taken)

    def put_back(self, rows: pa.Table) -> None:
        """Put back the rows taken last."""
        self._held.appendleft(rows)


def storage_of(store: LogStore) -> LogStore:
    """The store of a table's data files in a form that other processes can open, without the wrappers that handle
    commits."""
    while store.reopen is None and isinstance(store, WrappedStore):
        store = store.inner
    return store
