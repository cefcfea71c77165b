"""DynamoStore keeps the guarantees of a LogStore, and the lease rules of object_store's DynamoCommit, under every
fault."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deltalog import CallError, DeltaTable, DynamoCommit, StoreError, open_store
from deltalog.errors import CommitTableError, UnsafeStoreError
from deltalog.storage import create_commit_table, describe_commit_table
from deltalog.storage.base import PutOutcome
from deltalog.storage.dynamodb.client import DynamoTable
from deltalog.storage.dynamodb.lease_commits import DynamoStore
from deltalog.storage.s3.store import S3Store
from deltalog.testing.store_contract import LogStoreTests
from tests.support.core import ids, rows
from tests.support.s3 import Answer, Proxy, Request, Server, free_port, proxied
from tests.support.s3.dynamodb import (
    WALL,
    FakeTime,
    client,
    delete_items,
    dynamodb_error,
    items,
    new_table,
    operation,
    put_item,
    raw_items,
)
from tests.support.s3.racing import race
from tests.support.s3.rules import only_once, reset_after, slow_down

COMMIT = "_delta_log/00000000000000000000.json"
COMMITTED, EXISTS, UNKNOWN = PutOutcome.COMMITTED, PutOutcome.EXISTS, PutOutcome.UNKNOWN
TIMEOUT = 20.0
WAIT = 3 * TIMEOUT


class TestOnMinistack(LogStoreTests):
    rounds = 4
    # One test re-creates a deleted path, and waits for the first lease to expire.
    commit = DynamoCommit("unnamed", timeout_ms=3000, max_clock_skew_rate=1)

    @pytest.fixture
    def server(self, ministack: Server) -> Server:
        return ministack

    @pytest.fixture
    def table(self, server: Server) -> str:
        return new_table(server, "dynamo")

    @pytest.fixture
    def store(self, server: Server, table: str) -> Any:
        commit = DynamoCommit(table, timeout_ms=3000, max_clock_skew_rate=1)
        return open_store(f"s3://{server.bucket()}/a table", commit=commit, **server.options())

    @pytest.fixture
    def another(self, store: Any, server: Server, table: str) -> Any:
        return open_store(store.url, commit=f"dynamo:{table}:3000", **server.options())


@pytest.mark.long
class TestOnMoto(TestOnMinistack):
    @pytest.fixture
    def server(self, one_at_a_time: Server) -> Server:
        return one_at_a_time


# -------------------------------------------------------------------------------------------------------- faults


class Killed(BaseException):
    """Raised to end a simulated process."""


class Pausing(S3Store):
    """A store that stops before it sends a conditional PUT: ``pause`` runs other writers; they may call ``land``, which
    lets the PUT take effect at that point."""

    pause: Callable[[], None] = staticmethod(lambda: None)
    land: Callable[[], PutOutcome]
    puts = 0

    def put_once(self, path: str, data: bytes, expected: str | None, seconds: float | None = None) -> PutOutcome:
        self.puts += 1
        put = functools.partial(super().put_once, path, data, expected, seconds)
        self.land = functools.cache(lambda: put())
        self.pause()
        return self.land()


class Writers:
    """Writers of one path, each with its own clock."""

    def __init__(self, server: Server, native_condition: bool = True) -> None:
        self.server = server
        self.url = f"s3://{server.bucket()}/t"
        self.table = new_table(server, "dynamo")
        self.native_condition = native_condition

    def new(self, server: Server | None = None, **changes: Any) -> tuple[DynamoStore, Pausing, FakeTime]:
        time = FakeTime()
        options = {"native_condition": self.native_condition, "test_interval_ms": 2000, **changes}
        commit = DynamoCommit(self.table, timing=time.timing(), **options)
        through = (server or self.server).options()
        inner = Pausing(self.url, **through)
        return commit.guard(inner, DynamoTable(self.table, through, timing=commit.timing)), inner, time

    def content(self) -> bytes:
        return S3Store(self.url, **self.server.options()).get(COMMIT)

    @property
    def record(self) -> dict[str, Any]:
        (only,) = items(self.server, self.table)
        return only


@pytest.fixture(params=["ministack", pytest.param("moto", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(request.param)


@pytest.fixture
def writers(server: Server) -> Writers:
    return Writers(server)


def die() -> None:
    raise Killed


def start_and_die(writers: Writers) -> None:
    holder, inner, _ = writers.new()
    inner.pause = die
    with pytest.raises(Killed):
        holder.put_if_absent(COMMIT, b"of the dead")


def test_case_1_a_lease_whose_holder_died_is_taken_over_when_the_time_is_up(writers: Writers) -> None:
    start_and_die(writers)
    waiter, _, time = writers.new()
    assert waiter.put_if_absent(COMMIT, b"second") is COMMITTED
    assert WAIT <= time.passed < WAIT + 1
    assert (writers.record["generation"], writers.content()) == (1, b"second")


def test_case_1_it_is_not_taken_over_a_moment_earlier(writers: Writers) -> None:
    start_and_die(writers)
    waiter, inner, time = writers.new()

    def stop(seconds: float) -> None:
        assert inner.puts == 0 and writers.record["generation"] == 0
        if time.passed + seconds >= WAIT:
            raise Killed

    time.on_sleep = stop
    with pytest.raises(Killed):
        waiter.put_if_absent(COMMIT, b"second")
    assert WAIT - 2.1 < time.passed < WAIT


def test_case_2_a_holder_that_died_after_its_put_has_committed(writers: Writers) -> None:
    holder, inner, _ = writers.new()

    def land_and_die() -> None:
        inner.land()
        die()

    inner.pause = land_and_die
    with pytest.raises(Killed):
        holder.put_if_absent(COMMIT, b"first")
    waiter, _, time = writers.new()
    assert waiter.put_if_absent(COMMIT, b"second") is EXISTS
    assert (time.passed, writers.content(), writers.record["generation"]) == (0, b"first", 0)


def pausing_after_the_record(writers: Writers, meanwhile: Callable[[], None]) -> tuple[DynamoStore, Pausing, FakeTime]:
    """A writer that pauses once, after it has stored its lease record and before it sends its PUT."""
    holder, inner, time = writers.new()
    put, waiting = holder._table.put, [meanwhile]

    def put_and_pause(*arguments: Any, **named: Any) -> None:
        put(*arguments, **named)
        if waiting:
            waiting.pop()()

    holder._table.put = put_and_pause  # type: ignore[method-assign]
    return holder, inner, time


def test_case_3a_a_holder_past_its_own_deadline_takes_a_new_lease_before_it_puts(writers: Writers) -> None:
    def sleep_too_long() -> None:
        time.now += TIMEOUT

    holder, inner, time = pausing_after_the_record(writers, sleep_too_long)
    assert holder.put_if_absent(COMMIT, b"first") is COMMITTED
    assert (inner.puts, writers.record["generation"]) == (1, 1)


def test_case_3a_a_holder_past_its_deadline_whom_another_overtook_puts_nothing(writers: Writers) -> None:
    def overtaken() -> None:
        waiter, _, _ = writers.new()
        assert waiter.put_if_absent(COMMIT, b"second") is COMMITTED
        time.now += WAIT

    holder, inner, time = pausing_after_the_record(writers, overtaken)
    assert holder.put_if_absent(COMMIT, b"first") is EXISTS
    assert (inner.puts, writers.content()) == (0, b"second")


def overtake(writers: Writers, outcome: PutOutcome, **changes: Any) -> None:
    waiter, _, _ = writers.new(**changes)
    assert waiter.put_if_absent(COMMIT, b"second") is outcome


def test_case_3b_a_put_that_arrives_after_the_lease_was_taken_over_is_refused_by_s3(writers: Writers) -> None:
    holder, inner, _ = writers.new()
    inner.pause = lambda: overtake(writers, COMMITTED)
    assert holder.put_if_absent(COMMIT, b"first") is EXISTS
    assert (writers.content(), writers.record["generation"]) == (b"second", 1)


def test_case_3b_without_native_conditions_it_replaces_the_others_commit(ministack: Server) -> None:
    """docs/stores-dynamodb.md states this limitation; if this test fails, update the page."""
    writers = Writers(ministack, native_condition=False)
    holder, inner, _ = writers.new()
    inner.pause = lambda: overtake(writers, COMMITTED)
    assert holder.put_if_absent(COMMIT, b"first") is COMMITTED
    assert writers.content() == b"first"


@pytest.mark.parametrize(("rate", "winner"), [(3, b"first"), (5, b"second")], ids=["4a", "4b"])
def test_case_4_a_waiter_with_a_fast_clock_never_costs_a_commit(writers: Writers, rate: int, winner: bytes) -> None:
    """The holder sends its PUT when 0.9 of its lease has passed; by the waiter's fast clock the lease has already
    expired."""
    holder, inner, held = writers.new()
    waiter, _, waited = writers.new()
    outcomes = []

    def tick(seconds: float) -> None:
        held.now += seconds / rate
        if held.passed >= 0.9 * TIMEOUT:
            inner.land()

    waited.on_sleep = tick
    inner.pause = lambda: outcomes.append(waiter.put_if_absent(COMMIT, b"second"))
    outcomes.append(holder.put_if_absent(COMMIT, b"first"))
    assert sorted(outcomes, key=str) == sorted([COMMITTED, EXISTS], key=str)
    assert (outcomes[1] is COMMITTED) == (winner == b"first")
    assert writers.content() == winner


def is_put_item(request: Request) -> bool:
    return operation(request) == "PutItem"


def test_case_5_a_record_whose_answer_got_lost_is_known_as_our_own(writers: Writers) -> None:
    with proxied(writers.server) as (proxy, through):
        proxy.rule = only_once(reset_after, is_put_item)
        store, _, time = writers.new(through)
        assert store.put_if_absent(COMMIT, b"first") is COMMITTED
        assert [operation(r) for r in proxy.requests if operation(r)] == ["DescribeTable", "PutItem", "PutItem"]
    assert time.passed < 1
    assert (writers.record["generation"], writers.content()) == (0, b"first")


def test_case_5_also_when_it_took_over_from_another(writers: Writers) -> None:
    start_and_die(writers)
    with proxied(writers.server) as (proxy, through):
        proxy.rule = only_once(
            reset_after, lambda request: is_put_item(request) and b"attribute_exists" in request.body
        )
        store, _, time = writers.new(through)
        assert store.put_if_absent(COMMIT, b"second") is COMMITTED
    assert time.passed < WAIT + 1
    assert writers.record["generation"] == 1


def test_case_6a_a_record_that_expired_too_early_costs_no_commit(writers: Writers) -> None:
    holder, inner, _ = writers.new()

    def expire_and_overtake() -> None:
        delete_items(writers.server, writers.table, "path", "etag")
        overtake(writers, COMMITTED)

    inner.pause = expire_and_overtake
    assert holder.put_if_absent(COMMIT, b"first") is EXISTS
    assert (writers.content(), writers.record["generation"]) == (b"second", 0)


def test_case_6b_a_record_that_expires_while_one_waits_for_it_lets_the_waiter_start_over(writers: Writers) -> None:
    start_and_die(writers)
    waiter, _, time = writers.new()

    def expire(seconds: float) -> None:
        if time.passed > TIMEOUT:
            delete_items(writers.server, writers.table, "path", "etag")

    time.on_sleep = expire
    assert waiter.put_if_absent(COMMIT, b"second") is COMMITTED
    assert (writers.record["generation"], writers.content()) == (0, b"second")


def test_case_7_without_the_table_nothing_is_written(server: Server) -> None:
    store = open_store(f"s3://{server.bucket()}/t", commit="dynamo:no-such-table", **server.options())
    with pytest.raises(CommitTableError, match=r"no DynamoDB table 'no-such-table'.*commit-table create"):
        store.put_if_absent(COMMIT, b"first")
    assert store.head(COMMIT) is None and store.list_from("_delta_log") == []


def test_case_7_a_table_with_other_keys_is_refused(server: Server) -> None:
    name = new_table(server, "s3-dynamodb")
    store = open_store(f"s3://{server.bucket()}/t", commit=f"dynamo:{name}", **server.options())
    with pytest.raises(CommitTableError, match=r"has the key HASH tablePath \(S\), RANGE fileName \(S\)"):
        store.put_if_absent(COMMIT, b"first")
    assert store.head(COMMIT) is None
    with pytest.raises(CommitTableError, match="--kind dynamo"):
        create_commit_table(name, "dynamo", **server.options())


@pytest.mark.parametrize("writable", [True, False], ids=["right keys", "wrong keys"])
def test_case_7_rights_to_look_at_the_table_are_not_needed(ministack: Server, writable: bool) -> None:
    name = new_table(ministack, "dynamo" if writable else "s3-dynamodb")
    bucket = ministack.bucket()
    with proxied(ministack) as (proxy, through):
        proxy.rule = lambda request, forward: (
            dynamodb_error(400, "AccessDeniedException") if operation(request) == "DescribeTable" else forward()
        )
        store = open_store(f"s3://{bucket}/t", commit=f"dynamo:{name}", **through.options())
        if writable:
            assert store.put_if_absent(COMMIT, b"first") is COMMITTED
        else:
            with pytest.raises(CommitTableError, match="a separate table for each commit protocol"):
                store.put_if_absent(COMMIT, b"first")
            assert store.head(COMMIT) is None


def test_case_8_a_path_that_was_deleted_is_created_again_after_the_wait(writers: Writers) -> None:
    store, _, time = writers.new()
    assert store.put_if_absent(COMMIT, b"first") is COMMITTED
    store.delete(COMMIT)
    assert store.put_if_absent(COMMIT, b"again") is COMMITTED
    assert WAIT <= time.passed < WAIT + 1
    assert (writers.record["generation"], writers.content()) == (1, b"again")


REFUSALS = {
    "throttled": (400, "ProvisionedThroughputExceededException"),
    "throttled on demand": (400, "ThrottlingException"),
    "failing": (500, "InternalServerError"),
    "away": (503, "ServiceUnavailable"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_case_9_a_service_that_refuses_for_now_is_asked_again(writers: Writers, refusal: str) -> None:
    answers = [dynamodb_error(*REFUSALS[refusal])] * 3
    with proxied(writers.server) as (proxy, through):
        proxy.rule = lambda request, forward: answers.pop() if answers and is_put_item(request) else forward()
        store, _, time = writers.new(through)
        assert store.put_if_absent(COMMIT, b"first") is COMMITTED
    assert not answers and 0 < time.passed < TIMEOUT


@pytest.mark.parametrize("refusal", REFUSALS)
def test_case_9_until_the_time_is_up_and_then_nothing_was_written(writers: Writers, refusal: str) -> None:
    with proxied(writers.server) as (proxy, through):
        proxy.rule = lambda request, forward: dynamodb_error(*REFUSALS[refusal]) if is_put_item(request) else forward()
        store, inner, time = writers.new(through)
        with pytest.raises(StoreError, match=f"nothing was written.*{REFUSALS[refusal][1]}"):
            store.put_if_absent(COMMIT, b"first")
    assert TIMEOUT <= time.passed < TIMEOUT + 3
    assert inner.puts == 0 and store.head(COMMIT) is None and items(writers.server, writers.table) == []


def test_case_9_a_refusal_for_good_is_not_repeated(writers: Writers) -> None:
    with proxied(writers.server) as (proxy, through):
        proxy.rule = lambda request, forward: (
            dynamodb_error(400, "AccessDeniedException") if is_put_item(request) else forward()
        )
        store, inner, time = writers.new(through)
        with pytest.raises(StoreError, match="AccessDeniedException"):
            store.put_if_absent(COMMIT, b"first")
        assert sum(map(is_put_item, proxy.requests)) == 1
    assert (inner.puts, time.passed) == (0, 0)


def is_commit_put(request: Request) -> bool:
    return request.method == "PUT" and request.key.endswith(COMMIT)


def test_case_10_a_put_whose_answer_got_lost_is_found_by_who_looks(writers: Writers) -> None:
    with proxied(writers.server) as (proxy, through):
        proxy.rule = only_once(reset_after, is_commit_put)
        store, _, _ = writers.new(through)
        assert store.put_if_absent(COMMIT, b"first") is EXISTS  # this may be our own commit: the commit loop reads it
    assert writers.content() == b"first"


def test_case_10_a_put_that_did_nothing_is_repeated_under_the_same_lease(writers: Writers) -> None:
    with proxied(writers.server) as (proxy, through):
        proxy.rule = only_once(slow_down, is_commit_put)
        store, _, time = writers.new(through)
        assert store.put_if_absent(COMMIT, b"first") is COMMITTED
        assert sum(map(is_put_item, proxy.requests)) == 1
    assert (writers.record["generation"], time.passed < 1) == (0, True)


def test_case_10_what_stays_open_until_the_lease_ends_is_not_known(writers: Writers) -> None:
    with proxied(writers.server) as (proxy, through):
        proxy.rule = lambda request, forward: slow_down(request, forward) if is_commit_put(request) else forward()
        store, inner, time = writers.new(through)
        assert store.put_if_absent(COMMIT, b"first") is UNKNOWN
    assert inner.puts > 3 and TIMEOUT <= time.passed < TIMEOUT + 1


def test_case_10_a_refusal_does_not_settle_what_an_earlier_put_left_open(writers: Writers) -> None:
    def first_open_then_refused(request: Request, forward: Callable[[], Answer]) -> Answer:
        return slow_down(request, forward) if inner.puts == 1 else (403, [], b"")

    with proxied(writers.server) as (proxy, through):
        store, inner, _ = writers.new(through)
        proxy.rule = lambda request, forward: (
            first_open_then_refused(request, forward) if is_commit_put(request) else forward()
        )
        assert store.put_if_absent(COMMIT, b"first") is UNKNOWN
        assert inner.puts > 1


def test_case_10_a_refusal_alone_is_one(writers: Writers) -> None:
    with proxied(writers.server) as (proxy, through):
        proxy.rule = lambda request, forward: (403, [], b"") if is_commit_put(request) else forward()
        store, inner, _ = writers.new(through)
        with pytest.raises(StoreError, match="403"):
            store.put_if_absent(COMMIT, b"first")
    assert inner.puts == 1 and store.head(COMMIT) is None


@pytest.mark.parametrize("fault", [reset_after, slow_down], ids=["lost answer", "503"])
@pytest.mark.parametrize("which", [is_put_item, is_commit_put], ids=["record", "object"])
def test_a_commit_is_made_once_whatever_becomes_of_its_requests(
    ministack: Server, fault: Callable[..., Answer], which: Callable[[Request], bool]
) -> None:
    name, url = new_table(ministack, "dynamo"), f"s3://{ministack.bucket()}/t"
    DeltaTable.create(url, rows(1).schema, data=rows(1), commit=f"dynamo:{name}", **ministack.options())
    with proxied(ministack) as (proxy, through):
        table = DeltaTable.open(url, commit=f"dynamo:{name}", **through.options())
        proxy.rule = only_once(fault, lambda r: which(r) if which is is_put_item else r.key.endswith("1.json"))
        assert table.append(rows(2)).version == 1
    opened = DeltaTable.open(url, **ministack.options())
    assert (opened.version, ids(opened)) == (1, [1, 2])


@pytest.mark.parametrize("conditional", [True, False], ids=["put_if_absent", "put"])
def test_case_11_a_writer_that_does_not_know_the_table_keeps_its_commit(writers: Writers, conditional: bool) -> None:
    holder, inner, _ = writers.new()
    peer = S3Store(writers.url, **writers.server.options())

    def write() -> None:
        if conditional:
            assert peer.put_if_absent(COMMIT, b"theirs") is COMMITTED
        else:
            peer.put(COMMIT, b"theirs")

    inner.pause = write
    assert holder.put_if_absent(COMMIT, b"ours") is EXISTS
    assert writers.content() == b"theirs"


def test_a_service_that_hides_the_item_of_a_conflict_is_named(writers: Writers) -> None:
    start_and_die(writers)
    with proxied(writers.server) as (proxy, through):
        proxy.rule = lambda request, forward: (
            dynamodb_error(400, "ConditionalCheckFailedException") if is_put_item(request) else forward()
        )
        store, inner, _ = writers.new(through)
        with pytest.raises(StoreError, match="returns the item of a failed condition"):
            store.put_if_absent(COMMIT, b"x")
    assert inner.puts == 0


def test_a_record_of_something_else_is_named(writers: Writers) -> None:
    put_item(writers.server, writers.table, path=f"t/{COMMIT}", etag="*", lock="held")
    store, inner, _ = writers.new()
    with pytest.raises(CommitTableError, match="not of this protocol"):
        store.put_if_absent(COMMIT, b"x")
    assert inner.puts == 0


# ------------------------------------------------------------------------------- compatible with object_store


def test_the_record_has_the_fields_and_types_of_object_store(writers: Writers) -> None:
    store, _, _ = writers.new()
    store.put_if_absent(COMMIT, b"first")
    (item,) = raw_items(writers.server, writers.table)
    owner = item.pop("owner")
    assert item == {
        "path": {"S": f"t/{COMMIT}"},
        "etag": {"S": "*"},
        "generation": {"N": "0"},
        "timeout": {"N": "20000"},
        "ttl": {"N": str(WALL + 3600)},
    }
    assert list(owner) == ["S"]  # object_store ignores an unknown attribute only if it has type S or N


def test_the_request_is_the_one_of_object_store(writers: Writers) -> None:
    import json

    start_and_die(writers)
    with proxied(writers.server) as (proxy, through):
        store, _, _ = writers.new(through)
        store.put_if_absent(COMMIT, b"second")
        first, second = (json.loads(request.body) for request in proxy.requests if is_put_item(request))
    for body in (first, second):
        assert body["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
        assert body["ExpressionAttributeNames"] == {"#pk": "path"}
    assert first["ConditionExpression"] == "attribute_not_exists(#pk)"
    assert second["ConditionExpression"] == "attribute_exists(#pk) AND generation = :g"
    assert second["ExpressionAttributeValues"] == {":g": {"N": "0"}}


def test_a_lease_of_object_store_is_waited_for_by_its_own_timeout(writers: Writers) -> None:
    put_item(writers.server, writers.table, path=f"t/{COMMIT}", etag="*", generation=7, timeout=5000, ttl=WALL + 3600)
    store, _, time = writers.new()
    assert store.put_if_absent(COMMIT, b"second") is COMMITTED
    assert 15 <= time.passed < 16
    assert (writers.record["generation"], writers.record["timeout"]) == (8, 20_000)


def test_waiting_looks_ten_times_a_second_and_ends_when_the_object_is_there(writers: Writers) -> None:
    start_and_die(writers)
    waiter, _, time = writers.new(test_interval_ms=100)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 5:
            S3Store(writers.url, **writers.server.options()).put(COMMIT, b"at last")

    time.on_sleep = nap
    assert waiter.put_if_absent(COMMIT, b"second") is EXISTS
    assert naps == [0.1] * 5


# --------------------------------------------------------------------------------------------- conditional update


def test_an_update_needs_the_etag_that_is_there(writers: Writers) -> None:
    store, _, time = writers.new()
    store.put("pointer", b"1")
    first = store.etag("pointer")
    assert first is not None and first.startswith('"')
    assert store.put_if_match("pointer", b"2", first) is COMMITTED
    assert (writers.record["etag"], writers.record["path"]) == (first, "t/pointer")
    assert store.put_if_match("pointer", b"3", first) is EXISTS
    assert (store.get("pointer"), time.passed) == (b"2", 0)
    store.delete("pointer")
    assert store.put_if_match("pointer", b"3", first) is EXISTS
    assert store.etag("pointer") is None


def test_an_update_that_arrives_late_is_refused_by_s3(writers: Writers) -> None:
    store, inner, _ = writers.new()
    store.put("pointer", b"1")
    etag = store.etag("pointer")
    assert etag is not None
    for meanwhile in (lambda: store.put("pointer", b"theirs"), lambda: store.delete("pointer")):
        inner.pause = meanwhile
        current = store.etag("pointer")
        assert current is not None
        assert store.put_if_match("pointer", b"ours", current) is EXISTS


def test_of_many_updates_of_one_state_one_wins(server: Server) -> None:
    commit = f"dynamo:{new_table(server, 'dynamo')}"
    stores = [open_store(f"s3://{server.bucket()}/t", commit=commit, **server.options())]
    stores.append(open_store(stores[0].url, commit=commit, **server.options()))
    assert isinstance(stores[0], DynamoStore) and isinstance(stores[1], DynamoStore)
    stores[0].put("pointer", b"start")
    for number in range(3):
        etag = stores[0].etag("pointer")
        outcomes: list[PutOutcome] = []

        def update(who: int, etag: str | None = etag, number: int = number, found: Any = outcomes) -> None:
            found.append(stores[who % 2].put_if_match("pointer", b"%d-%d" % (number, who), etag))  # type: ignore[attr-defined]

        threads = [threading.Thread(target=update, args=(who,)) for who in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes.count(COMMITTED) == 1 and outcomes.count(EXISTS) == 7


# --------------------------------------------------------------------------------------------- a table, end to end


def test_a_table_is_created_appended_to_and_travelled_through(server: Server) -> None:
    name, url = new_table(server, "dynamo"), f"s3a://{server.bucket()}/events"
    options = {"commit": f"dynamo:{name}", **server.options()}
    ict = {"delta.enableInCommitTimestamps": "true"}
    table = DeltaTable.create(url, rows(1).schema, data=rows(1), properties=ict, **options)
    results = [table.append(rows(number)) for number in (2, 3)]
    opened = DeltaTable.open(url, **options)
    assert (opened.version, ids(opened), ids(opened, version=1)) == (2, [1, 2, 3], [1, 2])
    assert ids(opened, timestamp=results[1].timestamp_ms - 1) == [1, 2]
    paths = {item["path"] for item in items(server, name)}
    assert {f"events/_delta_log/{n:020d}.json" for n in range(3)} <= paths


def test_two_processes_that_race_lose_nothing(server: Server) -> None:
    options = {"commit": f"dynamo:{new_table(server, 'dynamo')}", **server.options()}
    race(f"s3://{server.bucket()}/events", options, 2, 8)


def test_a_commit_costs_what_the_page_says(ministack: Server) -> None:
    name, url = new_table(ministack, "dynamo"), f"s3://{ministack.bucket()}/t"
    with proxied(ministack) as (proxy, through):
        store = open_store(url, commit=f"dynamo:{name}", **through.options())
        store.put_if_absent(COMMIT, b"0")
        made = lambda seen: [operation(r) or r.method for r in seen]  # noqa: E731
        with proxy.counted() as first:
            store.put_if_absent(COMMIT.replace("0.json", "1.json"), b"1")
        assert made(first) == ["GET", "HEAD", "PutItem", "PUT"]  # one listing, to find out whether Spark stages commits
        with proxy.counted() as next_one:
            store.put_if_absent(COMMIT.replace("0.json", "2.json"), b"2")
        assert made(next_one) == ["HEAD", "PutItem", "PUT"]
        with proxy.counted() as lost:
            assert store.put_if_absent(COMMIT.replace("0.json", "2.json"), b"2") is EXISTS
        assert made(lost) == ["HEAD"]


# ---------------------------------------------------------------------------------------------- options and tables


def test_the_option_string() -> None:
    assert DynamoCommit.parse("dynamo:locks") == DynamoCommit("locks")
    assert DynamoCommit.parse("dynamo:locks:5000") == DynamoCommit("locks", timeout_ms=5000)
    assert str(DynamoCommit("locks")) == "dynamo:locks:20000"
    changed = DynamoCommit("locks").with_ttl(9000).with_timeout(100_000).with_max_clock_skew_rate(2)
    assert changed == DynamoCommit("locks", timeout_ms=100_000, max_clock_skew_rate=2, ttl_s=9000)
    assert DynamoCommit("locks") == DynamoCommit("locks", timeout_ms=20_000, max_clock_skew_rate=3, ttl_s=3600)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DynamoCommit("x"),
        lambda: DynamoCommit("a table"),
        lambda: DynamoCommit("locks", timeout_ms=0),
        lambda: DynamoCommit("locks", timeout_ms=-1),
        lambda: DynamoCommit("locks", timeout_ms=1.5),  # type: ignore[arg-type]
        lambda: DynamoCommit("locks", max_clock_skew_rate=0),
        lambda: DynamoCommit("locks", ttl_s=0),
        lambda: DynamoCommit("locks", test_interval_ms=0),
        lambda: DynamoCommit("locks", ttl_s=600),
        lambda: DynamoCommit("locks").with_timeout(120_000),
        lambda: DynamoCommit.parse("dynamo:"),
        lambda: DynamoCommit.parse("dynamo:locks:soon"),
        lambda: DynamoCommit.parse("dynamo:locks:1:2"),
        lambda: open_store("s3://bucket/t", commit="locks"),
        lambda: open_store("s3://bucket/t", commit="zookeeper:locks"),
        lambda: open_store("s3://bucket/t", commit=5),
        lambda: open_store("s3://bucket/t", dynamodb_endpoint_url="http://h"),
        lambda: open_store("s3://bucket/t", commit="dynamo:locks", dynamodb_endpoint_url="http://me:sentinel@h"),
        lambda: open_store("/data/t", commit="dynamo:locks"),
        lambda: open_store("memory://t", commit="dynamo:locks"),
        lambda: open_store("gs://bucket/t", commit="dynamo:locks"),
        lambda: create_commit_table("locks", "zookeeper"),
    ],
)
def test_options_that_cannot_work_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(CallError) as caught:
        make()
    assert "sentinel" not in str(caught.value)


def test_a_record_must_outlive_ten_times_the_longest_wait() -> None:
    with pytest.raises(CallError, match="ttl_s must be more than 10 x timeout_ms"):
        DynamoCommit("locks", timeout_ms=20_000, max_clock_skew_rate=3, ttl_s=600)
    assert DynamoCommit("locks", timeout_ms=20_000, max_clock_skew_rate=3, ttl_s=601).ttl_s == 601


@pytest.mark.parametrize("kind", ["dynamo", "s3-dynamodb"])
def test_a_commit_table_is_made_once_and_its_items_expire(server: Server, kind: str) -> None:
    name = f"made-{kind}-{free_port()}"
    with pytest.raises(CommitTableError):
        describe_commit_table(name, kind, **server.options())
    made = create_commit_table(name, kind, **server.options())
    assert (made.status, made.expires, made.created) == ("ACTIVE", True, True)
    again = create_commit_table(name, kind, **server.options())
    assert (again.expires, again.created) == (True, False)
    assert describe_commit_table(name, kind, **server.options()) == again
    ttl = client(server).describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert ttl["AttributeName"] == {"dynamo": "ttl", "s3-dynamodb": "expireTime"}[kind]
    description = client(server).describe_table(TableName=name)["Table"]
    assert description["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"


def test_the_endpoint_of_dynamodb_may_be_another(ministack: Server, moto: Server) -> None:
    name = new_table(moto, "dynamo")
    store = open_store(
        f"s3://{ministack.bucket()}/t",
        commit=f"dynamo:{name}",
        dynamodb_endpoint_url=moto.options()["endpoint_url"],
        **ministack.options(),
    )
    assert store.put_if_absent(COMMIT, b"x") is COMMITTED
    assert len(items(moto, name)) == 1


def test_a_sibling_takes_turns_through_the_same_table(ministack: Server) -> None:
    name = new_table(ministack, "dynamo")
    store = open_store(f"s3://{ministack.bucket()}/a", commit=f"dynamo:{name}", **ministack.options())
    sibling = store.sibling(store.url.replace("/a", "/b"))
    assert sibling.put_if_absent("x", b"1") is COMMITTED
    assert [item["path"] for item in items(ministack, name)] == ["b/x"]


def test_where_spark_stages_commits_the_mode_is_refused(ministack: Server) -> None:
    name = new_table(ministack, "dynamo")
    store = open_store(f"s3://{ministack.bucket()}/t", commit=f"dynamo:{name}", **ministack.options())
    store.put(COMMIT, b"{}")
    store.put("_delta_log/.tmp/00000000000000000000.json.a-b", b"{}")
    with pytest.raises(UnsafeStoreError, match=r"S3DynamoDBLogStore.*commit='s3-dynamodb"):
        store.put_if_absent(COMMIT.replace("0.json", "1.json"), b"x")
    assert items(ministack, name) == []


def test_without_boto3_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['boto3'] = None\n"
        "import deltalog\n"
        "try: deltalog.open_store('s3://bucket/x', commit='dynamo:locks')\n"
        "except deltalog.CallError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'deltalog[dynamodb]'" in done.stdout


SENTINELS = {"key": "SENTINEL-key", "secret": "SENTINEL-secret", "token": "SENTINEL-token"}


@pytest.fixture
def echoing(ministack: Server) -> Iterator[Proxy]:
    """A service whose error messages contain the request."""
    with proxied(ministack) as (proxy, _):
        proxy.rule = lambda request, forward: (
            (400, [], f'{{"__type":"x#AccessDeniedException","message":"{SENTINELS}"}}'.encode())
            if operation(request)
            else (404, [], b"")
        )
        yield proxy


@pytest.mark.parametrize("mode", ["dynamo", "s3-dynamodb"])
def test_no_secret_is_told(echoing: Proxy, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    import traceback

    for port in (echoing.port, free_port()):
        options = {**SENTINELS, "endpoint_url": f"http://127.0.0.1:{port}", "client_kwargs": {"region_name": "x"}}
        options["config_kwargs"] = {"retries": {"total_max_attempts": 1}}
        store = open_store("s3://bucket/t", commit=f"{mode}:locks", **options)
        told = [repr(store), repr(store.__dict__)]
        with pytest.raises(StoreError) as caught, caplog.at_level("DEBUG", "deltalog"):
            store.put_if_absent(COMMIT, b"x")
        told += traceback.format_exception(caught.value)
        told += [record.getMessage() for record in caplog.records if record.name.startswith("deltalog")]
        assert "SENTINEL" not in "\n".join(told)


@pytest.mark.parametrize("kind", ["dynamo", "s3-dynamodb"])
def test_no_secret_is_stored(ministack: Server, kind: str) -> None:
    name = new_table(ministack, kind)
    store = open_store(f"s3://{ministack.bucket()}/t", commit=f"{kind}:{name}", **ministack.options())
    store.put_if_absent(COMMIT, b"x")
    stored = str(raw_items(ministack, name))
    assert stored != "[]" and "testing-key-id" not in stored and "testing-secret-key" not in stored
