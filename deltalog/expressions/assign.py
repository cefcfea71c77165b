"""Computes new column values from the old values of each row: the SET of an UPDATE. Pure.

Values are cast to the type of their column as in Spark's ANSI store assignment: a value that does not fit is an error.
All new values are computed from the old rows, regardless of order.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog import arguments
from deltalog.arrow_arrays import combined
from deltalog.errors import CallError
from deltalog.expressions.bind import Binder, find_fields
from deltalog.expressions.columns import Column
from deltalog.expressions.compile import CompiledExpression, compile_tree
from deltalog.expressions.python_values import as_scalar
from deltalog.expressions.sql import parse, short
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import Expression, Name
from deltalog.protocol.column_paths import parse_path, path_text
from deltalog.protocol.schema import DataType, StructField, StructType


@dataclass(frozen=True, slots=True)
class Assignment:
    """An assignment to a column (a path of names): the new value is an expression, or a single value for all rows."""

    path: tuple[str, ...]
    value: CompiledExpression | pa.Scalar

    @property
    def name(self) -> str:
        """The column, in the form that ``col`` accepts."""
        return path_text(self.path)

    @classmethod
    def from_tree(
        cls,
        path: tuple[str, ...],
        tree: Expression,
        text: str,
        schema: StructType,
        now: datetime.datetime,
        wanted: DataType | None,
    ) -> Assignment:
        """The assignment of an expression over the columns of ``schema``, cast to ``wanted``. Raises CallError."""
        return cls(path, compile_tree(tree, text, Binder(schema, now), wanted))

    def evaluate(self, rows: pa.Table) -> Any:
        """The new values of the rows, as an Arrow array. Raises CallError for a row whose value cannot be computed."""
        if isinstance(self.value, pa.Scalar):
            return pa.repeat(self.value, rows.num_rows)
        try:
            return self.value.evaluate(rows)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise CallError(
                f"The new value of {self.name}, {short(self.value.text)}, cannot be computed for a row: {error}. "
                "Nothing was committed; exclude such rows with where, or use CASE."
            ) from None


def assignments(
    updates: Mapping[str, Any], new_values: Mapping[str, Any], schema: StructType, now: datetime.datetime
) -> list[Assignment]:
    """The assignments to columns of ``schema``. Names are case-insensitive; ``a.b`` is a field of a struct.

    ``updates``: SQL expressions, as text or built with ``col``. ``new_values``: Python values. ``now``: the value to
    use for CURRENT_TIMESTAMP. Raises CallError for a column that does not exist or is assigned twice, for an
    unsupported expression, and for a value that does not fit its column's type.
    """
    found = [_expression_assignment(name, value, schema, now) for name, value in updates.items()]
    found += [_value_assignment(name, value, schema) for name, value in new_values.items()]
    if not found:
        raise CallError("No columns to update: updates and new_values are empty.")
    check_once(found)
    return found


def check_once(found: Sequence[Assignment]) -> None:
    """Raise CallError if a column is assigned twice, or if both a column and one of its fields are assigned."""
    paths = sorted(each.path for each in found)
    for path, after in itertools.pairwise(paths):
        if after[: len(path)] == path:
            raise CallError(f"Column {path_text(after)} is updated twice.")


def assigned(rows: pa.Table, changes: Sequence[Assignment], computed_from: pa.Table | None = None) -> pa.Table:
    """The rows with the new values. Assigning a field of a null struct makes the struct non-null with null fields.
    ``computed_from``: the rows to evaluate the expressions on, if not ``rows``. Raises CallError."""
    values = [change.evaluate(rows if computed_from is None else computed_from) for change in changes]
    for change, new in zip(changes, values, strict=True):
        index = rows.schema.get_field_index(change.path[0])
        whole = _with_field(combined(rows.column(index)), change.path[1:], new)
        rows = rows.set_column(index, rows.schema.field(index).with_type(whole.type), whole)
    return rows


def _with_field(values: Any, path: Sequence[str], new: Any) -> Any:
    if not path:
        return new
    children, fields = values.flatten(), list(values.type.fields)
    index = values.type.get_field_index(path[0])
    children[index] = _with_field(children[index], path[1:], new)
    fields[index] = fields[index].with_type(children[index].type)
    return pa.StructArray.from_arrays(children, fields=fields)


def find_assigned(name: str, schema: StructType) -> tuple[tuple[str, ...], StructField]:
    """The column that a key of ``updates`` refers to, and the path of that column. Raises CallError."""
    if not isinstance(name, str):
        raise CallError(f"The keys of updates must be column names; got {name!r}.")
    fields = find_fields(parse_path(name), schema)
    return tuple(field.name for field in fields), fields[-1]


def _expression_assignment(name: str, value: Any, schema: StructType, now: datetime.datetime) -> Assignment:
    path, column = find_assigned(name, schema)
    return Assignment.from_tree(path, *parsed_value(path, value), schema, now, column.data_type)


def parsed_value(path: Sequence[str], value: Any) -> tuple[Expression, str]:
    """The new value of a column as an expression tree and as text; the caller gives it as SQL text or builds it with
    ``col``. Raises CallError."""
    if isinstance(value, str):
        return parse(value, f"The new value of {path_text(path)}, {short(value)}"), value
    if isinstance(value, (Column, Expression)):
        tree = Name(value.path) if isinstance(value, Column) else value
        return tree, shown(tree)
    raise CallError(
        f"The new value of {path_text(path)} must be SQL text or built with col(…), not {type(value).__name__}. Pass "
        "Python values in new_values."
    )


def _value_assignment(name: str, value: Any, schema: StructType) -> Assignment:
    path, column = find_assigned(name, schema)
    try:
        return Assignment(path, as_scalar(value, column.data_type))
    except (CallError, pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
        why = str(error).rstrip(".")
        raise CallError(
            f"{arguments.shown(value)} is not a value for column {path_text(path)}, which is {column.data_type}: {why}."
        ) from None
