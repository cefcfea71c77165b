"""Seeded schedules of clients of a Unity Catalog; they use the table of ``simulation``, but a server decides on its
commits.

    result = run_unity_schedule(seed=7)
    assert not result.violations, result.report()

The server is the model of ``tests.support.unity``. Its answers get lost, its requests arrive late or twice, it fails
before and after it has handled a request, and a client dies before or after each request. In addition to the invariants
of the checker:

====  ============================================================================================================
U1    The server receives nothing that a client must not send: a report of what is not published, metadata without a
      commit or without the etag that it is based on, a timestamp that does not increase.
U2    What is published is what the server has accepted, at the same version, and in order.
U3    The server's metadata is that of the log.
====  ============================================================================================================
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from deltalog.addresses import committer_of, handle_on, handle_on_latest
from deltalog.catalog.store import ManagedStore
from deltalog.create.new_table import create, creation
from deltalog.environment import Environment
from deltalog.errors import CoordinatorError, MetadataChangedError, OperationTimeoutError
from deltalog.log.authority import Authority
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import commit_path, staged_commit_path
from deltalog.storage.base import LogStore, get_or_none
from deltalog.table import DeltaTable
from deltalog.testing.checker import Violation, check
from deltalog.testing.history import Attempt, History, Read, Sighting
from deltalog.testing.recording import file_action, history_of, quiet, seeded_environment
from deltalog.testing.stores import Fault, FaultyStore, SimulatedKill
from deltalog.unity import creation_rules, messages, rules
from deltalog.unity.table import UnityTable
from tests.support.simulation.scheduler import START_MS, Client
from tests.support.simulation.simulation import SCHEMA, ScheduleResult, Simulation
from tests.support.unity.calls import ModelCalls
from tests.support.unity.model import Model

T = TypeVar("T")

ADDRESS = "uc://main.s.events"
# The faults of a request that changes something, and of one that reads, with their weights.
_OF_CHANGES = {
    Fault.FAIL_BEFORE: 1.0,
    Fault.UNKNOWN_NOT_WRITTEN: 1.0,
    Fault.LOST_ACK: 3.0,
    Fault.LATE: 2.0,
    Fault.KILL_BEFORE: 0.3,
    Fault.KILL_AFTER: 0.5,
}
_OF_READS = {Fault.FAIL_BEFORE: 1.0, Fault.KILL_BEFORE: 0.1}


class FaultyCalls(ModelCalls):
    """The calls of one client, some of which fail. ``store``: the client's store, which dies with it."""

    def __init__(self, model: Model, client: Client, store: FaultyStore, fault_rate: float) -> None:
        super().__init__(model, ADDRESS)
        self._client, self._store, self._rate = client, store, fault_rate

    def _answered(self, call: str, ask: Callable[[], T]) -> T:
        if not self._client.scheduler.in_client():
            return super()._answered(call, ask)
        self._client.scheduler.pause(f"server: {call}")
        if self._store.dead:
            raise SimulatedKill("this process is dead")
        fault = self._fault(call)
        if fault is not None:
            self._client.scheduler.note(f"{self._client.name}: server: {call} -> {fault.value}")
            self._store.injected[fault] += 1
        if fault is Fault.KILL_BEFORE:
            self._die()
        if fault is Fault.FAIL_BEFORE:
            raise CoordinatorError("the server cannot be reached", path="model")
        if fault is Fault.UNKNOWN_NOT_WRITTEN:
            raise OperationTimeoutError("the request is lost", path="model")
        if fault is Fault.LATE:
            self._client.scheduler.defer(f"late {call}", functools.partial(self._arrive, ask))
            raise OperationTimeoutError("the request is late", path="model")
        try:
            found = super()._answered(call, ask)
        finally:
            if fault is Fault.KILL_AFTER:
                self._die()
            if fault is Fault.LOST_ACK:
                raise OperationTimeoutError("the answer is lost", path="model")
        return found

    def _arrive(self, ask: Callable[[], object]) -> None:
        try:
            ask()
        except Exception:  # no one waits for the answer
            return

    def _fault(self, call: str) -> Fault | None:
        if self._client.random.random() >= self._rate * (2 if call == "update" else 1):
            return None
        faults = _OF_CHANGES if call == "update" else _OF_READS
        return self._client.random.choices(list(faults), list(faults.values()))[0]

    def _die(self) -> None:
        self._store.kill()
        raise SimulatedKill("killed at a request to the server")


class UnitySimulation(Simulation):
    """One schedule; options as in Simulation. The table always has in-commit timestamps."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **{"table": "on", "checkpoints": 0.1, **options})
        self._refusals = (CoordinatorError, MetadataChangedError)

    # -------------------------------------------------------------------------------------------- the table

    def _prepare(self) -> int:
        environment = seeded_environment(f"{self.seed}/prepare", self.scheduler.time_ms)
        self.accepted = list[Sighting]()
        self.model = _Watched(
            self._accept,
            "memory://model",
            lambda location, version: get_or_none(self.shared, commit_path(version)) is not None,
            most_unpublished=self.random.choice((1, 2, 3, 1000)),
            new_uuid=environment.new_uuid,
        )
        calls = ModelCalls(self.model, ADDRESS)
        staging = self.model.create_staging_table("main", "s", "events")
        properties = creation_rules.properties_for(staging, self._properties(), calls.name)
        new = UnityTable(calls, staging.table_id, None, environment.clock_ms, staging=staging)
        reader = _reader(self.shared, new, environment)
        with quiet():
            transaction = creation(
                reader, committer_of(reader, environment), environment, SCHEMA, properties=properties
            )
            with transaction:
                create(transaction, None)
            assert transaction.committed is not None
            table = DeltaTable(handle_on(reader, environment, transaction.committed))
            with table.transaction() as transaction:
                transaction.add(*(file_action(f"fake-initial-{n}", START_MS) for n in range(4)))
                transaction.commit()
        self.table_id = staging.table_id
        self.shared.sightings.clear()
        self.accepted.clear()
        return 2

    def _accept(self, version: int, file: str) -> None:
        data = self.shared.get(staged_commit_path(file))
        self.accepted.append(Sighting(self.scheduler.step, version, data))

    def _properties(self) -> dict[str, str]:
        return {"delta.checkpointInterval": str(self._interval)}

    def _opened(self, client: Client, store: LogStore, environment: Environment) -> DeltaTable:
        invoked = self.scheduler.step
        assert isinstance(store, FaultyStore)
        rate = self.fault_rate if client.name != "last" else 0.0
        calls = FaultyCalls(self.model, client, store, rate)
        table = UnityTable(calls, self.table_id, calls.load(), client.clock)
        opened = DeltaTable(handle_on_latest(_reader(store, table, environment), environment))
        self.reads.append(Read(client.name, invoked, self.scheduler.step, opened.version, is_opened=True))
        return opened

    # ------------------------------------------------------------------------------------------- the judge

    def _judge(self) -> list[Violation]:
        made = self.model.tables["main", "s", "events"]
        found = [Violation("U1", what) for what in self.model.violations]
        history = self._history()
        for version, file in made.accepted.items():
            published = get_or_none(self.shared, commit_path(version))
            staged = get_or_none(self.shared, staged_commit_path(file))
            if staged is None:
                found.append(Violation("U2", f"the accepted file {file} was deleted", version))
            elif published is not None and published != staged:
                found.append(Violation("U2", "another commit is published than the accepted one", version))
        versions = [sighting.version for sighting in self.shared.sightings]
        if versions != sorted(set(versions)):
            found.append(Violation("U2", f"published in the order {versions}, or changed afterwards"))
        latest = self.last_configuration
        if latest is not None and made.properties != latest:
            found.append(Violation("U3", f"the server has {made.properties}, and the log {latest}"))
        return [*found, *check(history)]

    def _finish(self) -> None:
        super()._finish()
        environment = seeded_environment(f"{self.seed}/judge", self.scheduler.time_ms)
        calls = ModelCalls(self.model, ADDRESS)
        self.last_configuration: dict[str, str] | None = None
        with quiet():
            table = UnityTable(calls, self.table_id, calls.load(), environment.clock_ms)
            try:
                opened = DeltaTable(handle_on_latest(_reader(self.shared, table, environment), environment))
            except Exception as error:
                self.model.violations.append(f"the table cannot be read at the end: {type(error).__name__}: {error}")
                return
            self.last_configuration = dict(opened.snapshot().metadata.configuration)

    def _history(self) -> History:
        """What the checker judges: the log is what the server has accepted. The attempts are the staged files that
        clients wrote."""
        made = self.model.tables["main", "s", "events"]
        log = {0: self.shared.get(commit_path(0))}
        for version, file in sorted(made.accepted.items()):
            data = get_or_none(self.shared, staged_commit_path(file))
            if data is not None:
                log[version] = data
        fake = {f"fake-initial-{n}" for n in range(4)}.union(*(record.adds or () for record in self.records))
        usual = history_of(self.shared, [], self.records, self.reads, initial=self._initial, data_files=fake)
        attempts = [
            Attempt(put.at, put.call.path, int(put.call.path.rpartition("/")[2][:20]), put.data)
            for store in self._stores
            for put in store.puts
            if "/_staged_commits/" in put.call.path
        ]
        return dataclasses.replace(usual, log=log, sightings=self.accepted, attempts=attempts)


class _Watched(Model):
    """The model, which reports each commit that it accepts to a callback."""

    def __init__(self, on_accepted: Callable[[int, str], None], *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._on_accepted = on_accepted

    def update(self, catalog: str, schema: str, name: str, request: messages.UpdateTable) -> messages.LoadedTable:
        before = self.tables[catalog, schema, name].latest
        loaded = super().update(catalog, schema, name, request)
        made = self.tables[catalog, schema, name]
        if made.latest > before:
            self._on_accepted(made.latest, made.accepted[made.latest])
            has_etag = any(isinstance(each, messages.AssertEtag) for each in request.requirements)
            if rules.changes_metadata(request.updates) and not has_etag:
                self.violations.append(f"version {made.latest} changed the metadata without an etag")
        return loaded


def _reader(store: LogStore, table: UnityTable, environment: Environment) -> LogReader:
    managed = ManagedStore(store, table, table.table_id)
    authority = Authority("model", is_served=True, permits_maintenance=False)
    return LogReader(managed, (), environment.clock_ms, authority)


def run_unity_schedule(seed: int, **options: Any) -> ScheduleResult:
    """Run and judge one schedule; options as in Simulation."""
    return UnitySimulation(seed, **options).run()
