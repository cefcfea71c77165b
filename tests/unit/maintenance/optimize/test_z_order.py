"""Z-order: Z-order: z-values of rows, the order of files, unchanged rows, and bounded memory."""

from __future__ import annotations

import decimal
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable
from deltalog.errors import RowCountError
from deltalog.maintenance.optimize import sorted_bins
from deltalog.maintenance.optimize.z_order import Curve, column_paths, quantiles, range_numbers, values_of
from tests.support.core import environment, info, memory

SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("a", pa.float64()), ("t", pa.string()), ("p", pa.string()),
        ("s", pa.struct([("x", pa.int32())])), ("l", pa.list_(pa.int64())), ("b", pa.bool_()), ("d", pa.date32()),
        ("n", pa.decimal128(9, 2)), ("at", pa.timestamp("us", "UTC")), ("y", pa.binary()),
    ]
)  # fmt: skip


def rows(start: int, count: int, chance: random.Random) -> pa.Table:
    numbers = range(start, start + count)
    value = [chance.choice([None, float("nan"), chance.random(), float("inf"), -0.0]) for _ in numbers]
    return pa.table(
        {
            "id": [chance.randrange(1000) for _ in numbers],
            "a": value,
            "t": [None if n % 7 == 0 else chance.choice(["", "é", "zz", str(n)]) for n in numbers],
            "p": [("u", None)[n % 2] for n in numbers],
            "s": [None if n % 5 == 0 else {"x": n % 100} for n in numbers],
            "l": [[n] for n in numbers],
            "b": [n % 3 == 0 for n in numbers],
            "d": pa.array([n % 50 for n in numbers], pa.int32()).cast(pa.date32()),
            "n": pa.array([decimal.Decimal(n % 31) for n in numbers], pa.decimal128(9, 2)),
            "at": pa.array([n * 1000 for n in numbers], pa.timestamp("us", "UTC")),
            "y": [bytes([n % 256]) for n in numbers],
        },
        SCHEMA,
    )


def create(properties: dict[str, str] | None = None, by: tuple[str, ...] = (), files: int = 6) -> DeltaTable:
    table = DeltaTable.create(memory(), SCHEMA, properties=properties, partition_by=by, environment=environment())
    chance = random.Random(3)
    for number in range(files):
        table.append(rows(100 * number, 100, chance))
    return table


def contents(table: DeltaTable, ids: bool = False) -> list[str]:
    columns = [*SCHEMA.names, *(["_metadata.row_id", "_metadata.row_commit_version"] if ids else [])]
    return sorted(map(str, table.snapshot().scan(columns).to_arrow().to_pylist()))


# --------------------------------------------------------------------------------------------------- row counts


def test_range_numbers_are_those_of_bisect() -> None:
    chance = random.Random(5)
    for bits in (1, 3, 10):
        for kind in (pa.int64(), pa.string()):
            bounds = sorted({chance.randrange(500) for _ in range(chance.randrange(1, 1 << bits))})
            values = [chance.choice([None, chance.randrange(520)]) for _ in range(300)]
            texts = [None if v is None else f"{v:04d}" for v in values], [f"{b:04d}" for b in bounds]
            given = (values, bounds) if kind == pa.int64() else texts
            found = range_numbers(pa.array(given[0], kind), pa.array(given[1], kind), bits).to_pylist()
            assert found == [0 if v is None else sum(bound <= v for bound in bounds) for v in values]


def test_quantiles_cut_into_equal_parts() -> None:
    assert quantiles(pa.array([5, 1, 3, None, 2, 4, 6, 7, 8]), 4).to_pylist() == [3, 5, 7]
    assert quantiles(pa.array([1, 1, 1, 1]), 4).to_pylist() == [1]
    assert quantiles(pa.array([None], pa.int64()), 4).to_pylist() == []


def test_bits_are_interleaved() -> None:
    """Z-values equal the bits of two numbers interleaved in plain Python."""
    values = list(range(1 << 12))
    curve = Curve.from_samples([("a",), ("b",)], [pa.array(values), pa.array(values)])
    chance = random.Random(2)
    a, b = ([chance.randrange(1 << 12) for _ in range(100)] for _ in range(2))
    expected = [
        sum(((x >> bit & 1) << 2 * bit + 1) + ((y >> bit & 1) << 2 * bit) for bit in range(12))
        for x, y in zip(a, b, strict=True)
    ]
    assert curve.numbers([pa.array(a), pa.array(b)]).to_pylist() == expected


def test_values_that_are_not_numbers_are_the_last_and_nulls_the_first() -> None:
    table = pa.table({"a": [float("nan"), None, 1.0, 2.0, float("-inf")]})
    curve = Curve.from_samples([("a",)], [values_of(table, ["a"])])
    places = curve.of_rows(table).to_pylist()
    assert places[1] <= places[4] < places[2] < places[3] < places[0]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "1 to 62 columns"),
        (["x"], "no column"),
        (["id", "ID"], "twice"),
        (["p"], "partition column"),
        (["l"], "cannot be ordered by l"),
        (["s"], "cannot be ordered by s"),
        (["s.q"], "no column"),
    ],
)
def test_columns_that_are_refused(names: list[str], said: str) -> None:
    with pytest.raises(CallError, match=said):
        create(by=("p",), files=1).optimize.z_order(names)


def test_a_column_without_statistics_is_refused() -> None:
    table = create({"delta.dataSkippingNumIndexedCols": "2"}, files=1)
    with pytest.raises(CallError, match="t has no statistics"):
        table.optimize.z_order(["a", "t"])
    table.set_properties({"delta.dataSkippingStatsColumns": "t"})
    assert table.optimize.z_order(["t"]).rows
    with pytest.raises(CallError, match=r"a has no statistics.* delta\.dataSkippingStatsColumns is t"):
        table.optimize.z_order(["a"])
    assert column_paths(["S.X", "a"], table.snapshot().schema, ()) == [("s", "x"), ("a",)]


# ------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("spilled", [False, True], ids=["in memory", "spilled"])
@pytest.mark.parametrize("by", [(), ("p",)], ids=["plain", "partitioned"])
@pytest.mark.parametrize("columns", [["id"], ["a", "t"], ["s.x", "b", "d", "n", "at", "y"]], ids=str)
def test_the_rows_and_their_ids_are_kept(
    columns: list[str], by: tuple[str, ...], spilled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spilled:
        monkeypatch.setattr(sorted_bins, "MEMORY_BYTES", 5_000)
        monkeypatch.setattr(sorted_bins, "RANGE_BYTES", 2_000)
    table = create({"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}, by)
    table.delete("id < 100")
    before, version = contents(table, ids=True), table.version
    size = table.snapshot().size_bytes
    report = table.optimize.z_order(columns, target_size=size // 4)
    assert contents(table, ids=True) == before and report.rows == len(before)
    assert 2 <= len(report.added) <= 8 and report.deletion_vectors > 0
    assert [commit.version for commit in report.commits] == [version + 1]
    assert table.snapshot().num_files == len(report.added)


def test_files_hold_less_of_each_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_bins, "RANGE_BYTES", 2_000)
    chance = random.Random(1)
    store = memory()
    kinds = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    table = DeltaTable.create(store, kinds, environment=environment())
    for _ in range(16):
        table.append(pa.table({"x": [chance.randrange(10_000) for _ in range(500)],
                               "y": [chance.randrange(10_000) for _ in range(500)]}))  # fmt: skip
    conditions = [f"{name} between {start} and {start + 300}" for name in "xy" for start in (500, 4000, 9000)]
    assert all(table.snapshot().scan(where=each).files().num_rows == 16 for each in conditions)
    report = table.optimize.z_order(["x", "y"], target_size=table.snapshot().size_bytes // 16)
    assert 14 <= len(report.added) <= 18
    assert all(table.snapshot().scan(where=each).files().num_rows <= 8 for each in conditions)
    parameters = info(store, table.version)["operationParameters"]
    assert parameters == {"predicate": "[]", "zOrderBy": '["x","y"]', "clusterBy": "[]", "auto": "false"}


def test_many_equal_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_bins, "RANGE_BYTES", 200)
    monkeypatch.setattr(sorted_bins, "MEMORY_BYTES", 1000)
    table = DeltaTable.create(memory(), pa.schema([("x", pa.int64())]), environment=environment())
    table.append(pa.table({"x": [7] * 5000}))
    table.append(pa.table({"x": pa.nulls(300, pa.int64())}))
    report = table.optimize.z_order(["x"], target_size=500)
    assert report.rows == 5300 and table.snapshot().scan(where="x = 7").to_arrow().num_rows == 5000


def test_a_table_without_rows() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    assert table.optimize.z_order(["id"]).commits == ()


def test_rows_that_are_lost_on_the_way_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = create()
    real, lost = sorted_bins._Ranges.add, [0]

    def losing(self: Any, piece: pa.Table) -> None:
        lost[0] += 1
        real(self, piece.slice(1))

    monkeypatch.setattr(sorted_bins._Ranges, "add", losing)
    with pytest.raises(RowCountError):
        table.optimize.z_order(["id"])
    assert lost[0]


def test_columns_are_spelled_as_in_cluster_by(tmp_path: Path) -> None:
    """A column whose name has dots, next to a struct with a field of the same dotted path."""
    data = pa.table({"a.b": [3, 1], "a": [{"b": 1}, {"b": 2}], "odd `name": [1, 2]})
    table = DeltaTable.create(tmp_path, data.schema, data=data, properties={"delta.columnMapping.mode": "name"})
    for spelled, path in (
        ("`a.b`", ("a.b",)),
        ("a.b", ("a", "b")),
        (["A.B"], ("a.b",)),
        ("`odd ``name`", ("odd `name",)),
    ):
        assert column_paths([spelled], table.schema, ()) == [path]
        assert table.optimize.z_order([spelled]).rows == 2
        by = table.history(1)[0].operation_parameters["zOrderBy"]
        table.cluster_by([spelled])
        assert table.snapshot().clustering_columns == (path,)
        table.cluster_by([])
        assert column_paths(json.loads(by), table.schema, ()) == [path]
    with pytest.raises(CallError, match="columns must be a list of text"):
        table.optimize.z_order("id")
    with pytest.raises(CallError, match="is not the path of a column"):
        table.optimize.z_order(["a..b"])
