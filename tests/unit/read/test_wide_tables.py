"""Tables of many columns: the work for reading one column does not grow with the number of columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.parquet import footers
from tests.support.core.steps import steps

FEW = 100


def operations(path: Path, columns: int, mode: str) -> dict[str, Callable[[], object]]:
    inner = pa.struct([(f"x{i}", pa.int64()) for i in range(columns)])
    schema = pa.schema([*((f"c{i}", pa.int64()) for i in range(columns)), ("s", inner)])
    rows = pa.Table.from_pylist([dict.fromkeys(schema.names[:-1], 1) | {"s": {"x1": 1}}], schema=schema)
    wider = rows.append_column("more", pa.array([1]))
    struct = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.dataSkippingNumIndexedCols": "-1"}
    properties = {"delta.columnMapping.mode": mode, **struct}
    table = DeltaTable.create(str(path), schema, properties=properties, data=rows)
    return {
        "append": lambda: table.append(rows),
        "scan": lambda: table.snapshot().scan(where="c3 = 1").to_arrow(),
        "checkpoint": table.checkpoint,
        "statistics": lambda: DeltaTable.open(str(path)).snapshot().statistics(),
        "delete": lambda: table.delete("c1 = 1"),
        "merge schemas": lambda: table.append(wider, merge_schema=True),
        "replace schemas": lambda: table.overwrite(rows, overwrite_schema=True),
        "open": lambda: DeltaTable.open(str(path)).snapshot().scan().to_arrow(),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "plain_bytes"),
    [
        pytest.param("none", 1 << 40, id="none"),
        pytest.param("id", 1 << 40, id="id", marks=pytest.mark.long),
        pytest.param("id", 0, id="id, every footer is checked", marks=pytest.mark.long),
    ],
)
def test_the_steps_grow_with_the_columns_and_no_faster(
    tmp_path: Path, mode: str, plain_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A footer above a certain length is checked, in a number of steps that grows with the columns; the footers of both
    # tables are on the same side of that length.
    for name, value in (("BYTES", plain_bytes), ("ITEMS", 1 << 20), ("PATH_BYTES", 1 << 60)):
        monkeypatch.setattr(footers, f"_PLAIN_{name}", value)
    few = {name: steps(work) for name, work in operations(tmp_path / "few", FEW, mode).items()}
    many = {name: steps(work) for name, work in operations(tmp_path / "many", 2 * FEW, mode).items()}
    assert all(count > 1000 for count in few.values())
    grown = {name: round(many[name] / few[name], 2) for name in few if many[name] > 2.2 * few[name]}
    assert not grown
