"""The one way to a Parquet file that another program may have written: ``open_parquet`` for its rows, ``read_footer``
for what its footer says of its columns.

pyarrow ends the process where the metadata of a column chunk is wrong, and takes memory and time out of proportion for
lists and trees of columns that only claim their size. Rows are read by Arrow's C++ code alone, which raises for a wrong
chunk, so that its lists need bounds only: a footer of usual size costs nothing but its length. The metadata of column
chunks is taken only from footers that ``footer_rules.checked`` has encoded anew.
"""

from __future__ import annotations

import collections
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.parquet import footer_rules
from deltalog.protocol import limits

# A footer up to this length, of lists up to this number of items, bounds what pyarrow takes for it, if the product of
# both is bounded, too: each column may be below all of the names that fit. Others are checked first.
_PLAIN_BYTES = 512 << 10
_PLAIN_ITEMS = 1_000
_PLAIN_PATH_BYTES = 128 << 20
_END_BYTES = 8  # the footer's length and the magic bytes
_TAIL_BYTES = 64 << 10
_MAGIC = b"PAR1"
# Groups in groups, and the characters of all paths of deeper columns together, once for each level.
_USUAL_LEVELS = 16
_MOST_PREFIX_CHARS = 64 << 20

# Arrow raises many types of errors for damaged footers and pages; a name that is not UTF-8 is a ValueError.
READ_ERRORS = (pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError, TypeError)


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """``source``, a file that pyarrow can read, as a ParquetFile, within bounds of memory and time. ``options``: those
    of ParquetFile. It is for rows, names, types, and numbers of rows and bytes: reading the metadata of a column chunk
    ends the process where that is wrong.

    Raises OSError and ValueError for what is not such a file, and what ``source`` raises. Cost: the GETs of the footer.
    """
    if "metadata" in options:  # a footer that was read before
        return _File(source, **options)
    length = _footer_bytes(source)
    if length <= _PLAIN_BYTES:
        items = min(_PLAIN_ITEMS, _PLAIN_PATH_BYTES // max(length, 1))
        try:
            return _of_possible_rows(_File(source, thrift_container_size_limit=items, **options))
        except OSError as error:
            if "size limit" not in str(error):
                raise
    footer_rules.checked(_footer(source))
    return _of_possible_rows(_File(source, thrift_container_size_limit=limits.MAX_FOOTER_ITEMS, **options))


class _File(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """pyarrow makes the text of each group that a column is in, for each column: a product of lengths and levels."""

    def _build_nested_paths(self) -> dict[str, list[int]]:
        """The columns in a group, by its dotted path, and each column by its own. Raises ValueError."""
        found: dict[str, list[int]] = collections.defaultdict(list)
        characters = 0
        for number, (name, *below) in enumerate(self.reader.column_paths):
            if len(below) > _USUAL_LEVELS:
                characters += len(below) * sum(map(len, below))
                if characters > _MOST_PREFIX_CHARS:
                    raise ValueError("the paths of its columns are too long")
            found[name].append(number)
            for each in below:
                name = f"{name}.{each}"
                found[name].append(number)
        return found


def _of_possible_rows(file: pq.ParquetFile) -> pq.ParquetFile:
    """The file. Raises ValueError where its number of rows cannot be: a reader makes as many NULLs of a column that the
    file lacks."""
    rows = file.metadata.num_rows
    if rows < 0:
        raise ValueError(f"it has {rows} rows by its footer")
    if rows > limits.MAX_FILE_ROWS:
        raise ValueError(f"the number of its rows, {limits.over('MAX_FILE_ROWS', rows)}")
    return file


def read_footer(source: Any) -> pq.FileMetaData:
    """The footer of a Parquet file, of which everything may be read: columns, rows, row groups, key-value metadata,
    and of each column chunk its type, its number of values and its statistics. Nothing else of chunks is in it.

    Raises OSError and ValueError, which say what is wrong, and what ``source`` raises. Cost: 1 GET, 2 for a footer of
    more than 64 KiB. Time: about 20 us for each column chunk.
    """
    return parse_footer(_footer(source))


def parse_footer(footer: bytes) -> pq.FileMetaData:
    """``read_footer`` of the bytes between a file's columns and its last 8."""
    made = footer_rules.checked(footer)
    data = b"".join((_MAGIC, made, struct.pack("<I", len(made)), _MAGIC))
    items = limits.MAX_FOOTER_ITEMS
    with pq.ParquetFile(pa.BufferReader(data), thrift_container_size_limit=items) as file:
        file.schema_arrow.names  # noqa: B018  (raises where the Arrow schema in it cannot be read)
        return file.metadata


def footer_bytes(source: Any) -> bytes:
    """A file's footer, for ``parse_footer``. Raises ValueError for what has none. Cost: as ``read_footer``."""
    return _footer(source)


def _footer_bytes(source: Any) -> int:
    """The length of the footer, as the file says."""
    end = _read(source, max(_size(source) - _END_BYTES, 0), 4)
    return int.from_bytes(end, "little")


def _footer(source: Any) -> bytes:
    size = _size(source)
    start = max(size - _TAIL_BYTES, 0)
    tail = _read(source, start, size - start)
    if len(tail) < _END_BYTES + len(_MAGIC) or tail[-4:] != _MAGIC:
        encrypted = tail[-4:] == b"PARE"
        raise ValueError("its footer is encrypted" if encrypted else "it does not end as a Parquet file does")
    length = int.from_bytes(tail[-_END_BYTES:-4], "little")
    if length + _END_BYTES + len(_MAGIC) > size:
        raise ValueError(f"its footer of {length} bytes is longer than the file of {size}")
    if length > limits.MAX_FOOTER_BYTES:
        raise ValueError(f"the length of its footer, {limits.over('MAX_FOOTER_BYTES', length)}")
    if length + _END_BYTES > len(tail):
        return _read(source, size - _END_BYTES - length, length)
    return tail[-_END_BYTES - length : -_END_BYTES]


def _size(source: Any) -> int:
    return int(source.size()) if hasattr(source, "size") else int(source.seek(0, 2))


def _read(source: Any, start: int, length: int) -> bytes:
    source.seek(start)
    return bytes(source.read(length))
