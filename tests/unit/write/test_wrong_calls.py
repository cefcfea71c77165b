"""Calls that are certainly mistakes are refused before they do anything, with a message that explains the correct
call."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from deltalog import CallError, Dataset, DeltaTable, TableNotFoundError
from tests.support.core import environment, memory

ROWS = pa.table({"id": [1, 2], "part": ["a", "b"]})
V2 = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda t: t.cleanup_log(retention=7), "retention must be a timedelta or None; got 7"),
        (lambda t: t.cleanup_log(retention=datetime.timedelta(days=-1)), "must be a datetime.timedelta >= 0"),
        (lambda t: t.checkpoint(top_level="jsn"), "top_level must be 'parquet' or 'json'; got 'jsn'"),
        (lambda t: t.checkpoint(sidecar_rows=0), "a positive number of rows; got 0"),
        (lambda t: t.transaction(isolation_level="serializable"), "got 'serializable'"),
        (lambda t: t.append(ROWS, txn=5), "txn must be a tuple of text, an integer or None; got 5"),
        (lambda t: t.append(ROWS, txn="ab"), "got 'ab'"),
        (lambda t: t.add_columns("note"), "must be a StructType or a Schema or a list of StructField; got 'note'"),
        (lambda t: t.add_columns([("note", "string")]), "list of StructField"),
        (lambda t: t.set_column("id", data_type="long"), "data_type must be .* or a DataType or None; got 'long'"),
        (lambda t: t.set_properties({"delta.constraints.c": "id > 0"}), r"call add_constraint\(\)"),
        (lambda t: t.overwrite(pa.table({"id": [1]}), overwrite_schema=True), "Partition column 'part'"),
    ],
)
def test_a_wrong_call_is_refused_by_name(tmp_path: Path, call: Callable[[Any], object], told: str) -> None:
    table = DeltaTable.create(tmp_path / "t", ROWS.schema, partition_by=["part"], properties=V2, data=ROWS)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CallError, match=told):
        call(table)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_opens_no_table_says_how_to_open_one(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match=r"DeltaTable\.create"):
        DeltaTable(tmp_path / "x")
    with pytest.raises(CallError, match=r"DeltaTable\.open\(url, …\)"):
        DeltaTable(tmp_path / "x", environment())
    with pytest.raises(CallError, match="NoneType is not a table location"):
        DeltaTable(cast("str", None))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("schema", [{"id": "long"}, "id long", [("id", "long")], None])
def test_columns_that_are_no_schema_are_refused_by_name(schema: Any) -> None:
    with pytest.raises(CallError):
        DeltaTable.create(memory(), schema)
    if schema is not None:
        with pytest.raises(CallError):
            Dataset(memory(), schema=schema)
