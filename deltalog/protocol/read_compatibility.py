"""Checks whether rows written with an older schema can be read with the columns of a newer schema. Pure.

The rules follow Spark's change data feed: columns may be added, and no other change is allowed.

Spec: PROTOCOL.md#reader-requirements-for-addcdcfile, which does not cover schema changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from deltalog.protocol import column_mapping
from deltalog.protocol.actions import Metadata
from deltalog.protocol.column_mapping import Mode
from deltalog.protocol.schema import VOID, ArrayType, DataType, MapType, StructField, StructType


def incompatibility(old: Metadata, new: Metadata) -> str | None:
    """The reason why rows that were written under the metadata ``old`` cannot be read with the columns of the later
    metadata ``new``; None if they can."""
    before, after = (column_mapping.mode_of(metadata.configuration) for metadata in (old, new))
    if before != after and (before, after) != ("none", "name"):
        return f"column mapping changed from {before} to {after}"
    if after == "none":
        return _struct(old.schema, new.schema, "")
    if tuple(old.partition_columns) != tuple(new.partition_columns):
        return (
            f"the partition columns changed from {_listed(old.partition_columns)} to {_listed(new.partition_columns)}"
        )
    return _mapped(old.schema, before, new.schema, after, "") or _struct(old.schema, new.schema, "")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _mapped(old: StructType, old_mode: Mode, new: StructType, new_mode: Mode, where: str) -> str | None:
    """The first column that was dropped or renamed; with column mapping, data files do not show this, because neither a
    drop nor a rename changes them.

    If column mapping was enabled between the two versions, the old names became the physical names.
    """
    by_physical_name = {column_mapping.physical_name(column, new_mode): column for column in new}
    for column in old:
        later = by_physical_name.get(column_mapping.physical_name(column, old_mode))
        if later is None:
            return f"column {where}{column.name} was dropped"
        if later.name != column.name:
            return f"column {where}{column.name} was renamed to {later.name}"
        for name, before, after in _structs(column.data_type, later.data_type, f"{where}{column.name}"):
            why = _mapped(before, old_mode, after, new_mode, name)
            if why is not None:
                return why
    return None


def _structs(old: DataType, new: DataType, name: str) -> list[tuple[str, StructType, StructType]]:
    """The pairs of corresponding outermost structs in two types, each with its path."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        return [(f"{name}.", old, new)]
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return _structs(old.element_type, new.element_type, f"{name}.element")
    if isinstance(old, MapType) and isinstance(new, MapType):
        keys = _structs(old.key_type, new.key_type, f"{name}.key")
        return [*keys, *_structs(old.value_type, new.value_type, f"{name}.value")]
    return []


def _struct(old: StructType, new: StructType, where: str) -> str | None:
    for column in old:
        later = new.find(column.name)
        if later is None:
            return f"column {where}{column.name} was dropped"
        why = _column(column, later, f"{where}{column.name}")
        if why is not None:
            return why
    return None


def _column(old: StructField, new: StructField, name: str) -> str | None:
    if old.name != new.name:
        return f"column {name} was renamed to {new.name}"
    if old.nullable and not new.nullable:
        return f"column {name} became NOT NULL"
    return _type(old.data_type, new.data_type, name)


def _type(old: DataType, new: DataType, name: str) -> str | None:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _struct(old, new, f"{name}.")
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        if old.contains_null and not new.contains_null:
            return f"the elements of {name} became NOT NULL"
        return _type(old.element_type, new.element_type, f"{name}.element")
    if isinstance(old, MapType) and isinstance(new, MapType):
        if old.value_contains_null and not new.value_contains_null:
            return f"the values of {name} became NOT NULL"
        key = _type(old.key_type, new.key_type, f"{name}.key")
        return key or _type(old.value_type, new.value_type, f"{name}.value")
    return None if old in (new, VOID) else f"the type of {name} changed from {old} to {new}"
