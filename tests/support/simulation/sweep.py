"""Every store call of every operation fails once, in every way it can, until the operation passes untouched.

    totals, failures = sweep(OPERATIONS)
    assert not failures, failures[0]

An operation is one row of OPERATIONS. It is run on small tables (without and with in-commit timestamps), alone, on a
handle that another writer has overtaken, and with another writer that commits just before it. First untouched, which
tells its calls; then once for each call and each fault that this call can have, once for each call from which on the
store is out of order altogether, and once for each creation of a file that is not answered before such an end.
After each run late requests arrive, and then:

- the independent checker judges the log, with what the caller was told;
- ``CommitStateUnknownError.resolve()`` agrees with the log;
- a new process reads all rows and can commit; so does the handle that met the fault, unless its process died.

``pairs`` draws two faults for one run.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltalog.commit_result import CommitResult
from deltalog.dataset import Dataset
from deltalog.environment import Environment, RetryPolicy
from deltalog.errors import CommitStateUnknownError, DeltaLogError, TableNotFoundError
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.table import DeltaTable
from deltalog.testing.checker import check, replay
from deltalog.testing.history import Operation
from deltalog.testing.recording import (
    WatchedStore,
    carry_out,
    history_of,
    log_of,
    look,
    quiet,
    seeded_environment,
    version_of,
)
from deltalog.testing.stores import POSSIBLE_FAULTS, Call, Fault, FaultyStore, SimulatedKill, no_faults
from tests.support.simulation.scheduler import START_MS

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.string()), ("p", pa.string())])
ENABLE = "delta.enableInCommitTimestamps"
#: ``alone``; ``behind``: another writer has committed since the handle was opened; ``raced``: another writer
#: commits between what the operation read and its own commit.
SETTINGS = ("alone", "behind", "raced")
TABLES = ("plain", "timed")
#: Half of the combinations of TABLES and SETTINGS, each of either at least once.
HALF = (("plain", "alone"), ("timed", "behind"), ("timed", "raced"))
_RIVAL = "rival"
_OUTAGE = "out of order from here on"
_UNANSWERED = (Fault.LOST_ACK, Fault.OWN_EXISTS, Fault.LATE, Fault.UNKNOWN_NOT_WRITTEN)


@dataclass(frozen=True)
class Swept:
    """A row of the table. ``run`` gets the handle and the token that the commit is to carry where the verb takes one.

    ``declared``: facts of checker.Operation. ``reads``: it only reads, and what it returns must not depend on faults.
    ``opens``: it gets the store and the environment instead of a handle. ``tables``, ``settings``: where it makes
    sense; ``new``: there is no table before. ``properties``: of the tables, besides the usual ones;
    ``setup``: what is done to them before.
    """

    name: str
    run: Callable[..., Any]
    declared: Mapping[str, Any] = field(default_factory=dict)
    reads: bool = False
    opens: bool = False
    new: bool = False
    tables: Sequence[str] = TABLES
    settings: Sequence[str] = SETTINGS
    properties: Mapping[str, str] = field(default_factory=dict)
    setup: Callable[[DeltaTable], Any] | None = None


@dataclass(frozen=True)
class Case:
    """One run. ``faults`` by the number of the call, from 1; ``outage`` is the first call that fails for good."""

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


@dataclass
class SweepTotals:
    """Sums over cases."""

    cases: int = 0
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: collections.Counter[str] = field(default_factory=collections.Counter)
    calls: dict[str, int] = field(default_factory=dict)  # of each operation untouched, over its tables and settings

    def merge(self, other: SweepTotals) -> None:
        self.cases += other.cases
        self.outcomes += other.outcomes
        self.faults += other.faults
        for name, calls in other.calls.items():
            self.calls[name] = self.calls.get(name, 0) + calls

    def line(self) -> str:
        """The summary that reports quote."""
        outcomes = " ".join(f"{name}={count}" for name, count in sorted(self.outcomes.items()))
        return f"cases={self.cases} operations={len(self.calls)} calls={sum(self.calls.values())} {outcomes}"


def sweep(
    operations: Sequence[Swept] = (), combinations: Sequence[tuple[str, str]] = ()
) -> tuple[SweepTotals, list[str]]:
    """Run every case of these operations (all by default): the totals, and what went wrong, a text for each case that
    failed. ``combinations`` limits the tables and settings; an operation for which none of them makes sense is run in
    its first one."""
    totals, failures = SweepTotals(), list[str]()
    for operation in operations or OPERATIONS:
        every = [(table, setting) for table in operation.tables for setting in operation.settings]
        chosen = [each for each in every if each in combinations] if combinations else every
        for table, setting in chosen or every[:1]:
            untouched = _run(Case(operation, table, setting), totals, failures)
            totals.calls[operation.name] = totals.calls.get(operation.name, 0) + len(untouched.calls)
            for case in _cases(Case(operation, table, setting), untouched.calls):
                _run(case, totals, failures, untouched.answer)
    return totals, failures


def pairs(operations: Sequence[Swept], seed: int, number: int) -> tuple[SweepTotals, list[str]]:
    """Run ``number`` cases with two faults each, drawn by ``seed``."""
    totals, failures, rng = SweepTotals(), list[str](), random.Random(f"pairs/{seed}")
    untouched: dict[tuple[str, str, str], Bench] = {}
    for _ in range(number):
        operation = rng.choice(operations)
        case = Case(operation, rng.choice(operation.tables), rng.choice(operation.settings))
        key = (operation.name, case.table, case.setting)
        if key not in untouched:
            untouched[key] = _run(case, SweepTotals(), failures)
        calls = untouched[key].calls
        if not calls:
            continue
        first, second = rng.randrange(len(calls)), rng.randrange(len(calls) + 4)
        faults = {first + 1: rng.choice(POSSIBLE_FAULTS[calls[first].method])}
        # What the second call is depends on the first fault, so any fault is drawn that most calls can have.
        faults.setdefault(second + 1, rng.choice(POSSIBLE_FAULTS["put_if_absent"]))
        drawn = Case(operation, case.table, case.setting, tuple(sorted(faults.items())))
        _run(drawn, totals, failures, untouched[key].answer)
    return totals, failures


def _cases(base: Case, calls: Sequence[Call]) -> Iterator[Case]:
    for number, call in enumerate(calls, 1):
        for fault in POSSIBLE_FAULTS[call.method]:
            yield Case(base.operation, base.table, base.setting, ((number, fault),))
        yield Case(base.operation, base.table, base.setting, outage=number)
        for fault in _UNANSWERED if call.method == "put_if_absent" else ():
            yield Case(base.operation, base.table, base.setting, ((number, fault),), outage=number + 1)


def _run(case: Case, totals: SweepTotals, failures: list[str], expected: Any = None) -> Bench:
    with quiet():
        bench = Bench(case)
        bench.run()
        wrong = bench.judge(expected)
    totals.cases += 1
    totals.outcomes[bench.record.outcome] += 1
    totals.faults.update(fault.value for fault in bench.store.injected.elements())
    if wrong:
        failures.append("\n  ".join([str(case), *wrong, f"outcome: {bench.record.outcome} {bench.record.error}"]))
    return bench


class Bench:
    """One run of one operation, and its judge."""

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
        """Carry out the operation with its faults, then let what is late arrive."""
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
        """What is wrong, in words."""
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
        history.attempts = [] if self.records[1:] else history.attempts  # the rival's are not all recorded
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
            # The verb tells no more than this, and new tables have no in-commit timestamps unless they are asked for.
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
        """Read the latest version as a client that knows nothing of faults."""
        try:
            snapshot = table.snapshot()
            state = replay(log)[max(log)]
            seen = look(who, 0, snapshot, True)
            if (seen.version, seen.ict_ms) != (state.version, state.ict_ms):
                wrong.append(f"{who} sees version {seen.version}, {seen.ict_ms} instead of {state.version}")
            if len(seen.files or ()) != len(state.files):
                wrong.append(f"{who} sees {len(seen.files or ())} files instead of {len(state.files)}")
            if who == "a new process":
                if self.record.outcome == "ok":
                    snapshot.scan().to_arrow()  # it raises when a file is missing
                after = {"custom.after": "1"}
                run = functools.partial(table.set_properties, after, user_metadata="after")
                self._commit("after", lambda record: run(), adds=[], properties=dict(after))
        except Exception as error:
            wrong.append(f"{who} fails: {type(error).__name__}: {error}")

    def _commit(self, token: str, run: Callable[[Operation], CommitResult], **facts: Any) -> None:
        """Another client's commit, with nobody else there."""
        self._now += 1
        record = Operation(token, token, "append", self._now, removes=[], **facts)
        self.records.append(record)
        carry_out(record, run)
        self._now += 1
        record.returned = self._now
        if record.outcome == "failed":
            record.outcome, record.error = "crashed", f"{record.error} with nobody else there"

    def _rival(self) -> None:
        environment = seeded_environment(_RIVAL, self._clock_ms)
        if self.case.operation.new:
            self._commit(_RIVAL, lambda record: _create(self.shared, environment, record.token))
            return
        table = DeltaTable.open(self.shared, environment=environment)
        self._commit(_RIVAL, lambda record: table.append(_rows(_RIVAL), user_metadata=record.token))

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

        return Environment(environment.clock_ms, new_uuid, environment.sleep, environment.random, environment.retry)


def _possible(decide: Callable[[Call], Fault | None]) -> Callable[[Call], Fault | None]:
    """A fault that the call cannot have becomes the plainest one."""

    def possible(call: Call) -> Fault | None:
        fault = decide(call)
        return fault if fault is None or fault in POSSIBLE_FAULTS[call.method] else Fault.FAIL_BEFORE

    return possible


@functools.cache
def _prepared(
    kind: str, properties: tuple[tuple[str, str], ...], setup: Callable[[DeltaTable], Any] | None
) -> WatchedStore:
    """Three versions with rows; the next one but none before it is due for a checkpoint. ``timed`` has in-commit
    timestamps and a checkpoint."""
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
        store, SCHEMA, properties=settings, partition_by=["p"], data=_rows("one"), environment=environment
    )
    table.append(_rows("two"))
    if kind == "timed":
        table.checkpoint()
    table.append(_rows("three"))
    if setup is not None:
        setup(table)
    return store


def _rows(name: str) -> pa.Table:
    start = sum(name.encode()) * 10
    return pa.table({"x": [start, start + 1, start + 2], "y": ["", None, name], "p": ["a", "a", name]}, SCHEMA)


# -------------------------------------------------------------------------------------------------- the operations


def _create_with_rows(store: LogStore, environment: Environment, token: str) -> DeltaTable:
    return DeltaTable.create(store, SCHEMA, partition_by=["p"], data=_rows("one"), environment=environment)


def _create(store: LogStore, environment: Environment, token: str) -> CommitResult:
    with DeltaTable.create_transaction(store, SCHEMA, partition_by=["p"], environment=environment) as transaction:
        transaction.write(_rows("one").to_reader())
        return transaction.commit("CREATE TABLE AS SELECT", user_metadata=token)


def _open(store: FaultyStore, environment: Environment, token: str) -> Any:
    table = DeltaTable.open(store, environment=environment)
    return table.version, sorted(table.snapshot().files()["path"].to_pylist())


def _exists(store: FaultyStore, environment: Environment, token: str) -> Any:
    return DeltaTable.exists(store)


def _not_there(store: FaultyStore, environment: Environment, token: str) -> Any:
    try:
        DeltaTable.open(store, environment=environment)
    except TableNotFoundError:
        return "not there"
    return "there"


def _remove_one(table: DeltaTable, token: str) -> CommitResult:
    with table.transaction() as transaction:
        assert transaction.snapshot is not None
        transaction.remove(sorted(transaction.snapshot.files()["path"].to_pylist())[:1])
        return transaction.commit("DELETE", user_metadata=token)


def _replace_one(table: DeltaTable, token: str) -> CommitResult:
    with table.transaction() as transaction:
        assert transaction.snapshot is not None
        transaction.remove(sorted(transaction.snapshot.files()["path"].to_pylist())[:1])
        transaction.write(_rows("new").to_reader())
        return transaction.commit("UPDATE", user_metadata=token)


def _latest(table: DeltaTable, token: str) -> Any:
    snapshot = table.snapshot()
    return snapshot.version, sorted(snapshot.scan().to_arrow()["x"].to_pylist())


def _first(table: DeltaTable, token: str) -> Any:
    snapshot = table.snapshot(version=1)
    return snapshot.version, sorted(snapshot.scan(where="x > 0").to_arrow()["x"].to_pylist())


def _delete_some(table: DeltaTable, token: str) -> CommitResult:
    """One of the two rows in some files, so that files are rewritten or rows masked."""
    return table.delete("x = 3220 or x = 3461", user_metadata=token)


def _as_result(snapshot: Snapshot) -> CommitResult:
    return CommitResult(snapshot.version, 0, snapshot.in_commit_timestamp_ms, 1, "")


def _write(table: DeltaTable, token: str) -> CommitResult:
    return _as_result(Dataset(table).write(_rows("new"), {"token": token}, checksum="sha256"))


def _write_again(table: DeltaTable, token: str) -> CommitResult:
    return _as_result(
        Dataset(table).write(_rows("new"), {"token": token}, expected_parent=table.version, retry_count=3)
    )


def _commit_staged(table: DeltaTable, token: str) -> CommitResult:
    staged = [table.stage(_rows(name)) for name in ("new", "newer")]
    return _as_result(table.commit_staged(staged, {"token": token}))


def _first_records(store: LogStore, environment: Environment, token: str) -> CommitResult:
    dataset = Dataset(store, schema=SCHEMA, environment=environment)
    return _as_result(dataset.stream_write_records(_rows("one").to_batches(), {"token": token}, retry_count=1))


def _first_blob(store: LogStore, environment: Environment, token: str) -> CommitResult:
    with Dataset(store, environment=environment).stream_write({"token": token}, checksum="sha256") as writer:
        writer.write(b"one")
        return _as_result(writer.commit())


_ANY = {"may_change": ["schemaString", "configuration", "name", "description", "protocol"]}
_MAPPED = {"delta.columnMapping.mode": "name"}
_WIDER = pa.table({"x": [1], "y": [""], "p": ["a"], "z": [1.5]})
_HERE = pa.table({"x": [5, 6], "y": ["", ""], "p": ["a", "a"]}, SCHEMA)
_ONE: Mapping[str, Any] = {"removes": []}
_FIRST: dict[str, Any] = {"opens": True, "new": True, "tables": ["plain"], "settings": ["alone", "raced"]}
_SETTING: Mapping[str, Any] = {"adds": [], "removes": []}
_CHANGED_FEED = {"delta.enableChangeDataFeed": "true"}

#: One row is one operation; a new verb is swept by adding its row.
OPERATIONS: tuple[Swept, ...] = (
    Swept("create", _create_with_rows, _ONE, **_FIRST),
    Swept("create by a transaction", _create, _ONE, opens=True, new=True, tables=["plain"], settings=["raced"]),
    Swept("append", lambda table, token: table.append(_rows("new"), user_metadata=token), _ONE),
    Swept(
        "append once",
        lambda table, token: table.append(_rows("new"), user_metadata=token, txn=("app", 7)),
        _ONE,
    ),
    Swept(
        "append with a new column",
        lambda table, token: table.append(_WIDER, merge_schema=True, user_metadata=token),
        {**_ONE, "may_change": ["schemaString"]},
    ),
    Swept("write", _write, _ONE),
    Swept("write, retried", _write_again, _ONE, settings=["behind", "raced"]),
    Swept("commit_staged", _commit_staged, _ONE),
    Swept("stream_write_records, the first ones", _first_records, _ONE, **_FIRST),
    Swept("stream_write, the first bytes", _first_blob, _ONE, **_FIRST),
    Swept(
        "overwrite",
        lambda table, token: table.overwrite(_rows("new"), user_metadata=token),
        {"removes_all": True},
    ),
    Swept(
        "overwrite with another schema",
        lambda table, token: table.overwrite(_WIDER, overwrite_schema=True, user_metadata=token),
        {"removes_all": True, "may_change": ["schemaString"]},
    ),
    Swept("remove a file", _remove_one, {"adds": []}),
    Swept("replace a file", _replace_one),
    Swept(
        "set properties",
        lambda table, token: table.set_properties({"custom.a": "1"}, user_metadata=token),
        {**_SETTING, "properties": {"custom.a": "1"}},
    ),
    Swept(
        "unset properties",
        lambda table, token: table.unset_properties(["custom.b"], user_metadata=token),
        {**_SETTING, "properties": {"custom.b": None}},
        properties={"custom.b": "1"},
    ),
    Swept(
        "enable in-commit timestamps",
        lambda table, token: table.enable_in_commit_timestamps(),
        {**_SETTING, "properties": {ENABLE: "true"}},
        tables=["plain"],
    ),
    Swept(
        "disable in-commit timestamps",
        lambda table, token: table.disable_in_commit_timestamps(),
        {**_SETTING, "properties": {ENABLE: "false"}},
        tables=["timed"],
    ),
    Swept("overwrite where", lambda table, token: table.overwrite(_HERE, where="p = 'a'", user_metadata=token)),
    Swept(
        "overwrite partitions",
        lambda table, token: table.overwrite(_HERE, partitions="dynamic", user_metadata=token),
    ),
    Swept("delete", _delete_some),
    Swept("delete with vectors", _delete_some, properties={"delta.enableDeletionVectors": "true"}),
    Swept("delete with a change feed", _delete_some, properties=_CHANGED_FEED),
    Swept(
        "append with row ids",
        lambda table, token: table.append(_rows("new"), user_metadata=token),
        _ONE,
        properties={"delta.enableRowTracking": "true"},
    ),
    Swept("add_constraint", lambda table, token: table.add_constraint("c", "x > 0", user_metadata=token), _ANY),
    Swept(
        "drop_constraint",
        lambda table, token: table.drop_constraint("c", user_metadata=token),
        _ANY,
        setup=lambda table: table.add_constraint("c", "x > 0"),
    ),
    Swept(
        "add_columns",
        lambda table, token: table.add_columns(pa.schema([("w", pa.int64())]), user_metadata=token),
        _ANY,
    ),
    Swept(
        "rename_column",
        lambda table, token: table.rename_column("x", "x2", user_metadata=token),
        _ANY,
        properties=_MAPPED,
    ),
    Swept(
        "drop_columns",
        lambda table, token: table.drop_columns(["x"], user_metadata=token),
        _ANY,
        properties=_MAPPED,
    ),
    Swept("set_column", lambda table, token: table.set_column("x", comment="a number", user_metadata=token), _ANY),
    Swept("set_table", lambda table, token: table.set_table(description="swept", user_metadata=token), _ANY),
    Swept(
        "set_domain_metadata",
        lambda table, token: table.set_domain_metadata("mine", "1", user_metadata=token),
        {**_SETTING, **_ANY},
    ),
    Swept(
        "remove_domain_metadata",
        lambda table, token: table.remove_domain_metadata("mine", user_metadata=token),
        {**_SETTING, **_ANY},
        setup=lambda table: table.set_domain_metadata("mine", "1"),
    ),
    Swept("add_feature", lambda table, token: table.add_feature("v2Checkpoint", user_metadata=token), _ANY),
    Swept("restore", lambda table, token: table.restore(1, user_metadata=token).commit, _ANY),
    Swept(
        "retrying",
        lambda table, token: table.retrying(lambda again: again.delete("x = 3220", user_metadata=token)),
    ),
    Swept("checkpoint", lambda table, token: table.checkpoint(), settings=["alone", "behind"]),
    Swept("compact_log", lambda table, token: table.compact_log(), settings=["alone", "behind"]),
    Swept("cleanup_log", lambda table, token: table.cleanup_log().first_version, settings=["alone", "behind"]),
    Swept("open", _open, opens=True, reads=True, settings=["alone"]),
    Swept("exists", _exists, opens=True, reads=True, settings=["alone"]),
    Swept("open what is not there", _not_there, opens=True, new=True, reads=True, tables=["plain"], settings=["alone"]),
    Swept("snapshot", _latest, reads=True, settings=["alone", "behind"]),
    Swept("latest", lambda table, token: table.snapshot().version, reads=True, settings=["alone", "behind"]),
    Swept("snapshots", lambda table, token: Dataset(table).snapshots(), reads=True, settings=["alone", "behind"]),
    Swept("snapshot of a version", _first, reads=True, settings=["alone", "behind"]),
    Swept(
        "snapshot of a time",
        lambda table, token: table.snapshot(timestamp=table.history()[1].timestamp_ms).version,
        reads=True,
        settings=["alone", "behind"],
    ),
    Swept(
        "version_at",
        lambda table, token: table.version_at(START_MS + 500, before="earliest", after="latest").version,
        reads=True,
        settings=["alone", "behind"],
    ),
    Swept(
        "explain_timestamp",
        lambda table, token: table.explain_timestamp(START_MS + 500).to_json(),
        reads=True,
        settings=["alone"],
    ),
    Swept(
        "history",
        lambda table, token: [entry.version for entry in table.history()],
        reads=True,
        settings=["alone", "behind"],
    ),
    Swept(
        "changes",
        lambda table, token: table.changes(1).to_arrow().num_rows,
        reads=True,
        settings=["alone"],
        properties=_CHANGED_FEED,
    ),
)
