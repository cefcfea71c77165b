"""A check reports its progress: each step counts from the beginning to its total."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltalog import DeltaTable, check
from tests.support.doctor import damaged_tables as tables


@pytest.mark.parametrize("deep", [False, True])
def test_each_step_counts_to_its_total(tmp_path: Path, deep: bool) -> None:
    tables.checkpointed(tmp_path).flush()
    told: list[tuple[str, int, int]] = []
    DeltaTable.open(tmp_path).check(deep, progress=lambda *each: told.append(each))
    steps = list(dict.fromkeys(what for what, _, _ in told))
    assert steps == ["versions", "files of checkpoint 4", "removed files", "data files", "footers"]
    for step in steps:
        counts = [(done, of) for what, done, of in told if what == step]
        assert counts == sorted(counts) and all(0 <= done <= of for done, of in counts), step
    assert [each for each in told if each[0] == "footers"][-1] == ("footers", 6, 6)


def test_by_default_nothing_is_reported(tmp_path: Path) -> None:
    tables.plain(tmp_path).flush()
    assert check(tmp_path).ok
