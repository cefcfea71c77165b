"""Every store call of every operation is made to fail, with every second kind of fault, for one of three combinations
of tables and settings. ``--long`` runs all three combinations with every kind of fault; ``python -m
tests.support.simulation.soak`` runs all combinations that exist.
"""

from __future__ import annotations

import pytest

from deltalog.table import DeltaTable
from deltalog.testing.stores import Fault
from tests.support.simulation import sweep_operations
from tests.support.simulation.sweep import HALF, SweepTotals, pairs, sweep
from tests.support.simulation.sweep_operations import OPERATIONS

NAMES = [operation.name for operation in OPERATIONS]


@pytest.fixture(scope="module")
def total():
    return SweepTotals()


@pytest.mark.parametrize(("number", "operation"), enumerate(OPERATIONS), ids=NAMES)
def test_every_call_of_an_operation_may_fail(number, operation, total, is_long):
    totals, failures = sweep([operation], HALF) if is_long else sweep([operation], [HALF[number % len(HALF)]], every=8)
    total.merge(totals)
    assert not failures, failures[0]
    calls = totals.calls[operation.name]
    assert totals.cases >= (3 if is_long else 0.37) * calls > 0, "each call must fail in three ways or more"


def test_enough_was_tried(total, capsys, is_long):
    if set(total.calls) != set(NAMES):
        pytest.skip("not all operations were selected")
    with capsys.disabled():
        print(f"\n[sweep] {total.line()}", end="")
    assert total.cases >= (1000 if is_long else 250)
    assert set(total.faults) == {fault.value for fault in Fault}
    assert set(total.outcomes) >= {"ok", "failed", "killed", "unknown"}


def test_two_faults_in_one_run():
    totals, failures = pairs(OPERATIONS, seed=1, number=40)
    assert not failures, failures[0]
    assert totals.cases == 40


def test_names_are_unique():
    assert len(set(NAMES)) == len(NAMES)


VERBS_WITHOUT_A_ROW = {
    "transaction",  # makes only the store calls of the operations in the transaction
    "create_transaction",
    "drop_feature",  # makes two commits, but an operation in this test makes only one
    "create_for_blobs",  # the same as ``create``, but with fixed columns
    "discard_staged",  # deletes staged files, which no version refers to
    "open_blob",  # takes a snapshot and reads one file
    "advance",  # registers a snapshot; makes no store call
    "check",  # reads only
    "stream",  # reads only
    "to_pyarrow_table",  # takes a snapshot, and reads its rows
    "to_pandas",
    "to_pyarrow_dataset",
    "scan_polars",
    "to_duckdb",
    "with_options",  # makes no store call
    "remove_missing_files",  # HEADs, and then the same commit as Transaction.remove_files
    "flush",  # waits for background work that other operations have started
    # Two commits; test_vacuum.py and test_vacuum_lite.py (tests/unit/maintenance) kill the vacuum at each call.
    "vacuum",
}


def test_every_verb_of_a_table_is_swept():
    """A new public method needs a row in OPERATIONS, or an entry here with the reason why OPERATIONS has no row for
    it."""
    swept = {name for operation in OPERATIONS for name in _names(operation.run)}
    members = {name: value for kind in DeltaTable.__mro__[:-1] for name, value in vars(kind).items()}
    verbs = {name for name, value in members.items() if not name.startswith("_") and _is_verb(value)}
    assert verbs - swept - VERBS_WITHOUT_A_ROW == set()


def _is_verb(value):
    return callable(getattr(value, "__func__", value)) and not isinstance(value, property)


def _names(function):
    """The names that occur in the code of a function and in the helpers that it calls, directly or indirectly."""
    seen, waiting = set(), [function]
    while waiting:
        code = waiting.pop().__code__
        for name in (*code.co_names, *(n for c in code.co_consts if hasattr(c, "co_names") for n in c.co_names)):
            if name not in seen:
                seen.add(name)
                helper = getattr(sweep_operations, name, None)
                if hasattr(helper, "__code__"):
                    waiting.append(helper)
    return seen


def test_a_broken_writer_is_found(monkeypatch):
    from deltalog.commit.loop import CommitLoop
    from deltalog.errors import StoreError

    monkeypatch.setattr(CommitLoop, "_unknown", lambda self, attempt, cause: StoreError("gone", path=""))
    _, failures = sweep([next(o for o in OPERATIONS if o.name == "append")], HALF, every=3)
    assert any("I5" in failure for failure in failures)
