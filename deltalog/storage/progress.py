"""Limits for listings and response bodies, in case a service is faulty. Pure.

Without these limits, a listing or query that repeats its pages, or a body that never ends, would block a call forever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

# Consecutive empty pages: S3 may return empty pages while it skips deleted versions.
MOST_EMPTY_PAGES = 10_000
# After the first minute, a transfer is abandoned if its body arrives more slowly than this rate.
SLOWEST_BYTES_PER_SECOND = 16 << 10


class Pages:
    """Checks that each page of a listing makes progress. ``where``: a description of the listing for error messages."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._tokens: set[str] = set()
        self._before: tuple[str, str] | None = None
        self._empty = 0

    def begin_again(self) -> None:
        """Forget the page tokens seen so far, because a new listing replaces the current one and may return the same
        tokens."""
        self._tokens.clear()

    def following(self, token: object, names: Sequence[str]) -> str:
        """Return the token of the next page, after checking it; ``names`` are the names in the current page, which is
        not the last one.

        Raises ValueError if the token is missing or repeated, if the page repeats the previous one, or after too many
        consecutive pages without names.
        """
        if not isinstance(token, str) or not token:
            raise ValueError(f"{self._where}: a page says that another one follows, and not which")
        held = (names[0], names[-1]) if names else None
        self._empty = 0 if names else self._empty + 1
        if token in self._tokens or (held is not None and held == self._before) or self._empty > MOST_EMPTY_PAGES:
            raise ValueError(f"{self._where}: the service repeats itself, and the listing has no end")
        self._tokens.add(token)
        self._before = held
        return token


class Pace:
    """The time limit of a response, which is extended as bytes arrive. ``clock_s``: in seconds."""

    def __init__(self, seconds: float, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._ends_s = clock_s() + seconds

    def arrived(self, size_bytes: int) -> None:
        """Extend the time limit, because ``size_bytes`` bytes of the body have arrived."""
        self._ends_s += size_bytes / SLOWEST_BYTES_PER_SECOND

    def left_s(self) -> float:
        """The remaining seconds. Raises TimeoutError if there are none."""
        left = self._ends_s - self._clock_s()
        if left <= 0:
            raise TimeoutError("timed out")
        return left
