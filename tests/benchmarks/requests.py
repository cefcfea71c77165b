"""Counts store calls, with the names that docs/store-calls.md uses for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


def by_kind(calls: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Count (method, path) pairs by kind: listings, reads of commits, reads of checkpoints and so on."""
    kinds: Counter[str] = Counter()
    for (method, path), count in calls.items():
        kinds[_kind(method, path)] += count
    return dict(kinds)


def _kind(method: str, path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    if method == "list_from":
        return "LIST"
    if method == "get":
        return {"_last_checkpoint": "GET hint"}.get(name, "GET .crc" if name.endswith(".crc") else "GET commit")
    if method == "open_input":
        return "open checkpoint" if path.startswith("_delta_log/") else "open data"
    return {"put_if_absent": "PUT", "put": "PUT", "open_output": "data PUT"}.get(method, method.upper())
