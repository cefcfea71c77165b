"""Schedules calls so that a hanging store delays only calls for the tables in that store.

Every call is assigned to a lane, usually the lane of the table that it accesses. A call that takes longer than
``slow_seconds`` no longer counts towards the total of running calls, but only towards its lane. A lane with slow calls
is limited to a share of the threads and to a share of the requests in progress; calls beyond these shares are refused.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

# The maximum number of slow calls, as a multiple of the number of threads.
_SLOW_PER_THREAD = 4


class BusyError(Exception):
    """Too many requests are in progress, in total or in this lane, so the call was refused and had no effect."""


class NotBegunError(Exception):
    """The call timed out before a thread ran it, so it had no effect."""


class NotDoneError(Exception):
    """The call timed out while it was running, and continues to run."""


@dataclass(slots=True)
class _Lane:
    in_progress: int = 0
    running: int = 0
    slow: int = 0
    waiting: collections.deque[asyncio.Future[None]] = field(default_factory=collections.deque)


class Lanes:
    """The lanes of a server. All calls must be made on one event loop. ``threads``: the maximum number of concurrent
    calls, excluding slow calls. ``requests``: the maximum number of calls that have not been answered yet."""

    def __init__(self, threads: int, requests: int, slow_seconds: float) -> None:
        self._threads = threads
        self._requests = requests
        self._slow_seconds = slow_seconds
        self._max_slow = _SLOW_PER_THREAD * threads
        self._pool = ThreadPoolExecutor(threads + self._max_slow, thread_name_prefix="deltalog-server")
        self._lanes: dict[str, _Lane] = {}

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def counts(self) -> dict[str, int]:
        """The number of calls that run and are not slow, wait, are slow, and are in progress. Can be called from any
        thread."""
        lanes = list(self._lanes.values())
        found = {name: sum(getattr(lane, name) for lane in lanes) for name in ("running", "slow", "in_progress")}
        return {**found, "waiting": sum(len(lane.waiting) for lane in lanes)}

    async def run(self, name: str, work: Callable[[], T], seconds: float) -> T:
        """Run ``work`` in a thread. Raises BusyError, NotBegunError, NotDoneError, and the errors of ``work``."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        lane = self._lanes.setdefault(name, _Lane())
        if self._count("in_progress") >= self._requests or lane.in_progress >= self._max_in_progress(lane):
            self._forget(name)
            raise BusyError
        lane.in_progress += 1
        counts = True
        try:
            try:
                await self._turn(lane, seconds)
            except BusyError:  # ``_shed`` has already decremented ``in_progress``
                counts = False
                raise
            done = loop.run_in_executor(self._pool, work)
            self._watch(name, lane, done)
            try:
                return await asyncio.wait_for(asyncio.shield(done), end - loop.time())
            except asyncio.TimeoutError:
                if done.done():  # the call finished just as the timeout expired
                    return done.result()
                raise NotDoneError from None
        finally:
            lane.in_progress -= counts
            self._forget(name)

    # ---------------------------------------------------------------------------------- waiting for a turn

    async def _turn(self, lane: _Lane, seconds: float) -> None:
        if not lane.waiting and self._may_run(lane):
            lane.running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.waiting.append(turn)
        try:
            await asyncio.wait_for(asyncio.shield(turn), seconds)
        except BaseException as error:
            if turn in lane.waiting:
                lane.waiting.remove(turn)
            elif not isinstance(error, BusyError):  # a thread was assigned to the call just before the time-out
                if turn.exception() is None:
                    lane.running -= 1
                    self._wake()
                else:
                    # ``_shed`` has already decremented the count, and ``run`` will decrement it again.
                    lane.in_progress += 1
            if isinstance(error, asyncio.TimeoutError):
                raise NotBegunError from None
            raise

    def _watch(self, name: str, lane: _Lane, done: asyncio.Future[T]) -> None:
        counted = ["running"]

        def is_slow() -> None:
            if self._count("slow") < self._max_slow:
                lane.running -= 1
                lane.slow += 1
                counted[0] = "slow"
                self._shed(lane)
                self._wake()

        timer = asyncio.get_running_loop().call_later(self._slow_seconds, is_slow)

        def is_done(_: object) -> None:
            timer.cancel()
            setattr(lane, counted[0], getattr(lane, counted[0]) - 1)
            if not done.cancelled():
                done.exception()  # avoids asyncio's warning about an exception that was never retrieved
            self._wake()
            self._forget(name)

        done.add_done_callback(is_done)

    def _wake(self) -> None:
        """Start waiting calls, one from each lane in turn."""
        woken = True
        while woken:
            woken = False
            for lane in list(self._lanes.values()):
                if lane.waiting and self._may_run(lane):
                    lane.running += 1
                    lane.waiting.popleft().set_result(None)
                    woken = True

    def _shed(self, lane: _Lane) -> None:
        """Refuse the waiting calls that exceed a lane's share, beginning with the latest."""
        surplus = lane.in_progress - self._max_in_progress(lane)
        for _ in range(min(surplus, len(lane.waiting))):
            lane.in_progress -= 1
            lane.waiting.pop().set_exception(BusyError())

    def _forget(self, name: str) -> None:
        lane = self._lanes.get(name)
        if lane is not None and not (lane.in_progress or lane.running or lane.slow or lane.waiting):
            del self._lanes[name]

    # ------------------------------------------------------------------------------- shares of the threads

    def _may_run(self, lane: _Lane) -> bool:
        share = min(self._threads, max(1, (self._max_slow - self._count("slow") + lane.slow) // 2))
        return self._count("running") < self._threads and lane.running + lane.slow < share

    def _max_in_progress(self, lane: _Lane) -> int:
        """The maximum number of calls that a lane may have in progress. If a lane has slow calls, it may use at most
        half of the capacity that other lanes do not use."""
        others = self._count("in_progress") - lane.in_progress
        return max(1, (self._requests - others) // 2) if lane.slow else self._requests

    def _count(self, what: str) -> int:
        return sum(getattr(lane, what) for lane in self._lanes.values())
