"""Tables that are deleted, created again, rolled back or restored under open handles, in seeded schedules, and before
each store call of each verb."""

from __future__ import annotations

import pytest

from tests.support.simulation.lost_tables import EVENTS, run_lost_table
from tests.support.simulation.seeds import assert_seeds_decide, run_and_print


def test_schedules(capsys, is_long):
    totals = run_and_print(capsys, "lost tables", 3_000 if is_long else 300, run_lost_table)
    assert totals.outcomes["ok"] > 100 and totals.outcomes["failed"] > 100
    assert {"TableNotFoundError", "TableReplacedError"} <= set(totals.errors)


@pytest.mark.parametrize("event", sorted(set(EVENTS)))
@pytest.mark.parametrize("far", [False, True])
def test_each_event_in_each_place(event, far):
    for seed in range(20):
        result = run_lost_table(seed, event=event, far=far)
        assert not result.violations, result.report()


def test_a_seed_decides():
    assert_seeds_decide(run_lost_table, range(3), 0)
