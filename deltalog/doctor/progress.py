"""Progress of a check. Pure."""

from __future__ import annotations

from collections.abc import Callable

#: Called with the name of the current step, the number of items done, and their total.
Progress = Callable[[str, int, int], object]


def silent(what: str, done: int, of: int) -> None:
    """The default ``progress``, which reports nothing."""
