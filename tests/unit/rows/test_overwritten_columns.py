"""Overwrites that change the columns or the partition columns of a table, and replace all rows or only some."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, ConstraintViolationError, DeltaTable, SchemaMismatchError
from tests.support.core import memory

FIRST = pa.table({"id": [1, 2, 3], "p": ["a", "b", "b"], "s": [{"x": 1}, {"x": 2}, None]})
PROPERTIES: tuple[dict[str, str], ...] = (
    {},
    {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
    {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
)


def create(properties: dict[str, str] | None = None, **more: Any) -> DeltaTable:
    return DeltaTable.create(memory(), FIRST.schema, data=FIRST, properties=properties or {}, **more)


def rows(table: DeltaTable) -> list[dict[str, Any]]:
    found = table.snapshot().scan().to_arrow().sort_by("id").to_pylist()
    assert found == DeltaTable.open(table.snapshot().reader.store).to_pyarrow_table().sort_by("id").to_pylist()
    return found


def partitions(table: DeltaTable) -> list[str]:
    return list(table.snapshot().partition_columns)


@pytest.mark.parametrize("properties", PROPERTIES)
@pytest.mark.parametrize("option", ["overwrite_schema", "merge_schema"])
def test_columns_are_added_where_some_rows_are_replaced(properties: dict[str, str], option: str) -> None:
    table, options = create(properties, partition_by=["p"]), dict[str, Any]({option: True})
    data = pa.table({"id": [3], "p": ["b"], "s": [{"x": 3, "y": 4}], "new": ["n"]})
    table.overwrite(data, where="id = 3", **options)
    assert table.snapshot().schema.names == ["id", "p", "s", "new"] and partitions(table) == ["p"]
    assert rows(table) == [
        {"id": 1, "p": "a", "s": {"x": 1, "y": None}, "new": None},
        {"id": 2, "p": "b", "s": {"x": 2, "y": None}, "new": None},
        {"id": 3, "p": "b", "s": {"x": 3, "y": 4}, "new": "n"},
    ]
    if "delta.enableChangeDataFeed" in properties:
        changes = table.changes(1).to_arrow().select(["id", "new", "_change_type"]).to_pylist()
        assert sorted(each["_change_type"] for each in changes) == ["delete", "insert"]
    with pytest.raises(ConstraintViolationError, match="outside of the replaced rows"):
        table.overwrite(data.append_column("more", [[1]]), where="id = 2", **options)
    assert table.version == 1 and "more" not in table.snapshot().schema.names


@pytest.mark.parametrize("properties", PROPERTIES)
def test_no_values_of_rows_that_stay_are_dropped(properties: dict[str, str]) -> None:
    table = create(properties)
    with pytest.raises(SchemaMismatchError, match=r"lacks the column s. Rows that where= leaves.*merge_schema=True"):
        table.overwrite(pa.table({"id": [3], "p": ["b"], "new": [1]}), where="id = 3", overwrite_schema=True)
    with pytest.raises(SchemaMismatchError, match="p is string in the table and long in the data"):
        table.overwrite(pa.table({"id": [3], "p": [5], "s": [{"x": 1}]}), where="id = 3", overwrite_schema=True)
    assert table.snapshot().version == 0
    table.overwrite(pa.table({"id": [3], "p": ["b"], "new": [1]}), where="id = 3", merge_schema=True)
    assert rows(table)[2] == {"id": 3, "p": "b", "s": None, "new": 1}


def test_columns_without_a_row_are_added_too() -> None:
    table = create(partition_by=["p"])
    none = pa.table({"id": pa.array([], pa.int64()), "p": pa.array([], pa.string()), "new": pa.array([], pa.int64())})
    assert not table.overwrite(none, where="id = 99", merge_schema=True).skipped
    assert not table.overwrite(
        none.append_column("more", [pa.array([], pa.int64())]), partitions="dynamic", merge_schema=True
    ).skipped
    assert table.snapshot().schema.names == ["id", "p", "s", "new", "more"] and len(rows(table)) == 3
    assert table.overwrite(none, where="id = 99", merge_schema=True).skipped


def test_columns_are_added_where_all_rows_or_partitions_are_replaced() -> None:
    table = create(partition_by=["p"])
    table.overwrite(pa.table({"id": [9], "p": ["b"], "new": [1]}), partitions="dynamic", merge_schema=True)
    assert rows(table) == [{"id": 1, "p": "a", "s": {"x": 1}, "new": None}, {"id": 9, "p": "b", "s": None, "new": 1}]
    table.overwrite(pa.table({"id": [7], "other": [2]}), merge_schema=True)
    assert rows(table) == [{"id": 7, "p": None, "s": None, "new": None, "other": 2}]


@pytest.mark.parametrize("properties", PROPERTIES)
def test_partition_columns_are_replaced_with_the_columns(properties: dict[str, str]) -> None:
    table = create(properties, partition_by=["p"])
    table.overwrite(pa.table({"id": [1, 2], "q": ["x", "y"]}), overwrite_schema=True, partition_by=["q"])
    assert partitions(table) == ["q"] and table.snapshot().files().num_rows == 2
    assert rows(table) == [{"id": 1, "q": "x"}, {"id": 2, "q": "y"}]
    table.append(pa.table({"id": [3], "q": ["x"]}))
    table.delete("q = 'x'")
    assert rows(table) == [{"id": 2, "q": "y"}]
    table.overwrite(pa.table({"id": [1], "q": ["z"]}), overwrite_schema=True)
    assert partitions(table) == ["q"]  # unchanged
    table.overwrite(pa.table({"id": [1], "q": ["z"]}), overwrite_schema=True, partition_by=[])
    assert partitions(table) == [] and rows(table) == [{"id": 1, "q": "z"}]
    assert table.snapshot(version=1).scan().to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"where": "id = 1", "partitions": "dynamic"}, "where= and partitions="),
        ({"partitions": "dynamic", "overwrite_schema": True}, "partitions= and overwrite_schema="),
        ({"merge_schema": True, "overwrite_schema": True}, "merge_schema= and overwrite_schema="),
        ({"partition_by": ["id"]}, "partition_by= requires overwrite_schema=True"),
        ({"partition_by": ["id"], "where": "id = 1", "overwrite_schema": True}, "partition_by= requires"),
        ({"partition_by": ["id"], "partitions": "dynamic", "merge_schema": True}, "partition_by= requires"),
    ],
    ids=str,
)
def test_arguments_that_contradict_each_other(arguments: dict[str, Any], message: str) -> None:
    table = create(partition_by=["p"])
    with pytest.raises(CallError, match=message):
        table.overwrite(FIRST, **arguments)
    assert table.snapshot().version == 0


def test_partition_columns_are_columns_of_the_data_and_not_of_a_clustered_table() -> None:
    table = create()
    with pytest.raises(SchemaMismatchError, match="'q' is not among the columns"):
        table.overwrite(FIRST, overwrite_schema=True, partition_by=["q"])
    table.cluster_by(["id"])
    with pytest.raises(CallError, match="is clustered"):
        table.overwrite(FIRST, overwrite_schema=True, partition_by=["p"])
