"""CASE, COALESCE, NULLIF, GREATEST and LEAST. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import FALSE, if_else
from deltalog.expressions.comparison import COMPARISONS, FLOAT_COMPARISONS
from deltalog.expressions.functions.coercion import common, widened
from deltalog.expressions.functions.comparisons import compare, without_char
from deltalog.expressions.functions.logic import is_null, negation
from deltalog.expressions.functions.nodes import Node, Rows, apply_kernel, fits, literal, run_where, steps_of
from deltalog.expressions.functions.types import BOOLEAN, FLOATING, STRING, VOID, arrow_of, refuse
from deltalog.lazy_arrow import pc
from deltalog.protocol.schema import DataType, DecimalType, PrimitiveType, type_to_arrow


def case(branches: Sequence[tuple[Node, Node]], otherwise: Node) -> Node:
    """CASE WHEN; each value is evaluated only for the rows in which its condition is the first true one."""
    conditions = [condition for condition, _ in branches]
    for condition in conditions:
        if not fits(condition, BOOLEAN):  # not even NULL
            raise refuse(f"CASE WHEN of {condition.data_type}")
    *values, data_type = common("CASE", *(value for _, value in branches), otherwise)
    values = [_as_type(value, data_type) for value in values]

    def run(rows: Rows) -> Any:
        todo: Any = pa.repeat(FALSE, rows.length)
        todo = pc.invert(todo)
        result: Any = pa.nulls(rows.length, arrow_of(data_type))
        for condition, value in zip(conditions, values, strict=False):
            here = pc.and_(todo, pc.fill_null(rows.array(run_where(condition, rows, todo)), False))
            result = if_else(here, run_where(value, rows, here), result)
            todo = pc.and_not(todo, here)
        return if_else(todo, run_where(values[-1], rows, todo), result)

    inner = (*conditions, *values)
    constant = all(node.is_constant for node in inner)
    return Node(data_type, run, any(node.can_fail for node in inner), steps=steps_of(*inner), is_constant=constant)


def coalesce(*nodes: Node) -> Node:
    """The first non-null value; later values are evaluated only for rows in which all earlier values are null."""
    first, *others = nodes
    return case([(negation(is_null(node)), node) for node in (first, *others[:-1])], others[-1]) if others else first


def null_if(left: Node, right: Node) -> Node:
    """NULLIF: the first value, or null where the two values are equal."""
    without_char("NULLIF", left, right)
    return case([(compare("=", left, right), literal(None, left.data_type))], left)


def extreme(operator: str) -> Callable[..., Node]:
    """GREATEST (``>``) and LEAST (``<``), ignoring nulls; NaN is the greatest number."""

    def make(name: str, *nodes: Node) -> Node:
        without_char(name, *nodes)
        if len({fits(node, STRING) for node in nodes if not fits(node, VOID)}) > 1:
            raise refuse(f"The function {name} of strings and other values")
        *values, data_type = common(name, *nodes)
        if not isinstance(data_type, (PrimitiveType, DecimalType)) or str(data_type) in ("void", "variant"):
            raise refuse(f"The function {name} of {data_type}")
        is_better = (FLOAT_COMPARISONS if data_type in FLOATING else COMPARISONS)[operator]

        def run(*found: Any) -> Any:
            best = found[0]
            for each in found[1:]:
                better = pc.or_(pc.is_null(best), pc.fill_null(is_better(each, best), False))
                best = if_else(pc.and_(better, pc.is_valid(each)), each, best)
            return best

        return apply_kernel(data_type, run, *(_as_type(value, data_type) for value in values))

    return make


def _as_type(node: Node, data_type: DataType) -> Node:
    if node.data_type == VOID and data_type != VOID:
        return literal(None, data_type)
    if isinstance(data_type, DecimalType) and node.data_type != data_type:
        arrow = type_to_arrow(data_type)
        return apply_kernel(data_type, lambda values: values.cast(arrow), node)
    return widened(node, data_type)
