"""Parsing SQL text into trees, and writing trees as SQL text."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from deltalog import CallError, Predicate, col
from deltalog.expressions.bind import bind
from deltalog.expressions.sql import as_predicate, names_in, parse
from deltalog.expressions.sql_text import shown, to_sql
from deltalog.expressions.tree import In, Like, Name, StartsWith
from deltalog.schema import StructType
from tests.support.expressions import FAILING, SUPPORTED, cases, edge_rows

SCHEMA = StructType.from_arrow(edge_rows().schema)


# Texts whose tree is written as another text that is not parsed to the same tree: a decimal without a fraction is
# written as an integer, because the column's type determines the type of the comparison.
ROUND = {"1."}


@pytest.mark.parametrize("text", [text for text in (*cases(SUPPORTED), *cases(FAILING)) if text not in ROUND])
def test_the_text_of_a_tree_is_parsed_to_the_same_tree(text: str) -> None:
    tree = parse(text)
    assert parse(to_sql(tree)) == tree


@pytest.mark.parametrize(
    "where",
    [
        "i + 1 = 2 AND upper(code) = 'A'", "I = J OR NOT POINT.X > 1.5", "case p when q then true end",
        "isnan(d)", "coalesce(i, j) IN (1, 5L, i)", "i BETWEEN j AND 1e3", "s LIKE 'a_%' AND s NOT LIKE '%b'",
        "startswith(s, '100%') AND startswith(lower(code), 'a')", "cast(ts as date) = date '2024-01-01'", "true", "p",
        "date_trunc('day', ts) < timestamp '2024-01-01 00:00:00Z'", "(i is null) = (q is not true)" , "d > -1.5D",
        "wall < TIMESTAMP '2024-01-01 00:00:00'", "tiny = 3Y AND small <> -7S AND real < 0.1F",
    ],
)  # fmt: skip
def test_the_text_of_a_bound_condition_is_bound_to_the_same_condition(where: str) -> None:
    predicate = as_predicate(where)
    assert predicate is not None
    bound = bind(predicate, SCHEMA)
    again = as_predicate(to_sql(bound.expression))
    assert again is not None and bind(again, SCHEMA) == bound


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (col("a").startswith("ab"), "(a LIKE 'ab%')"),
        (col("a").startswith("a%b_"), "startswith(a, 'a%b_')"),
        (col("a").isin([]), "false"),
        (col("a").isin([1, "x", None]), "(a IN (1, 'x', NULL))"),
        (col("a") > datetime.date(2026, 1, 1), "(a > DATE '2026-01-01')"),
        (col("a") != col("b"), "(a != b)"),
        (col("a") == Decimal("1E-10"), "(a = 0.0000000001)"),
        (col("a") == Decimal("1E+999999"), "(a = 1E+999999)"),
    ],
)
def test_predicates_of_python_are_written_in_the_dialect_of_spark(predicate: Predicate, text: str) -> None:
    assert to_sql(predicate) == text


def test_a_pattern_with_one_final_percent_sign_is_a_prefix() -> None:
    assert parse("a LIKE 'x%'") == StartsWith(Name(("a",)), "x") == parse("startswith(a, 'x')")
    assert isinstance(parse("a LIKE 'x_%'"), Like) and isinstance(parse("a LIKE 'x'"), Like)


def test_long_lists_are_cut_in_messages_only() -> None:
    predicate = In(Name(("a",)), tuple(range(2000)))
    assert shown(predicate).endswith(", 999, …))") and to_sql(predicate).endswith(", 1999))")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("s IN ('a', NOT 'b')", "s IN ('a', (NOT 'b'))"),
        ("CASE 'a' WHEN 'b' THEN 1 END", "CASE ('a') WHEN ('b') THEN 1 END"),
        ("a - b || c + d", "((a - b) || c) + d"),
        ("a * b || c", "(a * b) || c"),
        ("- a[0]::int * b", "(-((a[0])::int)) * b"),
        ("NOT a = b AND c OR d", "((NOT (a = b)) AND c) OR d"),
        ("a BETWEEN b AND c + 1 AND d", "(a BETWEEN b AND (c + 1)) AND d"),
        ("NOT a NOT IN (1) AND b IS NOT NULL", "(NOT (a NOT IN (1))) AND (b IS NOT NULL)"),
        ("((a))[(0)].x", "a[0].x"),
    ],
)
def test_operators_are_grouped_as_by_spark(text: str, same: str) -> None:
    assert parse(text) == parse(same)


@pytest.mark.parametrize(
    "text",
    [
        "f(a,)", "f(,a)", "f(a,,b)", "a IN (1,)", "a b", "1.x", "a = NOT b", "- NOT a", "a BETWEEN 1 AND NOT b",
        "a BETWEEN b", "CASE a END", "CASE WHEN a b END", "CASE WHEN a THEN b ELSE END", "CASE a ELSE b END",
        "a IS NULL = b", "a IS TRUE::INT", "CAST(a)", "CAST(a AS INT b)", "CAST(a AS INT + 1)", "a.f(1)", "[a]", "a[]",
        "a[1, 2]", "a NOT b", "a NOT AND b", "a OR", "m[a AND b]", "(a AS b)", "true(a)", "NULL(a)",
    ],
)  # fmt: skip
def test_what_spark_cannot_parse_is_refused(text: str) -> None:
    with pytest.raises(CallError, match=r"parsed|supported"):
        parse(text)


@pytest.mark.parametrize("where", [5, ["a = 1"], col("a")])
def test_other_objects_are_no_conditions(where: object) -> None:
    with pytest.raises(CallError, match="where must be SQL text or a predicate"):
        as_predicate(where)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A + `b c` > 1", {"a", "b c"}),
        ("point.X = 1", {"point", "x"}),
        ("array_contains(tags, Name)", {"tags", "name"}),  # also of unsupported functions
        ("'a' = 1", set()),
        ("a >", None),
        ("a; b", None),
        ("(" * 5000 + "a" + ")" * 5000, None),
    ],
)
def test_names_are_found_in_every_expression_that_can_be_parsed(text: str, names: set[str] | None) -> None:
    assert names_in(text) == names
