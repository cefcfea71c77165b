"""Limits the number of open connections.

At the limit, the connection that has been idle longest is closed to accept a new one; connections with a request in
progress are kept. A connection is also closed if the TLS handshake and the first byte of HTTP take too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import OrderedDict
from typing import Any

# The number of connections allowed beyond the limit while closed connections are torn down.
_LEAVING = 32
# File descriptors reserved for purposes other than connections: the catalog, stores and files.
_OTHER_DESCRIPTORS = 256


class Connection(socket.socket):
    """An accepted connection. ``transport`` is set after the TLS handshake."""

    owner: Connections | None = None
    transport: Any = None
    timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self.owner is not None:
            self.owner.closed(self)
        super().close()

    def end(self) -> None:
        """Ask the event loop to close the connection."""
        if self.transport is not None:
            self.transport.abort()
            return
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)


class Connections:
    """The open connections. ``first_byte_seconds``: the maximum time from accepting a connection to the end of its TLS
    handshake."""

    def __init__(self, limit: int, first_byte_seconds: float) -> None:
        self._limit = min(limit, _available_descriptors())
        self._first_byte_seconds = first_byte_seconds
        self._open: dict[int, Connection] = {}
        self._idle: OrderedDict[int, Connection] = OrderedDict()

    def counts(self) -> dict[str, int]:
        """The number of busy connections and of idle ones."""
        idle = len(self._idle)
        return {"busy": max(0, len(self._open) - idle), "idle": idle}

    def limit(self, most: int, first_byte_seconds: float) -> None:
        """Replace the limits; they apply to new connections."""
        self._limit = min(most, _available_descriptors())
        self._first_byte_seconds = first_byte_seconds

    def has_room(self) -> bool:
        """Whether another connection can be accepted now. When the limit on connections is reached, an idle connection
        is closed."""
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
        """Record the end of a TLS handshake; returns the number of the connection."""
        number = int(transport.get_extra_info("socket").fileno())
        connection = self._open.get(number)
        if connection is not None:
            connection.transport = transport
            _stop(connection)
        return number

    def busy(self, number: int) -> None:
        """Record that a connection is busy, because a request arrived."""
        self._idle.pop(number, None)

    def idle(self, number: int) -> None:
        """Record that a connection is idle, because the response was sent."""
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
    """A socket that accepts connections up to the limit, and one in each turn of the event loop, which calls ``accept``
    until it raises BlockingIOError. Further connections wait in the backlog. A call takes several turns, and would wait
    for a wave of connections in each of them."""

    connections: Connections
    _has_accepted = False

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            if self._has_accepted or not self.connections.has_room():
                raise BlockingIOError
            accepted, address = super().accept()
        except BlockingIOError:
            self._has_accepted = False
            raise
        self._has_accepted = True
        connection = Connection(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self.connections.opened(connection)
        return connection, address


def shortage(most: int) -> list[str]:
    """A warning if the process cannot have so many connections."""
    available = _available_descriptors()
    if most <= available:
        return []
    needed = most + _OTHER_DESCRIPTORS + _LEAVING
    return [
        f"[limits] connections is {most:,}, but the limit on open files permits this process only {available:,}: raise "
        f"that limit to {needed:,} (ulimit -n, or LimitNOFILE of systemd), or lower connections."
    ]


def _stop(connection: Connection) -> None:
    if connection.timer is not None:
        connection.timer.cancel()
        connection.timer = None


def _available_descriptors() -> int:
    """The number of file descriptors available for connections; very large if the system does not limit it."""
    try:
        import resource
    except ImportError:  # Windows
        return 1 << 30
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, soft - _OTHER_DESCRIPTORS - _LEAVING) if soft != resource.RLIM_INFINITY else 1 << 30
