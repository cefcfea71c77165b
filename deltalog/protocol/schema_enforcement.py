"""Schema enforcement for writes: checks that the column names are allowed in data files and that data fits the table,
and merges schemas (mergeSchema). Pure.

Spec: PROTOCOL.md#column-metadata, #schema-serialization-format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deltalog.arguments import checked
from deltalog.errors import SchemaMismatchError
from deltalog.protocol.column_metadata import FILLED_BY
from deltalog.protocol.schema import (
    VARIANT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)


def _parts(data_type: DataType) -> Iterable[tuple[str, DataType]]:
    if isinstance(data_type, StructType):
        return ((column.name, column.data_type) for column in data_type.fields)
    if isinstance(data_type, ArrayType):
        return (("element", data_type.element_type),)
    if isinstance(data_type, MapType):
        return (("key", data_type.key_type), ("value", data_type.value_type))
    return ()


def names_twice(
    data_type: Any, where: str = "", parts: Callable[[Any], Iterable[tuple[str, Any]]] = _parts
) -> tuple[str, str, str] | None:
    """The first two fields of the same struct, at any depth, whose names are equal or differ only in case. Returns the
    path of the struct, ending in a dot, and both names. None if there are none. ``where``: the path of ``data_type``,
    ending in a dot. ``parts``: a function that returns the names and types nested in a type; the default handles a
    DataType. Cost: none."""
    seen: dict[str, str] = {}
    for name, kind in parts(data_type):
        if name.lower() in seen:
            return where, seen[name.lower()], name
        seen[name.lower()] = name
        nested = names_twice(kind, f"{where}{name}.", parts)
        if nested is not None:
            return nested
    return None


def check_unique_names(data_type: DataType, where: str = "") -> None:
    """Refuse two fields of the same struct, at any depth, whose names are equal or differ only in case.

    ``where``: the path of ``data_type`` in the schema, ending in a dot; empty for the schema itself. Raises
    SchemaMismatchError.
    """
    twice = names_twice(data_type, where)
    if twice is not None:
        path, name, other = twice
        raise SchemaMismatchError(
            f"Columns {path}{name!r} and {path}{other!r} have the same name up to case. Rename one."
        )


def check_column_names(schema: StructType, mapped: bool = False, where: str = "") -> None:
    """Refuse names that are equal or differ only in case, and names with characters that readers refuse in Parquet
    files of a table. With ``mapped``, such characters are allowed, because under column mapping the files do not
    contain the logical names."""
    if not where:
        check_unique_names(schema)
    for column in schema.fields:
        if not column.name:
            raise SchemaMismatchError(f"A column{f' in {where[:-1]}' if where else ''} has an empty name. Rename it.")
        if not mapped and re.search(r"[ ,;{}()\n\t=]", column.name):
            raise SchemaMismatchError(
                f"The column name {where}{column.name!r} contains one of ' ,;{{}}()\\n\\t='. "
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
    """Refuse data whose columns or types do not fit the table. Nullable columns may be absent from the data, and a
    column may have a narrower type if the table's type can represent all values of this type.

    Raises SchemaMismatchError that names the column, both types and what to do; also for two fields of the data, at
    any depth, whose names are equal up to case.
    """
    check_unique_names(data)
    _check_struct(table, data, "")


def _check_struct(table: StructType, data: StructType, where: str) -> None:
    known = {f.name.lower() for f in table.fields}
    unknown = [f.name for f in data.fields if f.name.lower() not in known]
    if unknown:
        raise SchemaMismatchError(
            f"The data has columns that the table lacks: {', '.join(where + n for n in unknown)}. "
            f"The table has: {', '.join(table.names)}. Drop them, or write with mergeSchema (merge_schema=True)."
        )
    exact = {f.name: f for f in data.fields}
    folded = {f.name.lower(): f for f in reversed(data.fields)}
    for column in table.fields:
        data_column = exact.get(column.name) or folded.get(column.name.lower())
        if data_column is None:
            if not (column.nullable or any(key in column.metadata for key in FILLED_BY)):
                raise SchemaMismatchError(f"Column {where}{column.name} is NOT NULL and missing from the data.")
            continue
        _check_type(column.data_type, data_column.data_type, f"{where}{column.name}")


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
    elif table == VARIANT and data not in (table, PrimitiveType("void")):
        raise SchemaMismatchError(
            f"Column {name} is {table} in the table and {data} in the data. Pass variants as JSON text, as structs of "
            "metadata and value (deltalog.schema.variant_from_python), or in Arrow's extension type for variants."
        )
    elif table != data and data != PrimitiveType("void") and not holds_all(table, data):
        raise SchemaMismatchError(
            f"Column {name} is {table} in the table and {data} in the data, and {table} cannot hold every {data}. "
            f"Cast it to {table} before writing, or replace the schema with overwriteSchema (overwrite_schema=True)."
        )


# For each type, the narrower types whose values it can represent exactly.
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
    """Whether the primitive type ``wide`` can represent every value of the type ``narrow`` exactly.

    Writes cast data of type ``narrow`` to type ``wide`` automatically. False for equal types and for nested types.
    Cost: none.
    """
    if not isinstance(wide, DecimalType):
        return str(narrow) in _HELD.get(str(wide), ())
    if isinstance(narrow, DecimalType):
        return 0 <= wide.scale - narrow.scale <= wide.precision - narrow.precision
    return wide.precision - wide.scale >= _DIGITS.get(str(narrow), 39)


@checked
def merge_schemas(
    table: StructType,
    data: StructType,
    widens: Callable[[DataType, DataType], bool] | None = None,
    keeps_types: bool = False,
) -> StructType:
    """The table's schema with the columns that only ``data`` has; these are appended as nullable columns, at every
    struct level.

    ``widens`` decides which column types of the table change to the data's types. For any other difference in type,
    raises SchemaMismatchError, or with ``keeps_types`` keeps the table's type. Also raises the errors of
    ``check_unique_names`` for the data.
    """
    check_unique_names(data)
    return _merge_structs(table, data, widens, keeps_types)


def _merge_structs(
    table: StructType, data: StructType, widens: Callable[[DataType, DataType], bool] | None, keeps_types: bool
) -> StructType:
    merged = []
    for column in table.fields:
        data_column = data.find(column.name)
        if data_column is None:
            merged.append(column)
            continue
        merged_type = _merge_types(column.data_type, data_column.data_type, column.name, widens, keeps_types)
        merged.append(StructField(column.name, merged_type, column.nullable, column.metadata))
    added = [f for f in data.fields if table.find(f.name) is None]
    return StructType((*merged, *(StructField(f.name, f.data_type, True, f.metadata) for f in added)))


def _merge_types(
    table: DataType,
    data: DataType,
    name: str,
    widens: Callable[[DataType, DataType], bool] | None,
    keeps_types: bool,
) -> DataType:
    def merged(table: DataType, data: DataType) -> DataType:
        return _merge_types(table, data, name, widens, keeps_types)

    if isinstance(table, StructType) and isinstance(data, StructType):
        return _merge_structs(table, data, widens, keeps_types)
    if isinstance(table, ArrayType) and isinstance(data, ArrayType):
        return ArrayType(merged(table.element_type, data.element_type), table.contains_null)
    if isinstance(table, MapType) and isinstance(data, MapType):
        key, value = merged(table.key_type, data.key_type), merged(table.value_type, data.value_type)
        return MapType(key, value, table.value_contains_null)
    if table == PrimitiveType("void") or (widens is not None and widens(table, data)):
        return data
    if not keeps_types:
        _check_type(table, data, name)
    return table
