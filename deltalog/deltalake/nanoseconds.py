"""Timestamps never keep nanoseconds, because Delta tables store microseconds."""

from __future__ import annotations

_NANOSECOND_TIMESTAMPS = False


def enabled() -> bool:
    """Whether timestamps keep their nanosecond precision."""
    return False


def enable_nanosecond_timestamps() -> None:
    """Raises RuntimeError: deltalog writes microseconds, as the protocol says."""
    raise RuntimeError("Nanosecond timestamps are not in the Delta protocol; deltalog writes microseconds.")
