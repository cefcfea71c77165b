"""Column types, and schemas, with conversion to and from ``schemaString`` (JSON) and Arrow schemas. Pure.

Spec: PROTOCOL.md#schema-serialization-format, #primitive-types, #void-type, #struct-type, #struct-field, #array-type,
#map-type, #variant-type. The JSON equals the output of Spark's ``df.schema.json()``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from deltalog.arguments import checked, shown
from deltalog.errors import CallError, CorruptTableError, SchemaMismatchError, UnsupportedFeatureError
from deltalog.lazy_names import lazy_modules
from deltalog.protocol import limits
from deltalog.protocol.column_metadata import check_metadata, is_text

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalog.protocol import arrow_types
else:
    lazy_modules(__name__, "deltalog.protocol.arrow_types", pa="pyarrow")

_BOUNDED = frozenset(
    {"byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp", "timestamp_ntz"}
)
# The keys of arrow_types.PRIMITIVES; reading a schema needs no pyarrow.
_PRIMITIVES = _BOUNDED | {"boolean", "binary", "void", "variant"}


class PrimitiveType(msgspec.Struct, frozen=True):
    """A type without parameters, by its protocol name (``long``, ``string``, ``timestamp_ntz`` …)."""

    name: str

    def __str__(self) -> str:
        return self.name


class DecimalType(msgspec.Struct, frozen=True):
    """A decimal with ``precision`` digits, ``scale`` of which are after the decimal point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType:
    element_type: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element_type}>"


@dataclass(frozen=True, slots=True)
class MapType:
    key_type: DataType
    value_type: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key_type},{self.value_type}>"


@dataclass(frozen=True, slots=True)
class StructField:
    """A column. ``metadata`` is kept unchanged, because it contains constraints, column mapping and comments."""

    name: str
    data_type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class StructType:
    """An ordered list of columns; also a table's schema."""

    fields: tuple[StructField, ...] = ()
    # Columns by exact name and by lower-case name; built at the first look-up.
    _index: tuple[Mapping[str, StructField], Mapping[str, StructField]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not isinstance(self.fields, tuple):
            object.__setattr__(self, "fields", tuple(self.fields) if isinstance(self.fields, list) else (self.fields,))
        if not all(isinstance(column, StructField) for column in self.fields):
            raise SchemaMismatchError(
                f"The fields of a struct must be a tuple of StructField; got {shown(self.fields)}."
            )

    def __str__(self) -> str:
        return "struct<" + ",".join(f"{f.name}:{f.data_type}" for f in self.fields) + ">"

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    @property
    def names(self) -> list[str]:
        return [f.name for f in self.fields]

    def field(self, name: str) -> StructField:
        """The column with exactly this name, otherwise the column whose name differs only in case. Raises
        SchemaMismatchError."""
        found = self.find(name)
        if found is None:
            raise SchemaMismatchError(f"There is no column {name!r}. Columns: {', '.join(self.names)}.")
        return found

    def find(self, name: str) -> StructField | None:
        """Like ``field``, but returns None for an absent column."""
        index = self._index
        if index is None:
            # If several columns have the same name, the first is used.
            index = ({f.name: f for f in reversed(self.fields)}, {f.name.lower(): f for f in reversed(self.fields)})
            object.__setattr__(self, "_index", index)
        exact, folded = index
        try:
            return exact.get(name) or folded.get(name.lower())
        except (TypeError, AttributeError):
            raise CallError(f"The name of a column must be text; got {shown(name)}.") from None

    def to_json(self) -> str:
        """The string for ``metaData.schemaString``. Raises SchemaMismatchError for a schema that readers would
        reject."""
        return json.dumps(_struct_to_json(self, "", 0), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    @checked
    def from_json(cls, text: str) -> StructType:
        """Parse ``schemaString``. Raises CorruptTableError if it is not a Delta schema."""
        return _parse(text)

    @classmethod
    def from_arrow(cls, schema: Any) -> StructType:
        """The Delta schema for a pyarrow Schema. Raises SchemaMismatchError for types that Delta lacks."""
        if not isinstance(schema, pa.Schema):
            raise CallError(f"The columns of a table must be a pyarrow Schema or a StructType; got {shown(schema)}.")
        return cls(tuple(_field_from_arrow(f, "") for f in schema))

    def to_arrow(self) -> Any:
        """The pyarrow Schema that scans of a table with this schema return."""
        return pa.schema([_field_to_arrow(f) for f in self.fields])


DataType = PrimitiveType | DecimalType | ArrayType | MapType | StructType

VARIANT, VOID = PrimitiveType("variant"), PrimitiveType("void")
# The type of a variant column in a scan that returns JSON. It does not occur in tables.
VARIANT_TEXT = PrimitiveType("variant as json")

# ---------------------------------------------------------------------------------- encoding to JSON


def _struct_to_json(struct: StructType, where: str, depth: int) -> dict[str, Any]:
    """Raises SchemaMismatchError for what JSON cannot hold or readers reject: constructors check nothing."""
    fields = []
    for column in struct.fields:
        if not isinstance(column.name, str) or not is_text(column.name):
            inside = f" in {where[:-1]}" if where else ""
            raise SchemaMismatchError(f"The name of a column must be text; got {column.name!a}{inside}.")
        name = f"{where}{column.name}"
        nullable = _checked_flag(column.nullable, f"nullable of column {name}")
        check_metadata(column.metadata, name)
        data_type, metadata = _to_json(column.data_type, name, depth + 1), dict(column.metadata)
        fields.append({"name": column.name, "type": data_type, "nullable": nullable, "metadata": metadata})
    return {"type": "struct", "fields": fields}


def _to_json(data_type: Any, name: str, depth: int) -> Any:
    if depth > limits.MAX_SCHEMA_DEPTH:
        raise SchemaMismatchError(f"Column {name[:200]}: the depth {limits.over('MAX_SCHEMA_DEPTH', depth)}.")
    if isinstance(data_type, StructType):
        if not data_type.fields:
            raise SchemaMismatchError(f"Column {name} is a struct without fields, which Parquet files cannot hold.")
        return _struct_to_json(data_type, f"{name}.", depth)
    if isinstance(data_type, ArrayType):
        _check_not_void(data_type, data_type.element_type, name=name)
        contains_null = _checked_flag(data_type.contains_null, f"contains_null of {name}")
        element = _to_json(data_type.element_type, f"{name}.element", depth + 1)
        return {"type": "array", "elementType": element, "containsNull": contains_null}
    if isinstance(data_type, MapType):
        _check_not_void(data_type, data_type.key_type, data_type.value_type, name=name)
        contains_null = _checked_flag(data_type.value_contains_null, f"value_contains_null of {name}")
        key = _to_json(data_type.key_type, f"{name}.key", depth + 1)
        value = _to_json(data_type.value_type, f"{name}.value", depth + 1)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": contains_null}
    if isinstance(data_type, DecimalType):
        precision, scale = data_type.precision, data_type.scale
        if not (type(precision) is int and type(scale) is int and 0 <= scale <= precision <= 38 and precision > 0):
            raise SchemaMismatchError(
                f"Column {name} is a {data_type}: the precision must be 1 to 38, the scale 0 to the precision."
            )
    elif not (isinstance(data_type, PrimitiveType) and data_type.name in _PRIMITIVES):
        raise SchemaMismatchError(
            f"Column {name} has the type {data_type!a}, which Delta does not have. Types are StructType, ArrayType, "
            f"MapType, DecimalType, and PrimitiveType of one of {', '.join(sorted(_PRIMITIVES))}."
        )
    return str(data_type)


def _check_not_void(data_type: DataType, *inside: DataType, name: str) -> None:
    if VOID in inside:
        raise SchemaMismatchError(
            f"Column {name} is {data_type}, and Delta does not allow void in arrays and maps. Give the values a type."
        )


def _checked_flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise SchemaMismatchError(f"{what} must be True or False; got {value!a}.")
    return value


# -------------------------------------------------------------------------------- decoding from JSON

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


@lru_cache(maxsize=64)
def parsed(text: str) -> StructType:
    """``StructType.from_json`` with a cache, because a commit parses the same string several times."""
    return _parse(text)


def _parse(text: str) -> StructType:
    try:
        if len(text) > limits.MAX_SCHEMA_BYTES:
            raise ValueError(f"its size in bytes {limits.over('MAX_SCHEMA_BYTES', len(text))}")
        schema = _from_json(json.loads(text), 0)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptTableError(f"The table's schemaString is not a Delta schema: {error!r}.") from None
    if not isinstance(schema, StructType):
        raise CorruptTableError("The table's schemaString is not a struct.")
    return schema


def type_named(name: str) -> DataType | None:
    """The primitive type with a name such as ``long`` or ``decimal(5,2)``; None if there is none."""
    try:
        return _from_json(name, 0)
    except ValueError:
        return None


def _from_json(value: Any, depth: int) -> DataType:
    if depth > limits.MAX_SCHEMA_DEPTH:
        raise ValueError(f"the depth of its nesting {limits.over('MAX_SCHEMA_DEPTH', depth)}")
    if isinstance(value, str):
        if value in _PRIMITIVES:
            return PrimitiveType(value)
        if value == "decimal":
            return DecimalType(10, 0)
        if match := _DECIMAL.fullmatch(value):
            return _decimal(int(match[1]), int(match[2]))
        raise ValueError(f"unknown type {value!r}")
    kind = value["type"]
    if kind == "struct":
        return _struct(tuple(_field(f, depth) for f in value["fields"]))
    if kind == "array":
        return ArrayType(_from_json(value["elementType"], depth + 1), _flag(value, "containsNull"))
    if kind == "map":
        key, item = _from_json(value["keyType"], depth + 1), _from_json(value["valueType"], depth + 1)
        return MapType(key, item, _flag(value, "valueContainsNull"))
    raise ValueError(f"unknown type {kind!r}")


def _decimal(precision: int, scale: int) -> DecimalType:
    if not 1 <= precision <= 38 or scale > precision:
        raise ValueError(f"unknown type 'decimal({precision},{scale})'")
    return DecimalType(precision, scale)


def _struct(fields: tuple[StructField, ...]) -> StructType:
    if len({f.name for f in fields}) < len(fields):
        raise ValueError(f"a struct has two fields with the same name; its fields are {[f.name for f in fields]}")
    return StructType(fields)


def _field(value: Any, depth: int) -> StructField:
    name, metadata = value["name"], value.get("metadata") or {}
    if not isinstance(name, str) or not isinstance(metadata, dict):
        raise ValueError(f"the field {name!r} has a name that is not text, or metadata that is not an object")
    return StructField(name, _from_json(value["type"], depth + 1), _flag(value, "nullable"), metadata)


def _flag(value: Any, key: str) -> bool:
    """The boolean at a key; True if the key is absent. Raises ValueError for anything but true and false."""
    flag = value.get(key, True)
    if not isinstance(flag, bool):
        raise ValueError(f"{key} is {flag!r}")
    return flag


# ------------------------------------------------------------------------------------------ as Arrow


def _field_to_arrow(column: StructField) -> pa.Field:
    return _arrow_field(column.name, column.data_type, column.nullable)


def _arrow_field(name: str, data_type: DataType, nullable: bool) -> pa.Field:
    # A field of Arrow's type null cannot be NOT NULL.
    return pa.field(name, type_to_arrow(data_type), nullable or data_type == VOID)


def type_to_arrow(data_type: DataType) -> pa.DataType:
    """The Arrow type for a Delta type. Raises UnsupportedFeatureError if there is none."""
    if isinstance(data_type, StructType):
        return pa.struct([_field_to_arrow(f) for f in data_type.fields])
    if isinstance(data_type, ArrayType):
        return pa.list_(_arrow_field("element", data_type.element_type, data_type.contains_null))
    if isinstance(data_type, MapType):
        if data_type.key_type == VOID:
            raise UnsupportedFeatureError(f"{data_type} cannot be read or written: its keys have no type.", features=())
        value = _arrow_field("value", data_type.value_type, data_type.value_contains_null)
        return pa.map_(type_to_arrow(data_type.key_type), value)
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if data_type == VARIANT_TEXT:
        return pa.string()
    arrow = arrow_types.PRIMITIVES.get(data_type.name)
    if arrow is None:
        raise UnsupportedFeatureError(
            f"Columns of type {data_type.name} cannot be read or written yet.", features=(data_type.name,)
        )
    return arrow


def _field_from_arrow(column: Any, where: str) -> StructField:
    name = f"{where}{column.name}"
    if arrow_types.is_variant(column):
        return StructField(column.name, VARIANT, column.nullable)
    return StructField(column.name, _type_from_arrow(column.type, name), column.nullable)


def _type_from_arrow(arrow: pa.DataType, name: str) -> DataType:
    if arrow_types.is_encoded(arrow):
        return _type_from_arrow(arrow.value_type, name)
    if pa.types.is_struct(arrow):
        return StructType(tuple(_field_from_arrow(f, f"{name}.") for f in arrow.fields))
    if pa.types.is_map(arrow):
        value_nullable = arrow.item_field.nullable
        key, value = _type_from_arrow(arrow.key_type, f"{name}.key"), _part_from_arrow(arrow.item_field, name)
        return MapType(key, value, value_nullable)
    if arrow_types.is_list(arrow):
        return ArrayType(_part_from_arrow(arrow.value_field, f"{name}.element"), arrow.value_field.nullable)
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return DecimalType(arrow.precision, arrow.scale)
    primitive = arrow_types.primitive_of(arrow)
    if primitive is None:
        raise SchemaMismatchError(
            f"Column {name} has the Arrow type {arrow}, which Delta does not have. "
            "Cast it: uint64 to int64 or decimal128(20, 0), time to string or int64, an extension type to its storage."
        )
    return PrimitiveType(primitive)


def _part_from_arrow(part: pa.Field, name: str) -> DataType:
    return VARIANT if arrow_types.is_variant(part) else _type_from_arrow(part.type, name)


# -------------------------------------------------------------------------------------------- walks


def leaves(schema: StructType) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Every leaf column, including those inside structs, depth first, with its path; arrays and maps are leaves."""
    for column in schema.fields:
        if isinstance(column.data_type, StructType):
            for path, leaf in leaves(column.data_type):
                yield (column.name, *path), leaf
        else:
            yield (column.name,), column


def has_bounds(data_type: DataType) -> bool:
    """Whether statistics can contain the minimum and maximum of a column of this type."""
    return str(data_type) in _BOUNDED or isinstance(data_type, DecimalType)


def all_columns(data_type: DataType) -> Iterator[StructField]:
    """Every column at every depth, parents first, including those inside arrays and maps."""
    return (column for _, column in columns_by_path(data_type))


def columns_by_path(data_type: DataType, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Like ``all_columns``, but with paths, in which ``element``, ``key`` and ``value`` stand for the contents of
    arrays and maps."""
    if isinstance(data_type, StructType):
        for column in data_type.fields:
            path = (*above, column.name)
            yield path, column
            yield from columns_by_path(column.data_type, path)
    elif isinstance(data_type, ArrayType):
        yield from columns_by_path(data_type.element_type, (*above, "element"))
    elif isinstance(data_type, MapType):
        yield from columns_by_path(data_type.key_type, (*above, "key"))
        yield from columns_by_path(data_type.value_type, (*above, "value"))


def in_step(one: DataType, other: DataType, change: Callable[[StructType, StructType], StructType]) -> DataType:
    """Apply ``change(struct, other_struct)`` to each outermost struct of ``one`` that has a counterpart in ``other`` at
    the same position inside arrays and maps; everything else is unchanged."""
    if isinstance(one, StructType) and isinstance(other, StructType):
        return change(one, other)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return replace(one, element_type=in_step(one.element_type, other.element_type, change))
    if isinstance(one, MapType) and isinstance(other, MapType):
        key = in_step(one.key_type, other.key_type, change)
        return replace(one, key_type=key, value_type=in_step(one.value_type, other.value_type, change))
    return one


def uses_type(data_type: DataType, name: str) -> bool:
    """Whether a primitive type of that name occurs at any depth."""
    if isinstance(data_type, StructType):
        return any(uses_type(f.data_type, name) for f in data_type.fields)
    if isinstance(data_type, ArrayType):
        return uses_type(data_type.element_type, name)
    if isinstance(data_type, MapType):
        return uses_type(data_type.key_type, name) or uses_type(data_type.value_type, name)
    return isinstance(data_type, PrimitiveType) and data_type.name == name


def variants_as_text(schema: StructType) -> StructType:
    """The schema with every variant replaced by JSON strings, including variants inside structs, arrays and maps."""
    text = _variant_as_text(schema)
    assert isinstance(text, StructType)
    return text


def _variant_as_text(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        fields = (replace(f, data_type=_variant_as_text(f.data_type)) for f in data_type.fields)
        return StructType(tuple(fields))
    if isinstance(data_type, ArrayType):
        return ArrayType(_variant_as_text(data_type.element_type), data_type.contains_null)
    if isinstance(data_type, MapType):
        key, value = _variant_as_text(data_type.key_type), _variant_as_text(data_type.value_type)
        return MapType(key, value, data_type.value_contains_null)
    return VARIANT_TEXT if data_type == VARIANT else data_type
