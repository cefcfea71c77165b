"""Type checks for JSON values, which may come from any writer. Pure.

Spec: PROTOCOL.md#commit-provenance-information.
"""

from __future__ import annotations

from typing import Any


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def whole_or_none(value: Any) -> int | None:
    """Return the value if it is an integer, else None. Booleans, which are ints in Python, do not count as integers."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def mapping_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
