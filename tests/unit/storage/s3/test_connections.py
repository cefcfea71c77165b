"""Connections are reused, requests are sent only once, and every wait has a time limit."""

from __future__ import annotations

import contextlib
import datetime
import multiprocessing
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from deltalog.storage.s3.connections import (
    Connections,
    Limits,
    NoAnswerError,
    NotConnectedError,
    Origin,
    Stop,
)
from tests.support.s3 import free_port

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SOON = Limits(5, 0.2, 0.5)


class Service:
    """Answers each request with ``serve``, which receives the connection and the request's headers. Counts both."""

    def __init__(self, serve: Callable[[socket.socket, bytes], object]) -> None:
        self.heads: list[bytes] = []
        self.opened: list[socket.socket] = []
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.opened.append(connection)
                thread = threading.Thread(target=self._work, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _work(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    if not (more := connection.recv(1)):
                        return
                    head += more
                self.heads.append(head)
                self._serve(connection, head)

    def close(self) -> None:
        for each in [*self.opened, self._listener]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)


@contextlib.contextmanager
def service(serve: Callable[[socket.socket, bytes], object]) -> Iterator[tuple[Service, Connections]]:
    made = Service(serve)
    try:
        yield made, Connections(Origin("http", "127.0.0.1", made.port))
    finally:
        made.close()


def get(connections: Connections, target: str = "/", limits: Limits = SOON, **more: object) -> bytes:
    return connections.exchange("GET", target, {"host": "h"}, b"", limits, **more).body  # type: ignore[arg-type]


def ok(connection: socket.socket, head: bytes) -> None:
    connection.sendall(OK)


def test_a_connection_is_used_again() -> None:
    with service(ok) as (made, connections):
        assert [get(connections) for _ in range(5)] == [b"ok"] * 5
        assert (len(made.heads), len(made.opened)) == (5, 1)
        get(connections, most_idle_s=-1)
        assert len(made.opened) == 2


def test_a_connection_that_ends_is_not_used_again() -> None:
    def once(connection: socket.socket, head: bytes) -> None:
        connection.sendall(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        connection.shutdown(socket.SHUT_RDWR)

    with service(once) as (made, connections):
        assert [get(connections), get(connections)] == [b"ok", b"ok"]
        assert len(made.opened) == 2


def test_a_kept_connection_that_was_closed_is_noticed_before_it_is_used() -> None:
    with service(ok) as (made, connections):
        get(connections)
        made.opened[0].shutdown(socket.SHUT_RDWR)
        time.sleep(0.1)  # wait until the connection's EOF has arrived; otherwise the request below would fail
        assert get(connections) == b"ok"
        assert (len(made.heads), len(made.opened)) == (2, 2)


def test_a_request_that_a_kept_connection_lost_is_told_from_others() -> None:
    def second_is_lost(connection: socket.socket, head: bytes) -> None:
        if b"/lost" in head:
            connection.shutdown(socket.SHUT_RDWR)
        elif b"/half" in head:
            connection.sendall(OK[:20])
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(OK)

    with service(second_is_lost) as (made, connections):
        for target, kept in (("/lost", True), ("/half", False)):
            get(connections)
            with pytest.raises(NoAnswerError) as caught:
                get(connections, target)
            assert caught.value.was_kept == kept
        with pytest.raises(NoAnswerError) as caught:
            get(connections, "/lost")
        assert not caught.value.was_kept
        assert len(made.heads) == 5  # nothing was sent twice


def headers_cut_short(connection: socket.socket, head: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nServer: it")
    connection.shutdown(socket.SHUT_RDWR)


def drip(connection: socket.socket, head: bytes) -> None:
    for byte in OK * 100:
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


def stand_still(connection: socket.socket, head: bytes) -> None:
    connection.sendall(OK[:-1])
    time.sleep(2)


def cut_short(connection: socket.socket, head: bytes) -> None:
    connection.sendall(OK[:-1])
    connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "serve",
    [
        lambda connection, head: time.sleep(2),
        drip,
        cut_short,
        headers_cut_short,
        stand_still,
        lambda connection, head: connection.sendall(b"no HTTP\r\n\r\n"),
        lambda connection, head: connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok"),
    ],
    ids=["silent", "byte by byte", "cut short", "headers cut short", "stands still", "no HTTP", "half a chunk"],
)
def test_what_is_no_whole_answer_is_an_error_in_time(serve: Callable[[socket.socket, bytes], object]) -> None:
    with service(serve) as (made, connections):
        with pytest.raises(NoAnswerError, match=r"127\.0\.0\.1:\d+ did not answer"):
            get(connections)
        assert len(made.heads) == 1


def test_a_server_that_takes_no_body_is_not_waited_for_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        connections = Connections(Origin("http", "127.0.0.1", deaf.getsockname()[1]))
        with pytest.raises(NoAnswerError):
            connections.exchange("PUT", "/", {"host": "h"}, bytes(50_000_000), SOON)


def test_no_connection_is_told_from_no_answer() -> None:
    with pytest.raises(NotConnectedError, match="Could not connect to http://127"):
        get(Connections(Origin("http", "127.0.0.1", free_port())))
    with service(ok) as (made, _), pytest.raises(NotConnectedError):
        get(Connections(Origin("https", "127.0.0.1", made.port)))
    assert made.heads == []


def test_the_certificate_of_a_server_is_checked(tmp_path_factory: pytest.TempPathFactory) -> None:
    certificate, key = _self_signed()
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(certificate)
    (folder / "key.pem").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            for _ in range(2):
                with contextlib.suppress(OSError):
                    connection = context.wrap_socket(listener.accept()[0], server_side=True)
                    for _ in range(2):
                        connection.recv(10_000)
                        connection.sendall(OK)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(NotConnectedError, match="CERTIFICATE_VERIFY_FAILED"):
            get(Connections(Origin("https", "localhost", port)))
        trusting = Connections(Origin("https", "localhost", port, str(folder / "cert.pem")))
        assert [get(trusting), get(trusting)] == [b"ok", b"ok"]
        thread.join(10)


def _self_signed() -> tuple[bytes, bytes]:
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb"])
def test_a_header_cannot_become_two(value: str) -> None:
    with service(ok) as (made, connections):
        with pytest.raises(ValueError, match="Invalid header value"):
            connections.exchange("GET", "/", {"host": value}, b"", SOON)
        assert made.heads == []


def test_a_stop_ends_requests_under_way_and_those_that_would_follow() -> None:
    reached, stop = threading.Event(), Stop()
    errors: list[BaseException] = []

    def hold(connection: socket.socket, head: bytes) -> None:
        reached.set()

    def ask() -> None:
        try:
            get(connections, limits=Limits(60, 60, 60), stop=stop)
        except Exception as error:
            errors.append(error)

    with service(hold) as (made, connections):
        thread = threading.Thread(target=ask)
        thread.start()
        assert reached.wait(10)
        stop.set()
        thread.join(10)
        assert [type(error) for error in errors] == [NoAnswerError]
        with pytest.raises(NotConnectedError, match="stopped"):
            get(connections, stop=stop)
        assert len(made.heads) == 1


def test_a_forked_child_makes_its_own_connections() -> None:
    with service(ok) as (made, connections):
        get(connections)
        context = multiprocessing.get_context("fork")
        answers = context.Queue()
        child = context.Process(target=lambda: answers.put(get(connections)))
        child.start()
        assert answers.get(timeout=30) == b"ok"
        child.join(30)
        assert len(made.opened) == 2
        assert get(connections) == b"ok"
        assert (len(made.heads), len(made.opened)) == (3, 2)  # the parent's connection is still open and was used again
