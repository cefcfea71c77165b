"""Tests upgrades of catalogs: from each earlier version with data, and interrupted at each step. Earlier versions
of deltalog refuse an upgraded catalog, even if they had it open when it was upgraded.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltalog.catalog import dynamodb, sqlite_file
from deltalog.catalog.dynamodb import DynamoDBCoordinator
from deltalog.catalog.records import Document, DocumentChange, Marking, Ratification, TransactionStatus
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import CoordinatorError, EntityNotFoundError
from deltalog.server.settings import Settings
from deltalog.testing.coordinator_cases import commit, proposal, table, transaction
from tests.support.cli import run
from tests.support.s3 import Server
from tests.support.s3.dynamodb import client, new_table
from tests.support.server import Served
from tests.support.server.access import serving
from tests.support.transactions import earlier_catalogs
from tests.support.transactions.earlier_catalogs import COMMITS, PARTS, RATIFY, TABLES, VERSIONS
from tests.support.waiting import until

NEWER = sqlite_file.SCHEMA_VERSION + 1


def version_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def set_version(path: Path, version: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {version}")
        database.commit()


def content_of(path: Path) -> dict[str, list[Any]]:
    """The rows with the columns of an earlier version, whatever version the file has now."""
    columns = {
        "catalog": "catalog_id",
        "tables": "table_id, name, url, created_ms, version",
        "commits": "table_id, version, file, in_commit_timestamp_ms, size_bytes, txn_id",
        "transactions": "*",
        "parts": "*",
    }
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {
            name: sorted(database.execute(f"SELECT {found} FROM {name}").fetchall()) for name, found in columns.items()
        }


def check_upgraded(path: Path, version: int) -> None:
    """Check that everything in the earlier catalog is still there and works."""
    catalog = SQLiteCoordinator(path, create=False)
    assert catalog.catalog_id == "the id"
    assert [each.name for each in catalog.tables()] == [f"sales.t{number}" for number in range(1, TABLES + 1)]
    head = catalog.head("id-1")
    assert head is not None and (head.version, len(head.unpublished)) == (COMMITS, COMMITS)
    assert (head.metadata_version, head.metadata_ms) == (COMMITS, None)
    assert head.unpublished[1].file == f"{2:020d}.x.json" and head.unpublished[1].txn_id == "txn-2"
    active = catalog.transaction("active")
    assert active is not None and active.pins == {"id-1": 3} and active.looks == 0
    assert len(catalog.parts("active")) == PARTS
    assert [each.id for each in catalog.transactions(frozenset({TransactionStatus.COMMITTED}))] == ["done"]
    marks = catalog.marks("id-1")
    assert (marks.last, len(marks.markings)) == ((7, 1) if version >= 2 else (0, 0))
    assert catalog.ratify(proposal({"id-1": COMMITS + 1})) is Ratification.RATIFIED
    assert catalog.change_documents([DocumentChange("kind", "key", 0, "{}")])
    assert catalog.document("kind", "key") == Document("kind", "key", "{}", 1)
    catalog.close()


# ------------------------------------------------------------------------------------------------- forward


def test_a_check_of_the_configuration_upgrades_nothing(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    earlier_catalogs.make(path, 2)
    found = json.loads(run("serve", path, "--port", 0, "--check-config", "--check-catalog", "--json").out)
    assert found["ok"] and any("The start of the server upgrades it" in each for each in found["warnings"])
    assert version_of(path) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_an_earlier_catalog_is_upgraded_with_its_data(tmp_path: Path, version: int) -> None:
    path = tmp_path / "catalog.db"
    earlier_catalogs.make(path, version)
    before = content_of(path)
    SQLiteCoordinator(path).close()
    assert version_of(path) == sqlite_file.SCHEMA_VERSION
    assert content_of(path) == before
    check_upgraded(path, version)


# Opens the catalog in a child process, which is killed before it executes statement number n, for each n in turn.
KILLED = """
import json, os, shutil, signal, sys
from deltalog.catalog import sqlite_file
from deltalog.catalog.sqlite import SQLiteCoordinator

source, directory = sys.argv[1:]
connect = sqlite_file.SQLiteFile._connect
left = 0

def count(statement):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1

def connecting(self, mode):
    connection = connect(self, mode)
    connection.set_trace_callback(count)
    return connection

sqlite_file.SQLiteFile._connect = connecting
statuses = []
while not statuses or statuses[-1] != 0:
    path = f"{directory}/{len(statuses)}.db"
    shutil.copy(source, path)
    left = len(statuses)
    child = os.fork()
    if child == 0:
        SQLiteCoordinator(path).close()
        os._exit(0)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(statuses))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgrade_that_is_killed_has_changed_all_or_nothing(tmp_path: Path, version: int) -> None:
    source = tmp_path / "source.db"
    earlier_catalogs.make(source, version)
    before = content_of(source)
    command = [sys.executable, "-c", KILLED, str(source), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    statuses = json.loads(done.stdout)
    assert statuses == [-9] * (len(statuses) - 1) + [0]
    found = []
    for number in range(len(statuses)):
        path = tmp_path / f"{number}.db"
        assert content_of(path) == before
        found.append(version_of(path))
        check_upgraded(path, version)
    upgraded = found.index(sqlite_file.SCHEMA_VERSION)
    assert found == [version] * upgraded + [sqlite_file.SCHEMA_VERSION] * (len(found) - upgraded)
    assert upgraded > len(sqlite_file._DOCUMENTS)  # processes were killed at each statement


def test_processes_that_upgrade_at_once_upgrade_once(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    earlier_catalogs.make(path, 1)
    program = "import sys; from deltalog.catalog.sqlite import *; print(SQLiteCoordinator(sys.argv[1]).catalog_id)"
    command = [sys.executable, "-c", program, str(path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["the id\n"] * 4
    check_upgraded(path, 1)


# ---------------------------------------------------------------------------------------- two versions at a time


@pytest.mark.parametrize("version", VERSIONS)
def test_an_earlier_program_cannot_commit_to_an_upgraded_catalog(tmp_path: Path, version: int) -> None:
    """The earlier program has the file open, and executes its statements for a commit."""
    path = tmp_path / "catalog.db"
    earlier_catalogs.make(path, version)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as earlier:
        assert earlier.execute("SELECT version FROM tables WHERE table_id = 'id-1'").fetchone() == (COMMITS,)
        SQLiteCoordinator(path).close()
        earlier.execute("BEGIN IMMEDIATE")
        earlier.execute(RATIFY[0], (COMMITS + 1, "id-1"))
        with pytest.raises(sqlite3.OperationalError, match="has 8 columns but 6 values"):
            earlier.execute(RATIFY[1], ("id-1", COMMITS + 1, "x.json", 1, 1, "txn"))
        earlier.execute("ROLLBACK")
    check_upgraded(path, version)


def test_a_catalog_that_is_upgraded_while_it_is_open_takes_no_change(tmp_path: Path) -> None:
    """A process of this version still runs while one of a newer version upgrades the catalog."""
    path = tmp_path / "catalog.db"
    catalog = SQLiteCoordinator(path)
    catalog.register(table(1), 0)
    assert catalog.ratify(proposal({"id-1": 1})) is Ratification.RATIFIED
    set_version(path, NEWER)
    message = f"schema version {NEWER}; this one supports {sqlite_file.SCHEMA_VERSION}.*upgrade deltalog"
    for change in (
        lambda: catalog.ratify(proposal({"id-1": 2})),
        lambda: catalog.insert(transaction("t")),
        lambda: catalog.change_documents([DocumentChange("kind", "key", 0, "{}")]),
        lambda: catalog.register(table(2), 0),
        lambda: catalog.published("id-1", 1),
    ):
        with pytest.raises(CoordinatorError, match=message):
            change()
    set_version(path, sqlite_file.SCHEMA_VERSION)
    head = catalog.head("id-1")
    assert head is not None and head.version == 1
    assert catalog.ratify(proposal({"id-1": 2})) is Ratification.RATIFIED


def test_a_server_whose_catalog_was_upgraded_is_not_ready(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The newer server upgrades the catalog when it starts. The earlier one says that it is not ready, and commits
    nothing; the newer one takes over."""
    path = tmp_path / "catalog.db"
    with serving(path, Settings(recover_seconds=0)) as first:
        earlier = Served(first.url, None)  # type: ignore[arg-type]
        assert earlier.ask("POST", "/StartTransaction", {})[0] == 200
        set_version(path, NEWER)
        status, answer = earlier.ask("POST", "/StartTransaction", {})
        assert status == 500 and answer["__type"] == "InternalServiceException"
        until(lambda: earlier.ask("GET", "/health/ready")[0] == 503)
        assert earlier.ask("GET", "/health/live")[0] == 200
        set_version(path, sqlite_file.SCHEMA_VERSION)  # stands for the newer program
        with serving(path, Settings(recover_seconds=0)) as second:
            newer = Served(second.url, None)  # type: ignore[arg-type]
            assert newer.ask("GET", "/health/ready")[0] == 200
            started = newer.ask("POST", "/StartTransaction", {})[1]["TransactionId"]
            first.server.stop()
            assert newer.ask("POST", "/CommitTransaction", {"TransactionId": started})[0] == 200
    assert "upgraded by a newer deltalog" in caplog.text


def test_records_with_fields_of_a_newer_version_are_read() -> None:
    """A later version of deltalog may add fields to records without a new schema version, if it is harmless that
    programs of this version drop these fields.
    """
    for record in (transaction("t"), commit(1), table(1), Marking("t", 1, ("a",))):
        more = {**msgspec.json.decode(msgspec.json.encode(record)), "new": {"a": 1}}
        assert msgspec.json.decode(msgspec.json.encode(more), type=type(record)) == record


# ------------------------------------------------------------------------------------------------ backwards


def test_a_newer_catalog_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    SQLiteCoordinator(path).close()
    set_version(path, NEWER)
    before = path.read_bytes()
    for command in (("tables", "list"), ("serve", "--port=0"), ("catalog", "upgrade")):
        done = run(*command, path, "--json")
        assert done.status == 1
        message = json.loads(done.err)["message"]
        assert f"schema version {NEWER}; this one supports {sqlite_file.SCHEMA_VERSION}): upgrade deltalog" in message
    done = run("catalog", "info", path, "--json")
    assert json.loads(done.out) == {"url": str(path), "kind": "SQLite", "version": NEWER, "supported": NEWER - 1}
    assert path.read_bytes() == before


# ---------------------------------------------------------------------------------------------- the commands


def test_the_commands(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    earlier_catalogs.make(path, 2)
    before = content_of(path)
    found = {"url": str(path), "kind": "SQLite", "version": 2, "supported": sqlite_file.SCHEMA_VERSION}
    assert json.loads(run("catalog", "info", path, "--json").out) == found
    assert version_of(path) == 2
    assert json.loads(run("catalog", "upgrade", path, "--json").out) == {**found, "upgraded": True}
    assert version_of(path) == sqlite_file.SCHEMA_VERSION and content_of(path) == before
    assert json.loads(run("catalog", "upgrade", path, "--json").out)["upgraded"] is False
    assert "already has version 3" in run("catalog", "upgrade", path).out
    assert "SQLite" in run("catalog", "info", path).out
    for command in ("info", "upgrade"):
        assert json.loads(run("catalog", command, tmp_path / "none.db", "--json").err)["code"] == "ENTITY_NOT_FOUND"
        (tmp_path / "text").write_text("no database " * 1000)
        assert json.loads(run("catalog", command, tmp_path / "text", "--json").err)["error"] == "CoordinatorError"
    assert sorted(os.listdir(tmp_path)) == ["catalog.db", "text"]


# ------------------------------------------------------------------------------------------------- DynamoDB


def earlier_format(server: Server, name: str, version: int) -> None:
    """Make a catalog with data, and remove from it what later formats added."""
    catalog = DynamoDBCoordinator(name, server.options())
    catalog.register(table(1), 0)
    catalog.insert(transaction("active"))
    assert catalog.ratify(proposal({"id-1": 1})) is Ratification.RATIFIED
    items = client(server)
    head = {"pk": {"S": "heads"}, "sk": {"S": "id-1"}}
    items.update_item(TableName=name, Key=head, UpdateExpression="REMOVE metadata, marks")
    items.update_item(
        TableName=name,
        Key={"pk": {"S": "catalog"}, "sk": {"S": "catalog"}},
        UpdateExpression="SET #f = :v REMOVE staged",
        ExpressionAttributeNames={"#f": "format"},
        ExpressionAttributeValues={":v": {"N": str(version)}},
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_catalog_in_dynamodb_is_upgraded_on_request(ministack: Server, version: int) -> None:
    """Opening the catalog does not upgrade it, because earlier programs on other machines would not notice."""
    name = new_table(ministack, "catalog")
    earlier_format(ministack, name, version)
    before = client(ministack).scan(TableName=name)["Items"]
    with pytest.raises(CoordinatorError) as raised:
        DynamoDBCoordinator(name, ministack.options())
    assert f"has format {version}" in str(raised.value) and f"needs {dynamodb.FORMAT}" in str(raised.value)
    assert f"deltalog catalog upgrade dynamodb:{name}" in str(raised.value)
    assert client(ministack).scan(TableName=name)["Items"] == before
    given = [f"--option={key}={value}" for key, value in ministack.options().items() if isinstance(value, str)]
    given += ["--option=client_kwargs.region_name=us-east-1"]
    info = json.loads(run("catalog", "info", f"dynamodb:{name}", *given, "--json").out)
    assert (info["kind"], info["version"], info["supported"]) == ("DynamoDB", version, dynamodb.FORMAT)
    done = run("catalog", "upgrade", f"dynamodb:{name}", *given, "--json")
    assert json.loads(done.out)["upgraded"] is True
    catalog = DynamoDBCoordinator(name, ministack.options())
    head = catalog.head("id-1")
    assert head is not None and (head.version, head.metadata_version) == (1, None)
    assert catalog.transaction("active") == transaction("active")
    assert catalog.ratify(proposal({"id-1": 2})) is Ratification.RATIFIED


def test_of_two_upgrades_one_upgrades(ministack: Server) -> None:
    name = new_table(ministack, "catalog")
    earlier_format(ministack, name, 2)
    for _ in range(2):
        DynamoDBCoordinator(name, ministack.options(), upgrade=True)
    assert dynamodb.format_of(name, ministack.options()) == dynamodb.FORMAT
    with pytest.raises(EntityNotFoundError, match="no catalog"):
        dynamodb.format_of(new_table(ministack, "catalog"), ministack.options())


def test_the_files_of_earlier_versions_are_whole(tmp_path: Path) -> None:
    """Checks the test data: a copy of the database file alone is complete."""
    for version in VERSIONS:
        path = tmp_path / f"{version}.db"
        earlier_catalogs.make(path, version)
        shutil.copy(path, tmp_path / "copy.db")
        assert content_of(tmp_path / "copy.db") == content_of(path)
        assert len(content_of(path)["commits"]) == COMMITS
