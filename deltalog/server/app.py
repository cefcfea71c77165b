"""The server as an ASGI application: one request, from its head to its response.

The limits that hold for all requests are here, and the order in which a request is checked. The parts: ``heads``,
``routes``, ``access``, ``quotas``, ``bodies``; ``runner`` runs the calls.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import time
import urllib.parse
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

import msgspec

from deltalog.errors import DeltaLogError
from deltalog.server.access.grants import Grants
from deltalog.server.access.guard import Guard
from deltalog.server.access.principals import (
    Authenticator,
    Everyone,
    Head,
    Identified,
    NotAuthenticatedError,
    NotIdentifiedYetError,
)
from deltalog.server.answers import DENIED, INTERNAL, Answer, Document, Refused, refusal
from deltalog.server.bodies import Bodies, Body
from deltalog.server.calls import Request
from deltalog.server.exchange import CURRENT, Exchange, Observers
from deltalog.server.heads import (
    check_framing,
    check_navigation,
    check_origin,
    headers_of,
    length_of,
    with_password_as_token,
)
from deltalog.server.health import Health
from deltalog.server.lanes import GoneError
from deltalog.server.limits import Limits
from deltalog.server.logs import Refusals
from deltalog.server.observe.observation import Observation
from deltalog.server.observe.request_ids import given_id
from deltalog.server.quotas import Callers, OverQuotaError, Share
from deltalog.server.routes import SHOWN_PATH, explained, is_page, route_of, router_of, unity_route
from deltalog.server.runner import Runner
from deltalog.server.ui.layout import refused as refused_page
from deltalog.server.unity import errors as unity_errors
from deltalog.server.unity.service import Service
from deltalog.transactions.manager import TransactionManager

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# If a request body is too large, the server reads up to this multiple of the limit, so that the sender of the body can
# receive the error.
_DRAINED = 4
# A body up to this size arrives together with its headers; if it is not read, the connection can still be reused.
_READ_WITH_HEADERS = 16 << 10
_HELD_UP_SECONDS = 1
_MOST_HELD_UP = 64
_GONE = refusal(
    400,
    "RequestTimeoutException",
    "The caller disconnected before the call began: it has no effect.",
    connection="close",
)
_TOO_MANY_LARGE = refusal(
    503,
    "ServiceUnavailableException",
    "Too many large requests are in progress.",
    retry_after="1",
    connection="close",
)
_NOT_AUDITED = refusal(
    503,
    "ServiceUnavailableException",
    "The server refuses all calls, because it cannot write its audit log. Nothing was changed.",
    retry_after="5",
)


class App:
    """The ASGI application. ``authenticator``: finds the principal of each request. ``hosts``: the accepted host names,
    or None for any; checking the host name protects against DNS rebinding by web pages. ``unity``: what the calls of
    Unity Catalog's API work with; None: they are not served. ``observers``: called with each request and its response.
    ``observation``: the audit log, the metrics and the traces. ``has_pages``: whether the pages for browsers are
    served.
    """

    def __init__(
        self,
        manager: TransactionManager,
        limits: Limits | None = None,
        *,
        authenticator: Authenticator | None = None,
        hosts: frozenset[str] | None = None,
        unity: Service | None = None,
        observers: Observers = (),
        observation: Observation | None = None,
        has_pages: bool = False,
    ) -> None:
        self._unity = unity
        self._has_pages = has_pages
        self._limits = limits or Limits()
        self._authenticator = authenticator or Everyone()
        self._observation = observation or Observation()
        self._observers = (self._observation.after_response, *observers)
        self._hosts = hosts
        self._runner = Runner(manager, self._limits, self._observation)
        self.grants = Grants(manager.coordinator)
        self._catalog_name = "main" if unity is None else unity.tables.settings.catalog
        self._bodies = Bodies(self._limits.pending_bytes)
        self._callers = Callers(self._limits.quotas)
        self._held_up = 0
        self.refusals = Refusals(log)
        self._health = Health(manager)
        self._is_draining = False
        self._watch()
        self._observation.start(observers)

    def _watch(self) -> None:
        """Metrics of the limits."""
        metrics = self._observation.metrics
        if metrics is None:
            return

        def of(member: str) -> Callable[[], list[tuple[dict[str, str], float]]]:
            return lambda: [({"lanes": name}, each.counts()[member]) for name, each in self._runner.all_lanes().items()]

        for member, text in (
            ("running", "Calls that are running in threads and have not been classified as slow."),
            ("waiting", "Calls that are waiting for a thread."),
            ("slow", "Calls that have been running for longer than the limit for slow calls."),
            ("in_progress", "Calls that run or wait for a thread, and are not answered yet."),
        ):
            metrics.watch(f"deltalog_server_calls_{member}", text, of(member), "lanes")
        metrics.watch(
            "deltalog_server_threads", "Threads for calls that are not slow.", lambda: [({}, self._limits.threads)]
        )
        metrics.watch(
            "deltalog_server_calls_in_progress_limit",
            "How many calls may be in progress; further calls are refused, except those of callers who have few.",
            lambda: [({}, self._limits.requests)],
        )
        metrics.watch(
            "deltalog_server_pending_body_bytes",
            "Bytes of the bodies of requests that are being received or processed.",
            lambda: [({}, self._bodies.counted)],
        )

    def end_observation(self) -> None:
        """Write the waiting lines of the logs, because the process is about to end."""
        self._observation.flush()

    # ------------------------------------------------------------------------------- what changes while it runs

    def reload(self, limits: Limits, unity: Service | None) -> None:
        """Use other settings for requests that arrive from now on. ``unity``: None leaves it as it is. Call this on the
        event loop."""
        old, self._limits = self._limits, limits
        self._unity = unity or self._unity
        self._bodies.limit(limits.pending_bytes)
        self._runner.limit(limits)
        if old.quotas != limits.quotas:
            self._callers = Callers(limits.quotas)

    def drain(self) -> None:
        """From now on, report the server as not ready, and close each connection after its next response. Calls are
        still served.
        """
        self._is_draining = True

    def cut_off(self) -> None:
        """Answer all calls that are in progress with an error. Call this on the event loop."""
        self._is_draining = True
        self._runner.cut_off()

    @property
    def has_cut_off(self) -> bool:
        """Whether calls were answered with an error because the server ended."""
        return self._runner.has_cut_off

    def log_unfinished(self) -> int:
        """Log the calls that threads are still working on; returns their number."""
        return self._runner.log_unfinished()

    def close(self) -> None:
        """Stop accepting calls; running calls finish."""
        self._health.close()
        if self._runner.close():
            # Calls that have timed out may still commit something, and the audit log must show that.
            atexit.register(self._observation.close)
        else:
            self._observation.close()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only http is served, not {scope['type']}")
        request_id = given_id(scope["headers"]) or str(uuid.uuid4())
        caller = (scope.get("client") or (None,))[0]
        exchange = Exchange(request_id, scope["method"], scope["raw_path"].decode("latin-1"), caller)
        self._observation.begin(exchange, scope["headers"])
        token = CURRENT.set(exchange)
        try:
            await self._exchange(scope, receive, send, exchange)
        finally:
            CURRENT.reset(token)

    async def _exchange(self, scope: Mapping[str, Any], receive: Receive, send: Send, exchange: Exchange) -> None:
        is_unauthorized = False
        try:
            answer = await self._answer(scope, receive, exchange)
        except Refused as refused:
            is_unauthorized = refused.is_unauthorized
            self._observation.refused(refused.answer.status, is_unauthorized)
            answer = self._in_form(refused.answer, exchange, is_unauthorized)
            self._log_refusal(answer, exchange)
        except OverQuotaError as over:
            answer = self._in_form(_over_quota(over, scope), exchange)
            self._log_refusal(answer, exchange)
            self._observation.refused(answer.status)
            await self._hold_up()
        except BaseException:
            exchange.status, exchange.error = 500, INTERNAL
            self._observation.failed(exchange)
            self._tell(exchange)
            raise
        answer = self._in_form(answer, exchange)
        if answer.error is not None and self._has_pages and is_page(exchange.path):
            answer = refused_page(answer, is_unauthorized)
        exchange.status, exchange.error = answer.status, answer.error
        try:
            if self._is_draining:
                answer = replace(answer, headers={**answer.headers, "connection": "close"})
            await self._observation.before_response(exchange)
            exchange.response_bytes = await _send(send, answer, exchange.request_id)
        finally:
            exchange.seconds = time.monotonic() - exchange.started_s
            self._tell(exchange)

    def _in_form(self, answer: Answer, exchange: Exchange, is_unauthorized: bool = False) -> Answer:
        """The answer as the API of the request's path gives it."""
        if answer.error is None or router_of(exchange.path, self._has_pages) is None:
            return answer
        return unity_errors.of_refusal(answer, is_unauthorized)

    def _tell(self, exchange: Exchange) -> None:
        for observe in self._observers:
            try:
                observe(exchange)
            except Exception:
                log.exception("request %s: an observer failed", exchange.request_id)

    async def _answer(self, scope: Mapping[str, Any], receive: Receive, exchange: Exchange) -> Answer:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._limits.header_bytes:
            raise Refused(refusal(431, "RequestHeaderFieldsTooLargeException", "The headers are too large."))
        headers = headers_of(scope["headers"])
        check_framing(scope.get("http_version"), headers)
        check_origin(headers, self._hosts)
        if self._has_pages and is_page(exchange.path):
            check_navigation(headers)
            headers = with_password_as_token(headers)
        query = scope.get("query_string", b"")
        state = scope.get("state", {})
        head = Head(exchange.method, exchange.path, query, headers, state.get("certificate") or None, exchange.caller)
        below = router_of(exchange.path, self._has_pages)
        found = None if below is not None else route_of(exchange.method, exchange.path)
        if below is None and found is None:
            answer = await self._health.answer(exchange, self._why_unready())
            if answer.status not in (404, 405):
                exchange.route = f"GET {urllib.parse.unquote(exchange.path)}"
            return answer
        identified = await self._identified(head, exchange)
        name = identified.principal.name
        if identified.check_body is None:
            exchange.principal = identified.principal
        else:  # counted by address until the signature is verified: a forged one uses up no principal's limits
            name = f"\0{exchange.caller}"
        with self._bodies.one() as body, contextlib.ExitStack() as counted:
            share = counted.enter_context(self._callers.call(name, length_of(headers)))
            # Unauthenticated clients are not told which calls exist.
            route = found if below is None else unity_route(self._unity, exchange, *below)
            assert route is not None
            exchange.route = route.name
            if self._observation.refuses:
                raise Refused(_NOT_AUDITED)
            await self._receive(headers, receive, body, share)
            data = body.taken()
            exchange.request_bytes = len(data)
            if identified.check_body is not None and not identified.check_body(data):
                self._callers.has_failed(exchange.caller)
                raise _denied("The signature of the request is wrong.")
            if exchange.principal is None:
                exchange.principal = identified.principal
                counted.close()
                self._callers.give_back(name)
                share = counted.enter_context(self._callers.call(identified.principal.name, len(data)))
                share.add(len(data))
            begun_s = time.thread_time()
            try:
                given = Request(data, query)
                del data
                guard = Guard(identified.principal, route.access, self.grants, self._catalog_name)
                guard.check_scope()
                call = route.read(given)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                raise Refused(refusal(400, "SerializationException", "The body is not JSON.")) from None
            except DeltaLogError as error:
                return explained(route, error, exchange.request_id)
            finally:
                share.cpu_s += time.thread_time() - begun_s
            # The lane of a listing is the name of its schema with a dot.
            exchange.table, exchange.transaction_id = (call.table or "").removesuffix("."), call.transaction_id
            said = (exchange.path, urllib.parse.unquote(exchange.path), *given.said)
            is_gone = state.get("is_gone", _is_never_gone)
            try:
                answer = await self._runner.run(route, call, guard, said, exchange, share, is_gone)
            except GoneError:
                raise Refused(_GONE) from None
            exchange.is_hidden = answer.error is not None and guard.has_refused
            return answer

    def _why_unready(self) -> str | None:
        """Why no requests should be sent here; None if there is no reason but the catalog."""
        if self._is_draining:
            return "draining"
        if self._runner.is_full:
            return "overloaded"
        return "unaudited" if self._observation.refuses else None

    async def _hold_up(self) -> None:
        """Delay the refusal of a caller that is over a limit. A caller that ignores Retry-After then waits here, which
        does not affect other callers.
        """
        if self._held_up < _MOST_HELD_UP:
            self._held_up += 1
            try:
                await asyncio.sleep(_HELD_UP_SECONDS)
            finally:
                self._held_up -= 1

    async def _identified(self, head: Head, exchange: Exchange) -> Identified:
        """Raises Refused."""
        try:
            return await self._authenticator.identify(head)
        except NotAuthenticatedError as error:
            self._callers.has_failed(exchange.caller)
            exchange.rejected = error.rejected
            raise _denied(str(error), brought=error.brought) from None
        except NotIdentifiedYetError as error:
            message = str(error)
        except DeltaLogError as error:
            log.error(
                "request %s cannot be authenticated now: %s: %s",
                exchange.request_id, type(error).__name__, error,
            )  # fmt: skip
            message = "The server cannot authenticate this request now. Try again later."
        raise Refused(refusal(503, "ServiceUnavailableException", message, retry_after="1", connection="close"))

    def _log_refusal(self, answer: Answer, exchange: Exchange) -> None:
        """Log a refusal with the address of the caller, who may be any client."""
        what = f"{exchange.method[:SHOWN_PATH]} {exchange.path[:SHOWN_PATH]}"
        message = answer.body.get("Message", answer.body.get("message"))
        caller = exchange.caller or "an unknown address"
        text = f"request {exchange.request_id}: {what} from {caller}: {answer.status} {answer.error}: {message}"
        if exchange.rejected is not None:
            text += f" ({exchange.rejected})"
        self.refusals.log(text)

    # ------------------------------------------------------------------------------------------------- bodies

    async def _receive(self, headers: Mapping[str, str], receive: Receive, body: Body, share: Share) -> None:
        if length_of(headers) > _DRAINED * self._limits.body_bytes:
            raise Refused(self._too_large())
        if not length_of(headers) and "transfer-encoding" not in headers:
            await self._received(receive, body, share)  # which waits for nothing
            return
        try:
            await asyncio.wait_for(self._received(receive, body, share), self._limits.body_seconds)
        except asyncio.TimeoutError:
            message = f"The body was not received within {self._limits.body_seconds:g} s."
            raise Refused(refusal(408, "RequestTimeoutException", message, connection="close")) from None

    async def _received(self, receive: Receive, body: Body, share: Share) -> None:
        size, more = 0, True
        while more and size <= _DRAINED * self._limits.body_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(refusal(400, "RequestTimeoutException", "The caller disconnected.", connection="close"))
            piece, more = message.get("body", b""), message.get("more_body", False)
            size += len(piece)
            if size > self._limits.body_bytes:
                body.drop()
                continue
            share.add(len(piece))
            if not body.add(piece):
                raise Refused(_TOO_MANY_LARGE)
        if size > self._limits.body_bytes:
            raise Refused(self._too_large())

    def _too_large(self) -> Answer:
        message = f"The body is larger than {self._limits.body_bytes} bytes."
        return refusal(413, "RequestEntityTooLargeException", message, connection="close")


def _denied(message: str, *, brought: bool = True) -> Refused:
    """The refusal of an unauthenticated request.

    Spec: RFC 6750, section 3."""
    challenge = 'Bearer realm="deltalog"' + (', error="invalid_token"' if brought else "")
    denied = refusal(403, DENIED, message, connection="close", www_authenticate=challenge)
    return Refused(denied, is_unauthorized=True)


def _is_never_gone() -> bool:
    """What takes the place of ``is_gone`` if the HTTP server does not tell."""
    return False


def _over_quota(over: OverQuotaError, scope: Mapping[str, Any]) -> Answer:
    """The response to a caller that reached one of its limits, sent before the body is read. AWS's clients wait and try
    again after an error with this name.
    """
    answer = refusal(429, "ThrottledException", str(over), retry_after=str(over.retry_after_s))
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers or int(headers.get(b"content-length", b"0")) > _READ_WITH_HEADERS:
        return replace(answer, headers={**answer.headers, "connection": "close"})
    return answer


async def _send(send: Send, answer: Answer, request_id: str) -> int:
    """Send the response; returns the number of bytes of its body."""
    if isinstance(answer.body, Document):
        body, kind = answer.body.html.encode(), {"content-type": "text/html; charset=utf-8", **answer.body.headers}
    else:
        body, kind = msgspec.json.encode(answer.body), {"content-type": "application/json"}
    body = b"" if answer.status == 204 else body
    shown = {} if answer.status == 204 else {**kind, "content-length": str(len(body))}
    headers = {
        **shown,
        "cache-control": "no-store",
        "x-amzn-requestid": request_id,
        "x-request-id": request_id,
        **answer.headers,
        **({} if answer.error is None else {"x-amzn-errortype": answer.error}),
    }
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
    return len(body)
