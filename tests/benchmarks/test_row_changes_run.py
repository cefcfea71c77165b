"""The benchmark of merges, updates and deletes runs on a small table, and both systems make the same rows."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.row_changes import FLOOR, OPERATIONS, SYSTEMS, compare


def test_both_systems_make_the_same_rows(tmp_path: Path) -> None:
    found = list(compare(tmp_path, rows=20_000, repeats=1, operations=("merge one partition", "update")))
    assert len(found) == 2 * len(SYSTEMS) + 1 and set(OPERATIONS) >= {each["operation"] for each in found}
    assert {each["rows"] for each in found if each["operation"] == "update"} == {20_000}
    merged = [each["rows"] for each in found if "merge" in each["operation"] and each["system"] != FLOOR]
    assert set(merged) == {20_020}
    assert all(each["seconds"] > 0 for each in found)
