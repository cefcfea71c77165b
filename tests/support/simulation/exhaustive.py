"""Runs every interleaving of two writers that each append once, without a fault or with one fault at any call.

    totals, bad = explore(max_switches=2)
    assert not bad, bad[0]

A schedule is a list of choices: which writer makes the next call, and whether and how it fails. All lists of choices
are tried in order: a run repeats the given prefix and then takes the first option at every further choice; for the next
list, the last choice that has another option is incremented. Every schedule is thus tried exactly once.

The writers run the real library on one MemoryStore, with handles that were opened before the schedule begins.
``max_switches`` bounds how often a writer that could continue has to wait for the other (most concurrency defects need
one or two such switches); None: no bound. ``faults`` limits the number of faults in one schedule.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from deltalog.commit_result import CommitResult
from deltalog.environment import RetryPolicy
from deltalog.table import DeltaTable
from deltalog.testing.checker import check
from deltalog.testing.history import Operation, Read
from deltalog.testing.recording import (
    WatchedStore,
    carry_out,
    file_action,
    history_of,
    quiet,
    read_of,
    seeded_environment,
)
from deltalog.testing.stores import POSSIBLE_FAULTS, Call, Fault, FaultyStore
from tests.support.simulation.scheduler import START_MS, Client, Scheduler, store_for

WRITERS = ("w0", "w1")
TABLES = ("plain", "timed")
_FILES = [f"fake-{name}" for name in (*WRITERS, "last")]


@dataclass
class ExhaustiveTotals:
    """Sums over schedules."""

    schedules: int = 0
    steps: int = 0
    longest: int = 0
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: collections.Counter[str] = field(default_factory=collections.Counter)

    def merge(self, other: ExhaustiveTotals) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.longest = max(self.longest, other.longest)
        self.outcomes += other.outcomes
        self.faults += other.faults

    def line(self) -> str:
        """The summary line of a report."""
        outcomes = " ".join(f"{name}={count}" for name, count in sorted(self.outcomes.items()))
        return f"interleavings={self.schedules} steps={self.steps} faults={sum(self.faults.values())} {outcomes}"


class Choices:
    """The choices made in one run: first the given prefix, then always the first option. Records every choice and the
    number of options it had."""

    def __init__(self, given: Sequence[int] = ()) -> None:
        self._given = given
        self.taken: list[tuple[int, int]] = []

    def take(self, number: int) -> int:
        """Choose an option from 0 to ``number`` - 1."""
        if number == 1:
            return 0
        at = len(self.taken)
        chosen = self._given[at] if at < len(self._given) else 0
        self.taken.append((chosen, number))
        return chosen

    def following(self, fixed: int = 0) -> list[int] | None:
        """The next list of choices with the same first ``fixed`` choices; None after the last list."""
        for at in range(len(self.taken) - 1, fixed - 1, -1):
            chosen, number = self.taken[at]
            if chosen + 1 < number:
                return [*(each for each, _ in self.taken[:at]), chosen + 1]
        return None


def explore(
    table: str = "plain", *, faults: int = 1, max_switches: int | None = None, processes: int = 1
) -> tuple[ExhaustiveTotals, list[str]]:
    """Run all schedules within the bounds. Returns the totals, and a report for each schedule that broke an
    invariant."""
    totals, bad = ExhaustiveTotals(), list[str]()
    run = functools.partial(_explore_from, table, faults, max_switches)
    # The work is divided into many parts, so that no process waits long for another one with longer schedules.
    parts = _prefixes(table, faults, max_switches, 6 if processes > 1 else 0)
    if processes == 1:
        results = map(run, parts)
        for part, reports in results:
            totals.merge(part)
            bad += reports
        return totals, bad
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for part, reports in pool.map(run, parts):
            totals.merge(part)
            bad += reports
    return totals, bad


def _prefixes(table: str, faults: int, max_switches: int | None, length: int) -> list[list[int]]:
    """Lists of at most ``length`` choices such that every schedule begins with exactly one of them."""
    found: list[list[int]] = []
    given: list[int] | None = []
    while given is not None:
        choices = Choices(given)
        Race(table, choices, faults, max_switches).run()
        choices.taken = choices.taken[:length]
        found.append([chosen for chosen, _ in choices.taken])
        given = choices.following()
    return found


def _explore_from(
    table: str, faults: int, max_switches: int | None, prefix: Sequence[int]
) -> tuple[ExhaustiveTotals, list[str]]:
    totals, bad = ExhaustiveTotals(), list[str]()
    given: list[int] | None = list(prefix)
    while given is not None:
        choices = Choices(given)
        race = Race(table, choices, faults, max_switches)
        wrong = race.run()
        totals.schedules += 1
        totals.steps += race.scheduler.step
        totals.longest = max(totals.longest, race.scheduler.step)
        totals.outcomes.update(record.outcome for record in race.records)
        totals.faults.update(fault.value for store in race.stores for fault in store.injected.elements())
        if wrong and len(bad) < 10:
            bad.append("\n".join([f"choices {[c for c, _ in choices.taken]}", *wrong, *race.scheduler.trace]))
        given = choices.following(len(prefix))
    return totals, bad


class Race:
    """One schedule."""

    def __init__(self, table: str, choices: Choices, faults: int, max_switches: int | None) -> None:
        self.records: list[Operation] = []
        self.stores: list[FaultyStore] = []
        self._choices = choices
        self._faults = faults
        self._switches = max_switches
        self.scheduler = Scheduler(0, choose=self._who)
        self.shared = WatchedStore(self.scheduler.time_ms, lambda: self.scheduler.step, _prepared(table))

    def run(self) -> list[str]:
        """Run to the end. Returns the violations."""
        with quiet():
            for name in WRITERS:
                self.scheduler.spawn(name, self._append)
            self._open(self.scheduler.clients)
            self.scheduler.run()
            reads = self._finish()
        history = history_of(self.shared, self.stores, self.records, reads, initial=1, data_files=_FILES)
        return [str(violation) for violation in check(history)]

    def _open(self, clients: Sequence[Client]) -> None:
        """Open the handles before the race, because no client may wait or fail outside its own turn."""
        self._tables = {}
        for client in clients:
            store = store_for(client, self.shared, self._how)
            self.stores.append(store)
            retry = RetryPolicy(settle_attempts=2)
            self._tables[client.name] = DeltaTable.open(store, environment=client.environment(retry))

    def _append(self, client: Client) -> None:
        self._record(client, self._tables[client.name])

    def _record(self, client: Client, table: DeltaTable) -> Operation:
        def run(record: Operation) -> CommitResult:
            with table.transaction() as transaction:
                transaction.add(file_action(f"fake-{client.name}", START_MS))
                return transaction.commit("WRITE", user_metadata=record.token)

        step = self.scheduler.step
        record = Operation(client.name, client.name, "append", step, adds=[f"fake-{client.name}"], removes=[])
        self.records.append(record)
        first_reading = len(client.clock.readings)
        try:
            carry_out(record, run)
        finally:
            record.clock_ms = client.clock.readings[first_reading:]
        record.returned = self.scheduler.step
        return record

    def _finish(self) -> list[Read]:
        """After the race, a new process reads the table and commits."""
        client = Client(self.scheduler, "last", lambda _: None)
        store = store_for(client, self.shared)
        self.stores.append(store)
        self.scheduler.step += 1
        table = DeltaTable.open(store, environment=client.environment())
        read = read_of("last", self.scheduler.step, table.snapshot(), True)
        record = self._record(client, table)
        if record.outcome != "ok":
            record.outcome, record.error = "crashed", f"{record.error} without other clients"
        return [read]

    # ------------------------------------------------------------------------------------------ choices

    def _who(self, names: Sequence[str], last: str) -> int:
        if last not in names:
            return self._choices.take(len(names))
        # The first option is to continue with the same client.
        order = [last, *(name for name in names if name != last)]
        chosen = self._choices.take(len(order)) if self._switches is None or self._switches > 0 else 0
        if chosen and self._switches is not None:
            self._switches -= 1
        return names.index(order[chosen])

    def _how(self, call: Call) -> Fault | None:
        if self._faults == 0:
            return None
        possible = POSSIBLE_FAULTS[call.method]
        chosen = self._choices.take(len(possible) + 1)
        if chosen == 0:
            return None
        self._faults -= 1
        return possible[chosen - 1]


@functools.cache
def _prepared(table: str) -> WatchedStore:
    store = WatchedStore(lambda: START_MS)
    properties = {"delta.enableInCommitTimestamps": "true"} if table == "timed" else {}
    environment = seeded_environment("prepare", lambda: START_MS)
    DeltaTable.create(store, pa.schema([pa.field("x", pa.int64())]), properties=properties, environment=environment)
    return store
