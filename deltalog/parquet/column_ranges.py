"""Computes the byte ranges of columns in the row groups of a Parquet file.

pyarrow crashes the process if the metadata of a column chunk is damaged. So Arrow's C++ reader first locates the
chunks, reading from a source that refuses to return any bytes; this module inspects only chunks that Arrow has located.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from deltalog.parquet.footers import open_parquet
from deltalog.storage.ranges import Range, RangeReader

# When a file is opened in advance, its footer and its columns are requested immediately if neither exceeds this many
# bytes.
FETCHED_AHEAD_BYTES = 2 << 20


def column_ranges(footer: Any, size: int, groups: Sequence[int], columns: Sequence[str]) -> list[Range]:
    """The byte ranges (start, end) of columns in row groups of a file of ``size`` bytes, from its footer
    (pyarrow.parquet.FileMetaData). The result is empty if the footer is damaged; the error is raised later, when the
    file is read.

    ``columns``: names of top-level columns, or dotted paths into structs. If several of the names cover the same
    column, the column's ranges are repeated for each of these names. Makes no request.
    """
    paths = [footer.schema.column(leaf).path for leaf in range(footer.num_columns)]
    named = Counter(columns)
    leaves = [leaf for leaf, path in enumerate(paths) for _ in range(_times(path, named))]
    if not groups or not leaves or not _are_located(footer, size, groups, [paths[leaf] for leaf in set(leaves)]):
        return []
    return [_chunk(footer.row_group(group).column(leaf)) for group in groups for leaf in leaves]


def expect_columns(source: Any, footer: Any, groups: Sequence[int], columns: Sequence[str], *, ahead: bool) -> None:
    """If the file is in a remote store, tell the open file in advance which columns of which row groups will be read. A
    column that is passed twice is announced twice. With ``ahead``, small columns are requested immediately. Does
    nothing for other files. Raises StoreError."""
    if not isinstance(source, RangeReader) or source.is_complete:
        return
    count = source.expect(column_ranges(footer, source.size(), groups, columns))
    if ahead and count <= FETCHED_AHEAD_BYTES:
        source.fetch()


def has_small_footer(source: Any) -> bool:
    """Whether a remote file's footer is small enough to be kept in memory until the file is read. Makes no request."""
    if not isinstance(source, RangeReader):
        return False
    source.seek(max(source.size() - 8, 0))
    footer_bytes: int = int.from_bytes(source.read(4), "little")
    return footer_bytes <= FETCHED_AHEAD_BYTES


def another_view(source: Any) -> Any:
    """``source`` for use in another thread."""
    return source.view() if isinstance(source, RangeReader) else source


def _times(path: str, named: Mapping[str, int]) -> int:
    """How many of ``named`` select the leaf at ``path``: a name selects a leaf if it equals the leaf's path or a prefix
    of that path."""
    times = 0
    while path:
        times += named[path]
        path = path.rpartition(".")[0]
    return times


def _chunk(chunk: Any) -> Range:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start, start + chunk.total_compressed_size


def _are_located(footer: Any, size: int, groups: Sequence[int], columns: list[str]) -> bool:
    source = _Refusing(size)
    try:
        with open_parquet(source, metadata=footer, pre_buffer=True) as file:
            next(file.iter_batches(1, row_groups=groups, columns=columns, use_threads=False), None)
    except Exception:
        return source.was_read
    return False


class _Refusing(io.RawIOBase):
    """A file whose reads all fail. ``was_read``: whether Arrow has already located all chunks and started reading."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._position = 0
        self.was_read = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence] + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        self.was_read = True
        raise OSError("no byte of this file can be read")
