"""Data skipping never skips a file with a row that satisfies the predicate, whatever the values, types and bounds."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltalog import DeltaTable, Predicate, col
from deltalog.engine import AddFile
from deltalog.expressions.bind import bind
from deltalog.expressions.evaluate import matches
from deltalog.expressions.sql import as_predicate
from deltalog.expressions.tree import Comparison, Literal, Name
from deltalog.log import file_statistics
from deltalog.log.file_statistics import as_json
from deltalog.log.file_tables import add_actions
from deltalog.parquet.file_reader import DataFile, FileLayout, read_file
from deltalog.protocol.column_paths import parse_path
from deltalog.read import data_skipping
from deltalog.read.data_skipping import prune, split
from deltalog.schema import StructType
from tests.support.core import SCHEMA, environment, memory, rows
from tests.support.core.strategies import examples

UTC = datetime.timezone.utc
NTZ = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))
TEXT = st.text(max_size=3) | st.text(min_size=30, max_size=40) | st.sampled_from(["a" * 33, "😀" * 40])
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "byte": (pa.int8(), st.integers(-128, 127)),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "integer": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])),
    "float": (pa.float32(), st.floats(width=32)),
    "text": (pa.string(), TEXT),
    "date": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us", "UTC"), NTZ.map(lambda t: t.replace(tzinfo=UTC))),
    "wall": (pa.timestamp("us"), NTZ),
    "money": (pa.decimal128(38, 10), st.decimals(-(10**27), 10**27, places=10, allow_nan=False)),
    "flag": (pa.bool_(), st.booleans()),
    "bytes": (pa.binary(), st.binary(max_size=3)),
}  # fmt: skip
# Where the statistics are stored: in commits as JSON text, or in a checkpoint as JSON text, as structs, or as both.
TEXT_KEY, STRUCT_KEY = "delta.checkpoint.writeStatsAsJson", "delta.checkpoint.writeStatsAsStruct"
FORMS = [None, {}, {TEXT_KEY: "false"}, {STRUCT_KEY: "false"}]
OPERATORS = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Schema, list[pa.Table], Predicate]:
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True))
    fields = [(name, VALUES[name][0]) for name in names] + [("part", pa.int64())]
    schema = pa.schema([*fields, ("st", pa.struct([("inner", VALUES[names[0]][0])]))])

    def row() -> st.SearchStrategy[dict[str, Any]]:
        each: dict[str, st.SearchStrategy[Any]] = {n: st.none() | VALUES[n][1] for n in names}
        each["part"] = st.none() | st.integers(0, 2)
        each["st"] = st.none() | st.fixed_dictionaries({"inner": st.none() | VALUES[names[0]][1]})
        return st.fixed_dictionaries(each)

    tables = [
        pa.Table.from_pylist(rows, schema=schema)
        for rows in draw(st.lists(st.lists(row(), min_size=1, max_size=3), min_size=1, max_size=4))
    ]
    seen = [value for table in tables for value in table[names[0]].to_pylist() if value is not None]
    return schema, tables, draw(predicates(names, seen))


def predicates(names: list[str], seen: list[Any]) -> st.SearchStrategy[Predicate]:
    def values(name: str) -> st.SearchStrategy[Any]:
        fresh = VALUES[name][1]
        return fresh | st.sampled_from(seen) if seen and name == names[0] else fresh

    def leaf(name: str, path: str) -> st.SearchStrategy[Predicate]:
        comparison = st.builds(lambda op, v: getattr(col(path), op)(v), st.sampled_from(OPERATORS), values(name))
        null_safe = st.builds(lambda v: Comparison("<=>", Name(parse_path(path)), Literal(v)), st.none() | values(name))
        options = [comparison, null_safe, st.just(col(path).is_null())]
        options.append(st.lists(st.none() | values(name), max_size=3).map(lambda v: col(path).isin(v)))
        if name == "text":
            options.append(st.text(max_size=4).map(lambda v: col(path).startswith(v)))
        return st.one_of(options)

    partition = st.builds(lambda op, v: getattr(col("part"), op)(v), st.sampled_from(OPERATORS), st.integers(0, 2))
    leaves = st.one_of([leaf(n, n) for n in names] + [leaf(names[0], "st.inner"), partition])
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(lambda a, b: a & b, inner, inner)
            | st.builds(lambda a, b: a | b, inner, inner)
            | inner.map(lambda a: ~a)
        ),
        max_leaves=4,
    )


@pytest.mark.slow
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(), st.sampled_from(FORMS), st.booleans())
def test_rows_after_skipping_are_those_of_brute_force(
    case: tuple[pa.Schema, list[pa.Table], Predicate], form: dict[str, str] | None, bounds_first: bool
) -> None:
    schema, tables, predicate = case
    store = memory()
    table = DeltaTable.create(store, schema, partition_by=["part"], properties=form, environment=environment())
    for each in tables:
        table.append(each)
    if form is not None:
        table.checkpoint()
    snapshot = DeltaTable.open(store).snapshot()
    assert (snapshot.log.segment.checkpoint is None) == (form is None)
    everything = snapshot.scan().to_arrow()
    expected = everything.filter(matches(bind(predicate, snapshot.schema), everything))
    # By default, bounds are compared first only if there are many files.
    many, sample = (0, 1 << 30) if bounds_first else (1 << 30, 0)
    with mock.patch.multiple(data_skipping, _MANY=many, _SAMPLE=sample):
        found = snapshot.scan(where=predicate).to_arrow()
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


@pytest.mark.slow
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_files_that_hold_matching_rows_only_are_known_as_such(
    case: tuple[pa.Schema, list[pa.Table], Predicate],
) -> None:
    schema, tables, predicate = case
    table = DeltaTable.create(memory(), schema, partition_by=["part"], environment=environment())
    for each in tables:
        table.append(each)
    snapshot = table.snapshot()
    bound = bind(predicate, snapshot.schema)
    whole, others = split(snapshot.files(), bound, snapshot.schema, ["part"], "none")
    assert sorted([*whole["path"].to_pylist(), *others["path"].to_pylist()]) == sorted(
        snapshot.files()["path"].to_pylist()
    )
    layout = FileLayout(snapshot.schema, ["part"])
    for add in add_actions(whole):
        for batch in read_file(snapshot.reader.files, DataFile(add.path, add.partition_values), layout):
            assert all(matches(bound, pa.Table.from_batches([batch])).to_pylist())


def kept(statistics: Sequence[str | None], where: str, schema: str = "long") -> list[int]:
    """The positions of the files that are read, in a table with one column ``x`` and the given file statistics."""
    fields = [{"name": "x", "type": schema, "nullable": True, "metadata": {}}]
    table = DeltaTable.create(
        memory(), StructType.from_json(json.dumps({"type": "struct", "fields": fields})), environment=environment()
    )
    with table.transaction() as transaction:
        for number, text in enumerate(statistics):
            transaction.add(
                AddFile(
                    path=f"{number}.parquet",
                    partition_values={},
                    size=1,
                    modification_time=1,
                    data_change=True,
                    stats=text,
                )
            )
        transaction.commit()
    return [int(path.split(".")[0]) for path in table.snapshot().scan(where=where).files()["path"].to_pylist()]


def stats(low: Any, high: Any, nulls: int = 0, rows: int = 10) -> str:
    return json.dumps(
        {"numRecords": rows, "minValues": {"x": low}, "maxValues": {"x": high}, "nullCount": {"x": nulls}}
    )


def test_files_outside_the_bounds_are_left_out() -> None:
    files = [stats(0, 9), stats(10, 19), stats(20, 29), stats(None, None, nulls=10)]
    assert kept(files, "x = 15") == [1]
    assert kept(files, "x > 19") == [2]
    assert kept(files, "x IN (5, 25)") == [0, 2]
    assert kept(files, "x IS NULL") == [3]
    assert kept(files, "x IS NOT NULL") == [0, 1, 2]
    assert kept(files, "NOT (x < 20)") == [2]
    texts = [stats("a", "b"), stats("x", "z"), stats(None, None, nulls=10)]
    assert kept(texts, "x LIKE 'y%'", "string") == [1]


def test_statistics_that_cannot_be_trusted_prove_nothing() -> None:
    odd = [None, "", "{}", "not json", '{"minValues":{"x":"text"}}', '{"numRecords":3}\n{"numRecords":4}', stats(0, 9)]
    assert kept(odd, "x = 15") == [0, 1, 2, 3, 4, 5]


def test_upper_bounds_of_timestamps_are_widened_by_a_millisecond() -> None:
    cut = [stats("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.123Z")]
    assert kept(cut, "x = TIMESTAMP '2026-01-01T00:00:00.123999Z'", "timestamp") == [0]
    assert kept(cut, "x = TIMESTAMP '2026-01-01T00:00:00.125Z'", "timestamp") == []


def test_nan_may_hide_above_the_upper_bound_of_another_writer() -> None:
    files = [stats(1.0, 1.0)]
    assert kept(files, "x > 5", "double") == [0]
    assert kept(files, "x <> 1", "double") == [0]
    assert kept(files, "x < 0", "double") == []


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (col("x").isin([5.0]), [0]),
        (col("x").isin([1.0]), [0, 1]),
        (col("x").isin([0.0]), []),
        (~col("x").isin([1.0]), [0, 1]),
        (col("x") == 5.0, [0]),
        (col("x") < 5.0, [0, 1]),
    ],
)
def test_an_upper_bound_that_is_nan_bounds_nothing(predicate: Predicate, expected: list[int]) -> None:
    schema = StructType.from_arrow(pa.schema({"x": pa.float64()}))
    found = prune(files_with_bounds([(1.0, math.nan), (1.0, 1.0)]), bind(predicate, schema), schema, [], "none")
    assert found["number"].to_pylist() == expected


def test_a_file_with_a_bound_that_is_nan_is_not_taken_whole() -> None:
    schema = StructType.from_arrow(pa.schema({"x": pa.float64()}))
    whole, _ = split(files_with_bounds([(1.0, math.nan)]), bind(~col("x").isin([1.0]), schema), schema, [], "none")
    assert whole.num_rows == 0


def files_with_bounds(bounds: Sequence[tuple[float, float]]) -> pa.Table:
    """Files whose statistics are structs in a checkpoint; delta-spark writes NaN into such structs."""
    parsed = [
        {"numRecords": 2, "minValues": {"x": low}, "maxValues": {"x": high}, "nullCount": {"x": 0}}
        for low, high in bounds
    ]
    values = pa.array([[]] * len(bounds), pa.map_(pa.string(), pa.string()))
    numbers = pa.array(range(len(bounds)))
    return pa.table({"number": numbers, "partition_values": values, "stats_parsed": pa.array(parsed)})


def test_decimal_bounds_are_exact_enough() -> None:
    exact = decimal.Decimal("12345678901234567890.1234567890")
    files = [stats(float(exact), float(exact))]
    assert kept(files, f"x = {exact}", "decimal(38,10)") == [0]
    assert kept(files, "x < 5", "decimal(38,10)") == []


@pytest.mark.parametrize("where", ["x >= 70 AND x < 80", "x >= 0", "x IS NULL", "x = 75 OR x IS NULL", "x < 20"])
def test_a_long_list_is_pruned_as_a_short_one(where: str) -> None:
    stats = [
        json.dumps(
            {
                "numRecords": 5,
                "minValues": {"x": i % 100},
                "maxValues": {"x": i % 100 + 1},
                "nullCount": {"x": i % 7 - 1},
            }
        )
        for i in range(5000)
    ]
    stats[10] = json.dumps({"numRecords": 5, "nullCount": {"x": 5}})
    files = pa.table({"number": range(5000), "stats": stats})
    schema = StructType.from_arrow(pa.schema({"x": pa.int64()}))
    predicate = as_predicate(where)
    assert predicate is not None
    bound = bind(predicate, schema)
    with mock.patch.object(data_skipping, "_MANY", 1 << 30):
        expected = prune(files, bound, schema, [], "none")
    found = prune(files, bound, schema, [], "none")
    assert found["number"].to_pylist() == expected["number"].to_pylist()
    assert found.num_rows > 0


def test_text_of_statistics_is_made_only_for_files_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {TEXT_KEY: "false", STRUCT_KEY: "true"}
    store = memory()
    table = DeltaTable.create(store, SCHEMA, environment=environment(), properties=properties)
    for number in range(8):
        table.append(rows(number))
    table.checkpoint()
    snapshot = DeltaTable.open(store).snapshot()
    made: list[int] = []

    def counting(values: Any) -> Any:
        made.append(len(values))
        return as_json(values)

    monkeypatch.setattr(file_statistics, "as_json", counting)
    found = snapshot.scan(where="id >= 6").files()
    assert sum(made) == 2 == found.num_rows
    assert snapshot.scan(where="id >= 6").to_arrow().num_rows == 2 and sum(made) == 2
    everything = {row["path"]: row for row in snapshot.files().to_pylist()}
    assert [everything[row["path"]] for row in found.to_pylist()] == found.to_pylist()
