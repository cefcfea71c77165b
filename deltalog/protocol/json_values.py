"""Values of JSON that any writer may have written, by their types. Pure.

Spec: PROTOCOL.md#commit-provenance-information.
"""

from __future__ import annotations

from typing import Any


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def whole_or_none(value: Any) -> int | None:
    """An integer; a boolean, which Python counts among them, is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def mapping_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
