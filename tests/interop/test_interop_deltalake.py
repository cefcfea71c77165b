"""deltalog and deltalake (delta-rs) on the same tables. These tests need no JVM; other tests read what delta-spark
wrote.

delta-rs does not write to tables with in-commit timestamps, so tables that both write have none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from deltalog import DeltaTable
from tests.support.spark.log_files import commits, in_commit_timestamps
from tests.support.spark.rows import plain_rows
from tests.support.spark.shapes import PLACES, SCHEMA, Shape, batch

PARTITIONS = pytest.mark.parametrize("partition_by", [(), ("place",)], ids=["plain", "partitioned"])


def rust_append(path: Path, rows: pa.Table, partition_by: tuple[str, ...] = (), **options: Any) -> None:
    deltalake.write_deltalake(str(path), rows, mode="append", partition_by=list(partition_by) or None, **options)


def rust_rows(path: Path, version: int | None = None) -> list[list[Any]]:
    table: Any = deltalake.DeltaTable(str(path), version=version)
    return plain_rows(table.to_pyarrow_table().select(SCHEMA.names))


def our_rows(path: Path, version: int | None = None) -> list[list[Any]]:
    snapshot = DeltaTable.open(str(path)).snapshot(version=version)
    return plain_rows(snapshot.scan().to_arrow().select(SCHEMA.names))


@PARTITIONS
def test_a_table_that_deltalake_wrote(tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    path, shape = tmp_path / "table", Shape((), partition_by=partition_by)
    rust_append(path, batch(0, 8), partition_by)
    rust_append(path, batch(8, 8), partition_by)
    deltalake.DeltaTable(str(path)).delete("id = 3")
    deltalake.write_deltalake(str(path), batch(30), mode="overwrite")
    everything = pa.concat_tables([batch(0, 8), batch(8, 8)])
    expected = [
        batch(0, 8),
        everything,
        everything.filter(pa.compute.not_equal(everything["id"], 3)),
        batch(30),
    ]
    assert [our_rows(path, v) for v in range(4)] == [shape.as_read(rows) for rows in expected]
    history = DeltaTable.open(str(path)).history()
    assert [e.operation for e in history] == ["WRITE", "DELETE", "WRITE", "WRITE"]
    for entry in history:
        assert entry.clock == "file-modification"
        assert DeltaTable.open(str(path)).version_at(entry.timestamp_ms or 0).version == entry.version


@pytest.mark.sampled(3)
@PARTITIONS
@pytest.mark.parametrize("creator", ["deltalake", "deltalog"])
def test_appends_in_turn_with_checkpoints_by_both(tmp_path: Path, creator: str, partition_by: tuple[str, ...]) -> None:
    path, shape = tmp_path / "table", Shape((), partition_by=partition_by)
    table = None
    if creator == "deltalog":
        table = DeltaTable.create(str(path), SCHEMA, partition_by=partition_by, data=batch(0))
    else:
        rust_append(path, batch(0), partition_by)
        table = DeltaTable.open(str(path))
    for turn in range(1, 9):
        if turn % 2:
            table.append(batch(3 * turn))
        else:
            rust_append(path, batch(3 * turn))
        if turn == 3:
            table.checkpoint()
        if turn == 6:
            deltalake.DeltaTable(str(path)).create_checkpoint()
    for version in (0, 4, 7, 8):
        expected = shape.as_read(pa.concat_tables([batch(3 * turn) for turn in range(version + 1)]))
        assert our_rows(path, version) == expected
        assert rust_rows(path, version) == expected
    assert set(in_commit_timestamps(path).values()) == {None}
    for version, file in commits(path).items():  # each engine reads the latest state from the other's checkpoint
        if version < 6:
            file.unlink()
    assert our_rows(path) == rust_rows(path) == expected
    table.append(batch(90))
    rust_append(path, batch(93))
    assert our_rows(path) == rust_rows(path)
    assert len(our_rows(path)) == 3 * 11


def test_deltalake_reads_through_a_deltalog_checkpoint_alone(tmp_path: Path) -> None:
    path = tmp_path / "table"
    properties = {"delta.enableInCommitTimestamps": "true", "delta.checkpointInterval": "4"}
    table = DeltaTable.create(str(path), SCHEMA, partition_by=["place"], properties=properties)
    for turn in range(5):
        table.append(batch(turn * len(PLACES), len(PLACES)))
    for version, file in commits(path).items():
        if version < 4:
            file.unlink()
    rust: Any = deltalake.DeltaTable(str(path))
    assert rust.version() == 5
    assert rust_rows(path) == our_rows(path) and len(rust_rows(path)) == 5 * len(PLACES)
    assert set(rust.file_uris()) == {str(path / f) for f in _decoded(table)}, "both name the same files"
    part = plain_rows(rust.to_pyarrow_table(filters=[("id", "=", 9)]).select(SCHEMA.names))
    assert part == plain_rows(batch(9, 1))


def _decoded(table: DeltaTable) -> list[str]:
    snapshot = table.snapshot()
    root = Path(snapshot.file_path("x")).parent
    return [str(Path(snapshot.file_path(p)).relative_to(root)) for p in snapshot.files()["path"].to_pylist()]


def test_application_transactions(tmp_path: Path) -> None:
    path = tmp_path / "table"
    commit = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("job", 4)])
    rust_append(path, batch(0), commit_properties=commit)
    table = DeltaTable.open(str(path))
    assert table.snapshot().transaction_version("job") == 4
    assert table.append(batch(3), txn=("job", 4)).skipped
    table.append(batch(3), txn=("job", 5))
    assert deltalake.DeltaTable(str(path)).transaction_version("job") == 5


def test_deltalake_types_in_deltalog(tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = pa.table(
        {
            "flag": pa.array([True, None]),
            "tiny": pa.array([-128, None], pa.int8()),
            "small": pa.array([32767, None], pa.int16()),
            "whole": pa.array([-5, None], pa.int32()),
            "real": pa.array([1.5, None], pa.float32()),
            "money": pa.array([None, None], pa.decimal128(10, 2)),
            "raw": pa.array([b"\x00\xff", None]),
            "day": pa.array([0, None], pa.date32()),
            "moment": pa.array([1_700_000_000_123_456, None], pa.timestamp("us", tz="UTC")),
            "numbers": pa.array([[1, None], None], pa.list_(pa.int32())),
            "pairs": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "nested": pa.array([{"a": {"b": "x"}}, None], pa.struct([("a", pa.struct([("b", pa.string())]))])),
        }
    )
    rust_append(path, rows)
    DeltaTable.open(str(path)).append(rows)
    table: Any = deltalake.DeltaTable(str(path))
    expected = plain_rows(pa.concat_tables([rows, rows]))
    assert plain_rows(DeltaTable.open(str(path)).snapshot().scan().to_arrow()) == expected
    assert plain_rows(table.to_pyarrow_table()) == expected
