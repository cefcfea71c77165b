"""Shredded variants: takes variants apart into typed columns, and puts shredded variants together again. Pure.

Spec: PROTOCOL.md#variant-shredding, #shredded-variant-data-in-parquet, #writer-requirements-for-variant-shredding,
#reader-requirements-for-variant-shredding. The layout is that of the Parquet format. Time and recursion depth are
bounded by the sizes of the values, whatever they contain.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from deltalog.arrow_arrays import combined, packed_lists
from deltalog.protocol.schema import VARIANT, StructType
from deltalog.protocol.variant import (
    ARRAY,
    BINARY,
    DATE,
    DECIMAL_SIZES,
    DOUBLE,
    EXACT,
    FALSE,
    FLOAT,
    INTEGER_SIZES,
    MALFORMED,
    MAX_DEPTH,
    MAX_DIGITS,
    NULL,
    NULL_TYPE,
    OBJECT,
    PRIMITIVE,
    SHORT_STRING,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMP_NTZ,
    TIMESTAMP_NTZ_NS,
    TRUE,
    UUID,
    Dictionary,
    array_elements,
    array_start,
    dictionary_of,
    integer,
    malformed,
    object_fields,
    object_start,
    size_of,
    take,
)
from deltalog.protocol.variant_encoding import (
    array_of,
    binary_of,
    boolean_of,
    double_of,
    exact_of,
    integer_of,
    number_of,
    object_of,
    text_of,
)

# ----------------------------------------------------------------------------------------- putting together


def unshred(column: pa.StructArray) -> list[bytes | None]:
    """The ``value`` of each row of a shredded variant, from its ``metadata``, ``value`` and ``typed_value`` columns.

    None if the row has no variant. If both ``value`` and ``typed_value`` of a variant are absent, the variant is null.
    Raises InvalidDataFileError.
    """
    metadata = column.field("metadata").to_pylist()
    present = column.is_valid().to_pylist()
    try:
        if any(there and found is None for there, found in zip(present, metadata, strict=True)):
            raise ValueError("it has no metadata")
        dictionaries = [dictionary_of(m) if there else None for there, m in zip(present, metadata, strict=True)]
        values = _rebuild(column, dictionaries, 0)
    except MALFORMED as error:
        raise malformed(error) from None
    return [None if not there else NULL if v is None else v for there, v in zip(present, values, strict=True)]


def _rebuild(group: pa.StructArray, dictionaries: Sequence[Dictionary | None], depth: int) -> list[bytes | None]:
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
    typed: pa.StructArray, values: list[bytes | None], dictionaries: Sequence[Dictionary | None], depth: int
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
        rebuilt[row] = _whole_object(fields, dictionary)
    return rebuilt


def _residual_fields(value: bytes | None, dictionary: Dictionary) -> dict[str, Any]:
    """The fields of a partially shredded object that are not in typed columns, each as bytes."""
    if value is None:
        return {}
    if value[0] & 3 != OBJECT:
        raise ValueError("the rest of a shredded object is not an object")
    fields = object_fields(value)
    # Values can be in any order; each value ends where the next one in the buffer begins.
    starts = sorted({start for _, start in fields})
    if len(starts) < len(fields):
        raise ValueError("it ends early, or its elements overlap")
    ends = dict(zip(starts, [*starts[1:], len(value)], strict=True))
    return {dictionary.names[i]: take(value, start, ends[start] - start) for i, start in fields}


def _rebuild_arrays(typed: Any, dictionaries: Sequence[Dictionary | None], depth: int) -> list[bytes | None]:
    offsets = typed.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    owners: list[Dictionary | None] = []
    for dictionary, low, high in zip(dictionaries, offsets, offsets[1:], strict=False):
        owners.extend([dictionary] * (high - low))
    elements = _rebuild(typed.values.slice(first, last - first), owners, depth + 1)
    rebuilt: list[bytes | None] = []
    for present, low, high in zip(typed.is_valid().to_pylist(), offsets, offsets[1:], strict=False):
        items = [NULL if e is None else e for e in elements[low - first : high - first]]
        rebuilt.append(array_of(items) if present else None)
    return rebuilt


def _whole_object(fields: Mapping[str, bytes], dictionary: Dictionary) -> bytes:
    ids = dictionary.ids
    unknown = next((name for name in fields if name not in ids), None)
    if unknown is not None:
        raise ValueError(f"the field {unknown!r} is not in its metadata")
    ordered = sorted((name.encode(), ids[name], content) for name, content in fields.items())
    return object_of(ordered)


def _encode_all(typed: Any) -> list[bytes | None]:
    """Values of one Parquet type, each encoded as a variant; None for nulls."""
    if pt.is_dictionary(typed.type):
        typed = typed.dictionary_decode()
    encode, plain = _encoder(typed)
    return [None if value is None else encode(value) for value in plain.to_pylist()]


def _encoder(typed: Any) -> tuple[Callable[[Any], bytes], Any]:
    """A function that encodes a value of a typed column, and the column converted to the type that the function
    accepts. Numbers take as few bytes as possible, as in Spark."""
    kind = typed.type
    if pt.is_boolean(kind):
        return boolean_of, typed
    if pt.is_signed_integer(kind):
        return integer_of, typed
    if pt.is_float32(kind):
        return lambda value: bytes([FLOAT << 2]) + struct.pack("<f", value), typed
    if pt.is_float64(kind):
        return double_of, typed
    if pt.is_decimal(kind) and 0 <= kind.scale <= MAX_DIGITS:
        return exact_of, typed
    if pt.is_string(kind) or pt.is_large_string(kind):
        return text_of, typed
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return binary_of, typed
    if pt.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return lambda value: bytes([UUID << 2]) + value, typed
    if pt.is_date32(kind):
        return _numbers(DATE, 4), typed.cast(pa.int32())
    if pt.is_time64(kind) and kind.unit == "us":
        return _numbers(TIME, 8), typed.cast(pa.int64())
    if pt.is_timestamp(kind) and kind.unit in ("us", "ns"):
        micros, nanos = (TIMESTAMP_NTZ, TIMESTAMP_NTZ_NS) if kind.tz is None else (TIMESTAMP, TIMESTAMP_NS)
        return _numbers(micros if kind.unit == "us" else nanos, 8), typed.cast(pa.int64())
    raise ValueError(f"a typed column is {kind}, which is not a type of shredded variants")


def _numbers(header: int, size: int) -> Callable[[int], bytes]:
    return lambda value: number_of(header, size, value)


# --------------------------------------------------------------------------------------- choosing typed columns
#
# The limits are those of Spark. A field gets a column if at least a tenth of the variants have it, and if its values
# have one type; null has any type, and numbers without a fraction are decimals if other values are.

SAMPLE_ROWS = 4096
_MOST_COLUMNS = 300
_MOST_LEVELS = 50
_MOST_NAMES = 1000  # that are counted in one object
_SHARE = 10
_MIXED = "mixed"
# The types whose values are stored as they are, by the primitive types of variants.
_PLAIN: Mapping[int, pa.DataType] = {
    TRUE: pa.bool_(),
    FALSE: pa.bool_(),
    DOUBLE: pa.float64(),
    FLOAT: pa.float32(),
    BINARY: pa.binary(),
    STRING: pa.string(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    TIMESTAMP_NTZ: pa.timestamp("us"),
}


@dataclass(slots=True)
class _Seen:
    """The values that occur at one place of the variants in a sample. ``kind``: an Arrow type, ``int``, ``decimal``,
    ``object``, ``array``, or _MIXED; None if all values are null. ``whole`` and ``scale``: the largest number of digits
    before and after the point."""

    kind: Any = None
    count: int = 0
    whole: int = 1
    scale: int = 0
    fields: dict[str, _Seen] = field(default_factory=dict)
    element: _Seen | None = None

    def note(self, kind: Any) -> None:
        if self.kind is None or {self.kind, kind} == {"int", "decimal"}:
            self.kind = kind if self.kind is None else "decimal"
        elif self.kind != kind:
            self.kind = _MIXED


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A typed column of numbers, text and the like."""

    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class _Object:
    """Typed columns of the fields of objects; None: the field has no typed column, only a value."""

    fields: Mapping[str, _Typed]


@dataclass(frozen=True, slots=True)
class _Array:
    """Lists of elements; None: the elements have no typed column."""

    element: _Typed


_Typed = _Scalar | _Object | _Array | None


class _Row:
    """A variant that is taken apart. The elements of a value must not overlap, so its size limits how many bytes are
    copied."""

    __slots__ = ("_left", "data", "names")

    def __init__(self, metadata: bytes, data: bytes) -> None:
        self.names = dictionary_of(metadata).names
        self.data = data
        self._left = len(data)

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError("it ends early, or its elements overlap")

    def whole(self, at: int) -> bytes:
        """The bytes of the value at a position."""
        size = size_of(self.data, at)
        self.spend(size)
        return take(self.data, at, size)

    def fields(self, at: int) -> list[tuple[int, str, int]]:
        """The ids, the names and the positions of the fields of an object."""
        found = object_fields(self.data, at)
        self.spend(object_start(self.data, at) - at)
        return [(number, self.names[number], start) for number, start in found]

    def elements(self, at: int) -> list[int]:
        found = array_elements(self.data, at)
        self.spend(array_start(self.data, at) - at)
        return found


def _note(seen: _Seen, row: _Row, at: int, depth: int) -> None:
    seen.count += 1
    basic, header = row.data[at] & 3, row.data[at] >> 2
    if depth >= _MOST_LEVELS:
        seen.note(_MIXED)
    elif basic == OBJECT:
        seen.note("object")
        for _, name, start in row.fields(at):
            child = seen.fields.get(name)
            if child is None:
                if len(seen.fields) >= _MOST_NAMES:
                    continue
                child = seen.fields[name] = _Seen()
            _note(child, row, start, depth + 1)
    elif basic == ARRAY:
        seen.note("array")
        seen.element = seen.element or _Seen()
        for start in row.elements(at):
            _note(seen.element, row, start, depth + 1)
    else:
        _note_scalar(seen, row, at, STRING if basic == SHORT_STRING else header)


def _note_scalar(seen: _Seen, row: _Row, at: int, kind: int) -> None:
    row.spend(size_of(row.data, at))
    if kind == NULL_TYPE:
        return
    if kind in INTEGER_SIZES:
        seen.note("int")
        seen.whole = max(seen.whole, len(str(abs(integer(row.data, at + 1, INTEGER_SIZES[kind])))))
    elif kind in DECIMAL_SIZES:
        seen.note("decimal")
        unscaled, scale = _unscaled(row.data, at, kind)
        seen.whole = max(seen.whole, len(str(abs(unscaled))) - scale)
        seen.scale = max(seen.scale, scale)
    else:
        seen.note(_PLAIN.get(kind, _MIXED))


def _unscaled(data: bytes, at: int, kind: int) -> tuple[int, int]:
    scale = take(data, at + 1, 1)[0]
    if scale > MAX_DIGITS:
        raise ValueError(f"a decimal has scale {scale}")
    return integer(data, at + 2, DECIMAL_SIZES[kind]), scale


class _Room:
    """The number of columns that a file can still get."""

    def __init__(self) -> None:
        self.columns = _MOST_COLUMNS

    def takes(self, count: int = 1) -> bool:
        self.columns -= count
        return self.columns >= 0


def _chosen(seen: _Seen, least: int, room: _Room) -> _Typed:
    """The typed column for the values of a place. ``least``: how often a field must occur."""
    if not room.takes() or seen.kind in (None, _MIXED):
        return None
    if seen.kind == "object":
        return _chosen_object(seen, least, room)
    if seen.kind == "array":
        element = seen.element or _Seen()
        return _Array(_chosen(element, least, room)) if room.takes() else None
    if not room.takes():
        return None
    if seen.kind == "int":
        return _Scalar(pa.int64())
    if seen.kind == "decimal":
        # Arrow stores decimals as bytes, which Parquet's rules for variants allow for decimals of up to 38 digits.
        return _Scalar(pa.decimal128(MAX_DIGITS, seen.scale)) if seen.whole + seen.scale <= MAX_DIGITS else None
    return _Scalar(seen.kind)


def _chosen_object(seen: _Seen, least: int, room: _Room) -> _Typed:
    often = sorted((-each.count, name) for name, each in seen.fields.items() if each.count >= least)
    known = set[str]()
    fields: dict[str, _Typed] = {}
    for _, name in often:
        # Some readers of Parquet ignore case, and look up columns by dotted paths.
        if not name or "." in name or name.lower() in known or room.columns <= 0:
            continue
        known.add(name.lower())
        fields[name] = _chosen(seen.fields[name], least, room)
    return _Object({name: fields[name] for name in sorted(fields)}) if fields else None


# --------------------------------------------------------------------------------------------- taking apart


@dataclass(slots=True)
class _Group:
    """The columns ``value`` and ``typed_value`` of one place, filled row by row."""

    typed: _Typed
    values: list[bytes | None] = field(default_factory=list)
    scalars: list[Any] = field(default_factory=list)
    present: list[bool] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    fields: dict[str, _Group] = field(default_factory=dict)
    element: _Group | None = None
    convert: Callable[[bytes, int], Any] | None = None

    @classmethod
    def of(cls, typed: _Typed) -> _Group:
        group = cls(typed)
        if isinstance(typed, _Object):
            group.fields = {name: cls.of(each) for name, each in typed.fields.items()}
        elif isinstance(typed, _Array):
            group.element = cls.of(typed.element)
        elif typed is not None:
            group.convert = _converter(typed.kind)
        return group

    def miss(self) -> None:
        """Add a row without a value."""
        self._add(None)

    def _add(self, value: bytes | None, scalar: Any = None, present: bool = False, length: int = 0) -> None:
        self.values.append(value)
        if isinstance(self.typed, _Scalar):
            self.scalars.append(scalar)
        elif isinstance(self.typed, _Array):
            self.present.append(present)
            self.lengths.append(length)
        elif isinstance(self.typed, _Object):
            self.present.append(present)
            if not present:
                for each in self.fields.values():
                    each.miss()

    def put(self, row: _Row, at: int, depth: int) -> None:
        """Add a row with the value at a position."""
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
        basic = row.data[at] & 3
        if isinstance(self.typed, _Object) and basic == OBJECT:
            self._put_object(row, at, depth)
        elif self.element is not None and basic == ARRAY:
            starts = row.elements(at)
            for start in starts:
                self.element.put(row, start, depth + 1)
            self._add(None, present=True, length=len(starts))
        else:
            scalar = None
            if self.convert is not None and basic in (PRIMITIVE, SHORT_STRING):
                scalar = self.convert(row.data, at)
            whole = row.whole(at)
            self._add(whole if scalar is None else None, scalar)

    def _put_object(self, row: _Row, at: int, depth: int) -> None:
        rest, found = [], set[str]()
        for number, name, start in row.fields(at):
            group = self.fields.get(name)
            if name in found:
                raise ValueError(f"an object has the field {name[:100]!r} twice")
            found.add(name)
            if group is None:
                rest.append((name.encode(), number, row.whole(start)))
            else:
                group.put(row, start, depth + 1)
        for name, group in self.fields.items():
            if name not in found:
                group.miss()
        self._add(object_of(rest) if rest else None, present=True)

    def columns(self) -> tuple[list[Any], list[pa.Field]]:
        """The arrays of the rows that were added, and their fields."""
        values, fields = [pa.array(self.values, pa.binary())], [pa.field("value", pa.binary())]
        if self.typed is not None:
            typed = self._typed_array()
            values.append(typed)
            fields.append(pa.field("typed_value", typed.type))
        return values, fields

    def _typed_array(self) -> Any:
        if isinstance(self.typed, _Scalar):
            return _array(self.scalars, self.typed.kind)
        kind = type_of(self.typed)
        if isinstance(self.typed, _Array):
            assert self.element is not None
            elements = _struct(*self.element.columns())
            return packed_lists(kind, pa.array(self.lengths, pa.int32()), elements, pa.array(self.present, pa.bool_()))
        children = [_struct(*each.columns()) for each in self.fields.values()]
        mask = pa.array([not each for each in self.present], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(kind.fields), mask=mask)


def _struct(values: list[Any], fields: list[pa.Field]) -> Any:
    return pa.StructArray.from_arrays(values, fields=fields)


def type_of(typed: Any) -> pa.DataType:
    """The Arrow type of a ``typed_value`` column."""
    if isinstance(typed, _Scalar):
        return typed.kind
    if isinstance(typed, _Array):
        return pa.list_(pa.field("element", _group_type(typed.element), False))
    return pa.struct([pa.field(name, _group_type(each), False) for name, each in typed.fields.items()])


def _group_type(typed: _Typed, *more: pa.Field) -> pa.DataType:
    fields = [*more, pa.field("value", pa.binary())]
    if typed is not None:
        fields.append(pa.field("typed_value", type_of(typed)))
    return pa.struct(fields)


def _array(values: list[Any], kind: pa.DataType) -> Any:
    if pt.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pt.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _converter(kind: pa.DataType) -> Callable[[bytes, int], Any]:
    """A function that converts the scalar at a position to a value of a typed column; None if it has another type."""
    if pt.is_int64(kind):
        return lambda data, at: _integer(data, at)
    if pt.is_decimal(kind):
        return lambda data, at: _decimal(data, at, kind.scale)
    if pt.is_string(kind):
        return _text
    wanted = {each for each, its_type in _PLAIN.items() if its_type == kind}

    def convert(data: bytes, at: int) -> Any:
        header = data[at] >> 2
        if data[at] & 3 != PRIMITIVE or header not in wanted:
            return None
        if header in (TRUE, FALSE):
            return header == TRUE
        if header == BINARY:
            return take(data, at + 5, size_of(data, at) - 5)
        if header == DOUBLE:
            return struct.unpack("<d", take(data, at + 1, 8))[0]
        if header == FLOAT:
            return struct.unpack("<f", take(data, at + 1, 4))[0]
        return integer(data, at + 1, 4 if header == DATE else 8)

    return convert


def _integer(data: bytes, at: int) -> int | None:
    size = INTEGER_SIZES.get(data[at] >> 2)
    return None if data[at] & 3 != PRIMITIVE or size is None else integer(data, at + 1, size)


def _decimal(data: bytes, at: int, wanted: int) -> decimal.Decimal | None:
    kind = data[at] >> 2
    if data[at] & 3 != PRIMITIVE:
        return None
    if kind in INTEGER_SIZES:
        unscaled, scale = integer(data, at + 1, INTEGER_SIZES[kind]), 0
    elif kind in DECIMAL_SIZES:
        unscaled, scale = _unscaled(data, at, kind)
    else:
        return None
    if scale > wanted or len(str(abs(unscaled))) + wanted - scale > MAX_DIGITS:
        return None
    return decimal.Decimal(unscaled).scaleb(-scale, EXACT)


def _text(data: bytes, at: int) -> str | None:
    if data[at] & 3 == SHORT_STRING:
        return take(data, at + 1, data[at] >> 2).decode()
    return take(data, at + 5, size_of(data, at) - 5).decode() if data[at] >> 2 == STRING else None


# ------------------------------------------------------------------------------------------ rows of a file


@dataclass(frozen=True)
class Shredding:
    """How the variants of one file are shredded. ``typed``: the typed columns of the variants, by the paths of their
    columns; ``schema``: the columns of the file."""

    typed: Mapping[tuple[str, ...], _Typed]
    schema: pa.Schema

    @classmethod
    def of_rows(cls, rows: pa.Table, columns: StructType) -> Shredding:
        """Choose typed columns by the first rows of a file. ``columns``: the columns of the rows with their names in
        the file; further columns of the rows are unchanged. Variants in arrays and maps are not shredded, as in Spark.
        Raises InvalidDataFileError."""
        room, typed = _Room(), dict[tuple[str, ...], _Typed]()
        sample = rows.slice(0, SAMPLE_ROWS)
        try:
            for path in _variants(columns, ()):
                seen, count = _Seen(), 0
                for row in _rows(_at(combined(sample.column(path[0])), path[1:])):
                    if row is not None:
                        count += 1
                        _note(seen, row, 0, 0)
                typed[path] = _chosen(seen, -(-count // _SHARE), room)
        except MALFORMED as error:
            raise malformed(error) from None
        fields = [_shredded_field(each, (each.name,), typed) for each in rows.schema]
        return cls(typed, pa.schema(fields))

    @property
    def floating(self) -> set[str]:
        """The dotted paths of the typed columns that can contain NaN, except for those in lists."""
        return {name for each in self.schema for name in _floating(each.type, each.name, inside=False)}

    def rows(self, rows: pa.Table) -> pa.Table:
        """Shred the variants of rows. Raises InvalidDataFileError."""
        try:
            columns = [
                self._column(combined(values), (each.name,), each.type)
                for values, each in zip(rows.columns, self.schema, strict=True)
            ]
        except MALFORMED as error:
            raise malformed(error) from None
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _column(self, values: Any, path: tuple[str, ...], wanted: pa.DataType) -> Any:
        if path in self.typed:
            return self._variant(values, self.typed[path], wanted)
        if values.type.equals(wanted):
            return values
        children = [
            self._column(child, (*path, each.name), each.type)
            for child, each in zip(values.flatten(), wanted.fields, strict=True)
        ]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(wanted.fields), mask=mask)

    @staticmethod
    def _variant(values: Any, typed: _Typed, wanted: pa.DataType) -> Any:
        if typed is None:
            return values
        group = _Group.of(typed)
        for row in _rows(values):
            if row is None:
                group.miss()
            else:
                group.put(row, 0, 0)
        metadata = values.field("metadata")
        metadata = metadata.fill_null(b"") if metadata.null_count else metadata
        columns, _ = group.columns()
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays([metadata, *columns], fields=list(wanted.fields), mask=mask)


def _rows(values: Any) -> Iterator[_Row | None]:
    metadata, data = (values.field(name).to_pylist() for name in ("metadata", "value"))
    for there, one, other in zip(values.is_valid().to_pylist(), metadata, data, strict=True):
        yield _Row(one, other) if there else None


def _variants(columns: StructType, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The paths of the variants that are not in arrays and maps."""
    for column in columns.fields:
        path = (*above, column.name)
        if column.data_type == VARIANT:
            yield path
        elif isinstance(column.data_type, StructType):
            yield from _variants(column.data_type, path)


def _at(values: Any, path: Sequence[str]) -> Any:
    """The field of a struct array at a path; null where a struct on the path is null."""
    for name in path:
        values = values.flatten()[values.type.get_field_index(name)]
    return values


def _shredded_field(held: pa.Field, path: tuple[str, ...], typed: Mapping[tuple[str, ...], _Typed]) -> pa.Field:
    if path in typed:
        found = typed[path]
        return held if found is None else held.with_type(_group_type(found, pa.field("metadata", pa.binary(), False)))
    if any(each[: len(path)] == path for each in typed):
        children = [_shredded_field(each, (*path, each.name), typed) for each in held.type.fields]
        return held.with_type(pa.struct(children))
    return held


def _floating(kind: pa.DataType, path: str, inside: bool) -> Iterator[str]:
    """``inside``: whether the column is part of a shredded variant."""
    if pt.is_struct(kind):
        for each in kind.fields:
            yield from _floating(each.type, f"{path}.{each.name}", inside or each.name == "typed_value")
    elif inside and pt.is_floating(kind):
        yield path
