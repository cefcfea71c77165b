"""Tests the health checks and the shutdown of a server process: draining, running calls, hung calls, second signals."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deltalog import TransactionManager
from deltalog.server.app import Limits
from deltalog.server.serve import Server, Settings
from tests.support.server import Served, running, served
from tests.support.waiting import until

ORCHESTRATOR_SECONDS = 30
NO_RECOVERY = "--set=recovery.every_seconds=0"
TOKEN = "0123456789abcdef0123456789abcdef"


@contextlib.contextmanager
def locked(catalog: Path) -> Iterator[Callable[[], None]]:
    """Hold the write lock, so that calls which write hang; yields a function that releases it."""
    database = sqlite3.connect(catalog, isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    try:
        yield lambda: database.execute("ROLLBACK").close()
    finally:
        database.close()


def extend(server: Served, transaction: str) -> tuple[int, dict[str, str], str]:
    """Send a call that writes; returns the status and the body of the response, and the request id."""
    connection = server.connection()
    try:
        connection.request("POST", "/ExtendTransaction", json.dumps({"TransactionId": transaction}))
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if body else {}, answer.headers["x-amzn-requestid"]
    finally:
        connection.close()


def wait_until_full(server: Served) -> None:
    """Wait until as many calls are in progress as the server accepts."""
    until(lambda: server.ask("GET", "/health/ready") == (503, {"status": "overloaded"}))


def closes(server: Served, path: str) -> tuple[int, str | None]:
    connection = server.connection()
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["connection"]
    finally:
        connection.close()


@contextlib.contextmanager
def in_thread(tmp_path: Path, **settings: Any) -> Iterator[tuple[Served, Server]]:
    """A server in this process."""
    made = Server(TransactionManager(str(tmp_path / "catalog.db")), Settings(recover_seconds=0, **settings))
    with running(made):
        yield Served(made.url, None), made  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- health


def test_a_server_is_alive_and_ready(tmp_path: Path) -> None:
    with in_thread(tmp_path) as (server, _):
        assert server.ask("GET", "/health/live") == (200, {"status": "live"})
        assert server.ask("GET", "/health/ready") == (200, {"status": "ready"})
        assert server.ask("GET", "/health/%6Cive") == (200, {"status": "live"})
        assert server.ask("GET", "/health/dead")[0] == 404
        assert server.ask("POST", "/health/live", {})[0] == 404


def test_without_its_catalog_a_server_is_unready_but_alive(tmp_path: Path) -> None:
    """Health is asked without a token, as orchestrators do."""
    catalog, away = tmp_path / "catalog.db", tmp_path / "away.db"
    with in_thread(tmp_path, token=TOKEN) as (server, _):
        assert server.ask("GET", "/health/ready")[0] == 200
        catalog.rename(away)
        until(lambda: server.ask("GET", "/health/ready")[0] == 503)
        assert server.ask("GET", "/health/ready")[1]["failing"] == "catalog"
        assert server.ask("GET", "/health")[0] == 503
        assert server.ask("GET", "/health/live")[0] == 200
        away.rename(catalog)
        until(lambda: server.ask("GET", "/health/ready")[0] == 200)


def test_a_server_that_would_refuse_a_call_is_not_ready(tmp_path: Path) -> None:
    limits = Limits(requests=2, threads=2)
    with in_thread(tmp_path, limits=limits) as (server, _), ThreadPoolExecutor(2) as threads:
        transaction = server.ask("POST", "/StartTransaction", {})[1]["TransactionId"]
        with locked(tmp_path / "catalog.db") as release:
            asked = [threads.submit(extend, server, transaction) for _ in range(2)]
            wait_until_full(server)
            assert server.ask("GET", "/health/live")[0] == 200
            release()
        assert [each.result()[0] for each in asked] == [200, 200]
        assert server.ask("GET", "/health/ready")[0] == 200


# ----------------------------------------------------------------------------------------------------- drain


def test_while_it_drains_it_serves_but_is_not_ready(tmp_path: Path) -> None:
    with served(tmp_path / "catalog.db", NO_RECOVERY, "--set=process.drain_seconds=600") as server:
        assert closes(server, "/health/ready") == (200, None)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.ask("GET", "/health/ready")[0] == 503)
        assert server.ask("GET", "/health/ready")[1] == {"status": "draining"}
        assert closes(server, "/health/ready") == (503, "close")
        assert server.ask("GET", "/health/live")[0] == server.ask("GET", "/health")[0] == 200
        assert server.ask("POST", "/StartTransaction", {})[0] == 200
        server.process.send_signal(signal.SIGTERM)  # does not wait for the rest of the ten minutes
        assert server.process.wait(60) == 0


def test_after_the_drain_idle_connections_are_closed(tmp_path: Path) -> None:
    with in_thread(tmp_path, drain_seconds=0.5) as (server, made):
        where = urllib.parse.urlsplit(server.url)
        with socket.create_connection((where.hostname, where.port or 0), timeout=60) as idle:
            idle.sendall(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            read = b""
            while not read.endswith(b'{"status":"live"}'):
                read += idle.recv(65536)
            made.stop()
            assert idle.recv(65536) == b""
        until(lambda: _is_refused(server))


def test_running_calls_are_answered_before_the_end(tmp_path: Path) -> None:
    """Of 64 calls, some run and the others wait for a thread."""
    with served(tmp_path / "catalog.db", NO_RECOVERY) as server, ThreadPoolExecutor(64) as threads:
        transaction = server.ask("POST", "/StartTransaction", {})[1]["TransactionId"]
        with locked(tmp_path / "catalog.db") as release:
            asked = [threads.submit(extend, server, transaction) for _ in range(64)]
            wait_until_full(server)
            server.process.send_signal(signal.SIGTERM)
            until(lambda: _is_refused(server))
            release()
        assert [each.result()[0] for each in asked] == [200] * 64
        assert server.process.wait(60) == 0


def _is_refused(server: Served) -> bool:
    where = urllib.parse.urlsplit(server.url)
    try:
        socket.create_connection((where.hostname, where.port or 0), timeout=60).close()
    except OSError:
        return True
    return False


def test_calls_that_hang_are_cut_off_and_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = (NO_RECOVERY, "--set=process.end_seconds=2", "--set=limits.requests=8")
    with served(tmp_path / "catalog.db", *options, log=log) as server, ThreadPoolExecutor(8) as threads:
        transaction = server.ask("POST", "/StartTransaction", {})[1]["TransactionId"]
        with locked(tmp_path / "catalog.db"):  # until the process has ended
            asked = [threads.submit(extend, server, transaction) for _ in range(8)]
            wait_until_full(server)
            server.process.send_signal(signal.SIGTERM)
            answers = [each.result() for each in asked]
            assert server.process.wait(60) == 1
    text = log.read_text()
    for status, body, request_id in answers:
        assert status >= 400 and "may still take effect" in body["Message"]
        assert f"request {request_id}: ExtendTransaction: The server shut down before the call ended" in text
    assert "is unfinished; it may still take effect" in text
    assert "Traceback" not in text


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = (NO_RECOVERY, "--set=limits.requests=1")
    with served(tmp_path / "catalog.db", *options, log=log) as server, ThreadPoolExecutor(1) as threads:
        transaction = server.ask("POST", "/StartTransaction", {})[1]["TransactionId"]
        with locked(tmp_path / "catalog.db"):
            asked = threads.submit(extend, server, transaction)
            wait_until_full(server)
            server.process.send_signal(signal.SIGTERM)
            until(lambda: _is_refused(server))
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(60) == 1
            with pytest.raises(ConnectionError):
                asked.result()
    assert "is unfinished; it may still take effect" in log.read_text()


def test_the_whole_end_fits_an_orchestrator() -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        ending = Settings(host, token=TOKEN).ending
        assert ending.drain_seconds + ending.end_seconds < ORCHESTRATOR_SECONDS - 2
    assert Settings("0.0.0.0", token=TOKEN).ending.drain_seconds > 0
    assert Settings().ending.drain_seconds == 0


def test_a_server_in_a_thread_ends_the_same_way(tmp_path: Path) -> None:
    """The process goes on, even if calls of the server hang."""
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    server = Server(manager, Settings(end_seconds=1))
    with running(server) as address, socket.create_connection(address, timeout=60) as connection:
        connection.sendall(b"POST /StartTransaction HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
        server.stop()


def test_a_server_that_is_stopped_before_it_runs_ends(tmp_path: Path) -> None:
    server = Server(TransactionManager(str(tmp_path / "catalog.db")), Settings())
    server.stop()
    server.run()
