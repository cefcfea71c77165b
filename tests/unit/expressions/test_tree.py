"""Trees are equal if and only if their SQL text is equal, so literals such as 1 and 1.0 differ."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from deltalog import CallError, Predicate, col
from deltalog.expressions.sql import parse
from deltalog.expressions.tree import Comparison, In, Literal, Name, renamed, walked


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (1, Decimal(1)),
        (Decimal("1.5"), Decimal("1.50")),
        (0.0, -0.0),
        ("1", 1),
        (b"a", "a"),
        (None, False),
        (math.nan, 1.0),
    ],
)
def test_values_that_are_written_differently_are_different_literals(one: Any, other: Any) -> None:
    assert Literal(one) != Literal(other) and In(Name(("a",)), (one,)) != In(Name(("a",)), (other,))
    assert (col("a") == one) != (col("a") == other)
    for value in (one, other):
        assert Literal(value) == Literal(value) and hash(Literal(value)) == hash(Literal(value))
        assert {col("a") == value, col("a") == value} == {Comparison("=", Name(("a",)), Literal(value))}


def test_nan_is_the_same_literal_whichever_object_holds_it() -> None:
    assert Literal(math.nan) == Literal(float("nan"))
    assert col("a").isin([1.5, math.nan]) == col("a").isin([1.5, float("nan")])


def test_a_column_builds_trees_and_is_no_part_of_them() -> None:
    predicate = (col("a") == 1) & ~col("b.c").isin([1, None]) | (col("a") < col("d"))
    assert predicate == parse("(a = 1 AND NOT b.c IN (1, NULL)) OR a < d")
    assert isinstance(predicate, Predicate) and not isinstance(col("a"), Predicate)
    assert [each.path for each in walked(predicate) if isinstance(each, Name)] != []
    with pytest.raises(CallError, match="&"):
        bool(predicate)


def test_names_are_changed_in_every_part_of_a_tree() -> None:
    text = "CASE WHEN a IN (1, a) THEN upper(a) ELSE CAST(a AS STRING) || a END LIKE '_' AND NOT -a BETWEEN a AND 2"
    changed = renamed(parse(text), lambda name: Name(("z",)))
    assert changed == parse(text.replace("(a", "(z").replace(" a", " z").replace("-a", "-z"))
    assert {each.path for each in walked(changed) if isinstance(each, Name)} == {("z",)}
