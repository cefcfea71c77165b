"""The doctor finds every planted defect, and reports nothing for healthy tables."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from deltalog import DeltaTable
from deltalog.doctor.check import check
from deltalog.doctor.rules import RULES
from tests.support.doctor import damaged_tables
from tests.support.doctor.damaged_tables import Damage
from tests.support.doctor.damages import DAMAGES

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "tables"
BUILDERS = sorted({each.build for each in DAMAGES}, key=lambda build: build.__name__)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The healthy tables, each built once."""
    root = tmp_path_factory.mktemp("healthy")
    for build in BUILDERS:
        build(root / build.__name__).flush()
    return {build.__name__: root / build.__name__ for build in BUILDERS}


def test_there_are_enough_damages() -> None:
    assert len(DAMAGES) >= 250 and len({each.name for each in DAMAGES}) == len(DAMAGES)
    assert {rule for each in DAMAGES for rule in each.rules} <= set(RULES)


@pytest.mark.parametrize("name", [build.__name__ for build in BUILDERS])
@pytest.mark.parametrize("deep", [False, True])
def test_healthy_tables_have_no_error(healthy: dict[str, Path], name: str, deep: bool) -> None:
    report = check(healthy[name], deep)
    assert report.ok and report.counts["warning"] == 0, str(report)
    assert report.examined.live_files > 0 and report.examined.footers > 0


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name.replace(" ", "-"))
def test_each_damage_is_found(healthy: dict[str, Path], tmp_path: Path, damage: Damage) -> None:
    path = tmp_path / "table"
    # Copy the file times too, because the modification times of commit files are part of a table.
    shutil.copytree(healthy[damage.build.__name__], path, copy_function=shutil.copy2)
    damage.damage(path)
    report = check(path, damage.deep)
    assert set(damage.rules) <= set(report.rules), str(report)
    for finding in report.findings:
        assert finding.message and finding.remedy and finding.rule in RULES


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()))
def test_tables_of_delta_spark_have_no_error(tmp_path: Path, name: str) -> None:
    source = FIXTURES / name
    report = check(source if (source / "_delta_log").is_dir() else source / "table", deep=True)
    assert report.ok, str(report)


def test_a_report_has_a_limit_of_findings(tmp_path: Path) -> None:
    table = damaged_tables.plain(tmp_path / "table")
    for number in range(150):
        damaged_tables.append_commit({"commitInfo": {}}, damaged_tables.add_line(f"x{number}.parquet"))(
            tmp_path / "table"
        )
    del table
    report = check(tmp_path / "table")
    assert report.of_rules["data-file-missing"] == 150 and report.counts["error"] == 150
    assert sum(finding.rule == "data-file-missing" for finding in report.findings) == 100


def test_what_a_later_version_corrects_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = damaged_tables.timed_late(path)
    damaged_tables.set_ict(5, "no number")(path)
    assert not check(path).ok
    table = DeltaTable.open(path)
    table.disable_in_commit_timestamps()
    table.enable_in_commit_timestamps()
    report = check(path)
    assert report.ok and "ict-invalid" in report.rules, str(report)


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "table"
    damaged_tables.checkpointed(path).flush()
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    check(path, deep=True)
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_no_table_is_a_finding(tmp_path: Path) -> None:
    assert check(tmp_path).rules == ["log-missing"]
    assert check(os.fspath(tmp_path / "nowhere")).rules == ["log-missing"]
