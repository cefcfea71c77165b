"""The quick run of the benchmark of a Unity Catalog server: its commits are in the logs and in the catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import unity_server

pytestmark = pytest.mark.timeout(300)


def test_a_quick_run_finds_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    assert unity_server.main(["--quick", "--below", str(tmp_path), "--json", str(out)]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["wrong"] == [] and len(found["rows"]) == 7
    assert all(0 < row["p50_ms"] <= row["p99_ms"] and row["per_second"] > 0 for row in found["rows"])
    assert found["requests_of_append"] == 3  # the head, the commit, and its publication
    assert [each["calls"] for each in found["memory"]] == [0, 40, 80]
    assert all(each["rss_mib"] > 10 for each in found["memory"])
    assert all(row["title"] in capsys.readouterr().out for row in found["rows"][:1])
    assert list(tmp_path.iterdir()) == [out]


def test_a_commit_that_is_missing_is_told(tmp_path: Path) -> None:
    place = unity_server.Place(tmp_path)
    (name,) = place.tables(1)
    place.committed[name] = 1
    report = unity_server.Report()
    place.check(report)
    assert [each.partition(":")[2] for each in report.wrong] == [" right 1, got 0"] * 2 + [" right True, got False"]
