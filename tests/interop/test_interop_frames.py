"""history and detail of spark_ext have the columns and values of delta-spark's DESCRIBE HISTORY and DESCRIBE DETAIL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from tests.spark.settings import session_of
from tests.spark.tables import rows
from tests.support.spark import DeltaSpark

DELTA = "spark.databricks.delta."


@pytest.fixture(scope="module")
def path(delta: DeltaSpark, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table created by delta-spark, with a commit for each kind of value in the history, and with commits by
    deltalog."""
    path = str(tmp_path_factory.mktemp("frames") / "table")
    properties = "'delta.enableInCommitTimestamps'='true', 'delta.enableDeletionVectors'='true', 'x'='y'"
    columns = "(id long, day date) using delta partitioned by (day) comment 'what it is'"
    delta.spark.sql(f"create table delta.`{path}` {columns} tblproperties ({properties})")
    delta.spark.sql(f"insert into delta.`{path}` values (1, date'2026-01-01'), (2, date'2026-01-02')")
    delta.spark.sql(f"delete from delta.`{path}` where id = 1")
    new = delta.spark.sql("select 3L id, date'2026-01-01' day")
    where = {"replaceWhere": "day = '2026-01-01'", "userMetadata": "replaced"}
    new.write.format("delta").mode("overwrite").options(**where).save(path)
    deltalog.DeltaTable.open(path).set_properties({"delta.appendOnly": "false"})
    spark_ext.write(new).mode("append").save(path)
    return path


def test_history(delta: DeltaSpark, path: str) -> None:
    theirs, ours = delta.spark.sql(f"describe history delta.`{path}`"), spark_ext.history(delta.spark, path)
    assert ours.drop("inCommitTimestamp").schema == theirs.schema
    assert ours.drop("inCommitTimestamp").collect() == theirs.collect()
    assert [row["version"] for row in ours.collect()] == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("clustered", [False, True])
def test_detail(delta: DeltaSpark, path: str, tmp_path: Path, clustered: bool) -> None:
    if clustered:
        path = str(tmp_path / "clustered")
        delta.spark.sql(f"create table delta.`{path}` (id long, s struct<a: int>) using delta cluster by (s.a, id)")
    theirs, ours = delta.spark.sql(f"describe detail delta.`{path}`"), spark_ext.detail(delta.spark, path)
    assert ours.schema == theirs.schema
    # For tables with in-commit timestamps, delta-spark's column lastModified still contains the commit file's
    # modification time.
    assert _known(ours, clustered) == _known(theirs, clustered)


def _known(df: Any, has_file_time: bool) -> dict[str, Any]:
    row = df.drop(*([] if has_file_time else ["lastModified"])).collect()[0].asDict()
    return {name: sorted(value) if isinstance(value, list) else value for name, value in row.items()}


def test_sql_in_a_session_that_has_delta_spark(delta: DeltaSpark, path: str) -> None:
    """spark_ext.sql understands both names, also with the parser of delta-spark in the session."""
    latest = spark_ext.history(delta.spark, path, 1).selectExpr("string(timestamp)").first()[0]
    query = "select count(*) from {0}.`{1}` timestamp as of '{2}' join {0}.`{1}` version as of 1 using (id)"
    expected = delta.spark.sql(query.format("delta", path, latest)).collect()
    assert spark_ext.sql(delta.spark, query.format("delta", path, latest)).collect() == expected
    assert spark_ext.sql(delta.spark, query.format("deltalog", path, latest)).collect() == expected


def test_changes_out_of_range(delta: DeltaSpark, tmp_path: Path) -> None:
    """Change data feeds for ranges that begin or end after the latest version, with and without delta-spark's setting
    that allows such ranges."""
    path = str(tmp_path / "feed")
    feed = {"delta.enableChangeDataFeed": "true"}
    deltalog.DeltaTable.create(path, pa.schema([("id", pa.int64())]), data=pa.table({"id": [1]}), properties=feed)
    ranges: list[dict[str, Any]] = [
        {"startingVersion": 0},
        {"startingVersion": 1},
        {"startingVersion": 3, "endingVersion": 2},
        {"startingVersion": 0, "endingVersion": 5},
        {"startingVersion": 1, "endingVersion": 5},
        {"startingTimestamp": "2099-01-01"},
        {"startingTimestamp": "2099-01-01", "endingTimestamp": "2099-01-02"},
        {"startingVersion": 0, "endingTimestamp": "2099-01-01"},
    ]
    with session_of(delta.spark, {DELTA + "changeDataFeed.timestampOutOfRange.enabled": "true"}):
        for each in ranges:
            options = {"readChangeFeed": "true", **each}
            theirs = delta.spark.read.format("delta").options(**options).load(path)
            ours = spark_ext.read(delta.spark).options(**options).load(path)
            assert rows(ours) == rows(theirs) and ours.columns == theirs.columns, each
