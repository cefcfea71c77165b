"""Decides which Parquet files every Parquet reader reads exactly as deltalog does: those whose columns have the table's
types, so that nothing has to be converted.

Other readers (polars, DuckDB, Arrow's datasets) are faster than deltalog's, but they support neither Spark's legacy
calendars nor files whose older column types must be converted to the table's types. They read a file only if its footer
shows that it needs neither a legacy calendar nor a type conversion.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

import pyarrow as pa

from deltalog.parquet.footer_rules import columns_and_rows
from deltalog.parquet.footers import READ_ERRORS, open_parquet
from deltalog.storage.base import LogStore

# The footers of usual files. A file with a longer footer is not treated as plain; deltalog's own reader, which limits
# the memory for a footer, reads it.
_MOST_BYTES = 512 << 10
_TAIL_BYTES = 8 << 10
_END_BYTES = 8  # the footer's length and the magic bytes
_MAGIC = b"PAR1"
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would wait for its writer
_MARK = b"org.apache.spark."
_LEGACY = re.compile(rb"org\.apache\.spark\.legacy(?:DateTime|INT96)")
_SPARK = re.compile(rb"org\.apache\.spark\.version")
_SPARK_3 = re.compile(rb"org\.apache\.spark\.version\x18[\x01-\x7f](?:[3-9]|[1-9]\d+)\.\d")


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A file that every Parquet reader reads exactly as deltalog does, apart from deleted rows. ``path``: absolute, on
    the local disk. ``rows``: the number of rows according to the footer, including deleted rows. ``columns``: the names
    of the file's columns, in the order of the file."""

    path: str
    rows: int
    columns: tuple[str, ...]


class PlainFiles:
    """Decides which files are plain, from the Arrow types of a table's columns without its partition columns.

    In most files of a table the columns are encoded in the same bytes; each distinct encoding is decoded only once.
    """

    def __init__(self, wanted: pa.Schema) -> None:
        self._wanted = {field.name: field.type for field in wanted}
        self._folded = {name.lower() for name in self._wanted}
        self._kinds: dict[bytes, tuple[str, ...] | None] = {}
        self._encoded = b""  # the columns of the previous file; the next file is likely to have the same columns

    def find(self, store: LogStore, path: str) -> PlainFile | None:
        """The file, if it is plain. None otherwise, also for a missing or damaged file: reading that file in the usual
        way reports the problem. Cost: 1 GET of up to 64 KiB; stores that are no local disk have no plain
        files."""
        local = store.local_path(path)
        if local is None:
            return None
        try:
            footer = _footer(local)
            if footer is None or not _has_this_calendar(footer):
                return None
            encoded, rows = columns_and_rows(footer, self._encoded)
            if encoded not in self._kinds:
                self._kinds[encoded] = self._columns(store, path)
            self._encoded = encoded
        except (*READ_ERRORS, RecursionError):
            return None
        columns = self._kinds[encoded]
        return None if columns is None else PlainFile(local, rows, columns)

    def _columns(self, store: LogStore, path: str) -> tuple[str, ...] | None:
        with store.open_input(path) as source, open_parquet(source) as parquet:
            arrow, stored = parquet.schema_arrow, parquet.metadata.schema
            leaves = [stored.column(number) for number in range(len(stored.names))]
            int96 = {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
        names = tuple(arrow.names)
        if len({name.lower() for name in names}) != len(names):
            return None
        for field in arrow:
            wanted = self._wanted.get(field.name)
            if wanted is None:
                if field.name.lower() in self._folded:
                    # The name differs from the table's only in case, and readers treat such names differently.
                    return None
            elif not _alike(field.type, wanted) or any(field.name.split(".")[0] == root for root in int96):
                return None
        return names


def _footer(path: str) -> bytes | None:
    """The footer of a regular Parquet file; None if the file has no valid footer or the footer is too long. Raises
    OSError."""
    descriptor = os.open(path, os.O_RDONLY | _NO_WAIT)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        tail = os.pread(descriptor, _TAIL_BYTES, max(status.st_size - _TAIL_BYTES, 0))
        length = int.from_bytes(tail[-_END_BYTES:-4], "little")
        if tail[-4:] != _MAGIC or not 0 < length <= min(_MOST_BYTES, status.st_size - _END_BYTES):
            return None
        if length + _END_BYTES > len(tail):
            tail = os.pread(descriptor, length + _END_BYTES, status.st_size - length - _END_BYTES)
        return tail[-_END_BYTES - length : -_END_BYTES] if len(tail) >= length + _END_BYTES else None
    finally:
        os.close(descriptor)


def _has_this_calendar(footer: bytes) -> bool:
    """Whether it is certain that all dates and timestamps are in the Gregorian calendar. Looks for Spark's marks
    anywhere in the footer, so that row groups need not be decoded."""
    if _MARK not in footer:
        return True
    if _LEGACY.search(footer):
        return False
    return len(_SPARK.findall(footer)) == len(_SPARK_3.findall(footer))


def _alike(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether stored values need no conversion. The names of list items and the nullability of fields do not matter."""
    types = pa.types
    if types.is_struct(wanted):
        return (
            types.is_struct(stored)
            and [field.name for field in stored.fields] == [field.name for field in wanted.fields]
            and len({field.name.lower() for field in stored.fields}) == stored.num_fields
            and all(_alike(one.type, other.type) for one, other in zip(stored.fields, wanted.fields, strict=True))
        )
    if types.is_map(wanted):
        return (
            types.is_map(stored)
            and _alike(stored.key_type, wanted.key_type)
            and _alike(stored.item_type, wanted.item_type)
        )
    if types.is_list(wanted):
        return (types.is_list(stored) or types.is_large_list(stored)) and _alike(stored.value_type, wanted.value_type)
    if types.is_string(wanted):
        return types.is_string(stored) or types.is_large_string(stored) or str(stored) == "string_view"
    if types.is_binary(wanted):
        return types.is_binary(stored) or types.is_large_binary(stored) or str(stored) == "binary_view"
    return bool(stored == wanted)
