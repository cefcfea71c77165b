"""DynamoDBCoordinator keeps the guarantees of a Coordinator, even if responses are lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deltalog import CallError
from deltalog.catalog import dynamodb
from deltalog.catalog.dynamodb import DynamoDBCoordinator
from deltalog.catalog.records import Head, Proposal, Ratification, TableRecord, aborted, committed, pinned, touched
from deltalog.errors import (
    CommitTableError,
    ConcurrentModificationError,
    CoordinatorError,
    EntityNotFoundError,
    OperationTimeoutError,
)
from deltalog.storage.dynamodb.tables import create_commit_table, describe_commit_table
from deltalog.testing.coordinator_cases import commit, proposal, table, transaction
from deltalog.testing.coordinator_tests import CoordinatorTests
from tests.support.s3 import Answer, Proxy, Request, Reset, Rule, Server, pass_on, proxied
from tests.support.s3.dynamodb import FakeTime, client, dynamodb_error, new_table, operation
from tests.support.s3.rules import reset_after, reset_before

RATIFIED, MOVED, DECIDED = Ratification.RATIFIED, Ratification.MOVED, Ratification.DECIDED
Forward = Callable[[], Answer]


class TestOnMinistack(CoordinatorTests):
    threads = 6
    rounds = 5

    @pytest.fixture
    def server(self, ministack: Server) -> Server:
        return ministack

    @pytest.fixture
    def coordinator(self, server: Server) -> DynamoDBCoordinator:
        return DynamoDBCoordinator(new_table(server, "catalog"), server.options())

    @pytest.fixture
    def another(self, coordinator: DynamoDBCoordinator, server: Server) -> DynamoDBCoordinator:
        return DynamoDBCoordinator(coordinator.url.removeprefix("dynamodb://"), server.options())


@pytest.mark.long
class TestOnMoto(TestOnMinistack):
    @pytest.fixture
    def server(self, one_at_a_time: Server) -> Server:
        return one_at_a_time


# ------------------------------------------------------------------------------------------------- lost answers


class Place:
    """A catalog with one handle behind a proxy and one that bypasses the proxy."""

    def __init__(self, server: Server, proxy: Proxy, through: Server) -> None:
        self.server, self.proxy, self.time = server, proxy, FakeTime()
        self.name = new_table(server, "catalog")
        self.beside = DynamoDBCoordinator(self.name, server.options())
        self.through = DynamoDBCoordinator(self.name, through.options(), timing=self.time.timing())
        for number in (1, 2):
            self.beside.register(table(number), 0)

    def break_(self, fault: Rule, which: str = "TransactWriteItems", *, times: int = 1) -> None:
        """Apply a fault to the next requests of a kind."""
        left = [fault] * times

        def rule(request: Request, forward: Forward) -> Answer:
            return left.pop()(request, forward) if operation(request) == which and left else forward()

        self.proxy.rule = rule

    def operations(self) -> list[str]:
        return [operation(request) for request in self.proxy.requests]


@pytest.fixture(scope="module", params=["ministack", pytest.param("moto", marks=pytest.mark.long)])
def line(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Proxy, Server]]:
    """A coordinator on ministack or moto. ministack recognizes the token of a repeated request, as DynamoDB does within
    ten minutes; moto does not recognize it, like DynamoDB after ten minutes."""
    server = request.getfixturevalue(request.param)
    with proxied(server) as (proxy, through):
        yield server, proxy, through


@pytest.fixture
def place(line: tuple[Server, Proxy, Server]) -> Place:
    line[1].rule = pass_on
    line[1].requests.clear()
    return Place(*line)


def failed_after(request: Request, forward: Forward) -> Answer:
    forward()
    return dynamodb_error(500, "InternalServerError")


def delivered_twice(request: Request, forward: Forward) -> Answer:
    forward()
    return forward()


def answered(code: str) -> Rule:
    return lambda request, forward: dynamodb_error(400, code)


def conflicting(request: Request, forward: Forward) -> Answer:
    status, headers, _ = dynamodb_error(400, "TransactionCanceledException")
    reasons = [{"Code": "None"}, {"Code": "TransactionConflict", "Message": "is ongoing"}]
    body = {"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", "CancellationReasons": reasons}
    return status, headers, json.dumps(body).encode()


FAULTS: dict[str, Rule] = {
    "the answer is lost": reset_after,
    "the request is lost": reset_before,
    "the service fails after it took effect": failed_after,
    "delivered twice": delivered_twice,
    "throttled": answered("ProvisionedThroughputExceededException"),
    "still in progress": answered("TransactionInProgressException"),
    "in conflict with another": conflicting,
}


def ratified(place: Place) -> None:
    made = proposal({"id-1": 1, "id-2": 1})
    assert place.through.ratify(made) is RATIFIED
    for table_id in ("id-1", "id-2"):
        assert place.beside.head(table_id) == Head(1, made.commits[table_id])


def ratified_with_its_record(place: Place) -> None:
    before = transaction("t")
    place.beside.insert(before)
    after = committed(before, {"id-1": 1}, 2000)
    made = Proposal({"id-1": (commit(1),)}, {"id-2": 0}, before, after)
    assert place.through.ratify(made) is RATIFIED
    assert place.beside.head("id-1") == Head(1, made.commits["id-1"])
    assert place.beside.transaction("t") == after


def moved(place: Place) -> None:
    place.beside.ratify(proposal({"id-1": 1}))
    assert place.through.ratify(proposal({"id-1": 1, "id-2": 1})) is MOVED
    assert place.beside.cut() == {"id-1": 1, "id-2": 0}


def decided(place: Place) -> None:
    before = transaction("t")
    place.beside.insert(before)
    place.beside.replace(aborted(before, "cancelled", 2000))
    after = committed(before, {"id-1": 1}, 2000)
    assert place.through.ratify(Proposal({"id-1": (commit(1),)}, {}, before, after)) is DECIDED
    assert place.beside.cut() == {"id-1": 0, "id-2": 0}


def inserted(place: Place) -> None:
    assert place.through.insert(transaction("t")) is True
    assert place.beside.transaction("t") == transaction("t")


def replaced(place: Place) -> None:
    place.beside.insert(transaction("t"))
    ended = aborted(transaction("t"), "x", 2000)
    assert place.through.replace(ended) is True
    assert place.beside.transactions(frozenset({ended.status})) == [ended]


def collected(place: Place) -> None:
    place.beside.insert(transaction("t"))
    record = touched(transaction("t"), 2000)
    parts = {"a": b"x" * 600_000, "b": b""}
    assert place.through.put_parts(record, parts) is True
    assert (place.beside.parts("t"), place.beside.transaction("t")) == (parts, record)


def registered(place: Place) -> None:
    assert place.through.register(table(3), 5) is True
    assert place.beside.table(table(3).name) == table(3)
    assert place.beside.cut()["id-3"] == 5


def dropped_table(place: Place) -> None:
    assert place.through.drop("id-1", 0) is True
    assert place.beside.tables() == [table(2)]


DEEDS = [ratified, ratified_with_its_record, moved, decided, inserted, replaced, collected, registered, dropped_table]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_one_fault_changes_no_answer(place: Place, deed: Callable[[Place], None], fault: str) -> None:
    place.break_(FAULTS[fault])
    deed(place)
    assert "TransactWriteItems" in place.operations()


@pytest.mark.parametrize("times", [2, 100])
@pytest.mark.parametrize("deed", [d for d in DEEDS if d not in (moved, decided)], ids=lambda deed: deed.__name__)
def test_what_took_effect_is_seen_though_no_answer_comes(
    place: Place, deed: Callable[[Place], None], times: int
) -> None:
    place.break_(reset_after, times=times)
    deed(place)
    assert place.time.passed < 60


def test_what_cannot_be_told_is_a_timeout(place: Place) -> None:
    place.break_(reset_before, times=1000)
    for call in (
        lambda: place.through.ratify(proposal({"id-1": 1})),
        lambda: place.through.insert(transaction("t")),
        lambda: place.through.register(table(3), 0),
    ):
        with pytest.raises(OperationTimeoutError, match="may have taken effect, or may yet do so"):
            call()
    place.proxy.rule = reset_before
    with pytest.raises(OperationTimeoutError):
        place.through.ratify(proposal({"id-1": 1}))
    with pytest.raises(OperationTimeoutError):
        place.through.cut()
    assert place.beside.cut() == {"id-1": 0, "id-2": 0}
    assert place.beside.transaction("t") is None


def after_lost(place: Place, meanwhile: Callable[[], object], *, takes_effect: bool) -> Rule:
    """Lose the response, and run other clients' actions before the request is repeated."""

    def rule(request: Request, forward: Forward) -> Answer:
        if takes_effect:
            forward()
        meanwhile()
        raise Reset

    return rule


def test_a_ratification_that_was_built_on_is_known_as_our_own(place: Place) -> None:
    nexts = proposal({"id-1": 2})
    place.break_(after_lost(place, lambda: place.beside.ratify(nexts), takes_effect=True))
    made = proposal({"id-1": 1})
    assert place.through.ratify(made) is RATIFIED
    assert place.beside.head("id-1") == Head(2, made.commits["id-1"] + nexts.commits["id-1"])


@pytest.mark.parametrize("with_record", [False, True])
def test_a_ratification_that_was_built_on_and_published_is_never_called_a_conflict(
    place: Place, with_record: bool
) -> None:
    def others() -> None:
        assert place.beside.ratify(proposal({"id-1": 2})) is RATIFIED
        place.beside.published("id-1", 2)

    place.break_(after_lost(place, others, takes_effect=True))
    made = proposal({"id-1": 1})
    if with_record:
        before = transaction("t")
        place.beside.insert(before)
        made = Proposal(made.commits, {}, before, committed(before, {"id-1": 1}, 2000))
    try:
        assert place.through.ratify(made) is RATIFIED
    except OperationTimeoutError as error:
        assert not with_record and place.server.name == "moto_server"
        assert "is not known" in str(error)
    assert place.beside.head("id-1") == Head(2)


@pytest.mark.parametrize("times", [1, 1000])
def test_a_proposal_that_came_too_late_has_moved(place: Place, times: int) -> None:
    faster = proposal({"id-1": 1})
    place.break_(after_lost(place, lambda: place.beside.ratify(faster), takes_effect=False), times=times)
    assert place.through.ratify(proposal({"id-1": 1, "id-2": 1})) is MOVED
    assert place.beside.head("id-1") == Head(1, faster.commits["id-1"])
    assert place.beside.head("id-2") == Head(0)


def test_many_that_race_over_a_bad_line_get_one_winner_each(place: Place) -> None:
    """Every second response is lost, but each caller still gets the outcome that DynamoDB has stored."""
    alone, count = threading.Lock(), iter(range(10**6))
    handles = [place.through, place.beside]

    def rule(request: Request, forward: Forward) -> Answer:
        with alone:
            answer = forward()
        if operation(request) == "TransactWriteItems" and next(count) % 2 == 0:
            raise Reset
        return answer

    place.proxy.rule = rule
    told: dict[int, list[str]] = {}
    with proxied(place.server) as (proxy, through):
        proxy.rule = rule
        handles = [DynamoDBCoordinator(place.name, through.options()) for _ in range(3)]

        def work(who: int) -> None:
            for _ in range(6):
                version = handles[who].cut()["id-1"] + 1
                if handles[who].ratify(proposal({"id-1": version, "id-2": version}, f"{who}")) is RATIFIED:
                    told.setdefault(version, []).append(f"txn-{who}")

        threads = [threading.Thread(target=work, args=(who,)) for who in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for table_id in ("id-1", "id-2"):
        head = place.beside.head(table_id)
        assert head is not None
        assert {each.version: [each.txn_id] for each in head.unpublished} == told


@pytest.mark.parametrize("which", ["BatchWriteItem", "BatchGetItem"])
def test_what_is_left_over_of_a_request_is_asked_for_again(place: Place, which: str) -> None:
    def nothing_done(request: Request, forward: Forward) -> Answer:
        asked = json.loads(request.body)["RequestItems"]
        body = {"Responses": {}, "UnprocessedKeys": asked, "UnprocessedItems": asked}
        return 200, [("Content-Type", "application/x-amz-json-1.0")], json.dumps(body).encode()

    place.break_(nothing_done, which, times=2)
    record = touched(transaction("t"), 2000)
    place.beside.insert(transaction("t"))
    assert place.through.put_parts(record, {"a": b"x" * 600_000, "b": b"y"})
    assert place.through.parts("t") == {"a": b"x" * 600_000, "b": b"y"}
    assert place.through.transactions(frozenset({record.status})) == [record]
    place.break_(nothing_done, which, times=1000)
    with pytest.raises(CoordinatorError, match="Check the capacity"):
        place.through.put_parts(touched(record, 3000), {"c": b""})
        place.through.transactions(frozenset({record.status}))


def test_parts_of_a_process_that_died_are_nobody_s(place: Place) -> None:
    place.beside.insert(transaction("t"))
    place.break_(reset_before, times=1000)
    record = touched(transaction("t"), 2000)
    with pytest.raises(OperationTimeoutError):
        place.through.put_parts(record, {"a": b"half"})
    assert place.beside.parts("t") == {}
    assert place.beside.put_parts(record, {"b": b"whole"})
    assert place.beside.parts("t") == {"b": b"whole"}
    place.beside.delete("t")
    found = client(place.server).scan(TableName=place.name, ConsistentRead=True)["Items"]
    assert [item for item in found if item["pk"]["S"].startswith("transaction")] == []


# ---------------------------------------------------------------------------------------------- limits and costs


@pytest.fixture
def name(ministack: Server) -> str:
    return new_table(ministack, "catalog")


def size_of_record(server: Server, name: str, transaction_id: str) -> int:
    """The approximate size of the item in bytes."""
    key = {"pk": {"S": f"transaction {transaction_id}"}, "sk": {"S": "record"}}
    return len(json.dumps(client(server).get_item(TableName=name, Key=key, ConsistentRead=True)["Item"]))


def test_a_record_does_not_grow_by_calls_that_keep_no_part(place: Place) -> None:
    record = transaction("t")
    place.beside.insert(record)
    record = touched(record, 2000)
    assert place.through.put_parts(record, {"a": b"x"})
    before = size_of_record(place.server, place.name, "t")
    for number in range(8):
        record = touched(record, 3000 + number)
        assert place.through.put_parts(record, {})
    assert not place.through.put_parts(record, {})  # the same record again
    assert size_of_record(place.server, place.name, "t") == before
    assert (place.beside.transaction("t"), place.beside.parts("t")) == (record, {"a": b"x"})


def of_tables(number: int) -> dict[str, int]:
    return {f"{table_number:036d}": 1000 for table_number in range(number)}


def test_a_transaction_that_reads_too_many_tables_is_told_what_to_do(place: Place) -> None:
    record = transaction("t")
    place.beside.insert(record)
    with pytest.raises(CallError, match=r"versions of 9000 tables .* several catalogs, or .* SQLite"):
        place.through.put_parts(pinned(record, of_tables(9000), 2000), {})
    assert place.beside.transaction("t") == record
    record = pinned(record, of_tables(8000), 2000)
    assert place.through.put_parts(record, {})
    assert place.beside.transaction("t") == record


def test_a_transaction_with_too_many_changes_is_told_what_to_do_and_can_still_be_ended(
    ministack: Server, name: str
) -> None:
    catalog = DynamoDBCoordinator(name, ministack.options())
    start = pinned(transaction("t"), of_tables(8000), 2000)
    catalog.insert(start)
    record = touched(start, 3000)
    assert catalog.put_parts(record, {"a": b"x"})
    client(ministack).update_item(
        TableName=name,
        Key={"pk": {"S": "transaction t"}, "sk": {"S": "record"}},
        UpdateExpression="SET #batches = list_append(#batches, :more)",
        ExpressionAttributeNames={"#batches": "batches"},
        ExpressionAttributeValues={":more": {"L": [{"S": "x" * 36}] * 1040}},
    )
    with pytest.raises(CallError, match=r"1041 times, .* Commit it, and continue in another"):
        catalog.put_parts(touched(record, 4000), {"b": b"y"})
    assert not catalog.put_parts(touched(touched(record, 4000), 5000), {"b": b"y"})  # one change was skipped
    assert (catalog.transaction("t"), catalog.parts("t")) == (record, {"a": b"x"})
    assert catalog.put_parts(touched(record, 4000), {})
    assert catalog.replace(aborted(touched(record, 4000), "conflict: " + "x" * 10_000, 5000))
    catalog.delete("t")
    found = client(ministack).scan(TableName=name, ConsistentRead=True)["Items"]
    assert [item for item in found if item["pk"]["S"].startswith("transaction")] == []


def test_a_transaction_over_the_cap_is_refused_before_anything_is_sent(ministack: Server, name: str) -> None:
    catalog = DynamoDBCoordinator(name, ministack.options())
    for number in range(49):
        catalog.register(table(number), 0)
    before = transaction("t")
    catalog.insert(before)
    after = committed(before, {}, 2000)

    def made(count: int) -> Proposal:
        return Proposal({f"id-{number}": (commit(1),) for number in range(count)}, {}, before, after)

    with pytest.raises(CallError, match="at most 100 items in one transaction; this one needs 102"):
        catalog.ratify(made(49))
    assert set(catalog.cut().values()) == {0}
    assert catalog.ratify(made(48)) is RATIFIED
    assert list(catalog.cut().values()).count(1) == 48


def test_a_catalog_of_an_earlier_deltalog_lists_all_that_is_decided_once(ministack: Server, name: str) -> None:
    """A catalog written by an earlier deltalog does not list the decided transactions that have parts left to clean
    up."""
    catalog = DynamoDBCoordinator(name, ministack.options())
    for number in range(20):
        catalog.insert(transaction(f"t{number:02}", number))
        assert catalog.put_parts(touched(transaction(f"t{number:02}", number), 2000), {"a": b"a"})
        assert catalog.replace(aborted(touched(transaction(f"t{number:02}", number), 2000), "cancelled", 3000))
    asked = client(ministack)
    for item in asked.query(
        TableName=name, KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": {"S": "left"}}
    )["Items"]:
        asked.delete_item(TableName=name, Key={"pk": item["pk"], "sk": item["sk"]})
    key = {"pk": {"S": "catalog"}, "sk": {"S": "catalog"}}
    asked.update_item(
        TableName=name, Key=key, UpdateExpression="REMOVE #left", ExpressionAttributeNames={"#left": "left"}
    )
    later = DynamoDBCoordinator(name, ministack.options())
    assert [record.id for record in later.uncleaned()] == [f"t{number:02}" for number in range(20)]
    later.delete_parts("t07")
    assert "t07" not in [record.id for record in catalog.uncleaned()]


def test_a_cut_over_many_tables_is_of_one_instant(ministack: Server, name: str) -> None:
    """The tables do not fit into one request, so two passes over them must return the same versions."""
    with proxied(ministack) as (proxy, through):
        catalog = DynamoDBCoordinator(name, through.options())
        for number in range(130):
            catalog.register(table(number), number)
        assert catalog.cut() == {f"id-{number}": number for number in range(130)}
        with proxy.counted() as made:
            assert catalog.ratify(proposal({"id-0": 1, "id-129": 130})) is RATIFIED
            assert catalog.cut() == {f"id-{number}": number for number in range(130)} | {"id-0": 1, "id-129": 130}
        assert [operation(request) for request in made] == ["TransactWriteItems"] + 4 * ["TransactGetItems"]

        beside, versions = DynamoDBCoordinator(name, ministack.options()), iter(range(2, 1000))

        def moving(request: Request, forward: Forward) -> Answer:
            version = next(versions)
            assert beside.ratify(proposal({"id-0": version, "id-129": version + 129})) is RATIFIED
            return forward()

        catalog = DynamoDBCoordinator(name, through.options(), timing=FakeTime().timing())
        proxy.rule = moving
        with pytest.raises(ConcurrentModificationError, match="Try again with fewer writers"):
            catalog.cut()


def test_a_table_that_comes_while_a_cut_is_made_is_not_left_out(place: Place) -> None:
    assert place.through.cut() == {"id-1": 0, "id-2": 0}

    def others(request: Request, forward: Forward) -> Answer:
        place.beside.register(table(3), 0)
        place.beside.ratify(proposal({"id-1": 1, "id-3": 1}))
        return forward()

    place.break_(others, "TransactGetItems")
    assert place.through.cut() == {"id-1": 1, "id-2": 0, "id-3": 1}


def test_what_calls_cost(ministack: Server, name: str) -> None:
    with proxied(ministack) as (proxy, through):
        catalog = DynamoDBCoordinator(name, through.options())
        assert [operation(r) for r in proxy.requests] == [
            "DescribeTable", "GetItem", "Scan", "TransactWriteItems", "GetItem",
        ]  # fmt: skip
        catalog.register(table(1), 0)
        catalog.cut()
        for call, wanted in [
            (lambda: DynamoDBCoordinator(name, through.options()), ["DescribeTable", "GetItem"]),
            (lambda: catalog.ratify(proposal({"id-1": 1})), ["TransactWriteItems"]),
            (lambda: catalog.head("id-1"), ["GetItem", "Query"]),
            (
                lambda: catalog.published("id-1", 1),
                ["Query", "BatchGetItem", "TransactWriteItems", "TransactWriteItems"],
            ),
            (lambda: catalog.head("id-1"), ["GetItem"]),
            (lambda: catalog.cut(), ["TransactGetItems"]),
            (lambda: catalog.table(table(1).name), ["GetItem"]),
            (lambda: catalog.insert(transaction("t")), ["TransactWriteItems"]),
            (lambda: catalog.transaction("t"), ["GetItem"]),
            (lambda: catalog.replace(touched(transaction("t"), 5)), ["TransactWriteItems"]),
        ]:
            with proxy.counted() as made:
                call()
            assert [operation(request) for request in made] == wanted


def test_reads_are_consistent(ministack: Server, name: str) -> None:
    with proxied(ministack) as (proxy, through):
        catalog = DynamoDBCoordinator(name, through.options())
        catalog.register(table(1), 0)
        catalog.insert(transaction("t"))
        catalog.ratify(proposal({"id-1": 1}))
        for call in (catalog.tables, catalog.cut, lambda: catalog.head("id-1"), lambda: catalog.parts("t")):
            call()
        catalog.transactions(frozenset({transaction("t").status}))
        bodies = {operation(request): json.loads(request.body) for request in proxy.requests}
    assert {"GetItem", "Query", "BatchGetItem", "Scan"} <= set(bodies)
    for kind in ("GetItem", "Query", "Scan"):
        assert bodies[kind]["ConsistentRead"] is True
    assert bodies["BatchGetItem"]["RequestItems"][name]["ConsistentRead"] is True


def test_more_than_a_page_of_everything(ministack: Server, name: str) -> None:
    """DynamoDB returns at most 1 MB per request."""
    catalog = DynamoDBCoordinator(name, ministack.options())
    records = [TableRecord(f"id-{n}", f"s.{n:03d}", f"file:///{n}" + "x" * 60_000, n) for n in range(40)]
    for record in records:
        assert catalog.register(record, 0)
    assert catalog.tables() == records
    assert len(catalog.cut()) == 40
    starts = [aborted(transaction(f"{n:03d}", n), "y" * 60_000, 2000) for n in range(40)]
    for start in starts:
        assert catalog.insert(start)
    assert catalog.transactions(frozenset({starts[0].status})) == starts


@pytest.mark.parametrize("long", ["é" * 600, "x" * 1025])
def test_a_name_too_long_for_a_key_is_refused(ministack: Server, name: str, long: str) -> None:
    catalog = DynamoDBCoordinator(name, ministack.options())
    with pytest.raises(CallError, match="cannot store"):
        catalog.register(TableRecord("id-1", long, "file:///x", 0), 0)
    assert catalog.tables() == []


# ----------------------------------------------------------------------------------------------- other tables


def test_a_table_that_is_not_there(ministack: Server) -> None:
    with pytest.raises(CoordinatorError, match=r"no DynamoDB table 'absent-catalog'.*commit-table create.*catalog"):
        DynamoDBCoordinator("absent-catalog", ministack.options())
    with pytest.raises(CallError, match="not a DynamoDB table name"):
        DynamoDBCoordinator("x", ministack.options())


def test_a_table_with_other_keys(ministack: Server) -> None:
    with pytest.raises(CoordinatorError, match="HASH pk"):
        DynamoDBCoordinator(new_table(ministack, "dynamo"), ministack.options())


def test_a_table_of_something_else_is_left_as_it_is(ministack: Server, name: str) -> None:
    client(ministack).put_item(TableName=name, Item={"pk": {"S": "user"}, "sk": {"S": "1"}})
    with pytest.raises(CoordinatorError, match="not contain a catalog"):
        DynamoDBCoordinator(name, ministack.options())
    assert len(client(ministack).scan(TableName=name)["Items"]) == 1


def test_without_create_no_catalog_is_made(ministack: Server, name: str) -> None:
    with pytest.raises(EntityNotFoundError, match=f"no catalog at dynamodb://{name}"):
        DynamoDBCoordinator(name, ministack.options(), create=False)
    assert client(ministack).scan(TableName=name)["Items"] == []
    made = DynamoDBCoordinator(name, ministack.options())
    assert DynamoDBCoordinator(name, ministack.options(), create=False).catalog_id == made.catalog_id


def test_a_newer_format_is_left_as_it_is(ministack: Server, name: str) -> None:
    DynamoDBCoordinator(name, ministack.options())
    change(ministack, name, "format", dynamodb.FORMAT + 1)
    with pytest.raises(CoordinatorError, match="upgrade"):
        DynamoDBCoordinator(name, ministack.options())


def change(server: Server, name: str, attribute: str, value: int) -> None:
    client(server).update_item(
        TableName=name,
        Key={"pk": {"S": "catalog"}, "sk": {"S": "catalog"}},
        UpdateExpression="SET #a = :v",
        ExpressionAttributeNames={"#a": attribute},
        ExpressionAttributeValues={":v": {"N": str(value)}},
    )


def test_a_catalog_that_was_replaced_takes_no_table(ministack: Server, name: str) -> None:
    catalog = DynamoDBCoordinator(name, ministack.options())
    client(ministack).delete_item(TableName=name, Key={"pk": {"S": "catalog"}, "sk": {"S": "catalog"}})
    other = DynamoDBCoordinator(name, ministack.options())
    assert other.catalog_id != catalog.catalog_id
    with pytest.raises(CoordinatorError, match="it was replaced"):
        catalog.register(table(1), 0)
    assert other.tables() == []


def test_many_that_make_a_catalog_make_one(ministack: Server, name: str) -> None:
    ids: list[Any] = []
    threads = [
        threading.Thread(target=lambda: ids.append(DynamoDBCoordinator(name, ministack.options()).catalog_id))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 6 and len(set(ids)) == 1


def test_the_table_of_a_catalog_lets_nothing_expire(ministack: Server) -> None:
    name = new_table(ministack, "catalog")
    assert describe_commit_table(name, "catalog", **ministack.options()).expires is False
    again = create_commit_table(name, "catalog", **ministack.options())
    assert (again.created, again.expires) == (False, False)


def test_secrets_are_not_told(ministack: Server, name: str) -> None:
    catalog = DynamoDBCoordinator(name, ministack.options())
    client(ministack).delete_table(TableName=name)
    with pytest.raises(CoordinatorError) as error:
        catalog.cut()
    assert "testing-secret-key" not in str(error.value)
    assert not isinstance(error.value, (OperationTimeoutError, CommitTableError))
