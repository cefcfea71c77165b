"""Encodes Python values and JSON as variants. Pure.

Spec: PROTOCOL.md#writer-requirements-for-variant-data-type. The encoding is that of the Parquet format; the variant of
a JSON text has the same bytes as the result of Spark's ``parse_json``.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import json
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from deltalog.arguments import checked, shown
from deltalog.errors import CallError
from deltalog.protocol.variant import (
    ARRAY,
    BINARY,
    DATE,
    DECIMAL4,
    DECIMAL8,
    DECIMAL16,
    DECIMAL_SIZES,
    DOUBLE,
    EPOCH,
    FALSE,
    INTEGER_SIZES,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_DIGITS,
    NULL,
    OBJECT,
    SHORT_STRING,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TRUE,
    UUID,
)

_LONGEST_SHORT_STRING = 63
_MOST_SMALL = 255  # elements of an object or array whose count takes one byte
_MICROSECOND = datetime.timedelta(microseconds=1)
_EPOCH_UTC = EPOCH.replace(tzinfo=datetime.timezone.utc)
_EPOCH_DAY = EPOCH.date().toordinal()
_DIGITS = {DECIMAL4: 9, DECIMAL8: 18, DECIMAL16: MAX_DIGITS}


@checked
def variant_from_python(value: Any) -> dict[str, bytes]:
    """Encode a Python value as a variant, ``{"metadata": ..., "value": ...}``, for rows that are to be written.

    Accepts None (a variant that is null, which is not the same as a row without a variant), bool, int, float, Decimal,
    str, bytes, date, time, datetime (with a time zone: a timestamp; without one: a timestamp_ntz), UUID, NumPy numbers,
    and lists, tuples and mappings of these; the keys of a mapping must be strings. Integers beyond 64 bits become
    decimals. Raises CallError for any other value, for numbers of more than 38 digits, and above 16 MiB, which Spark
    refuses. Spark 4.2 cannot show times of day. Spec: PROTOCOL.md#variant-data-type. Cost: none.
    """
    try:
        metadata, encoded = encoded_python(value)
    except ValueError as error:
        raise CallError(f"{shown(value)} cannot be a variant: {error}.") from None
    return {"metadata": metadata, "value": encoded}


@checked
def variant_from_json(text: str) -> dict[str, bytes]:
    """Encode JSON text as a variant, ``{"metadata": ..., "value": ...}``, with the same bytes as Spark's
    ``parse_json``: integers take as few bytes as possible; other numbers without an exponent are decimals if they have
    at most 38 digits, and doubles otherwise.

    Raises CallError for text that is not JSON, for an object with a name twice, and as ``variant_from_python``.
    Cost: none.
    """
    try:
        metadata, encoded = encoded_json(text)
    except ValueError as error:
        raise CallError(f"{shown(text)} cannot be a variant: {error}.") from None
    return {"metadata": metadata, "value": encoded}


def encoded_python(value: Any) -> tuple[bytes, bytes]:
    """The metadata and the value of a variant, from a Python value; see ``variant_from_python``. Raises ValueError."""
    names: dict[str, int] = {}
    return _finished(names, _value(value, names, 0))


def encoded_json(text: str) -> tuple[bytes, bytes]:
    """The metadata and the value of a variant, from JSON text; see ``variant_from_json``. Raises ValueError."""
    try:
        tree = _parse(text)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    return encoded_python(tree)


def _finished(names: Mapping[str, int], value: bytes) -> tuple[bytes, bytes]:
    metadata = _metadata(tuple(names))
    for what, part in (("metadata", metadata), ("value", value)):
        if len(part) > MAX_BYTES:
            raise ValueError(f"its {what} would have {len(part)} bytes, and at most {MAX_BYTES} are allowed")
    return metadata, value


@functools.lru_cache(maxsize=256)
def _metadata(names: tuple[str, ...]) -> bytes:
    content = [name.encode() for name in names]
    ends = [0]
    for each in content:
        ends.append(ends[-1] + len(each))
    width = width_of(max(ends[-1], len(content)))
    numbers = packed([len(content), *ends], width)
    return b"".join((bytes([1 | (width - 1) << 6]), numbers, *content))


# ------------------------------------------------------------------------------------------------------- JSON


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")


def _number(text: str) -> decimal.Decimal | float:
    """A number with a fraction or an exponent."""
    if "e" in text or "E" in text:
        return float(text)
    digits, _, fraction = text.lstrip("-").partition(".")
    if len(fraction) <= MAX_DIGITS and len(f"{digits}{fraction}".lstrip("0")) <= MAX_DIGITS:
        return decimal.Decimal(text)
    return float(text)


def _integer(text: str) -> int | float:
    if len(text) <= MAX_DIGITS or len(text.lstrip("-")) <= MAX_DIGITS:
        return int(text)
    return float(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen = set[str]()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"an object has the name {name[:100]!r} twice")
        seen.add(name)
    raise AssertionError


_parse = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_number, parse_int=_integer, parse_constant=_no_constant
).decode


# ----------------------------------------------------------------------------------------------------- values


def _value(value: Any, names: dict[str, int], depth: int) -> bytes:
    """The encoding of a value. ``names``: the ids of the field names so far, in order; new names are added."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
    kind = type(value)
    encode = _BY_TYPE.get(kind)
    if encode is not None:
        return encode(value)
    if kind is dict or isinstance(value, Mapping):
        return _encoded_object(value, names, depth)
    if kind is list or isinstance(value, (list, tuple)):
        return array_of([_value(each, names, depth + 1) for each in value])
    for base, encode in _BY_TYPE.items():
        if isinstance(value, base):
            return encode(value)
    if kind.__module__ == "numpy" and getattr(getattr(value, "dtype", None), "kind", "") in "biuf" and not value.ndim:
        return _value(value.item(), names, depth)
    raise ValueError(f"it contains a {kind.__name__}")


def _encoded_object(value: Mapping[Any, Any], names: dict[str, int], depth: int) -> bytes:
    fields = []
    for name, item in value.items():
        if not isinstance(name, str):
            raise ValueError(f"the name {shown(name)} of a field is not text")
        field_id = names.setdefault(name, len(names))
        fields.append((_utf8(name), field_id, _value(item, names, depth + 1)))
    return object_of(fields)


def object_of(fields: Sequence[tuple[bytes, int, bytes]]) -> bytes:
    """An object, from the UTF-8 names, the ids and the encoded values of its fields. The values are stored in the given
    order."""
    offsets, end = [], 0
    for _, _, content in fields:
        offsets.append(end)
        end += len(content)
    # By the bytes of the names, as the format requires.
    order = sorted(range(len(fields)), key=lambda number: fields[number][0])
    width, id_width = width_of(end), width_of(max((each[1] for each in fields), default=0))
    large = len(fields) > _MOST_SMALL
    header = (large << 4 | (id_width - 1) << 2 | (width - 1)) << 2 | OBJECT
    return b"".join(
        (
            bytes([header]),
            len(fields).to_bytes(4 if large else 1, "little"),
            packed([fields[number][1] for number in order], id_width),
            packed([*(offsets[number] for number in order), end], width),
            *(content for _, _, content in fields),
        )
    )


def array_of(items: Sequence[bytes]) -> bytes:
    """An array of encoded values."""
    offsets = [0]
    for item in items:
        offsets.append(offsets[-1] + len(item))
    width = width_of(offsets[-1])
    large = len(items) > _MOST_SMALL
    header = (large << 2 | (width - 1)) << 2 | ARRAY
    count = len(items).to_bytes(4 if large else 1, "little")
    return b"".join((bytes([header]), count, packed(offsets, width), *items))


def packed(numbers: Sequence[int], width: int) -> bytes:
    """Numbers of ``width`` bytes each."""
    if width == 1:
        return bytes(numbers)
    return b"".join([number.to_bytes(width, "little") for number in numbers])


def width_of(largest: int) -> int:
    """The number of bytes of the largest number."""
    width = max(1, (largest.bit_length() + 7) // 8)
    if width > 4:
        raise ValueError(f"it would have more than {MAX_BYTES} bytes")
    return width


def text_of(value: str) -> bytes:
    """A string."""
    return _string(_utf8(value))


def _string(content: bytes) -> bytes:
    if len(content) <= _LONGEST_SHORT_STRING:
        return bytes([len(content) << 2 | SHORT_STRING]) + content
    return _long(STRING, content)


def _long(kind: int, content: bytes) -> bytes:
    if len(content) > MAX_BYTES:
        raise ValueError(f"it would have more than {MAX_BYTES} bytes")
    return bytes([kind << 2]) + len(content).to_bytes(4, "little") + content


def binary_of(value: bytes) -> bytes:
    """A binary value."""
    return _long(BINARY, bytes(value))


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{shown(value)} contains half of a surrogate pair, which UTF-8 cannot encode") from None


def boolean_of(value: bool) -> bytes:
    """A boolean."""
    return _TRUE if value else _FALSE


_TRUE, _FALSE = bytes([TRUE << 2]), bytes([FALSE << 2])


def number_of(kind: int, size: int, value: int) -> bytes:
    """A number of a type and a size in bytes. Raises OverflowError."""
    return bytes([kind << 2]) + value.to_bytes(size, "little", signed=True)


def integer_of(value: int) -> bytes:
    """An integer, in as few bytes as possible; a decimal beyond 64 bits. Raises ValueError."""
    for kind, size in INTEGER_SIZES.items():
        if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
            return number_of(kind, size, value)
    if value.bit_length() > 128:
        raise ValueError(f"it contains an integer of more than {MAX_DIGITS} digits")
    return exact_of(decimal.Decimal(value))


def double_of(value: float) -> bytes:
    """A double."""
    return _DOUBLE_HEADER + struct.pack("<d", value)


_DOUBLE_HEADER = bytes([DOUBLE << 2])


def exact_of(value: decimal.Decimal) -> bytes:
    """A decimal, in as few bytes as possible. Raises ValueError."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"it contains the decimal {value}")
    power = exponent if value else min(exponent, 0)
    if power > MAX_DIGITS or len(digits) + max(power, 0) > MAX_DIGITS + 1 or -power > MAX_DIGITS:
        raise ValueError(f"it contains a decimal of more than {MAX_DIGITS} digits")
    unscaled: int = int("".join(map(str, digits))) * 10 ** max(power, 0)
    scale = max(-power, 0)
    precision = len(str(unscaled))
    for kind, most in _DIGITS.items():
        if precision <= most and scale <= most:
            number = (-unscaled if sign else unscaled).to_bytes(DECIMAL_SIZES[kind], "little", signed=True)
            return bytes([kind << 2, scale]) + number
    raise ValueError(f"it contains a decimal of more than {MAX_DIGITS} digits")


def _timestamp(value: datetime.datetime) -> bytes:
    if getattr(value, "nanosecond", 0):
        raise ValueError(f"{value} has nanoseconds")
    if value.tzinfo is None:
        return number_of(TIMESTAMP_NTZ, 8, (value - EPOCH) // _MICROSECOND)
    return number_of(TIMESTAMP, 8, (value - _EPOCH_UTC) // _MICROSECOND)


def _date(value: datetime.date) -> bytes:
    return number_of(DATE, 4, value.toordinal() - _EPOCH_DAY)


def _time(value: datetime.time) -> bytes:
    if value.tzinfo is not None:
        raise ValueError(f"the time of day {value} has a time zone")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return number_of(TIME, 8, seconds * 1_000_000 + value.microsecond)


# By type; a type comes before the types that it extends.
_BY_TYPE: dict[type, Callable[[Any], bytes]] = {
    str: text_of,
    bool: boolean_of,
    int: integer_of,
    float: double_of,
    type(None): lambda _: NULL,
    decimal.Decimal: exact_of,
    datetime.datetime: _timestamp,
    datetime.date: _date,
    datetime.time: _time,
    bytes: binary_of,
    bytearray: binary_of,
    memoryview: binary_of,
    uuid.UUID: lambda value: bytes([UUID << 2]) + value.bytes,
}
