"""Schedules calls so that a hanging store delays only calls for the tables in that store.

Every call is assigned to a lane, usually the lane of the table that it accesses. A call that takes longer than
``slow_seconds`` no longer counts towards the total of running calls, but only towards its lane. A lane with slow calls
is limited to a share of the threads and to a share of the requests in progress; calls beyond these shares are refused.

Callers share the threads too: the next call to run is one of the caller that has the fewest running calls. When the
limit of requests in progress is reached, a caller with few of them may still make some, so that a caller with very many
requests does not lock out the others. The calls of a caller that computes much run one at a time: all threads take
turns at Python's interpreter lock, so a call waits for its turn as often as there are threads that compute.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

# The maximum number of slow calls, as a multiple of the number of threads.
_SLOW_PER_THREAD = 4
# At the limit of requests in progress, a caller that has less than this fraction of the limit may still make requests.
# # All callers together then have at most twice the limit.
_SMALL_PART = 8


class BusyError(Exception):
    """Too many requests are in progress, in total or in this lane, so the call was refused and had no effect."""


class NotBegunError(Exception):
    """The call timed out before a thread ran it, so it had no effect."""


class GoneError(Exception):
    """The caller had gone when it was the turn of its call, so it had no effect."""


class NotDoneError(Exception):
    """The call timed out while it was running, and continues to run."""


@dataclass(slots=True)
class _Lane:
    in_progress: int = 0
    running: int = 0
    slow: int = 0
    waiting: collections.deque[_Turn] = field(default_factory=collections.deque)


@dataclass(slots=True, eq=False)
class _Turn:
    """A call that waits for a thread. ``number``: its position in the order of arrival. ``is_single``: it must not
    begin while another call of its caller is running."""

    number: int
    caller: str
    is_single: bool
    begins: asyncio.Future[None]


class Lanes:
    """The lanes of a server. All calls must be made on one event loop. ``threads``: the maximum number of concurrent
    calls, excluding slow calls. ``requests``: the maximum number of calls that have not been answered yet; callers with
    few calls may exceed it."""

    def __init__(self, threads: int, requests: int, slow_seconds: float) -> None:
        self._threads = threads
        self._requests = requests
        self._slow_seconds = slow_seconds
        self._max_slow = _SLOW_PER_THREAD * threads
        self._pool = ThreadPoolExecutor(threads + self._max_slow, thread_name_prefix="deltalog-server")
        self._lanes: dict[str, _Lane] = {}
        self._numbers = itertools.count()
        self._total = _Lane()  # the totals of all lanes
        self._in_progress: collections.Counter[str] = collections.Counter()  # by caller
        self._running: collections.Counter[str] = collections.Counter()  # by caller, without slow calls

    @property
    def is_full(self) -> bool:
        """Whether as many calls are in progress as are allowed: only callers with few of them may make more."""
        return self._total.in_progress >= self._requests

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def counts(self) -> dict[str, int]:
        """Four numbers of calls: those that run and are not slow, those that wait, those that are slow, and those that
        are in progress. Can be called from any thread.
        """
        lanes = list(self._lanes.values())
        found = {name: sum(getattr(lane, name) for lane in lanes) for name in ("running", "slow", "in_progress")}
        return {**found, "waiting": sum(len(lane.waiting) for lane in lanes)}

    async def run(
        self,
        name: str,
        work: Callable[[], T],
        seconds: float,
        caller: str = "",
        is_gone: Callable[[], bool] = lambda: False,
        is_single: bool = False,
    ) -> T:
        """Run ``work`` in a thread, for a caller. ``is_gone``: whether nobody waits for the result any more.
        ``is_single``: begin only while no other call of this caller is running, not counting slow ones. Raises
        BusyError, NotBegunError, GoneError, NotDoneError, and the errors of ``work``."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        lane = self._lanes.setdefault(name, _Lane())
        if not self._has_room(caller) or lane.in_progress >= self._max_in_progress(lane):
            self._forget(name)
            raise BusyError
        self._enter(lane, caller)
        counts = True
        try:
            try:
                await self._turn(lane, caller, seconds, is_single)
            except BusyError:  # ``_shed`` has already counted the call as answered
                counts = False
                raise
            if is_gone():
                self._end(lane, caller)
                self._wake()
                raise GoneError
            done = loop.run_in_executor(self._pool, work)
            self._watch(name, lane, caller, done)
            await asyncio.wait([done], timeout=end - loop.time())
            if not done.done():
                raise NotDoneError
            return done.result()
        finally:
            if counts:
                self._leave(lane, caller)
            self._forget(name)

    # ------------------------------------------------------------------------------------------ counting

    def _enter(self, lane: _Lane, caller: str) -> None:
        lane.in_progress += 1
        self._total.in_progress += 1
        self._in_progress[caller] += 1

    def _leave(self, lane: _Lane, caller: str) -> None:
        lane.in_progress -= 1
        self._total.in_progress -= 1
        _decrement(self._in_progress, caller)

    def _begin(self, lane: _Lane, caller: str) -> None:
        lane.running += 1
        self._total.running += 1
        self._running[caller] += 1

    def _end(self, lane: _Lane, caller: str) -> None:
        lane.running -= 1
        self._total.running -= 1
        _decrement(self._running, caller)

    def _add_slow(self, lane: _Lane, count: int) -> None:
        lane.slow += count
        self._total.slow += count

    # ---------------------------------------------------------------------------------- waiting for a turn

    async def _turn(self, lane: _Lane, caller: str, seconds: float, is_single: bool) -> None:
        if self._next(lane) is None and self._may_run(lane) and self._may_begin(caller, is_single):
            self._begin(lane, caller)
            return
        turn = _Turn(next(self._numbers), caller, is_single, asyncio.get_running_loop().create_future())
        lane.waiting.append(turn)
        try:
            await asyncio.wait_for(asyncio.shield(turn.begins), seconds)
        except BaseException as error:
            if turn in lane.waiting:
                lane.waiting.remove(turn)
            elif not isinstance(error, BusyError):  # a thread was assigned to the call just before the time-out
                if turn.begins.exception() is None:
                    self._end(lane, caller)
                    self._wake()
                else:
                    # ``_shed`` has already counted the call as answered, and ``run`` will do so again.
                    self._enter(lane, caller)
            if isinstance(error, asyncio.TimeoutError):
                raise NotBegunError from None
            raise

    def _watch(self, name: str, lane: _Lane, caller: str, done: asyncio.Future[T]) -> None:
        is_slow = False

        def becomes_slow() -> None:
            nonlocal is_slow
            if self._total.slow < self._max_slow:
                self._end(lane, caller)
                self._add_slow(lane, 1)
                is_slow = True
                self._shed(lane)
                self._wake()

        timer = asyncio.get_running_loop().call_later(self._slow_seconds, becomes_slow)

        def is_done(_: object) -> None:
            timer.cancel()
            if is_slow:
                self._add_slow(lane, -1)
            else:
                self._end(lane, caller)
            if not done.cancelled():
                done.exception()  # avoids asyncio's warning about an exception that was never retrieved
            self._wake()
            self._forget(name)

        done.add_done_callback(is_done)

    def _wake(self) -> None:
        """Start waiting calls: first those of the callers who have the fewest running calls; of these, those in the
        lanes with the fewest; of these, those that came first."""
        while self._total.running < self._threads:
            waiting = [
                (lane, turn)
                for lane in self._lanes.values()
                if lane.waiting and self._may_run(lane) and (turn := self._next(lane)) is not None
            ]
            if not waiting:
                return
            lane, turn = min(waiting, key=self._order)
            lane.waiting.remove(turn)
            self._begin(lane, turn.caller)
            turn.begins.set_result(None)

    def _next(self, lane: _Lane) -> _Turn | None:
        """The first call of a lane that may begin as far as its caller is concerned."""
        return next((each for each in lane.waiting if self._may_begin(each.caller, each.is_single)), None)

    def _may_begin(self, caller: str, is_single: bool) -> bool:
        return not (is_single and self._running[caller])

    def _order(self, waiting: tuple[_Lane, _Turn]) -> tuple[int, int, int]:
        lane, turn = waiting
        return self._running[turn.caller], lane.running, turn.number

    def _shed(self, lane: _Lane) -> None:
        """Refuse the waiting calls that exceed a lane's share, beginning with the latest."""
        surplus = lane.in_progress - self._max_in_progress(lane)
        for _ in range(min(surplus, len(lane.waiting))):
            turn = lane.waiting.pop()
            self._leave(lane, turn.caller)
            turn.begins.set_exception(BusyError())

    def _forget(self, name: str) -> None:
        lane = self._lanes.get(name)
        if lane is not None and not (lane.in_progress or lane.running or lane.slow or lane.waiting):
            del self._lanes[name]

    # ------------------------------------------------------------------------------- shares of the threads

    def _may_run(self, lane: _Lane) -> bool:
        share = min(self._threads, max(1, (self._max_slow - self._total.slow + lane.slow) // 2))
        return self._total.running < self._threads and lane.running + lane.slow < share

    def _has_room(self, caller: str) -> bool:
        """Whether a caller may have one more call in progress."""
        count = self._total.in_progress
        if count < self._requests:
            return True
        return self._in_progress[caller] < self._requests // _SMALL_PART and count < 2 * self._requests

    def _max_in_progress(self, lane: _Lane) -> int:
        """The maximum number of calls that a lane may have in progress. If a lane has slow calls, it may use at most
        half of the capacity that other lanes do not use."""
        if not lane.slow:
            return 2 * self._requests
        return max(1, (self._requests - self._total.in_progress + lane.in_progress) // 2)


def _decrement(counts: collections.Counter[str], name: str) -> None:
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]
