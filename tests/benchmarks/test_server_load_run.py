"""Quick runs of the benchmarks of a server: its commits are in the logs, and no money is lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import server_load, server_soak

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


@pytest.mark.parametrize("kind", server_load.KINDS)
def test_a_quick_run_finds_what_it_wrote(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out.json"
    assert server_load.main(["--quick", "--catalog", kind, "--below", str(tmp_path), "--json", str(out)]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["wrong"] == [] and len(found["rows"]) == 4
    assert all(0 < row["p50_ms"] <= row["p99_ms"] and row["per_second"] > 0 for row in found["rows"])
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.skipif(sys.platform != "linux", reason="preloads a library")
def test_a_slow_fsync_is_waited_for(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    chosen = ["--quick", "--catalog", "sqlite", "--clients", "1", "--fsync-ms", "200"]
    assert server_load.main([*chosen, "--below", str(tmp_path), "--json", str(out)]) == 0
    commit, load = json.loads(out.read_text())["rows"]
    assert commit["p50_ms"] > 200 > load["p50_ms"]


def test_the_memory_is_measured_over_calls_of_all_kinds(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert (
        server_load.main(["--memory", "400", "--catalog", "sqlite", "--below", str(tmp_path), "--json", str(out)]) == 0
    )
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["memory"][0]["calls"] == 0 and found["memory"][-1]["calls"] >= 400


def test_a_short_soak_finds_nothing_wrong(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert server_soak.main(["--minutes", "0.7", "--below", str(tmp_path), "--json", str(out)]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["wrong"] == [] and sum(found["kills"].values()) > 0 and sum(found["acknowledged"].values()) > 0
