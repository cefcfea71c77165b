"""Seeded schedules of several writers and a reader on one table, with faults, judged by the checker.

    result = run_schedule(seed=7)
    assert not result.violations, result.report()

One seed determines everything: the table, each client's operations, the interleaving, the clocks and the faults. The
clients run the real library on a MemoryStore; this module contains their operations and judges the results.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import multiprocessing
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltalog.commit_result import CommitResult
from deltalog.environment import Environment, RetryPolicy
from deltalog.errors import (
    CommitStateUnknownError,
    DeltaLogError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
)
from deltalog.storage.base import LogStore
from deltalog.table import DeltaTable
from deltalog.testing.checker import Violation, check
from deltalog.testing.history import History, Operation, Read
from deltalog.testing.recording import (
    WatchedStore,
    carry_out,
    file_action,
    history_of,
    log_of,
    quiet,
    read_of,
    seeded_environment,
)
from deltalog.testing.stores import Fault, FaultPlan, FaultyStore
from tests.support.simulation.scheduler import START_MS, Client, Scheduler, store_for

SCHEMA = pa.schema([pa.field("x", pa.int64())])
ENABLE = "delta.enableInCommitTimestamps"
#: In-commit timestamps of a table: enabled from version 0; enabled during the run; enabled, disabled and enabled again;
#: or never enabled. ``created``: the writers race to create the table.
TABLES = ("on", "late", "late", "toggled", "off", "created")

#: The operations of writers, with their weights.
KINDS: Mapping[str, int] = {
    "append": 34,
    "append rows": 6,
    "remove": 15,
    "replace": 14,
    "overwrite": 12,
    "property": 8,
    "application": 8,
    "checkpoint": 3,
}
_SHARE = 100  # schedules
_NEVER = 1_000_000  # versions between two checkpoints
_KILL_WEIGHT = 0.2  # a kill ends a client, so it must be rarer than faults that a client survives
# Writes have a higher fault rate, because there are about ten reads for each write.
_FAULT_FACTORS = {"put_if_absent": 3.0, "put": 2.0, "open_output": 1.5, "*": 0.9}


@dataclass
class ScheduleResult:
    """The result of one schedule: the events that happened, and the violations that were found."""

    seed: int
    table: str
    policy: str
    steps: int
    faults: collections.Counter[Fault]
    operations: list[Operation]
    reads: int
    versions: int
    checkpoints: int
    violations: list[Violation]
    trace: list[str] = field(repr=False)
    # A digest of the trace and the whole log; two runs are equal if and only if their digests are equal.
    digest: str = ""

    def report(self) -> str:
        """The seed, the violations, the operations and the whole trace, in readable form."""
        lines = [f"seed {self.seed} (table {self.table}, policy {self.policy}, {self.steps} steps)"]
        lines += [f"  VIOLATION {violation}" for violation in self.violations]
        for o in self.operations:
            what = f"{o.client} {o.token} {o.kind}: {o.outcome} version={o.version} read={o.read_version}"
            lines.append(f"  {o.invoked:.0f}-{o.returned} {what} {o.error}")
        return "\n".join([*lines, *self.trace])


@dataclass
class Totals:
    """The totals over all schedules, and the line that reports them."""

    schedules: int = 0
    steps: int = 0
    reads: int = 0
    checkpoints: int = 0
    violations: int = 0
    # The number of CommitStateUnknownErrors, including those after which resolve() found the outcome.
    unknown_raised: int = 0
    faults: collections.Counter[Fault] = field(default_factory=collections.Counter)
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    tables: collections.Counter[str] = field(default_factory=collections.Counter)
    policies: collections.Counter[str] = field(default_factory=collections.Counter)
    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    errors: collections.Counter[str] = field(default_factory=collections.Counter)  # the errors of failed operations

    def add(self, result: ScheduleResult) -> None:
        self.schedules += 1
        self.steps += result.steps
        self.reads += result.reads
        self.checkpoints += result.checkpoints
        self.violations += bool(result.violations)
        self.faults += result.faults
        self.tables[result.table] += 1
        self.policies[result.policy] += 1
        for operation in result.operations:
            self.unknown_raised += operation.error.startswith("CommitStateUnknownError")
            self.outcomes[operation.outcome] += 1
            if operation.outcome == "ok":
                self.kinds[operation.kind] += 1
            if operation.outcome == "failed":
                self.errors[operation.error] += 1

    def merge(self, other: Totals) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def line(self, seconds: float, seeds: str) -> str:
        """The summary line of a report."""
        kinds = ", ".join(f"{fault.value} {self.faults[fault]}" for fault in Fault)
        return (
            f"schedules={self.schedules} seeds={seeds} steps={self.steps} faults={sum(self.faults.values())} "
            f"acked={self.outcomes['ok']} failed={self.outcomes['failed']} unknown={self.unknown_raised} "
            f"unresolved={self.outcomes['unknown']} killed={self.outcomes['killed']} reads={self.reads} "
            f"checkpoints={self.checkpoints} "
            f"violations={self.violations} seconds={seconds:.1f} ({kinds})"
        )


class Simulation:
    """One schedule: ``writers`` writers with ``operations`` operations each, and a reader.

    ``table`` (one of TABLES), ``policy`` (one of scheduler.POLICIES) and ``kinds`` (like KINDS) fix choices that the
    seed would otherwise make. ``checkpoints`` is the fraction of schedules whose commits write a checkpoint every few
    versions. The fraction is limited, because writing checkpoints takes longer than everything else; the operation
    ``checkpoint`` itself occurs in all schedules. ``wrap`` puts another store between the clients and the shared store,
    for mutants of a store. ``remote``: the clients use a store that claims to be remote, so they list the log and run
    the checks for remote stores.
    """

    def __init__(
        self,
        seed: int,
        *,
        writers: int = 3,
        operations: int = 3,
        fault_rate: float = 0.12,
        table: str | None = None,
        policy: str | None = None,
        kinds: Mapping[str, int] | None = None,
        checkpoints: float = 0.25,
        wrap: Callable[[LogStore], LogStore] = lambda store: store,
        remote: bool = False,
    ) -> None:
        self.seed = seed
        self.random = random.Random(f"{seed}/plan")
        self.scheduler = Scheduler(seed, policy=policy)
        self.table = table or self.random.choice(TABLES)
        self.fault_rate = fault_rate
        self.records: list[Operation] = []
        self.reads: list[Read] = []
        self._refusals: tuple[type[Exception], ...] = ()
        self._kinds = dict(kinds or KINDS)
        self._operations = operations
        self._writers = writers
        self._stores: list[FaultyStore] = []
        store_skew_ms = self.random.choice((0, 0, 2_000, -2_000, 600_000))
        self.shared = WatchedStore(lambda: self.scheduler.time_ms() + store_skew_ms, lambda: self.scheduler.step)
        self._common = wrap(self.shared)
        self._common.is_remote = self.shared.is_remote = remote
        self._interval = self.random.choice((2, 3, 3, 5))
        if random.Random(f"{seed}/checkpoints").random() >= checkpoints:
            self._interval = _NEVER
        self._retry = RetryPolicy(settle_attempts=self.random.choice((1, 2, 2, 10)))
        self._initial = self._prepare()

    def run(self) -> ScheduleResult:
        """Run to the end and judge."""
        scheduler = self.scheduler
        for number in range(self._writers):
            scheduler.spawn(f"w{number}", self._writer(f"w{number}", number, self._operations))
        scheduler.spawn("r0", self._reader)
        with quiet():
            scheduler.run()
            self._finish()
        violations = self._judge()
        faults: collections.Counter[Fault] = sum((s.injected for s in self._stores), collections.Counter())
        return ScheduleResult(
            self.seed,
            self.table,
            scheduler.policy,
            scheduler.step,
            faults,
            self.records,
            sum(not read.is_opened for read in self.reads),
            len(log_of(self.shared)),
            sum(path.endswith(".checkpoint.parquet") for path in self.shared.paths()),
            violations,
            scheduler.trace,
            self._digest(),
        )

    # -------------------------------------------------------------------------------------------- the table

    def _prepare(self) -> int:
        """Create the table, without faults, with two versions and some files, or leave it to the clients to create it;
        return the number of versions."""
        if self.table == "created":
            return 0
        environment = seeded_environment(f"{self.seed}/prepare", self.scheduler.time_ms)
        with quiet():
            table = DeltaTable.create(self.shared, SCHEMA, properties=self._properties(), environment=environment)
            with table.transaction() as transaction:
                transaction.add(*(file_action(f"fake-initial-{n}", START_MS) for n in range(4)))
                transaction.commit()
        self.shared.sightings.clear()
        return 2

    def _properties(self) -> dict[str, str]:
        properties = {"delta.checkpointInterval": str(self._interval)}
        if self.table == "on" or (self.table == "created" and self.random.random() < 0.5):
            properties[ENABLE] = "true"
        return properties

    def _open(self, client: Client) -> DeltaTable:
        """Open a handle as a new process would. The client's store may fail, so a client tries a few times to open the
        table. Raises StoreError."""
        kills = dict.fromkeys((Fault.KILL_BEFORE, Fault.KILL_AFTER), _KILL_WEIGHT)
        rates = {method: self.fault_rate * factor for method, factor in _FAULT_FACTORS.items()}
        plan = FaultPlan(client.random, rates, weights=kills)
        store = store_for(client, self._common, plan)
        self._stores.append(store)
        environment = client.environment(self._retry)
        for attempt in range(20):
            try:
                if self.table == "created" and attempt % 2 == 0:
                    return self._create(client, store, environment)
                return self._opened(client, store, environment)
            except (StoreError, TableExistsError, TableNotFoundError, CommitStateUnknownError):
                client.sleep(0.01)
            except DeltaLogError as error:
                self._crash(client, f"{type(error).__name__}: {error}", "open")
                break
        raise StoreError("the store fails all the time, or the table cannot be opened", path="")

    def _create(self, client: Client, store: FaultyStore, environment: Environment) -> DeltaTable:
        """Open the table, or create it; several clients may try to create it at once."""
        with contextlib.suppress(TableNotFoundError):
            return self._opened(client, store, environment)
        path = f"fake-{client.name}-{len(self.records)}"

        def create(record: Operation) -> CommitResult:
            transaction = DeltaTable.create_transaction(
                store, SCHEMA, properties=self._properties(), environment=environment
            )
            transaction.add(file_action(path, client.clock()))
            return transaction.commit(user_metadata=record.token)

        self._record(client, "create", create, adds=[path], removes=[])
        return self._opened(client, store, environment)

    def _opened(self, client: Client, store: LogStore, environment: Environment) -> DeltaTable:
        """Open a handle at the latest version; callers rely on the handle's ``version`` being the latest."""
        invoked = self.scheduler.step
        table = DeltaTable.open(store, environment=environment)
        self.reads.append(Read(client.name, invoked, self.scheduler.step, table.version, is_opened=True))
        return table

    # -------------------------------------------------------------------------------- the simulated clients

    def _writer(self, name: str, number: int, operations: int) -> Callable[[Client], None]:
        left = [operations]

        def body(client: Client) -> None:
            try:
                self._write(client, number, left)
            finally:
                if left[0] > 0 and len(self.scheduler.clients) < 12 and self.random.random() < 0.5:
                    successor = f"{name}'"  # the job is restarted
                    self.scheduler.spawn(successor, self._writer(successor, number, left[0]))

        return body

    def _write(self, client: Client, number: int, left: list[int]) -> None:
        try:
            table = self._open(client)
        except StoreError:
            return
        while left[0] > 0:
            left[0] -= 1
            if client.random.random() < 0.15:
                with contextlib.suppress(StoreError):
                    table = self._open(client)
            switch = self._switch(client, number, left[0])
            if switch is not None:
                self._set_property(client, table, "switch", {ENABLE: switch})
                continue
            kind = client.random.choices(list(self._kinds), list(self._kinds.values()))[0]
            if kind == "property":
                # Few keys and values, so that clients often set a property to the value that it already has. Such a
                # commit changes nothing, but it must not be lost either if another commit wins.
                key, value = f"custom.{client.random.randrange(2)}", str(client.random.randrange(2))
                self._set_property(client, table, kind, {key: value})
            elif kind == "append rows":
                self._append_rows(client, table)
            elif kind == "checkpoint":
                self._checkpoint(client, table)
            else:
                self._change_files(client, table, kind)

    def _switch(self, client: Client, number: int, left: int) -> str | None:
        """The value to which this operation sets the property that enables in-commit timestamps; None if it does not
        set the property."""
        if self.table == "late" and number == 0 and left == self._operations // 2:
            return "true"
        if self.table == "toggled" and client.random.random() < 0.35:
            return client.random.choice(("true", "true", "false"))
        return None

    def _change_files(self, client: Client, table: DeltaTable, kind: str) -> None:
        def run(record: Operation) -> CommitResult:
            with table.transaction() as transaction:
                snapshot = transaction.snapshot
                assert snapshot is not None
                record.read_version = snapshot.version
                adds = (
                    []
                    if kind == "remove"
                    else [f"fake-{record.token}-{n}" for n in range(client.random.randrange(1, 3))]
                )
                removes: list[str] | None = []
                if kind in ("remove", "replace"):
                    live = sorted(snapshot.files()["path"].to_pylist())
                    removes = client.random.sample(live, min(len(live), 1))
                    transaction.remove(removes)
                elif kind == "overwrite":
                    transaction.remove_all_files()
                    record.removes_all, removes = True, None
                elif kind == "application":
                    app = f"app{client.random.randrange(2)}"
                    transaction.set_transaction(app, (snapshot.transaction_version(app) or 0) + 1)
                transaction.add(*(file_action(path, client.clock()) for path in adds))
                record.adds, record.removes = adds, removes
                return transaction.commit(kind, user_metadata=record.token)

        self._record(client, kind, run)

    def _append_rows(self, client: Client, table: DeltaTable) -> None:
        data = pa.table({"x": [client.random.randrange(1000)]}, SCHEMA)
        self._record(
            client,
            "append rows",
            lambda record: table.append(data, user_metadata=record.token),
            removes=[],
        )

    def _set_property(self, client: Client, table: DeltaTable, kind: str, properties: dict[str, str]) -> None:
        self._record(
            client,
            kind,
            lambda record: table.set_properties(properties, user_metadata=record.token),
            adds=[],
            removes=[],
            properties=dict(properties),
        )

    def _checkpoint(self, client: Client, table: DeltaTable) -> None:
        def run(record: Operation) -> None:
            # A checkpoint adds no version: writing the checkpoint may fail, even because of an injected fault, but must
            # not damage the table.
            with contextlib.suppress(StoreError):
                table.checkpoint()

        self._record(client, "checkpoint", run)

    def _record(
        self, client: Client, kind: str, run: Callable[[Operation], CommitResult | None], **declared: Any
    ) -> None:
        """Run an operation and record its outcome."""
        token = f"op{len(self.records)}"
        record = Operation(token, client.name, kind, self.scheduler.step, **declared)
        self.records.append(record)
        first_reading = len(client.clock.readings)
        try:
            carry_out(record, run, functools.partial(self._resolve, client), self._refusals)
        finally:
            record.clock_ms = client.clock.readings[first_reading:]
        record.returned = self.scheduler.step
        self.scheduler.note(f"{client.name}: {kind} {token} {record.outcome} {record.error} {record.version}")

    def _resolve(self, client: Client, error: CommitStateUnknownError) -> CommitResult | None:
        if client.random.random() < 0.4:
            return None
        client.sleep(0.05)
        with contextlib.suppress(StoreError):
            return error.resolve()
        return None

    def _reader(self, client: Client) -> None:
        try:
            table = self._open(client)
        except StoreError:
            return
        for _ in range(self._operations + 1):
            invoked = self.scheduler.step
            version = client.random.randrange(table.version + 1) if client.random.random() < 0.3 else None
            try:
                if version is None and client.random.random() < 0.3:
                    table = self._open(client)
                    invoked = self.scheduler.step
                snapshot = table.snapshot(version)
                read = read_of(client.name, invoked, snapshot, version is None)
                again = read_of(client.name, invoked, snapshot, version is None)
                if self.table != "toggled" and read.ict_ms is not None and client.random.random() < 0.3:
                    self._travel(client, table, read)
            except StoreError:
                continue
            except Exception as error:
                self._crash(client, f"{type(error).__name__}: {error}")
                continue
            if again != read:
                self._crash(client, f"snapshot {snapshot.version} changed while it was read")
            self.reads.append(read)

    def _travel(self, client: Client, table: DeltaTable, read: Read) -> None:
        """In-commit timestamps increase strictly, so each of them identifies exactly one version, whatever is committed
        in the meantime."""
        assert read.ict_ms is not None
        found = table.version_at(read.ict_ms)
        if (found.version, found.timestamp_ms) != (read.version, read.ict_ms):
            self._crash(client, f"version {read.version} has the time {read.ict_ms}, which was resolved to {found}")

    def _crash(self, client: Client, error: str, kind: str = "read") -> None:
        step = self.scheduler.step
        token = f"{kind}{len(self.reads)}-{step}"
        self.records.append(Operation(token, client.name, kind, step, step, "crashed", error=error))

    # ------------------------------------------------------------------------------------------- the judge

    def _finish(self) -> None:
        """At the end, new processes without faults read some versions, and one of them commits."""
        scheduler = self.scheduler
        if not log_of(self.shared):
            return

        def body(client: Client) -> None:
            store = store_for(client, self._common)
            self._stores.append(store)
            try:
                table = self._opened(client, store, client.environment())
                invoked = scheduler.step
                versions: list[int | None] = [None, self.random.randrange(table.version + 1)]
                self.reads += [read_of(client.name, invoked, table.snapshot(v), v is None) for v in versions]
            except Exception as error:
                self._crash(client, f"{type(error).__name__}: {error}")
                return
            self._change_files(client, table, "append")
            last = self.records[-1]
            if last.outcome != "ok":
                last.error += " (without other clients)"
                last.outcome = "crashed"

        scheduler.spawn("last", body)
        scheduler.run()

    def _judge(self) -> list[Violation]:
        return check(self._history())

    def _history(self) -> History:
        fake = {f"fake-initial-{n}" for n in range(4)}.union(*(record.adds or () for record in self.records))
        return history_of(self.shared, self._stores, self.records, self.reads, initial=self._initial, data_files=fake)

    def _digest(self) -> str:
        digest = hashlib.sha256("\n".join(self.scheduler.trace).encode())
        for version, data in sorted(log_of(self.shared).items()):
            digest.update(b"%d" % version + data)
        return digest.hexdigest()


def run_schedule(seed: int, **options: Any) -> ScheduleResult:
    """Run and judge one schedule; options as in Simulation."""
    return Simulation(seed, **options).run()


def run_schedules(
    seeds: Sequence[int],
    *,
    processes: int = 1,
    keep: int = 10,
    run: Callable[..., ScheduleResult] = run_schedule,
    **options: Any,
) -> tuple[Totals, list[ScheduleResult]]:
    """Run many schedules. Returns the totals and, from each process, the first ``keep`` results that contain
    violations.

    ``run`` runs one. If ``processes`` is above 1, that many fresh interpreters share the seeds, so options must be
    picklable.
    """
    totals, bad = Totals(), list[ScheduleResult]()
    if processes > 1:
        # The chunks are small, because a process notices only between chunks that its parent has ended.
        shares = [seeds[start : start + _SHARE] for start in range(0, len(seeds), _SHARE)]
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
            for part, failed in pool.map(functools.partial(run_schedules, keep=keep, run=run, **options), shares):
                totals.merge(part)
                bad += failed
        return totals, sorted(bad, key=lambda result: result.seed)
    for seed in seeds:
        result = run(seed, **options)
        totals.add(result)
        if result.violations and len(bad) < keep:
            bad.append(result)
    return totals, bad
