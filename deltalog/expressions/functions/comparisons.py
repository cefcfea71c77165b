"""Comparisons, IN and LIKE. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalog.expressions.comparison import COMPARISONS, FLOAT_COMPARISONS, ValueSet
from deltalog.expressions.functions.coercion import as_type, common, decimal_literal_as_double
from deltalog.expressions.functions.logic import disjunction
from deltalog.expressions.functions.nodes import NO_ROWS, Node, apply_kernel, fits, literal
from deltalog.expressions.functions.types import (
    BOOLEAN,
    DOUBLE,
    FLOATING,
    STRING,
    VOID,
    arrow_of,
    is_number,
    refuse,
)
from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules
from deltalog.protocol.char_varchar import padded
from deltalog.protocol.schema import DecimalType, PrimitiveType

if TYPE_CHECKING:
    from deltalog.expressions.functions import casts, text
else:
    lazy_modules(__name__, "deltalog.expressions.functions.casts", "deltalog.expressions.functions.text")

# The type in which two decimals, or a decimal and an integer, are compared: it can represent all their values.
_ANY_DECIMAL = pa.decimal256(76, 38)


def compare(operator: str, left: Node, right: Node) -> Node:
    """``= != < <= > >= <=>``; NaN equals itself and is the greatest number."""
    left, right, wide = _comparable(operator, *_equally_long(operator, left, right))
    null_safe = operator == "<=>"
    kernel = (FLOAT_COMPARISONS if pa.types.is_floating(wide) else COMPARISONS)["=" if null_safe else operator]

    def run(one: Any, other: Any) -> Any:
        one, other = as_type(one, wide), as_type(other, wide)
        return _null_safe_equal(kernel, one, other) if null_safe else kernel(one, other)

    return apply_kernel(BOOLEAN, run, left, right)


def equality(operator: str, left: Node, right: Node) -> tuple[Node, Node, pa.DataType]:
    """Both sides of ``=`` or ``<=>``, prepared for the comparison, and the type in which a join compares them. Raises
    CallError."""
    return _comparable(operator, *_equally_long(operator, left, right))


def _null_safe_equal(equal: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(pc.fill_null(equal(one, other), False), both_null)


def _equally_long(what: str, left: Node, right: Node) -> tuple[Node, Node]:
    """Both sides of a comparison; where Spark pads (char(n) against a literal or another char(n)), the shorter side is
    padded with blanks."""
    if left.char is None and right.char is None:
        return left, right
    widths = [_width(node) for node in (left, right)]
    if any(node.is_constant and not node.is_literal and fits(node, STRING) for node in (left, right)):
        raise refuse(f"{what} of char(n) and a string that is computed from literals")
    if None in widths:
        return left, right
    width = max(w for w in widths if w is not None)
    return _padded_to(left, width), _padded_to(right, width)


def _width(node: Node) -> int | None:
    return len(node.value) if node.is_literal and isinstance(node.value, str) else node.char


def _padded_to(node: Node, width: int) -> Node:
    return literal(node.value.ljust(width), STRING) if node.is_literal else as_char(node, width)


def as_char(node: Node, width: int) -> Node:
    """Strings as a char(n) column stores them."""
    return replace(apply_kernel(STRING, lambda values: padded(values, width), node), char=width, is_constant=False)


def without_char(what: str, *nodes: Node) -> None:
    """Raise CallError for a char(n) column, because Spark compares such a column without padding in this kind of
    expression."""
    if any(node.char is not None for node in nodes):
        raise refuse(f"{what} of char(n)")


def is_in(value: Node, choices: Sequence[Node]) -> Node:
    """IN: all literals are looked up in one pass over the rows."""
    without_char("IN with columns", *choices)
    if value.char is not None:
        if any(_width(choice) is None for choice in choices):
            raise refuse("IN of char(n) and anything but text literals")
        width = max(value.char, *(len(choice.value) for choice in choices))
        value, choices = _padded_to(value, width), [_padded_to(choice, width) for choice in choices]
    sets: dict[tuple[int, pa.DataType], tuple[Node, list[Any]]] = {}
    found: list[Node] = []
    for choice in choices:
        left, right, wide = _comparable("=", value, choice)
        if right.is_literal and right.value is not None:
            _, values = sets.setdefault((id(left) if left is not value else 0, wide), (left, []))
            values.append(as_type(right.run(NO_ROWS), wide))
        else:
            found.append(compare("=", value, choice))
    for (_, wide), (left, values) in sets.items():
        found.append(_is_one_of(left, values, wide))
    return reduce(disjunction, found)


def _is_one_of(value: Node, choices: Sequence[Any], wide: pa.DataType) -> Node:
    array = pa.concat_arrays([pa.repeat(choice, 1) for choice in choices])
    values = ValueSet.from_array(array)
    return apply_kernel(
        BOOLEAN,
        lambda rows: values.contains(pa.repeat(rows, 1))[0] if isinstance(rows, pa.Scalar) else values.contains(rows),
        apply_kernel(value.data_type, lambda found: as_type(found, wide), value),
    )


def _comparable(operator: str, left: Node, right: Node) -> tuple[Node, Node, pa.DataType]:
    one, other = left.data_type, right.data_type
    for node in (left, right):
        if not isinstance(node.data_type, (PrimitiveType, DecimalType)) or str(node.data_type) == "variant":
            raise refuse(f"{operator} of {node.data_type}")
    if one == VOID or other == VOID:
        typed = other if one == VOID else one
        return left, right, arrow_of(BOOLEAN if typed == VOID else typed)
    for text, number in ((left, other), (right, one)):
        # Spark compares fractions with strings as doubles.
        if text.is_literal and fits(text, STRING) and (number in FLOATING or isinstance(number, DecimalType)):
            return casts.cast(left, DOUBLE), casts.cast(right, DOUBLE), pa.float64()
    if is_number(one) and is_number(other) and one != other and (DecimalType in (type(one), type(other))):
        if one in FLOATING or other in FLOATING:
            return decimal_literal_as_double(left), decimal_literal_as_double(right), pa.float64()
        return left, right, _ANY_DECIMAL
    left, right, shared = common(operator, left, right)
    return left, right, arrow_of(shared)


def like(node: Node, pattern: Node, any_case: bool = False) -> Node:
    """LIKE with a literal pattern of % and _, both of which match line breaks. ``any_case``: ILIKE, for ASCII only."""
    word = "ILIKE" if any_case else "LIKE"
    if not (fits(node, STRING) and pattern.is_literal and isinstance(pattern.value, str)):
        raise refuse(f"{word} of anything but a string and a literal pattern")
    if any_case:
        if not pattern.value.isascii():
            raise refuse("ILIKE with a non-ASCII pattern")
        node, pattern = text.ascii_only(pc.utf8_lower)("ILIKE", node), literal(pattern.value.lower(), STRING)
    marks = {"%": ".*", "_": "."}
    regex = "".join(marks.get(c) or re.escape(c) for c in pattern.value)
    return apply_kernel(BOOLEAN, lambda values: pc.match_substring_regex(values, rf"(?s)\A{regex}\z"), node)


def starts_with(node: Node, prefix: str) -> Node:
    """LIKE with a literal prefix and a final %."""
    if not fits(node, STRING):
        raise refuse(f"startswith of {node.data_type}")
    return apply_kernel(BOOLEAN, lambda values: pc.starts_with(values, prefix), node)
