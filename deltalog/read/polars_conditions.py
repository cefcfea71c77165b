"""Converts conditions of polars to conditions of deltalog, for data skipping. Pure.

The result is true for every row for which the expression is true, and may be true for further rows: polars filters the
rows itself. Parts whose meaning may differ between polars and deltalog are left out.
"""

from __future__ import annotations

import datetime
import decimal
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.expressions.tree import (
    And,
    Comparison,
    In,
    IsNull,
    Literal,
    Name,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
)

_OPERATORS: Mapping[str, Operator] = {
    "Eq": "=",
    "NotEq": "!=",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
}
_MIRRORED: Mapping[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGERS = frozenset(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_BOUNDS: Mapping[str, tuple[Operator, Operator]] = {
    "Both": (">=", "<="),
    "Left": (">=", "<"),
    "Right": (">", "<="),
    "None": (">", "<"),
}
_MICROS_PER = {"Microseconds": 1, "Milliseconds": 1000}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_UNKNOWN = object()
_MOST_CHARS = 1 << 20


def condition(text: str, columns: Sequence[str]) -> Predicate | None:
    """The condition that an expression of polars, serialized as JSON, implies for a row; None if none is known.
    ``columns``: the names of columns that may be compared."""
    if len(text) > _MOST_CHARS:
        return None
    try:
        return _condition(json.loads(text), frozenset(columns))
    except (
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        RecursionError,
        pa.ArrowException,
    ):
        return None  # a form that this version of deltalog does not know


def _condition(tree: Any, columns: frozenset[str]) -> Predicate | None:
    (kind, body), *others = tree.items()
    if others:
        return None
    if kind == "BinaryExpr":
        return _binary(body, columns)
    if kind == "Function":
        return _function(body["input"], body["function"], columns)
    return None


def _binary(body: Mapping[str, Any], columns: frozenset[str]) -> Predicate | None:
    operator = body["op"]
    if operator in ("And", "LogicalAnd", "Or", "LogicalOr"):
        left, right = _condition(body["left"], columns), _condition(body["right"], columns)
        if left is not None and right is not None:
            return Or(left, right) if operator.endswith("Or") else And(left, right)
        return None if operator.endswith("Or") else left or right if left is None else left
    if operator not in _OPERATORS:
        return None
    named, value = _name(body["left"], columns), _value(body["right"])
    written = _OPERATORS[operator]
    if named is None:
        named, value, written = _name(body["right"], columns), _value(body["left"]), _MIRRORED[written]
    if named is None or value is _UNKNOWN or value is None:
        return None
    return Comparison(written, named, Literal(value))


def _function(inputs: Sequence[Any], function: Any, columns: frozenset[str]) -> Predicate | None:
    named = _name(inputs[0], columns)
    if named is None:
        return None
    if function == {"Boolean": "IsNull"}:
        return IsNull(named)
    if function == {"Boolean": "IsNotNull"}:
        return Not(IsNull(named))
    if function == {"StringExpr": "StartsWith"}:
        prefix = _value(inputs[1])
        return StartsWith(named, prefix) if isinstance(prefix, str) else None
    if function == {"Boolean": {"IsIn": {"nulls_equal": False}}}:
        values = _values(inputs[1])
        return None if values is None else In(named, values)
    between = function["Boolean"].get("IsBetween") if isinstance(function.get("Boolean"), dict) else None
    if between is None:
        return None
    low, high = _value(inputs[1]), _value(inputs[2])
    if low is _UNKNOWN or high is _UNKNOWN or low is None or high is None:
        return None
    above, below = _BOUNDS[between["closed"]]
    return And(Comparison(above, named, Literal(low)), Comparison(below, named, Literal(high)))


def _name(tree: Any, columns: frozenset[str]) -> Name | None:
    name = tree.get("Column") if len(tree) == 1 else None
    return Name((name,), is_quoted=True) if isinstance(name, str) and name in columns else None


def _values(tree: Any) -> tuple[Any, ...] | None:
    """The values of a list of numbers, strings or dates, which polars writes as an Arrow stream."""
    (stream,) = (tree["Literal"]["Scalar"]["List"],)
    column = pa.ipc.open_stream(pa.py_buffer(bytes(stream))).read_all().column(0)
    types = pa.types
    kind = column.type
    is_string = types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view"
    return tuple(column.to_pylist()) if is_string or types.is_integer(kind) or types.is_date32(kind) else None


def _value(tree: Any) -> Any:
    """The value of a literal, _UNKNOWN for anything else."""
    scalar = tree.get("Literal", {}).get("Scalar") if len(tree) == 1 else None
    if not isinstance(scalar, dict) or len(scalar) != 1:
        return _UNKNOWN
    ((kind, value),) = scalar.items()
    if kind in _INTEGERS and type(value) is int:
        return value
    if kind == "Float64" and type(value) is float:
        return value
    if kind == "Float32" and type(value) is float:
        return struct.unpack("f", struct.pack("f", value))[0]  # the text has only the digits that a float32 needs
    if kind in ("String", "StringOwned") and isinstance(value, str):
        return value
    if kind == "Boolean" and isinstance(value, bool):
        return value
    if kind == "Date" and type(value) is int:
        return (_EPOCH + datetime.timedelta(days=value)).date()
    if kind in ("Datetime", "DatetimeOwned"):
        count, unit, zone = value
        moment = _EPOCH + datetime.timedelta(microseconds=count * _MICROS_PER[unit])
        return moment if zone is not None else moment.replace(tzinfo=None)
    if kind == "Decimal":
        unscaled, _, scale = value
        return decimal.Decimal(unscaled).scaleb(-scale, decimal.Context(prec=76))
    return _UNKNOWN
