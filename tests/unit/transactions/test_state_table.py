"""The effect of each call in each state of a transaction: the documentation's table is repeated here, and each of its
cells is tested."""

from __future__ import annotations

import pytest

import deltalog
from deltalog.catalog import records
from deltalog.errors import (
    CallError,
    ChangeAfterCommitError,
    ConcurrentModificationError,
    EntityNotFoundError,
    Outcome,
    TransactionAbortedError,
    TransactionCanceledError,
    TransactionCommitInProgressError,
    TransactionCommittedError,
)
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.manager import VirtualObject
from tests.support.transactions import START_MS, A, Clock, bank, content, manager_of, rows

OK = None
#: For each call, its outcome in each state of the transaction: ACTIVE (read and write), ACTIVE (read only),
#: COMMIT_IN_PROGRESS, COMMITTED, ABORTED, and unknown id. An outcome is an error, a returned status, or OK.
TABLE = {
    "commit": ("COMMITTED", "COMMITTED", "COMMIT_IN_PROGRESS", "COMMITTED", TransactionCanceledError),
    "cancel": (OK, OK, TransactionCommitInProgressError, TransactionCommittedError, OK),
    "extend": (OK, OK, TransactionCommitInProgressError, TransactionCommittedError, TransactionCanceledError),
    "describe": ("ACTIVE", "ACTIVE", "COMMIT_IN_PROGRESS", "COMMITTED", "ABORTED"),
    "delete objects": (
        OK, CallError, ConcurrentModificationError, TransactionCommittedError, TransactionCanceledError,
    ),
    "write": (
        OK, CallError, TransactionCommitInProgressError, ChangeAfterCommitError, TransactionAbortedError,
    ),
    "read": (OK, OK, OK, TransactionCommittedError, TransactionCanceledError),
}  # fmt: skip
STATES = ("active", "read only", "in progress", "committed", "aborted")
#: The state of the transaction after the call, for calls that change it.
AFTER = {
    ("commit", "active"): "COMMITTED",
    ("commit", "read only"): "COMMITTED",
    ("cancel", "active"): "ABORTED",
    ("cancel", "read only"): "ABORTED",
}
BEFORE = dict(zip(STATES, ("ACTIVE", "ACTIVE", "COMMIT_IN_PROGRESS", "COMMITTED", "ABORTED"), strict=True))


class Place:
    """A transaction in a given state, and the calls to make on it. The transaction has appended a row if its state
    allowed an append."""

    def __init__(self, state: str) -> None:
        self.clock = Clock()
        self.coordinator = MemoryCoordinator()
        self.manager = bank(self.coordinator, self.clock)
        kind = "READ_ONLY" if state == "read only" else "READ_AND_WRITE"
        transaction = self.manager.transaction(transaction_type=kind)
        self.id = transaction.id
        self.table = transaction.table(A)
        if state == "read only":
            assert content(self.table)
        else:
            self.table.append(rows((3, 7)))
        self.clock.pass_(seconds=1)
        if state == "committed":
            transaction.commit()
        elif state == "aborted":
            transaction.cancel()
        elif state == "in progress":
            found = self.coordinator.transaction(self.id)
            assert found is not None
            assert self.coordinator.replace(records.committing(found, self.clock()))

    def call(self, name: str, transaction_id: object) -> object:
        manager = self.manager
        url = manager.list_tables()[0].url
        return {
            "commit": lambda: manager.commit_transaction(transaction_id),
            "cancel": lambda: manager.cancel_transaction(transaction_id),
            "extend": lambda: manager.extend_transaction(transaction_id),
            "describe": lambda: manager.describe_transaction(transaction_id).status,
            "delete objects": lambda: manager.delete_objects_on_cancel(
                transaction_id, A, [VirtualObject(f"{url}/x.parquet")]
            ),
            "write": self._write if transaction_id == self.id else lambda: manager.transaction(transaction_id),
            "read": lambda: manager.transaction(transaction_id).table(A).version * 0 or None,
        }[name]()

    def _write(self) -> None:
        self.table.append(rows((4, 9)))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("call", TABLE)
def test_every_call_in_every_state(call, state):
    place, wanted = Place(state), TABLE[call][STATES.index(state)]
    before = place.manager.describe_transaction(place.id)
    assert before.status == BEFORE[state]
    place.clock.pass_(seconds=1)
    if isinstance(wanted, type):
        with pytest.raises(wanted) as raised:
            place.call(call, place.id)
        assert type(raised.value) is wanted
        assert place.id in str(raised.value)
        if call == "write":
            assert isinstance(raised.value, deltalog.DeltaLogError)
            assert raised.value.outcome is Outcome.NOTHING_COMMITTED
    else:
        assert place.call(call, place.id) == wanted
    after = place.manager.describe_transaction(place.id)
    assert after.status == AFTER.get((call, state), BEFORE[state])
    is_over = after.status in ("COMMITTED", "ABORTED")
    assert (after.end_ms is not None) == is_over
    if is_over:
        assert after.end_ms >= after.start_ms == START_MS
    if isinstance(wanted, type) or before.end_ms is not None:
        assert after == before  # a refused call changes nothing, and final states never change


@pytest.mark.parametrize("state", ["active", "aborted", "committed", "in progress"])
def test_rows_are_there_once_it_is_committed_and_not_before(state):
    place = Place(state)
    assert ((3, 7) in content(place.manager.table(A))) == (state == "committed")


@pytest.mark.parametrize("call", TABLE)
def test_an_unknown_id(call):
    with pytest.raises(EntityNotFoundError, match="nobody"):
        Place("active").call(call, "nobody")


@pytest.mark.parametrize("call", TABLE)
@pytest.mark.parametrize("bad", ["", "x" * 256, "a b", "a\nb", "\x00", "\ud800", 7, b"id"])
def test_what_cannot_be_an_id(call, bad):
    with pytest.raises(CallError):
        Place("active").call(call, bad)


@pytest.mark.parametrize("call", ["commit", "cancel", "extend", "describe", "delete objects"])
def test_no_id(call):
    with pytest.raises(CallError):
        Place("active").call(call, None)


@pytest.mark.parametrize("good", ["x" * 255, "ünï", "a/b:c", "\U0001f600"])
def test_ids_of_any_letters_may_be_asked_for(good):
    with pytest.raises(EntityNotFoundError):
        Place("active").manager.describe_transaction(good)


@pytest.mark.parametrize("first", ["commit", "cancel"])
def test_ending_twice_is_ending_once(first):
    place = Place("active")
    for _ in range(3):
        place.call(first, place.id)
        place.clock.pass_(days=1)
    description = place.manager.describe_transaction(place.id)
    assert description.end_ms == START_MS + 1000
    assert content(place.manager.table(A)).count((3, 7)) == (first == "commit")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("BOTH",), "transaction type"), ((None,), "transaction_type"), (("read_only",), "transaction type")],
)
def test_types_that_there_are_not(arguments, said):
    with pytest.raises(CallError, match=said):
        bank().start_transaction(*arguments)


def test_isolations_that_there_are_not():
    with pytest.raises(CallError, match="isolation"):
        bank().start_transaction(isolation="READ_COMMITTED")


def test_a_read_only_transaction_leaves_no_file():
    place = Place("read only")
    store = place.manager._tables.plain_store(place.manager.list_tables()[0].url)
    before = store.list_names("")
    with pytest.raises(CallError, match="read-only"):
        place.call("write", place.id)
    assert store.list_names("") == before


def test_a_transaction_without_changes_is_committed_without_a_version():
    manager = bank()
    with manager.transaction() as transaction:
        assert content(transaction.table(A)) == [(1, 100), (2, 50)]
        assert transaction.commit() == "COMMITTED"
    assert manager.table(A).version == 0


def test_leaving_the_block_cancels():
    manager = bank()
    with pytest.raises(ZeroDivisionError), manager.transaction() as transaction:
        transaction.table(A).append(rows((3, 7)))
        raise ZeroDivisionError
    assert manager.describe_transaction(transaction.id).status == "ABORTED"
    assert manager_of(manager.coordinator).table(A).version == 0
