"""Vacuum of a table in a catalog keeps what its transactions and staged commits need, and nothing else."""

from __future__ import annotations

import contextlib
import io
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow.parquet as pq
import pytest

from deltalog import DeltaLogError, DeltaTable, StoreError, VacuumReport
from deltalog.catalog.records import Head
from deltalog.errors import (
    CatalogBehindLogError,
    ConcurrentModificationError,
    EntityNotFoundError,
    ObjectBeingDeletedError,
    ResourceNotReadyError,
)
from deltalog.maintenance.vacuum.decisions import Need, Stay
from deltalog.maintenance.vacuum.removed_files import LAST_VACUUM
from deltalog.storage.memory import MemoryStore
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator, WrappedCoordinator
from deltalog.testing.stores import Fault, FaultyStore, SimulatedKill, no_faults, nth
from deltalog.transactions.manager import VirtualObject
from tests.support.simulation.bank import SimulatedManager
from tests.support.transactions import SCHEMA, A, Clock, Meddling, content, environment, manager_of, rows


class World:
    """A catalog with one table, whose version 0 contains the row (1, 100); the files of the table have modification
    times from the simulated clock."""

    def __init__(self, **properties: str) -> None:
        self.clock, self.catalog = Clock(), MemoryCoordinator()
        self.url = f"memory://{uuid.uuid4()}"
        self.store = MemoryStore(self.url, self.clock)
        self.manager = self.process()
        self.table = self.manager.create_table(A, self.url, SCHEMA, data=rows((1, 100)), properties=properties)

    def process(self, catalog: Any = None, store: Any = None) -> SimulatedManager:
        opened = store or self.store
        return SimulatedManager(catalog or self.catalog, environment(self.clock), lambda url: opened)

    def vacuum(self, hours: float | None = None, manager: Any = None, **options: Any) -> VacuumReport:
        chosen = manager or self.manager
        report: VacuumReport = chosen.vacuum(A, hours, False, enforce_retention_duration=False, **options)
        return report

    def files(self) -> set[str]:
        return {path for path in self.store._objects if not path.startswith("_delta_log/")}

    def live(self) -> set[str]:
        return set(self.process().table(A).snapshot().files()["path"].to_pylist())

    def put(self, path: str, *pairs: tuple[int, int]) -> None:
        sink = io.BytesIO()
        pq.write_table(rows(*pairs), sink)
        self.store.put(path, sink.getvalue())


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("full", [True, False])
def test_files_that_no_version_needs_go(world: World, full: bool) -> None:
    removed = world.live()
    world.table.overwrite(rows((2, 50)))
    world.put("stray.parquet", (9, 9))
    world.clock.pass_(days=7, milliseconds=1)
    before = dict(world.store._objects)
    dry = world.manager.vacuum(A, full=full)
    assert world.store._objects == before
    report = world.vacuum(full=full)
    assert dry.dry_run and report.paths == dry.paths
    assert set(report.paths) == removed | ({"stray.parquet"} if full else set())
    assert world.files() == world.live() | (set() if full else {"stray.parquet"})
    assert [entry.operation for entry in world.table.history(2)] == ["VACUUM END", "VACUUM START"]
    assert content(world.process().table(A)) == [(2, 50)] and LAST_VACUUM in world.store._objects
    assert world.vacuum(full=full).paths == ()


def test_the_names_of_deleted_files_are_marked_for_a_day(world: World) -> None:
    (removed,) = world.live()
    world.table.overwrite(rows((2, 50)))
    world.clock.pass_(days=8)
    world.vacuum()
    table_id = world.manager.list_tables()[0].table_id
    (marking,) = world.catalog.marks(table_id).markings.values()
    assert (marking.deleting, marking.deleted) == ((), (removed,)) and marking.is_of_vacuum
    world.clock.pass_(days=2)
    world.process().recover()
    world.manager.drop_table(A)


def test_unpublished_commits_are_versions(world: World) -> None:
    """Another client wrote a file long ago and has just committed it; the commit is not published yet."""
    world.put("late.parquet", (3, 3))
    world.clock.pass_(days=8)
    stopped = FaultyStore(world.store, nth(1, Fault.FAIL_BEFORE, method="put_if_absent", path="_delta_log/0*"))
    table = world.process(store=stopped).table(A)
    with table.transaction() as transaction:
        transaction.add_parquet_files([("late.parquet", {})])
        transaction.commit()
    head = world.catalog.head(world.manager.list_tables()[0].table_id)
    assert head is not None and [commit.version for commit in head.unpublished] == [1]
    report = world.vacuum(0, world.process())
    assert report.paths == () and report.kept == {Need.LATEST.value: 2}
    assert content(world.process().table(A)) == [(1, 100), (3, 3)]


def test_what_open_transactions_added_stays(world: World) -> None:
    world.put("old.parquet", (3, 3))
    world.put("named.parquet", (4, 4))
    world.put("stray.parquet", (5, 5))
    world.clock.pass_(days=8)
    other = world.process()
    transaction = other.transaction()
    with transaction.table(A).transaction() as writer:
        writer.add_parquet_files([("old.parquet", {})])
        writer.commit()
    other.delete_objects_on_cancel(transaction.id, A, [VirtualObject(f"{world.url}/named.parquet")])
    report = world.vacuum()
    assert report.paths == ("stray.parquet",) and report.kept[Need.TRANSACTION.value] == 2
    transaction.commit()
    assert content(world.process().table(A)) == [(1, 100), (3, 3)]


def test_the_version_that_a_transaction_reads_stays(world: World) -> None:
    other = world.process()
    transaction = other.transaction(transaction_type="READ_ONLY")
    assert content(transaction.table(A)) == [(1, 100)]
    world.table.overwrite(rows((2, 50)))
    for _ in range(20 * 24 * 3):  # it runs for twenty days
        world.clock.pass_(minutes=20)
        transaction.extend()
    report = world.vacuum()
    assert report.paths == () and report.kept[Need.TRANSACTION.value] == 1
    assert content(world.process().transaction(transaction.id).table(A)) == [(1, 100)]
    transaction.cancel()
    assert len(world.vacuum().paths) == 1


def staged(world: World, path: str, hours: float) -> Callable[[], object]:
    """A commit that adds a file, staged ``hours`` ago. Returns a function that proposes the commit."""
    version = world.process().table(A).version + 1
    file = f"{version:020d}.{uuid.uuid4()}.json"
    store = FaultyStore(world.store)
    waiting = Meddling(world.catalog, "ratify", _stop)
    with pytest.raises(StoreError), world.process(waiting, store).table(A).transaction() as transaction:
        transaction.add_parquet_files([(path, {})])
        transaction.commit()
    (put,) = [put for put in store.puts if "_staged_commits" in put.call.path]
    world.store.put(f"_delta_log/_staged_commits/{file}", put.data)
    world.clock.pass_(hours=hours)
    return lambda: world.process().propose_commit(A, version, file)


def _stop() -> None:
    raise StoreError("stopped", path="")


def test_files_of_staged_commits_stay_until_the_retention(world: World) -> None:
    world.put("staged.parquet", (3, 3))
    world.clock.pass_(days=8)
    propose = staged(world, "staged.parquet", hours=23)
    report = world.vacuum(0)
    assert report.paths == () and report.kept[Need.UNSETTLED.value] == 1
    propose()
    assert content(world.process().table(A)) == [(1, 100), (3, 3)]


def test_files_of_staged_commits_that_were_left_go(world: World) -> None:
    world.put("staged.parquet", (3, 3))
    propose = staged(world, "staged.parquet", hours=9 * 24)
    world.store.put(f"_delta_log/_staged_commits/{5:020d}.{uuid.uuid4()}.json", b"{torn")
    assert world.vacuum().paths == ("staged.parquet",)
    with pytest.raises(Exception, match="version"):
        propose()  # VACUUM START has been committed as that version
    world.clock.pass_(days=2)
    world.process().recover()
    assert [path for path in world.store._objects if "_staged_commits/" in path and "torn" not in path][1:] == []


def added_alone(world: World) -> None:
    with world.process().table(A).transaction() as transaction:
        transaction.add_parquet_files([("old.parquet", {})])
        transaction.commit()


def added_in_a_transaction(world: World) -> None:
    with world.process().transaction() as transaction:
        with transaction.table(A).transaction() as writer:
            writer.add_parquet_files([("old.parquet", {})])
            writer.commit()
        transaction.commit()


def _refusable(add: Callable[[World], None], world: World, refused: list[Exception]) -> None:
    try:
        add(world)
    except DeltaLogError as error:
        refused.append(error)


class Steps(WrappedCoordinator):
    """Runs ``what`` once, when the catalog is called for the n-th time."""

    def __init__(self, inner: Any, number: int, what: Callable[[], object]) -> None:
        super().__init__(inner)
        self.left, self.what = number, what

    def _pass(self, method: str, about: str, action: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left == 0:
            self.what()
        return action()


@pytest.mark.parametrize("add", [added_alone, added_in_a_transaction])
def test_a_file_that_is_added_at_any_moment_stays_or_is_refused(add: Callable[[World], None]) -> None:
    outcomes = set()
    for number in range(1, 60):
        world = World()
        world.put("old.parquet", (3, 3))
        world.clock.pass_(days=8)
        refused: list[Exception] = []
        steps = Steps(world.catalog, number, partial(_refusable, add, world, refused))
        world.vacuum(manager=world.process(steps))
        found = content(world.process().table(A))
        assert ((3, 3) in found) == (not refused and steps.left <= 0), (number, refused)
        assert world.live() <= world.files()
        outcomes.add((3, 3) in found)
        for error in refused:
            assert isinstance(error, ObjectBeingDeletedError) or "old.parquet" in str(error), repr(error)
        if steps.left > 0:
            break
    assert outcomes == {True, False} and number > 8


def test_a_vacuum_that_is_stopped_marks_its_files_for_a_day(world: World) -> None:
    world.put("old.parquet", (3, 3))
    world.clock.pass_(days=8)
    failing = FaultyStore(world.store, nth(1, Fault.FAIL_BEFORE, method="delete", path="old.parquet"))
    with pytest.raises(StoreError, match="call it again"):
        world.vacuum(manager=world.process(store=failing))
    assert world.table.history(1)[0].operation_parameters["status"] == "FAILED"
    with pytest.raises(ObjectBeingDeletedError, match=r"older than the retention.*vacuum-"):
        added_alone(world)
    assert world.vacuum().paths == ("old.parquet",)


def test_a_catalog_that_is_older_than_the_log_is_refused(world: World) -> None:
    world.put("old.parquet", (3, 3))
    table_id = world.manager.list_tables()[0].table_id
    added_alone(world)

    class Restored(WrappedCoordinator):
        def head(self, wanted: str) -> Head | None:
            return Head(0) if wanted == table_id else super().head(wanted)

    world.clock.pass_(days=8)
    for dry_run in (True, False):
        with pytest.raises(CatalogBehindLogError):
            world.process(Restored(world.catalog)).vacuum(A, dry_run=dry_run)
    assert content(world.process().table(A)) == [(1, 100), (3, 3)]


def test_young_files_stay(world: World) -> None:
    world.put("young.parquet", (3, 3))
    world.clock.pass_(hours=1)
    assert world.vacuum(0).kept[Stay.UNCOMMITTED.value] == 1


def test_by_path_and_by_handle_it_is_refused(world: World) -> None:
    with pytest.raises(ResourceNotReadyError, match=r"TransactionManager\.vacuum"):
        world.manager.table(A).vacuum()
    with pytest.raises(Exception, match="catalogManaged"):
        DeltaTable.open(world.store).vacuum()
    with pytest.raises(EntityNotFoundError):
        world.manager.vacuum("bank.none")


def test_with_sqlite(tmp_path: Any) -> None:
    clock = Clock(time.time_ns() // 1_000_000)
    manager = manager_of(str(tmp_path / "catalog.db"), clock)
    table = manager.create_table(A, str(tmp_path / "a"), SCHEMA, data=rows((1, 100)))
    table.overwrite(rows((2, 50)))
    clock.pass_(minutes=30)
    assert len(manager.vacuum(A, 0, False, enforce_retention_duration=False).paths) == 1
    assert content(manager.table(A)) == [(2, 50)]


@pytest.mark.parametrize("method", ["drop", "mark"])
def test_a_table_that_is_released_meanwhile_keeps_its_files(world: World, method: str) -> None:
    """The table's release is ratified, or complete, when the vacuum marks the files to delete."""
    world.put("old.parquet", (9, 9))
    world.clock.pass_(days=30)

    def release() -> None:
        stops = nth(1, Fault.KILL_BEFORE, method="drop") if method == "drop" else no_faults
        with contextlib.suppress(SimulatedKill):
            world.process(FaultyCoordinator(world.catalog, stops)).release_table(A)
        world.put("of a writer by path.parquet", (8, 8))

    before = world.files()
    with pytest.raises((ResourceNotReadyError, ConcurrentModificationError)):
        world.vacuum(manager=world.process(Meddling(world.catalog, "mark", release)))
    assert world.files() == {*before, "of a writer by path.parquet"}
    world.manager = world.process()
    with contextlib.suppress(EntityNotFoundError):
        world.manager.release_table(A)
    table = DeltaTable.open(world.store, environment=environment(world.clock))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert "old.parquet" not in world.files() and content(table) == [(1, 100)]
