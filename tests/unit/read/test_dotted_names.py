"""A column with dots in its name is never confused with a struct field that has the same dotted path."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable

NAN = math.nan
# Three leaves with the same dotted path in Parquet, and a name that other tools treat as a path.
FIELDS = [
    pa.field("a.b.c", pa.float64()),
    pa.field("a.b", pa.struct([("c", pa.float64())])),
    pa.field("a", pa.struct([("b", pa.struct([("c", pa.float64())])), ("b.c", pa.float64())])),
    pa.field(".x", pa.int64()),
]
LEAVES = {
    "`a.b.c`": ("a.b.c",),
    "`a.b`.c": ("a.b", "c"),
    "a.b.c": ("a", "b", "c"),
    "a.`b.c`": ("a", "b.c"),
}


def row(number: int, **values: float) -> dict[str, Any]:
    flat, first, deep, second = (values.get(name, float(number)) for name in ("flat", "first", "deep", "second"))
    return {
        "id": number,
        "a.b.c": flat,
        "a.b": {"c": first},
        "a": {"b": {"c": deep}, "b.c": second},
        ".x": number,
    }


def value(each: dict[str, Any], path: tuple[str, ...]) -> float:
    found: Any = each
    for name in path:
        found = found[name]
    assert isinstance(found, float)
    return found


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("special", ["flat", "first", "deep", "second"])
def test_no_leaf_has_the_bounds_of_another(tmp_path: Path, order: tuple[int, ...], special: str) -> None:
    schema = pa.schema([("id", pa.int64()), *(FIELDS[i] for i in order), FIELDS[3]])
    rows = [row(1), row(2, **{special: NAN})]
    table = DeltaTable.create(str(tmp_path / "t"), schema)
    table.append(pa.Table.from_pylist(rows, schema=schema))
    stats = json.loads(table.snapshot().files(["stats"])["stats"][0].as_py())
    assert stats["maxValues"]["id"] == 2
    for path in LEAVES.values():
        high: Any = stats["maxValues"]
        for name in path:
            high = high.get(name, {})
        values = [value(each, path) for each in rows]
        assert high == {} or high >= max(values, key=lambda v: (math.isnan(v), v)), path
    for text, path in LEAVES.items():
        kept = {each["id"] for each in rows if value(each, path) > 1 or math.isnan(value(each, path))}
        assert set(table.snapshot().scan(["id"], where=f"{text} > 1").to_arrow()["id"].to_pylist()) == kept, text


def test_statistics_of_every_leaf_are_found_again(tmp_path: Path) -> None:
    """Statistics as JSON text, and as structs in a checkpoint."""
    schema = pa.schema([("id", pa.int64()), *FIELDS])
    struct = {"delta.checkpoint.writeStatsAsJson": "false", "delta.checkpoint.writeStatsAsStruct": "true"}
    table = DeltaTable.create(str(tmp_path / "t"), schema, properties=struct)
    for number in range(4):
        rows = [row(number, flat=10.0 + number, first=20.0 + number, deep=30.0 + number, second=40.0 + number)]
        table.append(pa.Table.from_pylist(rows, schema=schema))
    table.checkpoint()
    for handle in (table, DeltaTable.open(str(tmp_path / "t"))):
        for text, start in zip(LEAVES, (10, 20, 30, 40), strict=True):
            for number in range(4):
                scan = handle.snapshot().scan(["id"], where=f"{text} = {start + number}")
                assert scan.files().num_rows == 1, text
                assert scan.to_arrow()["id"].to_pylist() == [number], text
        assert handle.snapshot().scan(["id"], where="`.x` = 2").files().num_rows == 1


@pytest.mark.parametrize("name", [".x", "a.b", "[0]", ".a.b[1]", "a`b"])
def test_partitions_by_a_name_that_looks_like_a_path(tmp_path: Path, name: str) -> None:
    schema = pa.schema([("a", pa.struct([("b", pa.int64())])), (name, pa.string())])
    rows = pa.Table.from_pylist([{"a": {"b": i}, name: "xy"[i % 2]} for i in range(4)], schema=schema)
    table = DeltaTable.create(str(tmp_path / "t"), schema, partition_by=[name], data=rows)
    quoted = name.replace("`", "``")
    found = table.snapshot().scan(where=f"`{quoted}` = 'y'")
    assert found.files().num_rows == 1
    assert found.to_arrow()["a"].to_pylist() == [{"b": 1}, {"b": 3}]


def test_the_property_that_names_columns_for_statistics(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), *FIELDS, ("x,y", pa.int64())])
    properties = {
        "delta.dataSkippingStatsColumns": "`a.b.c`,a.b, `x,y`",
        "delta.checkpoint.writeStatsAsJson": "false",
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.columnMapping.mode": "name",
    }
    table = DeltaTable.create(str(tmp_path / "t"), schema, properties=properties)
    table.append(pa.Table.from_pylist([{**row(1), "x,y": 1}], schema=schema))
    table.checkpoint()
    stats = DeltaTable.open(str(tmp_path / "t")).snapshot().files(["stats"])["stats"][0].as_py()
    assert len(json.loads(stats)["nullCount"]) == 3
