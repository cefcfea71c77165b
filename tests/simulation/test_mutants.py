"""The schedules detect each seeded defect, and report no violation in the unchanged code."""

from __future__ import annotations

import pytest

from tests.support.simulation import (
    commit_mutants,
    lost_table_mutants,
    merge_mutants,
    optimize_mutants,
    row_mutants,
    vacuum_mutants,
)
from tests.support.simulation.mutants import MAX_SEEDS, find

MUTANTS = [
    *commit_mutants.MUTANTS,
    *row_mutants.MUTANTS,
    *merge_mutants.MUTANTS,
    *optimize_mutants.MUTANTS,
    *vacuum_mutants.MUTANTS,
    *lost_table_mutants.MUTANTS,
]

CLEAN: dict[tuple[str, int, str], list[str]] = {}


def unchanged(run, seed, options):
    """The violations that the unchanged code causes; it runs once for each kind of schedule, seed and options."""
    key = (run.__name__, seed, repr(options))
    if key not in CLEAN:
        CLEAN[key] = [str(violation) for violation in run(seed, **options).violations]
    return CLEAN[key]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("each", MUTANTS, ids=lambda each: each.name)
def test_is_found(each, capsys):
    found = find(each)
    assert found, f"{each.name} was not found in {MAX_SEEDS} schedules"
    seed, violations = found
    assert not unchanged(each.run, seed, each.options), f"the unchanged code fails on seed {seed}"
    with capsys.disabled():
        broken = sorted({v.invariant for v in violations} & each.invariants)
        print(f"\n[mutant] {each.name}: found at seed {seed} by {', '.join(broken)}", end="")


def test_there_are_enough():
    assert len(MUTANTS) >= 50 and len(merge_mutants.MUTANTS) >= 10
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
    caught_by = set().union(*(each.invariants for each in MUTANTS))
    assert {"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I14"} <= caught_by
    assert {"L1", "L2", "L3"} & caught_by
    assert {"R1", "R2", "R3", "R4", "R5", "R6", "V1", "V2", "V3"} <= caught_by
    assert len(optimize_mutants.MUTANTS) + len(vacuum_mutants.MUTANTS) >= 20
