"""Parsing of SQL text by sqlglot takes time proportional to its length."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from spark_ext.parse.trees import trees_of


@pytest.mark.parametrize("opening", ["struct(", "array(", "map(1, ", "cast(a as struct<b: ", "((", "case when a then "])
def test_no_text_takes_long_before_spark_sees_it(opening: str) -> None:
    """The test counts steps instead of measuring time: sqlglot tries some constructs twice at every level of
    nesting."""
    steps = 0

    def seen(frame: FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += event == "call"

    sys.setprofile(seen)
    try:
        trees_of(f"SELECT {opening * 40}1{')' * 40} FROM t")
    finally:
        sys.setprofile(None)
    assert steps < 200_000


def test_usual_texts_have_trees() -> None:
    nested = "SELECT struct(struct(a), array(array(1))) FROM t WHERE m['k'] = 1"
    for text in ("a > 1 AND b IN (1, 2)", nested, "a " + "OR a " * 500):
        assert len(trees_of(text)) == 1
    assert len(trees_of("a" + "::int" * 100)) == 1 and not trees_of("a" + "::int" * 3000)
    assert len(trees_of("a; b")) == 2 and not trees_of("a >") and not trees_of("")
