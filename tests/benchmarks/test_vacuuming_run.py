"""The benchmark of vacuum runs on a small table, and the systems name and delete the same files."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.vacuuming import MODES, SYSTEMS, compare


def test_the_systems_delete_the_same_files(tmp_path: Path) -> None:
    found = list(compare(tmp_path, 1_000, 1))
    assert [(each["mode"], each["system"]) for each in found] == [
        (mode, system) for mode in MODES for system in SYSTEMS
    ]
    assert all(each["files"] == 200 and each["seconds"] > 0 for each in found)
