"""S3Store never guesses the outcome of a conditional PUT, and checks whether a service supports conditions."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

import pytest

from deltalog import CallError, DeltaTable, StoreError
from deltalog.errors import UnsafeStoreError
from deltalog.storage.base import PutOutcome
from deltalog.storage.s3 import store as s3_store
from deltalog.storage.s3 import transport
from deltalog.storage.s3.store import S3Store
from tests.support.core import ids, rows
from tests.support.s3 import Answer, Proxy, Request, Rule, Server, free_port, pass_on, proxied
from tests.support.s3.clients import through_botocore
from tests.support.s3.rules import carried_out_but_answered, refused, reset_after, reset_before, silent_for

COMMIT = "_delta_log/00000000000000000000.json"
COMMITTED, EXISTS, UNKNOWN = PutOutcome.COMMITTED, PutOutcome.EXISTS, PutOutcome.UNKNOWN


def sent_twice(request: Request, forward: Callable[[], Answer]) -> Answer:
    forward()
    return forward()


FATES: dict[str, tuple[Rule, PutOutcome | None, bool]] = {
    # for each fault: the rule that injects it, the expected outcome (None: a StoreError), and whether the object exists
    # afterwards
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
    [request] = proxy.requests  # sent only once, whatever the response is
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
        assert store.put_if_absent(COMMIT, b"") is EXISTS  # an empty body, too, is sent only once
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
    monkeypatch.setattr(transport, "REQUEST_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts connections but never reads from them
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


# ---------------------------------------------------------------------------- services that ignore conditions


def test_a_service_that_ignores_the_condition_is_not_written_to(ministack: Server) -> None:
    direct = ministack.store("")

    def forgetful(request: Request, forward: Callable[[], Answer]) -> Answer:
        if "If-None-Match" not in request.headers:
            return forward()
        # The request is signed again, without the condition.
        direct.put(request.key.removeprefix(f"{direct.bucket}/"), request.body)
        return 200, [("ETag", '"0"')], b""

    with proxied(ministack) as (proxy, server):
        proxy.rule = forgetful
        store = S3Store(f"{direct.url}/table", **server.options())
        with pytest.raises(UnsafeStoreError, match="ignores If-None-Match"):
            store.put_if_absent(COMMIT, b"")
        assert store.list_from("_delta_log") == []
        # This request is the probe, not the commit.
        assert sum(request.method == "PUT" for request in proxy.requests) == 2


def test_conditions_are_probed_once_for_a_bucket(ministack: Server) -> None:
    with proxied(ministack) as (proxy, server):
        store = S3Store(f"s3://{server.bucket()}/table", **server.options())
        proxy.requests.clear()
        store.put_if_absent(COMMIT, b"")
        methods = [request.method for request in proxy.requests]
        assert methods == ["PUT", "PUT", "DELETE", "PUT"]
        store.put_if_absent(COMMIT, b"")
        store.sibling(f"s3://{store.bucket}/other").put_if_absent(COMMIT, b"")
        S3Store(f"s3://{store.bucket}/third", **server.options()).put_if_absent(COMMIT, b"")  # opened separately
        assert len(proxy.requests) == 7
        S3Store(f"s3://{store.bucket}/4th", **server.options(key="another")).put_if_absent(COMMIT, b"")
        S3Store(f"s3://{server.bucket()}/5th", **server.options()).put_if_absent(COMMIT, b"")
        # One more probe each for the other credentials and for the other bucket.
        assert sum(request.method == "DELETE" for request in proxy.requests) == 3
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
    """Delays the requests that ``holds`` selects until the gate is opened."""

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
        appended.join(0.2)  # enough time for the append to commit, if it did not wait for the gate
        assert not any(request.target.endswith("1.json") and request.method == "PUT" for request in proxy.requests)
        gate.opened.set()
        appended.join(30)
        table.flush()
        _join_background()
        assert ids(table) == [1]
        made = [request for request in proxy.requests if ".probe-" in request.target]
        assert [request.method for request in made] == ["PUT", "PUT", "DELETE"]
        assert sum("_delta_log%2F.tmp" in request.target for request in proxy.requests) == 1  # listed concurrently too


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
    """The committing thread may send the probe before the thread that was started for it."""
    with proxied(ministack) as (proxy, server):
        store = S3Store(f"s3://{server.bucket()}/table", **server.options())
        first = threading.Event()
        try_later = s3_store._check_early
        monkeypatch.setattr(s3_store, "_check_early", lambda check: first.wait(30) and try_later(check))
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
