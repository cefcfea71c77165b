"""A store that does not respond delays only the calls on its own tables."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from deltalog import TransactionManager
from deltalog.server.lanes import BusyError, GoneError, Lanes, NotBegunError, NotDoneError
from tests.support.s3 import Answer, Proxy, Request, Server, proxied
from tests.support.server import AT_ONCE, SCHEMA, served


class World:
    """Lanes with 4 threads, and calls that hang until ``release``."""

    def __init__(self, requests: int = 16, slow_seconds: float = 0.01) -> None:
        self.lanes = Lanes(4, requests, slow_seconds)
        self.release = threading.Event()
        self.begun = threading.Semaphore(0)
        self.calls: list[asyncio.Task[Any]] = []

    def hang(self, lane: str, count: int, seconds: float = 60, caller: str = "") -> None:
        self.calls += [asyncio.create_task(self.lanes.run(lane, self._wait, seconds, caller)) for _ in range(count)]

    def _wait(self) -> str:
        self.begun.release()
        self.release.wait(60)
        return "late"

    async def quick(self, lane: str, caller: str = "") -> str:
        return await self.lanes.run(lane, lambda: "done", 60, caller)

    async def begin(self, count: int) -> None:
        """Wait until ``count`` more calls have begun to hang."""
        for _ in range(count):
            await asyncio.to_thread(self.begun.acquire)

    async def end(self) -> list[Any]:
        self.release.set()
        found = await asyncio.gather(*self.calls, return_exceptions=True)
        while self.lanes._lanes:  # these calls were abandoned
            await asyncio.sleep(0.01)
        total = self.lanes._total
        assert (total.in_progress, total.running, total.slow) == (0, 0, 0)
        assert not self.lanes._in_progress and not self.lanes._running
        self.lanes.close()
        return found


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 60))


def test_a_lane_that_hangs_leaves_the_threads_to_the_others() -> None:
    async def scene() -> None:
        world = World()
        world.hang("bad", 8)
        assert await world.quick("good") == "done"
        world.hang("worse", 4)
        assert await asyncio.gather(*[world.quick("good") for _ in range(4)]) == ["done"] * 4
        found = await world.end()
        assert set(found) <= {"late"} | {each for each in found if isinstance(each, BusyError)}
        assert found.count("late") >= 8

    play(scene())


def test_many_lanes_that_hang_leave_something_to_the_others() -> None:
    async def scene() -> None:
        world = World(requests=64)
        for number in range(6):
            world.hang(f"bad {number}", 8)
            await world.begin(1)
            assert await world.quick("good") == "done"
        await world.end()

    play(scene())


def test_a_lane_alone_may_use_all_of_it() -> None:
    async def scene() -> None:
        world = World(slow_seconds=60)
        world.hang("only", 16)
        await world.begin(4)
        with pytest.raises(BusyError):
            await world.quick("only")
        assert await world.end() == ["late"] * 16

    play(scene())


def test_what_waits_beyond_the_share_of_a_slow_lane_is_refused() -> None:
    async def scene() -> None:
        world = World()
        world.hang("bad", 16)
        await world.begin(4)
        # Slow calls of lane "bad" reduce its share of the threads to 7 while "good" also has calls.
        while world.lanes._lanes["bad"].slow < 4:
            await asyncio.sleep(0.01)
        assert await world.quick("good") == "done"
        with pytest.raises(BusyError):
            await world.quick("bad")
        found = await world.end()
        assert [type(each) for each in found].count(BusyError) == 8 and found.count("late") == 8

    play(scene())


def test_one_that_is_shed_as_its_caller_leaves_counts_once() -> None:
    async def scene() -> None:
        world = World(slow_seconds=60)
        world.hang("bad", 16)
        await world.begin(4)
        lane = world.lanes._lanes["bad"]
        world.lanes._add_slow(lane, 1)
        world.lanes._shed(lane)
        for call in world.calls[4:]:
            call.cancel()
        await asyncio.wait(world.calls[4:])
        assert lane.in_progress == 4
        world.lanes._add_slow(lane, -1)
        await world.end()

    play(scene())


def test_what_is_over_time_is_told_by_whether_it_has_begun() -> None:
    async def scene() -> None:
        world = World(slow_seconds=60)
        world.hang("bad", 4, seconds=0.05)
        await world.begin(4)
        world.hang("bad", 2, seconds=0.01)
        found = await asyncio.gather(*world.calls, return_exceptions=True)
        assert [type(each) for each in found] == [NotDoneError] * 4 + [NotBegunError] * 2
        await world.end()

    play(scene())


def test_a_call_whose_caller_has_gone_does_not_begin() -> None:
    async def scene() -> None:
        world = World(slow_seconds=60)
        world.hang("a", 4)
        await world.begin(4)
        begun: list[str] = []
        left = False
        waiting = [
            asyncio.create_task(world.lanes.run("b", lambda: begun.append("gone"), 60, "x", lambda: left)),
            asyncio.create_task(world.lanes.run("b", lambda: begun.append("there"), 60, "y", lambda: False)),
        ]
        await asyncio.sleep(0)
        left = True
        await world.end()
        gone, there = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(gone, GoneError) and there is None and begun == ["there"]

    play(scene())


@pytest.mark.parametrize("slow_seconds", [0.01, 60])
def test_a_caller_who_fills_the_server_keeps_no_other_out(slow_seconds: float) -> None:
    """Neither with slow calls nor with many."""

    async def scene() -> None:
        world = World(requests=32, slow_seconds=slow_seconds)
        for number in range(32):
            world.hang(f"table {number}", 1, caller="greedy")
        await world.begin(4)
        with pytest.raises(BusyError):
            await world.quick("one more", "greedy")
        others = [asyncio.create_task(world.quick(f"other {number}", "modest")) for number in range(4)]
        if slow_seconds < 1:
            assert await asyncio.gather(*others) == ["done"] * 4
        await asyncio.sleep(0)
        assert all(each.done() == (slow_seconds < 1) for each in others)
        world.release.set()
        assert await asyncio.gather(*others) == ["done"] * 4
        assert await world.end() == ["late"] * 32

    play(scene())


def test_the_next_call_is_one_of_the_caller_with_the_fewest() -> None:
    async def scene() -> None:
        world = World(requests=64, slow_seconds=60)
        order: list[str] = []
        world.hang("a", 4, caller="first")
        await world.begin(4)
        calls = [
            asyncio.create_task(world.lanes.run(f"{caller} {number}", lambda c=caller: order.append(c), 60, caller))  # type: ignore[misc]
            for caller, count in (("first", 20), ("second", 3))
            for number in range(count)
        ]
        await asyncio.sleep(0)
        world.release.set()
        await asyncio.gather(*calls)
        assert order.index("second") < 4 and order.count("first") == 20
        await world.end()

    play(scene())


def test_of_the_lanes_of_one_caller_the_one_that_waited_longest_is_next() -> None:
    async def scene() -> None:
        world = World(requests=64, slow_seconds=60)
        order: list[str] = []
        world.hang("held", 4)
        await world.begin(4)
        names = ["a", "b", "a", "c", "b"]
        calls = [asyncio.create_task(world.lanes.run(n, lambda n=n: order.append(n), 60)) for n in names]  # type: ignore[misc]
        await asyncio.sleep(0)
        lanes = world.lanes
        for lane in (lanes._lanes[name] for name in ("a", "b", "c")):
            assert [each.number for each in lane.waiting] == sorted(each.number for each in lane.waiting)
        heads = [(lane, lane.waiting[0]) for lane in (lanes._lanes[name] for name in ("c", "b", "a"))]
        assert min(heads, key=lanes._order)[0] is lanes._lanes["a"]
        world.release.set()
        await asyncio.gather(*calls)
        assert sorted(order) == sorted(names)
        await world.end()

    play(scene())


def test_single_calls_of_a_caller_run_one_after_the_other_and_hold_up_nobody_else() -> None:
    async def scene() -> None:
        world = World(requests=64, slow_seconds=60)
        running = 0
        most: list[int] = []  # how many calls ran at each moment
        lock = threading.Lock()

        def work() -> None:
            nonlocal running
            with lock:
                running += 1
                most.append(running)
            time.sleep(0.01)
            with lock:
                running -= 1

        world.hang("table", 1, caller="computes")
        await world.begin(1)
        single = [
            asyncio.create_task(world.lanes.run(lane, work, 60, "computes", is_single=True))
            for lane in ("table", "table", "another", "table")
        ]
        await asyncio.sleep(0)
        # Calls of others in the same lane overtake those that wait for their caller.
        assert await asyncio.wait_for(world.quick("table", "other"), 10) == "done"
        assert [each.caller for each in world.lanes._lanes["table"].waiting] == ["computes"] * 3
        assert not any(each.done() for each in single) and not most
        world.release.set()
        await asyncio.gather(*single)
        assert most == [1] * 4
        await world.end()

    play(scene())


class Hanging:
    """A table on S3, behind a proxy that answers no request for it between ``start`` and ``release``.

    ``arrived`` counts the requests that have arrived and are waiting.
    """

    def __init__(self, proxy: Proxy) -> None:
        self.arrived = threading.Semaphore(0)
        self.release = threading.Event()
        self._proxy = proxy

    def start(self) -> None:
        self._proxy.rule = self._hold

    def _hold(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        self.arrived.release()
        self.release.wait()
        return forward()


@contextlib.contextmanager
def hanging(server: Server, place: Path) -> Iterator[tuple[Hanging, list[str]]]:
    """A catalog with two tables, bank.bad, whose store can hang, and bank.good, on local disk; and the options of the
    catalog's server."""
    bucket = server.bucket()
    with proxied(server) as (proxy, through):
        store = Hanging(proxy)
        options: dict[str, Any] = {"by_location": {f"s3://{bucket}": through.options()}}
        (place / "options.json").write_text(json.dumps(options))
        manager = TransactionManager(str(place / "catalog.db"), **options)
        manager.create_table("bank.bad", f"s3://{bucket}/bad", SCHEMA)
        manager.create_table("bank.good", str(place / "good"), SCHEMA)
        manager.coordinator.close()
        try:
            yield store, ["--storage-options-file", str(place / "options.json"), "--set=recovery.every_seconds=0"]
        finally:
            store.release.set()


def test_a_server_ends_though_a_store_hangs(moto: Server, tmp_path: Path) -> None:
    with (
        hanging(moto, tmp_path) as (store, options),
        served(tmp_path / "catalog.db", *options, "--set=limits.request_seconds=1", log=tmp_path / "log") as server,
    ):
        bad = {"DatabaseName": "bank", "TableName": "bad"}
        # Load the S3 client now, because the next measured call has a time limit of one second.
        assert any(server.ask("POST", "/GetTableObjects", bad)[0] == 200 for _ in range(30))
        store.start()
        status, answer = server.ask("POST", "/GetTableObjects", bad)
        assert status >= 400 and "may" in answer["Message"]
        assert store.arrived.acquire(timeout=60)
        server.process.terminate()
        assert server.process.wait(60) == 1
    assert "exits while a call is still running" in (tmp_path / "log").read_text()


@pytest.mark.long  # takes 30 seconds
def test_the_whole_end_of_calls_that_hang_fits_an_orchestrator(moto: Server, tmp_path: Path) -> None:
    """With the default times of a server on an address that other machines reach."""
    log = tmp_path / "log"
    drain = "--set=process.drain_seconds=5"
    with (
        hanging(moto, tmp_path) as (store, options),
        served(tmp_path / "catalog.db", *options, drain, log=log) as server,
        ThreadPoolExecutor(4) as threads,
    ):
        bad = {"DatabaseName": "bank", "TableName": "bad"}
        assert server.ask("POST", "/GetTableObjects", bad)[0] == 200
        store.start()
        asked = [threads.submit(server.ask, "POST", "/GetTableObjects", bad) for _ in range(4)]
        assert store.arrived.acquire(timeout=60)
        begun_s = time.monotonic()
        server.process.terminate()
        answers = [each.result() for each in asked]
        assert server.process.wait(60) == 1
        assert time.monotonic() - begun_s < 30
    assert all(status >= 400 and "may still take effect" in answer["Message"] for status, answer in answers)
    assert log.read_text().count("The server shut down before the call ended") == 4


def test_a_table_whose_store_hangs_holds_up_nobody_else(moto: Server, tmp_path: Path) -> None:
    with (
        hanging(moto, tmp_path) as (store, options),
        served(tmp_path / "catalog.db", *options, "--set=limits.threads=4", "--set=limits.requests=16") as server,
    ):
        client = server.client(config=AT_ONCE)

        def ask() -> Any:
            try:
                return client.get_table_objects(DatabaseName="bank", TableName="bad")["Objects"]
            except ClientError as error:
                return error.response["ResponseMetadata"]["HTTPStatusCode"]

        with ThreadPoolExecutor(6) as threads:
            store.start()
            asked = [threads.submit(ask) for _ in range(6)]
            try:
                for _ in range(4):  # all threads of the lane wait for the store
                    assert store.arrived.acquire(timeout=60)
                transaction = client.start_transaction()["TransactionId"]
                for more in ({}, {"TransactionId": transaction}):
                    assert client.get_table_objects(DatabaseName="bank", TableName="good", **more)["Objects"] == []
                assert client.commit_transaction(TransactionId=transaction)["TransactionStatus"] == "COMMITTED"
                assert not any(each.done() for each in asked)
            finally:
                store.release.set()
            assert [each.result() for each in asked] == [[]] * 6
