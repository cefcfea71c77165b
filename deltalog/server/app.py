"""The server as an ASGI application: who may call, how much and for how long, and which call it is.

Calls run in threads, since the manager waits for its coordinator and its stores. A call that takes too long is answered
with a time-out and goes on: what it does may still take effect, as that answer says.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import logging
import urllib.parse
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from deltalog.errors import DeltaLogError, OperationTimeoutError
from deltalog.server import delta
from deltalog.server.answers import DENIED, INTERNAL, Answer, exception_of, refusal
from deltalog.server.fields import Fields
from deltalog.server.lakeformation import OPERATIONS
from deltalog.transactions.manager import TransactionManager

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Work = Callable[[TransactionManager, Fields], Mapping[str, Any]]

LEAST_TOKEN = 16
# So many times the limit is read of a body that is too large, so that its sender comes to reading the refusal.
_DRAINED = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """``requests``: how many may be under way or wait for one of the ``threads``; more are refused.
    ``header_seconds``: from the first byte, or the connection, to the end of the headers."""

    header_bytes: int = 32 << 10
    header_seconds: float = 10
    body_bytes: int = 4 << 20
    body_seconds: float = 30
    request_seconds: float = 60
    threads: int = 16
    requests: int = 64


class Refused(Exception):
    """A request that no operation sees."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.error)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Route:
    run: Work
    explain: Callable[[DeltaLogError], Answer]


class App:
    """See the module. ``token``: what callers must show, or None; ``hosts``: the names under which it may be called,
    or None for any, so that a page in a browser cannot reach it under a name of its own."""

    def __init__(
        self,
        manager: TransactionManager,
        limits: Limits | None = None,
        *,
        token: str | None = None,
        hosts: frozenset[str] | None = None,
    ) -> None:
        self._manager = manager
        self._limits = limits or Limits()
        self._token = None if token is None else token.encode()
        self._hosts = hosts
        self._threads = ThreadPoolExecutor(self._limits.threads, thread_name_prefix="deltalog-server")
        self._under_way = 0

    def close(self) -> None:
        """Take no more calls; those that have begun are ended."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only http is served, not {scope['type']}")
        request_id = str(uuid.uuid4())
        try:
            answer = await self._answer(scope, receive, request_id)
        except Refused as refused:
            answer = refused.answer
        await _send(send, answer, request_id)

    async def _answer(self, scope: Mapping[str, Any], receive: Receive, request_id: str) -> Answer:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._limits.header_bytes:
            raise Refused(refusal(431, "RequestHeaderFieldsTooLargeException", "The headers are too large."))
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self._check_origin(headers)
        route = _route(scope["method"], scope["raw_path"].decode("latin-1"))
        if route is None:
            return Answer(200, {"status": "ok"})
        self._check_token(headers)
        body = await self._body(headers, receive)
        if self._under_way >= self._limits.requests:
            return refusal(503, "ServiceUnavailableException", "Too many requests are under way.", retry_after="1")
        return await self._run(route, functools.partial(_call, self._manager, route, body, request_id))

    # ------------------------------------------------------------------------------------------ who may call

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Refuse what a browser sends on behalf of a page: a server on loopback trusts who can reach it."""
        if "origin" in headers:
            raise Refused(refusal(403, DENIED, "This server does not answer web pages."))
        if self._hosts is not None and _host_name(headers.get("host", "")) not in self._hosts:
            raise Refused(refusal(403, DENIED, f"This server is called as {' or '.join(sorted(self._hosts))}."))

    def _check_token(self, headers: Mapping[str, str]) -> None:
        if self._token is None:
            return
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        given = [shown.strip()] if scheme.lower() == "bearer" else []
        given.append(headers.get("x-amz-security-token", ""))
        if not any(hmac.compare_digest(each.encode(), self._token) for each in given):
            message = "The token is missing or wrong: send it as 'Authorization: Bearer' or as AWS session token."
            raise Refused(refusal(403, DENIED, message))

    # ----------------------------------------------------------------------------------------- what is asked

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        if int(headers.get("content-length", "0")) > _DRAINED * self._limits.body_bytes:
            raise Refused(self._too_large())
        try:
            return await asyncio.wait_for(self._received(receive), self._limits.body_seconds)
        except asyncio.TimeoutError:
            message = f"The body did not come within {self._limits.body_seconds:g} s."
            raise Refused(refusal(408, "RequestTimeoutException", message, connection="close")) from None

    async def _received(self, receive: Receive) -> bytes:
        body, size, more = bytearray(), 0, True
        while more and size <= _DRAINED * self._limits.body_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(refusal(400, "RequestTimeoutException", "The caller went away.", connection="close"))
            piece, more = message.get("body", b""), message.get("more_body", False)
            size += len(piece)
            if size <= self._limits.body_bytes:
                body += piece
        if size > self._limits.body_bytes:
            raise Refused(self._too_large())
        return bytes(body)

    def _too_large(self) -> Answer:
        message = f"The body is larger than {self._limits.body_bytes} bytes."
        return refusal(413, "RequestEntityTooLargeException", message, connection="close")

    # -------------------------------------------------------------------------------------------- the work

    async def _run(self, route: Route, work: Callable[[], Answer]) -> Answer:
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        self._under_way += 1
        future.add_done_callback(self._is_done)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._limits.request_seconds)
        except asyncio.TimeoutError:
            message = f"Not done within {self._limits.request_seconds:g} s; it may still take effect."
            return route.explain(OperationTimeoutError(message))

    def _is_done(self, future: Any) -> None:
        self._under_way -= 1


def _host_name(host: str) -> str | None:
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _route(method: str, raw_path: str) -> Route | None:
    """The call that is meant; None for the question whether the server is there. Raises Refused."""
    parts = [urllib.parse.unquote(part) for part in raw_path.split("/")[1:]]
    if parts == ["health"] and method == "GET":
        return None
    operation = OPERATIONS.get(parts[0]) if len(parts) == 1 and method == "POST" else None
    if operation is not None:
        return Route(operation.run, functools.partial(exception_of, listed=operation.errors))
    if tuple(parts[:3]) == delta.PREFIX and len(parts) in (4, 5):
        call = delta.CALLS.get((method, "".join(parts[4:])))
        if call is not None:
            return Route(functools.partial(_named, call, parts[3]), delta.answer_of)
    raise Refused(refusal(404, "UnknownOperationException", f"This server has no {method} {raw_path[:200]}."))


def _named(
    call: Callable[[TransactionManager, str, Fields], Mapping[str, Any]],
    name: str,
    manager: TransactionManager,
    given: Fields,
) -> Mapping[str, Any]:
    return call(manager, name, given)


def _call(manager: TransactionManager, route: Route, body: bytes, request_id: str) -> Answer:
    """Runs in a thread, and raises nothing."""
    try:
        decoded = msgspec.json.decode(body) if body else {}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return refusal(400, "SerializationException", "The body is not JSON.")
    try:
        return Answer(200, route.run(manager, Fields(decoded)))
    except DeltaLogError as error:
        log.info("request %s: %s: %s", request_id, type(error).__name__, error)
        return route.explain(error)
    except Exception:
        log.exception("request %s failed", request_id)
        return refusal(500, INTERNAL, f"The server failed; its log has more under request {request_id}.")


async def _send(send: Send, answer: Answer, request_id: str) -> None:
    body = msgspec.json.encode(answer.body)
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "cache-control": "no-store",
        "x-amzn-requestid": request_id,
        **answer.headers,
        **({} if answer.error is None else {"x-amzn-errortype": answer.error}),
    }
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
