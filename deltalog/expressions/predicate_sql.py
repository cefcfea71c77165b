"""Predicates as SQL text in Spark's dialect, read and written. Pure.

Text is never evaluated as code: it is parsed into predicates, and what they cannot say is refused.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from typing import Any

from deltalog.errors import CallError, InvalidTimestampError
from deltalog.expressions.comparison import Operator
from deltalog.expressions.predicates import (
    And,
    Between,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from deltalog.protocol.timestamps import parse_iso

_MIRRORED: dict[Operator, Operator] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_PARSER_CLASS = re.compile(r"<class '[\w.]*?(\w+)'>")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN_CHARS, _SHOWN_VALUES = 1000, 1000


def parse(text: str) -> Predicate:
    """A predicate from SQL text, in Spark's dialect.

    Comparisons of a column with a literal (also ``<=>``), IN, BETWEEN, LIKE with a prefix, IS NULL, a boolean
    column by itself, AND, OR, NOT, parentheses; DATE and TIMESTAMP literals. Raises CallError for the rest.
    """
    try:
        return _from_sql(sql_tree(text, "spark", f"The predicate {text[:1000]!r}"), text)
    except RecursionError:
        raise CallError(f"The predicate {text[:60]!r}… is nested too deeply.") from None


def sql_tree(text: str, dialect: Any, what: str) -> Any:
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


# The parts that a kind of tree may have beside ``this`` and ``expression``. Another part is another meaning: in
# ``a NOT IN b`` the list of values is empty, and b a part of its own.
_PARTS: dict[str, set[str]] = {
    "Between": {"low", "high"},
    "In": {"expressions"},
    "Like": {"negate"},
    "Column": {"table", "db", "catalog"},
}


def _from_sql(node: Any, text: str) -> Predicate:
    from sqlglot import exp

    parts = {"this", "expression", *_PARTS.get(type(node).__name__, ())}
    if any(value and part not in parts for part, value in node.args.items()):
        raise _unsupported(node, text)
    comparisons: dict[Any, Operator] = {
        exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>"
    }  # fmt: skip
    kind = type(node)
    if kind is exp.Paren:
        return _from_sql(node.this, text)
    if kind in (exp.And, exp.Or):
        left, right = _from_sql(node.left, text), _from_sql(node.right, text)
        return And(left, right) if kind is exp.And else Or(left, right)
    if kind is exp.Not:
        return Not(_from_sql(node.this, text))
    if kind in comparisons:
        return _comparison(comparisons[kind], node.left, node.right, text)
    if kind is exp.Is and isinstance(node.expression, exp.Null):
        return IsNull(_column(node.this, text))
    if kind is exp.In and node.expressions:
        return In(_column(node.this, text), tuple(_literal(e, text) for e in node.expressions))
    if kind is exp.Between:
        column = _column(node.this, text)
        low, high = _literal(node.args["low"], text), _literal(node.args["high"], text)
        return Between(column, low, high)
    if kind is exp.Like:
        # Newer versions of sqlglot say NOT LIKE by an argument of LIKE.
        return Not(_like(node, text)) if node.args.get("negate") else _like(node, text)
    if kind is exp.Boolean:
        return Constant(bool(node.this))
    if kind is exp.Null:
        return Constant(None)
    if kind in (exp.Column, exp.Dot):
        return Comparison("=", _column(node, text), True)
    raise _unsupported(node, text)


def _comparison(operator: Operator, left: Any, right: Any, text: str) -> Predicate:
    if _is_column(left):
        return Comparison(operator, _column(left, text), _literal(right, text))
    if _is_column(right):
        return Comparison(_MIRRORED.get(operator, operator), _column(right, text), _literal(left, text))
    _literal(left, text)  # what is neither column nor literal is to blame, whichever side it is on
    _literal(right, text)
    raise CallError(f"The predicate {_short(text)} compares two literals and no column.")


def _is_column(node: Any) -> bool:
    from sqlglot import exp

    return _is_column(node.this) if isinstance(node, exp.Paren) else isinstance(node, (exp.Column, exp.Dot))


def _like(node: Any, text: str) -> Predicate:
    pattern = _literal(node.expression, text)
    body = pattern[:-1] if isinstance(pattern, str) and pattern.endswith("%") else None
    if body is None or any(c in body for c in "%_\\"):
        raise CallError(f"LIKE is supported for a prefix and one final % only, not {pattern!r} (in {_short(text)}).")
    return StartsWith(_column(node.this, text), body)


def _column(node: Any, text: str) -> Column:
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _column(node.this, text)
    if isinstance(node, exp.Column):
        return Column(tuple(part.name for part in node.parts))
    if isinstance(node, exp.Dot):
        return Column((*_column(node.this, text).path, node.expression.name))
    raise _unsupported(node, text)


def _literal(node: Any, text: str) -> Any:
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _literal(node.this, text)
    if isinstance(node, exp.Neg):
        value = _literal(node.this, text)
        if isinstance(value, decimal.Decimal):
            return value.copy_negate()  # the minus of Python rounds to 28 digits
        if isinstance(value, (int, float)):
            return -value
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        return int(node.this) if node.is_int else decimal.Decimal(node.this)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        return _typed_literal(node, text)
    raise _unsupported(node, text)


def _typed_literal(node: Any, text: str) -> Any:
    from sqlglot import exp

    value, kind = str(node.this.this), node.to.this
    types = exp.DataType.Type
    if kind not in (types.DATE, types.TIMESTAMP, types.TIMESTAMPTZ, types.TIMESTAMPLTZ, types.TIMESTAMPNTZ):
        raise _unsupported(node, text)
    try:
        moment = parse_iso(value)
    except InvalidTimestampError:
        form = "yyyy-MM-dd" if kind == types.DATE else "yyyy-MM-dd HH:mm:ss[.ffffff][Z]"
        raise CallError(
            f"The predicate {_short(text)} has {value!r}, which is not a literal of the form {form}."
        ) from None
    if kind == types.DATE:
        return moment.date()
    return moment.replace(tzinfo=None) if kind == types.TIMESTAMPNTZ else moment


def _unsupported(node: Any, text: str) -> CallError:
    try:
        part = repr(node.sql(dialect="spark")[:200])
    except Exception:
        part = type(node).__name__
    return CallError(
        f"The predicate {_short(text)} has {part}, which is not supported: compare columns "
        "with literals by =, !=, <, <=, >, >=, <=>, IN, BETWEEN, LIKE 'prefix%', IS NULL, and combine these with AND, "
        "OR, NOT."
    )


def _short(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}…"


def shown(where: Predicate | str) -> str:
    """A predicate in messages and in the log, where a long list of values is not written in full."""
    text = where if isinstance(where, str) else to_sql(where, _SHOWN_VALUES)
    return text if len(text) <= 10 * _SHOWN_CHARS else f"{text[: 10 * _SHOWN_CHARS]}…"


def to_sql(predicate: Predicate, most: int | None = None) -> str:
    """A predicate as SQL text in Spark's dialect; ``most`` values of a list are written, then dots."""
    if isinstance(predicate, (And, Or)):
        word = "AND" if isinstance(predicate, And) else "OR"
        return f"({to_sql(predicate.left, most)} {word} {to_sql(predicate.right, most)})"
    if isinstance(predicate, Not):
        return f"(NOT {to_sql(predicate.operand, most)})"
    if isinstance(predicate, Constant):
        return _literal_sql(predicate.value)
    if isinstance(predicate, IsNull):
        return f"({_column_sql(predicate.column)} IS NULL)"
    if isinstance(predicate, In):
        if not predicate.values:
            return "false"
        texts = [_literal_sql(value) for value in predicate.values[:most]]
        if len(texts) < len(predicate.values):
            texts.append("…")
        return f"({_column_sql(predicate.column)} IN ({', '.join(texts)}))"
    if isinstance(predicate, Between):
        low, high = _literal_sql(predicate.low), _literal_sql(predicate.high)
        return f"({_column_sql(predicate.column)} BETWEEN {low} AND {high})"
    if isinstance(predicate, StartsWith):
        return f"({_column_sql(predicate.column)} LIKE {_literal_sql(predicate.prefix + '%')})"
    assert isinstance(predicate, Comparison)
    return f"({_column_sql(predicate.column)} {predicate.operator} {_literal_sql(predicate.value)})"


def _column_sql(column: Column) -> str:
    quoted = (name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in column.path)
    return ".".join(quoted)


def _literal_sql(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, (bytes, bytearray)):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, datetime.datetime):
        kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
        return f"{kind} '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float) and not math.isfinite(value):
        return f"DOUBLE('{value}')"
    return str(value)


def as_predicate(where: Predicate | str | None) -> Predicate | None:
    """Either form, or None. Raises CallError."""
    if where is None or isinstance(where, Predicate):
        return where
    if isinstance(where, str):
        return parse(where)
    raise CallError(f"where is SQL text or a predicate made with col(…), not {type(where).__name__}.")
