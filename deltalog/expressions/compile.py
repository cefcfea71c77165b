"""Compiles a table's SQL expressions to run on Arrow rows: CHECK constraints, invariants, generated and default
columns. Pure.

    expression = compile_expression("CAST(ts AS DATE)", schema)
    expression.evaluate(table)

The expressions are written in the language of ``where``, which ``bind`` defines. Other writers provide the text of
these expressions; therefore the length of the text is limited. Timestamps without a time zone are interpreted as UTC.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import if_else, scalar
from deltalog.errors import CallError
from deltalog.expressions.bind import Binder
from deltalog.expressions.evaluate import evaluate, rows_of
from deltalog.expressions.functions import casts, comparisons, nodes
from deltalog.expressions.functions.nodes import Node
from deltalog.expressions.sql import parse, short
from deltalog.expressions.tree import Expression
from deltalog.lazy_arrow import pc
from deltalog.protocol import limits
from deltalog.protocol.char_varchar import char_length
from deltalog.protocol.schema import DataType, StructField, StructType


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """An expression compiled for a schema: its text, its result type, and the columns that it reads."""

    text: str
    data_type: DataType
    columns: tuple[tuple[str, ...], ...]
    _node: Node

    def evaluate(self, table: pa.Table) -> Any:
        """Evaluate the expression for each row of a table with these columns, and return an Arrow array. Raises
        pyarrow.ArrowInvalid."""
        return evaluate(self._node, rows_of(self.columns, table))


def compile_expression(
    text: str, schema: StructType, wanted: DataType | None = None, now: datetime.datetime | None = None
) -> CompiledExpression:
    """Compile an expression over the columns of ``schema``; if ``wanted`` is given, cast the result to that type.

    ``now``: the value of CURRENT_TIMESTAMP and CURRENT_DATE; without it they are refused. Raises CallError for an
    expression that cannot be parsed, names an unknown column, or is not supported.
    """
    what = f"The expression {short(text)}"
    # Engines, and versions of Spark, disagree on the meaning of a backslash in a string.
    if "\\" in text:
        raise CallError(f"{what}: a backslash is not supported.")
    tree = parse(text, what, limits.MAX_EXPRESSION_CHARS)
    return compile_tree(tree, text, Binder(schema, now, naive_is_utc=True), wanted)


def compile_tree(tree: Expression, text: str, binder: Binder, wanted: DataType | None = None) -> CompiledExpression:
    """Compile a parsed expression over the columns of the binder's schema; with ``wanted``, cast to that type.
    ``text``: for messages. Raises CallError."""
    what = f"The expression {short(text)}"
    try:
        node = binder.node(tree)
        if wanted is not None:
            node = casts.cast(node, wanted)
        if node.steps > limits.MAX_EXPRESSION_STEPS:
            raise CallError(f"the number of its steps {limits.over('MAX_EXPRESSION_STEPS', node.steps)}")
    except RecursionError:
        raise CallError(f"{what[:80]}… is nested too deeply.") from None
    except CallError as error:
        raise CallError(f"{what}: {str(error).rstrip('.')}.") from None
    return CompiledExpression(text, node.data_type, tuple(binder.columns), node)


def equal_to_column(expression: CompiledExpression, column: StructField) -> CompiledExpression:
    """Returns the condition that ``column`` equals ``expression``; null is treated as equal to null. Raises CallError
    for types that cannot be compared."""
    path, char = (column.name,), char_length([column])
    # A value generated for a char(n) column is padded when it is stored.
    generated = expression._node if char is None else comparisons.as_char(expression._node, char)
    condition = comparisons.compare("<=>", nodes.column(path, column.data_type, char), generated)
    paths = tuple(dict.fromkeys((path, *expression.columns)))
    return CompiledExpression(expression.text, condition.data_type, paths, condition)


def null_if_empty(expression: CompiledExpression) -> CompiledExpression:
    """The expression with empty strings and binaries replaced by null, as a partition column stores them."""
    node = nodes.apply_kernel(expression.data_type, without_empty, expression._node)
    return CompiledExpression(expression.text, expression.data_type, expression.columns, node)


def without_empty(values: Any) -> Any:
    """Arrow string or binary arrays in which empty values are replaced by null."""
    is_empty = pc.equal(pc.binary_length(values), 0)
    return if_else(is_empty, scalar(None, values.type), values) if pc.any(is_empty).as_py() else values
