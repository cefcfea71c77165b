"""S3Store keeps the guarantees of a LogStore on two servers, and never guesses what became of a request."""

from __future__ import annotations

import gc
import itertools
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import (
    CallError,
    DeltaTable,
    InvalidDataFileError,
    ObjectNotFoundError,
    StoreError,
    UnsafeStoreError,
    open_store,
)
from deltalog.storage import ranges, s3, s3_client, s3_direct
from deltalog.storage.base import Entry, PutOutcome
from deltalog.storage.s3 import S3Store
from deltalog.testing.store_contract import LogStoreTests
from tests.support.core import ids, rows
from tests.support.s3 import Answer, Proxy, Request, Rule, Server, free_port, pass_on, proxied
from tests.support.s3.faults import answered
from tests.support.s3.rules import (
    carried_out_but_answered,
    error_document,
    refused,
    reset_after,
    reset_before,
    silent_for,
)

COMMIT = "_delta_log/00000000000000000000.json"
COMMITTED, EXISTS, UNKNOWN = PutOutcome.COMMITTED, PutOutcome.EXISTS, PutOutcome.UNKNOWN


class TestOnMinistack(LogStoreTests):
    rounds = 8

    @pytest.fixture
    def store(self, ministack: Server) -> S3Store:
        return ministack.store()

    @pytest.fixture
    def another(self, store: S3Store, ministack: Server) -> S3Store:
        return S3Store(store.url, **ministack.options())


class TestOnMoto(TestOnMinistack):
    """Another server, whose refusals look different, and a prefix that looks encoded."""

    @pytest.fixture
    def store(self, one_at_a_time: Server) -> S3Store:
        return one_at_a_time.store("deep/prefix/%41 table")

    @pytest.fixture
    def another(self, store: S3Store, one_at_a_time: Server) -> S3Store:
        return S3Store(store.url.replace("s3://", "s3a://"), **one_at_a_time.options())


class TestAtTheRootOfABucket(LogStoreTests):
    rounds = 2

    @pytest.fixture
    def store(self, ministack: Server) -> S3Store:
        return ministack.store("")


@pytest.fixture(scope="module")
def proxy_and_root(ministack: Server) -> Iterator[tuple[Proxy, S3Store]]:
    with proxied(ministack) as (proxy, server):
        root = server.store("", config_kwargs={"read_timeout": 3})
        root.put_if_absent("probed", b"")
        yield proxy, root


@pytest.fixture
def seen(proxy_and_root: tuple[Proxy, S3Store]) -> Iterator[tuple[Proxy, S3Store]]:
    """An empty store behind a proxy. The probe for conditional writes is over: a test sees its own requests."""
    proxy, root = proxy_and_root
    proxy.requests.clear()
    yield proxy, root.sibling(f"{root.url}/{uuid.uuid4()}/table")
    proxy.rule = pass_on


# ------------------------------------------------------------------------------- what became of a conditional PUT


def sent_twice(request: Request, forward: Callable[[], Answer]) -> Answer:
    forward()
    return forward()


def garbage(request: Request, forward: Callable[[], Answer]) -> Answer:
    forward()
    return 299, [("Content-Type", "application/xml")], b"<Error>"


FATES: dict[str, tuple[Rule, PutOutcome | None, bool]] = {
    # what happens: the outcome (None: a StoreError), whether the object is there
    "409, not settled": (refused(409, "ConditionalRequestConflict"), UNKNOWN, False),
    "409 of another kind": (refused(409, "OperationAborted"), UNKNOWN, False),
    "412, own": (sent_twice, EXISTS, True),
    "408 before": (refused(408, "RequestTimeout"), UNKNOWN, False),
    "429 before": (refused(429, "TooManyRequests"), UNKNOWN, False),
    "503 before": (refused(503, "SlowDown"), UNKNOWN, False),
    "500 before": (refused(500, "InternalError"), UNKNOWN, False),
    "500 after": (carried_out_but_answered(500, "InternalError"), UNKNOWN, True),
    "504 after": (carried_out_but_answered(504, "GatewayTimeout"), UNKNOWN, True),
    "reset before": (reset_before, UNKNOWN, False),
    "reset after": (reset_after, UNKNOWN, True),
    "no answer in time": (silent_for(5), UNKNOWN, True),
    "403": (refused(403, "AccessDenied"), None, False),
    "403, expired": (refused(400, "ExpiredToken"), None, False),
    "404": (refused(404, "NoSuchBucket"), None, False),
    "501": (refused(501, "NotImplemented"), None, False),
}


def through_botocore(store: S3Store) -> S3Store:
    """The same place with an option that changes nothing, and of which only botocore knows."""
    return S3Store(store.url, **store._client._options, requester_pays=False, exclusive_create=True)


@pytest.mark.parametrize("way", [lambda store: store, through_botocore], ids=["direct", "botocore"])
@pytest.mark.parametrize("fate", FATES)
def test_what_became_of_a_put_is_never_guessed(
    seen: tuple[Proxy, S3Store], fate: str, way: Callable[[S3Store], S3Store]
) -> None:
    proxy, store = seen[0], way(seen[1])
    rule, outcome, there = FATES[fate]
    proxy.rule = rule
    if outcome is None:
        with pytest.raises(StoreError, match=r"Cannot create s3://.*/table/_delta_log/0+\.json \(HTTP \d+ \w+\)"):
            store.put_if_absent(COMMIT, b"mine")
    else:
        assert store.put_if_absent(COMMIT, b"mine") is outcome
    [request] = proxy.requests  # sent once, whatever the answer
    assert ("botocore" in request.headers["User-Agent"].lower()) == (way is through_botocore)
    assert (request.method, request.headers["If-None-Match"]) == ("PUT", "*")
    proxy.rule = pass_on
    assert (store.head(COMMIT) is not None) == there
    if there:
        assert store.get(COMMIT) == b"mine"


def test_another_writers_object_is_told_from_both_servers_answers(ministack: Server, moto: Server) -> None:
    for server in (ministack, moto):
        store = server.store()
        store.put(COMMIT, b"theirs")
        assert store.put_if_absent(COMMIT, b"") is EXISTS  # an empty body too
        assert store.get(COMMIT) == b"theirs"


def test_nothing_was_written_when_no_connection_was_made(ministack: Server) -> None:
    store = ministack.store()
    store.put_if_absent("before", b"")
    away = S3Store(
        store.url, exclusive_create=True, **ministack.options(endpoint_url=f"http://127.0.0.1:{free_port()}")
    )
    with pytest.raises(StoreError, match="Could not connect"):
        away.put_if_absent(COMMIT, b"")


def test_a_server_that_never_takes_the_body_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client, "REQUEST_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # connections are made, and nobody reads from them
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        store = S3Store("s3://bucket/t", key="k", secret="s", endpoint_url=endpoint, exclusive_create=True)
        assert store.put_if_absent(COMMIT, b"x") is UNKNOWN
        with pytest.raises(StoreError):
            store.put("a", b"x")


def test_an_outcome_that_is_left_open_says_why_in_the_log(
    seen: tuple[Proxy, S3Store], caplog: pytest.LogCaptureFixture
) -> None:
    proxy, store = seen
    proxy.rule = refused(503, "SlowDown")
    with caplog.at_level(logging.WARNING, "deltalog"):
        store.put_if_absent(COMMIT, b"")
    assert "/table/_delta_log/00000000000000000000.json was created" in caplog.text
    assert "503" in caplog.text or "SlowDown" in caplog.text


@pytest.mark.parametrize("fate", [name for name, (_, outcome, _) in FATES.items() if outcome is not None])
def test_a_commit_is_made_once_whatever_becomes_of_its_put(seen: tuple[Proxy, S3Store], fate: str) -> None:
    proxy, store = seen
    table = DeltaTable.create(store, rows(1).schema, data=rows(1))
    waiting = [FATES[fate][0]]

    def once(request: Request, forward: Callable[[], Answer]) -> Answer:
        if request.headers.get("If-None-Match") and request.key.endswith("1.json") and waiting:
            return waiting.pop()(request, forward)
        return forward()

    proxy.rule = once
    result = table.append(rows(2))
    assert result.version == 1 and not waiting
    opened = DeltaTable.open(store)
    assert (opened.version, ids(opened)) == (1, [1, 2])


# ------------------------------------------------------------------------------------------ services that lie


def test_a_service_that_ignores_the_condition_is_not_written_to(ministack: Server) -> None:
    direct = ministack.store("")

    def forgetful(request: Request, forward: Callable[[], Answer]) -> Answer:
        if "If-None-Match" not in request.headers:
            return forward()
        direct.put(request.key.removeprefix(f"{direct.bucket}/"), request.body)  # signed anew, without the condition
        return 200, [("ETag", '"0"')], b""

    with proxied(ministack) as (proxy, server):
        proxy.rule = forgetful
        store = S3Store(f"{direct.url}/table", **server.options())
        with pytest.raises(UnsafeStoreError, match="ignores If-None-Match"):
            store.put_if_absent(COMMIT, b"")
        assert store.list_from("_delta_log") == []
        assert sum(request.method == "PUT" for request in proxy.requests) == 2  # the probe, and not the commit


def test_conditions_are_probed_once_for_a_bucket(ministack: Server) -> None:
    with proxied(ministack) as (proxy, server):
        store = S3Store(f"s3://{server.bucket()}/table", **server.options())
        proxy.requests.clear()
        store.put_if_absent(COMMIT, b"")
        methods = [request.method for request in proxy.requests]
        assert methods == ["PUT", "PUT", "DELETE", "PUT"]
        store.put_if_absent(COMMIT, b"")
        store.sibling(f"s3://{store.bucket}/other").put_if_absent(COMMIT, b"")
        S3Store(f"s3://{store.bucket}/third", **server.options()).put_if_absent(COMMIT, b"")  # opened by itself
        assert len(proxy.requests) == 7
        S3Store(f"s3://{store.bucket}/4th", **server.options(key="another")).put_if_absent(COMMIT, b"")
        S3Store(f"s3://{server.bucket()}/5th", **server.options()).put_if_absent(COMMIT, b"")
        assert sum(request.method == "DELETE" for request in proxy.requests) == 3  # other credentials, another bucket
    assert [meta.name for meta in S3Store(store.url, **ministack.options()).list_from("_delta_log")] == [COMMIT[-25:]]


def test_aws_is_not_probed() -> None:
    store = S3Store("s3://bucket/table", key="testing", secret="testing", client_kwargs={"region_name": "eu-west-1"})
    assert store._client.unverified_place("bucket") is None
    elsewhere = S3Store("s3://b", key="k", secret="s", endpoint_url="http://s3.amazonaws.com.example:1")
    assert elsewhere._client.unverified_place("b") is not None
    told = S3Store("s3://b", key="k", secret="s", endpoint_url="http://127.0.0.1:1", exclusive_create=True)
    assert told._client.unverified_place("b") is None
    with pytest.raises(CallError, match="exclusive_create must be True or False"):
        S3Store("s3://b", exclusive_create="yes")


def _join_background() -> None:
    for thread in threading.enumerate():
        if thread.name == "deltalog-background":
            thread.join(30)


class Gate:
    """Holds the requests of a proxy that ``holds`` says, until it is opened."""

    def __init__(self, holds: Callable[[Request], bool]) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()
        self._holds = holds

    def __call__(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        if self._holds(request):
            self.reached.set()
            assert self.opened.wait(30)
        return forward()


def test_the_probe_goes_beside_the_data_of_the_first_append_and_before_its_commit(ministack: Server) -> None:
    url = ministack.store().url
    DeltaTable.create(S3Store(url, **ministack.options()), rows(1).schema)
    with proxied(ministack) as (proxy, server):
        table = DeltaTable.open(S3Store(url, **server.options()))
        proxy.rule = gate = Gate(lambda request: ".probe-" in request.target and request.method == "PUT")
        appended = threading.Thread(target=table.append, args=(rows(1),))
        appended.start()
        assert gate.reached.wait(30)
        while not any(request.target.endswith(".parquet") for request in proxy.requests):
            appended.join(0.01)
        appended.join(0.2)  # time to commit, if it did not wait
        assert not any(request.target.endswith("1.json") and request.method == "PUT" for request in proxy.requests)
        gate.opened.set()
        appended.join(30)
        table.flush()
        _join_background()
        assert ids(table) == [1]
        made = [request for request in proxy.requests if ".probe-" in request.target]
        assert [request.method for request in made] == ["PUT", "PUT", "DELETE"]
        assert sum("_delta_log%2F.tmp" in request.target for request in proxy.requests) == 1  # listed beside it too


def test_the_first_append_does_not_wait_for_the_deletion_of_the_scratch_object(ministack: Server) -> None:
    url = ministack.store().url
    DeltaTable.create(S3Store(url, **ministack.options()), rows(1).schema)
    with proxied(ministack) as (proxy, server):
        table = DeltaTable.open(S3Store(url, **server.options()))
        proxy.rule = gate = Gate(lambda request: request.method == "DELETE")
        assert table.append(rows(1)).version == 1
        gate.opened.set()
        _join_background()
    assert not [
        meta.name for meta in S3Store(url, **ministack.options()).list_from("_delta_log") if "probe" in meta.name
    ]


def test_a_commit_that_makes_the_probe_itself_does_not_wait_for_the_deletion(
    ministack: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may come before the one that was started for it."""
    with proxied(ministack) as (proxy, server):
        store = S3Store(f"s3://{server.bucket()}/table", **server.options())
        first = threading.Event()
        try_later = s3._tried
        monkeypatch.setattr(s3, "_tried", lambda check: first.wait(30) and try_later(check))
        proxy.rule = gate = Gate(lambda request: request.method == "DELETE")
        store.prepare_commit(0)
        assert store.put_if_absent(COMMIT, b"") is COMMITTED
        first.set()
        gate.opened.set()
        _join_background()
        assert [request.method for request in proxy.requests if ".probe-" in request.target] == ["PUT", "PUT", "DELETE"]


@pytest.mark.parametrize("prepared", [False, True])
def test_a_probe_that_failed_is_made_again(ministack: Server, prepared: bool) -> None:
    with proxied(ministack) as (proxy, server):
        store = S3Store(f"s3://{server.bucket()}/table", **server.options())
        refuse = refused(503, "SlowDown")
        proxy.rule = lambda request, forward: refuse(request, forward) if request.method == "PUT" else forward()
        if prepared:
            store.prepare_commit(0)
            _join_background()
            assert proxy.requests
        with pytest.raises(StoreError, match="could not be determined"):
            store.put_if_absent(COMMIT, b"")
        proxy.rule = pass_on
        assert store.put_if_absent(COMMIT, b"") is COMMITTED


# ---------------------------------------------------------------------------------------------------- requests


def test_a_body_is_sent_at_once_without_waiting_for_consent(
    seen: tuple[Proxy, S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    store.put_if_absent(COMMIT, b"a commit")
    store.put("hint", b"a hint")
    with store.open_output("small") as file:
        file.write(b"1" * 1000)
    with store.open_output("parts") as file:
        file.write(b"2" * (s3.PART_BYTES + 1000))
    sent = {request.target: len(request.body) for request in proxy.requests if request.method == "PUT"}
    assert sorted(sent.values()) == [6, 8, 1000, 1000, s3.PART_BYTES]
    assert not [request for request in proxy.requests if "Expect" in request.headers]
    proxy.requests.clear()
    monkeypatch.setattr(s3_direct, "AT_ONCE_BYTES", 999)
    store.put("larger", b"3" * 1000)  # what a refusal would waste
    assert [request.headers.get("Expect") for request in proxy.requests] == ["100-continue"]


def test_a_listing_begins_at_its_start_and_goes_through_all_pages(ministack: Server) -> None:
    with proxied(ministack) as (proxy, server):
        store = S3Store(f"s3://{server.bucket()}/t", **server.options(s3_additional_kwargs={"MaxKeys": 7}))
        for number in range(30):
            store.put(f"_delta_log/{number:020d}.json", b"")
        store.put("_delta_log/_sidecars/a", b"")
        proxy.requests.clear()
        assert len(store.list_from("_delta_log")) == 30
        assert len(proxy.requests) == 5
        proxy.requests.clear()
        found = store.list_from("_delta_log", f"{20:020d}.")
        assert [int(meta.name[:20]) for meta in found] == list(range(20, 30))
        assert len(proxy.requests) == 2
        assert "start-after=t%2F_delta_log%2F00000000000000000020&" in proxy.requests[0].target + "&"


def test_a_listing_never_comes_from_a_cache(ministack: Server) -> None:
    store = ministack.store()
    other = S3Store(store.url, **ministack.options())
    assert store.list_from("") == []
    other.put("a", b"")
    assert [meta.name for meta in store.list_from("")] == ["a"]
    other.delete("a")
    assert store.list_from("") == []


def test_many_objects_are_read_at_the_same_time(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    paths = [f"{n}" for n in range(96)]
    for path in paths:
        store.put(path, path.encode())
    together = threading.Barrier(32)  # passes when that many requests are under way at once

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        together.wait(30)
        return forward()

    proxy.rule = rule
    assert store.get_many(paths) == [path.encode() for path in paths]


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 3_000_000])
def test_a_file_is_read_as_it_is_wherever_one_looks(seen: tuple[Proxy, S3Store], size: int) -> None:
    proxy, store = seen
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    store.put("f", data)
    proxy.requests.clear()
    file = store.open_input("f")
    assert (file.size(), file.read(), file.read(1), file.tell()) == (size, data, b"", size)
    assert len(proxy.requests) == (1 if size <= ranges.TAIL_BYTES else 2)
    for start in (0, size // 2, max(size - 70_000, 0), max(size - 5, 0), size, size + 9):
        for length in (0, 1, 5, 100_000, 500_000, size):
            assert file.seek(start) == start
            assert file.read(length) == data[start : start + length], (start, length)
    buffer = bytearray(7)
    file.seek(0)
    assert bytes(buffer[: file.readinto(buffer)]) == data[:7]


def test_a_small_parquet_file_is_one_request_and_a_column_of_a_large_one_is_two(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    for name, count in [("small", 1_000), ("large", 400_000)]:
        with store.open_output(name) as file:
            pq.write_table(pa.table({c: [i * 7919 % 1_000_003 for i in range(count)] for c in "abc"}), file)
    sizes = {meta.name: meta.size_bytes or 0 for meta in store.list_from("")}
    assert sizes["small"] < ranges.TAIL_BYTES and sizes["large"] > 20 * ranges.TAIL_BYTES
    for name, requests in [("small", 1), ("large", 2)]:
        with proxy.counted() as made, pq.ParquetFile(store.open_input(name)) as parquet:
            parquet.read(columns=["b"])
        assert len(made) == requests
        assert all(request.headers["Range"].startswith("bytes=") for request in made)


def test_a_file_that_is_replaced_while_it_is_read_is_noticed(ministack: Server) -> None:
    store = ministack.store()
    store.put("f", b"1" * 500_000)
    file = store.open_input("f")
    store.put("f", b"2" * 500_000)
    with pytest.raises(StoreError, match="replaced while it was read"):
        file.read(100)


def test_opening_a_table_costs_what_the_page_says(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    table = DeltaTable.create(store, rows(1).schema, data=rows(1))
    for number in range(2, 5):
        table.append(rows(number))
    table.flush()
    with proxy.counted() as made:
        opened = DeltaTable.open(store)
    assert [r.method for r in made] == ["GET"] * 4
    assert sum("list-type=2" in r.target for r in made) == 1  # the hint, the listing, the .crc, its commit's head
    with proxy.counted() as made:
        opened.snapshot()
    assert [r.method for r in made] == ["HEAD", "HEAD"]
    with proxy.counted() as made:
        assert ids(DeltaTable.open(store)) == [1, 2, 3, 4]
    assert all(r.key.startswith(store.url.removeprefix("s3://")) for r in made)


# ------------------------------------------------------------------------------------------------ broken reads


def test_reads_are_repeated_until_they_are_whole(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    store.put("a", b"0123456789" * 1000)
    faults: list[Callable[..., Answer]] = [
        refused(503, "SlowDown"),
        reset_before,
        _cut_short,
        refused(500, "InternalError"),
    ]

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        return faults.pop()(request, forward) if faults else forward()

    proxy.rule = rule
    assert store.get("a") == b"0123456789" * 1000
    assert not faults


def _cut_short(request: Request, forward: Callable[[], Answer]) -> Answer:
    """Half of the body, as if it were all, while the checksum and the server's own length say otherwise."""
    status, headers, body = forward()
    return status, headers, body[: len(body) // 2]


@pytest.mark.parametrize("way", [lambda store: store, through_botocore], ids=["direct", "botocore"])
@pytest.mark.parametrize("call", ["get", "head", "open_input", "list_from", "get_many", "put", "delete"])
def test_a_refusal_is_an_error_of_the_store_and_not_an_absence(
    seen: tuple[Proxy, S3Store], call: str, way: Callable[[S3Store], S3Store]
) -> None:
    proxy, store = seen[0], way(seen[1])
    proxy.rule = refused(403, "AccessDenied")
    arguments: dict[str, tuple[Any, ...]] = {"get_many": (["a", "b"],), "put": ("a", b"")}
    with pytest.raises(StoreError, match=r"HTTP 403.*Check the bucket, the credentials") as caught:
        getattr(store, call)(*arguments.get(call, ("a",)))
    assert not isinstance(caught.value, ObjectNotFoundError)


def test_a_bucket_that_is_not_there_is_an_error_and_no_empty_table(ministack: Server) -> None:
    with pytest.raises(StoreError, match="NoSuchBucket"):
        DeltaTable.open("s3://no-such-bucket-here/table", **ministack.options())


# ------------------------------------------------------------------------------------------------------ streams


@pytest.mark.parametrize("size", [5 * 2**20 - 1, 5 * 2**20, 5 * 2**20 + 1, 21 * 2**20 + 5])
def test_a_stream_in_parts_is_the_object_and_is_seen_at_its_end(
    ministack: Server, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 5 * 2**20)  # the smallest that S3 allows
    store, data = ministack.store(), b"".join(n.to_bytes(4, "big") for n in range(size // 4 + 1))[:size]
    with store.open_output("f") as file:
        for start in range(0, size, 700_001):
            file.write(data[start : start + 700_001])
        assert file.tell() == size and store.head("f") is None
    assert store.get("f") == data


def test_a_stream_in_parts_that_fails_leaves_no_object_and_no_parts(
    ministack: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 5 * 2**20)
    store = ministack.store()
    with pytest.raises(ZeroDivisionError), store.open_output("f") as file:
        file.write(bytes(21 * 2**20))
        _ = 1 / 0
    assert store.head("f") is None
    uploads = store._client.call("list_multipart_uploads", Bucket=store.bucket)
    assert not uploads.get("Uploads")


@pytest.mark.parametrize("size", [10, 11 * 2**20])
def test_a_stream_whose_end_is_refused_leaves_nothing(
    seen: tuple[Proxy, S3Store], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Also when the object is there and only the answer says no."""
    monkeypatch.setattr(s3, "PART_BYTES", 5 * 2**20)
    proxy, store = seen

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        last = request.method == ("PUT" if size == 10 else "POST") and "uploads" not in request.target
        return carried_out_but_answered(403, "AccessDenied")(request, forward) if last else forward()

    proxy.rule = rule
    with pytest.raises(StoreError, match="HTTP 403"), store.open_output("f") as file:
        file.write(bytes(size))
    assert store.head("f") is None


# ---------------------------------------------------------------------------------------- locations and options


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/a/b/", "s3a://bucket/a/b"),
        ("s3://bucket/a b%20c", "s3://bucket/a b%20c"),
        ("s3://bucket/day=1?x#y", "s3://bucket/day=1?x#y"),
    ],
)
def test_the_location_is_kept_as_it_is_spelled(url: str, root: str) -> None:
    store = open_store(url, anon=True)
    assert (store.url, store.location("x")) == (root, f"{root}/x")


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///x", "s3://user:password@bucket/x", "s3://b/a/../c", "s3://b/./c", "s3://b/a//c", "s3n://b/x"],
)
def test_locations_that_mean_nothing_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(CallError) as caught:
        open_store(url)
    assert "password" not in str(caught.value)


def test_credentials_in_an_endpoint_are_refused_without_naming_them() -> None:
    for options in (
        {"endpoint_url": "http://me:a-sentinel@h"},
        {"client_kwargs": {"endpoint_url": "http://a-sentinel@h"}},
    ):
        with pytest.raises(CallError, match="endpoint_url") as caught:
            open_store("s3://bucket/x", **options)
        assert "a-sentinel" not in str(caught.value)


def test_options_that_are_not_known_are_named_without_their_values() -> None:
    with pytest.raises(CallError, match="secrett") as caught:
        open_store("s3://bucket/x", secrett="a-sentinel")
    assert "a-sentinel" not in str(caught.value)


@pytest.mark.parametrize("path", ["", "a//b", "../x", "a/../../x", "./x", "a/."])
def test_a_path_that_http_would_resolve_is_not_sent(seen: tuple[Proxy, S3Store], path: str) -> None:
    proxy, store = seen
    for call in (store.get, store.head, store.open_input, store.delete, lambda p: store.put_if_absent(p, b"")):
        with pytest.raises(StoreError, match="not a path below the root"):
            call(path)
    assert not proxy.requests


def test_a_key_that_s3_cannot_hold_is_not_sent(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    with pytest.raises(StoreError, match="more than 1024 bytes"):
        store.get("é" * 600)
    assert not proxy.requests


SENTINELS = {"key": "SENTINEL-key", "secret": "SENTINEL-secret", "token": "SENTINEL-token"}


@pytest.mark.parametrize("way", ["direct", "botocore"])
@pytest.mark.parametrize("fault", ["refused", "no server", "unknown host", "bad endpoint"])
def test_no_secret_reaches_a_message_a_repr_or_a_log(
    seen: tuple[Proxy, S3Store], fault: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy, _ = seen
    proxy.rule = lambda request, forward: error_document(403, str(request.headers))
    endpoint = {
        "refused": f"http://127.0.0.1:{proxy.port}",
        "no server": f"http://127.0.0.1:{free_port()}",
        "unknown host": "http://no-such-host.invalid",
        "bad endpoint": "SENTINEL-endpoint",
    }[fault]
    more: dict[str, Any] = {"connect_timeout": 1, "retries": {"total_max_attempts": 1}}
    if way == "botocore":
        more["proxies"] = {"ftp": "http://u:SENTINEL-proxy@p"}
    options = {**SENTINELS, "endpoint_url": endpoint, "config_kwargs": more}
    store = open_store("s3://bucket/table", **options)
    said = [repr(store), str(store), store.url]
    calls: list[Callable[[], Any]] = [
        lambda: store.get("a"),
        lambda: store.get_many(["a", "b"]),
        lambda: store.list_from(""),
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.open_input("a"),
        lambda: store.open_output("a").__enter__().finish(),  # type: ignore[attr-defined]
        lambda: DeltaTable.open(store),
        lambda: DeltaTable.open("s3://bucket/table", **dict[str, Any](options)),
    ]
    with caplog.at_level(logging.DEBUG, "deltalog"):
        for call in calls:
            with pytest.raises(StoreError) as caught:
                call()
            said.append("".join(traceback.format_exception(caught.value)))
    told = "\n".join([*said, *(record.getMessage() for record in caplog.records if record.name.startswith("deltalog"))])
    assert "SENTINEL" not in told
    assert "bucket" in told


def test_without_s3fs_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['s3fs'] = None\n"
        "import deltalog\n"
        "try: deltalog.DeltaTable.open('s3://bucket/x')\n"
        "except deltalog.CallError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'deltalog[s3]'" in done.stdout


def test_siblings_are_other_places_of_the_same_service(ministack: Server) -> None:
    store = ministack.store("a")
    sibling = store.sibling(f"s3a://{store.bucket}/b")
    sibling.put("x", b"1")
    assert S3Store(f"s3://{store.bucket}", **ministack.options()).get("b/x") == b"1"
    for url in ("/data/t", "memory://x", "http://127.0.0.1/x"):
        with pytest.raises(CallError, match="not on S3"):
            store.sibling(url)


# ------------------------------------------------------------------------------------- a service that is overloaded


def with_own_limit(store: S3Store) -> S3Store:
    """The same place for a client that no test has slowed down."""
    return S3Store(store.url, **store._client._options)


def test_a_service_that_asks_to_slow_down_gets_fewer_requests_at_once(seen: tuple[Proxy, S3Store]) -> None:
    """32 reads are refused together. They are repeated, and all reads after them share half as many turns."""
    proxy, store = seen[0], with_own_limit(seen[1])
    paths = [f"{n:03}" for n in range(132)]
    for path in paths:
        store.put(path, path.encode())
    together = threading.Barrier(32)
    first: set[str] = set()
    lock = threading.Lock()
    under_way = most = 0

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        nonlocal under_way, most
        with lock:
            is_first = len(first) < 32
            if is_first:
                first.add(request.target)
            counts = request.target not in first
            under_way += counts
            most = max(most, under_way)
        try:
            if is_first:
                together.wait(30)
                return answered(503, "SlowDown")(proxy, request, forward)
            time.sleep(0.005)
            return forward()
        finally:
            with lock:
                under_way -= counts

    assert store._client.limit.window.size == 64
    proxy.rule = rule
    assert store.get_many(paths) == [path.encode() for path in paths]
    # 32 were under way, so the window was 16, and grows by one for each window of answers.
    assert 1 <= most <= 24
    assert store._client.limit.window.size < 25 and store._client.limit.window.burst == 1


def test_the_ranges_of_a_scan_wait_for_their_turns(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen[0], with_own_limit(seen[1])
    data = bytes(range(256)) * (1 << 16)
    store.put("large", data)
    file = store.open_input("large")
    file.expect([(0, len(data))])
    refused: list[str] = []

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        if not refused:
            refused.append(request.headers["Range"])
            return answered(503, "SlowDown")(proxy, request, forward)
        return forward()

    proxy.rule = rule
    assert file.read() == data and refused
    assert store._client.limit.window.burst == 1


# ------------------------------------------------------------------------------------------------ many deletions


def deleted_by(request: Request) -> list[str]:
    """The keys of a DeleteObjects; none of another request."""
    is_deletion = request.method == "POST" and "delete" in request.target
    return re.findall("<Key>([^<]*)</Key>", request.body.decode()) if is_deletion else []


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those of the deletions, which end at once."""
    found: list[float] = []
    monkeypatch.setattr(s3, "_pause", found.append)
    return found


def many(store: S3Store, count: int) -> list[Entry]:
    for number in range(count):
        store.put(f"{number:03}", b"")
    return [*store.walk(lambda directory: True)]


def not_deleted(keys: Sequence[str], code: str) -> Answer:
    """The answer of DeleteObjects that it has deleted all but these."""
    errors = (f"<Error><Key>{key}</Key><Code>{code}</Code><Message>.</Message></Error>" for key in keys)
    return 200, [("Content-Type", "application/xml")], f"<DeleteResult>{''.join(errors)}</DeleteResult>".encode()


def test_files_that_s3_refuses_to_delete_at_once_are_deleted_later(
    seen: tuple[Proxy, S3Store], pauses: list[float]
) -> None:
    """S3 answers for each key; here it deletes 15 of a request, and says of the others that it is too fast."""
    proxy, store = seen
    entries = many(store, 60)
    sizes: list[int] = []
    deleted: list[str] = []

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        keys = deleted_by(request)
        if not keys:
            return forward()
        sizes.append(len(keys))
        deleted.extend(keys[:15])
        return not_deleted(keys[15:], "SlowDown")

    proxy.rule = rule
    assert store.remove(entries) == entries
    assert sorted(deleted) == [store.key(entry.path) for entry in entries]
    assert sizes[0] == 60 and sizes[1] == 45 and len(pauses) == sum(size > 15 for size in sizes) > 0


def test_requests_to_delete_that_s3_refuses_become_smaller_and_slower(
    seen: tuple[Proxy, S3Store], pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    monkeypatch.setattr(s3, "LIST_PAGE", 40)
    monkeypatch.setattr(s3, "_MORE_DELETES", 5)
    entries = many(store, 60)
    once = {"config_kwargs": {"retries": {"total_max_attempts": 1}, "read_timeout": 3}}
    store = S3Store(store.url, **{**store._client._options, **once})
    sizes: list[int] = []

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        if keys := deleted_by(request):
            sizes.append(len(keys))
            if len(keys) > 20:
                return answered(503, "SlowDown")(proxy, request, forward)
        return forward()

    proxy.rule = rule
    assert store.remove(entries) == entries
    assert [*store.walk(lambda directory: True)] == []
    # The clients below repeat a request that was refused.
    assert [size for size, _ in itertools.groupby(sizes)] == [40, 20, 25, 12, 17, 11] and len(pauses) == 2


@pytest.mark.parametrize("code", ["SlowDown", "AccessDenied"])
def test_a_file_that_cannot_be_deleted_is_an_error(seen: tuple[Proxy, S3Store], pauses: list[float], code: str) -> None:
    proxy, store = seen
    entries = many(store, 3)
    requests: list[int] = []

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        keys = deleted_by(request)
        if not keys:
            return forward()
        requests.append(len(keys))
        return not_deleted(keys, code)

    proxy.rule = rule
    with pytest.raises(StoreError, match=rf"Cannot delete s3://.*/table/000 \({code}\)") as caught:
        store.remove(entries)
    assert caught.value.service_code == code
    assert len(requests) == (s3._DELETE_ATTEMPTS if code == "SlowDown" else 1) == len(pauses) + 1
    assert pauses == sorted(pauses) or max(pauses) <= s3._LONGEST_PAUSE_S


# --------------------------------------------------------------------------------------------- callers that stop


def test_no_request_follows_an_interrupt(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen[0], with_own_limit(seen[1])
    paths = [f"{n:03}" for n in range(200)]
    for path in paths:
        store.put(path, b"data")
    proxy.requests.clear()
    together, released = threading.Barrier(32), threading.Event()

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        if together.wait(30) == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        released.wait(30)
        return forward()

    proxy.rule = rule
    with pytest.raises(KeyboardInterrupt):
        store.get_many(paths)
    proxy.rule = pass_on
    released.set()
    assert store.get_many(paths[:3]) == [b"data"] * 3
    assert len(proxy.requests) == 32 + 3
    assert not store._client.limit._under_way


@pytest.mark.parametrize("end", ["close", "drop", "error"])
def test_no_request_follows_the_end_of_a_scan(seen: tuple[Proxy, S3Store], end: str) -> None:
    proxy, store = seen
    data = pa.table({"id": range(80), "k": range(80)})
    DeltaTable.create(store, data.schema, partition_by=["k"], data=data)
    snapshot = DeltaTable.open(store).snapshot()
    files = snapshot.files()["path"].to_pylist()
    if end == "error":
        store.delete(files[3])
    proxy.requests.clear()
    batches = snapshot.scan().batches()
    for _ in range(3):
        next(batches)
    if end == "close":
        batches.close()  # type: ignore[attr-defined]
    elif end == "error":
        with pytest.raises(InvalidDataFileError, match="is missing"):
            next(batches)
    del batches
    gc.collect()
    made = len(proxy.requests)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("deltalog-")]
    assert not store._client.limit._under_way and made < 80
    store.get(files[0])
    assert len(proxy.requests) == made + 1
