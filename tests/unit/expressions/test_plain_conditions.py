"""``is_plain``: conditions whose text need not be parsed again to know that it means the same."""

from __future__ import annotations

import datetime
import random
import re
from pathlib import Path

import pytest
from sqlglot.dialects.spark import Spark

from deltalog.errors import DeltaLogError
from deltalog.expressions import constants, reading, syntax, tokens
from deltalog.expressions.bind import bind
from deltalog.expressions.columns import col
from deltalog.expressions.functions import registry
from deltalog.expressions.sql import parse
from deltalog.expressions.sql_text import is_plain, to_sql
from deltalog.expressions.tree import And, Comparison, Expression, In, IsNull, Literal, Name, Not, Or, Predicate
from deltalog.protocol.schema import DataType, DecimalType, PrimitiveType, StructField, StructType

TYPES: dict[str, DataType] = {
    **{name: PrimitiveType(name) for name in ("byte", "short", "integer", "long", "float", "double", "boolean")},
    **{name: PrimitiveType(name) for name in ("string", "binary", "date", "timestamp", "timestamp_ntz")},
    "decimal": DecimalType(10, 2),
}
SCHEMA = StructType(tuple(StructField(f"c_{name}", each) for name, each in TYPES.items()))
VALUES = (
    *(0, 1, -1, 7, 127, -128, 2**31, 2**63 - 1, -(2**63), True, False, 1.5, float("nan"), float("inf")),
    *("", "a", "it's", "7", "2026-11-20", "back\\slash", "new\nline", "50%", "AND", "null", "--", "/* */", "ü", "x_y"),
    *(datetime.date(2026, 11, 20), datetime.date(1, 1, 1), datetime.date(9999, 12, 31), b"x"),
    *(datetime.datetime(2026, 11, 20, 1), datetime.datetime(2026, 11, 20, tzinfo=datetime.timezone.utc)),
)


def reads_back(condition: Predicate, schema: StructType) -> tuple[bool, bool]:
    """Whether the bound condition is plain, and whether its text parses back to the same condition."""
    bound = bind(condition, schema)
    try:
        same = bind(parse(to_sql(bound.expression)), schema) == bound
    except (DeltaLogError, RecursionError):
        same = False
    return is_plain(bound.expression), same


def condition(chance: random.Random, depth: int) -> Predicate:
    name = Name((chance.choice(SCHEMA.names),))
    kind = chance.randrange(8 if depth else 5)
    if kind == 0:
        return IsNull(name)
    if kind == 1:
        return In(name, tuple(chance.choices(VALUES, k=chance.randrange(1, 4))))
    if kind < 5:
        other: Expression = Literal(chance.choice(VALUES)) if kind < 4 else Name((chance.choice(SCHEMA.names),))
        return Comparison(chance.choice(("=", "!=", "<", "<=", ">", ">=", "<=>")), name, other)
    parts = condition(chance, depth - 1), condition(chance, depth - 1)
    return Not(parts[0]) if kind == 5 else And(*parts) if kind == 6 else Or(*parts)


def test_the_text_of_a_plain_condition_means_the_same() -> None:
    chance, plain, others = random.Random(34), 0, 0
    for _ in range(3_000):
        made = condition(chance, chance.randrange(3))
        try:
            says, same = reads_back(made, SCHEMA)
        except DeltaLogError:  # a value that the column's type cannot represent
            continue
        assert same or not says, to_sql(bind(made, SCHEMA).expression)
        plain, others = plain + says, others + (not says)
    assert plain > 300 and others > 200


@pytest.mark.parametrize(
    "made",
    [
        col("c_long") == 7,
        (col("c_string") == "AA") & (col("c_date") >= datetime.date(2026, 1, 1)),
        col("c_integer").isin([1, 2, 3]) | col("c_long").is_null(),
        col("c_long") < col("c_integer"),
    ],
)
def test_usual_conditions_are_plain(made: Predicate) -> None:
    assert reads_back(made, SCHEMA) == (True, True)


def test_no_word_of_the_language_is_read_as_something_else_than_the_column_of_that_name() -> None:
    own = "".join(
        Path(str(each.__file__)).read_text(encoding="utf-8") for each in (constants, reading, syntax, tokens, registry)
    )
    parser = Spark.Parser
    words = {*Spark.Tokenizer.KEYWORDS, *parser.FUNCTIONS, *parser.FUNCTION_PARSERS, *re.findall(r"[A-Za-z_]+", own)}
    refused = 0
    for word in sorted(each.lower() for each in words if re.fullmatch(r"[A-Za-z_]+", each)):
        schema = StructType((StructField(word, TYPES["long"]), StructField("another", TYPES["long"])))
        made = And(IsNull(Name((word,))), Comparison("<", Name(("another",)), Name((word,))))
        says, same = reads_back(made, schema)
        assert same or not says, word
        refused += not same
    assert refused > 10, "no word of the language is an operator"


def test_a_deep_condition_is_not_plain() -> None:
    made: Predicate = col("c_long") == 7
    for _ in range(30):
        made = made & (col("c_long") == 8)
    assert not is_plain(made)
