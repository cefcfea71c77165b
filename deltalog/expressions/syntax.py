"""The tokens of an expression as sqlglot's parser takes them. Pure.

To the parser each literal, each name and each type is one token, so that its own readings of them never apply. What it
would let pass and Spark does not is refused here: values without an operator between them, comparisons of comparisons,
and NOT behind an operator, which it groups in another way. All else that is no expression is for the parser to find.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from deltalog.errors import CallError
from deltalog.expressions.functions.types import refuse
from deltalog.expressions.reading import PREDICATES, RESERVED, TokenReader, Unparsable
from deltalog.expressions.tokens import Token
from deltalog.expressions.tree import Element, Expression, Literal, Name
from deltalog.protocol import limits
from deltalog.protocol.schema import DataType


class ParserInput(NamedTuple):
    """``tokens``: of sqlglot. The text of a NUMBER is its position in ``values``: a literal, a name, a part that is
    parsed, or literals of an IN that stand beside each other. So is that of an INT, which is the type of a cast."""

    tokens: list[Any]
    values: list[Expression | list[Expression] | DataType]


_COMPARED = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "is"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "div", "||"})
_OPERATORS = _COMPARED | PREDICATES | _ARITHMETIC | {"and", "or"}
_LENGTHENING = _ARITHMETIC | {"and", "or", "[", "::", "."}
_NOT = frozenset({"not", "!"})
_BEFORE_NOT = frozenset({"and", "or", *_NOT})
_PARTING = frozenset({"when", "then", "else", "as"})
_VALUES: Mapping[str, Literal] = {"null": Literal(None), "true": Literal(True), "false": Literal(False)}
_UNKNOWN_CALLS = frozenset({"exists", "try_cast"})  # which may have what is no expression in them
_CLOSED = {")": frozenset({"(", "call", "cast", "in"}), "]": frozenset({"["}), "end": frozenset({"case"})}
_LEVELS_OF_A_PART = 8
MAX_HEIGHT = 1200  # of a tree: a chain of AND may be so long
TOO_DEEP = "is nested too deeply. For many values of a column, use IN or isin"


@dataclass
class _Level:
    """Brackets or a CASE that are open, or the whole expression."""

    opener: str
    start: int = 0  # of the expression that is read, among the tokens that are made
    compared: str = ""  # the comparison in it since the last AND or OR, of which there is one
    links: int = 0  # AND and OR of it
    operators: int = 0  # since then, each of which has the one before it as its operand


def parser_input(tokens: Sequence[Token], parse: Callable[[ParserInput], Expression]) -> ParserInput:
    """What the parser gets for the tokens of an expression. ``parse`` is what is done with it, and with parts of it:
    the parser's recursion is deep, so that every few levels what stands in brackets is parsed alone, and goes on as a
    literal. Raises CallError: Unparsable for what is no expression.
    Cost: time proportional to the number of tokens."""
    return _Pass(tokens, parse).whole()


class _Pass(TokenReader):
    def __init__(self, tokens: Sequence[Token], parse: Callable[[ParserInput], Expression]) -> None:
        from sqlglot import Token as ParserToken

        super().__init__(tokens)
        self._token_class: Any = ParserToken
        self._parse, self._number = parse, len(tokens)
        self._made: list[Any] = []
        self._values: list[Expression | list[Expression] | DataType] = []
        self._levels = [_Level("")]
        self._has_value = False  # the token before is the end of a value
        self._kinds = _kinds()

    def whole(self) -> ParserInput:
        if self.next.kind == "end":
            raise Unparsable("it is empty, not one expression")
        while (token := self.next).kind != "end":
            if token.word == ";":
                if self.after.kind != "end":
                    raise Unparsable("it is several statements, not one expression")
                break
            if self._has_value:
                self._behind_a_value(token, self._levels[-1])
            else:
                self._value(token, self._levels[-1])
        if not self._has_value:
            raise Unparsable("it cannot be parsed: it ends where a value is expected")
        return ParserInput(self._made, self._values)

    def _make(self, kind: str, text: str, token: Token) -> None:
        if len(self._made) >= limits.MAX_EXPRESSION_TOKENS:
            raise CallError(f"the number of its tokens {limits.over('MAX_EXPRESSION_TOKENS', self._number)}")
        self._made.append(self._token_class(self._kinds[kind], text, start=token.start, end=token.end - 1))

    def _pass_on(self, kind: str | None = None) -> None:
        """Hand the next token on, behind which a value is expected."""
        token = self.take()
        self._make(kind or token.word, token.text, token)
        self._has_value = False

    def _make_value(self, value: Expression | list[Expression] | DataType, token: Token, kind: str = "value") -> None:
        self._make(kind, str(len(self._values)), token)
        self._values.append(value)
        self._has_value = True

    # --------------------------------------------------------------------------------------------- grammar

    def _value(self, token: Token, level: _Level) -> None:
        """The next token, where a value is expected."""
        word, is_first = token.word, len(self._made) == level.start
        if word in _NOT:
            is_condition = is_first or self.before.word in _BEFORE_NOT
            if level.compared or level.opener == "[" or not is_condition:
                raise refuse("NOT after an operator without parentheses")
            self._pass_on("not")
        elif word == "case":
            self._open("case")
        elif word == "when" and level.opener == "case" and is_first:
            self._part(level)
        elif self.is_literal():
            found = self.literals() if is_first and level.opener == "in" else [self.literal()]
            self._make_value(found if len(found) > 1 else found[0], token)
        elif word == "-":
            self._pass_on()
        elif word == "+":
            raise refuse("the sign +")
        elif word == "(":
            self._open("in" if self.before.word == "in" else "(")
        elif word == ")" and level.opener in ("call", "in") and is_first and self.before.word == "(":
            if level.opener == "in":
                raise refuse("IN of an empty list")
            self._close(level)
        elif token.kind not in ("name", "quoted") or word in RESERVED:
            self.unexpected("where a value is expected")
        elif word in _VALUES:
            self._make_value(_VALUES[word], self.take())
        elif token.kind == "name" and self.after.word == "(":
            if word in _UNKNOWN_CALLS:
                raise refuse(word.upper())
            self._pass_on("name")
            self._open("cast" if word == "cast" else "call")
        else:
            path = [self.take().text]
            while self.next.word == ".":
                path.append(self.field().text)
            if len(path) > limits.MAX_EXPRESSION_DEPTH:
                raise CallError(f"the number of names in a path {limits.over('MAX_EXPRESSION_DEPTH', len(path))}")
            self._make_value(Name(tuple(path), token.kind == "quoted"), token)

    def _behind_a_value(self, token: Token, level: _Level) -> None:
        """The next token, where an operator or the end of the expression is expected."""
        word = token.word
        if word in _LENGTHENING:
            level.operators += 1
            # sqlglot would take long for a tree that is refused afterwards.
            if level.operators + level.links > MAX_HEIGHT:
                raise CallError(TOO_DEEP)
        if word in _ARITHMETIC:
            self._pass_on()
        elif level.opener == "[" and (word in _OPERATORS or word == "not"):
            self.unexpected("where ] is expected")
        elif word in _COMPARED or word in PREDICATES or (word in _NOT and self.after.word in PREDICATES):
            self._compare(level)
        elif word in ("and", "or"):
            if level.compared == "between":
                level.compared = "and"
            else:
                level.compared, level.links, level.operators = "", level.links + 1, 0
            self._pass_on()
        elif word == ",":
            if level.opener == "(":
                raise refuse("a list of values in parentheses")
            self._part(level)
        elif word in _PARTING:
            if word == "as" and level.opener != "cast":
                raise refuse("AS")
            self._part(level)
            if word == "as":
                self._make_value(self.data_type(), token, "type")
                if self.next.word != ")":
                    self.unexpected("where the end of CAST is expected")
        elif word in _CLOSED and level.opener in _CLOSED[word]:
            self._close(level)
        elif word == "[":
            self._open("[")
        elif word == "::":
            self._pass_on()
            self._make_value(self.data_type(), token, "type")
        elif word == "." and self.before.kind != "number":
            self._make(".", ".", token)
            field = self.field()
            self._make("quoted", field.text, field)
        else:
            self.unexpected("where an operator is expected")

    def _compare(self, level: _Level) -> None:
        """A comparison, with the words that belong to it."""
        if level.compared:
            raise refuse(f"{self.next.text.upper()} after a comparison without parentheses")
        if self.next.word in _NOT:
            self._pass_on("not")
        level.compared = self.next.word
        self._pass_on()
        if level.compared != "is":
            return
        if self.next.word == "not":
            self._pass_on()
        if self.next.word == "distinct" and self.after.word == "from":
            self._pass_on()
            self._pass_on()
        elif self.next.word in _VALUES and self.after.word not in (".", "[", "::"):
            self._pass_on()
            self._has_value = True
        else:
            raise refuse(f"IS {self.next.text.upper()[:50]}")

    def _open(self, opener: str) -> None:
        self._pass_on()
        self._levels.append(_Level(opener, len(self._made)))

    def _part(self, level: _Level) -> None:
        """A word or a comma, behind which another expression begins."""
        self._parse_alone(level)
        self._pass_on()
        level.start, level.compared, level.links, level.operators = len(self._made), "", 0, 0

    def _close(self, level: _Level) -> None:
        self._parse_alone(level)
        self._levels.pop()
        # sqlglot takes long for brackets, most of which have one value in them.
        made, is_one_value = self._made, len(self._made) == level.start + 1
        if level.opener == "(" and is_one_value:
            del made[-2]
            self.take()
        elif level.opener == "[" and is_one_value and made[-3].token_type == self._kinds["value"]:
            operand, key = (self._values[int(each.text)] for each in (made[-3], made[-1]))
            del made[-3:]
            self._make_value(Element(operand, key), self.take())  # type: ignore[arg-type]
        else:
            self._pass_on()
        self._has_value = True

    def _parse_alone(self, level: _Level) -> None:
        """Where an expression in brackets or CASE ends."""
        if len(self._levels) % _LEVELS_OF_A_PART == 0 and len(self._made) > level.start + 1:
            found = self._parse(ParserInput(self._made[level.start :], self._values))
            del self._made[level.start :]
            self._make_value(found, self.before)


@functools.cache
def _kinds() -> Mapping[str, Any]:
    """sqlglot's kinds of the words and marks of expressions, of values, types and names."""
    from sqlglot import TokenType
    from sqlglot.dialects.spark import Spark

    known: Mapping[str, Any] = {**Spark.Tokenizer.SINGLE_TOKENS, **Spark.Tokenizer.KEYWORDS}
    words = (*_OPERATORS, *_VALUES, *"()[],.", "::", "not", "case", *_PARTING, "end", "distinct", "from")
    names = {"name": TokenType.VAR, "quoted": TokenType.IDENTIFIER, "value": TokenType.NUMBER, "type": TokenType.INT}
    return {**{word: known[word.upper()] for word in words if word != "as"}, "as": TokenType.ALIAS, **names}
