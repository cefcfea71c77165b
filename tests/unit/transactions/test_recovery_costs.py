"""The requests that recover() sends if there is nothing to do; transactions that have ended cause no requests."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from deltalog.testing.coordinators import FaultyCoordinator
from deltalog.testing.stores import Fault, nth
from tests.support.restored import InMemory, OnDynamoDB, OnPostgres, OnSQLite
from tests.support.transactions import A, Clock, bank, manager_of, rows


@pytest.fixture(params=["memory", "sqlite", "postgresql", "dynamodb"])
def coordinator(request, tmp_path):
    if request.param == "memory":
        return InMemory().coordinator
    if request.param == "sqlite":
        return OnSQLite(tmp_path).coordinator
    if request.param == "postgresql":
        return OnPostgres(request.getfixturevalue("postgresql")).coordinator
    return OnDynamoDB(request.getfixturevalue("ministack")).coordinator


def calls_of_recovery(coordinator, clock):
    calls = collections.Counter[Any]()
    counted = FaultyCoordinator(coordinator, before=lambda call: calls.update([call.method]))
    manager_of(counted, clock).recover()
    return calls


def test_ended_transactions_cost_nothing(coordinator, tmp_path):
    clock = Clock()
    manager = bank(coordinator, clock, tmp_path / "tables")
    before = calls_of_recovery(coordinator, clock)
    for number in range(6):
        with manager.transaction() as transaction:
            transaction.table(A).append(rows((number, number)))
            if number % 2:
                transaction.commit()
    clock.pass_(days=1)
    assert calls_of_recovery(coordinator, clock) == before
    assert before["parts"] == before["delete_parts"] == 0


def test_what_one_left_is_found_and_it_is_forgotten_in_time(coordinator, tmp_path):
    clock = Clock()
    bank(coordinator, clock, tmp_path / "tables")
    unlucky = manager_of(FaultyCoordinator(coordinator, nth(1, Fault.FAIL_BEFORE, method="delete_parts")), clock)
    transaction = unlucky.transaction()
    transaction.table(A).append(rows((3, 3)))
    transaction.cancel()
    assert [record.id for record in coordinator.uncleaned()] == [transaction.id]
    manager = manager_of(coordinator, clock)
    assert manager.recover()["cleaned"] == 1
    assert coordinator.uncleaned() == []
    clock.pass_(days=31)
    late = manager.start_transaction()
    assert manager.recover() == {"published": 0, "aborted": 0, "cleaned": 0, "forgotten": 1}
    assert manager.commit_transaction(late) == "COMMITTED"
    assert manager.recover()["forgotten"] == 0
