"""Session and Hadoop settings that would change the files of a write are set to fixed values for the write, or the
change is detected in the footers of the files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import deltalog
import spark_ext
import spark_ext.session.settings
import spark_ext.writing.local_job
from tests.spark.settings import session_of
from tests.spark.tables import data_files, litter, rows, versions

TIMES = {"delta.enableInCommitTimestamps": "true"}
MAPPED = {"delta.columnMapping.mode": "id"}
QUERY = "select 1L id, array(named_struct('x', 2)) ar, timestamp'2026-01-01 00:00:00.123456' ts, date'1500-02-28' d"
FIELD_IDS = "spark.sql.parquet.fieldId.write.enabled"
TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
CALENDAR = "spark.sql.parquet.datetimeRebaseModeInWrite"
PROTOCOL = "spark.sql.sources.commitProtocolClass"
COMMITTER = "spark.sql.parquet.output.committer.class"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (FIELD_IDS, "false"),
        ("mapreduce.output.basename", "_hidden"),
        ("mapreduce.output.basename", ".hidden"),
        ("mapreduce.fileoutputcommitter.cleanup.skipped", "true"),
        (COMMITTER, "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter"),
        (PROTOCOL, "org.apache.spark.internal.io.HadoopMapRedCommitProtocol"),
        ("spark.sql.parquet.int96RebaseModeInWrite", "LEGACY"),
        ("spark.sql.sources.useV1SourceList", "csv"),
    ],
)
def test_a_setting_does_not_change_the_table(spark: Any, table: str, key: str, value: str) -> None:
    df = spark.sql(QUERY)
    with session_of(spark, {key: value}):
        spark_ext.write(df).partitionBy("ts").options(**MAPPED).save(table)
        result = spark_ext.write(df).mode("append").save(table)
        assert spark.conf.get(key) == value and result.num_rows == 1
        assert str(rows(spark_ext.read(spark).load(table))) == str(rows(df.union(df)))
    arrow = deltalog.DeltaTable.open(table).snapshot().scan(["id", "ar"]).to_arrow().to_pylist()
    assert arrow == [{"id": 1, "ar": [{"x": 2}]}] * 2
    assert litter(table) == []
    for path in data_files(table):
        assert os.path.basename(path).startswith("part-0")


def test_files_are_in_place_only_when_the_job_is_committed(spark: Any, table: str) -> None:
    """Version 2 of Hadoop's commit algorithm moves a task's files when the task ends, even if the task is attempted
    again afterwards."""

    def look(number: int) -> str:
        """In the second task, wait until the first task has ended, and return where the first task's file then is."""
        if number == 0:
            return ""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            held = [os.path.join(above, name) for above, _, names in os.walk(table) for name in names]
            ended = [name for name in held if name.endswith(".parquet") and "attempt_" not in name]
            if ended:
                return "pending" if "_temporary" in ended[0] else "in place"
            time.sleep(0.05)
        return "never"

    from pyspark.sql.functions import udf

    df = spark.range(0, 2, 1, 2).select("id", udf(look, "string")("id").alias("seen"))
    with session_of(spark, {"mapreduce.fileoutputcommitter.algorithm.version": "2"}):
        spark_ext.write(df).save(table)
    assert rows(spark_ext.read(spark).load(table)) == [(0, ""), (1, "pending")]


def test_what_timestamp_means_in_the_session(spark: Any, table: str) -> None:
    columns = '{"type":"struct","fields":[' + ",".join(
        f'{{"name":"{name}","type":"{kind}","nullable":{nullable},"metadata":{{}}}}'
        for name, kind, nullable in (("id", "long", "true"), ("ts", "timestamp", "false"), ("p", "timestamp", "true"))
    )
    deltalog.DeltaTable.create(
        table, deltalog.schema.StructType.from_json(columns + "]}"), partition_by=["p"], properties=TIMES
    )
    df = "select 1L id, timestamp_micros(1) ts, timestamp_micros(1793511000123456) p"
    with session_of(
        spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "America/New_York"}
    ):
        result = spark_ext.write(spark.sql(df)).mode("append").save(table)
        back = spark_ext.read(spark).load(table)
        assert back.schema.simpleString() == "struct<id:bigint,ts:timestamp,p:timestamp>"
        assert rows(back.selectExpr("unix_micros(ts)", "unix_micros(p)")) == [(1, 1793511000123456)]
        moment = spark.sql(f"select cast(timestamp_millis({result.in_commit_timestamp_ms}) as string)").collect()[0][0]
        assert spark_ext.read(spark).option("timestampAsOf", moment).load(table).count() == 1
        for text in (f"'{moment}'", f"(timestamp_millis({result.in_commit_timestamp_ms}))"):
            query = f"select count(*) from deltalog.`{table}` timestamp as of {text}"
            assert rows(spark_ext.sql(spark, query)) == [(1,)]


@pytest.fixture
def unpinned(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that keeps the next write from changing a session setting, as if another thread had changed the
    setting back."""

    def unpin(key: str) -> None:
        settings = {name: value for name, value in spark_ext.session.settings.SETTINGS.items() if name != key}
        monkeypatch.setattr(spark_ext.writing.local_job, "SETTINGS", settings)
        monkeypatch.setattr(spark_ext.writing.local_job, "TIMESTAMP_SETTING_AS_OPTION", (99, 0))

    return unpin


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (FIELD_IDS, "false", "does not have the field id"),
        (TIMESTAMPS, "INT96", "ts are INT96, which have no statistics"),
        (TIMESTAMPS, "TIMESTAMP_MILLIS", r"ts is timestamp\[ms, tz=UTC\], and should be timestamp\[us, tz=UTC\]"),
        (CALENDAR, "LEGACY", "in an old calendar"),
    ],
)
def test_what_a_setting_did_is_seen_in_the_files(
    spark: Any, table: str, unpinned: Callable[[str], None], key: str, value: str, message: str
) -> None:
    df = spark.sql(QUERY).withColumnRenamed("ts", "c").withColumnRenamed("c", "ts")
    spark_ext.write(df).save(table) if key != FIELD_IDS else spark_ext.write(df).options(**MAPPED).save(table)
    before = data_files(table)
    unpinned(key)
    for mode in ("append", "overwrite"):
        with session_of(spark, {key: value}), pytest.raises(deltalog.errors.InvalidDataFileError, match=message):
            spark_ext.write(df).mode(mode).save(table)
    assert versions(table) == [0] and data_files(table) == before


def test_without_ids_no_file_is_taken_in_a_table_that_is_mapped_by_name(
    spark: Any, table: str, unpinned: Callable[[str], None]
) -> None:
    unpinned(FIELD_IDS)
    df = spark.sql(QUERY)
    with (
        session_of(spark, {FIELD_IDS: "false"}),
        pytest.raises(deltalog.errors.InvalidDataFileError, match="no field id 1, by which readers identify it"),
    ):
        spark_ext.write(df).option("delta.columnMapping.mode", "name").save(table)
    assert not os.path.exists(table)


def wrappers(spark: Any) -> Iterator[Any]:
    """Several SparkSession objects for one session of the JVM, as PySpark itself creates them."""
    while True:
        yield SparkSession(spark.sparkContext, spark._jsparkSession)


@pytest.mark.classic("Spark Connect has only one SparkSession object for each session")
def test_objects_of_one_session_share_its_settings(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order in which the writes end, the last write to end restores the settings from before the first
    write."""
    settings = {TIMESTAMPS: "TIMESTAMP_MICROS"}
    one, two, other = next(wrappers(spark)), next(wrappers(spark)), spark.newSession()
    with session_of(spark, {TIMESTAMPS: "INT96"}):
        first = spark_ext.session.settings.session_settings(one, settings)
        second = spark_ext.session.settings.session_settings(two, settings)
        third = spark_ext.session.settings.session_settings(other, settings)
        for entered in (first, second, third):
            entered.__enter__()
        assert other.conf.get(TIMESTAMPS) == "TIMESTAMP_MICROS"
        first.__exit__(None, None, None)
        assert two.conf.get(TIMESTAMPS) == "TIMESTAMP_MICROS"
        second.__exit__(None, None, None)
        assert spark.conf.get(TIMESTAMPS) == "INT96"
        third.__exit__(None, None, None)
    assert spark_ext.session.settings._held == [] and spark.conf.get("spark.deltalog.probe", None) is None


@pytest.mark.classic("Spark Connect has only one SparkSession object for each session")
def test_writes_by_objects_of_one_session(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Make the installed Spark use the code path for Spark 3.5 to 4.1.
    monkeypatch.setattr(spark_ext.writing.local_job, "TIMESTAMP_SETTING_AS_OPTION", (99, 0))
    errors: list[BaseException] = []

    def run(session: Any, name: str) -> None:
        try:
            for number in range(3):
                spark_ext.write(session.sql(QUERY)).save(str(tmp_path / f"{name}{number}"))
        except BaseException as error:
            errors.append(error)

    with session_of(spark, {TIMESTAMPS: "INT96"}):
        found = wrappers(spark)
        threads = [threading.Thread(target=run, args=(next(found), f"t{i}")) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == [] and spark.conf.get(TIMESTAMPS) == "INT96"
    for path in tmp_path.rglob("*.parquet"):
        assert "timeUnit=microseconds" in str(pq.ParquetFile(path).schema.column(2).logical_type)


def test_a_stopped_session_is_not_another(spark: Any) -> None:
    class Stopped:
        class conf:
            @staticmethod
            def set(key: str, value: str) -> None:
                raise RuntimeError("stopped")

    assert not spark_ext.session.settings._are_one(Stopped(), Stopped())
    assert not spark_ext.session.settings._are_one(Stopped(), spark)
