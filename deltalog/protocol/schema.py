"""Schema types, their JSON, and how schemas are compared and merged.

Spec: PROTOCOL.md#schema-serialization-format. The JSON is the same as that of Spark's ``df.schema.json()``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from deltalog.arguments import checked, shown
from deltalog.errors import CallError, CorruptTableError, SchemaMismatchError
from deltalog.protocol import limits

# Metadata of a column by which it concerns writers.
INVARIANT_KEY, GENERATION_KEY, DEFAULT_KEY = "delta.invariants", "delta.generationExpression", "CURRENT_DEFAULT"
IDENTITY_KEY = "delta.identity.start"
# By these the writer makes values that the data lacks.
FILLED_BY = (GENERATION_KEY, DEFAULT_KEY)
_INTEGRAL = ("byte", "short", "integer", "long")
_TEMPORAL = ("date", "timestamp", "timestamp_ntz")
PRIMITIVES = frozenset((*_INTEGRAL, *_TEMPORAL, "string", "float", "double", "boolean", "binary", "variant", "void"))


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parameters, by its protocol name (``long``, ``string``, ``timestamp_ntz`` …)."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
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
    """A column. ``metadata`` is kept as it is: it carries constraints, mappings, comments."""

    name: str
    data_type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StructType:
    """An ordered list of columns; also the schema of a table."""

    fields: tuple[StructField, ...] = ()
    # Exact names and folded ones, made when the first column is looked for.
    _index: tuple[Mapping[str, StructField], Mapping[str, StructField]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not isinstance(self.fields, tuple):
            object.__setattr__(self, "fields", tuple(self.fields) if isinstance(self.fields, list) else (self.fields,))
        if not all(isinstance(column, StructField) for column in self.fields):
            raise SchemaMismatchError(f"A struct is a tuple of StructField; got {shown(self.fields)}.")

    def __str__(self) -> str:
        return "struct<" + ",".join(f"{f.name}:{f.data_type}" for f in self.fields) + ">"

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    @property
    def names(self) -> list[str]:
        return [f.name for f in self.fields]

    def field(self, name: str) -> StructField:
        """The column of that name, else the one that differs in case only. Raises SchemaMismatchError."""
        found = self.find(name)
        if found is None:
            raise SchemaMismatchError(f"There is no column {name!r}. Columns: {', '.join(self.names)}.")
        return found

    def find(self, name: str) -> StructField | None:
        """Like ``field``, with None for an absent column."""
        index = self._index
        if index is None:
            # Of names that are the same, the first counts.
            index = ({f.name: f for f in reversed(self.fields)}, {f.name.lower(): f for f in reversed(self.fields)})
            object.__setattr__(self, "_index", index)
        exact, folded = index
        try:
            return exact.get(name) or folded.get(name.lower())
        except (TypeError, AttributeError):
            raise CallError(f"The name of a column is text; got {shown(name)}.") from None

    def to_json(self) -> str:
        """The text that ``metaData.schemaString`` holds. Raises SchemaMismatchError for what readers could not read."""
        from deltalog.protocol.schema_values import check_values

        check_values(self)
        return json.dumps(_to_json(self), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    @checked
    def from_json(cls, text: str) -> StructType:
        """Parse ``schemaString``. Raises CorruptTableError when it is not a Delta schema."""
        return _parse(text)

    @classmethod
    def from_arrow(cls, schema: Any) -> StructType:
        """The Delta schema of a pyarrow Schema. Raises SchemaMismatchError for types that Delta lacks."""
        from deltalog.protocol.arrow import schema_from_arrow

        return schema_from_arrow(schema)

    def to_arrow(self) -> Any:
        """The pyarrow Schema that scans of a table with this schema return."""
        from deltalog.protocol.arrow import schema_to_arrow

        return schema_to_arrow(self)


DataType = PrimitiveType | DecimalType | ArrayType | MapType | StructType

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def _to_json(data_type: DataType) -> Any:
    if isinstance(data_type, StructType):
        fields = [
            {
                "name": f.name,
                "type": _to_json(f.data_type),
                "nullable": f.nullable,
                "metadata": dict(f.metadata),
            }
            for f in data_type.fields
        ]
        return {"type": "struct", "fields": fields}
    if isinstance(data_type, ArrayType):
        element = _to_json(data_type.element_type)
        return {"type": "array", "elementType": element, "containsNull": data_type.contains_null}
    if isinstance(data_type, MapType):
        return {
            "type": "map",
            "keyType": _to_json(data_type.key_type),
            "valueType": _to_json(data_type.value_type),
            "valueContainsNull": data_type.value_contains_null,
        }
    return str(data_type)


@lru_cache(maxsize=64)
def parsed(text: str) -> StructType:
    """As ``StructType.from_json``, shared by all who ask for the same text: a commit does several times over."""
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


def _from_json(value: Any, depth: int) -> DataType:
    if depth > limits.MAX_SCHEMA_DEPTH:
        raise ValueError(f"the depth of its nesting {limits.over('MAX_SCHEMA_DEPTH', depth)}")
    if isinstance(value, str):
        if value in PRIMITIVES:
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
        raise ValueError(f"a struct has two fields of one name; its fields are {[f.name for f in fields]}")
    return StructType(fields)


def _field(value: Any, depth: int) -> StructField:
    name, metadata = value["name"], value.get("metadata") or {}
    if not isinstance(name, str) or not isinstance(metadata, dict):
        raise ValueError(f"the field {name!r} has a name that is no text, or metadata that is no object")
    return StructField(name, _from_json(value["type"], depth + 1), _flag(value, "nullable"), metadata)


def _flag(value: Any, key: str) -> bool:
    """True where it is absent. Raises ValueError for anything but true and false."""
    flag = value.get(key, True)
    if not isinstance(flag, bool):
        raise ValueError(f"{key} is {flag!r}")
    return flag


def leaves(schema: StructType) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Every leaf below structs, depth first, with its path of names; arrays and maps are leaves."""
    for column in schema.fields:
        if isinstance(column.data_type, StructType):
            for path, leaf in leaves(column.data_type):
                yield (column.name, *path), leaf
        else:
            yield (column.name,), column


def all_columns(data_type: DataType) -> Iterator[StructField]:
    """Every column at every depth, parents first, also inside arrays and maps."""
    return (column for _, column in columns_by_path(data_type))


def columns_by_path(data_type: DataType, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """As ``all_columns``, with paths, in which ``element``, ``key`` and ``value`` lead into arrays and maps."""
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
    """``one`` with ``change(struct, struct of other)`` for its outermost structs to which ``other`` has the like at
    the same place in arrays and maps."""
    if isinstance(one, StructType) and isinstance(other, StructType):
        return change(one, other)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return replace(one, element_type=in_step(one.element_type, other.element_type, change))
    if isinstance(one, MapType) and isinstance(other, MapType):
        key = in_step(one.key_type, other.key_type, change)
        return replace(one, key_type=key, value_type=in_step(one.value_type, other.value_type, change))
    return one


def uses_type(data_type: DataType, name: str) -> bool:
    """Whether a primitive type of that name occurs anywhere."""
    if isinstance(data_type, StructType):
        return any(uses_type(f.data_type, name) for f in data_type.fields)
    if isinstance(data_type, ArrayType):
        return uses_type(data_type.element_type, name)
    if isinstance(data_type, MapType):
        return uses_type(data_type.key_type, name) or uses_type(data_type.value_type, name)
    return isinstance(data_type, PrimitiveType) and data_type.name == name


def check_unique_names(schema: StructType, where: str = "") -> None:
    """Refuse two columns of one struct whose names are the same, or differ in case only."""
    seen: dict[str, str] = {}
    for column in schema.fields:
        folded = column.name.lower()
        if folded in seen:
            raise SchemaMismatchError(
                f"Columns {where}{seen[folded]!r} and {where}{column.name!r} have the same name up to case. Rename one."
            )
        seen[folded] = column.name


def check_column_names(schema: StructType, mapped: bool = False, where: str = "") -> None:
    """Refuse names that differ in case only, and characters that Parquet readers of tables refuse; these are
    allowed where column mapping keeps the names out of the files (``mapped``)."""
    check_unique_names(schema, where)
    for column in schema.fields:
        if not column.name:
            raise SchemaMismatchError(f"A column{f' in {where[:-1]}' if where else ''} has an empty name. Rename it.")
        if not mapped and re.search(r"[ ,;{}()\n\t=]", column.name):
            raise SchemaMismatchError(
                f"The column name {where}{column.name!r} has one of ' ,;{{}}()\\n\\t='. "
                "Rename it, or turn column mapping on (delta.columnMapping.mode=name), which allows such names."
            )
        _check_nested_names(column.data_type, mapped, f"{where}{column.name}.")


def _check_nested_names(data_type: DataType, mapped: bool, where: str) -> None:
    if isinstance(data_type, StructType):
        check_column_names(data_type, mapped, where)
    elif isinstance(data_type, ArrayType):
        _check_nested_names(data_type.element_type, mapped, f"{where}element.")
    elif isinstance(data_type, MapType):
        _check_nested_names(data_type.key_type, mapped, f"{where}key.")
        _check_nested_names(data_type.value_type, mapped, f"{where}value.")


def check_writable(table: StructType, data: StructType) -> None:
    """Refuse data whose columns or types do not fit the table; absent nullable columns are allowed, and types of which
    the table's hold every value.

    Raises SchemaMismatchError that names the column, both types and what to do.
    """
    check_unique_names(data)
    _check_struct(table, data, "")


def _check_struct(table: StructType, data: StructType, where: str) -> None:
    known = {f.name.lower() for f in table.fields}
    unknown = [f.name for f in data.fields if f.name.lower() not in known]
    if unknown:
        raise SchemaMismatchError(
            f"The data has columns that the table has not: {', '.join(where + n for n in unknown)}. "
            f"The table has: {', '.join(table.names)}. Drop them, or write with mergeSchema (merge_schema=True)."
        )
    exact = {f.name: f for f in data.fields}
    folded = {f.name.lower(): f for f in reversed(data.fields)}
    for column in table.fields:
        given = exact.get(column.name) or folded.get(column.name.lower())
        if given is None:
            if not (column.nullable or any(key in column.metadata for key in FILLED_BY)):
                raise SchemaMismatchError(f"Column {where}{column.name} is NOT NULL and missing from the data.")
            continue
        _check_type(column.data_type, given.data_type, f"{where}{column.name}")


def _check_type(table: DataType, data: DataType, name: str) -> None:
    if isinstance(table, StructType) and isinstance(data, StructType):
        _check_struct(table, data, f"{name}.")
    elif isinstance(table, ArrayType) and isinstance(data, ArrayType):
        _check_type(table.element_type, data.element_type, f"{name}.element")
    elif isinstance(table, MapType) and isinstance(data, MapType):
        _check_type(table.key_type, data.key_type, f"{name}.key")
        _check_type(table.value_type, data.value_type, f"{name}.value")
    elif table == PrimitiveType("void") and data != table:
        raise SchemaMismatchError(
            f"Column {name} has no type yet (void) in the table and is {data} in the data. Write with mergeSchema "
            "(merge_schema=True), which gives it this type."
        )
    elif table != data and data != PrimitiveType("void") and not holds_all(table, data):
        raise SchemaMismatchError(
            f"Column {name} is {table} in the table and {data} in the data, and {table} cannot hold every {data}. "
            f"Cast it to {table} before writing, or replace the schema with overwriteSchema (overwrite_schema=True)."
        )


# Of which types a type holds every value, exactly.
_HELD: Mapping[str, tuple[str, ...]] = {
    "short": ("byte",),
    "integer": ("byte", "short"),
    "long": ("byte", "short", "integer"),
    "float": ("byte", "short"),
    "double": ("byte", "short", "integer", "float"),
    "timestamp_ntz": ("date",),
}
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def holds_all(wide: DataType, narrow: DataType) -> bool:
    """Whether a column of the primitive type ``wide`` can hold every value of another one, ``narrow``, without loss.

    These are the casts that a write makes by itself. False for equal types and for nested ones. Cost: none.
    """
    if not isinstance(wide, DecimalType):
        return str(narrow) in _HELD.get(str(wide), ())
    if isinstance(narrow, DecimalType):
        return 0 <= wide.scale - narrow.scale <= wide.precision - narrow.precision
    return wide.precision - wide.scale >= _DIGITS.get(str(narrow), 39)


@checked
def merge_schemas(
    table: StructType, data: StructType, widens: Callable[[DataType, DataType], bool] | None = None
) -> StructType:
    """The table's schema with the columns that only ``data`` has added at the end, nullable, also in structs.

    ``widens`` tells which types of the table may become those of the data. Raises SchemaMismatchError when a column
    that both have differs in type otherwise.
    """
    merged = []
    for column in table.fields:
        given = data.find(column.name)
        if given is None:
            merged.append(column)
            continue
        merged_type = _merge_types(column.data_type, given.data_type, column.name, widens)
        merged.append(StructField(column.name, merged_type, column.nullable, column.metadata))
    added = [f for f in data.fields if table.find(f.name) is None]
    return StructType((*merged, *(StructField(f.name, f.data_type, True, f.metadata) for f in added)))


def _merge_types(
    table: DataType, data: DataType, name: str, widens: Callable[[DataType, DataType], bool] | None
) -> DataType:
    if isinstance(table, StructType) and isinstance(data, StructType):
        return merge_schemas(table, data, widens)
    if isinstance(table, ArrayType) and isinstance(data, ArrayType):
        return ArrayType(_merge_types(table.element_type, data.element_type, name, widens), table.contains_null)
    if isinstance(table, MapType) and isinstance(data, MapType):
        key = _merge_types(table.key_type, data.key_type, name, widens)
        return MapType(key, _merge_types(table.value_type, data.value_type, name, widens), table.value_contains_null)
    if table == PrimitiveType("void") or (widens is not None and widens(table, data)):
        return data
    _check_type(table, data, name)
    return table
