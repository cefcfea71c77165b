"""Expressions as SQL text in Spark's dialect, read and written. Pure.

Text is never evaluated as code: sqlglot parses it, each kind of its tree is looked up by name and becomes a tree of
``tree``, and what is not known here is refused.
"""

from __future__ import annotations

import decimal
import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from deltalog.errors import CallError, InvalidTimestampError
from deltalog.expressions.functions.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    FLOATING,
    INTEGER,
    INTEGRAL,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    refuse,
)
from deltalog.expressions.tree import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Between,
    Call,
    Case,
    Cast,
    Comparison,
    Expression,
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
    StartsWith,
)
from deltalog.protocol.schema import DataType, DecimalType
from deltalog.protocol.timestamps import parse_iso

_PARSER_CLASS = re.compile(r"<class '[\w.]*?(\w+)'>")
# Such a cast cuts or pads, and the parser drops the number.
_SIZED_TEXT = re.compile(r"\b(?:var)?char(?:acter)?\s*\(", re.IGNORECASE)
_WHOLE = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?")
_SHOWN_CHARS = 1000
_MOST_DIGITS = 400  # a double has 309


# ----------------------------------------------------------------------------------------------- from text


def parse(text: str, what: str | None = None) -> Expression:
    """The tree of one SQL expression, which messages call ``what``. Raises CallError."""
    what = f"The predicate {short(text)}" if what is None else what
    try:
        tree = _parsed(text, _dialect(), what)
        try:
            return _TreeBuilder(text).expression(tree)
        except CallError as error:
            raise CallError(f"{what}: {str(error).rstrip('.')}.") from None
    except RecursionError:
        raise CallError(f"{what[:80]}… is nested too deeply.") from None


def as_predicate(where: Predicate | str | None) -> Predicate | None:
    """A condition in either form, or None. Raises CallError."""
    if where is None or isinstance(where, Predicate):
        return where
    if isinstance(where, str):
        tree = parse(where)
        if isinstance(tree, Literal) and isinstance(tree.value, str):
            raise CallError(f"The predicate {short(where)} is a text, not a condition.")
        return tree if isinstance(tree, Predicate) else Comparison("=", tree, Literal(True))
    raise CallError(f"where is SQL text or a predicate made with col(…), not {type(where).__name__}.")


def names_in(text: str) -> frozenset[str] | None:
    """The names in an expression of a table, in lower case: columns, their qualifiers and fields. None where the text
    cannot be parsed, and may use any column. Expressions of Spark that ``parse`` refuses have names too."""
    from sqlglot import exp

    try:
        tree = _parsed(text, "spark", "it")
    except (CallError, RecursionError):
        return None
    return frozenset(identifier.name.lower() for identifier in tree.find_all(exp.Identifier))


def _parsed(text: str, dialect: Any, what: str) -> Any:
    """The parser's tree of one SQL expression, which messages call ``what``. Raises CallError, RecursionError."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        trees = sqlglot.parse(text, dialect=dialect)
    except SqlglotError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        reason = _PARSER_CLASS.sub(r"\1", reason)
        raise CallError(f"{what} cannot be parsed: {reason}") from None
    if len(trees) != 1 or trees[0] is None:
        raise CallError(f"{what} is {f'{len(trees)} statements' if len(trees) > 1 else 'empty'}, not one expression.")
    return trees[0]


def short(text: str) -> str:
    """A text in messages."""
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}…"


@functools.cache
def _dialect() -> Any:
    """Spark's dialect without its table of functions: sqlglot rewrites calls, we want them as they are written."""
    from sqlglot.dialects.spark import Spark

    base: Any = Spark
    kept = {name: parser for name, parser in base.Parser.FUNCTION_PARSERS.items() if name in ("CAST", "TRY_CAST")}
    rules = {"FUNCTIONS": {}, "FUNCTION_PARSERS": kept, "NO_PAREN_FUNCTIONS": {}, "STRICT_CAST": True}
    return type("DeltalogExpressions", (base,), {"Parser": type("Parser", (base.Parser,), rules)})


class _TreeBuilder:
    """Builds the expression for the parser's tree of ``text``."""

    def __init__(self, text: str) -> None:
        self._text = text

    def expression(self, tree: Any) -> Expression:
        links = []  # of a chain of AND and OR, from the last on: it may be a thousand long
        while type(tree).__name__ in ("And", "Or"):
            links.append(tree)
            tree = tree.this
        found = self._one_node(tree)
        for link in reversed(links):
            make = And if type(link).__name__ == "And" else Or
            found = make(found, self.expression(link.expression))
        return found

    def _one_node(self, tree: Any) -> Expression:
        known = _kinds().get(type(tree))
        if known is None:
            raise refuse(_words(tree))
        parts, read = known
        strange = [key for key, value in tree.args.items() if value and key not in parts]
        if strange:
            raise refuse(f"{_words(tree)} (with {', '.join(strange)})")
        _check_precedence(tree)
        return read(self, tree)

    def name(self, tree: Any) -> Expression:
        return Name(_path(tree), bool(tree.this.args.get("quoted")))

    def in_list(self, tree: Any) -> Expression:
        from sqlglot import exp

        if not tree.expressions:
            raise refuse(_words(tree))
        values: list[Any] = []
        others: list[Expression] = []
        for part in tree.expressions:
            if type(part) is exp.Literal and part.is_string:  # lists are long
                values.append(part.this)
                continue
            each = _number(part.this) if type(part) is exp.Literal else self.expression(part)
            if isinstance(each, Literal) and each.data_type is None:
                values.append(each.value)
            else:
                others.append(each)
        return In(self.expression(tree.this), tuple(values), tuple(others))

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

    def like(self, tree: Any) -> Expression:
        found = _like(self.expression(tree.this), self.expression(tree.expression))
        # Newer versions of sqlglot say NOT LIKE by an argument of LIKE.
        return Not(found) if tree.args.get("negate") else found

    def case(self, tree: Any) -> Expression:
        branches = [(self.expression(each.this), self.expression(each.args["true"])) for each in tree.args["ifs"]]
        subject, default = tree.this, tree.args.get("default")
        return Case(
            None if subject is None else self.expression(subject),
            tuple(branches),
            None if default is None else self.expression(default),
        )

    def if_(self, tree: Any) -> Expression:
        default = tree.args.get("false")
        if default is None:
            raise refuse("IF with two arguments")
        branch = (self.expression(tree.this), self.expression(tree.args["true"]))
        return Case(None, (branch,), self.expression(default))

    def call(self, tree: Any) -> Expression:
        name, arguments = str(tree.this), tuple(map(self.expression, tree.expressions))
        if name.lower() == "startswith" and len(arguments) == 2:
            prefix = arguments[1]
            if isinstance(prefix, Literal) and isinstance(prefix.value, str):
                return StartsWith(arguments[0], prefix.value)
        return Call(name, arguments)

    def negative(self, tree: Any) -> Expression:
        # Spark reads the sign with the number: the least of a type has no positive counterpart.
        return self._number(tree.this, "-") or Negative(self.expression(tree.this))

    def literal(self, tree: Any) -> Expression:
        return Literal(str(tree.this)) if tree.is_string else _number(str(tree.this))

    def cast(self, tree: Any) -> Expression:
        from sqlglot import exp

        suffixed = self._number(tree, "")
        if suffixed is not None:
            return suffixed
        wanted, inner = _data_type(tree.to), tree.this
        if wanted == STRING and _SIZED_TEXT.search(self._text):
            raise refuse("CHAR(n) and VARCHAR(n)")
        # DATE '2026-01-01' arrives as a cast, like CAST('2026-01-01' AS DATE).
        if isinstance(inner, exp.Literal) and inner.is_string:
            if wanted in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
                return _moment(str(inner.this), wanted)
            if isinstance(wanted, DecimalType) and _NUMBER.fullmatch(str(inner.this)):
                return Cast(_number(str(inner.this)), wanted)
        return Cast(self.expression(inner), wanted)

    def _number(self, tree: Any, sign: str) -> Expression | None:
        """A number as it is written, after a sign; with a suffix such as 5L, which arrives as a cast."""
        from sqlglot import exp

        inner = tree.this if isinstance(tree, exp.Cast) else tree
        if not isinstance(inner, exp.Literal) or inner.is_string:
            return None
        text = f"{sign}{inner.this}"
        if inner is tree:
            return _number(text)
        wanted = _data_type(tree.to)
        if wanted in INTEGRAL and _WHOLE.fullmatch(text):
            _check_digits(text)
            return Literal(int(text), wanted)
        return Literal(_finite(text), wanted) if wanted in FLOATING else None


def _number(text: str) -> Literal:
    """A numeric literal without suffix: a whole number or a decimal by its digits; a double with an exponent."""
    if "e" in text.lower():
        return Literal(_finite(text), DOUBLE)
    _check_digits(text)
    return Literal(int(text) if _WHOLE.fullmatch(text) else decimal.Decimal(text))


def _check_digits(text: str) -> None:
    """Raise CallError for a number of more digits than a double has: Python does not read a number of any length."""
    if len(text) > _MOST_DIGITS:
        raise refuse(f"A number of {len(text)} digits")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise CallError(f"{text} is out of the range of a double")
    return value


def _moment(text: str, data_type: DataType) -> Literal:
    try:
        moment = parse_iso(text)
    except InvalidTimestampError:
        form = "yyyy-MM-dd" if data_type == DATE else "yyyy-MM-dd HH:mm:ss[.ffffff][Z]"
        raise CallError(f"{text!r} is not a literal of the form {form}") from None
    if data_type == DATE:
        return Literal(moment.date())
    if data_type == TIMESTAMP_NTZ:
        if moment.tzinfo is not None:
            raise refuse(f"a zone in the timestamp_ntz {text!r}")
        return Literal(moment)
    return Literal(moment, TIMESTAMP if moment.tzinfo is None else None)


def _like(value: Expression, pattern: Expression) -> Expression:
    if not (isinstance(pattern, Literal) and isinstance(pattern.value, str)):
        raise refuse("LIKE of anything but a string and a literal pattern")
    body = pattern.value[:-1]
    if "\\" in pattern.value:
        raise refuse("LIKE with a backslash in its pattern")
    if pattern.value.endswith("%") and not any(mark in body for mark in "%_"):
        return StartsWith(value, body)
    return Like(value, pattern)


def _check_precedence(tree: Any) -> None:
    """Refuse what the parser and Spark group in different ways, such as ``a = b < c`` and ``a || b + c``."""
    kind = type(tree).__name__
    if kind in _COMPARISONS:
        loose: frozenset[str] = _COMPARISONS | {"And", "Or", "Not"}
    elif kind == "DPipe":
        loose = frozenset({"Add", "Sub"})
    elif kind in ("Add", "Sub"):
        loose = frozenset({"DPipe"})
    else:
        return
    parts = (tree.this, tree.args.get("expression"), tree.args.get("low"), tree.args.get("high"))
    if any(type(part).__name__ in loose for part in parts):
        raise refuse(f"{_words(tree)} without parentheses")


_COMPARISONS = frozenset({"EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ", "Is", "In", "Between", "Like"})


def _path(tree: Any) -> tuple[str, ...]:
    from sqlglot import exp

    if isinstance(tree, exp.Paren):
        return _path(tree.this)
    if isinstance(tree, exp.Dot) and isinstance(tree.expression, exp.Identifier):
        return (*_path(tree.this), tree.expression.name)
    if isinstance(tree, exp.Column):
        return tuple(part.name for part in tree.parts)
    raise refuse(_words(tree))


def _words(tree: Any) -> str:
    """What a part of an expression is called in a message."""
    try:
        return repr(tree.sql(dialect="spark")[:200])
    except Exception:
        return type(tree).__name__


def _data_type(tree: Any) -> DataType:
    from sqlglot import exp

    name = tree.this.value if hasattr(tree.this, "value") else str(tree.this)
    sizes = [str(each.this) for each in tree.expressions or () if isinstance(each, exp.DataTypeParam)]
    if name == "DECIMAL" and len(sizes) in (1, 2) and all(size.isdigit() for size in sizes):
        precision, scale = int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0
        if 1 <= precision <= 38 and scale <= precision:
            return DecimalType(precision, scale)
    found = _TYPES.get(name)
    if found is None or tree.expressions:
        raise refuse(f"CAST to {_words(tree)}")
    return found


_TYPES: Mapping[str, DataType] = {
    "BOOLEAN": BOOLEAN,
    "TINYINT": BYTE,
    "SMALLINT": SHORT,
    "INT": INTEGER,
    "BIGINT": LONG,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "TEXT": STRING,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
}

_Read = Callable[[_TreeBuilder, Any], Expression]


@functools.cache
def _kinds() -> Mapping[type, tuple[frozenset[str], _Read]]:
    """For each kind of the parser's tree: the parts that it may have, and what makes a tree of it. Another part is
    another meaning: in ``a NOT IN b`` the list of values is empty, and b a part of its own."""
    from sqlglot import exp

    def binary(make: Callable[[Expression, Expression], Expression]) -> _Read:
        return lambda reader, tree: make(reader.expression(tree.this), reader.expression(tree.expression))

    def comparison(operator: Operator) -> _Read:
        return binary(functools.partial(Comparison, operator))

    def of_numbers(operator: ArithmeticOperator) -> _Read:
        return binary(functools.partial(Arithmetic, operator))

    two = ("this", "expression")
    found: dict[str, tuple[tuple[str, ...], _Read]] = {
        "Paren": (("this",), lambda reader, tree: reader.expression(tree.this)),
        "Not": (("this",), lambda reader, tree: Not(reader.expression(tree.this))),
        "EQ": (two, comparison("=")),
        "NEQ": (two, comparison("!=")),
        "LT": (two, comparison("<")),
        "LTE": (two, comparison("<=")),
        "GT": (two, comparison(">")),
        "GTE": (two, comparison(">=")),
        "NullSafeEQ": (two, comparison("<=>")),
        "Is": (two, _TreeBuilder.is_),
        "In": (("this", "expressions"), _TreeBuilder.in_list),
        "Between": (("this", "low", "high"), _TreeBuilder.between),
        "Like": ((*two, "negate"), _TreeBuilder.like),
        "Add": (two, of_numbers("+")),
        "Sub": (two, of_numbers("-")),
        "Mul": (two, of_numbers("*")),
        "Div": ((*two, "safe", "typed"), of_numbers("/")),
        "IntDiv": (two, of_numbers("DIV")),
        "Mod": (two, of_numbers("%")),
        "DPipe": ((*two, "safe"), of_numbers("||")),
        "Neg": (("this",), _TreeBuilder.negative),
        "Literal": (("this", "is_string"), _TreeBuilder.literal),
        "Boolean": (("this",), lambda reader, tree: Literal(bool(tree.this))),
        "Null": ((), lambda reader, tree: Literal(None)),
        "Cast": (("this", "to"), _TreeBuilder.cast),
        "Case": (("this", "ifs", "default"), _TreeBuilder.case),
        "If": (("this", "true", "false"), _TreeBuilder.if_),
        "Column": (("this", "table", "db", "catalog"), _TreeBuilder.name),
        "Dot": (two, _TreeBuilder.name),
        "Anonymous": (("this", "expressions"), _TreeBuilder.call),
    }
    return {getattr(exp, name): (frozenset(parts), read) for name, (parts, read) in found.items()}
