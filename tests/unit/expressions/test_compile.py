"""SQL expressions over Arrow rows. tests/interop checks that they have Spark's semantics."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError
from deltalog.expressions.compile import compile_expression
from deltalog.schema import PrimitiveType, StructField, StructType
from tests.support.expressions import FAILING, REFUSED, SUPPORTED, cases, edge_rows

ROWS = edge_rows()
SCHEMA = StructType.from_arrow(ROWS.schema)


def values(text: str, rows: pa.Table = ROWS, **options: Any) -> list[Any]:
    return compile_expression(text, StructType.from_arrow(rows.schema), **options).evaluate(rows).to_pylist()


@pytest.mark.parametrize("text", cases(SUPPORTED))
def test_values_have_the_declared_type_and_do_not_depend_on_how_rows_are_cut(text: str) -> None:
    expression = compile_expression(text, SCHEMA)
    whole = expression.evaluate(ROWS)
    assert StructType.from_arrow(pa.schema([("c", whole.type)])).field("c").data_type == expression.data_type
    cut = [repr(v) for at in range(0, len(ROWS), 50) for v in expression.evaluate(ROWS.slice(at, 50)).to_pylist()]
    assert [repr(v) for v in whole.to_pylist()] == cut
    assert len(expression.evaluate(ROWS.slice(0, 0))) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-7 % 3", -1), ("pmod(-7, 3)", 2), ("7 / 2", 3.5), ("-7 DIV 2", -3), ("2 + 3 * 4", 14), ("7Y % -1Y", 0),
        ("1.5 + 2.25", Decimal("3.75")), ("1.1 * 1.1", Decimal("1.21")), ("1 = 1.0", True), ("0.0D = -0.0D", True),
        ("null AND false", False), ("null AND true", None), ("null OR true", True), ("NOT null", None),
        ("null = null", None), ("null <=> null", True), ("1 IN (2, null)", None), ("1 IN (1, null)", True),
        ("1 NOT BETWEEN 2 AND 3", True), ("'a_c' LIKE 'a_c'", True), ("'abc' NOT LIKE 'a%'", False),
        ("CASE 2 WHEN 1 THEN 'x' END", None), ("IF(1 = null, 1, 2)", 2), ("COALESCE(null, 5)", 5),
        ("NULLIF(5, 5)", None),
        ("CAST(1.9D AS INT)", 1), ("CAST(' 12 ' AS INT)", 12), ("CAST(true AS STRING)", "true"),
        ("YEAR(DATE'2024-02-29')", 2024), ("DAYOFWEEK(DATE'2026-11-21')", 7), ("QUARTER(DATE'2024-12-31')", 4),
        ("CAST(TIMESTAMP'1969-12-31 23:59:59.5' AS DATE)", dt.date(1969, 12, 31)),
        ("CAST(TIMESTAMP'2024-01-01 00:00:00+02:00' AS STRING)", "2023-12-31 22:00:00"),
        ("CAST(TIMESTAMP'2024-01-01 00:00:00.120' AS STRING)", "2024-01-01 00:00:00.12"),
        ("DATE_FORMAT(DATE'0007-02-03', 'yyyy-MM')", "0007-02"),
        ("TRUNC(DATE'2026-11-21', 'week')", dt.date(2026, 11, 16)),
        ("SUBSTRING('hello', -3, 2)", "ll"), ("SUBSTRING('hello', 0, 2)", "he"), ("LEFT('ä€😀', 2)", "ä€"),
        ("'a' || 'b' || 1", "ab1"), ("TRIM('  a ')", "a"), ("LENGTH('😀')", 1),
        ("FLOOR(-1.5D)", -2), ("CEIL(-1.5D)", -1),
    ],
)  # fmt: skip
def test_values_are_those_of_spark(text: str, expected: Any) -> None:
    (found,) = values(text, pa.table({"a": [1]}))
    assert found == expected and type(found) is type(expected)


# For a number of seconds that is too large for a timestamp, Spark returns its latest timestamp.
@pytest.mark.parametrize("text", [*cases(FAILING), "cast(huge as timestamp)"])
def test_overflow_division_by_zero_and_lossy_casts_are_errors(text: str) -> None:
    with pytest.raises((pa.ArrowInvalid, CallError)):  # a wrong literal raises an error before any row is read
        compile_expression(text, SCHEMA).evaluate(ROWS)


@pytest.mark.parametrize(("text", "word"), REFUSED.items())
def test_what_is_not_known_to_mean_the_same_is_refused_by_name(text: str, word: str) -> None:
    with pytest.raises(CallError) as refused:
        compile_expression(text, SCHEMA)
    message = str(refused.value)
    assert word.lower() in message.lower().split("': ", 1)[-1]


def test_a_side_that_is_not_needed_does_not_fail() -> None:
    rows = pa.table({"a": pa.array([0, 5, None], pa.int32())})
    assert values("a <> 0 AND 10 / a > 1", rows) == [False, True, None]
    assert values("a = 0 OR 10 / a > 1", rows) == [True, True, None]
    assert values("CASE WHEN a = 0 THEN -1 WHEN 10 DIV a > 1 THEN 1 ELSE 0 END", rows) == [-1, 1, 0]
    with pytest.raises(pa.ArrowInvalid):
        values("10 / a > 1", rows)


def test_case_of_text_beyond_ascii_is_not_guessed() -> None:
    with pytest.raises(pa.ArrowInvalid, match="ASCII"):
        values("upper(s)")


def test_the_columns_that_are_looked_at_are_known_with_the_names_of_the_schema() -> None:
    expression = compile_expression("POINT.X > 0 AND (I = 1 OR i = 2)", SCHEMA)
    assert expression.columns == (("point", "x"), ("i",))


def test_the_clock_is_given() -> None:
    now = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc)
    one = pa.table({"a": [1]})
    assert values("current_timestamp()", one, now=now) == [now]
    assert values("CURRENT_DATE", one, now=now) == [now.date()]
    assert values("cast(now() as date)", one, now=now) == [now.date()]


def test_values_are_cast_to_the_type_that_is_wanted() -> None:
    schema, rows = StructType.from_arrow(pa.schema([("a", pa.int32())])), pa.table({"a": pa.array([1], pa.int32())})
    wanted = StructType.from_arrow(pa.schema([("c", pa.decimal128(5, 2))])).field("c").data_type
    assert str(compile_expression("1.5", schema, wanted).evaluate(rows)[0]) == "1.50"
    assert str(compile_expression("1.555", schema, wanted).evaluate(rows)[0]) == "1.56"
    assert str(compile_expression("'1.5'", schema, wanted).evaluate(rows)[0]) == "1.50"
    with pytest.raises(CallError, match="decimal"):
        compile_expression("1.5D", schema, wanted)


def test_decimals_are_rounded_half_away_from_zero() -> None:
    numbers = ["1.005", "-1.005", "1.0049", "9.9999", "99.994", None]
    schema = StructType.from_arrow(pa.schema([("d", pa.decimal128(8, 4))]))
    table = pa.table({"d": pa.array([None if n is None else Decimal(n) for n in numbers], pa.decimal128(8, 4))})
    cast = compile_expression("cast(d AS decimal(4,2))", schema)
    assert list(map(str, cast.evaluate(table).to_pylist())) == ["1.01", "-1.01", "1.00", "10.00", "99.99", "None"]
    with pytest.raises(pa.ArrowInvalid):
        cast.evaluate(pa.table({"d": pa.array([Decimal("99.995")], pa.decimal128(8, 4))}))


@pytest.mark.parametrize(
    "text", ["(" * 4000 + "1" + ")" * 4000, "1" + " + 1" * 2000, "not " * 2000 + "true", "x" * 10_001]
)
def test_expressions_without_measure_are_refused(text: str) -> None:
    with pytest.raises(CallError):
        compile_expression(text, SCHEMA)


@pytest.mark.parametrize(
    "around",
    [
        "({} BETWEEN true AND true)",
        "({} IN (b, NOT b))",
        "nullif({}, false)",
        "coalesce({}, true)",
        "(CASE {} WHEN true THEN true WHEN false THEN false END)",
    ],
)
def test_an_expression_whose_work_doubles_with_its_depth_is_refused(around: str) -> None:
    text = "b"
    for _ in range(20):
        text = around.format(text)
    with pytest.raises(CallError, match="MAX_EXPRESSION_STEPS"):
        compile_expression(text, StructType((StructField("b", PrimitiveType("boolean")),)))


def test_rules_have_only_the_types_of_spark() -> None:
    for name in ("VARCHAR", "text"):
        with pytest.raises(CallError, match=f"(?i)CAST to {name} is not supported"):
            values(f"CAST(a AS {name})", pa.table({"a": [1]}))
