"""Parses a SQL statement token by token: keywords, names, expressions as text. Errors have a position."""

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
    """A position in a statement. Parsing methods advance the position, or raise CallError if the next tokens are not
    what they expect."""

    def __init__(self, spark: SparkSession, statement: Statement, at: int = 0) -> None:
        self.spark, self.statement, self.at = spark, statement, at
        tokens = statement.tokens
        self._end = len(tokens)
        while self._end and tokens[self._end - 1].text == ";":
            self._end -= 1

    @property
    def is_at_end(self) -> bool:
        """Whether only semicolons follow."""
        return self.at >= self._end

    @property
    def token(self) -> Token:
        """The next token. Raises CallError at the end."""
        if self.is_at_end:
            raise self.error("the statement is incomplete")
        return self.statement.tokens[self.at]

    def word(self, ahead: int = 0) -> str:
        """The keyword or symbol that is ``ahead`` tokens further on; empty if that token is quoted or follows the
        end."""
        at = self.at + ahead
        return self.statement.tokens[at].word if at < self._end else ""

    def accept(self, *words: str) -> bool:
        """Consume these keywords if they are the next tokens. Returns whether they were."""
        if [self.word(ahead) for ahead in range(len(words))] != list(words):
            return False
        self.at += len(words)
        return True

    def accept_one(self, *words: str) -> str:
        """Consume and return the next keyword if it is one of these; otherwise return an empty string."""
        word = self.word()
        if word in words:
            self.at += 1
            return word
        return ""

    def expect(self, *words: str) -> None:
        """Consume these keywords."""
        for word in words:
            if not self.accept(word):
                raise self.error(f"expected {word.upper()}")

    def finish(self) -> None:
        """Raise CallError unless the statement ends here."""
        if not self.is_at_end:
            raise self.error(f"unexpected {self.token.text!r}")

    def identifier(self) -> str:
        """An identifier, without backticks."""
        token = self.token
        if token.kind not in ("word", "quoted"):
            raise self.error("expected a name")
        self.at += 1
        return unquoted(token.text)

    def path(self) -> str:
        """A dotted name, as written."""
        parts = [self.token.text]
        self.identifier()
        while self.accept("."):
            parts.append(self.token.text)
            self.identifier()
        return ".".join(parts)

    def names(self) -> list[str]:
        """A list of dotted names in parentheses, as written."""
        self.expect("(")
        found = [self.path()]
        while self.accept(","):
            found.append(self.path())
        self.expect(")")
        return found

    def string(self) -> str:
        """The value of a string literal, which may have several adjacent parts."""
        start = self.at
        while not self.is_at_end and self.token.kind == "string":
            self.at += 1
        if self.at == start:
            raise self.error("expected a string")
        return string_value(self.spark, self.statement.tokens[start : self.at])

    def until(self, *stops: str) -> str:
        """The text up to the first of the keywords ``stops`` that is outside parentheses and CASE, or up to the end of
        the statement."""
        return self.text(self.at, self.skip(*stops))

    def skip(self, *stops: str) -> int:
        """Advance as ``until`` does. Returns the new position."""
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
        """Like ``until``, for an expression that must not be empty or contain a subquery. ``what``: its name in
        errors."""
        start = self.at
        text = self.until(*stops)
        if not text:
            raise self.error(f"{what} is missing")
        for at in range(start, self.at):
            words = self.statement.words(at, at + 2)
            if words[0] == "(" and words[1] in QUERY_STARTS - {"(", "map"}:
                self.at = at
                raise self.error(
                    f"{what} has a subquery, which is not supported here. Use MERGE with the query as its source"
                )
        return text

    def inside(self) -> Sequence[str]:
        """A list of expressions in parentheses, as text."""
        self.expect("(")
        found = [self.expression("a value", ",")]
        while self.accept(","):
            found.append(self.expression("a value", ","))
        self.expect(")")
        return found

    def text(self, start: int, end: int) -> str:
        """The text from token ``start`` to ``end``, comments included."""
        tokens = self.statement.tokens
        return self.statement.text[tokens[start].start : tokens[end - 1].end] if start < end else ""

    def error(self, message: str) -> deltalog.CallError:
        """An error at the current position."""
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
    """The value of a string literal. Spark evaluates string literals that contain escapes or consist of several
    parts."""
    text = tokens[0].text
    if len(tokens) == 1 and text[0] in "'\"" and "\\" not in text and text[0] not in text[1:-1]:
        return text[1:-1]
    literal = " ".join(token.text for token in tokens)
    return str(spark.sql(f"select {literal} as text").collect()[0]["text"])


def with_literals(statement: Statement, args: Mapping[str, Any] | Sequence[Any] | None) -> str:
    """The text of a statement with the markers ``:name`` and ``?`` replaced by literals. Raises CallError for a value
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
                raise deltalog.CallError(f"args has {len(args)} values, but the statement has more markers (?).")
            name, end, value = str(count), token.end, args[count]
            count += 1
        pieces += [statement.text[position : token.start], literal(value, name)]
        position = end
    return "".join([*pieces, statement.text[position:]])


def literal(value: Any, name: str) -> str:
    """A value as a SQL literal. ``name``: the name of the argument, for error messages. Raises CallError."""
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
        f"The argument {name} is a {type(value).__name__}, for which a statement that writes has no literal. Use a "
        "str, int, float, Decimal, date, datetime, bool or None."
    )
