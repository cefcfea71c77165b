"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(happens: Callable[[], object], seconds: float = 60) -> None:
    """Return as soon as ``happens`` returns something true. Fails after ``seconds``."""
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, f"it did not happen within {seconds:g} s"
        time.sleep(0.01)
