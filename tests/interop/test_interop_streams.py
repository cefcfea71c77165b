"""Streams of deltalog and delta-spark read each other's output, and return the same rows of the same table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import spark_ext
from tests.spark.streams import finish
from tests.spark.tables import rows
from tests.support.spark import DeltaSpark


class Stream:
    """A query from table to table, with the source and the sink of either engine."""

    def __init__(self, spark: Any, directory: Path, kinds: tuple[str, str], options: Mapping[str, str]) -> None:
        self._spark, self._kinds, self._options = spark, kinds, options
        self.source, self.target = str(directory / "source"), str(directory / "target" / "-".join(kinds))
        self._checkpoint = str(directory / "checkpoint" / "-".join(kinds))
        spark_ext.register(spark)

    def run(self, output: str | None = None) -> None:
        """Run the stream until it has read all available rows. Raises the error that ended it."""
        frame = self._spark.readStream.format(self._kinds[0]).options(**self._options).load(self.source)
        writer = frame.writeStream.format(self._kinds[1]).option("checkpointLocation", self._checkpoint)
        finish(writer.trigger(availableNow=True).start(output or self.target))

    def rows(self) -> list[Any]:
        """The rows as read by delta-spark and by deltalog, which must agree."""
        theirs = rows(self._spark.read.format("delta").load(self.target))
        assert rows(spark_ext.read(self._spark).load(self.target)) == theirs
        return theirs


KINDS = [("delta", "deltalog"), ("deltalog", "delta"), ("deltalog", "deltalog")]


@pytest.mark.long
def test_from_and_to_tables_of_either(delta: DeltaSpark, tmp_path: Path) -> None:
    spark = delta.spark
    streams = [Stream(spark, tmp_path, kinds, {"maxFilesPerTrigger": "2"}) for kinds in KINDS]
    source = f"delta.`{streams[0].source}`"
    spark.sql(
        f"CREATE TABLE {source} (id BIGINT, s STRING, ab STRUCT<x: DATE, y: ARRAY<DOUBLE>>) USING delta "
        "PARTITIONED BY (s) TBLPROPERTIES ('delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='name')"
    )
    made = "SELECT id, string(id % 3) AS s, named_struct('x', date_add(date'2026-01-01', int(id)), 'y', array(id / 2))"
    spark.sql(f"INSERT INTO {source} {made} FROM range(0, 10, 1, 2)")
    spark.sql(f"DELETE FROM {source} WHERE id = 4")
    for stream in streams:
        stream.run()
    spark.sql(f"INSERT INTO {source} {made} FROM range(10, 20, 1, 2)")
    spark.sql(f"OPTIMIZE {source}")
    spark.sql(f"INSERT INTO {source} {made} FROM range(20, 22)")
    expected = rows(spark.table(source))
    assert len(expected) == 21
    for stream in streams:
        stream.run()
        assert stream.rows() == expected


def test_a_stream_of_delta_spark_reads_and_writes_the_table_of_ours(delta: DeltaSpark, tmp_path: Path) -> None:
    """Streams of both engines and a batch job write to one table, and both engines stream from it."""
    spark = delta.spark
    ours, theirs = (Stream(spark, tmp_path, kinds, {}) for kinds in (("deltalog", "deltalog"), ("delta", "delta")))
    shared = str(tmp_path / "shared")
    spark_ext.write(spark.range(3)).save(ours.source)
    for turn in range(2):
        ours.run(shared)
        theirs.run(shared)
        spark.range(100 * (turn + 1), 100 * (turn + 1) + 1).write.format("delta").mode("append").save(shared)
        spark_ext.write(spark.range(3 * (turn + 1), 3 * (turn + 2))).mode("append").save(ours.source)
    expected = sorted([*range(6), *range(6), 100, 200])
    assert [row[0] for row in rows(spark.read.format("delta").load(shared))] == expected
    for kinds in KINDS[:2]:
        onward = Stream(spark, tmp_path / "onward", kinds, {})
        onward.source = shared
        onward.run()
        assert [row[0] for row in onward.rows()] == expected


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"startingVersion": "1", "ignoreChanges": "true"}, marks=pytest.mark.long),
        pytest.param({"startingVersion": "0", "skipChangeCommits": "true"}, marks=pytest.mark.long),
        pytest.param({"startingVersion": "0", "ignoreDeletes": "true"}, marks=pytest.mark.long),
        pytest.param({"startingVersion": "2"}, marks=pytest.mark.long),
        {"startingVersion": "0", "readChangeFeed": "true"},
        pytest.param({"readChangeFeed": "true"}, marks=pytest.mark.long),
    ],
    ids=lambda options: " ".join(f"{name}={value}" for name, value in options.items()),
)
def test_both_sources_give_the_same_rows_or_both_refuse(
    delta: DeltaSpark, tmp_path: Path, options: dict[str, str]
) -> None:
    spark, found = delta.spark, list[Any]()
    streams = [Stream(spark, tmp_path, (kind, "delta"), options) for kind in ("delta", "deltalog")]
    source = f"delta.`{streams[0].source}`"
    spark.sql(
        f"CREATE TABLE {source} (id BIGINT, p INT) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
    )
    spark.sql(f"INSERT INTO {source} SELECT id, int(id % 2) FROM range(0, 10, 1, 1)")
    spark.sql(f"INSERT INTO {source} SELECT id, 7 FROM range(10, 12, 1, 1)")
    spark.sql(f"DELETE FROM {source} WHERE p = 7")
    spark.sql(f"UPDATE {source} SET id = id + 100 WHERE id < 2")
    spark.sql(f"INSERT INTO {source} SELECT id, 8 FROM range(20, 22, 1, 1)")
    for stream in streams:
        try:
            stream.run()
        except PySparkException:
            found.append("refused")
        else:
            found.append(rows(spark.read.format("delta").load(stream.target)))
    assert found[0] == found[1]
