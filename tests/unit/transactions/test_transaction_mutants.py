"""The schedules detect each mutant of the catalog, and find no violation in the unchanged code."""

from __future__ import annotations

import pytest

from tests.support.simulation.mutants import find
from tests.support.simulation.transaction_mutants import MUTANTS
from tests.support.simulation.transactions import run_transactions

CLEAN: dict[tuple[int, str], list[str]] = {}


def unchanged(seed, options):
    key = (seed, repr(options))
    if key not in CLEAN:
        CLEAN[key] = [str(violation) for violation in run_transactions(seed, **options).violations]
    return CLEAN[key]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("each", MUTANTS, ids=lambda each: each.name)
def test_is_found(each, capsys):
    found = find(each)
    assert found, f"{each.name} was not found"
    seed, violations = found
    assert not unchanged(seed, each.options), f"the unchanged code fails on seed {seed}"
    with capsys.disabled():
        broken = sorted({v.invariant for v in violations} & each.invariants)
        print(f"\n[mutant] {each.name}: found at seed {seed} by {', '.join(broken)}", end="")


def test_there_are_enough():
    assert len({each.name for each in MUTANTS}) == len(MUTANTS) >= 15
    caught_by = set().union(*(each.invariants for each in MUTANTS))
    assert {"X1", "X2", "X3", "X4", "X5", "X6", "X7", "X8", "X10", "I2", "I10"} <= caught_by
