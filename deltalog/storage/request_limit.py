"""Limits the concurrent reads of one client across its threads and coroutines."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future

from deltalog.storage.request_window import RequestWindow

MOST_REQUESTS = 64
MOST_BYTES = 128 << 20
SLOW_STATUSES = (429, 503)


class Turn:
    """Permission to send one request; see ``RequestLimit``."""

    def __init__(self, limit: RequestLimit, size_bytes: int, burst: int) -> None:
        self._limit = limit
        self.size_bytes = size_bytes
        self.burst = burst

    def slow_down(self) -> None:
        """Report that the store throttled the request. The caller continues to count towards the limit, so that it can
        retry."""
        self._limit._slow_down(self)


class RequestLimit:
    """Admits at most 64 concurrent requests for at most 128 MiB in total; a larger request runs alone.

    ``Turn.slow_down`` lowers the maximum number of requests, and successful responses raise it again. Waiting callers
    are admitted in the order of their arrival.
    """

    def __init__(self, most: int = MOST_REQUESTS, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._begin_process()

    def _begin_process(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Turn], int]] = deque()
        self._under_way = self._bytes = 0
        self.window = RequestWindow(self._most, self._most)

    @contextlib.contextmanager
    def request(self, size_bytes: int, is_slow: Callable[[Exception], bool]) -> Iterator[Turn]:
        """Wait until the limit admits this request, and count the request towards the limit during the ``with`` block.
        ``size_bytes``: the size of the requested range, 0 if unknown. ``is_slow``: returns whether an error raised in
        the block means that the store throttled the request."""
        waiting = self._ask(size_bytes)
        try:
            turn = waiting.result()
        except BaseException:
            self._give_up(waiting)
            raise
        with self._taken(turn, is_slow):
            yield turn

    @contextlib.asynccontextmanager
    async def request_async(self, size_bytes: int, is_slow: Callable[[Exception], bool]) -> AsyncIterator[Turn]:
        """Like ``request``, for coroutines."""
        # Imported here, not at the top, because the import takes 0.1 s and most clients use no coroutines.
        import asyncio

        waiting = self._ask(size_bytes)
        try:
            turn = await asyncio.wrap_future(waiting)
        except BaseException:
            self._give_up(waiting)
            raise
        with self._taken(turn, is_slow):
            yield turn

    @contextlib.contextmanager
    def _taken(self, turn: Turn, is_slow: Callable[[Exception], bool]) -> Iterator[None]:
        was_answered = True
        try:
            yield
        except Exception as error:
            was_answered = not is_slow(error)
            if not was_answered:
                turn.slow_down()
            raise
        except BaseException:
            was_answered = False
            raise
        finally:
            self._end(turn, was_answered)

    def _ask(self, size_bytes: int) -> Future[Turn]:
        if self._process != os.getpid():  # in a forked child process, in which no requests are in progress yet
            self._begin_process()
        asked: Future[Turn] = Future()
        with self._lock:
            self._waiting.append((asked, size_bytes))
        self._admit()
        return asked

    def _give_up(self, waiting: Future[Turn]) -> None:
        """Release the slot of a caller that was interrupted while waiting for it. The slot may have been assigned just
        before the interruption."""
        if not waiting.cancel() and not waiting.cancelled():
            self._end(waiting.result(), was_answered=False)

    def _admit(self) -> None:
        """Admit waiting requests while the limit allows it."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                asked, size_bytes = self._waiting[0]
                fits = not self._under_way or self._bytes + size_bytes <= self._most_bytes
                if not (fits and self.window.admits(self._under_way)):
                    return
                self._waiting.popleft()
                if not asked.set_running_or_notify_cancel():
                    continue
                self._under_way += 1
                self._bytes += size_bytes
                turn = Turn(self, size_bytes, self.window.burst)
            asked.set_result(turn)

    def _end(self, turn: Turn, was_answered: bool) -> None:
        with self._lock:
            self._under_way -= 1
            self._bytes -= turn.size_bytes
            if was_answered:
                self.window = self.window.after_answer(turn.burst)
        self._admit()

    def _slow_down(self, turn: Turn) -> None:
        with self._lock:
            self.window = self.window.after_slow_down(turn.burst, self._under_way)
            turn.burst = self.window.burst
