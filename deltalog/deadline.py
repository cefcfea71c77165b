"""When the work of a call has to end, because its caller is no longer waiting for it.

Work that was not ended would hold its thread and its locks for nothing. It ends where it next reads a table of a
catalog, with the error of a store that failed, which every operation handles at any such place.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from deltalog.errors import StoreError

R = TypeVar("R")

# In seconds of time.monotonic().
_END: ContextVar[float | None] = ContextVar("deltalog_deadline", default=None)


@contextlib.contextmanager
def until(end_s: float | None) -> Iterator[None]:
    """In the block, work of this thread ends at a time of ``time.monotonic()``; None: whenever it is done."""
    token = _END.set(end_s)
    try:
        yield
    finally:
        _END.reset(token)


def check(url: str) -> None:
    """Raises StoreError if the time is over. ``url``: what would be read next."""
    end_s = _END.get()
    if end_s is not None and time.monotonic() > end_s:
        raise StoreError(f"{url}: the call took longer than its caller waits, and was ended before its next read.")


def seconds_left() -> float:
    """The time that is left, as ``Lock.acquire`` takes it: -1 without a deadline, and at least 0."""
    end_s = _END.get()
    return -1 if end_s is None else max(0.0, end_s - time.monotonic())


def carried(function: Callable[..., R]) -> Callable[..., R]:
    """A function for another thread, whose work ends when that of this one does."""
    end_s = _END.get()
    if end_s is None:
        return function

    @functools.wraps(function)
    def run(*arguments: Any) -> R:
        with until(end_s):
            return function(*arguments)

    return run
