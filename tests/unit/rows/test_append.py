from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, SchemaMismatchError
from deltalog.schema import PrimitiveType, StructField, StructType
from tests.support.core import (
    SCHEMA,
    action,
    environment,
    ids,
    info,
    lines,
    memory,
    objects,
    put_variant_table,
    rows,
    tree,
)
from tests.support.core.other_writers import declared_afterwards


@pytest.fixture
def store() -> Any:
    return memory()


@pytest.fixture
def table(store: Any) -> DeltaTable:
    return DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))


def test_appending(store: Any, table: DeltaTable) -> None:
    result = table.append(rows(2, 3), user_metadata={"run": 1}, txn=("app", 4))
    assert ids(table) == [1, 2, 3]
    body = info(store, 1)
    assert (body["operation"], body["isBlindAppend"], body["userMetadata"]) == ("WRITE", True, '{"run": 1}')
    assert body["operationParameters"] == {"mode": "Append", "partitionBy": "[]"}
    add = action(store, 1, "add")
    assert add is not None and add["dataChange"] is True and json.loads(add["stats"])["numRecords"] == 2
    assert body["operationMetrics"] == {"numOutputRows": "2", "numFiles": "1", "numOutputBytes": str(add["size"])}
    assert action(store, 1, "txn") == {"appId": "app", "version": 4, "lastUpdated": result.timestamp_ms}


def test_a_repeated_batch_is_written_once(store: Any, table: DeltaTable) -> None:
    first = table.append(rows(2), txn=("app", 4))
    again = table.append(rows(2), txn=("app", 4))
    older = DeltaTable.open(store, environment=environment()).append(rows(2), txn=("app", 3))
    assert (first.skipped, again.skipped, older.skipped) == (False, True, True)
    assert (again.version, again.attempts) == (1, 0)
    assert ids(table) == [1, 2]
    assert not table.append(rows(3), txn=("app", 5)).skipped
    assert not table.append(rows(4), txn=("other", 1)).skipped
    assert ids(table) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "data",
    [
        rows(2),
        rows(2).to_reader(),
        rows(2).to_batches()[0],
        rows(2).to_pandas(),
        pa.table({"NAME": ["n2"], "ID": [2]}),
        pa.table({"id": pa.array([2], pa.int64()), "name": pa.array(["n2"]).dictionary_encode()}),
        pa.table({"id": pa.array([2], pa.int64()), "name": pa.array(["n2"], pa.large_string())}),
    ],
    ids=["table", "reader", "batch", "pandas", "case", "dictionary", "large"],
)
def test_anything_that_speaks_arrow(data: Any, table: DeltaTable) -> None:
    table.append(data)
    found = table.snapshot().scan().to_arrow()
    assert found.schema == SCHEMA and {"id": 2, "name": "n2"} in found.to_pylist()


@pytest.mark.parametrize("data", [[{"id": 1}], {"id": [1]}, None, 7, "rows"])
def test_what_does_not_speak_arrow(data: Any, store: Any, table: DeltaTable) -> None:
    before = objects(store)
    with pytest.raises(CallError, match="__arrow_c_stream__"):
        table.append(data)
    assert objects(store) == before


def test_absent_columns_are_null(table: DeltaTable) -> None:
    table.append(pa.table({"id": [2]}))
    assert {"id": 2, "name": None} in table.snapshot().scan().to_arrow().to_pylist()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (pa.table({"id": ["x"], "name": ["y"]}), "Column id is long in the table and string in the data"),
        (pa.table({"id": [1], "extra": [1]}), "that the table lacks: extra"),
        (pa.table({"id": pa.array([1], pa.uint64())}), "Column id has the Arrow type uint64"),
        (pa.table([[1], [2]], names=["id", "id"]), "id"),
        (pa.table({"id": [1], "ID": [2]}), "(?i)id"),
    ],
    ids=["type", "extra", "unsigned", "twice", "case"],
)
def test_data_that_does_not_fit_is_refused_before_anything_is_written(
    data: pa.Table, says: str, store: Any, table: DeltaTable
) -> None:
    before = objects(store)
    for act in (table.append, table.overwrite):
        with pytest.raises(SchemaMismatchError, match=says):
            act(data)
    assert objects(store) == before


def test_not_null_is_kept_also_within_structs(tmp_path: Any) -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int64(), False),
            pa.field("s", pa.struct([pa.field("x", pa.int64(), False)])),
            pa.field("l", pa.list_(pa.field("element", pa.int64(), False))),
        ]
    )
    table = DeltaTable.create(tmp_path / "t", schema, environment=environment())
    good = {"a": 1, "s": {"x": 1}, "l": [1]}
    table.append(pa.Table.from_pylist([good, {**good, "l": None}]))
    before = tree(tmp_path)
    for wrong in ({"a": None}, {"s": {"x": None}}, {"s": None}, {"l": [None]}):
        loose = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int64())])), ("l", pa.list_(pa.int64()))])
        with pytest.raises(SchemaMismatchError, match="NOT NULL"):
            table.append(pa.Table.from_pylist([good, {**good, **wrong}], schema=loose))
        assert tree(tmp_path) == before


def test_null_structs_with_not_null_fields_are_moved_but_not_added(tmp_path: Any) -> None:
    def struct(nullable: bool) -> StructType:
        below = StructType((StructField("y", PrimitiveType("long"), nullable),))
        inside = StructField("s", StructType((StructField("x", below),)))
        return StructType((StructField("a", PrimitiveType("long")), inside))

    rows = pa.Table.from_pylist([{"a": 1, "s": None}, {"a": 2, "s": {"x": None}}, {"a": 3, "s": {"x": {"y": 1}}}])
    DeltaTable.create(tmp_path / "t", struct(True), data=rows)
    table = declared_afterwards(tmp_path / "t", struct(False))
    for row in rows.slice(0, 2).to_pylist():
        with pytest.raises(SchemaMismatchError, match=r"Column s.x.y is NOT NULL, but s(.x)? is null"):
            table.append(pa.Table.from_pylist([row]))
    with pytest.raises(SchemaMismatchError, match=r"Column s\.x\.y is NOT NULL"):
        table.append(pa.Table.from_pylist([{"a": 4}]))
    assert table.delete("a = 3").version == 1
    assert table.snapshot().scan().to_arrow().to_pylist() == rows.slice(0, 2).to_pylist()


def test_a_table_with_variants(store: Any) -> None:
    put_variant_table(store)  # the variant [7], and a null
    table = DeltaTable.open(store, environment=environment())
    assert table.append(pa.table({"id": [3]})).version == 1
    assert table.delete("id = 2").version == 2  # the other row in the same file is rewritten
    assert table.snapshot().scan(variants="json").to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "v": "[7]"},
        {"id": 3, "v": None},
    ]
    for version, nulls in ((1, 1), (2, 0)):
        add = action(store, version, "add")
        assert add is not None and json.loads(add["stats"])["nullCount"] == {"id": 0, "v": nulls}
    for where in ("v IS NULL", "v IS NOT NULL"):
        assert table.snapshot().scan(where=where).to_arrow().num_rows == 1
    table.append(table.snapshot().scan().to_arrow())
    assert table.snapshot().scan(where="v IS NULL").to_arrow()["id"].to_pylist() == [3, 3]
    with pytest.raises(SchemaMismatchError, match="Column v is variant in the table"):
        table.append(pa.table({"v": [7]}))


def test_values_that_do_not_fit_take_the_files_before_them_away(tmp_path: Any) -> None:
    schema = pa.schema([("p", pa.int64()), pa.field("a", pa.int64(), False)])
    table = DeltaTable.create(tmp_path / "t", schema, partition_by=["p"], environment=environment())
    before = tree(tmp_path)

    def batches() -> Any:
        yield pa.record_batch({"p": [1, 2], "a": [1, 2]})
        raise OSError("the source broke")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("p", pa.int64()), ("a", pa.int64())]), batches())
    with pytest.raises(Exception, match="the source broke"):
        table.append(reader)
    assert tree(tmp_path) == before


def test_nothing_to_append_is_a_commit_without_files(store: Any, table: DeltaTable) -> None:
    assert table.append(rows()).version == 1
    assert action(store, 1, "add") is None and ids(table) == [1]


def test_a_partition_for_each_value(store: Any) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["name"], environment=environment())
    table.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "a"]}))
    found = {dict(f["partition_values"])["name"]: f for f in table.snapshot().files().to_pylist()}
    assert set(found) == {"a", "b"}
    assert json.loads(found["a"]["stats"])["minValues"] == {"id": 1}
    assert all(f["path"].startswith(f"name={value}/") for value, f in found.items())
    assert info(store, 1)["operationParameters"]["partitionBy"] == '["name"]'


def test_merging_the_schema(store: Any, table: DeltaTable) -> None:
    table.append(pa.table({"extra": [1.5], "id": [2]}), merge_schema=True)
    assert table.snapshot().schema.names == ["id", "name", "extra"]
    assert [next(iter(line)) for line in lines(store, 1)] == ["commitInfo", "metaData", "add"]
    table.append(rows(3), merge_schema=True)
    assert action(store, 2, "metaData") is None
    with pytest.raises(SchemaMismatchError):
        table.append(pa.table({"id": ["x"]}), merge_schema=True)
    assert len(ids(table)) == 3
