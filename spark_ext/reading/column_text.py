"""Translates Spark Columns into SQL text for data skipping. Pure.

PySpark has no public way to look into a Column. On classic Spark, the column's repr is parsed; since Spark 4.0, its
form is unambiguous for the expressions that are accepted here. On Connect, the client's expression tree is read.
Other expressions are not translated, so they skip no files.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Any

import pyspark

import deltalog

_REPR = re.compile(r"Column<'(.*)'>", re.DOTALL)
# Patterns for names that a repr shows without quotes; names with any other characters are not translated.
# A column with one of these names has the same repr as a literal.
_LITERALS = frozenset({"null", "true", "false"})
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_WHOLE = re.compile(r"-?\d{1,18}")
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,15})?")
_TEXT = re.compile(r"[^'\"\\$\x00-\x1f]*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,6}")
_TOKEN = re.compile(
    r"(?P<text>'(?:[^'\\])*')|(?P<open>(?:[A-Za-z]+|[<>=!]+)\()|(?P<close>\))|(?P<comma>, )|(?P<value>[^(),']+)"
)
_COMPARISONS = frozenset(["=", "==", "<", "<=", ">", ">=", "<=>"])
_MOST_DEPTH = 100
#: The translation of a part of a condition that cannot be translated; such a part skips no files.
UNKNOWN = "unknown()"

_EPOCH = datetime.date(1970, 1, 1)
# A parsed Column: an operator with its operands, or a leaf with its kind and value.
_Tree = tuple[str, Any]


class _Unknown(Exception):
    """A Column, or a part of it, that is not translated."""


def sql_text(column: Any, schema: deltalog.schema.StructType) -> str | None:
    """A condition on a table of this schema as SQL text that data skipping understands: true or unknown wherever the
    Column is true. None if deltalog cannot interpret the Column. Cost: none."""
    try:
        expression = vars(column).get("_expr")
        if expression is not None:
            return _condition(_of_client(expression, 0), schema)
        if int(pyspark.__version__.split(".")[0]) < 4:
            return None  # a repr of Spark 3.5 shows strings without quotes
        found = _REPR.fullmatch(repr(column))
        if found is None or not _has_plain_names(schema):
            return None
        try:
            return _condition(_of_repr(found[1]), schema)
        except _Unknown:
            return found[1]  # the text of an expr(…)
    except (_Unknown, AttributeError, TypeError, ValueError):
        return None


def _of_repr(text: str) -> _Tree:
    """``and(=(id, 7), isNull(x))`` as a tree. Raises _Unknown."""
    at = 0
    stack: list[tuple[str, list[_Tree]]] = []
    top: list[_Tree] = []
    current = top
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or len(stack) > _MOST_DEPTH:
            raise _Unknown
        at, kind, token = found.end(), found.lastgroup, found[0]
        if kind == "open":
            stack.append((token[:-1], current))
            current = []
        elif kind == "close":
            if not stack:
                raise _Unknown
            name, outer = stack.pop()
            outer.append((name, current))
            current = outer
        elif kind == "text":
            current.append(("text", token[1:-1]))
        elif kind == "value":
            current.append(_of_value(token))
        elif not current:
            raise _Unknown
    if stack or len(top) != 1:
        raise _Unknown
    return top[0]


def _of_value(token: str) -> _Tree:
    for kind, pattern in (("whole", _WHOLE), ("number", _NUMBER), ("date", _DATE), ("moment", _MOMENT)):
        if pattern.fullmatch(token):
            return kind, token
    if token in ("true", "false"):
        return "boolean", token
    if token == "NULL":
        return "null", token
    if _NAME.fullmatch(token):
        return "column", token.split(".")
    raise _Unknown


def _of_client(expression: Any, depth: int) -> _Tree:
    """The expression tree of a Spark Connect Column. Raises _Unknown, AttributeError."""
    kind = type(expression).__name__
    if depth > _MOST_DEPTH:
        raise _Unknown
    if kind == "UnresolvedFunction" and not expression._is_distinct:
        return expression._name, [_of_client(each, depth + 1) for each in expression._args]
    if kind == "ColumnReference":
        return "column", _unquoted(expression._unparsed_identifier)
    if kind == "SQLExpression":
        return "sql", expression._expr
    if kind != "LiteralExpression":
        raise _Unknown
    value, name = expression._value, expression._dataType.typeName()
    if value is None:
        return "null", "NULL"
    if name == "string":
        return "text", value
    if name == "boolean":
        return "boolean", str(value).lower()
    if name in ("byte", "short", "integer", "long"):
        return "whole", str(int(value))
    if name == "double" and float(value).is_integer() and abs(value) < 1e15:
        return "number", f"{value:.1f}"
    if name == "double" and _NUMBER.fullmatch(repr(float(value))):
        return "number", repr(float(value))
    if name == "date":
        return "date", str(datetime.date.fromordinal(_EPOCH.toordinal() + value))
    raise _Unknown


def _unquoted(identifier: str) -> list[str]:
    if _NAME.fullmatch(identifier):
        return identifier.split(".")
    parts = re.fullmatch(r"`((?:[^`]|``)+)`", identifier)
    if parts is None:
        raise _Unknown
    return [parts[1].replace("``", "`")]


def _condition(tree: _Tree, schema: deltalog.schema.StructType) -> str:
    """The tree as SQL text, with UNKNOWN for the parts that are not translated."""
    name, operands = tree
    if name == "sql":
        return f"({operands})"
    try:
        if name in ("and", "or") and len(operands) == 2:
            return f"({_condition(operands[0], schema)} {name.upper()} {_condition(operands[1], schema)})"
        if name in ("!", "not") and len(operands) == 1:
            return f"(NOT {_condition(operands[0], schema)})"
        if name == "column":
            return _column(tree, schema)[0]
        return _leaf(name.lower(), operands, schema)
    except _Unknown:
        return UNKNOWN


def _leaf(name: str, operands: Sequence[_Tree], schema: deltalog.schema.StructType) -> str:
    if name in _COMPARISONS and len(operands) == 2:
        left, right = operands
        if left[0] == "column":
            column, kind = _column(left, schema)
            return f"({column} {name} {_literal(right, kind)})"
        column, kind = _column(right, schema)
        return f"({_literal(left, kind)} {name} {column})"
    if not operands:
        raise _Unknown
    column, kind = _column(operands[0], schema)
    if name == "in" and len(operands) > 1:
        return f"({column} IN ({', '.join(_literal(each, kind) for each in operands[1:])}))"
    if name in ("isnull", "isnotnull") and len(operands) == 1:
        return f"({column} IS {'NOT ' if name == 'isnotnull' else ''}NULL)"
    if name == "startswith" and [each[0] for each in operands[1:]] == ["text"] and not set(operands[1][1]) & set("%_"):
        return f"({column} LIKE {_literal(('text', operands[1][1] + '%'), kind)})"
    if name == "like" and [each[0] for each in operands[1:]] == ["text"]:
        return f"({column} LIKE {_literal(operands[1], kind)})"
    raise _Unknown


def _column(tree: _Tree, schema: deltalog.schema.StructType) -> tuple[str, str]:
    """A column as SQL, and the name of its type. Raises _Unknown."""
    if tree[0] != "column":
        raise _Unknown
    data_type: Any = schema
    for name in tree[1]:
        found = data_type.find(name) if isinstance(data_type, deltalog.schema.StructType) else None
        if found is None:
            raise _Unknown
        data_type = found.data_type
    return ".".join("`" + name.replace("`", "``") + "`" for name in tree[1]), str(data_type)


def _literal(tree: _Tree, kind: str) -> str:
    """A literal as SQL, for a comparison with a column of type ``kind``. Raises _Unknown."""
    name, value = tree
    if name == "text" and _TEXT.fullmatch(value):
        return f"'{value}'"
    if name in ("whole", "boolean", "null"):
        return str(value)
    # A double: Spark rounds a decimal that is compared with such a value.
    if name == "number" and not kind.startswith("decimal"):
        return str(value)
    if name == "date" and kind == "date":
        return f"DATE'{value}'"
    # Spark shows the value in the time zone of the JVM, which is unknown here, so the literal has no time zone.
    if name == "moment" and kind == "timestamp":
        return f"TIMESTAMP'{value}'"
    raise _Unknown


def _has_plain_names(data_type: Any) -> bool:
    """Whether all columns have names that a repr shows unambiguously."""
    if isinstance(data_type, deltalog.schema.StructType):
        return all(
            _WORD.fullmatch(field.name) and field.name.lower() not in _LITERALS and _has_plain_names(field.data_type)
            for field in data_type.fields
        )
    return True
