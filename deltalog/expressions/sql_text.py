"""Writes trees as SQL text in Spark's dialect, for the log, for messages, and for other processes. Pure.

``sql.parse`` reads the text. A literal is written even if its text would be parsed as another value. A caller that
relies on the text must parse and bind the text, and compare the result with the original expression.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from typing import Any

from deltalog.errors import CallError
from deltalog.expressions.functions.types import (
    BYTE,
    DAYS,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP,
    YEAR_MONTH,
)
from deltalog.expressions.tree import (
    And,
    Arithmetic,
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
    Moment,
    Name,
    Negative,
    Not,
    Or,
    RegexLike,
    StartsWith,
)
from deltalog.protocol.schema import DataType

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN_CHARS, _SHOWN_VALUES = 1000, 1000
_MOST_DIGITS = 76
# A name is quoted only if it contains characters other than letters, digits and underscores, so a column with one of
# these names would be read back as an operator or a literal.
_OPERATOR_WORDS = {
    *("and", "as", "between", "case", "div", "else", "end", "false", "ilike", "in", "is", "like", "not", "null", "or"),
    *("regexp", "rlike", "then", "true", "when"),
}
_PLAIN_TEXT, _MOST_PLAIN, _PLAIN_DEPTH = re.compile(r"[A-Za-z0-9 _.,:/-]*"), 2**63 - 1, 20
_SUFFIXES: dict[DataType, str] = {BYTE: "Y", SHORT: "S", LONG: "L", FLOAT: "F", DOUBLE: "D"}
_TYPE_NAMES: dict[DataType, str] = {BYTE: "TINYINT", SHORT: "SMALLINT", INTEGER: "INT", LONG: "BIGINT"}


def shown(where: Expression | str) -> str:
    """A condition as text for messages and the log; long lists of values are shortened."""
    text = where if isinstance(where, str) else to_sql(where, _SHOWN_VALUES)
    return text if len(text) <= 10 * _SHOWN_CHARS else f"{text[: 10 * _SHOWN_CHARS]}…"


def to_sql(tree: Expression, most: int | None = None) -> str:
    """An expression as text; if a list has more than ``most`` values, only the first ``most`` are written, followed by
    dots."""

    def text(part: Expression) -> str:
        return to_sql(part, most)

    if isinstance(tree, Name):
        return _name(tree)
    if isinstance(tree, Literal):
        return _literal(tree)
    if isinstance(tree, (And, Or)):  # does not call ``text``, which would double the recursion depth for a long chain
        return f"({to_sql(tree.left, most)} {'AND' if isinstance(tree, And) else 'OR'} {to_sql(tree.right, most)})"
    if isinstance(tree, Not):
        return f"(NOT {text(tree.operand)})"
    if isinstance(tree, (Comparison, Arithmetic)):
        return f"({text(tree.left)} {tree.operator} {text(tree.right)})"
    if isinstance(tree, IsNull):
        return f"({text(tree.operand)} IS NULL)"
    if isinstance(tree, IsBoolean):
        return f"({text(tree.operand)} IS {'TRUE' if tree.wanted else 'FALSE'})"
    if isinstance(tree, In):
        return _in(tree, most)
    if isinstance(tree, Between):
        return f"({text(tree.operand)} BETWEEN {text(tree.low)} AND {text(tree.high)})"
    if isinstance(tree, StartsWith):
        if any(mark in tree.prefix for mark in "%_\\"):
            return f"startswith({text(tree.operand)}, {_value(tree.prefix)})"
        return f"({text(tree.operand)} LIKE {_value(tree.prefix + '%')})"
    if isinstance(tree, Like):
        return f"({text(tree.operand)} {'ILIKE' if tree.any_case else 'LIKE'} {text(tree.pattern)})"
    if isinstance(tree, RegexLike):
        return f"({text(tree.operand)} RLIKE {text(tree.pattern)})"
    if isinstance(tree, Field):
        return f"{text(tree.operand)}.{_name(Name((tree.name,)))}"
    if isinstance(tree, Element):
        return f"{text(tree.operand)}[{text(tree.key)}]"
    if isinstance(tree, Moment):
        return text(tree.literal)
    if isinstance(tree, Negative):
        return f"(- {text(tree.operand)})"
    if isinstance(tree, Call):
        return f"{tree.name}({', '.join(map(text, tree.arguments))})"
    if isinstance(tree, Cast):
        name = _TYPE_NAMES.get(tree.data_type, str(tree.data_type).upper())
        return f"{'TRY_' if tree.is_try else ''}CAST({text(tree.operand)} AS {name})"
    if isinstance(tree, Case):
        return _case(tree, most)
    raise CallError(f"{tree!r} is not an expression.")


def is_plain(tree: Expression, depth: int = _PLAIN_DEPTH) -> bool:
    """Whether ``tree`` consists only of parts whose SQL text ``sql.parse`` is known to parse into an equal condition,
    so that callers need not parse the text to check this: AND, OR, NOT, IN, IS NULL and comparisons of columns with
    integers, dates, booleans and plain strings."""
    if depth == 0:
        return False
    if isinstance(tree, (And, Or)):
        return is_plain(tree.left, depth - 1) and is_plain(tree.right, depth - 1)
    if isinstance(tree, Not):
        return is_plain(tree.operand, depth - 1)
    if isinstance(tree, IsNull):
        return _is_plain_name(tree.operand)
    if isinstance(tree, In):
        return _is_plain_name(tree.operand) and not tree.others and all(map(_is_plain_value, tree.values))
    if isinstance(tree, Comparison):
        if isinstance(tree.right, Literal):
            is_right = tree.right.data_type is None and _is_plain_value(tree.right.value)
        else:
            is_right = _is_plain_name(tree.right)
        return is_right and _is_plain_name(tree.left)
    return False


def _is_plain_name(tree: Expression) -> bool:
    if not (isinstance(tree, Name) and len(tree.path) == 1):
        return False
    name = tree.path[0]
    return _PLAIN_NAME.fullmatch(name) is not None and name.lower() not in _OPERATOR_WORDS


def _is_plain_value(value: object) -> bool:
    if type(value) is int:
        return abs(value) <= _MOST_PLAIN
    return type(value) in (bool, datetime.date) or (type(value) is str and _PLAIN_TEXT.fullmatch(value) is not None)


def _in(tree: In, most: int | None) -> str:
    if not (tree.values or tree.others):
        return "false"
    texts = [_value(value) for value in tree.values[:most]]
    if len(texts) < len(tree.values):
        texts.append("…")
    texts += [to_sql(each, most) for each in tree.others]
    return f"({to_sql(tree.operand, most)} IN ({', '.join(texts)}))"


def _case(tree: Case, most: int | None) -> str:
    words = ["CASE"] if tree.subject is None else ["CASE", to_sql(tree.subject, most)]
    for when, then in tree.branches:
        words += ["WHEN", to_sql(when, most), "THEN", to_sql(then, most)]
    if tree.otherwise is not None:
        words += ["ELSE", to_sql(tree.otherwise, most)]
    return f"({' '.join([*words, 'END'])})"


def _name(name: Name) -> str:
    quoted = (part if _PLAIN_NAME.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in name.path)
    return ".".join(quoted)


def _literal(literal: Literal) -> str:
    value, data_type = literal.value, literal.data_type
    if data_type in _SUFFIXES and math.isfinite(value):
        return f"{value}{_SUFFIXES[data_type]}"
    if data_type == YEAR_MONTH:
        return f"INTERVAL '{value}' MONTH"
    if isinstance(value, datetime.timedelta):
        if data_type == DAYS:
            return f"INTERVAL '{value.days}' DAY"
        micros = value // datetime.timedelta(microseconds=1)
        return f"INTERVAL '{'-' if micros < 0 else ''}{abs(micros) // 10**6}.{abs(micros) % 10**6:06}' SECOND"
    if data_type == INTEGER:
        return f"CAST({value} AS INT)"
    if data_type == TIMESTAMP and isinstance(value, datetime.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    return _value(value)


def _value(value: Any) -> str:
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
    if isinstance(value, decimal.Decimal) and value.is_finite() and abs(value.adjusted()) <= _MOST_DIGITS:
        return f"{value:f}"  # with an exponent, Spark would parse it as a double
    return str(value)
