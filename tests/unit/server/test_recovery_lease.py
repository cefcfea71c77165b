"""One of the servers of a catalog runs recovery; if it dies, another one takes over."""

from __future__ import annotations

import random
from typing import Any

import pytest

from deltalog.errors import CoordinatorError
from deltalog.server.recovery_lease import LEASE, RecoveryLease
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator
from deltalog.testing.store_contract import together
from deltalog.testing.stores import Fault, nth


class Place:
    """Servers of one catalog, whose clocks start at arbitrary times."""

    def __init__(self, coordinator: Any, count: int) -> None:
        chance = random.Random(count)
        self.now = [chance.random() * 1e6 for _ in range(count)]
        self.leases = [
            RecoveryLease(coordinator, 100.0, lambda number=number: self.now[number])  # type: ignore[misc]
            for number in range(count)
        ]

    def pass_(self, seconds: float) -> None:
        self.now = [now + seconds for now in self.now]

    def take(self, *dead: int) -> list[int]:
        return [number for number, each in enumerate(self.leases) if number not in dead and each.take()]


@pytest.fixture(params=["memory", "postgresql", pytest.param("dynamodb", marks=pytest.mark.long)])
def coordinator(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return MemoryCoordinator()
    if request.param == "postgresql":
        from deltalog.catalog.postgresql import PostgresCoordinator

        return PostgresCoordinator(request.getfixturevalue("postgresql").empty_url())
    from deltalog.catalog.dynamodb import DynamoDBCoordinator
    from tests.support.s3.dynamodb import new_table

    server = request.getfixturevalue("ministack")
    return DynamoDBCoordinator(new_table(server, "catalog"), server.options())


def test_one_of_many_has_it_and_keeps_it(coordinator: Any) -> None:
    place = Place(coordinator, 6)
    first = [number for number, done in enumerate(together(lambda who: place.leases[who].take(), 6)) if done]
    assert len(first) == 1
    for _ in range(10):
        place.pass_(60)
        assert place.take() == first


def test_another_takes_over_from_one_that_died(coordinator: Any) -> None:
    place = Place(coordinator, 4)
    assert place.take() == [0]
    place.pass_(99)
    assert place.take(0) == []
    place.pass_(2)
    [heir] = place.take(0)
    place.pass_(60)
    assert place.take() == [heir]  # the first one was only slow, and learns that it is no longer its turn


def test_one_that_ends_gives_it_up(coordinator: Any) -> None:
    place = Place(coordinator, 2)
    assert place.take() == [0]
    place.leases[1].give_up()  # the lease is another server's
    assert place.take() == [0]
    place.leases[0].give_up()
    assert coordinator.document(*LEASE) is None
    assert place.take(0) == [1]


def test_one_that_watched_since_its_start_waits_no_longer_than_needed(coordinator: Any) -> None:
    dead, later = Place(coordinator, 1), Place(coordinator, 1)
    assert dead.take() == [0]
    later.leases[0].look()
    later.pass_(60)
    assert later.take() == []
    later.pass_(60)
    assert later.take() == [0]


def test_a_catalog_that_fails_is_no_lease() -> None:
    inner = MemoryCoordinator()
    for fault in (Fault.FAIL_BEFORE, Fault.UNKNOWN_NOT_WRITTEN):
        lease = RecoveryLease(FaultyCoordinator(inner, nth(1, fault, method="document")), 1.0)
        with pytest.raises(CoordinatorError):
            lease.take()
        lease = RecoveryLease(FaultyCoordinator(inner, nth(1, fault, method="document")), 1.0)
        lease.look()
        lease = RecoveryLease(FaultyCoordinator(inner, nth(1, fault, method="document")), 1.0)
        lease.give_up()
    lost = RecoveryLease(FaultyCoordinator(inner, nth(1, Fault.LOST_ACK, method="change_documents")), 1.0)
    with pytest.raises(CoordinatorError):
        lost.take()
    assert lost.take()  # the lease was taken after all
