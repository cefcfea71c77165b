"""Operations on rows under faults: each commit changes the rows of the previous version exactly as its operation
should.

A usual run takes 80 schedules, ``--long`` 300; DELTALOG_ROW_SCHEDULES=10000 runs more schedules, and
DELTALOG_FIRST_SEED=100000 runs others. A failing seed is printed with its trace; add it to KEPT, so that every run
repeats it.
"""

from __future__ import annotations

import os

import pytest

from deltalog.testing.stores import Fault
from tests.support.simulation.row_simulation import ROW_KINDS, run_row_schedule
from tests.support.simulation.seeds import assert_seeds_decide, run_and_print

USUAL, LONG = 80, 300
NO_COMMITS = {"checkpoint", "compact log", "clean up log"}
#: Errors that are allowed without faults: the operation lost to another writer, broke a rule of the table, had
#: nothing to do, or read a version whose log was cleaned up.
EXPECTED = {
    "", "CallError", "ConcurrentAppendError", "ConcurrentDeleteDeleteError", "ConcurrentDeleteReadError",
    "ConcurrentTransactionError", "ConstraintViolationError", "MetadataChangedError", "MissingVersionError",
    "ProtocolChangedError", "SchemaMismatchError", "VersionNotFoundError",
}  # fmt: skip
TURN_ROW_IDS_ON = {"features": ["row ids later"], "kinds": {"delete": 2, "alter": 3}, "writers": 3}
DOMAINS = {"kinds": {"append": 1, "restore": 3, "domain": 3}}
WITHOUT_MERGES = {kind: often for kind, often in ROW_KINDS.items() if kind not in ("merge", "optimize")}
WITHOUT_MERGES |= {"move": 8, "add constraint": 5, "drop constraint": 3}
KEPT = [
    # When a commit that moved rows was rebased onto the commit that enabled row tracking, the ids of these rows
    # changed.
    (1, TURN_ROW_IDS_ON),
    (11, DOMAINS),  # a RESTORE that was rebased onto a change of a metadata domain did not restore the domain
    (14, {"kinds": WITHOUT_MERGES}),  # a delete(txn=...) that matched no row did not record its application version
]


@pytest.fixture(scope="module")
def schedules(is_long):
    return int(os.environ.get("DELTALOG_ROW_SCHEDULES", LONG if is_long else USUAL))


@pytest.mark.timeout(120 + int(os.environ.get("DELTALOG_ROW_SCHEDULES", LONG)))
def test_every_version_has_the_rows_of_the_one_before_changed_as_asked(capsys, schedules):
    totals = run_and_print(capsys, "row schedules", schedules, run_row_schedule)
    # Fails if the schedules did not cover something that the test is meant to check.
    assert schedules >= USUAL
    assert set(ROW_KINDS) - NO_COMMITS <= set(totals.kinds)
    often = ("append", "delete", "update", "merge", "replace where", "optimize", "restore")
    assert all(totals.kinds[kind] >= schedules / 6 for kind in often), totals.kinds
    assert sum(totals.errors[error] for error in EXPECTED if error.startswith("Concurrent")) >= schedules / 8
    assert totals.errors["ConstraintViolationError"] and totals.errors["MetadataChangedError"]
    assert all(totals.faults[fault] for fault in Fault)


@pytest.mark.parametrize(("seed", "options"), KEPT)
def test_seeds_that_once_failed(seed, options):
    result = run_row_schedule(seed, **options)
    assert not result.violations, result.report()


def test_quiet_schedules_have_no_failures_but_conflicts_and_refusals():
    for seed in range(1_000_000, 1_000_010):
        result = run_row_schedule(seed, fault_rate=0.0)
        assert not result.violations and not result.faults, result.report()
        for operation in result.operations:
            assert operation.outcome in ("ok", "failed"), result.report()
            assert operation.outcome == "ok" or operation.error in EXPECTED, result.report()


def test_a_seed_is_a_schedule():
    assert_seeds_decide(run_row_schedule, [2, 7], 7)
