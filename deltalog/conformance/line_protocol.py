"""The line protocol between the kit and the process of an engine: one JSON object per line. Pure.

docs/conformance.md describes it for engines in other languages. An engine's own environment imports this module, which
therefore imports only the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
#: By call, the kind of its answer if it succeeds.
CALLS: Mapping[str, str] = {
    "rows": ROWS,
    "version_at": VALUE,
    "latest_version": VALUE,
    "history": VALUE,
    "changes": ROWS,
    "create": VALUE,
    "append": VALUE,
    "overwrite": VALUE,
    "delete": VALUE,
    "set_properties": VALUE,
    "restore": VALUE,
    "checkpoint": VALUE,
    "of_catalog": ENGINE,
    "begin": ENGINE,
}


def shortened(text: str, most: int = MAX_TEXT) -> str:
    """The text, cut to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def hello(engine: str, version: str, lacks: str, calls: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """The first line of an engine's process."""
    return {
        "protocol": PROTOCOL, "engine": engine, "version": version, "environment": dict(environment), "lacks": lacks,
        "calls": calls,
    }  # fmt: skip
