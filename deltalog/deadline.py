"""Deadlines: when the work of a call must end because its caller no longer waits for it.

If work continued after its deadline, it would occupy a thread and hold locks needlessly. Work past its deadline ends
when it next reads a table of a catalog: this read raises the error of a failed store, which every operation handles
anyway.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from deltalog.errors import StoreError

R = TypeVar("R")

# The unit is seconds, as returned by time.monotonic().
_END: ContextVar[float | None] = ContextVar("deltalog_deadline", default=None)


@contextlib.contextmanager
def until(end_s: float | None) -> Iterator[None]:
    """Set the deadline of this thread within the block to a value of ``time.monotonic()``; None: no deadline."""
    token = _END.set(end_s)
    try:
        yield
    finally:
        _END.reset(token)


def check(url: str) -> None:
    """Raise StoreError if the deadline has passed. ``url``: the URL that would be read next."""
    end_s = _END.get()
    if end_s is not None and time.monotonic() > end_s:
        raise StoreError(
            f"{url}: the call took longer than its caller waits for it, and was ended before its next read."
        )


def seconds_left() -> float:
    """The time left, in the form that ``Lock.acquire`` takes: -1 without a deadline, otherwise at least 0."""
    end_s = _END.get()
    return -1 if end_s is None else max(0.0, end_s - time.monotonic())


def carried(function: Callable[..., R]) -> Callable[..., R]:
    """Wrap a function that another thread will run, so that it runs with this thread's deadline and the rest of its
    context.
    """
    if _END.get() is None:
        return function
    context = contextvars.copy_context()

    @functools.wraps(function)
    def run(*arguments: Any) -> R:
        return context.copy().run(function, *arguments)

    return run
