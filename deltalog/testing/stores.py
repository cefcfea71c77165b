"""Stores for tests: a store with injected faults, and a store that counts calls.

``FaultyStore`` wraps a LogStore and makes calls fail in the ways in which real stores fail; ``CountingStore`` counts
calls. Both classes are LogStores, so ``DeltaTable.open(store)`` accepts them.

    store = FaultyStore(MemoryStore(), nth(1, Fault.LOST_ACK, method="put_if_absent"))
    DeltaTable.open(store).append(data)        # lands once, although the first acknowledgement was lost
    assert store.injected[Fault.LOST_ACK] == 1
"""

from __future__ import annotations

import collections
import contextlib
import enum
import fnmatch
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from deltalog.errors import StoreError
from deltalog.storage.base import Entry, FileMeta, LogStore, PutOutcome


class Fault(enum.Enum):
    """The ways in which a store call can fail."""

    FAIL_BEFORE = "fail before"  # StoreError without effect
    FAIL_AFTER = "fail after"  # StoreError although the call took effect; put_if_absent returns UNKNOWN instead
    UNKNOWN_NOT_WRITTEN = "unknown, not written"  # UNKNOWN; the object was not and will not be created
    LOST_ACK = "lost acknowledgement"  # put_if_absent returns UNKNOWN although the object was created
    OWN_EXISTS = "own 412"  # the object was created and the transport resent the request: EXISTS for one's own object
    LATE = "late"  # UNKNOWN (StoreError for put); the request takes effect later
    KILL_BEFORE = "killed before"  # the process dies before the call takes effect
    KILL_AFTER = "killed after"  # the process dies after the call took effect, before the response


#: The possible faults of each method, from which FaultPlan draws.
POSSIBLE_FAULTS: Mapping[str, tuple[Fault, ...]] = {
    "put_if_absent": tuple(fault for fault in Fault if fault is not Fault.FAIL_AFTER),
    "put": (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.LATE, Fault.KILL_BEFORE, Fault.KILL_AFTER),
    "delete": (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.KILL_BEFORE, Fault.KILL_AFTER),
    "open_output": (Fault.FAIL_BEFORE, Fault.KILL_BEFORE, Fault.KILL_AFTER),
    "get": (Fault.FAIL_BEFORE, Fault.KILL_BEFORE),
    "list_from": (Fault.FAIL_BEFORE, Fault.KILL_BEFORE),
    "head": (Fault.FAIL_BEFORE, Fault.KILL_BEFORE),
    "open_input": (Fault.FAIL_BEFORE, Fault.KILL_BEFORE),
    "sync": (Fault.FAIL_BEFORE, Fault.KILL_BEFORE),
}


class SimulatedKill(BaseException):
    """Raised by the calls of a process that the test has killed. SimulatedKill is not a subclass of Exception, so that
    no exception handler swallows it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that has not been executed yet. ``number``: the number of the call, counted from 1 for each store."""

    number: int
    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Put:
    """A completed ``put_if_absent``: the request, the result returned to the caller, and the effect on the store."""

    call: Call
    data: bytes
    returned: str  # a PutOutcome's value, "error" or "killed"
    landed: bool  # whether the object was created by this request before the call ended; False for a late request
    at: float  # the time of the call, as the store's ``now`` returned it


Decider = Callable[[Call], "Fault | None"]


def no_faults(call: Call) -> Fault | None:
    """A decider that injects no faults."""
    return None


def nth(number: int, fault: Fault, *, method: str | None = None, path: str = "*") -> Decider:
    """A decider that injects ``fault`` into the ``number``-th call (counted from 1) of ``method`` whose path matches
    ``path``."""
    count = 0

    def decide(call: Call) -> Fault | None:
        nonlocal count
        if method not in (None, call.method) or not fnmatch.fnmatchcase(call.path, path):
            return None
        count += 1
        return fault if count == number else None

    return decide


class FaultPlan:
    """A seeded decider: a call fails with probability ``rate``, with a random fault that is possible for its method.

    ``rate`` may be a mapping from methods to probabilities, with ``"*"`` for all other methods. ``kinds``: the faults
    to choose from; ``weights``: the relative probabilities of these faults (default 1); ``limit``: the maximum number
    of faults. ``possible``: the possible faults of each method of a store or a coordinator. The same seed and the same
    calls result in the same faults.
    """

    def __init__(
        self,
        seed: int | str | random.Random,
        rate: float | Mapping[str, float] = 0.12,
        *,
        kinds: Sequence[Fault] = tuple(Fault),
        weights: Mapping[Fault, float] | None = None,
        limit: int | None = None,
        possible: Mapping[str, tuple[Fault, ...]] = POSSIBLE_FAULTS,
    ) -> None:
        self._random = seed if isinstance(seed, random.Random) else random.Random(seed)
        rates = rate if isinstance(rate, Mapping) else {"*": rate}
        self._rates = {method: rates.get(method, rates.get("*", 0.0)) for method in possible}
        self._remaining = limit
        weights = weights or {}
        self._choices = {
            method: (
                [fault for fault in faults if fault in kinds],
                [weights.get(f, 1.0) for f in faults if f in kinds],
            )
            for method, faults in possible.items()
        }

    def __call__(self, call: Call) -> Fault | None:
        if self._random.random() >= self._rates[call.method] or self._remaining == 0:
            return None
        faults, weights = self._choices[call.method]
        if not faults or not any(weights):
            return None
        if self._remaining is not None:
            self._remaining -= 1
        return self._random.choices(faults, weights)[0]


class FaultyStore(LogStore):
    """Simulates one process's access to ``inner``, with injected faults.

    ``decide`` is called before every call. ``before`` is called before ``decide``, so that a scheduler can run other
    clients. ``defer`` receives late requests as (label, action); by default late requests are kept in ``pending`` until
    ``land()`` is called. After a kill, every call raises SimulatedKill without effect, so every simulated process needs
    its own FaultyStore over the shared inner store.

    ``injected`` counts the faults by their effect: a lost acknowledgement counts as UNKNOWN_NOT_WRITTEN if the put
    found an existing object. ``puts`` records every ``put_if_absent`` with the time that ``now`` returned.
    """

    def __init__(
        self,
        inner: LogStore,
        decide: Decider = no_faults,
        *,
        before: Callable[[Call], None] | None = None,
        defer: Callable[[str, Callable[[], object]], None] | None = None,
        now: Callable[[], float] = lambda: 0,
    ) -> None:
        self.inner = inner
        self.url = inner.url
        self.is_remote = inner.is_remote
        self.lists_in_pages = inner.lists_in_pages
        self.decide = decide
        self.injected: collections.Counter[Fault] = collections.Counter()
        self.puts: list[Put] = []
        self.pending: list[tuple[str, Callable[[], object]]] = []
        self.dead = False
        self.calls = 0
        self._before = before
        self._now = now
        self._defer = defer or (lambda label, action: self.pending.append((label, action)))

    def land(self) -> None:
        """Execute all late requests in ``pending``, oldest first."""
        while self.pending:
            self.pending.pop(0)[1]()

    def kill(self) -> None:
        """Mark this process as killed."""
        self.dead = True

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        call, fault = self._begin("put_if_absent", path)
        if fault is None:
            outcome = self.inner.put_if_absent(path, data)
            return self._recorded(call, data, outcome, outcome is PutOutcome.COMMITTED)
        if fault is Fault.FAIL_BEFORE:
            self._record(call, data, "error", False)
            self._fail(call, fault)
        if fault is Fault.KILL_BEFORE:
            self._record(call, data, "killed", False)
            self._die(fault)
        if fault is Fault.UNKNOWN_NOT_WRITTEN:
            self.injected[fault] += 1
            return self._recorded(call, data, PutOutcome.UNKNOWN, False)
        if fault is Fault.LATE:
            self.injected[fault] += 1
            self._defer(f"late {call}", lambda: self.inner.put_if_absent(path, data))
            return self._recorded(call, data, PutOutcome.UNKNOWN, False)
        landed = self.inner.put_if_absent(path, data) is PutOutcome.COMMITTED
        if fault is Fault.KILL_AFTER:
            self._record(call, data, "killed", landed)
            self._die(fault)
        if fault is Fault.LOST_ACK:
            self.injected[fault if landed else Fault.UNKNOWN_NOT_WRITTEN] += 1
            return self._recorded(call, data, PutOutcome.UNKNOWN, landed)
        if landed:
            self.injected[Fault.OWN_EXISTS] += 1
        return self._recorded(call, data, PutOutcome.EXISTS, landed)

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._write("put", path, lambda: self.inner.put(path, data, durable=durable))

    def delete(self, path: str) -> None:
        self._write("delete", path, lambda: self.inner.delete(path))

    def get(self, path: str, length: int | None = None) -> bytes:
        self._read("get", path)
        return self.inner.get(path, length)

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        self._read("list_from", directory)
        return self.inner.list_from(directory, start, stat=stat, limit=limit)

    def head(self, path: str) -> FileMeta | None:
        self._read("head", path)
        return self.inner.head(path)

    def walk(self, enters: Callable[[str], bool]) -> Iterator[Entry]:
        self._read("list_from", "")
        return self.inner.walk(enters)

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        for path in paths:
            self._read("head", path)
        return self.inner.entries(paths)

    def open_input(self, path: str) -> Any:
        self._read("open_input", path)
        return self.inner.open_input(path)

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        # The file appears only when the ``with`` block ends, so this is when the call is recorded.
        with self.inner.open_output(path) as file:
            yield file
            call, fault = self._begin("open_output", path)
            if fault is Fault.FAIL_BEFORE:
                self._fail(call, fault)
            if fault is Fault.KILL_BEFORE:
                self._die(fault)
        if fault is Fault.KILL_AFTER:
            self._die(fault)

    def sync(self, paths: list[str]) -> None:
        self._read("sync", paths[0] if paths else "")
        self.inner.sync(paths)

    def location(self, path: str) -> str:
        return self.inner.location(path)

    def sibling(self, url: str) -> LogStore:
        return self.inner.sibling(url)

    def link_target(self, path: str) -> str | None:
        return self.inner.link_target(path)

    def _begin(self, method: str, path: str) -> tuple[Call, Fault | None]:
        self._check_alive()
        self.calls += 1
        call = Call(self.calls, method, path)
        if self._before is not None:
            self._before(call)
            self._check_alive()
        return call, self.decide(call)

    def _read(self, method: str, path: str) -> None:
        call, fault = self._begin(method, path)
        if fault is Fault.KILL_BEFORE:
            self._die(fault)
        if fault is not None:
            self._fail(call, fault)

    def _write(self, method: str, path: str, action: Callable[[], None]) -> None:
        call, fault = self._begin(method, path)
        if fault is Fault.KILL_BEFORE:
            self._die(fault)
        if fault is Fault.LATE:
            self._defer(f"late {call}", action)
            self._fail(call, fault)
        if fault is Fault.FAIL_BEFORE:
            self._fail(call, fault)
        action()
        if fault is Fault.KILL_AFTER:
            self._die(fault)
        if fault is not None:
            self._fail(call, fault)

    def _recorded(self, call: Call, data: bytes, outcome: PutOutcome, landed: bool) -> PutOutcome:
        self._record(call, data, outcome.value, landed)
        return outcome

    def _record(self, call: Call, data: bytes, returned: str, landed: bool) -> None:
        self.puts.append(Put(call, data, returned, landed, self._now()))

    def _fail(self, call: Call, fault: Fault) -> None:
        self.injected[fault] += 1
        raise StoreError(f"Injected fault ({fault.value}) in {call} of {self.url}.", path=call.path)

    def _die(self, fault: Fault) -> None:
        self.injected[fault] += 1
        self.dead = True
        raise SimulatedKill(fault.value)

    def _check_alive(self) -> None:
        if self.dead:
            raise SimulatedKill("this process is dead")


class CountingStore(LogStore):
    """Counts the calls of ``inner``.

        store = CountingStore(MemoryStore())
        ...
        with store.counted() as calls:
            table.snapshot()
        assert calls.of("get", "*.json") <= 3

    Calls are counted by method and path. Thread-safe.
    """

    def __init__(self, inner: LogStore) -> None:
        self.inner = inner
        self.url = inner.url
        self.is_remote = inner.is_remote
        self.lists_in_pages = inner.lists_in_pages
        self.calls = CallCounts()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def counted(self) -> Iterator[CallCounts]:
        """The calls made inside the ``with`` block."""
        start = CallCounts(self.calls)
        counts = CallCounts()
        try:
            yield counts
        finally:
            counts.update(self.calls - start)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self._count("put_if_absent", path)
        return self.inner.put_if_absent(path, data)

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._count("put", path)
        self.inner.put(path, data, durable=durable)

    def get(self, path: str, length: int | None = None) -> bytes:
        self._count("get", path)
        return self.inner.get(path, length)

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        self._count("list_from", directory)
        return self.inner.list_from(directory, start, stat=stat, limit=limit)

    def head(self, path: str) -> FileMeta | None:
        self._count("head", path)
        return self.inner.head(path)

    def walk(self, enters: Callable[[str], bool]) -> Iterator[Entry]:
        self._count("walk", "")
        return self.inner.walk(enters)

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        for path in paths:
            self._count("head", path)
        return self.inner.entries(paths)

    def delete(self, path: str) -> None:
        self._count("delete", path)
        self.inner.delete(path)

    def open_input(self, path: str) -> Any:
        self._count("open_input", path)
        return self.inner.open_input(path)

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        self._count("open_output", path)
        with self.inner.open_output(path) as file:
            yield file

    def sync(self, paths: list[str]) -> None:
        self._count("sync", paths[0] if paths else "")
        self.inner.sync(paths)

    def location(self, path: str) -> str:
        return self.inner.location(path)

    def sibling(self, url: str) -> LogStore:
        twin = CountingStore(self.inner.sibling(url))
        twin.calls, twin._lock = self.calls, self._lock
        return twin

    def link_target(self, path: str) -> str | None:
        return self.inner.link_target(path)

    def _count(self, method: str, path: str) -> None:
        with self._lock:
            self.calls[method, path] += 1


class CallCounts(collections.Counter[tuple[str, str]]):
    """The numbers of calls, keyed by (method, path)."""

    def of(self, method: str = "*", path: str = "*") -> int:
        """The number of calls whose method and path match the given patterns (``*`` and ``?``)."""
        return sum(
            count
            for (each_method, each_path), count in self.items()
            if fnmatch.fnmatchcase(each_method, method) and fnmatch.fnmatchcase(each_path, path)
        )
