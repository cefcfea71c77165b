"""If a version within the log retention cannot be read because commits or checkpoints are missing, the doctor reports
it."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest

from deltalog import CheckReport, CorruptTableError, DeltaLogError, DeltaTable, check
from deltalog.doctor.lost_commits import examine_reach, unreadable
from deltalog.environment import Environment
from tests.support.doctor.damaged_tables import ICT, SCHEMA, rows

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("commits", "checkpoints", "ranges"),
    [
        ([0, 1, 2], [], []),
        ([0, 1, 2], [1], []),
        ([], [7], [(0, 6)]),
        ([], [], []),
        ([3, 4], [], [(0, 4)]),
        ([3, 4], [2], [(0, 1)]),
        ([3, 4], [1], [(0, 0), (2, 4)]),
        ([3, 4, 5], [4], [(0, 3)]),
        ([0, 1, 4, 5], [4], [(2, 3)]),
        ([0, 1, 4, 5], [], [(2, 5)]),
        ([0, 1, 4, 5, 9], [3, 9], [(2, 2), (6, 8)]),
        ([5, 6, 8], [5, 5, 7], [(0, 4)]),
    ],
)
def test_the_versions_that_cannot_be_read(
    commits: list[int], checkpoints: list[int], ranges: list[tuple[int, int]]
) -> None:
    assert unreadable(commits, checkpoints) == ranges


def test_only_versions_that_are_certainly_within_the_retention_are_reported() -> None:
    def messages(times_ms: list[int], created_ms: int | None) -> list[str]:
        return [each.message.partition(".")[0] for each in examine_reach([0, 1, 5, 6], times_ms, [6], created_ms, 100)]

    assert messages([10, 20, 30, 40], None) == []
    assert messages([10, 20, 130, 140], 5) == ["Unreadable versions: 5"]  # the times of 2 to 4 are unknown
    assert messages([10, 120, 130, 140], 5) == ["Unreadable versions: 2 to 5"]
    assert messages([-1, -1, -1, 140], None) == []
    assert messages([-1, -1, -1, -1], 101) == ["Unreadable versions: 2 to 5"]


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Nine versions; checkpoints at versions 3 and 6."""
    table = DeltaTable.create(tmp_path / "t", SCHEMA, data=rows(1), properties=ICT)
    for number in range(2, 10):
        table.append(rows(number))
        if number in (4, 7):
            table.checkpoint()
    table.flush()
    return table


def unreachable(report: CheckReport) -> list[str]:
    return [each.message.partition(".")[0] for each in report.findings if each.rule == "version-unreachable"]


def readable(path: Path) -> list[int]:
    table, found = DeltaTable.open(path), []
    for version in range(table.version + 1):
        try:
            table.snapshot(version).scan().to_arrow()
            found.append(version)
        except DeltaLogError:
            pass
    return found


def lose(path: Path, *names: str) -> None:
    for name in names:
        for file in (path / "_delta_log").glob(name):
            file.unlink()


@pytest.mark.parametrize(
    ("lost", "ranges"),
    [
        (["*[0-4].json", "*[0-4].crc"], "0 to 2, 4 to 5"),
        (["*0[0-2].json"], "0 to 2"),
        (["*1.json"], "1 to 2"),
        (["*4.json", "*5.json"], "4 to 5"),
        (["*0[0-3].json", "*3.checkpoint.parquet"], "0 to 5"),
    ],
)
def test_the_lost_versions_are_those_that_cannot_be_read(
    table: DeltaTable, tmp_path: Path, lost: list[str], ranges: str
) -> None:
    path = tmp_path / "t"
    assert not unreachable(check(path))
    lose(path, *lost)
    report = check(path)
    assert unreachable(report) == [f"Unreadable versions: {ranges}"], str(report)
    gone = set(range(9)) - set(readable(path))
    named = {n for part in ranges.split(", ") for n in range(int(part.split()[0]), int(part.split()[-1]) + 1)}
    assert gone == named


def test_a_damaged_checkpoint_cannot_be_read_from(table: DeltaTable, tmp_path: Path) -> None:
    path = tmp_path / "t"
    lose(path, "*0[0-2].json")
    (path / "_delta_log" / f"{3:020d}.checkpoint.parquet").write_bytes(b"")
    assert unreachable(check(path)) == ["Unreadable versions: 0 to 5"]


def test_a_log_that_was_cleaned_up_after_its_retention_has_no_finding(table: DeltaTable, tmp_path: Path) -> None:
    path = tmp_path / "t"
    later = dataclasses.replace(Environment(), clock_ms=lambda: time.time_ns() // 1_000_000 + 40 * DAY_MS)
    again = DeltaTable.open(path, environment=later)
    again.append(rows(99))
    again.checkpoint()
    again.cleanup_log()
    first = min(int(file.stem) for file in (path / "_delta_log").glob("*.json"))
    assert first > 0
    assert not unreachable(check(path, environment=later))
    with pytest.raises((CorruptTableError, DeltaLogError)):
        again.snapshot(0).scan().to_arrow()


def test_without_a_checkpoint_there_is_an_error_besides(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "t", SCHEMA, data=rows(1))
    for number in range(2, 6):
        table.append(rows(number))
    table.flush()
    lose(tmp_path / "t", "*2.json")
    report = check(tmp_path / "t")
    assert unreachable(report) == ["Unreadable versions: 2 to 4"]
    assert "version-gap" in report.rules and not report.ok


def test_the_finding_names_what_to_restore(table: DeltaTable, tmp_path: Path) -> None:
    lose(tmp_path / "t", "*1.json")
    [finding] = [each for each in check(tmp_path / "t").findings if each.rule == "version-unreachable"]
    assert (finding.severity, finding.version) == ("warning", 2)
    assert finding.path == f"_delta_log/{1:020d}.json" and "Restore the files from a copy." in finding.remedy
    assert json.dumps(finding.to_json())
