"""The commit protocol under faults: seeded schedules of three writers and a reader on a failing store.

A default run executes 400 schedules, and a run with ``--long`` 20,000; DELTALOG_SCHEDULES=200000 executes more
schedules, and DELTALOG_FIRST_SEED=100000 executes others. A failing seed is printed with its trace; add the seed to
seeds.txt, so that every run repeats it.
"""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path

import pytest

from deltalog.testing.stores import Fault
from tests.support.simulation.scheduler import POLICIES
from tests.support.simulation.seeds import assert_seeds_decide, run_and_print
from tests.support.simulation.simulation import KINDS, TABLES, Simulation, run_schedule

USUAL, LONG = 400, 20_000
KEPT = [
    int(line.split("#")[0])
    for line in Path(__file__).with_name("seeds.txt").read_text().splitlines()
    if line.split("#")[0].strip()
]


@pytest.fixture(scope="module")
def schedules(is_long):
    return int(os.environ.get("DELTALOG_SCHEDULES", LONG if is_long else USUAL))


@pytest.mark.timeout(120 + int(os.environ.get("DELTALOG_SCHEDULES", LONG)) / 10)
def test_no_schedule_breaks_an_invariant(capsys, schedules):
    totals = run_and_print(capsys, "schedules", schedules, run_schedule)
    # Fails if the schedules did not cover something that the test is meant to check.
    assert schedules >= 100
    for fault in Fault:
        assert totals.faults[fault] >= schedules / 40, f"too few faults of the kind {fault}"
    assert 0.05 < sum(totals.faults.values()) / totals.steps < 0.2
    assert set(totals.tables) == set(TABLES)
    assert set(totals.policies) == set(POLICIES)
    assert {*KINDS, "switch", "create"} - {"checkpoint"} <= set(totals.kinds)
    assert totals.outcomes["ok"] >= 3 * schedules
    assert totals.outcomes["failed"] >= schedules / 2
    assert totals.outcomes["killed"] >= schedules / 10
    assert totals.unknown_raised >= schedules / 100
    assert totals.outcomes["unknown"] >= schedules / 400
    assert totals.reads >= 2 * schedules
    assert totals.checkpoints >= schedules / 4


@pytest.mark.timeout(120 + int(os.environ.get("DELTALOG_SCHEDULES", LONG)) / 100)
def test_no_schedule_over_a_network_breaks_an_invariant(capsys, schedules):
    """Clients of a remote store list the log, and check the previous version only before the commit."""
    totals = run_and_print(capsys, "remote schedules", schedules // 10, functools.partial(run_schedule, remote=True))
    assert totals.outcomes["ok"] >= 3 * (schedules // 10) > 0


@pytest.mark.parametrize("seed", KEPT)
def test_seeds_that_once_failed(seed):
    """All these seeds failed in schedules that write checkpoints."""
    result = run_schedule(seed, checkpoints=1.0)
    assert not result.violations, result.report()


@pytest.mark.parametrize("policy", POLICIES)
def test_quiet_schedules_have_no_failures(policy):
    """Without faults, operations may fail only because of conflicts."""
    for seed in range(40):
        result = run_schedule(seed, fault_rate=0.0, policy=policy)
        assert not result.violations, result.report()
        assert not result.faults
        for operation in result.operations:
            assert operation.outcome in ("ok", "failed")
            assert operation.outcome == "ok" or operation.error in EXPECTED, result.report()


EXPECTED = {  # errors of operations that had nothing to commit (""), or whose commit conflicted with another writer's
    "",
    "ConcurrentAppendError",
    "ConcurrentDeleteDeleteError",
    "ConcurrentDeleteReadError",
    "ConcurrentTransactionError",
    "MetadataChangedError",
    "ProtocolChangedError",
    "TableExistsError",
}


def test_a_seed_is_a_schedule():
    assert_seeds_decide(run_schedule, [3, 14, 15, 92], 1, 2)


def test_traces_say_what_happened():
    result = run_schedule(3)
    report = result.report()
    assert report.startswith("seed 3 ")
    assert len(result.trace) >= result.steps > 20
    for operation in result.operations:
        assert operation.token in report


def test_clients_really_interleave():
    """Other clients run between two store calls of a client, and writers compete for the same version."""
    switches = meetings = 0
    for seed in range(30):
        simulation = Simulation(seed, fault_rate=0.0, policy="random")
        result = simulation.run()
        assert not result.violations, result.report()
        names = [line.split()[1] for line in result.trace]
        switches += sum(a != b for a, b in itertools.pairwise(names))
        meetings += sum(put.returned == "exists" for store in simulation._stores for put in store.puts)
    assert switches > 30 * 30
    assert meetings > 30
