"""Writes to tables with column mapping: names and ids in files, statistics, partition values and paths."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable
from deltalog.errors import InvalidDataFileError, InvalidPropertyError
from deltalog.protocol import column_mapping
from deltalog.protocol.column_mapping import MAX_ID_KEY, MODE_KEY
from deltalog.protocol.column_metadata import ID_KEY, PHYSICAL_NAME_KEY
from deltalog.protocol.schema import all_columns
from deltalog.schema import StructType
from tests.support.core import SCHEMA, action, configuration, environment, ids, lines, memory, rows

POINT = pa.struct([("x", pa.int32()), ("y z", pa.list_(pa.struct([("q", pa.string())])))])
# At every depth, the table has names that are invalid in Parquet, and nulls; its arrays are slices of a larger buffer.
NESTED = pa.table(
    {
        "a b": pa.array([9, 1, 2, None]),
        "part": ["-", "u", "v", None],
        "s": pa.array([None, {"x": 1, "y z": [{"q": "k"}, None]}, None, {"x": None, "y z": None}], POINT),
        "m": pa.array([[], [("k", {"x": 3, "y z": []})], None, []], pa.map_(pa.string(), POINT)),
        "l": pa.array([None, [[1], None, []], None, []], pa.list_(pa.list_(pa.int32()))),
    }
).slice(1)
MODES = pytest.mark.parametrize("mode", ["name", "id"])


def in_order(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def create(store: Any, mode: str, data: pa.Table, **options: Any) -> DeltaTable:
    return DeltaTable.create(
        store, data.schema, properties={MODE_KEY: mode}, data=data, environment=environment(), **options
    )


def identities(schema: StructType) -> dict[str, tuple[int, str]]:
    """Id and physical name of each top-level column."""
    return {f.name: (f.metadata[ID_KEY], f.metadata[PHYSICAL_NAME_KEY]) for f in schema}


def field_ids(schema: Any, prefix: str = "") -> dict[str, str]:
    found = {}
    for field in schema:
        name = f"{prefix}{field.name}"
        if field.metadata and b"PARQUET:field_id" in field.metadata:
            found[name] = field.metadata[b"PARQUET:field_id"].decode()
        kind = field.type
        while pa.types.is_list(kind) or pa.types.is_map(kind):
            kind = kind.value_type if pa.types.is_list(kind) else kind.item_type
        if pa.types.is_struct(kind):
            found |= field_ids(kind.fields, f"{name}.")
    return found


@MODES
def test_what_is_written_is_read(mode: str) -> None:
    store = memory()
    table = create(store, mode, NESTED, partition_by=["part"])
    assert in_order(DeltaTable.open(store).snapshot().scan().to_arrow()) == in_order(NESTED)
    table.append(NESTED)
    assert in_order(table.snapshot().scan().to_arrow()) == sorted(2 * in_order(NESTED))
    assert table.snapshot().scan(where="`a b` = 1").to_arrow()["s"].to_pylist()[0]["y z"] == [{"q": "k"}, None]


@MODES
def test_log_and_files_have_only_physical_names_and_ids(mode: str) -> None:
    store = memory()
    schema = create(store, mode, NESTED, partition_by=["part"]).snapshot().schema
    every = [*all_columns(schema)]
    numbers = [column.metadata[ID_KEY] for column in every]
    names = {column.metadata[PHYSICAL_NAME_KEY] for column in every}
    assert sorted(numbers) == list(range(1, len(every) + 1)) and len(names) == len(every)
    assert all(name.startswith("col-") for name in names)
    adds = [line["add"] for line in lines(store, 0) if "add" in line]
    physical = {column.name: column.metadata[PHYSICAL_NAME_KEY] for column in schema}
    assert [list(add["partitionValues"]) for add in adds] == 3 * [[physical["part"]]]
    assert not any("part=" in add["path"] or "=" in add["path"] for add in adds)
    for add in adds:
        statistics = json.loads(add["stats"])
        for each in ("minValues", "maxValues", "nullCount"):
            assert set(statistics.get(each, {})) <= set(physical.values())
        stored = pq.ParquetFile(pa.BufferReader(store.get(add["path"]))).schema_arrow
        assert set(stored.names) == {physical[name] for name in ("a b", "s", "m", "l")}
        found = field_ids(stored)
        assert {name.rpartition(".")[2]: int(value) for name, value in found.items()} == {
            column.metadata[PHYSICAL_NAME_KEY]: column.metadata[ID_KEY] for column in every if column.name != "part"
        }


def test_the_feature_and_the_highest_id_come_with_the_property() -> None:
    store = memory()
    create(store, "name", rows(1))
    assert action(store, 0, "protocol") == {
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping", "appendOnly", "invariants"],
    }  # fmt: skip
    assert (configuration(store, 0) or {})[MAX_ID_KEY] == "2"


def test_turning_it_on_names_columns_as_the_files_have_them() -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, partition_by=["name"], data=rows(1, 2), environment=environment())
    table.set_properties({MODE_KEY: "name"})
    assert identities(table.snapshot().schema) == {"id": (1, "id"), "name": (2, "name")}
    assert (configuration(store, 1) or {})[MAX_ID_KEY] == "2"
    table.append(rows(3))
    assert ids(table) == [1, 2, 3]
    add = action(store, 2, "add")
    assert add is not None and add["partitionValues"] == {"name": "n3"} and "name=" not in add["path"]
    assert ids(table, version=0) == [1, 2]


@pytest.mark.parametrize(
    ("before", "after"), [("none", "id"), ("name", "id"), ("id", "name"), ("name", "none"), ("id", "none")]
)
def test_modes_that_a_table_cannot_change_to(before: str, after: str) -> None:
    table = create(memory(), before, rows(1))
    with pytest.raises(InvalidPropertyError, match=f"cannot change from {before} to {after}"):
        table.set_properties({MODE_KEY: after})
    if before != "none":
        with pytest.raises(InvalidPropertyError, match="cannot change"):
            table.unset_properties([MODE_KEY])
    assert table.version == 0


def test_the_highest_id_is_the_writers_own() -> None:
    table = create(memory(), "name", rows(1))
    for change in (lambda: table.set_properties({MAX_ID_KEY: "9"}), lambda: table.unset_properties([MAX_ID_KEY])):
        with pytest.raises(InvalidPropertyError, match="maintained by the writer"):
            change()


def test_ids_of_another_table_are_not_taken_over() -> None:
    schema = create(memory(), "name", rows(1)).snapshot().schema
    for mode in ("name", "none"):
        other = DeltaTable.create(
            memory(), schema, properties={MODE_KEY: mode}, data=rows(1), environment=environment()
        )
        ours = other.snapshot().schema
        assert not any(
            column.metadata.get(PHYSICAL_NAME_KEY) == theirs.metadata[PHYSICAL_NAME_KEY]
            for column, theirs in zip(ours, schema, strict=True)
        )
        assert ids(other) == [1]


def test_merging_a_column_gives_it_the_next_id() -> None:
    table = create(memory(), "name", rows(1))
    before = identities(table.snapshot().schema)
    table.append(rows(2).append_column("new col", pa.array([2.5])), merge_schema=True)
    after = identities(table.snapshot().schema)
    assert {name: after[name] for name in before} == before
    assert after["new col"][0] == 3 and after["new col"][1].startswith("col-")
    assert table.snapshot().metadata.configuration[MAX_ID_KEY] == "3"
    assert sorted(table.snapshot().scan().to_arrow()["new col"].to_pylist(), key=str) == [2.5, None]


def test_overwriting_the_schema_keeps_what_is_the_same_and_renews_what_is_not() -> None:
    table = create(memory(), "name", rows(1))
    before = identities(table.snapshot().schema)
    table.overwrite(pa.table({"name": [b"x"], "id": [7]}), overwrite_schema=True)
    after = identities(table.snapshot().schema)
    assert after["id"] == before["id"]
    assert after["name"][0] == 3 and after["name"][1] != before["name"][1]
    assert table.snapshot().scan().to_arrow().to_pylist() == [{"name": b"x", "id": 7}]
    assert table.snapshot(0).scan().to_arrow().to_pylist() == rows(1).to_pylist()


def test_a_column_cannot_be_two_columns() -> None:
    """Column ``b`` is the old column ``id``, renamed; the new column named ``id`` must get its own column id."""
    table = create(memory(), "name", rows(1))
    old = table.snapshot().schema
    renamed = old.field("id")
    with table.transaction() as transaction:
        from dataclasses import replace

        fresh = replace(renamed, metadata={})
        transaction.set_schema(StructType((replace(renamed, name="b"), old.field("name"), fresh)))
        transaction.commit("TEST")
    found = identities(table.snapshot().schema)
    assert found["b"] == identities(old)["id"] and found["id"][0] == 3
    assert table.snapshot().scan(["b", "id"]).to_arrow().to_pylist() == [{"b": 1, "id": None}]


def test_files_of_others_are_described_by_their_physical_names() -> None:
    store = memory()
    table = create(store, "name", rows(1))
    physical = [name for _, name in identities(table.snapshot().schema).values()]
    sink = pa.BufferOutputStream()
    pq.write_table(rows(5, 6).rename_columns(physical), sink)
    store.put("x/other.parquet", sink.getvalue().to_pybytes())
    with table.transaction() as transaction:
        (add,) = transaction.add_parquet_files([("x/other.parquet", {})])
        transaction.commit("WRITE")
    assert json.loads(add.stats or "")["minValues"] == {physical[0]: 5, physical[1]: "n5"}
    assert ids(table) == [1, 5, 6]


def test_where_columns_are_found_by_id_files_have_ids() -> None:
    """Without ids the columns would be read as null."""
    store = memory()
    inner = pa.struct([("x", pa.int64())])
    data = pa.table({"id": [1], "deep": pa.array([[{"x": 5}]], pa.list_(inner))})
    table = create(store, "id", data)
    stored = table.snapshot().files()["path"][0].as_py()
    held = pq.read_table(pa.BufferReader(store.get(stored)))

    def without(field: pa.Field, names: set[str]) -> pa.Field:
        kind = field.type
        if pa.types.is_list(kind):
            kind = pa.list_(without(kind.value_field, names))
        elif pa.types.is_struct(kind):
            kind = pa.struct([without(each, names) for each in kind.fields])
        return pa.field(field.name, kind, field.nullable, {} if field.name in names else field.metadata)

    every = identities(table.snapshot().schema)
    names = {"id": every["id"][1], "deep": every["deep"][1]}
    nested = held.schema.field(names["deep"]).type.value_type.field(0).name
    for name, told in ((names["id"], names["id"]), (nested, f"{names['deep']}.{nested}")):
        schema = pa.schema([without(field, {name}) for field in held.schema])
        sink = pa.BufferOutputStream()
        pq.write_table(
            pa.Table.from_arrays([c.cast(f.type) for c, f in zip(held.columns, schema, strict=True)], schema=schema),
            sink,
        )
        store.put("other.parquet", sink.getvalue().to_pybytes())
        with (
            table.transaction() as transaction,
            pytest.raises(InvalidDataFileError, match=f"column {told} does not have the field id"),
        ):
            transaction.add_parquet_files([("other.parquet", {})])
    sink = pa.BufferOutputStream()
    pq.write_table(held, sink)
    store.put("other.parquet", sink.getvalue().to_pybytes())
    with table.transaction() as transaction:
        transaction.add_parquet_files([("other.parquet", {})])
        transaction.commit("WRITE")
    assert table.snapshot().scan().to_arrow().to_pylist() == [{"id": 1, "deep": [{"x": 5}]}] * 2


def test_random_prefixes_by_property() -> None:
    store = memory()
    properties = {"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "5"}
    DeltaTable.create(
        store, SCHEMA, partition_by=["name"], properties=properties, data=rows(1), environment=environment()
    )
    add = action(store, 0, "add")
    assert add is not None and len(add["path"].split("/")[0]) == 5 and column_mapping.mode_of(properties) == "none"
