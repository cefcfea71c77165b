"""Converts Python values to Arrow arrays without calling ``pyarrow.array``. Pure.

``pyarrow.array`` imports pandas, if it is installed, to detect pandas objects. That import takes a third of a second
during the first read of a log in each process. Here all values have simple types, so this module builds the arrays from
buffers.
"""

from __future__ import annotations

import datetime
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

import pyarrow as pa

from deltalog.lazy_arrow import pc

_EPOCH = datetime.date(1970, 1, 1)
STRINGS_MAP = pa.map_(pa.string(), pa.string())
# Leaving out more rows than this by slices would make too many slices.
FEW_ROWS = 16


def int64s(values: Sequence[int | None]) -> pa.Int64Array:
    """Integers; None becomes null. Raises OverflowError, TypeError."""
    return _numbers(pa.int64(), "q", 0, values)


def row_numbers(count: int) -> pa.Int64Array:
    """0 … count - 1, without creating a Python object for each."""
    return pc.indices_nonzero(pa.repeat(TRUE, count)).view(pa.int64())


def uint64s(numbers: array[int]) -> pa.UInt64Array:
    """An array of unsigned 64-bit integers, such as the positions in a bitmap, that shares the memory of
    ``numbers``."""
    return pa.Array.from_buffers(pa.uint64(), len(numbers), [None, pa.py_buffer(numbers)])


def float64s(values: Sequence[float | None]) -> pa.DoubleArray:
    """Floats; None becomes null. Raises TypeError."""
    return _numbers(pa.float64(), "d", 0.0, values)


def _numbers(kind: pa.DataType, code: Literal["q", "d"], zero: float, values: Sequence[Any]) -> Any:
    validity = None
    try:
        data = array(code, values)
    # At least one value is None: an earlier check for None would take longer than the rest of the function, and None is
    # rare.
    except TypeError:
        validity = _validity(values)
        data = array(code, [zero if value is None else value for value in values])
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(data)])


def booleans(values: Sequence[bool | None]) -> pa.BooleanArray:
    """Booleans; None becomes null."""
    data = _bitmap([value is True for value in values])
    return pa.Array.from_buffers(pa.bool_(), len(values), [_validity(values), data])


def strings(values: Sequence[str | None]) -> pa.StringArray:
    """Strings; None becomes null. Raises pyarrow.ArrowCapacityError above 2 GiB."""
    encoded = [b"" if value is None else value.encode() for value in values]
    offsets = array("i", [0])
    try:
        offsets.extend(accumulate(map(len, encoded)))
    except OverflowError:
        raise pa.ArrowCapacityError(f"{len(values)} strings hold more than 2 GiB") from None
    buffers = [_validity(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def strings_map(values: Sequence[Mapping[str, str | None] | None]) -> pa.MapArray:
    """Dictionaries as map<string, string>; None becomes null."""
    keys: list[str] = []
    items: list[str | None] = []
    offsets = array("i", [0])
    for value in values:
        if value:
            keys.extend(value)
            items.extend(value.values())
        offsets.append(len(keys))
    entries = pa.StructArray.from_arrays([strings(keys), strings(items)], fields=_ENTRY_FIELDS)
    buffers = [_validity(values), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(STRINGS_MAP, len(values), buffers, children=[entries])


_ENTRY_FIELDS = [STRINGS_MAP.key_field, STRINGS_MAP.item_field]


def combined(values: Any) -> Any:
    """A table column as one array."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def kept(values: Any, mask: pa.BooleanArray) -> Any:
    """Like ``values.filter(mask)``. Arrays of strings and of string maps are not copied if all dropped rows are empty
    (null rows count as empty). If the arrays are not copied, the result has its own offsets into the same memory."""
    rows = mask.true_count
    if values.null_count == len(values):
        return nulls(rows, values.type)
    if values.type not in (pa.string(), STRINGS_MAP):
        return values.filter(mask)
    memory = values.buffers()[1]
    offsets = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, memory], offset=values.offset)
    starts, ends, last = offsets.slice(0, len(values)), offsets.slice(1), offsets.slice(len(values))
    left_out = pc.invert(mask)
    if not starts.filter(left_out).equals(ends.filter(left_out)):
        return values.filter(mask)
    is_valid = values.is_valid().filter(mask)
    validity = is_valid.buffers()[1] if is_valid.true_count < rows else None
    buffers = [validity, pa.concat_arrays([starts.filter(mask), last]).buffers()[1]]
    if values.type == STRINGS_MAP:
        entries = pa.StructArray.from_arrays([values.keys, values.items], fields=_ENTRY_FIELDS)
        return pa.Array.from_buffers(STRINGS_MAP, rows, buffers, children=[entries])
    return pa.Array.from_buffers(pa.string(), rows, [*buffers, values.buffers()[2]])


def rows_where(is_kept: Any, rows: pa.Table) -> pa.Table:
    """The rows for which ``is_kept``, which has no nulls, is true. If only a few rows are left out, the result consists
    of slices that share the memory of ``rows``."""
    is_kept = combined(is_kept)
    num_left_out = rows.num_rows - is_kept.true_count
    if num_left_out == 0:
        return rows
    if num_left_out > FEW_ROWS:
        return rows.filter(is_kept)
    gaps = [*pc.indices_nonzero(pc.invert(is_kept)).to_pylist(), rows.num_rows]
    starts = [0, *(gap + 1 for gap in gaps)]
    runs = [rows.slice(start, gap - start) for start, gap in zip(starts, gaps) if gap > start]  # noqa: B905
    return pa.concat_tables(runs) if runs else rows.slice(0, 0)


@lru_cache(maxsize=64)
def empty(schema: pa.Schema) -> pa.Table:
    """A table without rows, cached by schema: tables are immutable, and there are few schemas."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


@lru_cache(maxsize=32)
def _shared_nulls(kind: pa.DataType) -> Any:
    return pa.nulls(_SHARED_ROWS, kind)


def nulls(rows: int, kind: pa.DataType) -> Any:
    """Like ``pyarrow.nulls``, except that arrays of the same type with up to 32,768 rows share their memory."""
    return _shared_nulls(kind).slice(0, rows) if rows <= _SHARED_ROWS else pa.nulls(rows, kind)


_SHARED_ROWS = 32_768


def _validity(values: Sequence[object]) -> pa.Buffer | None:
    return _bitmap([value is not None for value in values]) if None in values else None


def _bitmap(bits: Sequence[bool]) -> pa.Buffer:
    packed = bytearray((len(bits) + 7) // 8)
    for index, bit in enumerate(bits):
        if bit:
            packed[index >> 3] |= 1 << (index & 7)
    return pa.py_buffer(bytes(packed))


def if_else(condition: Any, one: Any, other: Any) -> Any:
    """Like ``pyarrow.compute.if_else``, but correct for a null scalar and for a slice of strings or binaries, where
    Arrow 20 returns bytes of other rows."""
    return pc.if_else(condition, _typed_null(one, other), _typed_null(other, one))


def _typed_null(value: Any, other: Any) -> Any:
    is_null = isinstance(value, pa.Scalar) and not value.is_valid
    if is_null and not isinstance(other, pa.Scalar) and other.type in (pa.string(), pa.binary()):
        return nulls(len(other), other.type)
    return value


def packed_lists(kind: pa.DataType, lengths: Any, values: Any, is_valid: pa.BooleanArray | None = None) -> Any:
    """Build lists or maps from their lengths and their concatenated values; null where ``is_valid`` is false. The
    ``values`` of a map are structs of key and value. Raises pyarrow.ArrowInvalid if the type has too few offsets.

    In Arrow 20, ``ListArray.from_arrays`` rejects a mask if the offsets have a validity bitmap. No version of it builds
    maps."""
    inner = kind.field(0).type
    values = values if values.type == inner else values.cast(inner)
    offset = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    ends = pc.cumulative_sum_checked(lengths.cast(offset))
    offsets = pa.concat_arrays([pa.repeat(ZERO.cast(offset), 1), ends])
    validity = None if is_valid is None else pa.concat_arrays([is_valid]).buffers()[1]
    return pa.Array.from_buffers(kind, len(lengths), [validity, offsets.buffers()[1]], children=[values])


def for_ipc(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, in a form that Arrow's IPC writer writes correctly. In Arrow 20, the writer writes wrong values or
    crashes the process for strings, binaries, lists and maps whose first offset is not 0. Arrays whose first offset is
    not 0 come from ``kept`` and from other programs, so arrays are copied if the installed version of Arrow has this
    bug."""
    if _ipc_takes_any_offset():
        return rows
    return pa.RecordBatch.from_arrays([pa.concat_arrays([column]) for column in rows.columns], schema=rows.schema)


@lru_cache(maxsize=1)
def _ipc_takes_any_offset() -> bool:
    offsets = pa.py_buffer(array("i", [1, 2]))
    texts = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"abc")])
    batch = pa.RecordBatch.from_arrays([texts], ["text"])
    return bool(pa.ipc.read_record_batch(batch.serialize(), batch.schema).equals(batch))


def array_of(values: Sequence[Any], kind: pa.DataType) -> Any:
    """Values as an Arrow array of the given type; arrays of integers, strings and booleans are built without
    ``pyarrow.array``. Raises pyarrow.ArrowInvalid."""
    if pa.types.is_integer(kind):
        return int64s(values).cast(kind)
    if kind == pa.string():
        return strings(values)
    return booleans(values) if kind == pa.bool_() else pa.array(values, kind)


def scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A value, or null, as a scalar of a type; numbers, strings, booleans and dates are converted without
    ``pyarrow.scalar``, which also imports pandas. Raises pyarrow.ArrowInvalid."""
    if value is None:
        return pa.nulls(1, kind)[0]
    if type(value) is int and -(2**63) <= value < 2**63 and pa.types.is_integer(kind):
        return int64s([value])[0].cast(kind)
    if type(value) is float and pa.types.is_floating(kind):
        return float64s([value])[0].cast(kind)
    if type(value) is str and kind == pa.string():
        return strings([value])[0]
    if type(value) is bool and kind == pa.bool_():
        return booleans([value])[0]
    if type(value) is datetime.date and kind == pa.date32():
        return int64s([(value - _EPOCH).days])[0].cast(pa.int32()).cast(kind)
    return pa.scalar(value, kind)


TRUE, FALSE, ZERO = booleans([True])[0], booleans([False])[0], int64s([0])[0]
