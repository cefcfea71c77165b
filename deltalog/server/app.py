"""The server as an ASGI application: access checks, limits, time-outs and routing.

Calls run in threads, because the manager blocks on its coordinator and stores. Calls that need only the catalog run in
separate threads, and every table has its own lane. If a call times out, the response is an error, and the call stops
before its next read of a table. The response states that the call may have taken effect.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import functools
import logging
import time
import urllib.parse
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from deltalog import deadline
from deltalog.errors import DeltaLogError, OperationTimeoutError, StoreError
from deltalog.server.access import rules
from deltalog.server.access.denials import PermissionDeniedError
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
from deltalog.server.access.rules import Rule
from deltalog.server.answers import DENIED, INTERNAL, Answer, exception_of, refusal, without_places
from deltalog.server.bodies import Bodies, Body
from deltalog.server.calls import Call, Context, Needs, Request
from deltalog.server.exchange import CURRENT, Exchange, Observers
from deltalog.server.lakeformation import OPERATIONS
from deltalog.server.lanes import BusyError, GoneError, Lanes, NotBegunError, NotDoneError
from deltalog.server.logs import Refusals
from deltalog.server.observe.observation import Observation
from deltalog.server.observe.request_ids import given_id
from deltalog.server.openapi import document as openapi
from deltalog.server.quotas import Callers, OverQuotaError, Quotas, Share
from deltalog.server.tables_in_use import TablesInUse
from deltalog.server.unity import errors as unity_errors
from deltalog.server.unity.requests import UnityRequest
from deltalog.server.unity.router import Router, router_of
from deltalog.server.unity.service import Endpoint, Service
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
_HEALTH_SECONDS = 5
_HEALTH_CACHE_SECONDS = 1
_SHOWN_PATH = 200
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
_SINGLE = frozenset({"authorization", "host", "content-length"})
_CATALOG, _SOME_TRANSACTION = "", "transaction"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the server. ``header_bytes``: the maximum total size of the headers of a request.
    ``header_seconds``: the maximum time until the headers of a request have arrived. It starts with the connection, and
    so includes the TLS handshake; for later requests on the same connection it starts with their first byte.
    ``body_bytes``: the maximum size of the body of a request. ``pending_bytes``: the maximum total size of bodies that
    are being received or processed; beyond it, bodies of more than 16 KiB are refused. ``body_seconds``: the maximum
    time for receiving a body. ``request_seconds``: the time within which a call is answered. ``response_seconds``: the
    maximum time for which a caller may pause while reading a response. ``slow_seconds``: a call that takes longer than
    this is slow. Slow calls do not count towards ``threads``, but their number is limited for each table. ``threads``:
    the maximum number of calls that run at the same time. It applies separately to calls that need stores and to calls
    that need only the catalog. ``requests``: the maximum number of calls that run or wait for a thread, also separately
    for these two kinds; further calls are refused. ``connections``: the maximum number of open connections; beyond it,
    the connections that have been idle longest are closed. ``quotas``: the limits of each caller."""

    header_bytes: int = 32 << 10
    header_seconds: float = 10
    body_bytes: int = 4 << 20
    pending_bytes: int = 64 << 20
    body_seconds: float = 30
    request_seconds: float = 60
    response_seconds: float = 60
    slow_seconds: float = 2
    threads: int = 16
    requests: int = 64
    connections: int = 512
    quotas: Quotas = field(default_factory=Quotas)


class Refused(Exception):
    """A request was refused before any operation ran. ``is_unauthorized``: because its token is missing or wrong."""

    def __init__(self, answer: Answer, *, is_unauthorized: bool = False) -> None:
        super().__init__(answer.error)
        self.answer = answer
        self.is_unauthorized = is_unauthorized


@dataclass(frozen=True, slots=True)
class Route:
    """A route. ``access``: what its calls need. ``read``: creates the call from the request. ``explain``: the response
    for an error. ``defer``: the response for a call that had no effect because the server had no time for it; None: as
    for a time-out."""

    name: str
    access: Rule
    read: Callable[[Request], Call]
    explain: Callable[[DeltaLogError], Answer]
    needs: Needs = Needs.TABLE
    defer: Callable[[str], Answer] | None = None


class App:
    """The ASGI application. ``authenticator``: finds the principal of each request. ``hosts``: the accepted host names,
    or None for any; checking the host name protects against DNS rebinding by web pages. ``unity``: what the calls of
    Unity Catalog's API work with; None: they are not served. ``observers``: called with each request and its response.
    ``observation``: the audit log, the metrics and the traces.
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
    ) -> None:
        self._manager = manager
        self._unity = unity
        self._limits = limits or Limits()
        self._authenticator = authenticator or Everyone()
        self._observation = observation or Observation()
        self._observers = (self._observation.after_response, *observers)
        self._hosts = hosts
        self._catalog, self._stores = _lanes(self._limits), _lanes(self._limits)
        self.grants = Grants(manager.coordinator)
        self._catalog_name = "main" if unity is None else unity.tables.settings.catalog
        self._tables = TablesInUse()
        self._bodies = Bodies(self._limits.pending_bytes)
        self._callers = Callers(self._limits.quotas)
        self._held_up = 0
        self.refusals = Refusals(log)
        self._health_thread = ThreadPoolExecutor(1, thread_name_prefix="deltalog-health")
        self._check: asyncio.Future[None] | None = None
        self._health: tuple[float, Answer] | None = None
        self._is_draining = self._is_cutting_off = self.has_cut_off = False
        # Keyed by the exchange itself, because request ids are chosen by callers and may repeat.
        self._in_progress: dict[object, asyncio.Task[Any] | None] = {}
        self._running: dict[object, tuple[str, str]] = {}
        self._watch()
        self._observation.start(observers)

    def _watch(self) -> None:
        """Metrics of the limits."""
        metrics = self._observation.metrics
        if metrics is None:
            return

        def of(member: str) -> Callable[[], list[tuple[dict[str, str], float]]]:
            return lambda: [({"lanes": name}, each.counts()[member]) for name, each in self._all_lanes().items()]

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
            "How many calls may be in progress; further calls are refused.",
            lambda: [({}, self._limits.requests)],
        )
        metrics.watch(
            "deltalog_server_pending_body_bytes",
            "Bytes of the bodies of requests that are being received or processed.",
            lambda: [({}, self._bodies.counted)],
        )

    def _all_lanes(self) -> dict[str, Lanes]:
        return {"catalog": self._catalog, "stores": self._stores}

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
        if old.quotas != limits.quotas:
            self._callers = Callers(limits.quotas)
        names = ("threads", "requests", "slow_seconds")
        if any(getattr(old, name) != getattr(limits, name) for name in names):
            # The calls that are in the old lanes keep these alive until the calls end.
            self._catalog, self._stores = _lanes(limits), _lanes(limits)

    def drain(self) -> None:
        """From now on, report the server as not ready, and close each connection after its next response. Calls are
        still served.
        """
        self._is_draining = True

    def cut_off(self) -> None:
        """Answer all calls that are in progress with an error. Call this on the event loop."""
        self._is_draining = self._is_cutting_off = True
        for task in list(self._in_progress.values()):
            if task is not None:
                task.cancel()

    def log_unfinished(self) -> int:
        """Log the calls that threads are still working on; returns their number."""
        found = dict(self._running)
        for request_id, name in found.values():
            log.error("request %s: %s is unfinished; it may still take effect", request_id, name)
        return len(found)

    def close(self) -> None:
        """Stop accepting calls; running calls finish."""
        self._catalog.close()
        self._stores.close()
        self._health_thread.shutdown(wait=False, cancel_futures=True)
        # Also calls in the lanes of earlier limits.
        if self._running or any(count for lanes in self._all_lanes().values() for count in lanes.counts().values()):
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
            answer, is_unauthorized = refused.answer, refused.is_unauthorized
            self._log_refusal(answer, exchange)
            self._observation.refused(answer.status, is_unauthorized)
        except OverQuotaError as over:
            answer = _over_quota(over, scope)
            self._log_refusal(answer, exchange)
            self._observation.refused(answer.status)
            await self._hold_up()
        except BaseException:
            exchange.status, exchange.error = 500, INTERNAL
            self._observation.failed(exchange)
            self._tell(exchange)
            raise
        if router_of(exchange.path) is not None and answer.error is not None:
            answer = unity_errors.of_refusal(answer, is_unauthorized)
        exchange.status, exchange.error = answer.status, answer.error
        try:
            if self._is_draining:
                answer = replace(answer, headers={**answer.headers, "connection": "close"})
            await self._observation.before_response(exchange)
            exchange.response_bytes = await _send(send, answer, exchange.request_id)
        finally:
            exchange.seconds = time.monotonic() - exchange.started_s
            self._tell(exchange)

    def _tell(self, exchange: Exchange) -> None:
        for observe in self._observers:
            try:
                observe(exchange)
            except Exception:
                log.exception("request %s: an observer failed", exchange.request_id)

    async def _answer(self, scope: Mapping[str, Any], receive: Receive, exchange: Exchange) -> Answer:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._limits.header_bytes:
            raise Refused(refusal(431, "RequestHeaderFieldsTooLargeException", "The headers are too large."))
        headers = _headers_of(scope["headers"])
        _check_framing(scope.get("http_version"), headers)
        self._check_origin(headers)
        query = scope.get("query_string", b"")
        state = scope.get("state", {})
        head = Head(exchange.method, exchange.path, query, headers, state.get("certificate") or None, exchange.caller)
        below = router_of(exchange.path)
        found = None if below is not None else _route(exchange.method, exchange.path)
        if below is None and found is None:
            answer = await self._health_of(exchange)
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
            share = counted.enter_context(self._callers.call(name, _length(headers)))
            # Unauthenticated clients are not told which calls exist.
            route = found if below is None else self._unity_route(exchange, *below)
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
                return _explained(route, error, exchange.request_id)
            finally:
                share.cpu_s += time.thread_time() - begun_s
            exchange.table, exchange.transaction_id = call.table, call.transaction_id
            said = (exchange.path, urllib.parse.unquote(exchange.path), *given.said)
            try:
                answer = await self._run(route, call, guard, said, exchange, share, state.get("is_gone", _is_there))
            except GoneError:
                raise Refused(_GONE) from None
            exchange.is_hidden = answer.error is not None and guard.has_refused
            return answer

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
        what = f"{exchange.method[:_SHOWN_PATH]} {exchange.path[:_SHOWN_PATH]}"
        message = answer.body.get("Message", answer.body.get("message"))
        caller = exchange.caller or "an unknown address"
        text = f"request {exchange.request_id}: {what} from {caller}: {answer.status} {answer.error}: {message}"
        self.refusals.log(text)

    # ----------------------------------------------------------------------------- which callers are allowed

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Refuse requests from web pages, because a server on loopback trusts all processes of the machine, including
        browsers."""
        if "origin" in headers:
            raise Refused(refusal(403, DENIED, "This server does not answer web pages."))
        if self._hosts is not None and _host_name(headers.get("host", "")) not in self._hosts:
            raise Refused(refusal(403, DENIED, f"Call this server as {' or '.join(sorted(self._hosts))}."))

    def _unity_route(self, exchange: Exchange, router: Router, path: str) -> Route:
        """The route of a call of Unity Catalog's API, or of deltalog's own. Raises Refused."""
        unity = self._unity
        if unity is None:
            raise Refused(refusal(404, "UnknownOperationException", "This server does not serve Unity Catalog's API."))
        try:
            endpoint, parts = router.find(exchange.method, path)
        except DeltaLogError as error:
            raise Refused(unity_errors.answer_of(error)) from None
        exchange.names = parts
        answer = unity_errors.answer_to_commit if endpoint.commits else unity_errors.answer_of
        explain = functools.partial(answer, missing=endpoint.missing)
        call, defer = functools.partial(_unity_call, unity, endpoint, parts), unity_errors.deferred
        return Route(endpoint.name, endpoint.access, call, explain, endpoint.needs, defer)

    # ----------------------------------------------------------------------------------------- requests

    async def _receive(self, headers: Mapping[str, str], receive: Receive, body: Body, share: Share) -> None:
        if _length(headers) > _DRAINED * self._limits.body_bytes:
            raise Refused(self._too_large())
        if not _length(headers) and "transfer-encoding" not in headers:
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

    # ----------------------------------------------------------------------------------- running the calls

    async def _run(
        self,
        route: Route,
        call: Call,
        guard: Guard,
        said: Sequence[str],
        exchange: Exchange,
        share: Share,
        is_gone: Callable[[], bool],
    ) -> Answer:
        request_id, caller = exchange.request_id, guard.principal.name
        seconds = self._limits.request_seconds
        end_s = time.monotonic() + seconds
        lanes = self._catalog if route.needs is Needs.CATALOG else self._stores
        # Run in the context of this task, so that the events and log lines of the call name its request.
        context = contextvars.copy_context()
        work = functools.partial(context.run, self._carry_out, route, call, guard, said, request_id, end_s, share)
        key = object()
        self._in_progress[key] = asyncio.current_task()
        try:
            return await lanes.run(self._lane(route, call), work, seconds, caller, is_gone)
        except asyncio.CancelledError:
            if not self._is_cutting_off:
                raise
            self.has_cut_off = True
            reason = "The server shut down before the call ended. The call may still take effect."
        except BusyError:
            log.warning("request %s: %s: too many requests are in progress", request_id, route.name)
            self._observation.refused(503)
            return refusal(503, "ServiceUnavailableException", "Too many requests are in progress.", retry_after="1")
        except NotBegunError:
            reason = f"The call did not start within {seconds:g} s because other calls were running; it has no effect."
            self._observation.refused(503)
            if route.defer is not None:
                log.error("request %s: %s: %s", request_id, route.name, reason)
                return route.defer(reason)
        except NotDoneError:
            reason = f"The call did not finish within {seconds:g} s; it may still take effect."
        finally:
            del self._in_progress[key]
        log.error("request %s: %s: %s", request_id, route.name, reason)
        return route.explain(OperationTimeoutError(reason))

    def _lane(self, route: Route, call: Call) -> str:
        """The name of the lane of a call, which depends on what the call may wait for: the lane of its table, of the
        tables of its transaction, or of the catalog."""
        if route.needs is Needs.CATALOG:
            return _CATALOG
        if route.needs is Needs.TRANSACTION:
            assert call.transaction_id is not None
            return self._tables.of(call.transaction_id) or _SOME_TRANSACTION
        assert call.table is not None
        if call.transaction_id is not None:
            self._tables.add(call.transaction_id, call.table)
        return call.table

    def _carry_out(
        self,
        route: Route,
        call: Call,
        guard: Guard,
        said: Sequence[str],
        request_id: str,
        end_s: float,
        share: Share,
    ) -> Answer:
        """Run a call in a thread; never raises. If the call has not finished at ``end_s``, it stops before its next
        read."""
        begun_s = time.thread_time()
        key = object()
        self._running[key] = request_id, route.name
        try:
            with deadline.until(end_s):
                result = call.run(Context(self._manager, guard))
                if not guard.is_asked:
                    log.error("request %s: %s did not check the rights of its caller", request_id, route.name)
                    raise PermissionDeniedError(f"{guard.principal.name} is not permitted to make this call.")
                return Answer(204 if result is None else 200, result)
        except DeltaLogError as error:
            answer = _explained(route, error, request_id)
            if isinstance(error, StoreError) and time.monotonic() > end_s:
                late = OperationTimeoutError("The call did not finish in time; it may have taken effect.")
                answer = route.explain(late)
            return self._shown(answer, said)
        except Exception:
            log.exception("request %s: %s failed", request_id, route.name)
            return refusal(500, INTERNAL, f"The server failed; see request {request_id} in its log.")
        finally:
            del self._running[key]
            share.cpu_s += time.thread_time() - begun_s

    def _shown(self, answer: Answer, said: Sequence[str]) -> Answer:
        """Remove the names of this machine's directories from a response, unless the caller sent them."""
        places = [each.removeprefix("sqlite://") for each in self._manager.places()]
        words = "\n".join(said)

        def hidden(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: hidden(member) for name, member in value.items()}
            return without_places(value, words, places) if isinstance(value, str) else value

        return replace(answer, body=hidden(dict(answer.body)))

    # ----------------------------------------------------------------------------------------- health checks

    async def _health_of(self, exchange: Exchange) -> Answer:
        """The answer to a health check. An orchestrator restarts a process that is not alive, and sends no requests to
        one that is not ready. A failing catalog makes the process not ready; a restart would not help.
        """
        what = urllib.parse.unquote(exchange.path)
        if what == "/health/live":
            return Answer(200, {"status": "live"})
        if what == "/health":
            return await self._healthy(exchange.request_id)
        if self._is_draining:
            return _unready("draining")
        if self._catalog.is_full or self._stores.is_full:
            return _unready("overloaded")
        if self._observation.refuses:
            return _unready("unaudited")
        answer = await self._healthy(exchange.request_id)
        return Answer(200, {"status": "ready"}) if answer.status == 200 else answer

    async def _healthy(self, request_id: str) -> Answer:
        """Whether the catalog responds. Health checks need no token, so they query the catalog at most once a
        second."""
        loop = asyncio.get_running_loop()
        if self._health is not None and loop.time() - self._health[0] < _HEALTH_CACHE_SECONDS:
            return self._health[1]
        if self._check is None or self._check.done():
            self._check = loop.run_in_executor(self._health_thread, self._manager.check)
        answer = Answer(200, {"status": "ok"})
        try:
            await asyncio.wait_for(asyncio.shield(self._check), _HEALTH_SECONDS)
        except asyncio.TimeoutError:
            log.error("request %s: the catalog did not answer within %d s", request_id, _HEALTH_SECONDS)
            answer = _failing("OPERATION_TIMEOUT")
        except DeltaLogError as error:
            log.error("request %s: the catalog failed: %s: %s", request_id, type(error).__name__, error)
            answer = _failing(error.code)
        except Exception:
            log.exception("request %s: the catalog failed", request_id)
            answer = _failing("INTERNAL")
        self._health = loop.time(), answer
        return answer


def _denied(message: str, *, brought: bool = True) -> Refused:
    """The refusal of an unauthenticated request.

    Spec: RFC 6750, section 3."""
    challenge = 'Bearer realm="deltalog"' + (', error="invalid_token"' if brought else "")
    denied = refusal(403, DENIED, message, connection="close", www_authenticate=challenge)
    return Refused(denied, is_unauthorized=True)


def _failing(code: str) -> Answer:
    return Answer(503, {"status": "failing", "failing": "catalog", "code": code}, headers={"retry-after": "5"})


def _is_there() -> bool:
    """Whether a caller has gone, if the HTTP server does not tell."""
    return False


def _unready(status: str) -> Answer:
    return Answer(503, {"status": status}, headers={"retry-after": "1"})


def _lanes(limits: Limits) -> Lanes:
    return Lanes(limits.threads, limits.requests, limits.slow_seconds)


def _length(headers: Mapping[str, str]) -> int:
    """The declared length of the body."""
    return int(headers.get("content-length", "0"))


def _over_quota(over: OverQuotaError, scope: Mapping[str, Any]) -> Answer:
    """The response to a caller that reached one of its limits, sent before the body is read. AWS's clients wait and try
    again after an error with this name.
    """
    answer = refusal(429, "ThrottledException", str(over), retry_after=str(over.retry_after_s))
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers or int(headers.get(b"content-length", b"0")) > _READ_WITH_HEADERS:
        return replace(answer, headers={**answer.headers, "connection": "close"})
    return answer


def _host_name(host: str) -> str | None:
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _route(method: str, raw_path: str) -> Route | None:
    """The route that handles a request; None for the health check. Raises Refused."""
    parts = [urllib.parse.unquote(part) for part in raw_path.split("/")[1:]]
    if parts in (["health"], ["health", "live"], ["health", "ready"]) and method == "GET":
        return None
    if parts == ["openapi.json"] and method == "GET":
        return _DESCRIPTION
    operation = OPERATIONS.get(parts[0]) if len(parts) == 1 and method == "POST" else None
    if operation is not None:
        explain = functools.partial(exception_of, listed=operation.errors)
        read = operation.read
        return Route(parts[0], operation.access, lambda request: read(request.fields), explain, operation.needs)
    shown = raw_path[:_SHOWN_PATH]
    raise Refused(refusal(404, "UnknownOperationException", f"{method} {shown} does not exist on this server."))


def _description(request: Request) -> Call:
    return Call(lambda context: msgspec.Raw(openapi.encoded()))


_DESCRIPTION = Route(
    f"GET {openapi.PATH}", rules.ANYONE, _description, functools.partial(exception_of, listed=()), Needs.CATALOG
)


def _unity_call(unity: Service, endpoint: Endpoint, parts: Mapping[str, str], request: Request) -> Call:
    """The call of a request of Unity Catalog's API."""
    work = endpoint.read(UnityRequest(parts, request.query, request.body))
    request.body = b""
    return Call(lambda context: work.run(unity.called_by(context.guard, context.manager)), work.table or "")


def _headers_of(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers, by their names in lower case. Raises Refused if a header for routing or authentication occurs twice: a
    proxy and this server could use different ones of the two.
    """
    found: dict[str, str] = {}
    for name, value in raw:
        lower = name.decode("latin-1").lower()
        if lower in found and (lower in _SINGLE or lower.startswith("x-amz-")):
            raise Refused(refusal(400, "BadRequestException", f"{lower} occurs twice.", connection="close"))
        found[lower] = value.decode("latin-1")
    return found


def _check_framing(version: str | None, headers: Mapping[str, str]) -> None:
    """Refuse a request with ambiguous framing. A proxy and this server could disagree on where such a request ends,
    which enables request smuggling.

    Spec: RFC 9112, sections 6.1 and 6.3."""
    if "transfer-encoding" not in headers:
        return
    if "content-length" in headers:
        message = "A request must not have both Content-Length and Transfer-Encoding."
    elif version == "1.0":
        message = "An HTTP/1.0 request must not have Transfer-Encoding."
    else:
        return
    raise Refused(refusal(400, "BadRequestException", message, connection="close"))


def _explained(route: Route, error: DeltaLogError, request_id: str) -> Answer:
    """Log an error, and return the response that reports it."""
    answer = route.explain(error)
    level = logging.ERROR if answer.status >= 500 else logging.INFO
    log.log(level, "request %s: %s: %s: %s", request_id, route.name, type(error).__name__, error)
    return answer


async def _send(send: Send, answer: Answer, request_id: str) -> int:
    """Send the response; returns the number of bytes of its body."""
    body = b"" if answer.status == 204 else msgspec.json.encode(answer.body)
    shown = {} if answer.status == 204 else {"content-type": "application/json", "content-length": str(len(body))}
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
