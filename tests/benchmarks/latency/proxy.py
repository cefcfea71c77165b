"""A proxy that delays each request on its way to the server, and records when the request arrived and was answered.

The number of rounds is the number of requests that an operation has to wait for one after the other. A request that
depends on an earlier response can only begin after it. Therefore ``rounds``, the largest number of requests of which no
two overlap, counts the consecutive round trips. Concurrent requests overlap, because each takes at least the delay.
Concurrent requests therefore count as one round, unless the client takes longer than the delay to send them; with a
long delay the count does not depend on the speed of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass

_LIMIT_BYTES = 1 << 20
_CONNECTION_ERRORS = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


@dataclass
class Exchange:
    """A request and its answer. ``kind``: one of GET, HEAD, LIST, PUT and DELETE; POST for any other S3 request;
    DynamoDB for a request to DynamoDB.

    ``begun_s``: when the first bytes of the request arrived; ``ended_s``: when its answer was passed on to the client
    (None: not yet). ``begun_s`` and ``ended_s`` are times of time.monotonic, which all processes of a machine share.
    """

    kind: str
    key: str
    begun_s: float
    ended_s: float | None = None
    is_first: bool = False  # of its connection


def rounds(exchanges: Iterable[Exchange]) -> int:
    """The largest possible number of answered requests that do not overlap each other."""
    count, free_s = 0, float("-inf")
    for ended_s, begun_s in sorted((e.ended_s, e.begun_s) for e in exchanges if e.ended_s is not None):
        if begun_s >= free_s:
            count += 1
            free_s = ended_s
    return count


def by_kind(exchanges: Iterable[Exchange]) -> dict[str, int]:
    return dict(sorted(Counter(each.kind for each in exchanges).items()))


class DelayingProxy:
    """Listens on a free port of 127.0.0.1 and passes requests on to ``port``, each ``delay_s`` after it was received.

    A connection stays open until one side closes it; opening a connection is not delayed, but can be counted
    (``Exchange.is_first``).
    """

    def __init__(self, port: int) -> None:
        self.delay_s = 0.0
        self.exchanges: list[Exchange] = []
        self._upstream = port
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="delaying-proxy", daemon=True)
        self._thread.start()
        starting = asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_LIMIT_BYTES, backlog=256)
        self._listener = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.port = int(self._listener.sockets[0].getsockname()[1])

    def between(self, begun_s: float, ended_s: float) -> list[Exchange]:
        """The requests that arrived between the two given times."""
        return [each for each in self.exchanges if begun_s <= each.begun_s < ended_s]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._listener.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        # This task is cancelled when the proxy is closed; nothing awaits it.
        with contextlib.suppress(*_CONNECTION_ERRORS, asyncio.CancelledError):
            try:
                await self._serve(reader, writer)
            finally:
                writer.close()
                self._connections.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await _head(reader)
        if not first:
            return
        begun_s = time.monotonic()
        answers, requests = await asyncio.open_connection("127.0.0.1", self._upstream, limit=_LIMIT_BYTES)
        try:
            head, is_first = first, True
            while head:
                head, body, begun_s = await self._request(head, begun_s, reader, writer)
                exchange = Exchange(*_kind_and_key(head), begun_s, is_first=is_first)
                self.exchanges.append(exchange)
                await asyncio.sleep(self.delay_s)
                requests.write(head + body)
                await requests.drain()
                answer, is_last = await _answer(answers, exchange.kind)
                # The end of a request is recorded before its answer is passed on, so that a request that depends on the
                # answer begins later.
                exchange.ended_s = time.monotonic()
                writer.write(answer)
                await writer.drain()
                if is_last:
                    return
                head, is_first = await _head(reader), False
                begun_s = time.monotonic()
        finally:
            requests.close()

    async def _request(
        self, head: bytes, begun_s: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[bytes, bytes, float]:
        """The header and body of a request, and when it began. If a client first asks whether it may send the body
        (``Expect: 100-continue``), the question is a separate exchange, which is delayed once more."""
        if re.search(rb"^expect: *100-continue\r$", head, re.I | re.M):
            asked = Exchange("EXPECT", _kind_and_key(head)[1], begun_s)
            self.exchanges.append(asked)
            await asyncio.sleep(self.delay_s)
            asked.ended_s = begun_s = time.monotonic()
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await writer.drain()
            head = re.sub(rb"^expect:[^\r]*\r\n", b"", head, flags=re.I | re.M)
        return head, await _body(reader, head), begun_s


async def _head(reader: asyncio.StreamReader) -> bytes:
    """The header of a message, up to the empty line; empty if the other side has closed the connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return b""


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if _field(head, b"transfer-encoding").lower() == b"chunked":
        return b"".join([piece async for piece in _chunks(reader)])
    length = _field(head, b"content-length")
    return await reader.readexactly(int(length)) if length else b""


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readuntil(b"\r\n")
        length = int(line.split(b";")[0], 16)
        yield line + await reader.readexactly(length + 2)
        if not length:
            return


async def _answer(reader: asyncio.StreamReader, kind: str) -> tuple[bytes, bool]:
    """A complete answer, and whether the server closes the connection after it."""
    head = await _head(reader)
    while head.startswith(b"HTTP/1.1 1"):
        head = await _head(reader)
    status = head.split(b" ", 2)[1:2]
    is_last = _field(head, b"connection").lower() == b"close"
    if kind == "HEAD" or status in ([b"204"], [b"304"]):
        return head, is_last
    if not _field(head, b"transfer-encoding") and not _field(head, b"content-length"):
        return head + await reader.read(), True
    return head + await _body(reader, head), is_last


def _field(head: bytes, name: bytes) -> bytes:
    found = re.search(rb"^" + name + rb": *([^\r]*)\r$", head, re.I | re.M)
    return found[1].strip() if found else b""


def _kind_and_key(head: bytes) -> tuple[str, str]:
    """The kind and the key of a request; for a listing, the key is its prefix and start key."""
    method, target = head.split(b"\r\n", 1)[0].decode("latin1").split(" ")[:2]
    operation = _field(head, b"x-amz-target").decode("latin1")
    if operation:
        return "DynamoDB", operation.rpartition(".")[2]
    path, _, query = target.partition("?")
    fields = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    if method == "GET" and ("list-type" in fields or "/" not in path.strip("/")):
        return "LIST", f"{fields.get('prefix', '')} after {fields.get('start-after', '')!r}"
    return method, urllib.parse.unquote(path)


def chain(exchanges: Sequence[Exchange]) -> Iterator[Exchange]:
    """One chain with the largest possible number of requests that do not overlap in time; it shows where an operation
    spent its time."""
    free_s = float("-inf")
    for each in sorted((e for e in exchanges if e.ended_s is not None), key=lambda e: e.ended_s or 0.0):
        if each.begun_s >= free_s:
            yield each
            free_s = each.ended_s or 0.0
