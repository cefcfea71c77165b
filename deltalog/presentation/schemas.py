"""Columns and types as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltalog.protocol.schema import ArrayType, MapType, StructType


def type_text(data_type: Any) -> str:
    """The type as text, such as struct<a:integer>, array<string> or long."""
    if isinstance(data_type, StructType):
        return "struct<" + ", ".join(f"{f.name}: {type_text(f.data_type)}" for f in data_type.fields) + ">"
    if isinstance(data_type, ArrayType):
        return f"array<{type_text(data_type.element_type)}>"
    if isinstance(data_type, MapType):
        return f"map<{type_text(data_type.key_type)}, {type_text(data_type.value_type)}>"
    return str(data_type)


def columns_of(struct: StructType, above: str = "") -> Iterator[tuple[str, str, bool, str]]:
    """One row per field: path, type, nullability and comment. The fields of a struct follow the struct."""
    for field in struct.fields:
        name, inner = f"{above}{field.name}", field.data_type
        is_struct = isinstance(inner, StructType)
        yield name, "struct" if is_struct else type_text(inner), field.nullable, str(field.metadata.get("comment", ""))
        if isinstance(inner, StructType):
            yield from columns_of(inner, f"{name}.")
