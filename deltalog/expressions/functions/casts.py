"""CAST in ANSI mode. Pure."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import ZERO
from deltalog.expressions.functions.nested import cast_inside
from deltalog.expressions.functions.nodes import Node, Rows, any_true, apply_kernel, column, literal
from deltalog.expressions.functions.types import (
    BINARY,
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
from deltalog.lazy_arrow import pc
from deltalog.protocol.schema import ArrayType, DataType, DecimalType, MapType, StructType, type_to_arrow


def cast(node: Node, wanted: DataType) -> Node:
    """CAST in ANSI mode, between types whose conversion has the same result in all engines."""
    have = node.data_type
    if have == wanted:
        return node
    if node.is_literal and node.value is None:
        return literal(None, wanted)
    if isinstance(have, (StructType, ArrayType, MapType)):
        return cast_inside(node, wanted, _caster)
    if isinstance(wanted, DecimalType) and have != STRING:
        return _cast_to_decimal(node, wanted)
    kernel = _CASTS.get((have, wanted))
    if kernel is not None:
        return apply_kernel(wanted, kernel, node, can_fail=True)
    if have in BY_WIDTH and wanted in BY_WIDTH:
        return _cast_number(node, wanted)
    if have in INTEGRAL and wanted == STRING:
        return apply_kernel(STRING, lambda values: values.cast(pa.string()), node)
    if have == STRING and wanted in INTEGRAL:
        arrow = type_to_arrow(wanted)
        return apply_kernel(wanted, lambda values: _text_to_integer(values, arrow), node, can_fail=True)
    if have == STRING and wanted in FLOATING:
        return apply_kernel(wanted, _text_to_double(type_to_arrow(wanted)), node, can_fail=True)
    if have == STRING and isinstance(wanted, DecimalType):
        return apply_kernel(wanted, _text_to_decimal(wanted), node, can_fail=True)
    if isinstance(have, DecimalType) and wanted in INTEGRAL:
        return apply_kernel(wanted, lambda values: _whole_part(values).cast(type_to_arrow(wanted)), node, can_fail=True)
    if isinstance(have, DecimalType) and wanted == STRING and have.scale < 7:
        return apply_kernel(STRING, lambda values: values.cast(pa.string()), node)
    if have == BOOLEAN and wanted in FLOATING:
        return apply_kernel(wanted, lambda values: values.cast(type_to_arrow(wanted)), node)
    if wanted == BOOLEAN and (have in BY_WIDTH or isinstance(have, DecimalType)):
        return apply_kernel(BOOLEAN, lambda values: pc.not_equal(values, _zero(values.type)), node)
    if isinstance(have, DecimalType) and wanted in FLOATING:
        if node.is_literal and wanted == DOUBLE:
            return literal(float(node.value), DOUBLE)
        # Java converts a decimal to the nearest number. Arrow is certain to return the nearest number only if the
        # decimal is first cast to a string.
        return apply_kernel(wanted, lambda values: values.cast(pa.string()).cast(type_to_arrow(wanted)), node)
    raise refuse(f"CAST from {have} to {wanted}")


def try_cast(node: Node, wanted: DataType) -> Node:
    """TRY_CAST: like ``cast``, but values that cannot be cast become null. Cost: for each such value, a few more
    casts."""
    if not cast(node, wanted).can_fail:
        return cast(node, wanted)
    cast_all = _caster(node.data_type, wanted)
    arrow = type_to_arrow(wanted)

    def run(values: Any) -> Any:
        try:
            return cast_all(values)
        except pa.ArrowException:
            if len(values) <= 1:
                return pa.nulls(len(values), arrow)
            middle = len(values) // 2
            return pa.concat_arrays([run(values[:middle]), run(values[middle:])])

    def kernel(values: Any) -> Any:
        if isinstance(values, pa.Scalar):
            return run(pa.repeat(values, 1))[0]
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        try:
            return cast_all(values)
        except pa.ArrowException:  # most columns have few distinct values, so each distinct value is cast once
            encoded = values.dictionary_encode()
            return run(encoded.dictionary).take(encoded.indices)

    return apply_kernel(wanted, kernel, node)


def _caster(have: DataType, wanted: DataType) -> Callable[[Any], Any]:
    """A function that casts arrays of nested values. Raises CallError."""
    place = ("",)
    node = cast(column(place, have), wanted)

    def run(values: Any) -> Any:
        rows = Rows({place: values}, len(values))
        return rows.array(node.run(rows))

    return run


def _zero(kind: pa.DataType) -> pa.Scalar:
    return pa.repeat(ZERO, 1).cast(pa.string()).cast(kind)[0]


def _cast_number(node: Node, wanted: DataType) -> Node:
    arrow = type_to_arrow(wanted)
    if wanted in FLOATING:
        return apply_kernel(wanted, lambda values: values.cast(arrow, safe=False), node)
    if node.data_type in FLOATING:
        return apply_kernel(wanted, lambda values: finite(values).cast(arrow), node, can_fail=True)
    return apply_kernel(wanted, lambda values: values.cast(arrow), node, can_fail=True)


def finite(values: Any) -> Any:
    if any_true(pc.invert(pc.is_finite(values))):
        raise pa.ArrowInvalid("NaN and infinity cannot be cast to an integer")
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
        return apply_kernel(wanted, lambda values: values.cast(through).cast(arrow), node, can_fail=True)
    # Rounding may carry into an additional digit.
    wider = pa.decimal256(source.precision + 1, source.scale)

    def rounded(values: Any) -> Any:
        return pc.round(values.cast(wider), wanted.scale, round_mode="half_towards_infinity").cast(arrow)

    return apply_kernel(wanted, rounded, node, can_fail=True)


# The characters that Spark trims from a string before it reads a number.
_BLANKS = "".join(map(chr, (*range(0x21), 0x7F)))


def _text_to_integer(values: Any, wanted: pa.DataType) -> Any:
    bare = pc.utf8_trim(values, characters=_BLANKS)
    if any_true(pc.invert(pc.match_substring_regex(bare, r"\A[+-]?[0-9]+\z"))):
        raise pa.ArrowInvalid("a string is not an integer")
    return pc.utf8_ltrim(bare, characters="+").cast(wanted)


_FLOATING_TEXT = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?\z"
_INFINITE = r"(?i)\A[+-]?inf(inity)?\z"


def _text_to_double(wanted: pa.DataType) -> Callable[[Any], Any]:
    def run(values: Any) -> Any:
        bare = pc.utf8_trim(values, characters=_BLANKS)
        is_word = pc.or_(pc.match_substring_regex(bare, _INFINITE), pc.match_substring_regex(bare, r"(?i)\Anan\z"))
        if any_true(pc.invert(pc.or_(is_word, pc.match_substring_regex(bare, _FLOATING_TEXT)))):
            raise pa.ArrowInvalid("a string is not a number")
        bare = pc.if_else(is_word, bare, pc.utf8_rtrim(bare, characters="dDfF"))
        return pc.utf8_lower(pc.utf8_ltrim(bare, characters="+")).cast(wanted)

    return run


_DECIMAL_TEXT = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)\z"
_MOST_PLACES = 38


def _text_to_decimal(wanted: DecimalType) -> Callable[[Any], Any]:
    """Cast strings without exponents to decimals; values with more digits than the decimal's scale are rounded half
    up."""
    wider, arrow = pa.decimal256(76, _MOST_PLACES), type_to_arrow(wanted)

    def run(values: Any) -> Any:
        bare = pc.utf8_trim(values, characters=_BLANKS)
        if any_true(pc.invert(pc.match_substring_regex(bare, _DECIMAL_TEXT))):
            raise pa.ArrowInvalid("a string is not a decimal number without an exponent")
        # Arrow accepts neither a decimal point without digits on both sides nor more decimal places than the type has.
        bare = pc.replace_substring_regex(bare, r"\A\+", "")
        bare = pc.replace_substring_regex(bare, r"\A(-?)\.", r"\10.")
        bare = pc.replace_substring_regex(bare, r"\.\z", "")
        if any_true(pc.match_substring_regex(bare, rf"\.[0-9]{{{_MOST_PLACES + 1},}}")):
            raise pa.ArrowInvalid(f"a string has more than {_MOST_PLACES} decimal places")
        return pc.round(bare.cast(wider), wanted.scale, round_mode="half_towards_infinity").cast(arrow)

    return run


def _whole_part(values: Any) -> Any:
    """Decimals truncated towards zero, as strings: Arrow has no truncating cast."""
    return pc.replace_substring_regex(values.cast(pa.string()), r"\..*\z", "")


_TRUE, _FALSE = r"(?i)\A(t|true|y|yes|1)\z", r"(?i)\A(f|false|n|no|0)\z"


def _text_to_boolean(values: Any) -> Any:
    bare = pc.utf8_trim(values, characters=_BLANKS)
    is_true = pc.match_substring_regex(bare, _TRUE)
    if any_true(pc.invert(pc.or_(is_true, pc.match_substring_regex(bare, _FALSE)))):
        raise pa.ArrowInvalid("a string is neither true nor false")
    return is_true


_TIMESTAMP_TEXT = r"\A([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(\.[0-9]{1,6})?)?)?"
_ZONE_TEXT = r"(Z|[+-][0-9]{2}:[0-9]{2})?"


def _text_to_timestamp(values: Any) -> Any:
    """Cast strings of the form yyyy-MM-dd[ HH:mm[:ss[.ffffff]]][Z|+HH:mm]; without a zone, they are in UTC."""
    bare = pc.utf8_trim(values, characters=_BLANKS)
    if any_true(pc.invert(pc.match_substring_regex(bare, rf"{_TIMESTAMP_TEXT}{_ZONE_TEXT}\z"))):
        raise pa.ArrowInvalid("a string is not a timestamp of the form yyyy-MM-dd[ HH:mm[:ss[.ffffff]]][Z]")
    has_zone = pc.match_substring_regex(bare, r":.*(Z|[+-][0-9]{2}:[0-9]{2})\z")
    if any_true(pc.and_(pc.invert(has_zone), pc.match_substring_regex(bare, r"Z\z"))):
        raise pa.ArrowInvalid("a date cannot have a zone")
    zoned = pc.if_else(has_zone, bare, pc.binary_join_element_wise(_with_time(bare), "Z", ""))
    return zoned.cast(pa.timestamp("us", "UTC"))


def _with_time(bare: Any) -> Any:
    return pc.if_else(pc.match_substring(bare, ":"), bare, pc.binary_join_element_wise(bare, " 00:00:00", ""))


def _since_epoch(values: Any) -> Any:
    """Whole seconds since 1970, rounded down."""
    return pc.floor_temporal(values.cast(MICROS), unit="second").cast(pa.timestamp("s"), safe=False).cast(pa.int64())


def _text_to_date(values: Any) -> Any:
    bare = pc.utf8_trim(values, characters=_BLANKS)
    if any_true(pc.invert(pc.match_substring_regex(bare, r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"))):
        raise pa.ArrowInvalid("a string is not a date of the form yyyy-MM-dd")
    return bare.cast(pa.date32())


def _timestamp_to_text(values: Any) -> Any:
    text = in_common_years(values.cast(MICROS)).cast(pa.string())
    return pc.utf8_rtrim(pc.utf8_rtrim(text, characters="0"), characters=".")


def in_common_years(values: Any) -> Any:
    """The values, checked to be in the years 1 to 9999: engines write other years differently."""
    year = pc.year(values)
    if any_true(pc.or_(pc.less(year, 1), pc.greater(year, 9999))):
        raise pa.ArrowInvalid("a year outside 1 to 9999 cannot be written as text")
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
    (STRING, TIMESTAMP): _text_to_timestamp,
    (STRING, BOOLEAN): _text_to_boolean,
    (STRING, BINARY): lambda values: values.cast(pa.binary()),
    (TIMESTAMP, LONG): _since_epoch,
    (LONG, TIMESTAMP): lambda values: pc.multiply_checked(values, 1_000_000).cast(pa.timestamp("us", "UTC")),
    (BOOLEAN, BYTE): lambda values: values.cast(pa.int8()),
    (BOOLEAN, SHORT): lambda values: values.cast(pa.int16()),
    (BOOLEAN, INTEGER): lambda values: values.cast(pa.int32()),
    (BOOLEAN, LONG): lambda values: values.cast(pa.int64()),
}


def floored(values: Any, unit: str) -> Any:
    wall = values.cast(MICROS) if pa.types.is_timestamp(values.type) else values
    return pc.floor_temporal(wall, unit=unit)
