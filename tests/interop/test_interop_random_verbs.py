"""Runs ``random_verbs`` on a few tables, with ``--long`` on many; the command of that module runs it on any number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.random_verbs import run_verbs
from tests.support.spark import DeltaSpark

# Seed 5 gives a partitioned table with name-based column mapping, deletion vectors, in-commit timestamps and a change
# data feed.
USUAL = (5,)
VERBS = 10


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n in USUAL else pytest.mark.long) for n in range(16)])
def test_both_tell_what_the_model_tells(delta: DeltaSpark, tmp_path: Path, seed: int) -> None:
    tally = run_verbs(delta, tmp_path / "table", seed, VERBS)
    assert tally["comparisons"] > 6 * VERBS
    assert tally["verbs of deltalog"] and tally["verbs of delta-spark"]
