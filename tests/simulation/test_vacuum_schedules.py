"""Under faults, vacuums keep all files that a version within the retention period needs, and delete all others.

A usual run executes 25 schedules, and one with ``--long`` 300; DELTALOG_VACUUM_SCHEDULES=10000 executes 10,000
schedules, and DELTALOG_FIRST_SEED=100000 chooses other schedules. A failing seed is printed with its trace; add the
seed to KEPT, so that every run repeats it.
"""

from __future__ import annotations

import os

import pytest

from deltalog.testing.stores import Fault
from tests.support.simulation.seeds import run_and_print
from tests.support.simulation.vacuum_simulation import run_vacuum_schedule

USUAL, LONG = 25, 300
KEPT = [86]  # because a clock was ahead, a full vacuum recorded commits whose tombstones it had kept


@pytest.mark.timeout(120 + int(os.environ.get("DELTALOG_VACUUM_SCHEDULES", LONG)))
def test_nothing_needed_is_deleted_and_nothing_else_is_left(capsys, is_long):
    schedules = int(os.environ.get("DELTALOG_VACUUM_SCHEDULES", LONG if is_long else USUAL))
    totals = run_and_print(capsys, "vacuum schedules", schedules, run_vacuum_schedule)
    # The assertions below fail if the schedules missed something that this test is meant to cover. Like a checkpoint, a
    # vacuum counts as an operation that does not commit; schedules contain few such operations.
    assert totals.errors[""] >= 2 * schedules
    # Most faults hit one of the many calls that check the table, and a failed check has no effect; some kinds of fault
    # are too rare for a usual run.
    tried = {fault for fault in Fault if totals.faults[fault]}
    assert tried == set(Fault) if schedules >= LONG else len(tried) >= len(Fault) - 2


@pytest.mark.parametrize("seed", KEPT)
def test_seeds_that_once_failed(seed):
    result = run_vacuum_schedule(seed)
    assert not result.violations, result.report()


def test_a_seed_is_a_schedule():
    assert run_vacuum_schedule(3).digest == run_vacuum_schedule(3).digest
