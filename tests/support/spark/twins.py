"""Two copies of one table, which deltalog and delta-spark change by the same calls."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalog import DeltaTable
from tests.support.spark.oracle import DeltaSpark

VECTORS = {"delta.enableDeletionVectors": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
IDS = {"delta.enableRowTracking": "true"}
NAMES = {"delta.columnMapping.mode": "name"}
# The table properties of each mode. In the modes named "moved", rows are removed by rewriting the remaining rows of a
# file, without deletion vectors.
MODES: Mapping[str, dict[str, str]] = {
    "vectors, changes, ids, by name": {**VECTORS, **CHANGES, **IDS, **NAMES},
    "moved, changes": CHANGES,
    "vectors, ids": {**VECTORS, **IDS},
    "moved, ids": IDS,
    "moved": {},
}
INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema(
    [("id", pa.int64()), ("p", pa.string()), ("n", pa.int32()), ("s", INNER), ("d", pa.decimal128(6, 2))]
)


def twins(
    tmp_path: Path, properties: Mapping[str, str], partition_by: Sequence[str], schema: pa.Schema = SCHEMA
) -> tuple[Path, Path]:
    """A table for deltalog and one for delta-spark: deltalog has written the same 24 rows to both, in two commits.
    ``schema``: some of the columns of SCHEMA."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    table = DeltaTable.create(str(ours), schema, properties=dict(properties), partition_by=tuple(partition_by))
    for start in (0, 12):
        rows = [
            {
                "id": n,
                "p": ("a", "b", None)[n % 3],
                "n": None if n % 4 == 0 else 2 * n,
                "s": None if n % 5 == 0 else {"x": n, "y": f"y{n}"},
                "d": n,
            }
            for n in range(start, start + 12)
        ]
        table.append(pa.Table.from_pylist(rows, schema=schema))
    shutil.copytree(ours, theirs)
    return ours, theirs


def check_commits(delta: DeltaSpark, ours: Path, theirs: Path, metrics: Mapping[str, Sequence[str]]) -> None:
    """Assert that both engines' histories are equal, including their metrics. ``metrics``: the metrics to compare,
    keyed by operation."""
    columns = ("version", "operation", "isBlindAppend", "operationMetrics")
    mine, twin = (
        {row["version"]: row for row in delta.sql(f"DESCRIBE HISTORY delta.`{path}`").select(*columns).collect()}
        for path in (ours, theirs)
    )
    assert mine.keys() == twin.keys()
    for version, row in mine.items():
        other: Any = twin[version]
        assert (row["operation"], row["isBlindAppend"]) == (other["operation"], other["isBlindAppend"])
        for name in metrics.get(row["operation"], ()):
            assert row["operationMetrics"].get(name) == other["operationMetrics"].get(name), (version, name)
    assert delta.checksum_defect(ours) is None
