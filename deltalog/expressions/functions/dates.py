"""Functions of dates and timestamps, which count in UTC. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.expressions.functions.casts import cast, floored, in_common_years
from deltalog.expressions.functions.nodes import Node, check_type, constant, made
from deltalog.expressions.functions.types import DATE, INTEGER, MICROS, STRING, TEMPORAL, TIMESTAMP, refuse
from deltalog.protocol.schema import DataType, type_to_arrow


def part(kernel: Callable[[Any], Any], *kinds: DataType) -> Callable[..., Node]:
    def make(name: str, node: Node) -> Node:
        check_type(name, node, *kinds)
        wall = MICROS if node.data_type != DATE else pa.date32()
        return made(INTEGER, lambda values: kernel(values.cast(wall)).cast(pa.int32()), node)

    return make


def day_of_week(values: Any) -> Any:
    return pc.day_of_week(values, count_from_zero=False, week_start=7)


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
    return made(TIMESTAMP, lambda values: floored(values, arrow_unit).cast(arrow), moments)


def trunc(name: str, node: Node, unit: Node) -> Node:
    check_type(name, node, DATE, TIMESTAMP)
    arrow_unit = _unit(name, unit, _UNITS)
    return made(DATE, lambda values: floored(values, arrow_unit), cast(node, DATE))


# In Java a run of one letter is one thing: MMMM is a name, not twice a number.
_PATTERN = re.compile(r"([A-Za-z])\1*|.", re.DOTALL)
_STRFTIME = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_PLAIN = "-/:._ ,0123456789"


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

    return made(STRING, run, node, can_fail=True)
