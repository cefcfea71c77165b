"""The benchmark of lazy reads runs on small tables, and all systems find the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.lazy_reads import OTHERS, OURS, QUERIES, build, run


@pytest.mark.long
@pytest.mark.parametrize("table", ["plain", "vectors"])
def test_all_systems_find_the_same_rows(tmp_path: Path, table: str) -> None:
    path = build(tmp_path, table, 5_000)
    others = [name for name in OTHERS if table == "plain" or "dataset" not in name]
    for query in QUERIES:
        found = [run(system, str(path), query, 5_000, 1) for system in (*OURS, *others)]
        assert len({(each["rows"], each["sum"]) for each in found}) == 1, found
        assert found[0]["rows"] == 5 if query == "filter" else found[0]["rows"] > 4_900
