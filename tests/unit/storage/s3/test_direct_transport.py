"""Requests that are sent without botocore have the same effect on the service as those of botocore; stores with options
that only botocore supports use botocore."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from urllib3.connection import HTTPConnection

from deltalog import StoreError
from deltalog.storage.base import PutOutcome
from deltalog.storage.s3 import direct_transport
from deltalog.storage.s3.store import S3Store
from deltalog.testing.store_contract import LogStoreTests
from tests.support.s3 import Answer, Proxy, Request, Server, pass_on, proxied
from tests.support.s3.rules import error_document, only_once, refused, reset_before

COMMIT = "_delta_log/00000000000000000000.json"
# A harmless option that the direct transport does not support.
THROUGH_BOTOCORE: dict[str, Any] = {"requester_pays": False}


class TestThroughBotocore(LogStoreTests):
    """The guarantees of the direct transport also hold for stores whose options require botocore."""

    rounds = 2

    @pytest.fixture
    def store(self, ministack: Server) -> S3Store:
        return ministack.store(**THROUGH_BOTOCORE)

    @pytest.fixture
    def another(self, store: S3Store, ministack: Server) -> S3Store:
        """A store with the direct transport; both stores must see the same objects."""
        return S3Store(store.url, **ministack.options())


@pytest.fixture
def seen(ministack: Server) -> Iterator[tuple[Proxy, S3Store]]:
    with proxied(ministack) as (proxy, server):
        store = server.store(exclusive_create=True)
        proxy.requests.clear()
        yield proxy, store
        proxy.rule = pass_on


@pytest.mark.parametrize("server", ["ministack", "moto"])
def test_names_are_the_same_to_both(server: str, request: pytest.FixtureRequest) -> None:
    there: Server = request.getfixturevalue(server)
    direct = there.store("a+b c%20d/é")
    other = S3Store(direct.url, **there.options(**THROUGH_BOTOCORE))
    names = ["a b", "a+b", "a%20b", "ü~'()*!", "x?versionId=1", "k=v&w", "a#b", "'\"<>&;", "日本", "a:b@c", "$,[]{}|^`"]
    for number, name in enumerate(names):
        (direct, other)[number % 2].put(f"d/{name}", name.encode())
    for store in (direct, other):
        assert [meta.name for meta in store.list_from("d")] == sorted(names)
        assert store.get_many([f"d/{name}" for name in names]) == [name.encode() for name in names]
        assert store.list_from("d") == direct.list_from("d")
        assert [store.head(f"d/{name}") for name in names] == [direct.head(f"d/{name}") for name in names]
        assert [meta.name for meta in store.list_from("d", "a+", limit=2)] == ["a+b", "a:b@c"]


def test_neither_reading_nor_committing_loads_a_client_of_botocore(ministack: Server) -> None:
    code = (
        "import sys, deltalog, pyarrow as pa\n"
        f"options = {ministack.options()!r}\n"
        f"table = deltalog.DeltaTable.create({ministack.store().url!r}, pa.schema([('x', pa.int64())]), **options)\n"
        "table.append(pa.table({'x': [1]}))\n"
        "assert table.snapshot().scan().to_arrow().num_rows == len(table.history()) - 1\n"
        "clients = {'botocore.session', 'botocore.client', 'aiobotocore', 's3fs', 'aiohttp', 'fsspec'}\n"
        "print(sorted(clients & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def is_botocores(request: Request) -> bool:
    return "botocore" in request.headers.get("User-Agent", "").lower()


def elsewhere(request: Request, forward: Callable[[], Answer]) -> Answer:
    status, headers, body = error_document(400, "AuthorizationHeaderMalformed")
    return status, [*headers, ("x-amz-bucket-region", "eu-west-3")], body


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        *(
            (elsewhere, first)
            for first in ("get", "get_many", "head", "list_from", "put_if_absent", "put", "open_input")
        ),
        (refused(301, "PermanentRedirect"), "head"),
        (refused(403, "SignatureDoesNotMatch"), "put_if_absent"),
    ],
)
def test_a_bucket_elsewhere_is_left_to_botocore(seen: tuple[Proxy, S3Store], rule: Any, first: str) -> None:
    """botocore follows the redirect. In this test botocore's requests are answered normally; only requests sent
    directly are redirected."""
    proxy, store = seen
    store.put("a", b"there")
    proxy.rule = lambda request, forward: forward() if is_botocores(request) else rule(request, forward)
    arguments: dict[str, tuple[Any, ...]] = {
        "get_many": (["a", "a"],),
        "list_from": ("",),
        "put_if_absent": ("new", b"n"),
        "put": ("a", b"there"),
    }
    result = getattr(store, first)(*arguments.get(first, ("a",)))
    if first == "put_if_absent":
        assert result is PutOutcome.COMMITTED and store.get("new") == b"n"
    proxy.requests.clear()
    assert store.get("a") == b"there"
    assert [is_botocores(request) for request in proxy.requests] == [True]


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[HTTPConnection]:
    """Records new connections."""
    made: list[HTTPConnection] = []
    connect = HTTPConnection.connect

    def recorded(self: HTTPConnection) -> None:
        made.append(self)
        connect(self)

    monkeypatch.setattr(HTTPConnection, "connect", recorded)
    return made


def test_an_append_commits_on_the_connection_of_its_data(
    seen: tuple[Proxy, S3Store], connected: list[HTTPConnection]
) -> None:
    _, store = seen
    store.put("data", b"1")
    connected.clear()
    assert store.put_if_absent(COMMIT, b"2") is PutOutcome.COMMITTED
    assert connected == []


def test_a_commit_does_not_go_on_a_connection_that_has_been_idle(
    seen: tuple[Proxy, S3Store], connected: list[HTTPConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store = seen
    store.put("data", b"1")
    connected.clear()
    monkeypatch.setattr(direct_transport, "JUST_USED_SECONDS", -1)
    assert store.put_if_absent(COMMIT, b"2") is PutOutcome.COMMITTED
    assert len(connected) == 1


def test_a_request_is_repeated_as_often_as_the_options_say(ministack: Server) -> None:
    with proxied(ministack) as (proxy, server):
        once = server.store(config_kwargs={"retries": {"total_max_attempts": 1}})
        thrice = S3Store(once.url, **server.options(config_kwargs={"retries": {"max_attempts": 2}}))
        once.put("a", b"1")
        for store, attempts in ((once, 1), (thrice, 3)):
            proxy.rule = refused(503, "SlowDown")
            proxy.requests.clear()
            with pytest.raises(StoreError, match="HTTP 503 SlowDown"):
                store.get("a")
            assert len(proxy.requests) == attempts
            proxy.rule = only_once(reset_before, lambda request: True)
            assert attempts == 1 or store.get("a") == b"1"


@pytest.mark.parametrize("method", ["put", "delete"])
def test_what_may_be_repeated_is(seen: tuple[Proxy, S3Store], method: str) -> None:
    proxy, store = seen
    proxy.rule = only_once(reset_before, lambda request: True)
    getattr(store, method)(*{"put": ("a", b"1"), "delete": ("a",)}[method])
    assert len(proxy.requests) == 2
    assert (store.head("a") is not None) == (method == "put")


@pytest.mark.parametrize(
    ("call", "body"),
    [("list_from", b"<ListBucketResult><IsTrunc"), ("list_from", b"<html/>"), ("head", b"")],
)
def test_an_answer_that_is_none_is_an_error_and_not_an_empty_table(ministack: Server, call: str, body: bytes) -> None:
    with proxied(ministack) as (proxy, server):
        store = server.store(config_kwargs={"retries": {"total_max_attempts": 2}})
        proxy.rule = lambda request, forward: (200, [], body)
        proxy.requests.clear()
        with pytest.raises(StoreError):
            getattr(store, call)("a")
        assert len(proxy.requests) == 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_an_answer_whose_entities_could_expand_is_not_parsed(encoding: str) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;">]><ListBucketResult>&c;</ListBucketResult>'
    with pytest.raises(ElementTree.ParseError, match="document type"):
        direct_transport._parsed(bomb.encode(encoding))
    assert direct_transport._parsed("<a>ü&amp;</a>".encode()).text == "ü&"


def test_a_range_that_is_shorter_than_announced_is_read_again(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    store.put("a", bytes(range(100)))

    def half(request: Request, forward: Callable[[], Answer]) -> Answer:
        status, headers, body = forward()
        return status, headers, body[: len(body) // 2]

    proxy.rule = only_once(half, lambda request: True)
    assert store.get("a", 10) == bytes(range(10))
    proxy.rule = only_once(half, lambda request: True)
    assert store.open_input("a").read() == bytes(range(100))


def test_unsigned_requests_carry_no_signature(ministack: Server) -> None:
    with proxied(ministack) as (proxy, server):
        owner = server.store()
        owner.put("a", b"1")
        proxy.requests.clear()
        anyone = S3Store(owner.url, anon=True, endpoint_url=server.options()["endpoint_url"])
        anyone.list_from("")
        assert proxy.requests[0].headers["User-Agent"].startswith("deltalog/")
        assert "authorization" not in {name.lower() for name in proxy.requests[0].headers}


def test_a_forked_child_reads_and_writes(ministack: Server) -> None:
    store = ministack.store()
    store.put_if_absent(COMMIT, b"1")
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def child() -> None:
        answers.put((store.get_many([COMMIT] * 3), store.put_if_absent(COMMIT, b"2")))

    process = context.Process(target=child)
    process.start()
    assert answers.get(timeout=60) == ([b"1"] * 3, PutOutcome.EXISTS)
    process.join(30)
    assert store.get(COMMIT) == b"1"
