"""The conformance cases about tables of a Unity Catalog, on deltalog with the server of ``deltalog serve``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog.conformance import Case, Engine, load_engine, managed_cases, run_managed, start_engine
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
