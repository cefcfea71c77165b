"""Once a commit is written, the call reports success whatever fails afterwards, and the handle continues from the new
version."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from deltalog import Dataset, DeltaTable, StoreError
from deltalog.log.snapshot import LogSnapshot
from deltalog.storage.base import FileMeta
from deltalog.storage.memory import MemoryStore
from deltalog.table import handle_of
from deltalog.testing.coordinators import MemoryCoordinator, WrappedCoordinator
from deltalog.transactions.manager import TransactionManager
from deltalog.write.table_handle import TableHandle
from deltalog.write.transaction import Transaction
from tests.support.core import SCHEMA, environment, ids, memory, objects, rows
from tests.support.transactions import A, B, Clock, bank, content
from tests.support.transactions import rows as accounts

# Functions that are called only after a commit file was written.
AFTERWARDS: dict[str, tuple[type, str]] = {
    "the next snapshot": (LogSnapshot, "after"),
    "the first snapshot": (Transaction, "_following"),
    "the handle": (TableHandle, "advance"),
}
VERBS: dict[str, Callable[[DeltaTable], Any]] = {
    "append": lambda table: table.append(rows(9)).version,
    "overwrite": lambda table: table.overwrite(rows(9)).version,
    "delete": lambda table: table.delete("id = 1").version,
    "set_properties": lambda table: table.set_properties({"a": "b"}).version,
    "write": lambda table: Dataset(table).write(rows(9)).version,
    "stream_write_records": lambda table: Dataset(table).stream_write_records([{"id": 9}]).version,
    "commit_staged": lambda table: table.commit_staged([table.stage(rows(9))]).version,
    "restore": lambda table: getattr(table.restore(0).commit, "version", None),
}


def broken(monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException) -> None:
    owner, name = AFTERWARDS[where]

    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(owner, name, fail)


@pytest.mark.parametrize("where", list(AFTERWARDS))
@pytest.mark.parametrize("verb", list(VERBS))
def test_a_verb_succeeds_when_its_commit_has_landed(
    verb: str, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))
    table.append(rows(2))
    with monkeypatch.context() as patch:
        broken(patch, where, MemoryError("no room"))
        assert VERBS[verb](table) == 2
    (record,) = caplog.records
    assert "version 2 is committed" in record.getMessage() and record.exc_info is not None
    assert table.snapshot().version == 2 and ids(table) == ids(DeltaTable.open(store))
    assert table.append(rows(50)).version == 3
    assert table.snapshot().files().num_rows == DeltaTable.open(store).snapshot().num_files


def test_a_table_is_created_and_its_handle_reads_it_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        broken(patch, "the first snapshot", RecursionError())
        table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1))
        dataset = Dataset(memory(), schema=SCHEMA, environment=environment())
        assert dataset.write(rows(1)).version == 0
    assert table.version == 0 and ids(table) == ids(dataset.table()) == [1]
    assert table.append(rows(2)).version == dataset.write(rows(2)).version == 1
    assert ids(table) == ids(dataset.table()) == [1, 2]


def test_a_version_that_could_not_be_built_is_read_when_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(MemoryStore):
        is_away = False

        def list_from(
            self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
        ) -> list[FileMeta]:
            if self.is_away:
                raise StoreError("away", path=directory)
            return super().list_from(directory, start, stat=stat, limit=limit)

    store = Away("memory://away")
    table = DeltaTable.create(store, SCHEMA, environment=environment(), data=rows(1))
    with monkeypatch.context() as patch:
        broken(patch, "the next snapshot", MemoryError())
        store.is_away = True
        written = Dataset(table).write(rows(2))
    assert (written.version, written.url, repr(written)) == (1, store.url, f"Snapshot(table={store.url!r}, version=1)")
    with pytest.raises(StoreError):
        written.files()
    with pytest.raises(AttributeError):
        written.nothing  # type: ignore[attr-defined]  # noqa: B018
    assert not written.is_time_travel
    store.is_away = False
    named = written.as_time_travel()
    assert named.num_files == 2 and named.is_time_travel and not written.is_time_travel
    assert sorted(written.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_an_interrupt_goes_through_and_the_handle_knows_the_commit() -> None:
    class Interrupted(MemoryStore):
        def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
            if path.endswith("1.crc"):
                raise KeyboardInterrupt
            super().put(path, data, durable=durable)

    store = Interrupted("memory://interrupted-after-commit")
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    with pytest.raises(KeyboardInterrupt) as raised, table.transaction() as transaction:
        transaction.write(rows(1).to_batches())
        transaction.commit()
    if sys.version_info >= (3, 11):
        assert "version 1 is committed" in raised.value.__notes__[0]
    assert transaction.committed is not None and transaction.committed.version == table.version == 1
    assert ids(table) == ids(DeltaTable.open(store)) == [1]


def test_a_warning_of_a_store_that_is_an_error_deletes_no_file_of_the_commit() -> None:
    class Warns(MemoryStore):
        def put_if_absent(self, path: str, data: bytes) -> Any:
            outcome = super().put_if_absent(path, data)
            if path.endswith("1.json"):
                warnings.warn("this client is old", DeprecationWarning, stacklevel=1)
            return outcome

    store = Warns("memory://warns")
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        with pytest.raises(DeprecationWarning):
            table.append(rows(1))
    assert ids(DeltaTable.open(store)) == [1]


class Broken(WrappedCoordinator):
    """Fails with an unexpected error."""

    methods: tuple[str, ...] = ()

    def _pass(self, method: str, about: str, action: Callable[[], Any]) -> Any:
        if method in self.methods:
            raise ZeroDivisionError(method)
        return super()._pass(method, about, action)


@pytest.mark.parametrize("method", ["published", "delete_parts"])
def test_commits_of_a_catalog_succeed_when_they_are_ratified(method: str) -> None:
    coordinator = Broken(MemoryCoordinator())
    manager: TransactionManager = bank(coordinator, Clock())
    coordinator.methods = (method,)
    assert manager.table(A).append(accounts((3, 30))).version == 1
    with manager.transaction() as transaction:
        transaction.table(A).append(accounts((4, 40)))
        transaction.table(B).append(accounts((5, 50)))
        assert transaction.commit().value == "COMMITTED"
    coordinator.methods = ()
    manager.recover()
    assert content(manager.table(A)) == [(1, 100), (2, 50), (3, 30), (4, 40)] and content(manager.table(B)) == [(5, 50)]
    assert manager.table(B).append(accounts((6, 60))).version == 2


def test_a_transaction_that_is_cancelled_is_so_whatever_clean_up_meets() -> None:
    coordinator = Broken(MemoryCoordinator())
    manager: TransactionManager = bank(coordinator, Clock())
    transaction = manager.transaction()
    transaction.table(A).append(accounts((3, 30)))
    coordinator.methods = ("delete_parts",)
    transaction.cancel()
    assert manager.describe_transaction(transaction.id).status.value == "ABORTED"


def test_nothing_is_written_twice_after_a_commit_whose_handle_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment())
    with monkeypatch.context() as patch:
        broken(patch, "the handle", MemoryError())
        for number in itertools.islice(itertools.count(1), 3):
            assert table.append(rows(number)).version == number
    assert ids(table) == [1, 2, 3]
    assert sum(path.endswith(".parquet") for path in objects(store)) == 3


@pytest.mark.parametrize("existing", [False, True])
def test_a_table_that_is_in_the_catalog_is_reported_so_whatever_comes_after(existing: bool) -> None:
    coordinator = Broken(MemoryCoordinator())
    manager, url = TransactionManager(coordinator, environment=environment()), memory().url
    coordinator.methods = ("head",)
    if existing:
        DeltaTable.create(url, SCHEMA, environment=environment(), data=rows(1))
        table = manager.register_table("bank.late", url)
    else:
        table = manager.create_table("bank.late", url, SCHEMA, data=rows(1))
    assert table.version == int(existing)
    coordinator.methods = ()
    assert table.append(rows(2)).version == table.version and ids(table) == [1, 2]
    assert handle_of(manager.table("bank.late")) is handle_of(table)
