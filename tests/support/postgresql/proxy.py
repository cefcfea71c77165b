"""A proxy between deltalog and PostgreSQL that parses the protocol's messages and cuts connections between them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """A message of the protocol. ``kind``: its letter; ``text``: the SQL of a Parse or Query message."""

    is_from_client: bool
    kind: str
    data: bytes

    @property
    def text(self) -> str:
        if self.kind == "P":
            return self.data[5:].split(b"\0")[1].decode(errors="replace")
        return self.data[5:-1].decode(errors="replace") if self.kind == "Q" else ""

    @property
    def is_commit(self) -> bool:
        return self.is_from_client and self.text == "COMMIT"


class Cut(Exception):
    """Raised by a rule: close both connections, without passing the message on."""


Rule = Callable[[Message], None]


def pass_on(message: Message) -> None:
    """The rule that passes everything on."""


class Proxy:
    """Connections through the proxy follow ``rule``, which is called with every message before it is passed on.
    ``messages``: the messages since the last ``clear``."""

    def __init__(self, port: int) -> None:
        self.rule: Rule = pass_on
        self.messages: list[Message] = []
        self.connections = 0
        self._to = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def clear(self) -> None:
        self.messages.clear()
        self.connections = 0

    def round_trips(self) -> int:
        """How often the client waited for the server since the last ``clear``: the number of Sync and Query
        messages."""
        return sum(each.is_from_client and each.kind in "SQ" for each in self.messages)

    def cut_all(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self._listener.close()
        self.cut_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                server = socket.create_connection(self._to)
            except OSError:
                client.close()
                continue
            self._open += [client, server]
            for source, target, is_from_client in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, target, is_from_client), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_from_client: bool) -> None:
        with contextlib.suppress(OSError, Cut, EOFError):
            if is_from_client:  # the first message has no letter
                (size,) = struct.unpack("!i", first := _exactly(source, 4))
                target.sendall(first + _exactly(source, size - 4))
            while True:
                head = _exactly(source, 5)
                (size,) = struct.unpack("!i", head[1:])
                message = Message(is_from_client, chr(head[0]), head + _exactly(source, size - 4))
                self.messages.append(message)
                self.rule(message)
                target.sendall(message.data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _exactly(source: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        if not (more := source.recv(min(size - len(found), 1 << 20))):
            raise EOFError
        found += more
    return bytes(found)


@contextlib.contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
