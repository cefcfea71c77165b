"""How many requests a store gets side by side, by its answers. Pure.

As TCP does it: each answer makes the window a little larger, a request to slow down halves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RequestWindow:
    """At most ``size`` requests are under way at once, and never more than ``most``.

    ``burst``: how often the window was halved. Requests that were sent before it was halved say nothing about the
    smaller one: of all that a store refuses together, one counts.
    """

    most: int
    size: float
    burst: int = 0

    def admits(self, under_way: int) -> bool:
        """Whether one more request may begin beside those that are under way."""
        return under_way < max(int(self.size), 1)

    def after_answer(self, burst: int) -> RequestWindow:
        """The window after an answer to a request that was sent in ``burst``. A whole window of answers makes it larger
        by one."""
        if burst != self.burst:
            return self
        return replace(self, size=min(self.size + 1 / self.size, self.most))

    def after_slow_down(self, burst: int, under_way: int) -> RequestWindow:
        """The window after the store has refused a request that was sent in ``burst``, with 503 or 429, while
        ``under_way`` were: half of them."""
        if burst != self.burst:
            return self
        return replace(self, size=max(min(self.size, under_way) / 2, 1), burst=self.burst + 1)
