"""Checks the requirements of Iceberg compatibility on protocol, metadata and data files. Pure.

Spec: PROTOCOL.md#writer-requirements-for-icebergcompatv1, #writer-requirements-for-icebergcompatv2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from deltalog.doctor.features import has
from deltalog.protocol.actions import Metadata, Protocol
from deltalog.protocol.column_metadata import ID_KEY, PHYSICAL_NAME_KEY
from deltalog.protocol.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    columns_by_path,
)
from deltalog.protocol.widening import TYPE_CHANGES_KEY

NESTED_IDS_KEY = "delta.columnMapping.nested.ids"
_ALLOWED = frozenset(
    ["byte", "short", "integer", "long", "float", "double", "string", "binary", "boolean", "timestamp",
     "timestamp_ntz", "date"]
)  # fmt: skip
_NARROW = ("byte", "short", "integer")


def active(protocol: Protocol, metadata: Metadata) -> list[str]:
    """The versions of icebergCompat that are listed and enabled: "1", "2", both or none."""
    return [
        number
        for number in "12"
        if has(protocol, f"icebergCompatV{number}")
        and metadata.configuration.get(f"delta.enableIcebergCompatV{number}", "").lower() == "true"
    ]


def rule(number: str) -> str:
    """The id of the rule for a version of icebergCompat."""
    return {"1": "iceberg-v1-violated", "2": "iceberg-v2-violated"}[number]


def examine_iceberg(protocol: Protocol, metadata: Metadata, schema: StructType) -> Iterator[tuple[str, str]]:
    """Check protocol and metadata."""
    numbers, configuration = active(protocol, metadata), metadata.configuration
    if len(numbers) > 1:
        yield rule("2"), "icebergCompatV1 is enabled as well."
    for number in numbers:
        if configuration.get("delta.columnMapping.mode", "none").lower() == "none":
            yield rule(number), "Column mapping is off."
        with_vectors = configuration.get("delta.enableDeletionVectors", "").lower() == "true"
        supported = has(protocol, "deletionVectors")
        if supported and (number == "1" or with_vectors):
            yield rule(number), "Deletion vectors are on." if with_vectors else "The protocol lists deletionVectors."
        for name, kind in _types(schema):
            if _is_refused(kind, number):
                yield rule(number), f"{name} is {kind}."
        for path, column in columns_by_path(schema):
            for change in _changes(column):
                if not _iceberg_can(change):
                    text = f"The type of {'.'.join(path)} was changed from {change['fromType']} to {change['toType']}."
                    yield rule(number), text
        if number == "2":
            yield from _nested_ids(schema)


def _types(kind: DataType, path: str = "") -> Iterator[tuple[str, DataType]]:
    """All types at all depths, with the paths of their columns."""
    if isinstance(kind, StructType):
        for column in kind.fields:
            name = f"{path}.{column.name}" if path else column.name
            yield name, column.data_type
            yield from _types(column.data_type, name)
    elif isinstance(kind, ArrayType):
        yield f"{path}.element", kind.element_type
        yield from _types(kind.element_type, f"{path}.element")
    elif isinstance(kind, MapType):
        for name, inner in (("key", kind.key_type), ("value", kind.value_type)):
            yield f"{path}.{name}", inner
            yield from _types(inner, f"{path}.{name}")


def _is_refused(kind: DataType, number: str) -> bool:
    if number == "1":
        return isinstance(kind, (ArrayType, MapType)) or str(kind) == "void"
    return not isinstance(kind, (StructType, ArrayType, MapType, DecimalType)) and str(kind) not in _ALLOWED


def _changes(column: StructField) -> list[Mapping[str, Any]]:
    changes = column.metadata.get(TYPE_CHANGES_KEY)
    if not isinstance(changes, (list, tuple)):
        return []
    return [each for each in changes if isinstance(each, Mapping) and {"fromType", "toType"} <= each.keys()]


def _iceberg_can(change: Mapping[str, Any]) -> bool:
    """Whether Iceberg supports a type change: int to long, float to double, or a higher decimal precision."""
    before, after = str(change["fromType"]), str(change["toType"])
    if before in _NARROW:
        return after in (*_NARROW, "long")
    if before.startswith("decimal") and after.startswith("decimal"):
        return before.rpartition(",")[2].strip() == after.rpartition(",")[2].strip()
    return (before, after) == ("float", "double")


def _nested_ids(schema: StructType) -> Iterator[tuple[str, str]]:
    """Check the ids of array elements, map keys and map values."""
    used: Counter[Any] = Counter()
    for path, column in columns_by_path(schema):
        used[column.metadata.get(ID_KEY)] += 1
        name = ".".join(path)
        physical = str(column.metadata.get(PHYSICAL_NAME_KEY, column.name))
        wanted = set(_nested(column.data_type, physical))
        ids = column.metadata.get(NESTED_IDS_KEY)
        known = ids if isinstance(ids, Mapping) else {}
        missing = sorted(wanted - known.keys())
        if missing:
            yield rule("2"), f"{name} has no {NESTED_IDS_KEY} for {', '.join(missing[:5])}."
        used.update(number for key, number in known.items() if key in wanted)
    used.pop(None, None)
    for number, times in used.items():
        if times > 1:
            yield rule("2"), f"{times} columns, elements, keys or values have the id {number}."


def _nested(kind: DataType, prefix: str) -> Iterator[str]:
    """The paths inside a column (elements, keys and values) that must have ids of their own. Types inside structs are
    not included, because they belong to the fields of the struct."""
    if isinstance(kind, ArrayType):
        yield f"{prefix}.element"
        yield from _nested(kind.element_type, f"{prefix}.element")
    elif isinstance(kind, MapType):
        for name, inner in (("key", kind.key_type), ("value", kind.value_type)):
            yield f"{prefix}.{name}"
            yield from _nested(inner, f"{prefix}.{name}")


def changed_partitions(protocol: Protocol, before: Metadata, after: Metadata) -> Iterator[tuple[str, str]]:
    """Report partition columns that were replaced by columns with other names."""
    if not before.partition_columns or before.partition_columns == after.partition_columns:
        return
    for number in active(protocol, after):
        if number in active(protocol, before):
            text = f"The partition columns were {list(before.partition_columns)} and are now "
            yield rule(number), f"{text}{list(after.partition_columns)}."


def examine_file(
    number: str, partitions: Mapping[str, int | None], names: list[str], ids: list[int], int96: list[str]
) -> Iterator[str]:
    """Check the footer of a data file. ``partitions``: the field ids of the partition columns, by physical name.
    ``names``, ``ids``: the names and the field ids of the columns in the file; an id is -1 if it is missing. ``int96``:
    the names of the columns whose Parquet type is INT96."""
    for name, field_id in partitions.items():
        at = next(
            (n for n, own in enumerate(names) if own == name or (field_id is not None and ids[n] == field_id)), None
        )
        if at is None:
            yield f"The file does not contain the partition column {name}."
    held = [n for n, own in enumerate(names) if own in partitions or (ids[n] >= 0 and ids[n] in partitions.values())]
    if number == "1" and held and min(held) < len(names) - len(held):
        yield "Partition columns do not follow all other columns of the file."
    if number == "2" and int96:
        yield f"The timestamps of {', '.join(int96[:5])} are INT96."
