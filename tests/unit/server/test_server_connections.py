"""Clients that open connections and send nothing do not block others, and are not logged."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sqlite3
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltalog import TransactionManager
from deltalog.server.connections import Connections, Listener
from deltalog.server.limits import Limits
from deltalog.server.serve import Server
from deltalog.server.settings import Settings
from deltalog.server.tls import Tls
from tests.support.server import running
from tests.support.server.certificates import issue

MOST = 20


@contextlib.contextmanager
def limited(tmp_path: Path, tls: bool, limits: Limits) -> Iterator[tuple[str, int]]:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    pair = issue(tmp_path, "server")
    files = Tls(pair.certificate_file, pair.key_file) if tls else None
    with running(Server(manager, Settings(limits=limits, tls=files))) as address:
        yield address


def connected(where: tuple[str, int], tls: bool) -> socket.socket:
    found = socket.create_connection(where, timeout=60)
    if not tls:
        return found
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(found)


def start(connection: socket.socket) -> bytes:
    """Make a call and read the whole response. Returns its status line."""
    connection.sendall(b"POST /StartTransaction HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}")
    return answer(connection)


def live(connection: socket.socket) -> None:
    connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert answer(connection) == b"HTTP/1.1 200"


def answer(connection: socket.socket) -> bytes:
    read = b""
    while not read.endswith(b"}"):
        piece = connection.recv(65536)
        assert piece, read
        read += piece
    return read[:12]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_strangers_who_say_nothing_keep_nobody_out(tmp_path: Path, tls: bool, caplog: pytest.LogCaptureFixture) -> None:
    with limited(tmp_path, tls, Limits(connections=MOST, header_seconds=60)) as where, contextlib.ExitStack() as held:
        for _ in range(4):
            for _ in range(2 * MOST):
                held.enter_context(socket.create_connection(where, timeout=60))
            with connected(where, tls) as connection:
                assert start(connection) == b"HTTP/1.1 200"
                assert start(connection) == b"HTTP/1.1 200"
    assert caplog.records == []


def test_a_connection_with_a_request_under_way_is_not_closed_for_others(tmp_path: Path) -> None:
    limits = Limits(connections=MOST)
    with contextlib.ExitStack() as held, limited(tmp_path, False, limits) as where, connected(where, False) as slow:
        slow.sendall(b"POST /StartTransaction HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{")
        with connected(where, False) as other:  # once this is answered, the server has read the bytes sent above
            assert start(other) == b"HTTP/1.1 200"
        for _ in range(3 * MOST):
            held.enter_context(socket.create_connection(where, timeout=60))
        with connected(where, False) as other:
            assert start(other) == b"HTTP/1.1 200"
        slow.sendall(b"}")
        assert answer(slow) == b"HTTP/1.1 200"


def test_a_handshake_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    with limited(tmp_path, True, Limits(header_seconds=0.2)) as where:
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01"):
            with socket.create_connection(where, timeout=60) as connection:
                connection.sendall(sent)
                assert connection.recv(100) == b""


def test_a_call_of_a_caller_who_has_gone_does_not_begin(tmp_path: Path) -> None:
    with limited(tmp_path, False, Limits(threads=1, slow_seconds=60)) as where:
        catalog = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
        catalog.execute("BEGIN IMMEDIATE")  # so that the first call takes until ROLLBACK
        with connected(where, False) as stays, connected(where, False) as other:
            for each in (stays, *(connected(where, False) for _ in range(5))):
                each.sendall(b"POST /StartTransaction HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}")
                live(other)  # once this is answered, the server has read the bytes sent above
                if each is not stays:
                    each.close()
            live(other)
            catalog.execute("ROLLBACK")
            assert answer(stays) == b"HTTP/1.1 200"
            assert start(other) == b"HTTP/1.1 200"
        assert catalog.execute("SELECT count(*) FROM transactions").fetchone() == (2,)
        catalog.close()


def test_one_connection_is_accepted_in_one_turn_of_the_loop() -> None:
    """A wave of connections that are accepted at once makes all others wait."""

    async def scene() -> list[int]:
        with contextlib.ExitStack() as held:
            listener = held.enter_context(Listener())
            listener.connections = Connections(100, 60)
            listener.bind(("127.0.0.1", 0))
            listener.listen(10)
            listener.setblocking(False)
            for _ in range(5):
                held.enter_context(socket.create_connection(listener.getsockname(), timeout=60))
            turns = []
            for _ in range(6):
                turns.append(0)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        held.enter_context(listener.accept()[0])
                        turns[-1] += 1
            return turns

    assert asyncio.run(scene()) == [1, 1, 1, 1, 1, 0]


def test_descriptors_are_left_for_the_catalog_and_its_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in ((1024, 512), (512, 224), (64, 16), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, soft=soft: (soft, soft))
        assert Connections(512, 1)._limit == most
