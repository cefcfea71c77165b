"""One transaction in several processes: handles that share only the coordinator, and real processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deltalog.catalog import records
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import (
    CommitStateUnknownError,
    ConcurrentModificationError,
    OperationTimeoutError,
    ResourceNotReadyError,
    TransactionCanceledError,
    TransactionContentionError,
)
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator
from deltalog.testing.stores import Fault, SimulatedKill, nth
from tests.support.transactions import A, B, Clock, Meddling, bank, content, manager_of, rows


@pytest.fixture
def coordinator():
    return MemoryCoordinator()


@pytest.fixture
def here(coordinator):
    return bank(coordinator)


@pytest.fixture
def there(coordinator):
    return manager_of(coordinator)


def both(manager):
    return content(manager.table(A)), content(manager.table(B))


def test_another_process_takes_it_up_sees_it_all_and_commits_it(here, there):
    transaction = here.transaction()
    transaction.table(A).delete("id = 1")
    transaction.table(B).append(rows((1, 100)))
    taken = there.transaction(transaction.id)
    assert content(taken.table(A)) == [(2, 50)]
    taken.table(B).append(rows((3, 0)))
    assert content(taken.table(B)) == [(1, 100), (3, 0)]
    assert taken.commit() == here.commit_transaction(transaction.id) == "COMMITTED"
    assert both(here) == ([(2, 50)], [(1, 100), (3, 0)])


@pytest.mark.parametrize("who", ["here", "there"])
def test_what_two_processes_did_to_one_table_is_committed_by_either(here, there, who):
    transaction = here.transaction()
    transaction.table(A).append(rows((3, 3)))
    there.transaction(transaction.id).table(A).append(rows((4, 4)))
    assert {"here": here, "there": there}[who].commit_transaction(transaction.id) == "COMMITTED"
    assert content(here.table(A)) == [(1, 100), (2, 50), (3, 3), (4, 4)]


def test_a_process_that_does_not_see_the_others_change_cannot_change_the_table(here, there):
    transaction = here.transaction()
    table = transaction.table(A)
    there.transaction(transaction.id).table(A).delete("id = 1")
    with pytest.raises(ConcurrentModificationError, match="another process"):
        table.append(rows((3, 3)))
    table = transaction.table(A)  # opened again
    assert content(table) == [(2, 50)]
    table.append(rows((3, 3)))
    transaction.commit()
    assert content(here.table(A)) == [(2, 50), (3, 3)]


def test_two_processes_in_different_tables(here, there):
    transaction = here.transaction()
    transaction.table(A).delete("id = 1")
    there.transaction(transaction.id).table(B).append(rows((1, 100)))
    assert transaction.commit() == "COMMITTED"
    assert both(there) == ([(2, 50)], [(1, 100)])


@pytest.mark.parametrize("method", ["replace", "ratify"])
def test_two_that_commit_at_once(coordinator, here, there, method):
    told = []
    between = manager_of(Meddling(coordinator, method, lambda: told.append(there.commit_transaction(transaction.id))))
    transaction = here.transaction()
    transaction.table(A).delete("id = 1")
    transaction.table(B).append(rows((1, 100)))
    told.append(between.commit_transaction(transaction.id))
    assert set(told) <= {"COMMITTED", "COMMIT_IN_PROGRESS"} and "COMMITTED" in told
    assert both(here) == ([(2, 50)], [(1, 100)])
    assert here.table(A).version == 1


@pytest.mark.parametrize(("method", "number"), [("transaction", 1), ("transaction", 2), ("parts", 1), ("replace", 1)])
def test_what_another_was_told_is_kept_is_part_of_a_commit_that_had_found_nothing_yet(
    coordinator, here, there, method, number
):
    transaction = here.transaction()
    transaction.table(A)
    kept = []

    def append():
        kept.append(there.transaction(transaction.id).table(A).append(rows((3, 3))))

    between = manager_of(Meddling(coordinator, method, append, number))
    assert between.commit_transaction(transaction.id) == "COMMITTED"
    assert content(here.table(A)) == [(1, 100), (2, 50), *[(3, 3)] * len(kept)]


def test_a_commit_that_was_taken_back_and_made_by_another_is_not_taken_for_its_own(coordinator, here, there):
    """The process's own staged commit is not the ratified one, and must not be published in its place."""

    def take_over():
        found = coordinator.transaction(transaction.id)
        assert coordinator.replace(records.active_again(found, found.last_activity_ms))
        there.table(A).append(rows((4, 4)))
        assert there.commit_transaction(transaction.id) == "COMMITTED"

    between = manager_of(Meddling(coordinator, "ratify", take_over))
    transaction = here.transaction()
    transaction.table(A).append(rows((3, 3)))
    with pytest.raises(TransactionContentionError, match="another call"):
        between.commit_transaction(transaction.id)
    assert content(here.table(A)) == [(1, 100), (2, 50), (3, 3), (4, 4)]
    assert between.commit_transaction(transaction.id) == "COMMITTED"
    assert here.recover() == {"published": 0, "aborted": 0, "cleaned": 0, "forgotten": 0}


@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE"])
def test_what_was_opened_is_read_by_another_while_it_is_committed(coordinator, here, there, isolation):
    transaction = here.transaction(isolation=isolation)
    transaction.table(A).append(rows((3, 3)))
    transaction.table(B)
    found = coordinator.transaction(transaction.id)
    assert coordinator.replace(records.committing(found, found.last_activity_ms))
    taken = there.transaction(transaction.id)
    assert (content(taken.table(A)), content(taken.table(B))) == ([(1, 100), (2, 50), (3, 3)], [])


@pytest.mark.parametrize("method", ["replace", "ratify"])
def test_one_that_commits_while_another_cancels(coordinator, here, there, method):
    def cancel():
        try:
            there.cancel_transaction(transaction.id)
        except Exception as error:
            refused.append(type(error).__name__)

    refused: list[str] = []
    between = manager_of(Meddling(coordinator, method, cancel))
    transaction = here.transaction()
    transaction.table(A).delete("id = 1")
    transaction.table(B).append(rows((1, 100)))
    if method == "replace":
        with pytest.raises(TransactionCanceledError):
            between.commit_transaction(transaction.id)
        assert both(here) == ([(1, 100), (2, 50)], [])
    else:
        assert between.commit_transaction(transaction.id) == "COMMITTED"
        assert refused == ["TransactionCommitInProgressError"]
        assert both(here) == ([(2, 50)], [(1, 100)])


def test_a_process_that_was_killed_between_two_tables_leaves_what_can_be_carried_on(coordinator, here, there):
    faulty = FaultyCoordinator(coordinator, nth(3, Fault.KILL_AFTER, method="put_parts"))
    transaction = manager_of(faulty).transaction()
    with pytest.raises(SimulatedKill):
        transaction.table(A).delete("id = 1")
        transaction.table(B).append(rows((1, 100)))
    taken = there.transaction(transaction.id)
    assert (content(taken.table(A)), content(taken.table(B))) == ([(2, 50)], [(1, 100)])
    taken.cancel()
    assert both(here) == ([(1, 100), (2, 50)], [])


@pytest.mark.parametrize("fault", [Fault.LOST_ACK, Fault.UNKNOWN_NOT_WRITTEN, Fault.LATE])
def test_an_answer_that_was_lost_while_a_change_was_kept_loses_and_doubles_nothing(coordinator, here, there, fault):
    faulty = FaultyCoordinator(coordinator, nth(2, fault, method="put_parts"))
    transaction = manager_of(faulty).transaction()
    transaction.table(A).append(rows((3, 3)))
    faulty.land()
    assert faulty.injected[fault] == 1
    assert there.commit_transaction(transaction.id) == "COMMITTED"
    assert content(here.table(A)) == [(1, 100), (2, 50), (3, 3)]


def change_in_doubt(coordinator, lands):
    """A transaction to which (3, 3) was appended, and the error that was raised because the response to storing this
    change was lost."""
    faulty = FaultyCoordinator(coordinator)
    transaction = manager_of(faulty, retry={"settle_attempts": 2}).transaction()
    table = transaction.table(A)
    fault = Fault.LOST_ACK if lands else Fault.UNKNOWN_NOT_WRITTEN
    faulty.decide = lambda call: fault if call.method == "put_parts" else None
    with pytest.raises(CommitStateUnknownError) as raised:
        table.append(rows((3, 3)))
    faulty.decide = lambda call: None
    return transaction, raised.value


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("then", ["resolve", "commit there", "cancel"])
def test_a_change_of_which_it_is_not_known_whether_it_is_kept(coordinator, here, there, lands, then):
    """The files of the change must not be deleted, because another process may commit the change."""
    transaction, error = change_in_doubt(coordinator, lands)
    if then == "cancel":
        transaction.cancel()
        assert content(here.table(A)) == [(1, 100), (2, 50)]
        return
    if then == "resolve":
        assert error.resolve().version == 1
        assert error.resolve().version == 1
        assert content(transaction.table(A)) == [(1, 100), (2, 50), (3, 3)]
        assert transaction.commit() == "COMMITTED"
    else:
        assert there.commit_transaction(transaction.id) == "COMMITTED"
    kept = lands or then == "resolve"
    assert content(here.table(A)) == [(1, 100), (2, 50), *([(3, 3)] if kept else [])]


@pytest.mark.parametrize("lands", [True, False])
def test_whether_a_change_was_kept_is_found_in_the_log_once_the_transaction_is_committed(
    coordinator, here, there, lands
):
    """The call must not report the change as refused, because the caller would then repeat it in another
    transaction."""
    transaction, error = change_in_doubt(coordinator, lands)
    found = coordinator.transaction(transaction.id)
    coordinator.replace(records.committing(found, found.last_activity_ms))
    with pytest.raises(OperationTimeoutError, match="again when"):
        error.resolve()
    coordinator.replace(records.active_again(coordinator.transaction(transaction.id), found.last_activity_ms))
    here.table(A).append(rows((4, 4)))
    assert there.commit_transaction(transaction.id) == "COMMITTED"
    for _ in range(2):
        result = error.resolve()
        assert (result and result.version) == (2 if lands else None)
    if result:
        info = here.table(A).snapshot().reader.commit_info(2)
        assert (result.txn_id, result.in_commit_timestamp_ms) == (info.txn_id, info.in_commit_timestamp_ms)
    assert content(here.table(A)) == [(1, 100), (2, 50), *([(3, 3)] if lands else []), (4, 4)]


def test_a_table_that_was_dropped_is_not_left_out_of_what_another_process_commits(here, there):
    transaction = here.transaction()
    transaction.table(A).delete("id = 1")
    transaction.table(B).append(rows((1, 100)))
    there.drop_table(A)
    with pytest.raises(ResourceNotReadyError, match="dropped"):
        there.commit_transaction(transaction.id)
    assert content(here.table(B)) == []


_CHILD = """
import sys
import pyarrow as pa
from deltalog.transactions.manager import TransactionManager
manager = TransactionManager(sys.argv[1])
if sys.argv[2] == "change":
    transaction = manager.transaction()
    transaction.table("bank.a").delete("id = 1")
    transaction.table("bank.b").append(pa.table({"id": [1], "amount": [100]}))
    print(transaction.id)
else:
    print(manager.commit_transaction(sys.argv[3]).value)
"""


def test_real_processes_hand_a_transaction_on(tmp_path):
    path = str(tmp_path / "catalog.db")
    import time

    manager = bank(SQLiteCoordinator(path), Clock(time.time_ns() // 1_000_000), tmp_path)

    def child(*arguments):
        command = [sys.executable, "-c", _CHILD, path, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()

    each = child("change")
    assert both(manager) == ([(1, 100), (2, 50)], [])
    assert child("commit", each) == "COMMITTED"
    assert both(manager) == ([(2, 50)], [(1, 100)])
    assert manager.describe_transaction(each).status == "COMMITTED"
