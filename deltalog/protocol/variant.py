"""Variant values: checks the binary encoding, and decodes it to Python values and JSON. Pure.

Spec: PROTOCOL.md#variant-data-type, #variant-data-in-parquet, #reader-requirements-for-variant-data-type. The encoding
is that of the Parquet format. All functions raise InvalidDataFileError for bytes that are not a variant; their time and
recursion depth are bounded by the size of the value.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import functools
import itertools
import json
import math
import re
import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from deltalog.arguments import checked, shown
from deltalog.errors import CallError, InvalidDataFileError
from deltalog.protocol import limits

MAX_DEPTH = 200
#: The largest size of a value and of its metadata, in bytes. Spark refuses larger ones.
MAX_BYTES = 1 << 24
#: The value null of a variant, which is not the same as the absence of a variant.
NULL = b"\x00"

# The basic types.
PRIMITIVE, SHORT_STRING, OBJECT, ARRAY = range(4)
# The primitive types.
NULL_TYPE, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE = range(8)
DECIMAL4, DECIMAL8, DECIMAL16, DATE, TIMESTAMP, TIMESTAMP_NTZ, FLOAT, BINARY, STRING = range(8, 17)
TIME, TIMESTAMP_NS, TIMESTAMP_NTZ_NS, UUID = range(17, 21)
INTEGER_SIZES = {INT8: 1, INT16: 2, INT32: 4, INT64: 8}
DECIMAL_SIZES = {DECIMAL4: 4, DECIMAL8: 8, DECIMAL16: 16}
MAX_DIGITS = 38
EXACT = decimal.Context(prec=80)
EPOCH = datetime.datetime(1970, 1, 1)
_UTC = datetime.timezone.utc
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|.)")
# The sizes of the values of all primitive types, except for binary and string.
_SIZES: Mapping[int, int] = {
    **dict.fromkeys((NULL_TYPE, TRUE, FALSE), 0),
    **INTEGER_SIZES,
    **{kind: 1 + size for kind, size in DECIMAL_SIZES.items()},
    DOUBLE: 8,
    FLOAT: 4,
    DATE: 4,
    UUID: 16,
    **dict.fromkeys((TIME, TIMESTAMP, TIMESTAMP_NTZ, TIMESTAMP_NS, TIMESTAMP_NTZ_NS), 8),
}
_DAY_US = 86_400_000_000
#: Exceptions caused by malformed bytes.
MALFORMED = (struct.error, IndexError, ValueError, OverflowError, ArithmeticError)


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
    return next(texts([(metadata, value)])) or ""


def texts(variants: Iterable[tuple[bytes, bytes] | None]) -> Iterator[str | None]:
    """Like ``to_json``, for the variants of a column, which are pairs of metadata and value; None if there is no
    variant. Raises InvalidDataFileError, also if all texts together would exceed MAX_VARIANT_TEXT_CHARS."""
    length = 0
    for each in variants:
        if each is None:
            yield None
            continue
        text = json_text(decoded_text(*each), length)
        length += len(text)
        yield text


def decoded_text(metadata: bytes, value: bytes) -> Any:
    """Like ``variant_to_python``, for conversion to text: 32-bit floats and nanoseconds keep their digits. Raises
    InvalidDataFileError."""
    return _decode(_TextDecoder, metadata, value)


def json_text(value: Any, before: int = 0) -> str:
    """A value of ``decoded_text`` as JSON text. ``before``: the length of the texts before it. Raises
    InvalidDataFileError if they together would exceed MAX_VARIANT_TEXT_CHARS."""
    text = _Text(before)
    try:
        _write_json(value, text)
    except ValueError as error:
        raise malformed(error) from None
    return "".join(text.parts)


def check(metadata: bytes, value: bytes, is_strict: bool = True) -> None:
    """Check that every reader can read a variant: that its bytes are complete, that nothing lies between and after its
    values, and that the names of each object are in order and unique. ``is_strict=False`` checks only that its bytes
    are complete and of known types. Raises ValueError."""
    for name, part in (("metadata", metadata), ("value", value)):
        if len(part) > MAX_BYTES:
            raise ValueError(f"its {name} has {len(part)} bytes, and at most {MAX_BYTES} are allowed")
    try:
        checker = (_Checker if is_strict else _Sizer)(dictionary_of(metadata), value)
        checker.value(0, 0)
    except IndexError:
        raise ValueError("it ends early, or refers to a name that its metadata lacks") from None
    except (struct.error, ArithmeticError) as error:
        raise ValueError(str(error)) from None
    if checker.budget and is_strict:
        raise ValueError("it contains bytes that belong to no value")


def _decode(decoder: type[_Decoder], metadata: bytes, value: bytes) -> Any:
    try:
        return decoder(dictionary_of(metadata), value).value(0, 0)
    except MALFORMED as error:
        raise malformed(error) from None


def malformed(why: object) -> InvalidDataFileError:
    """The error for bytes that are not a variant."""
    return InvalidDataFileError(f"A variant value is malformed: {why}. Write the row again.", path=None)


class Dictionary:
    """The field names in a variant's metadata. Raises ValueError, IndexError."""

    def __init__(self, metadata: bytes) -> None:
        header = metadata[0]
        if header & 0x0F != 1:
            raise ValueError(f"its metadata has version {header & 0x0F}, but only version 1 exists")
        width = (header >> 6) + 1
        count = uint(metadata, 1, width)
        start = 1 + width * (count + 2)
        if start > len(metadata):
            raise ValueError("its metadata ends early")
        offsets = [uint(metadata, 1 + width * (i + 1), width) for i in range(count + 1)]
        self.names = [take(metadata, start + low, high - low).decode() for low, high in itertools.pairwise(offsets)]

    @functools.cached_property
    def ids(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.names)}


@functools.lru_cache(maxsize=64)
def dictionary_of(metadata: bytes) -> Dictionary:
    """The field names in a variant's metadata, with a cache. Raises ValueError, IndexError."""
    return Dictionary(metadata)


class _Decoder:
    """Decodes one value. Elements can be stored in any order but must not overlap, so the size of the value limits how
    many there are and how long they are. ``budget``: the number of bytes that have not been decoded."""

    def __init__(self, dictionary: Dictionary, data: bytes) -> None:
        self.names = dictionary.names
        self.data = data
        self.budget = len(data)

    def spend(self, size: int) -> None:
        """Count decoded bytes. Raises ValueError if more bytes are decoded than there are."""
        self.budget -= size
        if self.budget < 0:
            raise ValueError("it ends early, or its elements overlap")

    def value(self, at: int, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
        kind, header = self.data[at] & 3, self.data[at] >> 2
        if kind == PRIMITIVE:
            return self._primitive(header, at + 1)
        if kind == SHORT_STRING:
            self.spend(1 + header)
            return take(self.data, at + 1, header).decode()
        if kind == OBJECT:
            fields = object_fields(self.data, at)
            self.spend(object_start(self.data, at) - at)
            return self.object([(self.names[i], start) for i, start in fields], depth)
        starts = array_elements(self.data, at)
        self.spend(array_start(self.data, at) - at)
        return [self.value(start, depth + 1) for start in starts]

    def object(self, fields: list[tuple[str, int]], depth: int) -> Any:
        return {name: self.value(start, depth + 1) for name, start in fields}

    def _primitive(self, kind: int, at: int) -> Any:
        data = self.data
        if kind in (BINARY, STRING):
            size = uint(data, at, 4)
            self.spend(5 + size)
            content = take(data, at + 4, size)
            return content if kind == BINARY else content.decode()
        if kind not in _SIZES:
            raise ValueError(f"it has a value of the unknown type {kind}")
        self.spend(1 + _SIZES[kind])
        if kind <= FALSE:
            return (None, True, False)[kind]
        if kind in INTEGER_SIZES:
            return integer(data, at, INTEGER_SIZES[kind])
        if kind in DECIMAL_SIZES:
            unscaled = decimal.Decimal(integer(data, at + 1, DECIMAL_SIZES[kind]))
            if data[at] > MAX_DIGITS:
                raise ValueError(f"a decimal has scale {data[at]}")
            return unscaled.scaleb(-data[at], EXACT)
        if kind == DOUBLE:
            return struct.unpack_from("<d", data, at)[0]
        if kind == FLOAT:
            return self.single(struct.unpack_from("<f", data, at)[0])
        if kind == UUID:
            return uuid.UUID(bytes=take(data, at, 16))
        number = integer(data, at, _SIZES[kind])
        if kind == TIME and not 0 <= number < _DAY_US:
            raise ValueError(f"a time of day is {number} µs")
        return self.moment(kind, number)

    def moment(self, kind: int, number: int) -> Any:
        """A date, a time or a timestamp, from the stored number."""
        if kind == DATE:
            return (EPOCH + datetime.timedelta(days=number)).date()
        if kind == TIME:
            return _moment(number, False).time()
        if kind in (TIMESTAMP_NS, TIMESTAMP_NTZ_NS):
            return self.nanoseconds(number, kind == TIMESTAMP_NS)
        return _moment(number, kind == TIMESTAMP)

    def single(self, value: float) -> Any:
        return value

    def nanoseconds(self, number: int, zoned: bool) -> Any:
        return _moment(number // 1000, zoned)


class _Single(float):
    """A 32-bit float."""

    @property
    def shortest(self) -> str:
        """The shortest decimal number that rounds to this 32-bit float, such as 1.1 instead of 1.100000023841858."""
        shown = (f"{float(self):.{digits}g}" for digits in range(6, 10))
        exact = (text for text in shown if struct.pack("<f", float(text)) == struct.pack("<f", self))
        return next(exact, repr(float(self)))


class _Nanoseconds(str):
    """A timestamp with nanoseconds, as text."""


class _TextDecoder(_Decoder):
    """Decodes values for conversion to JSON text, with the precision that Python's types would lose."""

    def single(self, value: float) -> Any:
        return _Single(value)

    def nanoseconds(self, number: int, zoned: bool) -> Any:
        seconds, rest = divmod(number, 1_000_000_000)
        return _Nanoseconds(_moment_text(_moment(seconds * 1_000_000, zoned), f"{rest:09d}"))


class _Sizer(_Decoder):
    """Decodes values to check that they are complete. The dates and timestamps of a valid value can be beyond
    Python's."""

    def moment(self, kind: int, number: int) -> Any:
        return number


class _Checker(_Sizer):
    """Checks values as strictly as the format defines them."""

    def __init__(self, dictionary: Dictionary, data: bytes) -> None:
        super().__init__(dictionary, data)
        self._sizes: dict[int, int] = {}  # of values, by their positions

    def value(self, at: int, depth: int) -> Any:
        before = self.budget
        super().value(at, depth)
        self._sizes[at] = before - self.budget
        kind, header = self.data[at] & 3, self.data[at] >> 2
        if kind == OBJECT:
            self._check_places(
                object_start(self.data, at), header, [start for _, start in object_fields(self.data, at)]
            )
        elif kind == ARRAY:
            self._check_places(array_start(self.data, at), header, array_elements(self.data, at))

    def _check_places(self, start: int, header: int, starts: list[int]) -> None:
        """Raise ValueError unless the elements of an object or array lie side by side and end at the last offset."""
        width = (header & 3) + 1
        end = start + uint(self.data, start - width, width)
        for each in sorted(starts):
            if each != start:
                raise ValueError("an offset of an element is wrong")
            start += self._sizes[each]
        if start != end:
            raise ValueError("the last offset of an object or array is wrong")

    def object(self, fields: list[tuple[str, int]], depth: int) -> Any:
        names = [name.encode() for name, _ in fields]
        if any(low >= high for low, high in itertools.pairwise(names)):
            raise ValueError("the names of an object are not in order, or are not unique")
        for _, start in fields:
            self.value(start, depth + 1)


def object_fields(data: bytes, at: int = 0) -> list[tuple[int, int]]:
    """The field id and the position of the value for each field of the object at ``at``. Raises ValueError, IndexError
    or struct.error."""
    count, ids_at, width, id_width = _object_header(data, at)
    offsets_at, start = ids_at + count * id_width, object_start(data, at)
    if start > len(data):
        raise ValueError("an object ends early")
    return [
        (uint(data, ids_at + i * id_width, id_width), start + uint(data, offsets_at + i * width, width))
        for i in range(count)
    ]


def object_start(data: bytes, at: int) -> int:
    """The position of the first value of an object."""
    count, ids_at, width, id_width = _object_header(data, at)
    return ids_at + count * id_width + (count + 1) * width


def _object_header(data: bytes, at: int) -> tuple[int, int, int, int]:
    """The number of fields, the position of their ids, and the sizes of an offset and of an id."""
    header = data[at] >> 2
    return (*_count(data, at, header >> 4 & 1), (header & 3) + 1, (header >> 2 & 3) + 1)


def array_start(data: bytes, at: int) -> int:
    """The position of the first value of an array."""
    header = data[at] >> 2
    count, offsets_at = _count(data, at, header >> 2 & 1)
    return offsets_at + (count + 1) * ((header & 3) + 1)


def array_elements(data: bytes, at: int) -> list[int]:
    """The positions of the elements of an array. Raises as ``object_fields``."""
    header = data[at] >> 2
    count, offsets_at = _count(data, at, header >> 2 & 1)
    width, start = (header & 3) + 1, array_start(data, at)
    if start > len(data):
        raise ValueError("an array ends early")
    return [start + uint(data, offsets_at + i * width, width) for i in range(count)]


def size_of(data: bytes, at: int) -> int:
    """The number of bytes of the value at a position, according to its header. Raises ValueError, IndexError."""
    kind, header = data[at] & 3, data[at] >> 2
    if kind == SHORT_STRING:
        return 1 + header
    if kind == PRIMITIVE:
        if header in (BINARY, STRING):
            return 5 + uint(data, at + 1, 4)
        if header not in _SIZES:
            raise ValueError(f"it has a value of the unknown type {header}")
        return 1 + _SIZES[header]
    start, width = object_start(data, at) if kind == OBJECT else array_start(data, at), (header & 3) + 1
    return start - at + uint(data, start - width, width)


def _count(data: bytes, at: int, large: int) -> tuple[int, int]:
    """The number of elements, and the position after this number in ``data``."""
    size = 4 if large else 1
    return uint(data, at + 1, size), at + 1 + size


def take(data: bytes, at: int, length: int) -> bytes:
    """The bytes at a position. Raises ValueError if there are fewer."""
    if length < 0 or at + length > len(data):
        raise ValueError("it ends early")
    return data[at : at + length]


def uint(data: bytes, at: int, size: int) -> int:
    """The unsigned number at a position. Raises ValueError."""
    return int.from_bytes(take(data, at, size), "little")


def integer(data: bytes, at: int, size: int) -> int:
    """The signed number at a position. Raises ValueError."""
    return int.from_bytes(take(data, at, size), "little", signed=True)


def _moment(micros: int, zoned: bool) -> datetime.datetime:
    moment = EPOCH + datetime.timedelta(microseconds=micros)
    return moment.replace(tzinfo=_UTC) if zoned else moment


def _moment_text(moment: datetime.datetime, fraction: str) -> str:
    zone = "" if moment.tzinfo is None else "+00:00"
    fraction = fraction.rstrip("0")
    day = moment.replace(tzinfo=None, microsecond=0).isoformat(" ")
    return f"{day}.{fraction}{zone}" if fraction else f"{day}{zone}"


class _Text:
    """Text that grows part by part. A short value can repeat a long name often, so the length is limited. ``before``:
    the length of the texts before this one."""

    def __init__(self, before: int = 0) -> None:
        self.parts: list[str] = []
        self.length = before

    def add(self, part: str) -> None:
        self.length += len(part)
        if self.length > limits.MAX_VARIANT_TEXT_CHARS:
            raise ValueError(f"the length of its text {limits.over('MAX_VARIANT_TEXT_CHARS', self.length)}")
        self.parts.append(part)


def _write_json(value: Any, text: _Text) -> None:
    if isinstance(value, dict):
        separator = "{"
        for name, item in value.items():
            text.add(f"{separator}{_quoted(name)}:")
            _write_json(item, text)
            separator = ","
        text.add("}" if value else "{}")
    elif isinstance(value, list):
        separator = "["
        for item in value:
            text.add(separator)
            _write_json(item, text)
            separator = ","
        text.add("]" if value else "[]")
    else:
        text.add(_scalar_text(value))


def _scalar_text(value: Any) -> str:
    if value is None or isinstance(value, (bool, int)):
        return json.dumps(value)
    if isinstance(value, _Single):
        return _floating_text(value, value.shortest)
    if isinstance(value, float):
        return _floating_text(value, repr(value))
    if isinstance(value, decimal.Decimal):
        return format(value.normalize(EXACT), "f") if value else "0"
    if isinstance(value, bytes):
        return _quoted(base64.b64encode(value).decode())
    if isinstance(value, datetime.datetime):
        return _quoted(_moment_text(value, f"{value.microsecond:06d}"))
    return _quoted(str(value))  # text, date, time, UUID


def _floating_text(value: float, shortest: str) -> str:
    """A number as Java writes it, from its shortest decimal form: with an exponent unless it is from 0.001 to 10^7."""
    if not math.isfinite(value):
        return {math.inf: '"Infinity"', -math.inf: '"-Infinity"'}.get(value, '"NaN"')
    sign, digits, exponent = decimal.Decimal(shortest).normalize(EXACT).as_tuple()
    assert isinstance(exponent, int)
    text, point = "".join(map(str, digits)), len(digits) + exponent
    minus = "-" if sign else ""
    if not value:
        return f"{minus}0.0"
    if -3 < point <= 7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        return f"{minus}{whole}.{'0' * -point}{text[max(point, 0) :] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _quoted(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if _CONTROL.search(value) is None:
        return text
    # Spark writes the hexadecimal digits of escapes in upper case.
    return _ESCAPE.sub(lambda match: match[0] if match[1] is None else "\\u" + match[1].upper(), text)
