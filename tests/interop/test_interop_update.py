"""Run the same UPDATE with deltalog and with delta-spark on identical tables; the rows, changes, row ids and history
must match."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest

from deltalog import DeltaTable
from tests.support.spark import DeltaSpark, plain_rows
from tests.support.spark.twins import MODES, check_commits, twins

METRICS = {"UPDATE": ("numUpdatedRows", "numDeletionVectorsAdded", "numDeletionVectorsUpdated")}
# Pairs of the assignments and the condition of an UPDATE.
STATEMENTS: tuple[tuple[dict[str, str], str | None], ...] = (
    ({"n": "n + 1"}, "id % 3 = 1"),
    ({"p": "'c'", "n": "CAST(id AS INT)"}, "p = 'a' AND id > 4"),
    ({"n": "id", "d": "d * 2 + 0.005"}, "n IS NULL OR n > 20"),
    ({"s.x": "7"}, "s IS NULL OR id < 5"),
    ({"s.x": "s.x + n", "s.y": "concat(p, '!')"}, "id BETWEEN 7 AND 16"),
    ({"s": "NULL", "p": "NULL"}, "id IN (9, 10)"),
    ({"n": "id", "id": "n"}, "n IS NOT NULL AND n <> id AND id > 1000"),
    ({"p": "CASE WHEN n > 10 THEN upper(p) ELSE p END"}, None),
    ({"d": "d * -0.5 - 0.125"}, "id < 8"),
    ({"n": "0"}, "p IS NULL"),
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("properties", "partition_by"),
    [
        *(pytest.param(properties, ("p",), id=f"{name}-partitioned") for name, properties in MODES.items()),
        # Without partitions, one case is enough: the modes do not depend on partitioning.
        pytest.param(MODES["moved, ids"], (), id="moved, ids-plain"),
    ],
)
def test_both_engines_update_alike(
    delta: DeltaSpark, tmp_path: Path, properties: dict[str, str], partition_by: tuple[str, ...]
) -> None:
    ours, theirs = twins(tmp_path, properties, partition_by)
    table = DeltaTable.open(str(ours))
    for updates, where in STATEMENTS:
        table.update(updates, where)
        assigned = ", ".join(f"{name} = {text}" for name, text in updates.items())
        delta.sql(f"UPDATE delta.`{theirs}` SET {assigned}" + ("" if where is None else f" WHERE {where}"))
        twin, mine = delta.table(theirs), delta.table(ours)
        assert plain_rows(mine) == plain_rows(twin), (updates, where)
        assert plain_rows(mine) == plain_rows(table.snapshot().scan().to_arrow())
    check_commits(delta, ours, theirs, METRICS)
    if "delta.enableChangeDataFeed" in properties:
        first = plain_rows(table.changes(0).to_arrow().drop_columns(["_commit_timestamp"]))
        for path in (ours, theirs):
            assert plain_rows(delta.changes(path).drop_columns(["_commit_timestamp"])) == first
    if "delta.enableRowTracking" in properties:
        columns = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
        query = f"SELECT {', '.join(columns)} FROM delta.`{{}}`"
        found = [sorted(tuple(row) for row in delta.sql(query.format(path)).collect()) for path in (ours, theirs)]
        assert found[0] == found[1]
        scanned = table.snapshot().scan(columns).to_arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in scanned) == found[0]
    elif "delta.columnMapping.mode" not in properties and "delta.enableDeletionVectors" not in properties:
        assert plain_rows(deltalake.DeltaTable(str(ours)).to_pyarrow_table()) == plain_rows(delta.table(ours))
