"""delta-spark reads tables of the write contract, with their commit metadata and blobs."""

from __future__ import annotations

import json
from pathlib import Path

from deltalog import Dataset
from deltalog.protocol.paths import commit_path
from tests.support.core import SCHEMA, rows
from tests.support.spark import DeltaSpark

# The commit is longer than the 4 KiB that are read first.
METADATA = {"run": {"id": 7, "tags": ["a", None]}, "text": "ä" * 3000}


def test_delta_spark_reads_and_goes_on_with_a_table_whose_commits_carry_metadata(
    delta: DeltaSpark, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    dataset = Dataset(path, schema=SCHEMA)
    dataset.write(rows(1), METADATA, checksum="sha256")
    dataset.stream_write_records([{"id": 2}, {"id": 3}], METADATA)
    delta.sql(f"INSERT INTO delta.`{path}` SELECT 4L, 'n4'")
    delta.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    dataset.write(rows(5))
    found = delta.sql(f"SELECT id FROM delta.`{path}` ORDER BY id").toArrow()["id"].to_pylist()
    assert found == [2, 3, 4, 5]
    history = delta.sql(f"DESCRIBE HISTORY delta.`{path}`").toArrow().to_pylist()
    assert [entry["operation"] for entry in history] == ["WRITE", "DELETE", "WRITE", "WRITE", "WRITE"]
    summaries = dataset.snapshots()
    assert [summary.metadata for summary in summaries] == [METADATA, METADATA, None, None, {}]
    assert [summary.row_count for summary in summaries] == [1, 2, 1, 0, 1]
    assert [entry["timestamp"].timestamp() * 1000 for entry in reversed(history)] == [
        summary.created_ms for summary in summaries
    ]


def test_delta_spark_reads_blobs_by_their_rows_and_its_vacuum_leaves_them(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "blobs"
    dataset = Dataset(path)
    for data in (b"first", b"second"):
        dataset.write(data, checksum="sha256")
    joined = delta.sql(
        f"SELECT b.size, f.length, b.sha256 = sha2(f.content, 256) AS same FROM delta.`{path}` b "
        f"JOIN (SELECT * FROM binaryFile.`{path}/_blobs`) f ON f.path LIKE concat('%/', b.path)"
    ).toArrow()
    assert sorted(joined.to_pylist(), key=lambda row: row["size"]) == [
        {"size": 5, "length": 5, "same": True},
        {"size": 6, "length": 6, "same": True},
    ]
    (path / "stray.parquet").write_bytes(b"stray")
    delta.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    delta.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    assert not (path / "stray.parquet").exists()
    assert [dataset.open_blob(version=version).read() for version in (0, 1)] == [b"first", b"second"]
    first = (path / commit_path(0)).read_text().splitlines()[0]
    told = json.loads(first)["commitInfo"]["deltalog"]
    assert told["parent"] is None and told["blob"]["size"] == 5
