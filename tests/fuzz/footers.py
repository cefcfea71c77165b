"""Damages the content of Parquet footers: decodes the Thrift struct at the end of a file, changes it in some places and
encodes it again. Also builds footers that declare more than the file contains."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

from tests.fuzz.mutations import damage_bytes

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
# A struct is a list of [number, type, value]; a list is [type, items].
Struct = list[list[Any]]


def damage_footer(data: bytes, random: Random) -> bytes:
    """The Parquet file with a damaged footer."""
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    start = len(data) - 8 - length
    draw = random.random()
    if draw < 0.25:
        footer = damage_bytes(data[start:-8], random)
    elif draw < 0.32:
        footer = random.choice(_BOMBS)(data[start:-8], random)
    else:
        tree = decoded(data[start:-8])
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            _change(tree, random)
        footer = encoded(tree)
    return data[:start] + footer + struct.pack("<I", len(footer)) + data[-4:]


# ------------------------------------------------------------------------------------------------------- changes

_NUMBERS = (0, 1, -1, 2, 7, 8, 14, 15, 100, 127, 128, 2**15, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63))
_TEXTS = (
    b"", b"\0", b"\xff\xfe", b"\xb1ccount", b"id", b"ID", b"a.b", b"x" * 300, b"\x80", b"\0" * 4, b"\0" * 8,
    b"\xff" * 8, b"\x7f" * 16, b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"parquet-mr version 1.2.8",
    b"parquet-cpp version 999999999999", b"parquet-mr version 1.\xff", b"ARROW:schema", b"QQ==", b"/////w==",
)  # fmt: skip


def _change(tree: Struct, random: Random) -> None:
    """Make one change to the tree."""
    # The struct or list, a position in it, and the type of the value at that position.
    places: list[tuple[list[Any], int, int]] = []
    _places(STRUCT, tree, places)
    if not places:
        return
    holder, position, kind = random.choice(places)
    is_field = isinstance(holder[position], list) and len(holder[position]) == 3 and kind == 0
    draw = random.random()
    if not is_field:
        holder[position] = _other(kind, holder[position], random)
    elif draw < 0.55:
        field = holder[position]
        field[2] = _other(field[1], field[2], random)
    elif draw < 0.70:
        del holder[position]
    elif draw < 0.80:
        holder[position][0] = random.choice((0, 1, 2, 3, 4, 5, 8, 9, 12, 16, 17, 20, 300, -1))
    elif draw < 0.90:
        holder.insert(random.randrange(len(holder) + 1), list(holder[position]))
    else:
        holder[position][1:] = random.choice(
            ([I32, 1], [I64, 1], [BINARY, b"x"], [LIST, [I32, [1, 2]]], [STRUCT, []], [TRUE, True], [DOUBLE, b"\0" * 8])
        )


def _places(kind: int, value: Any, found: list[tuple[list[Any], int, int]]) -> None:
    if kind == STRUCT:
        for position, (_, each, inner) in enumerate(value):
            found.append((value, position, 0))
            _places(each, inner, found)
    elif kind in (LIST, SET):
        for position, inner in enumerate(value[1]):
            found.append((value[1], position, value[0]))
            _places(value[0], inner, found)


def _other(kind: int, value: Any, random: Random) -> Any:
    if kind in (BYTE, I16, I32, I64):
        return random.choice((random.choice(_NUMBERS), value + random.choice((-1, 1)), random.randrange(20)))
    if kind == BINARY:
        return random.choice((random.choice(_TEXTS), value + b"x", value[:-1], damage_bytes(value, random)))
    if kind == STRUCT:
        return random.choice(([], value[1:], value[:-1], [*value, [random.randrange(1, 20), STRUCT, []]]))
    if kind in (LIST, SET):
        held, items = value
        return [held, random.choice(([], items[1:], items[:-1], items * 2, items[::-1], items * 40))]
    return value


# ---------------------------------------------------------------------- decompression bombs and oversized lists


def element(name: bytes, children: int | None, kind: int = 2) -> Struct:
    """A SchemaElement: a group, or a column."""
    if children is None:
        return [[1, I32, kind], [3, I32, 1], [4, BINARY, name]]
    return [[3, I32, 1], [4, BINARY, name], [5, I32, children]]


def _file(elements: list[Struct], rows: int = 0, groups: list[Struct] | None = None) -> Struct:
    schema: Any = [LIST, [STRUCT, elements]]
    return [[1, I32, 2], [2, *schema], [3, I64, rows], [4, LIST, [STRUCT, groups or []]]]


def _claim(count: int) -> bytes:
    return bytes([0xF0 | STRUCT]) + unsigned(count)


def _long_lists(footer: bytes, random: Random) -> bytes:
    """Declare row groups that do not exist and, in the first of them, columns that do not exist."""
    count = random.choice((20_000, 1_000_000, 2**31 - 1))
    head = encoded(_file([element(b"r", 1), element(b"id", None)]))[:-3]
    return head + b"\x19" + _claim(count) + b"\x19" + _claim(count) + b"\x2c\x15\x02\x19" + _claim(count)


def _deep_columns(footer: bytes, random: Random) -> bytes:
    depth = random.choice((90, 101, 999, 1_001, 20_000))
    return encoded(_file([element(b"r", 1), *[element(b"a", 1)] * depth, element(b"id", None)]))


def _long_paths(footer: bytes, random: Random) -> bytes:
    """Many columns nested under long names, so that all paths together are as large as (number of columns) × (length of
    the names)."""
    columns, names = random.choice(((900, 1_000), (20_000, 4_000), (20_000, 20_000)))
    above = [element(b"n" * names, 1) for _ in range(40)]
    above[-1][-1][2] = columns
    return encoded(_file([element(b"r", 1), *above, *[element(b"x", None)] * columns]))


def _schema_twice(footer: bytes, random: Random) -> bytes:
    tree = decoded(footer)
    bomb = decoded(random.choice((_deep_columns, _long_paths))(footer, random))
    return encoded([*tree, next(field for field in bomb if field[0] == 2)])


def _many_rows(footer: bytes, random: Random) -> bytes:
    """Declare a huge or negative number of rows, in a row group without columns."""
    rows = random.choice((2**37, 2**62, -1))
    groups: list[Struct] = [[[1, LIST, [STRUCT, []]], [2, I64, 0], [3, I64, rows]]]
    return encoded(_file([element(b"r", 0)], rows, groups))


_BOMBS: tuple[Callable[[bytes, Random], bytes], ...] = (
    _long_lists, _deep_columns, _long_paths, _schema_twice, _many_rows
)  # fmt: skip


# --------------------------------------------------------------------------------------------- compact protocol


def decoded(data: bytes) -> Struct:
    """Decode a struct of Thrift's compact protocol."""
    return _Reader(data).value(STRUCT)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, length: int) -> bytes:
        self.at += length
        return self.data[self.at - length : self.at]

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def signed(self) -> int:
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def value(self, kind: int) -> Any:
        if kind == STRUCT:
            fields, number = [], 0
            while (head := self.take(1)[0]) != 0:
                number = number + (head >> 4) if head >> 4 else self.signed()
                fields.append([number, head & 15, self.value(head & 15)])
            return fields
        if kind in (LIST, SET):
            head = self.take(1)[0]
            count = self.unsigned() if head >> 4 == 15 else head >> 4
            inner = head & 15
            return [inner, [self.take(1)[0] if inner in (TRUE, FALSE) else self.value(inner) for _ in range(count)]]
        if kind == BINARY:
            return self.take(self.unsigned())
        if kind == DOUBLE:
            return self.take(8)
        if kind == BYTE:
            return self.take(1)[0]
        return kind == TRUE if kind in (TRUE, FALSE) else self.signed()


def encoded(tree: Struct) -> bytes:
    """The inverse of ``decoded``."""
    out = bytearray()
    _write(STRUCT, tree, out)
    return bytes(out)


def unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _signed(value: int) -> bytes:
    return unsigned((value << 1 ^ value >> 63) & (1 << 64) - 1)


def _write(kind: int, value: Any, out: bytearray) -> None:
    if kind == STRUCT:
        last = 0
        for number, each, inner in value:
            delta = number - last
            out += bytes([delta << 4 | each]) if 0 < delta < 16 else bytes([each]) + _signed(number)
            _write(each, inner, out)
            last = number
        out.append(0)
    elif kind in (LIST, SET):
        inner, items = value
        out += bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + unsigned(len(items))
        for each in items:
            if inner in (TRUE, FALSE):
                out.append(each)
            else:
                _write(inner, each, out)
    elif kind == BINARY:
        out += unsigned(len(value)) + value
    elif kind == DOUBLE:
        out += value
    elif kind == BYTE:
        out.append(value & 255)
    elif kind in (I16, I32, I64):
        out += _signed(value)
