"""Batch reads and writes with `format("deltalog")`, a Python data source of Spark, without `install`."""

from __future__ import annotations

from typing import Any

import pytest

import deltalog
import spark_ext
from tests.spark.settings import session_of, since
from tests.spark.tables import rows, versions

pytestmark = since("4.1", "writers of Python data sources that receive Arrow")


@pytest.fixture(autouse=True)
def registered(spark: Any) -> None:
    spark_ext.register(spark)


def test_rows_are_read_and_appended(spark: Any, table: str) -> None:
    made = "select id, cast(id as string) s, struct(id a, array(id) b) n, timestamp'2026-01-02 03:00' t"
    spark_ext.write(spark.sql(f"{made} from range(4)")).option("delta.enableDeletionVectors", "true").save(table)
    spark_ext.DeltaTable.forPath(spark, table).delete("id = 1")
    df = spark.read.format("deltalog").load(table)
    assert rows(df) == rows(spark_ext.read(spark).load(table)) and len(rows(df)) == 3
    assert spark.read.format("deltalog").option("versionAsOf", 0).load(table).where("id = 1").count() == 1
    spark.sql(f"{made} from range(10, 12)").write.format("deltalog").mode("append").save(table)
    assert versions(table) == [0, 1, 2]
    assert rows(spark.read.format("deltalog").load(table)) == rows(spark_ext.read(spark).load(table))
    assert [row[0] for row in rows(spark.read.format("deltalog").load(table).select("id"))] == [0, 2, 3, 10, 11]
    with pytest.raises(Exception, match="only appends"):
        spark.range(1).write.format("deltalog").mode("overwrite").save(table)
    with pytest.raises(Exception, match="Unknown option"):
        spark.read.format("deltalog").option("nothing", 1).load(table).collect()
    assert versions(table) == [0, 1, 2]


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_new_columns_are_added_by_the_commit_of_the_rows(spark: Any, table: str, mapping: str) -> None:
    spark_ext.write(spark.range(2)).option("delta.columnMapping.mode", mapping).save(table)
    wider = spark.range(2, 6).selectExpr("id", "cast(id as string) name", "struct(id a) n")

    def append(df: Any, **options: str) -> None:
        df.write.format("deltalog").mode("append").options(**options).save(table)

    with pytest.raises(Exception, match="name"):
        append(wider)
    with pytest.raises(Exception, match="division"):  # a task fails, so nothing is committed
        append(wider.selectExpr("*", "cast(raise_error('division') as int) never"), mergeSchema="true")
    own = deltalog.DeltaTable.open(table)
    # With column mapping, the columns are added before the tasks write.
    assert own.schema.names == ["id", *(["name", "n", "never"] if mapping == "name" else [])]
    append(wider, mergeSchema="true")
    assert len(versions(table)) == (2 if mapping == "none" else 3)
    found = spark_ext.read(spark).load(table).where("id < 3").orderBy("id").select("id", "name", "n.a").collect()
    assert [tuple(row) for row in found] == [(0, None, None), (1, None, None), (2, "2", 2)]
    append(wider.selectExpr("*", "1 more").where("false"), mergeSchema="true")
    assert deltalog.DeltaTable.open(table).schema.names[-1] == "more"
    assert deltalog.DeltaTable.open(table).history(limit=1)[0].operation == (
        "WRITE" if mapping == "none" else "ADD COLUMNS"
    )


def test_filters_are_pushed_where_spark_has_it(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(0, 40, 1, 4)).save(table)
    with session_of(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        spark_ext.register(spark)
        df = spark.read.format("deltalog").load(table)
        assert [row[0] for row in rows(df.where("id > 37"))] == [38, 39]
        assert df.where("id > 3 and id % 2 = 0 and id < 8").count() == 2
    assert deltalog.DeltaTable.open(table).version == 0
