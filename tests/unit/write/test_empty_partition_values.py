"""Empty strings and bytes in partition columns: a log stores them as null, so every rule treats them as null."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import ConstraintViolationError, Dataset, DeltaTable, SchemaMismatchError, col
from deltalog.schema import PrimitiveType, StructField, StructType

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
EMPTY = pa.table({"id": [1], "p": [""]})


def create(path: Path, schema: Any = SCHEMA, **more: Any) -> DeltaTable:
    return DeltaTable.create(path / "t", schema, partition_by=["p"], **more)


def rows(table: DeltaTable) -> list[tuple[Any, ...]]:
    found = DeltaTable.open(table.url).to_pyarrow_table().select(["id", "p"]).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=str)


def written(table: DeltaTable, data: pa.Table) -> None:
    with table.transaction() as transaction:
        transaction.write(data.to_reader())
        transaction.commit()


def merged(table: DeltaTable, data: pa.Table) -> Any:
    merge = table.merge(data, "target.id = source.id").when_matched_update({"p": "source.p"})
    return merge.when_not_matched_insert({"id": "source.id", "p": "source.p"}).execute()


VERBS: dict[str, Callable[[DeltaTable], Any]] = {
    "append": lambda table: table.append(EMPTY),
    "append of several rows": lambda table: table.append(pa.table({"id": [1, 2, 3], "p": ["a", "", "b"]})),
    "overwrite": lambda table: table.overwrite(EMPTY),
    "overwrite where": lambda table: table.overwrite(EMPTY, where="id = 1"),
    "overwrite partitions": lambda table: table.overwrite(EMPTY, partitions="dynamic"),
    "update values": lambda table: table.update(new_values={"p": ""}),
    "update": lambda table: table.update({"p": "trim(' ')"}),
    "merge insert": lambda table: merged(table, pa.table({"id": [9], "p": [""]})),
    "merge update": lambda table: merged(table, pa.table({"id": [0], "p": [""]})),
    "stage": lambda table: table.commit_staged([table.stage(EMPTY)]),
    "Dataset.write": lambda table: Dataset(table).write(EMPTY),
    "transaction": lambda table: written(table, EMPTY),
}


@pytest.mark.parametrize(
    "properties", [{}, {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}]
)
@pytest.mark.parametrize("verb", VERBS)
def test_not_null_and_constraints_take_it_as_null(tmp_path: Path, verb: str, properties: dict[str, str]) -> None:
    first = pa.table({"id": [0], "p": ["x"]})
    required = pa.schema([("id", pa.int64()), pa.field("p", pa.string(), nullable=False)])
    table = create(tmp_path / "n", required, data=first, properties=properties)
    with pytest.raises(SchemaMismatchError, match="Column p is NOT NULL"):
        VERBS[verb](table)
    assert rows(table) == [(0, "x")]
    table = create(tmp_path / "c", data=first, properties=properties)
    table.add_constraint("there", "p IS NOT NULL")
    with pytest.raises(ConstraintViolationError, match=r"violates? the CHECK constraint there"):
        VERBS[verb](table)
    assert rows(table) == [(0, "x")]
    table = create(tmp_path / "free", data=first, properties=properties)
    VERBS[verb](table)
    assert (None in {p for _, p in rows(table)}) and "" not in {p for _, p in rows(table)}


def test_a_condition_on_the_new_rows_takes_it_as_null(tmp_path: Path) -> None:
    table = create(tmp_path, data=pa.table({"id": [0], "p": ["x"]}))
    for _ in range(2):
        with pytest.raises(ConstraintViolationError, match="outside of the replaced rows"):
            table.overwrite(EMPTY, where="p = ''")
    for _ in range(3):
        table.overwrite(EMPTY, where="p IS NULL")
    assert rows(table) == [(0, "x"), (1, None)]
    for _ in range(2):
        table.overwrite(EMPTY, partitions="dynamic")
    assert rows(table) == [(0, "x"), (1, None)]


def test_the_change_feed_has_what_the_table_has(tmp_path: Path) -> None:
    table = create(
        tmp_path, data=pa.table({"id": [0, 1], "p": ["x", "x"]}), properties={"delta.enableChangeDataFeed": "true"}
    )
    table.update(new_values={"p": ""}, where="id = 0")
    merged(table, pa.table({"id": [1, 2], "p": ["", ""]}))
    found = table.changes(1).to_arrow().to_pylist()
    kinds = {"insert", "update_postimage"}
    assert {(row["id"], row["p"]) for row in found if row["_change_type"] in kinds} == {(0, None), (1, None), (2, None)}


def test_generated_and_default_values_too(tmp_path: Path) -> None:
    text, expression = PrimitiveType("string"), {"delta.generationExpression": "trim(x)"}
    schema = StructType(
        (
            StructField("id", PrimitiveType("long")),
            StructField("x", text),
            StructField("p", text, metadata=expression),
            StructField("q", text, False, {"CURRENT_DEFAULT": "''"}),
        )
    )
    table = DeltaTable.create(
        tmp_path / "t", schema, partition_by=["p"], properties={"delta.feature.allowColumnDefaults": "supported"}
    )
    table.append(pa.table({"id": [1], "x": [" "]}))
    table.append(pa.table({"id": [2], "x": [" "], "p": [""]}))
    table.update({"x": "'  '"}, "id = 1")
    assert rows(table) == [(1, None), (2, None)]
    assert DeltaTable.open(table.url).to_pyarrow_table().column("q").to_pylist() == ["", ""]  # no partition column
    with pytest.raises(ConstraintViolationError, match="generation expression"):
        table.append(pa.table({"id": [2], "x": ["a"], "p": [""]}))
    table = DeltaTable.create(
        tmp_path / "u", schema, partition_by=["q"], properties={"delta.feature.allowColumnDefaults": "supported"}
    )
    with pytest.raises(SchemaMismatchError, match="Column q is NOT NULL"):
        table.append(pa.table({"id": [1], "x": [" "]}))


def test_char_is_padded_and_varchar_is_not(tmp_path: Path) -> None:
    for kind, stored in (("char(3)", "   "), ("varchar(3)", None)):
        metadata = {"__CHAR_VARCHAR_TYPE_STRING": kind}
        p = StructField("p", PrimitiveType("string"), metadata=metadata)
        table = create(tmp_path / kind, StructType((StructField("id", PrimitiveType("long")), p)))
        table.append(EMPTY)
        assert rows(table) == [(1, stored)]


def test_a_merge_finds_by_null_safe_equality_what_it_inserted(tmp_path: Path) -> None:
    table = create(tmp_path)
    source = pa.table({"id": [1, 2], "p": ["", "a"]})
    for condition in ("target.p <=> source.p", "source.p <=> target.p AND target.id = source.id"):
        for _ in range(2):
            table.merge(source, condition).when_not_matched_insert_all().execute()
            assert rows(table) == [(1, None), (2, "a")]


def test_bytes(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("p", pa.binary())])
    table = create(tmp_path, schema)
    table.append(pa.table({"id": [1, 2, 3], "p": [b"", None, b"a"]}))
    assert rows(table) == [(1, None), (2, None), (3, b"a")]
    assert table.snapshot().files().num_rows == 2  # one for each partition
    with pytest.raises(ConstraintViolationError):
        table.overwrite(pa.table({"id": [5], "p": [b""]}), where=col("p") == b"")
    table.overwrite(pa.table({"id": [5], "p": [b""]}), where="p IS NULL")
    table.merge(pa.table({"id": [6], "p": [b""]}), "target.p <=> source.p").when_matched_update_all().execute()
    assert rows(table) == [(3, b"a"), (6, None)]
    required = pa.schema([("id", pa.int64()), pa.field("p", pa.binary(), nullable=False)])
    with pytest.raises(SchemaMismatchError, match="NOT NULL"):
        create(tmp_path / "n", required).append(pa.table({"id": [1], "p": [b""]}))


def test_files_of_others_have_a_value_where_one_is_required(tmp_path: Path) -> None:
    required = pa.schema([("id", pa.int64()), pa.field("p", pa.string(), nullable=False)])
    for properties in ({}, {"delta.columnMapping.mode": "name"}):
        table = create(tmp_path / str(len(properties)), required, properties=properties)
        pq.write_table(pa.table({"id": [1]}), tmp_path / str(len(properties)) / "t" / "f.parquet")
        physical = table.schema.field("p").metadata.get("delta.columnMapping.physicalName", "p")
        for value in ("", None):
            with table.transaction() as transaction, pytest.raises(SchemaMismatchError, match="NOT NULL"):
                transaction.add_parquet_files([("f.parquet", {physical: value})])
        with table.transaction() as transaction:
            transaction.add_parquet_files([("f.parquet", {physical: "x"})])
            transaction.commit()


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_rows_that_are_a_slice_keep_their_values(tmp_path: Path, kind: pa.DataType) -> None:
    texts = ["xx", "", "yyé", None, "z", "", "w1"]
    data = pa.table({"id": range(7), "p": pa.array(texts).cast(kind)})
    table = create(tmp_path, data.schema)
    table.append(data.slice(2, 3))
    table.append(data.slice(5))
    assert rows(table) == sorted((tuple(row.values()) for row in with_null(data.slice(2)).to_pylist()), key=str)


def with_null(data: pa.Table) -> pa.Table:
    present = [value or None for value in data["p"].to_pylist()]
    return data.set_column(1, "p", pa.array(present, data["p"].type))
