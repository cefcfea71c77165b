"""A consistent cut, at whatever time it is taken, contains each transaction completely or not at all."""

from __future__ import annotations

import datetime
import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog.errors import EntityNotFoundError, TimestampOutOfRangeError
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.testing.recording import file_action, quiet
from tests.support.core.strategies import examples
from tests.support.simulation.bank import NAMES, Bank, SimulatedManager
from tests.support.simulation.transaction_judge import ClientTransaction, Cut, judge
from tests.support.transactions import A, B, Clock, Meddling, bank, content, environment, manager_of, rows

#: For each transaction, the number of commits to each table, and the step of the clock before the transaction, in
#: milliseconds.
TRANSACTIONS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=len(NAMES), max_size=len(NAMES)),
        st.sampled_from((-3_600_000, -5, 0, 1, 2, 1000, 3_600_000)),
    ),
    max_size=6,
)


@settings(max_examples=examples(60))
@given(TRANSACTIONS, st.data())
def test_a_cut_never_splits_a_transaction(transactions, data):
    clock = Clock()
    world = Bank(MemoryCoordinator(), clock, files_per_table=1)
    manager = SimulatedManager(world.coordinator, environment(clock), world.stores.__getitem__)
    client_transactions = list[ClientTransaction]()
    with quiet():
        for commits, jump_ms in transactions:
            clock.now_ms += jump_ms
            transaction = manager.transaction()
            client_transaction = ClientTransaction(transaction.id, "client", complete=True)
            for name, number in zip(NAMES, commits, strict=True):
                for part in range(number):
                    with transaction.table(name).transaction() as change:
                        path = f"amount-0-{len(client_transactions)}.{name}.{part}"
                        client_transaction.change(name, [path], [])
                        change.add(file_action(path, clock()))
                        change.commit()
            transaction.commit()
            client_transactions.append(client_transaction)
    times = sorted({entry.timestamp_ms or 0 for name in NAMES for entry in manager.table(name).history()})
    first = max(min(entry.timestamp_ms or 0 for entry in manager.table(name).history()) for name in NAMES)
    at_ms = data.draw(st.integers(first, times[-1] + 2))
    cuts = [Cut(each, manager.consistent_cut(each), final=True) for each in {at_ms, *times[-6:]} if each >= first]
    assert judge(world.world(client_transactions=client_transactions, cuts=cuts)) == []


@pytest.fixture
def clock():
    return Clock()


def move(manager, key=1):
    with manager.transaction() as transaction:
        transaction.table(A).delete(f"id = {key}")
        transaction.table(B).append(rows((key, 100)))
        transaction.commit()


@pytest.mark.parametrize("ahead", [datetime.timedelta(0), datetime.timedelta(days=1)])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_is_committed_while_it_is_taken_is_in_all_tables_or_in_none(clock, ahead, number):
    """Consistent cuts are also computed for the current time and for times in the future."""
    coordinator = MemoryCoordinator()
    manager = bank(coordinator, clock)
    for method in ("table", "head", "cut"):
        before = content(manager.table(A))
        keys = [row[0] for row in before]
        between = manager_of(
            Meddling(coordinator, method, functools.partial(move, manager, keys[0]) if keys else lambda: None, number)
        )
        at = datetime.datetime.fromtimestamp(clock() / 1000, datetime.timezone.utc) + ahead
        cut = between.consistent_cut(at, [A, B])
        seen = [row[0] for name, version in cut.items() for row in content(manager.table(name), version)]
        assert sorted(seen) == [1, 2], (method, cut)
        clock.pass_(seconds=10)


def test_the_same_point_in_time_gives_the_same_versions_later_on(clock):
    manager = bank(clock=clock)
    clock.pass_(seconds=10)
    move(manager)
    at_ms = clock()
    cut = manager.consistent_cut(at_ms)
    clock.pass_(seconds=10)
    move(manager, 2)
    assert manager.consistent_cut(at_ms) == cut == {A: 1, B: 1}
    assert manager.consistent_cut(at_ms - 1) == {A: 0, B: 0}
    assert manager.consistent_cut(clock()) == {A: 2, B: 2}


def test_names_choose_the_tables_and_are_the_keys(clock):
    manager = bank(clock=clock)
    manager.create_table("orders", manager.list_tables()[0].url + "-orders", rows().schema)
    clock.pass_(seconds=1)
    assert manager.consistent_cut(clock(), ["orders", A]) == {"orders": 0, A: 0}
    assert manager.consistent_cut(clock(), []) == {}
    with pytest.raises(EntityNotFoundError):
        manager.consistent_cut(clock(), ["bank.none"])


def test_before_a_table_was_there(clock):
    manager = bank(clock=clock)
    with pytest.raises(TimestampOutOfRangeError):
        manager.consistent_cut(clock() - 1000)
