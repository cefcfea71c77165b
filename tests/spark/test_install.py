"""Programs written for delta-spark, unchanged, after `spark_ext.install`."""

from __future__ import annotations

import importlib
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

import deltalog
import spark_ext
from spark_ext.session import spark_names
from tests.spark.settings import since
from tests.spark.tables import data_files, rows, versions

pytestmark = since("4.0", "names of Delta tables in Spark's catalog")


@pytest.fixture(autouse=True)
def installed(spark: Any) -> Iterator[None]:
    spark_ext.install(spark)
    yield
    spark_ext.uninstall(spark)


@pytest.fixture
def name(spark: Any) -> Iterator[str]:
    """A name in Spark's catalog."""
    made = f"t_{uuid.uuid4().hex[:12]}"
    yield made
    spark.sql(f"DROP TABLE IF EXISTS {made}")


def ids(df: Any) -> list[int]:
    return sorted(row["id"] for row in df.collect())


def test_readers_and_writers(spark: Any, table: str) -> None:
    spark.range(3).write.format("delta").save(table)
    spark.range(3, 5).write.mode("append").format("DELTA").save(table)
    assert ids(spark.read.format("delta").load(table)) == [0, 1, 2, 3, 4]
    assert ids(spark.read.format("deltalog").option("versionAsOf", 0).load(table)) == [0, 1, 2]
    assert ids(spark.read.load(table, format="delta", versionAsOf=0)) == [0, 1, 2]
    assert ids(spark.read.format("delta").load(f"{table}@v0").where("id = 1")) == [1]
    spark.range(9, 10).write.save(table, format="delta", mode="overwrite")
    assert ids(spark.read.format("delta").load(table)) == [9] and versions(table) == [0, 1, 2]
    with pytest.raises(AnalysisException, match="mode is error"):
        spark.range(1).write.format("delta").save(table)
    spark.range(1).write.format("delta").mode("ignore").save(table)
    more = spark.range(1).withColumn("more", F.lit(1))
    with pytest.raises(AnalysisException, match="mergeSchema"):
        more.write.format("delta").mode("append").save(table)
    more.write.option("mergeSchema", "true").format("delta").mode("append").save(table)
    assert spark.read.format("delta").load(table).columns == ["id", "more"]


def test_partitions_and_replace_where(spark: Any, table: str) -> None:
    df = spark.range(6).withColumn("p", F.col("id") % 2)
    df.write.partitionBy("p").format("delta").save(table)
    assert any(path.startswith("p=0/") for path in data_files(table))
    some = spark.createDataFrame([(10, 1)], "id long, p long")
    some.write.format("delta").mode("overwrite").option("replaceWhere", "p = 1").save(table)
    assert ids(spark.read.format("delta").load(table)) == [0, 2, 4, 10]


def test_a_filter_after_load_skips_files(spark: Any, table: str) -> None:
    for first in (0, 10):
        spark.range(first, first + 10, 1, 1).write.format("delta").mode("append").save(table)
    files = deltalog.DeltaTable.open(table).snapshot().scan(where=deltalog.col("id") == 5).files()
    for path in data_files(table):
        if path != files["path"][0].as_py():
            Path(table, path).write_bytes(b"not parquet")
    df = spark.read.format("delta").load(table)
    assert ids(df.where("id = 5")) == [5] and ids(df.filter(df.id < 3)) == [0, 1, 2]


def test_sql(spark: Any, table: str) -> None:
    spark.sql(f"CREATE TABLE delta.`{table}` (id LONG, s STRING) USING delta")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 'a'), (2, 'b')")
    spark.sql(f"UPDATE delta.`{table}` SET s = 'c' WHERE id = 2")
    assert rows(spark.sql(f"SELECT * FROM delta.`{table}` WHERE id > :n", {"n": 1})) == [(2, "c")]
    assert rows(spark.sql(f"SELECT count(*) FROM delta.`{table}` VERSION AS OF 1"))[0] == (2,)
    assert spark.sql(f"DESCRIBE HISTORY delta.`{table}`").count() == 3
    assert spark.sql("SELECT 1 AS one").collect() == [(1,)]
    assert spark.sql("SELECT id + {n} AS m FROM {df}", n=1, df=spark.range(1)).collect() == [(1,)]
    with pytest.raises(AnalysisException):
        spark.sql(f"SELECT nothing FROM delta.`{table}`")


def test_change_feed(spark: Any, table: str) -> None:
    spark.range(2).write.format("delta").option("delta.enableChangeDataFeed", "true").save(table)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(table)
    assert [row["_change_type"] for row in feed.collect()] == ["insert", "insert"]


def test_other_formats_are_those_of_spark(spark: Any, table: str) -> None:
    spark.range(3).write.mode("overwrite").option("compression", "none").parquet(table)
    spark.range(3, 4).write.format("parquet").mode("append").save(table)
    assert ids(spark.read.parquet(table)) == ids(spark.read.format("parquet").load(table)) == [0, 1, 2, 3]
    assert ids(spark.read.schema("id long").load(table)) == [0, 1, 2, 3]


def test_options_without_effect_are_named(spark: Any, table: str) -> None:
    with pytest.warns(UserWarning, match="header"):
        spark.range(1).write.format("delta").option("header", True).save(table)
    with pytest.warns(UserWarning, match="inferSchema"):
        spark.read.format("delta").option("inferSchema", True).load(table)
    with pytest.raises(AnalysisException, match="schema"):
        spark.read.format("delta").schema("x string").load(table)
    assert ids(spark.read.format("delta").schema("id bigint").load(table)) == [0]


def test_a_table_from_its_creation_to_its_end(spark: Any, name: str) -> None:
    spark.range(3).write.format("delta").saveAsTable(name)
    place = spark_names.location_of(spark, name)
    assert place is not None
    assert versions(place) == [0]
    spark.range(3, 5).write.format("delta").mode("append").saveAsTable(name)
    spark.range(5, 6).write.insertInto(name)
    assert ids(spark.table(name)) == ids(spark.read.table(name)) == ids(spark.sql(f"SELECT * FROM {name}"))
    assert ids(spark.read.format("delta").option("versionAsOf", 0).table(name)) == [0, 1, 2]
    assert spark.catalog.tableExists(name) and name in [each.name for each in spark.catalog.listTables()]
    spark.sql(f"DELETE FROM {name} WHERE id < 4")
    assert ids(spark_ext.DeltaTable.forName(spark, name).toDF()) == [4, 5]
    assert ids(spark.read.format("delta").load(place)) == [4, 5]
    spark.sql(f"DROP TABLE {name}")
    assert not Path(place).exists() and not spark.catalog.tableExists(name)


def test_statements(spark: Any, name: str, table: str) -> None:
    spark.sql(f"CREATE TABLE {name} (id INT, p STRING) USING DELTA PARTITIONED BY (p) LOCATION '{table}'")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'x')")
    spark.createDataFrame([(2, "y")], "id int, p string").write.format("delta").mode("append").save(table)
    assert ids(spark.table(name)) == [1, 2]
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (more LONG)")
    assert spark.table(name).columns == ["id", "p", "more"]
    assert spark.sql(f"DESCRIBE DETAIL {name}").first()["partitionColumns"] == ["p"]
    spark.sql(f"ALTER TABLE {name} RENAME TO {name}_new")
    try:
        assert ids(spark.table(f"{name}_new")) == [1, 2] and not spark.catalog.tableExists(name)
    finally:
        spark.sql(f"DROP TABLE {name}_new")
    assert versions(table)[-1] == 3
    spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{table}'")
    assert ids(spark.table(name)) == [1, 2]


def test_write_to(spark: Any, name: str) -> None:
    spark.range(3).writeTo(name).using("delta").tableProperty("delta.appendOnly", "false").create()
    spark.range(3, 4).writeTo(name).append()
    spark.range(7, 9).writeTo(name).overwrite(F.col("id") >= 2)
    assert ids(spark.table(name)) == [0, 1, 7, 8]
    with pytest.raises(AnalysisException, match="as SQL text"):
        spark.range(7, 9).writeTo(name).overwrite(F.abs("id") >= 2)
    spark.range(1).writeTo(name).using("delta").createOrReplace()
    assert ids(spark.table(name)) == [0]
    with pytest.raises(AnalysisException):
        spark.range(1).writeTo(name).using("delta").create()


def test_views(spark: Any, table: str) -> None:
    spark.range(3).write.format("delta").save(table)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW installed_view AS SELECT * FROM delta.`{table}`")
    spark.read.format("delta").load(table).createOrReplaceTempView("installed_frame")
    assert ids(spark.table("installed_view")) == ids(spark.sql("SELECT * FROM installed_frame")) == [0, 1, 2]
    with pytest.raises(AnalysisException, match="TEMPORARY VIEW"):
        spark.sql(f"CREATE VIEW lasting AS SELECT * FROM delta.`{table}`")


def test_a_table_of_spark_stays_one(spark: Any, name: str) -> None:
    spark.range(2).write.format("parquet").saveAsTable(name)
    spark.range(2, 3).write.mode("append").saveAsTable(name)
    spark.range(3, 4).write.insertInto(name)
    assert ids(spark.table(name)) == [0, 1, 2, 3]


def test_a_catalog_of_deltalog(spark: Any, tmp_path: Path) -> None:
    spark_ext.use_catalog(spark, str(tmp_path / "names.db"))
    try:
        spark.range(2).write.format("delta").option("path", str(tmp_path / "t")).saveAsTable("shop.orders")
        assert ids(spark.table("shop.orders")) == [0, 1]
        assert spark.catalog.tableExists("shop.orders") and not spark.catalog.tableExists("shop.others")
        assert [each.name for each in spark.catalog.listTables("shop")] == ["orders"]
    finally:
        spark_ext.use_catalog(spark, None)


def test_tables_and_exceptions(spark: Any, table: str) -> None:
    tables = importlib.import_module("delta.tables")
    exceptions = importlib.import_module("delta.exceptions")
    spark.range(3).write.format("delta").save(table)
    found = tables.DeltaTable.forPath(spark, table)
    source = spark.range(2, 4)
    merge = found.alias("t").merge(source.alias("s"), "t.id = s.id").whenNotMatchedInsertAll()
    assert merge.execute().first()["num_inserted_rows"] == 1
    with pytest.raises(TypeError, match="must be DataFrame"):  # the words that delta-spark's tests look for
        found.merge(1, "t.id = 1")
    found.delete(F.col("id") == 0)
    assert ids(found.toDF()) == [1, 2, 3]
    with pytest.raises(AnalysisException, match="is not a Delta table"):
        tables.DeltaTable.forPath(spark, table + "/nothing")
    with pytest.raises(AnalysisException, match="Path does not exist"):
        spark.read.format("delta").load(table + "/nothing")
    seen = spark.read.format("delta").load(table)
    spark.range(7, 8).write.format("delta").mode("append").save(table)
    with pytest.raises(exceptions.ConcurrentAppendException) as error:
        seen.write.format("delta").mode("overwrite").save(table)
    assert isinstance(error.value, deltalog.errors.ConcurrentAppendError) and error.value.winning_version == 3
    assert isinstance(error.value, PySparkException)


def test_what_there_was_is_back_after_uninstall(spark: Any, table: str) -> None:
    spark_ext.uninstall(spark)
    delta = sys.modules.get("delta")
    before = {kind: {name: vars(kind).get(name) for name in dir(kind)} for kind in _classes(spark)}
    spark_ext.install(spark)
    spark_ext.install(spark)
    assert sys.modules["delta"].DeltaTable is spark_ext.DeltaTable
    spark_ext.uninstall(spark)
    assert before == {kind: {name: vars(kind).get(name) for name in dir(kind)} for kind in _classes(spark)}
    assert sys.modules.get("delta") is delta
    with pytest.raises(Exception, match=r"(?i)data.?source|delta"):
        spark.range(1).write.format("delta").save(table)
    with pytest.raises(deltalog.TableNotFoundError) as error:
        spark_ext.DeltaTable.forPath(spark, table)
    assert not isinstance(error.value, AnalysisException)


def test_the_package_is_left_alone(spark: Any) -> None:
    spark_ext.uninstall(spark)
    delta = sys.modules.get("delta")
    spark_ext.install(spark, modules=False)
    assert sys.modules.get("delta") is delta


def _classes(spark: Any) -> list[Any]:
    return [type(spark), type(spark.read), type(spark.range(1).write), type(spark.catalog), spark_ext.DeltaTable]


def test_streams(spark: Any, table: str, tmp_path: Path, name: str) -> None:
    spark.range(3).write.format("delta").save(table)
    target = str(tmp_path / "target")
    stream = spark.readStream.format("delta").load(table).writeStream.format("delta")
    stream = stream.option("checkpointLocation", str(tmp_path / "one")).trigger(availableNow=True)
    stream.start(target).awaitTermination()
    assert ids(spark.read.format("delta").load(target)) == [0, 1, 2]
    stream = spark.readStream.format("delta").load(table).writeStream.format("delta")
    stream = stream.option("checkpointLocation", str(tmp_path / "two")).trigger(availableNow=True)
    stream.toTable(name).awaitTermination()
    assert ids(spark.table(name)) == [0, 1, 2]
