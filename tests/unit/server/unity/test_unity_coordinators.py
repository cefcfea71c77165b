"""What the server does on each kind of catalog, without HTTP: SQLite, DynamoDB, and the one in memory."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from deltalog import TableExistsError, TransactionManager
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.dynamodb import DynamoDBCoordinator
from deltalog.catalog.postgresql import PostgresCoordinator
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import CommitConflictError, DeltaLogError, EntityNotFoundError, MetadataChangedError
from deltalog.server.unity.requests import decoded
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.unity.settings import UnitySettings
from deltalog.transactions.unity.tables import UnityTables
from deltalog.transactions.unity.views import ManagedView
from deltalog.unity.messages import UpdateTable
from tests.support.s3 import Server
from tests.support.s3.dynamodb import new_table
from tests.support.server.unity import Table


@pytest.fixture(params=["memory", "sqlite", "dynamodb", "postgresql"])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Coordinator:
    if request.param == "memory":
        return MemoryCoordinator()
    if request.param == "sqlite":
        return SQLiteCoordinator(tmp_path / "catalog.db")
    if request.param == "postgresql":
        return PostgresCoordinator(request.getfixturevalue("postgresql").empty_url())
    ministack: Server = request.getfixturevalue("ministack")
    return DynamoDBCoordinator(new_table(ministack, "catalog"), ministack.options())


@pytest.fixture
def tables(coordinator: Coordinator, tmp_path: Path) -> UnityTables:
    made = TransactionManager(coordinator).unity_tables(UnitySettings(warehouse=str(tmp_path / "w")))
    made.create_schema("s", None, {})
    return made


def create(tables: UnityTables, name: str) -> Table:
    staged = tables.stage(f"s.{name}")
    table = Table(None, "s", name, {"table-id": staged.table_id, "location": f"file://{staged.url}"})  # type: ignore[arg-type]
    table.first()
    tables.create_staged(f"s.{name}", table.location, None)
    return table


def update(tables: UnityTables, table: Table, *updates: Any, etag: str | None = None) -> ManagedView:
    requirements = [{"type": "assert-table-uuid", "uuid": table.id}]
    requirements += [{"type": "assert-etag", "etag": etag}] if etag else []
    body = json.dumps({"requirements": requirements, "updates": updates}).encode()
    found = tables.update(f"s.{table.name}", decoded(body, UpdateTable))
    assert isinstance(found, ManagedView)
    return found


def test_a_table_lives(tables: UnityTables, coordinator: Coordinator) -> None:
    table = create(tables, "t")
    view = tables.load("s.t")
    assert isinstance(view, ManagedView)
    assert (view.head.version, view.metadata_ms) == (0, table.last_ms)
    comment = {"action": "set-table-comment", "comment": "c"}
    add = table.stage({"metaData": table.metadata(configuration={"x": "1"})})
    made = update(tables, table, add, comment, etag=view.etag)
    assert (made.head.version, made.comment, made.metadata_version) == (1, "c", 1)
    assert made.etag != view.etag
    assert update(tables, table, add, comment, etag=view.etag) == tables.load("s.t") == made
    with pytest.raises(MetadataChangedError):
        update(tables, table, comment, etag=view.etag)
    with pytest.raises(CommitConflictError):
        update(tables, table, table.stage(version=1))
    another = TransactionManager(coordinator).unity_tables(tables.settings)
    assert another.load("s.t") == made
    published = {"action": "set-latest-backfilled-version", "latest-published-version": 1}
    assert update(tables, table, published).head.unpublished == ()
    tables.rename("s.t", "s.u")
    table.name = "u"
    with pytest.raises(EntityNotFoundError):
        tables.load("s.t")
    assert tables.names_after("s", "", 10) == ["s.u"]
    with pytest.raises(TableExistsError):
        tables.register_external("s.u", "s3://b/u", "DELTA", None, {}, [], None, ())
    tables.register_external("s.e", "s3://b/e", "DELTA", None, {}, [], None, ())
    with pytest.raises(TableExistsError):
        tables.rename("s.u", "s.e")
    assert tables.names_after("s", "", 10) == ["s.e", "s.u"]
    assert [each.name for each in tables.schemas_after("", 10)] == ["s"]
    tables.drop("s.e")
    tables.drop("s.u")
    tables.delete_schema("s")
    assert not tables.has_schema("s")
    assert coordinator.documents("table") == []
    assert [each.key for each in coordinator.documents("dropped")] == [table.id]


def test_names_are_given_once(tables: UnityTables, coordinator: Coordinator) -> None:
    """A managed and an external table of the same name are created at the same time: only one of the calls succeeds."""
    for number in range(5):
        name = f"n{number}"
        staged = tables.stage(f"s.{name}")
        table = Table(None, "s", name, {"table-id": staged.table_id, "location": f"file://{staged.url}"})  # type: ignore[arg-type]
        table.first()
        done: list[str] = []

        def attempt(kind: str, call: Any, done: list[str] = done) -> None:
            try:
                call()
                done.append(kind)
            except DeltaLogError:
                pass

        def managed(table: Table = table, name: str = name) -> None:
            tables.create_staged(f"s.{name}", table.location, None)

        def external(name: str = name) -> None:
            tables.register_external(f"s.{name}", f"s3://b/{name}", "DELTA", None, {}, [], None, ())

        threads = [
            threading.Thread(target=attempt, args=each) for each in (("managed", managed), ("external", external))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) <= 1
        is_external = coordinator.document("external", f"s.{name}") is not None
        assert (coordinator.table(f"s.{name}") is not None, is_external) == (done == ["managed"], done == ["external"])
