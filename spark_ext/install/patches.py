"""Replaces attributes of PySpark's classes, and puts the originals back. Pure."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

from spark_ext.session.spark_names import ORIGINAL

_MISSING = object()
# Whether the caller is spark_ext itself; its calls are passed on to PySpark.
_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("deltalog_inside", default=False)


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """Inside this block, the replaced methods behave like the original methods."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


class Patches:
    """Replaced attributes, in order."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any]] = []

    def method(self, owner: Any, name: str, change: Callable[..., Any]) -> None:
        """Replace a method, if the class has it. ``change`` receives the original method and the arguments of the
        call."""
        original = getattr(owner, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            if _inside.get():
                return original(self, *args, **options)
            return change(original, self, *args, **options)

        setattr(call, ORIGINAL, original)
        self._done.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, call)

    def class_method(self, owner: Any, name: str, change: Callable[..., Any]) -> None:
        """As ``method``, for a class method."""
        original = vars(owner)[name]

        @functools.wraps(original.__func__)
        def call(cls: Any, *args: Any, **options: Any) -> Any:
            bound = original.__get__(None, cls)
            return bound(*args, **options) if _inside.get() else change(bound, *args, **options)

        self._done.append((owner, name, original))
        setattr(owner, name, classmethod(call))

    def undo(self) -> None:
        """Restore the original attributes, in reverse order of replacement."""
        while self._done:
            owner, name, before = self._done.pop()
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
