"""Tests who may call the server, how often and for how long, and how the server shuts down."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import socket
import sqlite3
import ssl
import threading
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from deltalog import CallError, TransactionManager
from deltalog.server.app import App, Limits
from deltalog.server.logs import Refusals
from deltalog.server.serve import Server, Settings, check, warnings_of
from deltalog.server.tls import Tls
from tests.support.cli import run
from tests.support.server import AT_ONCE, Served, running, served
from tests.support.server.certificates import issue

TOKEN = "0123456789abcdef0123456789abcdef"
START = "/StartTransaction"

Wrong = tuple[str, str, Any, dict[str, str], int, str]
WRONG: dict[str, Wrong] = {
    "not JSON": ("POST", START, b"{", {}, 400, "SerializationException"),
    "not UTF-8": ("POST", START, b'{"TransactionType": "\xff"}', {}, 400, "SerializationException"),
    "nested too deep": ("POST", START, b"[" * 100_000, {}, 400, "SerializationException"),
    "no object": ("POST", START, [], {}, 400, "InvalidInputException"),
    "no text": ("POST", START, {"TransactionType": 7}, {}, 400, "InvalidInputException"),
    "too few results": ("POST", "/ListTransactions", {"MaxResults": 0}, {}, 400, "InvalidInputException"),
    "too many results": ("POST", "/ListTransactions", {"MaxResults": 1001}, {}, 400, "InvalidInputException"),
    "no number": ("POST", "/ListTransactions", {"MaxResults": True}, {}, 400, "InvalidInputException"),
    "an id too long": ("POST", "/DescribeTransaction", {"TransactionId": "x" * 256}, {}, 400, "InvalidInputException"),
    "another method": ("GET", START, None, {}, 404, "UnknownOperationException"),
    "another operation": ("POST", "/GrantPermissions", {}, {}, 404, "UnknownOperationException"),
    "above the root": ("POST", "/../StartTransaction", {}, {}, 404, "UnknownOperationException"),
    "a web page": ("POST", START, {}, {"Origin": "http://127.0.0.1"}, 403, "AccessDeniedException"),
    "another name": ("POST", START, {}, {"Host": "evil.example"}, 403, "AccessDeniedException"),
    "no name": ("POST", START, {}, {"Host": "[::1"}, 403, "AccessDeniedException"),
}


@pytest.mark.parametrize(("method", "path", "body", "headers", "status", "error"), WRONG.values(), ids=WRONG)
def test_wrong_requests(
    server: Served, method: str, path: str, body: Any, headers: dict[str, str], status: int, error: str
) -> None:
    found, answer = server.ask(method, path, body, headers)
    assert (found, answer["__type"]) == (status, error)
    assert "Traceback" not in answer["Message"] and ".py" not in answer["Message"]


def test_the_question_whether_it_is_there(server: Served) -> None:
    assert server.ask("GET", "/health") == (200, {"status": "ok"})


@pytest.mark.parametrize("size", [(4 << 20) + 1, 30 << 20])
def test_a_body_too_large_is_refused(server: Served, size: int) -> None:
    if size < 16 << 20:  # the server reads the whole body, so that the client gets the response
        assert server.ask("POST", START, b" " * size)[0] == 413
    connection = server.connection()
    connection.putrequest("POST", START)
    connection.putheader("Content-Length", str(size))
    connection.endheaders()
    if size > 16 << 20:  # refused because the declared length is too large
        assert connection.getresponse().status == 413
    connection.close()
    assert server.ask("POST", START, b" " * (1 << 20) + b"{}")[0] == 200


def test_headers_too_large_are_refused(server: Served) -> None:
    connection = server.connection()
    connection.request("POST", START, b"{}", {"X-Long": "x" * (40 << 10)})
    # Refused while it arrives; the status depends on whether it comes in one packet or in several.
    assert connection.getresponse().status in (400, 431)
    connection.close()


def test_a_body_in_pieces_is_counted_too(server: Served) -> None:
    connection = server.connection()
    pieces = (b" " * (1 << 20) for _ in range(5))
    connection.request("POST", START, pieces, {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


# ------------------------------------------------------------------------------------------------- the token


def test_only_who_has_the_token_may_call(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with served(tmp_path / "catalog.db", "--token-file", str(tmp_path / "token")) as server:
        assert server.client(token=TOKEN, config=AT_ONCE).start_transaction()["TransactionId"]
        for wrong in (None, "", TOKEN[:-1], TOKEN + "0", "é" * 32):
            client = server.client(token=wrong, config=AT_ONCE)
            with pytest.raises((client.exceptions.AccessDeniedException, UnicodeEncodeError)):
                client.start_transaction()
        for scheme, status in (("Bearer", 200), ("bearer", 200), ("Basic", 403)):
            assert server.ask("POST", START, {}, {"Authorization": f"{scheme} {TOKEN}"})[0] == status
        status, answer = server.ask("GET", "/api/2.1/unity-catalog/catalogs")
        assert (status, answer["error"]["type"]) == (401, "NotAuthorizedException")
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert server.ask("GET", "/api/2.1/unity-catalog/catalogs", headers=bearer)[0] == 200
        assert server.ask("GET", "/health")[0] == 200


def test_the_token_may_come_from_the_environment(tmp_path: Path) -> None:
    with served(tmp_path / "catalog.db", env={"DELTALOG_SERVER_TOKEN": TOKEN}) as server:
        assert server.ask("POST", START, {})[0] == 403
        assert server.ask("POST", START, {}, {"Authorization": f"Bearer {TOKEN}"})[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "db.example"])
def test_without_token_or_tls_nothing_but_loopback_is_bound(host: str, tmp_path: Path) -> None:
    done = run("serve", tmp_path / "catalog.db", "--host", host, "--json", env={"DELTALOG_SERVER_TOKEN": ""})
    assert done.status == 1
    error = json.loads(done.err)
    assert error["code"] == "INVALID_CALL"
    assert "--token-file" in error["message"] and "--tls-cert" in error["message"]


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "é" * 20, "a b\n" * 8])
def test_a_weak_token_is_refused(token: str) -> None:
    with pytest.raises(CallError, match="16 printable ASCII characters"):
        check(Settings(token=token))


def test_what_is_allowed_and_risky_is_said() -> None:
    tls = Tls(Path("c"), Path("k"))
    assert warnings_of(Settings()) == []
    assert "TLS" in warnings_of(Settings("0.0.0.0", token=TOKEN))[0]
    assert "every client" in warnings_of(Settings("0.0.0.0", tls=tls))[0]
    assert warnings_of(Settings("0.0.0.0", tls=tls, token=TOKEN)) == []


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", tmp_path / "catalog.db", "--port", port, "--json")
    assert done.status == 1 and str(port) in json.loads(done.err)["message"]


def test_tls(tmp_path: Path) -> None:
    pair = issue(tmp_path, "server")
    certificate, key = pair.certificate_file, pair.key_file
    with served(tmp_path / "catalog.db", "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        assert server.url.startswith("https://")
        client = server.client(config=AT_ONCE, verify=str(certificate))
        assert client.start_transaction()["TransactionId"]


def test_callers_may_have_to_show_a_certificate(tmp_path: Path) -> None:
    pair = issue(tmp_path, "server")
    certificate, key = pair.certificate_file, pair.key_file
    options = ["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", certificate]
    with served(tmp_path / "catalog.db", *map(str, options)) as server:
        where = urllib.parse.urlsplit(server.url)
        for shown in (False, True):
            context = ssl.create_default_context(cafile=certificate)
            if shown:
                context.load_cert_chain(certificate, key)
            connection = http.client.HTTPSConnection("127.0.0.1", where.port, timeout=60, context=context)
            try:
                connection.request("GET", "/health")
                assert connection.getresponse().status == 200 and shown
            except (ssl.SSLError, ConnectionError):
                assert not shown
            finally:
                connection.close()


# -------------------------------------------------------------------------------------------- load and time


def test_more_requests_than_are_allowed_are_refused(tmp_path: Path) -> None:
    with served(tmp_path / "catalog.db", "--set=limits.requests=2", "--set=limits.threads=2") as server:
        client = server.client(config=AT_ONCE)
        started = client.start_transaction()["TransactionId"]
        database = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None, check_same_thread=False)
        database.execute("BEGIN IMMEDIATE")
        refused = threading.Event()

        def extend() -> int:
            try:
                client.extend_transaction(TransactionId=started)
            except ClientError as error:
                refused.set()
                return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
            return 200

        with ThreadPoolExecutor(3) as threads:
            asked = [threads.submit(extend) for _ in range(3)]
            assert refused.wait(30)
            database.execute("ROLLBACK")
            database.close()
            assert sorted(each.result() for each in asked) == [200, 200, 503]


def test_it_answers_what_is_under_way_before_it_ends(tmp_path: Path) -> None:
    with served(tmp_path / "catalog.db") as server:
        started = server.client().start_transaction()["TransactionId"]
        database = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
        database.execute("BEGIN IMMEDIATE")
        connection = server.connection()
        connection.request("POST", "/ExtendTransaction", json.dumps({"TransactionId": started}))
        while server.ask("GET", "/health")[0] != 200:  # the answer shows that the request above was accepted
            pass
        server.process.terminate()
        database.execute("ROLLBACK")
        database.close()
        assert connection.getresponse().status == 200
        connection.close()
        assert server.process.wait(60) == 0


@pytest.mark.parametrize("sent", [b"", b"POST /StartTransaction HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
def test_a_connection_that_says_nothing_is_closed(sent: bytes, tmp_path: Path) -> None:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    server = Server(manager, Settings(limits=Limits(header_seconds=0.2)))
    with running(server) as address, socket.create_connection(address, timeout=60) as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""


def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    server = Server(manager, Settings(limits=Limits(body_seconds=0.2)))
    with running(server) as address, socket.create_connection(address, timeout=60) as connection:
        connection.sendall(b"POST /StartTransaction HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_defect_shows_nothing_of_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Defective(TransactionManager):
        def start_transaction(self, *_: Any, **__: Any) -> str:
            raise RuntimeError(f"secret of {__file__}")

    app = App(Defective(str(tmp_path / "catalog.db")))
    scope = {"type": "http", "method": "POST", "raw_path": b"/StartTransaction", "headers": []}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    app.close()
    assert sent[0]["status"] == 500
    assert b"secret" not in sent[1]["body"] and b".py" not in sent[1]["body"]
    assert "secret of" in caplog.text


# ------------------------------------------------------------------------------------------- request framing

SMUGGLED = b"POST /StartTransaction HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("version", "headers"),
    [
        ("1.1", "Content-Length: 12\r\nTransfer-Encoding: chunked"),
        ("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 0"),
        ("1.0", "Transfer-Encoding: chunked"),
        ("1.1", "Transfer-Encoding: gzip, chunked"),
        ("1.1", "Content-Length: 2\r\nContent-Length: 3"),
        ("1.1", "Content-Length: +2"),
    ],
)
def test_a_request_whose_end_is_ambiguous_is_refused(version: str, headers: str, server: Served) -> None:
    """The bytes that follow a request with ambiguous framing on the same connection are not executed as a request,
    because a proxy may have passed these bytes on as the body of the first request."""
    where = urllib.parse.urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port or 0), timeout=60) as connection:
        head = f"POST /StartTransaction HTTP/{version}\r\nHost: 127.0.0.1\r\n{headers}\r\n\r\n".encode()
        connection.sendall(head + CHUNKED + SMUGGLED)
        read = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                read += piece
    assert read.count(b"HTTP/1.1 ") == 1 and read.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert b"TransactionId" not in read


def test_a_body_in_chunks_alone_is_taken(server: Served) -> None:
    connection = server.connection()
    connection.request("POST", START, iter([b"{", b"}"]), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()


# --------------------------------------------------------------------------------------------------- the log


def test_every_call_that_fails_is_logged(tmp_path: Path) -> None:
    """The log line contains the response's request id, if there was a response."""
    (tmp_path / "token").write_text(TOKEN)
    options = ["--token-file", str(tmp_path / "token"), "--set=limits.body_bytes=2048"]
    allowed = {"Authorization": f"Bearer {TOKEN}"}
    failing: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", START, {}, {}),
        ("POST", START, {}, {"Authorization": "Bearer wrong"}),
        ("POST", "/GrantPermissions", {}, allowed),
        ("GET", "/nothing\u202ehere".encode().decode("latin-1"), None, allowed),
        ("POST", START, b"{", allowed),
        ("POST", START, [], allowed),
        ("POST", START, b" " * 4000, allowed),
        ("POST", START, {}, {**allowed, "Origin": "http://a.example"}),
        ("POST", "/DescribeTransaction", {"TransactionId": "none"}, allowed),
        ("POST", "/DescribeTransaction", {"TransactionId": 7}, allowed),
        ("POST", "/GetTableObjects", {"DatabaseName": "x" * 256, "TableName": "t"}, allowed),
        ("GET", "/api/2.1/unity-catalog/tables/main.a.b", None, allowed),
        ("GET", f"/api/2.1/unity-catalog/tables/main.{'a' * 300}.b", None, allowed),
        ("GET", "/api/2.1/unity-catalog/functions", None, allowed),
        ("GET", "/api/2.1/unity-catalog/catalogs", None, {}),
        ("POST", START, {}, {**allowed, "Transfer-Encoding": "chunked", "Content-Length": "2"}),
    ]
    log = tmp_path / "log"
    ids = []
    with served(tmp_path / "catalog.db", *options, log=log) as server:
        where = urllib.parse.urlsplit(server.url)
        for method, path, body, headers in failing:
            connection = server.connection()
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            if "Transfer-Encoding" in headers:
                data = CHUNKED
            path = urllib.parse.quote(path)
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            assert answer.status >= 400
            ids.append(answer.headers["x-amzn-requestid"])
            connection.close()
        with socket.create_connection((where.hostname, where.port or 0), timeout=60) as stranger:
            stranger.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
            assert stranger.recv(12) == b"HTTP/1.1 400"
    text = log.read_text()
    lines = text.splitlines()
    for each in ids:
        assert sum(each in line for line in lines) == 1, (each, text)
    assert sum("not HTTP" in line and "127.0.0.1" in line for line in lines) == 1
    assert TOKEN not in text


def test_lines_for_requests_of_strangers_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    refusals = Refusals(logging.getLogger("deltalog.test"), most=3, seconds=10, clock=lambda: now)
    for number in range(8):
        refusals.log(f"request {number}")
    assert caplog.messages == ["request 0", "request 1", "request 2"]
    now = 10
    refusals.log("request 8")
    assert caplog.messages[3:] == ["5 more requests were refused and not logged individually", "request 8"]
