"""Column metadata: the keys that deltalog uses, and the values that every reader accepts. Pure.

Spec: PROTOCOL.md#column-metadata, #default-columns, #generated-columns, #identity-columns, #column-invariants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from deltalog.errors import SchemaMismatchError

INVARIANT_KEY, GENERATION_KEY, DEFAULT_KEY = "delta.invariants", "delta.generationExpression", "CURRENT_DEFAULT"
IDENTITY_KEY = "delta.identity.start"
ID_KEY, PHYSICAL_NAME_KEY = "delta.columnMapping.id", "delta.columnMapping.physicalName"
# Columns with one of these keys can be absent from the data, because the writer computes the values of these columns.
FILLED_BY = (GENERATION_KEY, DEFAULT_KEY, IDENTITY_KEY)
# The JSON types that readers expect for the values of these metadata keys; readers fail on other types.
_METADATA_TYPES: Mapping[str, type] = {
    "comment": str,
    DEFAULT_KEY: str,
    "EXISTS_DEFAULT": str,
    GENERATION_KEY: str,
    INVARIANT_KEY: str,
    "__CHAR_VARCHAR_TYPE_STRING": str,
    ID_KEY: int,
    PHYSICAL_NAME_KEY: str,
    IDENTITY_KEY: int,
    "delta.identity.step": int,
    "delta.identity.highWaterMark": int,
    "delta.identity.allowExplicitInsert": bool,
}
_NAMES = {str: "text", int: "an integer", bool: "True or False"}


def check_metadata(metadata: Any, name: str) -> None:
    """Refuse metadata of the column ``name`` that JSON cannot represent or that readers do not accept.

    Raises SchemaMismatchError.
    """
    if not isinstance(metadata, Mapping):
        raise SchemaMismatchError(f"The metadata of column {name} must be a mapping; got {metadata!a}.")
    wrong = _not_json(metadata)
    if wrong is not None:
        raise SchemaMismatchError(
            f"The metadata of column {name} holds {wrong}. It may hold text, 64-bit integers, finite floats, booleans, "
            "None, mappings with text keys, and lists whose elements have one of these types."
        )
    for key, wanted in _METADATA_TYPES.items():
        value = metadata.get(key, wanted())
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise SchemaMismatchError(f"The metadata {key} of column {name} must be {_NAMES[wanted]}; got {value!a}.")


def _not_json(value: Any) -> str | None:
    """Describe the part of a value that readers of column metadata reject; None if they accept the whole value."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return None if is_text(value) else f"text that is not Unicode, {value!a}"
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else f"{value}, which needs more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value}"
    if isinstance(value, Mapping):
        keys = next((f"the key {key!a}" for key in value if not (isinstance(key, str) and is_text(key))), None)
        return keys or _first(map(_not_json, value.values()))
    if isinstance(value, (list, tuple)):
        kinds = {_kind(each) for each in value}
        return f"a list of several kinds, {value!a}" if len(kinds) > 1 else _first(map(_not_json, value))
    return f"{value!a}"


def _kind(value: Any) -> type:
    return dict if isinstance(value, Mapping) else list if isinstance(value, tuple) else type(value)


def _first(found: Any) -> str | None:
    return next((each for each in found if each is not None), None)


def is_text(text: str) -> bool:
    """Whether UTF-8 can encode the string, that is, whether it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
