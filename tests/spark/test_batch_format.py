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


def test_filters_are_pushed_where_spark_has_it(spark: Any, table: str) -> None:
    spark_ext.write(spark.range(0, 40, 1, 4)).save(table)
    with session_of(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        spark_ext.register(spark)
        df = spark.read.format("deltalog").load(table)
        assert [row[0] for row in rows(df.where("id > 37"))] == [38, 39]
        assert df.where("id > 3 and id % 2 = 0 and id < 8").count() == 2
    assert deltalog.DeltaTable.open(table).version == 0
