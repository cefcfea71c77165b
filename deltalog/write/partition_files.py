"""Writes streams of rows into files of partitions, one row group at a time.

Spec: PROTOCOL.md#data-files, #per-file-statistics.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from deltalog.log.commit_summary import CHECKSUM_TAG
from deltalog.parallel import mapped
from deltalog.parquet.file_writer import ROW_GROUP_ROWS, GrowingFile
from deltalog.protocol.actions import AddFile
from deltalog.protocol.paths import encode_path
from deltalog.storage.base import LogStore, keep_cleanup_errors
from deltalog.write.data_files import TARGET_BYTES, WriteLayout, by_partition, conformed, discard
from deltalog.write.input_streams import as_batches

#: The size of a row group in memory.
GROUP_BYTES = 8 << 20
#: The maximum total size of a stream's rows that are held in memory until the row groups of their partitions are full.
HELD_BYTES = 32 << 20
_MOST_WRITERS = 4

# Partition values, keyed by the physical names of the columns.
_Values = tuple[tuple[str, str | None], ...]


def num_writers() -> int:
    """The number of streams to write in parallel."""
    return min(_MOST_WRITERS, os.cpu_count() or 1)


def write_streams(
    store: LogStore,
    streams: Sequence[Iterable[pa.RecordBatch]],
    layout: WriteLayout,
    new_uuid: Callable[[], str],
    clock_ms: int,
) -> tuple[list[AddFile], int]:
    """Write streams of rows into new files, which are durable on return; several streams are written in parallel.
    Returns the add actions and the number of rows.

    The rows should be grouped by partition, to save memory. On an error, the files written so far are deleted on a
    best-effort basis. Memory: GROUP_BYTES for each stream in progress, and HELD_BYTES if the rows of different
    partitions alternate. Raises SchemaMismatchError if the rows do not fit the schema, StoreError. Cost: 1 PUT for each
    file.
    """
    # Names are generated here rather than in the threads, because the threads run in varying order.
    files = [_PartitionFiles(store, layout, new_uuid(), clock_ms) for _ in streams]
    threads = num_writers() if num_writers() > 1 else 0
    try:
        for _ in mapped(zip(files, streams, strict=True), lambda pair: pair[0].write(pair[1]), threads, 0):
            pass
    except BaseException as error:
        keep_cleanup_errors(error, discard(store, [add.path for each in files for add in each.adds]))
        raise
    return [add for each in files for add in each.adds], sum(each.rows for each in files)


@dataclass
class _Held:
    """Rows of a partition, with the columns of the file, held in memory until they fill a row group."""

    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0


class _PartitionFiles:
    """Writes the files of one stream; one file is open at a time."""

    def __init__(self, store: LogStore, layout: WriteLayout, unique: str, clock_ms: int) -> None:
        self.adds: list[AddFile] = []
        self.rows = 0
        self._store = store
        self._layout = layout
        self._unique = unique
        self._clock_ms = clock_ms
        self._held: dict[_Values, _Held] = {}
        self._held_bytes = 0
        self._open: _OpenFile | None = None
        self._group_bytes = layout.options.target_bytes or TARGET_BYTES

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all rows. After an error, ``adds`` contains only the files that were completed."""
        try:
            for batch in as_batches(batches):
                if batch.num_rows:
                    self._add(batch)
                del batch  # before the next one is read
            self._write_all()
            self._complete()
        except BaseException as error:
            if self._open is not None:
                self._open.abort(error)
            raise

    def _add(self, batch: pa.RecordBatch) -> None:
        layout = self._layout
        rows = conformed(pa.Table.from_batches([batch]), layout.row_schema, layout.rules, layout.is_new)
        for values, part in by_partition(rows, layout):
            step = self._step_rows(part)
            for start in range(0, part.num_rows, step):
                self._take(values, part.slice(start, step))

    def _step_rows(self, rows: pa.Table) -> int:
        """The number of rows that are buffered at a time: all of them, or as many as fit into ``_group_bytes``."""
        return max(1, min(int(rows.num_rows), int(rows.num_rows) * self._group_bytes // max(int(rows.nbytes), 1)))

    def _take(self, values: Mapping[str, str | None], rows: pa.Table) -> None:
        """Buffer rows until their partition reaches its size limit, or until all partitions together reach the total
        limit."""
        key, stored = tuple(values.items()), self._layout.file_columns.stored_rows(rows)
        held = self._held.setdefault(key, _Held())
        held.tables.append(stored)
        held.rows += stored.num_rows
        held.size_bytes += stored.nbytes
        self._held_bytes += stored.nbytes
        if held.size_bytes >= min(GROUP_BYTES, self._group_bytes) or held.rows >= ROW_GROUP_ROWS:
            self._write_group(key)
        elif self._held_bytes >= HELD_BYTES:
            self._write_all()

    def _write_all(self) -> None:
        while self._held:
            self._write_group(next(iter(self._held)))

    def _write_group(self, values: _Values) -> None:
        if self._open is not None and self._open.values != values:
            if self._open.values in self._held:
                self._write_group(self._open.values)
            self._complete()
        held = self._held.pop(values)
        self._held_bytes -= held.size_bytes
        rows = pa.concat_tables(held.tables)
        del held
        if self._open is not None and not self._open.takes(rows):
            self._complete()
        if self._open is None:
            unique = f"{len(self.adds):04d}-{self._unique}" if self.adds else self._unique
            self._open = _OpenFile(self._store, self._layout, values, unique, rows)
        pa.default_memory_pool().release_unused()  # releases the memory that allocators cache for each thread
        self._open.file.write(rows)
        self.rows += rows.num_rows
        del rows
        pa.default_memory_pool().release_unused()

    def _complete(self) -> None:
        """Close the open file, if there is one, and add its add action to ``adds``."""
        if self._open is not None:
            opened, self._open = self._open, None
            self.adds.append(opened.completed(self._clock_ms))


class _OpenFile:
    """An open file of one partition. ``first``: its first rows."""

    def __init__(self, store: LogStore, layout: WriteLayout, values: _Values, unique: str, first: pa.Table) -> None:
        self.values = values
        self._path = layout.path(dict(values), unique)
        self._target_bytes = layout.options.target_bytes or TARGET_BYTES
        with contextlib.ExitStack() as output:
            sink = output.enter_context(store.open_output(self._path))
            self.file = GrowingFile(
                sink, first, layout.file_columns, checksum=layout.checksum, options=layout.stored_options
            )
            self._output = output.pop_all()

    def takes(self, rows: pa.Table) -> bool:
        """Whether these rows, which belong to the file's partition, still fit into the file."""
        return self.file.tell() < self._target_bytes and self.file.takes(rows)

    def completed(self, clock_ms: int) -> AddFile:
        """Close the file, which makes it durable. Raises StoreError; the file does not exist then."""
        with self._output:
            self.file.close()
        written = self.file.written()
        return AddFile(
            path=encode_path(self._path),
            partition_values=dict(self.values),
            size=written.size_bytes,
            modification_time=clock_ms,
            data_change=True,
            stats=written.statistics,
            tags=None if written.sha256 is None else {CHECKSUM_TAG: written.sha256},
        )

    def abort(self, error: BaseException) -> None:
        """Delete the file after an error."""
        with contextlib.suppress(Exception):
            self.file.close()
        try:
            self._output.__exit__(type(error), error, error.__traceback__)
        except Exception as failure:
            keep_cleanup_errors(error, [failure])
