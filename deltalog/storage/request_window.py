"""Adapts the number of concurrent requests to a store, depending on its responses. Pure.

As in TCP's congestion control, each success enlarges the window a little, and throttling halves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# The smallest window: if a store throttles even so few requests, other clients are the cause.
LEAST = 4


@dataclass(frozen=True, slots=True)
class RequestWindow:
    """At most ``size`` requests run concurrently; ``size`` is always between LEAST and ``most``. ``burst`` counts how
    many times the window was halved. Responses to requests of an earlier burst are ignored, so that
    requests that are throttled together halve the window only once.
    """

    most: int
    size: float
    burst: int = 0

    def admits(self, under_way: int) -> bool:
        """Whether another request may start while ``under_way`` requests are running."""
        return under_way < int(self.size)

    def after_answer(self, burst: int) -> RequestWindow:
        """The window after a successful response to a request that was sent during ``burst``. The window grows by one
        for every ``size`` successful responses."""
        if burst != self.burst:
            return self
        return replace(self, size=min(self.size + 1 / self.size, self.most))

    def after_slow_down(self, burst: int, under_way: int) -> RequestWindow:
        """The window after the store throttled (status 503 or 429) a request sent during ``burst``, while ``under_way``
        requests were running. The size of the new window is half of ``size`` or half of ``under_way``, whichever is
        smaller."""
        if burst != self.burst:
            return self
        return replace(self, size=max(min(self.size, under_way) / 2, min(LEAST, self.most)), burst=self.burst + 1)
