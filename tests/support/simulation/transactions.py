"""Seeded schedules of transactions over several tables, with faults, checked by ``transaction_judge``.

    result = run_transactions(seed=7)
    assert not result.violations, result.report()

Clients move amounts between tables, in transactions and in single commits. They also commit and cancel each other's
transactions, read sums as of a single instant, and recover the work of interrupted clients. Processes die, stores and
the coordinator fail, and clocks jump. As in ``simulation``, one seed determines everything, and every call to a store
or to the coordinator is a step.

``python -m tests.support.simulation.transactions --runs 20000`` runs 20,000 schedules.
"""

from __future__ import annotations

import argparse
import collections
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
    TransactionStateError,
)
from deltalog.table import DeltaTable
from deltalog.testing.checker import Violation
from deltalog.testing.coordinators import (
    COORDINATOR_FAULTS,
    MemoryCoordinator,
)
from deltalog.testing.history import Operation
from deltalog.testing.recording import file_action, quiet
from deltalog.testing.stores import Fault, FaultPlan
from deltalog.transactions.transaction import ManagedTransaction
from tests.support.simulation.bank import Bank, ClientProcess, SimulatedManager, paths_of
from tests.support.simulation.client_commits import cancel_client_transaction, commit_client_transaction, commit_settled
from tests.support.simulation.jobs import misplaced, run_job
from tests.support.simulation.scheduler import START_MS, Client, Scheduler
from tests.support.simulation.simulation import ScheduleResult, run_schedules
from tests.support.simulation.transaction_judge import ClientTransaction, Cut, judge, total_amount

#: The operations of clients, with their weights.
KINDS: Mapping[str, int] = {"transfer": 10, "shared": 2, "single": 4, "sum": 3, "cut": 2, "interfere": 3, "recover": 2}
#: The weights for schedules whose jobs use the same object names, see ``tests.support.simulation.jobs``.
JOBS: Mapping[str, int] = {"job": 8, "interfere": 1, "recover": 1}
#: The ways in which a client's transaction ends, with their weights.
ENDS: Mapping[str, int] = {"commit": 12, "cancel": 2, "hand over": 3, "leave": 2}

_KILL_WEIGHT = 0.25
# A write fails with a higher probability than a read, because there are about ten reads for each write.
_FACTORS = {"put_if_absent": 2.0, "ratify": 8.0, "replace": 3.0, "put_parts": 1.5, "published": 3.0, "*": 0.4}
_DAY_MS = 86_400_000
_CATALOG_ID = "a catalog in memory"
_PREPARED_MS = 10  # the virtual time that the first commits to the tables take, 1 ms each
_IDLE_TIMEOUTS = (datetime.timedelta(minutes=30), datetime.timedelta(hours=3), datetime.timedelta(days=3))
# Errors that a client may get, in addition to CommitStateUnknownError; any other error is a defect.
_DECLARED = (
    StoreError, TransactionStateError, ConcurrentModificationError, EntityNotFoundError, CommitConflictError,
    CommitAttemptsExhaustedError,
)  # fmt: skip


class TransactionSimulation:
    """One schedule: ``clients`` clients with ``operations`` operations each. ``kinds`` (like KINDS), ``isolation``,
    ``policy`` and ``attempts`` (the maximum number of attempts of a commit) fix choices that the seed would otherwise
    make. ``files_per_table``: the initial number of files."""

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
        files_per_table: int = 2,
    ) -> None:
        self.seed = seed
        self.random = random.Random(f"{seed}/plan")
        self.scheduler = Scheduler(seed, policy=policy)
        self.client_transactions: list[ClientTransaction] = []
        self.reads: list[tuple[str, Mapping[str, frozenset[str]]]] = []
        self.cuts: list[Cut] = []
        self.crashes: list[str] = []
        self.left: list[str] = []
        self._outcomes: dict[str, Operation] = {}
        self._fault_rate = self.random.choice((0.0, fault_rate, fault_rate, fault_rate))
        self._clients, self._operations = clients, operations
        self._kinds = dict(kinds or KINDS)
        self._isolation = isolation
        self._idle = self.random.choice(_IDLE_TIMEOUTS)
        self._retry = RetryPolicy(
            settle_attempts=self.random.choice((1, 2, 10)), max_attempts=attempts or self.random.choice((1, 2, 1000))
        )
        self.bank = Bank(
            MemoryCoordinator(catalog_id=_CATALOG_ID),
            self.scheduler.time_ms,
            lambda: self.scheduler.step,
            like=_bank(files_per_table),
        )
        self._first_ms = START_MS + _PREPARED_MS
        self._injected: list[collections.Counter[Fault]] = []
        self._adoptable: list[ClientTransaction] = []

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
            client_transactions=self.client_transactions,
            reads=self.reads,
            cuts=self.cuts,
            left=self.left,
            crashes=self.crashes,
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
                    self._spawn(f"{name}'", left[0])  # the job is restarted

        self.scheduler.spawn(name, body)

    def manager(self, client: Client) -> SimulatedManager:
        """A new transaction manager for a client, as a new process would create it."""
        rates = {method: self._fault_rate * factor for method, factor in _FACTORS.items()}
        kills = dict.fromkeys((Fault.KILL_BEFORE, Fault.KILL_AFTER), _KILL_WEIGHT)
        plan = FaultPlan(client.random, rates, weights=kills)
        asked = FaultPlan(client.random, rates, weights=kills, possible=COORDINATOR_FAULTS)
        process = ClientProcess(client, self._injected)
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

    def _transfer(self, client: Client, manager: SimulatedManager) -> Any:
        isolation = self._isolation or client.random.choice(("SNAPSHOT", "SERIALIZABLE"))
        transaction = manager.transaction(isolation=isolation)
        client_transaction = ClientTransaction(transaction.id, client.name, is_serializable=isolation == "SERIALIZABLE")
        self.client_transactions.append(client_transaction)
        names = client.random.sample(self.bank.names, client.random.choice((2, 2, 3)))
        tables = self._opened(transaction, names, client_transaction)
        self._move(client, client_transaction, names, tables)
        if client.random.random() < 0.3:
            self._split(client, client_transaction, names[0], tables[names[0]])
        client_transaction.complete = True
        end = client.random.choices(list(ENDS), list(ENDS.values()))[0]
        if end == "cancel":
            return cancel_client_transaction(manager, client_transaction)
        if end != "commit" or client.random.random() < 0.3:
            self._adoptable.append(client_transaction)
        if end == "hand over":
            manager = self.manager(client)
        if end == "leave":
            return "unknown"
        if end != "commit":
            return commit_client_transaction(client, manager, client_transaction)
        return commit_client_transaction(
            client,
            manager,
            client_transaction,
            lambda: self._after_failure(client, client_transaction, names[0], tables[names[0]]),
        )

    def _shared(self, client: Client, manager: SimulatedManager) -> Any:
        """A transaction that others may end at any time; it must contain all changes that were acknowledged before it
        ended."""
        transaction = manager.transaction()
        client_transaction = ClientTransaction(transaction.id, client.name, complete=True, in_doubt=True)
        self.client_transactions.append(client_transaction)
        self._adoptable.append(client_transaction)
        name = client.random.choice(self.bank.names)
        table = transaction.table(name)
        try:
            self._split(client, client_transaction, name, table)
        except (CommitStateUnknownError, OperationTimeoutError):
            raise
        except (*_DECLARED, InvalidActionError):
            client_transaction.changes.clear()
        client_transaction.in_doubt = False
        return commit_client_transaction(client, manager, client_transaction)

    def _after_failure(
        self, client: Client, client_transaction: ClientTransaction, name: str, table: DeltaTable
    ) -> None:
        """After a conflict or a failed request, sometimes make one more change before the next attempt to commit."""
        if client_transaction not in self._adoptable and client.random.random() < 0.5:
            client_transaction.complete = False
            self._split(client, client_transaction, name, table)
            client_transaction.complete = True

    def _opened(
        self, transaction: ManagedTransaction, names: Sequence[str], client_transaction: ClientTransaction
    ) -> dict[str, DeltaTable]:
        tables = {}
        for name in names:
            tables[name] = transaction.table(name)
            client_transaction.opened[name] = tables[name].version
        return tables

    def _move(
        self,
        client: Client,
        client_transaction: ClientTransaction,
        names: Sequence[str],
        tables: Mapping[str, DeltaTable],
    ) -> None:
        source, target = names[:2]
        path = client.random.choice(sorted(paths_of(tables[source])) or [""])
        amount = total_amount(frozenset([path])) if path else 0
        moved = client.random.randrange(amount + 1)
        self._write(client, client_transaction, source, tables[source], [amount - moved], [path] if path else [])
        self._write(client, client_transaction, target, tables[target], [moved], [])

    def _split(self, client: Client, client_transaction: ClientTransaction, name: str, table: DeltaTable) -> None:
        """Replace one of the files that the transaction reads from a table with two new files; often the replaced file
        is one that the transaction itself added."""
        paths = sorted(paths_of(table))
        own = [path for path in paths if client_transaction.token[:8] in path]
        path = client.random.choice(own if own and client.random.random() < 0.5 else paths)
        amount = total_amount(frozenset([path]))
        part = client.random.randrange(amount + 1)
        self._write(client, client_transaction, name, table, [part, amount - part], [path])

    def _write(
        self,
        client: Client,
        client_transaction: ClientTransaction,
        name: str,
        table: DeltaTable,
        amounts: Sequence[int],
        removes: Sequence[str],
    ) -> None:
        count = sum(map(len, client_transaction.changes.values()))
        adds = [
            f"amount-{amount}-{client_transaction.token[:8]}.{count}.{number}" for number, amount in enumerate(amounts)
        ]
        client_transaction.change(name, adds, removes)
        with table.transaction() as transaction:
            transaction.remove(removes)
            transaction.add(*(file_action(path, client.clock()) for path in adds))
            if not commit_settled(client, transaction, client_transaction.token):
                return
        seen = paths_of(table) if client_transaction.is_transaction else frozenset(adds)
        if not seen.issuperset(adds) or seen.intersection(removes):
            self.crashes.append(f"{client.name}: {client_transaction.token} does not see what it did to {name}")

    def _job(self, client: Client, manager: SimulatedManager) -> Any:
        return run_job(self.bank, self.client_transactions, client, manager)

    def _interfere(self, client: Client, manager: SimulatedManager) -> Any:
        """Acts like another process that knows the id of a transaction."""
        if not self._adoptable:
            return None
        client_transaction = client.random.choice(self._adoptable)
        what = client.random.choice(("commit", "commit", "cancel", "extend", "describe"))
        if what == "commit":
            return commit_client_transaction(client, manager, client_transaction)
        if what == "cancel":
            return cancel_client_transaction(manager, client_transaction)
        if what == "extend":
            return manager.extend_transaction(client_transaction.token)
        status = manager.describe_transaction(client_transaction.token).status
        if status.is_final:
            client_transaction.outcomes.add(status.value.lower())
        return None

    def _single(self, client: Client, manager: SimulatedManager) -> Any:
        name = client.random.choice(self.bank.names)
        token = f"{client.random.getrandbits(32):08x}-single"
        client_transaction = ClientTransaction(token, client.name, is_transaction=False, complete=True)
        self.client_transactions.append(client_transaction)
        try:
            self._split(client, client_transaction, name, manager.table(name))
        except (CommitStateUnknownError, OperationTimeoutError):
            raise
        except (*_DECLARED, InvalidActionError):  # InvalidActionError if the file was removed before the change
            client_transaction.outcomes.add("aborted")
            return "failed"
        client_transaction.outcomes.add("committed")
        return None

    def _sum(self, client: Client, manager: SimulatedManager) -> None:
        self.reads.append((client.name, self.bank.sums(manager)))

    def _cut(self, client: Client, manager: SimulatedManager) -> None:
        at_ms = max(self._first_ms, client.random.choice((client.clock(), self._some_ict_ms(client.random))))
        versions = manager.consistent_cut(at_ms)
        self.cuts.append(Cut(at_ms, versions))
        self.reads.append((client.name, {n: paths_of(manager.table(n), v) for n, v in versions.items()}))

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
        """After the schedule, when everything left behind is old enough, one process runs the recovery."""
        passed = [5 * _DAY_MS]
        later = _later(client.environment(), lambda: self.scheduler.time_ms() + sum(passed))
        manager = SimulatedManager(self.bank.coordinator, later, self.bank.stores.__getitem__)
        try:
            for days in (0, 2, 2):  # recovery searches for unreferenced objects again later
                passed.append(days * _DAY_MS)
                manager.recover(datetime.timedelta(days=365))
            self.left = self.bank.left(manager)
            for client_transaction in self.client_transactions:
                if client_transaction.is_transaction:
                    record = self.bank.coordinator.transaction(client_transaction.token)
                    client_transaction.outcomes |= {record.status.value.lower()} if record is not None else set()
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
def _bank(files_per_table: int) -> Bank:
    return Bank(MemoryCoordinator(catalog_id=_CATALOG_ID), lambda: START_MS, files_per_table=files_per_table)


def _later(environment: Environment, clock_ms: Callable[[], int]) -> Environment:
    return Environment(
        clock_ms, environment.new_uuid, environment.sleep, environment.random, environment.retry, background=False
    )


def run_transactions(seed: int, **options: Any) -> ScheduleResult:
    """Run and judge one schedule; options as in TransactionSimulation."""
    return TransactionSimulation(seed, **options).run()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulation.transactions", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--first", type=int, help="the first seed (default: a new one each time)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    parser.add_argument("--jobs", action="store_true", help="run jobs that use the same object names")
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
