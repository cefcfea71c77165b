"""Reads literals, field names and types from a sequence of tokens; each of them can consist of several tokens. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from deltalog.errors import CallError
from deltalog.expressions import constants
from deltalog.expressions.functions.types import TYPE_NAMES, refuse
from deltalog.expressions.tokens import Token, text_value
from deltalog.expressions.tree import Expression, Literal
from deltalog.protocol.schema import DataType, DecimalType

_DECIMALS = frozenset({"decimal", "dec", "numeric"})
_UNKNOWN_OPERATORS = frozenset({"&", "|", "^", "~", "<<", ">>", "->", "=>", ":", "?", "@", "{", "|>"})
PREDICATES = frozenset({"between", "in", "like", "ilike", "rlike", "regexp"})
# Words that are column names only if they are quoted.
RESERVED = frozenset({"and", "or", "in", "is", "div", "when", "then", "else", "as", *PREDICATES})
# After INTERVAL '90 days', whose string already contains the unit, these words are not interval units; before a string,
# they are not type names.
_WORDS = RESERVED | {"not", "case", "end"}


class Unparsable(CallError):
    """The text is not an expression in any SQL dialect."""


class TokenReader:
    """Reads the tokens of an expression in order. Each method reads the construct that begins with the next token. It
    raises CallError if that token begins another construct, and CallError's subclass Unparsable if there is no next
    token."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = [*tokens, tokens[-1], tokens[-1]]
        self._at = 0
        self.next = tokens[0]
        self.before = tokens[-1]  # a placeholder, replaced at the first call of take

    @property
    def after(self) -> Token:
        """The token after the next token."""
        return self._tokens[self._at + 1]

    def take(self) -> Token:
        self.before = token = self.next
        self._go_to(self._at + 1)
        return token

    def _go_to(self, position: int) -> None:
        self._at, self.next = position, self._tokens[position]

    def unexpected(self, why: str) -> NoReturn:
        token, before = self.next, self.before
        if token.kind == "end":
            raise Unparsable(f"it cannot be parsed: it ends {why}")
        if token.word in _UNKNOWN_OPERATORS:
            raise refuse(f"{token.text}{self.after.text[:50]} at character {token.start + 1}")
        if before.kind == "name" and token.kind not in ("mark", "end"):  # for example SELECT 1, or BETWEEN SYMMETRIC 1
            words = f"{before.text[:50]} before {token.text[:50]} at character {token.start + 1}"
            raise refuse(f"it cannot be parsed: {words}")
        behind = f" after {before.text[:50]!r}" if self._at else ""
        raise CallError(f"it cannot be parsed: {token.text[:50]!r} is at character {token.start + 1}{behind}, {why}")

    def field(self) -> Token:
        """Read the field name after a dot."""
        self.take()
        token = self.next
        if token.kind == "text" and token.text.startswith('"'):
            name = text_value(token.text).replace("`", "``")
            raise CallError(f"{token.text} is a string in Spark's SQL, where a name is expected. Write `{name}`")
        if token.kind not in ("name", "quoted"):
            self.unexpected("where a name is expected")
        if self.after.word == "(":
            raise refuse(f"A call of {token.text[:50]} with a name before it")
        return self.take()

    def data_type(self) -> DataType:
        """Read the type of a cast."""
        token, sizes = self.next, list[str]()
        if token.kind != "name":
            self.unexpected("where a type is expected")
        self.take()
        if self.next.word == "(":
            self.take()
            while True:
                if self.next.kind != "number" or not self.next.text.isdigit():
                    self.unexpected("where the size of a type is expected")
                sizes.append(self.take().text)
                if self.next.word != ",":
                    break
                self.take()
            if self.next.word != ")":
                self.unexpected("where ) is expected")
            self.take()
        found = TYPE_NAMES.get(token.word)
        if token.word in _DECIMALS and all(len(each) < 3 for each in sizes) and len(sizes) < 3:
            precision, scale = (*map(int, sizes), *(10, 0)[len(sizes) :])
            if 1 <= precision <= 38 and scale <= precision:
                found, sizes = DecimalType(precision, scale), []
        if found is None or sizes or self.next.word == "<":
            raise refuse(f"CAST to {token.text.upper()[:50]}" + (f"({', '.join(sizes)[:50]})" if sizes else ""))
        return found

    def is_literal(self) -> bool:
        token, after = self.next, self.after
        if token.kind in ("number", "text"):
            return True
        if token.word == "interval":
            return after.kind in ("number", "text") or after.word in ("-", "+")
        if token.kind == "name":
            return after.kind == "text" and token.word not in _WORDS
        # Spark reads the sign as part of the number, because the minimum of an integer type has no positive
        # counterpart.
        return token.word in ("-", "+") and after.kind == "number"

    def literals(self) -> list[Expression]:
        """Read comma-separated literals, and stop before a list element that is not just a literal."""
        found, end = [self.literal()], self._at
        while self.next.word == ",":
            self.take()
            if not self.is_literal():
                break
            literal = self.literal()
            if self.next.word not in (",", ")"):
                break
            found.append(literal)
            end = self._at
        self._go_to(end)
        return found

    def literal(self) -> Expression:
        token = self.next
        if token.kind == "text":
            return self._text()
        if token.word == "interval":
            return self._interval()
        self.take()
        if token.kind == "name":
            return constants.typed(token.text, self._text())
        if token.kind == "number":
            return constants.number(token.text)
        return constants.number(self.take().text, "-" if token.word == "-" else "")

    def _text(self) -> Literal:
        """Read adjacent string literals and concatenate them."""
        token = self.take()
        if self.next.kind != "text":
            return constants.text(token.text)
        values = [text_value(token.text)]
        while self.next.kind == "text":
            values.append(text_value(self.take().text))
        return Literal("".join(values))

    def _interval(self) -> Literal:
        """Read INTERVAL followed by numbers or strings with their units."""
        self.take()
        parts: list[tuple[str, str]] = []
        while True:
            sign = self.take().text if self.next.word in ("-", "+") else ""
            token = self.next
            if token.kind not in ("number", "text"):
                self.unexpected("where the number of an interval is expected")
            self.take()
            value = text_value(token.text) if token.kind == "text" else token.text
            if self.next.kind != "name" or self.next.word in _WORDS:
                if parts or token.kind != "text" or sign:
                    self.unexpected("where the unit of an interval is expected")
                return constants.interval_of_text(value)
            parts.append((sign + value, self.take().word))
            if self.next.word == "to" and len(parts) == 1 and token.kind == "text":
                self.take()
                if self.next.kind != "name":
                    self.unexpected("where the unit of an interval is expected")
                return constants.interval_between(sign + value, parts[0][1], self.take().word)
            if self.next.kind not in ("number", "text") and not self._is_signed_part():
                return constants.interval(parts)

    def _is_signed_part(self) -> bool:
        """Whether the next tokens are a sign, a number and a unit, and therefore continue the interval."""
        return (
            self.next.word in ("-", "+")
            and self.after.kind in ("number", "text")
            and constants.is_unit(self._tokens[self._at + 2].word)
        )
