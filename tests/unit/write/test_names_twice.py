"""Data with two fields whose names differ only in case is refused, at every depth and by every method that takes
rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import Dataset, DeltaLogError, DeltaTable, SchemaMismatchError
from deltalog.errors import InvalidDataFileError
from deltalog.schema import StructType
from deltalog.schema import merge_schemas as merged

I64 = pa.int64()
ONE = pa.struct([("Name", I64), ("b", I64)])
SCHEMA = pa.schema(
    [
        ("id", I64),
        ("S", ONE),
        ("L", pa.list_(ONE)),
        ("M", pa.map_(pa.string(), ONE)),
        ("K", pa.map_(ONE, I64)),
        ("D", pa.struct([("in", ONE)])),
    ]
)
TWINS = [("Name", "name"), ("name", "Name"), ("NAME", "name"), ("Name", "Name")]


def twice(names: tuple[str, str]) -> pa.Array:
    return pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=list(names))


def _list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), values)


def _map(keys: pa.Array, items: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), keys, items)


SHAPES: dict[str, Callable[[pa.Array], pa.Table]] = {
    "S": lambda twin: pa.table({"id": [1], "S": twin}),
    "L": lambda twin: pa.table({"id": [1], "L": _list(twin)}),
    "M": lambda twin: pa.table({"id": [1], "M": _map(pa.array(["k"]), twin)}),
    "K": lambda twin: pa.table({"id": [1], "K": _map(twin, pa.array([1]))}),
    "D": lambda twin: pa.table({"id": [1], "D": pa.StructArray.from_arrays([twin], names=["in"])}),
}


def _merged(table: DeltaTable, data: Any, evolves: bool) -> Any:
    merge = table.merge(data, "target.id = source.id")
    if evolves:
        merge = merge.with_schema_evolution()
    return merge.when_matched_delete().execute()


def _transaction(table: DeltaTable, data: Any) -> None:
    with table.transaction() as transaction:
        transaction.write(data.to_reader())
        transaction.commit()


VERBS: dict[str, Callable[[DeltaTable, Any], Any]] = {
    "append": lambda table, data: table.append(data),
    "append, merge_schema": lambda table, data: table.append(data, merge_schema=True),
    "overwrite": lambda table, data: table.overwrite(data),
    "overwrite, overwrite_schema": lambda table, data: table.overwrite(data, overwrite_schema=True),
    "overwrite, where": lambda table, data: table.overwrite(data, where="id = 1"),
    "merge": lambda table, data: _merged(table, data, False),
    "merge, evolution": lambda table, data: _merged(table, data, True),
    "stage": lambda table, data: table.stage(data),
    "Dataset.write": lambda table, data: Dataset(table).write(data),
    "records": lambda table, data: Dataset(table).stream_write_records(data.to_batches(), {}),
    "transaction": _transaction,
}


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    row: dict[str, Any] = {"id": 1, "S": {"Name": 7, "b": 8}, "L": None, "M": None, "K": None, "D": None}
    return DeltaTable.create(tmp_path / "t", SCHEMA, data=pa.Table.from_pylist([row], schema=SCHEMA))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_takes_a_name_twice(table: DeltaTable, verb: str, shape: str) -> None:
    for names in TWINS:
        with pytest.raises(SchemaMismatchError, match=r"(?i)two (columns|fields)|same name up to case"):
            VERBS[verb](table, SHAPES[shape](twice(names)))
    again = DeltaTable.open(table.url)
    assert again.version == 0
    assert again.to_pyarrow_table().column("S").to_pylist() == [{"Name": 7, "b": 8}]


@pytest.mark.parametrize("shape", SHAPES)
def test_new_tables_take_no_name_twice(tmp_path: Path, shape: str) -> None:
    data = SHAPES[shape](twice(("Name", "name")))
    for attempt in (
        lambda: DeltaTable.create(tmp_path / "a", data.schema),
        lambda: DeltaTable.create(tmp_path / "b", SCHEMA, data=data),
        lambda: Dataset(tmp_path / "c").write(data),
        lambda: Dataset(tmp_path / "d", schema=SCHEMA).write(data),
    ):
        with pytest.raises(SchemaMismatchError, match="same name up to case"):
            attempt()
    assert [*tmp_path.rglob("*.json")] == []


def test_the_message_names_both_fields(table: DeltaTable) -> None:
    with pytest.raises(SchemaMismatchError, match=r"L\.element\.'Name' and L\.element\.'name' have the same name"):
        table.append(SHAPES["L"](twice(("Name", "name"))))


@pytest.mark.parametrize("shape", SHAPES)
def test_schemas_are_merged_with_no_name_twice(shape: str) -> None:
    data = StructType.from_arrow(SHAPES[shape](twice(("Name", "name"))).schema)
    with pytest.raises(SchemaMismatchError, match="same name up to case"):
        merged(StructType.from_arrow(SCHEMA), data)


@pytest.mark.parametrize("shape", SHAPES)
def test_files_of_others_have_no_name_twice(table: DeltaTable, tmp_path: Path, shape: str) -> None:
    data = SHAPES[shape](twice(("Name", "name")))
    pq.write_table(data, tmp_path / "t" / "f.parquet")
    with table.transaction() as transaction, pytest.raises(InvalidDataFileError, match=r"two columns .*up to case"):
        transaction.add_parquet_files([("f.parquet", {})])
    pq.write_table(pa.table({"id": [1], "ID": [2]}), tmp_path / "t" / "g.parquet")
    with table.transaction() as transaction, pytest.raises(InvalidDataFileError, match="two columns ID"):
        transaction.add_parquet_files([("g.parquet", {})])


def test_rows_of_a_transaction_have_no_columns_that_would_be_lost(table: DeltaTable) -> None:
    for data in (
        pa.table({"id": [1], "other": [2]}),
        pa.table([pa.array([1]), pa.array([2])], names=["id", "ID"]),
        pa.table({"id": [1], "S": pa.array([{"Name": 1, "other": 2}])}),
        pa.table({"id": [1], "L": pa.array([[{"Name": 1, "other": 2}]])}),
    ):
        with pytest.raises(DeltaLogError, match=r"other|ID"):
            _transaction(table, data)
    assert DeltaTable.open(table.url).version == 0
