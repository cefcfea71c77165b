"""AND, OR, NOT and null tests, in three-valued logic. Pure."""

from __future__ import annotations

from typing import Any

from deltalog.expressions.functions.nodes import Node, Rows, apply_kernel, fits, literal, run_where, steps_of
from deltalog.expressions.functions.types import BOOLEAN, VOID, refuse
from deltalog.lazy_arrow import pc


def conjunction(left: Node, right: Node) -> Node:
    """AND; the right side is evaluated only in rows in which the left side is not false."""
    left, right = boolean("AND", left), boolean("AND", right)

    def run(rows: Rows) -> Any:
        first = left.run(rows)
        if not right.can_fail:
            return pc.and_kleene(first, right.run(rows))
        return pc.and_kleene(first, run_where(right, rows, pc.fill_null(first, True)))

    return Node(BOOLEAN, run, left.can_fail or right.can_fail, steps=steps_of(left, right))


def disjunction(left: Node, right: Node) -> Node:
    """OR; the right side is evaluated only where the left side is not true."""
    left, right = boolean("OR", left), boolean("OR", right)

    def run(rows: Rows) -> Any:
        first = left.run(rows)
        if not right.can_fail:
            return pc.or_kleene(first, right.run(rows))
        return pc.or_kleene(first, run_where(right, rows, pc.invert(pc.fill_null(first, False))))

    return Node(BOOLEAN, run, left.can_fail or right.can_fail, steps=steps_of(left, right))


def negation(node: Node) -> Node:
    """NOT."""
    return apply_kernel(BOOLEAN, pc.invert, boolean("NOT", node))


def boolean(what: str, node: Node) -> Node:
    if fits(node, VOID):
        return literal(None, BOOLEAN)
    if not fits(node, BOOLEAN):
        raise refuse(f"{what} of {node.data_type}")
    return node


def is_null(node: Node) -> Node:
    """IS NULL."""
    return apply_kernel(BOOLEAN, pc.is_null, node)


def is_boolean(node: Node, wanted: bool) -> Node:
    """IS TRUE, IS FALSE."""
    truth = boolean("IS TRUE", node)
    return apply_kernel(BOOLEAN, lambda values: pc.fill_null(values if wanted else pc.invert(values), False), truth)
