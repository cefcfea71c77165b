"""The benchmark of the doctor's check runs on small tables, and the tables that it generates are healthy."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.doctor import build, measure


def test_the_benchmark_measures_a_healthy_table(tmp_path: Path) -> None:
    build(tmp_path / "table", commits=12, adds=5)
    found = measure(tmp_path / "table")
    assert found["ok"] and found["counts"]["error"] == 0, found["findings"]
    assert found["examined"]["commits"] == 14 and found["examined"]["live_files"] == 61 == found["examined"]["footers"]
    assert found["seconds"] >= 0 and found["peak_mib"] > 10
