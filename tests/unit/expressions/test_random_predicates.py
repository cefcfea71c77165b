"""Random predicates on random tables: a scan with data skipping returns exactly the rows that satisfy the predicate,
and a delete removes exactly these rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deltalog import DeltaTable
from deltalog.expressions.bind import bind
from deltalog.expressions.evaluate import matches
from tests.support.expressions.random_predicates import number_of_files_skipped, random_predicate, random_table

USUAL, ALL, PREDICATES = 4, 200, 16


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n < USUAL else pytest.mark.long) for n in range(ALL)])
def test_skipping_loses_no_row(tmp_path: Path, seed: int) -> None:
    made, chance = random_table(tmp_path / "t", seed), random.Random(-seed)
    snapshot = made.table.snapshot()
    rows, skipped = snapshot.scan().to_arrow(), 0
    ids = rows["id"].to_pylist()
    for _ in range(PREDICATES):
        predicate, text = random_predicate(chance, made.leaves)
        verdicts = matches(bind(predicate, snapshot.schema), rows).to_pylist()
        held = sorted(each for each, verdict in zip(ids, verdicts, strict=True) if verdict)
        assert sorted(snapshot.scan(["id"], where=predicate).to_arrow()["id"].to_pylist()) == held, text
        skipped += number_of_files_skipped(made.table, predicate)
    assert skipped > PREDICATES, "statistics and partitions skipped no file"
    made.table.delete(predicate)
    left = DeltaTable.open(str(tmp_path / "t")).snapshot().scan(["id"]).to_arrow()["id"].to_pylist()
    assert sorted(left) == sorted(set(ids) - set(held)), text
