"""The test kit's stores: the calls that they pass on, the faults that they inject, and the calls that they count."""

from __future__ import annotations

import collections
import sys
import threading
from typing import Any

import pytest

from deltalog.errors import ObjectNotFoundError, StoreError
from deltalog.storage.base import LogStore, PutOutcome
from deltalog.storage.memory import MemoryStore
from deltalog.testing import CallCounts, CountingStore, Fault, FaultPlan, FaultyStore, SimulatedKill, nth
from deltalog.testing.store_contract import LogStoreTests
from deltalog.testing.stores import POSSIBLE_FAULTS, Call
from tests.support.simulation.scheduler import Client, Scheduler, ScheduleStuckError, store_for

PATH = "_delta_log/00000000000000000000.json"


class TestFaultyStoreWithoutFaults(LogStoreTests):
    @pytest.fixture
    def store(self):
        return FaultyStore(MemoryStore())


class TestCountingStore(LogStoreTests):
    @pytest.fixture
    def store(self):
        return CountingStore(MemoryStore())


def faulty(fault, method=None, number=1):
    return FaultyStore(MemoryStore(), nth(number, fault, method=method))


# for each fault: the result of the call (an outcome or an exception), and whether the object exists afterwards
PUT_IF_ABSENT: dict[Fault, tuple[Any, bool]] = {
    Fault.FAIL_BEFORE: (StoreError, False),
    Fault.UNKNOWN_NOT_WRITTEN: (PutOutcome.UNKNOWN, False),
    Fault.LOST_ACK: (PutOutcome.UNKNOWN, True),
    Fault.OWN_EXISTS: (PutOutcome.EXISTS, True),
    Fault.LATE: (PutOutcome.UNKNOWN, False),
    Fault.KILL_BEFORE: (SimulatedKill, False),
    Fault.KILL_AFTER: (SimulatedKill, True),
}


@pytest.mark.parametrize("fault", PUT_IF_ABSENT)
def test_faults_of_put_if_absent(fault):
    told, there = PUT_IF_ABSENT[fault]
    store = faulty(fault)
    if isinstance(told, PutOutcome):
        assert store.put_if_absent(PATH, b"1") is told
    else:
        with pytest.raises(told):
            store.put_if_absent(PATH, b"1")
    assert (store.inner.head(PATH) is not None) == there
    assert store.injected == {fault: 1}
    assert [(put.data, put.landed) for put in store.puts] == [(b"1", there)]
    store.land()
    assert (store.inner.head(PATH) is not None) == (there or fault is Fault.LATE)


@pytest.mark.parametrize("fault", POSSIBLE_FAULTS["put"])
def test_faults_of_put(fault):
    store = faulty(fault)
    with pytest.raises(SimulatedKill if "KILL" in fault.name else StoreError):
        store.put("hint", b"1")
    assert (store.inner.head("hint") is not None) == (fault in (Fault.FAIL_AFTER, Fault.KILL_AFTER))
    store.land()
    assert (store.inner.head("hint") is not None) == (fault in (Fault.FAIL_AFTER, Fault.KILL_AFTER, Fault.LATE))


@pytest.mark.parametrize("method", ["get", "list_from", "head", "open_input", "delete", "open_output"])
def test_faults_of_the_others(method):
    store = FaultyStore(MemoryStore(), nth(2, Fault.FAIL_BEFORE, method=method))
    store.put(PATH, b"1")

    def call():
        if method == "open_output":
            with store.open_output("part") as file:
                file.write(b"1")
        else:
            getattr(store, method)("_delta_log" if method == "list_from" else PATH)

    call()
    store.put(PATH, b"1")
    store.inner.delete("part")
    with pytest.raises(StoreError, match="Injected fault") as error:
        call()
    assert not isinstance(error.value, ObjectNotFoundError)
    assert store.inner.head(PATH) is not None
    assert store.inner.head("part") is None
    call()
    assert store.injected == {Fault.FAIL_BEFORE: 1}


def test_a_late_put_does_not_replace():
    store = faulty(Fault.LATE)
    store.put_if_absent(PATH, b"late")
    assert store.put_if_absent(PATH, b"in time") is PutOutcome.COMMITTED
    store.land()
    assert store.get(PATH) == b"in time"


def test_a_lost_acknowledgement_of_what_another_wrote_is_not_one():
    inner = MemoryStore()
    inner.put(PATH, b"another's")
    store = FaultyStore(inner, nth(1, Fault.LOST_ACK))
    assert store.put_if_absent(PATH, b"ours") is PutOutcome.UNKNOWN
    assert store.injected == {Fault.UNKNOWN_NOT_WRITTEN: 1}
    assert inner.get(PATH) == b"another's"


def test_the_dead_do_nothing():
    inner = MemoryStore()
    store, other = FaultyStore(inner, nth(1, Fault.KILL_AFTER)), FaultyStore(inner)
    with pytest.raises(SimulatedKill):
        store.put("a", b"1")
    for call in (lambda: store.put("b", b"1"), lambda: store.delete("a"), lambda: store.get("a")):
        with pytest.raises(SimulatedKill):
            call()
    assert other.get("a") == b"1"
    assert not issubclass(SimulatedKill, Exception)


def test_a_plan_repeats_and_keeps_its_rate():
    calls = [Call(n, method, PATH) for n in range(2_000) for method in POSSIBLE_FAULTS]
    first, again = ([plan(call) for call in calls] for plan in (FaultPlan(7), FaultPlan(7)))
    assert first == again != [FaultPlan(8)(call) for call in calls]
    assert 0.11 < sum(fault is not None for fault in first) / len(calls) < 0.13
    seen = collections.defaultdict(set)
    for call, fault in zip(calls, first, strict=True):
        if fault is not None:
            seen[call.method].add(fault)
    assert seen == {method: set(faults) for method, faults in POSSIBLE_FAULTS.items()}


def test_a_plan_can_be_narrowed():
    calls = [Call(n, method, PATH) for n in range(500) for method in POSSIBLE_FAULTS]
    only = FaultPlan(1, 0.5, kinds=[Fault.LOST_ACK], limit=9)
    faults = [(call.method, fault) for call in calls if (fault := only(call)) is not None]
    assert faults == [("put_if_absent", Fault.LOST_ACK)] * 9
    by_method = FaultPlan(1, {"head": 1.0, "*": 0.0}, weights={Fault.KILL_BEFORE: 0.0})
    assert {(c.method, f) for c in calls if (f := by_method(c)) is not None} == {("head", Fault.FAIL_BEFORE)}


def test_the_faults_cover_every_method():
    own = set(LogStore.__abstractmethods__)
    assert own == set(POSSIBLE_FAULTS)


def test_counts():
    store = CountingStore(MemoryStore())
    store.put(PATH, b"1")
    with store.counted() as calls:
        store.get(PATH)
        store.get_many([PATH, PATH])
        store.head("other")
        store.list_from("_delta_log")
    assert isinstance(calls, CallCounts)
    assert calls == {("get", PATH): 3, ("head", "other"): 1, ("list_from", "_delta_log"): 1}
    assert (calls.of(), calls.of("get"), calls.of("*", "*.json"), calls.of("put")) == (5, 3, 3, 0)
    assert store.calls.of("put") == 1


# ---------------------------------------------------------------------------------------------------- the scheduler


def interleaving(seed, policy):
    scheduler, order = Scheduler(seed, policy=policy), []

    def body(client: Client) -> None:
        for _ in range(5):
            scheduler.pause("x")
            order.append(client.name)

    for name in "abc":
        scheduler.spawn(name, body)
    scheduler.run()
    assert sorted(order) == sorted("abc" * 5)
    return "".join(order)


@pytest.mark.parametrize("policy", ["random", "sticky", "priority"])
def test_a_seed_fixes_the_order(policy):
    orders = [interleaving(seed, policy) for seed in range(50)]
    assert orders == [interleaving(seed, policy) for seed in range(50)]
    assert len(set(orders)) >= 6


def test_sleepers_wait_and_time_is_virtual():
    scheduler, woke = Scheduler(1), {}

    def body(client: Client) -> None:
        client.sleep({"a": 3600.0, "b": 60.0}[client.name])
        woke[client.name] = scheduler.time_ms()

    start = scheduler.time_ms()
    scheduler.spawn("a", body)
    scheduler.spawn("b", body)
    scheduler.run()
    assert woke["b"] - start >= 60_000
    assert woke["a"] - start >= 3_600_000
    assert woke["a"] - start < 3_700_000


def test_late_requests_land_when_the_client_is_dead():
    landed = 0
    for seed in range(20):
        scheduler, inner = Scheduler(seed), MemoryStore()

        def body(client: Client, inner: MemoryStore = inner) -> None:
            store = store_for(client, inner, lambda call: [Fault.LATE, Fault.KILL_BEFORE][call.number - 1])
            assert store.put_if_absent(PATH, b"1") is PutOutcome.UNKNOWN
            store.get(PATH)

        client = scheduler.spawn("a", body)
        scheduler.run()
        assert client.killed and client.done
        landed += inner.head(PATH) is not None
    assert landed == 20


def test_errors_of_a_client_come_out():
    def fails(client):
        raise ZeroDivisionError

    scheduler = Scheduler(1)
    scheduler.spawn("a", fails)
    with pytest.raises(ZeroDivisionError):
        scheduler.run()


def test_an_endless_client_is_stopped():
    scheduler = Scheduler(1, max_steps=100)

    def body(client: Client) -> None:
        while True:
            scheduler.pause("again")

    scheduler.spawn("a", body)
    with pytest.raises(ScheduleStuckError, match="again"):
        scheduler.run()


def test_a_thread_of_a_client_does_not_take_a_turn():
    """A client's thread runs even while the scheduler runs other clients, and may call the store at any time."""
    scheduler, asked = Scheduler(1, max_steps=50_000), list[bool]()

    def ask(ended: threading.Event) -> None:
        while not ended.is_set():
            asked.append(scheduler.in_client())

    def body(client: Client) -> None:
        ended = threading.Event()
        thread = threading.Thread(target=ask, args=[ended])
        thread.start()
        for _ in range(10_000):
            scheduler.pause("again")
        ended.set()
        thread.join()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    failures = list[threading.ExceptHookArgs]()
    hook, threading.excepthook = threading.excepthook, failures.append
    try:
        scheduler.spawn("a", body)
        scheduler.run()
    finally:
        sys.setswitchinterval(interval)
        threading.excepthook = hook
    assert asked and not any(asked) and not failures
