"""Runs calls in threads, because the manager blocks on its coordinator and stores.

Calls that need only the catalog run in separate threads, and every table has its own lane. If a call times out, the
response is an error, and the call stops before its next read of a table. The response states that the call may have
taken effect.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from deltalog import deadline
from deltalog.errors import DeltaLogError, OperationTimeoutError, StoreError
from deltalog.server.access.denials import PermissionDeniedError
from deltalog.server.access.guard import Guard
from deltalog.server.answers import INTERNAL, Answer, refusal, without_places
from deltalog.server.calls import Call, Context, Needs
from deltalog.server.exchange import Exchange
from deltalog.server.lanes import BusyError, Lanes, NotBegunError, NotDoneError
from deltalog.server.limits import Limits
from deltalog.server.observe.observation import Observation
from deltalog.server.quotas import Share
from deltalog.server.routes import Route, explained
from deltalog.server.tables_in_use import TablesInUse
from deltalog.transactions.manager import TransactionManager

log = logging.getLogger(__name__)

_CATALOG, _SOME_TRANSACTION = "", "transaction"


class Runner:
    """Runs the calls of a server. All methods but ``log_unfinished`` and ``close`` are for one event loop.
    ``has_cut_off``: whether calls were answered with an error because the server ended."""

    def __init__(self, manager: TransactionManager, limits: Limits, observation: Observation) -> None:
        self._manager = manager
        self._limits = limits
        self._observation = observation
        self._catalog, self._stores = _lanes(limits), _lanes(limits)
        self._tables = TablesInUse()
        self._is_cutting_off = self.has_cut_off = False
        # Keyed by the exchange itself, because request ids are chosen by callers and may repeat.
        self._in_progress: dict[object, asyncio.Task[Any] | None] = {}
        self._running: dict[object, tuple[str, str]] = {}

    @property
    def is_full(self) -> bool:
        """Whether as many calls are in progress as are allowed, of those that need stores or of the others."""
        return self._catalog.is_full or self._stores.is_full

    def all_lanes(self) -> dict[str, Lanes]:
        return {"catalog": self._catalog, "stores": self._stores}

    def limit(self, limits: Limits) -> None:
        """Replace the limits; they apply to new calls."""
        old, self._limits = self._limits, limits
        names = ("threads", "requests", "slow_seconds")
        if any(getattr(old, name) != getattr(limits, name) for name in names):
            # The calls that are in the old lanes keep these alive until the calls end.
            self._catalog, self._stores = _lanes(limits), _lanes(limits)

    def cut_off(self) -> None:
        """Answer all calls that are in progress with an error."""
        self._is_cutting_off = True
        for task in list(self._in_progress.values()):
            if task is not None:
                task.cancel()

    def log_unfinished(self) -> int:
        """Log the calls that threads are still working on; returns their number."""
        found = dict(self._running)
        for request_id, name in found.values():
            log.error("request %s: %s is unfinished; it may still take effect", request_id, name)
        return len(found)

    def close(self) -> bool:
        """Stop accepting calls; returns whether there are calls that still run, which finish."""
        self._catalog.close()
        self._stores.close()
        # Also calls in the lanes of earlier limits.
        is_working = any(count for lanes in self.all_lanes().values() for count in lanes.counts().values())
        return is_working or bool(self._running)

    async def run(
        self,
        route: Route,
        call: Call,
        guard: Guard,
        said: Sequence[str],
        exchange: Exchange,
        share: Share,
        is_gone: Callable[[], bool],
    ) -> Answer:
        """Run a call, and make the response. ``said``: the texts that the caller sent. ``is_gone``: whether the caller
        has disconnected. Raises GoneError.
        """
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
            return await lanes.run(self._lane(route, call), work, seconds, caller, is_gone, share.computes_much)
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
            answer = explained(route, error, request_id)
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


def _lanes(limits: Limits) -> Lanes:
    return Lanes(limits.threads, limits.requests, limits.slow_seconds)
