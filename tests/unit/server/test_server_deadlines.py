"""When the work of an abandoned call ends, the lane of that call becomes free."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from deltalog import StoreError, TransactionManager, deadline
from deltalog.catalog.records import StatusFilter
from deltalog.server.app import App, Limits
from deltalog.transactions.table_objects import ObjectPage
from deltalog.transactions.unity.settings import UnitySettings
from tests.support.server import SCHEMA, add

TABLE = {"DatabaseName": "bank", "TableName": "t"}


class Endless(TransactionManager):
    """A call that reads its table again and again, like a call on a table with a very long log or on a slow store."""

    def get_table_objects(self, name: str, *_: Any, **__: Any) -> ObjectPage:
        while True:
            self._tables.store(self._tables.record(name)).list_names("_delta_log")


def answers_to(app: App, *calls: tuple[str, dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Make the calls at once. Returns the responses, and checks that the lanes are empty afterwards."""

    async def one(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        scope = {"type": "http", "method": "POST", "raw_path": path.encode(), "headers": []}
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])

    async def all_of_them() -> list[tuple[int, dict[str, Any]]]:
        found = await asyncio.gather(*[one(path, body) for path, body in calls])
        end = time.monotonic() + 30
        while app._stores._lanes and time.monotonic() < end:
            await asyncio.sleep(0.01)
        assert not app._stores._lanes, "an abandoned call still runs"
        return found

    try:
        return asyncio.run(all_of_them())
    finally:
        app.close()


def create(kind: type[TransactionManager], tmp_path: Path) -> TransactionManager:
    manager = kind(str(tmp_path / "catalog.db"))
    manager.create_table("bank.t", str(tmp_path / "t"), SCHEMA, partition_by=["day"])
    return manager


def test_work_that_outlives_its_call_is_ended(tmp_path: Path) -> None:
    manager = create(Endless, tmp_path)
    answers = answers_to(
        App(manager, Limits(request_seconds=0.3, slow_seconds=0.1)), *[("/GetTableObjects", TABLE)] * 20
    )
    assert {answer["__type"] for _, answer in answers} <= {"OperationTimeoutException", "ServiceUnavailableException"}
    assert "OperationTimeoutException" in {answer["__type"] for _, answer in answers}


def test_calls_of_one_transaction_wait_for_each_other_no_longer_than_they_may(tmp_path: Path) -> None:
    manager = create(TransactionManager, tmp_path)
    transaction = manager.transaction()
    holds, release = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.alone():
            holds.set()
            release.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(60)
    try:
        body = {**TABLE, "TransactionId": transaction.id, "WriteOperations": [add(tmp_path / "t", "a.parquet", 1)]}
        limits = Limits(request_seconds=0.3, slow_seconds=0.1)
        ((_, answer),) = answers_to(App(manager, limits), ("/UpdateTableObjects", body))
        assert answer["__type"] in ("OperationTimeoutException", "InternalServiceException")
    finally:
        release.set()
        holder.join(60)
    assert manager.describe_transaction(transaction.id).status.value == "ACTIVE"


def test_every_read_of_a_table_of_a_catalog_ends_in_time(tmp_path: Path) -> None:
    """At the deadline of a call, the reads of threads that work for the call are ended too; the effect is the same as
    that of any store failure."""
    manager = create(TransactionManager, tmp_path)
    table = manager.table("bank.t")
    files = [add(tmp_path / "t", f"{number}.parquet", number)["AddObject"] for number in range(3)]
    store = table.snapshot().reader.store
    ended = (
        lambda: store.get("_delta_log/00000000000000000000.json"),
        lambda: store.get_many(["_delta_log/00000000000000000000.json"]),
        lambda: store.head("_delta_log/00000000000000000000.json"),
        lambda: store.list_from("_delta_log"),
        lambda: store.list_names("_delta_log"),
        lambda: store.open_input("0.parquet"),
    )
    with deadline.until(time.monotonic() - 1):
        for read in ended:
            with pytest.raises(StoreError, match="took longer"):
                read()
        with pytest.raises(StoreError, match="took longer"):
            deadline.carried(store.get)("_delta_log/00000000000000000000.json")
    assert deadline.carried(len)(files) == 3
    assert manager.table("bank.t").snapshot().version == 0


@pytest.mark.parametrize("what", ["tables", "documents", "transactions"])
def test_a_listing_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """The listing is like that of a catalog with very many items, of which each page comes quickly."""
    manager = create(TransactionManager, tmp_path)
    manager.transaction()
    coordinator, unity = manager.coordinator, manager.unity_tables(UnitySettings(warehouse=str(tmp_path / "w")))
    unity.register_external("bank.e", "s3://bucket/e", "DELTA", None, {}, [], None, ())
    real: dict[str, Any] = {name: getattr(coordinator, name) for name in ("tables", "documents", "transactions")}
    pages = 0

    def endless(*given: Any, **named: Any) -> list[Any]:
        nonlocal pages
        pages += 1
        first = given[:1] if what != "tables" else ()
        found: list[Any] = real[what](*first)
        return found

    monkeypatch.setattr(coordinator, what, endless)
    listings: dict[str, Any] = {
        "tables": lambda: manager.list_tables(),
        "documents": lambda: list(unity._external.all()),
        "transactions": lambda: list(manager._ledger.all(StatusFilter.ALL)),
    }
    with deadline.until(time.monotonic() + 0.2), pytest.raises(StoreError, match="took longer"):
        listings[what]()
    assert pages > 1


def test_a_listing_of_many_tables_ends_between_two_of_them(tmp_path: Path) -> None:
    manager = create(TransactionManager, tmp_path)
    unity = manager.unity_tables(UnitySettings())
    assert unity.listed("bank.t")
    with deadline.until(time.monotonic() - 1), pytest.raises(StoreError, match="took longer"):
        unity.listed("bank.t")
