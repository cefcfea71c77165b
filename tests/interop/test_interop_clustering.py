"""Clustered tables: deltalog and delta-spark read each other's clustering columns and keep each other's cubes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import spark_ext
from deltalog import DeltaTable
from tests.support.spark import DeltaSpark, plain_rows

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.struct([("y", pa.int64())])), ("v", pa.string())])
MODES = {"plain": "none", "mapped": "name"}


def rows(seed: int) -> pa.Table:
    chance = random.Random(seed)
    ids = [chance.randrange(10_000) for _ in range(200)]
    return pa.table({"x": ids, "s": [{"y": n % 7} for n in ids], "v": [f"{seed}-{n}" for n in ids]}, SCHEMA)


def insert(delta: DeltaSpark, path: Path, seed: int) -> None:
    delta.sql(
        f"INSERT INTO delta.`{path}` SELECT (id * 7919 + {seed}) % 10000, named_struct('y', id % 7), "
        f"concat('{seed}-', id) FROM range(0, 200, 1, 1)"
    )


def columns(delta: DeltaSpark, path: Path) -> Any:
    return delta.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]["clusteringColumns"]


def optimized(delta: DeltaSpark, path: Path, full: str = "") -> tuple[int, int]:
    metrics = delta.sql(f"OPTIMIZE delta.`{path}` {full}").collect()[0]["metrics"]
    return metrics["numFilesRemoved"], metrics["numFilesAdded"]


def same(delta: DeltaSpark, path: Path, count: int) -> None:
    table = DeltaTable.open(str(path))
    found = table.to_pyarrow_table()
    # A commit that follows several commits by delta-spark may have no .crc, if its totals cannot be computed from the
    # part of the log that the handle has read.
    assert found.num_rows == count and {each.rule for each in table.check(deep=True).findings} <= {"crc-missing"}
    assert plain_rows(delta.spark.read.format("delta").load(str(path)).toArrow()) == plain_rows(found)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_table_of_deltalog(delta: DeltaSpark, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "t"
    properties = {"delta.columnMapping.mode": mode}
    table = DeltaTable.create(str(path), SCHEMA, cluster_by=["x", "s.y"], properties=properties, data=rows(1))
    assert columns(delta, path) == ["x", "s.y"]
    table.append(rows(2))
    assert len(table.optimize.compact().removed) == 2
    assert optimized(delta, path) == (0, 0), "one cube, in which all files are"
    insert(delta, path, 3)
    assert optimized(delta, path) == (2, 1), "the cube is small: it is clustered again, with the new file"
    assert table.optimize.compact().bins == 0
    same(delta, path, 600)
    table.cluster_by(["v"])
    assert columns(delta, path) == ["v"] and optimized(delta, path) == (0, 0)
    assert optimized(delta, path, "FULL") == (1, 1) and table.optimize.compact(full=True).bins == 0
    table.cluster_by([])
    assert columns(delta, path) == []
    same(delta, path, 600)


def test_a_table_of_delta_spark(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "t"
    delta.sql(f"CREATE TABLE delta.`{path}` (x BIGINT, s STRUCT<y: BIGINT>, v STRING) USING delta CLUSTER BY (x, s.y)")
    table = DeltaTable.open(str(path))
    insert(delta, path, 1)
    insert(delta, path, 2)
    assert optimized(delta, path) == (2, 1) and table.optimize.compact().bins == 0
    theirs = [dict(tags) for tags in table.snapshot().files(["tags"])["tags"].to_pylist()]
    table.append(rows(3))
    assert len(table.optimize.compact().removed) == 2
    ours = [dict(tags) for tags in table.snapshot().files(["tags"])["tags"].to_pylist()]
    assert [{**each, "ZCUBE_ID": ""} for each in theirs] == [{**each, "ZCUBE_ID": ""} for each in ours]
    insert(delta, path, 4)
    assert optimized(delta, path) == (2, 1)
    delta.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY (v)")
    assert table.snapshot().clustering_columns == (("v",),) and table.optimize.compact().bins == 0
    assert len(table.optimize.compact(full=True).removed) == 1 and optimized(delta, path, "FULL") == (0, 0)
    delta.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY NONE")
    assert table.snapshot().clustering_columns == ()
    same(delta, path, 800)


def test_tables_that_are_replaced(delta: DeltaSpark, tmp_path: Path) -> None:
    """After CREATE OR REPLACE without CLUSTER BY, the table is not clustered."""
    by_whom: dict[str, Callable[[str], Any]] = {
        "delta-spark": delta.sql,
        "spark_ext": lambda text: spark_ext.sql(delta.spark, text),
    }
    for name, sql in by_whom.items():
        path = tmp_path / name
        sql(f"CREATE TABLE delta.`{path}` (x BIGINT) USING delta CLUSTER BY (x)")
        sql(f"CREATE OR REPLACE TABLE delta.`{path}` USING delta CLUSTER BY (v, x) AS SELECT 1 AS x, 'a' AS v")
        assert columns(delta, path) == ["v", "x"], name
        assert DeltaTable.open(str(path)).snapshot().clustering_columns == (("v",), ("x",)), name
        sql(f"CREATE OR REPLACE TABLE delta.`{path}` USING delta AS SELECT 2 AS x")
        assert columns(delta, path) == [], name
        assert DeltaTable.open(str(path)).snapshot().clustering_columns == (), name


def test_a_table_without_the_feature_again(delta: DeltaSpark, tmp_path: Path) -> None:
    """delta-spark 4.4.0 cannot drop the feature, but uses the table like any other once deltalog has dropped it."""
    path = tmp_path / "t"
    delta.sql(f"CREATE TABLE delta.`{path}` (x BIGINT, s STRUCT<y: BIGINT>, v STRING) USING delta CLUSTER BY (x)")
    insert(delta, path, 1)
    insert(delta, path, 2)
    assert optimized(delta, path) == (2, 1)
    with pytest.raises(Exception, match="DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"):
        delta.sql(f"ALTER TABLE delta.`{path}` DROP FEATURE clustering")
    table = DeltaTable.open(str(path))
    table.drop_feature("clustering")
    assert columns(delta, path) == [] and "clustering" not in delta.protocol(path)["writerFeatures"]
    insert(delta, path, 3)
    assert optimized(delta, path) == (2, 1), "all files together: there is no cube"
    delta.sql(f"DELETE FROM delta.`{path}` WHERE v LIKE '3-%'")
    same(delta, path, 400)
    delta.sql(f"ALTER TABLE delta.`{path}` DROP FEATURE domainMetadata")
    delta.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY (v)")
    assert table.snapshot().clustering_columns == (("v",),)
    table.append(rows(4))
    same(delta, path, 600)


def test_parameters_in_the_history_are_those_of_delta_spark(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = DeltaTable.create(str(path), SCHEMA, data=rows(1))
    table.cluster_by(["x", "s.y"])
    delta.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY (x)")
    delta.sql(f"ALTER TABLE delta.`{path}` CLUSTER BY (x, s.y)")
    optimized(delta, path)
    insert(delta, path, 2)
    table.optimize.compact()
    found = {
        row["version"]: (row["operation"], row["operationParameters"])
        for row in delta.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
    }
    assert found[1] == ("CLUSTER BY", {"oldClusteringColumns": "", "newClusteringColumns": "x,s.y"})
    assert found[2] == ("CLUSTER BY", {"oldClusteringColumns": "x,s.y", "newClusteringColumns": "x"})
    assert found[6] == found[4] and found[4][0] == "OPTIMIZE"
