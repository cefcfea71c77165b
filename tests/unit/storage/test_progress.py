"""Services that never finish: a listing that repeats itself, or a body that arrives very slowly or does not end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deltalog.errors import StoreError
from deltalog.protocol import limits
from deltalog.storage.progress import MOST_EMPTY_PAGES, SLOWEST_BYTES_PER_SECOND, Pace, Pages
from deltalog.storage.s3 import connections
from deltalog.storage.s3.connections import Connections, Limits, NoAnswerError, Origin
from deltalog.storage.s3.store import S3Store


def test_pages_that_go_on() -> None:
    pages = Pages("there")
    for number in range(3 * MOST_EMPTY_PAGES):
        assert pages.following(f"t{number}", [f"a{number}"]) == f"t{number}"
    for number in range(MOST_EMPTY_PAGES):
        pages.following(f"e{number}", [])
    pages.begin_again()
    pages.following("t1", ["b"])


@pytest.mark.parametrize("token", [None, "", "first", 5])
def test_a_page_without_a_token_of_its_own(token: object) -> None:
    pages = Pages("there")
    pages.following("first", ["a"])
    with pytest.raises(ValueError, match="there: "):
        pages.following(token, ["b"])


def test_pages_that_repeat_their_names_or_are_empty_for_ever() -> None:
    pages = Pages("there")
    pages.following("1", ["a", "b"])
    with pytest.raises(ValueError, match="repeats itself"):
        pages.following("2", ["a", "b"])
    pages = Pages("there")
    with pytest.raises(ValueError, match="has no end"):
        for number in range(MOST_EMPTY_PAGES + 1):
            pages.following(str(number), [])


def test_the_time_grows_with_what_arrives() -> None:
    now = [0.0]
    pace = Pace(60, lambda: now[0])
    now[0] = 59
    assert pace.left_s() == 1
    pace.arrived(10 * SLOWEST_BYTES_PER_SECOND)
    assert pace.left_s() == 11
    now[0] = 71
    with pytest.raises(TimeoutError):
        pace.left_s()


# -------------------------------------------------------------------------------------------- with a real connection


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that answers the requests of each connection with ``answer``, until it is closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while connection.recv(1 << 16):
                    answer(connection)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def get(port: int) -> Any:
    return Connections(Origin("http", "127.0.0.1", port)).exchange("GET", "/", {"host": "x"}, b"", Limits(5, 5, 60))


def test_a_body_that_trickles(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def clock_s() -> float:
        now[0] += 5
        return now[0]

    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            connection.sendall(b"x")

    monkeypatch.setattr(connections, "_clock_s", clock_s)
    monkeypatch.setattr("deltalog.storage.progress.SLOWEST_BYTES_PER_SECOND", 1 << 40)
    with server(trickle) as port, pytest.raises(NoAnswerError, match="timed out"):
        get(port)


def test_a_body_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")

    for owner, name in ((connections, "_MOST_BYTES"), (limits, "MAX_COMMIT_BYTES"), (limits, "MAX_VECTOR_BYTES")):
        monkeypatch.setattr(owner, name, 1 << 20)
    with server(flood) as port, pytest.raises(NoAnswerError, match="bytes arrived, and more follow"):
        get(port)


def test_a_listing_that_repeats_its_token() -> None:
    pytest.importorskip("s3fs")
    page = (
        b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>"
        b"<Contents><Key>table/_delta_log/00000000000000000000.json</Key><Size>1</Size>"
        b"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
    )

    def repeat(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page) + page)

    with server(repeat) as port:
        options: dict[str, Any] = {
            "key": "a", "secret": "b", "endpoint_url": f"http://127.0.0.1:{port}",
            "client_kwargs": {"region_name": "us-east-1"},
        }  # fmt: skip
        store = S3Store("s3://bucket/table", **options)
        calls: list[Callable[[], Any]] = [
            lambda: store.list_from("_delta_log"),
            lambda: list(store.walk(lambda path: True)),
            lambda: list(store.walk_parts(lambda path: True)),
        ]
        for call in calls:
            with pytest.raises(StoreError, match="the listing has no end"):
                call()
