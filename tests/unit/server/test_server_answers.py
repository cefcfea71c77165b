"""Tests of responses (what they contain, and what is written only to the server's log), of the health check, and of
tokens and lengths."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, TransactionManager
from deltalog.catalog import records
from deltalog.catalog.dynamodb import DynamoDBCoordinator
from deltalog.errors import EntityNotFoundError
from deltalog.server import health as health_module
from deltalog.server.answers import without_places
from deltalog.server.app import App
from deltalog.server.logs import LineFormatter
from deltalog.testing.coordinator_cases import transaction
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator
from deltalog.testing.stores import Call
from tests.support.s3 import Server as Store
from tests.support.s3.dynamodb import new_table
from tests.support.server import AT_ONCE, SCHEMA, Served, served

TABLE = {"DatabaseName": "bank", "TableName": "a"}


# ----------------------------------------------------------------------------------------------- places and logs


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("There is no table at /data/secret/t: check", "There is no table at …/t: check"),
        ("The catalog sqlite:///data/c.db has no table", "The catalog …/c.db has no table"),
        ("catalog:/data/c.db#bank.a is no table", "…/c.db#bank.a is no table"),
        ("catalog:dynamodb:name#bank.a", "catalog:dynamodb:name#bank.a"),
        ("cannot read '/data/my tables/x': No such file", "cannot read '…/x': No such file"),
        ('got "/data/it\'s/x"', 'got "…/x"'),
        ("root /known place/t, and /known place/t/_delta_log", "root …/t, and …/t/_delta_log"),
        ("file:///data/t/x.parquet is gone", "…/x.parquet is gone"),
        ("'/said/by/caller' is not below /srv/t", "'/said/by/caller' is not below …/t"),
        ("s3://bucket/a/b: 3/4 of and/or x/y", "s3://bucket/a/b: 3/4 of and/or x/y"),
        ("(/data/t)", "(…/t)"),
        ("_delta_log/00000000000000000001.json", "_delta_log/00000000000000000001.json"),
    ],
)
def test_the_directories_of_the_server_are_left_out(text: str, shown: str) -> None:
    assert without_places(text, "{'Uri': '/said/by/caller'}", ["/known place/t"]) == shown


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path, Path]]:
    """Returns three values: a server whose table bank.a has an unreadable log, the directory of that table, and the
    server's log."""
    place = tmp_path_factory.mktemp("the place")
    manager = TransactionManager(str(place / "catalog.db"))
    for name in ("a", "b"):
        manager.create_table(f"bank.{name}", str(place / name), SCHEMA, partition_by=["day"])
    manager.coordinator.close()
    log = place / "a" / "_delta_log"
    (log / f"{0:020d}.crc").unlink()
    (log / f"{0:020d}.json").write_text("{")
    with served(place / "catalog.db", "--set=recovery.every_seconds=0", log=place / "log") as server:
        yield server, place, place / "log"


UNITY = "/api/2.1/unity-catalog/delta/v1/catalogs/main/schemas/bank/tables"
ASKED: dict[str, tuple[str, str, Any, int]] = {
    "a broken log": ("POST", "/GetTableObjects", TABLE, 400),
    "a broken log, of a Delta client": ("GET", f"{UNITY}/a", None, 500),
    "a broken log, of a general client": ("GET", "/api/2.1/unity-catalog/tables/main.bank.a", None, 500),
    "no table, of a Delta client": ("GET", f"{UNITY}/none", None, 404),
    "no table": ("POST", "/GetTableObjects", {**TABLE, "TableName": "none"}, 400),
    "no transaction": ("POST", "/DescribeTransaction", {"TransactionId": "none"}, 400),
    "a file elsewhere": (
        "POST",
        "/UpdateTableObjects",
        {**TABLE, "TableName": "b", "WriteOperations": [{"DeleteObject": {"Uri": "/etc/passwd"}}]},
        400,
    ),
}


@pytest.mark.parametrize("asked", ASKED)
def test_answers_show_no_directory_and_the_log_has_all_by_the_id_of_the_request(
    broken: tuple[Served, Path, Path], asked: str
) -> None:
    server, place, log = broken
    method, path, body, status = ASKED[asked]
    connection = server.connection()
    connection.request(method, path, json.dumps(body).encode())
    answer = connection.getresponse()
    said, request_id = answer.read().decode(), answer.getheader("x-amzn-requestid")
    connection.close()
    assert answer.status >= status and request_id
    assert "the place" not in said and str(place.parent) not in said, said
    if asked == "a file elsewhere":
        assert "/etc/passwd" in said
    lines = [line for line in log.read_text().splitlines() if request_id in line]
    assert len(lines) == 1 and lines[0][:4].isdigit(), lines


def test_a_traceback_has_no_line_that_looks_like_one_of_the_log() -> None:
    said = "2026-11-20T10:00:00.250Z ERROR deltalog.server.app: all is lost"
    try:
        raise ValueError(f"no number: {said}\r\n{said}\u2028{said}")
    except ValueError:
        record = logging.LogRecord("deltalog", logging.ERROR, "", 1, f"failed\n{said}", None, sys.exc_info())
    lines = LineFormatter().format(record).splitlines()
    assert len(lines) > 3 and "failed" in lines[0] and "ValueError: no number" in "".join(lines)
    assert [line for line in lines if not line.startswith("  ")] == lines[:1]


def test_a_catalog_that_is_destroyed_is_told_and_logged(tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.db"
    TransactionManager(str(catalog)).coordinator.close()
    with served(catalog, log=tmp_path / "log") as server:
        assert server.ask("GET", "/health") == (200, {"status": "ok"})
        os.truncate(catalog, 8192)
        for ending in ("-wal", "-shm"):
            Path(f"{catalog}{ending}").unlink(missing_ok=True)
        status, answer = server.ask("POST", "/StartTransaction", {})
        assert status == 500 and "malformed" in answer["Message"] and str(tmp_path) not in answer["Message"]
        while (found := server.ask("GET", "/health"))[0] == 200:  # called within the same second
            pass
        assert found == (503, {"status": "failing", "failing": "catalog", "code": "COORDINATOR"})
    errors = [line for line in (tmp_path / "log").read_text().splitlines() if " ERROR deltalog.server" in line]
    assert any("StartTransaction" in line and str(catalog) in line for line in errors)


def test_a_catalog_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "_HEALTH_SECONDS", 0.05)
    answers = threading.Event()

    def wait(call: Call) -> None:
        answers.wait(60)

    made = App(TransactionManager(FaultyCoordinator(MemoryCoordinator(), before=wait)))

    async def health() -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "raw_path": b"/health", "headers": []}
        await made(scope, None, send)  # type: ignore[arg-type]
        return sent

    async def scene() -> None:
        start, body = await health()
        assert start["status"] == 503 and json.loads(body["body"])["code"] == "OPERATION_TIMEOUT"
        answers.set()
        monkeypatch.setattr(health_module, "_HEALTH_CACHE_SECONDS", 0)
        monkeypatch.setattr(health_module, "_HEALTH_SECONDS", 60)
        assert (await health())[0]["status"] == 200

    asyncio.run(scene())
    made.close()


def test_what_callers_send_is_one_line_of_the_log(broken: tuple[Served, Path, Path]) -> None:
    server, _, log = broken
    server.ask("POST", "/DescribeTransaction", {"TransactionId": "x\u2028\u0085y"})
    line = log.read_text().splitlines()[-1]
    assert "DescribeTransaction" in line and "\\u2028" in line


# ------------------------------------------------------------------------------------------------ tokens, lengths


def test_a_token_is_accepted_whatever_was_asked(tmp_path: Path) -> None:
    """The longest predicate that AWS's service model allows, written in three-byte characters, and paths of 1,000
    bytes."""
    towns = [f"{'漢' * 25}{number}" for number in range(6)]
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    schema = pa.schema([("id", pa.int64()), ("town", pa.string()), ("part", pa.string())])
    data = pa.table({"id": list(range(6)), "town": towns, "part": [f"{'é' * 40}%/{n}" for n in range(6)]}, schema)
    manager.create_table("bank.a", str(tmp_path / "a"), schema, partition_by=["town", "part"], data=data)
    where = f"town in ('{towns[0]}', '{towns[1]}', '{towns[2]}'"
    while len(where) < 2048 - 40:
        where += f", '{'字' * 28}'"
    where += ")"
    with served(tmp_path / "catalog.db") as server:
        client = server.client(config=AT_ONCE)
        transaction_id = client.start_transaction()["TransactionId"]
        for options in ({}, {"PartitionPredicate": where}, {"TransactionId": transaction_id}):
            found: list[str] = []
            token: dict[str, str] = {}
            while True:
                page = client.get_table_objects(**TABLE, MaxResults=1, **options, **token)
                found += [each["Uri"] for part in page["Objects"] for each in part["Objects"]]
                if "NextToken" not in page:
                    break
                token = {"NextToken": page["NextToken"]}
                assert len(page["NextToken"]) < 200
            assert len(found) == len(set(found)) == (3 if "PartitionPredicate" in options else 6)


@pytest.mark.parametrize("text", ["x" * 255, "é" * 127, "\U0001f600" * 63])
def test_the_longest_ids_and_names_fit_into_all_catalogs(text: str, ministack: Store) -> None:
    coordinator = DynamoDBCoordinator(new_table(ministack, "catalog"), ministack.options())
    assert records.check_transaction_id(text) == text
    assert coordinator.insert(transaction(text)) and coordinator.transaction(text) is not None
    name = records.table_name(text, text)
    assert coordinator.register(records.TableRecord("id", name, "memory://x", 0), 0)
    assert coordinator.table(name) is not None
    with pytest.raises(EntityNotFoundError):
        TransactionManager(coordinator).table(f"{text}.b")


@pytest.mark.parametrize("text", ["x" * 256, "é" * 128, "\U0001f600" * 64])
def test_longer_ids_and_names_are_refused_by_all_catalogs(text: str) -> None:
    manager = TransactionManager(MemoryCoordinator())
    for call in (manager.describe_transaction, manager.table, lambda name: manager.table(f"b.{name}")):
        with pytest.raises(CallError, match="255 bytes"):
            call(text)
