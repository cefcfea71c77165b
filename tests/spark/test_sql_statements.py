"""The positions of strings, names and comments in a statement, compared with Spark's lexer."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spark_ext.parse.table_references import tokens_of

pytestmark = pytest.mark.classic("the tests compare with the lexer in the JVM")

# The token types that Spark uses for quoted text and for text that is skipped.
_KINDS = {
    "STRING_LITERAL": "s",
    "DOUBLEQUOTED_STRING": "s",
    "BEGIN_DOLLAR_QUOTED_STRING": "s",
    "DOLLAR_QUOTED_STRING_BODY": "s",
    "END_DOLLAR_QUOTED_STRING": "s",
    "BACKQUOTED_IDENTIFIER": "q",
    "SIMPLE_COMMENT": " ",
    "BRACKETED_COMMENT": " ",
    "WS": " ",
}
_PIECES = [
    *("'", '"', "`", "\\", "\\\\", "''", '""', "``", "\\'", '\\"', "\\`", "r'", 'R"', "x'", "X'1F'", "e'a'"),
    *("--", "-- a\n", "--\\\n", "/*", "*/", "/**/", "//", "$$", "$a$", "$a_b$", "$", "{", "}", "#", "@", ":a", "?"),
    *("\n", "\r\n", "\t", " ", " ", "\u00a0", "deltalog", ".", "a", "é", "1", "1L", "1.5e3", "0x1", ";", "||", "->"),
    *(
        "select ",
        " from ",
        "(",
        ")",
        ",",
        "deltalog.`p`",
        " 'it' ",
        "_b",
        "2a",
        "=>",
        "|>",
        "::",
        "<=>",
        "!",
        "%",
        "😀",
    ),
]
_NASTY = [
    "select 'it''s' || \"a\"\"b\" || 'a\\'b' || r'\\' || R\"\\\" /* a /* b */ -- */ from `a``b` -- ' \n",
    "select '-- x' from t where `-- x` = '/*' or `/*` = \"*/\"",
    "select $$ it's `x` $$, $tag$ $$ ' -- $tag$, $a$b$a$ from `$$`",
    "select 1 -- a comment \\\n 'that goes on' \\\n `here`\n, 'a'",
    "select 'a\\\\', 'b\\\\\\'c', '\n', 'a' 'b', r'a\\' 'b'",
    "show tables in `a` -- 'x",
    "set a = 'b'; reset; refresh table `x`",
    "add jar 'a b'",
    "{# select 'a' #} `b`",
    "select `a\\`, 'b`', `c'd`, \"`\", '``'",
    "",
    "\u2003select\u3000'a'",
]


def _by_spark(spark: Any, text: str) -> str | None:
    """The kind of each character; None for text that Spark's lexer cannot tokenize."""
    antlr = spark._jvm.org.antlr.v4.runtime
    parser = spark._jvm.org.apache.spark.sql.catalyst.parser
    lexer = parser.SqlBaseLexer(parser.UpperCaseCharStream(antlr.CharStreams.fromString(text)))
    lexer.removeErrorListeners()
    kinds, name = ["?"] * len(text), ""
    for token in lexer.getAllTokens():
        name = lexer.getVocabulary().getSymbolicName(token.getType())
        if name in ("UNRECOGNIZED", "HENT_END"):  # HENT_END ends a hint, and the statements here have none
            return None
        for at in range(token.getStartIndex(), min(token.getStopIndex() + 1, len(text))):
            kinds[at] = _KINDS.get(name, "c")
    has_open_comment = lexer.getClass().getField("has_unclosed_bracketed_comment").get(lexer)
    has_open_string = "DOLLAR" in name and not name.startswith("END")
    return None if has_open_comment or has_open_string else "".join(kinds)


def _by_sqlglot(text: str) -> str | None:
    tokens = tokens_of(text)
    if tokens is None:
        return None
    kinds = [" "] * len(text)
    for token in tokens:
        kinds[token.start : token.end] = {"string": "s", "quoted": "q"}.get(token.kind, "c") * len(token.text)
    return "".join(kinds)


@pytest.mark.classic("the test calls Spark's lexer in the JVM")
@pytest.mark.parametrize("text", _NASTY)
def test_nasty_texts(spark: Any, text: str) -> None:
    expected = _by_spark(spark, text)
    assert expected is None or _by_sqlglot(text) == expected


@pytest.mark.classic("the test calls Spark's lexer in the JVM")
def test_random_texts(spark: Any) -> None:
    chooser, compared = random.Random(7), 0
    for _ in range(1500):
        text = "".join(chooser.choices(_PIECES, k=chooser.randrange(1, 14)))
        expected = _by_spark(spark, text)
        if expected is not None:
            assert _by_sqlglot(text) == expected, text
            compared += 1
    assert compared > 200
