"""OPTIMIZE by Spark's tasks: DeltaTable.optimize() and SQL."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.spark.settings import session_of
from tests.spark.tables import action, data_files, rows, versions

KEPT = ["id", "p", "_metadata.row_id", "_metadata.row_commit_version"]


@pytest.fixture
def t(spark: Any, table: str) -> str:
    """Four appends to two partitions, and the deletion of two rows."""
    for start in (0, 10, 20, 30):
        frame = spark.range(start, start + 10).selectExpr("id", "concat('p ', id % 2) AS p").coalesce(1)
        writer = spark_ext.write(frame).mode("append").partitionBy("p")
        writer = writer.option("delta.enableRowTracking", "true").option("delta.enableDeletionVectors", "true")
        writer.save(table)
    spark_ext.DeltaTable.forPath(spark, table).delete("id IN (3, 24)")
    return table


def kept(t: str) -> list[tuple[Any, ...]]:
    found = deltalog.DeltaTable.open(t).snapshot().scan(KEPT).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_a_compaction_keeps_the_rows_and_their_ids(spark: Any, t: str) -> None:
    before, files = kept(t), deltalog.DeltaTable.open(t).snapshot().num_files
    done = spark_ext.DeltaTable.forPath(spark, t).optimize().executeCompaction()
    assert done.columns == ["path", "metrics"]
    ((path, metrics),) = done.collect()
    assert path == t and (metrics["numFilesAdded"], metrics["numFilesRemoved"]) == (2, files) == (2, 8)
    assert (metrics["partitionsOptimized"], metrics["numBatches"], metrics["totalConsideredFiles"]) == (2, 1, 8)
    added = deltalog.DeltaTable.open(t).snapshot().size_bytes
    assert metrics["filesAdded"]["totalSize"] == added and metrics["deletionVectorStats"][0] == 2
    assert kept(t) == before and rows(spark_ext.read(spark).load(t).select("id")) == [(row[0],) for row in before]
    info = action(t, versions(t)[-1], "commitInfo")[0]
    assert (info["operation"], info["isolationLevel"]) == ("OPTIMIZE", "SnapshotIsolation")
    adds = action(t, versions(t)[-1], "add")
    assert len(adds) == 2 and not any(add["dataChange"] for add in adds)
    assert {json.loads(add["stats"])["numRecords"] for add in adds} == {19}
    again = spark_ext.DeltaTable.forPath(spark, t).optimize().executeCompaction().collect()[0]["metrics"]
    assert again["numFilesRemoved"] == 0 and again["filesAdded"]["totalFiles"] == 0


def test_an_order_and_a_condition_in_sql(spark: Any, t: str) -> None:
    before = kept(t)
    done = spark_ext.sql(spark, f"OPTIMIZE delta.`{t}` WHERE p = 'p 1' ZORDER BY (`id`)").collect()[0]["metrics"]
    assert (done["numFilesRemoved"], done["numFilesAdded"], done["preserveInsertionOrder"]) == (4, 1, False)
    parameters = action(t, versions(t)[-1], "commitInfo")[0]["operationParameters"]
    assert json.loads(parameters["zOrderBy"]) == ["id"] and json.loads(parameters["predicate"]) == ["p = 'p 1'"]
    builder = spark_ext.DeltaTable.forPath(spark, t).optimize().where("p = 'p 0'").where("p IS NOT NULL")
    assert builder.executeZOrderBy(["id"]).collect()[0]["metrics"]["numFilesAdded"] == 1
    assert kept(t) == before


def test_the_size_of_new_files_is_that_of_the_session(spark: Any, t: str) -> None:
    before = kept(t)
    with session_of(spark, {"spark.databricks.delta.optimize.maxFileSize": "1"}):
        spark_ext.DeltaTable.forPath(spark, t).optimize().executeZOrderBy("id")
    assert deltalog.DeltaTable.open(t).snapshot().num_files > 8 and kept(t) == before
    wrong = {"spark.databricks.delta.optimize.maxFileSize": "much"}
    with session_of(spark, wrong), pytest.raises(deltalog.CallError, match="number of bytes"):
        spark_ext.sql(spark, f"optimize delta.`{t}`")


def test_a_failed_task_commits_nothing(spark: Any, t: str) -> None:
    """A file in the log is missing."""
    seen = versions(t)
    (gone, *_) = data_files(t)
    os.unlink(os.path.join(t, gone))
    with pytest.raises(deltalog.StoreError, match="could not write its files"):
        spark_ext.DeltaTable.forPath(spark, t).optimize().executeCompaction()
    assert versions(t) == seen
    with pytest.raises(deltalog.CallError, match="condition as SQL text"):
        spark_ext.DeltaTable.forPath(spark, t).optimize().where("")
