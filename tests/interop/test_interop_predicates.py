"""Random predicates on random tables of deltalog: a scan with data skipping, an evaluation without it, and delta-spark,
which skips files with deltalog's statistics, return the same rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deltalog.expressions.bind import bind
from deltalog.expressions.evaluate import matches
from tests.support.expressions.random_predicates import number_of_files_skipped, random_predicate, random_table
from tests.support.spark import DeltaSpark

USUAL, ALL, PREDICATES = 2, 20, 16


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n < USUAL else pytest.mark.long) for n in range(ALL)])
def test_three_answers_are_one(delta: DeltaSpark, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "table"
    made, chance = random_table(path, seed), random.Random(seed)
    predicates = [random_predicate(chance, made.leaves) for _ in range(PREDICATES)]
    queries = [f"SELECT {n} AS n, id FROM delta.`{path}` WHERE {text}" for n, (_, text) in enumerate(predicates)]
    theirs: dict[int, list[int]] = {}
    # Spark's dictionary filters on Parquet files distinguish 0.0 from -0.0, whoever wrote the files.
    delta.spark.conf.set("spark.sql.parquet.filterPushdown", "false")
    try:
        for row in delta.sql(" UNION ALL ".join(queries)).collect():
            theirs.setdefault(row.n, []).append(row.id)
    finally:
        delta.spark.conf.unset("spark.sql.parquet.filterPushdown")
    snapshot = made.table.snapshot()
    rows = snapshot.scan().to_arrow()
    wrong, skipped = [], 0
    for number, (predicate, text) in enumerate(predicates):
        scanned = sorted(snapshot.scan(["id"], where=predicate).to_arrow()["id"].to_pylist())
        verdicts = matches(bind(predicate, snapshot.schema), rows).to_pylist()
        held = sorted(each for each, verdict in zip(rows["id"].to_pylist(), verdicts, strict=True) if verdict)
        if not scanned == held == sorted(theirs.get(number, [])):
            wrong.append(f"{text}: scan {scanned}, without skipping {held}, Spark {sorted(theirs.get(number, []))}")
        skipped += number_of_files_skipped(made.table, predicate)
    assert not wrong, "\n".join(wrong)
    assert skipped > PREDICATES, "statistics and partitions leave no file out"
