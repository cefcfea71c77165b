"""One ManagedTransaction for each transaction in a manager: shared by threads, and let go of when it is over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import TransactionManager

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


def test_recovery_lets_go_of_what_others_ended(tmp_path: Path) -> None:
    manager, other = (TransactionManager(str(tmp_path / "catalog.db")) for _ in range(2))
    ended, going_on = manager.transaction(), manager.transaction()
    other.cancel_transaction(ended.id)
    assert manager.transaction(ended.id) is ended
    manager.recover()
    assert manager.transaction(ended.id) is not ended
    assert manager.transaction(going_on.id) is going_on
