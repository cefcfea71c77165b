"""The vacuum benchmark runs on a small table, and all systems list and delete the same files."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.vacuuming import MODES, ON_SPARK, SYSTEMS, compare


def test_the_systems_delete_the_same_files(tmp_path: Path) -> None:
    systems = tuple(system for system in SYSTEMS if system not in ON_SPARK)
    found = list(compare(tmp_path, 1_000, 1, systems))
    assert [(each["mode"], each["system"]) for each in found] == [
        (mode, system) for mode in MODES for system in systems
    ]
    assert all(each["files"] == 200 and each["seconds"] > 0 for each in found)
