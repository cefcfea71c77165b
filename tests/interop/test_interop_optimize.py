"""delta-spark and deltalake read every version of tables that deltalog has optimized, and optimize them again."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pytest

from deltalog import DeltaTable
from tests.support.core import info
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.shapes import SCHEMA, batch

VECTORS = {"delta.enableDeletionVectors": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
TRACKED = {"delta.enableRowTracking": "true"}
MODES = {
    "plain": {},
    "everything": {**VECTORS, **CHANGES, **TRACKED, "delta.columnMapping.mode": "name"},
}


def optimized(path: Path, properties: dict[str, str], partition_by: tuple[str, ...]) -> DeltaTable:
    """A compaction, a purge and a Z-ordering, with other changes between them."""
    table = DeltaTable.create(str(path), SCHEMA, properties=properties, partition_by=partition_by)
    for start in range(0, 60, 12):
        table.append(batch(start, 12))
    table.delete("id IN (3, 4, 50)")
    assert table.optimize.compact().rows == 57
    table.update({"amount": "amount + 1"}, "id < 20")
    table.delete("id = 7")
    table.optimize.purge()
    table.append(batch(60, 12))
    report = table.optimize.z_order(["id", "name"], target_size=table.snapshot().size_bytes // 3)
    assert report.rows == 68
    return table


@pytest.mark.sampled(2)
@pytest.mark.parametrize("partition_by", [(), ("place",)], ids=["plain", "partitioned"])
@pytest.mark.parametrize("mode", MODES)
def test_every_version_has_the_same_rows(
    delta: DeltaSpark, tmp_path: Path, mode: str, partition_by: tuple[str, ...]
) -> None:
    path = tmp_path / "t"
    table = optimized(path, MODES[mode], partition_by)
    for version in range(table.version + 1):
        rows = plain_rows(table.snapshot(version).scan().to_arrow())
        assert plain_rows(delta.table(path, version)) == rows
        assert (path / "_delta_log" / f"{version:020d}.crc").exists()
        if mode == "plain":
            assert plain_rows(deltalake.DeltaTable(str(path), version).to_pyarrow_table()) == rows
    assert delta.checksum_defect(path) is None
    if mode == "everything":
        assert plain_rows(table.changes(0).to_arrow()) == plain_rows(delta.changes(path))
        ids = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
        ours = table.snapshot().scan(ids).to_arrow().to_pylist()
        theirs = delta.spark.read.format("delta").load(str(path)).select(*ids).collect()
        assert sorted(tuple(row.values()) for row in ours) == sorted(map(tuple, theirs))
    delta.sql(f"OPTIMIZE delta.`{path}`")
    table = DeltaTable.open(str(path))
    before = plain_rows(table.snapshot().scan().to_arrow())
    table.append(batch(100, 2))
    table.optimize.compact()
    assert table.snapshot().num_files <= 8
    assert plain_rows(delta.table(path)) == plain_rows(table.snapshot().scan().to_arrow()) != before


def test_the_history_is_that_of_delta_spark(delta: DeltaSpark, tmp_path: Path) -> None:
    """On the same table, both engines record the same parameters and metrics, and write files with the same rows."""
    found = []
    for name in ("ours", "theirs"):
        path = tmp_path / name
        table = DeltaTable.create(str(path), SCHEMA, properties=VECTORS, partition_by=["place"])
        for start in range(0, 40, 10):
            table.append(batch(start, 10))
        if name == "ours":
            table.optimize.compact()
            table.delete("id < 3")
            table.optimize.purge()
            table.optimize.z_order(["id", "name"])
        else:
            delta.sql(f"OPTIMIZE delta.`{path}`")
            DeltaTable.open(str(path)).delete("id < 3")
            delta.sql(f"REORG TABLE delta.`{path}` APPLY (PURGE)")
            delta.sql(f"OPTIMIZE delta.`{path}` ZORDER BY (id, name)")
        table = DeltaTable.open(str(path))
        told = []
        for version in (5, 7, 8):
            body = info(table._handle.reader.store, version)
            parameters = {
                key: json.loads(str(v).lower()) if v != "[]" else [] for key, v in body["operationParameters"].items()
            }
            counts = {
                key: v for key, v in body["operationMetrics"].items() if key.startswith("num") and "Bytes" not in key
            }
            told.append(
                (body["operation"], body["isolationLevel"], parameters, counts, sorted(body["operationMetrics"]))
            )
        found.append(told)
    assert found[0] == found[1]
