"""Cleaning up an aborted transaction races with a retry that uses the same names: no committed version ever names a
deleted file, and no file of the aborted transaction remains."""

from __future__ import annotations

import io
import json
import uuid
from typing import Any

import pyarrow.parquet as pq
import pytest

from deltalog.catalog.marks import MARKING_AGE_MS, KnownMarks
from deltalog.catalog.records import Marking, Marks
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import CallError, DeltaLogError, InvalidDataFileError, ObjectBeingDeletedError, ObjectNotFoundError
from deltalog.testing.coordinators import MemoryCoordinator, WrappedCoordinator
from deltalog.testing.stores import Fault, FaultyStore, SimulatedKill
from deltalog.transactions.manager import VirtualObject
from deltalog.transactions.recovery import LATE_AGE_MS, LATE_PASSES_MS
from deltalog.transactions.table_objects import AddObject
from tests.support.simulation.bank import SimulatedManager
from tests.support.transactions import A, B, Clock, bank, content, environment, manager_of, rows

PATH = "run-1.parquet"


class Steps:
    """Counts one process's calls to its catalog and its stores, and runs other actions at some of them."""

    def __init__(self, catalog, clock, stores, at=()):
        self.at = list(at)  # (step, what), in order
        self.number = 0
        self.is_busy = False
        self.coordinator = _Stepping(catalog, self)
        stepping = {url: FaultyStore(store, before=self.step) for url, store in stores.items()}
        self.manager = SimulatedManager(self.coordinator, environment(clock), stepping.__getitem__)

    def step(self, _=None):
        if self.is_busy:
            return
        self.is_busy = True
        while self.at and self.at[0][0] <= self.number:
            self.at.pop(0)[1]()
        self.is_busy = False
        self.number += 1

    def rest(self):
        for _, what in self.at:
            what()


class _Stepping(WrappedCoordinator):
    def __init__(self, inner, steps):
        super().__init__(inner)
        self._steps = steps

    def _pass(self, method, about, action):
        self._steps.step()
        return action()


class World:
    """An in-memory bank with a first job, which has named and written an object, and with other clients."""

    def __init__(self, etag=None):
        self.clock, self.catalog = Clock(), MemoryCoordinator()
        plain = bank(self.catalog, self.clock)
        self.stores = {table.url: plain._tables.plain_store(table.url) for table in plain.list_tables()}
        self.manager = manager_of(self.catalog, self.clock)
        self.url = next(table.url for table in plain.list_tables() if table.name == A)
        self.store = self.stores[self.url]
        self.first = self.manager.start_transaction()
        self.name(self.first, etag)
        self.write(1)

    def process(self, at=()):
        return Steps(self.catalog, self.clock, self.stores, at)

    def name(self, transaction_id, etag=None):
        self.manager.delete_objects_on_cancel(transaction_id, A, [VirtualObject(f"{self.url}/{PATH}", etag)])

    def write(self, number):
        sink = io.BytesIO()
        pq.write_table(rows((number, number)), sink)
        self.store.put(PATH, sink.getvalue())

    def add_object(self):
        meta = self.store.head(PATH)
        if meta is None:
            raise ObjectNotFoundError(f"{PATH} is gone", path=PATH)
        return AddObject(f"{self.url}/{PATH}", self.store.etag(PATH), meta.size_bytes)

    def check(self):
        """Check that each file of the table exists and is readable."""
        table = manager_of(self.catalog, self.clock).table(A)
        found = content(table)
        assert all(self.store.head(path) for path in table.snapshot().files(["path"])["path"].to_pylist())
        return found


# --------------------------------------------------------------------------------------------------- steps of a retry


def named_and_added(world):
    """The steps of an engine's job: name the objects, write them, add them to the table, and commit."""
    other = manager_of(world.catalog, world.clock)
    second = other.start_transaction()
    yield lambda: other.delete_objects_on_cancel(second, A, [VirtualObject(f"{world.url}/{PATH}")])
    yield lambda: world.write(2)
    yield lambda: other.update_table_objects(A, [world.add_object()], second)
    yield lambda: other.commit_transaction(second)


def added_in_a_transaction(world):
    other = manager_of(world.catalog, world.clock)
    transaction = other.transaction()
    writer = transaction.table(A).transaction()
    yield lambda: world.write(2)
    yield lambda: writer.add_parquet_files([(PATH, {})])
    yield writer.commit
    yield transaction.commit


def added_alone(world):
    other = manager_of(world.catalog, world.clock)
    writer = other.table(A).transaction()
    yield lambda: world.write(2)
    yield lambda: writer.add_parquet_files([(PATH, {})])
    yield writer.commit


def proposed(world):
    """Another Delta client, which reads only files that it wrote itself."""
    other = manager_of(world.catalog, world.clock)
    version, file = 1, f"{1:020d}.{uuid.uuid4()}.json"

    def stage():
        info = {"inCommitTimestamp": world.clock() + 5, "timestamp": 1, "operation": "WRITE", "operationParameters": {}}
        size = world.store.head(PATH)
        add: dict[str, Any] = {
            "path": PATH,
            "partitionValues": {},
            "size": size.size_bytes if size else 1,
            "modificationTime": 1,
        }
        lines = [{"commitInfo": {**info, "txnId": "t"}}, {"add": {**add, "dataChange": True}}]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        world.store.put_if_absent(f"_delta_log/_staged_commits/{file}", data)

    yield lambda: world.write(2)
    yield stage
    yield lambda: other.propose_commit(A, version, file)


REFUSALS = (ObjectBeingDeletedError, InvalidDataFileError, ObjectNotFoundError, CallError)
RETRIES = [named_and_added, added_in_a_transaction, added_alone, proposed]


class Retry:
    """Runs the steps of a retry, which can be divided over several calls; stops permanently once a step raises an
    error."""

    def __init__(self, world, steps):
        self.steps = list(steps(world))
        self.error = None

    def run(self, count):
        for _ in range(count):
            if self.steps and self.error is None:
                try:
                    self.steps.pop(0)()
                except DeltaLogError as error:
                    self.error = error


def cancel_beside(retry_of, start, first, second):
    """Cancel the first job. A retry starts before call ``first`` of the cancellation and continues before call
    ``second``. Returns the resulting state of the simulated world and the Retry object."""
    world = World()
    retry = Retry(world, retry_of)
    count = len(retry.steps)
    retry.run(start)
    process = world.process([(first, lambda: retry.run(1)), (second, lambda: retry.run(count))])
    process.manager.cancel_transaction(world.first)
    process.rest()
    return world, retry, process


@pytest.mark.sampled(6)
@pytest.mark.parametrize("start", [0, 1, 2])
@pytest.mark.parametrize("retry_of", RETRIES)
def test_a_retry_at_any_moment_of_a_clean_up_is_whole_or_refused(retry_of, start):
    total = cancel_beside(retry_of, 0, 10**6, 10**6)[2].number
    assert total > 8
    outcomes = set()
    for first in range(total + 1):
        for second in sorted({first, first + 1, first + 3, total}):
            world, retry, _ = cancel_beside(retry_of, start, first, second)
            found = world.check()
            is_there = (2, 2) in found or (1, 1) in found
            assert is_there == (retry.error is None), (first, second, retry.error)
            assert retry.error is None or isinstance(retry.error, REFUSALS), repr(retry.error)
            outcomes.add(is_there)
            # Later cleanups keep everything that is committed, and delete everything that is not.
            world.clock.pass_(days=2)
            manager_of(world.catalog, world.clock).recover()
            assert world.check() == found
    assert True in outcomes


# --------------------------------------------------------------------------------------------------- one by one


def test_a_name_is_refused_while_it_is_being_deleted():
    world = World()
    second = world.manager.start_transaction()
    errors = []

    def name():
        with pytest.raises(ObjectBeingDeletedError, match="another name") as error:
            world.name(second)
        errors.append(error.value)

    store = FaultyStore(world.store, before=lambda call: name() if call.method == "delete" else None)
    stores = {**world.stores, world.url: store}
    SimulatedManager(world.catalog, environment(world.clock), stores.__getitem__).cancel_transaction(world.first)
    assert [(error.path, error.transaction_id) for error in errors] == [(PATH, world.first)]
    assert not any(key.startswith("object/") for key in world.catalog.parts(second))
    world.name(second)  # the transaction has ended


def test_what_another_transaction_has_named_and_not_added_is_its_own():
    world = World()
    second = world.manager.start_transaction()
    world.name(second)
    world.manager.cancel_transaction(world.first)
    assert world.store.head(PATH) is not None
    world.manager.cancel_transaction(second)
    assert world.store.head(PATH) is None


@pytest.mark.parametrize("passed", [0, LATE_PASSES_MS[0], LATE_PASSES_MS[1]])
def test_a_name_can_be_used_again_when_the_clean_up_is_over(passed):
    world = World()
    world.manager.cancel_transaction(world.first)
    world.clock.now_ms += passed
    for each in named_and_added(world):
        each()
    for late_ms in LATE_PASSES_MS:
        world.clock.now_ms += late_ms + LATE_AGE_MS
        manager_of(world.catalog, world.clock).recover()
    assert (2, 2) in world.check()


@pytest.mark.parametrize("look", LATE_PASSES_MS)
def test_an_object_that_is_put_after_the_clean_up_goes_with_a_later_one(look):
    world = World()
    world.manager.cancel_transaction(world.first)
    assert manager_of(world.catalog, world.clock).recover()["cleaned"] == 0
    world.write(3)
    written_ms = world.store.head(PATH).modification_time_ms
    world.clock.now_ms = max(world.clock.now_ms + look, written_ms) + LATE_AGE_MS - 1_000
    manager_of(world.catalog, world.clock).recover()
    assert world.store.head(PATH) is not None  # another job might be about to add the object
    world.clock.now_ms += 2_000
    assert manager_of(world.catalog, world.clock).recover()["cleaned"] == 1
    assert world.store.head(PATH) is None


def test_names_are_forgotten_when_nothing_more_is_expected():
    world = World()
    world.manager.cancel_transaction(world.first)
    assert world.catalog.parts(world.first)
    world.clock.now_ms += LATE_PASSES_MS[-1] + 1
    manager_of(world.catalog, world.clock).recover()
    assert world.catalog.parts(world.first) == {}
    calls = list[Any]()
    counted = _Counted(world.catalog, calls)
    manager_of(counted, world.clock).recover()
    assert "parts" not in calls


class _Counted(WrappedCoordinator):
    def __init__(self, inner, calls):
        super().__init__(inner)
        self._calls = calls

    def _pass(self, method, about, action):
        self._calls.append(method)
        return action()


@pytest.mark.parametrize("etag", ["0" * 32, None])
def test_the_etag_is_that_of_the_object_when_it_is_deleted(etag):
    world = World(etag)
    world.manager.cancel_transaction(world.first)
    assert (world.store.head(PATH) is not None) == (etag is not None)


def test_files_that_a_transaction_wrote_and_another_adds_stay():
    """Files that deltalog itself wrote are also looked up in the log before they are deleted."""
    world = World()
    first = world.manager.transaction()
    first.table(A).append(rows((5, 5)))
    (path,) = set(world.store.list_names("")) - {PATH} - set(files_of(world))
    second = world.manager.transaction()
    with second.table(A).transaction() as writer:
        writer.add_parquet_files([(path, {})])
        writer.commit()
    first.cancel()
    second.commit()
    assert (5, 5) in world.check()


def files_of(world):
    table = world.manager.table(A)
    return table.snapshot().files(["path"])["path"].to_pylist()


# ------------------------------------------------------------------------------------- crashes during a clean-up


def killed_at(world, number):
    """Cancel a transaction in a process that dies at a certain call. Returns whether it died."""
    process = world.process([(number, _die)])
    try:
        process.manager.cancel_transaction(world.first)
    except SimulatedKill:
        return True
    return False


def _die():
    raise SimulatedKill("killed")


def test_whatever_a_clean_up_that_was_killed_has_left_others_take_away():
    number = 0
    while killed_at(world := World(), number):
        number += 1
        other = manager_of(world.catalog, world.clock)
        other.cancel_transaction(world.first)
        other.recover()
        assert world.store.head(PATH) is None
        retry = Retry(world, named_and_added)
        retry.run(4)
        markings = world.catalog.marks(other.ratified(A)[0].table_id).markings.values()
        # The suspended clean-up may resume and still delete the file.
        if any(PATH in marking.deleting for marking in markings):
            assert isinstance(retry.error, ObjectBeingDeletedError)
            world.store.delete(PATH)
            world.clock.now_ms += MARKING_AGE_MS + 1
            other.recover()
            retry = Retry(world, named_and_added)
            retry.run(4)
        assert retry.error is None
        assert (2, 2) in world.check()
    assert number > 8


def test_a_delete_without_an_answer_keeps_its_name_closed():
    world = World()
    lost = FaultyStore(world.store, lambda call: Fault.FAIL_BEFORE if call.method == "delete" else None)
    stores = {**world.stores, world.url: lost}
    process = SimulatedManager(world.catalog, environment(world.clock), stores.__getitem__)
    process.cancel_transaction(world.first)
    second = world.manager.start_transaction()
    with pytest.raises(ObjectBeingDeletedError):
        world.name(second)
    record = world.catalog.transaction(world.first)
    assert record is not None and record.looks == 0


def test_markings_that_are_old_are_forgotten():
    world = World()
    table_id = world.manager.ratified(A)[0].table_id
    world.catalog.mark(table_id, 1, Marking("t", world.clock() - MARKING_AGE_MS - 1, ("old.parquet",)))
    world.catalog.mark(table_id, 2, Marking("t", world.clock(), ("young.parquet",)))
    world.manager.cancel_transaction(world.first)
    world.manager.recover()
    kept = world.catalog.marks(table_id)
    assert [marking.deleting for marking in kept.markings.values()] == [("young.parquet",), ()]
    assert kept.last == 3


def test_many_names_are_marked_some_at_a_time(tmp_path):
    manager = bank(SQLiteCoordinator(tmp_path / "catalog.db"), root=tmp_path)
    url = next(table.url for table in manager.list_tables() if table.name == B)
    transaction = manager.start_transaction()
    for start in range(0, 1200, 100):
        objects = [VirtualObject(f"{url}/day=1/run-{number}.parquet") for number in range(start, start + 100)]
        manager.delete_objects_on_cancel(transaction, B, objects)
    (tmp_path / "b/day=1").mkdir()
    for number in range(1200):
        (tmp_path / f"b/day=1/run-{number}.parquet").write_bytes(b"rows")
    manager.cancel_transaction(transaction)
    assert list((tmp_path / "b").rglob("run-*")) == []
    table_id = manager.ratified(B)[0].table_id
    found = manager.coordinator.marks(table_id).markings.values()
    assert [len(marking.deleted) for marking in found] == [500, 500, 200]
    assert not any(marking.deleting for marking in found)


def test_a_commit_of_a_process_that_knows_no_marking_is_compared_with_them():
    """The catalog rejects the process's first proposal, which is then repeated."""
    world = World()
    table = world.manager.table(A)
    world.manager.cancel_transaction(world.first)
    table.append(rows((7, 7)))
    assert (7, 7) in world.check()


class _Interrupting(dict):
    """A dict of markings that calls ``what`` during an iteration over it, to simulate a change by another thread."""

    def __init__(self, markings, what):
        super().__init__(markings)
        self._what = what

    def __bool__(self):
        is_any = len(self) > 0
        self._happen()
        return is_any

    def values(self):
        found = list(super().values())
        self._happen()
        return found

    def _happen(self):
        what, self._what = self._what, None
        if what is not None:
            what()


@pytest.mark.parametrize("has_older", [False, True])
def test_a_name_is_compared_with_the_marking_whose_number_is_given(has_older):
    """Two threads share the loaded markings: one refreshes the markings while the other compares paths with them."""
    catalog, found = MemoryCoordinator(), list[Any]()
    known = KnownMarks(_Answering(catalog, found), "t")
    older = {1: Marking("other", 0, ("other.parquet",))} if has_older else {}
    last = len(older)
    found.append(Marks(last, _Interrupting(older, known.refresh)))
    found += [Marks(last + 1, {**older, last + 1: Marking("first", 0, (PATH,))})] * 2
    known.refresh()
    assert known.check_named("table", [PATH]) == last


class _Answering(WrappedCoordinator):
    """Each call of ``marks`` returns the next element of ``found``."""

    def __init__(self, inner, found):
        super().__init__(inner)
        self._found = found

    def marks(self, table_id):
        return self._found.pop(0)


# ---------------------------------------------------------------------------- a table is dropped and registered again


def test_a_table_that_is_dropped_and_registered_beside_a_clean_up_loses_nothing():
    """A table that is registered again has a new id, so markings under its old id have no effect."""
    refused, step, total = 0, 0, 1
    while step <= total:
        world = World()
        other = manager_of(world.catalog, world.clock)
        retry = Retry(world, named_and_added)

        def leave_and_come(other=other, url=world.url, retry=retry):
            nonlocal refused
            try:
                other.drop_table(A)
            except ObjectBeingDeletedError as error:
                refused += 1
                assert error.path == PATH
            else:
                other.register_table(A, url)
                retry.run(4)

        process = world.process([(step, leave_and_come)])
        process.manager.cancel_transaction(world.first)
        process.rest()
        world.check()
        step, total = step + 1, process.number
    assert 0 < refused < total


def dead_clean_up(world, ahead_ms=0):
    """Create the state that remains if a process dies during a clean-up before it has deleted anything."""
    table_id = world.manager._tables.record(A).table_id
    assert world.catalog.mark(table_id, 1, Marking(world.first, world.clock() + ahead_ms, (PATH,)))


def test_a_table_that_goes_back_to_its_log_keeps_what_is_being_deleted():
    world = World()
    world.manager.table(A).append(rows((3, 7)))
    dead_clean_up(world)
    world.store.delete(f"_delta_log/{1:020d}.json")
    other = manager_of(world.catalog, world.clock)
    assert other.resync(keep_log=[A]).tables[0].catalog_version == 0
    with pytest.raises(ObjectBeingDeletedError):
        other.delete_objects_on_cancel(other.start_transaction(), A, [VirtualObject(f"{world.url}/{PATH}")])


@pytest.mark.parametrize("ahead_days", [0, 0.9, 400])
def test_names_are_free_some_day_whatever_the_clock_of_a_dead_clean_up_said(ahead_days):
    world = World()
    dead_clean_up(world, int(ahead_days * MARKING_AGE_MS))
    world.manager.cancel_transaction(world.first)
    with pytest.raises(ObjectBeingDeletedError):
        world.manager.drop_table(A)
    for _ in range(2):
        world.clock.pass_(days=1, milliseconds=1)
        world.manager.recover()
    world.name(world.manager.start_transaction())
    world.manager.drop_table(A)
