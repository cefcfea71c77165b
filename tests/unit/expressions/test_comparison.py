"""IN and NOT IN with any number of values: a single lookup gives the same result as a comparison with each value."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, col
from deltalog.errors import ConcurrentAppendError
from deltalog.expressions.bind import bind
from deltalog.expressions.bound import BoundComparison, BoundIn, complement
from deltalog.expressions.compile import compile_expression
from deltalog.expressions.evaluate import matches
from deltalog.expressions.tree import Predicate
from deltalog.read.data_skipping import split
from deltalog.schema import StructType
from tests.support.core.steps import steps

UTC = dt.timezone.utc
UTC_MICROS = pa.timestamp("us", "UTC")
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [1, -3, 127, None]),
    "long": (pa.int64(), [2**53 + 1, -(2**63), 2**63 - 1, 0, None]),
    "real": (pa.float32(), [0.1, -0.0, 0.0, math.nan, math.inf, None]),
    "double": (pa.float64(), [0.1, -0.0, 0.0, math.nan, -math.inf, 1e300, None]),
    "money": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-0.01"), Decimal("99999999.99"), None]),
    "vast": (pa.decimal128(38, 10), [Decimal("1e27"), Decimal("-1e-10"), None]),
    "text": (pa.string(), ["", "a", "ab", "Z", "é", "\uffff", "😀", "a" * 40, "a\x00", None]),
    "raw": (pa.binary(), [b"", b"\x00", b"\xff\xfe", None]),
    "flag": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29), None]),
    "ts": (UTC_MICROS, [dt.datetime(2024, 1, 1, 0, 0, 0, 1, UTC), dt.datetime(1900, 1, 1, tzinfo=UTC), None]),
    "wall": (pa.timestamp("us"), [dt.datetime(2024, 1, 1, 0, 0, 0, 1), dt.datetime(1, 1, 1), None]),
}  # fmt: skip
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
TABLE = StructType.from_arrow(SCHEMA)


def rows(seed: int, number: int) -> pa.Table:
    chance = random.Random(seed)
    return pa.table(
        {name: pa.array([chance.choice(cells) for _ in range(number)], kind) for name, (kind, cells) in VALUES.items()}
    )


def verdicts(predicate: Predicate, table: pa.Table) -> list[bool | None]:
    found: list[bool | None] = matches(bind(predicate, TABLE), table).to_pylist()
    return found


def one_by_one(name: str, values: list[Any]) -> Predicate:
    found: Predicate = col(name) == values[0]
    for value in values[1:]:
        found = found | (col(name) == value)
    return found


@pytest.mark.parametrize("number", [3, 200, 20_000])
@pytest.mark.parametrize("name", VALUES)
def test_a_list_is_what_its_values_are_one_by_one(name: str, number: int) -> None:
    table, chance = rows(1, number), random.Random(name)
    cells = VALUES[name][1]
    for size in (1, 2, len(cells)):
        chosen = chance.sample(cells, size)
        expected = verdicts(one_by_one(name, chosen), table)
        assert verdicts(col(name).isin(chosen), table) == expected, chosen
        assert verdicts(~col(name).isin(chosen), table) == [None if v is None else not v for v in expected], chosen
        kept = matches(complement(bind(col(name).isin(chosen), TABLE)), table).to_pylist()
        assert [v is True for v in kept] == [v is not True for v in expected], chosen


@pytest.mark.slow
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_files_are_left_out_only_where_no_row_matches(tmp_path: Path, seed: int, partitioned: bool) -> None:
    data = rows(seed, 60)
    names = [name for name in VALUES if name != "raw"]
    table = DeltaTable.create(str(tmp_path / "t"), SCHEMA, partition_by=names[:3] if partitioned else [])
    for start in range(0, 60, 4):
        table.append(data.slice(start, 4))
    snapshot, chance = table.snapshot(), random.Random(seed)
    whole = snapshot.scan().to_arrow()
    for name in VALUES:
        cells = [cell for cell in VALUES[name][1] if cell != ""]
        for chosen in (chance.sample(cells, 1), chance.sample(cells, 2), [*cells, *cells]):
            for predicate in (col(name).isin(chosen), ~col(name).isin(chosen)):
                expected = sum(verdict is True for verdict in verdicts(predicate, whole))
                scan = snapshot.scan(["long"], where=predicate)
                assert scan.to_arrow().num_rows == expected, (name, chosen)
                bound = bind(predicate, TABLE)
                inside, _ = split(snapshot.files(), bound, TABLE, snapshot.partition_columns, "none")
                if inside.num_rows:
                    texts = [json.loads(text)["numRecords"] for text in inside["stats"].to_pylist()]
                    assert sum(texts) <= expected


def test_files_between_the_values_are_left_out(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), pa.schema([("id", pa.int64())]))
    for start in range(0, 100, 10):
        table.append(pa.table({"id": list(range(start, start + 10))}))
    wanted = [-5, 3, 4, 55, 1000]
    assert table.snapshot().scan(where=col("id").isin(wanted)).files().num_rows == 2
    assert table.snapshot().scan(where="id IN (-5, 3, 4, 55, 1000)").to_arrow()["id"].to_pylist() == [3, 4, 55]
    assert table.snapshot().scan(where=~col("id").isin(range(100))).to_arrow().num_rows == 0


def test_more_values_are_not_more_passes(tmp_path: Path) -> None:
    table = DeltaTable.create(
        str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("p", pa.int64())]), partition_by=["p"]
    )
    for number in range(10):
        table.append(pa.table({"id": [number, 10_000], "p": [number, number]}))

    def work(values: int, name: str) -> int:
        return steps(lambda: table.snapshot().scan(where=col(name).isin(range(values))).to_arrow())

    for name in ("id", "p"):
        work(100, name)
        assert work(3000, name) - work(1000, name) < 30 * 2000


def test_a_long_list_in_text_and_in_the_log(tmp_path: Path) -> None:
    table = DeltaTable.create(
        str(tmp_path / "t"), pa.schema([("id", pa.int64())]), data=pa.table({"id": [1, 7, 9_000]})
    )
    text = f"id IN ({', '.join(str(n) for n in range(5, 8_000))})"
    assert table.snapshot().scan(where=text).to_arrow()["id"].to_pylist() == [7]
    assert table.snapshot().scan(where=f"NOT ({text})").to_arrow()["id"].to_pylist() == [1, 9_000]
    table.delete(col("id").isin(range(2, 8_000)))
    table.delete(text.replace("5,", "1,", 1))
    assert table.snapshot().scan().to_arrow()["id"].to_pylist() == [9_000]
    assert all(len(str(entry.operation_parameters)) < 20_000 for entry in table.history())


def test_a_conflict_is_seen_through_a_long_list(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = DeltaTable.create(str(tmp_path / "t"), schema, data=pa.table({"id": [1, 2], "v": [0, 0]}))
    other = DeltaTable.open(str(tmp_path / "t"))
    for added in (500_000, 77):
        transaction = table.transaction(isolation_level="Serializable")
        transaction.remove_files(transaction.find_files(col("id").isin(range(50_000))))
        other.append(pa.table({"id": [added], "v": [1]}))
        if added == 77:
            with pytest.raises(ConcurrentAppendError):
                transaction.commit("DELETE", {})
        else:
            transaction.commit("DELETE", {})


def test_an_expression_with_a_long_list() -> None:
    literals = ", ".join(map(str, range(1, 1500)))
    schema = StructType.from_arrow(pa.schema([("i", pa.int32()), ("d", pa.float64())]))
    table = pa.table({"i": pa.array([0, 1, 1499, None], pa.int32()), "d": [0.0, 1.0, math.nan, None]})
    assert compile_expression(f"i IN ({literals})", schema).evaluate(table).to_pylist() == [False, True, True, None]
    assert compile_expression(f"d NOT IN ({literals}, NULL)", schema).evaluate(table).to_pylist() == [
        None, False, None, None,
    ]  # fmt: skip
    assert compile_expression("5 IN (1, 5, i)", schema).evaluate(table).to_pylist() == [True] * 4


LISTS = {
    "list": [1, 127],
    "generator": (n for n in (1, 127)),
    "set": {1, 127},
    "arrow": pa.array([1, 127], pa.uint8()),
    "chunked": pa.chunked_array([[1], [127]]),
    "numpy": np.array([1, 127], np.int16),
    "pandas": pd.Series([1, 127]),
    "polars": pl.Series([1, 127]),
    "arrow scalars": [pa.scalar(1), pa.scalar(127, pa.int8())],
    "numpy scalars": [np.int8(1), np.uint64(127)],
}


@pytest.mark.parametrize("kind", LISTS)
def test_values_come_in_many_forms(kind: str) -> None:
    bound = bind(col("long").isin(LISTS[kind]), TABLE)
    assert isinstance(bound, BoundIn) and bound.values in ((1, 127), (127, 1))


MOMENT = dt.datetime(2024, 1, 1, 0, 0, 0, 1)
SCALARS: list[tuple[str, Any, Any]] = [
    ("byte", np.int64(5), 5),
    ("byte", pa.scalar(5, pa.int8()), 5),
    ("long", pd.Series([5])[0], 5),
    ("double", np.float32(0.1), float(np.float32(0.1))),
    ("double", np.float64("nan"), math.nan),
    ("double", pa.scalar(1.5), 1.5),
    ("money", pa.scalar(Decimal("1.50")), Decimal("1.50")),
    ("text", np.str_("a"), "a"),
    ("text", pa.scalar("a", pa.large_string()), "a"),
    ("raw", np.bytes_(b"a"), b"a"),
    ("flag", np.bool_(True), True),
    ("flag", pa.scalar(False), False),
    ("day", np.datetime64("2024-02-29"), dt.date(2024, 2, 29)),
    ("day", pa.scalar(dt.date(2024, 2, 29)), dt.date(2024, 2, 29)),
    ("wall", np.datetime64("2024-01-01T00:00:00.000001000", "ns"), MOMENT),
    ("wall", pd.Timestamp(MOMENT), MOMENT),
    ("wall", pa.scalar(MOMENT, pa.timestamp("ns")), MOMENT),
    ("ts", pd.Timestamp(MOMENT, tz="UTC"), MOMENT.replace(tzinfo=UTC)),
    ("ts", pa.scalar(MOMENT, pa.timestamp("us", "Asia/Tokyo")), MOMENT.replace(tzinfo=UTC)),
    ("wall", pd.NaT, None),
    ("long", pd.NA, None),
    ("wall", np.datetime64("NaT"), None),
    ("long", pa.scalar(None, pa.int64()), None),
]


@pytest.mark.parametrize(("name", "given", "same"), SCALARS, ids=lambda value: repr(value)[:40])
def test_scalars_of_arrow_numpy_and_pandas_are_values(name: str, given: Any, same: Any) -> None:
    for make in (lambda v: col(name) == v, lambda v: col(name) >= v, lambda v: col(name).isin([v])):
        found, expected = bind(make(given), TABLE), bind(make(same), TABLE)
        assert found == expected
        if isinstance(found, BoundComparison) and isinstance(expected, BoundComparison):
            assert type(found.value) is type(expected.value)


WRONG: dict[str, Any] = {"number": 5, "null": None}  # values whose types the signatures do not allow


@pytest.mark.parametrize(
    "make",
    [
        lambda: col("text").isin("abc"),
        lambda: col("raw").isin(b"abc"),
        lambda: col("long").isin(WRONG["number"]),
        lambda: col("long").isin(WRONG["null"]),
        lambda: col("text").startswith(WRONG["number"]),
        lambda: col("text").startswith(WRONG["null"]),
        lambda: col(WRONG["number"]),
        lambda: col(""),
        lambda: col("a..b"),
        lambda: bind(col("long") == [1], TABLE),
        lambda: bind(col("long") == Decimal("NaN"), TABLE),
        lambda: bind(col("long") < Decimal("sNaN"), TABLE),
        lambda: bind(col("money") == Decimal("Infinity"), TABLE),
        lambda: bind(col("text").isin([Decimal("-Infinity")]), TABLE),
        lambda: bind(col("long") == 10**5000, TABLE),
        lambda: bind(col("text").isin([10**5000]), TABLE),
        lambda: bind(col("long") == np.array([1, 2]), TABLE),
        lambda: bind(col("long") == col("text"), TABLE),
        lambda: bind(col("long") == pa.array([1]), TABLE),
        lambda: bind(col("long").isin([[1]]), TABLE),
        lambda: bind(col("long").isin({1: 2}.items()), TABLE),
        lambda: col("wall") == pd.Timestamp("2024-01-01T00:00:00.000000001"),
        lambda: col("wall") == pa.scalar(1, pa.timestamp("ns")),
        lambda: col("wall").isin(pa.array([1], pa.timestamp("ns"))),
        lambda: bind(col("long") == np.datetime64("2024-02-29"), TABLE),
        lambda: bind(col("text") == np.int64(1), TABLE),
        lambda: bind(col("long") == np.timedelta64(1, "s"), TABLE),
    ],
)
def test_what_is_no_value_is_refused(make: Any) -> None:
    with pytest.raises(CallError):
        make()
