from __future__ import annotations

import datetime
import math

import pyarrow as pa
import pytest

from deltalog import CallError, col
from deltalog.expressions.bind import bind
from deltalog.expressions.bound import complement
from deltalog.expressions.evaluate import matches
from deltalog.expressions.sql import as_predicate, parse
from deltalog.expressions.sql_text import to_sql
from deltalog.expressions.tree import Comparison, Literal, Name, Predicate
from deltalog.schema import DecimalType, PrimitiveType, StructField, StructType

UTC = datetime.timezone.utc
SCHEMA = pa.schema(
    [
        ("i", pa.int8()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("st", pa.struct([("x", pa.int64())])),
    ]
)
ROWS = pa.Table.from_pylist(
    [
        {"i": 1, "f": 1.5, "s": "abc", "b": True, "d": datetime.date(2026, 1, 1), "st": {"x": 7},
         "t": datetime.datetime(2026, 1, 1, tzinfo=UTC)},
        {"i": 2, "f": math.nan, "s": "abd", "b": False, "st": {"x": None}},
        {"i": None, "f": None, "s": None, "b": None, "st": None},
        {"i": -3, "f": -0.0, "s": "ABC", "b": True, "st": {"x": 9}},
    ],
    schema=SCHEMA,
)  # fmt: skip
TABLE = StructType.from_arrow(SCHEMA)


def verdicts(where: object) -> list[bool | None]:
    predicate = as_predicate(where)  # type: ignore[arg-type]
    assert predicate is not None
    return matches(bind(predicate, TABLE), ROWS).to_pylist()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("i = 1", [True, False, None, False]),
        ("1 < i", [False, True, None, False]),
        ("NOT (i >= 1)", [False, False, None, True]),
        ("s NOT LIKE 'ab%'", [False, False, None, True]),
        ("NOT s LIKE 'ab%'", [False, False, None, True]),
        ("i != 300", [True, True, None, True]),
        ("i <=> NULL", [False, False, True, False]),
        ("NOT (i <=> 1)", [False, True, True, True]),
        ("i = NULL", [None, None, None, None]),
        ("i IN (1, NULL)", [True, None, None, None]),
        ("i IN (NULL)", [None, None, None, None]),
        ("st NOT IN (NULL)", [None, None, None, None]),
        ("coalesce(st, st) IS NULL", [False, False, True, False]),
        ("i NOT IN (1, -3)", [False, True, None, False]),
        ("i BETWEEN -3 AND 1", [True, False, None, True]),
        ("s LIKE 'ab%'", [True, True, None, False]),
        ("b", [True, False, None, True]),
        ("NOT b", [False, True, None, False]),
        ("i = 1 OR s IS NULL", [True, False, True, False]),
        ("i = 1 AND NULL", [None, False, None, False]),
        ("st.x = 7", [True, None, None, False]),
        ("st.x IS NULL", [False, True, True, False]),
        ("f = 0", [False, False, None, True]),
        ("f > 1", [True, True, None, False]),
        ("f <> 1.5", [False, True, None, True]),
        ("d = DATE '2026-01-01'", [True, None, None, None]),
        ("t <= TIMESTAMP '2026-01-01T00:00:00Z'", [True, None, None, None]),
        ("`S` = 'abc'", [True, False, None, False]),
        (col("f") == math.nan, [False, True, None, False]),
        (col("f") < math.nan, [True, False, None, True]),
        (~(col("i") == 1) & col("s").startswith("ab"), [False, True, None, False]),
        # Expressions that earlier versions of deltalog accepted only in CHECK constraints.
        ("i = 1.5", [False, False, None, False]),
        ("i < 1.5", [True, False, None, True]),
        ("i = '1'", [True, False, None, False]),
        (col("i") == 1.5, [False, False, None, False]),
        (col("i") < col("st.x"), [True, None, None, True]),
        ("i + 1 = 2", [True, False, None, False]),
        ("upper(s) = 'ABC' AND i + 1 > 0", [True, False, None, False]),
        ("length(s) > 2", [True, True, None, True]),
        ("s LIKE '%b_'", [True, True, None, False]),
        ("s LIKE '%\n%' OR startswith(s, 'a')", [True, True, None, False]),
        ("i = i", [True, True, None, True]),
        ("1 = 1", [True, True, True, True]),
        ("true", [True, True, True, True]),
        ("null", [None, None, None, None]),
        ("(i IS NULL) = true", [False, False, True, False]),
        ("b IS NOT TRUE", [False, True, True, False]),
        ("isnan(f)", [False, True, False, False]),
        ("coalesce(b, true)", [True, False, True, True]),
        ("case when i > 1 then b when i < 0 then i = -3 end", [None, False, None, True]),
        ("i <> 0 AND 6 / i > 2", [True, True, None, False]),
        ("i IN (1, st.x - 12)", [True, None, None, True]),
        ("i IN (1, 2.5)", [True, False, None, False]),
        ("i + 0 BETWEEN 1 AND 2", [True, True, None, False]),
        ("i BETWEEN 0.5 AND 1.5", [True, False, None, False]),
        ("year(d) = 2026", [True, None, None, None]),
        ("date_trunc('day', t) = '2026-01-01T00:00:00Z'", [True, None, None, None]),
        ("cast(t as date) = d", [True, None, None, None]),
        ("f > 1e0", [True, True, None, False]),
        ("i = 1L", [True, False, None, False]),
        ("f = 1.5D", [True, False, None, False]),
        ("NOT (i + 1 = 2 OR s LIKE '%d')", [False, False, None, True]),
    ],
)
def test_three_valued_logic_row_by_row(where: object, expected: list[bool | None]) -> None:
    assert verdicts(where) == expected


CONDITIONS = [
    "i = 1", "NOT (i >= 1)", "i <=> NULL", "NOT (i <=> 1)", "i = NULL", "i IN (1, NULL)", "i NOT IN (1, NULL)",
    "i NOT IN (1, -3)", "s LIKE 'ab%'", "NOT s LIKE 'ab%'", "b", "NOT b", "i = 1 OR s IS NULL", "i = 1 AND NULL",
    "s IS NOT NULL AND (f > 1 OR f < 0)", "f <> 1.5", "d = DATE '2026-01-01'", "st.x = 7", "`S` = 'it\\'s \\\\'",
    "true", "t <= TIMESTAMP '2026-01-01T00:00:00Z'", "NOT (i = 1 AND (f < 1 OR NOT b))",
]  # fmt: skip


@pytest.mark.parametrize("where", CONDITIONS)
def test_the_complement_is_true_where_a_condition_is_not(where: str) -> None:
    opposite = matches(complement(bind(parse(where), TABLE)), ROWS).to_pylist()
    assert [verdict is True for verdict in opposite] == [verdict is not True for verdict in verdicts(where)]


@pytest.mark.parametrize("where", CONDITIONS)
def test_text_of_a_predicate_means_the_predicate(where: str) -> None:
    assert parse(to_sql(parse(where))) == parse(where)
    bound = bind(parse(where), TABLE)
    assert bind(parse(to_sql(bound.expression)), TABLE) == bound


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (col("a.b c") == 1, "(a.`b c` = 1)"),
        (col("a") == b"\x0f", "(a = X'0F')"),
        (col("a") < math.nan, "(a < DOUBLE('nan'))"),
        (col("a") < datetime.datetime(2026, 1, 1), "(a < TIMESTAMP_NTZ '2026-01-01 00:00:00')"),
        (~(col("a").is_null() | (col("a") == "x")), "(NOT ((a IS NULL) OR (a = 'x')))"),
    ],
)
def test_predicates_as_text(predicate: Predicate, text: str) -> None:
    assert to_sql(predicate) == text


@pytest.mark.parametrize(
    ("where", "part"),
    [
        ("nope = 1", "There is no column 'nope'"),
        ("i = 'x'", "cannot be compared with column i"),
        ("i = 'x1'", "cannot be compared with column i"),
        ("t = '2026-01-01'", "cannot be compared with column t"),
        ("soundex(s) = 'x'", "soundex is not supported"),
        ("i IN (SELECT 1)", "is not supported"),
        ("i =", "cannot be parsed"),
        ("s LIKE '%\\\\_x'", "LIKE with a backslash"),
        ("s LIKE s", "a literal pattern"),
        ("i = 1; DROP TABLE x", "is not supported|statements"),
        # sqlglot parses ``NOT IN other`` as NOT IN an empty list, which would be true for all rows.
        ("i NOT IN other", "is not supported"),
        ("i NOT IN UNNEST(other)", "is not supported"),
        ("i NOT IN ()", "is not supported"),
        ("i BETWEEN SYMMETRIC 3 AND 1", "is not supported"),
        ("i = " + "1" * 5000, "A number of 5000 digits is not supported"),  # Python's int() refuses these
        ("i IN (1, " + "1" * 5000 + ")", "A number of 5000 digits is not supported"),
        ("f = -" + "1" * 5000, "A number of 5001 digits is not supported"),
        ("i = " + "1" * 5000 + "L", "A number of 5000 digits is not supported"),
        ("'true'", "is a string, not a condition"),
        ("concat(st, 'a') = 'xa'", "CAST from struct"),
        ("coalesce(st, 1) = 1", "CASE of integer and struct<x:long> together"),
        ("i = 1e9999999", "out of the range of a double"),  # the integer with all these digits is never created
        ("f = -1e99999999", "out of the range of a double"),
        ("(" * 5000 + "i = 1" + ")" * 5000, "nested|parsed"),
        ("length(i) > 1", r"The function length of byte is not supported"),
        ("1 < length(i)", r"The function length of byte is not supported"),
        ("s + 1 = 2", r"\+ of string and integer is not supported"),
        ("i = s", "string and byte together"),
        ("i = 1 = true", "without parentheses is not supported"),
        ("upper(s)", "string and boolean together"),
        ("i", "cannot be compared with column i|not a condition"),
        ("date_trunc('day', t) = '2026-01-01'", "which has no offset or Z"),
        ("t = TIMESTAMP '2026-01-01 00:00:00'", "cannot be compared with column t"),
        ("t > d AND t < '2026-01-01'", "cannot be compared with column t"),
        ("d < current_date", "value changes with each call"),
        ("cast(s as varchar(3)) = 'x'", "VARCHAR"),
        ("starts_with(s, 'x')", r"starts_with is not supported\. Write startswith"),
        ("extract(second FROM t) = 1", r"SECOND of a time is not supported\. Write second\(…\)"),
        ("date_part('dow', t) = 1", "DOW of a time is not supported. Write dayofweek"),
        ("extract(nope FROM t) = 1", "The part NOPE of a time is not supported"),
        ("position('a' IN s IN ('b')) = 1", "IN after a comparison|cannot be parsed|with 3 arguments|not supported"),
        ("i ^= 1", r"\^= at character 3 is not supported"),
        ("d = DATE '2026-1-1'", "'2026-1-1' is not a literal of the form yyyy-MM-dd"),
        ("`st.x` = 1", "There is no column '`st.x`'. Columns: i, f"),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(where: str, part: str) -> None:
    with pytest.raises(CallError, match=part) as caught:
        verdicts(where)
    assert "<class" not in str(caught.value)


def test_a_column_with_dots_is_named_in_backquotes() -> None:
    schema = StructType.from_arrow(pa.schema([("a.b", pa.int64()), ("st", pa.struct([("c.d", pa.int64())]))]))
    table = pa.table({"a.b": [1, 2], "st": [{"c.d": 3}, None]})
    for where, expected in (("`a.b` = 1", [True, False]), ("st.`c.d` = 3", [True, None])):
        for predicate in (parse(where), col(where.partition(" ")[0]) == int(where[-1])):
            assert matches(bind(predicate, schema), table).to_pylist() == expected
            assert bind(parse(to_sql(predicate)), schema) is not None
    with pytest.raises(CallError, match="in backticks"):
        bind(col("a.b") == 1, schema)
    assert col("`a``b`.c").path == ("a`b", "c") and col("`a``b`.c").name == "`a``b`.c"


def test_parentheses_change_nothing() -> None:
    assert verdicts("(i) = (1)") == verdicts("i = 1")


def test_a_sign_keeps_every_digit_of_a_decimal() -> None:
    digits = "1.2345678901234567890123456789012345678"
    schema = StructType((StructField("n", DecimalType(38, 37)),))
    assert digits in to_sql(bind(parse(f"n = -{digits}"), schema).expression)


def test_lists_may_be_long() -> None:
    assert verdicts(col("i").isin([*range(1000, 6000), 1])) == [True, False, None, False]
    assert verdicts(~col("i").isin([*range(1000, 6000), None])) == [None, None, None, None]
    assert verdicts(col("f").isin([math.nan, None])) == [None, True, None, None]


def test_python_and_and_or_are_refused() -> None:
    with pytest.raises(CallError, match="&"):
        assert (col("i") == 1) and (col("i") == 2)


def test_text_and_objects_say_the_same() -> None:
    assert parse("a.b >= 3") == (col("a.b") >= 3) == Comparison(">=", Name(("a", "b")), Literal(3))
    assert parse("a IN (1, 'x', NULL) OR NOT a IS NULL") == (col("a").isin([1, "x", None]) | ~col("a").is_null())


@pytest.mark.parametrize("where", ["name = 'a'", "name in ('a')", "name like 'a%'", "name > 'a' and name is null"])
def test_text_with_a_collation_is_not_compared_by_its_bytes(where: str) -> None:
    field = StructField("name", PrimitiveType("string"), True, {"__COLLATIONS": {"name": "spark.UTF8_LCASE"}})
    with pytest.raises(CallError, match="name has a collation"):
        bind(parse(where), StructType((field,)))
    assert bind(parse("name is null"), StructType((field,))) is not None
