"""The limits of each caller: calls per second, concurrent calls, CPU time, and bytes of bodies in memory. A caller that
exceeds its limits is refused, while the others are served.

Callers are distinguished by their principals. A client that fails to authenticate has no principal; its failures are
counted by address. So are calls whose signature cannot be checked before their body has been received, until it has
been.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from deltalog.server.access.principals import network_of

_ROUNDING_S = 1e-6
# How much CPU time a caller may use at once after a pause.
_AT_ONCE_CPU_S = 0.5
# A caller that has used this much more CPU time than its average permits computes much.
_MUCH_CPU_S = 0.05


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits of each principal; 0: no limit. ``calls_per_second``: how many calls a principal may make on average.
    ``burst``: how many calls a principal may make at once after a pause (0: as many as in one second, at least one).
    ``concurrent_calls``: how many calls of a principal may be in progress at the same time. ``pending_bytes``: the
    total size of the bodies of a principal's requests that are being received or processed; a single body may be
    larger. ``processors``: how much CPU time the calls of a principal may use on average, in processors (0.5: half of
    one processor). After a pause, they may use half a second at once, but beyond the first twentieth of a second only
    one call at a time is run. ``failures_per_second``: how many requests per
    second from one address (IPv6: one /64 network) may fail to authenticate, on average. Requests from there that do
    authenticate are not affected. ``failure_burst``: how many such requests may come at once after a pause.
    ``remembered``: how many principals, and how many addresses, are kept in memory with their rates, at least 1; beyond
    it, those that have been idle longest are forgotten.
    """

    calls_per_second: float = 0
    burst: int = 0
    concurrent_calls: int = 0
    pending_bytes: int = 0
    processors: float = 0
    failures_per_second: float = 0
    failure_burst: int = 0
    remembered: int = 10_000


class OverQuotaError(Exception):
    """A caller has reached one of its limits. ``limit``: its name in ``Quotas``. ``retry_after_s``: whole seconds."""

    def __init__(self, limit: str, most: float, retry_after_s: int) -> None:
        super().__init__(
            f"The limit {limit} ({most:g}) of this caller is reached; other callers are not affected. The "
            f"call had no effect. Try again in {retry_after_s} s."
        )
        self.limit = limit
        self.retry_after_s = retry_after_s


class Rates:
    """Limits the rate at which each of many names uses something. ``per_second``: how much a name may use on average;
    0: no limit. ``ahead``: a name that has used more than the average permits is refused once it is further ahead than
    this. ``most``: the maximum number of names in memory; a name that was forgotten starts from zero.
    """

    def __init__(self, per_second: float, ahead: float, most: int, clock: Callable[[], float]) -> None:
        self._seconds_each = 1 / per_second if per_second else 0.0
        self._tolerance_s = self._seconds_each * ahead + _ROUNDING_S
        self._most = most
        self._clock = clock
        # By name: the time at which the average rate would have permitted all that the name has used.
        self._used_until_s: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, name: str) -> float:
        """The time in seconds until a name is permitted to use more; 0: now."""
        return max(0.0, self._used_until_s.get(name, 0.0) - self._tolerance_s - self._clock())

    def is_ahead(self, name: str, amount: float) -> bool:
        """Whether a name has used at least ``amount`` more than the average rate permits."""
        ahead_s = self._used_until_s.get(name, 0.0) - self._clock()
        return bool(self._seconds_each) and ahead_s >= self._seconds_each * amount

    def use(self, name: str, amount: float = 1) -> None:
        if not self._seconds_each:
            return
        now_s = self._clock()
        self._used_until_s[name] = max(now_s, self._used_until_s.get(name, 0.0)) + self._seconds_each * amount
        self._used_until_s.move_to_end(name)
        if len(self._used_until_s) > self._most:
            self._used_until_s.popitem(last=False)

    def give_back(self, name: str) -> None:
        """Undo the use of one."""
        if name in self._used_until_s:
            self._used_until_s[name] -= self._seconds_each

    def __len__(self) -> int:
        return len(self._used_until_s)


class Share:
    """The part of its caller's limits that one call uses."""

    def __init__(self, callers: Callers, name: str) -> None:
        self._callers = callers
        self._name = name
        self.bytes = 0
        self.cpu_s = 0.0  # also the thread that runs the call adds to it

    @property
    def computes_much(self) -> bool:
        """Whether the caller has just used much more CPU time than the limit on its average permits."""
        return self._callers.computes_much(self._name)

    def add(self, count: int) -> None:
        """Count bytes of the body. Raises OverQuotaError."""
        self._callers.take(self._name, count, self.bytes)
        self.bytes += count


@dataclass(slots=True)
class _Use:
    calls: int = 0
    bytes: int = 0


class Callers:
    """Applies the limits to the callers of a server. All calls must be made on one event loop."""

    def __init__(self, quotas: Quotas, clock: Callable[[], float] = time.monotonic) -> None:
        self._quotas = quotas
        most = quotas.remembered
        self._calls = Rates(quotas.calls_per_second, _ahead(quotas.burst, quotas.calls_per_second), most, clock)
        self._processors = Rates(quotas.processors, _AT_ONCE_CPU_S, most, clock)
        ahead = _ahead(quotas.failure_burst, quotas.failures_per_second)
        self._failures = Rates(quotas.failures_per_second, ahead, most, clock)
        self._uses: dict[
            str, _Use
        ] = {}  # only callers with calls in progress, so that the limit of connections bounds it

    @contextlib.contextmanager
    def call(self, name: str, known_bytes: int) -> Iterator[Share]:
        """Count a call of a principal until the block ends. ``known_bytes``: the length of the body if the caller
        declares it, else 0. It is not counted, but a body that is too large for the caller's limit is refused at once.
        Raises OverQuotaError.
        """
        quotas, use = self._quotas, self._uses.get(name) or _Use()
        if quotas.concurrent_calls and use.calls >= quotas.concurrent_calls:
            raise OverQuotaError("concurrent_calls", quotas.concurrent_calls, 1)
        if known_bytes and use.bytes and 0 < quotas.pending_bytes < use.bytes + known_bytes:
            raise OverQuotaError("pending_bytes", quotas.pending_bytes, 1)
        wait_s = self._calls.wait_s(name)
        if wait_s:
            raise OverQuotaError("calls_per_second", quotas.calls_per_second, math.ceil(wait_s))
        wait_s = self._processors.wait_s(name)
        if wait_s:
            raise OverQuotaError("processors", quotas.processors, math.ceil(wait_s))
        self._calls.use(name)
        use.calls += 1
        self._uses[name] = use
        share = Share(self, name)
        try:
            yield share
        finally:
            self._processors.use(name, share.cpu_s)
            use.calls -= 1
            use.bytes -= share.bytes
            if not use.calls:
                del self._uses[name]

    def computes_much(self, name: str) -> bool:
        """Whether a caller has just used much more CPU time than the limit on its average permits."""
        return self._processors.is_ahead(name, _MUCH_CPU_S)

    def give_back(self, name: str) -> None:
        """A call that has ended turned out to be another's."""
        self._calls.give_back(name)

    def take(self, name: str, count: int, own: int) -> None:
        """Count more bytes of the body of a call in progress, of which ``own`` have been counted already. Raises
        OverQuotaError.
        """
        use, most = self._uses[name], self._quotas.pending_bytes
        if most and use.bytes > own and use.bytes + count > most:
            raise OverQuotaError("pending_bytes", most, 1)
        use.bytes += count

    def has_failed(self, address: str | None) -> None:
        """Count a request that failed to authenticate. Raises OverQuotaError."""
        network = network_of(address)
        wait_s = self._failures.wait_s(network)
        if wait_s:
            raise OverQuotaError("failures_per_second", self._quotas.failures_per_second, math.ceil(wait_s))
        self._failures.use(network)


def _ahead(burst: int, per_second: float) -> int:
    """How many calls may come earlier than at an even pace."""
    return max(1, burst or math.floor(per_second)) - 1
