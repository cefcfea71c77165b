"""Seeded schedules in which a table is deleted, file by file, while writers hold handles on it. After its deletion the
table may be created again with other columns, or restored from a copy, sometimes an old one; other writers may then
commit to it.

    result = run_lost_table(seed=7)
    assert not result.violations, result.report()

Half of the schedules run on a local store, half on a remote store. On a remote store, a commit checks the previous
version before it writes but not afterwards, so events between the check and the commit are not judged there. The
invariants:

====  =======================================================================================================
L1    No gaps: at the end the log has all versions from 0 on, or none.
L2    Right table: no operation that began before a new table was created is in the log of the new table.
L3    Acknowledged: acknowledged commits were written; if they were written after the restored or new table was
      complete, they are in its log.
L4    Failed: operations that definitely failed are not in the log.
L5    Consistent: no commit removes a file that is not live, or adds one that is.
L6    Usable: a new process reads the final table and commits to it, and all old handles read the same.
====  =======================================================================================================
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from deltalog.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    DeltaLogError,
    SchemaMismatchError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    TableReplacedError,
)
from deltalog.protocol.paths import LOG_DIRECTORY, commit_path
from deltalog.table import DeltaTable
from deltalog.testing.checker import Violation
from deltalog.testing.history import Operation
from deltalog.testing.recording import file_action, log_of, quiet, seeded_environment, version_of
from deltalog.testing.stores import Call, Fault, FaultPlan, FaultyStore
from tests.support.simulation.scheduler import Client, store_for
from tests.support.simulation.simulation import ScheduleResult, Simulation

#: The events that can happen to the table.
EVENTS = ("deleted", "created again", "created again", "rolled back", "rolled back", "restored")
LOST_KINDS: Mapping[str, int] = {
    "append": 8,
    "append rows": 6,
    "remove": 3,
    "replace": 3,
    "overwrite": 4,
    "property": 4,
}
_OTHER = pa.schema([pa.field("other", pa.string())])
# The fault LATE is left out, because a delayed request would arrive in the restored table.
_SURVIVED = (Fault.FAIL_BEFORE, Fault.UNKNOWN_NOT_WRITTEN, Fault.LOST_ACK, Fault.OWN_EXISTS)


class LostTableSimulation(Simulation):
    """One schedule. ``event`` (one of EVENTS) and ``far`` override choices that the seed would make; the other options
    are those of Simulation."""

    def __init__(self, seed: int, *, event: str | None = None, far: bool | None = None, **options: Any) -> None:
        rng = random.Random(f"{seed}/event")
        drawn = rng.choice(EVENTS), rng.random() < 0.5
        self.event = drawn[0] if event is None else event
        self.far = drawn[1] if far is None else far
        self._lost: tuple[int, int] | None = None  # the first and the last step of deleting and replacing the table
        self._heads: dict[str, list[int]] = {}
        self._tables: list[DeltaTable] = []
        given = {"table": rng.choice(("on", "off")), "writers": 2, "fault_rate": rng.choice((0.0, 0.05)), **options}
        super().__init__(seed, kinds=LOST_KINDS, **given)
        # SchemaMismatchError is allowed, because rows for the old table may not match the new table's schema.
        self._refusals = (TableNotFoundError, TableReplacedError, CorruptTableError, SchemaMismatchError)

    # ------------------------------------------------------------------------------------------ the clients

    def _open(self, client: Client) -> DeltaTable:
        plan = FaultPlan(client.random, {"put_if_absent": 3 * self.fault_rate, "*": 0.0}, kinds=_SURVIVED)

        def decide(call: Call) -> Fault | None:
            if call.method == "head":
                self._heads.setdefault(client.name, []).append(self.scheduler.step)
            return plan(call)

        store = store_for(client, self._common, decide)
        store.is_remote = self.far
        self._stores.append(store)
        try:
            self._tables.append(DeltaTable.open(store, environment=client.environment(self._retry)))
        except (TableNotFoundError, CorruptTableError) as error:  # the table is being deleted
            raise StoreError(str(error), path="") from error
        return self._tables[-1]

    def _reader(self, client: Client) -> None:
        """In place of the reader, runs a client that deletes the table."""
        store = store_for(client, self.shared)
        rng = client.random
        for _ in range(rng.randrange(25)):
            self.scheduler.pause("waits")
        copied = {path: self.shared.get(path) for path in sorted(self.shared.paths())}
        for _ in range(rng.randrange(25)):
            self.scheduler.pause("waits")
        first = self.scheduler.step
        self._delete(store, rng)
        last = self.scheduler.step
        if self.event == "created again":
            table = self._create_other(store, client)
            last = self.scheduler.step
            self._commit_some(table, client, rng.randrange(4))
        elif self.event != "deleted":
            latest = max(version for path in copied if (version := version_of(path)) is not None)
            kept = latest if self.event == "restored" else rng.randrange(latest + 1)
            for path, data in copied.items():
                if (version_of(path) or 0) <= kept and not path.endswith(("_last_checkpoint", ".crc", ".parquet")):
                    # The copies are made in one step, because any store would lose a commit that is made between two
                    # copies.
                    self.shared.put(path, data)
            last = self.scheduler.step
            with contextlib.suppress(CorruptTableError):  # the judge examines the damaged log at the end of the run
                self._commit_some(DeltaTable.open(store, environment=client.environment()), client, rng.randrange(3))
        self._lost = first, last

    def _delete(self, store: FaultyStore, rng: random.Random) -> None:
        while paths := sorted(self.shared.paths(), reverse=rng.random() < 0.3):
            for path in paths:
                store.delete(path)

    def _create_other(self, store: FaultyStore, client: Client) -> DeltaTable:
        while True:
            try:
                return DeltaTable.create(store, _OTHER, environment=client.environment())
            except (TableExistsError, CommitConflictError):  # a writer committed in between
                self._delete(store, client.random)

    def _commit_some(self, table: DeltaTable, client: Client, number: int) -> None:
        for each in range(number):
            with contextlib.suppress(CommitConflictError), table.transaction() as transaction:
                transaction.add(file_action(f"fake-{client.name}-{each}", client.clock()))
                transaction.commit()

    # ------------------------------------------------------------------------------- judging the schedules

    def _finish(self) -> None:
        pass

    def _judge(self) -> list[Violation]:
        crashed = [Violation("I16", f"{each.kind} raised {each.error}") for each in self.records if _is_crashed(each)]
        if crashed:
            return crashed
        assert self._lost is not None
        log = log_of(self.shared)
        by_token = {record.token: record for record in self.records}
        found = {record.token: version for version, data in log.items() if (record := by_token.get(_token(data)))}
        excused = {record.token for record in self.records if self._is_excused(record)}
        is_excused = any(version for token, version in found.items() if token in excused)
        wrong = [] if is_excused else [*_gaps(log), *_torn(log)]
        for record in self.records:
            wrong += self._judge_operation(record, found.get(record.token), excused)
        return wrong or ([] if is_excused else self._judge_use(log))

    def _judge_operation(self, record: Operation, version: int | None, excused: set[str]) -> list[Violation]:
        assert self._lost is not None
        what = f"{record.kind} {record.token} of {record.client}, {record.outcome} {record.error}"
        landed = self._landed(record)
        found: list[Violation] = []
        is_early = record.invoked < self._lost[0] and record.token not in excused
        if self.event == "created again" and version is not None and is_early:
            found.append(Violation("L2", f"{what} began before the table was created", version))
        if record.outcome == "failed" and version is not None:
            found.append(Violation("L4", f"{what} is in the log", version))
        if record.outcome == "ok" and landed is None:
            found.append(Violation("L3", f"{what} was never written"))
        if record.outcome == "ok" and version is None and landed is not None and landed > self._lost[1]:
            found.append(Violation("L3", f"{what} is not in the log"))
        return found

    def _is_excused(self, record: Operation) -> bool:
        """Whether the outcome of this commit cannot be judged, because there was no answer; because the commit remains
        in another table's log and the error says so; or because, on a remote store, the log was deleted after the check
        that preceded the commit."""
        landed = self._landed(record)
        if record.outcome in ("unknown", "killed") or record.error == CommitStateUnknownError.__name__:
            return True
        if not self.far or landed is None or self._lost is None:
            return False
        looks = [step for step in self._heads.get(record.client, ()) if step < landed]
        # Checks made in other threads are not counted as steps.
        look = max([record.invoked, *looks])
        return self._lost[0] <= landed and self._lost[1] >= look

    def _landed(self, record: Operation) -> int | None:
        """The step at which this operation's commit file was created."""
        seen = (each for each in self.shared.sightings if _token(each.data) == record.token)
        return min((int(each.at) for each in seen), default=None)

    def _judge_use(self, log: Mapping[int, bytes]) -> list[Violation]:
        found: list[Violation] = []
        environment = seeded_environment(f"{self.seed}/last", self.scheduler.time_ms)
        with quiet():
            try:
                expected: Any = _table_facts(DeltaTable.open(self.shared, environment=environment)) if log else None
            except DeltaLogError as error:
                return [Violation("L6", f"the table cannot be read: {error}")]
            for table in self._tables:
                store = table._handle.reader.store
                if isinstance(store, FaultyStore):
                    store.decide = lambda call: None
                table._handle.expire()
                try:
                    seen = _table_facts(table)
                except TableNotFoundError:
                    seen = None
                if seen != expected:
                    found.append(Violation("L6", f"a handle sees {seen} instead of {expected}"))
            if log:
                DeltaTable.open(self.shared, environment=environment).set_properties({"custom.last": "1"})
                if commit_path(max(log) + 1) not in self.shared.paths():
                    found.append(Violation("L6", "no version follows the last one"))
        return found


def _is_crashed(record: Operation) -> bool:
    return record.outcome == "crashed"


def _table_facts(table: DeltaTable) -> Any:
    snapshot = table.snapshot()
    return snapshot.version, snapshot.metadata.id, sorted(snapshot.files()["path"].to_pylist())


def _token(data: bytes) -> str:
    info = json.loads(data.split(b"\n", 1)[0]).get("commitInfo", {})
    return str(info.get("userMetadata"))


def _gaps(log: Mapping[int, bytes]) -> list[Violation]:
    versions = sorted(log)
    return [] if versions == list(range(len(versions))) else [Violation("L1", f"{LOG_DIRECTORY} has {versions}")]


def _torn(log: Mapping[int, bytes]) -> list[Violation]:
    live: set[str] = set()
    for version, data in sorted(log.items()):
        actions = [json.loads(line) for line in data.splitlines()]
        for path in (each["remove"]["path"] for each in actions if "remove" in each):
            if path not in live:
                return [Violation("L5", f"{path} is removed but not live", version)]
            live.remove(path)
        for path in (each["add"]["path"] for each in actions if "add" in each):
            if path in live:
                return [Violation("L5", f"{path} is added but already live", version)]
            live.add(path)
    return []


def run_lost_table(seed: int, **options: Any) -> ScheduleResult:
    """Run and judge one schedule; options as in LostTableSimulation."""
    return LostTableSimulation(seed, **options).run()
