"""In-memory tables whose files represent amounts of money, and the transaction manager and client processes for these
tables.

The path of a file contains the file's amount, so a transfer replaces files; the sum of the amounts in all tables must
never change.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import Proposal, TransactionRecord, TransactionStatus
from deltalog.environment import Environment
from deltalog.errors import (
    EntityNotFoundError,
    StoreError,
    TransactionStateError,
)
from deltalog.protocol.paths import staged_commit_path
from deltalog.storage.base import LogStore
from deltalog.table import DeltaTable
from deltalog.testing.coordinators import (
    FaultyCoordinator,
    WatchedCoordinator,
)
from deltalog.testing.recording import WatchedStore, file_action, log_of, quiet, seeded_environment
from deltalog.testing.stores import Call, Fault, FaultPlan, FaultyStore, SimulatedKill
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.manager import TransactionManager
from tests.support.simulation.scheduler import START_MS, Client, store_for
from tests.support.simulation.transaction_judge import Ratified, World

SCHEMA = pa.schema([pa.field("x", pa.int64())])
NAMES = ("bank.a", "bank.b", "bank.c")


class SimulatedManager(TransactionManager):
    """A transaction manager that gets each table's store from ``open_store``."""

    def __init__(
        self,
        coordinator: Coordinator,
        environment: Environment,
        open_store: Callable[[str], LogStore],
        idle_timeout: datetime.timedelta = datetime.timedelta(minutes=30),
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
    """In-memory tables whose file paths contain amounts of money, and the ratified commits of these tables.
    ``coordinator``: the coordinator to use, which must be empty. ``like``: a Bank whose tables are copied into the new
    one, because creating the tables takes longer than most schedules. The catalogs of this Bank and of ``like`` must
    have the same id."""

    def __init__(
        self,
        coordinator: Coordinator,
        time_ms: Callable[[], int],
        now: Callable[[], float] = lambda: 0,
        *,
        seed: str = "bank",
        names: Sequence[str] = NAMES,
        files_per_table: int = 3,
        like: Bank | None = None,
    ) -> None:
        self.names = tuple(names)
        self.stores: dict[str, WatchedStore] = {}
        self.ratified: list[Ratified] = []
        self.wrong: list[str] = []
        self.coordinator = WatchedCoordinator(coordinator, self._see)
        self.total: int = 100 * files_per_table * len(names) if like is None else like.total
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
                    self._create(name, [f"amount-100-{name}{number}" for number in range(files_per_table)], environment)
        else:
            for table in like.clean.list_tables():
                coordinator.register(table, like.initial[table.name] - 1)
        self.table_names = {table.table_id: table.name for table in self.clean.list_tables()}
        self.initial: dict[str, int] = {name: len(self.log(name)) for name in names}
        for store in self.stores.values():
            store.sightings.clear()
        self.ratified.clear()

    def _create(self, name: str, paths: Sequence[str], environment: Environment) -> None:
        """Create the first table in the catalog; create the others outside the catalog and register them."""
        url = f"memory://{name}"
        if name == self.names[0]:
            table = self.clean.create_table(name, url, SCHEMA)
        else:
            DeltaTable.create(self.stores[url], SCHEMA, environment=environment)
            table = self.clean.register_table(name, url)
        with table.transaction() as transaction:
            transaction.add(*(file_action(path, START_MS) for path in paths))
            transaction.commit()

    def _see(self, proposal: Proposal, record: TransactionRecord | None) -> None:
        if not hasattr(self, "table_names"):
            return  # this method is also called while the tables are being created
        if record is not None and record.status is not TransactionStatus.COMMIT_IN_PROGRESS:
            self.wrong.append(f"{record.id} was {record.status.value}, but was ratified")
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
        """For each table, the paths of the files that a new transaction sees."""
        transaction = manager.transaction(transaction_type="READ_ONLY")
        seen = {name: paths_of(transaction.table(name)) for name in self.names}
        with contextlib.suppress(StoreError, TransactionStateError, EntityNotFoundError):
            transaction.cancel()
        return seen

    def left(self, manager: TransactionManager) -> list[str]:
        """What recovery should have cleaned up but did not: unpublished versions, staged commits, open transactions."""
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
                left.append(f"transaction {record.id} has ended, but has parts")
        before = self.objects()
        again = manager.recover(datetime.timedelta(days=365))
        if any(again.values()) or self.objects() != before:
            left.append(f"a second recovery changed {again}")
        return left

    def objects(self) -> dict[str, dict[str, bytes]]:
        return {url: {path: store.get(path) for path in store.paths()} for url, store in self.stores.items()}

    def world(self, **told: Any) -> World:
        """The data that the judge checks at the end of the run."""
        sightings = {name: self.stores[f"memory://{name}"].sightings for name in self.names}
        logs = {name: self.log(name) for name in self.names}
        return World(
            logs, self.initial, self.total, ratified=self.ratified, sightings=sightings, wrong=self.wrong, **told
        )


def paths_of(table: DeltaTable, version: int | None = None) -> frozenset[str]:
    return frozenset(table.snapshot(version).files(["path"])["path"].to_pylist())


class ClientProcess:
    """The stores and the coordinator of one process, which all fail when that process dies."""

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
