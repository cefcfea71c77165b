"""S3DynamoDBStore shares tables with writers that use Spark's S3DynamoDBLogStore, whose steps the tests reproduce by
hand."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest

from deltalog import CallError, DeltaTable, S3DynamoDBCommit, StoreError, open_store
from deltalog.errors import CommitTableError, ObjectNotFoundError, UnsafePathError, UnsafeStoreError
from deltalog.protocol.paths import commit_path
from deltalog.storage.base import LogStore, PutOutcome
from deltalog.storage.dynamodb.spark_log_store import S3DynamoDBStore
from deltalog.storage.s3.store import S3Store
from deltalog.testing.store_contract import LogStoreTests
from tests.support.core import ids, rows
from tests.support.s3 import Answer, Request, Server, proxied
from tests.support.s3.dynamodb import (
    WALL,
    FakeTime,
    client,
    delete_items,
    dynamodb_error,
    items,
    new_table,
    operation,
    raw_items,
)
from tests.support.s3.racing import race
from tests.support.s3.rules import only_once, reset_after, slow_down

COMMITTED, EXISTS, UNKNOWN = PutOutcome.COMMITTED, PutOutcome.EXISTS, PutOutcome.UNKNOWN
DAY = 86_400


class TestOnMinistack(LogStoreTests):
    rounds = 4

    @pytest.fixture
    def server(self, ministack: Server) -> Server:
        return ministack

    @pytest.fixture
    def table(self, server: Server) -> str:
        return new_table(server, "s3-dynamodb")

    @pytest.fixture
    def store(self, server: Server, table: str) -> LogStore:
        return open_store(f"s3://{server.bucket()}/a table", commit=f"s3-dynamodb:{table}", **server.options())

    @pytest.fixture
    def another(self, store: LogStore, server: Server, table: str) -> LogStore:
        url = store.url.replace("s3://", "s3a://")
        return open_store(url, commit=f"s3-dynamodb:{table}", **server.options())


@pytest.mark.long
class TestOnMoto(TestOnMinistack):
    @pytest.fixture
    def server(self, one_at_a_time: Server) -> Server:
        return one_at_a_time


class Place:
    """The location of a table, and its commit table in DynamoDB. Both are used by deltalog and by test code that
    repeats Spark's steps."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.bucket = server.bucket()
        self.url = f"s3://{self.bucket}/events"
        self.table = new_table(server, "s3-dynamodb")
        self.plain = S3Store(self.url, **server.options())
        self.time = FakeTime()

    def store(self, server: Server | None = None, **changes: Any) -> S3DynamoDBStore:
        commit = S3DynamoDBCommit(self.table, timing=self.time.timing(), **changes)
        store = open_store(self.url, commit=commit, **(server or self.server).options())
        assert isinstance(store, S3DynamoDBStore)
        return store

    def spark(self, version: int, data: bytes, steps: int = 4, **item: str) -> None:
        """Run the steps of Spark's ``write`` from the second one on, up to the step at which the writer dies."""
        name = f"{version:020d}.json"
        staged = f".tmp/{name}.6e6c9e60-1d0a-4b9f-9d4e-000000000000"
        item = {"tablePath": f"s3a://{self.bucket}/events", "fileName": name, "tempPath": staged, **item}
        if steps >= 2:
            self.plain.put(f"_delta_log/{staged}", data)
            self.put_item({**item, "complete": "false"}, Expected={"fileName": {"Exists": False}})
        if steps >= 3:
            self.plain.put(f"_delta_log/{name}", data)
        if steps >= 4:
            self.put_item({**item, "complete": "true"}, expires=WALL + DAY)

    def put_item(self, item: dict[str, str], expires: int | None = None, **arguments: Any) -> None:
        encoded: dict[str, Any] = {name: {"S": value} for name, value in item.items()}
        if expires is not None:
            encoded["expireTime"] = {"N": str(expires)}
        client(self.server).put_item(TableName=self.table, Item=encoded, **arguments)

    def forget(self) -> None:
        delete_items(self.server, self.table, "tablePath", "fileName")

    def states(self) -> list[str]:
        return [item["complete"] for item in items(self.server, self.table)]

    def log(self) -> dict[int, bytes]:
        listed = [meta.name for meta in self.plain.list_from("_delta_log")]
        return {int(name[:20]): self.plain.get(f"_delta_log/{name}") for name in listed}

    def staged(self) -> list[str]:
        return [meta.name for meta in self.plain.list_from("_delta_log/.tmp")]


@pytest.fixture(params=["ministack", pytest.param("moto", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest) -> Place:
    return Place(request.getfixturevalue(request.param))


# -------------------------------------------------------------------------------------- compatibility with Spark


def test_the_items_are_those_of_spark(place: Place) -> None:
    seen: list[dict[str, Any]] = []
    with proxied(place.server) as (proxy, through):

        def look(request: Request, forward: Callable[[], Answer]) -> Answer:
            if request.method == "PUT" and request.key.endswith("/_delta_log/00000000000000000000.json"):
                seen.extend(raw_items(place.server, place.table))
            return forward()

        proxy.rule = look
        assert place.store(through).put_if_absent(commit_path(0), b"zero") is COMMITTED
    (staged,) = place.staged()
    assert staged.startswith("00000000000000000000.json.") and len(staged) == 25 + 1 + 36
    key = {"tablePath": {"S": f"s3a://{place.bucket}/events"}, "fileName": {"S": "00000000000000000000.json"}}
    prepared = {**key, "tempPath": {"S": f".tmp/{staged}"}, "complete": {"S": "false"}}
    assert seen == [prepared]
    done = {**prepared, "complete": {"S": "true"}, "expireTime": {"N": str(WALL + DAY)}}
    assert raw_items(place.server, place.table) == [done]
    assert place.plain.get(f"_delta_log/.tmp/{staged}") == b"zero"


@pytest.mark.parametrize(
    ("url", "scheme", "spelled"),
    [
        ("s3://{}/events", "s3a", "s3a://{}/events"),
        ("s3a://{}/deep/a b%41/", "s3a", "s3a://{}/deep/a b%41"),
        ("s3a://{}/events", "s3", "s3://{}/events"),
        ("s3://{}", "s3a", "s3a://{}/"),
    ],
)
def test_the_location_is_spelled_as_hadoop_spells_it(ministack: Server, url: str, scheme: str, spelled: str) -> None:
    name, bucket = new_table(ministack, "s3-dynamodb"), ministack.bucket()
    commit = f"s3-dynamodb:{name}" if scheme == "s3a" else f"s3-dynamodb:{name}:{scheme}"
    store = open_store(url.format(bucket), commit=commit, **ministack.options())
    assert store.put_if_absent(commit_path(0), b"zero") is COMMITTED
    assert [item["tablePath"] for item in items(ministack, name)] == [spelled.format(bucket)]


def test_spark_and_deltalog_take_turns(place: Place) -> None:
    store = place.store()
    assert store.put_if_absent(commit_path(0), b"0") is COMMITTED
    place.spark(1, b"1")
    assert store.put_if_absent(commit_path(1), b"mine") is EXISTS
    assert store.put_if_absent(commit_path(2), b"2") is COMMITTED
    with pytest.raises(Exception, match="ConditionalCheckFailed"):
        place.spark(2, b"theirs")
    assert place.log() == {0: b"0", 1: b"1", 2: b"2"}
    assert place.states() == ["true"] * 3


def test_a_version_is_written_once(place: Place) -> None:
    store = place.store()
    assert store.put_if_absent(commit_path(0), b"first") is COMMITTED
    assert store.put_if_absent(commit_path(0), b"second") is EXISTS
    assert (place.log(), len(place.staged())) == ({0: b"first"}, 1)


def test_a_loser_leaves_no_staged_file(place: Place) -> None:
    store = place.store()
    store.put_if_absent(commit_path(0), b"0")
    head = store.inner.head

    def overtaken(path: str) -> Any:
        if path == commit_path(1):
            place.spark(1, b"theirs", steps=2)
        return head(path)

    found = overtaken(commit_path(1))
    assert found is None
    assert store.put_if_absent(commit_path(1), b"mine") is EXISTS
    assert len(place.staged()) == 2  # the staged files of versions 0 and 1
    assert store.get(commit_path(1)) == b"theirs"


def test_a_version_after_one_that_is_not_there_is_refused(place: Place) -> None:
    store = place.store()
    store.put_if_absent(commit_path(0), b"0")
    with pytest.raises(CommitTableError, match="version 1, the previous one, is not in the log"):
        store.put_if_absent(commit_path(2), b"2")
    assert place.log() == {0: b"0"} and len(place.staged()) == 1


# --------------------------------------------------------------------------------------- finishing others' commits


def open_commit(place: Place, steps: int) -> None:
    place.spark(0, b"0")
    place.spark(1, b"1", steps=steps)


READS: dict[str, Callable[[LogStore], Any]] = {
    "list_from": lambda store: [meta.name[19] for meta in store.list_from("_delta_log")],
    "list_names": lambda store: sorted(name[19] for name in store.list_names("_delta_log", "0")),
    "head": lambda store: store.head(commit_path(1)),
    "get": lambda store: store.get(commit_path(1)),
}


@pytest.mark.parametrize("steps", [2, 3], ids=["not copied", "not marked"])
@pytest.mark.parametrize("read", READS)
def test_a_reader_finishes_a_commit(ministack: Server, steps: int, read: str) -> None:
    place = Place(ministack)
    open_commit(place, steps)
    found = READS[read](place.store())
    assert found in (["0", "1"], b"1") or found.size_bytes == 1
    assert place.log() == {0: b"0", 1: b"1"}
    if (read, steps) not in {("head", 3), ("get", 3)}:  # versions in the log are read without a request to DynamoDB
        assert place.states() == ["true", "true"]
        assert items(ministack, place.table)[1]["expireTime"] == WALL + DAY


@pytest.mark.parametrize("steps", [2, 3], ids=["not copied", "not marked"])
def test_a_writer_finishes_the_commit_before_its_own(place: Place, steps: int) -> None:
    open_commit(place, steps)
    assert place.store().put_if_absent(commit_path(2), b"2") is COMMITTED
    assert place.log() == {0: b"0", 1: b"1", 2: b"2"}
    assert place.states() == ["true"] * 3


def test_a_staged_file_without_an_item_is_no_commit(place: Place) -> None:
    place.spark(0, b"0")
    place.spark(1, b"1", steps=1)
    store = place.store()
    assert len(store.list_from("_delta_log")) == 1
    with pytest.raises(ObjectNotFoundError):
        store.get(commit_path(1))
    assert store.put_if_absent(commit_path(1), b"mine") is COMMITTED


def test_the_first_version_is_finished_too(place: Place) -> None:
    place.spark(0, b"0", steps=2)
    store = place.store()
    assert store.put_if_absent(commit_path(0), b"mine") is EXISTS
    assert (store.get(commit_path(0)), place.states()) == (b"0", ["true"])


def test_many_may_finish_one_commit(ministack: Server) -> None:
    place = Place(ministack)
    open_commit(place, 2)
    first, second = place.store(), place.store()
    copy = first._copy
    first._copy = lambda *arguments: (second.list_from("_delta_log"), copy(*arguments))[1]  # type: ignore[method-assign]
    assert first.get(commit_path(1)) == b"1"
    assert place.states() == ["true", "true"]


def test_a_staged_commit_of_deltalake_is_finished(ministack: Server) -> None:
    place = Place(ministack)
    place.spark(0, b"0")
    staged = "_commit_7d1f0d5e-6c3f-4b7b-8d6e-1f0a3c5b7d9e.json.tmp"
    place.plain.put(f"_delta_log/{staged}", b"1")
    place.spark(1, b"unused", steps=2, tempPath=staged)
    assert place.store().get(commit_path(1)) == b"1"


FORGED = [
    "../../other/secret.json",
    ".tmp/../../events2/_delta_log/00000000000000000001.json",
    ".tmp/sub/00000000000000000001.json.x",
    "/etc/passwd",
    "s3a://other/_delta_log/.tmp/00000000000000000001.json.x",
    ".tmp/00000000000000000000.json.6e6c9e60",
    "00000000000000000000.json",
    ".tmp/00000000000000000001.json.",
    "_last_checkpoint",
    "",
]


@pytest.mark.parametrize("forged", FORGED)
def test_an_item_that_names_another_file_is_refused(ministack: Server, forged: str) -> None:
    place = Place(ministack)
    place.spark(0, b"0")
    item = {"tablePath": f"s3a://{place.bucket}/events", "fileName": "00000000000000000001.json"}
    if not forged:
        forged = " "
    place.put_item({**item, "tempPath": forged, "complete": "false"})
    store = place.store()
    calls: list[Callable[[], object]] = [lambda: store.list_from("_delta_log"), lambda: store.get(commit_path(1))]
    calls += [lambda: store.put_if_absent(commit_path(2), b"2")]
    for call in calls:
        with pytest.raises(UnsafePathError, match="Nothing was copied"):
            call()
    assert place.log() == {0: b"0"}


def test_an_item_of_something_else_is_named(ministack: Server) -> None:
    place = Place(ministack)
    item = {"tablePath": f"s3a://{place.bucket}/events", "fileName": "00000000000000000000.json"}
    place.put_item({**item, "complete": "maybe"})
    with pytest.raises(CommitTableError, match="not one of S3DynamoDBLogStore"):
        place.store().list_from("_delta_log")


def test_items_of_other_files_are_passed_over(ministack: Server) -> None:
    place = Place(ministack)
    open_commit(place, 2)
    item = {
        "tablePath": f"s3a://{place.bucket}/events",
        "fileName": "_other",
        "tempPath": ".tmp/x",
        "complete": "false",
    }
    place.put_item(item)
    assert len(place.store().list_from("_delta_log")) == 2


def test_a_commit_whose_content_is_gone_is_named(ministack: Server) -> None:
    place = Place(ministack)
    open_commit(place, 2)
    place.plain.delete(f"_delta_log/.tmp/{place.staged()[-1]}")
    with pytest.raises(CommitTableError, match=r"neither the log nor _delta_log/\.tmp/0+1\.json\..* has its content"):
        place.store().list_from("_delta_log")


# -------------------------------------------------------------------------------------- deleted and created again


def test_old_items_of_a_table_that_was_deleted_refuse_version_0(place: Place) -> None:
    place.spark(0, b"old")
    place.plain.delete(commit_path(0))
    with pytest.raises(CommitTableError, match="deleted or restored"):
        place.store().put_if_absent(commit_path(0), b"new")
    assert place.log() == {}


def test_old_items_refuse_later_versions_too(place: Place) -> None:
    place.spark(0, b"0")
    place.spark(1, b"old")
    place.plain.delete(commit_path(1))
    with pytest.raises(CommitTableError, match=r"version 1 is complete in .*, but not in the log"):
        place.store().put_if_absent(commit_path(1), b"new")
    assert place.log() == {0: b"0"} and len(place.staged()) == 2


# ---------------------------------------------------------------------------------------------------- mixed modes


def test_a_commit_without_an_item_beside_recent_items_is_refused_by_name(place: Place) -> None:
    place.spark(0, b"0")
    place.plain.put(commit_path(1), b"native")
    store = place.store()
    with pytest.raises(
        CommitTableError, match="version 1 was committed by a writer that does not use the DynamoDB table"
    ):
        store.put_if_absent(commit_path(2), b"2")
    assert place.log() == {0: b"0", 1: b"native"}
    assert len(store.list_from("_delta_log")) == 2  # reading still works


def test_a_commit_without_an_item_is_none_of_ours_once_the_items_have_expired(place: Place) -> None:
    place.spark(0, b"0")
    place.plain.put(commit_path(1), b"native")
    place.time.wall += DAY + 1
    assert place.store().put_if_absent(commit_path(2), b"2") is COMMITTED


def test_a_table_may_change_to_this_mode(place: Place) -> None:
    place.plain.put(commit_path(0), b"0")
    place.plain.put(commit_path(1), b"1")
    assert place.store().put_if_absent(commit_path(2), b"2") is COMMITTED


def test_expired_items_of_older_versions_do_not_matter(place: Place) -> None:
    for version in range(3):
        place.spark(version, b"%d" % version)
    place.forget()
    assert place.store().put_if_absent(commit_path(3), b"3") is COMMITTED


class Overtaken(S3Store):
    """Another writer puts the same path right before our conditional PUT."""

    before: Callable[[], None]

    def put_once(self, *arguments: Any, **named: Any) -> PutOutcome:
        self.before()
        return super().put_once(*arguments, **named)


def overtaken(place: Place, before: Callable[[], None]) -> S3DynamoDBStore:
    inner = Overtaken(place.url, **place.server.options())
    inner.before = before
    store = place.store()
    store.inner = inner
    return store


def test_a_native_writer_that_takes_our_version_is_refused_by_name_and_our_item_withdrawn(place: Place) -> None:
    place.spark(0, b"0")
    store = overtaken(place, lambda: place.plain.put(commit_path(1), b"native"))
    with pytest.raises(CommitTableError, match="version 1 was committed by a writer that does not use"):
        store.put_if_absent(commit_path(1), b"ours")
    assert place.log() == {0: b"0", 1: b"native"}
    assert len(items(place.server, place.table)) == len(place.staged()) == 1


def test_who_finished_our_commit_before_us_did_it_for_us(place: Place) -> None:
    place.spark(0, b"0")
    store = overtaken(place, lambda: (place.store().list_from("_delta_log"), None)[1])
    assert store.put_if_absent(commit_path(1), b"ours") is COMMITTED
    assert place.log()[1] == b"ours" and place.states() == ["true", "true"]


def test_other_bytes_than_the_item_says_stop_writers_and_not_readers(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    open_commit(place, 2)
    place.plain.put(commit_path(1), b"native")
    store = place.store()
    with caplog.at_level(logging.WARNING, "deltalog"):
        assert len(store.list_from("_delta_log")) == 2
    assert "other bytes than the item's file" in caplog.text
    with pytest.raises(CommitTableError, match="other bytes than the item's file"):
        store.put_if_absent(commit_path(2), b"2")
    assert place.states() == ["true", "false"] and 2 not in place.log()


def test_a_plain_writer_is_refused_where_commits_are_staged(place: Place) -> None:
    for version in range(3):
        place.spark(version, b"%d" % version)
    with pytest.raises(UnsafeStoreError, match=r"_delta_log/\.tmp/0+2\.json\.\S+ was staged.*S3DynamoDBLogStore"):
        place.plain.put_if_absent(commit_path(3), b"native")
    assert 3 not in place.log()
    for name in place.staged():
        place.plain.delete(f"_delta_log/.tmp/{name}")
    # After the remedy that the error message names, the commit succeeds.
    assert place.plain.put_if_absent(commit_path(3), b"native") is COMMITTED


def test_staged_commits_of_long_ago_do_not_matter(ministack: Server) -> None:
    place = Place(ministack)
    place.spark(0, b"0")
    assert place.plain.put_if_absent(commit_path(11), b"native") is COMMITTED


# ----------------------------------------------------------------------------------------------------- the faults


def on(name: str) -> Callable[[Request], bool]:
    """A predicate that matches requests with the DynamoDB operation ``name``, and PUTs of keys that contain
    ``name``."""
    return lambda request: operation(request) == name or (request.method == "PUT" and name in request.key)


def test_an_item_whose_answer_got_lost_is_known_as_our_own(place: Place) -> None:
    with proxied(place.server) as (proxy, through):
        proxy.rule = only_once(reset_after, on("PutItem"))
        assert place.store(through).put_if_absent(commit_path(0), b"0") is COMMITTED
    assert (place.log(), place.states()) == ({0: b"0"}, ["true"])


@pytest.mark.parametrize("landed", [True, False])
def test_an_item_that_stays_open_is_not_known_and_settled_by_who_looks(place: Place, landed: bool) -> None:
    def answer(request: Request, forward: Callable[[], Answer]) -> Answer:
        if operation(request) != "PutItem":
            return forward()
        if landed:
            forward()
        return dynamodb_error(500, "InternalServerError")

    with proxied(place.server) as (proxy, through):
        proxy.rule = answer
        assert place.store(through).put_if_absent(commit_path(0), b"0") is UNKNOWN
    store = place.store()
    if landed:
        assert store.get(commit_path(0)) == b"0"
    else:
        with pytest.raises(ObjectNotFoundError):
            store.get(commit_path(0))
        assert store.put_if_absent(commit_path(0), b"0") is COMMITTED


def test_a_throttled_service_writes_nothing_in_the_end(place: Place) -> None:
    with proxied(place.server) as (proxy, through):
        proxy.rule = lambda request, forward: (
            dynamodb_error(400, "ThrottlingException") if operation(request) == "PutItem" else forward()
        )
        with pytest.raises(StoreError, match="ThrottlingException"):
            place.store(through).put_if_absent(commit_path(0), b"0")
    assert (place.log(), place.staged(), items(place.server, place.table)) == ({}, [], [])


@pytest.mark.parametrize("fault", [slow_down, lambda request, forward: (403, [], b"")], ids=["503", "403"])
def test_a_copy_that_fails_leaves_a_commit_that_the_next_look_finishes(place: Place, fault: Any) -> None:
    with proxied(place.server) as (proxy, through):
        proxy.rule = lambda request, forward: fault(request, forward) if on("_delta_log/0")(request) else forward()
        assert place.store(through).put_if_absent(commit_path(0), b"0") is UNKNOWN
        assert place.log() == {}
        with pytest.raises(StoreError, match=r"version 0 is committed in the DynamoDB table"):
            place.store(through).list_from("_delta_log")
    assert place.store().get(commit_path(0)) == b"0"


def test_a_mark_that_fails_is_left_to_the_next_one(place: Place) -> None:
    with proxied(place.server) as (proxy, through):
        proxy.rule = lambda request, forward: (
            dynamodb_error(400, "AccessDeniedException") if b"expireTime" in request.body else forward()
        )
        assert place.store(through).put_if_absent(commit_path(0), b"0") is COMMITTED
    assert place.states() == ["false"]
    place.store().list_from("_delta_log")
    assert place.states() == ["true"]


@pytest.mark.parametrize("fault", [reset_after, slow_down], ids=["lost answer", "503"])
@pytest.mark.parametrize("step", [".tmp", "PutItem", "GetItem", "_delta_log/0", "expireTime"])
def test_a_commit_is_made_once_whatever_becomes_of_its_requests(ministack: Server, fault: Any, step: str) -> None:
    name, url = new_table(ministack, "s3-dynamodb"), f"s3://{ministack.bucket()}/t"
    DeltaTable.create(url, rows(1).schema, data=rows(1), commit=f"s3-dynamodb:{name}", **ministack.options())
    with proxied(ministack) as (proxy, through):
        table = DeltaTable.open(url, commit=f"s3-dynamodb:{name}", **through.options())
        which = (lambda request: b"expireTime" in request.body) if step == "expireTime" else on(step)
        proxy.rule = only_once(fault, which)
        assert table.append(rows(2)).version == 1
    opened = DeltaTable.open(url, commit=f"s3-dynamodb:{name}", **ministack.options())
    assert (opened.version, ids(opened)) == (1, [1, 2])


def test_a_process_that_dies_between_two_steps_has_committed_from_the_item_on(ministack: Server) -> None:
    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    for step, committed in [("put", False), ("_claim", False), ("_publish_own", True), ("_complete", True)]:
        place = Place(ministack)
        store = place.store()
        setattr(store.inner if step == "put" else store, step, die)
        with pytest.raises(Killed):
            store.put_if_absent(commit_path(0), b"0")
        assert len(place.store().list_from("_delta_log")) == committed, step
        assert place.store().put_if_absent(commit_path(0), b"again") is (EXISTS if committed else COMMITTED)


def test_without_the_table_nothing_is_written_and_nothing_is_guessed(place: Place) -> None:
    store = open_store(place.url, commit="s3-dynamodb:no-such-table", **place.server.options())
    with pytest.raises(CommitTableError, match="no DynamoDB table 'no-such-table'"):
        store.put_if_absent(commit_path(0), b"0")
    with pytest.raises(CommitTableError):
        store.list_from("_delta_log")
    assert (place.log(), place.staged()) == ({}, [])
    other = open_store(place.url, commit=f"s3-dynamodb:{new_table(place.server, 'dynamo')}", **place.server.options())
    with pytest.raises(CommitTableError, match="--kind s3-dynamodb"):
        other.put_if_absent(commit_path(0), b"0")


# --------------------------------------------------------------------------------------------- a table, end to end


def test_a_table_is_created_appended_to_and_travelled_through(place: Place) -> None:
    options = {"commit": f"s3-dynamodb:{place.table}", **place.server.options()}
    ict = {"delta.enableInCommitTimestamps": "true"}
    table = DeltaTable.create(place.url, rows(1).schema, data=rows(1), properties=ict, **options)
    results = [table.append(rows(number)) for number in (2, 3)]
    table.checkpoint()
    opened = DeltaTable.open(place.url, **options)
    assert (opened.version, ids(opened), ids(opened, version=1)) == (2, [1, 2, 3], [1, 2])
    assert ids(opened, timestamp=results[1].timestamp_ms - 1) == [1, 2]
    assert place.states() == ["true"] * 3
    # Readers without the option ``commit`` also see all rows.
    assert ids(DeltaTable.open(place.url, **place.server.options())) == [1, 2, 3]


def test_an_open_table_sees_a_commit_that_nobody_has_copied(ministack: Server) -> None:
    place = Place(ministack)
    options = {"commit": f"s3-dynamodb:{place.table}", **ministack.options()}
    table = DeltaTable.create(place.url, rows(1).schema, data=rows(1), **options)
    writer = DeltaTable.open(place.url, **options)
    with pytest.raises(KeyboardInterrupt):
        store = writer._handle.reader.store
        store._publish_own = functools.partial(_interrupt)  # type: ignore[attr-defined]
        writer.append(rows(2))
    assert list(place.log()) == [0]
    assert (table.snapshot().version, ids(table)) == (1, [1, 2])
    assert table.append(rows(3)).version == 2


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_two_processes_that_race_lose_nothing(place: Place) -> None:
    race(place.url, {"commit": f"s3-dynamodb:{place.table}", **place.server.options()}, 2, 8)
    assert place.states() == ["true"] * 17


def test_a_commit_costs_what_the_page_says(ministack: Server) -> None:
    place = Place(ministack)
    with proxied(ministack) as (proxy, through):
        store = place.store(through)
        store.put_if_absent(commit_path(0), b"0")
        with proxy.counted() as made:
            store.put_if_absent(commit_path(1), b"1")
        assert calls(made) == ["HEAD", "GetItem", "HEAD", "PUT", "PutItem", "PUT", "PutItem"]
        with proxy.counted() as made:
            store.list_from("_delta_log")
        assert calls(made) == ["Query", "GET"]
        with proxy.counted() as made:
            assert store.head(commit_path(2)) is None
        assert calls(made) == ["HEAD", "GetItem"]
        with proxy.counted() as made:
            store.get(commit_path(1))
        assert calls(made) == ["GET"]


def calls(made: list[Request]) -> list[str]:
    return [operation(request) or request.method for request in made]


@pytest.mark.parametrize(
    "make",
    [
        lambda: S3DynamoDBCommit("x"),
        lambda: S3DynamoDBCommit("locks", table_path_scheme="http"),
        lambda: S3DynamoDBCommit("locks", ttl_s=0),
        lambda: S3DynamoDBCommit.parse("s3-dynamodb:"),
        lambda: S3DynamoDBCommit.parse("s3-dynamodb:locks:gs"),
        lambda: S3DynamoDBCommit.parse("s3-dynamodb:a:s3:c"),
    ],
)
def test_options_that_cannot_work_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(CallError):
        make()


def test_the_option_string() -> None:
    assert S3DynamoDBCommit.parse("s3-dynamodb:delta_log") == S3DynamoDBCommit("delta_log")
    assert S3DynamoDBCommit.parse("s3-dynamodb:delta_log:s3") == S3DynamoDBCommit("delta_log", table_path_scheme="s3")
    assert str(S3DynamoDBCommit("delta_log")) == "s3-dynamodb:delta_log"
