"""A caller that reaches a limit is refused, is told which limit it is, and does not affect other callers."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from deltalog import TransactionManager
from deltalog.errors import CallError
from deltalog.server import app as app_module
from deltalog.server import routes as routes_module
from deltalog.server.access.principals import Head, Identified, NotAuthenticatedError, Principal, bearer_tokens
from deltalog.server.app import App
from deltalog.server.calls import Call
from deltalog.server.exchange import Exchange
from deltalog.server.fields import Fields
from deltalog.server.lakeformation import OPERATIONS
from deltalog.server.limits import Limits
from deltalog.server.quotas import Callers, OverQuotaError, Quotas, Rates
from deltalog.server.serve import Server
from deltalog.server.settings import Settings
from tests.support.server import running

TABLES = "/api/2.1/unity-catalog/tables?catalog_name=main&schema_name=bank"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


# ---------------------------------------------------------------------------------------------------- the rules


@pytest.mark.parametrize(("per_second", "at_once"), [(10, 10), (10, 3), (0.5, 1), (0.5, 4)])
def test_a_rate_permits_a_burst_and_then_so_many_each_second(per_second: float, at_once: int) -> None:
    clock = Clock()
    rates = Rates(per_second, at_once - 1, 10, clock)
    made = 0
    for tick in range(100):  # requested a thousand times in each 10 s
        for _ in range(10):
            if not rates.wait_s("a"):
                rates.use("a")
                made += 1
            if tick == 0:
                assert made <= at_once
        clock.now_s += 0.1
    assert at_once + 10 * per_second - 2 <= made <= at_once + 10 * per_second
    assert rates.wait_s("b") == 0


def test_the_time_that_is_told_is_enough() -> None:
    clock = Clock()
    rates = Rates(3, 1, 10, clock)
    for _ in range(50):
        clock.now_s += rates.wait_s("a")
        assert rates.wait_s("a") < 1e-9
        rates.use("a")
    assert clock.now_s == pytest.approx(1000 + 48 / 3)


def test_only_so_many_names_are_remembered() -> None:
    clock = Clock()
    rates = Rates(1, 0, 100, clock)
    for number in range(10_000):
        rates.use(f"{number}")
    assert len(rates) == 100
    assert rates.wait_s("9999") > 0 and rates.wait_s("0") == 0


def test_without_limits_nothing_is_remembered() -> None:
    callers = Callers(Quotas())
    for number in range(1000):
        callers.has_failed(f"10.0.0.{number}")
        with callers.call(f"{number}", 1 << 40) as share:
            share.add(1 << 40)
            share.cpu_s = 1000
    assert [len(each) for each in (callers._calls, callers._processors, callers._failures, callers._uses)] == [0] * 4


def test_calls_and_bytes_in_progress_are_those_of_one_caller() -> None:
    callers = Callers(Quotas(concurrent_calls=2, pending_bytes=100))
    with callers.call("a", 60) as first:
        first.add(60)
        with pytest.raises(OverQuotaError, match=r"pending_bytes \(100\)"), callers.call("a", 41):
            pass
        with callers.call("a", 40) as second:
            second.add(40)
            with pytest.raises(OverQuotaError, match="pending_bytes"):
                second.add(1)
            with pytest.raises(OverQuotaError, match="concurrent_calls"), callers.call("a", 0):
                pass
            with callers.call("b", 100) as other:
                other.add(100)
        with callers.call("a", 0) as third:
            third.add(40)
    assert callers._uses == {}


@pytest.mark.parametrize(("burst", "at_once"), [(0, 10), (3, 3)])
def test_without_a_burst_the_calls_of_one_second_may_come_at_once(burst: int, at_once: int) -> None:
    callers, made = Callers(Quotas(calls_per_second=10, burst=burst), Clock()), 0
    with pytest.raises(OverQuotaError, match="calls_per_second"):
        for _ in range(100):
            with callers.call("a", 0):
                made += 1
    assert made == at_once


def test_who_used_much_cpu_time_waits_for_as_long_as_that_was_too_much() -> None:
    clock = Clock()
    callers = Callers(Quotas(processors=0.25), clock)
    with callers.call("a", 0) as share:
        share.cpu_s = 2.0  # 8 s of its share, of which 2 s may be used at once
    with pytest.raises(OverQuotaError, match=r"processors \(0.25\).*in 6 s"), callers.call("a", 0):
        pass
    with callers.call("b", 0):
        pass
    clock.now_s += 6
    with callers.call("a", 0):
        pass


def test_who_used_some_cpu_time_computes_much_until_the_average_permits_it() -> None:
    clock = Clock()
    callers = Callers(Quotas(processors=0.25), clock)
    for used_s, computes_much in ((0.04, False), (0.02, True)):
        with callers.call("a", 0) as share:
            share.cpu_s = used_s
        assert callers.computes_much("a") is computes_much and not callers.computes_much("b")
    clock.now_s += 0.05  # in which 0.0125 s of CPU time are permitted
    assert not callers.computes_much("a")
    unlimited = Callers(Quotas(), clock)
    with unlimited.call("a", 0) as share:
        share.cpu_s = 100
        assert not share.computes_much
    assert not unlimited.computes_much("a")


def test_one_body_may_be_larger_than_the_bytes_of_several() -> None:
    """Otherwise its sender would be told to try again, and could never succeed."""
    callers = Callers(Quotas(pending_bytes=100))
    with callers.call("a", 1000) as share:
        for _ in range(10):
            share.add(100)
        with callers.call("a", 0) as another, pytest.raises(OverQuotaError):
            another.add(1)


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::1%eth1", True),
        (None, None, True),
        ("not:an:address", "not:an:address", True),
    ],
)
def test_failures_are_counted_by_address(first: str | None, second: str | None, is_one: bool) -> None:
    callers = Callers(Quotas(failures_per_second=1), Clock())
    callers.has_failed(first)
    with pytest.raises(OverQuotaError, match="failures_per_second") if is_one else contextlib.nullcontext():
        callers.has_failed(second)


# --------------------------------------------------------------------------------------------------- the server


class Names:
    """The token of a request is the name of its principal; the token ``wrong`` is none. Names that begin with
    ``signed`` are proven by the body, unless it is ``forged``."""

    async def identify(self, head: Head) -> Identified:
        name = bearer_tokens(head.headers)[0]
        if name == "wrong":
            raise NotAuthenticatedError("The token is wrong.")
        proof = (lambda body: body != b"forged") if name.startswith("signed") else None
        return Identified(Principal(name, is_admin=True), proof)


class World:
    """An application, called without a network."""

    def __init__(self, tmp_path: Path, quotas: Quotas) -> None:
        self.seen: list[Exchange] = []
        self.app = App(
            TransactionManager(str(tmp_path / "catalog.db")),
            Limits(quotas=quotas),
            authenticator=Names(),
            observers=[self.seen.append],
        )
        self.read = 0  # how many bodies the application has read

    async def ask(
        self, name: str, body: bytes = b"{}", *, hold: asyncio.Event | None = None, address: str = "10.0.0.1"
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        headers = {"authorization": f"Bearer {name}", "content-length": str(len(body))}
        scope = {
            "type": "http", "method": "POST", "raw_path": b"/StartTransaction", "client": (address, 1),
            "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            self.read += 1
            if hold is not None:
                await hold.wait()
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        shown = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        return sent[0]["status"], shown, json.loads(sent[1]["body"])


@contextlib.contextmanager
def world(tmp_path: Path, quotas: Quotas) -> Iterator[World]:
    made = World(tmp_path, quotas)
    try:
        yield made
    finally:
        made.app.close()


@pytest.fixture(autouse=True)
def held_up_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "_HELD_UP_SECONDS", 0.05)


def test_the_calls_of_one_principal_are_limited_before_their_bodies_are_read(tmp_path: Path) -> None:
    with world(tmp_path, Quotas(calls_per_second=0.1, burst=2)) as made:

        async def scene() -> None:
            assert [(await made.ask("alice"))[0] for _ in range(3)] == [200, 200, 429]
            assert made.read == 2
            status, headers, body = await made.ask("alice")
            assert (status, headers["retry-after"], body["__type"]) == (429, "10", "ThrottledException")
            assert "calls_per_second (0.1)" in body["Message"] and "connection" not in headers
            _, headers, _ = await made.ask("alice", b" " * (1 << 20))
            assert headers["connection"] == "close"  # the body was not read
            assert (await made.ask("bob"))[0] == 200

        asyncio.run(scene())
        over = [each for each in made.seen if each.status == 429]
        assert {(each.error, each.principal and each.principal.name) for each in over} == {
            ("ThrottledException", "alice")
        }


def test_the_concurrent_calls_of_one_principal_are_limited(tmp_path: Path) -> None:
    with world(tmp_path, Quotas(concurrent_calls=2)) as made:

        async def scene() -> None:
            hold = asyncio.Event()
            slow = [asyncio.create_task(made.ask("alice", hold=hold)) for _ in range(2)]
            while made.read < 2:
                await asyncio.sleep(0.001)
            assert (await made.ask("alice"))[0] == 429
            assert (await made.ask("bob"))[0] == 200
            hold.set()
            assert [(await each)[0] for each in slow] == [200, 200]
            assert (await made.ask("alice"))[0] == 200

        asyncio.run(scene())


def test_signed_calls_are_limited_by_principal_once_they_are_proven(tmp_path: Path) -> None:
    with world(tmp_path, Quotas(calls_per_second=0.001, burst=2)) as made:

        async def scene() -> None:
            for name in ("signed a", "signed b"):  # at the same address
                assert [(await made.ask(name))[0] for _ in range(3)] == [200, 200, 429]
            assert (await made.ask("signed a", address="10.0.0.2"))[0] == 429
            forged = [(await made.ask("signed c", b"forged", address="10.0.0.3"))[0] for _ in range(3)]
            assert forged == [403, 403, 429]
            assert (await made.ask("signed c"))[0] == 200
            assert made.app._callers._uses == {}

        asyncio.run(scene())


@pytest.mark.parametrize("name", ["alice", "signed"])
def test_the_cpu_time_of_one_principal_is_limited(name: str, tmp_path: Path) -> None:
    class Busy(TransactionManager):
        def start_transaction(self, *_: Any, **__: Any) -> str:
            begun = time.thread_time()
            while time.thread_time() < begun + 0.3:
                pass
            return "t"

    with world(tmp_path, Quotas(processors=0.01)) as made:
        made.app._runner._manager = Busy(str(tmp_path / "catalog.db"))

        async def scene() -> None:
            asked = [await made.ask(name, address=f"10.0.0.{number}") for number in range(3)]
            assert [each[0] for each in asked] == [200, 200, 429]
            assert (await made.ask("bob"))[0] == 200

        asyncio.run(scene())


def test_the_time_for_reading_a_body_is_that_of_its_principal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(given: Fields) -> Call:
        begun = time.thread_time()
        while time.thread_time() < begun + 0.6:
            pass
        raise CallError("The body is wrong.")

    operation = replace(OPERATIONS["StartTransaction"], read=read)
    monkeypatch.setattr(routes_module, "OPERATIONS", {"StartTransaction": operation})
    with world(tmp_path, Quotas(processors=0.01)) as made:

        async def scene() -> None:
            assert [(await made.ask("alice"))[0] for _ in range(2)] == [400, 429]
            assert (await made.ask("bob"))[0] == 400

        asyncio.run(scene())


def test_the_bytes_of_one_principal_are_limited(tmp_path: Path) -> None:
    with world(tmp_path, Quotas(pending_bytes=100_000)) as made:

        async def scene() -> None:
            async def first() -> int:
                with made.app._callers.call("alice", 0) as share:  # as a call that works on its body
                    share.add(60_000)
                    return (await made.ask("alice", b" " * 50_000))[0]

            assert await first() == 429
            assert made.read == 0
            assert (await made.ask("alice", b" " * 50_000 + b"{}"))[0] == 200

        asyncio.run(scene())


def test_refusals_are_delayed_but_only_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that ignores Retry-After waits longer for its responses, but cannot occupy all connections so."""
    monkeypatch.setattr(app_module, "_MOST_HELD_UP", 2)
    with world(tmp_path, Quotas(calls_per_second=0.001, burst=1)) as made:

        async def scene() -> None:
            assert (await made.ask("alice"))[0] == 200
            order: list[int] = []

            async def refused(number: int) -> None:
                assert (await made.ask("alice"))[0] == 429
                order.append(number)

            await asyncio.gather(*[refused(number) for number in range(5)])
            assert sorted(order[:3]) == [2, 3, 4] and sorted(order[3:]) == [0, 1]
            assert made.app._held_up == 0

        asyncio.run(scene())


def test_whoever_fails_to_say_who_it_is_is_limited_by_address(tmp_path: Path) -> None:
    with world(tmp_path, Quotas(failures_per_second=0.1, failure_burst=3)) as made:

        async def scene() -> None:
            assert [(await made.ask("wrong"))[0] for _ in range(5)] == [403, 403, 403, 429, 429]
            assert (await made.ask("alice", address="10.0.0.2"))[0] == 200
            assert (await made.ask("alice"))[0] == 200  # another client behind the same proxy

        asyncio.run(scene())


@contextlib.contextmanager
def serving(tmp_path: Path, limits: Limits) -> Iterator[str]:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    server = Server(manager, Settings(limits=limits, recover_seconds=0))
    with running(server):
        yield server.url


def test_clients_of_unity_catalog_are_told_in_its_form_and_keep_their_connection(tmp_path: Path) -> None:
    with serving(tmp_path, Limits(quotas=Quotas(calls_per_second=0.1, burst=1))) as url:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=60)
        connection.connect()
        used = connection.sock
        answers: list[tuple[int, Mapping[str, str], dict[str, Any]]] = []
        for body in (None, None, b"{}"):
            connection.request("GET" if body is None else "POST", TABLES, body)
            response = connection.getresponse()
            answers.append((response.status, response.headers, json.loads(response.read())))  # type: ignore[arg-type]
        assert connection.sock is used
        connection.close()
    assert answers[0][0] in (200, 404)
    for status, headers, found in answers[1:]:
        assert (status, headers["retry-after"], found["error_code"]) == (429, "10", "TOO_MANY_REQUESTS")
        assert found["error"]["type"] == "TooManyRequestsException"
        assert "calls_per_second (0.1)" in found["message"]


@pytest.mark.parametrize("mode", ["standard", pytest.param("legacy", marks=pytest.mark.long)])
def test_boto3_waits_and_tries_again(tmp_path: Path, mode: Any) -> None:
    with serving(tmp_path, Limits(quotas=Quotas(calls_per_second=0.5, burst=1))) as url:
        client: Any = boto3.client(
            "lakeformation", endpoint_url=url, region_name="eu-central-1", aws_access_key_id="id",
            aws_secret_access_key="secret", config=Config(retries={"mode": mode, "total_max_attempts": 10}),
        )  # fmt: skip
        found = [client.start_transaction()["ResponseMetadata"]["RetryAttempts"] for _ in range(2)]
        assert found[0] == 0 < found[1]
