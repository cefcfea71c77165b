"""The benchmark of optimizations runs on small tables, and the systems produce the same rows."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.optimizing import compare


def test_the_systems_make_the_same_rows(tmp_path: Path) -> None:
    systems = ("deltalog", "deltalake")
    found = [
        *compare(tmp_path, "compact", (20, 100, 2), 1, systems),
        *compare(tmp_path, "z-order", (4, 2_000, 4), 1, systems),
    ]
    assert [each["system"] for each in found] == [*systems, *systems]
    assert all(each["seconds"] > 0 and 1 <= each["files"] <= 8 for each in found)
    assert found[2]["read_part"] < 1
