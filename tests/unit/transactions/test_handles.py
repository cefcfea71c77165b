"""A manager has one ManagedTransaction for each transaction. Threads share this object, and the manager releases it
when the transaction ends."""

from __future__ import annotations

import contextlib
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import TransactionManager
from deltalog.errors import TransactionStateError
from deltalog.transactions.manager import VirtualObject

SCHEMA = pa.schema([("id", pa.int64())])
TABLES = ("a", "b", "c")
ROUNDS = 10


@pytest.mark.parametrize("is_new", [True, False], ids=["started here", "started elsewhere"])
def test_threads_change_tables_of_one_transaction(is_new: bool, tmp_path: Path) -> None:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    for name in TABLES:
        manager.create_table(f"bank.{name}", str(tmp_path / name), SCHEMA)
    transaction = manager.transaction() if is_new else manager.transaction(manager.start_transaction())

    def work(name: str) -> None:
        table = transaction.table(f"bank.{name}")
        for number in range(ROUNDS):
            table.append(pa.table({"id": [number]}))
            for other in TABLES:
                transaction.table(f"bank.{other}")

    with ThreadPoolExecutor(len(TABLES)) as threads:
        list(threads.map(work, TABLES))
    transaction.commit()
    for name in TABLES:
        found = manager.table(f"bank.{name}").snapshot().scan().to_arrow()["id"].to_pylist()
        assert sorted(found) == list(range(ROUNDS))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ends", ["commit", "cancel"])
@pytest.mark.parametrize("look", ["recover", "describe", "take up", "commit", "delete objects"])
def test_a_handle_goes_when_its_manager_sees_that_it_is_over(look: str, ends: str, tmp_path: Path) -> None:
    manager, other = (TransactionManager(str(tmp_path / "catalog.db")) for _ in range(2))
    ended, going_on = manager.transaction(), manager.transaction()
    transaction_id, handle = ended.id, weakref.ref(ended)
    del ended
    gc.collect()
    assert handle() is not None  # the handle is kept for calls that pass only the transaction's id
    getattr(other, f"{ends}_transaction")(transaction_id)
    with contextlib.suppress(TransactionStateError):
        if look == "recover":
            manager.recover()
        elif look == "describe":
            manager.describe_transaction(transaction_id)
        elif look == "take up":
            manager.transaction(transaction_id)
        elif look == "commit":
            manager.commit_transaction(transaction_id)
        else:
            manager.delete_objects_on_cancel(transaction_id, "bank.a", [VirtualObject("x")])
    gc.collect()
    assert handle() is None
    assert manager.transaction(going_on.id) is going_on
