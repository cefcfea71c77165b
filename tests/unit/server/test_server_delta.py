"""Clients that write Delta logs themselves use the server to find a table, ratify a staged commit and publish it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltalog import TransactionManager
from deltalog.server import delta
from deltalog.server.fields import Fields
from deltalog.testing.coordinators import WrappedCoordinator
from tests.support.server import SCHEMA, Served, parquet

LOCATION = "/delta/v1/tables/bank.t"


@pytest.fixture
def table(tmp_path: Path, manager: TransactionManager) -> Any:
    """bank.t at version 0; a new table in each test."""
    yield manager.create_table("bank.t", str(tmp_path / "t"), SCHEMA, partition_by=["day"])
    manager.drop_table("bank.t")


def stage(root: Path, version: int, *, ict: int | None = None, file: str = "", more: Any = (), **info: Any) -> str:
    """Write a staged commit with one new file, like another client would. Returns its name."""
    name = file or f"{version:020d}.{uuid.uuid4()}.json"
    made = parquet(root, f"{uuid.uuid4()}.parquet", version)
    times = {} if ict is None else {"inCommitTimestamp": ict}
    commit_info = {"timestamp": 1, "operation": "WRITE", "txnId": str(uuid.uuid4()), **times, **info}
    added = {
        "path": Path(made["Uri"]).name, "partitionValues": {"day": "mon"}, "size": made["Size"],
        "modificationTime": 1, "dataChange": True,
    }  # fmt: skip
    lines = [{"commitInfo": commit_info}, *more, {"add": added}]
    staged = root / "_delta_log/_staged_commits" / name
    staged.parent.mkdir(exist_ok=True)
    staged.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return name


def last_ms(table: Any) -> int:
    return int(table.history(1)[0].timestamp_ms)


def test_a_commit_is_staged_ratified_and_published(server: Served, table: Any, tmp_path: Path) -> None:
    status, found = server.ask("GET", LOCATION)
    assert (status, found["latestVersion"], found["commits"]) == (200, 0, [])
    assert (found["name"], found["location"]) == ("bank.t", str(tmp_path / "t"))

    ict = last_ms(table) + 5
    file = stage(tmp_path / "t", 1, ict=ict)
    for _ in range(2):  # repeating a call is not an error, because its first answer may have been lost
        status, found = server.ask("POST", f"{LOCATION}/commits", {"version": 1, "fileName": file})
        size = (tmp_path / "t/_delta_log/_staged_commits" / file).stat().st_size
        commit = {"version": 1, "fileName": file, "inCommitTimestamp": ict, "fileSize": size}
        assert (status, found["latestVersion"], found["commits"]) == (200, 1, [commit])
    assert table.snapshot().scan().to_arrow()["id"].to_pylist() == [1]

    data = (tmp_path / "t/_delta_log/_staged_commits" / file).read_bytes()
    published = tmp_path / "t/_delta_log/00000000000000000001.json"
    assert not published.exists()
    published.write_bytes(data)
    assert server.ask("POST", f"{LOCATION}/published", {"version": 1})[1]["commits"] == []
    assert published.read_bytes() == data


class Counted(WrappedCoordinator):
    """Counts calls."""

    calls = 0

    def _pass(self, method: str, about: str, action: Callable[[], Any]) -> Any:
        self.calls += 1
        return action()


def test_calls_cost_what_the_manager_says_and_no_more(manager: TransactionManager, table: Any, tmp_path: Path) -> None:
    coordinator = Counted(manager.coordinator)
    counted = TransactionManager(coordinator)
    costs = []

    def ask(call: Callable[..., Any], **given: Any) -> None:
        before = coordinator.calls
        assert (
            call("bank.t", Fields(json.dumps(given).encode())).run(counted)["tableId"]
            == manager.ratified("bank.t")[0].table_id
        )
        costs.append(coordinator.calls - before)

    ict = last_ms(table)
    for version in (1, 2):
        ask(delta.commit, version=version, fileName=stage(tmp_path / "t", version, ict=ict + version))
    ask(delta.published, version=2)
    ask(delta.table)
    assert costs == [3, 3, 4, 2]


def test_a_publication_that_did_not_happen_is_made(server: Served, table: Any, tmp_path: Path) -> None:
    ict = last_ms(table)
    for version in (1, 2):
        file = stage(tmp_path / "t", version, ict=ict + version)
        assert server.ask("POST", f"{LOCATION}/commits", {"version": version, "fileName": file})[0] == 200
    status, found = server.ask("POST", f"{LOCATION}/published", {"version": 1})
    assert (status, [commit["version"] for commit in found["commits"]]) == (200, [2])
    assert (tmp_path / "t/_delta_log/00000000000000000001.json").exists()
    assert not (tmp_path / "t/_delta_log/00000000000000000002.json").exists()


def test_a_publication_of_something_else_is_noticed(server: Served, table: Any, tmp_path: Path) -> None:
    file = stage(tmp_path / "t", 1, ict=last_ms(table) + 1)
    server.ask("POST", f"{LOCATION}/commits", {"version": 1, "fileName": file})
    (tmp_path / "t/_delta_log/00000000000000000001.json").write_text("{}\n")
    status, found = server.ask("POST", f"{LOCATION}/published", {"version": 1})
    assert (status, found["code"]) == (500, "CORRUPT_TABLE")
    (tmp_path / "t/_delta_log/00000000000000000001.json").unlink()


def test_of_two_commits_of_one_version_the_second_is_a_conflict(server: Served, table: Any, tmp_path: Path) -> None:
    ict = last_ms(table) + 1
    one, two = (stage(tmp_path / "t", 1, ict=ict) for _ in range(2))
    assert server.ask("POST", f"{LOCATION}/commits", {"version": 1, "fileName": one})[0] == 200
    status, found = server.ask("POST", f"{LOCATION}/commits", {"version": 1, "fileName": two})
    assert (status, found["code"]) == (409, "COMMIT_CONFLICT") and "latest is 1" in found["message"]
    assert (tmp_path / "t/_delta_log/_staged_commits" / two).exists()


def protocol(reader_features: list[str], writer_features: list[str]) -> dict[str, Any]:
    return {"protocol": {**PROTOCOL, "readerFeatures": reader_features, "writerFeatures": writer_features}}


PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["inCommitTimestamp"]}
MANAGED = ["catalogManaged", "inCommitTimestamp"]
METADATA = {
    "id": "x", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {},
    "schemaString": '{"type":"struct","fields":[]}',
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a gap": ({"version": 2}, {}, "next version is 1"),
    "no in-commit timestamp": ({"ict": None}, {}, "inCommitTimestamp"),
    "a time that went back": ({"ict": 5}, {}, "not after"),
    "a time far ahead": ({"ict": 2**63 - 1}, {}, "ahead of its clock"),
    "the year 2100": ({"ict": 4_102_444_800_000}, {}, "restart_timestamps"),
    "no txnId": ({"txnId": ""}, {}, "txnId"),
    "a protocol without its catalog": ({"more": [{"protocol": PROTOCOL}]}, {}, "catalogManaged"),
    "a catalog that readers pass over": ({"more": [protocol([], MANAGED)]}, {}, "catalogManaged"),
    "a protocol without their times": ({"more": [protocol(MANAGED[:1], MANAGED[:1])]}, {}, "inCommitTimestamp"),
    "metadata of another catalog": ({"more": [{"metaData": METADATA}]}, {}, "catalogId"),
    "two protocols": ({"more": [{"protocol": PROTOCOL}] * 2}, {}, "cannot be ratified"),
    "another version's name": ({}, {"fileName": f"{2:020d}.{uuid.uuid4()}.json"}, "must be named"),
    "a path": ({}, {"fileName": "../00000000000000000000.json"}, "must be named"),
    "no such file": ({}, {"fileName": f"{1:020d}.{uuid.uuid4()}.json"}, "has no"),
    "no name": ({}, {"fileName": None}, "missing"),
    "no number": ({}, {"version": "1"}, "a non-negative integer"),
}


@pytest.mark.parametrize(("staged", "asked", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_ratified(
    staged: dict[str, Any], asked: dict[str, Any], message: str, server: Served, table: Any, tmp_path: Path
) -> None:
    given = {"version": 1, "ict": last_ms(table) + 1, **staged}
    file = stage(tmp_path / "t", **given)
    body = {"version": given["version"], "fileName": file, **asked}
    status, found = server.ask("POST", f"{LOCATION}/commits", body)
    assert status == 400 and message in found["message"], found
    assert server.ask("GET", LOCATION)[1]["latestVersion"] == 0


def test_a_protocol_that_leaves_the_table_managed_is_ratified(server: Served, table: Any, tmp_path: Path) -> None:
    more = [protocol(MANAGED[:1], [*MANAGED, "domainMetadata"])]
    file = stage(tmp_path / "t", 1, ict=last_ms(table) + 1, more=more)
    assert server.ask("POST", f"{LOCATION}/commits", {"version": 1, "fileName": file})[0] == 200
    rows = table.snapshot().scan().to_arrow()
    assert table.append(rows).version == 2  # deltalog can write to the table


@pytest.mark.parametrize("name", ["bank.none", "none", "a%2Fb", "%00", "bank.t%20"])
def test_tables_that_are_not_there(name: str, server: Served) -> None:
    status, found = server.ask("GET", f"/delta/v1/tables/{name}")
    assert status in (400, 404) and found["code"] in ("ENTITY_NOT_FOUND", "INVALID_CALL")


def test_versions_that_are_not_ratified_are_not_published(server: Served, table: Any) -> None:
    status, found = server.ask("POST", f"{LOCATION}/published", {"version": 1})
    assert status == 400 and "latest ratified version is 0" in found["message"]
