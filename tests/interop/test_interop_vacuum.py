"""The files that a dry run of VACUUM lists in deltalog and in delta-spark, with an explanation of every difference."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from deltalog import DeltaTable, VersionNotFoundError
from spark_ext.maintenance.vacuum import vacuumed
from tests.interop.vacuum_tables import CASES, REASONS, make
from tests.support.spark import DeltaSpark
from tests.support.spark.shapes import batch

ROOT = Path(__file__).resolve().parents[2]


def by_delta_spark(delta: DeltaSpark, path: Path, hours: int, mode: str) -> set[str]:
    """The files that delta-spark lists, without the empty directories that it also lists."""
    delta.forget()
    delta.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    rows = delta.sql(f"VACUUM delta.`{path}` {mode} RETAIN {hours} HOURS DRY RUN").collect()
    found = [row["path"].removeprefix("file:").removeprefix(f"{path}/") for row in rows]
    assert len(found) < 1000  # delta-spark lists at most 1000 paths
    return {name for name in found if not (path / name).is_dir()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_both_would_delete_the_same_files(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    case, path = CASES[name], tmp_path / "t"
    make(name, delta, path)
    table = DeltaTable.open(str(path))
    for mode, only_ours, only_theirs in (
        ("FULL", case.ours, case.theirs), ("LITE", case.lite_ours, case.lite_theirs)
    ):  # fmt: skip
        report = table.vacuum(case.hours, enforce_retention_duration=False, full=mode == "FULL")
        ours, theirs = set(report.paths), by_delta_spark(delta, path, case.hours, mode)
        for only, explained in ((ours - theirs, only_ours), (theirs - ours, only_theirs)):
            unexplained = [each for each in only if not any(fnmatchcase(each, pattern) for pattern in explained)]
            unused = [pattern for pattern in explained if not any(fnmatchcase(each, pattern) for each in only)]
            assert (unexplained, unused) == ([], []), (mode, ours, theirs)


def test_both_refuse_a_log_that_does_not_reach_back(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "t"
    make("overwritten", delta, path)
    table = DeltaTable.open(str(path))
    table.checkpoint()
    (path / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(VersionNotFoundError, match="version 0 is not in the log"):
        table.vacuum(0, enforce_retention_duration=False, full=False)
    with pytest.raises(Exception, match="VACUUM LITE cannot delete all eligible files"):
        by_delta_spark(delta, path, 0, "LITE")


def test_each_goes_on_after_the_other(delta: DeltaSpark, tmp_path: Path) -> None:
    """With ``_last_vacuum_info``, neither engine reads again the commits that the other engine's vacuum has already
    processed."""
    path = tmp_path / "t"
    make("overwritten", delta, path)
    table = DeltaTable.open(str(path))
    options: dict[str, Any] = {"enforce_retention_duration": False, "full": False}
    assert len(table.vacuum(0, dry_run=False, **options).paths) == 3
    assert by_delta_spark(delta, path, 0, "LITE") == set()
    table.overwrite(batch(4))
    delta.forget()
    delta.sql(f"VACUUM delta.`{path}` LITE RETAIN 0 HOURS")
    table.checkpoint()
    for version in range(4):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    assert DeltaTable.open(str(path)).vacuum(0, **options).paths == ()


@pytest.mark.parametrize("name", ["deleted_by_vectors", "spark_overwritten"])
def test_delta_spark_reads_what_tasks_leave(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    """After a vacuum in Spark tasks, delta-spark can read all versions within the retention."""
    path = tmp_path / "t"
    make(name, delta, path)
    table = DeltaTable.open(str(path))
    first = table.version
    expected = {*table.vacuum(0, enforce_retention_duration=False).paths}
    assert expected and {*vacuumed(delta.spark, table, 0, False, False, True, True).paths} == expected
    for start in (100, 200):
        table.append(batch(start))
    table.delete("id = 101")
    assert not vacuumed(delta.spark, table, 1, False, False, True, True).paths
    assert table.version >= first + 5
    delta.forget()
    for version in range(first, table.version + 1):
        ours = DeltaTable.open(str(path)).snapshot(version).scan().to_arrow()
        theirs = delta.table(path, version).select(ours.column_names)
        assert sorted(ours.to_pylist(), key=str) == sorted(theirs.to_pylist(), key=str) and ours.num_rows, version


def test_the_page_on_maintenance_names_every_difference() -> None:
    page = (ROOT / "docs" / "maintenance.md").read_text()
    differences = [each for case in CASES.values() for each in (case.ours, case.theirs, case.lite_theirs)]
    used = {why for each in differences for why in each.values()}
    assert used == set(REASONS) and len(CASES) >= 30
    assert [each for each in REASONS if each not in page] == []
