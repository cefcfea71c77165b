"""Tables are deleted, created again, rolled back or restored while handles are open. The tests do this in seeded
schedules, and before each store call of each public method."""

from __future__ import annotations

import pytest

from deltalog.commit.tip_proof import TipProof
from tests.support.simulation import sweep_lost
from tests.support.simulation.lost_tables import EVENTS, run_lost_table
from tests.support.simulation.seeds import assert_seeds_decide, run_and_print
from tests.support.simulation.sweep_operations import OPERATIONS


def test_schedules(capsys, is_long):
    schedules = 3_000 if is_long else 90
    totals = run_and_print(capsys, "lost tables", schedules, run_lost_table)
    assert totals.outcomes["ok"] > schedules / 3 and totals.outcomes["failed"] > schedules / 3
    assert {"TableNotFoundError", "TableReplacedError"} <= set(totals.errors)


@pytest.mark.parametrize("event", sorted(set(EVENTS)))
@pytest.mark.parametrize("far", [False, True])
def test_each_event_in_each_place(event, far, is_long):
    for seed in range(20 if is_long else 4):
        result = run_lost_table(seed, event=event, far=far)
        assert not result.violations, result.report()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("number", "operation"), enumerate(OPERATIONS), ids=[each.name for each in OPERATIONS])
def test_the_table_is_lost_before_each_call_of_an_operation(number, operation, is_long):
    places = [(event, far) for far in (False, True) for event in sweep_lost.EVENTS]
    for event, far in places if is_long else [places[number % 4], places[(number + 1) % 4]]:
        cases, failures = sweep_lost.sweep_lost([operation], event, far)
        assert not failures, failures[0]
        assert cases > 1 or operation.opens or operation.new


def test_the_sweep_finds_a_commit_that_looks_at_nothing(monkeypatch):
    monkeypatch.setattr(TipProof, "check", lambda self, version: None)
    monkeypatch.setattr(TipProof, "is_checked_after", property(lambda self: False))
    append = [each for each in OPERATIONS if each.name == "append"]
    for event in sweep_lost.EVENTS:
        _, failures = sweep_lost.sweep_lost(append, event, far=False)
        assert any("acknowledged that followed another table" in failure for failure in failures)


def test_a_seed_decides():
    assert_seeds_decide(run_lost_table, range(3), 0)
