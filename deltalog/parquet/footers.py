"""The only way to open a Parquet file that another program may have written: ``open_parquet`` opens a file to read
rows; ``read_footer`` reads the column metadata in the footer.

pyarrow crashes the process if the metadata of a column chunk is wrong, and uses disproportionate memory and time for
lists and column trees with a huge declared size. Rows are read entirely by Arrow's C++ code, which raises an error for
a wrong chunk. Therefore only lists in the footer need limits; for a footer of the usual size, checking its length is
enough. The metadata of column chunks is taken only from footers that ``footer_rules.checked`` has re-encoded.
"""

from __future__ import annotations

import collections
import struct
from typing import Any

import pyarrow as pa

from deltalog.lazy_arrow import pq
from deltalog.parquet import footer_rules
from deltalog.protocol import limits

# Up to this length in bytes and this many items per list, pyarrow parses a footer with little memory and time. The
# product of both is limited too, because the path of each column may contain all the names in the footer. Footers that
# exceed these limits are checked before pyarrow reads them.
_PLAIN_BYTES = 512 << 10
_PLAIN_ITEMS = 1_000
_PLAIN_PATH_BYTES = 128 << 20
_END_BYTES = 8  # the footer's length and the magic bytes
_TAIL_BYTES = 64 << 10
_MAGIC = b"PAR1"
# The usual depth of the column tree; for columns that are nested more deeply, the maximum total length of their paths,
# counted once per level.
_USUAL_LEVELS = 16
_MOST_PREFIX_CHARS = 64 << 20

# Arrow raises many types of errors for damaged footers and pages, such as ValueError for a name that is not UTF-8.
READ_ERRORS = (pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError, TypeError)


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """Open ``source``, a file that pyarrow can read, as a ParquetFile, with bounded memory and time. ``options``: as
    for ParquetFile. Use the result only to read rows, names, types, and numbers of rows and bytes: pyarrow crashes the
    process when it reads invalid metadata of a column chunk.

    Raises OSError and ValueError for an invalid file, and whatever ``source`` raises. Cost: the GETs of the footer.
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
    """A ParquetFile that does not build the path of every enclosing group for every column. pyarrow builds these paths,
    which takes time proportional to path length times depth."""

    def _build_nested_paths(self) -> dict[str, list[int]]:
        """For the dotted path of each group and of each column, the indexes of the columns below or at this path.
        Raises ValueError."""
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
    """The file. Raises ValueError for an implausible number of rows: a reader creates that many NULLs for a column that
    the file lacks."""
    rows = file.metadata.num_rows
    if rows < 0:
        raise ValueError(f"it has {rows} rows by its footer")
    if rows > limits.MAX_FILE_ROWS:
        raise ValueError(f"the number of its rows, {limits.over('MAX_FILE_ROWS', rows)}")
    return file


def read_footer(source: Any) -> pq.FileMetaData:
    """The footer of a Parquet file, with content that is safe to read: columns, rows, row groups, key-value metadata,
    and for each column chunk its type, number of values and statistics. The returned footer contains no other metadata
    of column chunks.

    Raises OSError and ValueError with the reason, and whatever ``source`` raises. Cost: 1 GET, 2 for a footer of
    more than 64 KiB. Time: about 20 us per column chunk.
    """
    return parse_footer(_footer(source))


def parse_footer(footer: bytes) -> pq.FileMetaData:
    """Like ``read_footer``, but parses ``footer``, that is, the bytes between a file's column data and its last 8
    bytes."""
    made = footer_rules.checked(footer)
    data = b"".join((_MAGIC, made, struct.pack("<I", len(made)), _MAGIC))
    items = limits.MAX_FOOTER_ITEMS
    with pq.ParquetFile(pa.BufferReader(data), thrift_container_size_limit=items) as file:
        file.schema_arrow.names  # noqa: B018  (raises if the embedded Arrow schema cannot be read)
        return file.metadata


def footer_bytes(source: Any) -> bytes:
    """The bytes of a file's footer, for ``parse_footer``. Raises ValueError if there is none. Cost: as
    ``read_footer``."""
    return _footer(source)


def _footer_bytes(source: Any) -> int:
    """The length of the footer, as recorded in the file."""
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
