"""Expressions as SQL text in Spark's dialect, read. Pure.

Text is never evaluated as code: each operator and function is looked up by name, becomes a tree of ``tree``, and what
is not known here is refused. Each token is read once, so that the time is proportional to the length of the text.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from deltalog.errors import CallError
from deltalog.expressions import constants
from deltalog.expressions.functions.types import TYPE_NAMES, refuse
from deltalog.expressions.tokens import Token, text_value, tokens_of
from deltalog.expressions.tree import (
    MOMENTS,
    And,
    Arithmetic,
    ArithmeticOperator,
    Between,
    Call,
    Case,
    Cast,
    Comparison,
    Element,
    Expression,
    Field,
    In,
    IsBoolean,
    IsNull,
    Like,
    Literal,
    Name,
    Negative,
    Not,
    Operator,
    Or,
    Predicate,
    RegexLike,
    StartsWith,
    at_instant,
    walked,
)
from deltalog.protocol import limits
from deltalog.protocol.schema import DataType, DecimalType

_SHOWN_CHARS = 1000
_MAX_HEIGHT = 1200  # of a tree: a chain of AND may be so long
_TOO_DEEP = "is nested too deeply. For many values of a column, use IN or isin"
_OR, _AND, _NOT, _COMPARED, _SUM, _PRODUCT, _SIGN = range(1, 8)  # what binds stronger has a higher number
_COMPARISONS: Mapping[str, Operator] = {
    "=": "=",
    "==": "=",
    "<>": "!=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "<=>": "<=>",
}
_ARITHMETIC: Mapping[str, tuple[int, ArithmeticOperator]] = {
    "+": (_SUM, "+"),
    "-": (_SUM, "-"),
    "||": (_SUM, "||"),
    "*": (_PRODUCT, "*"),
    "/": (_PRODUCT, "/"),
    "%": (_PRODUCT, "%"),
    "div": (_PRODUCT, "DIV"),
}
_PREDICATES = frozenset({"between", "in", "like", "ilike", "rlike", "regexp"})
_LEVELS: Mapping[str, int] = {
    "or": _OR,
    "and": _AND,
    "is": _COMPARED,
    "not": _COMPARED,
    **dict.fromkeys((*_COMPARISONS, *_PREDICATES), _COMPARED),
    **{word: level for word, (level, _) in _ARITHMETIC.items()},
}
_UNKNOWN_OPERATORS = frozenset({"&", "|", "^", "~", "<<", ">>", "->", "=>", ":", "?", "@", "{", "|>", "over", "escape"})
# They are not the name of a column unless they are quoted.
_RESERVED = frozenset({"and", "or", "in", "is", "div", "when", "then", "else", "as", *_PREDICATES})


# What may follow INTERVAL '90 days', which has its units in it.
_NO_UNITS = _RESERVED | frozenset({*_LEVELS, "end"})


class _Unparsable(CallError):
    """The text is no expression, of whichever dialect."""


def parse(text: str, what: str | None = None, most_chars: int | None = None) -> Expression:
    """The tree of one SQL expression, which messages call ``what``. ``most_chars``: how long it may be, if not
    MAX_CONDITION_CHARS. Raises CallError. Cost: time proportional to the length."""
    what = f"The predicate {short(text)}" if what is None else what
    try:
        return _Parser(tokens_of(text, most_chars)).whole()
    except CallError as error:
        raise CallError(f"{what}: {str(error).rstrip('.')}.") from None
    except RecursionError:
        raise CallError(f"{what[:80]}… {_TOO_DEEP}.") from None


def as_predicate(where: Predicate | str | None, now: datetime.datetime | None = None) -> Predicate | None:
    """A condition in either form, or None. ``now``: the instant that CURRENT_TIMESTAMP and its like are, in all uses of
    the condition; without it a binder says what they are. Raises CallError."""
    if where is None or isinstance(where, Predicate):
        return where
    if isinstance(where, str):
        tree = parse(where)
        if isinstance(tree, Literal) and isinstance(tree.value, str):
            raise CallError(f"The predicate {short(where)} is a text, not a condition.")
        condition = tree if isinstance(tree, Predicate) else Comparison("=", tree, Literal(True))
        found = condition if now is None else at_instant(condition, now)
        assert isinstance(found, Predicate)
        return found
    raise CallError(f"where is SQL text or a predicate made with col(…), not {type(where).__name__}.")


_MENTIONS_MOMENT = re.compile(rf"\b(?:{'|'.join(MOMENTS)})\b", re.IGNORECASE)


def at_one_instant(where: Predicate | str | None, now: datetime.datetime) -> Predicate | str | None:
    """A condition in which CURRENT_TIMESTAMP and its like are one instant, however often it is used; one without them
    is as it was. Raises CallError."""
    if not isinstance(where, str) or _MENTIONS_MOMENT.search(where) is None:
        return where
    return as_predicate(where, now)


def names_in(text: str) -> frozenset[str] | None:
    """The names in an expression of a table, in lower case: columns, their qualifiers and fields. None where the text
    cannot be parsed, and may use any column. Of expressions of Spark that ``parse`` refuses, all words count."""
    try:
        tokens = tokens_of(text, limits.MAX_EXPRESSION_CHARS)
    except CallError:
        return None
    try:
        tree = _Parser(tokens).whole()
    except (_Unparsable, RecursionError):
        return None
    except CallError:
        return frozenset(each.text.lower() for each in tokens if each.kind in ("name", "quoted"))
    parts = (
        each.path if isinstance(each, Name) else (each.name,)
        for each in walked(tree)
        if isinstance(each, (Name, Field))
    )
    return frozenset(name.lower() for path in parts for name in path)


def short(text: str) -> str:
    """A text in messages."""
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}…"


class _Parser:
    """One pass over the tokens: by precedence, one call for each pair of brackets and each operator."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._listed = 0  # tokens of literals in lists, which are many and cost little
        self._height = 0  # of the tree that was returned last

    def whole(self) -> Expression:
        """The tree of all tokens."""
        if self._next.kind == "end":
            raise _Unparsable("it is empty, not one expression")
        found = self._expression(_OR)
        if self._next.word == ";" and self._tokens[self._at + 1].kind != "end":
            raise _Unparsable("it is several statements, not one expression")
        if self._next.word not in ("", ";") or self._next.kind not in ("end", "mark"):
            self._unexpected()
        return found

    # ---------------------------------------------------------------------------------------------- tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    @property
    def _after(self) -> Token:
        """The token behind the next one."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def _taken(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        if self._at - self._listed > limits.MAX_EXPRESSION_TOKENS:
            raise CallError(f"the number of its tokens {limits.over('MAX_EXPRESSION_TOKENS', len(self._tokens))}")
        return token

    def _skip(self, word: str) -> bool:
        """Whether the next token is a word or mark, which is taken then."""
        if self._next.word != word:
            return False
        self._taken()
        return True

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            self._unexpected(f"where {word.upper()} is expected")

    def _unexpected(self, why: str = "where it is not expected") -> NoReturn:
        token = self._next
        if token.kind == "end":
            raise _Unparsable(f"it cannot be parsed: it ends {why}")
        place = f"at character {token.start + 1}"
        if token.word in _UNKNOWN_OPERATORS:
            raise refuse(f"{token.text.upper()}{self._after.text[:50]} {place}")
        raise CallError(f"it cannot be parsed: {token.text[:50]!r} is {place}, {why}")

    # ----------------------------------------------------------------------------------------- expressions

    def _expression(self, level: int) -> Expression:
        """The longest expression of operators that bind at least as strongly as ``level``."""
        found = self._operand(level)
        height, kinds = self._height, set[str]()  # the operators that stand beside each other in it
        while True:
            word = self._next.word
            binds = _LEVELS.get(word, 0)
            if binds < level or not binds:
                self._height = height
                return found
            if binds == _COMPARED and "compared" in kinds:
                raise refuse(f"{self._next.text.upper()} after a comparison without parentheses")
            if binds == _SUM and kinds & ({"+", "-"} if word == "||" else {"||"}):
                raise refuse(f"{word} beside another operator without parentheses")
            self._height = 0
            if binds == _COMPARED:
                found = self._compared(found)
                kinds = {"compared"}
            else:
                self._taken()
                right = self._expression(binds + 1)
                kinds = {word} if binds == _SUM else set()
                if binds in (_OR, _AND):
                    found = And(found, right) if binds == _AND else Or(found, right)
                else:
                    found = Arithmetic(_ARITHMETIC[word][1], found, right)
            height = self._higher(height, self._height)

    def _higher(self, *heights: int) -> int:
        height = 1 + max(heights, default=0)
        if height > _MAX_HEIGHT:
            raise CallError(_TOO_DEEP)
        return height

    def _operand(self, level: int) -> Expression:
        word = self._next.word
        if word in ("not", "!"):
            if level > _NOT:
                raise refuse("NOT after an operator without parentheses")
            self._taken()
            inner = self._expression(_NOT)
            self._height = self._higher(self._height)
            return Not(inner)
        if word in ("-", "+"):
            after = self._after
            if after.kind == "number":  # Spark reads the sign with it: the least of a type has no positive counterpart
                self._taken()
                self._taken()
                self._height = 1
                return self._followed(constants.number(after.text, "-" if word == "-" else ""))
            if word == "+":
                raise refuse("the sign +")
            self._taken()
            inner = self._expression(_SIGN)
            self._height = self._higher(self._height)
            return Negative(inner)
        return self._followed(self._primary())

    def _followed(self, found: Expression) -> Expression:
        """An operand with what is written behind it: fields, elements, ``::`` and a type."""
        while self._next.word in (".", "[", "::"):
            height, word = self._height, self._taken().word
            self._height = 0
            if word == ".":
                name = self._identifier()
                found = Name((*found.path, name), found.is_quoted) if isinstance(found, Name) else Field(found, name)
            elif word == "[":
                found = Element(found, self._expression(_SUM))
                self._expect("]")
            else:
                found = _cast(found, self._data_type())
            self._height = self._higher(height, self._height)
        return found

    def _compared(self, left: Expression) -> Expression:
        operator = self._taken()
        if operator.word in _COMPARISONS:
            return Comparison(_COMPARISONS[operator.word], left, self._expression(_SUM))
        if operator.word == "is":
            return self._is(left)
        is_negated = operator.word == "not"
        word = self._taken().word if is_negated else operator.word
        found: Expression
        if word == "between":
            if self._next.word in ("symmetric", "asymmetric") and self._after.kind != "mark":
                raise refuse(f"BETWEEN {self._next.text.upper()}")
            low = self._expression(_SUM)
            height = self._height
            self._expect("and")
            found = Between(left, low, self._expression(_SUM))
            self._height = max(height, self._height)
        elif word == "in":
            found = self._in(left)
        elif word in ("like", "ilike"):
            found = _like(word, left, self._expression(_SUM))
        elif word in ("rlike", "regexp"):
            found = RegexLike(left, self._expression(_SUM))
        else:
            self._at -= 1
            self._unexpected("where IN, LIKE or BETWEEN is expected")
        return Not(found) if is_negated else found

    def _is(self, left: Expression) -> Expression:
        is_negated, word = self._skip("not"), self._taken().word
        found: Expression
        if word == "null":
            found = IsNull(left)
        elif word in ("true", "false"):
            found = IsBoolean(left, word == "true")
        elif word == "distinct":
            self._expect("from")
            found, is_negated = Comparison("<=>", left, self._expression(_SUM)), not is_negated
        else:
            self._at -= 1
            raise refuse(f"IS {self._next.text.upper()}")
        return Not(found) if is_negated else found

    def _in(self, left: Expression) -> Expression:
        if not self._skip("("):
            raise refuse("IN without a list in parentheses")
        if self._next.word == ")":
            raise refuse("IN of an empty list")
        values: list[Any] = []
        doubtful: list[str] = []
        others: list[Expression] = []
        highest = 0
        while True:
            token, after = self._next, self._after
            if after.kind == "mark" and after.text in ",)" and token.kind in ("text", "number"):  # lists are long
                self._at += 2
                self._listed += 2
                each: Expression = constants.text(token.text) if token.kind == "text" else constants.number(token.text)
                is_last = after.text == ")"
            else:
                self._height = 0
                each = self._expression(_OR)
                highest = max(highest, self._height)
                is_last = not self._skip(",")
                if is_last:
                    self._expect(")")
            if isinstance(each, Literal) and each.data_type is None:
                values.append(each.value)
                if each.in_double_quotes:
                    doubtful.append(each.value)
            else:
                others.append(each)
            if is_last:
                self._height = highest
                return In(left, tuple(values), tuple(others), tuple(doubtful))

    def _primary(self) -> Expression:
        token, after = self._next, self._after
        self._height = 1
        if token.kind == "number":
            return constants.number(self._taken().text)
        if token.kind == "text":
            return self._text()
        if token.kind == "quoted":
            return self._name()
        if token.kind != "name" and token.word != "(":
            self._unexpected("where a value is expected")
        if token.word == "(":
            return self._bracket()
        if after.kind == "text" and token.word not in _RESERVED and token.word != "interval":
            self._taken()
            return constants.typed(token.text, self._text())
        if token.word == "interval" and (after.kind in ("number", "text") or after.word in ("-", "+")):
            return self._interval()
        if token.word == "case":
            return self._case()
        if token.word in ("null", "true", "false"):
            self._taken()
            return Literal({"null": None, "true": True, "false": False}[token.word])
        if token.word in ("select", "with") and after.word != ".":
            raise refuse(token.text.upper())
        if after.word == "(" and token.word not in _RESERVED:
            return self._call()
        if token.word in _RESERVED:
            self._unexpected("where a value is expected")
        return self._name()

    def _bracket(self) -> Expression:
        self._taken()
        found = self._expression(_OR)
        if self._next.word == ",":
            raise refuse("a list of values in parentheses")
        self._expect(")")
        return found

    def _text(self) -> Literal:
        """Texts beside each other, which are one."""
        found = constants.text(self._taken().text)
        while self._next.kind == "text":
            following = constants.text(self._taken().text)
            found = Literal(found.value + following.value)
        return found

    def _identifier(self) -> str:
        token = self._next
        if token.kind == "text" and token.text.startswith('"'):
            name = text_value(token.text).replace("`", "``")
            raise CallError(f"{token.text} is a text in Spark's SQL, where a name is expected. Write `{name}`")
        if token.kind not in ("name", "quoted"):
            self._unexpected("where a name is expected")
        return self._taken().text

    def _name(self) -> Expression:
        is_quoted = self._next.kind == "quoted"
        path = [self._identifier()]
        while self._next.word == ".":
            self._taken()
            path.append(self._identifier())
        return Name(tuple(path), is_quoted)

    def _call(self) -> Expression:
        name = self._taken().text
        special = {"cast": self._cast, "exists": self._refused_query, "if": self._if}.get(name.lower())
        self._taken()
        if special is not None:
            return special()
        if name.lower() == "try_cast":
            raise refuse("TRY_CAST")
        if self._next.word in ("distinct", "all") and self._tokens[self._at + 1].word not in (",", ")", "."):
            raise refuse(f"{self._next.text.upper()} in a call")
        if self._next.word == "*":
            raise refuse(f"{name}(*)")
        arguments = self._arguments()
        if self._next.word in ("over", "filter", "within"):
            raise refuse(self._next.text.upper())
        if name.lower() == "startswith" and len(arguments) == 2:
            prefix = arguments[1]
            if isinstance(prefix, Literal) and isinstance(prefix.value, str) and not prefix.in_double_quotes:
                return StartsWith(arguments[0], prefix.value)
        return Call(name, arguments)

    def _arguments(self) -> tuple[Expression, ...]:
        """What follows up to the closing parenthesis."""
        found: list[Expression] = []
        highest = 0
        while not (not found and self._next.word == ")"):
            self._height = 0
            found.append(self._expression(_OR))
            highest = max(highest, self._height)
            if not self._skip(","):
                break
        self._expect(")")
        self._height = self._higher(highest)
        return tuple(found)

    def _refused_query(self) -> NoReturn:
        raise refuse("EXISTS")

    def _if(self) -> Expression:
        arguments = self._arguments()
        if len(arguments) != 3:
            raise refuse(f"IF with {len(arguments)} arguments")
        return Case(None, (arguments[:2],), arguments[2])

    def _cast(self) -> Expression:
        inner = self._expression(_OR)
        height = self._height
        self._expect("as")
        wanted = self._data_type()
        self._expect(")")
        self._height = self._higher(height)
        return _cast(inner, wanted)

    def _data_type(self) -> DataType:
        name, sizes = self._identifier(), list[str]()
        if self._next.word == "(":
            self._taken()
            while True:
                if self._next.kind != "number" or not self._next.text.isdigit():
                    self._unexpected("where the size of a type is expected")
                sizes.append(self._taken().text)
                if not self._skip(","):
                    break
            self._expect(")")
        found = TYPE_NAMES.get(name.lower())
        if name.lower() in ("decimal", "dec", "numeric") and all(len(each) < 3 for each in sizes) and len(sizes) < 3:
            precision, scale = (*map(int, sizes), *(10, 0)[len(sizes) :])
            if 1 <= precision <= 38 and scale <= precision:
                return DecimalType(precision, scale)
        if found is None or sizes or self._next.word == "<":
            raise refuse(f"CAST to {name.upper()}" + (f"({', '.join(sizes)})" if sizes else ""))
        return found

    def _case(self) -> Expression:
        self._taken()
        subject, highest = None, 0
        branches: list[tuple[Expression, Expression]] = []
        otherwise: Expression | None = None

        def part() -> Expression:
            nonlocal highest
            self._height = 0
            found = self._expression(_OR)
            highest = max(highest, self._height)
            return found

        if self._next.word != "when":
            subject = part()
        while self._skip("when"):
            when = part()
            self._expect("then")
            branches.append((when, part()))
        if not branches:
            self._unexpected("where WHEN is expected")
        if self._skip("else"):
            otherwise = part()
        self._expect("end")
        self._height = self._higher(highest)
        return Case(subject, tuple(branches), otherwise)

    def _interval(self) -> Expression:
        """INTERVAL with numbers or texts and their units."""
        self._taken()
        parts: list[tuple[str, str]] = []
        while True:
            sign = self._taken().text if self._next.word in ("-", "+") else ""
            if self._next.kind not in ("number", "text"):
                self._unexpected("where the number of an interval is expected")
            token = self._taken()
            value = str(constants.text(token.text).value) if token.kind == "text" else token.text
            if not self._is_word_but(_NO_UNITS):
                if parts or token.kind != "text" or sign:
                    self._unexpected("where the unit of an interval is expected")
                return constants.interval_of_text(value)
            parts.append((sign + value, self._taken().word))
            if self._next.word == "to" and len(parts) == 1 and token.kind == "text":
                self._taken()
                return constants.interval_between(sign + value, parts[0][1], self._identifier().lower())
            if self._next.kind not in ("number", "text") and not self._is_signed_part():
                return constants.interval(parts)

    def _is_word_but(self, words: frozenset[str]) -> bool:
        """Whether the next token is a name without quotes that is none of these."""
        return self._next.kind == "name" and self._next.word not in words

    def _is_signed_part(self) -> bool:
        """Whether a sign, a number and a unit follow, which belong to the interval before them."""
        if self._next.word not in ("-", "+"):
            return False
        value, unit = (self._tokens[min(self._at + n, len(self._tokens) - 1)] for n in (1, 2))
        return value.kind in ("number", "text") and constants.is_unit(unit.word)


def _cast(inner: Expression, wanted: DataType) -> Expression:
    # CAST('2026-01-01' AS DATE) is the literal DATE '2026-01-01'.
    found = constants.read_as(inner, wanted) if isinstance(inner, Literal) else None
    return Cast(inner, wanted) if found is None else found


def _like(word: str, value: Expression, pattern: Expression) -> Expression:
    if not (isinstance(pattern, Literal) and isinstance(pattern.value, str)):
        raise refuse(f"{word.upper()} of anything but a string and a literal pattern")
    body = pattern.value[:-1]
    if "\\" in pattern.value:
        raise refuse(f"{word.upper()} with a backslash in its pattern")
    is_prefix = pattern.value.endswith("%") and not any(mark in body for mark in "%_")
    if word == "like" and is_prefix and not pattern.in_double_quotes:
        return StartsWith(value, body)
    return Like(value, pattern, word == "ilike")
