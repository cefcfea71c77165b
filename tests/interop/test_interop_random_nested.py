"""A few tables of ``random_nested``; ``--long`` runs more, and the module's own command runs any number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.random_nested import run_nested
from tests.support.spark import DeltaSpark

USUAL = (0,)
STATEMENTS = 4


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n in USUAL else pytest.mark.long) for n in range(10)])
def test_both_change_nested_values_alike(delta: DeltaSpark, tmp_path: Path, seed: int) -> None:
    tally = run_nested(delta, tmp_path, seed, STATEMENTS)
    done = sum(number for what, number in tally.items() if what.endswith(("done", "refused")))
    assert done == STATEMENTS and tally["comparisons"]
