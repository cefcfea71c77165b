"""Identity columns: their properties, and their high-water mark against the values of the files. Pure.

Spec: PROTOCOL.md#identity-columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.protocol.column_metadata import IDENTITY_KEY
from deltalog.protocol.schema import StructField, StructType

STEP_KEY, MARK_KEY, EXPLICIT_KEY = (
    "delta.identity.step", "delta.identity.highWaterMark", "delta.identity.allowExplicitInsert"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity column whose properties are valid. ``mark``: its high-water mark, None where it has none."""

    name: str
    start: int
    step: int
    mark: int | None
    is_explicit: bool

    def is_beyond(self, value: int) -> bool:
        """Whether a value is beyond the high-water mark, so that it will be generated again."""
        return self.mark is None or (value > self.mark if self.step > 0 else value < self.mark)

    def has(self, value: int) -> bool:
        """Whether a value is one of the sequence."""
        steps, rest = divmod(value - self.start, self.step)
        return rest == 0 and steps >= 0


def identity_of(column: StructField) -> Identity | None:
    """The identity column that a column is; None if it is none, or its properties are not valid."""
    values = [column.metadata.get(key) for key in (IDENTITY_KEY, STEP_KEY, MARK_KEY)]
    if str(column.data_type) != "long" or any(not _is_long(value) for value in values[:2]) or values[1] == 0:
        return None
    start, step, mark = values
    if mark is not None and not _is_long(mark):
        return None
    return Identity(column.name, start, step, mark, column.metadata.get(EXPLICIT_KEY) is True)  # type: ignore[arg-type]


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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
    if _is_long(last) and identity.is_beyond(last):
        mark = "missing" if identity.mark is None else identity.mark
        yield "identity-mark-low", f"The high-water mark of {identity.name} is {mark}, and {where} have {last}."
    for value in dict.fromkeys((low, high)):
        if _is_long(value) and not identity.has(value):
            yield "identity-value-wrong", f"{identity.name} is {value} in {where}."


def bounds_of(body: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """The bounds that statistics have of a column."""
    sides = (body.get("minValues"), body.get("maxValues"))
    low, high = (side.get(name) if isinstance(side, dict) else None for side in sides)
    return low, high
