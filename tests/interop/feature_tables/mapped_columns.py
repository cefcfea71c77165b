"""Column mapping, columns renamed and dropped, and wider types."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalog import DeltaTable
from tests.interop.feature_tables.feature import (
    CHANGES,
    MAPPED,
    TRACKED,
    VECTORS,
    WIDENING,
    as_partitioned,
    created,
    feature,
    listed,
    without,
)
from tests.support.spark.every_type import PERSON
from tests.support.spark.shapes import batch

NESTED = pa.table(
    {
        "id": [1, 2, 3],
        "a b": ["p", "q", None],
        "part": ["u", "v w", None],
        "people": pa.array([[{"name": "Ann", "address": None}, None], None, []], pa.list_(PERSON)),
        "pairs": pa.array([[("k", {"name": "Bo", "address": None})], None, []], pa.map_(pa.string(), PERSON)),
    }
)


@feature("Column mapping by name", "`delta.columnMapping.mode`")
def mapped_by_name(path: Path) -> pa.Table:
    table = DeltaTable.create(str(path), NESTED.schema, partition_by=["part"], properties=MAPPED)
    table.append(NESTED)
    return NESTED


@feature("Column mapping by id", "`delta.columnMapping.mode`")
def mapped_by_id(path: Path) -> pa.Table:
    properties = {"delta.columnMapping.mode": "id"}
    table = DeltaTable.create(str(path), NESTED.schema, partition_by=["part"], properties=properties)
    table.append(NESTED)
    return NESTED


@feature("Column mapping turned on later", "`set_properties`")
def mapping_turned_on(path: Path) -> pa.Table:
    table = created(path, partition_by=["place"], data=batch(0))
    table.set_properties(MAPPED)
    table.append(batch(3))
    return as_partitioned(batch(0, 6))


@feature("Columns renamed and dropped", "`rename_column`, `drop_columns`, `add_columns`")
def renamed_and_dropped(path: Path) -> pa.Table:
    table = DeltaTable.create(str(path), NESTED.schema, partition_by=["part"], properties=MAPPED, data=NESTED)
    table.rename_column("a b", "new, name")
    table.rename_column("people.element.name", "first name")
    table.rename_column("part", "label")
    table.drop_columns(["pairs", "people.element.address"])
    table.add_columns(pa.schema([("pairs", pa.int32())]))
    people = [[{"first name": "Ann"}, None], None, []]
    rows = [
        {"id": i + 1, "new, name": NESTED["a b"][i].as_py(), "label": NESTED["part"][i].as_py(), "people": people[i]}
        for i in range(3)
    ]
    table.append(pa.Table.from_pylist([{**rows[0], "pairs": 7}], table.snapshot().schema.to_arrow()))
    return pa.Table.from_pylist([*rows, {**rows[0], "pairs": 7}], table.snapshot().schema.to_arrow())


@feature(
    "Column mapping with deletion vectors, change data feed and row tracking", "`delete`",
    changes_from=0, row_ids=True,
)  # fmt: skip
def mapped_with_everything(path: Path) -> pa.Table:
    properties = {**MAPPED, **CHANGES, **TRACKED}
    table = DeltaTable.create(str(path), NESTED.schema, partition_by=["part"], properties=properties)
    twice = pa.concat_tables([NESTED, NESTED.set_column(0, "id", pa.array([11, 12, 13]))])
    table.append(twice)
    table.delete("id = 11")
    table.set_properties(VECTORS)
    table.delete("id = 12")
    return without(twice, 11, 12)


@feature("Wider types", "`delta.enableTypeWidening`, `set_column(data_type=…)`, `append(merge_schema=True)`")
def wider_types(path: Path) -> pa.Table:
    before: dict[str, tuple[Any, pa.DataType, pa.DataType]] = {
        "id": (1, pa.int16(), pa.int64()),
        "byte": (2, pa.int8(), pa.int32()),
        "float": (1.5, pa.float32(), pa.float64()),
        "exact": (3, pa.int32(), pa.decimal128(12, 2)),
        "money": (None, pa.decimal128(5, 1), pa.decimal128(10, 2)),
        "day": (dt.date(2026, 1, 2), pa.date32(), pa.timestamp("us")),
        "list": ([1, None], pa.list_(pa.int16()), pa.list_(pa.int64())),
        "map": ([("a", 1)], pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.float64())),
        "part": (4, pa.int16(), pa.int32()),
    }
    rows = pa.table({name: pa.array([value], old) for name, (value, old, _) in before.items()})
    table = DeltaTable.create(str(path), rows.schema, partition_by=["part"], properties=WIDENING, data=rows)
    for name, (_, _, new) in before.items():
        table.set_column(name, data_type=new)
    table.append(pa.table({"id": [2**40], "byte": pa.array([2**40], pa.int64())}), merge_schema=True)
    assert "delta.typeChanges" in table.snapshot().metadata.schema_string and "typeWidening" in listed(table)
    late = {"id": 2**40, "byte": 2**40}
    return pa.concat_tables([rows, pa.Table.from_pylist([late])], promote_options="permissive").cast(
        table.snapshot().schema.to_arrow()
    )
