"""The quick run of the transaction benchmark: its commits are in the logs, and take as many calls to the catalog as the
docs state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import transactions

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("coordinator", ["sqlite", pytest.param("dynamodb", marks=pytest.mark.long)])
def test_a_quick_run_finds_what_it_wrote(coordinator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    chosen = ["--quick", "--below", str(tmp_path), "--json", str(out)]
    assert transactions.main([*chosen, *(["--dynamodb"] if coordinator == "dynamodb" else [])]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["wrong"] == [] and len(found["rows"]) == 10
    assert all(row["ms"] > 0 and row["per_second"] > 0 for row in found["rows"])
    calls = {row["title"]: row["calls"] for row in found["rows"] if row["calls"] is not None}
    assert calls.pop("append to a plain table") == 0
    assert calls.pop("append to a managed table") == 3
    assert list(calls.values()) == [7 + 6 * count for count in transactions.TABLES], calls
    assert all(row["title"] in capsys.readouterr().out for row in found["rows"][:1])
    assert list(tmp_path.iterdir()) == [out]


def test_a_commit_that_is_missing_is_told(tmp_path: Path) -> None:
    catalog = transactions.Catalog(str(tmp_path / "catalog.db"), tmp_path, {})
    names = catalog.tables(1)
    catalog.append(names)
    catalog.appended.update(names)
    report = transactions.Report("SQLite")
    catalog.check(report)
    assert [each.partition(":")[2] for each in report.wrong] == [" right 2, got 1"] * 2
