"""Every type, as a data column and as a partition column, written by deltalog and read by delta-spark, with its
statistics."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deltalog import DeltaTable
from deltalog.schema import StructType
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.agreement import assert_same_rows
from tests.support.spark.every_type import COLUMNS, PARTITIONABLE, ROWS, UTC


def test_columns_of_every_type(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    DeltaTable.create(str(path), ROWS.schema, data=ROWS)
    assert_same_rows(delta, path)
    assert plain_rows(delta.table(path)) == plain_rows(ROWS)
    frame = delta.spark.read.format("delta").load(str(path))
    assert StructType.from_json(frame.schema.json()).to_json() == DeltaTable.open(str(path)).snapshot().schema.to_json()


def test_binary_partition_values_are_utf8_text_to_both(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    delta.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, raw BINARY) USING delta PARTITIONED BY (raw)")
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (1, X'C3A9'), (2, X'01'), (3, NULL)")
    raw = pa.array(["é".encode(), "€😀".encode()], pa.binary())
    DeltaTable.open(str(path)).append(pa.table({"id": [4, 5], "raw": raw}))
    assert_same_rows(delta, path)
    assert delta.table(path).filter(pc.field("id") > 3).sort_by("id")["raw"].to_pylist() == raw.to_pylist()


def test_partitions_of_every_type(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = ROWS.select(PARTITIONABLE).append_column("id", pa.array([1, 2, 3]))
    DeltaTable.create(str(path), rows.schema, partition_by=PARTITIONABLE, data=rows)
    assert_same_rows(delta, path)
    plain = rows.to_pylist()
    plain[1]["words"] = None  # as a partition value, the empty string becomes null
    assert plain_rows(delta.table(path)) == plain_rows(pa.Table.from_pylist(plain, schema=rows.schema))


def test_partition_directories_of_both_engines(delta: DeltaSpark, tmp_path: Path) -> None:
    """delta-spark appends to the partitions that deltalog has written, and writes the same partition values."""
    path = tmp_path / "table"
    rows = ROWS.select(PARTITIONABLE).append_column("id", pa.array([1, 2, 3]))
    table = DeltaTable.create(str(path), rows.schema, partition_by=PARTITIONABLE, data=rows)
    delta.spark.createDataFrame(rows).write.format("delta").mode("append").save(str(path))
    values = [tuple(v) for v in table.snapshot().files()["partition_values"].to_pylist()]
    assert len(values) == 6 and len({frozenset(v) for v in values}) == 3


def test_statistics_do_not_lose_rows_in_delta_spark(delta: DeltaSpark, tmp_path: Path) -> None:
    """One file per row: a bound that is truncated in the wrong direction (strings at 32 characters, times at the
    millisecond) would skip the only file that contains the row."""
    path = tmp_path / "table"
    names = [n for n in COLUMNS if not pa.types.is_nested(COLUMNS[n][0])]
    rows = ROWS.select(names)
    table = DeltaTable.create(str(path), rows.schema)
    for i in range(rows.num_rows):
        table.append(rows.slice(i, 1))
    frame = delta.spark.read.format("delta").load(str(path))
    ordered = [n for n in names if n not in ("flag", "raw")]
    bounds = [f"CAST({which}({name}) AS STRING) AS {which}_{name}" for name in ordered for which in ("min", "max")]
    texts = frame.selectExpr(*bounds).first().asDict()
    for name in ordered:
        kind = frame.schema[name].dataType.simpleString()
        for which in ("min", "max"):
            # A literal, so that Spark compares it with the statistics when it skips files.
            where = f"{name} = CAST('{texts[f'{which}_{name}']}' AS {kind})"
            assert frame.where(where).count() == 1, where
    assert frame.where(" AND ".join(f"{name} IS NULL" for name in names)).count() == 1


def test_no_row_is_lost_where_columns_share_a_dotted_path(delta: DeltaSpark, tmp_path: Path) -> None:
    """delta-spark skips files by the statistics in the log, and Spark by the statistics and dictionaries in Parquet
    files."""
    path, values = tmp_path / "table", [1.0, 2.0, float("nan")]
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("a.b", pa.float64()),
            ("a", pa.struct([("b", pa.float64()), ("c.d", pa.struct([("e", pa.float64())]))])),
            ("a.c", pa.struct([("d.e", pa.float64())])),
        ]
    )
    rows = [
        {"id": i, "a.b": values[i], "a": {"b": values[i - 1], "c.d": {"e": values[i - 2]}}, "a.c": {"d.e": values[i]}}
        for i in range(3)
    ]
    table = DeltaTable.create(str(path), schema, data=pa.Table.from_pylist(rows, schema=schema))
    table.append(pa.Table.from_pylist(rows[:1], schema=schema))
    literals = ["double('nan')" if value != value else f"{value}D" for value in values]
    for column in ("`a.b`", "a.b", "a.`c.d`.e", "`a.c`.`d.e`"):
        counts = delta.sql(f"SELECT {column} AS v, count(*) AS n FROM delta.`{path}` GROUP BY 1").collect()
        for value, literal in zip(values, literals, strict=True):
            expected = next(row.n for row in counts if str(row.v) == str(value))
            condition = f"{column} = {literal}"
            assert delta.sql(f"SELECT id FROM delta.`{path}` WHERE {condition}").count() == expected, condition


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_other_units_of_time_arrive_as_microseconds(delta: DeltaSpark, tmp_path: Path, unit: str) -> None:
    path = tmp_path / "table"
    moment = dt.datetime(2026, 11, 20, 1, 2, 3, tzinfo=UTC)
    rows = pa.table({"at": pa.array([moment, None], pa.timestamp(unit, tz="Europe/Paris"))})
    DeltaTable.create(str(path), rows.schema, data=rows)
    assert plain_rows(delta.table(path)) == [["2026-11-20T01:02:03.000000+00:00"], [None]]
    assert_same_rows(delta, path)
