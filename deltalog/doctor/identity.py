"""Checks the properties of identity columns, and their high-water marks against the values in files. Pure.

Spec: PROTOCOL.md#identity-columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deltalog.protocol.column_metadata import IDENTITY_KEY
from deltalog.protocol.identity_columns import STEP_KEY, Identity, identity_of, is_long
from deltalog.protocol.schema import StructField, StructType


def examine_identities(schema: StructType) -> Iterator[tuple[str, str]]:
    """Check the properties of identity columns in a schema."""
    for column in schema.fields:
        name, metadata = column.name, column.metadata
        if metadata.get(STEP_KEY) == 0:
            yield "identity-invalid", f"{STEP_KEY} of {name} is 0."
        missing = IDENTITY_KEY in metadata and STEP_KEY not in metadata
        if missing or (IDENTITY_KEY in metadata and str(column.data_type) != "long"):
            yield "identity-invalid", f"{name} is {column.data_type}" + (" without a step." if missing else ".")
        found = identity_of(column)
        if found is not None and found.mark is not None and not found.is_explicit and not found.has(found.mark):
            text = f"The mark of {name} is {found.mark}; its values are {found.start}, {found.start + found.step} and "
            yield "identity-mark-invalid", text + "so on."


def changed_identity(before: StructField, after: StructField, name: str) -> Iterator[tuple[str, str]]:
    """Compare the properties of a column in two versions, as long as files of the earlier version are live."""
    old, new = identity_of(before), identity_of(after)
    if old is None or new is None:
        return
    if (old.start, old.step, old.is_explicit) != (new.start, new.step, new.is_explicit):
        text = f"{name} started at {old.start} in steps of {old.step}; now at {new.start} in steps of {new.step}."
        yield "identity-changed", text
    elif old.mark is not None and (new.mark is None or (new.mark < old.mark if new.step > 0 else new.mark > old.mark)):
        yield "identity-mark-decreased", f"The mark of {name} was {old.mark} and is now {new.mark}."


def examine_values(identity: Identity, low: Any, high: Any, where: str) -> Iterator[tuple[str, str]]:
    """Check ``low`` and ``high``, the smallest and the largest value of an identity column in a file. ``where``: the
    source of the two values, for messages. If users may insert explicit values, these need not belong to the
    sequence."""
    if identity.is_explicit:
        return
    last = high if identity.step > 0 else low
    if is_long(last) and identity.is_beyond(last):
        mark = "missing" if identity.mark is None else identity.mark
        yield "identity-mark-low", f"The high-water mark of {identity.name} is {mark}; {where} have {last}."
    for value in dict.fromkeys((low, high)):
        if is_long(value) and not identity.has(value):
            yield "identity-value-wrong", f"{identity.name} is {value} in {where}."


def bounds_of(body: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """The minimum and maximum of a column in decoded statistics; None if missing."""
    sides = (body.get("minValues"), body.get("maxValues"))
    low, high = (side.get(name) if isinstance(side, dict) else None for side in sides)
    return low, high
