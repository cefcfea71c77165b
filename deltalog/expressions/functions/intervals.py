"""Intervals, and the sums of intervals with dates and timestamps, in UTC. Pure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import scalar
from deltalog.expressions.functions.casts import cast
from deltalog.expressions.functions.nodes import Node, apply_kernel, check_type, fits
from deltalog.expressions.functions.types import (
    BYTE,
    DATE,
    DAY_TIME,
    DAYS,
    INTEGER,
    INTEGRAL,
    INTERVALS,
    MICROS,
    SHORT,
    TEMPORAL,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    YEAR_MONTH,
    arrow_of,
    refuse,
)
from deltalog.lazy_arrow import pc

_DAY_US = 86_400_000_000


def moves(operator: str, left: Node, right: Node) -> Node | None:
    """``+ - *`` of dates, times and intervals; None if neither operand is one. Raises CallError."""
    kinds = (left.data_type, right.data_type)
    if not any(kind in TEMPORAL or kind in INTERVALS for kind in kinds):
        return None
    if operator == "*":
        return _times(left, right)
    if operator == "+" and fits(right, *TEMPORAL) and not fits(left, *TEMPORAL):
        left, right = right, left
    if operator not in ("+", "-"):
        raise refuse(f"{operator} of {kinds[0]} and {kinds[1]}")
    if fits(left, *INTERVALS) and fits(right, *INTERVALS):
        return _sum(operator, left, right)
    if fits(left, DATE) and fits(right, BYTE, SHORT, INTEGER):
        kernel = pc.add_checked if operator == "+" else pc.subtract_checked
        return apply_kernel(
            DATE,
            lambda days, n: kernel(days.cast(pa.int32()), n).cast(pa.date32()),
            left,
            cast(right, INTEGER),
            can_fail=True,
        )
    if fits(left, *TEMPORAL) and fits(right, *INTERVALS):
        return _moved(left, right if operator == "+" else minus(right))
    if operator == "-" and fits(left, *TEMPORAL) and fits(right, *TEMPORAL):
        return _between(left, right)
    raise refuse(f"{operator} of {kinds[0]} and {kinds[1]}")


def minus(node: Node) -> Node:
    """The negated interval."""
    arrow = arrow_of(node.data_type)
    return apply_kernel(
        node.data_type, lambda values: pc.negate_checked(_number(values)).cast(arrow), node, can_fail=True
    )


def _number(values: Any) -> Any:
    return values.cast(pa.int64()) if pa.types.is_duration(values.type) else values


def _times(left: Node, right: Node) -> Node:
    if fits(right, *INTERVALS):
        left, right = right, left
    if not (fits(left, *INTERVALS) and fits(right, *INTEGRAL)):
        raise refuse(f"* of {left.data_type} and {right.data_type}")
    kind = YEAR_MONTH if fits(left, YEAR_MONTH) else DAY_TIME
    arrow = arrow_of(kind)

    def run(values: Any, number: Any) -> Any:
        return (
            pc.multiply_checked(_number(values).cast(pa.int64()), number.cast(pa.int64()))
            .cast(_whole(arrow))
            .cast(arrow)
        )

    return apply_kernel(kind, run, left, right, can_fail=True)


def _whole(arrow: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_duration(arrow) else arrow


def _sum(operator: str, left: Node, right: Node) -> Node:
    if (left.data_type == YEAR_MONTH) != (right.data_type == YEAR_MONTH):
        raise refuse(f"{operator} of {left.data_type} and {right.data_type}")
    kind = left.data_type if left.data_type == right.data_type else DAY_TIME
    kernel, arrow = pc.add_checked if operator == "+" else pc.subtract_checked, arrow_of(kind)
    return apply_kernel(
        kind, lambda one, other: kernel(_number(one), _number(other)).cast(arrow), left, right, can_fail=True
    )


def _moved(node: Node, interval: Node) -> Node:
    if fits(interval, YEAR_MONTH):
        return add_months("+", node, interval, node.data_type)
    if fits(node, DATE) and fits(interval, DAYS):

        def shifted(days: Any, by: Any) -> Any:
            number = pc.divide(by.cast(pa.int64()), _DAY_US)
            return pc.add_checked(days.cast(pa.int32()).cast(pa.int64()), number).cast(pa.int32()).cast(pa.date32())

        return apply_kernel(DATE, shifted, node, interval, can_fail=True)
    moments = cast(node, TIMESTAMP) if fits(node, DATE) else node
    arrow = arrow_of(moments.data_type)

    def run(values: Any, by: Any) -> Any:
        return pc.add_checked(values.cast(pa.int64()), by.cast(pa.int64())).cast(arrow)

    return apply_kernel(moments.data_type, run, moments, interval, can_fail=True)


def _between(left: Node, right: Node) -> Node:
    if fits(left, DATE) and fits(right, DATE):

        def days(one: Any, other: Any) -> Any:
            number = pc.subtract(one.cast(pa.int32()).cast(pa.int64()), other.cast(pa.int32()).cast(pa.int64()))
            return pc.multiply_checked(number, _DAY_US).cast(pa.duration("us"))

        return apply_kernel(DAYS, days, left, right, can_fail=True)
    if {left.data_type, right.data_type} == {TIMESTAMP, TIMESTAMP_NTZ}:
        raise refuse(f"- of {left.data_type} and {right.data_type}")
    kind = TIMESTAMP_NTZ if TIMESTAMP_NTZ in (left.data_type, right.data_type) else TIMESTAMP

    def run(one: Any, other: Any) -> Any:
        return pc.subtract_checked(one.cast(pa.int64()), other.cast(pa.int64())).cast(pa.duration("us"))

    return apply_kernel(DAY_TIME, run, cast(left, kind), cast(right, kind), can_fail=True)


def add_months(name: str, node: Node, months: Node, result: Any = DATE) -> Node:
    """Shift a date by months; if the resulting month has no such day, use its last day. Implements the SQL function
    ADD_MONTHS."""
    check_type(name, node, *TEMPORAL)
    if not fits(months, YEAR_MONTH):
        check_type(name, months, BYTE, SHORT, INTEGER)
        months = cast(months, INTEGER)
        node = cast(node, DATE)

    def run(values: Any, number: Any) -> Any:
        if pa.types.is_date(values.type):
            return _months_later(values, number).cast(pa.int32()).cast(pa.date32())
        wall = values.cast(MICROS).cast(pa.int64())
        day = _floor_divided(wall, _DAY_US)
        clock = pc.subtract(wall, pc.multiply(day, _DAY_US))
        moved = _months_later(day.cast(pa.int32()).cast(pa.date32()), number)
        return pc.add_checked(pc.multiply_checked(moved, _DAY_US), clock).cast(values.type)

    return apply_kernel(result, run, node, months, can_fail=True)


def _months_later(days: Any, number: Any) -> Any:
    """Dates shifted by a number of months, as days since 1970."""
    month = pc.add(pc.multiply(pc.year(days), 12), pc.subtract(pc.month(days).cast(pa.int64()), 1))
    month = pc.add(month, number.cast(pa.int64()))
    first = _first_day(month)
    length = pc.subtract(_first_day(pc.add(month, 1)), first)
    return pc.add(first, pc.subtract(pc.min_element_wise(pc.day(days), length, skip_nulls=False), 1))


def _first_day(month: Any) -> Any:
    """The number of days from 1970-01-01 to the first day of a month (counted from year 0), computed with years that
    begin in March."""
    shifted = pc.subtract(month, 2)
    year = _floor_divided(shifted, 12)
    of_year = pc.subtract(shifted, pc.multiply(year, 12))
    before = pc.divide(pc.add(pc.multiply(of_year, 153), 2), 5)
    leap = pc.add(pc.subtract(_floor_divided(year, 4), _floor_divided(year, 100)), _floor_divided(year, 400))
    return pc.subtract(pc.add(pc.add(pc.multiply(year, 365), leap), before), 719_468)


def _floor_divided(values: Any, by: int) -> Any:
    whole = pc.divide(values, scalar(by, pa.int64()))
    return pc.if_else(pc.greater(pc.multiply(whole, by), values), pc.subtract(whole, 1), whole)
