"""Sends HTTP requests once, through urllib3, over keep-alive connections, with a time limit on every wait.

Adds features that urllib3 lacks: a maximum idle time, a time limit for a whole request (urllib3's limit restarts with
each byte), and cancellation by another thread.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import importlib.util
import io
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from deltalog.protocol import limits as caps
from deltalog.storage.progress import Pace

# Services close connections that have been idle for five seconds or more. A request that is sent while the service
# closes the connection is lost.
IDLE_SECONDS = 4.0
# A request that must not be sent twice is sent only over a connection that was used within this time, because services
# do not close such a connection.
JUST_USED_SECONDS = 1.0
MOST_IDLE = 64
# The maximum size of a response in bytes. Requested ranges, and log files that are read as a whole, are smaller than
# this.
_MOST_BYTES = 2 << 30
_OBJECT = re.compile(r"\b_(?:Kept|Pool|KeptTls|TlsPool)\(host=[^)]*\): ")


class NotConnectedError(Exception):
    """No connection could be established, so nothing was sent."""


class NoAnswerError(Exception):
    """The request was sent, at least in part, but no complete response arrived.

    ``was_kept``: whether the connection was reused and no byte of a response arrived.
    """

    def __init__(self, message: str, *, was_kept: bool = False) -> None:
        super().__init__(message)
        self.was_kept = was_kept


class LargeAnswerError(NoAnswerError):
    """The response is larger than the limit for it."""


@dataclass(frozen=True)
class Origin:
    """A server: its scheme, host and port, and for TLS the file that contains the trusted certificate authorities."""

    scheme: str
    host: str
    port: int
    ca_file: str | None = None

    @property
    def address(self) -> str:
        """The value of the ``Host`` header: the host, and the port unless it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True)
class Limits:
    """Time limits in seconds: to connect (``connect``), between two reads of a response (``read``), and from the start
    of a request to the start of its response (``whole``). ``most_bytes``: the maximum size of a response."""

    connect: float = 60
    read: float = 60
    whole: float = 60
    most_bytes: int | None = None


@dataclass(frozen=True)
class Answer:
    """A response: status, headers (keyed by lower-case name), and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Stop:
    """Cancels the running and all later requests of one caller."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._event = threading.Event()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def wait(self, seconds: float) -> None:
        self._event.wait(seconds)

    def check(self) -> None:
        if self.is_set:
            raise NotConnectedError("the caller has stopped")

    def watch(self, connection: socket.socket) -> None:
        with self._lock:
            self.check()
            self._sockets.add(connection)

    def unwatch(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(connection)


def _clock_s() -> float:
    return time.monotonic()


class _Exchange:
    """The state of one HTTP request and its response."""

    def __init__(self, limits: Limits, most_idle_s: float, stop: Stop) -> None:
        self.most_idle_s = most_idle_s
        self.connection: socket.socket | None = None  # once it is connected
        self.was_kept = False
        self.has_received = False
        self.is_too_large = False
        self._most_bytes = limits.most_bytes
        self._read_s = limits.read
        self._whole_s = limits.whole
        self._pace = Pace(limits.whole, _clock_s)
        self._is_answered = False
        self._size_bytes = 0
        self._stop = stop

    def uses(self, connection: socket.socket, was_kept: bool) -> None:
        self.connection, self.was_kept = connection, was_kept
        self._stop.watch(connection)

    def end(self) -> None:
        if self.connection is not None:
            self._stop.unwatch(self.connection)

    def answer_begins(self) -> None:
        # From here on, the time limit is extended as bytes arrive.
        self._pace, self._is_answered = Pace(self._whole_s, _clock_s), True

    def arrived(self, size_bytes: int) -> None:
        self.has_received = self.has_received or size_bytes > 0
        self._size_bytes += size_bytes
        most = self._most_bytes or max(_MOST_BYTES, caps.MAX_COMMIT_BYTES, caps.MAX_VECTOR_BYTES)
        if self._size_bytes > most:
            self.is_too_large = True
            raise OSError(f"{self._size_bytes} bytes arrived, and more follow")
        if self._is_answered:
            self._pace.arrived(size_bytes)

    def seconds(self, most: float | None = None) -> float:
        """The number of seconds left, at most ``most``. Raises TimeoutError."""
        most = self._read_s if most is None else most
        return min(self._pace.left_s(), most)


class _Current(threading.local):
    exchange: _Exchange


_current = _Current()


class _Received(io.RawIOBase):
    """A raw stream over a socket; it applies the time limits of the current exchange to every read."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # ``makefile`` keeps the socket open even if http.client closes the connection, as it does if the server sent
        # "Connection: close".
        self._pieces = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_current.exchange.seconds())
        size = self._pieces.readinto(buffer) or 0
        _current.exchange.arrived(size)
        return size

    def close(self) -> None:
        self._pieces.close()
        super().close()


class _Source:
    """Stands in for the socket from which http.client reads a response."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Received(self._connection), 1 << 16)


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(cast(socket.socket, _Source(sock)), *arguments, **named)

    def begin(self) -> None:
        super().begin()
        _current.exchange.answer_begins()


class _Kept(HTTPConnection):
    """A connection that records the time of its last use, and applies the time limits of the current exchange."""

    response_class = _Response
    _used_s: float | None = None

    @property
    def is_connected(self) -> bool:
        is_recent = self._used_s is None or time.monotonic() - self._used_s <= _current.exchange.most_idle_s
        return is_recent and super().is_connected

    def connect(self) -> None:
        super().connect()
        self._begin(was_kept=False)

    def request(self, *arguments: Any, **named: Any) -> None:
        if self.sock is not None and self.sock is not _current.exchange.connection:
            self._begin(was_kept=True)
        super().request(*arguments, **named)

    def getresponse(self) -> Any:
        answer = super().getresponse()
        self._used_s = time.monotonic()
        return answer

    def close(self) -> None:
        self._used_s = None
        super().close()

    def _begin(self, was_kept: bool) -> None:
        _current.exchange.uses(self.sock, was_kept)
        # The time limit for sending, which urllib3 copies from ``timeout`` to the socket.
        self.timeout = _current.exchange.seconds(float("inf"))
        self.sock.settimeout(self.timeout)


class _KeptTls(_Kept, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls: Any = _Kept


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls: Any = _KeptTls


class Connections:
    """A pool of connections to one server. Thread-safe; a forked child process starts with an empty pool."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._begin_process()

    def _begin_process(self) -> None:
        self._process = os.getpid()
        where = self._origin
        self._pool: urllib3.HTTPConnectionPool
        if where.scheme == "https":
            self._pool = _TlsPool(where.host, where.port, maxsize=MOST_IDLE, ssl_context=_tls(where.ca_file))
        else:
            self._pool = _Pool(where.host, where.port, maxsize=MOST_IDLE)

    def exchange(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        limits: Limits,
        *,
        most_idle_s: float = IDLE_SECONDS,
        stop: Stop | None = None,
    ) -> Answer:
        """Send a request once and return the response. A connection is reused if it has been idle for at most
        ``most_idle_s`` seconds. Raises NotConnectedError and NoAnswerError."""
        if self._process != os.getpid():
            # Closes only the child process's copies of the sockets; the parent's connections stay open.
            self._pool.close()
            self._begin_process()
        stop = stop or Stop()
        stop.check()
        exchange = _current.exchange = _Exchange(limits, most_idle_s, stop)
        try:
            response = self._pool.urlopen(
                method,
                target,
                body or (b"" if method == "PUT" else None),
                {name.title(): value for name, value in headers.items()},
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=min(limits.connect, limits.whole), read=limits.read),
                decode_content=False,
            )
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            raise self._failure(exchange, error) from error
        finally:
            exchange.end()
        found = {name.lower(): value for name, value in response.headers.items()}
        if method == "GET" and not found.keys() & {"content-length", "transfer-encoding"}:
            # http.client would mistake the end of a connection for the end of the headers.
            raise NoAnswerError(f"{self._origin.address} did not answer: no length of the body arrived.")
        return Answer(response.status, found, response.data)

    def _failure(self, exchange: _Exchange, error: Exception) -> NotConnectedError | NoAnswerError:
        where = self._origin
        if exchange.connection is None:
            return NotConnectedError(f"Could not connect to {where.scheme}://{where.address}: {_text_of(error)}.")
        reason = f"{type(error).__name__}: {_text_of(error)}" if str(error) else type(error).__name__
        if exchange.is_too_large:
            return LargeAnswerError(f"{where.address} sent more than a response can have: {reason}.")
        was_kept = exchange.was_kept and not exchange.has_received
        return NoAnswerError(f"{where.address} did not answer: {reason}.", was_kept=was_kept)


def _text_of(error: Exception) -> str:
    """The message of an error, without the connection or the pool with which urllib3 begins it."""
    return _OBJECT.sub("", str(error))


@functools.lru_cache(maxsize=4)
def _tls(ca_file: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file or _own_authorities())


def _own_authorities() -> str | None:
    """The CA file that AWS clients use: certifi's if it is installed, else botocore's. None if neither package is
    installed; the CA certificates of the system are then used."""
    for package, file in (("certifi", "cacert.pem"), ("botocore", "cacert.pem")):
        found = importlib.util.find_spec(package)
        for folder in (found.submodule_search_locations or []) if found else []:
            path = Path(folder) / file
            if path.exists():
                return str(path)
    return None


_connections: dict[Origin, Connections] = {}


def connections_to(origin: Origin) -> Connections:
    """The connections to a server, shared by all clients of this process."""
    return _connections.setdefault(origin, Connections(origin))
