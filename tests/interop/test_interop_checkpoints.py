"""Each engine uses the checkpoints, `_last_checkpoint` and `.crc` files that the other wrote."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from deltalog import DeltaTable, Environment
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.agreement import assert_same_rows, assert_same_time_travel
from tests.support.spark.log_files import commits, drop_below
from tests.support.spark.shapes import SCHEMA, Shape, SparkWriter, Writer, appends, batch

DAY_MS = 86_400_000
# Without a long retention, delta-spark refuses to time travel to old versions.
NO_RETENTION_CHECK = {"delta.deletedFileRetentionDuration": "interval 10000 days"}

SHAPES = {
    "ict": Shape(appends(0, 3, 6), ict=True),
    "enabled-late": Shape([("append", 0), ("enable",), ("append", 3)]),
    "enabled-late-above-the-checkpoint": Shape(appends(0, 3, 6)),
    "partitioned": Shape([*appends(0, 3), ("overwrite", 20)], ict=True, partition_by=("place",)),
    "no-ict": Shape(appends(0, 3, 6)),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("by", "name"),
    [
        *(("deltalog", name) for name in SHAPES),
        *(("delta-spark", name) for name in ("enabled-late-above-the-checkpoint", "partitioned")),
    ],
)
def test_a_log_that_begins_at_a_checkpoint(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path, by: str, name: str
) -> None:
    path, shape = tmp_path / "table", SHAPES[name]
    writers[by].create(path, shape)
    for step in shape.steps:
        writers[by].step(path, step)
    if by == "deltalog":
        DeltaTable.open(str(path)).checkpoint()
    else:
        delta.checkpoint(path)
    if name == "enabled-late-above-the-checkpoint":
        writers[by].step(path, ("enable",))
    writers[by].step(path, ("append", 40))
    latest = max(commits(path))
    drop_below(path, 3)
    delta.forget()
    assert sorted(commits(path)) == list(range(3, latest + 1))

    for version in range(3, latest + 1):
        assert_same_rows(delta, path, version)
    assert_same_time_travel(delta, path)
    hint = delta.last_checkpoint(path)
    snapshot = DeltaTable.open(str(path)).snapshot(version=3)
    assert hint is not None and hint[0] == 3 and hint[1] >= snapshot.num_files + 2
    rows = deltalake.DeltaTable(str(path)).to_pyarrow_table().select(SCHEMA.names)
    assert plain_rows(rows) == plain_rows(delta.table(path))

    for start, engine in enumerate(("delta-spark", "deltalog", "delta-spark")):
        writers[engine].step(path, ("append", 60 + 3 * start))
    assert_same_rows(delta, path)
    assert_same_time_travel(delta, path)
    assert delta.checksum_defect(path) is None


@pytest.mark.parametrize("partition_by", [(), ("place",)], ids=["plain", "partitioned"])
def test_statistics_survive_a_deltalog_checkpoint(
    delta: DeltaSpark, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    """delta-spark uses the statistics in the checkpoint to skip all files except the one that it needs."""
    path = tmp_path / "table"
    table = DeltaTable.create(str(path), SCHEMA, partition_by=partition_by, properties={})
    for start in range(0, 40, 10):
        table.append(batch(start, 10))
    table.checkpoint()
    drop_below(path, table.version)
    delta.forget()
    total = table.snapshot().num_files
    for wanted in (0, 19, 20, 39):
        frame = delta.spark.read.format("delta").load(str(path)).where(f"id = {wanted}")
        assert frame.count() == 1
        assert len(frame.inputFiles()) < total


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ict", [True, False], ids=["ict", "no-ict"])
@pytest.mark.parametrize("partition_by", [(), ("place",)], ids=["plain", "partitioned"])
def test_every_crc_that_deltalog_writes_is_valid_for_delta_spark(
    delta: DeltaSpark, tmp_path: Path, ict: bool, partition_by: tuple[str, ...]
) -> None:
    path = tmp_path / "table"
    shape = Shape((), ict=ict, partition_by=partition_by)
    table = DeltaTable.create(str(path), SCHEMA, partition_by=partition_by, properties=shape.properties)
    assert delta.checksum_defect(path) is None
    table.append(batch(0), txn=("job", 1))
    assert delta.checksum_defect(path) is None
    table.append(batch(3), txn=("job", 2))
    table.overwrite(batch(6))
    assert delta.checksum_defect(path) is None
    table.set_properties({"made.by": "deltalog"})
    assert delta.checksum_defect(path) is None
    table.disable_in_commit_timestamps() if ict else table.enable_in_commit_timestamps()
    assert delta.checksum_defect(path) is None


def test_delta_spark_can_read_a_last_checkpoint_that_deltalog_replaced(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path
) -> None:
    """Hadoop keeps a checksum of the file in `._last_checkpoint.crc`. If this checksum file remains after
    `_last_checkpoint` was replaced, delta-spark refuses the new file, retries for seconds and gives up; it then reports
    a size of -1."""
    path = tmp_path / "table"
    writers["delta-spark"].create(path, Shape((), ict=True))
    writers["delta-spark"].step(path, ("append", 0))
    delta.checkpoint(path)
    writers["deltalog"].step(path, ("append", 3))
    table = DeltaTable.open(str(path))
    table.checkpoint()
    hint = delta.last_checkpoint(path)
    assert hint is not None
    assert hint == (2, table.snapshot().num_files + 2)


@pytest.mark.parametrize("by", ["deltalog", "delta-spark"])
def test_the_crc_chain_goes_on_above_a_checkpoint(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path, by: str
) -> None:
    """The first commit by a process that opened the table exactly at a checkpoint has a `.crc` too."""
    path = tmp_path / "table"
    writers[by].create(path, Shape((), ict=True, interval=2))
    for start in (0, 3):
        writers[by].step(path, ("append", start))
    assert DeltaTable.open(str(path)).append(batch(6)).version == 3
    assert delta.checksum_defect(path) is None


V2 = {
    "delta.checkpointPolicy": "v2",
    "delta.feature.v2Checkpoint": "supported",
    "delta.enableInCommitTimestamps": "true",
}
V2_FORMS: dict[str, dict[str, Any]] = {
    "parquet": {"top_level": "parquet"},
    "json": {"top_level": "json"},
    "parquet with sidecars": {"top_level": "parquet", "sidecar_rows": 3},
    "json with sidecars": {"top_level": "json", "sidecar_rows": 3},
}


def deltalake_rows(path: Path) -> list[list[object]]:
    """The rows as read by deltalake's query engine, which supports more features than deltalake's pyarrow reader, such
    as V2 checkpoints."""
    columns = ", ".join(SCHEMA.names)
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path)))
    return plain_rows(pa.table(query.execute(f"SELECT {columns} FROM t").read_all()))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("partition_by", [(), ("place",)], ids=["plain", "partitioned"])
@pytest.mark.parametrize("form", V2_FORMS)
def test_a_v2_checkpoint_is_read_by_delta_spark_and_where_it_can_by_deltalake(
    delta: DeltaSpark, tmp_path: Path, form: str, partition_by: tuple[str, ...]
) -> None:
    path = tmp_path / "table"
    table = DeltaTable.create(str(path), SCHEMA, partition_by=partition_by, properties=V2)
    for start in range(0, 40, 10):
        table.append(batch(start, 10), txn=("job", start))
    table.checkpoint(**V2_FORMS[form])
    drop_below(path, table.version)
    names = [file.name for file in (path / "_delta_log").iterdir() if ".checkpoint." in file.name]
    assert len(names) == 1 and names[0].endswith(form.split()[0])
    assert (path / "_delta_log" / "_sidecars").exists() == ("sidecars" in form)

    delta.forget()
    assert_same_rows(delta, path)
    hint = delta.last_checkpoint(path)
    assert hint is not None and hint[0] == table.version
    assert delta.checksum_defect(path) is None
    frame = delta.spark.read.format("delta").load(str(path)).where("id = 19")
    assert frame.count() == 1 and len(frame.inputFiles()) < table.snapshot().num_files  # by the file's statistics
    assert deltalake_rows(path) == plain_rows(delta.table(path))
    SparkWriter(delta).step(path, ("append", 50))
    assert table.append(batch(60)).version == 6
    assert_same_rows(delta, path)


def test_delta_spark_reads_a_compacted_log_as_the_commits(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    shape = Shape((), ict=True)
    table = DeltaTable.create(str(path), SCHEMA, properties=shape.properties)
    table.append(batch(0), txn=("job", 1))
    table.overwrite(batch(10))
    table.append(batch(20), txn=("job", 2))
    assert table.compact_log(1, 3) == (1, 3)
    table.append(batch(30))
    delta.forget()
    assert_same_rows(delta, path)
    assert_same_time_travel(delta, path)
    assert delta.checksum_defect(path) is None
    used = delta._snapshot(path).logSegment().deltas().mkString(" ")
    assert f"{1:020d}.{3:020d}.compacted.json" in used
    assert deltalake_rows(path) == plain_rows(delta.table(path))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["ict", "no-ict", "v2"])
def test_a_cleaned_log_is_read_by_both(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path, name: str
) -> None:
    """The log contains commits from two months and a checkpoint; then a commit is made today, and its clean-up removes
    everything older than the retention."""
    path = tmp_path / "table"
    now_ms = time.time_ns() // 1_000_000
    clock_ms = now_ms - 60 * DAY_MS
    environment = Environment(clock_ms=lambda: clock_ms)
    properties = {**(V2 if name == "v2" else Shape((), ict=name == "ict").properties), **NO_RETENTION_CHECK}
    table = DeltaTable.create(str(path), SCHEMA, properties=properties, environment=environment)
    for start in range(0, 60, 10):
        clock_ms += 9 * DAY_MS
        table.append(batch(start))
        if start in (10, 30):
            table.checkpoint(sidecar_rows=1)
    for version, file in commits(path).items():
        at_s = (now_ms - 60 * DAY_MS + version * 9 * DAY_MS) / 1000
        os.utime(file, (at_s, at_s))
    clock_ms = now_ms
    report = table.cleanup_log()
    assert report.first_version == 2 and report.unreachable == (0, 1)
    assert sorted(commits(path)) == [2, 3, 4, 5, 6]
    delta.forget()
    for version in range(2, 7):
        assert_same_rows(delta, path, version)
    assert_same_time_travel(delta, path)
    assert deltalake_rows(path) == plain_rows(delta.table(path))
    writers["delta-spark"].step(path, ("append", 80))
    assert_same_rows(delta, path)


def test_the_check_of_the_crc_can_fail(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    DeltaTable.create(str(path), SCHEMA, data=batch(0))
    crc = path / "_delta_log" / f"{0:020d}.crc"
    body = json.loads(crc.read_text())
    crc.write_text(json.dumps({**body, "numFiles": body["numFiles"] + 1}))
    assert "Number of files" in (delta.checksum_defect(path) or "")
    crc.unlink()
    assert delta.checksum_defect(path) == "there is no readable .crc"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", ["cut off", "missing", "points nowhere", "older than the newest"])
def test_a_bad_last_checkpoint_misleads_neither(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "table"
    shape = Shape(appends(0, 3, 6, 9, 12), ict=True, interval=2)
    writers["deltalog"].create(path, shape)
    for step in shape.steps:
        writers["deltalog"].step(path, step)
    hint = path / "_delta_log" / "_last_checkpoint"
    body = json.loads(hint.read_text())
    if damage == "missing":
        hint.unlink()
    elif damage == "cut off":
        hint.write_bytes(hint.read_bytes()[: hint.stat().st_size // 2])
    else:
        wrong = 77 if damage == "points nowhere" else 2
        hint.write_text(json.dumps({"version": wrong, "size": body["size"]}))
    delta.forget()
    table = DeltaTable.open(str(path))
    assert table.version == 5
    assert plain_rows(table.snapshot().scan().to_arrow()) == shape.model()[-1]
    if damage != "points nowhere":  # otherwise delta-spark may refuse the table, although deltalog reads it
        assert_same_rows(delta, path)
