"""Removes the values inside null lists and maps before the columns are written. Pure.

In Arrow, a null list may have a nonzero length; its values belong to no row. Callers can pass null lists that contain
values, and such lists can also result from masking a struct or casting fixed-size lists. The Parquet writer of Arrow 20
rejects such lists ("Lists with non-zero length null components are not supported").
"""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from deltalog.arrow_arrays import packed_lists, scalar
from deltalog.lazy_arrow import pc


def without_hidden(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values, with lists and maps emptied where they, or a value that contains them, are null. Returns
    ``values`` itself if nothing changes. For lists without nulls, only the null count of the array is read."""
    if not _has_lists(values.type):
        return values
    chunks = values.chunks
    packed = [_packed(chunk) for chunk in chunks]
    if all(new is old for new, old in zip(packed, chunks, strict=True)):
        return values
    return pa.chunked_array(packed, values.type)


@functools.lru_cache(maxsize=1024)
def _has_lists(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        return any(_has_lists(field.type) for field in kind.fields)
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_map(kind))


def _packed(values: Any) -> Any:
    if not len(values) or not _has_lists(values.type):
        return values
    return _packed_struct(values) if pt.is_struct(values.type) else _packed_lists(values)


def _packed_struct(values: Any) -> Any:
    # flatten() sets the children of a null struct to null.
    children = values.flatten()
    packed = [_packed(child) for child in children]
    if all(new is old for new, old in zip(packed, children, strict=True)):
        return values
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(packed, fields=list(values.type.fields), mask=mask)


def _packed_lists(values: Any) -> Any:
    kind = values.type
    lists = _with_entries(values) if pt.is_map(kind) else values
    first, last = (lists.offsets[row].as_py() for row in (0, len(lists)))
    lengths, is_packed = None, True
    if lists.null_count:
        lengths = pc.list_value_length(lists)
        is_packed = pc.sum(lengths, min_count=0).as_py() == last - first
    if is_packed and not _has_lists(kind.field(0).type):
        return values
    inner = lists.values.slice(first, last - first) if is_packed else _visible(lists, first, last)
    packed = _packed(inner)
    if is_packed and packed is inner:
        return values
    if pt.is_map(kind):  # when pyarrow reads a map's keys, it ignores the offset of the map's entries
        packed = pa.StructArray.from_arrays(packed.flatten(), fields=list(packed.type.fields))
    if lengths is None:
        return packed_lists(kind, pc.list_value_length(lists), packed)
    return packed_lists(kind, pc.fill_null(lengths, scalar(0, lengths.type)), packed, lists.is_valid())


def _visible(lists: Any, first: int, last: int) -> Any:
    """The values inside the lists, without those that null lists hide."""
    if pt.is_nested(lists.type.value_type):
        return lists.flatten()
    # If few nulls are adjacent, flatten() is ten times slower than the code below.
    offsets = lists.buffers()[1]
    every = pa.Array.from_buffers(lists.type, len(lists), [None, offsets], offset=lists.offset, children=[lists.values])
    return lists.values.slice(first, last - first).filter(lists.is_valid().take(pc.list_parent_indices(every)))


def _with_entries(maps: Any) -> Any:
    """Maps as lists of their entries, without copying the data."""
    kind, (validity, offsets) = maps.type, maps.buffers()[:2]
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], fields=[kind.key_field, kind.item_field])
    lists = pa.list_(pa.field("entries", entries.type, False))
    return pa.Array.from_buffers(lists, len(maps), [validity, offsets], offset=maps.offset, children=[entries])
