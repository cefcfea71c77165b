"""Limits the number of the server's connections, however many clients connect.

Beyond the limit the connection that has been idle longest is closed to accept a new one; a connection with a request in
progress is never closed for that. A connection that has not sent its first byte of HTTP in time, the TLS handshake
included, is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import OrderedDict
from typing import Any

# How many connections may exceed the limit while closed ones are being torn down.
_LEAVING = 32
# Of the descriptors that a process may open, for the catalog, stores and files.
_OTHER_DESCRIPTORS = 256


class Connection(socket.socket):
    """An accepted connection. ``transport`` is set after its handshake."""

    owner: Connections | None = None
    transport: Any = None
    timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self.owner is not None:
            self.owner.closed(self)
        super().close()

    def end(self) -> None:
        """Have the event loop close it."""
        if self.transport is not None:
            self.transport.abort()
            return
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)


class Connections:
    """See the module. ``first_byte_seconds``: from its acceptance to the end of the handshake."""

    def __init__(self, limit: int, first_byte_seconds: float) -> None:
        self._limit = min(limit, _available_descriptors())
        self._first_byte_seconds = first_byte_seconds
        self._open: dict[int, Connection] = {}
        self._idle: OrderedDict[int, Connection] = OrderedDict()

    def has_room(self) -> bool:
        """Whether one more can be accepted now. At the limit, an idle connection is closed."""
        if len(self._open) < self._limit:
            return True
        if self._idle:
            self._idle.popitem(last=False)[1].end()
        return len(self._open) < self._limit + _LEAVING

    def opened(self, connection: Connection) -> None:
        connection.owner = self
        self._open[connection.fileno()] = self._idle[connection.fileno()] = connection
        loop = asyncio.get_running_loop()
        connection.timer = loop.call_later(self._first_byte_seconds, connection.end)

    def made(self, transport: Any) -> int:
        """The handshake has ended; returns the number of the connection."""
        number = int(transport.get_extra_info("socket").fileno())
        connection = self._open.get(number)
        if connection is not None:
            connection.transport = transport
            _stop(connection)
        return number

    def busy(self, number: int) -> None:
        """A request has arrived."""
        self._idle.pop(number, None)

    def idle(self, number: int) -> None:
        """Its request is answered."""
        if number in self._open:
            self._idle[number] = self._open[number]
            self._idle.move_to_end(number)

    def closed(self, connection: Connection) -> None:
        number = connection.fileno()
        _stop(connection)
        if self._open.get(number) is connection:
            del self._open[number]
            self._idle.pop(number, None)


class Listener(socket.socket):
    """A socket that accepts connections up to the limit; others wait in the system's queue."""

    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.connections.has_room():
            raise BlockingIOError
        accepted, address = super().accept()
        connection = Connection(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self.connections.opened(connection)
        return connection, address


def _stop(connection: Connection) -> None:
    if connection.timer is not None:
        connection.timer.cancel()
        connection.timer = None


def _available_descriptors() -> int:
    """The number of file descriptors available for connections, if the system reports it."""
    try:
        import resource
    except ImportError:  # as on Windows
        return 1 << 30
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, soft - _OTHER_DESCRIPTORS - _LEAVING) if soft != resource.RLIM_INFINITY else 1 << 30
