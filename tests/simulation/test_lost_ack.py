"""The table printed by ``python -m tests.support.lost_ack``: lost responses to commits by deltalog and by other
engines."""

from __future__ import annotations

import pytest

from tests.support.lost_ack import FAULTS, OPERATIONS, judged, run_cell, totals


@pytest.mark.sampled(2)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_deltalog_neither_doubles_nor_guesses(operation, ministack):
    cells = [run_cell(ministack, "deltalog", operation, fault) for fault in FAULTS]
    assert [cell.verdict for cell in cells] == ["exactly once"] * len(FAULTS), cells
    assert totals(cells, "deltalog") == {"cells": len(FAULTS), "double": 0, "false conflict": 0, "guess": 0}


def test_the_same_script_runs_deltalake(ministack):
    cell = run_cell(ministack, "deltalake", "append", "closed")
    assert (cell.saw, cell.verdict) == ("success", judged("success", cell.commits))
    assert cell.commits >= 1


@pytest.mark.parametrize(
    ("kind", "commits", "verdict"),
    [
        ("success", 1, "exactly once"),
        ("success", 2, "double"),
        ("success", 0, "guess"),
        ("conflict", 1, "false conflict"),
        ("failed", 1, "guess"),
        ("failed", 0, "honest failure"),
        ("unknown", 1, "honest: unknown"),
    ],
)
def test_verdicts(kind, commits, verdict):
    assert judged(kind, commits) == verdict
