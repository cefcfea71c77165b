"""Prepares the tokens of an expression for sqlglot's parser. Pure.

The parser receives each literal, name and type as a single token, so that it does not interpret their content. This
module refuses what sqlglot would accept but Spark does not: two values without an operator between them, and
comparisons whose operands are comparisons. This module also refuses NOT after an operator, because sqlglot groups it
differently. All other syntax errors are left to the parser.
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
    """``tokens``: sqlglot tokens. The text of a NUMBER token is an index into ``values``: a literal, a name, a part
    parsed earlier, or consecutive literals of an IN list. The text of an INT token, which represents the type of a
    cast, is also such an index."""

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
_UNKNOWN_CALLS = frozenset({"exists", "try_cast"})  # some arguments of these functions are not expressions
_CLOSED = {")": frozenset({"(", "call", "cast", "in"}), "]": frozenset({"["}), "end": frozenset({"case"})}
_LEVELS_OF_A_PART = 8
MAX_HEIGHT = 1200  # the maximum height of a tree; allows a chain of that many ANDs
TOO_DEEP = "is nested too deeply. For many values of a column, use IN or isin"


@dataclass
class _Level:
    """A nesting level: an open bracket, an open CASE, or the whole expression."""

    opener: str
    start: int = 0  # the index of the level's first token in the emitted tokens
    compared: str = ""  # the comparison operator since the last AND or OR; there can be only one
    links: int = 0  # number of ANDs and ORs
    # The number of operators since the last AND or OR. They are nested: the result of each is an operand of the next
    # one.
    operators: int = 0


def parser_input(tokens: Sequence[Token], parse: Callable[[ParserInput], Expression]) -> ParserInput:
    """Build the parser's input from the tokens of an expression. ``parse``: a function that runs the parser on an
    input. ``parse`` is also called for parts of the expression: because the parser recurses deeply, every few levels
    the content of brackets is parsed separately and then passed to the outer parser as a literal. Raises CallError, and
    its subclass Unparsable if the text is not an expression. Cost: time proportional to the number of tokens."""
    return _ParserInputBuilder(tokens, parse).build()


class _ParserInputBuilder(TokenReader):
    def __init__(self, tokens: Sequence[Token], parse: Callable[[ParserInput], Expression]) -> None:
        from sqlglot import Token as ParserToken

        super().__init__(tokens)
        self._token_class: Any = ParserToken
        self._parse, self._number = parse, len(tokens)
        self._emitted: list[Any] = []
        self._values: list[Expression | list[Expression] | DataType] = []
        self._levels = [_Level("")]
        self._has_value = False  # whether the last token ended a value
        self._kinds = _token_types()

    def build(self) -> ParserInput:
        if self.next.kind == "end":
            raise Unparsable("it is empty, not one expression")
        while (token := self.next).kind != "end":
            if token.word == ";":
                if self.after.kind != "end":
                    raise Unparsable("it consists of several statements, not one expression")
                break
            if self._has_value:
                self._after_value(token, self._levels[-1])
            else:
                self._value(token, self._levels[-1])
        if not self._has_value:
            raise Unparsable("it cannot be parsed: it ends where a value is expected")
        return ParserInput(self._emitted, self._values)

    def _emit(self, kind: str, text: str, token: Token) -> None:
        if len(self._emitted) >= limits.MAX_EXPRESSION_TOKENS:
            raise CallError(f"the number of its tokens {limits.over('MAX_EXPRESSION_TOKENS', self._number)}")
        self._emitted.append(self._token_class(self._kinds[kind], text, start=token.start, end=token.end - 1))

    def _emit_next(self, kind: str | None = None) -> None:
        """Emit the next token, which must be followed by a value."""
        token = self.take()
        self._emit(kind or token.word, token.text, token)
        self._has_value = False

    def _emit_value(self, value: Expression | list[Expression] | DataType, token: Token, kind: str = "value") -> None:
        self._emit(kind, str(len(self._values)), token)
        self._values.append(value)
        self._has_value = True

    # --------------------------------------------------------------------------------------------- grammar

    def _value(self, token: Token, level: _Level) -> None:
        """Process the next token at a point where a value is expected."""
        word, is_first = token.word, len(self._emitted) == level.start
        if word in _NOT:
            is_condition = is_first or self.before.word in _BEFORE_NOT
            if level.compared or level.opener == "[" or not is_condition:
                raise refuse("NOT without parentheses after an operator")
            self._emit_next("not")
        elif word == "case":
            self._open("case")
        elif word == "when" and level.opener == "case" and is_first:
            self._part(level)
        elif self.is_literal():
            found = self.literals() if is_first and level.opener == "in" else [self.literal()]
            self._emit_value(found if len(found) > 1 else found[0], token)
        elif word == "-":
            self._emit_next()
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
            self._emit_value(_VALUES[word], self.take())
        elif token.kind == "name" and self.after.word == "(":
            if word in _UNKNOWN_CALLS:
                raise refuse(word.upper())
            self._emit_next("name")
            self._open("cast" if word == "cast" else "call")
        else:
            path = [self.take().text]
            while self.next.word == ".":
                path.append(self.field().text)
            if len(path) > limits.MAX_EXPRESSION_DEPTH:
                raise CallError(f"the number of names in a path {limits.over('MAX_EXPRESSION_DEPTH', len(path))}")
            self._emit_value(Name(tuple(path), token.kind == "quoted"), token)

    def _after_value(self, token: Token, level: _Level) -> None:
        """Handle a token after a value, where an operator or the end of the expression is expected."""
        word = token.word
        if word in _LENGTHENING:
            level.operators += 1
            # Refuse the expression now: sqlglot would spend a long time on a tree that would be refused later.
            if level.operators + level.links > MAX_HEIGHT:
                raise CallError(TOO_DEEP)
        if word in _ARITHMETIC:
            self._emit_next()
        elif level.opener == "[" and (word in _OPERATORS or word == "not"):
            self.unexpected("where ] is expected")
        elif word in _COMPARED or word in PREDICATES or (word in _NOT and self.after.word in PREDICATES):
            self._compare(level)
        elif word in ("and", "or"):
            if level.compared == "between":
                level.compared = "and"
            else:
                level.compared, level.links, level.operators = "", level.links + 1, 0
            self._emit_next()
        elif word == ",":
            if level.opener == "(":
                raise refuse("a list of values in parentheses")
            self._part(level)
        elif word in _PARTING:
            if word == "as" and level.opener != "cast":
                raise refuse("AS")
            self._part(level)
            if word == "as":
                self._emit_value(self.data_type(), token, "type")
                if self.next.word != ")":
                    self.unexpected("where the end of CAST is expected")
        elif word in _CLOSED and level.opener in _CLOSED[word]:
            self._close(level)
        elif word == "[":
            self._open("[")
        elif word == "::":
            self._emit_next()
            self._emit_value(self.data_type(), token, "type")
        elif word == "." and self.before.kind != "number":
            self._emit(".", ".", token)
            field = self.field()
            self._emit("quoted", field.text, field)
        else:
            self.unexpected("where an operator is expected")

    def _compare(self, level: _Level) -> None:
        """Process a comparison operator with all its words, such as IS NOT NULL."""
        if level.compared:
            raise refuse(f"{self.next.text.upper()} after a comparison without parentheses")
        if self.next.word in _NOT:
            self._emit_next("not")
        level.compared = self.next.word
        self._emit_next()
        if level.compared != "is":
            return
        if self.next.word == "not":
            self._emit_next()
        if self.next.word == "distinct" and self.after.word == "from":
            self._emit_next()
            self._emit_next()
        elif self.next.word in _VALUES and self.after.word not in (".", "[", "::"):
            self._emit_next()
            self._has_value = True
        else:
            raise refuse(f"IS {self.next.text.upper()[:50]}")

    def _open(self, opener: str) -> None:
        self._emit_next()
        self._levels.append(_Level(opener, len(self._emitted)))

    def _part(self, level: _Level) -> None:
        """Handle a word or a comma after which another expression begins."""
        self._parse_alone(level)
        self._emit_next()
        level.start, level.compared, level.links, level.operators = len(self._emitted), "", 0, 0

    def _close(self, level: _Level) -> None:
        self._parse_alone(level)
        self._levels.pop()
        # sqlglot is slow on brackets. Most brackets enclose a single value; such brackets are dropped here.
        emitted, is_one_value = self._emitted, len(self._emitted) == level.start + 1
        if level.opener == "(" and is_one_value:
            del emitted[-2]
            self.take()
        elif level.opener == "[" and is_one_value and emitted[-3].token_type == self._kinds["value"]:
            operand, key = (self._values[int(each.text)] for each in (emitted[-3], emitted[-1]))
            del emitted[-3:]
            self._emit_value(Element(operand, key), self.take())  # type: ignore[arg-type]
        else:
            self._emit_next()
        self._has_value = True

    def _parse_alone(self, level: _Level) -> None:
        """Handle the token that ends a bracketed expression or a CASE."""
        if len(self._levels) % _LEVELS_OF_A_PART == 0 and len(self._emitted) > level.start + 1:
            found = self._parse(ParserInput(self._emitted[level.start :], self._values))
            del self._emitted[level.start :]
            self._emit_value(found, self.before)


@functools.cache
def _token_types() -> Mapping[str, Any]:
    """sqlglot's token types for words, marks, values, types and names."""
    from sqlglot import TokenType
    from sqlglot.dialects.spark import Spark

    known: Mapping[str, Any] = {**Spark.Tokenizer.SINGLE_TOKENS, **Spark.Tokenizer.KEYWORDS}
    words = (*_OPERATORS, *_VALUES, *"()[],.", "::", "not", "case", *_PARTING, "end", "distinct", "from")
    names = {"name": TokenType.VAR, "quoted": TokenType.IDENTIFIER, "value": TokenType.NUMBER, "type": TokenType.INT}
    return {**{word: known[word.upper()] for word in words if word != "as"}, "as": TokenType.ALIAS, **names}
