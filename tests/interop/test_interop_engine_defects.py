"""Defective tables that delta-spark creates, and how deltalog handles them.

Every table is created by delta-spark itself with ordinary statements; the assertions check deltalog.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import deltalog
from deltalog import DeltaTable
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.agreement import assert_same_rows, assert_same_time_travel
from tests.support.spark.log_files import actions, commits, in_commit_timestamps
from tests.support.spark.shapes import ICT, SCHEMA, Shape, SparkWriter, Writer, batch

VERSION_KEY = "delta.inCommitTimestampEnablementVersion"
TIMESTAMP_KEY = "delta.inCommitTimestampEnablementTimestamp"


@pytest.fixture
def late(writers: dict[str, Writer], tmp_path: Path) -> Path:
    """A table created by delta-spark: two commits without in-commit timestamps; version 2, which enables them; and one
    append."""
    path, spark = tmp_path / "late", writers["delta-spark"]
    assert isinstance(spark, SparkWriter)
    spark.create(path, Shape(()))
    for step in (("append", 0), ("enable",), ("append", 3)):
        spark.step(path, step)
    return path


@pytest.mark.parametrize("key", [VERSION_KEY, TIMESTAMP_KEY])
def test_half_a_pair_is_refused_before_it_is_written(late: Path, key: str) -> None:
    table = DeltaTable.open(str(late))
    for change in (lambda: table.set_properties({key: "1"}), lambda: table.unset_properties([key])):
        with pytest.raises(deltalog.errors.InvalidPropertyError) as caught:
            change()
        assert key in str(caught.value)
    with pytest.raises(deltalog.errors.InvalidPropertyError):
        DeltaTable.create(str(late.parent / "new"), SCHEMA, properties={key: "1"})
    assert max(commits(late)) == 3 and not DeltaTable.exists(str(late.parent / "new"))


def test_half_a_pair_that_delta_spark_wrote_is_named_and_repaired(
    delta: DeltaSpark, writers: dict[str, Writer], tmp_path: Path
) -> None:
    """delta-spark accepts the incomplete pair, and then refuses every write and every query of the history."""
    path = tmp_path / "table"
    writers["delta-spark"].create(path, Shape((), ict=True))
    writers["delta-spark"].step(path, ("append", 0))
    delta.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{VERSION_KEY}' = '1')")
    table = DeltaTable.open(str(path))
    assert plain_rows(table.snapshot().scan().to_arrow()) == plain_rows(batch(0)), "rows need no clock"
    for ask in (table.history, lambda: table.version_at(0), lambda: table.snapshot(timestamp=0)):
        with pytest.raises(deltalog.errors.InvalidEnablementError) as caught:
            ask()
        assert VERSION_KEY in str(caught.value) and TIMESTAMP_KEY in str(caught.value)
    table.disable_in_commit_timestamps()
    delta.forget()
    assert VERSION_KEY not in delta.metadata(path)["configuration"]
    assert_same_time_travel(delta, path)
    table.enable_in_commit_timestamps()
    writers["delta-spark"].step(path, ("append", 3))
    assert_same_rows(delta, path)
    assert_same_time_travel(delta, path)


def test_disabling_removes_the_pair_and_delta_spark_agrees(delta: DeltaSpark, late: Path) -> None:
    DeltaTable.open(str(late)).disable_in_commit_timestamps()
    configuration = delta.metadata(late)["configuration"]
    assert VERSION_KEY not in configuration and TIMESTAMP_KEY not in configuration
    assert "inCommitTimestamp" not in actions(commits(late)[4])[0]["commitInfo"]
    assert_same_time_travel(delta, late)


def test_a_stale_pair_left_by_delta_spark_is_ignored_and_then_replaced(delta: DeltaSpark, late: Path) -> None:
    delta.sql(f"ALTER TABLE delta.`{late}` SET TBLPROPERTIES ('{ICT}' = 'false')")
    table = DeltaTable.open(str(late))
    assert table.snapshot().enablement is None
    assert {e.clock for e in table.history()} == {"file-modification"}
    assert_same_time_travel(delta, late)
    result = table.enable_in_commit_timestamps()
    configuration = delta.metadata(late)["configuration"]
    assert configuration[VERSION_KEY] == str(result.version)
    assert configuration[TIMESTAMP_KEY] == str(result.in_commit_timestamp_ms)
    assert_same_time_travel(delta, late)


def test_restore_before_the_enablement_turns_it_off(delta: DeltaSpark, late: Path) -> None:
    delta.sql(f"RESTORE TABLE delta.`{late}` TO VERSION AS OF 1")
    table = DeltaTable.open(str(late))
    assert not table.snapshot().in_commit_timestamps_enabled
    table.append(batch(50))
    assert in_commit_timestamps(late)[5] is None
    for version in range(6):
        assert_same_rows(delta, late, version)
    assert_same_time_travel(delta, late)


def test_replace_table_as_select_turns_it_off(delta: DeltaSpark, late: Path) -> None:
    delta.sql(f"CREATE OR REPLACE TABLE delta.`{late}` USING delta AS SELECT 1 AS key")
    table = DeltaTable.open(str(late))
    assert not table.snapshot().in_commit_timestamps_enabled
    assert_same_rows(delta, late)
    assert_same_time_travel(delta, late)


def test_dropping_the_feature(delta: DeltaSpark, late: Path) -> None:
    delta.sql(f"ALTER TABLE delta.`{late}` DROP FEATURE inCommitTimestamp")
    table = DeltaTable.open(str(late))
    assert table.snapshot().protocol.min_writer_version == 2
    assert "inCommitTimestamp" not in (table.snapshot().protocol.writer_features or ())
    table.append(batch(50))
    assert_same_rows(delta, late)
    assert_same_time_travel(delta, late)


def test_overwrite_keeps_in_commit_timestamps_on(delta: DeltaSpark, late: Path) -> None:
    table = DeltaTable.open(str(late))
    table.overwrite(batch(70), overwrite_schema=True)
    assert table.snapshot().in_commit_timestamps_enabled
    assert in_commit_timestamps(late)[4] is not None
    assert delta.metadata(late)["configuration"][VERSION_KEY] == "2"
    assert_same_time_travel(delta, late)


def test_a_clone_with_the_pair_of_its_source_is_not_read_wrongly(delta: DeltaSpark, late: Path, tmp_path: Path) -> None:
    """SHALLOW CLONE copies the source's in-commit timestamp enablement (version and timestamp) into version 0, where it
    refers to a version beyond the clone's own history."""
    clone = tmp_path / "clone"
    delta.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{late}`")
    assert delta.metadata(clone)["configuration"][VERSION_KEY] == "2"
    table = DeltaTable.open(str(clone))
    assert table.version == 0
    for ask in (table.history, lambda: table.version_at(in_commit_timestamps(clone)[0] or 0)):
        with pytest.raises(deltalog.errors.InvalidEnablementError) as caught:
            ask()
        assert "2" in str(caught.value) and VERSION_KEY in str(caught.value)


def test_a_commit_far_in_the_future_is_followed_with_a_warning(late: Path, tmp_path: Path) -> None:
    """One writer's clock was ahead: later timestamps must still be greater, and deltalog's warning states the drift."""
    path = tmp_path / "future"
    shutil.copytree(late, path)
    last = commits(path)[3]
    future = 4_102_444_800_000
    last.write_text(re.sub(r'("(?:inCommitTimestamp|timestamp)":)\d+', rf"\g<1>{future}", last.read_text()))
    (path / "_delta_log" / f"{3:020d}.crc").unlink()
    for side in (path / "_delta_log").glob(".*.crc"):
        side.unlink()
    table = DeltaTable.open(str(path))
    with pytest.warns(deltalog.errors.ClockDriftWarning):
        result = table.append(batch(90))
    assert result.in_commit_timestamp_ms == future + 1
    assert in_commit_timestamps(path)[4] == future + 1


@pytest.mark.parametrize("loss", ["commitInfo", "inCommitTimestamp"])
def test_a_commit_without_its_timestamp_is_refused(delta: DeltaSpark, late: Path, tmp_path: Path, loss: str) -> None:
    path = tmp_path / "lost"
    shutil.copytree(late, path)
    for side in list((path / "_delta_log").iterdir()):
        if side.name.endswith(".crc"):
            side.unlink()
    last = commits(path)[3]
    kept = actions(last)
    if loss == "commitInfo":
        kept = kept[1:]
    else:
        del kept[0]["commitInfo"]["inCommitTimestamp"]
    last.write_text("\n".join(json.dumps(action) for action in kept) + "\n")
    table = DeltaTable.open(str(path))
    assert plain_rows(table.snapshot().scan().to_arrow()) == plain_rows(delta.table(late))
    times = {entry.version: entry.timestamp_ms for entry in table.history()}
    assert times[3] is None and times[2] is not None, "history shows the gap and makes up no time"
    for ask in (
        lambda: table.version_at(4_000_000_000_000, after="latest"),
        lambda: table.snapshot().timestamp_ms,
        lambda: table.append(batch(90)),
    ):
        with pytest.raises(deltalog.errors.MissingInCommitTimestampError) as caught:
            ask()
        assert "3" in str(caught.value)
    assert max(commits(path)) == 3
