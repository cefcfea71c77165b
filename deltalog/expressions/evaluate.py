"""Bound expressions evaluated on Arrow rows. Pure."""

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
    """A value for each row, as an Arrow array.

    Raises pyarrow.ArrowInvalid where Spark's ANSI mode has an error too: overflow, division by zero, a cast that
    loses; and for a few values that only Spark can compute (UPPER of text beyond ASCII).
    """
    try:
        return rows.array(node.run(rows))
    except RecursionError:
        raise pa.ArrowInvalid("the expression is nested too deeply") from None
    except pa.ArrowInvalid:
        raise
    except pa.ArrowException as error:  # a text of more than 2 GiB, and memory that there is not
        raise pa.ArrowInvalid(str(error)) from None


def matches(bound: Bound, table: pa.Table) -> Any:
    """For each row of an Arrow table of the table's types: true, false, or null for unknown.

    Raises CallError where the condition has no value for a row, as in Spark: for example a division by zero.
    """
    try:
        return evaluate(bound.node, rows_of((column.path for column in columns_of(bound)), table))
    except RecursionError:
        raise CallError("The condition is nested too deeply. For many values of a column, use IN or isin.") from None
    except (pa.ArrowInvalid, OverflowError) as error:
        raise CallError(
            f"The condition {shown(bound.expression)} has no value for a row: {error}. Exclude such rows in the "
            "condition first: AND evaluates its right side only where the left side is not false."
        ) from None


def rows_of(paths: Iterable[tuple[str, ...]], table: pa.Table) -> Rows:
    """The columns of an Arrow table at these paths."""
    return Rows({path: values_of(path, table) for path in paths}, table.num_rows)


def values_of(path: tuple[str, ...], table: pa.Table) -> Any:
    """A column of an Arrow table by its path of names; null where a struct on the way is null."""
    values = combined(table.column(path[0]))
    for name in path[1:]:
        values = values.flatten()[values.type.get_field_index(name)]
    return values
