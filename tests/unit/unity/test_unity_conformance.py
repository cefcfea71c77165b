"""The conformance cases about tables of a Unity Catalog, on deltalog with the server of ``deltalog serve``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog.conformance import (
    Case,
    Engine,
    all_cases,
    catalog_server,
    load_engine,
    managed_cases,
    run,
    run_managed,
    start_engine,
)
from deltalog.conformance.catalog_server import catalog_for
from deltalog.conformance.managed import ManagedTables
from tests.support.server import Served, served

BY_ID = {case.id: case for case in managed_cases()}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("kit")
    with served(place / "catalog.db", "--warehouse", str(place / "lake"), "--set=recovery.every_seconds=0") as server:
        yield server


@pytest.mark.parametrize("case", managed_cases(), ids=lambda case: case.id)
def test_deltalog(running: Served, case: Case) -> None:
    (outcome,) = run_managed(load_engine("deltalog"), [case], running.url)
    assert outcome.outcome == "passed", outcome.reason


def test_deltalog_in_a_process_of_its_own(running: Served) -> None:
    cases = [BY_ID[name] for name in ("managed-ratified", "managed-append")]
    with start_engine("deltalog") as engine:
        outcomes = list(run_managed(engine, cases, running.url))
    assert [outcome.outcome for outcome in outcomes] == ["passed", "passed"], outcomes


def test_a_run_without_a_server_skips_the_cases(tmp_path: Path) -> None:
    (outcome,) = run(load_engine("deltalog"), [BY_ID["managed-published"]], tmp_path)
    assert (outcome.outcome, outcome.reason) == ("skipped", "there is no server of a Unity Catalog for this run")


def test_a_run_with_a_catalog(running: Served, tmp_path: Path) -> None:
    chosen = [BY_ID["managed-published"], next(case for case in all_cases() if case.id == "read-removed")]
    outcomes = list(run(load_engine("deltalog"), chosen, tmp_path, ManagedTables(running.url)))
    assert [outcome.outcome for outcome in outcomes] == ["passed", "passed"]


def test_a_run_starts_a_server_and_ends_it() -> None:
    with catalog_for(load_engine("deltalog")) as catalog:
        assert catalog is not None
        assert catalog.outcome(load_engine("deltalog"), BY_ID["managed-append"]).outcome == "passed"
    assert catalog.outcome(load_engine("deltalog"), BY_ID["managed-append"]).outcome == "failed"


def test_no_server_is_started_for_an_engine_that_does_not_use_it() -> None:
    with catalog_for(Engine()) as catalog:
        assert catalog is None


def test_no_server_is_started_without_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_server, "_NEEDED", ("no_such_package",))
    with catalog_for(load_engine("deltalog")) as catalog:
        assert catalog is None


@pytest.mark.long
def test_the_command_runs_the_cases_on_a_given_server(running: Served) -> None:
    arguments = ["--engine", "deltalog", "--case", "managed-ratified", "--catalog", running.url, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "deltalog.cli.main", "conformance", "run", *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["summary"] == {"passed": 1, "failed": 0, "skipped": 0}


def test_an_engine_without_catalogs_is_skipped(running: Served) -> None:
    (outcome,) = run_managed(Engine(), [BY_ID["managed-published"]], running.url)
    assert outcome.outcome == "skipped" and outcome.reason == "tables of a Unity Catalog"


class ByPath(Engine):
    """Reads the log of a table without asking the catalog which commits are ratified."""

    def __init__(self, url: str = "") -> None:
        self._url = url

    def of_catalog(self, url: str, token: str | None) -> Engine:
        return ByPath(url)

    def _root(self, path: str) -> Path:
        from deltalog.unity.client import UnityClient
        from deltalog.unity.http import Server
        from deltalog.unity.names import parse_name

        loaded = UnityClient(Server.at(self._url)).load_table(parse_name(path))
        return Path(loaded.metadata.location.removeprefix("file://"))

    def latest_version(self, path: str) -> int:
        return max(int(file.stem) for file in (self._root(path) / "_delta_log").glob("*.json"))

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        last = self.latest_version(path) if version is None else version
        return pa.table({"id": list(range(last + 1))})

    def append(self, path: str, rows: pa.Table) -> None:
        root = self._root(path)
        last = self.latest_version(path)
        data = (root / "_delta_log" / f"{last:020d}.json").read_bytes()
        (root / "_delta_log" / f"{last + 1:020d}.json").write_bytes(data)


@pytest.mark.parametrize(
    "name", ["managed-ratified", "managed-written-by-path", "managed-one-of-two-staged", "managed-append"]
)
def test_an_engine_that_does_not_ask_the_catalog_fails(running: Served, name: str) -> None:
    (outcome,) = run_managed(ByPath(), [BY_ID[name]], running.url)
    assert outcome.outcome == "failed", outcome.reason
