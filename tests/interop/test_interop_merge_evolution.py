"""Merges that add columns run with deltalog and with delta-spark on identical tables; rows and schemas must match."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from tests.interop.test_interop_merge import When, delete, insert, unmatched, update
from tests.support.spark import DeltaSpark, plain_rows

INNER = pa.struct([("x", pa.int64()), ("y", pa.string()), ("deep", pa.struct([("u", pa.int64()), ("v", pa.int64())]))])
SCHEMA = pa.schema(
    [("id", pa.int64()), ("n", pa.int32()), ("s", INNER), ("l", pa.list_(pa.struct([("a", pa.int64())])))]
)


def rows(kind: pa.Schema, *given: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(given), schema=kind)


FLAT = pa.schema([("id", pa.int64()), ("new", pa.string()), ("other", pa.float64())])
FLAT_ROWS = rows(FLAT, {"id": 2, "new": "two", "other": 0.5}, {"id": 9, "new": "nine", "other": None})
NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("z", pa.int64()), ("x", pa.int64()), ("deep", pa.struct([("w", pa.int64())]))])),
    ]
)
NESTED_ROWS = rows(
    NESTED, {"id": 1, "s": {"z": 1, "x": 10, "deep": {"w": 5}}}, {"id": 2, "s": {"z": 2, "x": 20, "deep": None}},
    {"id": 3, "s": {"z": 3, "x": None, "deep": {"w": None}}}, {"id": 9, "s": {"z": 9, "x": 90, "deep": {"w": 9}}},
)  # fmt: skip
NULL_ROWS = rows(NESTED, {"id": 1, "s": None}, {"id": 3, "s": None}, {"id": 9, "s": None})
LISTS = pa.schema([("id", pa.int64()), ("l", pa.list_(pa.struct([("b", pa.string()), ("a", pa.int64())])))])
LIST_ROWS = rows(LISTS, {"id": 1, "l": [{"b": "b", "a": 5}]}, {"id": 9, "l": [{"b": None, "a": 9}]})
WIDE = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("new", pa.int64())])
WIDE_ROWS = rows(WIDE, {"id": 1, "n": 11, "new": 1}, {"id": 9, "n": 9, "new": 9})
WIDENS = {"delta.enableTypeWidening": "true"}
CASES: dict[str, tuple[dict[str, str], pa.Table, list[When]]] = {
    "all": ({}, FLAT_ROWS, [update(), insert()]),
    "update all": ({}, FLAT_ROWS, [update(None, "src.id > 0")]),
    "insert all": ({}, FLAT_ROWS, [insert()]),
    "delete alone": ({}, FLAT_ROWS, [delete()]),
    "some by name": ({}, FLAT_ROWS, [update({"new": "upper(src.new)"}), insert({"id": "src.id", "n": "1"})]),
    "insert by name": ({}, FLAT_ROWS, [update({"n": "7"}), insert({"id": "src.id", "other": "src.other"})]),
    "beside rows without a source": ({}, FLAT_ROWS, [update(), unmatched("update", "t.id = 3", {"n": "0"})]),
    "nothing matches": ({}, FLAT_ROWS.slice(0, 1), [update(None, "src.other > 100")]),
    "fields": ({}, NESTED_ROWS, [update(), insert()]),
    "a struct by name": ({}, NESTED_ROWS, [update({"s": "src.s"}), insert({"id": "src.id", "s": "src.s"})]),
    "a field by name": ({}, NESTED_ROWS, [update({"s.z": "src.s.z"})]),
    "null structs": ({}, NULL_ROWS, [update(), insert()]),
    "lists": ({}, LIST_ROWS, [update(), insert()]),
    "types stay": ({}, WIDE_ROWS, [update(), insert()]),
    "types are widened": (WIDENS, WIDE_ROWS, [update(), insert()]),
    "types are widened by name": (WIDENS, WIDE_ROWS, [update({"n": "src.n + 0"})]),
    "types of others stay": (WIDENS, WIDE_ROWS, [update({"new": "src.new"})]),
}  # fmt: skip
USUAL = ("fields", "some by name", "types are widened")


def twins(tmp_path: Path, properties: dict[str, str]) -> tuple[Path, Path]:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    table = DeltaTable.create(str(ours), SCHEMA, properties=properties)
    inner = {"x": 1, "y": "old", "deep": {"u": 1, "v": 1}}
    given = [{"id": n, "n": n, "s": None if n == 3 else inner, "l": [{"a": n}]} for n in (1, 2, 3)]
    table.append(pa.Table.from_pylist(given, schema=SCHEMA))
    shutil.copytree(ours, theirs)
    return ours, theirs


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name in USUAL else pytest.mark.long) for name in CASES]
)
def test_both_engines_add_the_same_columns(delta: DeltaSpark, tmp_path: Path, case: str) -> None:
    properties, source, clauses = CASES[case]
    ours, theirs = twins(tmp_path, properties)
    merger = DeltaTable.open(str(ours)).merge(source, "t.id = src.id", "src", "t").with_schema_evolution()
    for clause in clauses:
        clause.add_to(merger)
    merger.execute()
    delta.spark.createDataFrame(source.to_pylist(), delta_schema(delta, source)).createOrReplaceTempView("merge_source")
    delta.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{theirs}` t USING merge_source src ON t.id = src.id "
        + " ".join(each.sql for each in clauses)
    )
    mine, twin = DeltaTable.open(str(ours)).snapshot(), DeltaTable.open(str(theirs)).snapshot()
    assert json.loads(mine.schema.to_json()) == json.loads(twin.schema.to_json())
    assert plain_rows(delta.table(ours)) == plain_rows(delta.table(theirs)) == plain_rows(mine.scan().to_arrow())


def delta_schema(delta: DeltaSpark, source: pa.Table) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(source.schema)
