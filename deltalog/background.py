"""Runs background work in threads: the work for one key in order, and all work before the process ends.

Each key, such as the URL of a table, has its own queue, and its own thread as long as the queue is not empty. The
threads are not daemons, and the interpreter waits for them before it exits. Errors are logged. ``os.fork`` waits until
running work has ended; work that is queued when the process forks runs only in the parent process.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - see _wait_at_exit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable

# A caller that has queued more work than this must wait, so that work does not pile up.
MAX_WAITING = 8

log = logging.getLogger(__name__)


class _Queue:
    """Queued and running work. ``added`` counts all work items that were ever queued, ``done`` all that were ever
    finished."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], object]] = deque()
        self.added = self.done = 0
        self.worker: int | None = None  # the thread's identifier


# Guards everything below. The lock is held only briefly, never while work runs.
_changed = threading.Condition()
_queues: dict[str, _Queue] = {}
_under_way = 0
_is_forking = False
_has_ended = False


def in_background(key: str, work: Callable[[], object]) -> None:
    """Queue ``work`` after everything queued for ``key``. Raises nothing. Waits if the queue is full. If no thread can
    be started because the interpreter is exiting, the work is run immediately."""
    with _changed:
        queue = None if _has_ended else _queues.get(key) or _started(key)
        if queue is not None:
            queue.waiting.append(work)
            queue.added += 1
            is_full = queue.added - queue.done > MAX_WAITING
            _changed.notify_all()
    if queue is None:
        _do(key, work)
    elif is_full:
        wait_for(key)


def wait_for(key: str) -> None:
    """Wait for all work that was queued for ``key`` before this call, unless the caller itself runs in that queue.
    Cost: none."""
    with _changed:
        queue = _queues.get(key)
        if queue is None or queue.worker == threading.get_ident():
            return
        end = queue.added
        _changed.wait_for(lambda: queue.done >= end)


def _started(key: str) -> _Queue | None:
    queue = _Queue()
    try:
        threading.Thread(target=_work_off, args=(key, queue), name="deltalog-background", daemon=False).start()
    except RuntimeError:
        return None
    _queues[key] = queue
    return queue


def _work_off(key: str, queue: _Queue) -> None:
    """Run the tasks in a queue until the queue is empty. Runs in its own thread."""
    global _under_way
    queue.worker = threading.get_ident()
    while True:
        with _changed:
            _changed.wait_for(lambda: not _is_forking)
            if not queue.waiting:
                _queues.pop(key, None)
                return
            work = queue.waiting.popleft()
            _under_way += 1
        _do(key, work)
        del work  # frees objects that the finished work references, such as a snapshot, before the next work starts
        with _changed:
            queue.done += 1
            _under_way -= 1
            _changed.notify_all()


def _do(key: str, work: Callable[[], object]) -> None:
    try:
        work()
    except BaseException as error:  # also catches SystemExit, because background work has no caller that could catch it
        log.warning("%s: work in the background failed: %s", key, error, exc_info=error)


# ---------------------------------------------------------------------------------------------------- exit and fork


def _wait_at_exit() -> None:
    """Wait for all queues before concurrent.futures shuts down, after which it refuses all calls. This module imports
    concurrent.futures first, because exit steps run in reverse order of registration."""
    global _has_ended
    while True:
        with _changed:
            keys = list(_queues)
            _has_ended = not keys
        if not keys:
            return
        for key in keys:
            wait_for(key)


def _before_fork() -> None:
    global _is_forking
    _changed.acquire()
    _is_forking = True
    own = int(threading.get_ident() in {queue.worker for queue in _queues.values()})
    _changed.wait_for(lambda: _under_way <= own)


def _after_fork_in_parent() -> None:
    global _is_forking
    _is_forking = False
    _changed.notify_all()
    _changed.release()


def _after_fork_in_child() -> None:
    global _changed, _is_forking, _queues, _under_way
    _changed, _queues = threading.Condition(), {}
    _is_forking, _under_way = False, 0


# If Python's threading module lacks this function, threads are joined only after concurrent.futures has shut down.
if hasattr(threading, "_register_atexit"):
    threading._register_atexit(_wait_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
