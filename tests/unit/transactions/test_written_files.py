"""Data files are written before the commit that refers to them; if the transaction is aborted, they are deleted."""

from __future__ import annotations

import pytest

from deltalog.dataset import Dataset
from deltalog.errors import CommitStateUnknownError, TransactionCanceledError
from deltalog.testing.coordinators import FaultyCoordinator
from deltalog.testing.stores import Fault, nth
from deltalog.write_contract.staging import BLOBS_PROPERTY
from deltalog.write_contract.stream import BLOB_SCHEMA
from tests.support.transactions import A, Clock, bank, content, manager_of, rows

BLOBS = "bank.blobs"


def stream_bytes(table):
    with Dataset(table).stream_write() as writer:
        writer.write(b"bytes")
        writer.commit()


WRITES = {
    "write": (A, lambda table: Dataset(table).write(rows((3, 7)))),
    "stream_write_records": (A, lambda table: Dataset(table).stream_write_records([{"id": 3, "amount": 7}])),
    "write of bytes": (BLOBS, lambda table: Dataset(table).write(b"bytes")),
    "stream_write": (BLOBS, stream_bytes),
}


def store_of(manager, name):
    return manager._tables.plain_store(manager.table(name).url)


def files(store):
    return {name for directory in ("", "_blobs") for name in store.list_names(directory) if not name.startswith("_")}


@pytest.fixture
def manager(tmp_path):
    manager = bank(root=tmp_path)
    manager.create_table(BLOBS, str(tmp_path / "blobs"), BLOB_SCHEMA, properties={BLOBS_PROPERTY: "true"})
    return manager


@pytest.fixture(params=WRITES)
def written(request, manager):
    """A table's name, its store, a write, and the number of files that it writes."""
    name, write = WRITES[request.param]
    return name, store_of(manager, name), write, 2 if name == BLOBS else 1


@pytest.mark.parametrize("end", ["cancel", "conflict", "idle"])
def test_files_of_every_verb_go_with_an_aborted_transaction(manager, written, end):
    name, store, write, count = written
    clock = Clock()
    process = manager_of(manager.coordinator, clock)
    before = files(store)
    transaction = process.transaction()
    write(transaction.table(name))
    mine = files(store) - before
    assert len(mine) == count
    if end == "cancel":
        transaction.cancel()
    elif end == "idle":
        clock.pass_(minutes=31)
        manager_of(manager.coordinator, clock).recover()
    else:
        write(manager.table(name))  # the parent gets it
        with pytest.raises(TransactionCanceledError):
            transaction.commit()
    assert mine.isdisjoint(files(store))
    assert len(files(store)) == len(before) + (count if end == "conflict" else 0)


def test_files_of_every_verb_stay_when_they_are_committed(manager, written):
    name, store, write, count = written
    before = files(store)
    with manager.transaction() as transaction:
        write(transaction.table(name))
        transaction.commit()
    manager.recover()
    assert len(files(store) - before) == count
    assert manager.table(name).snapshot().scan().to_arrow().num_rows == (1 if name == BLOBS else 3)


def test_files_of_a_change_that_may_have_been_kept_go_when_it_is_cancelled(manager, written):
    name, store, write, count = written
    before = files(store)
    decide = nth(1, Fault.LOST_ACK, method="put_parts")
    shaky = FaultyCoordinator(manager.coordinator, lambda call: None)
    process = manager_of(shaky, retry={"settle_attempts": 1})
    transaction = process.transaction()
    table = transaction.table(name)
    shaky.decide = decide
    with pytest.raises(CommitStateUnknownError):
        write(table)
    assert len(files(store) - before) == count  # the files may belong to the transaction
    transaction.cancel()
    assert files(store) == before


def test_staged_files_outlive_a_transaction_that_is_cancelled_and_are_committed_in_another(manager):
    store = store_of(manager, A)
    staged = manager.table(A).stage(rows((3, 7)))
    before = files(store)
    with manager.transaction() as transaction:
        transaction.table(A).commit_staged([staged])
    assert files(store) == before
    with manager.transaction() as transaction:
        transaction.table(A).commit_staged([staged])
        transaction.commit()
    assert content(manager.table(A)) == [(1, 100), (2, 50), (3, 7)]
