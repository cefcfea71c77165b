"""Limits the bytes of all bodies that the server holds, however many connections send some."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

# Bodies up to this size are always accepted, so that large ones keep no other call out.
_SMALL_BYTES = 16 << 10


class Body:
    """The bytes of one body, as they come."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._bytes = bytearray()
        self._counted = 0

    def add(self, piece: bytes) -> bool:
        """Keep some more bytes; False if there is no room for them."""
        size = len(self._bytes) + len(piece)
        wanted = size if size > _SMALL_BYTES else 0
        if wanted and not self._bodies.take(wanted - self._counted):
            return False
        self._counted = wanted
        self._bytes += piece
        return True

    def drop(self) -> None:
        """Keep none of it any longer."""
        self._bodies.give_back(self._counted)
        self._counted = 0
        self._bytes = bytearray()

    def taken(self) -> bytearray:
        """The bytes, which are no longer kept here; they count until the call is over."""
        found, self._bytes = self._bytes, bytearray()
        return found


class Bodies:
    """See the module. For one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._counted = 0

    @contextlib.contextmanager
    def one(self) -> Iterator[Body]:
        """A body; its bytes count until the block ends."""
        body = Body(self)
        try:
            yield body
        finally:
            body.drop()

    def take(self, count: int) -> bool:
        """Count some more bytes, if there is room for them."""
        if self._counted + count > self._most_bytes:
            return False
        self._counted += count
        return True

    def give_back(self, count: int) -> None:
        """Count some bytes no longer."""
        self._counted -= count
