"""Health checks: whether the process answers, whether the catalog does, and whether to send requests here."""

from __future__ import annotations

import asyncio
import logging
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

from deltalog.errors import DeltaLogError
from deltalog.server.answers import Answer
from deltalog.server.exchange import Exchange
from deltalog.transactions.manager import TransactionManager

log = logging.getLogger(__name__)

_HEALTH_SECONDS = 5
_HEALTH_CACHE_SECONDS = 1


class Health:
    """Answers health checks. ``close`` may be called in any thread; the rest is for one event loop."""

    def __init__(self, manager: TransactionManager) -> None:
        self._manager = manager
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deltalog-health")
        self._check: asyncio.Future[None] | None = None
        self._health: tuple[float, Answer] | None = None

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def answer(self, exchange: Exchange, why_unready: str | None) -> Answer:
        """The answer to a health check. ``why_unready``: the status if no requests should be sent here. An orchestrator
        restarts a process that is not alive, and sends no requests to one that is not ready. A failing
        catalog makes the process not ready; a restart would not help.
        """
        what = urllib.parse.unquote(exchange.path)
        if what == "/health/live":
            return Answer(200, {"status": "live"})
        if what == "/health":
            return await self._healthy(exchange.request_id)
        if why_unready is not None:
            return _unready(why_unready)
        answer = await self._healthy(exchange.request_id)
        return Answer(200, {"status": "ready"}) if answer.status == 200 else answer

    async def _healthy(self, request_id: str) -> Answer:
        """Whether the catalog responds. Health checks need no token, so they query the catalog at most once a
        second."""
        loop = asyncio.get_running_loop()
        if self._health is not None and loop.time() - self._health[0] < _HEALTH_CACHE_SECONDS:
            return self._health[1]
        if self._check is None or self._check.done():
            self._check = loop.run_in_executor(self._thread, self._manager.check)
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


def _failing(code: str) -> Answer:
    return Answer(503, {"status": "failing", "failing": "catalog", "code": code}, headers={"retry-after": "5"})


def _unready(status: str) -> Answer:
    return Answer(503, {"status": status}, headers={"retry-after": "1"})
