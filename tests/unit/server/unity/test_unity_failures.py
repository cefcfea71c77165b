"""Failures of the catalog and of stores while a call runs: which error a client gets, in one process with injected
faults."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deltalog import TransactionManager
from deltalog.catalog.records import Proposal, Ratification, RatifiedCommit
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.server.app import App
from deltalog.server.limits import Limits
from deltalog.server.unity.credentials import Vendor
from deltalog.server.unity.service import Service
from deltalog.storage.fs import LocalStore
from deltalog.testing.coordinators import FaultyCoordinator
from deltalog.testing.stores import Call, Fault
from deltalog.transactions import external_commits
from deltalog.transactions.unity.settings import UnitySettings
from tests.support.server.unity import COLUMNS, ROOT, Response, Table, Unity


class InProcess(Unity):
    """Calls an App without a server. ``faults``: by the name of a coordinator's method, the fault of its next call."""

    def __init__(self, place: Path, limits: Limits | None = None) -> None:
        self.place = place
        self.faults: dict[str, Fault] = {}
        self.before = lambda call: None
        inner = SQLiteCoordinator(place / "catalog.db")
        self.coordinator = FaultyCoordinator(
            inner, lambda call: self.faults.pop(call.method, None), before=lambda call: self.before(call)
        )
        self.manager = TransactionManager(self.coordinator)
        self.tables = self.manager.unity_tables(UnitySettings(warehouse=str(place / "w")))
        self.app = App(self.manager, limits, unity=Service(self.tables, Vendor(), lambda table_id: None))

    def ask(self, method: str, path: str, body: Any = None) -> Response:
        return asyncio.run(self.answer(method, path, body))

    async def answer(self, method: str, path: str, body: Any = None) -> Response:
        sent: list[Any] = []
        data = b"" if body is None else json.dumps(body).encode()

        async def receive() -> Any:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        path, _, query = f"{ROOT}{path}".partition("?")
        scope = {
            "type": "http", "method": method, "raw_path": path.encode(), "query_string": query.encode(), "headers": [],
        }  # fmt: skip
        await self.app(scope, receive, send)
        return Response(sent[0]["status"], json.loads(sent[1]["body"]) if sent[1]["body"] else None)


@pytest.fixture
def unity(tmp_path: Path) -> Iterator[InProcess]:
    made = InProcess(tmp_path)
    made.tables.create_schema("s", None, {})
    yield made
    made.app.close()


@pytest.fixture
def table(unity: InProcess) -> Table:
    return unity.new_table()


@pytest.mark.parametrize("fault", [Fault.LOST_ACK, Fault.UNKNOWN_NOT_WRITTEN])
def test_an_unknown_outcome_is_told_as_such(unity: InProcess, table: Table, fault: Fault) -> None:
    add = table.stage()
    unity.faults = {"ratify": fault}
    assert table.update(add).error == (500, "CommitStateUnknownException")
    assert table.load()["latest-table-version"] == (1 if fault is Fault.LOST_ACK else 0)
    assert table.update(add).status == 200  # the same request settles it
    assert table.load()["latest-table-version"] == 1


@pytest.mark.parametrize("method", ["table", "document", "head", "ratify"])
def test_a_failing_catalog_commits_nothing(unity: InProcess, table: Table, method: str) -> None:
    add = table.stage()
    unity.faults = {method: Fault.FAIL_BEFORE}
    assert table.update(add).error == (500, "InternalServerErrorException")
    assert table.load()["latest-table-version"] == 0
    assert table.update(add).status == 200


def test_nothing_fails_after_a_ratification(unity: InProcess, table: Table) -> None:
    """What the server does after a ratification takes place in memory: the catalog and the store may have become
    unreachable."""
    add = table.stage()

    def after(call: Call) -> None:
        if call.method == "ratify":
            shutil.move(table.root, table.root.with_name("moved"))
            unity.before = fail

    def fail(call: Call) -> None:
        raise AssertionError(f"{call} after the ratification")

    unity.before = after
    found = table.update(add)
    unity.before = lambda call: None
    assert (found.status, found.body["latest-table-version"]) == (200, 1)
    shutil.move(table.root.with_name("moved"), table.root)
    assert table.load() == found.body


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_table_that_cannot_be_shown_is_mended_by_a_commit(unity: InProcess, table: Table, is_warm: bool) -> None:
    """It was committed past the API's checks."""
    table.commit()
    good = table.metadata()
    given = table.stage({"metaData": {**good, "schemaString": "junk", "partitionColumns": []}})["commit"]
    bad = RatifiedCommit(2, given["file-name"], given["timestamp"], given["file-size"], "t", changes_metadata=True)
    assert unity.coordinator.ratify(Proposal({table.id: (bad,)})) is Ratification.RATIFIED
    table.version, table.last_ms = 2, given["timestamp"]
    reader = unity if is_warm else InProcess(unity.place)
    table.unity = reader
    for path in (table.path, f"/tables/main.s.{table.name}"):
        assert reader.ask("GET", path).error == (400, "UnsupportedTableFormatException")
    listed = reader.ok("GET", "/tables?catalog_name=main&schema_name=s")["tables"]
    assert [each["table_id"] for each in listed] == [table.id]
    assert table.update(table.stage()).error == (400, "InvalidParameterValueException")
    assert table.commit({"metaData": good})["latest-table-version"] == 3
    assert table.load()["metadata"]["columns"] == COLUMNS
    assert reader.ask("DELETE", table.path).status == 204


def _backup(place: Path, name: str) -> None:
    with closing(sqlite3.connect(place / "catalog.db")) as source, closing(sqlite3.connect(place / name)) as target:
        source.backup(target)


def _restore(place: Path, name: str) -> None:
    with closing(sqlite3.connect(place / name)) as source, closing(sqlite3.connect(place / "catalog.db")) as target:
        source.backup(target)


def test_a_catalog_is_restored_under_a_running_server(unity: InProcess, table: Table) -> None:
    """What is kept in memory does not outlive its history."""
    _backup(unity.place, "before")
    before = table.load()
    table.commit({"metaData": table.metadata(configuration={"lost": "1"})})
    table.commit()
    _restore(unity.place, "before")
    assert table.load() == before
    again = Table(unity, "s", table.name, {"table-id": table.id, "location": table.location})
    again.last_ms = table.last_ms
    again.commit()
    again.commit()  # the lost version comes again, from others
    assert "lost" not in table.load()["metadata"]["properties"]


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("publishes", [True, False])
def test_another_history_reaches_the_same_version(
    unity: InProcess, table: Table, publishes: bool, more: int, tmp_path: Path
) -> None:
    """The server is not asked while the restored catalog is behind what it knows."""
    _backup(unity.place, "before")
    table.commit({"metaData": table.metadata(configuration={"lost": "1"})})
    table.commit()
    lost_ms = table.last_ms
    _restore(unity.place, "before")
    other = InProcess(unity.place)
    again = Table(other, "s", table.name, {"table-id": table.id, "location": table.location})
    again.last_ms = lost_ms + 5
    for _ in range(2 + more):
        again.commit()
    if publishes:
        assert other.manager.publish(f"s.{table.name}") == 2 + more
    found = table.load()
    assert (found["latest-table-version"], found["metadata"]["last-commit-version"]) == (2 + more, 0)
    assert "lost" not in found["metadata"]["properties"]
    assert found["metadata"]["etag"] == again.load()["metadata"]["etag"]


@pytest.mark.parametrize("damage", ["missing", "truncated", "another", "link"])
def test_a_staged_file_that_is_no_longer_the_ratified_one(unity: InProcess, table: Table, damage: str) -> None:
    name = table.commit()["commits"][0]["file-name"]
    staged, published = table.log / "_staged_commits" / name, table.log / f"{1:020d}.json"
    content = staged.read_bytes()
    staged.unlink()
    if damage in ("truncated", "another"):
        staged.write_bytes(content[:-9] if damage == "truncated" else b"{}")
    elif damage == "link":
        staged.symlink_to(table.root / "away")
    report = {"action": "set-latest-backfilled-version", "latest-published-version": 1}
    assert table.update(report).error == (400, "InvalidParameterValueException")
    assert not published.exists()
    assert table.load()["commits"][0]["file-name"] == name  # nothing is recorded as published
    staged.unlink(missing_ok=True)
    staged.write_bytes(content)
    assert table.update(report).status == 200
    assert published.read_bytes() == content
    second = table.commit()["commits"][0]["file-name"]
    (table.log / "_staged_commits" / second).write_bytes(b"{}")
    (table.log / "_staged_commits" / second).unlink() if damage == "missing" else None
    assert unity.ask("DELETE", table.path).status == 204  # its files are deleted anyway
    assert unity.ask("GET", table.path).status == 404


def test_a_staged_file_is_no_link(table: Table) -> None:
    """Who owns the target could change the commit after its ratification."""
    add = table.stage()
    staged = table.log / "_staged_commits" / add["commit"]["file-name"]
    staged.rename(table.root / "away.json")
    staged.symlink_to(table.root / "away.json")
    assert table.update(add).error == (400, "InvalidParameterValueException")
    staged.unlink()
    (table.root / "away.json").rename(staged)
    assert table.update(add).status == 200


def test_no_more_of_a_staged_file_is_read_than_its_writer_has_told(
    unity: InProcess, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = LocalStore.get

    def get(store: LocalStore, path: str, length: int | None = None) -> bytes:
        data = real(store, path, length)
        sizes.append(len(data))
        return data

    add = table.stage()
    staged = table.log / "_staged_commits" / add["commit"]["file-name"]
    good = staged.read_bytes()
    table.load()
    monkeypatch.setattr(LocalStore, "get", get)
    for content in (good + b" " * 1_000_000, good[:-9]):
        staged.write_bytes(content)
        assert table.update(add).error == (400, "InvalidParameterValueException")
    assert max(sizes) == len(good) + 1
    monkeypatch.setattr(external_commits, "MOST_PROPOSED_BYTES", len(good) - 1)
    staged.write_bytes(good)
    assert table.update(add).error == (400, "InvalidParameterValueException")
    monkeypatch.undo()
    assert table.update(add).status == 200


def test_version_0_is_no_link(unity: InProcess) -> None:
    path = "/delta/v1/catalogs/main/schemas/s"
    table = Table(unity, "s", "link", unity.ok("POST", f"{path}/staging-tables", {"name": "link"}))
    request = table.first()
    first = table.log / f"{0:020d}.json"
    first.rename(table.root / "away.json")
    first.symlink_to(table.root / "away.json")
    assert unity.ask("POST", f"{path}/tables", request).error == (400, "InvalidParameterValueException")


def test_a_commit_that_the_catalog_does_not_have(unity: InProcess, table: Table) -> None:
    """Another writer wrote it, or the catalog was restored from a backup. Clients repeat what fails with 500."""
    (table.log / f"{1:020d}.json").write_text("{}")
    assert table.update(table.stage()).error == (400, "InvalidParameterValueException")


@pytest.mark.parametrize("fault", [Fault.LOST_ACK, Fault.UNKNOWN_NOT_WRITTEN, Fault.FAIL_BEFORE])
def test_a_creation_whose_answer_is_lost_is_repeated(unity: InProcess, fault: Fault) -> None:
    staged = unity.ok("POST", "/delta/v1/catalogs/main/schemas/s/staging-tables", {"name": "t"})
    table = Table(unity, "s", "t", staged)
    request = table.first()
    unity.faults = {"register": fault}
    path = "/delta/v1/catalogs/main/schemas/s/tables"
    assert unity.ask("POST", path, request).error == (500, "InternalServerErrorException")
    assert unity.ok("POST", path, request)["metadata"]["table-uuid"] == table.id
    assert table.commit()["latest-table-version"] == 1


def test_a_document_that_changes_at_the_same_time(unity: InProcess, table: Table) -> None:
    """A comment is set between the read and the ratification: the commit is refused if it requires the earlier etag,
    and is applied after the comment if it requires none."""
    comment = {"action": "set-table-comment", "comment": "other"}
    etag = table.load()["metadata"]["etag"]

    def other(call: Call) -> None:
        if call.method == "ratify":
            unity.before = lambda call: None
            tables = TransactionManager(unity.coordinator.inner).unity_tables(unity.tables.settings)
            plan = {"requirements": [{"type": "assert-table-uuid", "uuid": table.id}], "updates": [comment]}
            from deltalog.server.unity.requests import decoded
            from deltalog.unity.messages import UpdateTable

            tables.update(f"s.{table.name}", decoded(json.dumps(plan).encode(), UpdateTable))

    add = table.stage()
    unity.before = other
    found = table.update(add, etag=etag)
    assert found.error == (409, "UpdateRequirementConflictException")
    assert table.load()["latest-table-version"] == 0
    unity.before = other
    comment["comment"] = "another"
    assert table.update(add, {"action": "set-table-comment", "comment": "mine"}).status == 200
    assert unity.ok("GET", f"/tables/main.s.{table.name}")["comment"] == "mine"


def test_a_failing_store_is_an_error_of_the_server(unity: InProcess, table: Table, tmp_path: Path) -> None:
    (table.log / f"{0:020d}.json").write_text("{")
    other = InProcess(tmp_path)  # it has not read the table yet
    found = other.ask("GET", table.path)
    assert found.error == (500, "InternalServerErrorException")
    assert str(tmp_path) not in found.body["error"]["message"]
    other.app.close()


def test_a_commit_for_which_there_is_no_time(tmp_path: Path) -> None:
    """A commit that was not begun is known to have had no effect; the outcome of one that is still running is
    unknown."""
    unity = InProcess(tmp_path, Limits(threads=1, request_seconds=0.5, slow_seconds=60))
    unity.tables.create_schema("s", None, {})
    table = unity.new_table()
    hang, begun = threading.Event(), threading.Event()

    def wait(call: Call) -> None:
        begun.set()
        assert hang.wait(60)

    async def scene() -> None:
        requirement = {"type": "assert-table-uuid", "uuid": table.id}
        body = {"requirements": [requirement], "updates": [table.stage()]}
        unity.before = wait
        first = asyncio.create_task(unity.answer("POST", table.path, body))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 60)
        second = await unity.answer("POST", table.path, body)
        assert second.error == (429, "TooManyRequestsException")
        assert "no effect" in second.body["message"]
        assert (await first).error == (500, "CommitStateUnknownException")
        unity.before = lambda call: None
        hang.set()

    asyncio.run(scene())
    unity.app.close()


def test_a_server_that_is_busy_says_so(tmp_path: Path) -> None:
    unity = InProcess(tmp_path, Limits(requests=1, threads=1))
    hang = threading.Event()
    begun = threading.Event()

    def wait(call: Call) -> None:
        begun.set()
        assert hang.wait(60)

    async def scene() -> None:
        unity.before = wait
        first = asyncio.create_task(unity.answer("GET", "/schemas/main.s"))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 60)
        second = await unity.answer("GET", "/schemas/main.s")
        assert second.error == (429, "TooManyRequestsException")
        hang.set()
        assert (await first).status == 404

    asyncio.run(scene())
    unity.app.close()
