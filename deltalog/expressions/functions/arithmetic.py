"""Numeric operators and functions. Pure."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import scalar
from deltalog.expressions.functions.casts import cast, finite
from deltalog.expressions.functions.coercion import decimal_literal_as_double, widened
from deltalog.expressions.functions.intervals import minus, moves
from deltalog.expressions.functions.nodes import Node, any_true, apply_kernel, check_type, constant, fits, literal
from deltalog.expressions.functions.types import (
    BOOLEAN,
    BY_WIDTH,
    DIGITS,
    DOUBLE,
    FLOATING,
    INTEGER,
    INTEGRAL,
    INTERVALS,
    LONG,
    decimal_of,
    decimal_type,
    is_number,
    refuse,
    widest,
)
from deltalog.lazy_arrow import pc
from deltalog.protocol.schema import DecimalType, type_to_arrow


def arithmetic(operator: str, left: Node, right: Node) -> Node:
    """``+ - * / % DIV`` of numbers, and ``+ - *`` of dates, times and intervals."""
    moved = moves(operator, left, right)
    if moved is not None:
        return moved
    for node in (left, right):
        if not is_number(node.data_type):
            raise refuse(f"{operator} of {left.data_type} and {right.data_type}")
    kinds = {left.data_type, right.data_type}
    if any(isinstance(k, DecimalType) for k in kinds):
        if not kinds & set(FLOATING):
            return _decimal_arithmetic(operator, left, right)
        left, right = decimal_literal_as_double(left), decimal_literal_as_double(right)
    wide = widest(operator, {left.data_type, right.data_type})
    if operator == "/":
        return apply_kernel(DOUBLE, _divide, widened(left, DOUBLE), widened(right, DOUBLE), can_fail=True)
    if wide in FLOATING:
        if operator not in _FLOAT_KERNELS:
            raise refuse(f"{operator} of {left.data_type} and {right.data_type}")
        return apply_kernel(wide, _FLOAT_KERNELS[operator], widened(left, wide), widened(right, wide))
    if operator == "DIV":
        return apply_kernel(LONG, pc.divide_checked, widened(left, LONG), widened(right, LONG), can_fail=True)
    return apply_kernel(wide, _INTEGER_KERNELS[operator], widened(left, wide), widened(right, wide), can_fail=True)


def _decimal_arithmetic(operator: str, left: Node, right: Node) -> Node:
    if operator not in ("+", "-", "*"):
        raise refuse(f"{operator} of {left.data_type} and {right.data_type}")
    left, right = _as_decimal(left), _as_decimal(right)
    one, other = left.data_type, right.data_type
    assert isinstance(one, DecimalType) and isinstance(other, DecimalType)
    if operator == "*":
        result = decimal_type(one.precision + other.precision + 1, one.scale + other.scale)
    else:
        scale = max(one.scale, other.scale)
        result = decimal_type(max(one.precision - one.scale, other.precision - other.scale) + scale + 1, scale)
    arrow, kernel = type_to_arrow(result), _INTEGER_KERNELS[operator]
    return apply_kernel(result, lambda a, b: kernel(a, b).cast(arrow), left, right)


def _as_decimal(node: Node) -> Node:
    if isinstance(node.data_type, DecimalType):
        return node
    if node.is_literal:
        value = decimal.Decimal(node.value)
        return literal(value, decimal_of(value))
    return widened(node, DecimalType(DIGITS[node.data_type], 0))


def _divide(left: Any, right: Any) -> Any:
    if any_true(pc.and_kleene(pc.equal(right, 0.0), pc.is_valid(left))):
        raise pa.ArrowInvalid("divide by zero")
    return pc.divide(left, right)


def _remainder(left: Any, right: Any) -> Any:
    """The remainder, with the sign of the dividend. Division by -1 is avoided, because it overflows for the smallest
    number; the remainder is 0 anyway."""
    one = scalar(1, right.type)
    right = pc.if_else(pc.equal(right, scalar(-1, right.type)), one, right)
    return pc.subtract(left, pc.multiply(pc.divide_checked(left, right), right))


def _positive_remainder(left: Any, right: Any) -> Any:
    found = _remainder(left, right)
    return pc.if_else(pc.less(found, scalar(0, found.type)), _remainder(pc.add(found, right), right), found)


_FLOAT_KERNELS: Mapping[str, Callable[[Any, Any], Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_INTEGER_KERNELS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "%": _remainder,
    "PMOD": _positive_remainder,
}


def negative(node: Node) -> Node:
    """Unary minus."""
    if fits(node, *INTERVALS):
        return minus(node)
    if not is_number(node.data_type):
        raise refuse(f"- of {node.data_type}")
    kernel = pc.negate if node.data_type in FLOATING else pc.negate_checked
    return apply_kernel(node.data_type, kernel, node, can_fail=node.data_type in INTEGRAL)


def absolute(name: str, node: Node) -> Node:
    if not is_number(node.data_type):
        raise refuse(f"The function {name} of {node.data_type}")
    integral = node.data_type in INTEGRAL
    return apply_kernel(node.data_type, pc.abs_checked if integral else pc.abs, node, can_fail=integral)


def to_whole(kernel: Callable[[Any], Any]) -> Callable[..., Node]:
    """FLOOR and CEIL."""

    def make(name: str, node: Node) -> Node:
        kind = node.data_type
        if isinstance(kind, DecimalType):
            result = decimal_type(kind.precision - kind.scale + 1, 0)
            return _with_room(node, kind, result, kernel)
        check_type(name, node, *BY_WIDTH)
        if kind in INTEGRAL:
            return widened(node, LONG)
        return apply_kernel(LONG, lambda values: finite(kernel(values)).cast(pa.int64()), node, can_fail=True)

    return make


def rounded(mode: str) -> Callable[..., Node]:
    """ROUND and BROUND; ``mode`` determines how halves are rounded. Floats are rounded only to integers: their decimal
    digits differ between versions of Java."""

    def make(name: str, node: Node, scale: Node | None = None) -> Node:
        kind, places = node.data_type, 0 if scale is None else constant(name, scale, INTEGER)
        if isinstance(kind, DecimalType):
            whole = kind.precision - kind.scale + 1
            kept = min(kind.scale, places)
            result = decimal_type(whole + kept, kept) if places >= 0 else decimal_type(max(whole, 1 - places), 0)
            return _with_room(node, kind, result, lambda values: pc.round(values, places, round_mode=mode), -places)
        check_type(name, node, *BY_WIDTH)
        if kind in FLOATING:
            if places != 0:
                raise refuse(f"The function {name} of {kind} to {places} decimal places")
            # Adding 0.0 turns a negative zero into a positive one.
            return apply_kernel(
                kind, lambda values: pc.add(pc.round(values, 0, round_mode=mode), 0.0).cast(values.type), node
            )
        if places >= 0:
            return node
        return apply_kernel(kind, lambda values: pc.round(values, places, round_mode=mode), node, can_fail=True)

    return make


def _with_room(
    node: Node, kind: DecimalType, result: DecimalType, kernel: Callable[[Any], Any], whole_digits: int = 0
) -> Node:
    """Run a kernel on decimals that are cast to a wider type, with one more digit than ``kind`` has and with room for
    at least ``whole_digits`` digits before the point."""
    digits = max(kind.precision, whole_digits + kind.scale) + 1
    wider, arrow = pa.decimal256(digits, kind.scale), type_to_arrow(result)
    return apply_kernel(result, lambda values: kernel(values.cast(wider)).cast(arrow), node)


def square_root(name: str, node: Node) -> Node:
    """SQRT; the result is NaN for a negative number."""
    return apply_kernel(DOUBLE, pc.sqrt, _as_double(name, node))


def sign(name: str, node: Node) -> Node:
    """SIGN: -1.0, 1.0, or zero and NaN unchanged."""

    def run(values: Any) -> Any:
        return pc.if_else(pc.equal(values, 0.0), values, pc.sign(values))

    return apply_kernel(DOUBLE, run, _as_double(name, node))


def _as_double(name: str, node: Node) -> Node:
    if not is_number(node.data_type):
        raise refuse(f"The function {name} of {node.data_type}")
    return cast(node, DOUBLE)


def is_nan(name: str, node: Node) -> Node:
    check_type(name, node, *FLOATING)
    return apply_kernel(BOOLEAN, lambda values: pc.fill_null(pc.is_nan(values), False), node)
