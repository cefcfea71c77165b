"""Limits the total size of request bodies in memory across all connections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

# Bodies up to this size are always accepted, so that large bodies cannot block other calls.
_SMALL_BYTES = 16 << 10


class Body:
    """Collects the bytes of one body as they arrive."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._bytes = bytearray()
        self._counted = 0

    def add(self, piece: bytes) -> bool:
        """Append bytes; returns False if this reaches the limit."""
        size = len(self._bytes) + len(piece)
        wanted = size if size > _SMALL_BYTES else 0
        if wanted and not self._bodies.take(wanted - self._counted):
            return False
        self._counted = wanted
        self._bytes += piece
        return True

    def drop(self) -> None:
        """Discard the body."""
        self._bodies.give_back(self._counted)
        self._counted = 0
        self._bytes = bytearray()

    def taken(self) -> bytearray:
        """Return the bytes and drop this object's reference to them. These bytes count towards the limit on request
        bodies until the call ends."""
        found, self._bytes = self._bytes, bytearray()
        return found


class Bodies:
    """The request bodies of all connections. Can be used on one event loop only."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._counted = 0

    @property
    def counted(self) -> int:
        """The number of bytes that currently count towards the limit."""
        return self._counted

    def limit(self, most_bytes: int) -> None:
        """Replace the limit. The new limit applies to new bodies."""
        self._most_bytes = most_bytes

    @contextlib.contextmanager
    def one(self) -> Iterator[Body]:
        """Create a body, whose bytes count towards the limit until the ``with`` block ends."""
        body = Body(self)
        try:
            yield body
        finally:
            body.drop()

    def take(self, count: int) -> bool:
        """Reserve bytes; returns False if the limit is reached."""
        if self._counted + count > self._most_bytes:
            return False
        self._counted += count
        return True

    def give_back(self, count: int) -> None:
        """Release reserved bytes."""
        self._counted -= count
