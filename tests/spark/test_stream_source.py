"""Streams read with format("deltalog"): every file is read exactly once, even after restarts and with limits, and error
messages are clear."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import deltalog
import spark_ext
from tests.spark.settings import since
from tests.spark.streams import finish
from tests.spark.tables import history, rows

pytestmark = since("4.0", "Python data sources")
limited = since("4.2", "batch limits for Python data sources")

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


def ids(*values: int) -> pa.Table:
    return pa.table({"id": values, "name": [f"row {each}" for each in values]}, COLUMNS)


class Reading:
    """A test stream from a table into a directory of Parquet files, which Spark's own sink writes exactly once."""

    def __init__(self, spark: Any, table: str, directory: Path, **options: Any) -> None:
        self._spark, self._table, self._options = spark, table, options
        self.output, self.checkpoint = str(directory / "output"), str(directory / "checkpoint")
        spark_ext.register(spark)

    def frame(self, **options: Any) -> Any:
        given = {name: str(value) for name, value in {**self._options, **options}.items()}
        return self._spark.readStream.format("deltalog").options(**given).load(self._table)

    def run(self, change: Callable[[Any], Any] = lambda df: df, **options: Any) -> Any:
        """Process all available input. Returns the query. Raises the error that ended it."""
        writer = change(self.frame(**options)).writeStream.format("parquet").option("path", self.output)
        query = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        finish(query)
        return query

    def rows(self, *columns: str) -> list[Any]:
        return rows(self._spark.read.parquet(self.output).select(*(columns or ("id",))))

    def ids(self) -> list[int]:
        return [row[0] for row in self.rows("id")]


@pytest.fixture
def reading(spark: Any, table: str, tmp_path: Path) -> Callable[..., Reading]:
    return lambda **options: Reading(spark, table, tmp_path / "stream", **options)


def test_rows_there_are_first_and_then_those_of_commits_over_restarts(table: str, reading: Any) -> None:
    written = deltalog.DeltaTable.create(table, COLUMNS, data=ids(1, 2))
    written.append(ids(3))
    stream = reading()
    stream.run()
    assert stream.ids() == [1, 2, 3]
    stream.run()
    assert stream.ids() == [1, 2, 3]
    written.append(ids(4))
    written.append(ids(5))
    written.set_properties({"delta.appendOnly": "true"})
    stream.run()
    assert stream.ids() == [1, 2, 3, 4, 5]


@limited
@pytest.mark.classic("over Spark Connect a query that has ended reports no progress")
def test_limits_split_versions_and_the_first_snapshot(table: str, reading: Any) -> None:
    written = deltalog.DeltaTable.create(table, COLUMNS, partition_by=["name"], data=ids(1, 2, 3))
    written.append(ids(4, 5))
    stream = reading(maxFilesPerTrigger=2)
    assert [each["numInputRows"] for each in stream.run().recentProgress if each["numInputRows"]] == [2, 2, 1]
    written.append(ids(6, 7, 8))
    query = stream.run(maxFilesPerTrigger=1)
    assert [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]] == [1, 1, 1]
    written.append(ids(9, 10))
    query = stream.run(maxFilesPerTrigger=100, maxBytesPerTrigger="1b")
    assert [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]] == [1, 1]
    assert stream.ids() == list(range(1, 11))


@pytest.mark.long
def test_it_begins_where_it_is_told_to(table: str, spark: Any, tmp_path: Path, zone: Any) -> None:
    at_ms = [1_790_000_000_000 + 3_600_000 * hours for hours in range(4)]
    history(table, COLUMNS, [ids(0), ids(1), ids(2), ids(3)], at_ms)
    zone("Europe/Vienna")  # this time zone was two hours ahead of UTC at the times of the commits
    found = {}
    begins: dict[str, dict[str, Any]] = {
        "version": {"startingVersion": 2},
        "latest": {"startingVersion": "latest"},
        "zoned": {"startingTimestamp": "2026-09-21T16:13:20Z"},
        "local": {"startingTimestamp": "2026-09-21 18:13:20.001"},
    }
    for name, options in begins.items():
        stream = Reading(spark, table, tmp_path / name, **options)
        stream.run(lambda df: df.coalesce(1))
        found[name] = stream.ids()
    assert found == {"version": [2, 3], "latest": [], "zoned": [2, 3], "local": [3]}


def test_deletion_vectors_mapped_columns_and_partitions(table: str, reading: Any) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    written = deltalog.DeltaTable.create(table, COLUMNS, partition_by=["name"], properties=properties)
    written.append(pa.table({"id": [1, 2, 3], "name": ["a", "a", None]}, COLUMNS))
    written.delete("id = 2")
    written.rename_column("id", "number")
    stream = reading()
    stream.run()
    assert stream.rows("number", "name") == [(1, "a"), (3, None)]


@pytest.mark.long
def test_commits_that_change_rows_are_refused_or_skipped(table: str, reading: Any) -> None:
    written = deltalog.DeltaTable.create(table, COLUMNS, data=ids(1, 2))
    written.append(ids(3))
    stream = reading()
    stream.run()
    written.delete("id = 3")
    with pytest.raises(PySparkException, match=r"version 2 deletes rows[\s\S]*ignoreDeletes"):
        stream.run()
    written.append(ids(4))
    stream.run(ignoreDeletes="true")
    assert stream.ids() == [1, 2, 3, 4]
    written.delete("id = 1")
    written.append(ids(5))
    with pytest.raises(PySparkException, match=r"version 4 changes rows[\s\S]*skipChangeCommits"):
        stream.run(ignoreDeletes="true")
    stream.run(skipChangeCommits="true")
    assert stream.ids() == [1, 2, 3, 4, 5]


def test_changes_are_streamed(table: str, reading: Any) -> None:
    written = deltalog.DeltaTable.create(
        table, COLUMNS, properties={"delta.enableChangeDataFeed": "true"}, data=ids(1, 2)
    )
    stream = reading(readChangeFeed="true")
    stream.run()
    written.update({"name": "'new'"}, "id = 1")
    written.delete("id = 2")
    stream.run()
    assert stream.rows("_commit_version", "_change_type", "id", "name") == [
        (0, "insert", 1, "row 1"),
        (0, "insert", 2, "row 2"),
        (1, "update_postimage", 1, "new"),
        (1, "update_preimage", 1, "row 1"),
        (2, "delete", 2, "row 2"),
    ]


@pytest.mark.classic("over Spark Connect the columns are resolved when the query starts")
def test_new_columns_need_a_restart(table: str, reading: Any, spark: Any, tmp_path: Path) -> None:
    written = deltalog.DeltaTable.create(table, COLUMNS, data=ids(1))
    stream = reading()
    frame = stream.frame()
    more = pa.table({"id": [2], "name": ["b"], "more": [True]})
    written.append(more, merge_schema=True)
    with pytest.raises(PySparkException, match="Restart the stream"):
        finish(
            frame.writeStream.format("parquet").option("path", stream.output)
            .option("checkpointLocation", stream.checkpoint).trigger(availableNow=True).start()
        )  # fmt: skip
    stream.run()
    assert stream.rows("id", "more") == [(1, None), (2, True)]


@pytest.mark.long
def test_a_cleaned_log_is_a_clear_error(table: str, reading: Any) -> None:
    written = deltalog.DeltaTable.create(table, COLUMNS, data=ids(0))
    stream = reading()
    stream.run()
    for each in range(1, 4):
        written.append(ids(each))
    written.checkpoint()
    for version in (0, 1, 2):
        (Path(table) / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(PySparkException, match=r"log clean-up has deleted it[\s\S]*failOnDataLoss"):
        stream.run()
    stream.run(failOnDataLoss="false")
    assert stream.ids() == [0, 3]


@pytest.mark.long
def test_another_table_at_the_same_place_is_a_clear_error(table: str, reading: Any) -> None:
    deltalog.DeltaTable.create(table, COLUMNS, data=ids(0))
    stream = reading()
    stream.run()
    shutil.rmtree(table)
    deltalog.DeltaTable.create(table, COLUMNS, data=ids(1))
    with pytest.raises(PySparkException, match="deleted and created again"):
        stream.run()


@pytest.mark.long
def test_a_file_without_some_of_its_rows_is_refused(table: str, reading: Any) -> None:
    import pyarrow.parquet as pq

    deltalog.DeltaTable.create(table, COLUMNS, data=ids(1, 2, 3))
    [file] = Path(table).glob("*.parquet")
    pq.write_table(ids(1, 2), file)
    with pytest.raises(PySparkException, match=r"has 2 live rows[\s\S]*says 3"):
        reading().run()


def test_all_types_are_as_in_a_batch(table: str, reading: Any, spark: Any) -> None:
    frame = spark.sql(
        "select 1Y b, 2S s, 3 i, 4L l, 1.5F f, 2.5D d, 1.25BD as n, true t, 'x' c, X'00FF' x, date'2026-01-31' day,"
        " timestamp'2026-01-31 10:00:00.123456' at, timestamp_ntz'2026-01-31 10:00:00' plain, array(1, null) a,"
        " map('k', array(1.5D)) m, named_struct('u', 1, 'v', array(named_struct('w', 'x'))) st,"
        " cast(null as string) nothing"
    )
    spark_ext.write(frame).save(table)
    stream = reading()
    stream.run()
    assert rows(spark.read.parquet(stream.output).drop("m"), "i") == rows(frame.drop("m"), "i")
    assert spark.read.parquet(stream.output).select("m.k").collect() == frame.select("m.k").collect()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"startingVersions": "1"}, "Unknown option"),
        ({"excludeRegex": "a"}, "filter the rows"),
        ({"startingVersion": "-1"}, "whole number"),
        ({"startingTimestamp": "yesterday"}, "not a timestamp"),
        ({"ignoreDeletes": "yes"}, "true or false"),
        ({"startingVersion": "0", "startingTimestamp": "2026-01-01"}, "not both"),
    ],
)
def test_wrong_options_are_refused(table: str, reading: Any, options: dict[str, str], match: str) -> None:
    deltalog.DeltaTable.create(table, COLUMNS, data=ids(1))
    with pytest.raises(PySparkException, match=match):
        reading(**options).frame().schema  # noqa: B018


@pytest.mark.long
def test_batches_are_read_by_spark_ext_read(spark: Any, table: str) -> None:
    deltalog.DeltaTable.create(table, COLUMNS, data=ids(1))
    spark_ext.register(spark)
    with pytest.raises(PySparkException, match=r"spark_ext\.read"):
        spark.read.format("deltalog").load(table).collect()


@pytest.mark.long
@pytest.mark.classic("the progress of a running query is read in a classic session")
def test_a_running_stream_sees_new_commits(table: str, reading: Any, spark: Any) -> None:
    written = deltalog.DeltaTable.create(table, COLUMNS, data=ids(0))
    stream = reading()
    writer = stream.frame().writeStream.format("parquet").option("path", stream.output)
    query = writer.option("checkpointLocation", stream.checkpoint).trigger(processingTime="0 seconds").start()
    try:
        for each in range(1, 4):
            query.processAllAvailable()
            written.append(ids(each))
        query.processAllAvailable()
        assert stream.ids() == [0, 1, 2, 3]
    finally:
        query.stop()
