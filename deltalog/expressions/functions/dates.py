"""Date and timestamp functions, in UTC. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import scalar
from deltalog.expressions.functions.casts import cast, floored, in_common_years
from deltalog.expressions.functions.coercion import moment, widened
from deltalog.expressions.functions.nodes import Node, any_true, apply_kernel, check_type, constant
from deltalog.expressions.functions.types import (
    BYTE,
    DATE,
    INTEGER,
    LONG,
    MICROS,
    SHORT,
    STRING,
    TEMPORAL,
    TIMESTAMP,
    refuse,
)
from deltalog.lazy_arrow import pc
from deltalog.protocol.schema import DataType, type_to_arrow


def part(kernel: Callable[[Any], Any], *kinds: DataType) -> Callable[..., Node]:
    def make(name: str, node: Node) -> Node:
        check_type(name, node, *kinds)
        wall = MICROS if node.data_type != DATE else pa.date32()
        return apply_kernel(INTEGER, lambda values: kernel(values.cast(wall)).cast(pa.int32()), node)

    return make


def day_of_week(values: Any) -> Any:
    return pc.day_of_week(values, count_from_zero=False, week_start=7)


def weekday(values: Any) -> Any:
    """WEEKDAY: 0 is Monday."""
    return pc.day_of_week(values, count_from_zero=True, week_start=1)


def _as_date(name: str, node: Node) -> Node:
    if node.is_literal and isinstance(node.value, str):
        return moment(node.value, DATE)
    check_type(name, node, *TEMPORAL)
    return cast(node, DATE)


def shifted(kernel: Callable[[Any, Any], Any]) -> Callable[..., Node]:
    """DATE_ADD and DATE_SUB: shift by days."""

    def make(name: str, node: Node, days: Node) -> Node:
        check_type(name, days, BYTE, SHORT, INTEGER)

        def run(values: Any, number: Any) -> Any:
            return kernel(values.cast(pa.int32()), number).cast(pa.date32())

        return apply_kernel(DATE, run, _as_date(name, node), widened(days, INTEGER), can_fail=True)

    return make


def days_between(name: str, end: Node, start: Node) -> Node:
    """DATEDIFF."""

    def run(one: Any, other: Any) -> Any:
        return pc.subtract(one.cast(pa.int32()), other.cast(pa.int32()))

    return apply_kernel(INTEGER, run, _as_date(name, end), _as_date(name, start))


def last_day(name: str, node: Node) -> Node:
    """LAST_DAY: the last day of the month."""

    def run(values: Any) -> Any:
        following = pc.ceil_temporal(values, unit="month", ceil_is_strictly_greater=True)
        return pc.subtract(following.cast(pa.int32()), scalar(1, pa.int32())).cast(pa.date32())

    return apply_kernel(DATE, run, _as_date(name, node))


def since_epoch(micros: int) -> Callable[..., Node]:
    """The number of whole units of ``micros`` microseconds since 1970, rounded down."""

    def make(name: str, node: Node) -> Node:
        check_type(name, node, TIMESTAMP)

        def run(values: Any) -> Any:
            number = values.cast(pa.int64())
            whole = pc.divide(number, micros)  # towards zero
            return pc.if_else(pc.greater(pc.multiply(whole, micros), number), pc.subtract(whole, 1), whole)

        return apply_kernel(LONG, run, node)

    return make


_UNITS = {
    "year": ("year", "yyyy", "yy"),
    "quarter": ("quarter",),
    "month": ("month", "mm", "mon"),
    "week": ("week",),
}
_TIME_UNITS = {
    "day": ("day", "dd"),
    "hour": ("hour",),
    "minute": ("minute",),
    "second": ("second",),
    "millisecond": ("millisecond",),
    "microsecond": ("microsecond",),
}


def _unit(name: str, node: Node, known: Mapping[str, Sequence[str]]) -> str:
    text = constant(name, node, STRING)
    for unit, spellings in known.items():
        if text.lower() in spellings:
            return unit
    raise refuse(f"The function {name} with the unit {text!r}")


def date_trunc(name: str, unit: Node, node: Node) -> Node:
    check_type(name, node, DATE, TIMESTAMP)
    arrow_unit, arrow = _unit(name, unit, {**_UNITS, **_TIME_UNITS}), type_to_arrow(TIMESTAMP)
    moments = cast(node, TIMESTAMP)
    return apply_kernel(TIMESTAMP, lambda values: floored(values, arrow_unit).cast(arrow), moments)


def trunc(name: str, node: Node, unit: Node) -> Node:
    check_type(name, node, DATE, TIMESTAMP)
    arrow_unit = _unit(name, unit, _UNITS)
    return apply_kernel(DATE, lambda values: floored(values, arrow_unit), cast(node, DATE))


# In Java's patterns, a run of one letter is one symbol: MMMM is the name of a month, not MM twice.
_PATTERN = re.compile(r"([A-Za-z])\1*|.", re.DOTALL)
_STRFTIME = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_PLAIN = "-/:._ ,0123456789"


def parsed(data_type: DataType) -> Callable[..., Node]:
    """TO_DATE and TO_TIMESTAMP: a cast, or parsing by a pattern with a fixed number of digits."""

    def make(name: str, node: Node, pattern: Node | None = None) -> Node:
        if pattern is None:
            text = node.value if node.is_literal else None
            return moment(text, data_type) if isinstance(text, str) else cast(node, data_type)
        check_type(name, node, STRING)
        regex, iso = _reading(name, constant(name, pattern, STRING))
        arrow = type_to_arrow(data_type)

        def run(values: Any) -> Any:
            if any_true(pc.invert(pc.match_substring_regex(values, regex))):
                raise pa.ArrowInvalid(f"a string is not of the form {pattern.value}")
            wall = pc.replace_substring_regex(values, regex, iso).cast(MICROS)
            return in_common_years(wall).cast(arrow)

        return apply_kernel(data_type, run, node, can_fail=True)

    return make


def _reading(name: str, pattern: str) -> tuple[str, str]:
    """A regular expression that matches strings in the format of a datetime pattern, and the replacement that turns a
    match into yyyy-MM-dd HH:mm:ss."""
    parts = [match[0] for match in _PATTERN.finditer(pattern)]
    fields = [part for part in parts if part in _STRFTIME]
    known = len(set(fields)) == len(fields) and "yyyy" in fields
    if not known or not all(part in _STRFTIME or part in _PLAIN for part in parts):
        raise refuse(f"The function {name} with the pattern {pattern!r}")
    regex = "".join(f"([0-9]{{{len(part)}}})" if part in _STRFTIME else re.escape(part) for part in parts)
    found = {part: rf"\{number}" for number, part in enumerate(fields, 1)}
    year, month, day, hour, minute, second = (found.get(part, low) for part, low in _LEAST.items())
    return rf"\A{regex}\z", f"{year}-{month}-{day} {hour}:{minute}:{second}"


_LEAST = {"yyyy": "", "MM": "01", "dd": "01", "HH": "00", "mm": "00", "ss": "00"}


def date_format(name: str, node: Node, pattern: Node) -> Node:
    check_type(name, node, *TEMPORAL)
    text = constant(name, pattern, STRING)
    parts = [match[0] for match in _PATTERN.finditer(text)]
    if not all(part in _STRFTIME or part in _PLAIN for part in parts):
        raise refuse(f"The function {name} with the pattern {text!r}")
    form = "".join(_STRFTIME.get(part, part) for part in parts)

    def run(values: Any) -> Any:
        whole = floored(in_common_years(values.cast(MICROS)), "second").cast(pa.timestamp("s"))
        return pc.strftime(whole, format=form, locale="C")

    return apply_kernel(STRING, run, node, can_fail=True)
