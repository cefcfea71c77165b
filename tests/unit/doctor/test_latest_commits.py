"""The newest commit is lost or torn: the doctor says so, and a repair deletes no evidence and commits nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deltalog import CheckReport, DeltaTable, check
from deltalog.doctor import examination
from deltalog.doctor.catalog_state import list_log
from deltalog.doctor.findings import Finding
from deltalog.doctor.repair import carry_out, plan
from deltalog.environment import Environment
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import commit_path
from deltalog.storage.base import FileMeta, LogStore
from deltalog.storage.fs import LocalStore
from deltalog.storage.registry import open_store
from tests.support.doctor.damaged_tables import ICT, SCHEMA, commit, log, rows

LAST = 6


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 6 with in-commit timestamps, and checkpoints of versions 2 and 4."""
    made = DeltaTable.create(tmp_path / "t", SCHEMA, data=rows(1), properties=ICT)
    for number in range(2, LAST + 2):
        made.append(rows(number))
        if number in (3, 5):
            made.checkpoint()
    made.flush()
    assert check(tmp_path / "t").findings == ()
    return tmp_path / "t"


def names(path: Path) -> set[str]:
    return {each.name for each in log(path).iterdir()}


def repair(path: Path) -> CheckReport:
    outcomes = carry_out(plan(check(path)), LogReader(open_store(path)), Environment())
    assert [each.error for each in outcomes] == [None] * len(outcomes)
    return check(path)


def newest_file(path: Path) -> str:
    [name] = set(DeltaTable.open(path).snapshot().files()["path"].to_pylist()) - set(
        DeltaTable.open(path).snapshot(LAST - 1).files()["path"].to_pylist()
    )
    return str(name)


def damage_checkpoint(path: Path, version: int = 4) -> Path:
    file = log(path, f"{version:020d}.checkpoint.parquet")
    file.write_bytes(file.read_bytes()[:300])
    return file


# ---------------------------------------------------------------------------------------------------- lost


def test_a_lost_latest_commit_is_an_error(table: Path) -> None:
    name = newest_file(table)
    commit(table, LAST).unlink()
    report = check(table)
    assert report.rules == ["latest-commit-missing"] and not report.ok
    [finding] = report.findings
    assert (finding.version, finding.path) == (LAST, f"_delta_log/{LAST:020d}.crc")
    assert f"ends at version {LAST - 1}" in finding.message and f"no version names: {name}." in finding.message
    assert f"The .crc counts {LAST + 1} files, version {LAST - 1} has {LAST}." in finding.message


@pytest.mark.parametrize("lost", [1, 3])
def test_several_lost_commits_are_one_finding(table: Path, lost: int) -> None:
    for version in range(LAST - lost + 1, LAST + 1):
        commit(table, version).unlink()
    [finding] = [each for each in check(table).findings if each.rule == "latest-commit-missing"]
    assert finding.version == LAST - lost + 1
    assert sum(f"{version:020d}.crc" in finding.message for version in range(LAST + 1)) == lost


def test_a_later_checkpoint_or_compaction_is_evidence_too(table: Path) -> None:
    for file in log(table).glob("*.crc"):
        file.unlink()
    commit(table, LAST).unlink()
    assert "latest-commit-missing" not in check(table).rules  # nothing is left of it
    compacted = log(table, f"{5:020d}.{LAST:020d}.compacted.json")
    compacted.write_bytes(commit(table, 5).read_bytes())
    assert "latest-commit-missing" in check(table).rules
    repair(table)
    assert compacted.exists()
    compacted.unlink()
    commit(table, 5).unlink()
    commit(table, 4).unlink()
    assert {"latest-commit-missing", "checkpoint-after-latest"} <= set(check(table).rules)
    before = names(table)
    repair(table)
    assert names(table) == before


def test_a_repair_keeps_the_evidence_and_commits_nothing(table: Path) -> None:
    commit(table, LAST).unlink()
    path = commit(table, LAST - 1)
    path.write_text(path.read_text().replace('"inCommitTimestamp"', '"other"'))
    damaged = damage_checkpoint(table)
    before = names(table)
    report = check(table)
    assert {"ict-missing", "checkpoint-unreadable", "latest-commit-missing"} <= set(report.rules)
    after = repair(table)
    assert "latest-commit-missing" in after.rules and "checkpoint-unreadable" not in after.rules
    assert names(table) == before - {damaged.name} | {f"{LAST - 1:020d}.checkpoint.parquet"}


def test_the_commit_put_back_is_all_that_is_needed(table: Path) -> None:
    data = commit(table, LAST).read_bytes()
    commit(table, LAST).unlink()
    repair(table)
    commit(table, LAST).write_bytes(data)
    assert check(table).findings == ()


def test_the_crc_of_a_cleaned_version_is_no_loss(table: Path) -> None:
    for version in range(3):
        commit(table, version).unlink()
    report = check(table)
    assert "latest-commit-missing" not in report.rules and report.ok
    messages = [each.message for each in report.findings if each.rule == "crc-without-commit"]
    assert messages == ["The log begins at version 3: earlier commits were deleted."] * 3


def test_the_crc_in_a_gap_is_named_after_the_gap(table: Path) -> None:
    commit(table, 5).unlink()
    report = check(table)
    assert {"version-gap", "crc-without-commit"} <= set(report.rules)
    assert "latest-commit-missing" not in report.rules


def test_a_commit_that_arrives_during_the_check_is_not_lost(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing may contain the .crc of a commit that was written while the directory was read, and not the commit."""
    list_from = LocalStore.list_from

    def without_newest(self: LocalStore, *arguments: object, **named: object) -> object:
        listed = list_from(self, *arguments, **named)  # type: ignore[arg-type]
        return [each for each in listed if each.name != commit_path(LAST).rpartition("/")[2]]

    monkeypatch.setattr(LocalStore, "list_from", without_newest)
    report = check(table)
    assert report.version == LAST - 1 and report.ok
    assert "latest-commit-missing" not in report.rules, str(report)


# ---------------------------------------------------------------------------------------------------- torn


def _half(file: Path) -> None:
    os.truncate(file, 100)


def _without_last_line(file: Path) -> None:
    data = file.read_bytes()
    os.truncate(file, len(data) - len(data.splitlines()[-1]) // 2)


def _empty(file: Path) -> None:
    os.truncate(file, 0)


@pytest.mark.parametrize("tear", [_half, _without_last_line, _empty])
def test_a_torn_latest_commit_is_the_only_finding(table: Path, tear: Callable[[Path], None]) -> None:
    tear(commit(table, LAST))
    report = check(table)
    assert report.rules == ["commit-empty" if tear is _empty else "commit-truncated"]
    assert not report.is_readable and "copy the table" in report.findings[0].remedy
    assert plan(report) == []


@pytest.mark.parametrize("tear", [_half, _without_last_line, _empty])
def test_what_precedes_a_torn_commit_is_repaired(table: Path, tear: Callable[[Path], None]) -> None:
    tear(commit(table, LAST))
    torn = commit(table, LAST).read_bytes()
    damaged = damage_checkpoint(table)
    after = repair(table)
    assert len(after.findings) == 1 and "checkpoint-unreadable" not in after.rules
    assert not damaged.exists() and log(table, f"{LAST - 1:020d}.checkpoint.parquet").exists()
    assert commit(table, LAST).read_bytes() == torn
    commit(table, LAST).unlink()
    log(table, f"{LAST:020d}.crc").unlink()
    assert check(table).findings == ()
    assert DeltaTable.open(table).snapshot().num_files == LAST


def test_a_checkpoint_after_a_torn_commit_is_kept(table: Path) -> None:
    _half(commit(table, 3))
    damaged, first = damage_checkpoint(table), damage_checkpoint(table, 2)
    after = repair(table)
    assert damaged.stat().st_size == 300 and first.stat().st_size > 300
    assert [each.version for each in after.findings if each.rule == "checkpoint-unreadable"] == [4]


# ------------------------------------------------------------------------------------------ the .crc of commits


def test_commits_after_a_repair_have_a_crc(table: Path) -> None:
    damage_checkpoint(table)
    crc = log(table, f"{LAST:020d}.crc")
    crc.write_text(crc.read_text().replace(f'"numFiles":{LAST + 1}', '"numFiles":99'))
    assert not check(table).ok
    assert repair(table).findings == ()
    for number in range(2):  # a new handle each time, as in several processes
        version = DeltaTable.open(table).append(rows(50 + number)).version
        assert log(table, f"{version:020d}.crc").exists()
    assert check(table).findings == ()


def test_a_checkpoint_that_arrives_during_the_check_is_there(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint is read after the listing, and may name a checkpoint that was written in between."""
    DeltaTable.open(table).checkpoint()
    seen = f"{LAST:020d}.checkpoint.parquet"

    def listed_earlier(store: LogStore) -> tuple[list[FileMeta], list[Finding]]:
        metas, findings = list_log(store)
        return [each for each in metas if each.name != seen], findings

    monkeypatch.setattr(examination, "list_log", listed_earlier)
    assert "last-checkpoint-to-missing" not in check(table).rules
    log(table, seen).unlink()
    assert "last-checkpoint-to-missing" in check(table).rules
