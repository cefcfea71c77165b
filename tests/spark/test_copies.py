"""CONVERT TO DELTA, CLONE and GENERATE, with the methods of DeltaTable and in SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.spark.tables import versions


def ids(spark: Any, path: Any, **options: str) -> list[int]:
    return sorted(row["id"] for row in spark_ext.read(spark).options(**options).load(str(path)).collect())


def directory(spark: Any, path: Path) -> str:
    rows = spark.createDataFrame([(1, "a b", 1), (2, None, 1), (3, "c/d", 2)], "id long, day string, n int")
    rows.write.partitionBy("n", "day").parquet(str(path))
    return str(path)


def test_a_directory_is_converted(spark: Any, tmp_path: Path) -> None:
    by_method, by_sql = (directory(spark, tmp_path / name) for name in ("a b", "c"))
    table = spark_ext.DeltaTable.convertToDelta(spark, f"parquet.`{by_method}`", "day string, n long")
    rows = spark_ext.sql(
        spark, f"CONVERT TO DELTA parquet.`{by_sql}` NO STATISTICS PARTITIONED BY (n BIGINT, day STRING)"
    )
    assert rows.collect() == [] and versions(by_method) == versions(by_sql) == [0]
    assert table.toDF().dtypes == [("id", "bigint"), ("n", "bigint"), ("day", "string")]
    wanted = [(1, 1, "a b"), (2, 1, None), (3, 2, "c/d")]
    for path in (by_method, by_sql):
        assert sorted(map(tuple, spark_ext.read(spark).load(path).collect())) == wanted
    assert spark_ext.DeltaTable.convertToDelta(spark, f"parquet.`{by_method}`").history().count() == 1
    inferred = spark_ext.DeltaTable.convertToDelta(spark, f"PARQUET.`{directory(spark, tmp_path / 'd')}`")
    assert dict(inferred.toDF().dtypes)["n"] == "int"


def test_what_is_not_converted(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(deltalog.CallError, match=r"parquet\.`path`"):
        spark_ext.DeltaTable.convertToDelta(spark, str(tmp_path))
    with pytest.raises(deltalog.CallError, match="no Parquet files"):
        spark_ext.sql(spark, f"convert to delta parquet.`{tmp_path}`")
    path = directory(spark, tmp_path / "t")
    for clause, message in {"partitioned by (nope int)": "partition columns", "by hand": "Unexpected"}.items():
        with pytest.raises(deltalog.DeltaLogError, match=message):
            spark_ext.sql(spark, f"convert to delta parquet.`{path}` {clause}")
    assert versions(path) == []


def test_clones(spark: Any, table: str, tmp_path: Path) -> None:
    spark_ext.write(spark.range(3).coalesce(1)).save(table)
    source = spark_ext.DeltaTable.forPath(spark, table)
    first = source.history().collect()[0]["timestamp"]
    spark_ext.write(spark.range(3, 5).coalesce(1)).mode("append").save(table)
    deep = source.clone(str(tmp_path / "deep"), properties={"owner": "me"})
    assert ids(spark, tmp_path / "deep") == [0, 1, 2, 3, 4]
    assert deep.detail().collect()[0]["properties"]["owner"] == "me"
    shallow = source.cloneAtVersion(0, f"delta.`{tmp_path / 'shallow'}`", isShallow=True)
    assert sorted(row["id"] for row in shallow.toDF().collect()) == [0, 1, 2]
    with pytest.raises(deltalog.errors.UnsafePathError):
        ids(spark, tmp_path / "shallow")
    shallow.delete("id = 1")
    assert sorted(row["id"] for row in shallow.toDF().collect()) == [0, 2]
    assert ids(spark, tmp_path / "shallow", allowedPaths=table) == [0, 2]
    at = spark.sql(f"select cast(timestamp'{first}' as string)").collect()[0][0]
    source.cloneAtTimestamp(at, str(tmp_path / "then"))
    assert ids(spark, tmp_path / "then") == [0, 1, 2]
    with pytest.raises(deltalog.CallError, match="absolute path"):
        source.clone("elsewhere")
    with pytest.raises(deltalog.TableExistsError):
        source.clone(str(tmp_path / "then"), True)
    assert ids(spark, table) == [0, 1, 2, 3, 4]


def test_clones_in_sql(spark: Any, table: str, tmp_path: Path) -> None:
    spark_ext.write(spark.range(3).coalesce(1)).save(table)
    spark_ext.write(spark.range(3, 5).coalesce(1)).mode("append").save(table)
    one = f"create table delta.`{tmp_path / 'one'}` shallow clone deltalog.`{table}`"
    (row,) = spark_ext.sql(spark, one).collect()
    assert (row["source_num_of_files"], row["num_copied_files"]) == (2, 0)
    assert ids(spark, tmp_path / "one", allowedPaths=table) == [0, 1, 2, 3, 4]
    two = f"CREATE TABLE IF NOT EXISTS deltalog.`{tmp_path / 'two'}` DEEP CLONE delta.`{table}` VERSION AS OF 0"
    two += " TBLPROPERTIES ('owner' = 'me')"
    (row,) = spark_ext.sql(spark, two).collect()
    assert (row["num_copied_files"], row["source_table_size"]) == (1, row["copied_files_size"])
    assert spark_ext.sql(spark, two).collect() == [] and versions(str(tmp_path / "two")) == [0]
    assert ids(spark, tmp_path / "two") == [0, 1, 2]
    with pytest.raises(deltalog.TableExistsError):
        spark_ext.sql(spark, one)
    with pytest.raises(deltalog.VersionNotFoundError):
        spark_ext.sql(spark, one.replace("/one`", "/three`") + " version as of 9")
    assert not (tmp_path / "three").exists()


def test_manifests(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(3).coalesce(1)).save(table)
    manifest = Path(table) / "_symlink_format_manifest" / "manifest"
    spark_ext.DeltaTable.forPath(spark, table).generate("symlink_format_manifest")
    assert spark.read.parquet(*manifest.read_text().splitlines()).count() == 3
    spark_ext.write(spark.range(2).coalesce(1)).mode("overwrite").save(table)
    assert spark_ext.sql(spark, f"GENERATE symlink_format_manifest FOR TABLE delta.`{table}`").collect() == []
    assert spark.read.parquet(*manifest.read_text().splitlines()).count() == 2
