"""How the kernel copes with lost answers, errors and delays in front of the server: its commits and tables are there
once or not at all, and it says when it does not know which."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import deltalog
from tests.support.s3 import Answer, Closed, CutShort, Proxy, Request, Reset, pass_on
from tests.support.unity_clients import (
    CATALOG,
    JavaError,
    Jvm,
    Kernel,
    KernelTable,
    OfficialClient,
    UnityServer,
    in_front_of,
    unity_server,
)

SCHEMA = pa.schema([("id", pa.int64())])
_NUMBERS = itertools.count(1)
Forward = Callable[[], Answer]
Fault = Callable[[Forward], Answer]


def error(status: int, kind: str) -> Answer:
    body = {"error": {"type": kind, "code": status, "message": "a fault of the tests"}}
    return status, [("Content-Type", "application/json")], json.dumps(body).encode()


def lost(answer: Answer | type[Exception]) -> Fault:
    """The request takes effect, but instead of the real answer the client gets ``answer``."""

    def fault(forward: Forward) -> Answer:
        real = forward()
        if answer is CutShort:
            raise CutShort(real)
        if isinstance(answer, tuple):
            return answer
        raise answer

    return fault


def instead(answer: Answer | type[Exception]) -> Fault:
    """The request does not reach the server."""

    def fault(forward: Forward) -> Answer:
        if isinstance(answer, tuple):
            return answer
        raise answer

    return fault


def slow(forward: Forward) -> Answer:
    time.sleep(1.5)
    return forward()


def twice(forward: Forward) -> Answer:
    forward()
    return forward()


def late(forward: Forward) -> Answer:
    """The connection is reset; the request reaches the server only after the client has sent it again."""
    threading.Timer(0.8, forward).start()
    raise Reset


FAULTS: dict[str, Fault] = {
    "reset after it took effect": lost(Reset),
    "closed after it took effect": lost(Closed),
    "cut short": lost(CutShort),
    "500 after it took effect": lost(error(500, "InternalServerErrorException")),
    "503 after it took effect": lost(error(503, "ServiceUnavailableException")),
    "unknown after it took effect": lost(error(500, "CommitStateUnknownException")),
    "reset before": instead(Reset),
    "closed before": instead(Closed),
    "500 before": instead(error(500, "InternalServerErrorException")),
    "503 before": instead((503, [], b"")),
    "429 before": instead(error(429, "TooManyRequestsException")),
    "slow": slow,
    "twice": twice,
    "late": late,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnityServer]:
    with unity_server(tmp_path_factory.mktemp("unity")) as made:
        yield made


@pytest.fixture(scope="module")
def through(server: UnityServer) -> Iterator[tuple[Proxy, str]]:
    with in_front_of(server) as made:
        yield made


@pytest.fixture(scope="module")
def kernel(unity_jvm: Jvm, server: UnityServer, through: tuple[Proxy, str]) -> Iterator[Kernel]:
    official = OfficialClient(unity_jvm, server.url)
    official.schemas.createSchema(official.general("CreateSchema", {"name": "s", "catalog_name": CATALOG}))
    made = Kernel(unity_jvm, through[1])
    yield made
    made.close()


@pytest.fixture
def proxy(through: tuple[Proxy, str]) -> Iterator[Proxy]:
    proxy = through[0]
    yield proxy
    proxy.rule = pass_on


@pytest.fixture
def name() -> str:
    return f"f{next(_NUMBERS)}"


def once(fault: Fault, which: Callable[[Request], bool], times: int = 1) -> tuple[Any, list[int]]:
    """A rule that applies ``fault`` to the first requests that ``which`` selects, and the list of the requests to which
    it was applied."""
    met: list[int] = []

    def rule(request: Request, forward: Forward) -> Answer:
        if which(request) and len(met) < times:
            met.append(len(met))
            return fault(forward)
        return forward()

    return rule, met


def commits(request: Request) -> bool:
    return request.method == "POST" and b'"add-commit"' in request.body


def creates(request: Request) -> bool:
    return request.method == "POST" and request.target.endswith("/schemas/s/tables")


def loads(request: Request) -> bool:
    return request.method == "GET" and "/tables/" in request.target


def ids(kernel: Kernel, table: KernelTable) -> list[int]:
    return sorted(row["id"] for row in kernel.load(table).rows())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", FAULTS)
def test_a_commit(kernel: Kernel, server: UnityServer, proxy: Proxy, name: str, what: str) -> None:
    table = kernel.create(f"{CATALOG}.s.{name}", SCHEMA)
    snapshot = kernel.load(table)
    proxy.rule, met = once(FAULTS[what], commits)
    before = len(proxy.requests)
    try:
        version: int | None = snapshot.append([{"id": 1}], max_retries=3)
    except JavaError as raised:
        # After a connection that ends without an answer, the kernel writes another file for the same version. If the
        # first one was ratified, the second is refused, and the kernel says that the outcome is unknown. After a reset
        # or an error response, the kernel's client sends the same request again.
        assert raised.type == "CommitStateUnknownException" and what in ("closed after it took effect", "cut short")
        version = None
    assert met and version in (1, None)
    proxy.rule = pass_on
    sent = [request for request in proxy.requests[before:] if commits(request)]
    mine = server.manager().table(f"s.{name}")
    found = mine.snapshot().scan().to_arrow()["id"].to_pylist()
    assert (mine.version, found) == (1, [1]), (what, len(sent))
    assert ids(kernel, table) == [1]
    assert kernel.append(table, [{"id": 2}]) == 2 and mine.check().ok
    if what == "late":
        time.sleep(1)  # the delayed request, which arrives only now, changes nothing
        assert server.manager().table(f"s.{name}").version == 2 and ids(kernel, table) == [1, 2]


def test_errors_that_stay(kernel: Kernel, server: UnityServer, proxy: Proxy, name: str) -> None:
    """The kernel gives up in the end, and nothing has been committed."""
    table = kernel.create(f"{CATALOG}.s.{name}", SCHEMA)
    snapshot = kernel.load(table)
    proxy.rule, met = once(FAULTS["503 before"], commits, times=100)
    with pytest.raises(JavaError) as caught:
        snapshot.append([{"id": 1}], max_retries=0)
    assert caught.value.type == "MaxCommitRetryLimitReachedException" and len(met) == 3
    proxy.rule = pass_on
    assert server.manager().table(f"s.{name}").version == 0
    assert kernel.append(table, [{"id": 2}]) == 1 and ids(kernel, table) == [2]


def test_another_writer_while_the_answer_is_lost(kernel: Kernel, server: UnityServer, proxy: Proxy, name: str) -> None:
    """The kernel's commit is ratified, but the answer is lost; before the kernel asks again, others commit and
    publish."""
    table = kernel.create(f"{CATALOG}.s.{name}", SCHEMA)
    snapshot = kernel.load(table)
    mine = server.manager().table(f"s.{name}")

    def fault(forward: Forward) -> Answer:
        forward()
        for each in (10, 11):
            mine.append(pa.table({"id": [each]}))
        raise Reset

    proxy.rule, met = once(fault, commits)
    assert snapshot.append([{"id": 1}], max_retries=3) == 1 and met
    proxy.rule = pass_on
    assert ids(kernel, table) == [1, 10, 11] and mine.check().ok


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", FAULTS)
def test_a_creation(kernel: Kernel, server: UnityServer, proxy: Proxy, name: str, what: str) -> None:
    proxy.rule, met = once(FAULTS[what], creates)
    table = kernel.create(f"{CATALOG}.s.{name}", SCHEMA, max_retries=3)
    assert met
    proxy.rule = pass_on
    if what == "late":
        time.sleep(1)
    assert kernel.find(f"{CATALOG}.s.{name}") == table
    mine = server.manager().table(f"s.{name}")
    assert mine.version == 0 and mine.check().ok
    assert kernel.append(table, [{"id": 1}]) == 1 and ids(kernel, table) == [1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", [each for each in FAULTS if "after" in each or "before" in each or each == "slow"])
def test_a_load(kernel: Kernel, proxy: Proxy, name: str, what: str) -> None:
    table = kernel.create(f"{CATALOG}.s.{name}", SCHEMA)
    kernel.append(table, [{"id": 1}])
    proxy.rule, met = once(FAULTS[what], loads)
    try:
        found = ids(kernel, table)
    except JavaError as raised:
        # The kernel's client repeats a request after an error response or a reset, but not after the connection was
        # closed.
        assert "closed" in what and "IOException" in raised.types
        found = ids(kernel, table)
    assert met and found == [1]


def test_a_client_that_dies_before_the_table_is_created(
    kernel: Kernel, server: UnityServer, proxy: Proxy, name: str
) -> None:
    """Version 0 is written, and createTable never comes: the name is free."""
    proxy.rule, _ = once(FAULTS["reset before"], creates, times=1000)
    with pytest.raises(JavaError):
        kernel.create(f"{CATALOG}.s.{name}", SCHEMA)
    proxy.rule = pass_on
    with pytest.raises(JavaError) as caught:
        kernel.find(f"{CATALOG}.s.{name}")
    assert caught.value.type == "NoSuchTableException"
    table = kernel.create(f"{CATALOG}.s.{name}", SCHEMA)
    assert ids(kernel, table) == [] and server.manager().table(f"s.{name}").version == 0


def test_a_client_that_dies_around_its_commit(
    unity_jvm: Jvm, kernel: Kernel, server: UnityServer, proxy: Proxy, name: str
) -> None:
    """A death before add-commit leaves a staged file that no version names; after add-commit the commit is there,
    published or not."""
    table = kernel.create(f"{CATALOG}.s.{name}", SCHEMA)
    proxy.rule, _ = once(FAULTS["reset before"], commits, times=1000)
    with pytest.raises(JavaError):
        kernel.load(table).append([{"id": 1}], max_retries=0)
    proxy.rule = pass_on
    assert ids(kernel, table) == []
    assert kernel.append(table, [{"id": 2}]) == 1  # and the client is gone before it publishes
    mine: deltalog.DeltaTable = server.manager().table(f"s.{name}")
    mine.append(pa.table({"id": [3]}))
    other = Kernel(unity_jvm, server.url)
    assert ids(other, table) == [2, 3] and other.load(table).publish().version == 2
    # published but not reported, as by a client that dies in between; the next commit of any client reports it
    assert other.append(table, [{"id": 4}]) == 3 and mine.check().ok
    other.close()


def test_the_server_is_killed_and_started_again(unity_jvm: Jvm, server: UnityServer, name: str) -> None:
    kernel = Kernel(unity_jvm, server.url)
    table = kernel.create(f"{CATALOG}.s.{name}", SCHEMA)
    kernel.append(table, [{"id": 1}])
    snapshot = kernel.load(table)
    server.kill()
    with pytest.raises(JavaError):
        kernel.load(table)
    server.start()
    assert snapshot.append([{"id": 2}]) == 2 and ids(kernel, table) == [1, 2]
    kernel.close()
