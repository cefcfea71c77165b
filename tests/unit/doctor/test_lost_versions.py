"""If a version within the retention can no longer be read, the doctor reports a finding that names the lost
versions."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

from deltalog import CheckReport, DeltaTable, check
from deltalog.doctor.lost_versions import Span, described
from deltalog.environment import Environment
from deltalog.errors import InvalidDataFileError
from tests.support.doctor.damaged_tables import SCHEMA, rows

VECTORS = {"delta.enableDeletionVectors": "true"}
WEEK_MS = 7 * 86_400_000


def lost(report: CheckReport) -> list[str]:
    assert report.ok, str(report)
    return [each.message for each in report.findings if each.rule == "version-lost"]


def readable(path: Path) -> list[int]:
    """The readable versions, found by reading each version."""
    table, found = DeltaTable.open(path), []
    for version in range(table.version + 1):
        try:
            table.snapshot(version).scan().to_arrow()
            found.append(version)
        except InvalidDataFileError:
            pass
    return found


def actions(path: Path, version: int, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines())
    return [line[kind] for line in lines if kind in line]


def in_ms(later_ms: int) -> Environment:
    return dataclasses.replace(Environment(), clock_ms=lambda: time.time_ns() // 1_000_000 + later_ms)


@pytest.fixture
def rewritten(tmp_path: Path) -> DeltaTable:
    """A table in which the file that version 0 added is live until version 2, and the file that version 1 added is live
    to the end."""
    table = DeltaTable.create(tmp_path / "t", SCHEMA, data=rows(1, 2))
    table.append(rows(10))
    table.append(rows(20))
    table.delete("id = 1")
    table.append(rows(30))
    return table


def test_a_removed_data_file_is_gone(rewritten: DeltaTable, tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert not check(path).findings
    [removed] = actions(path, 3, "remove")
    (path / removed["path"]).unlink()
    assert readable(path) == [3, 4]
    [finding] = [each for each in check(path).findings if each.rule == "version-lost"]
    assert finding.message == "Missing files: 1. Unreadable versions: 0 to 2."
    assert (finding.severity, finding.version, finding.path) == ("warning", 2, removed["path"])


def test_a_vacuum_with_too_short_a_retention(rewritten: DeltaTable, tmp_path: Path) -> None:
    rewritten.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert readable(tmp_path / "t")[0] == 3
    assert lost(check(tmp_path / "t", deep=True)) == ["Missing files: 1. Unreadable versions: 0 to 2."]


def test_a_tombstone_that_has_expired_needs_nothing(rewritten: DeltaTable, tmp_path: Path) -> None:
    later = in_ms(WEEK_MS + 3_600_000)
    DeltaTable.open(tmp_path / "t", environment=later).vacuum(dry_run=False)
    assert readable(tmp_path / "t")[0] == 3
    assert lost(check(tmp_path / "t", environment=later)) == []
    table = DeltaTable.open(tmp_path / "t", environment=later)
    table.set_properties({"delta.deletedFileRetentionDuration": "interval 30 days"})
    # The tombstone had already expired under the retention that was in effect when the vacuum ran.
    assert lost(check(tmp_path / "t", environment=later)) == []


def test_a_deletion_vector_is_gone(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, data=rows(1, 2, 3), properties=VECTORS)
    for number in (1, 2):
        table.delete(f"id = {number}")
    table.append(rows(9))
    table.restore(0)
    table.delete("id = 3")
    vectors = sorted(tmp_path.glob("deletion_vector_*.bin"))
    assert len(vectors) == 3
    for file in vectors:
        away = file.rename(file.with_suffix(".away"))
        gone = set(range(table.version + 1)) - set(readable(tmp_path))
        assert gone
        if table.version in gone:
            assert "vector-file-missing" in check(tmp_path).rules
        else:
            ranges = described(Span("", None, version, version) for version in gone)
            assert lost(check(tmp_path)) == [f"Missing files: 1. Unreadable versions: {ranges}."]
        away.rename(file)
    assert not lost(check(tmp_path))


def test_a_file_that_is_live_again_is_no_lost_version(rewritten: DeltaTable, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rewritten.restore(0)
    [removed] = actions(path, 3, "remove")
    (path / removed["path"]).unlink()
    report = check(path)
    assert "data-file-missing" in report.rules and "version-lost" not in report.rules


def test_versions_before_a_checkpoint_without_its_commits(rewritten: DeltaTable, tmp_path: Path) -> None:
    """The log begins at version 1, so version 0 is not reported as lost."""
    path = tmp_path / "t"
    DeltaTable.open(path).snapshot(1)
    rewritten.checkpoint()
    rewritten.delete("id = 2")
    for version in range(4):
        for end in ("json", "crc"):
            (path / "_delta_log" / f"{version:020d}.{end}").unlink(missing_ok=True)
    [removed] = actions(path, 5, "remove")
    (path / removed["path"]).unlink()
    assert lost(check(path)) == ["Missing files: 1. Unreadable versions: 4."]


def test_versions_are_described_in_ranges() -> None:
    spans = [Span("a", None, 4, 6), Span("b", None, 0, 0), Span("c", None, 5, 9), Span("d", None, 11, 11)]
    assert described(spans) == "0, 4 to 9, 11"
    assert described(Span("a", None, 2 * n, 2 * n) for n in range(30)).endswith(" 38 and 10 more ranges")
