"""Columns in the form of Unity Catalog's general API. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deltalog.errors import CorruptTableError
from deltalog.protocol.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from deltalog.unity.columns import to_columns

_NAMES = {
    "boolean": ("BOOLEAN", "boolean"),
    "byte": ("BYTE", "tinyint"),
    "short": ("SHORT", "smallint"),
    "integer": ("INT", "int"),
    "long": ("LONG", "bigint"),
    "float": ("FLOAT", "float"),
    "double": ("DOUBLE", "double"),
    "date": ("DATE", "date"),
    "timestamp": ("TIMESTAMP", "timestamp"),
    "timestamp_ntz": ("TIMESTAMP_NTZ", "timestamp_ntz"),
    "string": ("STRING", "string"),
    "binary": ("BINARY", "binary"),
    "variant": ("VARIANT", "variant"),
    "void": ("NULL", "void"),
}


def infos_of(schema: StructType, partition_columns: Sequence[str]) -> list[dict[str, Any]]:
    """The columns of a schema."""
    partitions = {name.lower(): index for index, name in enumerate(partition_columns)}
    return [_info(field, position, partitions) for position, field in enumerate(schema.fields)]


def _info(field: StructField, position: int, partitions: Mapping[str, int]) -> dict[str, Any]:
    one = json.loads(StructType((field,)).to_json())["fields"][0]
    info: dict[str, Any] = {
        "name": field.name,
        "type_text": _text(field.data_type),
        "type_json": json.dumps(one, separators=(",", ":")),
        "type_name": _name(field.data_type),
        "position": position,
        "nullable": field.nullable,
    }
    if isinstance(field.data_type, DecimalType):
        info.update(type_precision=field.data_type.precision, type_scale=field.data_type.scale)
    if isinstance(comment := field.metadata.get("comment"), str):
        info["comment"] = comment
    if (index := partitions.get(field.name.lower())) is not None:
        info["partition_index"] = index
    return info


def _name(kind: DataType) -> str:
    match kind:
        case DecimalType():
            return "DECIMAL"
        case ArrayType():
            return "ARRAY"
        case MapType():
            return "MAP"
        case StructType():
            return "STRUCT"
        case PrimitiveType(name):
            return _NAMES.get(name, ("USER_DEFINED_TYPE", name))[0]


def _text(kind: DataType) -> str:
    """A type as in SQL."""
    match kind:
        case DecimalType():
            return str(kind)
        case ArrayType():
            return f"array<{_text(kind.element_type)}>"
        case MapType():
            return f"map<{_text(kind.key_type)},{_text(kind.value_type)}>"
        case StructType():
            return f"struct<{','.join(f'{each.name}:{_text(each.data_type)}' for each in kind.fields)}>"
        case PrimitiveType(name):
            return _NAMES.get(name, ("", name))[1]


def columns_of(infos: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The schema of columns that a caller sent, in the form of the Delta API; None if a column lacks the JSON of its
    field or of its type."""
    fields = []
    for info in infos:
        try:
            given = json.loads(info.get("type_json") or "null")
        except (ValueError, TypeError, RecursionError):
            return None
        if isinstance(given, str) or (isinstance(given, dict) and "name" not in given):
            given = {"type": given}
        if not isinstance(given, dict) or "type" not in given:
            return None
        field = {"nullable": info.get("nullable", True), "metadata": {}, **given, "name": info.get("name")}
        fields.append(field)
    try:
        schema = StructType.from_json(json.dumps({"type": "struct", "fields": fields}))
    except (CorruptTableError, ValueError, TypeError, RecursionError):
        return None
    return to_columns(schema)


def partition_columns_of(infos: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names of the partition columns, in their order, of columns that a caller sent."""
    found = [(info["partition_index"], str(info.get("name"))) for info in infos if _is_number(info)]
    return tuple(name for _, name in sorted(found))


def _is_number(info: Mapping[str, Any]) -> bool:
    index = info.get("partition_index")
    return isinstance(index, int) and not isinstance(index, bool)
