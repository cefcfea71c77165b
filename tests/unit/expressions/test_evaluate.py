"""One expression language: WHERE, CHECK, data skipping and conflict detection accept the same conditions and agree on
each row."""

from __future__ import annotations

import datetime as dt
import functools
import operator
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, col
from deltalog.errors import ConcurrentAppendError
from deltalog.expressions.bind import bind
from deltalog.expressions.bound import complement
from deltalog.expressions.compile import compile_expression
from deltalog.expressions.evaluate import matches
from deltalog.expressions.sql import as_predicate, parse
from deltalog.schema import StructType
from tests.support.expressions import SUPPORTED, cases, edge_rows

ROWS = edge_rows()
SCHEMA = StructType.from_arrow(ROWS.schema)
# Timestamp literals without a zone are UTC in a table's stored expressions, and are refused in where arguments.
WITHOUT_ZONE = {
    "ts > '2020-06-01 12:00:00'", "ts < '2000-01-01'", "ts >= timestamp'1970-01-01 00:00:00'",
    "ts = timestamp '2026-11-21 10:00:00.5'",
}  # fmt: skip
CONDITIONS = [text for text in cases(SUPPORTED) if str(compile_expression(text, SCHEMA).data_type) == "boolean"]


def verdicts(where: str) -> list[bool | None]:
    predicate = as_predicate(where)
    assert predicate is not None
    found: list[bool | None] = matches(bind(predicate, SCHEMA), ROWS).to_pylist()
    return found


@pytest.mark.parametrize("text", CONDITIONS)
def test_where_and_check_agree_on_every_row(text: str) -> None:
    if text in WITHOUT_ZONE:
        with pytest.raises(CallError, match=r"no offset or Z|cannot be compared with column ts"):
            verdicts(text)
        return
    checked = compile_expression(text, SCHEMA).evaluate(ROWS).to_pylist()
    assert verdicts(text) == checked
    assert verdicts(f"NOT ({text})") == [None if each is None else not each for each in checked]
    predicate = as_predicate(text)
    assert predicate is not None
    others = matches(complement(bind(predicate, SCHEMA)), ROWS).to_pylist()
    assert others == [each is not True for each in checked]


def test_conditions_are_equal_when_they_say_the_same_of_the_same_columns() -> None:
    def bound(text: str) -> object:
        return bind(parse(text), SCHEMA)

    for text in ("i = 1", "I + 1 = 2", "POINT.X IN (1, 2)", "upper(CODE) = 'A' OR s LIKE 'a%'"):
        assert bound(text) == bound(text.lower().replace("'a'", "'A'"))
    assert bound("NOT (i < 1)") == bound("i >= 1") == bound("1 <= i")
    assert bound("i = 1") != bound("i = 2") and bound("i + 1 = 2") != bound("i + 1 = 3")
    assert bound("d = 1") == bound("d = 1.0") and bound("d IN (1, 2)") != bound("d IN (1, 3)")


@pytest.mark.parametrize(
    "where",
    [
        " OR ".join(f"day = {day}" for day in range(700)),
        f"NOT ({' AND '.join(f'day <> {day}' for day in range(700))})",
        functools.reduce(operator.or_, [col("day") == day for day in range(700)]),
    ],
    ids=["text", "negated", "python"],
)
def test_chains_of_conditions_may_be_long(table: DeltaTable, where: str) -> None:
    assert table.snapshot().scan(where=where).to_arrow().num_rows == 9


def test_a_chain_of_thousands_is_refused(table: DeltaTable) -> None:
    for where in (" OR ".join(["day = 1"] * 3000), functools.reduce(operator.or_, [col("day") == 1] * 3000)):
        with pytest.raises(CallError, match="nested too deeply"):
            table.snapshot().scan(where=where).to_arrow()


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    schema = pa.schema([("day", pa.int32()), ("name", pa.string()), ("x", pa.int32())])
    made = DeltaTable.create(str(tmp_path / "t"), schema, partition_by=["day"])
    for day in (0, 1, 2):
        rows = {"day": [day] * 3, "name": ["a", "B", None], "x": [day * 10, day * 10 + 1, None]}
        made.append(pa.table(rows, schema=schema))
    return made


@pytest.mark.parametrize(
    ("where", "rows", "files"),
    [
        ("upper(name) = 'A' AND day + 1 > 2", 1, 1),  # any expression on partition columns can be used to skip files
        ("day <> 0 AND 6 / day = 3", 3, 2),
        ("day % 2 = 0 OR x = 11", 7, 3),
        ("x + 1 = 12", 1, 3),
        ("x = 11 AND length(name) = 1", 1, 1),
        ("x > day * 10", 3, 3),
        ("coalesce(x, -1) = -1", 3, 3),
        ("1 = 2", 0, 0),
        (col("x") > col("day"), 5, 3),
    ],
)
def test_a_scan_takes_the_whole_language_and_a_delete_the_same_rows(
    table: DeltaTable, where: str, rows: int, files: int
) -> None:
    scan = table.snapshot().scan(["x"], where=where)
    assert scan.files().num_rows == files
    assert scan.to_arrow().num_rows == rows
    table.delete(where)
    assert table.snapshot().scan().to_arrow().num_rows == 9 - rows


def test_a_row_without_a_value_is_an_error_that_says_what_to_do(table: DeltaTable) -> None:
    with pytest.raises(
        CallError, match=r"10 / x.*cannot be evaluated for a row: divide by zero.*AND evaluates its right side"
    ):
        table.snapshot().scan(where="10 / x > 1").to_arrow()
    with pytest.raises(CallError, match="divide by zero"):
        table.delete("10 / x > 1")
    assert table.snapshot().scan(where="x <> 0 AND 10 / x >= 1").to_arrow().num_rows == 2
    assert table.snapshot().version == 3


def test_a_condition_that_statistics_do_not_judge_conflicts_with_every_new_file(table: DeltaTable) -> None:
    mine, other = (DeltaTable.open(table.url) for _ in range(2))
    with mine.transaction() as transaction:
        transaction.declare_read("x * 2 = 1000")
        transaction.write(pa.table({"day": pa.array([5], pa.int32()), "name": ["a"], "x": pa.array([1], pa.int32())}))
        other.append(pa.table({"day": pa.array([6], pa.int32()), "name": ["b"], "x": pa.array([1], pa.int32())}))
        with pytest.raises(ConcurrentAppendError):
            transaction.commit(operation="WRITE")


def test_the_origin_of_rows_holds_any_condition(table: DeltaTable) -> None:
    scan = table.snapshot().scan(where="upper(name) = 'A' AND startswith(name, '%')")
    assert scan.origin is not None and "upper(name) = 'A'" in scan.origin and "startswith(name, '%')" in scan.origin


def test_moments_of_python_have_a_zone_where_the_column_has_one() -> None:
    schema = StructType.from_arrow(pa.schema([("ts", pa.timestamp("us", "UTC")), ("wall", pa.timestamp("us"))]))
    naive = dt.datetime(2026, 1, 1)
    for predicate in (
        col("ts") == naive,
        col("wall") < naive.replace(tzinfo=dt.timezone.utc),
    ):
        with pytest.raises(CallError, match="cannot be compared with column"):
            bind(predicate, schema)
