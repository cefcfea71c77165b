"""SQL text is tokenized in time proportional to its length, and its length and nesting are limited; double quotes
enclose strings, not column names."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, col
from deltalog.expressions.bind import bind
from deltalog.expressions.sql import as_predicate, names_in, parse
from deltalog.expressions.tokens import text_value, tokens_of
from deltalog.expressions.tree import height
from deltalog.protocol import limits
from deltalog.protocol.schema import StructType


class _Calls:
    """Counts the calls of Python functions, whose number does not depend on the machine."""

    def __enter__(self) -> _Calls:
        self.count = 0
        sys.setprofile(self._count_call)
        return self

    def _count_call(self, frame: FrameType, event: str, argument: Any) -> None:
        self.count += event == "call"

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def _nested() -> Iterator[Any]:
    for name, opening, closing in [
        ("struct", "struct(", ")"),
        ("array", "array(", ")"),
        ("map", "map(1, ", ")"),
        ("brackets", "(", ")"),
        ("types", "cast(x as array<", ">)"),
        ("case", "case when a then ", " end"),
        ("elements", "a[", "]"),
        ("not", "not ", ""),
        ("minus", "- ", ""),
        ("lists", "a in (", ")"),
        ("functions", "upper(", ")"),
        ("between", "(a between b and ", ")"),
        ("lambdas", "filter(a, x -> ", ")"),
    ]:
        yield pytest.param(opening, closing, id=name)


@pytest.mark.parametrize(("opening", "closing"), list(_nested()))
def test_the_work_grows_with_the_length_and_not_with_the_depth(opening: str, closing: str) -> None:
    parse("a")  # imports the parser

    def work(depth: int) -> int:
        text = opening * depth + "a" + closing * depth
        with _Calls() as calls:
            with contextlib.suppress(CallError):
                parse(text, most_chars=limits.MAX_EXPRESSION_CHARS)
            names_in(text)
        return calls.count

    assert work(80) < 10 * work(10) and work(80) < 100_000


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("(", ")"), ("upper(", ")"), ("concat(s, ", ", t)"), ("a[", "]"), ("cast(", " as string)"), ("- (", ")"),
        ("case when a then ", " else b end"), ("case a when ", " then b end"), ("(a between b and ", ")"),
        ("a in (1, 2, ", ", 3)"),
    ],
)  # fmt: skip
def test_texts_are_parsed_up_to_the_cap_on_their_depth(opening: str, closing: str) -> None:
    levels = max(opening.count("(") + opening.count("[") + opening.count("case"), 1) + opening.count("-")
    depth = limits.MAX_EXPRESSION_DEPTH // levels - 1
    tree = parse(opening * depth + "x + 1" + closing * depth)
    assert height(tree) >= (depth if opening != "(" else 2)
    assert names_in(opening * depth + "x + 1" + closing * depth)


@pytest.mark.parametrize(("opening", "closing"), list(_nested()))
def test_deep_texts_are_refused_before_they_are_parsed(opening: str, closing: str) -> None:
    with pytest.raises(CallError, match=r"not supported|cannot be parsed|MAX_EXPRESSION_DEPTH"):
        parse(opening * 3000 + "a" + closing * 3000)


@pytest.mark.parametrize(
    "text",
    [
        "'" * 9_999,
        "'" + "\\'" * 100_000,
        "`" * 99_999,
        '"' + "a''" * 50_000,
        "/*" * 50_000,
        "--\n" * 50_000,
        "\\" * 50_000,
        "1" + "+1" * 5_000,
        "a" + ".a" * 30_000,
        "a" + "::int" * 5_000,
        "a" + "[0]" * 5_000,
        "a = " * 5_000,
        "a," * 5_000,
        "interval " + "1 day " * 30_000,
        "concat(" + "a," * 30_000 + "a)",
        "case " * 5_000,
        ")" * 5_000,
        "😀" * 50_000,
    ],
    ids=lambda text: repr(text[:12]),
)  # fmt: skip
def test_long_texts_cost_a_bounded_number_of_steps_for_each_character(text: str) -> None:
    with _Calls() as calls, contextlib.suppress(CallError):
        parse(text)
    assert calls.count < 30 * len(text)


def test_caps_are_named() -> None:
    for text, cap in (
        ("a" + " or a" * 9_999, "MAX_EXPRESSION_TOKENS|deeply"),
        ("concat(" + "a," * 30_000 + "a)", "MAX_EXPRESSION_TOKENS"),
        ("(" * 101 + "a" + ")" * 101, "MAX_EXPRESSION_DEPTH"),
    ):
        with pytest.raises(CallError, match=cap):
            parse(text)
    with pytest.raises(CallError, match="MAX_EXPRESSION_CHARS"):
        parse("a" * 10_001, most_chars=limits.MAX_EXPRESSION_CHARS)
    assert len(parse(f"a IN ({', '.join(map(str, range(50_000)))})").values) == 50_000  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text", ["(a", "a)", "(a]", "[a)", "a['b'", "case when a then b", "a /* b", "'a", "`a", "a--\\\nb"]
)
def test_what_is_not_closed_is_no_expression(text: str) -> None:
    with pytest.raises(CallError, match="parsed"):
        parse(text)
    assert names_in(text) is None


@pytest.mark.parametrize(
    ("token", "value"),
    [
        ("'it''s'", "it's"),
        ('"say ""a"""', 'say "a"'),
        (r"'it\'s'", "it's"),
        (r"'a\\'''", "a\\'"),
        (r"'\n\t\0\Z'", "\n\t\0\x1a"),
        (r"'\%\_'", r"\%\_"),
        (r"'\u00e4\U0001F600'", "ä😀"),
        (r"'\ud83d\ude00'", "😀"),
        (r"'\101\q'", "Aq"),
        ("''", ""),
    ],
)
def test_texts_mean_what_they_mean_in_spark_4(token: str, value: str) -> None:
    assert text_value(token) == value and tokens_of(token)[0].text == token


@pytest.mark.parametrize("text", ["a = '\ud800'", r"a = '\ud800'", "`\udfff` = 1"])
def test_half_a_character_is_refused(text: str) -> None:
    with pytest.raises(CallError, match="character"):
        parse(text)


# ------------------------------------------------------------------------------------------ double quotes


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    made = DeltaTable.create(
        str(tmp_path / "t"), pa.schema([("Id", pa.string()), ("n", pa.int32()), ("a`b", pa.string())])
    )
    made.append(pa.table({"Id": ["a", "b"], "n": pa.array([1, 2], pa.int32()), "a`b": ["x", "y"]}))
    return made


@pytest.mark.parametrize(
    ("where", "spelling"),
    [
        ("\"Id\" != 'a'", "`Id`"),
        ("'a' = \"id\"", "`Id`"),
        ('n = 1 OR Id = "N"', "`n`"),
        ('Id IN ("a", "Id")', "`Id`"),
        ("\"Id\" IN ('a')", "`Id`"),
        ("upper(\"Id\") = 'A'", "`Id`"),
        ('"Id" IS NOT NULL', "`Id`"),
        ('Id BETWEEN "n" AND "z"', "`n`"),
        ("\"a`b\" = 'x'", "`a``b`"),
        ("CASE WHEN n > 0 THEN \"Id\" END = 'a'", "`Id`"),
        ("target.\"Id\" = 'a'", "`Id`"),
        ('"target"."Id" = \'a\'', "`Id`"),
        ("\"Id\" LIKE 'a%'", "`Id`"),
        ("startswith(\"Id\", 'a')", "`Id`"),
        ('CAST("n" AS INT) = 1', "`n`"),
        ("concat(\"Id\", '') = 'a'", "`Id`"),
    ],
)
def test_a_column_in_double_quotes_is_refused_with_the_spelling_of_spark(
    table: DeltaTable, where: str, spelling: str
) -> None:
    for call in (
        lambda: table.delete(where),
        lambda: table.update({"n": "n + 1"}, where=where),
        lambda: table.snapshot().scan(where=where).to_arrow(),
        lambda: table.overwrite(table.to_pyarrow_table(), where=where),
        lambda: table.add_constraint("c", where),
    ):
        with pytest.raises(CallError) as refused:
            call()
        assert (
            spelling in str(refused.value)
            or "without parentheses" in str(refused.value)
            or "condition" in str(refused.value)
        )
    assert table.to_pyarrow_table().num_rows == 2


def test_new_values_and_merges_refuse_them_too(table: DeltaTable) -> None:
    with pytest.raises(CallError, match="`Id`"):
        table.update({"`a``b`": '"Id"'})
    source = pa.table({"Id": ["a"], "other": ["z"]})
    for where in ('"Id" = source.Id', 'target.Id = source."Id"', 'target.Id = "other"'):
        with pytest.raises(CallError, match=r"`Id`|`other`"):
            table.merge(source, where).when_matched_delete().execute()
    assert table.to_pyarrow_table().num_rows == 2


def test_other_texts_in_double_quotes_are_texts(table: DeltaTable) -> None:
    assert table.snapshot().scan(where='Id = "a" OR Id IN ("c", "d")').to_arrow().num_rows == 1
    schema = StructType.from_arrow(pa.schema([("Id", pa.string())]))
    predicate = as_predicate("Id LIKE \"Id%\" OR Id = 'Id'")
    assert predicate is not None and bind(predicate, schema) is not None
    assert bind(col("Id") == "Id", schema) is not None
