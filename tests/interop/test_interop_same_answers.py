"""delta-spark and deltalog return the same results for a table, whichever of them wrote it."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import deltalake
import pytest

import deltalog
from deltalog import DeltaTable
from deltalog.log.checkpoint.writer import write_checkpoint
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.agreement import EARLY, LATE, assert_same_time_travel
from tests.support.spark.log_files import commits, get_mtimes, in_commit_timestamps, set_mtimes
from tests.support.spark.shapes import Written


def test_rows_of_every_version(delta: DeltaSpark, written: Written) -> None:
    table = DeltaTable.open(str(written.path))
    assert table.version == delta.latest(written.path) == written.latest
    for version, rows in enumerate(written.rows):
        assert plain_rows(table.snapshot(version=version).scan().to_arrow()) == rows, f"deltalog, {version}"
        assert plain_rows(delta.table(written.path, version)) == rows, f"delta-spark, {version}"


def test_history_and_time_travel(delta: DeltaSpark, written: Written) -> None:
    assert_same_time_travel(delta, written.path)


def test_spark_read_with_timestamp_as_of(delta: DeltaSpark, written: Written) -> None:
    """Compares the rows that delta-spark's reader returns for a sample of times; the other tests query delta-spark's
    history manager."""
    table = DeltaTable.open(str(written.path))
    times = [entry.timestamp_ms for entry in table.history()]
    middle = times[len(times) // 2]
    assert middle is not None and times[0] is not None and times[-1] is not None
    for ms in (times[-1], middle - 1, middle, times[0]):
        rows = delta.table_at(written.path, ms)
        assert not isinstance(rows, str), rows
        assert plain_rows(rows) == plain_rows(table.snapshot(timestamp=ms).scan().to_arrow()), ms
    assert delta.table_at(written.path, times[-1] - 1) == EARLY
    assert delta.table_at(written.path, times[0] + 1) == LATE
    for ms in (times[-1] - 1, times[0] + 1):
        with pytest.raises(deltalog.TimestampOutOfRangeError):
            table.snapshot(timestamp=ms)


def test_time_travel_after_a_copy_that_changed_every_file_time(
    delta: DeltaSpark, written: Written, tmp_path: Path
) -> None:
    """File times as after `cp` or a download: later than every in-commit timestamp, and in this test also in reverse
    order."""
    copy = tmp_path / "copy"
    shutil.copytree(written.path, copy)
    newest = max(get_mtimes(copy).values())
    names = [file.name for file in commits(copy).values()]
    set_mtimes(copy, {name: newest + 7_200_000 - 1_000 * i for i, name in enumerate(names)})
    assert_same_time_travel(delta, copy)
    original = {e.version: e.timestamp_ms for e in DeltaTable.open(str(written.path)).history()}
    copied = DeltaTable.open(str(copy)).history()
    kept = [e.version for e in copied if e.timestamp_ms == original[e.version]]
    by_ict = [e.version for e in copied if e.clock == "in-commit"]
    assert kept == by_ict, "in-commit timestamps, and nothing else, survive a copy"


def test_time_travel_in_a_log_that_begins_after_its_checkpoint(
    delta: DeltaSpark, written: Written, tmp_path: Path
) -> None:
    """A log that a clean-up by age may leave behind: the commit of the checkpoint's version is deleted, and time travel
    can only resolve to later versions."""
    copy = tmp_path / "copy"
    shutil.copytree(written.path, copy)
    first = written.latest // 2
    snapshot = DeltaTable.open(str(copy)).snapshot(version=first)
    write_checkpoint(snapshot.log, 0, new_uuid=lambda: str(uuid.uuid4()))
    for version, file in commits(copy).items():
        if version <= first:
            file.unlink()
            file.with_suffix(".crc").unlink(missing_ok=True)
    assert_same_time_travel(delta, copy)
    table = DeltaTable.open(str(copy))
    earliest = table.history()[-1].timestamp_ms
    assert earliest is not None and table.version_at(earliest - 1, before="earliest").version == first + 1
    assert table.explain_timestamp(earliest).earliest.version == first + 1
    assert plain_rows(table.snapshot(version=first).scan().to_arrow()) == written.rows[first]


def test_protocol_metadata_and_files(delta: DeltaSpark, written: Written) -> None:
    snapshot = DeltaTable.open(str(written.path)).snapshot()
    protocol = {k: sorted(v) if isinstance(v, list | tuple) else v for k, v in snapshot.protocol.to_json().items()}
    assert {k: v for k, v in protocol.items() if v is not None} == delta.protocol(written.path)
    metadata = delta.metadata(written.path)
    assert snapshot.metadata.id == metadata["id"]
    assert dict(snapshot.metadata.configuration) == metadata["configuration"]
    assert list(snapshot.partition_columns) == metadata["partitionColumns"]
    assert json.loads(snapshot.schema.to_json()) == json.loads(metadata["schemaString"])
    files = [
        {"path": f["path"], "partitionValues": dict(f["partition_values"]), "size": f["size"]}
        for f in snapshot.files().to_pylist()
    ]
    assert sorted(files, key=lambda file: str(file["path"])) == delta.files(written.path)


def test_in_commit_timestamps_in_the_log(written: Written) -> None:
    """In the log, which is read with only the json module, exactly the commits made while in-commit timestamps are
    enabled contain an in-commit timestamp, and these timestamps strictly increase."""
    stamps = in_commit_timestamps(written.path)
    on = written.shape.ict
    expected_on = [on]
    for step in written.shape.steps:
        on = {"enable": True, "disable": False}.get(step[0], on)
        expected_on.append(on)
    assert [stamps[v] is not None for v in sorted(stamps)] == expected_on
    present = [ms for ms in stamps.values() if ms is not None]
    assert present == sorted(set(present))


def test_the_enablement_pair(delta: DeltaSpark, written: Written) -> None:
    """Both engines write the same enablement pair (the version and timestamp of the last enabling commit), or both
    write none."""
    steps = [step[0] for step in written.shape.steps]
    pair = {k: v for k, v in delta.metadata(written.path)["configuration"].items() if "Enablement" in k}
    enablement = DeltaTable.open(str(written.path)).snapshot().enablement
    if "enable" not in steps:
        assert pair == {} and (enablement is None or enablement.version == 0)
        return
    version = len(steps) - steps[::-1].index("enable")
    ms = in_commit_timestamps(written.path)[version]
    assert pair == {
        "delta.inCommitTimestampEnablementVersion": str(version),
        "delta.inCommitTimestampEnablementTimestamp": str(ms),
    }
    assert enablement is not None and (enablement.version, enablement.timestamp_ms) == (version, ms)
    file_ms = os.stat(commits(written.path)[version - 1]).st_mtime_ns // 1_000_000
    assert ms is not None and ms > file_ms


def test_checkpoints_are_where_the_interval_says(written: Written) -> None:
    names = {file.name for file in (written.path / "_delta_log").iterdir()}
    interval = written.shape.interval
    due = set() if interval is None else set(range(interval, written.latest + 1, interval))
    assert {int(name[:20]) for name in names if name.endswith(".checkpoint.parquet")} == due
    assert ("_last_checkpoint" in names) == bool(due)


def test_deltalake_reads_the_same_rows(written: Written) -> None:
    """In-commit timestamps are a writer feature, so delta-rs can read all of these tables."""
    for version, rows in enumerate(written.rows):
        table: Any = deltalake.DeltaTable(str(written.path), version=version)
        assert plain_rows(table.to_pyarrow_table().select(["id", "name", "amount", "at", "place"])) == rows


def test_filters_in_spark_find_the_rows(delta: DeltaSpark, written: Written) -> None:
    """delta-spark skips files by their statistics, so a wrong bound or partition value would lose rows."""
    frame = delta.spark.read.format("delta").load(str(written.path))
    rows = DeltaTable.open(str(written.path)).snapshot().scan().to_arrow().sort_by("id").to_pylist()
    for row in rows[:2] + rows[-3:]:
        where = " AND ".join(f"{name} <=> {_literal(value)}" for name, value in row.items())
        assert frame.where(where).count() == 1, where


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if hasattr(value, "isoformat"):
        return f"TIMESTAMP'{value.isoformat()}'"
    return f"{value!r}D" if isinstance(value, float) else repr(value)
