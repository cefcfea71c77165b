"""Identity columns: their properties, and their high-water mark against the values of the files. Pure.

Spec: PROTOCOL.md#identity-columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deltalog.protocol.column_metadata import IDENTITY_KEY
from deltalog.protocol.identity_columns import STEP_KEY, Identity, identity_of, is_long
from deltalog.protocol.schema import StructField, StructType


def examine_identities(schema: StructType) -> Iterator[tuple[str, str]]:
    """What the schema alone shows."""
    for column in schema.fields:
        name, metadata = column.name, column.metadata
        if metadata.get(STEP_KEY) == 0:
            yield "identity-invalid", f"{STEP_KEY} of {name} is 0."
        missing = IDENTITY_KEY in metadata and STEP_KEY not in metadata
        if missing or (IDENTITY_KEY in metadata and str(column.data_type) != "long"):
            yield "identity-invalid", f"{name} is {column.data_type}" + (" without a step." if missing else ".")
        found = identity_of(column)
        if found is not None and found.mark is not None and not found.is_explicit and not found.has(found.mark):
            text = f"That of {name} is {found.mark}, and its values are {found.start}, {found.start + found.step} and "
            yield "identity-mark-invalid", text + "so on."


def changed_identity(before: StructField, after: StructField, name: str) -> Iterator[tuple[str, str]]:
    """One column's properties after another's, while files of the earlier one stay live."""
    old, new = identity_of(before), identity_of(after)
    if old is None or new is None:
        return
    if (old.start, old.step, old.is_explicit) != (new.start, new.step, new.is_explicit):
        text = f"{name} began at {old.start} in steps of {old.step}, and begins at {new.start} in steps of {new.step}."
        yield "identity-changed", text
    elif old.mark is not None and (new.mark is None or (new.mark < old.mark if new.step > 0 else new.mark > old.mark)):
        yield "identity-mark-decreased", f"That of {name} was {old.mark}, and is {new.mark}."


def examine_values(identity: Identity, low: Any, high: Any, where: str) -> Iterator[tuple[str, str]]:
    """The smallest and the largest value of a file. ``where``: where they were read. Values that users may give need
    not be those of the sequence."""
    if identity.is_explicit:
        return
    last = high if identity.step > 0 else low
    if is_long(last) and identity.is_beyond(last):
        mark = "missing" if identity.mark is None else identity.mark
        yield "identity-mark-low", f"The high-water mark of {identity.name} is {mark}, and {where} have {last}."
    for value in dict.fromkeys((low, high)):
        if is_long(value) and not identity.has(value):
            yield "identity-value-wrong", f"{identity.name} is {value} in {where}."


def bounds_of(body: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """The bounds that statistics have of a column."""
    sides = (body.get("minValues"), body.get("maxValues"))
    low, high = (side.get(name) if isinstance(side, dict) else None for side in sides)
    return low, high
