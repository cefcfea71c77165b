"""Transactions that are idle for too long, with clocks that jump."""

from __future__ import annotations

import datetime

import pytest

from deltalog.catalog import records
from deltalog.errors import (
    TransactionAbortedError,
    TransactionCanceledError,
    TransactionCommitInProgressError,
)
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator
from deltalog.testing.stores import Fault, SimulatedKill, nth
from deltalog.transactions.manager import VirtualObject
from tests.support.transactions import START_MS, A, B, Clock, Meddling, bank, content, manager_of, rows

IDLE_MS = 30 * 60 * 1000


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize(
    "asks", ["describe_transaction", "extend_transaction", "commit_transaction", "list", "recover"]
)
def test_the_first_who_looks_ends_what_is_overdue(clock, asks):
    manager = bank(clock=clock)
    transaction = manager.transaction()
    transaction.table(A).append(rows((3, 7)))
    clock.now_ms += IDLE_MS
    assert manager.describe_transaction(transaction.id).status == "ACTIVE"
    clock.now_ms += 1
    if asks == "list":
        assert manager.list_transactions("ACTIVE").transactions == []
    elif asks == "recover":
        assert manager.recover()["aborted"] == 1
    elif asks == "describe_transaction":
        assert manager.describe_transaction(transaction.id).status == "ABORTED"
    else:
        with pytest.raises(TransactionCanceledError, match="idle"):
            getattr(manager, asks)(transaction.id)
    found = manager.coordinator.transaction(transaction.id)
    assert (found.status, found.end_ms) == ("ABORTED", START_MS + IDLE_MS + 1)
    assert "idle for more than 1800 s" in found.reason
    assert manager_of(manager.coordinator, clock).table(A).version == 0


@pytest.mark.parametrize("keeps", ["extend", "write", "delete objects"])
def test_whoever_is_at_work_is_not_idle(clock, keeps):
    manager = bank(clock=clock)
    transaction = manager.transaction()
    table = transaction.table(A)
    for number in range(3):
        clock.now_ms += IDLE_MS
        if keeps == "extend":
            transaction.extend()
        elif keeps == "write":
            table.append(rows((number, number)))
        else:
            manager.delete_objects_on_cancel(transaction.id, A, [VirtualObject(f"{table.url}/x.parquet")])
    clock.now_ms += IDLE_MS
    assert transaction.commit() == "COMMITTED"


def test_a_read_is_no_activity_and_read_only_ones_end_too(clock):
    manager = bank(clock=clock)
    transaction = manager.transaction(transaction_type="READ_ONLY")
    clock.now_ms += IDLE_MS - 1
    transaction.table(A)  # the first read is recorded
    clock.now_ms += IDLE_MS
    assert content(transaction.table(A))
    clock.now_ms += 1
    with pytest.raises(TransactionCanceledError):
        transaction.table(A)


@pytest.mark.parametrize(("isolation", "ends"), [("SNAPSHOT", "ABORTED"), ("SERIALIZABLE", "ACTIVE")])
def test_the_first_read_of_another_table_is_activity_where_it_is_kept_only(clock, isolation, ends):
    manager = bank(clock=clock)
    transaction = manager.transaction(isolation=isolation)
    transaction.table(A)
    clock.now_ms += IDLE_MS
    transaction.table(B)
    clock.now_ms += 1
    assert manager.describe_transaction(transaction.id).status == ends


def test_a_transaction_keeps_the_timeout_of_whoever_started_it(clock):
    """Each manager has its own timeout, which applies to the transactions that it starts."""
    patient = bank(clock=clock, idle_timeout=datetime.timedelta(hours=4))
    others = manager_of(patient.coordinator, clock)
    each, short = patient.transaction(), others.start_transaction()
    each.table(A).append(rows((3, 7)))
    clock.pass_(hours=4)
    assert others.recover()["aborted"] == 1
    assert others.describe_transaction(each.id).status == "ACTIVE"
    assert patient.describe_transaction(short).reason == "idle for more than 1800 s"
    clock.now_ms += 1
    assert others.recover()["aborted"] == 1
    assert patient.describe_transaction(each.id).reason == "idle for more than 14400 s"


def test_a_record_without_a_timeout_has_that_of_whoever_looks(clock):
    coordinator = MemoryCoordinator()
    coordinator.insert(records.started("old", records.TransactionType.READ_AND_WRITE, clock.now_ms))
    clock.pass_(hours=3)
    patient = manager_of(coordinator, clock, idle_timeout=datetime.timedelta(hours=4))
    assert patient.describe_transaction("old").status == "ACTIVE"
    assert manager_of(coordinator, clock).describe_transaction("old").status == "ABORTED"


def test_a_clock_that_goes_back_ends_nothing_and_revives_nothing(clock):
    manager = bank(clock=clock)
    there, gone = manager.start_transaction(), manager.start_transaction()
    clock.pass_(minutes=10)
    manager.extend_transaction(there)
    clock.pass_(minutes=25)
    assert manager.describe_transaction(gone).status == "ABORTED"
    clock.pass_(days=-400)
    assert manager.describe_transaction(there).status == "ACTIVE"
    assert manager.describe_transaction(gone).status == "ABORTED"
    manager.extend_transaction(there)
    found = manager.coordinator.transaction(there)
    assert found.last_activity_ms == START_MS + 10 * 60_000  # the time of the last activity never decreases
    clock.now_ms = START_MS + 41 * 60_000
    assert manager.describe_transaction(there).status == "ABORTED"


def test_an_end_is_never_before_its_start(clock):
    manager = bank(clock=clock)
    ids = [manager.start_transaction() for _ in range(3)]
    clock.pass_(days=-2)
    manager.cancel_transaction(ids[0])
    manager.commit_transaction(ids[1])
    for each in ids[:2]:
        description = manager.describe_transaction(each)
        assert description.end_ms == description.start_ms == START_MS
    assert manager.describe_transaction(ids[2]).end_ms is None


def test_a_clock_that_jumps_forward_ends_all_and_commits_nothing(clock):
    manager = bank(clock=clock)
    transaction = manager.transaction()
    transaction.table(A).delete("id = 1")
    clock.pass_(days=3650)
    with pytest.raises(TransactionCanceledError):
        transaction.commit()
    assert content(manager.table(A)) == [(1, 100), (2, 50)]


def test_processes_with_other_clocks_agree_on_the_end(clock):
    manager = bank(clock=clock)
    ahead = manager_of(manager.coordinator, Clock(START_MS + IDLE_MS + 1))
    transaction = manager.transaction()
    table = transaction.table(A)
    table.append(rows((3, 7)))
    assert ahead.describe_transaction(transaction.id).status == "ABORTED"
    with pytest.raises(TransactionAbortedError):
        table.append(rows((4, 7)))
    with pytest.raises(TransactionCanceledError):
        transaction.commit()


@pytest.mark.parametrize("method", ["put_parts", "transaction"])
def test_extending_while_another_ends_it(clock, method):
    coordinator = MemoryCoordinator()
    manager = bank(coordinator, clock)
    each = manager.start_transaction()
    clock.now_ms += IDLE_MS
    ahead = manager_of(coordinator, Clock(clock.now_ms + 1))
    between = manager_of(Meddling(coordinator, method, lambda: ahead.describe_transaction(each)), clock)
    with pytest.raises(TransactionCanceledError):
        between.extend_transaction(each)
    record = coordinator.transaction(each)
    assert record is not None and record.status == "ABORTED"


def test_ending_it_while_another_extends_it(clock):
    coordinator = MemoryCoordinator()
    manager = bank(coordinator, clock)
    each = manager.start_transaction()
    clock.now_ms += IDLE_MS
    late = Clock(clock.now_ms + 1)
    ahead = manager_of(Meddling(coordinator, "replace", lambda: manager.extend_transaction(each)), late)
    assert ahead.describe_transaction(each).status == "ACTIVE"
    record = coordinator.transaction(each)
    assert record is not None and record.last_activity_ms == clock.now_ms


def test_committing_while_another_ends_it(clock):
    coordinator = MemoryCoordinator()
    manager = bank(coordinator, clock)
    transaction = manager.transaction()
    transaction.table(A).append(rows((3, 7)))
    ahead = manager_of(coordinator, Clock(clock.now_ms + IDLE_MS + 1))
    between = manager_of(Meddling(coordinator, "replace", lambda: ahead.recover()), clock)
    with pytest.raises(TransactionCanceledError):
        between.commit_transaction(transaction.id)
    assert content(manager.table(A)) == [(1, 100), (2, 50)]


def dead_commit(clock, method, fault):
    """A transaction whose process died while committing it."""
    coordinator = MemoryCoordinator()
    manager = bank(coordinator, clock)
    faulty = FaultyCoordinator(coordinator, nth(1, fault, method=method))
    transaction = manager_of(faulty, clock).transaction()
    transaction.table(A).delete("id = 1")
    transaction.table(B).append(rows((1, 100)))
    with pytest.raises(SimulatedKill):
        transaction.commit()
    return manager, transaction.id


def test_a_commit_whose_process_died_is_in_progress_for_a_while_and_then_aborted(clock):
    manager, each = dead_commit(clock, "ratify", Fault.KILL_BEFORE)
    clock.now_ms += records.COMMIT_LEASE_MS
    assert manager.commit_transaction(each) == "COMMIT_IN_PROGRESS"
    with pytest.raises(TransactionCommitInProgressError):
        manager.cancel_transaction(each)
    clock.now_ms += 1
    with pytest.raises(TransactionCanceledError, match="not ratified"):
        manager.commit_transaction(each)
    assert (content(manager.table(A)), content(manager.table(B))) == ([(1, 100), (2, 50)], [])
    files = manager._tables.plain_store(manager.table(B).url).list_names("")
    assert manager.recover()["cleaned"] == 2  # the transaction has made one change to each table
    assert len(manager._tables.plain_store(manager.table(B).url).list_names("")) < len(files)


def test_a_commit_that_was_ratified_is_never_aborted_however_late_it_is_looked_at(clock):
    manager, each = dead_commit(clock, "ratify", Fault.KILL_AFTER)
    clock.pass_(days=10)
    assert manager.commit_transaction(each) == "COMMITTED"
    assert manager.recover(datetime.timedelta(days=365))["published"] == 2
    assert (content(manager.table(A)), content(manager.table(B))) == ([(2, 50)], [(1, 100)])


def test_a_zombie_that_comes_to_ratify_after_it_was_given_up_commits_nothing(clock):
    coordinator = MemoryCoordinator()
    manager = bank(coordinator, clock)
    ahead = manager_of(coordinator, Clock(clock.now_ms + records.COMMIT_LEASE_MS + 1))
    zombie = manager_of(Meddling(coordinator, "ratify", lambda: ahead.recover()), clock)
    transaction = zombie.transaction()
    transaction.table(A).delete("id = 1")
    transaction.table(B).append(rows((1, 100)))
    with pytest.raises(TransactionCanceledError):
        transaction.commit()
    assert (content(manager.table(A)), content(manager.table(B))) == ([(1, 100), (2, 50)], [])


def test_records_are_kept_for_as_long_as_asked(clock):
    manager = bank(clock=clock)
    ids = [manager.start_transaction() for _ in range(3)]
    manager.cancel_transaction(ids[0])
    manager.commit_transaction(ids[1])
    clock.pass_(minutes=20)
    assert manager.recover(datetime.timedelta(minutes=20))["forgotten"] == 0
    clock.now_ms += 1
    assert manager.recover(datetime.timedelta(minutes=20))["forgotten"] == 2
    assert [each.transaction_id for each in manager.list_transactions().transactions] == [ids[2]]
