"""Repairs are listed first and carried out afterwards; they do not change commits in the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deltalog import DeltaTable
from deltalog.doctor.check import check
from deltalog.doctor.repair import carry_out, plan
from deltalog.environment import Environment
from deltalog.log.reader import LogReader
from deltalog.storage.registry import open_store
from tests.support.doctor import damaged_tables as tables
from tests.support.doctor.damages import DAMAGES

REPAIRABLE = [
    "no commitInfo", "commitInfo last", "no timestamp", "equal timestamps", "timestamps that go back", "year 2100",
    "half a pair: version", "half a pair: time", "no pair", "pair that is no number", "pair of another version",
    "pair of another time", "pair after the latest version", "stale pair", "checksum of another time",
    "damaged checkpoint", "checkpoint lacks a file", "checkpoint with another size", "checkpoint of another table",
    "sidecar missing", "sidecar damaged", "hint that is no JSON", "hint to no checkpoint", "no hint",
    "hint with another checksum", "compaction lacks a file", "compaction damaged", "checksum of more files",
    "checksum that is no JSON", "part of a checkpoint", "property without feature", "largest timestamp",
]  # fmt: skip


@pytest.mark.parametrize("name", REPAIRABLE)
def test_what_can_be_repaired_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / "table"
    [damage] = [each for each in DAMAGES if each.name == name]
    damage.build(path).flush()
    damage.damage(path)
    commits = {file: file.read_bytes() for file in tables.log(path).glob("*.json") if file.stem.isdigit()}
    before = check(path)
    steps = plan(before)
    planned = {rule for step in steps for rule in step.rules}
    assert steps and (set(damage.rules) & planned), str(before)
    reader = LogReader(open_store(path))
    assert all(outcome.error is None for outcome in carry_out(steps, reader, Environment()))
    after = check(path)
    assert after.ok, str(after)
    left = {each.rule for each in after.findings if each.severity != "info" and each.rule in planned}
    assert left <= _PAST, str(after)
    assert {file: file.read_bytes() for file in commits} == commits
    assert DeltaTable.open(path).snapshot().num_files > 0


# Repairs do not remove findings about commits that time travel no longer uses.
_PAST = {
    "commit-info-missing", "commit-info-not-first", "ict-missing", "ict-not-increasing", "ict-in-future",
    "ict-at-largest", "ict-property-without-feature", "multi-part-checkpoint-incomplete",
}  # fmt: skip


@pytest.mark.parametrize("build", [tables.plain, tables.checkpointed], ids=lambda build: build.__name__)
def test_a_healthy_table_needs_no_repair(tmp_path: Path, build: Callable[[Path], DeltaTable]) -> None:
    build(tmp_path / "table").flush()
    assert plan(check(tmp_path / "table")) == []


def test_a_checkpoint_that_the_table_needs_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "table"
    tables.checkpointed(path).flush()
    tables.delete(f"_delta_log/{0:020d}.json", f"_delta_log/{1:020d}.json")(path)
    tables.edit_checkpoint("protocol", lambda values: [None] * len(values))(path)
    report = check(path)
    assert "checkpoint-protocol-missing" in report.rules
    assert not any(step.path and "checkpoint" in step.path for step in plan(report))


def test_the_plan_is_json(tmp_path: Path) -> None:
    path = tmp_path / "table"
    tables.plain(path)
    tables.edit_crc(1, lambda body: body.update(numFiles=9))(path)
    [step] = plan(check(path))
    assert json.loads(json.dumps(step.to_json()))["path"] == f"_delta_log/{1:020d}.crc"
