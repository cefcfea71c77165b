"""The line protocol between the kit and the process of an engine: one JSON object per line.

Its calls are the methods of ``Engine``. docs/conformance.md describes it for engines in other languages. An engine may
run in an environment without deltalog's dependencies, so this module imports only the standard library.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from deltalog.conformance.engine import Engine

PROTOCOL = 1
#: A longer line is no message of an engine.
MAX_LINE_BYTES = 1 << 20
#: The server cuts longer messages of errors.
MAX_TEXT = 4_000
#: The kinds of an answer; every answer has one of them besides its id.
VALUE, ROWS, ENGINE, NOT_SUPPORTED, REFUSED, FAILED = "value", "rows", "engine", "not_supported", "refused", "failed"
KINDS = (VALUE, ROWS, ENGINE, NOT_SUPPORTED, REFUSED, FAILED)
#: What the file of an answer holds.
ARROW, PARQUET, JSON, NONE = "arrow", "parquet", "json", "none"


def _results() -> dict[str, str]:
    found = {}
    for name, member in vars(Engine).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            found[name] = str(member.__annotations__["return"])
    return found


#: By call, the type of its result in ``Engine``, as text.
RESULTS: Mapping[str, str] = _results()
#: By call, the kind of its answer if it succeeds.
CALLS: Mapping[str, str] = {name: {"Any": ROWS, "Engine": ENGINE}.get(kind, VALUE) for name, kind in RESULTS.items()}


def shortened(text: str, most: int = MAX_TEXT) -> str:
    """The text, cut to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def hello(engine: str, version: str, lacks: str, calls: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """The first line of an engine's process."""
    return {
        "protocol": PROTOCOL, "engine": engine, "version": version, "environment": dict(environment), "lacks": lacks,
        "calls": calls,
    }  # fmt: skip
