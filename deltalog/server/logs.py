"""The server's log on standard error: one line with a timestamp per event, and tracebacks of unexpected errors."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from deltalog.server.exchange import CURRENT

_LONGEST_LINE = 8192


class LineFormatter(logging.Formatter):
    """``2026-11-20T10:00:00.250Z ERROR deltalog.server.app: …``. Text that comes from callers cannot start a new
    line."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _on_one_line(f"{super().formatMessage(record)}{_of_request(record)}")

    def formatException(self, ei: Any) -> str:
        """A traceback with all lines indented, because the message of an exception may contain text from a caller."""
        return "\n".join(f"  {_on_one_line(line)}" for line in super().formatException(ei).split("\n"))


def _of_request(record: logging.LogRecord) -> str:
    """The id of the request that caused the record, to be appended; empty if there is none, or the message has it."""
    exchange = CURRENT.get()
    if exchange is None or not exchange.request_id or exchange.request_id in record.message:
        return ""
    return f" (request {exchange.request_id})"


def _on_one_line(text: str) -> str:
    shown = text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}… ({len(text):,} characters)"
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in shown)


class PeriodicLimit:
    """Limits how many lines are written per period about requests that any client can cause; the other requests are
    counted by kind. ``most``: the number of lines per period of ``seconds``. Thread-safe."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._begun_s = clock()
        self._count = 0
        self._left_out: Counter[str] = Counter()
        self._lock = threading.Lock()

    def next(self, kind: object) -> tuple[bool, dict[str, int]]:
        """Whether to write the line of this request, and how many were left out in the last period, by kind."""
        with self._lock:
            left_out: dict[str, int] = {}
            if self._clock() - self._begun_s >= self._seconds:
                left_out = self._taken()
                self._begun_s, self._count = self._clock(), 0
            self._count += 1
            is_written = self._count <= self._most
            if not is_written:
                self._left_out[str(kind)] += 1
            return is_written, left_out

    def rest(self) -> dict[str, int]:
        """How many lines were left out in the current period, by kind."""
        with self._lock:
            return self._taken()

    def _taken(self) -> dict[str, int]:
        found = dict(self._left_out)
        self._left_out.clear()
        return found


class Refusals:
    """Logs requests that were refused before their calls were made. Any client can send requests that are refused; if
    more than ``most`` of them arrive within ``seconds``, the rest are only counted. Thread-safe."""

    def __init__(
        self, to: logging.Logger, most: int = 100, seconds: float = 10, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._to = to
        self._limit = PeriodicLimit(most, seconds, clock)

    def log(self, text: str) -> None:
        """Log one refused request."""
        is_shown, left_out = self._limit.next("refused")
        if left_out:
            self._to.warning("%d more requests were refused and not logged individually", sum(left_out.values()))
        if is_shown:
            self._to.warning("%s", text)


def configure(level: str) -> None:
    """Log deltalog's events of ``level`` and above to standard error; of other libraries, log only warnings or
    errors."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    set_level(level)
    # Logging every request that is not HTTP would let any client flood the log.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


def set_level(level: str) -> None:
    """Log deltalog's events of ``level`` and above."""
    logging.getLogger("deltalog").setLevel(level.upper())
