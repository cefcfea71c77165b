"""Tokens of a catalog: their text, making and revoking them, and the server's lookup."""

from __future__ import annotations

import asyncio
import datetime
import functools
import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltalog import CallError, TransactionManager
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.dynamodb import DynamoDBCoordinator
from deltalog.catalog.postgresql import PostgresCoordinator
from deltalog.catalog.records import Document, DocumentChange
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import CoordinatorError, EntityNotFoundError
from deltalog.server.access import issued, token_text
from deltalog.server.access.authentication import Authentication, AuthenticationSettings
from deltalog.server.access.principals import NotAuthenticatedError, NotIdentifiedYetError, Principal, Scope
from deltalog.server.access.token_lookup import TokenLookup, TokenSettings
from deltalog.server.serve import Server, Settings, check, warnings_of
from deltalog.testing.coordinators import MemoryCoordinator
from tests.support.s3 import Server as Emulator
from tests.support.s3.dynamodb import new_table
from tests.support.server.access import CATALOGS, START, bearer, head, serving

DAY = datetime.timedelta(days=1)
NOW = time.time()
SHARED = "0123456789abcdef0123456789abcdef"
AT_ONCE = AuthenticationSettings(TokenSettings(cache_seconds=0))


def made(coordinator: Coordinator, principal: str = "etl", **more: Any) -> str:
    return str(issued.issue(coordinator, principal, **more).secret)


def catalog(tmp_path: Path) -> SQLiteCoordinator:
    return SQLiteCoordinator(tmp_path / "catalog.db")


# ------------------------------------------------------------------------------------------------------- the text


def test_a_token_can_be_recognised_and_checked_without_asking_anybody() -> None:
    for _ in range(100):
        token = token_text.new_token()
        assert re.fullmatch("dlog_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}", token.text)
        assert token_text.id_of(token.text) == token.id and token.id in token.text
    text = token.text
    for at in range(len(text)):
        changed = text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]
        assert token_text.id_of(changed) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text + "0",
        lambda text: text * 1000,
        lambda text: text.replace("_", "-"),
        lambda text: text.upper(),
        lambda text: text[:-1] + "é",
        lambda text: "dlog_" + "٣" * 12 + text[17:],
        lambda text: text[:-1] + "\ud800",
    ],
)
def test_what_is_no_token_has_no_id(change: Callable[[str], str]) -> None:
    text = token_text.new_token().text
    assert change(text) != text
    assert token_text.id_of(change(text)) is None


def test_tokens_differ_in_all_their_characters() -> None:
    texts = [token_text.new_token().text for _ in range(300)]
    random = [set(column) for column in zip(*(each[18:-6] for each in texts), strict=True)]
    assert all(len(each) > 30 for each in random[1:])  # the first digit of 256 bits in base 62 is smaller


# ------------------------------------------------------------------------------------------ made, listed, revoked


@pytest.fixture(params=["memory", "sqlite", "dynamodb", pytest.param("postgresql", marks=pytest.mark.long)])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Coordinator:
    if request.param == "memory":
        return MemoryCoordinator()
    if request.param == "sqlite":
        return catalog(tmp_path)
    if request.param == "postgresql":
        return PostgresCoordinator(request.getfixturevalue("postgresql").empty_url())
    ministack: Emulator = request.getfixturevalue("ministack")
    return DynamoDBCoordinator(new_table(ministack, "catalog"), ministack.options())


def test_tokens_are_made_found_listed_and_revoked(coordinator: Coordinator) -> None:
    assert not issued.are_required(coordinator)
    first = issued.issue(coordinator, "etl", groups=["b", "a", "a"], scope=Scope.READ, label="nightly", expires=DAY)
    second = issued.issue(coordinator, "etl", is_admin=True, scope=Scope.ADMIN)
    third = issued.issue(coordinator, "other")
    assert issued.are_required(coordinator)
    found = issued.find(coordinator, first.id)
    assert found == first.credential
    assert found.identity(first.id) == Principal(
        "etl", frozenset({"a", "b"}), Scope.READ, credential=f"token {first.id}"
    )
    assert second.credential.identity("x").is_admin
    assert {each.id for each in issued.issued(coordinator)} == {first.id, second.id, third.id}
    assert all(each.secret is None for each in issued.issued(coordinator))
    assert [each.id for each in issued.revoke(coordinator, [first.id])] == [first.id]
    assert issued.find(coordinator, first.id) is None and issued.find(coordinator, second.id) is not None
    assert [each.id for each in issued.revoke(coordinator, principal="etl")] == [second.id]
    with pytest.raises(EntityNotFoundError, match=first.id):
        issued.revoke(coordinator, [first.id, third.id])
    assert list(issued.issued(coordinator)) == []
    assert issued.are_required(coordinator)


def test_only_expired_tokens_are_revoked_as_such(coordinator: Coordinator) -> None:
    old = issued.issue(coordinator, "a", expires=DAY)
    new = issued.issue(coordinator, "a", expires=3 * DAY)
    forever = issued.issue(coordinator, "a")
    now_ms = old.credential.created_ms + int(DAY.total_seconds() * 2000)
    assert [each.id for each in issued.revoke(coordinator, expired_ms=now_ms)] == [old.id]
    assert {each.id for each in issued.issued(coordinator)} == {new.id, forever.id}


def test_many_tokens_are_listed_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issued, "_PAGE", 3)
    coordinator = catalog(tmp_path)
    ids = {issued.issue(coordinator, "a").id for _ in range(7)}
    assert {each.id for each in issued.issued(coordinator)} == ids


def test_first_tokens_made_at_the_same_moment_are_all_made(tmp_path: Path) -> None:
    class Late(SQLiteCoordinator):
        def change_documents(self, changes: Any, free_names: Any = ()) -> bool:
            if len(changes) == 2:
                issued.issue(catalog(tmp_path), "first")
            return super().change_documents(changes, free_names)

    issued.issue(Late(tmp_path / "catalog.db"), "second")
    assert {each.credential.principal for each in issued.issued(catalog(tmp_path))} == {"first", "second"}


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 256, "a\x1bb", "\u202e"])
def test_a_name_that_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(CallError):
        issued.issue(MemoryCoordinator(), name)
    with pytest.raises(CallError):
        issued.issue(MemoryCoordinator(), "a", groups=[name])


def test_a_principal_cannot_be_a_group() -> None:
    with pytest.raises(CallError, match="group:"):
        issued.issue(MemoryCoordinator(), "group:admins")


@pytest.mark.parametrize("more", [{"expires": -DAY}, {"label": "\n"}, {"groups": [str(n) for n in range(101)]}])
def test_other_wrong_arguments_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(CallError):
        issued.issue(MemoryCoordinator(), "a", **more)


@pytest.mark.parametrize("text", ["", "90", "d", "1w", "-1d", "1.5d", "9999999d", "٣d"])
def test_a_wrong_duration_is_refused(text: str) -> None:
    with pytest.raises(CallError):
        issued.duration_of(text)


def test_the_catalog_has_no_secret(tmp_path: Path) -> None:
    coordinator = catalog(tmp_path)
    token, key = made(coordinator), issued.issue(coordinator, "a", server_key=b"k" * 32)
    coordinator.close()
    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert token_text.digest_of(token).encode() in stored
    assert token.encode() not in stored and token[18:].encode() not in stored
    assert key.id.encode() in stored and str(key.secret).encode() not in stored


# --------------------------------------------------------------------------------------------------- the server


def test_a_server_knows_tokens_as_soon_as_they_are_made_and_none_that_are_revoked(tmp_path: Path) -> None:
    coordinator = catalog(tmp_path)
    with serving(tmp_path / "catalog.db", Settings(authentication=AT_ONCE)) as server:
        assert server.status() == 200  # nothing is configured
        assert server.exchanges[-1].principal is not None and server.exchanges[-1].principal.name == "anonymous"
        first, second = made(coordinator), made(coordinator, groups=["g"], scope=Scope.WRITE)
        assert server.status() == 403 and server.exchanges[-1].principal is None
        status = functools.partial(server.status, path=CATALOGS, method="GET")
        assert server.status(first) == 200 and status(second) == 200
        assert server.exchanges[-1].principal == Principal(
            "etl", frozenset({"g"}), Scope.WRITE, credential=f"token {token_text.id_of(second)}"
        )
        issued.revoke(coordinator, [str(token_text.id_of(first))])
        assert server.status(first) == 403 and status(second) == 200
        issued.revoke(coordinator, principal="etl")
        assert status(second) == 401 and server.status() == 403  # the server does not become open again
    with serving(tmp_path / "catalog.db") as server:
        assert server.status() == 403


def test_the_id_of_a_token_without_its_secret_is_nothing(tmp_path: Path) -> None:
    token, other = made(catalog(tmp_path), is_admin=True), made(catalog(tmp_path), "other", is_admin=True)
    first, second = token[:-6], other[:-6]
    mixed = first[:18] + second[18:]
    forged = mixed + token_text._checksum(mixed)
    assert token_text.id_of(forged) == token_text.id_of(token)
    with serving(tmp_path / "catalog.db") as server:
        assert (server.status(token), server.status(other), server.status(forged)) == (200, 200, 403)


def test_how_a_refusal_looks(tmp_path: Path) -> None:
    token = made(catalog(tmp_path))
    with serving(tmp_path / "catalog.db") as server:
        status, headers, body = server.ask(CATALOGS, method="GET")
        assert (status, body["error"]["type"]) == (401, "NotAuthorizedException")
        assert headers["www-authenticate"] == 'Bearer realm="deltalog"'
        status, headers, body = server.ask(CATALOGS, bearer("x" * 40), method="GET")
        assert status == 401 and headers["www-authenticate"] == 'Bearer realm="deltalog", error="invalid_token"'
        status, headers, body = server.ask(START, bearer(token[:-1]))
        assert (status, body["__type"]) == (403, "AccessDeniedException")
        assert server.status(token, CATALOGS, method="GET") == 200
        assert server.ask("/health", method="GET")[0] == 200


def test_the_shared_token_is_valid_beside_those_of_the_catalog(tmp_path: Path) -> None:
    with serving(tmp_path / "catalog.db", Settings(token=SHARED, authentication=AT_ONCE)) as server:
        assert (server.status(), server.status(SHARED), server.status(SHARED + "0")) == (403, 200, 403)
        assert server.status(made(catalog(tmp_path))) == 200 and server.status(SHARED) == 200
        assert server.exchanges[-1].principal is not None and server.exchanges[-1].principal.is_admin


def test_a_request_brings_one_token(tmp_path: Path) -> None:
    first, second = made(catalog(tmp_path)), made(catalog(tmp_path), "other")
    with serving(tmp_path / "catalog.db") as server:
        aws = {"X-Amz-Security-Token": first}
        assert server.ask(START, aws)[0] == 200
        assert server.ask(START, {**aws, **bearer(first)})[0] == 200
        assert server.ask(START, {**aws, **bearer(second)})[0] == 403
        assert server.ask(START, {**aws, "Authorization": "Basic YTpi"})[0] == 200
        for twice in ("Authorization", "X-Amz-Security-Token", "Host"):
            name = "127.0.0.1" if twice == "Host" else f"Bearer {first}" if twice == "Authorization" else first
            assert server.ask(START, [(twice, name), (twice.lower(), name)])[0] == 400


@pytest.mark.parametrize("token", ["dlog_", "dlog_" + "x" * 30_000, "é" * 40, "dlog_\xff", "..", "a.b.c", "\x00"])
def test_strange_tokens_are_refused_without_asking_the_catalog(token: str, tmp_path: Path) -> None:
    asked: list[str] = []

    class Recording(SQLiteCoordinator):
        def document(self, kind: str, key: str) -> Document | None:
            asked.append(kind)
            return super().document(kind, key)

    made(catalog(tmp_path))
    lookup = Authentication(Recording(tmp_path / "catalog.db"))
    asked.clear()
    with pytest.raises(NotAuthenticatedError):
        asyncio.run(lookup.identify(head({"authorization": f"Bearer {token}"})))
    assert asked == []
    lookup.close()


def test_a_token_is_refused_from_the_moment_of_its_expiry_also_from_the_cache() -> None:
    coordinator = MemoryCoordinator()
    token = made(coordinator, expires=DAY)
    clock = [time.time()]
    authentication = Authentication(coordinator, AuthenticationSettings(TokenSettings(1e9)), clock_s=lambda: clock[0])

    async def run() -> None:
        assert (await authentication.identify(head(bearer_of(token)))).principal.name == "etl"
        clock[0] += DAY.total_seconds() - 10
        await authentication.identify(head(bearer_of(token)))
        clock[0] += 11
        with pytest.raises(NotAuthenticatedError, match="expired"):
            await authentication.identify(head(bearer_of(token)))

    asyncio.run(run())
    authentication.close()


def bearer_of(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_an_access_key_is_no_token(tmp_path: Path) -> None:
    """A token is refused if the document with its id is that of an access key."""
    coordinator = catalog(tmp_path)
    token = token_text.new_token()
    other = issued.issue(coordinator, "a", server_key=b"k" * 32).credential
    document = msgspec.json.encode(other).decode()
    assert coordinator.change_documents([DocumentChange(issued.CREDENTIAL, token.id, 0, document)])
    with serving(tmp_path / "catalog.db") as server:
        assert server.status(token.text) == 403


def test_a_document_that_cannot_be_read_is_a_failure_of_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = catalog(tmp_path)
    token = made(coordinator)
    document = coordinator.document(issued.CREDENTIAL, str(token_text.id_of(token)))
    assert document is not None
    for content in ("{", '{"principal":"a"}', document.content.replace("WRITE", "ROOT")):
        revision = coordinator.document(issued.CREDENTIAL, document.key)
        assert revision is not None
        change = DocumentChange(issued.CREDENTIAL, document.key, revision.revision, content)
        assert coordinator.change_documents([change])
        with serving(tmp_path / "catalog.db") as server:
            status, headers, body = server.ask(START, bearer(token))
            assert status == 503 and headers["retry-after"] and "document" not in json.dumps(body)
            assert "cannot be read" in caplog.text


def test_addresses_beyond_loopback_need_something_that_proves_who_calls(tmp_path: Path) -> None:
    settings = Settings("192.0.2.1")
    with pytest.raises(CallError, match="tokens create"):
        Server(TransactionManager(str(tmp_path / "catalog.db")), settings)
    made(catalog(tmp_path))
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1"):
        Server(TransactionManager(str(tmp_path / "catalog.db")), settings)
    check(settings, has_tokens=True)
    assert "TLS" in warnings_of(settings, has_tokens=True)[0]


# ---------------------------------------------------------------------------------------------------- the lookup


class Catalog(MemoryCoordinator):
    """Counts the lookups of tokens; they wait while ``gate`` is not set, and fail with ``error``."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def document(self, kind: str, key: str) -> Document | None:
        if kind in (issued.CREDENTIAL, issued.AUTHENTICATION):
            self.asked += 1
            assert self.gate.wait(60)
            if self.error is not None:
                raise self.error
        return super().document(kind, key)


def running(test: Callable[[Catalog, TokenLookup, list[float]], Any], **settings: Any) -> None:
    """Run a test with a lookup whose clock the test sets."""
    catalog, clock = Catalog(), [1000.0]
    lookup = TokenLookup(catalog, TokenSettings(**settings), clock_s=lambda: clock[0])
    try:
        asyncio.run(test(catalog, lookup, clock))
    finally:
        catalog.gate.set()
        lookup.close()


def test_a_token_is_looked_up_once_until_the_cache_is_old() -> None:
    async def test(catalog: Catalog, lookup: TokenLookup, clock: list[float]) -> None:
        id_ = issued.issue(catalog, "a").id
        catalog.asked = 0
        await asyncio.gather(*(lookup.find(id_, f"caller {n}") for n in range(100)))
        assert catalog.asked == 1
        clock[0] += 4.9
        issued.revoke(catalog, [id_])
        catalog.asked = 0
        assert await lookup.find(id_, "a") is not None and catalog.asked == 0
        clock[0] += 0.2
        assert await lookup.find(id_, "a") is None and catalog.asked == 1
        assert await lookup.find(id_, "a") is None and catalog.asked == 1

    running(test)


def test_the_age_of_a_cached_token_counts_from_the_beginning_of_its_lookup() -> None:
    async def test(catalog: Catalog, lookup: TokenLookup, clock: list[float]) -> None:
        id_ = issued.issue(catalog, "a").id
        catalog.gate.clear()
        asked = asyncio.ensure_future(lookup.find(id_, "a"))
        await asyncio.sleep(0)
        clock[0] += 6
        catalog.gate.set()
        assert await asked is not None
        issued.revoke(catalog, [id_])
        assert await lookup.find(id_, "a") is None

    running(test)


def test_guessing_does_not_load_the_catalog() -> None:
    async def test(catalog: Catalog, lookup: TokenLookup, clock: list[float]) -> None:
        known, fresh = issued.issue(catalog, "a").id, issued.issue(catalog, "b").id
        await lookup.find(known, "a")
        catalog.asked = 0
        refused = 0
        for _ in range(200):
            try:
                assert await lookup.find(token_text.new_token().id, "a") is None
            except NotIdentifiedYetError:
                refused += 1
        assert (catalog.asked, refused) == (20, 180)
        clock[0] += 5.1
        assert await lookup.find(known, "a") is not None  # guesses do not delay known tokens
        assert await lookup.find(token_text.new_token().id, "a") is None  # one in three seconds
        with pytest.raises(NotIdentifiedYetError):
            await lookup.find(fresh, "a")
        assert await lookup.find(fresh, "b") is not None  # nor other addresses
        clock[0] += 60
        for _ in range(30):
            fresh = issued.issue(catalog, "a").id
            assert await lookup.find(fresh, "a") is not None  # right tokens do not count as guesses

    running(test, guesses=20)


def test_a_network_has_no_more_guesses_by_many_addresses() -> None:
    async def test(catalog: Catalog, lookup: TokenLookup, clock: list[float]) -> None:
        refused = 0
        for number in range(100):
            try:
                await lookup.find(token_text.new_token().id, f"2001:db8::{number:x}:1")
            except NotIdentifiedYetError:
                refused += 1
        assert (catalog.asked, refused) == (20, 80)
        assert await lookup.find(token_text.new_token().id, "2001:db8:0:1::1") is None

    running(test, guesses=20)


def test_concurrent_guesses_are_bounded_too() -> None:
    async def test(catalog: Catalog, lookup: TokenLookup, clock: list[float]) -> None:
        catalog.gate.clear()
        asked = [asyncio.ensure_future(lookup.find(token_text.new_token().id, "a")) for _ in range(100)]
        asked += [asyncio.ensure_future(lookup.find(token_text.new_token().id, f"{n}")) for n in range(100)]
        await asyncio.sleep(0)
        catalog.gate.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, NotIdentifiedYetError) for each in found[:100]) == 80
        assert sum(isinstance(each, NotIdentifiedYetError) for each in found[100:]) == 56
        assert catalog.asked == 64

    running(test, guesses=20)


def test_the_cache_is_bounded() -> None:
    async def test(catalog: Catalog, lookup: TokenLookup, clock: list[float]) -> None:
        for number in range(50):
            await lookup.find(issued.issue(catalog, "a").id, f"{number}")
            await lookup.find(token_text.new_token().id, f"{number}")
        assert (len(lookup._known), len(lookup._unknown), len(lookup._running)) == (10, 10, 0)

    running(test, cached=10)


def test_a_catalog_that_fails_or_hangs_makes_nobody_wait_long_and_admits_nobody() -> None:
    async def test(catalog: Catalog, lookup: TokenLookup, clock: list[float]) -> None:
        id_ = issued.issue(catalog, "a").id
        await lookup.find(id_, "a")
        clock[0] += 6
        catalog.error = CoordinatorError("the database is gone", path="catalog")
        with pytest.raises(CoordinatorError):
            await lookup.find(id_, "a")
        catalog.error = None
        catalog.gate.clear()
        for _ in range(3):
            with pytest.raises(NotIdentifiedYetError):
                await lookup.find(id_, "a")
        catalog.gate.set()

    running(test, lookup_seconds=0.05)


def test_a_server_without_authentication_stays_so_while_its_catalog_is_silent(tmp_path: Path) -> None:
    async def test(catalog: Catalog, lookup: TokenLookup, clock: list[float]) -> None:
        assert not await lookup.are_required()
        catalog.error = CoordinatorError("the database is gone", path="catalog")
        clock[0] += 6
        assert not await lookup.are_required()
        catalog.error = None
        made(catalog)
        assert not await lookup.are_required()  # asked less than five seconds ago
        clock[0] += 6
        assert await lookup.are_required()
        catalog.error = CoordinatorError("the database is gone", path="catalog")
        clock[0] += 1e6
        assert await lookup.are_required()

    running(test)


def test_a_caller_who_goes_does_not_end_the_lookup_of_others() -> None:
    async def test(catalog: Catalog, lookup: TokenLookup, clock: list[float]) -> None:
        id_ = issued.issue(catalog, "a").id
        catalog.gate.clear()
        first, second = (asyncio.ensure_future(lookup.find(id_, "a")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        catalog.gate.set()
        assert await second is not None

    running(test)
