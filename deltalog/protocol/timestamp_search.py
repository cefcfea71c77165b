"""Finds the last commit at or before a time by in-commit timestamp, reading few commits in few rounds. Pure.

In-commit timestamps increase from version to version, so each commit that is read rules out all commits on one side of
it. Each round reads several commits concurrently. Half of these commits are close to the version that interpolation
predicts. If commits are made at regular or random intervals, the search finds the commit in three or four rounds. The
versions in the other half are equidistant, so that each round narrows the search at least fivefold, however the commits
are distributed over time.

Spec: PROTOCOL.md#in-commit-timestamps, #recommendations-for-readers-of-tables-with-in-commit-timestamps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

PROBES = 8
# Offsets from the predicted version, in units of the square root of the number of versions, which is the spread of the
# prediction's error if commits are made at random intervals.
_AROUND = (-1.0, -0.15, 0.15, 1.0)


class TimestampSearch:
    """Narrows the versions ``first`` to ``last`` down to two consecutive versions, one at or before ``timestamp_ms``
    and one after it.

    ``last_ms``: the time of ``last``, which is after ``timestamp_ms``. ``first_ms``: an estimate of the time of
    ``first``; it affects only where the search begins. ``known``: times that are already known and need not be read.
    All times are in milliseconds since 1970.
    """

    def __init__(
        self,
        timestamp_ms: int,
        first: int,
        last: int,
        last_ms: int,
        first_ms: int | None = None,
        known: Mapping[int, int] | None = None,
    ) -> None:
        self._timestamp_ms = timestamp_ms
        self._first = first
        self._below, self._below_ms = first - 1, first_ms
        self._above, self._above_ms = last, last_ms
        self._times: dict[int, int | None] = {}
        self.learn({version: ms for version, ms in (known or {}).items() if first <= version < last})

    @property
    def found(self) -> int | None:
        """The last version at or before the time, as soon as the next version is known to be after that time. None
        until the search has ended, or if the log begins after the time, or if it has a gap at the version in
        question."""
        is_narrow = self._above - self._below == 1
        return self._below if is_narrow and self._times.get(self._below) is not None else None

    def probes(self) -> list[int]:
        """The versions to read next, ascending; empty when the search is over."""
        low, high = self._below + 1, self._above - 1
        if high - low < PROBES:
            return list(range(low, high + 1))
        # Reading the first version shows whether the start of the log still exists.
        chosen = {self._first} if self._below < self._first else set()
        below_ms, above_ms = self._below_ms, self._above_ms
        if below_ms is not None and below_ms <= self._timestamp_ms:
            # Uses integer arithmetic, because the values come from the log and can be too large for floats.
            expected = self._below + (self._timestamp_ms - below_ms) * (high + 1 - self._below) // (above_ms - below_ms)
            spread = math.isqrt(high - low + 1)
            chosen |= {min(max(expected + round(part * spread), low), high) for part in _AROUND}
        parts = PROBES - len(chosen) + 1
        chosen |= {self._below + part * (high - self._below + 1) // parts for part in range(1, parts)}
        return sorted(version for version in chosen if low <= version <= high)

    def learn(self, times: Mapping[int, int | None]) -> None:
        """Record the times of commits. None means that a commit does not exist: the log begins after it or has a gap
        there, so only later commits are searched."""
        self._times.update(times)
        for version, time_ms in sorted(times.items()):
            if not self._below < version < self._above:
                continue
            if time_ms is None:
                self._below, self._below_ms = version, None
            elif time_ms <= self._timestamp_ms:
                self._below, self._below_ms = version, time_ms
            else:
                self._above, self._above_ms = version, time_ms
                return
