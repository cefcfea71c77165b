"""The types of values, and the common type of several values. Pure."""

from __future__ import annotations

import decimal
from collections.abc import Mapping

import pyarrow as pa

from deltalog.errors import CallError
from deltalog.protocol.schema import DataType, DecimalType, PrimitiveType, type_to_arrow

BOOLEAN, STRING, BINARY, VOID = (PrimitiveType(n) for n in ("boolean", "string", "binary", "void"))
BYTE, SHORT, INTEGER, LONG = (PrimitiveType(n) for n in ("byte", "short", "integer", "long"))
FLOAT, DOUBLE = PrimitiveType("float"), PrimitiveType("double")
DATE, TIMESTAMP, TIMESTAMP_NTZ = (PrimitiveType(n) for n in ("date", "timestamp", "timestamp_ntz"))
# The interval types: day intervals, day-time intervals and month intervals. Columns cannot have interval types.
DAYS, DAY_TIME = PrimitiveType("interval day"), PrimitiveType("interval day to second")
YEAR_MONTH = PrimitiveType("interval year to month")
INTERVALS: tuple[DataType, ...] = (DAYS, DAY_TIME, YEAR_MONTH)
INTEGRAL: tuple[DataType, ...] = (BYTE, SHORT, INTEGER, LONG)
FLOATING: tuple[DataType, ...] = (FLOAT, DOUBLE)
BY_WIDTH = (*INTEGRAL, *FLOATING)
TEMPORAL: tuple[DataType, ...] = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
DIGITS: Mapping[DataType, int] = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 20}
# By SQL name.
TYPE_NAMES: Mapping[str, DataType] = {
    "boolean": BOOLEAN,
    "string": STRING,
    "binary": BINARY,
    "float": FLOAT,
    "real": FLOAT,
    "double": DOUBLE,
    "tinyint": BYTE,
    "byte": BYTE,
    "smallint": SHORT,
    "short": SHORT,
    "int": INTEGER,
    "integer": INTEGER,
    "bigint": LONG,
    "long": LONG,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}
_MAX_PRECISION = 38
MICROS = pa.timestamp("us")


def refuse(what: str, instead: str = "") -> CallError:
    """The CallError for an unsupported construct. ``instead``: a sentence that follows."""
    return CallError(f"{what} is not supported{instead}")


def arrow_of(data_type: DataType) -> pa.DataType:
    """The Arrow type for a data type or interval type."""
    if data_type == YEAR_MONTH:
        return pa.int32()
    return pa.duration("us") if data_type in INTERVALS else type_to_arrow(data_type)


def is_number(data_type: DataType) -> bool:
    return data_type in BY_WIDTH or isinstance(data_type, DecimalType)


def decimal_of(value: decimal.Decimal) -> DecimalType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise refuse(f"The decimal {value}")  # NaN or infinite
    scale = max(0, -exponent)
    return decimal_type(max(len(digits) + max(0, exponent), scale), scale)


def decimal_type(precision: int, scale: int) -> DecimalType:
    """A decimal type. Types with more than 38 digits are refused; Spark would reduce the scale or overflow."""
    if precision > _MAX_PRECISION:
        raise refuse(f"decimal({precision},{scale}), of more than {_MAX_PRECISION} digits,")
    return DecimalType(precision, scale)


def widest(what: str, kinds: set[DataType]) -> DataType:
    if len(kinds) == 1:
        return next(iter(kinds))
    if not kinds:
        return VOID
    if kinds <= set(BY_WIDTH):
        widest = max(kinds, key=BY_WIDTH.index)
        # Integers can have more digits than a float can represent.
        return DOUBLE if widest == FLOAT else widest
    if kinds <= {DAYS, DAY_TIME}:
        return DAY_TIME
    if kinds <= {DATE, TIMESTAMP, TIMESTAMP_NTZ}:
        return TIMESTAMP if TIMESTAMP in kinds else TIMESTAMP_NTZ
    if kinds <= {*INTEGRAL} | {k for k in kinds if isinstance(k, DecimalType)}:
        sizes = [(k.precision, k.scale) if isinstance(k, DecimalType) else (DIGITS[k], 0) for k in kinds]
        scale = max(s for _, s in sizes)
        return decimal_type(max(p - s for p, s in sizes) + scale, scale)
    raise refuse(f"{what} of {' and '.join(sorted(map(str, kinds)))} together")
