"""The layout of spark_ext's files, and reads of its tables with polars, DuckDB and pandas."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from spark_ext.reading import file_entries, partition_discovery
from spark_ext.reading.file_schema import Layout
from tests.spark.tables import data_files, make, rows, schema
from tests.support.spark.readers import READERS, answer

MAPPED = {"delta.columnMapping.mode": "name"}
VECTORS = {"delta.enableDeletionVectors": "true"}
VALUES = """
select * from values
  (1, 10, 'a/b c=é%20', date'2026-01-31', timestamp'1969-12-31 23:59:59.999999Z', -1.25BD, true, 2.5D),
  (2, 20, null, null, null, null, null, null),
  (3, 30, 'x', date'0001-01-01', timestamp'2026-11-01 05:30:00Z', 0.00BD, false, double('-Infinity')),
  (4, 30, 'y', date'9999-12-31', timestamp'2026-11-01 06:30:00Z', 7.10BD, null, 0.0D)
  as t(id, n, s, d, ts, dec, b, f)
"""
MAPPING, VECTOR = "refused: columnMapping", "refused: deletionVectors"
DECIMAL = "refused: a negative decimal as a partition value"
# For each kind of table: its partition columns, its properties, the answer of polars, and the answer of duckdb and
# pandas if they read deltalake's dataset.
KINDS: dict[str, tuple[list[str], dict[str, str], str, str]] = {
    "no partitions": ([], {}, "ok", "ok"),
    "numbers": (["n"], {}, "ok", "ok"),
    "odd text and null": (["s"], {}, "ok", "ok"),
    "every type": (["n", "s", "d", "ts", "dec", "b", "f"], {}, "ok", DECIMAL),
    "mapped": (["n", "s"], MAPPED, MAPPING, MAPPING),
    "rows deleted": (["n"], VECTORS, "ok", VECTOR),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_spark_ext_is_read_by_others(spark: Any, table: str, kind: str) -> None:
    partition_by, properties, polars, dataset = KINDS[kind]
    df = spark.sql(VALUES)
    spark_ext.write(df).partitionBy(partition_by).options(**properties).save(table)
    spark_ext.write(df.withColumn("id", df["id"] + 10)).mode("append").save(table)
    if properties == VECTORS:
        deltalog.DeltaTable.open(table).delete("id = 3")
    expected = dict.fromkeys(READERS, "ok")
    expected |= {"polars": polars, "duckdb, from deltalake": dataset, "pandas, from deltalake": dataset}
    assert {reader: answer(reader, table) for reader in READERS} == expected
    again = df.unionByName(df.withColumn("id", df["id"] + 10))
    if properties == VECTORS:
        again = again.where("id != 3")
    assert str(rows(spark_ext.read(spark).load(table), "id")) == str(rows(again, "id"))


def trees(table: str) -> list[partition_discovery.Tree]:
    """The directory trees from which Spark discovers the partition values of the table's files."""
    snapshot = deltalog.DeltaTable.open(table).snapshot()
    found, others = partition_discovery.trees(Layout.of(snapshot), file_entries.of_snapshot(snapshot))
    return [] if others else sorted(found)


def test_many_writes_are_one_scan(spark: Any, table: str) -> None:
    df = spark.range(6).selectExpr("id", "cast(id % 3 as int) p")
    for _ in range(10):
        spark_ext.write(df).partitionBy("p").mode("append").save(table)
    deltalog.DeltaTable.open(table).append(pa.table({"id": [7], "p": pa.array([1], pa.int32())}))
    assert trees(table) == [(table, ())]
    assert {os.path.dirname(path) for path in data_files(table)} == {"p=0", "p=1", "p=2"}
    assert sorted(os.listdir(table)) == ["_delta_log", "p=0", "p=1", "p=2"]
    assert spark_ext.read(spark).load(table).where("p = 1").count() == 21


def test_tables_with_the_directories_of_earlier_versions(spark: Any, table: str) -> None:
    data = pa.table({"id": pa.array([1, 2], pa.int64())})
    files = [(f"deltalog_write=w{i}/p={i % 3}/part-{i}.parquet", {"p": str(i % 3)}, data) for i in range(12)]
    make(table, schema(id="long", p="integer"), files, ["p"])
    spark_ext.write(spark.sql("select 3L id, 1 p")).mode("append").save(table)
    assert trees(table) == [(table, ()), (table, ("deltalog_write",))]
    df = spark_ext.read(spark).load(table)
    assert df.columns == ["id", "p"] and df.count() == 25
    assert rows(df.where("p = 1")) == [(1, 1)] * 4 + [(2, 1)] * 4 + [(3, 1)]
    spark_ext.write(df.where("p = 1")).mode("overwrite").save(table)
    assert trees(table) == [(table, ())] and spark_ext.read(spark).load(table).count() == 9


def test_a_file_that_cannot_be_moved_stays(spark: Any, table: str, tmp_path: Path) -> None:
    """The log may refer to a data file under any path."""
    other = tmp_path / "other"
    other.mkdir()
    df = spark.sql("select 1L id, 1 p union all select 2L, 2 union all select 3L, 3")
    spark_ext.write(df.where("p = 3")).partitionBy("p").save(table)
    os.symlink(other, os.path.join(table, "p=1"))
    (Path(table) / "p=2").write_bytes(b"no directory")
    result = spark_ext.write(df).mode("append").save(table)
    assert result.num_rows == 3 and list(other.iterdir()) == []
    assert rows(spark_ext.read(spark).load(table)) == [(1, 1), (2, 2), (3, 3), (3, 3)]
    assert answer("duckdb, from deltalake", table) == answer("polars", table) == "ok"


def test_a_failed_write_leaves_no_directory(spark: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_ext.write(spark.sql("select 1L id, 1 p")).partitionBy("p").save(table)
    before = data_files(table)

    def refuse(*_: Any, **__: Any) -> None:
        assert len(data_files(table)) == 3
        raise deltalog.errors.CommitAttemptsExhaustedError("others were first")

    monkeypatch.setattr(deltalog.Transaction, "commit", refuse)
    with pytest.raises(deltalog.errors.CommitAttemptsExhaustedError):
        spark_ext.write(spark.sql("select 2L id, 1 p union all select 3L, 2")).mode("append").save(table)
    assert data_files(table) == before and sorted(os.listdir(table)) == ["_delta_log", "p=1"]
