"""Filters as programs pass them to deltalake (tuples in disjunctive normal form, or SQL), converted to conditions.
Pure."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from deltalog.deltalake.sql import name, spark_sql, text_literal
from deltalog.deltalake.utc import in_utc
from deltalog.errors import CallError, SchemaMismatchError
from deltalog.expressions.sql import as_predicate
from deltalog.expressions.tree import Comparison, Expression, Literal, Name, Predicate, replaced
from deltalog.protocol.schema import StructType

FilterLiteralType: TypeAlias = tuple[str, str, Any]
FilterConjunctionType: TypeAlias = list[FilterLiteralType]
FilterDNFType: TypeAlias = list[FilterConjunctionType]
FilterType: TypeAlias = FilterConjunctionType | FilterDNFType
FilePruningPredicateType: TypeAlias = str | FilterType
PartitionFilterType: TypeAlias = list[tuple[str, str, str | list[str]]]

_OPERATORS = ("=", "==", "!=", "<", "<=", ">", ">=")


def encode_partition_value(val: Any) -> str:
    """A partition value as text, in the form that the log uses. Raises ValueError for other types."""
    if isinstance(val, bool):
        return "true" if val else "false"
    if isinstance(val, str):
        return val
    if isinstance(val, (int, float)):
        return str(val)
    if isinstance(val, datetime.datetime):
        return val.isoformat(sep=" ")
    if isinstance(val, datetime.date):
        return val.isoformat()
    if isinstance(val, bytes):
        return val.decode("unicode_escape", "backslashreplace")
    raise ValueError(f"Could not encode partition value for type: {val}")


def condition(filters: FilePruningPredicateType | None, schema: StructType) -> Predicate | str | None:
    """The filters as a condition; None if there are no filters. Raises CallError, SchemaMismatchError for an unknown
    column."""
    if filters is None or (not isinstance(filters, str) and not filters):
        return None
    if isinstance(filters, str):
        return coerced(filters, schema)
    first = filters[0]
    groups: Iterable[Any] = filters if isinstance(first, list) else [filters]
    return " OR ".join(f"({' AND '.join(_one(each, schema) for each in group)})" for group in groups)


def coerced(text: str | None, schema: StructType) -> Predicate | None:
    """SQL text as a condition on a table's columns. A number that is compared with a string column is treated as text,
    and a time without a zone that is compared with a timestamp as UTC, as in DataFusion. Raises CallError."""
    if text is None:
        return None
    found = as_predicate(spark_sql(text))
    assert found is not None

    def as_text(tree: Expression) -> Expression | None:
        if not isinstance(tree, Comparison):
            return None
        sides = (tree.left, tree.right)
        texts = tuple(_as_text(one, other, schema) for one, other in (sides, sides[::-1]))
        return None if texts == sides else Comparison(tree.operator, *texts)

    predicate = in_utc(replaced(found, as_text), schema)
    assert isinstance(predicate, Predicate)
    return predicate


def _as_text(side: Expression, other: Expression, schema: StructType) -> Expression:
    if not isinstance(side, Literal) or isinstance(side.value, bool) or not isinstance(side.value, (int, Decimal)):
        return side
    column = schema.find(other.path[0]) if isinstance(other, Name) and len(other.path) == 1 else None
    is_text = column is not None and str(column.data_type) == "string"
    return Literal(str(side.value)) if is_text and side.data_type is None else side


def _one(given: Sequence[Any], schema: StructType) -> str:
    if not isinstance(given, (tuple, list)) or len(given) != 3 or not isinstance(given[0], str):
        raise CallError(f"A filter is a tuple (column, operator, value), such as ('day', '=', 'a'); got {given!r}.")
    column, operator, value = given[0], str(given[1]).lower(), given[2]
    if operator not in (*_OPERATORS, "in", "not in"):
        shown = ", ".join(json.dumps(each, default=str) for each in given)
        raise CallError(f"Invalid partition filter found: ({shown}).")
    field = schema.find(column)
    if field is None:
        raise SchemaMismatchError(f"Field {column!r} is not a root table field. Columns: {', '.join(schema.names)}.")
    quoted, kind = name(field.name), str(field.data_type)

    def is_equal(each: Any) -> str:
        text = encode_partition_value(each)
        return f"{quoted} IS NULL" if text == "" else f"{quoted} = {_literal(text, kind)}"

    if operator in ("in", "not in"):
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise CallError(f"The value of {operator!r} is a list, a set or a tuple; got {value!r} for {column}.")
        found = " OR ".join(is_equal(each) for each in value) or "false"
        return f"({found})" if operator == "in" else f"NOT ({found})"
    if operator in ("=", "=="):
        return is_equal(value)
    if operator == "!=":
        return f"NOT ({is_equal(value)})"
    return f"{quoted} {operator} {_literal(encode_partition_value(value), kind)}"


def _literal(text: str, kind: str) -> str:
    return text_literal(text) if kind == "string" else f"CAST({text_literal(text)} AS {kind})"
