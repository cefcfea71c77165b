"""DESCRIBE HISTORY and DESCRIBE DETAIL as DataFrames; tests/interop compares them with delta-spark's."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from tests.spark.tables import append_raw, field, make_raw, rows

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def environment(days: int) -> deltalog.Environment:
    return deltalog.Environment(clock_ms=lambda: int(START.timestamp() * 1000) + 86_400_000 * days)


def test_history(spark: Any, table: str) -> None:
    schema = pa.schema([("id", pa.int64())])
    feature = {"delta.enableInCommitTimestamps": "true"}
    deltalog.DeltaTable.create(table, schema, properties=feature, environment=environment(0))
    one = pa.table({"id": [1]}, schema=schema)
    deltalog.DeltaTable.open(table, environment=environment(1)).append(one, user_metadata="second")
    found = spark_ext.history(spark, table)
    assert [tuple(row) for row in found.select("version", "operation", "userMetadata").collect()] == [
        (1, "WRITE", "second"),
        (0, "CREATE TABLE", None),
    ]
    newest = found.selectExpr("*", "unix_millis(timestamp) t", "unix_millis(inCommitTimestamp) ict").first()
    assert (newest["t"], newest["ict"]) == (environment(1).clock_ms(), environment(1).clock_ms())
    assert newest["operationParameters"]["mode"] == "Append" and newest["operationMetrics"]["numOutputRows"] == "1"
    assert (
        newest["isBlindAppend"] is True and newest["readVersion"] == 0 and newest["engineInfo"].startswith("deltalog")
    )
    assert [row["version"] for row in spark_ext.history(spark, table, limit=1).collect()] == [1]
    assert rows(spark_ext.sql(spark, f"describe history deltalog.`{table}` limit 1;").select("version")) == [(1,)]
    assert spark_ext.sql(spark, f"DESC HISTORY delta.`{table}`").schema == found.schema
    with pytest.raises(deltalog.CallError, match="limit"):
        spark_ext.history(spark, table, 0)
    with pytest.raises(deltalog.TableNotFoundError):
        spark_ext.history(spark, table + "x")


def test_history_of_commits_by_others(spark: Any, table: str) -> None:
    make_raw(table, [field("id", "long")], [])  # the commit of this version has no commitInfo
    job = {"jobId": "7", "runId": 8, "jobName": None}
    info = {"operation": "X", "operationParameters": {"a": ["b", 1], "c": None, "d": "é"}, "job": job}
    append_raw(table, 1, {"commitInfo": {**info, "notebook": {"notebookId": "n"}, "userId": 5, "clusterId": "c"}})
    last, first = spark_ext.history(spark, table).collect()
    assert last["operationParameters"] == {"a": json.dumps(["b", 1]), "c": None, "d": "é"}
    assert last["job"].asDict() == {**dict.fromkeys(last["job"].__fields__), "jobId": "7", "runId": "8"}
    assert (last["notebook"]["notebookId"], last["userId"], last["clusterId"]) == ("n", "5", "c")
    assert first["operation"] is None and first["operationParameters"] == {} and first["job"] is None
    assert first["timestamp"] is not None and first["inCommitTimestamp"] is None


def test_detail(spark: Any, table: str) -> None:
    spark_ext.write(spark.sql("select 1L id, 'a' p")).partitionBy("p").option("delta.appendOnly", "true").save(table)
    snapshot = deltalog.DeltaTable.open(table).snapshot()
    found = spark_ext.detail(spark, table)
    row = found.selectExpr("*", "unix_millis(createdAt) c", "unix_millis(lastModified) m").first()
    assert (row["format"], row["id"], row["location"]) == ("delta", snapshot.metadata.id, f"file:{table}")
    assert (row["c"], row["m"]) == (snapshot.metadata.created_time, snapshot.timestamp_ms)
    assert (row["partitionColumns"], row["clusteringColumns"]) == (["p"], [])
    assert (row["numFiles"], row["sizeInBytes"]) == (1, snapshot.size_bytes)
    assert row["properties"] == {"delta.appendOnly": "true"}
    assert (row["minReaderVersion"], row["minWriterVersion"]) == (1, 2)
    assert row["tableFeatures"] == ["appendOnly", "invariants"]
    assert spark_ext.sql(spark, f"describe detail deltalog.`{table}`").collect() == found.collect()
