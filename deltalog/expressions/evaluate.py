"""Evaluates bound expressions on Arrow rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import combined
from deltalog.errors import CallError
from deltalog.expressions.bound import Bound, columns_of
from deltalog.expressions.functions.nodes import Node, Rows
from deltalog.expressions.sql_text import shown


def evaluate(node: Node, rows: Rows) -> Any:
    """The value of each row, as an Arrow array.

    Raises pyarrow.ArrowInvalid where Spark's ANSI mode also raises (overflow, division by zero, a lossy cast), and for
    a few values that only Spark can compute (UPPER of non-ASCII strings).
    """
    try:
        return rows.array(node.run(rows))
    except RecursionError:
        raise pa.ArrowInvalid("the expression is nested too deeply") from None
    except pa.ArrowInvalid:
        raise
    except pa.ArrowException as error:  # raised for strings of more than 2 GiB, and if memory runs out
        raise pa.ArrowInvalid(str(error)) from None


def matches(bound: Bound, table: pa.Table) -> Any:
    """The value of the condition for each row of an Arrow table with the schema's types: true, false, or null for
    unknown.

    Raises CallError if the condition cannot be evaluated for a row, as in Spark: for example a division by zero.
    """
    try:
        return evaluate(bound.node, rows_of((column.path for column in columns_of(bound)), table))
    except RecursionError:
        raise CallError("The condition is nested too deeply. For many values of a column, use IN or isin.") from None
    except (pa.ArrowInvalid, OverflowError) as error:
        raise CallError(
            f"The condition {shown(bound.expression)} cannot be evaluated for a row: {error}. Exclude such rows "
            "earlier "
            "in the condition: AND evaluates its right side only where the left side is not false."
        ) from None


def rows_of(paths: Iterable[tuple[str, ...]], table: pa.Table) -> Rows:
    """The columns of an Arrow table at these paths."""
    return Rows({path: values_of(path, table) for path in paths}, table.num_rows)


def values_of(path: tuple[str, ...], table: pa.Table) -> Any:
    """The column of an Arrow table at a path of names; null in rows where a struct on the path is null."""
    values = combined(table.column(path[0]))
    for name in path[1:]:
        values = values.flatten()[values.type.get_field_index(name)]
    return values
