"""How many requests a store gets side by side, by its answers. Pure.

As TCP does it: each answer makes the window a little larger, a request to slow down halves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# A refusal while few requests are under way is due to others, and says little about these.
LEAST = 4


@dataclass(frozen=True, slots=True)
class RequestWindow:
    """At most ``size`` requests are under way at once, never more than ``most``, and no fewer than LEAST are allowed.

    ``burst``: how often the window was halved. Requests that were sent before it was halved say nothing about the
    smaller one: of all that a store refuses together, one counts.
    """

    most: int
    size: float
    burst: int = 0

    def admits(self, under_way: int) -> bool:
        """Whether one more request may begin beside those that are under way."""
        return under_way < int(self.size)

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
        return replace(self, size=max(min(self.size, under_way) / 2, min(LEAST, self.most)), burst=self.burst + 1)
