"""The server of a Unity Catalog: how its URL and token are given, which requests are repeated, and answers that are not
those of a Unity Catalog."""

from __future__ import annotations

import http.server
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, Environment, StoreError, TableNotFoundError, UnityCatalog
from deltalog.errors import CatalogRequestError, CoordinatorError
from deltalog.unity import client as unity_client
from deltalog.unity import http as unity_http
from deltalog.unity import objects
from deltalog.unity.client import UnityClient
from deltalog.unity.http import Server
from deltalog.unity.names import TableName
from deltalog.unity.opening import server_of
from tests.support.unity.http import Fault, UnityServer

ROOT = "/api/2.1/unity-catalog"
NAME = TableName("main", "s", "t")
QUICK = Environment(sleep=lambda seconds: None)
# The token of the caller as the type of an error.
TYPE = b'{"error": {"type": "dapi-secret", "code": 400, "message": ""}}'
WORD = b'{"error": {"type": "dapisecret", "code": 400, "message": ""}}'
COLOUR = b'{"error": {"type": "Bad\\u001b[31m", "code": 400, "message": ""}}'
ECHO = b'{"error": {"type": "BadRequestException", "code": 400, "message": "token dapi-secret\\u001b[31m is bad"}}'


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://127.0.0.1:8080", f"http://127.0.0.1:8080{ROOT}"),
        ("http://127.0.0.1:8080/", f"http://127.0.0.1:8080{ROOT}"),
        (f"https://uc.example.com{ROOT}/", f"https://uc.example.com{ROOT}"),
        ("adb-1.azuredatabricks.net", f"https://adb-1.azuredatabricks.net{ROOT}"),
        ("https://proxy.example.com/uc", f"https://proxy.example.com/uc{ROOT}"),
    ],
)
def test_the_url_may_lack_what_every_server_has(given: str, url: str) -> None:
    assert Server.at(given).url == url


@pytest.mark.parametrize(
    "given", ["", "ftp://x", "http://", "https://x?token=1", "https://me:secret@x", "http://x:99999"]
)
def test_what_is_no_url_is_refused(given: str) -> None:
    with pytest.raises(CallError) as raised:
        server_of({"unity_catalog_url": given})
    assert "secret" not in str(raised.value)


def test_options_come_before_the_environment() -> None:
    environ = {
        "UNITY_CATALOG_URL": "https://uc",
        "UNITY_CATALOG_TOKEN": "t-uc",
        "DATABRICKS_HOST": "db.example.com",
        "DATABRICKS_TOKEN": "t-db",
    }
    found, others = server_of({"storage_options": {"endpoint_url": "http://s3"}}, environ)
    assert (found.url, found.token, others) == (f"https://uc{ROOT}", "t-uc", {"endpoint_url": "http://s3"})
    found, _ = server_of({"unity_catalog_url": "https://other", "unity_catalog_token": "t"}, environ)
    assert (found.url, found.token) == (f"https://other{ROOT}", "t")
    assert server_of({"unity_catalog_url": "uc/"}, environ)[0].token == "t-uc"
    of_databricks = {name: value for name, value in environ.items() if name.startswith("DATABRICKS")}
    found, _ = server_of({}, of_databricks)
    assert (found.url, found.token) == (f"https://db.example.com{ROOT}", "t-db")
    found, _ = server_of({"unity_catalog_url": "http://other"}, of_databricks)
    assert found.token is None  # the token of another server
    found, _ = server_of({"unity_catalog_url": "https://other"}, environ)
    assert found.token is None
    found, _ = server_of({"unity_catalog_url": "https://other"}, {"UNITY_CATALOG_TOKEN": "t-uc"})
    assert found.token == "t-uc"
    found, _ = server_of({}, {"DATABRICKS_HOST": "db.example.com", "UNITY_CATALOG_TOKEN": "t-uc"})
    assert found.token is None
    assert "t-uc" not in repr(server_of({}, environ))
    with pytest.raises(CallError, match="UNITY_CATALOG_URL"):
        server_of({}, {})


@pytest.mark.parametrize("host", ["uc.example.com", "10.0.0.1", "[2001:db8::1]"])
def test_a_token_without_encryption_is_warned_of(host: str) -> None:
    with pytest.warns(UserWarning, match="without encryption") as warned:
        server_of({"unity_catalog_url": f"http://{host}:8080", "unity_catalog_token": "dapi-secret"}, {})
    assert "dapi-secret" not in str(warned[0].message)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://uc.example.com"]
)
def test_other_tokens_are_not_warned_of(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        server_of({"unity_catalog_url": url, "unity_catalog_token": "dapi-secret"}, {})
        server_of({"unity_catalog_url": "http://uc.example.com"}, {})


@pytest.mark.parametrize("token", ["", " x", "x\n", "é"])
def test_a_token_that_no_header_can_have(token: str) -> None:
    with pytest.raises(CallError) as raised:
        Server.at("http://x", token)
    assert token.strip() == "" or token.strip() not in str(raised.value)


@pytest.mark.parametrize("fault", [Fault.DROPPED, Fault.UNAVAILABLE, Fault.FAILED, Fault.THROTTLED, Fault.LOST])
def test_reads_are_repeated(server: UnityServer, options: dict[str, Any], fault: Fault) -> None:
    left = [3]

    def faults(method: str, path: str) -> Fault | None:
        left[0] -= 1
        return fault if left[0] >= 0 else None

    server.faults = faults
    client = UnityClient(Server.at(server.url, "dapi-secret"), QUICK)
    with pytest.raises(TableNotFoundError):
        client.load_table(NAME)
    assert server.of("GET") == 4


def test_reads_are_repeated_within_bounds(server: UnityServer) -> None:
    server.faults = lambda method, path: Fault.UNAVAILABLE
    with pytest.raises(CatalogRequestError, match="HTTP 503"):
        UnityClient(Server.at(server.url, "dapi-secret"), QUICK).load_table(NAME)
    assert server.of("GET") == 6


def test_a_wrong_token_is_refused_and_not_shown(server: UnityServer) -> None:
    with pytest.raises(CatalogRequestError) as raised:
        DeltaTable.open(
            "uc://main.s.t", unity_catalog_url=server.url, unity_catalog_token="dapi-wrong", environment=QUICK
        )
    assert (raised.value.status, raised.value.error_type) == (401, "NotAuthorizedException")
    assert "dapi-wrong" not in str(raised.value)


def test_a_server_that_cannot_be_reached() -> None:
    with pytest.raises(CoordinatorError, match="Could not connect"):
        DeltaTable.open("uc://main.s.t", unity_catalog_url="http://127.0.0.1:9", environment=QUICK)


@contextmanager
def answering(status: int, body: bytes, headers: dict[str, str] | None = None) -> Iterator[tuple[str, list[str]]]:
    """A server that is not a Unity Catalog."""
    asked = list[str]()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            asked.append(self.headers.get("authorization", ""))
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer

        def log_message(self, *arguments: Any) -> None:
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}", asked
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>sign in</html>"),
        (200, b"{}"),
        (200, b"[" * 100_000),
        (404, b"not here"),
        (500, b'{"error": {"type": 1}}'),
        (400, ECHO),
        (400, TYPE),
        (400, WORD),
        (400, COLOUR),
    ],
    ids=["page", "empty", "deep", "unknown", "odd", "echo", "type", "word", "colour"],
)
def test_an_answer_that_is_none(status: int, body: bytes) -> None:
    token = "dapisecret" if body == WORD else "dapi-secret"
    with answering(status, body) as (url, _), pytest.raises(StoreError) as raised:
        DeltaTable.open("uc://main.s.t", unity_catalog_url=url, unity_catalog_token=token, environment=QUICK)
    for text in (str(raised.value), repr(vars(raised.value))):
        assert token not in text
        assert "\x1b" not in text and "x1b" not in text


def test_an_answer_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unity_http, "_MOST_BYTES", 100_000)
    with answering(200, b'{"schemas": [], "more": "' + b"a" * 200_000 + b'"}') as (url, asked):
        catalog = UnityCatalog("main", unity_catalog_url=url, environment=QUICK)
        with pytest.raises(CoordinatorError, match="more than a response can have"):
            catalog.schemas()
        assert len(asked) == 1


def test_no_message_names_inner_classes() -> None:
    with pytest.raises(CoordinatorError, match="Could not connect") as raised:
        DeltaTable.open("uc://main.s.t", unity_catalog_url="http://127.0.0.1:9", environment=QUICK)
    assert "_Kept" not in str(raised.value)


@pytest.mark.parametrize("location", ["lake/t", "../t", "file:lake/t", ""])
def test_a_location_must_be_absolute(server: UnityServer, options: dict[str, Any], location: str) -> None:
    DeltaTable.create("uc://main.s.t", pa.table({"id": [1]}), **options)
    server.model.tables["main", "s", "t"].location = location
    with pytest.raises(CatalogRequestError, match="not an absolute location"):
        DeltaTable.open("uc://main.s.t", **options)


def test_a_redirection_does_not_get_the_token() -> None:
    with answering(200, b"{}") as (elsewhere, asked):
        with answering(302, b"", {"location": elsewhere}) as (url, _), pytest.raises(CatalogRequestError, match="302"):
            DeltaTable.open(
                "uc://main.s.t", unity_catalog_url=url, unity_catalog_token="dapi-secret", environment=QUICK
            )
        assert asked == []


def test_pages_that_are_always_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unity_client, "MOST_PAGES", 20)
    asked = list[str]()

    def get(self: UnityClient, path: str, kind: type[objects.Tables], query: dict[str, str]) -> objects.Tables:
        asked.append(query.get("page_token", ""))
        found = objects.TableInfo(name=f"t{len(asked)}", catalog_name="main", schema_name="s")
        return objects.Tables(tables=(found,), next_page_token=f"token-{len(asked)}")

    monkeypatch.setattr(UnityClient, "_get", get)
    with pytest.raises(CatalogRequestError, match="do not end"):
        UnityCatalog("main", unity_catalog_url="http://x", environment=QUICK).tables("s")
    assert len(asked) == 20


def test_pages_that_do_not_end() -> None:
    with answering(200, b'{"schemas": [], "next_page_token": "again"}') as (url, _):
        catalog = UnityCatalog("main", unity_catalog_url=url, environment=QUICK)
        with pytest.raises(CatalogRequestError, match="do not end"):
            catalog.schemas()


@pytest.mark.parametrize("address", ["uc://a.b", "uc://a.b.c.d", "uc://a..c", "uc://a.b/x.c", "uc://", "uc://a.b. c"])
def test_an_address_has_three_parts(address: str, options: dict[str, Any]) -> None:
    for call in (DeltaTable.open, DeltaTable.exists):
        opened: Callable[..., object] = call
        with pytest.raises(CallError, match=r"uc://catalog\.schema\.table"):
            opened(address, **options)
