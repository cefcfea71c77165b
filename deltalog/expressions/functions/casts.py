"""CAST in ANSI mode. Pure."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.expressions.functions.nodes import Node, any_true, literal, made
from deltalog.expressions.functions.types import (
    BOOLEAN,
    BY_WIDTH,
    BYTE,
    DATE,
    DIGITS,
    DOUBLE,
    FLOATING,
    INTEGER,
    INTEGRAL,
    LONG,
    MICROS,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    refuse,
)
from deltalog.protocol.schema import DataType, DecimalType, type_to_arrow


def cast(node: Node, wanted: DataType) -> Node:
    """CAST in ANSI mode, between types for which all engines agree."""
    have = node.data_type
    if have == wanted:
        return node
    if node.is_literal and node.value is None:
        return literal(None, wanted)
    if isinstance(wanted, DecimalType):
        return _cast_to_decimal(node, wanted)
    kernel = _CASTS.get((have, wanted))
    if kernel is not None:
        return made(wanted, kernel, node, can_fail=True)
    if have in BY_WIDTH and wanted in BY_WIDTH:
        return _cast_number(node, wanted)
    if have in INTEGRAL and wanted == STRING:
        return made(STRING, lambda values: values.cast(pa.string()), node)
    if have == STRING and wanted in INTEGRAL:
        arrow = type_to_arrow(wanted)
        return made(wanted, lambda values: _text_to_integer(values, arrow), node, can_fail=True)
    if isinstance(have, DecimalType) and wanted in FLOATING:
        if node.is_literal and wanted == DOUBLE:
            return literal(float(node.value), DOUBLE)
        # Arrow's own conversion of decimals is not always the nearest number, as Java's is; that of text is.
        return made(wanted, lambda values: values.cast(pa.string()).cast(type_to_arrow(wanted)), node)
    raise refuse(f"CAST from {have} to {wanted}")


def _cast_number(node: Node, wanted: DataType) -> Node:
    arrow = type_to_arrow(wanted)
    if wanted in FLOATING:
        return made(wanted, lambda values: values.cast(arrow, safe=False), node)
    if node.data_type in FLOATING:
        return made(wanted, lambda values: finite(values).cast(arrow), node, can_fail=True)
    return made(wanted, lambda values: values.cast(arrow), node, can_fail=True)


def finite(values: Any) -> Any:
    if any_true(pc.invert(pc.is_finite(values))):
        raise pa.ArrowInvalid("a number that is not finite is no whole number")
    return pc.trunc(values)


def _cast_to_decimal(node: Node, wanted: DecimalType) -> Node:
    arrow = type_to_arrow(wanted)
    if node.is_literal and (node.data_type in INTEGRAL or isinstance(node.data_type, DecimalType)):
        value = decimal.Decimal(node.value)
        exact = -int(value.as_tuple().exponent) <= wanted.scale
        if exact:
            return literal(value, wanted)
    have = node.data_type
    source = DecimalType(DIGITS[have], 0) if have in INTEGRAL else have
    if not isinstance(source, DecimalType):
        raise refuse(f"CAST from {node.data_type} to {wanted}")
    through = type_to_arrow(source)
    if source.scale <= wanted.scale:
        return made(wanted, lambda values: values.cast(through).cast(arrow), node, can_fail=True)
    # Rounding may carry into one more digit.
    wider = pa.decimal256(source.precision + 1, source.scale)

    def rounded(values: Any) -> Any:
        return pc.round(values.cast(wider), wanted.scale, round_mode="half_towards_infinity").cast(arrow)

    return made(wanted, rounded, node, can_fail=True)


# What Spark takes away around a text before it reads a number.
_BLANKS = "".join(map(chr, (*range(0x21), 0x7F)))


def _text_to_integer(values: Any, wanted: pa.DataType) -> Any:
    bare = pc.utf8_trim(values, characters=_BLANKS)
    if any_true(pc.invert(pc.match_substring_regex(bare, r"\A[+-]?[0-9]+\z"))):
        raise pa.ArrowInvalid("a text is no whole number")
    return pc.utf8_ltrim(bare, characters="+").cast(wanted)


def _text_to_date(values: Any) -> Any:
    bare = pc.utf8_trim(values, characters=_BLANKS)
    if any_true(pc.invert(pc.match_substring_regex(bare, r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"))):
        raise pa.ArrowInvalid("a text is no date of the form yyyy-MM-dd")
    return bare.cast(pa.date32())


def _timestamp_to_text(values: Any) -> Any:
    text = in_common_years(values.cast(MICROS)).cast(pa.string())
    return pc.utf8_rtrim(pc.utf8_rtrim(text, characters="0"), characters=".")


def in_common_years(values: Any) -> Any:
    """Values as they are; other years are written in ways of their own by each engine."""
    year = pc.year(values)
    if any_true(pc.or_(pc.less(year, 1), pc.greater(year, 9999))):
        raise pa.ArrowInvalid("a year outside 1 to 9999 is not written as text")
    return values


_CASTS: Mapping[tuple[DataType, DataType], Callable[[Any], Any]] = {
    (DATE, TIMESTAMP): lambda values: values.cast(MICROS).cast(pa.timestamp("us", "UTC")),
    (DATE, TIMESTAMP_NTZ): lambda values: values.cast(MICROS),
    (TIMESTAMP, DATE): lambda values: floored(values, "day").cast(pa.date32()),
    (TIMESTAMP_NTZ, DATE): lambda values: floored(values, "day").cast(pa.date32()),
    (TIMESTAMP, TIMESTAMP_NTZ): lambda values: values.cast(MICROS),
    (TIMESTAMP_NTZ, TIMESTAMP): lambda values: values.cast(pa.timestamp("us", "UTC")),
    (DATE, STRING): lambda values: in_common_years(values).cast(pa.string()),
    (TIMESTAMP, STRING): _timestamp_to_text,
    (TIMESTAMP_NTZ, STRING): _timestamp_to_text,
    (BOOLEAN, STRING): lambda values: values.cast(pa.string()),
    (STRING, DATE): _text_to_date,
    (BOOLEAN, BYTE): lambda values: values.cast(pa.int8()),
    (BOOLEAN, SHORT): lambda values: values.cast(pa.int16()),
    (BOOLEAN, INTEGER): lambda values: values.cast(pa.int32()),
    (BOOLEAN, LONG): lambda values: values.cast(pa.int64()),
}


def floored(values: Any, unit: str) -> Any:
    wall = values.cast(MICROS) if pa.types.is_timestamp(values.type) else values
    return pc.floor_temporal(wall, unit=unit)
