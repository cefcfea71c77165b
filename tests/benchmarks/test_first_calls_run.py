"""The benchmark of first calls runs on small tables: each program runs with deltalog and with deltalake, and the report
has a line for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.first_calls import compare, floors, line, programs

PROGRAMS = [*programs(is_quick=True), *floors(is_quick=True)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("program", PROGRAMS, ids=[each.key for each in PROGRAMS])
def test_both_sides_of_a_program_run(program, tmp_path: Path) -> None:
    [found] = compare([program], tmp_path, 1)
    assert found.key == program.key and min(found.ours_cpu_ms, found.theirs_cpu_ms) > 0
    assert line(program, found).count("|") == 6
