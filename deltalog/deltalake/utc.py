"""Reads times without a zone as UTC where a condition compares them with timestamps, as DataFusion does in deltalake's
sessions. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from deltalog.errors import CallError, InvalidTimestampError
from deltalog.expressions.bind import Binder
from deltalog.expressions.functions.types import TIMESTAMP
from deltalog.expressions.relations import Relations
from deltalog.expressions.tree import Between, Comparison, Expression, In, Literal, replaced
from deltalog.protocol.schema import StructType
from deltalog.protocol.timestamps import parse_iso

# Types do not depend on the time of a statement.
_ANY_TIME = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc)


def in_utc(tree: Expression, columns: StructType | Relations) -> Expression:
    """The expression, in which dates and times without a zone that are compared with timestamps are in UTC.
    ``columns``: what the names of the expression refer to."""
    schema, resolved = (columns, None) if isinstance(columns, StructType) else (columns.schema, columns.resolved)
    return _Reader(schema, resolved).read(tree)


def text_in_utc(text: str, parsed: Expression, columns: StructType | Relations) -> Any:
    """As ``in_utc``. An expression without such comparisons stays ``text``, from which ``parsed`` was parsed, because
    the text goes to the history."""
    found = in_utc(parsed, columns)
    return text if found == parsed else found


class _Reader:
    def __init__(self, schema: StructType, resolved: Callable[[Expression], Expression] | None) -> None:
        self._schema, self._resolved = schema, resolved

    def read(self, tree: Expression) -> Expression:
        return replaced(tree, self._replacement)

    def _replacement(self, each: Expression) -> Expression | None:
        if isinstance(each, Comparison):
            left, right = self.read(each.left), self.read(each.right)
            return Comparison(each.operator, self._beside(left, right), self._beside(right, left))
        if isinstance(each, Between):
            value, low, high = map(self.read, (each.operand, each.low, each.high))
            return Between(self._beside(value, low), self._beside(low, value), self._beside(high, value))
        if isinstance(each, In) and any(map(_in_utc, (*each.values, *map(_value, each.others)))):
            value, others = self.read(each.operand), tuple(map(self.read, each.others))
            if not self._is_timestamp(value):
                return In(value, each.values, others, each.doubtful)
            values = tuple(_in_utc(given) or given for given in each.values)
            return In(value, values, tuple(self._beside(given, value) for given in others), each.doubtful)
        return None

    def _beside(self, tree: Expression, other: Expression) -> Expression:
        """``tree`` as it is compared with ``other``."""
        moment = None if isinstance(tree, Literal) and tree.in_double_quotes else _in_utc(_value(tree))
        return tree if moment is None or not self._is_timestamp(other) else Literal(moment)

    def _is_timestamp(self, tree: Expression) -> bool:
        if isinstance(tree, Literal):
            return isinstance(tree.value, datetime.datetime) and tree.value.tzinfo is not None
        try:
            resolved = tree if self._resolved is None else self._resolved(tree)
            return Binder(self._schema, _ANY_TIME, naive_is_utc=True).node(resolved).data_type == TIMESTAMP
        except CallError:
            return False  # the condition itself then raises the error


def _value(tree: Expression) -> Any:
    return tree.value if isinstance(tree, Literal) else None


def _in_utc(value: Any) -> datetime.datetime | None:
    """The point in time that a date or a time without a zone means in UTC; None for anything else."""
    if isinstance(value, str):
        try:
            value = parse_iso(value)
        except InvalidTimestampError:
            return None
    if not isinstance(value, datetime.datetime) or value.tzinfo is not None:
        return None
    return value.replace(tzinfo=datetime.timezone.utc)
