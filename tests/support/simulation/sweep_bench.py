"""One run of one operation of ``sweep``: the table before it, the faults, another writer, and the checks after it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deltalog.commit_result import CommitResult
from deltalog.environment import Environment, RetryPolicy
from deltalog.errors import CommitStateUnknownError, DeltaLogError
from deltalog.table import DeltaTable
from deltalog.testing.checker import check, replay
from deltalog.testing.history import Operation
from deltalog.testing.recording import (
    WatchedStore,
    carry_out,
    history_of,
    log_of,
    read_of,
    seeded_environment,
    version_of,
)
from deltalog.testing.stores import POSSIBLE_FAULTS, Call, Fault, FaultyStore, SimulatedKill, no_faults
from tests.support.simulation.scheduler import START_MS
from tests.support.simulation.sweep_operations import ENABLE, SCHEMA, Swept, create, example_rows

_RIVAL = "rival"
_OUTAGE = "out of order from here on"


@dataclass(frozen=True)
class Case:
    """One run. ``faults``: by call number, from 1; ``outage``: the number of the first call for which the store is
    unavailable."""

    operation: Swept
    table: str
    setting: str
    faults: tuple[tuple[int, Fault], ...] = ()
    outage: int | None = None

    def __str__(self) -> str:
        where = [f"call {number}: {fault.value}" for number, fault in self.faults]
        where += [] if self.outage is None else [f"call {self.outage}: {_OUTAGE}"]
        return f"{self.operation.name} ({self.table}, {self.setting}): {', '.join(where) or 'no fault'}"

    def decide(self, call: Call) -> Fault | None:
        outage = self.outage is not None and call.number >= self.outage
        return Fault.FAIL_BEFORE if outage else dict(self.faults).get(call.number)


class Bench:
    """Runs one operation once, and judges it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.calls: list[Call] = []
        self.answer: Any = None
        self.txn_ids: list[str] = []
        self._now = 0
        operation = case.operation
        prepared = (
            None
            if operation.new
            else _prepared(case.table, tuple(sorted(operation.properties.items())), operation.setup)
        )
        self.shared = WatchedStore(self._clock_ms, lambda: self._now, prepared)
        self._initial = 0 if prepared is None else len(log_of(prepared))
        self._rival_left = case.setting == "raced"
        self.records: list[Operation] = []
        self.store = FaultyStore(self.shared, no_faults, before=self._before, now=lambda: self._now)
        self._armed = False
        self.table: DeltaTable | None = None
        if not operation.opens:
            self.table = DeltaTable.open(self.store, environment=self._environment("client"))
            if case.setting == "behind":
                self._rival()
        declared = {name: type(value)(value) for name, value in operation.declared.items()}
        self.record = Operation("swept", "client", operation.name, self._now, **declared)
        self.records.append(self.record)

    def run(self) -> None:
        """Run the operation with its faults, then let delayed requests arrive."""
        case = self.case
        numbered = len(self.calls)

        def decide(call: Call) -> Fault | None:
            return case.decide(Call(call.number - offset, call.method, call.path))

        offset = self.store.calls
        self._armed, self.store.decide = True, _possible(decide)
        with contextlib.suppress(SimulatedKill):
            carry_out(self.record, self._operate, self._resolve)
        self.calls = self.calls[numbered:]
        self._armed, self.store.decide = False, no_faults
        self.store.land()
        self.record.txn_ids = self.txn_ids
        self.record.txn_id = self.record.txn_id or None
        self._now += 1
        self.record.returned = None if self.store.dead else self._now

    def judge(self, expected: Any) -> list[str]:
        """A description of each problem that the run revealed."""
        wrong: list[str] = []
        if self.case.operation.reads and self.answer is not None and expected is not None and self.answer != expected:
            wrong.append(f"answered {self.answer!r} instead of {expected!r}")
        log = log_of(self.shared)
        if not self.store.dead and self.table is not None:
            self._use(self.table, "the same handle", log, wrong)
        if log:
            with_rival = FaultyStore(self.shared)
            try:
                fresh = DeltaTable.open(with_rival, environment=self._environment("fresh"))
                self._use(fresh, "a new process", log, wrong)
            except DeltaLogError as error:
                wrong.append(f"a new process cannot open the table: {type(error).__name__}: {error}")
        stores = [self.store]
        history = history_of(self.shared, stores, self.records, initial=self._initial)
        # Not all commits of the other writer are recorded.
        history.attempts = [] if self.records[1:] else history.attempts
        history.sightings = [s for s in history.sightings if s.version >= self._initial]
        wrong += map(str, check(history))
        mine = [v for v, data in log.items() if any(i.encode() in data for i in self.txn_ids)]
        if self.record.outcome == "unknown" and mine:
            wrong.append(f"resolve() did not find the commit, which is version {mine}")
        return wrong

    # -------------------------------------------------------------------------------------------- inside

    def _operate(self, record: Operation) -> CommitResult | None:
        operation = self.case.operation
        if operation.opens:
            answer = operation.run(self.store, self._environment("client"), record.token)
        else:
            answer = operation.run(self.table, record.token)
        if isinstance(answer, DeltaTable):
            self.table = answer
            # Of a returned table handle, only the version is used; the in-commit timestamp is None, because new tables
            # have none by default.
            answer = None if operation.reads else CommitResult(answer.version, 0, None, 1, "")
        if isinstance(answer, CommitResult):
            return answer
        self.answer = answer
        return None

    def _resolve(self, error: CommitStateUnknownError) -> CommitResult | None:
        self._armed, self.store.decide = False, no_faults
        self.store.land()
        return error.resolve()

    def _use(self, table: DeltaTable, who: str, log: Mapping[int, bytes], wrong: list[str]) -> None:
        """Read the latest version as a client without faults."""
        try:
            snapshot = table.snapshot()
            state = replay(log)[max(log)]
            seen = read_of(who, 0, snapshot, True)
            if (seen.version, seen.ict_ms) != (state.version, state.ict_ms):
                wrong.append(f"{who} sees version {seen.version}, {seen.ict_ms} instead of {state.version}")
            if len(seen.files or ()) != len(state.files):
                wrong.append(f"{who} sees {len(seen.files or ())} files instead of {len(state.files)}")
            if who == "a new process":
                if self.record.outcome == "ok":
                    snapshot.scan().to_arrow()  # raises if a file is missing
                after = {"custom.after": "1"}
                run = functools.partial(table.set_properties, after, user_metadata="after")
                self._commit("after", lambda record: run(), adds=[], properties=dict(after))
        except Exception as error:
            wrong.append(f"{who} fails: {type(error).__name__}: {error}")

    def _commit(self, token: str, run: Callable[[Operation], CommitResult], **facts: Any) -> None:
        """Make and record a commit of another client, which is not concurrent with any other commit."""
        self._now += 1
        record = Operation(token, token, "append", self._now, removes=[], **facts)
        self.records.append(record)
        carry_out(record, run)
        self._now += 1
        record.returned = self._now
        if record.outcome == "failed":
            record.outcome, record.error = "crashed", f"{record.error} without other clients"

    def _rival(self) -> None:
        environment = seeded_environment(_RIVAL, self._clock_ms)
        if self.case.operation.new:
            self._commit(_RIVAL, lambda record: create(self.shared, environment, record.token))
            return
        table = DeltaTable.open(self.shared, environment=environment)
        self._commit(_RIVAL, lambda record: table.append(example_rows(_RIVAL), user_metadata=record.token))

    def _before(self, call: Call) -> None:
        self._now += 1
        self.calls.append(call)
        is_commit = call.method == "put_if_absent" and version_of(call.path) is not None
        if self._armed and self._rival_left and is_commit:
            self._rival_left = False
            self._rival()

    def _clock_ms(self) -> int:
        return START_MS + 1000 + self._now

    def _environment(self, name: str) -> Environment:
        environment = seeded_environment(name, self._clock_ms, RetryPolicy(settle_attempts=3))

        def new_uuid() -> str:
            found = environment.new_uuid()
            if name == "client":
                self.txn_ids.append(found)
            return found

        return Environment(
            environment.clock_ms, new_uuid, environment.sleep, environment.random, environment.retry, background=False
        )


def _possible(decide: Callable[[Call], Fault | None]) -> Callable[[Call], Fault | None]:
    """Replace a fault that is impossible for the call with FAIL_BEFORE."""

    def possible(call: Call) -> Fault | None:
        fault = decide(call)
        return fault if fault is None or fault in POSSIBLE_FAULTS[call.method] else Fault.FAIL_BEFORE

    return possible


@functools.cache
def _prepared(
    kind: str, properties: tuple[tuple[str, str], ...], setup: Callable[[DeltaTable], Any] | None
) -> WatchedStore:
    """Three versions with rows; the next version is the first at which a checkpoint is due. The table ``timed`` has
    in-commit timestamps and a checkpoint."""
    now = [0]

    def clock_ms() -> int:
        now[0] += 1
        return START_MS + now[0]

    store = WatchedStore(clock_ms)
    settings = {"delta.checkpointInterval": "3", **dict(properties)}
    if kind == "timed":
        settings[ENABLE] = "true"
    environment = seeded_environment(f"prepare/{kind}", clock_ms)
    table = DeltaTable.create(
        store, SCHEMA, properties=settings, partition_by=["p"], data=example_rows("one"), environment=environment
    )
    table.append(example_rows("two"))
    if kind == "timed":
        table.checkpoint()
    table.append(example_rows("three"))
    if setup is not None:
        setup(table)
    return store
