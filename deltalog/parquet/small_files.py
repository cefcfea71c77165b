"""Reads small data files together: consecutive files with the same columns are returned as one batch.

Opening a file and converting its columns costs far more than decoding a few thousand rows. Each small file is therefore
read as a whole, and the rows of all files with the same columns are converted together.

Spec: as file_reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from deltalog.errors import DeltaLogError, UnsafePathError
from deltalog.parquet import datetime_rebase
from deltalog.parquet.file_reader import MAX_BATCH_ROWS, Assembly, DataFile, FileLayout, open_file
from deltalog.parquet.footers import READ_ERRORS, open_parquet
from deltalog.storage.table_files import TableFiles

#: Files up to this size are read together with others.
SMALL_BYTES = 1 << 20
# Limits for a group of files that are read together: stored bytes, decompressed bytes, and the number of files.
_STORED_BYTES = 256 << 10
_PAGES_BYTES = 2 << 20
_MOST_FILES = 256


def read_small_files(
    files: TableFiles, wanted: Sequence[DataFile], layout: FileLayout, counted: Callable[[int], object]
) -> Iterator[pa.RecordBatch]:
    """The rows of files, in order, as ``read_file`` would return them for each file, except that small files share
    batches. ``counted`` is called with the number of live rows of each file, according to its footer and deletion
    vector.

    Memory: about 2 MiB of rows for small files; for other files, the size of their batches. Raises as ``read_file``.
    Cost: 1 GET for each small file on a local disk, else as ``read_file``.
    """
    for group in _groups(files, wanted, layout):
        tables = _read_group(files, group, layout) if len(group) > 1 else None
        if tables is None:
            for file in group:
                opened = open_file(files, file, layout)
                counted(opened.live_rows)
                yield from opened.batches()
            continue
        for rows, batches in tables:
            for number in rows:
                counted(number)
            yield from batches


def _groups(files: TableFiles, wanted: Sequence[DataFile], layout: FileLayout) -> Iterator[list[DataFile]]:
    """Groups of files to read together; each file that must be read separately is in a group by itself. Files with
    per-file values (partition columns, row ids) or deleted rows must be read separately."""
    alone = files.store.is_remote or bool(layout.partition_columns or layout.tracking)
    group: list[DataFile] = []
    size_bytes = 0
    for file in wanted:
        is_small = not alone and file.deletion_vector is None and file.size is not None and file.size <= SMALL_BYTES
        if group and (not is_small or len(group) == _MOST_FILES or size_bytes + (file.size or 0) > _STORED_BYTES):
            yield group
            group, size_bytes = [], 0
        if is_small:
            group.append(file)
            size_bytes += file.size or 0
        else:
            yield [file]
    if group:
        yield group


class _Alike:
    """Collects files with the same columns and calendars as the first file."""

    def __init__(self, parquet: Any, file: DataFile, layout: FileLayout) -> None:
        self._schema = parquet.schema_arrow
        self._calendars = _calendars(parquet)
        self._assemble = Assembly(parquet, file, layout)
        self._names = self._assemble.stored_names
        # If all columns are read, pass no names, so that Arrow need not look them up in every file.
        self._columns = None if len(self._names) == len(self._schema) else self._names
        self._tables: list[pa.Table] = []
        self.pages_bytes = 0
        self.rows: list[int] = []

    def takes(self, parquet: Any, pages_bytes: int) -> bool:
        """Whether the rows of another file can be added to those collected so far."""
        return (
            self.pages_bytes + pages_bytes <= _PAGES_BYTES
            and parquet.schema_arrow.equals(self._schema)
            and _calendars(parquet) == self._calendars
        )

    def add(self, parquet: Any, pages_bytes: int) -> None:
        """Read and add the rows of a file."""
        if self._names:
            self._tables.append(parquet.read(columns=self._columns, use_threads=False))
        self.rows.append(parquet.metadata.num_rows)
        self.pages_bytes += pages_bytes

    def batches(self) -> list[pa.RecordBatch]:
        """All rows, with the columns and types that the layout defines."""
        if not self._tables:
            return [self._assemble(0, rows, None) for rows in self.rows if rows]
        stored = pa.concat_tables(self._tables).combine_chunks().to_batches()
        self._tables.clear()
        return [self._assemble(0, batch.num_rows, batch) for batch in stored if batch.num_rows]


def _read_group(
    files: TableFiles, group: Sequence[DataFile], layout: FileLayout
) -> list[tuple[list[int], list[pa.RecordBatch]]] | None:
    """For each run of consecutive files with the same columns: the row counts of its files, and the batches that
    contain their rows. None if a file cannot be read, is larger in memory than its size suggests, or is in another
    store. If None is returned, the caller must read each file separately, so that an error can name the file."""
    found: list[_Alike] = []
    try:
        located = [files.find(file.path) for file in group]
        if any(store is not files.store for store, _ in located):
            return None
        # The data of a file that is larger than its size in the log is truncated here; reading it then fails, and the
        # file is read separately.
        stored = files.store.get_many([path for _, path in located], max(file.size or 0 for file in group) + 1)
        for file, data in zip(group, stored, strict=True):
            parquet = open_parquet(pa.BufferReader(data), coerce_int96_timestamp_unit="us", pre_buffer=False)
            pages_bytes = _pages_bytes(parquet.metadata)
            if parquet.metadata.num_rows > MAX_BATCH_ROWS or pages_bytes > _PAGES_BYTES:
                return None
            if not found or not found[-1].takes(parquet, pages_bytes):
                found.append(_Alike(parquet, file, layout))
            found[-1].add(parquet, pages_bytes)
        return [(each.rows, each.batches()) for each in found]
    except UnsafePathError:
        raise
    except (DeltaLogError, *READ_ERRORS):
        return None


def _pages_bytes(metadata: Any) -> int:
    size_bytes: int = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    return size_bytes


def _calendars(parquet: Any) -> datetime_rebase.Calendars:
    return datetime_rebase.file_calendars(parquet.metadata.metadata or {})
