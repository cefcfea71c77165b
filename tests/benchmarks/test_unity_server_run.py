"""The benchmark of the Unity Catalog server runs, and its checks hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import unity_server


def test_every_acknowledged_commit_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert unity_server.main(["--quick", "--below", str(tmp_path), "--json", str(tmp_path / "out.json")]) == 0
    assert "WRONG" not in capsys.readouterr().out
    assert (tmp_path / "out.json").exists()
