"""Which versions a transaction reads, and which commits conflict with it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltalog.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    CoordinatorError,
    EntityNotFoundError,
    MetadataChangedError,
    OperationTimeoutError,
    ResourceNotReadyError,
    TransactionCanceledError,
    TransactionContentionError,
)
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator
from deltalog.testing.stores import Fault
from tests.support.transactions import SCHEMA, A, B, Clock, Meddling, bank, content, manager_of, rows

C = "bank.c"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def manager(clock):
    return bank(clock=clock)


def other_of(manager, clock):
    return manager_of(manager.coordinator, clock)


def transfer(manager, key=1, amount=100):
    with manager.transaction() as transaction:
        transaction.table(A).delete(f"id = {key}")
        transaction.table(B).append(rows((key, amount)))
        transaction.commit()


# ------------------------------------------------------------------------------------------------------- one instant


def test_the_instant_is_that_of_the_first_read_and_of_all_tables(manager, clock):
    other = other_of(manager, clock)
    transaction = manager.transaction()
    transfer(other)  # before the first read
    assert content(transaction.table(A)) == [(2, 50)]
    transfer(other, 2, 50)  # after the transaction's first read of A, but before it reads B
    assert content(transaction.table(B)) == [(1, 100)]
    assert content(transaction.table(A)) == [(2, 50)]
    assert content(manager.table(B)) == [(1, 100), (2, 50)]


@pytest.mark.parametrize("kind", ["READ_ONLY", "READ_AND_WRITE"])
def test_reads_are_repeatable_whatever_is_committed_and_published(manager, clock, kind):
    other = other_of(manager, clock)
    transaction = manager.transaction(transaction_type=kind)
    before = content(transaction.table(A)), content(transaction.table(B))
    for number in range(12):  # beyond a checkpoint
        other.table(A).append(rows((number, 1)))
        other.table(B).overwrite(rows((number, 1)))
    other.recover()
    assert (content(transaction.table(A)), content(transaction.table(B))) == before
    assert transaction.table(A).history()[0].version == 0


def test_a_table_that_another_thread_moves_while_it_is_opened_is_read_at_the_instant(manager, clock, monkeypatch):
    transaction = manager.transaction(isolation="SERIALIZABLE")
    transaction.table(B)
    table, handle, looks = manager.table(A), manager._tables.handle(manager._tables.record(A)), list[Any]()
    kind: Any = type(handle)

    class Moved(kind):
        """When the latest version is read for the first time, another thread commits."""

        @property
        def latest(self):
            latest = self.__dict__["latest"]
            if not looks:
                looks.append(latest.version)
                table.append(rows((3, 7)))
            return latest

        @latest.setter
        def latest(self, snapshot):
            self.__dict__["latest"] = snapshot

    monkeypatch.setattr(handle, "__class__", Moved)
    opened = transaction.table(A)
    assert (looks, opened.version, content(opened)) == ([0], 0, [(1, 100), (2, 50)])
    transaction.table(B).append(rows((1, 1)))
    with pytest.raises(TransactionCanceledError):
        transaction.commit()


def test_a_table_that_is_younger_than_the_instant_is_not_there(manager, clock):
    transaction = manager.transaction()
    transaction.table(A)
    manager.create_table(C, manager.list_tables()[0].url + "-c", SCHEMA)
    with pytest.raises(EntityNotFoundError, match="after the instant"):
        transaction.table(C)
    assert manager.transaction().table(C).version == 0


def test_another_process_reads_at_the_same_instant(manager, clock):
    transaction = manager.transaction()
    transaction.table(A)
    transfer(manager)
    assert content(other_of(manager, clock).transaction(transaction.id).table(A)) == [(1, 100), (2, 50)]


# --------------------------------------------------------------------------------------------------------- own changes


def test_own_changes_are_seen_and_nobody_elses(manager, clock):
    transaction = manager.transaction()
    a, b = transaction.table(A), transaction.table(B)
    a.append(rows((3, 7)))
    manager.table(A).append(rows((99, 99)))
    a.delete("id = 1")
    a.append(rows((4, 8)))
    a.delete("id = 4")
    b.overwrite(rows((5, 5)))
    assert content(a) == content(transaction.table(A)) == [(2, 50), (3, 7)]
    assert content(b) == [(5, 5)]
    assert (a.version, b.version) == (4, 1)
    assert content(manager.table(A)) == [(1, 100), (2, 50), (99, 99)]
    assert content(manager.table(B)) == []
    assert content(a, version=1) == [(1, 100), (2, 50), (3, 7)]


def test_several_commits_become_several_versions_at_once(manager):
    with manager.transaction() as transaction:
        for number in range(3):
            transaction.table(A).append(rows((10 + number, 1)))
        transaction.table(B).append(rows((1, 1)))
        transaction.commit()
    history = manager.table(A).history()
    assert [entry.version for entry in history] == [3, 2, 1, 0]
    assert [entry.timestamp_ms for entry in history[:3]] == [history[0].timestamp_ms - n for n in range(3)]
    assert manager.table(B).history()[0].timestamp_ms == history[0].timestamp_ms
    reader = manager.table(A).snapshot().reader
    places = [reader.commit_info(version).body["deltalog"]["transaction"] for version in (3, 2, 1)]
    assert places == [{"id": transaction.id, "part": part, "parts": 3} for part in (3, 2, 1)]


def test_schema_and_properties_are_changed_and_used_at_once(manager):
    with manager.transaction() as transaction:
        table = transaction.table(A)
        table.set_properties({"custom.x": "1"})
        table.append(rows((3, 7)).append_column("note", pa.array(["n"])), merge_schema=True)
        table.delete("note = 'n'")
        table.append(rows((4, 8)))
        assert [field.name for field in table.snapshot().schema] == ["id", "amount", "note"]
        assert [field.name for field in manager.table(A).snapshot().schema] == ["id", "amount"]
        transaction.commit()
    snapshot = manager.table(A).snapshot()
    assert [field.name for field in snapshot.schema] == ["id", "amount", "note"]
    assert snapshot.metadata.configuration["custom.x"] == "1"
    assert content(manager.table(A)) == [(1, 100), (2, 50), (4, 8)]


def test_an_application_id_holds_within_the_transaction(manager):
    with manager.transaction() as transaction:
        assert not transaction.table(A).append(rows((3, 7)), txn=("job", 1)).skipped
        assert transaction.table(A).append(rows((3, 7)), txn=("job", 1)).skipped
        transaction.commit()
    assert manager.table(A).append(rows((3, 7)), txn=("job", 1)).skipped
    assert content(manager.table(A)) == [(1, 100), (2, 50), (3, 7)]


def test_log_files_are_not_written_before_the_commit(manager):
    store = manager._tables.plain_store(manager.table(A).url)
    before = set(store.paths()) if hasattr(store, "paths") else set(store._objects)
    with manager.transaction() as transaction:
        for number in range(12):  # more commits than delta.checkpointInterval
            transaction.table(A).append(rows((number, 1)))
        written = set(store._objects) - before
        assert len(written) == 12 and not any(path.startswith("_delta_log") for path in written)
        transaction.commit()
    assert store.head("_delta_log/00000000000000000010.checkpoint.parquet") is not None


# ----------------------------------------------------------------------------------------------------------- conflicts


def canceled(transaction):
    with pytest.raises(TransactionCanceledError) as raised:
        transaction.commit()
    return raised.value


def test_a_conflict_names_the_other_commit_and_aborts_all(manager, clock):
    transaction = manager.transaction()
    transaction.table(A).delete("id = 1")
    transaction.table(B).append(rows((1, 100)))
    other_of(manager, clock).table(A).delete("id = 1")
    error = canceled(transaction)
    (conflict,) = error.conflicts
    assert isinstance(conflict, ConcurrentDeleteDeleteError)
    assert (conflict.winning_version, conflict.winning_operation) == (1, "DELETE")
    assert error.transaction_id == transaction.id and transaction.id in str(error)
    assert manager.table(A).url in str(error)
    description = manager.describe_transaction(transaction.id)
    assert description.status == "ABORTED" and "conflict" in description.reason
    assert content(manager.table(B)) == []
    assert canceled(transaction).conflicts in ((), [])  # a second commit only reports that the transaction has ended


@pytest.mark.parametrize("isolation", ["SNAPSHOT", "SERIALIZABLE"])
def test_write_skew_over_two_tables(manager, clock, isolation):
    """Each transaction reads both tables and writes one of them. If both committed, they would break the rule that only
    one of A and B may have the row 7."""
    other = other_of(manager, clock)
    first, second = manager.transaction(isolation=isolation), other.transaction(isolation=isolation)
    for transaction in (first, second):
        assert not [row for name in (A, B) for row in content(transaction.table(name)) if row[0] == 7]
    first.table(A).append(rows((7, 1)))
    second.table(B).append(rows((7, 1)))
    assert first.commit() == "COMMITTED"
    if isolation == "SNAPSHOT":
        assert second.commit() == "COMMITTED"
        return
    error = canceled(second)
    assert isinstance(error.conflicts[0], ConcurrentAppendError)
    assert manager.table(A).url in str(error)
    assert content(manager.table(B)) == []


@pytest.mark.parametrize("moves", ["opened", "not opened"])
def test_serializable_is_about_the_tables_that_were_opened(manager, clock, moves):
    transaction = manager.transaction(isolation="SERIALIZABLE")
    transaction.table(B).append(rows((7, 1)))
    if moves == "opened":
        transaction.table(A)
    manager.table(A).append(rows((8, 1)))
    if moves == "opened":
        canceled(transaction)
    else:
        assert transaction.commit() == "COMMITTED"


def test_what_was_read_in_one_process_is_held_in_another(manager, clock):
    transaction = manager.transaction(isolation="SERIALIZABLE")
    transaction.table(A)
    transaction.table(B).append(rows((7, 1)))
    manager.table(A).append(rows((8, 1)))
    with pytest.raises(TransactionCanceledError):
        other_of(manager, clock).commit_transaction(transaction.id)


def test_serializable_when_the_table_moves_between_the_look_and_the_ratification(clock):
    coordinator = MemoryCoordinator()
    manager = bank(coordinator, clock)
    between = manager_of(Meddling(coordinator, "ratify", lambda: manager.table(A).append(rows((8, 1)))), clock)
    transaction = between.transaction(isolation="SERIALIZABLE")
    transaction.table(A)
    transaction.table(B).append(rows((7, 1)))
    assert isinstance(canceled(transaction).conflicts[0], ConcurrentAppendError)


def test_only_reading_is_never_refused(manager, clock):
    for kind in ("READ_ONLY", "READ_AND_WRITE"):
        transaction = manager.transaction(transaction_type=kind, isolation="SERIALIZABLE")
        transaction.table(A)
        manager.table(A).append(rows((8, 1)))
        assert transaction.commit() == "COMMITTED"


def test_commits_that_do_not_conflict_are_built_upon(manager, clock):
    transaction = manager.transaction()
    for number in range(2):
        transaction.table(A).append(rows((10 + number, 1)))
    transaction.table(B).append(rows((1, 1)))
    other = other_of(manager, clock)
    for number in range(3):
        other.table(A).append(rows((20 + number, 2)))
    assert transaction.commit() == "COMMITTED"
    assert manager.table(A).snapshot().version == 5
    assert [row[0] for row in content(manager.table(A))] == [1, 2, 10, 11, 20, 21, 22]
    times = [entry.timestamp_ms for entry in manager.table(A).history()]
    assert times == sorted(set(times), reverse=True)


def test_a_change_of_the_metadata_by_another_is_a_conflict(manager, clock):
    transaction = manager.transaction()
    transaction.table(A).append(rows((3, 7)))
    other_of(manager, clock).table(A).set_properties({"custom.x": "1"})
    assert isinstance(canceled(transaction).conflicts[0], MetadataChangedError)


def row_ids(table):
    found = table.snapshot().scan(columns=["id", "_metadata.row_id", "_metadata.row_commit_version"]).to_arrow()
    return {row["id"]: (row["_metadata.row_id"], row["_metadata.row_commit_version"]) for row in found.to_pylist()}


def tracked(manager, **properties):
    url = manager.list_tables()[0].url + "-tracked"
    properties = {"delta.enableRowTracking": "true", **properties}
    manager.create_table(C, url, SCHEMA, properties=properties, data=rows((1, 1), (2, 2)))


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_row_ids_are_given_out_after_those_of_the_others(manager, clock, vectors):
    tracked(manager, **{"delta.enableDeletionVectors": vectors})
    transaction = manager.transaction()
    transaction.table(C).append(rows((10, 1), (11, 1)))
    transaction.table(C).append(rows((12, 1)))
    transaction.table(C).delete("id = 1")
    other_of(manager, clock).table(C).append(rows((20, 1), (21, 1)))
    assert transaction.commit() == "COMMITTED"
    assert row_ids(manager.table(C)) == {2: (1, 0), 20: (2, 1), 21: (3, 1), 10: (4, 2), 11: (5, 2), 12: (6, 3)}


def test_rows_that_were_added_and_masked_in_one_transaction_get_ids_of_their_own(manager, clock):
    """The deletion vector belongs to a file that the transaction itself added: the transaction's commit contains two
    add actions for the file, but assigns row ids to the file's rows only once."""
    tracked(manager, **{"delta.enableDeletionVectors": "true"})
    transaction = manager.transaction()
    transaction.table(C).append(rows((10, 1), (11, 1), (12, 1)))
    transaction.table(C).delete("id = 11")
    other_of(manager, clock).table(C).append(rows((20, 1), (21, 1)))
    assert transaction.commit() == "COMMITTED"
    assert row_ids(manager.table(C)) == {1: (0, 0), 2: (1, 0), 20: (2, 1), 21: (3, 1), 10: (4, 2), 12: (6, 2)}


def test_rows_that_were_added_and_moved_in_one_transaction_are_refused_when_their_ids_are_gone(manager, clock):
    """The new file with the rewritten rows also stores their row ids."""
    tracked(manager)
    for meddles in (False, True):
        transaction = manager.transaction()
        transaction.table(C).append(rows((10, 1), (11, 1), (12, 1)))
        transaction.table(C).delete("id = 11")
        if meddles:
            other_of(manager, clock).table(C).append(rows((20, 1)))
            assert "row ids" in str(canceled(transaction))
        else:
            assert transaction.commit() == "COMMITTED"
            assert row_ids(manager.table(C)) == {1: (0, 0), 2: (1, 0), 10: (2, 1), 12: (4, 1)}
    found = row_ids(manager.table(C))
    assert len({row_id for row_id, _ in found.values()}) == len(found)


# ---------------------------------------------------------------------------------------------------------- contention


def test_losing_every_race_leaves_it_active_and_to_be_tried_again(clock):
    coordinator = MemoryCoordinator()
    manager = bank(coordinator, clock)
    meddler = Meddling(coordinator, "ratify", lambda: manager.table(A).append(rows((3, 7))))
    slow = manager_of(meddler, clock, retry={"max_attempts": 1})
    transaction = slow.transaction()
    transaction.table(A).append(rows((4, 8)))
    with pytest.raises(TransactionContentionError, match="commit it again"):
        transaction.commit()
    assert slow.describe_transaction(transaction.id).status == "ACTIVE"
    assert transaction.commit() == "COMMITTED"
    assert content(manager.table(A)) == [(1, 100), (2, 50), (3, 7), (4, 8)]


def test_changes_after_lost_races_are_held_against_all_that_came_since_the_instant(clock):
    coordinator = MemoryCoordinator()
    manager = bank(coordinator, clock)
    faster = Meddling(coordinator, "ratify", lambda: manager.table(A).append(rows((3, 7))))
    faster = Meddling(faster, "ratify", lambda: manager.table(A).append(rows((5, 9))), 2)
    transaction = manager_of(faster, clock, retry={"max_attempts": 2}).transaction()
    transaction.table(A).append(rows((4, 8)))
    with pytest.raises(TransactionContentionError):
        transaction.commit()
    assert content(transaction.table(A)) == [(1, 100), (2, 50), (4, 8)]
    transaction.table(A).delete("id = 3 OR id = 4")  # the delete does not see (3, 7), which it would have removed
    assert isinstance(canceled(transaction).conflicts[0], ConcurrentAppendError)
    assert content(manager.table(A)) == [(1, 100), (2, 50), (3, 7), (5, 9)]


def failing(clock):
    """The manager of the tables; a second manager, as of another process; its open transaction, which has appended the
    row (4, 8); and a function that makes the next ``times`` calls of a coordinator method by that process fail."""
    coordinator = MemoryCoordinator()
    manager = bank(coordinator, clock)
    faulty = FaultyCoordinator(coordinator)

    def fail(method, fault, times=1000):
        faults = iter([fault] * times)
        faulty.decide = lambda call: next(faults, None) if call.method == method else None

    slow = manager_of(faulty, clock, retry={"settle_attempts": 2})
    transaction = slow.transaction()
    transaction.table(A).append(rows((4, 8)))
    return manager, slow, transaction, fail


def test_no_answer_before_anything_is_proposed_is_no_commit_in_doubt(clock):
    manager, slow, transaction, fail = failing(clock)
    fail("head", Fault.UNKNOWN_NOT_WRITTEN)
    with pytest.raises(CoordinatorError, match="Nothing was committed; commit it again") as raised:
        transaction.commit()
    assert not isinstance(raised.value, OperationTimeoutError)
    assert slow.describe_transaction(transaction.id).status == "ACTIVE"
    fail("head", None)
    assert transaction.commit() == "COMMITTED"
    assert content(manager.table(A)) == [(1, 100), (2, 50), (4, 8)]


@pytest.mark.parametrize("fault", [Fault.LOST_ACK, Fault.UNKNOWN_NOT_WRITTEN])
def test_no_answer_at_the_beginning_of_a_commit_leaves_it_active(clock, fault):
    manager, slow, transaction, fail = failing(clock)
    fail("replace", fault, times=1)
    with pytest.raises(OperationTimeoutError):
        transaction.commit()
    assert slow.describe_transaction(transaction.id).status == "ACTIVE"
    assert transaction.commit() == "COMMITTED"
    assert content(manager.table(A)) == [(1, 100), (2, 50), (4, 8)]


def test_no_answer_to_a_proposal_leaves_it_in_doubt_until_it_is_overdue(clock):
    manager, _, transaction, fail = failing(clock)
    fail("ratify", Fault.UNKNOWN_NOT_WRITTEN)
    with pytest.raises(OperationTimeoutError, match="60 s"):
        transaction.commit()
    fail("head", None)
    assert transaction.commit() == "COMMIT_IN_PROGRESS"
    clock.pass_(seconds=61)
    with pytest.raises(TransactionCanceledError, match="not ratified"):
        transaction.commit()
    assert content(manager.table(A)) == [(1, 100), (2, 50)]


def test_a_dropped_table_leaves_it_active(manager, clock):
    transaction = manager.transaction()
    transaction.table(A).append(rows((4, 8)))
    transaction.table(B).append(rows((4, 8)))
    manager.drop_table(A)
    with pytest.raises(ResourceNotReadyError, match="dropped"):
        transaction.commit()
    assert manager.describe_transaction(transaction.id).status == "ACTIVE"
    assert content(manager.table(B)) == []
    transaction.cancel()
