"""The audit log: who made which call, with which outcome, and which background work the server did.

The line of a call is written before its response is sent, unless the log cannot be written. A crash of the process
therefore loses no line of a call whose response was sent; with ``sync``, a crash of the machine does not either. A
crash can lose the line of a call whose response was not sent yet, although its commit may have landed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from deltalog.errors import CallError
from deltalog.metrics import Upkeep
from deltalog.server.exchange import Exchange
from deltalog.server.logs import PeriodicLimit
from deltalog.server.observe import records
from deltalog.server.observe.lines import LineFile, LineWriter
from deltalog.server.observe.settings import AuditSettings

# Health probes come every few seconds and concern no object.
_HEALTH = "GET /health"
WARN, REFUSE = "warn", "refuse"
# The period over which lines of refused unauthenticated callers are counted against their limit.
_PERIOD_SECONDS = 1.0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class AuditLog:
    """The audit log. Thread-safe."""

    def __init__(self, settings: AuditSettings, clock_ms: Callable[[], int] = _now_ms) -> None:
        """Raises CallError."""
        check(settings)
        self._settings = settings
        self._clock_ms = clock_ms
        self.server = f"{socket.gethostname()}:{os.getpid()}"
        file = LineFile(settings.file, sync=settings.sync)
        self.writer = LineWriter(file, settings.queue_lines, self._lost)
        self._strangers = PeriodicLimit(settings.refused_per_second, _PERIOD_SECONDS)

    def close(self) -> None:
        self._put_refused(self._strangers.rest())
        self.note("stop")
        self.writer.close()

    @property
    def is_failing(self) -> bool:
        """Whether lines cannot be written, or wait for longer than ``write_seconds``."""
        waits_s = self.writer.waits_since()
        return self.writer.is_failing or (waits_s is not None and waits_s > self._settings.write_seconds)

    @property
    def refuses(self) -> bool:
        """Whether calls are refused now, because their lines could not be written."""
        return self._settings.on_failure == REFUSE and self.is_failing

    def note(self, event: str) -> None:
        """Write that the server starts or ends."""
        self._put(records.of_event(event, self._clock_ms(), self.server))

    async def record(self, exchange: Exchange) -> bool:
        """Write the line of a call that has been answered; returns whether it is written, after at most
        ``write_seconds``. Raises nothing."""
        lines = self._lines_of(exchange)
        if lines is None:
            return True
        future = self.writer.put(lines, asked=True)
        assert future is not None
        if future.done():
            return future.result()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._settings.write_seconds)
        except asyncio.TimeoutError:
            return False

    def record_later(self, exchange: Exchange) -> None:
        """Write the line of a call without waiting for it."""
        lines = self._lines_of(exchange)
        if lines is not None:
            self.writer.put(lines)

    def record_late(self, exchange: Exchange) -> None:
        """Write that a call has committed versions after its response, or may have."""
        self._put(records.of_exchange(exchange, self._clock_ms(), self.server, "late_commit"))

    def record_upkeep(self, event: Upkeep, exchange: Exchange | None) -> None:
        """Write what the server did of its own accord, or as a consequence of a call."""
        self._put(records.of_upkeep(event, self._clock_ms(), self.server, exchange))

    def _lines_of(self, exchange: Exchange) -> list[bytes] | None:
        if exchange.route is not None and exchange.route.startswith(_HEALTH):
            return None
        if exchange.principal is None and exchange.status >= 400:
            is_written, left_out = self._strangers.next(exchange.status)
            self._put_refused(left_out)
            if not is_written:
                return None
        if not self._settings.reads and _is_read(exchange):
            return None
        return records.lines(records.of_exchange(exchange, self._clock_ms(), self.server), self._settings.line_bytes)

    def _put_refused(self, by_status: dict[str, int]) -> None:
        if by_status:
            record = records.of_event("refused", self._clock_ms(), self.server, None)
            self._put({**record, "outcome": "denied", "by_status": by_status})

    def _put(self, record: dict[str, Any]) -> None:
        self.writer.put(records.lines(record, self._settings.line_bytes))

    def _lost(self, count: int) -> Sequence[bytes]:
        record = records.of_event("lost", self._clock_ms(), self.server)
        return records.lines({**record, "lines": count}, self._settings.line_bytes)


def check(settings: AuditSettings) -> None:
    """Raises CallError for invalid settings."""
    if settings.on_failure not in (WARN, REFUSE):
        raise CallError(f"on_failure of the audit log must be '{WARN}' or '{REFUSE}', not {settings.on_failure!r}.")
    if settings.line_bytes < records.FEWEST_LINE_BYTES:
        raise CallError(f"line_bytes of the audit log must be at least {records.FEWEST_LINE_BYTES}.")
    if settings.queue_lines < 1 or settings.write_seconds <= 0 or settings.refused_per_second < 0:
        raise CallError("queue_lines and write_seconds of the audit log must be positive.")


def _is_read(exchange: Exchange) -> bool:
    """Whether a call succeeded and changed nothing."""
    if "credentials" in (exchange.route or ""):
        return False
    return records.only_reads(exchange) and exchange.status < 400 and not exchange.versions
