"""The server's log on standard error: a line for each event, with its time, and tracebacks of unexpected errors."""

from __future__ import annotations

import logging
import time
from typing import Any

LEVELS = ("error", "warning", "info")


class LineFormatter(logging.Formatter):
    """``2026-11-20T10:00:00.250Z ERROR deltalog.server.app: …``. Text of callers cannot begin a new line."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _on_one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """The lines of a traceback, all indented: the message of an exception may contain text of a caller."""
        return "\n".join(f"  {_on_one_line(line)}" for line in super().formatException(ei).split("\n"))


def _on_one_line(text: str) -> str:
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def configure(level: str) -> None:
    """Log events of deltalog from ``level`` on to standard error; of other libraries errors, or warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.getLogger("deltalog").setLevel(level.upper())
    # A line for each request that is not HTTP would let any client fill the log.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
