"""How a table handles concurrent writers by itself: it plans writes again, and it appends without refreshing first."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog import CallError, CommitConflictError, CommitStateUnknownError, DeltaTable, Environment, RetryPolicy
from deltalog.errors import ConcurrentAppendError
from deltalog.protocol.paths import commit_path
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore, Fault, FaultyStore, nth
from tests.support.core import SCHEMA, Clock, action, environment, ids, info, memory, overtaken, rows

WARM_MS = 10_000


class FarStore(MemoryStore):
    """An in-memory store that claims to be remote."""

    is_remote = True


def far(clock: Clock) -> CountingStore:
    return CountingStore(FarStore(f"memory://far-{id(clock)}", clock_ms=clock))


# ------------------------------------------------------------------------------------------------- retries


def test_retrying_plans_again_on_what_the_winner_left() -> None:
    store = memory()
    DeltaTable.create(store, SCHEMA, data=rows(1))
    mine = overtaken(store, lambda: DeltaTable.open(store).append(rows(2)))
    table = DeltaTable.open(mine, environment=environment())
    seen = []

    def keep_the_highest(t: DeltaTable) -> int:
        with t.transaction() as transaction:
            assert transaction.snapshot is not None
            highest = max(transaction.snapshot.scan(["id"]).to_arrow()["id"].to_pylist())
            seen.append(highest)
            transaction.remove_all_files()
            transaction.write(rows(highest).to_reader())
            return transaction.commit().version

    assert table.retrying(keep_the_highest) == 2
    assert seen == [1, 2] and ids(DeltaTable.open(store)) == [2]


def test_retrying_gives_up_with_the_last_conflict_after_growing_waits() -> None:
    store = memory()
    DeltaTable.create(store, SCHEMA)
    rival = DeltaTable.open(store)
    waits: list[float] = []
    retry = RetryPolicy(retry_base_delay_ms=10, retry_max_delay_ms=50)
    table = DeltaTable.open(store, environment=environment(sleep=waits.append, random=lambda: 1.0, retry=retry))
    versions = []

    def overwrite(t: DeltaTable) -> Any:
        with t.transaction() as transaction:
            transaction.remove_all_files()
            versions.append(rival.append(rows(9)).version)
            return transaction.commit()

    with pytest.raises(ConcurrentAppendError) as caught:
        table.retrying(overwrite, retry_count=4)
    assert len(versions) == 5 and caught.value.winning_version == versions[-1]
    assert waits == [0.02, 0.04, 0.05, 0.05]


def test_retrying_repeats_nothing_whose_outcome_is_open() -> None:
    inner = memory()
    DeltaTable.create(inner, SCHEMA)
    store = FaultyStore(inner, nth(1, Fault.LOST_ACK, method="put_if_absent"))
    silent = environment(retry=RetryPolicy(settle_attempts=0))
    calls = []

    def append(t: DeltaTable) -> Any:
        calls.append(1)
        return t.append(rows(1))

    with pytest.raises(CommitStateUnknownError):
        DeltaTable.open(store, environment=silent).retrying(append)
    assert len(calls) == 1


@pytest.mark.parametrize("count", [-1, True, 1.5, None])
def test_a_count_of_repetitions_is_a_number(count: Any) -> None:
    with pytest.raises(CallError, match="retry_count"):
        DeltaTable.create(memory(), SCHEMA).retrying(lambda t: 1, retry_count=count)


@pytest.mark.parametrize(
    ("jitter", "random", "expected"), [(1.0, 0.0, 0.0), (1.0, 0.5, 40.0), (0.0, 0.5, 80.0), (0.5, 0.0, 40.0)]
)
def test_the_jitter_is_the_share_of_a_wait_that_is_left_to_chance(
    jitter: float, random: float, expected: float
) -> None:
    policy = RetryPolicy(retry_base_delay_ms=10, retry_max_delay_ms=2000, retry_jitter=jitter)
    assert policy.delay_ms(3, random) == expected
    assert policy.delay_ms(0, random) == 0.0
    assert policy.delay_ms(30, 1.0) == 2000


def test_the_defaults_are_those_of_the_write_contract() -> None:
    policy = Environment().retry
    assert (policy.retry_base_delay_ms, policy.retry_max_delay_ms, policy.retry_jitter) == (10, 2000, 1.0)


# ------------------------------------------------------------------------------------------- isolation levels


@pytest.mark.parametrize(
    ("level", "properties", "conflicts"),
    [
        (None, {}, True),
        ("Serializable", {}, True),
        ("WriteSerializable", {}, False),
        (None, {"delta.isolationLevel": "WriteSerializable"}, False),
        ("Serializable", {"delta.isolationLevel": "WriteSerializable"}, True),
    ],
)
def test_the_level_decides_whether_a_blind_append_stands_in_the_way(
    level: Any, properties: dict[str, str], conflicts: bool
) -> None:
    store = memory()
    DeltaTable.create(store, SCHEMA, data=rows(1), properties=properties)
    table = DeltaTable.open(store)
    with table.transaction(isolation_level=level) as transaction:
        transaction.read_whole_table()
        transaction.write(rows(2).to_reader())
        DeltaTable.open(store).append(rows(3))
        if conflicts:
            with pytest.raises(CommitConflictError):
                transaction.commit()
            return
        assert transaction.commit().version == 2
    assert info(store, 2)["isolationLevel"] == "WriteSerializable"
    assert ids(table) == [1, 2, 3]


def test_moving_rows_needs_no_more_than_snapshot_isolation() -> None:
    store = memory()
    DeltaTable.create(store, SCHEMA, data=rows(1))
    table = DeltaTable.open(store)
    with table.transaction() as transaction:
        old = transaction.find_files()
        transaction.remove_files(old, data_change=False)
        transaction.add(*[_moved(a) for a in _adds(store, 0)])
        DeltaTable.open(store).append(rows(2))
        assert transaction.commit("OPTIMIZE").version == 2
    assert info(store, 2)["isolationLevel"] == "SnapshotIsolation"
    assert action(store, 2, "remove")["dataChange"] is False  # type: ignore[index]


def _adds(store: MemoryStore, version: int) -> list[Any]:
    from deltalog.engine import AddFile

    body = action(store, version, "add")
    assert body is not None
    return [AddFile.from_json(body)]


def _moved(add: Any) -> Any:
    from deltalog.engine import AddFile

    return AddFile.from_json({**add.to_json(), "path": f"moved-{add.path}", "dataChange": False})


# ------------------------------------------------------------------------------------------------ warm appends


def test_a_warm_append_over_a_network_is_one_put_of_rows_and_one_of_the_commit() -> None:
    clock = Clock()
    store = far(clock)
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock))
    table.flush()
    with store.counted() as calls:
        table.append(rows(1))
        table.flush()
    assert calls.of("open_output") == 1 and calls.of("put_if_absent") == 1 and calls.of("put", "*.crc") == 1
    assert calls.of("head", commit_path(0)) == 2  # checks that the table still exists, before and after the commit
    assert sum(calls.values()) == 5


def test_a_race_that_a_warm_append_loses_costs_one_get_and_one_put() -> None:
    clock = Clock()
    store = far(clock)
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock))
    DeltaTable.open(store).append(rows(1))
    table.flush()
    with store.counted() as calls:
        assert table.append(rows(2)).version == 2
        table.flush()
    assert calls.of("put_if_absent") == 2 and calls.of("get") == 1 and calls.of("list_from") == 0
    # One HEAD is sent while the rows are written, one when the commit that won the race is read, and one after our own
    # commit.
    assert calls.of("head", commit_path(0)) == 3
    # A check of the other writer's commit, made after our own commit.
    assert calls.of("head", commit_path(1)) == 1
    assert sum(calls.values()) == 9 and ids(table) == [1, 2]


@pytest.mark.parametrize("later_ms", [WARM_MS, -1])
def test_after_a_while_the_log_is_looked_at_first(later_ms: int) -> None:
    clock = Clock()
    store = far(clock)
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock))
    clock.now_ms += later_ms
    with store.counted() as calls:
        table.append(rows(1))
        table.flush()
    assert calls.of("head") == 2 + 1  # one HEAD before the commit, and one after it


def test_a_warm_append_follows_a_schema_that_grew() -> None:
    clock = Clock()
    store = far(clock)
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock))
    wider = rows(1).append_column("more", rows(1)["id"])
    DeltaTable.open(store).append(wider, merge_schema=True)
    with store.counted() as calls:
        assert table.append(rows(2)).version == 2
    assert calls.of("open_output") == 1
    assert ids(table) == [1, 2] and table.snapshot().schema.names == ["id", "name", "more"]


def test_a_recorded_transaction_is_seen_by_a_warm_append() -> None:
    clock = Clock()
    store = far(clock)
    table = DeltaTable.create(store, SCHEMA, environment=environment(clock))
    DeltaTable.open(store).append(rows(1), txn=("job", 7))
    assert table.append(rows(1), txn=("job", 7)).skipped
    assert ids(table) == [1]
