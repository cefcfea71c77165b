"""Checks names, types and metadata of columns, so that every reader can read the schema. Pure.

Spec: PROTOCOL.md#schema-serialization-format. Constructors of types check nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from deltalog.errors import SchemaMismatchError
from deltalog.protocol import limits
from deltalog.protocol.schema import (
    DEFAULT_KEY,
    GENERATION_KEY,
    INVARIANT_KEY,
    PRIMITIVES,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
)

VOID = PrimitiveType("void")
# Readers ask for these as what they are, and fail where they are something else.
_METADATA_TYPES: Mapping[str, type] = {
    "comment": str,
    DEFAULT_KEY: str,
    "EXISTS_DEFAULT": str,
    GENERATION_KEY: str,
    INVARIANT_KEY: str,
    "__CHAR_VARCHAR_TYPE_STRING": str,
    "delta.columnMapping.id": int,
    "delta.columnMapping.physicalName": str,
    "delta.identity.start": int,
    "delta.identity.step": int,
    "delta.identity.highWaterMark": int,
    "delta.identity.allowExplicitInsert": bool,
}


def check_values(schema: StructType) -> None:
    """Refuse names, types and metadata of columns that JSON does not hold or readers do not take.

    Raises SchemaMismatchError naming the column.
    """
    _check_struct(schema, "", 0)


def _check_struct(struct: StructType, where: str, depth: int) -> None:
    for column in struct.fields:
        if not isinstance(column.name, str) or not _is_text(column.name):
            raise SchemaMismatchError(f"The name of a column is text; got {column.name!a}{_in(where)}.")
        name = f"{where}{column.name}"
        _check_flag(column.nullable, f"nullable of column {name}")
        _check_metadata(column.metadata, name)
        _check_type(column.data_type, name, depth + 1)


def _check_type(data_type: Any, name: str, depth: int) -> None:
    if depth > limits.MAX_SCHEMA_DEPTH:
        raise SchemaMismatchError(f"Column {name[:200]}: the depth {limits.over('MAX_SCHEMA_DEPTH', depth)}.")
    if isinstance(data_type, StructType):
        if not data_type.fields:
            raise SchemaMismatchError(f"Column {name} is a struct without fields, which Parquet files cannot hold.")
        _check_struct(data_type, f"{name}.", depth)
    elif isinstance(data_type, (ArrayType, MapType)) and VOID in _parts(data_type):
        raise SchemaMismatchError(
            f"Column {name} is {data_type}, and Delta does not allow void in arrays and maps. Give the values a type."
        )
    elif isinstance(data_type, ArrayType):
        _check_flag(data_type.contains_null, f"contains_null of {name}")
        _check_type(data_type.element_type, f"{name}.element", depth + 1)
    elif isinstance(data_type, MapType):
        _check_flag(data_type.value_contains_null, f"value_contains_null of {name}")
        _check_type(data_type.key_type, f"{name}.key", depth + 1)
        _check_type(data_type.value_type, f"{name}.value", depth + 1)
    elif isinstance(data_type, DecimalType):
        precision, scale = data_type.precision, data_type.scale
        if not (type(precision) is int and type(scale) is int and 0 <= scale <= precision <= 38 and precision > 0):
            raise SchemaMismatchError(f"Column {name} is a {data_type}: precision is 1 to 38, scale 0 to precision.")
    elif not (isinstance(data_type, PrimitiveType) and data_type.name in PRIMITIVES):
        raise SchemaMismatchError(
            f"Column {name} has the type {data_type!a}, which Delta does not have. Types are StructType, ArrayType, "
            f"MapType, DecimalType, and PrimitiveType of one of {', '.join(sorted(PRIMITIVES))}."
        )


def _parts(data_type: ArrayType | MapType) -> tuple[Any, ...]:
    return (data_type.element_type,) if isinstance(data_type, ArrayType) else (data_type.key_type, data_type.value_type)


def _check_flag(value: Any, what: str) -> None:
    if not isinstance(value, bool):
        raise SchemaMismatchError(f"{what} is True or False; got {value!a}.")


def _check_metadata(metadata: Any, name: str) -> None:
    if not isinstance(metadata, Mapping):
        raise SchemaMismatchError(f"The metadata of column {name} is a mapping; got {metadata!a}.")
    wrong = _not_json(metadata)
    if wrong is not None:
        raise SchemaMismatchError(
            f"The metadata of column {name} holds {wrong}. It may hold text, 64-bit integers, finite floats, booleans, "
            "None, mappings with text keys, and lists of one of these types."
        )
    for key, wanted in _METADATA_TYPES.items():
        value = metadata.get(key, wanted())
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise SchemaMismatchError(f"The metadata {key} of column {name} is {_NAMES[wanted]}; got {value!a}.")


_NAMES = {str: "text", int: "an integer", bool: "True or False"}


def _not_json(value: Any) -> str | None:
    """What in a value readers of column metadata cannot take; None: nothing."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return None if _is_text(value) else f"text that is not Unicode, {value!a}"
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else f"{value}, which needs more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value}"
    if isinstance(value, Mapping):
        keys = next((f"the key {key!a}" for key in value if not (isinstance(key, str) and _is_text(key))), None)
        return keys or _first(map(_not_json, value.values()))
    if isinstance(value, (list, tuple)):
        kinds = {_kind(each) for each in value}
        return f"a list of several kinds, {value!a}" if len(kinds) > 1 else _first(map(_not_json, value))
    return f"{value!a}"


def _kind(value: Any) -> type:
    return dict if isinstance(value, Mapping) else list if isinstance(value, tuple) else type(value)


def _first(found: Any) -> str | None:
    return next((each for each in found if each is not None), None)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _in(where: str) -> str:
    return f" in {where[:-1]}" if where else ""
