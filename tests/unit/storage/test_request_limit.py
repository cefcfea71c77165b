"""Reads that wait for a slot: in threads, in coroutines, and with a store that refuses requests for a while."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from deltalog.storage.request_limit import RequestLimit

LIMIT_S = 60


def never(error: Exception) -> bool:
    return False


class Watch:
    """Records the largest number of requests, and of bytes, that were in flight at the same time."""

    def __init__(self) -> None:
        self.now = self.most = self.bytes = self.most_bytes = 0
        self._lock = threading.Lock()

    def begin(self, size_bytes: int) -> None:
        with self._lock:
            self.now += 1
            self.bytes += size_bytes
            self.most, self.most_bytes = max(self.most, self.now), max(self.most_bytes, self.bytes)

    def end(self, size_bytes: int) -> None:
        with self._lock:
            self.now -= 1
            self.bytes -= size_bytes


def test_requests_and_bytes_are_limited_in_threads_and_coroutines_together() -> None:
    limit, watch = RequestLimit(8, 1_000), Watch()
    pause = threading.Event()

    def in_thread(number: int) -> None:
        size = number * 37 % 400
        with limit.request(size, never):
            watch.begin(size)
            pause.wait(0.001)
            watch.end(size)

    async def in_coroutine(number: int) -> None:
        size = number * 53 % 400
        async with limit.request_async(size, never):
            watch.begin(size)
            await asyncio.sleep(0.001)
            watch.end(size)

    async def all_coroutines() -> None:
        await asyncio.gather(*(in_coroutine(number) for number in range(200)))

    with ThreadPoolExecutor(32) as threads:
        beside = threads.submit(asyncio.run, all_coroutines())
        list(threads.map(in_thread, range(200)))
        beside.result()
    assert watch.most <= 8 and watch.most_bytes <= 1_000 and watch.now == 0
    assert not limit._under_way and not limit._bytes and not limit._waiting


def test_a_request_that_is_larger_than_the_limit_goes_alone() -> None:
    limit, watch = RequestLimit(8, 100), Watch()

    def large(number: int) -> None:
        with limit.request(500, never):
            watch.begin(500)
            watch.end(500)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(large, range(50)))
    assert watch.most == 1


def test_errors_that_ask_to_slow_down_make_the_window_smaller_and_others_do_not() -> None:
    limit = RequestLimit(16)
    with pytest.raises(OSError, match="no"), limit.request(0, never):
        raise OSError("no")
    assert limit.window.size == 16
    with pytest.raises(OSError, match="slow"), limit.request(0, lambda error: "slow" in str(error)):
        raise OSError("slow")
    assert limit.window.size == 4
    with limit.request(0, never):
        pass
    assert limit.window.size == 4.25


def test_a_coroutine_that_is_cancelled_while_it_waits_leaves_its_place() -> None:
    limit = RequestLimit(1)

    async def wait() -> None:
        async with limit.request_async(0, never):
            pass

    async def run() -> None:
        async with limit.request_async(0, never):
            waiting = [asyncio.ensure_future(wait()) for _ in range(5)]
            await asyncio.sleep(0)
            for each in waiting[:-1]:
                each.cancel()
            await asyncio.gather(*waiting[:-1], return_exceptions=True)
        await waiting[-1]

    asyncio.run(run())
    assert not limit._under_way and not limit._waiting


def test_an_interrupt_of_a_thread_that_waits_leaves_its_place() -> None:
    limit = RequestLimit(1)
    main = threading.main_thread().ident or 0
    with limit.request(0, never):
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt), limit.request(0, never):
            pytest.fail("there was no free slot")
    with limit.request(0, never):
        pass
    assert not limit._under_way


def _read_once(limit: RequestLimit) -> None:
    with limit.request(0, never):
        pass


def test_a_process_that_was_forked_while_requests_were_under_way_has_none() -> None:
    limit = RequestLimit(1)
    context = multiprocessing.get_context("fork")
    with limit.request(0, never):
        child = context.Process(target=_read_once, args=(limit,))
        child.start()
        child.join(LIMIT_S)
    assert child.exitcode == 0
