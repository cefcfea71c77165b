"""Background work is done in order, by threads that end when the work does, and is finished before the process
exits."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import pytest

from deltalog import background
from deltalog.background import in_background, wait_for


def threads() -> int:
    return sum(thread.name == "deltalog-background" for thread in threading.enumerate())


def join_all() -> None:
    for thread in threading.enumerate():
        if thread.name == "deltalog-background":
            thread.join(30)


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


def test_work_of_a_key_is_done_in_order_by_one_thread_that_ends(gate: threading.Event) -> None:
    done: list[tuple[int, int]] = []

    def work(number: int) -> Callable[[], None]:
        def act() -> None:
            gate.wait(5)
            done.append((number, threading.get_ident()))

        return act

    for number in range(background.MAX_WAITING):
        in_background("a", work(number))
    assert not done and threads() == 1
    gate.set()
    wait_for("a")
    assert [number for number, _ in done] == list(range(background.MAX_WAITING))
    assert len({thread for _, thread in done}) == 1 and threading.get_ident() not in {thread for _, thread in done}
    join_all()
    assert threads() == 0 and not background._queues


def test_keys_do_not_wait_for_each_other(gate: threading.Event) -> None:
    in_background("slow", lambda: gate.wait(5))
    in_background("fast", lambda: None)
    wait_for("fast")
    assert not gate.is_set()
    gate.set()
    wait_for("slow")
    wait_for("never used")


def test_who_queues_faster_than_the_work_is_done_waits(gate: threading.Event) -> None:
    done: list[int] = []
    queued = threading.Semaphore(0)

    def work(number: int) -> None:
        gate.wait(5)
        done.append(number)

    def caller() -> None:
        for number in range(2 * background.MAX_WAITING):
            in_background("bounded", partial(work, number))
            queued.release()

    thread = threading.Thread(target=caller)
    thread.start()
    for _ in range(background.MAX_WAITING):
        assert queued.acquire(timeout=30)
    thread.join(0.1)  # enough time for the thread to continue, if it were not blocked
    assert thread.is_alive() and background._queues["bounded"].added <= background.MAX_WAITING + 1
    gate.set()
    thread.join(30)
    wait_for("bounded")
    assert done == list(range(2 * background.MAX_WAITING))


@pytest.mark.parametrize("error", [ValueError("wrong"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_is_logged_and_the_next_work_is_done(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    done: list[bool] = []

    def fail() -> None:
        raise error

    with caplog.at_level(logging.WARNING, "deltalog"):
        in_background("failing", fail)
        in_background("failing", lambda: done.append(True))
        wait_for("failing")
    (record,) = caplog.records
    assert record.exc_info is not None and record.exc_info[1] is error and done == [True]


def test_work_may_wait_for_its_own_queue_and_add_to_it() -> None:
    done: list[bool] = []

    def work() -> None:
        wait_for("own")
        in_background("own", lambda: done.append(True))

    in_background("own", work)
    while not done:
        wait_for("own")


def test_an_interrupt_ends_the_wait_and_not_the_work(gate: threading.Event) -> None:
    done: list[bool] = []
    in_background("interrupted", lambda: done.append(gate.wait(5)))

    class Interrupt(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    changed = background._changed
    background._changed = Interrupt(changed._lock)  # type: ignore[attr-defined]
    try:
        with pytest.raises(KeyboardInterrupt):
            wait_for("interrupted")
    finally:
        background._changed = changed
    assert not done
    gate.set()
    wait_for("interrupted")
    assert done == [True]


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert not done.stderr
    return done.stdout


def test_the_process_ends_when_the_work_is_done_which_may_use_thread_pools() -> None:
    program = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
from deltalog.background import in_background

def work(number):
    threading.main_thread().join(0.05)  # the main thread has ended, or is about to
    with ThreadPoolExecutor(2) as pool:
        print(number, list(pool.map(abs, [-1, -2])), flush=True)

for number in range(3):
    in_background("at exit", lambda number=number: work(number))
print("last line", flush=True)
"""
    assert run(program).splitlines() == ["last line", *(f"{number} [1, 2]" for number in range(3))]


def test_work_that_comes_after_the_end_is_done_at_once() -> None:
    program = """
import atexit
from deltalog.background import in_background
atexit.register(lambda: (in_background("late", lambda: print("done", flush=True)), print("after", flush=True)))
"""
    assert run(program).splitlines() == ["done", "after"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_for_the_work_under_way_and_the_child_does_none_of_it() -> None:
    program = """
import os, threading
from deltalog import background
from deltalog.background import in_background, wait_for

started, lock = threading.Event(), threading.Lock()

def first():
    with lock:
        started.set()
        threading.Event().wait(0.1)

in_background("forked", first)
in_background("forked", lambda: print("second", os.getpid() == parent, flush=True))
parent = os.getpid()
started.wait()
child = os.fork()
if child == 0:
    free = lock.acquire(timeout=0)  # no work was under way
    in_background("forked", lambda: print("child", free, flush=True))
    wait_for("forked")
    os._exit(0)
os.waitpid(child, 0)
wait_for("forked")
"""
    assert sorted(run(program).splitlines()) == ["child True", "second True"]
