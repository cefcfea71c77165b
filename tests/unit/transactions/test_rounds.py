"""A transaction on several tables waits for no more successive requests, to the stores and to the coordinator, than a
transaction on a single table."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from deltalog.errors import TransactionCanceledError
from deltalog.storage.memory import MemoryStore
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.manager import TransactionManager
from deltalog.transactions.transaction import ManagedTransaction
from tests.support.core import SCHEMA, environment, rows
from tests.support.rounds import RoundStore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are watched in /proc")


CALLS = ("transaction", "replace", "head", "ratify", "published", "insert", "table", "put_parts", "delete_parts", "cut")


def requesting(rounds: RoundStore) -> MemoryCoordinator:
    """A coordinator that sends one request for each call."""

    class Requesting(MemoryCoordinator):
        pass

    def counted(name: str) -> Any:
        real = getattr(MemoryCoordinator, name)

        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            rounds.request()
            return real(self, *arguments, **named)

        return call

    for name in CALLS:
        setattr(Requesting, name, counted(name))
    return Requesting()


class Bank:
    """Tables of a catalog on several object stores; the requests to all stores are counted together."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rounds = RoundStore(MemoryStore(f"memory://rounds-{id(self)}-0"))
        self.manager = TransactionManager(requesting(self.rounds), environment=environment())
        others = [RoundStore(MemoryStore(f"memory://rounds-{id(self)}-{n}"), self.rounds) for n in range(1, count)]
        stores = {store.url: store for store in (self.rounds, *others)}
        monkeypatch.setattr(self.manager._tables, "plain_store", stores.__getitem__)
        self.names = [f"bank.t{number}" for number in range(count)]
        for name, url in zip(self.names, stores, strict=True):
            self.manager.create_table(name, url, SCHEMA)
        self.flush()

    def flush(self) -> None:
        for name in self.names:
            self.manager.table(name).flush()

    def changed(self) -> ManagedTransaction:
        transaction = self.manager.transaction()
        for name in self.names:
            transaction.table(name).append(rows(1))
        return transaction


def commit(bank: Bank) -> None:
    transaction = bank.changed()
    with bank.rounds.counted():
        transaction.commit()


def rebase(bank: Bank) -> None:
    transaction = bank.changed()
    for name in bank.names:
        bank.manager.table(name).append(rows(2))
    bank.flush()
    with bank.rounds.counted():
        transaction.commit()


def refuse(bank: Bank) -> None:
    transaction = bank.manager.transaction()
    for name in bank.names:
        transaction.table(name).overwrite(rows(1))
    for name in bank.names:
        bank.manager.table(name).overwrite(rows(2))
    bank.flush()
    with bank.rounds.counted(), pytest.raises(TransactionCanceledError):
        transaction.commit()


def cancel(bank: Bank) -> None:
    transaction = bank.changed()
    with bank.rounds.counted():
        transaction.cancel()


@pytest.mark.parametrize(("act", "most"), [(commit, 10), (rebase, 11), (refuse, 10), (cancel, 8)])
def test_several_tables_take_no_more_rounds_than_one(act, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one, three = Bank(1, monkeypatch), Bank(3, monkeypatch)
    act(one)
    act(three)
    assert 0 < one.rounds.rounds <= most and 0 < three.rounds.rounds <= most
    assert three.rounds.requests >= 2 * one.rounds.requests  # the counter includes the requests of all three tables
