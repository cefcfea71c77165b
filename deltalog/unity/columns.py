"""A table's schema in the form of the UC Delta API: the JSON of ``metaData.schemaString``, but with hyphenated keys.
Pure.

Spec: UC Delta API 1.0, DeltaStructType; PROTOCOL.md#schema-serialization-format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deltalog.errors import CallError, CorruptTableError
from deltalog.protocol import limits
from deltalog.protocol.schema import StructType

_HYPHENATED = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}
_PLAIN = {hyphenated: plain for plain, hyphenated in _HYPHENATED.items()}
_TYPES = frozenset({"type", "element-type", "key-type", "value-type", "elementType", "keyType", "valueType"})


def to_columns(schema: StructType) -> dict[str, Any]:
    """A schema in the form of the API. Raises SchemaMismatchError as ``StructType.to_json``."""
    columns: dict[str, Any] = _renamed(json.loads(schema.to_json()), _HYPHENATED, 0)
    return columns


def from_columns(columns: object) -> StructType:
    """The schema that a remote caller sent. Raises CallError if it is not a schema; that is checked before anything is
    parsed deeply."""
    try:
        return StructType.from_json(json.dumps(_renamed(columns, _PLAIN, 0)))
    except (CorruptTableError, ValueError, TypeError, RecursionError) as error:
        raise CallError(f"The columns are not a Delta schema: {error}") from None


def _renamed(value: Any, names: Mapping[str, str], depth: int) -> Any:
    """A type with the keys of arrays and maps renamed. Only the keys of types are renamed, so the metadata of a field,
    which can have any keys, stays as it is."""
    if depth > limits.MAX_SCHEMA_DEPTH:
        raise ValueError(f"the depth of its nesting {limits.over('MAX_SCHEMA_DEPTH', depth)}")
    if not isinstance(value, dict):
        return value
    renamed = {}
    for key, member in value.items():
        if key == "fields" and isinstance(member, list):
            member = [_renamed(each, names, depth + 1) for each in member]
        elif key in _TYPES:
            member = _renamed(member, names, depth + 1)
        renamed[names.get(key, key)] = member
    return renamed
