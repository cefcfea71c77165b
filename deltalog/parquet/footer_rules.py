"""Checks a Parquet footer before pyarrow reads it: its Thrift encoding, its column tree, and the metadata of its column
chunks. Pure.

On inconsistent footers, pyarrow crashes the process or uses disproportionate memory and time. ``checked`` decodes a
footer as specified in parquet.thrift, and re-encodes only the fields that it checked; time and memory are proportional
to the footer's length. Fields that deltalog does not use are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltalog.protocol import limits

# Types of the Thrift compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12
_INTEGERS = frozenset((_I32, _I64))
_BITS = {_BYTE: 8, _I16: 16, _I32: 32, _I64: 64}
_MOST_STRUCTS = 32  # maximum nesting of Thrift structs
_MOST_LEVELS = 1_000  # maximum depth of the column tree
_MOST_PATH_BYTES = 64 << 20  # maximum total length of all column paths

# Physical types, and the length in bytes of a bound of each type.
_FIXED = 7
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")

# (type, value). The value of a list is (item type, items); the value of a struct is a mapping of its fields.
_Value = tuple[int, Any]
_Struct = dict[int, _Value]

# The fields of SchemaElement and KeyValue that are kept, with their types.
_SCHEMA_FIELDS = {
    1: _I32, 2: _I32, 3: _I32, 4: _BINARY, 5: _I32, 6: _I32, 7: _I32, 8: _I32, 9: _I32, 10: _STRUCT,
}  # fmt: skip
_KEY_VALUE_FIELDS = {1: _BINARY, 2: _BINARY}
# The fields of ColumnChunk that are read: whether the column is encrypted and, from the column's metadata, the type,
# the number of values, the statistics and the level histograms.
_NOTHING: Mapping[int, Any] = {}
_CHUNK_FIELDS: Mapping[int, Any] = {3: {1: None, 5: None, 12: None, 16: {2: None, 3: None}}, 8: _NOTHING, 9: None}
_ABSENT = (0, None)


class Leaf:
    """A column as described in the footer: its physical type, the length in bytes of its bounds (None: any), and its
    maximum definition and repetition levels."""

    __slots__ = ("definition", "kind", "path", "repetition", "width")

    def __init__(self, path: str, kind: int, width: int | None, definition: int, repetition: int) -> None:
        self.path, self.kind, self.width = path, kind, width
        self.definition, self.repetition = definition, repetition


def checked(footer: bytes) -> bytes:
    """Check a footer (the Thrift struct FileMetaData) and encode the checked parts again: columns, rows, row groups,
    key-value metadata, and for each column chunk its type, number of values and statistics.

    Bounds that are not valid for their column's type are left out. Raises ValueError with the reason. Time and memory
    are proportional to the size of the footer; only one column chunk is in memory at a time.
    """
    if len(footer) > limits.MAX_FOOTER_BYTES:
        raise ValueError(f"the length of its footer, {limits.over('MAX_FOOTER_BYTES', len(footer))}")
    try:
        return _file(footer)
    except IndexError:
        raise ValueError("its footer is cut off") from None


def columns_and_rows(footer: bytes, likely: bytes = b"") -> tuple[bytes, int]:
    """The encoded version and columns of a footer, and the file's number of rows. Files with equal columns have the
    same encoded bytes. Nothing after the number of rows is read. ``likely``: the expected encoded bytes; if the footer
    begins with them, they are not decoded. Raises ValueError."""
    try:
        at = len(likely) if likely and footer.startswith(likely) else 0
        number = 2 if at else 0
        while number < 2:
            number, kind, at = _field(footer, at, number)
            if not 0 < number <= 2:
                raise ValueError("its footer has no columns")
            at = _skipped(footer, at, kind, 0)
        number, kind, start = _field(footer, at, number)
        if number != 3 or kind != _I64:
            raise ValueError("its footer has no number of rows")
        rows, _ = _signed(footer, start, kind)
    except IndexError:
        raise ValueError("its footer is cut off") from None
    if not 0 <= rows <= limits.MAX_FILE_ROWS:
        raise ValueError(f"it has {rows} rows by its footer")
    return footer[:at], rows


class _Columns:
    """The columns of a footer: their bytes there, what they describe, and their bytes in the new footer."""

    __slots__ = ("encoded", "leaves", "made")

    def __init__(self, encoded: bytes, leaves: list[Leaf], made: bytes) -> None:
        self.encoded, self.leaves, self.made = encoded, leaves, made


# The columns of the footers that were read last: the files of a table have equal columns, which need not be decoded
# again. Columns with many bytes are not kept.
_recent: list[_Columns] = []
_MOST_RECENT, _MOST_RECENT_BYTES = 4, 64 << 10


def _columns(data: bytes, at: int, kind: int) -> tuple[_Columns, int]:
    """Decode the columns at a position. Returns the position after them too."""
    if kind == _LIST:
        for known in _recent:
            # The encoding of a list is not the beginning of that of another one.
            if data.startswith(known.encoded, at):
                return known, at + len(known.encoded)
    value, end = _value(data, at, kind)
    leaves = _leaves((kind, value))
    made = bytearray()
    _put(made, 2, (_LIST, (_STRUCT, [_kept(element, _SCHEMA_FIELDS) for element in value[1]])), 1)
    columns = _Columns(data[at:end], leaves, bytes(made))
    if end - at <= _MOST_RECENT_BYTES:
        _recent.insert(0, columns)
        del _recent[_MOST_RECENT:]
    return columns, end


def _file(data: bytes) -> bytes:
    found: _Struct = {}
    groups: bytearray | None = None
    columns: _Columns | None = None
    total = at = number = 0
    while True:
        number, kind, at = _field(data, at, number)
        if not kind:
            break
        if number == 4 and kind == _LIST:
            if columns is None or not columns.leaves or groups is not None:
                raise ValueError("its footer has row groups before its columns, or has them twice")
            groups = bytearray()
            count, at = _items(data, at, _STRUCT)
            _put_count(groups, count, _STRUCT)
            for position in range(count):
                rows, at = _group(data, at, groups, columns.leaves, position)
                total += rows
        elif number in found:
            raise ValueError(f"its footer has the field {number} twice")
        elif number == 2:
            columns, at = _columns(data, at, kind)
            found[number] = kind, None
        else:
            value, at = _value(data, at, kind)
            found[number] = kind, value
    if 8 in found:
        raise ValueError("it has encrypted columns: its footer is signed")
    rows = _number(found, 3, _I64, "rows of the file")
    if rows > limits.MAX_FILE_ROWS:
        raise ValueError(f"the number of its rows, {limits.over('MAX_FILE_ROWS', rows)}")
    if groups is None or columns is None:
        raise ValueError("its footer has no row groups")
    if total != rows:
        raise ValueError(f"it has {rows} rows by its footer, but its row groups have {total}")
    out = bytearray()
    _put(out, 1, (_I32, _number(found, 1, _I32, "version")), 0)
    out += columns.made
    _put(out, 3, (_I64, rows), 2)
    out += b"\x19" + groups
    last = 4
    for number, kept in ((5, _pairs(found.get(5))), (6, _text(found.get(6))), (7, _structs(found.get(7)))):
        if kept is not None:
            _put(out, number, kept, last)
            last = number
    return bytes(out + b"\0")


def _group(data: bytes, at: int, out: bytearray, leaves: Sequence[Leaf], position: int) -> tuple[int, int]:
    """Check a row group and append it, with its column chunks, to ``out``. Returns the number of rows of the row group,
    and the position where the row group ends."""
    found: _Struct = {}
    count, number = -1, 0
    out += b"\x19"
    while True:
        number, kind, at = _field(data, at, number)
        if not kind:
            break
        if number == 1 and kind == _LIST:
            if count >= 0:
                raise ValueError(f"row group {position} has its columns twice")
            count, at = _items(data, at, _STRUCT)
            if count != len(leaves):
                raise ValueError(f"row group {position} has {count} columns, but the file has {len(leaves)}")
            _put_count(out, count, _STRUCT)
            for leaf in leaves:
                at = _chunk(data, at, out, leaf, position)
        else:
            value, at = _value(data, at, kind)
            found[number] = kind, value
    if count < 0:
        raise ValueError(f"row group {position} has no columns")
    rows = _number(found, 3, _I64, f"rows of row group {position}")
    _put(out, 2, (_I64, _number(found, 2, _I64, f"bytes of row group {position}")), 1)
    _put(out, 3, (_I64, rows), 2)
    out += b"\0"
    return rows, at


def _chunk(data: bytes, at: int, out: bytearray, leaf: Leaf, group: int) -> int:
    """Check the metadata of a column chunk and write the parts that are used. Returns its end."""
    chunk, at = _struct(data, at, _CHUNK_FIELDS)
    if 8 in chunk or 9 in chunk:
        raise ValueError(f"{_where(leaf, group)} is encrypted")
    kind, facts = chunk.get(3, _ABSENT)
    if kind != _STRUCT:
        raise ValueError(f"{_where(leaf, group)} has no metadata")
    kind, physical = facts.get(1, _ABSENT)
    if kind != _I32 or physical != leaf.kind:
        found = _TYPES[physical] if kind == _I32 and 0 <= physical < len(_TYPES) else "unknown"
        raise ValueError(
            f"the type of {_where(leaf, group)} is {found}, but {_TYPES[leaf.kind]} in the schema of the file"
        )
    kind, values = facts.get(5, _ABSENT)
    if kind != _I64 or values < 0:
        raise ValueError(f"{_where(leaf, group)} does not have the number of its values")
    if 16 in facts:
        _check_histograms(facts[16], leaf, group)
    # Writes the type and the number of values; the encodings, the path, the compression and the file offsets are left
    # empty.
    out += b"\x26\x00\x1c\x15"
    out.append(physical << 1)
    out += b"\x19\x05\x19\x08\x15\x00\x16"
    _put_unsigned(out, values << 1)
    out += b"\x16\x00\x16\x00\x26\x00"
    kind, statistics = facts.get(12, _ABSENT)
    if kind == _STRUCT:
        out += b"\x3c"
        _put_statistics(out, statistics, leaf, values)
    out += b"\x00\x00"
    return at


def _where(leaf: Leaf, group: int) -> str:
    return f"column {leaf.path} of row group {group}"


def _check_histograms(value: _Value, leaf: Leaf, group: int) -> None:
    """A histogram of levels in SizeStatistics must have one number per level, or be empty."""
    kind, sizes = value
    if kind != _STRUCT:
        return
    for number, level, name in ((2, leaf.repetition, "repetition"), (3, leaf.definition, "definition")):
        kind, items = sizes.get(number, _ABSENT)
        if kind == _LIST and items[1] and len(items[1]) != level + 1:
            raise ValueError(
                f"{_where(leaf, group)} has a histogram of {len(items[1])} {name} levels, but {level + 1} levels"
            )


def _put_statistics(out: bytearray, found: _Struct, leaf: Leaf, values: int) -> None:
    """Write the plausible statistics: pairs of bounds that have the type's length, and a null count that does not
    exceed the value count."""
    kept: _Struct = {}
    width = leaf.width
    for low, high in ((2, 1), (6, 5)):
        if low in found and high in found:
            for number in (low, high):
                kind, value = found[number]
                if kind != _BINARY or (width is not None and width != len(value)):
                    break
            else:
                kept[low], kept[high] = found[low], found[high]
    kind, nulls = found.get(3, _ABSENT)
    if kind == _I64 and 0 <= nulls <= values:
        kept[3] = kind, nulls
    for number in (7, 8):  # whether the bounds are exact
        if number in found and found[number][0] in (_TRUE, _FALSE) and 5 in kept:
            kept[number] = found[number]
    _put_struct(out, kept)


# -------------------------------------------------------------------------------------------- columns of the footer


def _leaves(value: _Value) -> list[Leaf]:
    """The columns of a file, from its list of SchemaElement, which contains the column tree in preorder."""
    kind, (item_kind, elements) = value if value[0] == _LIST else (0, (0, ()))
    if kind != _LIST or item_kind != _STRUCT or not elements:
        raise ValueError("its footer has no columns")
    found: list[Leaf] = []
    path_bytes = 0
    # For each enclosing group: how many of its children are still to be read, its path, and its levels.
    above: list[list[Any]] = [[1, "", 0, 0]]
    for position, element in enumerate(elements):
        while above and not above[-1][0]:
            above.pop()
        if not above:
            raise ValueError("its tree of columns has more elements than its groups have children")
        above[-1][0] -= 1
        _, path, definition, repetition = above[-1]
        name = _name(element)
        if position:
            path = f"{path}.{name}" if len(above) > 2 else name
            repeats = _number(element, 3, _I32, f"repetition of column {path}", 2)
            definition, repetition = definition + (repeats > 0), repetition + (repeats == 2)
        children = element.get(5)
        if children is None or (1 in element and children[1] == 0):
            path_bytes += len(path)
            if path_bytes > _MOST_PATH_BYTES:
                raise ValueError("the paths of its columns are too long")
            found.append(_leaf(element, path, definition, repetition))
            continue
        count = _number(element, 5, _I32, f"children of column {path}", len(elements))
        if len(above) > _MOST_LEVELS:
            raise ValueError(f"its columns have more than {_MOST_LEVELS} levels")
        above.append([count, path, definition, repetition])
    if any(each[0] for each in above):
        raise ValueError("its tree of columns is cut off")
    return found


def _leaf(element: _Struct, path: str, definition: int, repetition: int) -> Leaf:
    kind = _number(element, 1, _I32, f"type of column {path}", len(_TYPES) - 1)
    width = _number(element, 2, _I32, f"length of column {path}") if kind == _FIXED else _WIDTHS.get(kind)
    return Leaf(path, kind, width, definition, repetition)


def _name(element: _Struct) -> str:
    kind, name = element.get(4, (0, b""))
    if kind != _BINARY:
        raise ValueError("a column has no name")
    try:
        return str(name, "utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"the name of a column, {name[:100]!r}, is not UTF-8") from None


# --------------------------------------------------------------------------------------------------------- fields


def _number(struct: _Struct, field: int, kind: int, what: str, most: int | None = None) -> int:
    """The value of a required field, a number from 0 to ``most``."""
    found, value = struct.get(field, (0, None))
    if found != kind:
        raise ValueError(f"its footer does not have the {what}")
    number = int(value)
    if number < 0 or (most is not None and number > most):
        raise ValueError(f"its footer has {number} as the {what}")
    return number


def _kept(struct: _Struct, fields: dict[int, int]) -> _Struct:
    return {number: value for number, value in struct.items() if fields.get(number) == value[0]}


def _pairs(value: _Value | None) -> _Value | None:
    """The entries of the key-value metadata that have a key."""
    entries = [] if value is None else [_kept(each, _KEY_VALUE_FIELDS) for each in _items_of(value)]
    kept = [each for each in entries if 1 in each]
    return (_LIST, (_STRUCT, kept)) if kept else None


def _structs(value: _Value | None) -> _Value | None:
    return None if value is None or not _items_of(value) else value


def _items_of(value: _Value) -> list[_Struct]:
    return value[1][1] if value[0] == _LIST and value[1][0] == _STRUCT else []


def _text(value: _Value | None) -> _Value | None:
    """``value`` if it is a string in valid UTF-8; otherwise None."""
    if value is None or value[0] != _BINARY:
        return None
    try:
        value[1].decode("utf-8")
    except UnicodeDecodeError:
        return None
    return value


# --------------------------------------------------------------------------------------------- the compact protocol


# Functions take the bytes and the start of a value, and also return its end. The functions raise IndexError at the end
# of the bytes and ValueError for an invalid encoding.


def _field(data: bytes, at: int, last: int) -> tuple[int, int, int]:
    """For the field after the one with the number ``last`` in a Thrift struct: its number, its type, and the start of
    its value. Type 0 means that the struct has no more fields."""
    head = data[at]
    at += 1
    if not head:
        return 0, 0, at
    if head >> 4:
        return last + (head >> 4), head & 15, at
    number, at = _signed(data, at, _I16)
    return number, head & 15, at


def _items(data: bytes, at: int, wanted: int) -> tuple[int, int]:
    """The number of items of a list, and the position of the first item. The items must be of type ``wanted``."""
    kind, count, at = _head(data, at)
    if kind != wanted:
        raise ValueError(f"its footer has a list of the type {kind} instead of {wanted}")
    return count, at


def _struct(data: bytes, at: int, wanted: Mapping[int, Any] | None = None, depth: int = 0) -> tuple[_Struct, int]:
    """The fields of a struct that are in ``wanted``, a mapping from field numbers to the wanted fields of a nested
    struct (None: the whole field)."""
    if depth > _MOST_STRUCTS:
        raise ValueError("its footer has structs nested too deeply")
    found: _Struct = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if not head:
            return found, at
        kind = head & 15
        if head > 15:
            number += head >> 4
        else:
            number, at = _signed(data, at, _I16)
        if wanted is not None and number not in wanted:
            at = _skipped(data, at, kind, depth)
        elif kind == _STRUCT:
            inner, at = _struct(data, at, None if wanted is None else wanted[number], depth + 1)
            found[number] = _STRUCT, inner
        elif kind in _INTEGERS:
            byte = data[at]
            if byte < 128:
                at += 1
                found[number] = kind, (byte >> 1) ^ -(byte & 1)
            else:
                value, at = _signed(data, at, kind)
                found[number] = kind, value
        else:
            value, at = _value(data, at, kind, depth + 1)
            found[number] = kind, value


def _value(data: bytes, at: int, kind: int, depth: int = 0) -> tuple[Any, int]:
    """The value of a field; see ``_Value``."""
    if kind == _BINARY:
        length, at = _unsigned(data, at)
        return _taken(data, at, length)
    if kind == _STRUCT:
        return _struct(data, at, None, depth + 1)
    if kind in _BITS:
        return _signed(data, at, kind)
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind in (_LIST, _SET):
        inner, count, at = _head(data, at)
        if inner in (_TRUE, _FALSE):
            held, at = _taken(data, at, count)
            return (inner, [each == 1 for each in held]), at
        if depth > _MOST_STRUCTS:
            raise ValueError("its footer has lists nested too deeply")
        values = []
        for _ in range(count):
            value, at = _value(data, at, inner, depth + 1)
            values.append(value)
        return (inner, values), at
    if kind == _DOUBLE:
        return _taken(data, at, 8)
    raise ValueError(f"its footer has a value of the unknown type {kind}")


def _skipped(data: bytes, at: int, kind: int, depth: int) -> int:
    """The end of a value."""
    if kind in (_I16, _I32, _I64):
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == _BINARY:
        length, at = _unsigned(data, at)
        if at + length > len(data):
            raise IndexError
        return at + length
    if kind in (_LIST, _SET) and depth <= _MOST_STRUCTS:
        inner, count, at = _head(data, at)
        if inner in (_TRUE, _FALSE):
            return at + count
        for _ in range(count):
            at = _skipped(data, at, inner, depth + 1)
        return at
    if kind == _STRUCT:
        return _struct(data, at, _NOTHING, depth + 1)[1]
    return _value(data, at, kind, depth + 1)[1]


def _head(data: bytes, at: int) -> tuple[int, int, int]:
    """For a list: the type of its items, the number of its items, and the position of its first item."""
    head = data[at]
    at += 1
    count = head >> 4
    if count == 15:
        count, at = _unsigned(data, at)
        if count > limits.MAX_FOOTER_ITEMS:
            raise ValueError(f"the number of items of a list in its footer, {limits.over('MAX_FOOTER_ITEMS', count)}")
    if count > len(data) - at:
        raise ValueError(f"its footer has a list of {count} items, more than the bytes that are left")
    return head & 15, count, at


def _taken(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    end = at + length
    if end > len(data):
        raise IndexError
    return data[at:end], end


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    for shift in range(7, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("its footer has a number that is too long")


def _signed(data: bytes, at: int, kind: int) -> tuple[int, int]:
    if kind == _BYTE:
        return int.from_bytes(data[at : at + 1], "little", signed=True), at + 1
    value, at = _unsigned(data, at)
    number = (value >> 1) ^ -(value & 1)
    if not -(1 << (_BITS[kind] - 1)) <= number < 1 << (_BITS[kind] - 1):
        raise ValueError(f"its footer has the number {number}, which does not fit its type")
    return number, at


def _put(out: bytearray, number: int, value: _Value, last: int) -> None:
    """Write a Thrift field after the field with the number ``last``."""
    kind, held = value
    delta = number - last
    if 0 < delta < 16:
        out.append(delta << 4 | kind)
    else:
        out.append(kind)
        _put_unsigned(out, _zigzag(number))
    _put_value(out, kind, held)


def _put_value(out: bytearray, kind: int, held: Any) -> None:
    if kind in (_I16, _I32, _I64):
        _put_unsigned(out, _zigzag(held))
    elif kind == _BINARY:
        _put_unsigned(out, len(held))
        out += held
    elif kind == _STRUCT:
        _put_struct(out, held)
    elif kind in (_LIST, _SET):
        inner, items = held
        _put_count(out, len(items), inner)
        for each in items:
            if inner in (_TRUE, _FALSE):
                out.append(_TRUE if each else _FALSE)
            else:
                _put_value(out, inner, each)
    elif kind == _BYTE:
        out += held.to_bytes(1, "little", signed=True)
    elif kind == _DOUBLE:
        out += held


def _put_struct(out: bytearray, struct: _Struct) -> None:
    last = 0
    for number in sorted(struct):
        _put(out, number, struct[number], last)
        last = number
    out.append(0)


def _put_count(out: bytearray, count: int, kind: int) -> None:
    if count < 15:
        out.append(count << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _put_unsigned(out, count)


def _put_unsigned(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1
