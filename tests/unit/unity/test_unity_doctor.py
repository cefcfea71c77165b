"""The doctor on tables of a Unity Catalog: what the server shows, and what the log has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
from deltalog import DeltaTable
from deltalog.protocol.paths import commit_path, staged_commit_path
from deltalog.unity import messages
from tests.support.cli import run
from tests.support.unity.http import Fault, UnityServer
from tests.support.unity.model import ModelTable

ADDRESS = "uc://main.s.events"


@pytest.fixture
def table(server: UnityServer, options: dict[str, Any]) -> ModelTable:
    """A table with two commits, as its server knows it."""
    made = DeltaTable.create(ADDRESS, pa.table({"id": [1, 2], "day": ["mon", "tue"]}), **options)
    made.append(pa.table({"id": [3], "day": ["wed"]}))
    return server.model.tables["main", "s", "events"]


@pytest.fixture
def root(table: ModelTable) -> Path:
    return Path(table.location.removeprefix("file://"))


def messages_of(report: Any, rule: str) -> list[str]:
    return [each.message for each in report.findings if each.rule == rule]


def test_a_table_as_its_server_shows_it_has_no_finding(table: ModelTable, options: dict[str, Any]) -> None:
    report = deltalog.check(ADDRESS, deep=True, **options)
    assert report.ok and not report.counts["warning"] and report.version == table.latest, str(report)
    assert "catalog-not-consulted" not in report.rules
    assert DeltaTable.open(ADDRESS, **options).check().ok


def test_the_server_shows_other_metadata(table: ModelTable, options: dict[str, Any]) -> None:
    table.columns["fields"][0]["type"] = "string"
    table.partition_columns = ("day",)
    table.properties["delta.appendOnly"] = "true"
    del table.properties["delta.enableInCommitTimestamps"]
    (message,) = messages_of(deltalog.check(ADDRESS, **options), "catalog-metadata-differs")
    for part in ("the columns", "the partition columns", "delta.appendOnly", "delta.enableInCommitTimestamps"):
        assert part in message
    assert "true" not in message


def test_properties_that_only_the_catalog_has_are_no_difference(table: ModelTable, options: dict[str, Any]) -> None:
    table.properties.update({"owner": "me", "io.unitycatalog.label": "x"})
    assert not messages_of(deltalog.check(ADDRESS, **options), "catalog-metadata-differs")


def test_a_commit_that_was_written_by_the_path(table: ModelTable, root: Path, options: dict[str, Any]) -> None:
    data = (root / commit_path(table.latest)).read_bytes()
    (root / commit_path(table.latest + 1)).write_bytes(data)
    report = deltalog.check(ADDRESS, **options)
    assert messages_of(report, "catalog-behind-log") == ["The catalog's latest version is 1; the log has version 2."]
    assert report.version == table.latest and not report.ok


def test_a_publication_that_was_reported_and_is_not_there(
    table: ModelTable, root: Path, options: dict[str, Any]
) -> None:
    table.commits.clear()
    (root / commit_path(1)).unlink()
    report = deltalog.check(ADDRESS, **options)
    assert messages_of(report, "published-commit-missing") and not report.ok


def list_as_unpublished(table: ModelTable, root: Path, **wrong: Any) -> Path:
    """Let the server list the last commit as not published yet. Returns its staged file."""
    (staged,) = (root / staged_commit_path("")).iterdir()
    info = json.loads(staged.read_text().partition("\n")[0])["commitInfo"]
    said = {"timestamp": info["inCommitTimestamp"], "file_size": staged.stat().st_size, **wrong}
    commit = messages.Commit(version=1, file_name=staged.name, file_modification_timestamp=0, **said)
    table.commits[:] = [commit]
    return staged


def test_an_accepted_commit_that_is_published_as_it_is(table: ModelTable, root: Path, options: dict[str, Any]) -> None:
    list_as_unpublished(table, root)
    report = deltalog.check(ADDRESS, **options)
    assert report.ok and not report.counts["warning"], str(report)


def test_another_commit_is_published_than_the_accepted_one(
    table: ModelTable, root: Path, options: dict[str, Any]
) -> None:
    list_as_unpublished(table, root)
    (root / commit_path(1)).unlink()  # it is a link to the staged file
    (root / commit_path(1)).write_bytes((root / commit_path(0)).read_bytes())
    report = deltalog.check(ADDRESS, **options)
    assert "published-commit-differs" in report.rules and not report.ok


def test_an_accepted_commit_is_neither_staged_nor_published(
    table: ModelTable, root: Path, options: dict[str, Any]
) -> None:
    list_as_unpublished(table, root).unlink()
    (root / commit_path(1)).unlink()
    report = deltalog.check(ADDRESS, **options)
    assert "staged-commit-missing" in report.rules and not report.ok


@pytest.mark.parametrize(("wrong", "said"), [({"file_size": 7}, "the size"), ({"timestamp": 7}, "the in-commit time")])
def test_an_accepted_commit_is_not_as_the_server_says(
    table: ModelTable, root: Path, options: dict[str, Any], wrong: dict[str, int], said: str
) -> None:
    list_as_unpublished(table, root, **wrong)
    report = deltalog.check(ADDRESS, **options)
    (message,) = messages_of(report, "ratified-commit-differs")
    assert message.startswith(f"Different: {said}") and not report.ok


def test_a_server_that_stops_to_answer_is_told(
    server: UnityServer, table: ModelTable, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = DeltaTable.open(ADDRESS, **options)
    loads = 0

    def faults(method: str, path: str) -> Fault | None:
        nonlocal loads
        loads += method == "GET"
        return Fault.FAILED if loads > 1 else None

    monkeypatch.setattr("deltalog.environment.Environment.sleep", lambda self, seconds: None, raising=False)
    server.faults = faults
    report = opened.check()
    assert messages_of(report, "catalog-not-consulted")
    assert "catalog-metadata-differs" not in report.rules and report.version == table.latest


def test_the_command_line(server: UnityServer, table: ModelTable, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITY_CATALOG_URL", server.url)
    monkeypatch.setenv("UNITY_CATALOG_TOKEN", "dapi-secret")
    assert run("check", ADDRESS).status == 0
    table.commits.clear()
    (root / commit_path(1)).unlink()
    result = run("check", ADDRESS)
    assert result.status == 1 and "published-commit-missing" in result.out
