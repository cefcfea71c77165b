"""Reads a statement of SQL from token to token: words, names, expressions as text, and errors with a position."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

import deltalog
from spark_ext.parse.table_references import QUERY_STARTS, Statement, Token, unquoted

_OPENS, _CLOSES = ("(", "[", "{"), (")", "]", "}")


class Cursor:
    """A place in a statement. Methods that read move it; those that find something else raise CallError."""

    def __init__(self, spark: SparkSession, statement: Statement, at: int = 0) -> None:
        self.spark, self.statement, self.at = spark, statement, at
        tokens = statement.tokens
        self._end = len(tokens)
        while self._end and tokens[self._end - 1].text == ";":
            self._end -= 1

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows but semicolons."""
        return self.at >= self._end

    @property
    def token(self) -> Token:
        """The next token. Raises CallError at the end."""
        if self.is_at_end:
            raise self.error("something is missing")
        return self.statement.tokens[self.at]

    def word(self, ahead: int = 0) -> str:
        """A word or sign ahead; empty for others."""
        at = self.at + ahead
        return self.statement.tokens[at].word if at < self._end else ""

    def accept(self, *words: str) -> bool:
        """Whether these words are next, which are read then."""
        if [self.word(ahead) for ahead in range(len(words))] != list(words):
            return False
        self.at += len(words)
        return True

    def accept_one(self, *words: str) -> str:
        """The next word if it is one of these, which is read; else empty."""
        word = self.word()
        if word in words:
            self.at += 1
            return word
        return ""

    def expect(self, *words: str) -> None:
        """Read words that must be next."""
        for word in words:
            if not self.accept(word):
                raise self.error(f"{word.upper()} is expected")

    def finish(self) -> None:
        """Raise CallError where something follows."""
        if not self.is_at_end:
            raise self.error(f"{self.token.text!r} cannot stand here")

    def identifier(self) -> str:
        """A name in backticks or not."""
        token = self.token
        if token.kind not in ("word", "quoted"):
            raise self.error("a name is expected")
        self.at += 1
        return unquoted(token.text)

    def path(self) -> str:
        """A name with dots, as it is written."""
        parts = [self.token.text]
        self.identifier()
        while self.accept("."):
            parts.append(self.token.text)
            self.identifier()
        return ".".join(parts)

    def names(self) -> list[str]:
        """Names with dots in parentheses, as they are written."""
        self.expect("(")
        found = [self.path()]
        while self.accept(","):
            found.append(self.path())
        self.expect(")")
        return found

    def string(self) -> str:
        """The value of a string."""
        start = self.at
        while not self.is_at_end and self.token.kind == "string":
            self.at += 1
        if self.at == start:
            raise self.error("a string is expected")
        return string_value(self.spark, self.statement.tokens[start : self.at])

    def until(self, *stops: str) -> str:
        """The text up to a word outside of parentheses and CASE, or up to the end."""
        return self.text(self.at, self.skip(*stops))

    def skip(self, *stops: str) -> int:
        """Move to a word as ``until`` does."""
        depth, cases = 0, 0
        while not self.is_at_end:
            word, before = self.word(), self.statement.words(self.at - 1, self.at)[0] if self.at else ""
            if depth == 0 and cases == 0 and word in stops and before != ".":
                break
            if word in _CLOSES and depth == 0:
                break
            depth += (word in _OPENS) - (word in _CLOSES)
            if before != ".":
                cases += (word == "case") - (word == "end" and cases > 0)
            self.at += 1
        return self.at

    def expression(self, what: str, *stops: str) -> str:
        """As ``until``, for an expression that must be there, without a query in it. ``what``: its role in errors."""
        start = self.at
        text = self.until(*stops)
        if not text:
            raise self.error(f"{what} is missing")
        for at in range(start, self.at):
            words = self.statement.words(at, at + 2)
            if words[0] == "(" and words[1] in QUERY_STARTS - {"(", "map"}:
                self.at = at
                raise self.error(
                    f"{what} has a subquery, which cannot be used here. Use MERGE with the query as its source"
                )
        return text

    def inside(self) -> Sequence[str]:
        """The texts between commas in parentheses."""
        self.expect("(")
        found = [self.expression("a value", ",")]
        while self.accept(","):
            found.append(self.expression("a value", ","))
        self.expect(")")
        return found

    def text(self, start: int, end: int) -> str:
        """The text of tokens, comments included."""
        tokens = self.statement.tokens
        return self.statement.text[tokens[start].start : tokens[end - 1].end] if start < end else ""

    def error(self, message: str) -> deltalog.CallError:
        """An error at the cursor."""
        text, tokens = self.statement.text, self.statement.tokens
        if self.is_at_end:
            return deltalog.CallError(f"{message[0].upper()}{message[1:]} at the end of the statement.")
        start = tokens[self.at].start
        line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
        return deltalog.CallError(
            f"{message[0].upper()}{message[1:]}, at line {line}, column {column} of the statement, "
            f"near {tokens[self.at].text!r}."
        )


def string_value(spark: SparkSession, tokens: Sequence[Token]) -> str:
    """The value of a string literal, by Spark unless it is plain."""
    text = tokens[0].text
    if len(tokens) == 1 and text[0] in "'\"" and "\\" not in text and text[0] not in text[1:-1]:
        return text[1:-1]
    literal = " ".join(token.text for token in tokens)
    return str(spark.sql(f"select {literal} as text").collect()[0]["text"])


def bound(statement: Statement, args: Mapping[str, Any] | Sequence[Any] | None) -> str:
    """The text of a statement with literals in place of the markers ``:name`` and ``?``. Raises CallError for a value
    that has no literal, and for a missing one. Cost: none."""
    if not args:
        return statement.text
    pieces, position, count = list[str](), 0, 0
    tokens = statement.tokens
    for at, token in enumerate(tokens):
        value: Any
        if isinstance(args, Mapping):
            if token.text != ":" or at + 1 >= len(tokens) or tokens[at + 1].text not in args:
                continue
            name, end = tokens[at + 1].text, tokens[at + 1].end
            value = args[name]
        else:
            if token.text != "?":
                continue
            if count >= len(args):
                raise deltalog.CallError(f"args has {len(args)} values, and the statement has more markers (?).")
            name, end, value = str(count), token.end, args[count]
            count += 1
        pieces += [statement.text[position : token.start], literal(value, name)]
        position = end
    return "".join([*pieces, statement.text[position:]])


def literal(value: Any, name: str) -> str:
    """A value as a literal of SQL. ``name``: of the argument. Raises CallError."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f"{value}" if -(2**31) <= value < 2**31 else f"{value}L"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return f"{value:f}BD"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value!r}D"
    if isinstance(value, datetime.datetime):
        kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP_LTZ"
        return f"{kind}'{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE'{value.isoformat()}'"
    raise deltalog.CallError(
        f"The argument {name} is a {type(value).__name__}, which has no literal in a statement that writes. Give "
        "text, a number, a date, a time, a bool or None."
    )
