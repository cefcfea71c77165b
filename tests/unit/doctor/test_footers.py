"""Damaged footers are reported as findings, even footers that would crash a process that asks pyarrow for their column
chunks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deltalog import DeltaTable, check
from tests.unit.parquet.test_footers import ROWS, SCHEMA, killer


@pytest.mark.parametrize("deep", [False, True])
def test_it_is_a_finding_and_the_check_goes_on(tmp_path: Path, deep: bool) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, data=ROWS)
    table.append(ROWS)
    commit = tmp_path / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    add = next(line["add"] for line in lines if "add" in line)
    (tmp_path / add["path"]).write_bytes(killer())
    add["size"] = len(killer())
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = check(tmp_path, deep)
    [finding] = [each for each in report.findings if each.severity == "error" and each.rule == "data-file-unreadable"]
    assert finding.path == add["path"] and "column amount of row group 0 is unknown" in finding.message, str(report)
    assert report.examined.footers == 1
