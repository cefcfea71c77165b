"""Streams written from foreachBatch: every row is written exactly once, despite failures and repetitions."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import deltalog
import spark_ext
from tests.spark.settings import IS_CONNECT
from tests.spark.streams import Input
from tests.spark.tables import action, rows, versions


@pytest.fixture
def source(spark: Any, tmp_path: Path) -> Input:
    return Input(spark, tmp_path / "stream")


def _ids(spark: Any, table: str) -> list[int]:
    return [row[0] for row in rows(spark_ext.read(spark).load(table).select("id"))]


def test_each_batch_is_a_commit_that_records_its_id(spark: Any, source: Input, table: str) -> None:
    write = spark_ext.stream_writer(table, "orders", partition_by=["name"], options={"userMetadata": "streamed"})
    source.add(1, 2)
    source.add(3)
    source.run(write)
    assert _ids(spark, table) == [1, 2, 3]
    assert [action(table, version, "txn")[0]["version"] for version in versions(table)] == [0, 1]
    assert {action(table, version, "txn")[0]["appId"] for version in versions(table)} == {"orders"}
    assert deltalog.DeltaTable.open(table).snapshot().partition_columns == ("name",)
    source.add(4)
    source.run(write)
    assert _ids(spark, table) == [1, 2, 3, 4] and versions(table) == [0, 1, 2]


@pytest.mark.parametrize("fails", ["before the commit", "after the commit"])
def test_a_batch_that_fails_is_written_once(spark: Any, source: Input, table: str, tmp_path: Path, fails: str) -> None:
    write, marker = spark_ext.stream_writer(table, "orders"), tmp_path / "failed"

    def failing(df: Any, batch_id: int) -> None:
        if batch_id == 1 and not marker.exists():
            marker.touch()
            if fails == "after the commit":
                write(df, batch_id)
            raise RuntimeError("injected")
        write(df, batch_id)

    for each in range(3):
        source.add(each)
    with pytest.raises(PySparkException, match="injected"):
        source.run(failing)
    assert _ids(spark, table) == ([0, 1] if fails == "after the commit" else [0])
    source.run(failing)
    assert _ids(spark, table) == [0, 1, 2]
    assert versions(table) == [0, 1, 2]


def test_complete_mode_replaces_the_rows(spark: Any, source: Input, table: str) -> None:
    write = spark_ext.stream_writer(table, "counts", output_mode="complete")
    counts = source.stream.selectExpr("id % 2 as odd").groupBy("odd").count()
    source.add(1, 2, 3)
    source.add(4)
    source.run(write, counts, "complete")
    assert rows(spark_ext.read(spark).load(table)) == [(0, 2), (1, 2)]
    assert rows(spark_ext.read(spark).option("versionAsOf", 0).load(table)) == [(0, 1), (1, 2)]


def test_a_batch_of_another_checkpoint_is_refused_instead_of_left_out(spark: Any, table: str) -> None:
    write = spark_ext.stream_writer(table, "orders")
    assert write(spark.range(2), 7).committed
    assert not write(spark.range(2), 7).committed
    with pytest.raises(deltalog.CallError, match="another checkpoint"):
        write(spark.range(5), 6)
    assert spark_ext.stream_writer(table, "orders again")(spark.range(5), 0).committed
    assert len(_ids(spark, table)) == 7


def test_batches_without_rows_are_recorded(spark: Any, table: str) -> None:
    write = spark_ext.stream_writer(table, "orders")
    assert write(spark.range(0), 0).committed and write(spark.range(0), 1).committed
    assert deltalog.DeltaTable.open(table).snapshot().transaction_version("orders") == 1


def test_the_format_of_streams_needs_python_data_sources(spark: Any, table: str) -> None:
    if find_spec("pyspark.sql.datasource") is not None:
        spark_ext.register(spark)
        with pytest.raises(PySparkException, match="TableNotFoundError"):
            spark.readStream.format("deltalog").load(table).schema  # noqa: B018
        return
    with pytest.raises(deltalog.UnsupportedFeatureError, match=r"foreachBatch\(spark_ext\.stream_writer"):
        spark_ext.register(spark)


def test_wrong_arguments_are_refused(table: str) -> None:
    with pytest.raises(deltalog.CallError, match="non-empty"):
        spark_ext.stream_writer(table, "")
    with pytest.raises(deltalog.CallError, match="output mode"):
        spark_ext.stream_writer(table, "a", output_mode="update")
    with pytest.raises(deltalog.CallError, match="txnVersion"):
        spark_ext.stream_writer(table, "a", options={"txnVersion": 1})


@pytest.mark.skipif(IS_CONNECT, reason="concurrent streams are tested only in a classic session")
def test_two_streams_and_a_batch_job_share_a_table(spark: Any, tmp_path: Path, table: str) -> None:
    spark_ext.write(spark.createDataFrame([(0, "batch")], "id long, name string")).save(table)
    inputs = [Input(spark, tmp_path / name) for name in ("one", "two")]
    queries = []
    for number, each in enumerate(inputs):
        for step in range(3):
            each.add(10 * (number + 1) + step)
        write = spark_ext.stream_writer(table, f"stream {number}")
        writer = each.stream.writeStream.foreachBatch(lambda df, batch_id, write=write: write(df, batch_id) and None)
        queries.append(writer.option("checkpointLocation", each.checkpoint).trigger(availableNow=True).start())
    for step in range(3):
        frame = spark.createDataFrame([(step + 1, "batch")], "id long, name string")
        spark_ext.write(frame).mode("append").save(table)
    for query in queries:
        assert query.awaitTermination(120)
    assert _ids(spark, table) == [0, 1, 2, 3, 10, 11, 12, 20, 21, 22]
