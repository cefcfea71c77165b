"""Whether a service that answers goes on: rules by which its pages and bodies have an end. Pure.

A listing, or a query, that repeats itself would keep a call running without limit; so would a body that never ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

# Pages in a row without anything in them: S3 may skip deleted versions so.
MOST_EMPTY_PAGES = 10_000
# A body that arrives more slowly than this, after a minute, is given up.
SLOWEST_BYTES_PER_SECOND = 16 << 10


class Pages:
    """The pages of one listing. ``where``: for messages."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._tokens: set[str] = set()
        self._before: tuple[str, str] | None = None
        self._empty = 0

    def begin_again(self) -> None:
        """Another listing takes the place of this one, which may have tokens of its own."""
        self._tokens.clear()

    def following(self, token: object, names: Sequence[str]) -> str:
        """The token of the next page, after one that has ``names`` and says that another one follows.

        Raises ValueError where there is none, where it was there before, where the page has what the one before it has,
        and after too many pages in a row without names.
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
    """The time that a response may take, which grows with the bytes that arrive. ``clock_s``: in seconds."""

    def __init__(self, seconds: float, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._ends_s = clock_s() + seconds

    def arrived(self, size_bytes: int) -> None:
        """More of the body has arrived."""
        self._ends_s += size_bytes / SLOWEST_BYTES_PER_SECOND

    def left_s(self) -> float:
        """The seconds that are left. Raises TimeoutError."""
        left = self._ends_s - self._clock_s()
        if left <= 0:
            raise TimeoutError("timed out")
        return left
