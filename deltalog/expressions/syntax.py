"""The tokens of an expression as sqlglot's parser takes them. Pure.

The parser accepts more than Spark, tries some constructs in several ways, and groups some operators as other engines
do. So each literal is one token to it, each word is either one of the language or a name, and what is not an
expression of Spark, or is grouped in two ways, is refused here. One pass; what the tokens mean together is the
parser's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from deltalog.errors import CallError
from deltalog.expressions import constants
from deltalog.expressions.functions.types import TYPE_NAMES, refuse
from deltalog.expressions.tokens import Token, text_value
from deltalog.expressions.tree import Expression, Literal
from deltalog.protocol import limits
from deltalog.protocol.schema import DataType, DecimalType

MAX_HEIGHT = 1200  # of a tree: a chain of AND may be so long
TOO_DEEP = "is nested too deeply. For many values of a column, use IN or isin"


class Unparsable(CallError):
    """The text is no expression, of whichever dialect."""


class ParserInput(NamedTuple):
    """``tokens``: of sqlglot. The text of a NUMBER is its position in ``literals``: one literal, or those of an IN that
    stand beside each other. The text of an INT, which is the type of a cast, is its position in ``types``."""

    tokens: list[Any]
    literals: list[Expression | list[Expression]]
    types: list[DataType]


_COMPARED = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"})
_PREDICATES = frozenset({"between", "in", "like", "ilike", "rlike", "regexp"})
_OPERATORS = frozenset({"+", "-", "*", "/", "%", "div", "||", "and", "or", "is", *_COMPARED, *_PREDICATES})
# They are not the name of a column unless they are quoted.
_RESERVED = frozenset({"and", "or", "in", "is", "div", "when", "then", "else", "as", *_PREDICATES})
# What may follow INTERVAL '90 days', which has its units in it.
_NO_UNITS = _RESERVED | {"not", "end"}
_VALUES = frozenset({"null", "true", "false"})
_DECIMALS = frozenset({"decimal", "dec", "numeric"})
_UNKNOWN_OPERATORS = frozenset({"&", "|", "^", "~", "<<", ">>", "->", "=>", ":", "?", "@", "{", "|>"})
# Refused by name where they stand beside a value, which no name does.
_BEHIND_A_VALUE = frozenset({"over", "escape", "filter", "within"})
_BEFORE_A_VALUE = frozenset({"select", "with", "distinct", "all", "symmetric", "asymmetric"})


_LEVELS_OF_A_PART = 8


class _Level:
    """A pair of brackets or a CASE that is open, or the whole expression."""

    def __init__(self, kind: str, start: int = 0) -> None:
        self.kind = kind  # its opening mark or word, "call", "cast" or "in"
        self.start = start  # of the element of a list, among the tokens that are made
        self.listed: int | None = None  # where the literals before this element are
        self.state = ""  # of CASE and CAST: the word that came last
        self.links = 0  # AND and OR of this expression
        self.restart()

    def restart(self) -> None:
        """Another condition begins."""
        self.operators = 0  # of values, each of which has the one before it as its operand
        self.is_compared = False  # since the last AND, OR
        self.needs_and = False  # of BETWEEN
        self.sum = ""  # the operator of its kind since then


def parser_input(tokens: Sequence[Token], parse: Callable[[ParserInput], Expression]) -> ParserInput:
    """What the parser gets for the tokens of an expression. ``parse`` is what is done with it, and with parts of it:
    the parser's recursion is deep, so that every few levels what stands in brackets is parsed alone, and goes on as a
    literal. Raises CallError: Unparsable for what is no expression.
    Cost: time proportional to the number of tokens."""
    return _Pass(tokens, parse).whole()


class _Pass:
    def __init__(self, tokens: Sequence[Token], parse: Callable[[ParserInput], Expression]) -> None:
        from sqlglot import Token as ParserToken

        self._token_class: Any = ParserToken
        self._tokens, self._parse = tokens, parse
        self._at = 0
        self._made: list[Any] = []
        self._literals: list[Expression | list[Expression]] = []
        self._levels = [_Level("")]
        self._has_value = False  # the token before is the end of a value
        self._may_negate = True  # NOT may come next
        self._types = list[DataType]()
        self._kinds = _kinds()

    def whole(self) -> ParserInput:
        if self._tokens[0].kind == "end":
            raise Unparsable("it is empty, not one expression")
        while self._next.kind != "end":
            if self._next.word == ";":
                if self._after.kind != "end":
                    raise Unparsable("it is several statements, not one expression")
                break
            self._one()
        level = self._levels[-1]
        if not self._has_value or level.kind or level.needs_and:
            self._at = len(self._tokens) - 1
            self._unexpected(self._wanted())
        return ParserInput(self._made, self._literals, self._types)

    # ---------------------------------------------------------------------------------------------- tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    @property
    def _after(self) -> Token:
        """The token behind the next one."""
        return self._ahead(1)

    def _ahead(self, number: int) -> Token:
        return self._tokens[min(self._at + number, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _make(self, kind: str, text: str, token: Token) -> None:
        if len(self._made) >= limits.MAX_EXPRESSION_TOKENS:
            raise CallError(f"the number of its tokens {limits.over('MAX_EXPRESSION_TOKENS', len(self._tokens))}")
        self._made.append(self._token_class(self._kinds[kind], text, start=token.start, end=token.end - 1))

    def _pass_on(self, kind: str | None = None) -> Token:
        """Hand the next token on."""
        token = self._take()
        self._make(kind or token.word, token.text, token)
        self._has_value = self._may_negate = False
        return token

    def _unexpected(self, why: str = "where it is not expected") -> NoReturn:
        token = self._next
        if token.kind == "end":
            raise Unparsable(f"it cannot be parsed: it ends {why}")
        place = f"at character {token.start + 1}"
        if token.word in _UNKNOWN_OPERATORS:
            raise refuse(f"{token.text.upper()}{self._after.text[:50]} {place}")
        if self._has_value and token.word in _BEHIND_A_VALUE:
            raise refuse(f"{token.text.upper()} {place}")
        before = self._tokens[self._at - 1].word
        if self._has_value and before in _BEFORE_A_VALUE:
            raise refuse(f"{before.upper()} before {token.text[:50]} {place}")
        raise CallError(f"it cannot be parsed: {token.text[:50]!r} is {place}, {why}")

    def _wanted(self) -> str:
        level = self._levels[-1]
        if not self._has_value:
            return "where a value is expected"
        if level.needs_and:
            return "where the AND of BETWEEN is expected"
        if level.kind == "case":
            return f"where {'THEN' if level.state == 'when' else 'WHEN or END'} is expected"
        return "where AS is expected" if level.kind == "cast" and not level.state else "where it is not expected"

    # --------------------------------------------------------------------------------------------- grammar

    def _one(self) -> None:
        token, word = self._next, self._next.word
        if word in ("not", "!"):
            self._not()
        elif word in _OPERATORS and (self._has_value or word not in ("-", "+")):
            self._operator(word)
        elif word in _MARKS:
            _MARKS[word](self)
        elif word in ("as", "when", "then", "else") or (word == "end" and self._levels[-1].kind == "case"):
            self._as() if word == "as" else self._case_word(word)
        elif self._has_value:
            self._unexpected(self._wanted())
        elif self._is_literal():
            self._literal()
        elif word in ("-", "+"):
            if word == "+":
                raise refuse("the sign +")
            self._pass_on()
        elif word == "case":
            self._pass_on()
            self._levels.append(_Level("case", len(self._made)))
            self._may_negate = True
        elif word in _VALUES:
            self._pass_on()
            self._has_value = True
        elif word in ("select", "with") and self._after.word != ".":
            raise refuse(token.text.upper())
        elif token.kind in ("name", "quoted"):
            self._name()
        else:
            self._unexpected("where a value is expected")

    def _not(self) -> None:
        if self._has_value:
            if self._after.word not in _PREDICATES:
                self._unexpected("where it is not expected")
            self._compare()
            self._pass_on("not")
            self._operator(self._next.word, is_negated=True)
        elif self._may_negate:
            self._pass_on("not")
            self._may_negate = True
        else:
            raise refuse("NOT after an operator without parentheses")

    def _compare(self) -> None:
        level = self._levels[-1]
        if level.is_compared:
            raise refuse(f"{self._next.text.upper()} after a comparison without parentheses")
        if level.kind == "[":
            self._unexpected()
        level.is_compared, level.sum = True, ""

    def _operator(self, word: str, is_negated: bool = False) -> None:
        """An operator between two values, with what is not a value behind it."""
        level = self._levels[-1]
        if not self._has_value and not is_negated:
            self._unexpected("where a value is expected")
        if word in ("and", "or"):
            self._link(word, level)
        elif word in _PREDICATES or word in _COMPARED or word == "is":
            if not is_negated:
                self._compare()
            self._pass_on()
            level.needs_and = word == "between"
            if word == "is":
                self._is()
            elif word == "in":
                if self._next.word != "(":
                    raise refuse("IN without a list in parentheses")
                if self._after.word == ")":
                    raise refuse("IN of an empty list")
                self._open("in")
        else:
            if word in ("+", "-", "||"):
                kind = "||" if word == "||" else "+"
                if level.sum not in ("", kind):
                    raise refuse(f"{word} beside another operator without parentheses")
                level.sum = kind
            self._pass_on()
            self._count()

    def _count(self) -> None:
        level = self._levels[-1]
        level.operators += 1
        if level.operators + level.links > MAX_HEIGHT:
            raise CallError(TOO_DEEP)

    def _link(self, word: str, level: _Level) -> None:
        if level.kind == "[" or (level.needs_and and word == "or"):
            self._unexpected(self._wanted())
        self._pass_on()
        if level.needs_and:
            level.needs_and, level.sum = False, ""
        else:
            level.restart()
            level.links += 1
            self._count()
            self._may_negate = True

    def _is(self) -> None:
        if self._next.word == "not":
            self._pass_on()
        word = self._next.word
        if word in _VALUES:
            self._pass_on()
            self._has_value = True
        elif word == "distinct" and self._after.word == "from":
            self._pass_on()
            self._pass_on()
        else:
            raise refuse(f"IS {self._next.text.upper()[:50]}")

    def _open(self, kind: str) -> None:
        self._pass_on()
        self._levels.append(_Level(kind, len(self._made)))
        self._may_negate = kind != "["

    def _bracket(self) -> None:
        if self._has_value:
            self._unexpected(self._wanted())
        self._open("(")

    def _element(self) -> None:
        if not self._has_value:
            self._unexpected("where a value is expected")
        self._count()
        self._open("[")

    def _end_of_part(self, level: _Level) -> None:
        """At the end of an expression in brackets or CASE."""
        part = self._made[level.start :]
        if len(self._levels) % _LEVELS_OF_A_PART == 0 and len(part) > 1:
            found = self._parse(ParserInput(part, self._literals, self._types))
            del self._made[level.start :]
            self._make("number", str(len(self._literals)), self._tokens[self._at - 1])
            self._literals.append(found)

    def _end_of_element(self, level: _Level) -> None:
        """At the end of an element of IN: literals beside each other are one token, for lists are long."""
        made, start = self._made, level.start
        if len(made) != start + 1 or made[start].token_type != self._kinds["number"]:
            level.listed = None
            return
        if level.listed is None:
            level.listed = int(made[start].text)
            self._literals[level.listed] = [self._literals[level.listed]]  # type: ignore[list-item]
            return
        listed = self._literals[level.listed]
        assert isinstance(listed, list)
        listed.append(self._literals.pop())  # type: ignore[arg-type]
        del made[-2:]

    def _close(self) -> None:
        level, closing = self._levels[-1], self._next.word
        is_empty = level.kind == "call" and len(self._made) == level.start
        if not (self._has_value or is_empty) or level.needs_and:
            self._unexpected(self._wanted())
        if level.kind not in (("[",) if closing == "]" else ("(", "call", "in", "cast")):
            self._unexpected(self._wanted())
        if level.kind == "cast" and level.state != "as":
            self._unexpected("where AS is expected")
        if level.kind != "cast" and not is_empty:
            self._end_of_part(level)
        if level.kind == "in":
            self._end_of_element(level)
        self._levels.pop()
        self._pass_on()
        self._has_value = True

    def _comma(self) -> None:
        level = self._levels[-1]
        if level.kind == "(" and self._has_value:
            raise refuse("a list of values in parentheses")
        if level.kind not in ("call", "in") or not self._has_value or level.needs_and:
            self._unexpected(self._wanted())
        self._end_of_part(level)
        if level.kind == "in":
            self._end_of_element(level)
        self._pass_on()
        level.restart()
        level.start, level.links = len(self._made), 0
        self._may_negate = True

    def _case_word(self, word: str) -> None:
        level = self._levels[-1]
        came = {"when": ("", "then"), "then": ("when",), "else": ("then",), "end": ("then", "else")}[word]
        is_first = word == "when" and not level.state
        if level.kind != "case" or level.state not in came or level.needs_and:
            self._unexpected(self._wanted())
        if not self._has_value and not (is_first and self._tokens[self._at - 1].word == "case"):
            self._unexpected("where a value is expected")
        if self._has_value:
            self._end_of_part(level)
        self._pass_on()
        level.restart()
        level.start = len(self._made)
        level.state, level.links, self._may_negate = word, 0, word != "end"
        if word == "end":
            self._levels.pop()
            self._has_value = True

    def _as(self) -> None:
        level = self._levels[-1]
        if level.kind != "cast" or level.state or not self._has_value or level.needs_and:
            if self._has_value:
                raise refuse("AS")
            self._unexpected("where a value is expected")
        self._end_of_part(level)
        self._pass_on()
        level.state = "as"
        self._type()
        if self._next.word != ")":
            self._unexpected("where the end of CAST is expected")

    def _cast_of_value(self) -> None:
        if not self._has_value:
            self._unexpected("where a value is expected")
        self._count()
        self._pass_on()
        self._type()

    def _type(self) -> None:
        token, sizes = self._next, list[str]()
        if token.kind != "name":
            self._unexpected("where a type is expected")
        self._at += 1
        if self._next.word == "(":
            self._at += 1
            while True:
                if self._next.kind != "number" or not self._next.text.isdigit():
                    self._unexpected("where the size of a type is expected")
                sizes.append(self._take().text)
                if self._next.word != ",":
                    break
                self._at += 1
            if self._next.word != ")":
                self._unexpected("where ) is expected")
            self._at += 1
        found = TYPE_NAMES.get(token.word)
        if token.word in _DECIMALS and all(len(each) < 3 for each in sizes) and len(sizes) < 3:
            precision, scale = (*map(int, sizes), *(10, 0)[len(sizes) :])
            if 1 <= precision <= 38 and scale <= precision:
                found, sizes = DecimalType(precision, scale), []
        if found is None or sizes or self._next.word == "<":
            raise refuse(f"CAST to {token.text.upper()[:50]}" + (f"({', '.join(sizes)[:50]})" if sizes else ""))
        self._make("type", str(len(self._types)), token)
        self._types.append(found)
        self._has_value = True

    def _field(self) -> None:
        if not self._has_value:
            self._unexpected("where a value is expected")
        self._pass_on()
        self._check_name()
        if self._after.word == "(":
            raise refuse(f"A call of {self._next.text[:50]} with a name before it")
        self._pass_on("quoted")  # whatever the word is
        self._has_value = True

    def _check_name(self) -> None:
        token = self._next
        if token.kind == "text" and token.text.startswith('"'):
            name = text_value(token.text).replace("`", "``")
            raise CallError(f"{token.text} is a text in Spark's SQL, where a name is expected. Write `{name}`")
        if token.kind not in ("name", "quoted"):
            self._unexpected("where a name is expected")

    def _name(self) -> None:
        token = self._next
        if self._after.word == "(" and token.kind == "name":
            if token.word in ("exists", "try_cast"):
                raise refuse(token.text.upper())
            self._pass_on("name")
            self._open("cast" if token.word == "cast" else "call")
            if self._next.word == "*":
                raise refuse(f"{token.text[:50]}(*)")
            return
        self._pass_on(token.kind)
        self._has_value = True

    # -------------------------------------------------------------------------------------------- literals

    def _is_literal(self) -> bool:
        token, after = self._next, self._after
        if token.kind in ("number", "text"):
            return True
        if token.word == "interval":
            return after.kind in ("number", "text") or after.word in ("-", "+")
        # Spark reads the sign with the number: the least of a type has no positive counterpart.
        return after.kind == ("text" if token.kind == "name" else "number" if token.word in ("-", "+") else "")

    def _literal(self) -> None:
        token = self._next
        if token.kind == "text":
            found = self._text()
        elif token.word == "interval":
            found = self._interval()
        elif token.kind == "name":
            self._at += 1
            found = constants.typed(token.text, self._text())
        else:
            sign = self._take().text if token.kind == "mark" else ""
            found = constants.number(self._take().text, sign.replace("+", ""))
        self._make("number", str(len(self._literals)), token)
        self._literals.append(found)
        self._has_value, self._may_negate = True, False

    def _text(self) -> Literal:
        """Texts beside each other, which are one."""
        token = self._take()
        if self._next.kind != "text":
            return constants.text(token.text)
        values = [text_value(token.text)]
        while self._next.kind == "text":
            values.append(text_value(self._take().text))
        return Literal("".join(values))

    def _interval(self) -> Literal:
        """INTERVAL with numbers or texts and their units."""
        self._at += 1
        parts: list[tuple[str, str]] = []
        while True:
            sign = self._take().text if self._next.word in ("-", "+") else ""
            token = self._next
            if token.kind not in ("number", "text"):
                self._unexpected("where the number of an interval is expected")
            self._at += 1
            value = text_value(token.text) if token.kind == "text" else token.text
            if self._next.kind != "name" or self._next.word in _NO_UNITS:
                if parts or token.kind != "text" or sign:
                    self._unexpected("where the unit of an interval is expected")
                return constants.interval_of_text(value)
            parts.append((sign + value, self._take().word))
            if self._next.word == "to" and len(parts) == 1 and token.kind == "text":
                self._at += 1
                if self._next.kind != "name":
                    self._unexpected("where the unit of an interval is expected")
                return constants.interval_between(sign + value, parts[0][1], self._take().word)
            if self._next.kind not in ("number", "text") and not self._is_signed_part():
                return constants.interval(parts)

    def _is_signed_part(self) -> bool:
        """Whether a sign, a number and a unit follow, which belong to the interval before them."""
        return (
            self._next.word in ("-", "+")
            and self._ahead(1).kind in ("number", "text")
            and constants.is_unit(self._ahead(2).word)
        )


_MARKS = {
    "(": _Pass._bracket,
    ")": _Pass._close,
    "[": _Pass._element,
    "]": _Pass._close,
    ",": _Pass._comma,
    ".": _Pass._field,
    "::": _Pass._cast_of_value,
}


@functools.cache
def _kinds() -> Mapping[str, Any]:
    """sqlglot's kinds of the words and marks of expressions, of names, literals and types."""
    from sqlglot import TokenType
    from sqlglot.dialects.spark import Spark

    known: Mapping[str, Any] = {**Spark.Tokenizer.SINGLE_TOKENS, **Spark.Tokenizer.KEYWORDS}
    words = (*_OPERATORS, *_MARKS, *_VALUES, "not", "case", "when", "then", "else", "end", "distinct", "from")
    names = {"name": TokenType.VAR, "quoted": TokenType.IDENTIFIER, "number": TokenType.NUMBER, "type": TokenType.INT}
    return {**{word: known[word.upper()] for word in words}, "as": TokenType.ALIAS, **names}
