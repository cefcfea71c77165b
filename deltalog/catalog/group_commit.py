"""Group commit: changes that several threads make at the same time share one transaction and one wait for the disk.

While a transaction is being committed, further changes wait in the order of their arrival. Then the thread of the first
waiting change makes all of them in the next transaction. A change that arrives when no other is in progress is made at
once by its own thread: it does not wait for further changes, and there is no background thread.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterator
from typing import Any

# The maximum number of changes in a transaction, which limits how long its first change waits for the others.
_MOST_TOGETHER = 128

Execute = Callable[..., Any]


class Change:
    """A change that a thread has requested. ``make``: executes the statements of the change and returns its result; it
    is called again if the transaction was rolled back. ``durable``: whether it must be on disk when the call returns.
    ``error``: why it was not made. ``may_have_effect``: whether it may have been made despite the error.
    """

    __slots__ = ("_woken", "durable", "error", "is_done", "make", "may_have_effect", "result")

    def __init__(self, make: Callable[[Execute], Any], durable: bool) -> None:
        self.make = make
        self.durable = durable
        self.result: Any = None
        self.error: Exception | None = None
        self.may_have_effect = False
        self.is_done = False
        self._woken = threading.Lock()
        self._woken.acquire()

    def fail(self, error: Exception, *, may_have_effect: bool = False) -> None:
        self.error, self.may_have_effect, self.is_done = error, may_have_effect, True

    def wake(self) -> None:
        self._woken.release()

    def wait(self, seconds: float = -1) -> bool:
        """Wait until the change is done, or until it is this thread's turn to make the waiting changes; returns False
        if neither happens within ``seconds``.
        """
        return self._woken.acquire(timeout=seconds)


class GroupCommit:
    """Combines the changes of one process. Thread-safe. ``commit(changes, durable)``: takes changes from the iterator
    until it is exhausted, makes them in one transaction, and sets the outcome of each. It raises an error only if it
    could begin no transaction; changes without an outcome are made again later.
    """

    def __init__(self, commit: Callable[[Iterator[Change], bool], None], seconds: float) -> None:
        self._commit = commit
        self._seconds = seconds
        self._lock = threading.Lock()
        self._waiting: collections.deque[Change] = collections.deque()
        self._leader: Change | None = None  # whose thread makes the changes now
        self._taken: list[Change] = []  # by the leader, besides its own

    def run(self, change: Change) -> bool:
        """Make a change, and return True when its outcome is set. Returns False if it was not made, because its turn
        did not come within ``seconds``. Raises the errors of ``commit``.
        """
        try:
            with self._lock:
                leads = self._leader is None
                if leads:
                    self._leader = change
                else:
                    self._waiting.append(change)
            if not leads and not self._has_waited(change):
                return False
            if self._leader is change:
                self._lead(change)
            return True
        except BaseException:  # KeyboardInterrupt can be raised after any statement
            self._leave(change)
            raise

    def _has_waited(self, change: Change) -> bool:
        if change.wait(self._seconds):
            return True
        with self._lock:
            if change in self._waiting:
                self._waiting.remove(change)
                return False
        change.wait()  # the change is being made
        return True

    def _lead(self, first: Change) -> None:
        with self._lock:
            durable = first.durable or any(each.durable for each in self._waiting)

        def changes() -> Iterator[Change]:
            yield first
            while len(self._taken) + 1 < _MOST_TOGETHER:
                with self._lock:
                    if not self._waiting or (self._waiting[0].durable and not durable):
                        return
                    change = self._waiting.popleft()
                    self._taken.append(change)
                yield change

        try:
            self._commit(changes(), durable)
        finally:
            self._leave(first)

    def _leave(self, change: Change) -> None:
        """End the part of a thread, and have the first waiting one make the next changes if this one did so."""
        with self._lock:
            if change in self._waiting:
                self._waiting.remove(change)
            if self._leader is not change:
                return
            taken, self._taken = self._taken, []
            self._waiting.extendleft(each for each in reversed(taken) if not each.is_done)
            following = self._leader = self._waiting.popleft() if self._waiting else None
        if following is not None:
            following.wake()
        for each in taken:
            if each.is_done:
                each.wake()
