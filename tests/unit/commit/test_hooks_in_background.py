"""On a remote store a commit does not wait for its derived files, but all of them are written eventually."""

from __future__ import annotations

import itertools
import json
import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deltalog import DeltaTable, StoreError, background
from deltalog.protocol.paths import checkpoint_path, checksum_path
from deltalog.storage.base import PutOutcome
from deltalog.storage.memory import MemoryStore
from deltalog.table import handle_of
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.manager import TransactionManager
from tests.support.core import ICT, SCHEMA, environment, ids, objects, rows

_NUMBERS = itertools.count()


class FarStore(MemoryStore):
    """An in-memory store that claims to be remote. Derived files are written only while ``gate`` is set; ``order``
    lists the names of all objects in the order of their creation."""

    is_remote = True

    def __init__(self) -> None:
        super().__init__(f"memory://far-hooks-{next(_NUMBERS)}")
        self.gate = threading.Event()
        self.gate.set()
        self.order: list[str] = []
        self.fail: Callable[[str], BaseException | None] = lambda path: None

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._pass(path)
        super().put(path, data, durable=durable)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        if "checkpoint" in path:
            self._pass(path)
        return super().put_if_absent(path, data)

    def _pass(self, path: str) -> None:
        assert self.gate.wait(60)
        if (error := self.fail(path)) is not None:
            raise error
        self.order.append(path.rpartition("/")[2].lstrip("0"))


@pytest.fixture
def store() -> FarStore:
    return FarStore()


def table_in(store: FarStore, interval: int = 10, **options: Any) -> DeltaTable:
    properties = {**ICT, "delta.checkpointInterval": str(interval)}
    table = DeltaTable.create(store, SCHEMA, properties=properties, environment=environment(**options))
    table.flush()
    store.order.clear()
    return table


def test_commits_do_not_wait_for_derived_files_which_follow_in_order(store: FarStore) -> None:
    table = table_in(store, interval=2)
    store.gate.clear()
    for number in range(1, 5):
        assert table.append(rows(number)).version == number
    assert store.order == [] and ids(table) == [1, 2, 3, 4]
    store.gate.set()
    table.flush()
    hint = "_last_checkpoint"
    checkpoints = {version: [f"{version}.checkpoint.parquet", hint] for version in (2, 4)}
    assert store.order == ["1.crc", "2.crc", *checkpoints[2], "3.crc", "4.crc", *checkpoints[4]]
    for version in range(1, 5):
        crc = json.loads(store.get(checksum_path(version)))
        assert crc["numFiles"] == table.snapshot(version).num_files == version
    assert json.loads(store.get("_delta_log/_last_checkpoint"))["version"] == 4


@pytest.mark.parametrize("opened", [False, True])
def test_a_handle_that_has_moved_on_continues_from_the_checkpoint(store: FarStore, opened: bool) -> None:
    table = table_in(store, interval=3)
    table.append(rows(1))
    if opened:
        table.flush()
        # The commits of the other handle are not in this handle's memory.
        table = DeltaTable.open(store, environment=environment())
    store.gate.clear()
    for number in range(2, 6):
        table.append(rows(number))
    before = table.snapshot()
    assert before.log.segment.checkpoint_version == -1
    store.gate.set()
    table.flush()
    log = handle_of(table).latest.log
    assert (log.version, log.segment.checkpoint_version, log.segment.commits) == (5, 3, (4, 5))
    fresh = DeltaTable.open(store).snapshot()
    assert log.cache.files().sort_by("path") == fresh.files().sort_by("path") == before.files().sort_by("path")
    assert log.cache.known_totals == fresh.log.cache.totals and log.state == fresh.log.state
    assert [table.append(rows(number)).version for number in (6, 7)] == [6, 7]
    table.flush()
    assert handle_of(table).latest.log.segment.checkpoint_version == 6
    assert ids(table) == ids(DeltaTable.open(store)) == list(range(1, 8))


def test_a_handle_that_has_left_the_version_is_not_moved_back(store: FarStore) -> None:
    table = table_in(store, interval=2)
    table.append(rows(1))
    table.flush()
    store.gate.clear()
    table.append(rows(2))
    DeltaTable.open(store, environment=environment()).append(rows(3))
    latest = table.snapshot()  # read from the log
    store.gate.set()
    table.flush()
    assert latest.version == 3 and handle_of(table).latest is latest
    assert ids(table) == [1, 2, 3]


def test_commits_of_others_in_between_are_followed_too(store: FarStore) -> None:
    table = table_in(store, interval=2)
    table.append(rows(1))
    store.gate.clear()
    table.append(rows(2))
    DeltaTable.open(store, environment=environment()).append(rows(3))
    table.append(rows(4))
    assert table.version == 4
    store.gate.set()
    table.flush()
    assert handle_of(table).latest.log.segment.checkpoint_version == 4
    assert ids(table) == ids(DeltaTable.open(store)) == [1, 2, 3, 4]


def test_a_handle_that_is_faster_than_its_hooks_waits(store: FarStore) -> None:
    table = table_in(store)
    store.gate.clear()
    versions: list[int] = []
    count = 2 * background.MAX_WAITING
    thread = threading.Thread(target=lambda: versions.extend(table.append(rows(n)).version for n in range(count)))
    thread.start()
    while table.version <= background.MAX_WAITING:
        thread.join(0.001)
    thread.join(0.1)  # enough time for the thread to continue, if it were not waiting
    assert table.version == background.MAX_WAITING + 1
    store.gate.set()
    thread.join(60)
    table.flush()
    assert versions == list(range(1, count + 1))
    assert [name for name in store.order if name.endswith(".crc")] == [f"{version}.crc" for version in versions]


@pytest.mark.parametrize("name", ["1.crc", "1.checkpoint.parquet", "_last_checkpoint"])
@pytest.mark.parametrize("error", [StoreError("full", path=""), MemoryError(), KeyboardInterrupt()])
def test_an_error_of_a_hook_is_logged_and_the_next_hooks_run(
    store: FarStore, name: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_in(store, interval=1)
    store.fail = lambda path: error if path.endswith(name) and not caplog.records else None
    with caplog.at_level(logging.WARNING, "deltalog"):
        assert table.append(rows(1)).version == 1
        table.flush()
    assert any(store.url in record.getMessage() for record in caplog.records)
    table.append(rows(2))
    table.flush()
    assert store.head(checksum_path(2)) is not None and store.head(checkpoint_path(2)) is not None
    assert ids(table) == ids(DeltaTable.open(store)) == [1, 2]


def test_the_handles_of_a_table_share_one_order(store: FarStore) -> None:
    table = table_in(store)
    other = DeltaTable.open(store, environment=environment())
    store.gate.clear()
    table.append(rows(1))
    other.append(rows(2))
    table.append(rows(3))
    other.append(rows(4))
    store.gate.set()
    table.flush()
    assert store.order == [f"{version}.crc" for version in range(1, 5)]


def test_an_explicit_checkpoint_follows_those_of_commits(store: FarStore) -> None:
    table = table_in(store, interval=1)
    store.gate.clear()
    table.append(rows(1))
    opener = threading.Timer(0.05, store.gate.set)
    opener.start()
    table.checkpoint()
    opener.join()
    assert store.order.count("_last_checkpoint") == 2 and store.order[-1] == "_last_checkpoint"


def test_an_environment_can_keep_the_hooks_in_the_foreground(store: FarStore) -> None:
    table = table_in(store, interval=1, background=False)
    table.append(rows(1))
    assert store.order == ["1.crc", "1.checkpoint.parquet", "_last_checkpoint"]
    assert handle_of(table).latest.log.segment.checkpoint_version == 1
    assert store.url not in background._queues


def test_a_store_without_latency_has_no_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FarStore, "is_remote", False)
    store = FarStore()
    table = table_in(store)
    table.append(rows(1))
    assert store.order == ["1.crc"]


@pytest.fixture
def stores() -> Iterator[dict[str, FarStore]]:
    """The stores of two tables, keyed by table name."""
    stores = {name: FarStore() for name in ("bank.a", "bank.b")}
    yield stores
    for store in stores.values():  # a waiting hook would delay the exit of the process
        store.gate.set()


def manager_of(stores: dict[str, FarStore], monkeypatch: pytest.MonkeyPatch) -> TransactionManager:
    manager = TransactionManager(MemoryCoordinator(), environment=environment())
    monkeypatch.setattr(manager._tables, "plain_store", lambda url: {s.url: s for s in stores.values()}[url])
    return manager


def test_a_table_of_a_catalog_knows_its_totals_however_late_its_checksum_is(
    stores: dict[str, FarStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, store = manager_of(stores, monkeypatch), stores["bank.a"]
    store.gate.clear()
    opener = threading.Timer(0.2, store.gate.set)
    opener.start()
    table = manager.create_table("bank.a", store.url, SCHEMA)
    opener.join()
    assert handle_of(table).latest.log.cache.known_totals is not None


def test_a_transaction_over_tables_does_not_wait_for_their_hooks(
    stores: dict[str, FarStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manager_of(stores, monkeypatch)
    properties = {"delta.checkpointInterval": "1"}
    for name, store in stores.items():
        manager.create_table(name, store.url, SCHEMA, properties=properties).flush()
        store.gate.clear()
    with manager.transaction() as transaction:
        for name in stores:
            transaction.table(name).append(rows(1))
        transaction.commit()
    for name, store in stores.items():
        assert store.head(checksum_path(1)) is None
        store.gate.set()
        manager.table(name).flush()
        assert store.head(checksum_path(1)) is not None
        assert handle_of(manager.table(name)).latest.log.segment.checkpoint_version == 1
        assert ids(manager.table(name)) == [1]


def test_a_table_with_hooks_under_way_can_be_pickled(store: FarStore) -> None:
    table = DeltaTable.create(f"{store.url}-named", SCHEMA, environment=None)
    assert pickle.loads(pickle.dumps(table)).version == 0


def test_the_same_files_are_derived_in_the_background(store: FarStore) -> None:
    near = FarStore()
    near.is_remote = False
    for each in (store, near):
        table = table_in(each, interval=2)
        for number in range(1, 8):
            table.append(rows(number))
        table.delete("id = 3")
        table.flush()
    logs = [sorted(path for path in objects(each) if path.startswith("_delta_log/")) for each in (store, near)]
    assert logs[0] == logs[1] and f"_delta_log/{8:020d}.crc" in logs[0]
