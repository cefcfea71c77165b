"""Variant values: decodes the binary encoding to Python values and JSON, and reassembles shredded values. Pure.

Spec: PROTOCOL.md#variant-data-type, #variant-shredding, #variant-data-in-parquet,
#reader-requirements-for-variant-data-type, #shredded-variant-data-in-parquet,
#reader-requirements-for-variant-shredding. The encoding is that of the Parquet format. All functions raise
InvalidDataFileError for bytes that are not a variant; their time and recursion depth are bounded by the size of the
value.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import functools
import itertools
import json
import math
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from deltalog.arguments import checked, shown
from deltalog.errors import CallError, InvalidDataFileError

MAX_DEPTH = 200
NULL = b"\x00"

_PRIMITIVE, _SHORT_STRING, _OBJECT, _ARRAY = range(4)
_NULL, _TRUE, _FALSE, _INT8, _INT16, _INT32, _INT64, _DOUBLE = range(8)
_DECIMAL4, _DECIMAL8, _DECIMAL16, _DATE, _TIMESTAMP, _TIMESTAMP_NTZ, _FLOAT, _BINARY, _STRING = range(8, 17)
_TIME, _TIMESTAMP_NS, _TIMESTAMP_NTZ_NS, _UUID = range(17, 21)
_INTEGER_SIZES = {_INT8: 1, _INT16: 2, _INT32: 4, _INT64: 8}
_DECIMAL_SIZES = {_DECIMAL4: 4, _DECIMAL8: 8, _DECIMAL16: 16}
_EXACT = decimal.Context(prec=80)
_EPOCH = datetime.datetime(1970, 1, 1)
_UTC = datetime.timezone.utc
# Exceptions caused by malformed bytes.
_MALFORMED = (struct.error, IndexError, ValueError, OverflowError, ArithmeticError)


# ---------------------------------------------------------------------------------------- decoding variants


@checked
def variant_to_python(variant: Mapping[str, bytes] | None) -> Any:
    """Convert the variant of a row, ``{"metadata": ..., "value": ...}``, to a Python value; None if the row has no
    variant.

    Returns dict, list, str, int, float, Decimal, date, time, datetime, UUID, bytes, bool or None. Timestamps with a
    time zone are in UTC; nanoseconds are truncated, because datetime has only microseconds. Raises InvalidDataFileError
    if the bytes are not a variant. Spec: PROTOCOL.md#variant-data-type. Cost: none.
    """
    if variant is None:
        return None
    metadata, value = variant.get("metadata"), variant.get("value")
    if not (isinstance(metadata, bytes) and isinstance(value, bytes)):
        raise CallError(f"A variant must be a mapping with metadata and value, both bytes; got {shown(variant)}.")
    return _decode(_Decoder, metadata, value)


def to_json(metadata: bytes, value: bytes) -> str:
    """A variant as JSON text, in the format of Spark's ``to_json``.

    Dates, times and timestamps (in UTC) become ISO text with a space between date and time, binary values become base64
    text, and numbers that JSON cannot express become "NaN", "Infinity" or "-Infinity".
    """
    try:
        return _json(_decode(_TextDecoder, metadata, value))
    except ValueError as error:  # an integer with too many digits for Python to print as text
        raise _malformed(error) from None


def _decode(decoder: type[_Decoder], metadata: bytes, value: bytes) -> Any:
    try:
        return decoder(_dictionary(metadata), value).value(0, 0)
    except _MALFORMED as error:
        raise _malformed(error) from None


def _malformed(why: object) -> InvalidDataFileError:
    return InvalidDataFileError(f"A variant value is malformed: {why}. Write the row again.", path=None)


class _Dictionary:
    """The field names in a variant's metadata."""

    def __init__(self, metadata: bytes) -> None:
        header = metadata[0]
        if header & 0x0F != 1:
            raise ValueError(f"its metadata has version {header & 0x0F}, but only version 1 exists")
        width = (header >> 6) + 1
        count = _uint(metadata, 1, width)
        start = 1 + width * (count + 2)
        if start > len(metadata):
            raise ValueError("its metadata ends early")
        offsets = [_uint(metadata, 1 + width * (i + 1), width) for i in range(count + 1)]
        self.names = [_take(metadata, start + low, high - low).decode() for low, high in itertools.pairwise(offsets)]

    @functools.cached_property
    def ids(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.names)}


@functools.lru_cache(maxsize=64)
def _dictionary(metadata: bytes) -> _Dictionary:
    return _Dictionary(metadata)


class _Decoder:
    """Decodes one value. Elements can be stored in any order but must not overlap, so the size of the value limits how
    many there are."""

    def __init__(self, dictionary: _Dictionary, data: bytes) -> None:
        self.names = dictionary.names
        self.data = data
        self.budget = len(data)

    def value(self, at: int, depth: int) -> Any:
        self.budget -= 1
        if self.budget < 0:
            raise ValueError("its elements overlap")
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
        kind, header = self.data[at] & 3, self.data[at] >> 2
        if kind == _PRIMITIVE:
            return self._primitive(header, at + 1)
        if kind == _SHORT_STRING:
            return _take(self.data, at + 1, header).decode()
        if kind == _OBJECT:
            fields = object_fields(self.data, at)
            return {self.names[i]: self.value(start, depth + 1) for i, start in fields}
        return [self.value(start, depth + 1) for start in _array_elements(self.data, at)]

    def _primitive(self, kind: int, at: int) -> Any:
        data = self.data
        if kind <= _FALSE:
            return (None, True, False)[kind]
        if kind in _INTEGER_SIZES:
            return _int(data, at, _INTEGER_SIZES[kind])
        if kind in _DECIMAL_SIZES:
            unscaled = decimal.Decimal(_int(data, at + 1, _DECIMAL_SIZES[kind]))
            if data[at] > 38:
                raise ValueError(f"a decimal has scale {data[at]}")
            return unscaled.scaleb(-data[at], _EXACT)
        if kind == _DOUBLE:
            return struct.unpack_from("<d", data, at)[0]
        if kind == _FLOAT:
            return self.single(struct.unpack_from("<f", data, at)[0])
        if kind in (_BINARY, _STRING):
            content = _take(data, at + 4, _uint(data, at, 4))
            return content if kind == _BINARY else content.decode()
        if kind == _UUID:
            return uuid.UUID(bytes=_take(data, at, 16))
        return self._temporal(kind, at)

    def _temporal(self, kind: int, at: int) -> Any:
        if kind == _DATE:
            return (_EPOCH + datetime.timedelta(days=_int(self.data, at, 4))).date()
        if kind not in (_TIMESTAMP, _TIMESTAMP_NTZ, _TIME, _TIMESTAMP_NS, _TIMESTAMP_NTZ_NS):
            raise ValueError(f"it has a value of the unknown type {kind}")
        number = _int(self.data, at, 8)
        if kind == _TIME:
            if not 0 <= number < 86_400_000_000:
                raise ValueError(f"a time of day is {number} µs")
            return _moment(number, False).time()
        if kind in (_TIMESTAMP_NS, _TIMESTAMP_NTZ_NS):
            return self.nanoseconds(number, kind == _TIMESTAMP_NS)
        return _moment(number, kind == _TIMESTAMP)

    def single(self, value: float) -> Any:
        return value

    def nanoseconds(self, number: int, zoned: bool) -> Any:
        return _moment(number // 1000, zoned)


class _TextDecoder(_Decoder):
    """Decodes values for conversion to JSON text, with the precision that Python's types would lose."""

    def single(self, value: float) -> Any:
        """The shortest decimal number that rounds to this 32-bit float, such as 1.1 instead of 1.100000023841858."""
        texts = (f"{value:.{digits}g}" for digits in range(6, 10))
        exact = (float(t) for t in texts if struct.pack("<f", float(t)) == struct.pack("<f", value))
        return next(exact, value)

    def nanoseconds(self, number: int, zoned: bool) -> Any:
        seconds, rest = divmod(number, 1_000_000_000)
        return _moment_text(_moment(seconds * 1_000_000, zoned), f"{rest:09d}")


def object_fields(data: bytes, at: int = 0) -> list[tuple[int, int]]:
    """The field id and the position of the value for each field of the object at ``at``. Raises ValueError, IndexError
    or struct.error."""
    header = data[at] >> 2
    count, ids_at = _count(data, at, header >> 4 & 1)
    width, id_width = (header & 3) + 1, (header >> 2 & 3) + 1
    offsets_at = ids_at + count * id_width
    start = offsets_at + (count + 1) * width
    if start > len(data):
        raise ValueError("an object ends early")
    return [
        (_uint(data, ids_at + i * id_width, id_width), start + _uint(data, offsets_at + i * width, width))
        for i in range(count)
    ]


def _array_elements(data: bytes, at: int) -> list[int]:
    header = data[at] >> 2
    count, offsets_at = _count(data, at, header >> 2 & 1)
    width = (header & 3) + 1
    start = offsets_at + (count + 1) * width
    if start > len(data):
        raise ValueError("an array ends early")
    return [start + _uint(data, offsets_at + i * width, width) for i in range(count)]


def _count(data: bytes, at: int, large: int) -> tuple[int, int]:
    """The number of elements, and the position after this number in ``data``."""
    size = 4 if large else 1
    return _uint(data, at + 1, size), at + 1 + size


def _take(data: bytes, at: int, length: int) -> bytes:
    if length < 0 or at + length > len(data):
        raise ValueError("it ends early")
    return data[at : at + length]


def _uint(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(_take(data, at, size), "little")


def _int(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(_take(data, at, size), "little", signed=True)


def _moment(micros: int, zoned: bool) -> datetime.datetime:
    moment = _EPOCH + datetime.timedelta(microseconds=micros)
    return moment.replace(tzinfo=_UTC) if zoned else moment


def _moment_text(moment: datetime.datetime, fraction: str) -> str:
    zone = "" if moment.tzinfo is None else "+00:00"
    fraction = fraction.rstrip("0")
    day = moment.replace(tzinfo=None, microsecond=0).isoformat(" ")
    return f"{day}.{fraction}{zone}" if fraction else f"{day}{zone}"


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(name)}:{_json(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if value is None or isinstance(value, (bool, int)):
        return json.dumps(value)
    if isinstance(value, float):
        return (
            repr(value) if math.isfinite(value) else _text(str(value).replace("inf", "Infinity").replace("nan", "NaN"))
        )
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return _text(base64.b64encode(value).decode())
    if isinstance(value, datetime.datetime):
        return _text(_moment_text(value, f"{value.microsecond:06d}"))
    return _text(str(value))  # text, date, time, UUID


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


# ------------------------------------------------------------------------------------------------ shredding


def unshred(column: pa.StructArray) -> list[bytes | None]:
    """The ``value`` of each row of a shredded variant, from its ``metadata``, ``value`` and ``typed_value`` columns.

    None if the row has no variant. If both ``value`` and ``typed_value`` of a variant are absent, the variant is null.
    """
    metadata = column.field("metadata").to_pylist()
    present = column.is_valid().to_pylist()
    try:
        if any(there and found is None for there, found in zip(present, metadata, strict=True)):
            raise ValueError("it has no metadata")
        dictionaries = [_dictionary(m) if there else None for there, m in zip(present, metadata, strict=True)]
        values = _rebuild(column, dictionaries, 0)
    except _MALFORMED as error:
        raise _malformed(error) from None
    return [None if not there else NULL if v is None else v for there, v in zip(present, values, strict=True)]


def _rebuild(group: pa.StructArray, dictionaries: Sequence[_Dictionary | None], depth: int) -> list[bytes | None]:
    """The rows of a group with ``value`` and ``typed_value``; None for rows in which both are absent."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is shredded deeper than {MAX_DEPTH}")
    children = {field.name: group.field(i) for i, field in enumerate(group.type)}
    binary = children.get("value")
    values = [None] * len(group) if binary is None else binary.cast(pa.binary()).to_pylist()
    typed = children.get("typed_value")
    if typed is None:
        return values
    if isinstance(typed, pa.ExtensionArray):
        typed = typed.storage
    if pt.is_struct(typed.type):
        return _rebuild_objects(typed, values, dictionaries, depth)
    if pt.is_list(typed.type) or pt.is_large_list(typed.type):
        found = _rebuild_arrays(typed, dictionaries, depth)
    else:
        found = _encode_all(typed)
    return [value if encoded is None else encoded for encoded, value in zip(found, values, strict=True)]


def _rebuild_objects(
    typed: pa.StructArray, values: list[bytes | None], dictionaries: Sequence[_Dictionary | None], depth: int
) -> list[bytes | None]:
    names = [field.name for field in typed.type]
    columns = [_rebuild(typed.field(i), dictionaries, depth + 1) for i in range(len(names))]
    rebuilt = list(values)
    for row, present in enumerate(typed.is_valid().to_pylist()):
        dictionary = dictionaries[row]
        if not present or dictionary is None:
            continue
        fields = _residual_fields(values[row], dictionary)
        # If a writer stored a field twice, the value in the typed column is used.
        fields.update((name, found[row]) for name, found in zip(names, columns, strict=True) if found[row] is not None)
        rebuilt[row] = _encode_object(fields, dictionary)
    return rebuilt


def _residual_fields(value: bytes | None, dictionary: _Dictionary) -> dict[str, Any]:
    """The fields of a partially shredded object that are not in typed columns, each as bytes."""
    if value is None:
        return {}
    if value[0] & 3 != _OBJECT:
        raise ValueError("the rest of a shredded object is not an object")
    fields = object_fields(value)
    # Values can be in any order; each value ends where the next one in the buffer begins.
    starts = sorted({start for _, start in fields})
    ends = dict(zip(starts, [*starts[1:], len(value)], strict=True))
    return {dictionary.names[i]: _take(value, start, ends[start] - start) for i, start in fields}


def _rebuild_arrays(typed: Any, dictionaries: Sequence[_Dictionary | None], depth: int) -> list[bytes | None]:
    offsets = typed.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    owners: list[_Dictionary | None] = []
    for dictionary, low, high in zip(dictionaries, offsets, offsets[1:], strict=False):
        owners.extend([dictionary] * (high - low))
    elements = _rebuild(typed.values.slice(first, last - first), owners, depth + 1)
    rebuilt: list[bytes | None] = []
    for present, low, high in zip(typed.is_valid().to_pylist(), offsets, offsets[1:], strict=False):
        items = [NULL if e is None else e for e in elements[low - first : high - first]]
        rebuilt.append(_encode_array(items) if present else None)
    return rebuilt


def _encode_object(fields: Mapping[str, bytes], dictionary: _Dictionary) -> bytes:
    ids = dictionary.ids
    ordered = sorted(fields, key=str.encode)
    unknown = [name for name in ordered if name not in ids]
    if unknown:
        raise ValueError(f"the field {unknown[0]!r} is not in its metadata")
    offsets, content = _laid_out([fields[name] for name in ordered])
    width, id_width = _width(offsets[-1]), _width(max((ids[n] for n in ordered), default=0))
    large = len(ordered) > 255
    header = (large << 4 | (id_width - 1) << 2 | (width - 1)) << 2 | _OBJECT
    count = len(ordered).to_bytes(4 if large else 1, "little")
    names = b"".join(ids[n].to_bytes(id_width, "little") for n in ordered)
    return b"".join((bytes([header]), count, names, _packed(offsets, width), content))


def _encode_array(items: Sequence[bytes]) -> bytes:
    offsets, content = _laid_out(items)
    width = _width(offsets[-1])
    large = len(items) > 255
    header = (large << 2 | (width - 1)) << 2 | _ARRAY
    count = len(items).to_bytes(4 if large else 1, "little")
    return b"".join((bytes([header]), count, _packed(offsets, width), content))


def _laid_out(items: Sequence[bytes]) -> tuple[list[int], bytes]:
    offsets = [0]
    for item in items:
        offsets.append(offsets[-1] + len(item))
    return offsets, b"".join(items)


def _packed(numbers: Sequence[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def _width(largest: int) -> int:
    return max(1, (largest.bit_length() + 7) // 8)


def _encode_all(typed: Any) -> list[bytes | None]:
    """Values of one Parquet type, each encoded as a variant; None for nulls."""
    if pt.is_dictionary(typed.type):
        typed = typed.dictionary_decode()
    encode, plain = _encoder(typed)
    return [None if value is None else encode(value) for value in plain.to_pylist()]


def _encoder(typed: Any) -> tuple[Callable[[Any], bytes], Any]:
    """A function that encodes a value of a typed column, and the column converted to the type that the function
    accepts."""
    kind = typed.type
    if pt.is_boolean(kind):
        return lambda value: bytes([(_TRUE if value else _FALSE) << 2]), typed
    if pt.is_signed_integer(kind):
        size = kind.bit_width // 8
        return _numbers({1: _INT8, 2: _INT16, 4: _INT32, 8: _INT64}[size], size), typed
    if pt.is_float32(kind) or pt.is_float64(kind):
        header, form = (_FLOAT, "<f") if pt.is_float32(kind) else (_DOUBLE, "<d")
        return lambda value: bytes([header << 2]) + struct.pack(form, value), typed
    if pt.is_decimal(kind) and 0 <= kind.scale <= 38:
        return _decimals(kind), typed
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _encode_text, typed
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return lambda value: bytes([_BINARY << 2]) + len(value).to_bytes(4, "little") + value, typed
    if pt.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return lambda value: bytes([_UUID << 2]) + value, typed
    if pt.is_date32(kind):
        return _numbers(_DATE, 4), typed.cast(pa.int32())
    if pt.is_time64(kind) and kind.unit == "us":
        return _numbers(_TIME, 8), typed.cast(pa.int64())
    if pt.is_timestamp(kind) and kind.unit in ("us", "ns"):
        micros, nanos = (_TIMESTAMP_NTZ, _TIMESTAMP_NTZ_NS) if kind.tz is None else (_TIMESTAMP, _TIMESTAMP_NS)
        return _numbers(micros if kind.unit == "us" else nanos, 8), typed.cast(pa.int64())
    raise ValueError(f"a typed column is {kind}, which is not a type of shredded variants")


def _numbers(header: int, size: int) -> Callable[[int], bytes]:
    prefix = bytes([header << 2])
    return lambda value: prefix + value.to_bytes(size, "little", signed=True)


def _decimals(kind: Any) -> Callable[[decimal.Decimal], bytes]:
    header, size = (
        (_DECIMAL4, 4) if kind.precision <= 9 else (_DECIMAL8, 8) if kind.precision <= 18 else (_DECIMAL16, 16)
    )
    prefix = bytes([header << 2, kind.scale])
    return lambda value: prefix + int(value.scaleb(kind.scale, _EXACT)).to_bytes(size, "little", signed=True)


def _encode_text(value: str) -> bytes:
    content = value.encode()
    if len(content) < 64:
        return bytes([len(content) << 2 | _SHORT_STRING]) + content
    return bytes([_STRING << 2]) + len(content).to_bytes(4, "little") + content
