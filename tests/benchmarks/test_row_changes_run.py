"""The benchmark of merges, updates and deletes runs on a small table, and both systems produce the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.row_changes import FLOOR, SYSTEMS, compare


@pytest.mark.long
def test_both_systems_make_the_same_rows(tmp_path: Path) -> None:
    found = list(compare(tmp_path, rows=20_000, repeats=1, operations=("merge one partition",)))
    assert [each["system"] for each in found] == [*SYSTEMS, FLOOR]
    assert {each["rows"] for each in found if each["system"] != FLOOR} == {20_020}
    assert all(each["seconds"] > 0 and each["first_seconds"] > 0 for each in found)
