"""Parses SQL expressions in Spark's dialect. Pure.

Text is never evaluated as code. sqlglot parses it; each node of sqlglot's tree is converted by the converter for its
type to a node of the module ``tree``, and unknown types are refused. The number of parser steps is limited in
proportion to the length of the text.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from deltalog.errors import CallError
from deltalog.expressions import constants
from deltalog.expressions.functions.types import refuse
from deltalog.expressions.parser_steps import with_counted_steps
from deltalog.expressions.reading import Unparsable
from deltalog.expressions.spellings import standard
from deltalog.expressions.syntax import MAX_HEIGHT, TOO_DEEP, ParserInput, parser_input
from deltalog.expressions.tokens import Token, tokens_of
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
    condition_at_instant,
    height,
    walked,
)
from deltalog.protocol import limits
from deltalog.protocol.schema import DataType

_SHOWN_CHARS = 1000


def parse(text: str, what: str | None = None, most_chars: int | None = None) -> Expression:
    """Parse one SQL expression. ``what``: the description of the expression in error messages. ``most_chars``: the
    maximum length of ``text``, by default MAX_CONDITION_CHARS. Raises CallError. Cost: time proportional to the
    length."""
    what = f"The predicate {short(text)}" if what is None else what
    try:
        # Rules of tables, whose length has another limit, keep to the names that Spark has for types.
        return _tree(tokens_of(text, most_chars), text, has_other_types=most_chars is None)
    except CallError as error:
        raise CallError(f"{what}: {str(error).rstrip('.')}.") from None
    except RecursionError:
        raise CallError(f"{what[:80]}… {TOO_DEEP}.") from None


def as_predicate(where: Predicate | str | None, now: datetime.datetime | None = None) -> Predicate | None:
    """Parse a condition from SQL text; a tree or None is returned unchanged. ``now``: the value of CURRENT_TIMESTAMP
    and similar functions in every use of the condition; by default, the binder supplies the value. Raises CallError."""
    if where is None:
        return None
    if isinstance(where, Predicate):
        return where if now is None else condition_at_instant(where, now)
    if isinstance(where, str):
        tree = parse(where)
        if isinstance(tree, Literal) and isinstance(tree.value, str):
            raise CallError(f"The predicate {short(where)} is a string, not a condition.")
        condition = tree if isinstance(tree, Predicate) else Comparison("=", tree, Literal(True))
        return condition if now is None else condition_at_instant(condition, now)
    raise CallError(f"where must be SQL text or a predicate built with col(…), not {type(where).__name__}.")


_MENTIONS_MOMENT = re.compile(rf"\b(?:{'|'.join(MOMENTS)})\b", re.IGNORECASE)


def at_one_instant(where: Predicate | str | None, now: datetime.datetime) -> Predicate | str | None:
    """The condition, with CURRENT_TIMESTAMP and similar functions replaced by a fixed time, so that all uses of the
    condition have the same time; unchanged if it has no such functions. Raises CallError."""
    if isinstance(where, Predicate):
        return condition_at_instant(where, now)
    if not isinstance(where, str) or _MENTIONS_MOMENT.search(where) is None:
        return where
    return as_predicate(where, now)


def names_in(text: str) -> frozenset[str] | None:
    """The names of columns, qualifiers and fields in a SQL expression, in lower case. None if the text cannot
    be parsed; then it may use any column. If ``parse`` refuses an expression that Spark may accept, the function
    returns all words of the expression."""
    try:
        tokens = tokens_of(text, limits.MAX_EXPRESSION_CHARS)
    except CallError:
        return None
    try:
        tree = _tree(tokens, text)
    except (Unparsable, RecursionError):
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
    """The text in quotes, truncated for messages."""
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}…"


# ------------------------------------------------------------------------------------------------- by sqlglot


def _tree(tokens: Sequence[Token], text: str, has_other_types: bool = True) -> Expression:
    """Raises CallError, including Unparsable, and RecursionError."""
    from sqlglot import exp
    from sqlglot.errors import ParseError

    def parsed(source: ParserInput) -> Expression:
        try:
            (tree,) = _dialect().parser().parse_into(exp.Condition, source.tokens, text)
        except ParseError as error:
            reason = error.errors[0].get("description") if error.errors else None
            raise Unparsable(f"it cannot be parsed: {reason or 'it is not an expression'}") from None
        if tree is None:
            raise Unparsable("it cannot be parsed: it is not an expression")
        return _TreeBuilder(source).expression(tree)

    found = parsed(parser_input(standard(tokens, has_other_types), parsed))
    if height(found) > MAX_HEIGHT:
        raise CallError(TOO_DEEP)
    return found


@functools.cache
def _dialect() -> Any:
    """Spark's dialect with the operators of ``syntax``, without sqlglot's function tables (sqlglot would rewrite calls,
    but we need them as written), and without queries, windows, lambdas and aliases, which our expressions do not
    allow."""
    from sqlglot import TokenType, exp
    from sqlglot.dialects.spark import Spark

    base: Any = Spark

    class Parser(with_counted_steps(base.Parser)):  # type: ignore[misc]
        FUNCTIONS: ClassVar[Any] = {}
        FUNCTION_PARSERS: ClassVar[Any] = {"CAST": base.Parser.FUNCTION_PARSERS["CAST"]}
        NO_PAREN_FUNCTIONS: ClassVar[Any] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar[Any] = {"CASE": base.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
        ARRAY_CONSTRUCTORS: ClassVar[Any] = {}
        STRICT_CAST = True
        TERM: ClassVar[Any] = {TokenType.DASH: exp.Sub, TokenType.PLUS: exp.Add, TokenType.DPIPE: exp.DPipe}
        FACTOR: ClassVar[Any] = {
            TokenType.DIV: exp.IntDiv,
            TokenType.MOD: exp.Mod,  # some versions of sqlglot give MOD the precedence of + and -
            TokenType.SLASH: exp.Div,
            TokenType.STAR: exp.Mul,
        }

        def _parse_types(self, *args: Any, **options: Any) -> Any:
            """Parse a type, which is a single token."""
            return exp.Var(this=self._prev.text) if self._match(TokenType.INT) else None

        def _parse_type(self, *args: Any, **options: Any) -> Any:
            """Parse an operand (a value, brackets, a call or CASE) and the accessors after it."""
            operand = self._parse_primary() or self._parse_function()
            return None if operand is None else self._parse_column_ops(operand)

        def _parse_assignment(self, *args: Any, **options: Any) -> Any:
            """Parse the text in brackets, or an element of a comma-separated list."""
            return self._parse_disjunction()

        _parse_expression = _parse_lambda = _parse_bracket_key_value = _parse_select_or_expression = _parse_assignment

        def _parse_select(self, *args: Any, **options: Any) -> Any:
            return None

        def _parse_window(self, this: Any, *args: Any, **options: Any) -> Any:
            return this

        _parse_at_time_zone = _parse_window

        def raise_error(self, message: str, token: Any = None) -> None:
            token = token or self._curr or self._prev
            word = self.sql[token.start : token.end + 1][:50]
            super().raise_error(f"{word!r} at character {token.start + 1}: {message.split(' for <')[0]}", token)

    return type("DeltalogExpressions", (base,), {"Parser": Parser})()


class _TreeBuilder:
    """Converts sqlglot's tree to an expression."""

    def __init__(self, source: ParserInput) -> None:
        self._values: list[Any] = source.values

    def expression(self, tree: Any) -> Expression:
        # A chain of operators, from the last to the first; collected in a loop instead of by recursion, because it can
        # have a thousand operators.
        links = []
        while type(tree).__name__ in _BINARY:
            links.append(tree)
            tree = tree.this
        found = self._one_node(tree)
        for link in reversed(links):
            _check_parts(link, ("this", "expression", "safe", "typed"))
            found = _BINARY[type(link).__name__](found, self.expression(link.expression))
        return found

    def _one_node(self, tree: Any) -> Expression:
        known = _KINDS.get(type(tree).__name__)
        if known is None:
            raise refuse(_words(tree))
        parts, read = known
        _check_parts(tree, parts)
        found = read(self, tree)
        # Some versions of sqlglot represent NOT LIKE as LIKE with the argument ``negate``.
        return Not(found) if tree.args.get("negate") else found

    def field(self, tree: Any) -> Expression:
        from sqlglot import exp

        names = []
        while type(tree) is exp.Dot and isinstance(tree.expression, exp.Identifier):
            names.append(tree.expression.name)
            tree = tree.this
        if not names:
            raise refuse(_words(tree))
        found = self.expression(tree)
        if isinstance(found, Name):
            return Name((*found.path, *reversed(names)), found.is_quoted)
        for name in reversed(names):
            found = Field(found, name)
        return found

    def element(self, tree: Any) -> Expression:
        if len(tree.expressions) != 1:
            raise refuse(_words(tree))
        return Element(self.expression(tree.this), self.expression(tree.expressions[0]))

    def in_list(self, tree: Any) -> Expression:
        values: list[Any] = []
        doubtful: list[str] = []
        others: list[Expression] = []
        for part in tree.expressions:
            listed = self._values[int(part.this)] if type(part).__name__ == "Literal" else self.expression(part)
            for each in listed if isinstance(listed, list) else [listed]:
                if isinstance(each, Literal) and each.data_type is None:
                    values.append(each.value)
                    if each.in_double_quotes:
                        doubtful.append(each.value)
                else:
                    others.append(each)
        return In(self.expression(tree.this), tuple(values), tuple(others), tuple(doubtful))

    def between(self, tree: Any) -> Expression:
        return Between(*(self.expression(part) for part in (tree.this, tree.args["low"], tree.args["high"])))

    def is_(self, tree: Any) -> Expression:
        from sqlglot import exp

        value, what = self.expression(tree.this), tree.expression
        if isinstance(what, exp.Null):
            return IsNull(value)
        if isinstance(what, exp.Boolean):
            return IsBoolean(value, bool(what.this))
        raise refuse(_words(tree))

    def case(self, tree: Any) -> Expression:
        branches = [(self.expression(each.this), self.expression(each.args["true"])) for each in tree.args["ifs"]]
        subject, default = tree.this, tree.args.get("default")
        return Case(
            None if subject is None else self.expression(subject),
            tuple(branches),
            None if default is None else self.expression(default),
        )

    def call(self, tree: Any) -> Expression:
        name, arguments = str(tree.this), tuple(map(self.expression, tree.expressions))
        if name.lower() == "if":
            if len(arguments) != 3:
                raise refuse(f"IF with {len(arguments)} arguments")
            return Case(None, (arguments[:2],), arguments[2])
        if name.lower() == "startswith" and len(arguments) == 2:
            prefix = arguments[1]
            if isinstance(prefix, Literal) and isinstance(prefix.value, str) and not prefix.in_double_quotes:
                return StartsWith(arguments[0], prefix.value)
        return Call(name, arguments)

    def value(self, tree: Any) -> Expression:
        found = self._values[int(tree.this)]
        assert isinstance(found, Expression)
        return found

    def cast(self, tree: Any) -> Expression:
        return _cast(self.expression(tree.this), self._values[int(tree.args["to"].this)])


def _cast(inner: Expression, wanted: DataType) -> Expression:
    # CAST('2026-01-01' AS DATE) is read as the literal DATE '2026-01-01'.
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


def _check_parts(tree: Any, parts: Sequence[str]) -> None:
    """Refuse a tree with parts other than ``parts``, because ignoring them would change the meaning."""
    strange = [key for key, value in tree.args.items() if value and key not in parts]
    if strange:
        raise refuse(f"{_words(tree)} (with {', '.join(strange)})")


def _words(tree: Any) -> str:
    """A description of a part of an expression, for messages."""
    return f"{type(tree).__name__} in SQL"


def _comparison(operator: Operator) -> Callable[[Expression, Expression], Expression]:
    return functools.partial(Comparison, operator)


def _arithmetic(operator: ArithmeticOperator) -> Callable[[Expression, Expression], Expression]:
    return functools.partial(Arithmetic, operator)


def _of_pattern(word: str) -> Callable[[_TreeBuilder, Any], Expression]:
    return lambda builder, tree: _like(word, builder.expression(tree.this), builder.expression(tree.expression))


_BINARY: Mapping[str, Callable[[Expression, Expression], Expression]] = {
    "And": And,
    "Or": Or,
    "EQ": _comparison("="),
    "NEQ": _comparison("!="),
    "LT": _comparison("<"),
    "LTE": _comparison("<="),
    "GT": _comparison(">"),
    "GTE": _comparison(">="),
    "NullSafeEQ": _comparison("<=>"),
    "NullSafeNEQ": lambda left, right: Not(Comparison("<=>", left, right)),
    "Add": _arithmetic("+"),
    "Sub": _arithmetic("-"),
    "Mul": _arithmetic("*"),
    "Div": _arithmetic("/"),
    "IntDiv": _arithmetic("DIV"),
    "Mod": _arithmetic("%"),
    "DPipe": _arithmetic("||"),
}
_TWO = ("this", "expression", "negate")
# For each node type of sqlglot: the arguments that a node may have, and the function that converts the node.
_KINDS: Mapping[str, tuple[Sequence[str], Callable[[_TreeBuilder, Any], Expression]]] = {
    "Paren": (("this",), lambda builder, tree: builder.expression(tree.this)),
    "Not": (("this",), lambda builder, tree: Not(builder.expression(tree.this))),
    "Neg": (("this",), lambda builder, tree: Negative(builder.expression(tree.this))),
    "Is": (_TWO, _TreeBuilder.is_),
    "In": (("this", "expressions", "negate"), _TreeBuilder.in_list),
    "Between": (("this", "low", "high", "negate"), _TreeBuilder.between),
    "Like": (_TWO, _of_pattern("like")),
    "ILike": (_TWO, _of_pattern("ilike")),
    "RegexpLike": (
        _TWO,
        lambda builder, tree: RegexLike(builder.expression(tree.this), builder.expression(tree.expression)),
    ),
    "Literal": (("this",), _TreeBuilder.value),
    "Cast": (("this", "to"), _TreeBuilder.cast),
    "Case": (("this", "ifs", "default"), _TreeBuilder.case),
    "Dot": (("this", "expression"), _TreeBuilder.field),
    "Bracket": (("this", "expressions"), _TreeBuilder.element),
    "Anonymous": (("this", "expressions"), _TreeBuilder.call),
}
