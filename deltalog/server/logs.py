"""The server's log on standard error: one line with a timestamp per event, and tracebacks of unexpected errors."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from deltalog.server.exchange import CURRENT

LEVELS = ("error", "warning", "info")
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


class Refusals:
    """Logs requests that were refused before authentication. Any client can send requests that are refused; if more
    than ``most`` of them arrive within ``seconds``, the rest are only counted. Thread-safe."""

    def __init__(
        self, to: logging.Logger, most: int = 100, seconds: float = 10, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._to = to
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._begun = clock()
        self._count = 0
        self._lock = threading.Lock()

    def log(self, text: str) -> None:
        """Log one refused request."""
        left_out, is_shown = self._next()
        if left_out:
            self._to.warning("%d more requests were refused and not logged individually", left_out)
        if is_shown:
            self._to.warning("%s", text)

    def _next(self) -> tuple[int, bool]:
        """The number of refusals that were not logged in the last period, and whether to log the current refusal."""
        with self._lock:
            left_out = 0
            if self._clock() - self._begun >= self._seconds:
                left_out = max(0, self._count - self._most)
                self._begun, self._count = self._clock(), 0
            self._count += 1
            return left_out, self._count <= self._most


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
