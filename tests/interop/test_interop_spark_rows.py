"""The same calls of ``spark_ext.DeltaTable`` and delta-spark's ``DeltaTable`` on identical tables produce the same
rows, change feeds, row ids, operations and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.twins import CHANGES, IDS, MODES, SCHEMA, VECTORS, twins

SHAPES: Mapping[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "vectors, changes, ids, by name, partitioned": (MODES["vectors, changes, ids, by name"], ("p",)),
    "moved, changes": (CHANGES, ()),
    "moved, ids": (IDS, ("p",)),
    "vectors": (VECTORS, ()),
}
COLUMNS = pa.schema([field for field in SCHEMA if field.name != "d"])


def merge(table: Any, spark: Any, start: int, end: int, step: int) -> Any:
    columns = "id, if(id % 2 = 0, 'a', 'd') AS p, cast(100 + id AS int) AS n, named_struct('x', 1, 'y', 'z') AS s"
    source = spark.sql(f"SELECT {columns} FROM range({start}, {end}, {step}, 2)").alias("s")
    return table.alias("t").merge(source, "t.id = s.id")


Step = Callable[[Any, Any], Any]
STEPS: Mapping[str, Step] = {
    "delete": lambda table, spark: table.delete("id % 7 = 3"),
    "update": lambda table, spark: table.update("id % 3 = 1", {"n": "n + 1", "s.y": "concat(p, '!')"}),
    "update a struct that is null": lambda table, spark: table.update("s IS NULL OR id < 5", {"s.x": "7"}),
    "move between partitions": lambda table, spark: table.update("p = 'a' AND id > 4", {"p": "'c'"}),
    "delete by partition": lambda table, spark: table.delete("p = 'b'"),
    "upsert": lambda table, spark: (
        merge(table, spark, 5, 30, 3).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    ),
    "all clauses in order": lambda table, spark: (
        merge(table, spark, 0, 40, 4)
        .whenMatchedDelete("s.id > 20")
        .whenMatchedUpdate("t.n IS NOT NULL", {"n": "t.n + s.n", "t.p": "'m'", "s.y": "concat(s.p, '?')"})
        .whenMatchedUpdate(set={"n": "0"})
        .whenNotMatchedInsert("s.id > 33", {"id": "s.id", "n": "-1"})
        .whenNotMatchedInsert(values={"id": "s.id", "p": "s.p"})
        .whenNotMatchedBySourceUpdate("t.id < 6", {"n": "t.n * 10"})
        .whenNotMatchedBySourceDelete("t.p = 'c'")
        .execute()
    ),
    "insert only": lambda table, spark: merge(table, spark, 30, 60, 2).whenNotMatchedInsertAll("s.id <> 40").execute(),
    "update all": lambda table, spark: table.update(set={"p": "upper(p)"}),
    "delete all": lambda table, spark: table.delete(),
}
METRICS = {
    "DELETE": ("numDeletedRows", "numDeletionVectorsAdded", "numDeletionVectorsUpdated"),
    "MERGE": (
        *("numSourceRows", "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
        *("numTargetRowsMatchedUpdated", "numTargetRowsMatchedDeleted"),
        *("numTargetRowsNotMatchedBySourceUpdated", "numTargetRowsNotMatchedBySourceDeleted"),
    ),
    "UPDATE": ("numUpdatedRows", "numDeletionVectorsAdded", "numDeletionVectorsUpdated"),
}


@pytest.mark.parametrize(
    ("properties", "partition_by"),
    [
        # In a usual run only "moved, changes" runs here; test_interop_merge.py covers deletion vectors.
        pytest.param(*shape, id=name, marks=() if name == "moved, changes" else pytest.mark.long)
        for name, shape in SHAPES.items()
    ],
)
def test_rows_change_as_by_delta_spark(
    delta: DeltaSpark, tmp_path: Path, properties: dict[str, str], partition_by: tuple[str, ...]
) -> None:
    from delta.tables import DeltaTable

    spark = delta.spark
    ours, theirs = twins(tmp_path, properties, partition_by, COLUMNS)
    mine, twin = spark_ext.DeltaTable.forPath(spark, str(ours)), DeltaTable.forPath(spark, str(theirs))
    for name, step in STEPS.items():
        step(mine, spark)
        step(twin, spark)
        assert plain_rows(delta.table(ours)) == plain_rows(delta.table(theirs)), name
        check_the_commit(delta, ours, theirs, name)
        if "delta.enableRowTracking" in properties:
            query = "SELECT id, _metadata.row_id, _metadata.row_commit_version FROM delta.`{}`"
            ids = [sorted(tuple(row) for row in delta.sql(query.format(path)).collect()) for path in (ours, theirs)]
            # Rows that a merge inserts get row ids in the order of their files.
            kept = [[row for row in each if row[1] < 24] for each in ids]
            assert kept[0] == kept[1] and len(ids[0]) == len(ids[1]) == len({row[1] for row in ids[0]}), name
    if "delta.enableChangeDataFeed" in properties:
        found = [plain_rows(delta.changes(path).drop_columns(["_commit_timestamp"])) for path in (ours, theirs)]
        assert found[0] == found[1]
        own = deltalog.DeltaTable.open(str(ours)).changes(0).to_arrow().drop_columns(["_commit_timestamp"])
        assert plain_rows(own) == found[0]
    assert delta.checksum_defect(ours) is None


def check_the_commit(delta: DeltaSpark, ours: Path, theirs: Path, name: str) -> None:
    """Compare the last history entries, but only those metrics that do not depend on the distribution of rows over
    files."""
    mine, twin = (delta.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0] for path in (ours, theirs))
    for column in ("version", "operation", "isBlindAppend"):
        assert mine[column] == twin[column], (name, column)
    for metric in METRICS[mine["operation"]]:
        if metric in twin["operationMetrics"] and ("Rows" in metric or mine["version"] == 3):
            assert mine["operationMetrics"].get(metric) == twin["operationMetrics"][metric], (name, metric)
