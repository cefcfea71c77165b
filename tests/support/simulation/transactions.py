"""Seeded schedules of transactions over several tables, with faults, judged by ``tests.support.simulation.deals``.

    result = run_transactions(seed=7)
    assert not result.violations, result.report()

Clients move money between tables, in transactions and in single commits, commit and cancel each other's transactions,
read sums at one instant, and recover what others left; processes die, stores and the coordinator fail, clocks jump. As
in ``simulation`` one seed fixes everything, and every call of a store or of the coordinator is a step.

``python -m tests.support.simulation.transactions --runs 20000`` runs many of them.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import functools
import hashlib
import os
import random
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import Proposal, TransactionRecord, TransactionStatus
from deltalog.environment import Environment, RetryPolicy
from deltalog.errors import (
    CommitAttemptsExhaustedError,
    CommitConflictError,
    CommitStateUnknownError,
    ConcurrentModificationError,
    DeltaLogError,
    EntityNotFoundError,
    InvalidActionError,
    OperationTimeoutError,
    StoreError,
    TimestampOutOfRangeError,
    TransactionCanceledError,
    TransactionCommitInProgressError,
    TransactionCommittedError,
    TransactionStateError,
)
from deltalog.protocol.paths import staged_commit_path
from deltalog.storage.base import LogStore
from deltalog.table import DeltaTable
from deltalog.testing.checker import Violation
from deltalog.testing.coordinators import (
    COORDINATOR_FAULTS,
    FaultyCoordinator,
    MemoryCoordinator,
    WatchedCoordinator,
)
from deltalog.testing.history import Operation
from deltalog.testing.recording import WatchedStore, file_action, log_of, quiet, seeded_environment
from deltalog.testing.stores import Call, Fault, FaultPlan, FaultyStore, SimulatedKill
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.manager import TransactionManager
from deltalog.transactions.transaction import ManagedTransaction
from tests.support.simulation.deals import Cut, Deal, Ratified, World, judge, worth
from tests.support.simulation.jobs import commit_settled, misplaced, run_job
from tests.support.simulation.scheduler import START_MS, Client, Scheduler, store_for
from tests.support.simulation.simulation import ScheduleResult, run_schedules

SCHEMA = pa.schema([pa.field("x", pa.int64())])
NAMES = ("bank.a", "bank.b", "bank.c")
#: What clients do, and how often in proportion.
KINDS: Mapping[str, int] = {"deal": 10, "share": 2, "single": 4, "sum": 3, "cut": 2, "meddle": 3, "recover": 2}
#: The same for schedules of jobs that use the same object names, see ``tests.support.simulation.jobs``.
JOBS: Mapping[str, int] = {"job": 8, "meddle": 1, "recover": 1}
#: How a deal ends.
ENDS: Mapping[str, int] = {"commit": 12, "cancel": 2, "hand over": 3, "leave": 2}

_KILL_WEIGHT = 0.25
# Faults belong where they hurt most; there are some ten reads for each write.
_FACTORS = {"put_if_absent": 2.0, "ratify": 8.0, "replace": 3.0, "put_parts": 1.5, "published": 3.0, "*": 0.4}
_DAY_MS = 86_400_000
_CATALOG_ID = "a catalog in memory"
_PREPARED_MS = 10  # what the tables' first commits took, at 1 ms each
_IDLE = (datetime.timedelta(minutes=30), datetime.timedelta(hours=3), datetime.timedelta(days=3))
# What a client may meet, besides CommitStateUnknownError; everything else that escapes is a defect.
_DECLARED = (
    StoreError, TransactionStateError, ConcurrentModificationError, EntityNotFoundError, CommitConflictError,
    CommitAttemptsExhaustedError,
)  # fmt: skip


class SimulatedManager(TransactionManager):
    """One whose tables are in the stores that ``open_store`` gives."""

    def __init__(
        self,
        coordinator: Coordinator,
        environment: Environment,
        open_store: Callable[[str], LogStore],
        idle_timeout: datetime.timedelta = _IDLE[0],
    ) -> None:
        super().__init__(coordinator, environment=environment, idle_timeout=idle_timeout)
        self._tables = _Tables(coordinator, environment, open_store)
        self.plain_store = open_store


class _Tables(ManagedTables):
    def __init__(self, coordinator: Coordinator, environment: Environment, open_store: Callable[[str], LogStore]):
        super().__init__(coordinator, environment, {})
        self._open_store = open_store

    def plain_store(self, url: str) -> LogStore:
        return self._open_store(url)


class Bank:
    """Tables of coins in memory, and what is ratified of them. ``coordinator``: an empty one. ``like``: one that was
    just made, with a catalog of the same id; making one anew takes longer than most schedules."""

    def __init__(
        self,
        coordinator: Coordinator,
        time_ms: Callable[[], int],
        now: Callable[[], float] = lambda: 0,
        *,
        seed: str = "bank",
        names: Sequence[str] = NAMES,
        coins: int = 3,
        like: Bank | None = None,
    ) -> None:
        self.names = tuple(names)
        self.stores: dict[str, WatchedStore] = {}
        self.ratified: list[Ratified] = []
        self.wrong: list[str] = []
        self.coordinator = WatchedCoordinator(coordinator, self._see)
        self.total: int = 100 * coins * len(names) if like is None else like.total
        self._now = now
        for name in names:
            store = WatchedStore(time_ms, now, None if like is None else like.stores[f"memory://{name}"])
            store.url = f"memory://{name}"
            self.stores[store.url] = store
        environment = seeded_environment(f"{seed}/prepare", time_ms)
        self.clean = SimulatedManager(self.coordinator, environment, self.stores.__getitem__)
        if like is None:
            with quiet():
                for name in names:
                    self._create(name, [f"coin-100-{name}{number}" for number in range(coins)], environment)
        else:
            for table in like.clean.list_tables():
                coordinator.register(table, like.initial[table.name] - 1)
        self.table_names = {table.table_id: table.name for table in self.clean.list_tables()}
        self.initial: dict[str, int] = {name: len(self.log(name)) for name in names}
        for store in self.stores.values():
            store.sightings.clear()
        self.ratified.clear()

    def _create(self, name: str, coins: Sequence[str], environment: Environment) -> None:
        """The first table is made in the catalog, the others are taken over by it."""
        url = f"memory://{name}"
        if name == self.names[0]:
            table = self.clean.create_table(name, url, SCHEMA)
        else:
            DeltaTable.create(self.stores[url], SCHEMA, environment=environment)
            table = self.clean.register_table(name, url)
        with table.transaction() as transaction:
            transaction.add(*(file_action(coin, START_MS) for coin in coins))
            transaction.commit()

    def _see(self, proposal: Proposal, record: TransactionRecord | None) -> None:
        if not hasattr(self, "table_names"):
            return  # the tables are being made
        if record is not None and record.status is not TransactionStatus.COMMIT_IN_PROGRESS:
            self.wrong.append(f"{record.id} was {record.status.value}, and was ratified")
        commits = {
            self.table_names[table_id]: [
                (each.version, self._staged(self.table_names[table_id], each.file)) for each in some
            ]
            for table_id, some in proposal.commits.items()
        }
        self.ratified.append(Ratified(self._now(), commits))

    def _staged(self, name: str, file: str) -> bytes:
        store = self.stores[f"memory://{name}"]
        return store.get(staged_commit_path(file)) if store.head(staged_commit_path(file)) else b""

    def log(self, name: str) -> dict[int, bytes]:
        return log_of(self.stores[f"memory://{name}"])

    def sums(self, manager: TransactionManager) -> dict[str, frozenset[str]]:
        """The coins of each table at the instant of a new transaction."""
        transaction = manager.transaction(transaction_type="READ_ONLY")
        seen = {name: coins_of(transaction.table(name)) for name in self.names}
        with contextlib.suppress(StoreError, TransactionStateError, EntityNotFoundError):
            transaction.cancel()
        return seen

    def left(self, manager: TransactionManager) -> list[str]:
        """What recovery should not have left, when it is over."""
        left = []
        for table in self.coordinator.tables():
            head = self.coordinator.head(table.table_id)
            if head is None or head.unpublished:
                left.append(f"{table.name}: {head} is not published")
            names = self.stores[table.url].list_names("_delta_log/_staged_commits")
            dead = [name for name in names if head is not None and int(name[:20]) <= head.version]
            if dead:
                left.append(f"{table.name}: the staged commits {sorted(dead)} have no owner")
        for record in self.coordinator.transactions(frozenset(TransactionStatus)):
            if not record.status.is_final:
                left.append(f"transaction {record.id} is {record.status.value}")
            elif self.coordinator.parts(record.id):
                left.append(f"transaction {record.id} is over, and has parts")
        before = self.objects()
        again = manager.recover(datetime.timedelta(days=365))
        if any(again.values()) or self.objects() != before:
            left.append(f"recovering again did {again}")
        return left

    def objects(self) -> dict[str, dict[str, bytes]]:
        return {url: {path: store.get(path) for path in store.paths()} for url, store in self.stores.items()}

    def world(self, **told: Any) -> World:
        """The data for the judge, at the end."""
        sightings = {name: self.stores[f"memory://{name}"].sightings for name in self.names}
        logs = {name: self.log(name) for name in self.names}
        return World(
            logs, self.initial, self.total, ratified=self.ratified, sightings=sightings, wrong=self.wrong, **told
        )


def coins_of(table: DeltaTable, version: int | None = None) -> frozenset[str]:
    return frozenset(table.snapshot(version).files(["path"])["path"].to_pylist())


class TransactionSimulation:
    """One schedule of ``clients`` with ``operations`` each. ``kinds`` (as KINDS), ``isolation``, ``policy`` and
    ``attempts`` (how often a commit tries) narrow what the seed would choose. ``coins``: how many a table has at
    first."""

    def __init__(
        self,
        seed: int,
        *,
        clients: int = 3,
        operations: int = 3,
        fault_rate: float = 0.04,
        policy: str | None = None,
        kinds: Mapping[str, int] | None = None,
        isolation: str | None = None,
        attempts: int | None = None,
        coins: int = 2,
    ) -> None:
        self.seed = seed
        self.random = random.Random(f"{seed}/plan")
        self.scheduler = Scheduler(seed, policy=policy)
        self.deals: list[Deal] = []
        self.reads: list[tuple[str, Mapping[str, frozenset[str]]]] = []
        self.cuts: list[Cut] = []
        self.crashes: list[str] = []
        self.left: list[str] = []
        self._outcomes: dict[str, Operation] = {}
        self._fault_rate = self.random.choice((0.0, fault_rate, fault_rate, fault_rate))
        self._clients, self._operations = clients, operations
        self._kinds = dict(kinds or KINDS)
        self._isolation = isolation
        self._idle = self.random.choice(_IDLE)
        self._retry = RetryPolicy(
            settle_attempts=self.random.choice((1, 2, 10)), max_attempts=attempts or self.random.choice((1, 2, 1000))
        )
        self.bank = Bank(
            MemoryCoordinator(catalog_id=_CATALOG_ID),
            self.scheduler.time_ms,
            lambda: self.scheduler.step,
            like=_bank(coins),
        )
        self._first_ms = START_MS + _PREPARED_MS
        self._injected: list[collections.Counter[Fault]] = []
        self._adoptable: list[Deal] = []

    def run(self) -> ScheduleResult:
        """Run to the end and judge."""
        scheduler = self.scheduler
        with quiet():
            for number in range(self._clients):
                self._spawn(f"c{number}", self._operations)
            scheduler.run()
            scheduler.spawn("last", self._finish)
            scheduler.run()
        world = self.bank.world(
            deals=self.deals, reads=self.reads, cuts=self.cuts, left=self.left, crashes=self.crashes
        )
        violations = judge(world)
        violations += [Violation(*each) for each in misplaced(world.logs, self.bank.stores)]
        return self._result(violations)

    def _spawn(self, name: str, operations: int) -> None:
        left = [operations]

        def body(client: Client) -> None:
            try:
                manager = self.manager(client)
                while left[0] > 0:
                    left[0] -= 1
                    if client.random.random() < 0.1:
                        manager = self.manager(client)
                    self._act(client, manager)
            finally:
                if left[0] > 0 and len(self.scheduler.clients) < 10:
                    self._spawn(f"{name}'", left[0])  # the job is started again

        self.scheduler.spawn(name, body)

    def manager(self, client: Client) -> SimulatedManager:
        """What a new process of a client has."""
        rates = {method: self._fault_rate * factor for method, factor in _FACTORS.items()}
        kills = dict.fromkeys((Fault.KILL_BEFORE, Fault.KILL_AFTER), _KILL_WEIGHT)
        plan = FaultPlan(client.random, rates, weights=kills)
        asked = FaultPlan(client.random, rates, weights=kills, possible=COORDINATOR_FAULTS)
        process = _Process(client, self._injected)
        stores = {url: process.store(store, plan) for url, store in self.bank.stores.items()}
        coordinator = process.coordinator(self.bank.coordinator, asked)
        return SimulatedManager(coordinator, client.environment(self._retry), stores.__getitem__, self._idle)

    # ------------------------------------------------------------------------------------------ the clients

    def _act(self, client: Client, manager: SimulatedManager) -> None:
        kind = client.random.choices(list(self._kinds), list(self._kinds.values()))[0]
        token = f"{kind} {len(self._outcomes)}"
        record = Operation(token, client.name, kind, self.scheduler.step)
        self._outcomes[token] = record
        act = getattr(self, f"_{kind}")
        try:
            record.outcome = act(client, manager) or "ok"
        except (OperationTimeoutError, CommitStateUnknownError) as error:
            record.outcome, record.error = "unknown", type(error).__name__
        except (*_DECLARED, TimestampOutOfRangeError) as error:
            record.outcome, record.error = "failed", type(error).__name__
        except Exception as error:
            record.outcome, record.error = "crashed", f"{type(error).__name__}: {error}"
            self.crashes.append(f"{client.name} {kind}: {record.error}")
        record.returned = self.scheduler.step
        self.scheduler.note(f"{client.name}: {token} {record.outcome} {record.error}")

    def _deal(self, client: Client, manager: SimulatedManager) -> Any:
        isolation = self._isolation or client.random.choice(("SNAPSHOT", "SERIALIZABLE"))
        transaction = manager.transaction(isolation=isolation)
        deal = Deal(transaction.id, client.name, is_serializable=isolation == "SERIALIZABLE")
        self.deals.append(deal)
        names = client.random.sample(self.bank.names, client.random.choice((2, 2, 3)))
        tables = self._opened(transaction, names, deal)
        self._transfer(client, deal, names, tables)
        if client.random.random() < 0.3:
            self._split(client, deal, names[0], tables[names[0]])
        deal.complete = True
        end = client.random.choices(list(ENDS), list(ENDS.values()))[0]
        if end == "cancel":
            return self._cancel(manager, deal)
        if end != "commit" or client.random.random() < 0.3:
            self._adoptable.append(deal)
        if end == "hand over":
            manager = self.manager(client)
        if end == "leave":
            return "unknown"
        return self._commit(client, manager, deal, again=(names[0], tables[names[0]]) if end == "commit" else None)

    def _share(self, client: Client, manager: SimulatedManager) -> Any:
        """A transaction that others may end at any time: its acknowledged changes before that are part of it."""
        transaction = manager.transaction()
        deal = Deal(transaction.id, client.name, complete=True, in_doubt=True)
        self.deals.append(deal)
        self._adoptable.append(deal)
        name = client.random.choice(self.bank.names)
        table = transaction.table(name)
        try:
            self._split(client, deal, name, table)
        except (CommitStateUnknownError, OperationTimeoutError):
            raise
        except (*_DECLARED, InvalidActionError):
            deal.changes.clear()
        deal.in_doubt = False
        return self._commit(client, manager, deal)

    def _opened(self, transaction: ManagedTransaction, names: Sequence[str], deal: Deal) -> dict[str, DeltaTable]:
        tables = {}
        for name in names:
            tables[name] = transaction.table(name)
            deal.opened[name] = tables[name].version
        return tables

    def _transfer(self, client: Client, deal: Deal, names: Sequence[str], tables: Mapping[str, DeltaTable]) -> None:
        source, target = names[:2]
        coin = client.random.choice(sorted(coins_of(tables[source])) or [""])
        amount = worth(frozenset([coin])) if coin else 0
        moved = client.random.randrange(amount + 1)
        self._write(client, deal, source, tables[source], [amount - moved], [coin] if coin else [])
        self._write(client, deal, target, tables[target], [moved], [])

    def _split(self, client: Client, deal: Deal, name: str, table: DeltaTable) -> None:
        """Change a coin of a table, as the transaction sees it: often one of its own."""
        coins = sorted(coins_of(table))
        own = [coin for coin in coins if deal.token[:8] in coin]
        coin = client.random.choice(own if own and client.random.random() < 0.5 else coins)
        amount = worth(frozenset([coin]))
        part = client.random.randrange(amount + 1)
        self._write(client, deal, name, table, [part, amount - part], [coin])

    def _write(
        self, client: Client, deal: Deal, name: str, table: DeltaTable, amounts: Sequence[int], removes: Sequence[str]
    ) -> None:
        count = sum(map(len, deal.changes.values()))
        adds = [f"coin-{amount}-{deal.token[:8]}.{count}.{number}" for number, amount in enumerate(amounts)]
        deal.change(name, adds, removes)
        with table.transaction() as transaction:
            transaction.remove(removes)
            transaction.add(*(file_action(path, client.clock()) for path in adds))
            if not commit_settled(client, transaction, deal.token):
                return
        seen = coins_of(table) if deal.is_transaction else frozenset(adds)
        if not seen.issuperset(adds) or seen.intersection(removes):
            self.crashes.append(f"{client.name}: {deal.token} does not see what it did to {name}")

    def _commit(
        self, client: Client, manager: SimulatedManager, deal: Deal, again: tuple[str, DeltaTable] | None = None
    ) -> Any:
        for _ in range(4):
            try:
                status = manager.commit_transaction(deal.token)
            except TransactionCanceledError:
                deal.told.add("aborted")
                return "failed"
            except (OperationTimeoutError, TransactionCommitInProgressError):
                again = None  # it may be committed as it is
                client.sleep(client.random.choice((0.1, 100.0)))
                continue
            except (ConcurrentModificationError, StoreError):
                if again is not None and deal not in self._adoptable and client.random.random() < 0.5:
                    deal.complete = False
                    self._split(client, deal, *again)
                    deal.complete = True
                continue
            if status is TransactionStatus.COMMITTED:
                deal.told.add("committed")
                return "ok"
            client.sleep(client.random.choice((0.1, 100.0)))
        return "unknown"

    commit = _commit

    def _job(self, client: Client, manager: SimulatedManager) -> Any:
        return run_job(self, client, manager)

    def _cancel(self, manager: SimulatedManager, deal: Deal) -> Any:
        try:
            manager.cancel_transaction(deal.token)
        except TransactionCommittedError:
            deal.told.add("committed")
            return "failed"
        deal.told.add("aborted")
        return "failed"

    def _meddle(self, client: Client, manager: SimulatedManager) -> Any:
        """What others do to a transaction whose id they know."""
        if not self._adoptable:
            return None
        deal = client.random.choice(self._adoptable)
        what = client.random.choice(("commit", "commit", "cancel", "extend", "describe"))
        if what == "commit":
            return self._commit(client, manager, deal)
        if what == "cancel":
            return self._cancel(manager, deal)
        if what == "extend":
            return manager.extend_transaction(deal.token)
        status = manager.describe_transaction(deal.token).status
        if status.is_final:
            deal.told.add(status.value.lower())
        return None

    def _single(self, client: Client, manager: SimulatedManager) -> Any:
        name = client.random.choice(self.bank.names)
        token = f"{client.random.getrandbits(32):08x}-single"
        deal = Deal(token, client.name, is_transaction=False, complete=True)
        self.deals.append(deal)
        try:
            self._split(client, deal, name, manager.table(name))
        except (CommitStateUnknownError, OperationTimeoutError):
            raise
        except (*_DECLARED, InvalidActionError):  # the latter when the coin is gone by the time it is to be changed
            deal.told.add("aborted")
            return "failed"
        deal.told.add("committed")
        return None

    def _sum(self, client: Client, manager: SimulatedManager) -> None:
        self.reads.append((client.name, self.bank.sums(manager)))

    def _cut(self, client: Client, manager: SimulatedManager) -> None:
        at_ms = max(self._first_ms, client.random.choice((client.clock(), self._some_ict_ms(client.random))))
        versions = manager.consistent_cut(at_ms)
        self.cuts.append(Cut(at_ms, versions))
        self.reads.append((client.name, {n: coins_of(manager.table(n), v) for n, v in versions.items()}))

    def _recover(self, client: Client, manager: SimulatedManager) -> None:
        days = 30 if client.random.random() < 0.7 else 0
        manager.recover(datetime.timedelta(days=days))

    def _some_ict_ms(self, rng: random.Random) -> int:
        stores = self.bank.coordinator
        heads = [stores.head(table.table_id) for table in stores.tables()]
        times = [commit.in_commit_timestamp_ms for head in heads if head for commit in head.unpublished]
        return rng.choice([*times, self.scheduler.time_ms()]) + rng.choice((-1, 0, 0))

    # ---------------------------------------------------------------------------------------------- the end

    def _finish(self, client: Client) -> None:
        """When all is quiet: a process recovers, when all leftovers are overdue."""
        passed = [5 * _DAY_MS]
        later = _later(client.environment(), lambda: self.scheduler.time_ms() + sum(passed))
        manager = SimulatedManager(self.bank.coordinator, later, self.bank.stores.__getitem__)
        try:
            for days in (0, 2, 2):  # objects are looked for again
                passed.append(days * _DAY_MS)
                manager.recover(datetime.timedelta(days=365))
            self.left = self.bank.left(manager)
            for deal in self.deals:
                if deal.is_transaction:
                    record = self.bank.coordinator.transaction(deal.token)
                    deal.told |= {record.status.value.lower()} if record is not None else set()
            self.reads.append((client.name, self.bank.sums(manager)))
            for _ in range(3):
                self.cuts.append(self._final_cut(client, manager))
        except DeltaLogError as error:
            self.crashes.append(f"at the end: {type(error).__name__}: {error}")

    def _final_cut(self, client: Client, manager: SimulatedManager) -> Cut:
        name = client.random.choice(self.bank.names)
        table = manager.table(name)
        version = client.random.randrange(self.bank.initial[name] - 1, table.snapshot().version + 1)
        at_ms = max(
            self._first_ms, (table.snapshot(version).in_commit_timestamp_ms or 0) + client.random.randrange(-1, 2)
        )
        return Cut(at_ms, manager.consistent_cut(at_ms), final=True)

    def _result(self, violations: list[Violation]) -> ScheduleResult:
        scheduler = self.scheduler
        digest = hashlib.sha256("\n".join(scheduler.trace).encode())
        for name in self.bank.names:
            for version, data in sorted(self.bank.log(name).items()):
                digest.update(f"{name} {version} ".encode() + data)
        return ScheduleResult(
            self.seed,
            (self._retry.max_attempts == 1000 and "patient") or "impatient",
            scheduler.policy,
            scheduler.step,
            sum(self._injected, collections.Counter()),
            list(self._outcomes.values()),
            len(self.reads),
            sum(len(self.bank.log(name)) for name in self.bank.names),
            0,
            violations,
            scheduler.trace,
            digest.hexdigest(),
        )


@functools.cache
def _bank(coins: int) -> Bank:
    return Bank(MemoryCoordinator(catalog_id=_CATALOG_ID), lambda: START_MS, coins=coins)


class _Process:
    """What dies together: stores and a coordinator."""

    def __init__(self, client: Client, injected: list[collections.Counter[Fault]]) -> None:
        self._client = client
        self._injected = injected
        self._parts: list[FaultyStore | FaultyCoordinator] = []

    def store(self, inner: LogStore, plan: FaultPlan) -> FaultyStore:
        made = store_for(self._client, inner, plan)
        made.decide = self._deciding(made.decide)
        self._parts.append(made)
        self._injected.append(made.injected)
        return made

    def coordinator(self, inner: Coordinator, plan: FaultPlan) -> FaultyCoordinator:
        scheduler = self._client.scheduler

        def decide(call: Call) -> Fault | None:
            fault = plan(call) if scheduler.in_client() else None
            if fault is not None:
                scheduler.note(f"{self._client.name}: {call} -> {fault.value}")
            return fault

        made = FaultyCoordinator(
            inner, self._deciding(decide), before=lambda call: scheduler.pause(str(call)), defer=scheduler.defer
        )
        self._parts.append(made)
        self._injected.append(made.injected)
        return made

    def _deciding(self, decide: Callable[[Call], Fault | None]) -> Callable[[Call], Fault | None]:
        def deciding(call: Call) -> Fault | None:
            if any(part.dead for part in self._parts):
                raise SimulatedKill("this process is dead")
            return decide(call)

        return deciding


def _later(environment: Environment, clock_ms: Callable[[], int]) -> Environment:
    return Environment(clock_ms, environment.new_uuid, environment.sleep, environment.random, environment.retry)


def run_transactions(seed: int, **options: Any) -> ScheduleResult:
    """Run and judge one schedule; options as of TransactionSimulation."""
    return TransactionSimulation(seed, **options).run()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulation.transactions", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--first", type=int, help="the first seed (default: others each time)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    parser.add_argument("--jobs", action="store_true", help="of jobs that use the same object names")
    chosen = parser.parse_args(arguments)
    run = functools.partial(run_transactions, policy="random", kinds=JOBS) if chosen.jobs else run_transactions
    first = 1_000_000 * (1 + secrets.randbelow(1_000_000)) if chosen.first is None else chosen.first
    seeds, started = range(first, first + chosen.runs), time.monotonic()
    totals, bad = run_schedules(seeds, processes=chosen.processes, run=run)
    print(totals.line(time.monotonic() - started, f"{seeds.start}..{seeds.stop - 1}"))
    for result in bad[:3]:
        print(result.report(), file=sys.stderr)
    return int(totals.violations > 0)


if __name__ == "__main__":
    sys.exit(main())
