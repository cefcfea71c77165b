"""Variants as bytes, written and read without deltalog's own encoding, which is under test. Pure.

Spec: PROTOCOL.md#variant-data-in-parquet; the Parquet format defines the encoding.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

EMPTY = b"\x01\x00\x00"
NULL, TRUE, FALSE = b"\x00", b"\x04", b"\x08"


def dictionary(names: Sequence[str], width: int = 1) -> bytes:
    """The metadata with these field names, in this order. ``width``: the size of each offset in bytes."""
    texts = [name.encode() for name in names]
    is_sorted = texts == sorted(set(texts)) and bool(texts)
    offsets = [sum(map(len, texts[:number])) for number in range(len(texts) + 1)]
    head = bytes([1 | is_sorted << 4 | (width - 1) << 6]) + len(texts).to_bytes(width, "little")
    return head + b"".join(each.to_bytes(width, "little") for each in offsets) + b"".join(texts)


def number(kind: int, value: int, size: int) -> bytes:
    """A primitive whose content is an integer: 3 to 6 are int8 to int64, 11 is a date, 12 and 13 are timestamps."""
    return bytes([kind << 2]) + value.to_bytes(size, "little", signed=True)


def double(value: float) -> bytes:
    return bytes([7 << 2]) + struct.pack("<d", value)


def single(value: float) -> bytes:
    return bytes([14 << 2]) + struct.pack("<f", value)


def exact(kind: int, unscaled: int, scale: int, size: int) -> bytes:
    """A decimal; 8, 9 and 10 are the kinds with 4, 8 and 16 bytes."""
    return bytes([kind << 2, scale]) + unscaled.to_bytes(size, "little", signed=True)


def text(value: str, long: bool = False) -> bytes:
    """A string, in the short form if it has less than 64 bytes."""
    content = value.encode()
    if len(content) < 64 and not long:
        return bytes([len(content) << 2 | 1]) + content
    return bytes([16 << 2]) + len(content).to_bytes(4, "little") + content


def blob(value: bytes) -> bytes:
    return bytes([15 << 2]) + len(value).to_bytes(4, "little") + value


def array(items: Sequence[bytes], width: int = 1) -> bytes:
    """``width``: the size of each offset in bytes."""
    large = len(items) > 255
    offsets = [sum(map(len, items[:number])) for number in range(len(items) + 1)]
    head = bytes([(large << 2 | (width - 1)) << 2 | 3]) + len(items).to_bytes(4 if large else 1, "little")
    return head + b"".join(each.to_bytes(width, "little") for each in offsets) + b"".join(items)


def fields(items: Sequence[tuple[int, bytes]], width: int = 1, id_width: int = 1) -> bytes:
    """An object: pairs of the position of a name in the dictionary and a value, in the order of the names. ``width``:
    the size of each offset in bytes."""
    large = len(items) > 255
    offsets = [sum(len(value) for _, value in items[:number]) for number in range(len(items) + 1)]
    head = bytes([(large << 4 | (id_width - 1) << 2 | (width - 1)) << 2 | 2])
    count = len(items).to_bytes(4 if large else 1, "little")
    ids = b"".join(key.to_bytes(id_width, "little") for key, _ in items)
    return b"".join(
        (head, count, ids, *(each.to_bytes(width, "little") for each in offsets), *(value for _, value in items))
    )


def encode(value: Any) -> dict[str, bytes]:
    """A value of JSON as a variant: ``metadata`` and ``value``. Integers have 8 bytes."""
    names = sorted(set(_names(value)), key=str.encode)
    return {"metadata": dictionary(names) if names else EMPTY, "value": _encoded(value, names)}


def _names(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [*value, *(name for each in value.values() for name in _names(each))]
    return [name for each in value for name in _names(each)] if isinstance(value, list) else []


def _encoded(value: Any, names: Sequence[str]) -> bytes:
    if value is None or isinstance(value, bool):
        return NULL if value is None else TRUE if value else FALSE
    if isinstance(value, int):
        return number(6, value, 8)
    if isinstance(value, float):
        return double(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        keys = sorted(value, key=str.encode)
        return fields([(names.index(key), _encoded(value[key], names)) for key in keys])
    return array([_encoded(each, names) for each in value])


# ---------------------------------------------------------------------------------------------- decoding

_EPOCH = datetime.datetime(1970, 1, 1)
_INTEGERS = {3: 1, 4: 2, 5: 4, 6: 8}
_DECIMALS = {8: 4, 9: 8, 10: 16}
_EXACT = decimal.Context(prec=60)


def decode(metadata: bytes, value: bytes) -> Any:
    """The value of a variant: dict, list, str, int, float, Decimal, date, time, datetime, UUID, bytes, bool or None.
    Nanoseconds are cut off. Raises ValueError, IndexError, KeyError or struct.error for bytes that are no variant."""
    width = (metadata[0] >> 6) + 1
    count = _unsigned(metadata, 1, width)
    offsets = [_unsigned(metadata, 1 + width * (number + 1), width) for number in range(count + 1)]
    start = 1 + width * (count + 2)
    names = [metadata[start + low : start + high].decode() for low, high in itertools.pairwise(offsets)]
    return _decoded(value, 0, names)


def _decoded(data: bytes, at: int, names: Sequence[str]) -> Any:
    basic, header = data[at] & 3, data[at] >> 2
    if basic == 0:
        return _primitive(data, header, at + 1)
    if basic == 1:
        return data[at + 1 : at + 1 + header].decode()
    is_object = basic == 2
    width, large = (header & 3) + 1, header >> (4 if is_object else 2) & 1
    size = 4 if large else 1
    count, ids_at = _unsigned(data, at + 1, size), at + 1 + size
    id_width = (header >> 2 & 3) + 1 if is_object else 0
    offsets_at = ids_at + count * id_width
    start = offsets_at + (count + 1) * width
    places = [start + _unsigned(data, offsets_at + number * width, width) for number in range(count)]
    found = [_decoded(data, place, names) for place in places]
    if not is_object:
        return found
    keys = [names[_unsigned(data, ids_at + number * id_width, id_width)] for number in range(count)]
    return dict(zip(keys, found, strict=True))


def _primitive(data: bytes, kind: int, at: int) -> Any:
    if kind <= 2:
        return (None, True, False)[kind]
    if kind in _INTEGERS:
        return _signed(data, at, _INTEGERS[kind])
    if kind in _DECIMALS:
        return decimal.Decimal(_signed(data, at + 1, _DECIMALS[kind])).scaleb(-data[at], _EXACT)
    if kind in (7, 14):
        return struct.unpack_from("<d" if kind == 7 else "<f", data, at)[0]
    if kind in (15, 16):
        content = data[at + 4 : at + 4 + _unsigned(data, at, 4)]
        return content if kind == 15 else content.decode()
    if kind == 20:
        return uuid.UUID(bytes=data[at : at + 16])
    if kind == 11:
        return (_EPOCH + datetime.timedelta(days=_signed(data, at, 4))).date()
    if kind not in (12, 13, 17, 18, 19):
        raise ValueError(f"no variant has a value of the type {kind}")
    number = _signed(data, at, 8)
    moment = _EPOCH + datetime.timedelta(microseconds=number // 1000 if kind in (18, 19) else number)
    if kind == 17:
        return moment.time()
    return moment.replace(tzinfo=datetime.timezone.utc) if kind in (12, 18) else moment


def _unsigned(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _signed(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little", signed=True)
