"""The client of a Unity Catalog under faults: seeded schedules of three writers and a reader, whose server loses
answers, receives requests late and fails. A usual run executes 150 schedules, and one with ``--long`` 10,000."""

from __future__ import annotations

import os

import pytest

from deltalog.testing.stores import Fault
from tests.support.simulation.mutants import MAX_SEEDS, find
from tests.support.simulation.seeds import assert_seeds_decide, run_and_print
from tests.support.simulation.unity import run_unity_schedule
from tests.support.simulation.unity_mutants import MUTANTS

USUAL, LONG = 150, 10_000
# The seeds that found a defect: a staged file was deleted after a refusal, while an earlier request for it could still
# arrive.
KEPT = (1411, 2173)


@pytest.fixture(scope="module")
def schedules(is_long):
    return int(os.environ.get("DELTALOG_SCHEDULES", LONG if is_long else USUAL))


@pytest.mark.timeout(120 + int(os.environ.get("DELTALOG_SCHEDULES", LONG)) / 5)
def test_no_schedule_breaks_an_invariant(capsys, schedules):
    totals = run_and_print(capsys, "unity", schedules, run_unity_schedule)
    for fault in (Fault.LATE, Fault.LOST_ACK, Fault.UNKNOWN_NOT_WRITTEN, Fault.KILL_AFTER):
        assert totals.faults[fault] >= schedules / 10, f"too few faults of the kind {fault}"
    assert totals.outcomes["ok"] >= 2 * schedules
    assert totals.outcomes["failed"] >= schedules
    assert totals.outcomes["killed"] >= schedules / 4
    assert totals.unknown_raised >= schedules / 100
    assert totals.reads >= 2 * schedules


@pytest.mark.parametrize("seed", KEPT)
def test_schedules_that_found_a_defect(seed):
    assert not run_unity_schedule(seed).violations


def test_a_seed_decides_everything():
    assert_seeds_decide(run_unity_schedule, range(3), 1)


@pytest.mark.parametrize("each", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_is_found(each, capsys):
    found = find(each)
    assert found, f"{each.name} was not found in {MAX_SEEDS} schedules"
    seed, violations = found
    assert not run_unity_schedule(seed, **each.options).violations, f"the unchanged code fails on seed {seed}"
    with capsys.disabled():
        broken = sorted({v.invariant for v in violations} & each.invariants)
        print(f"\n[mutant] {each.name}: found at seed {seed} by {', '.join(broken)}", end="")
