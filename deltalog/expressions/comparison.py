"""The values of predicates, and how they compare with Arrow values: as in Spark. Pure.

NaN equals itself and is greater than every other number, and -0.0 equals 0.0. A value is held in the widest type of its
kind, so that 300 can be compared with a byte.
"""

from __future__ import annotations

import datetime
import decimal
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.arrow_arrays import array_of, combined, scalar
from deltalog.errors import CallError, InvalidTimestampError
from deltalog.protocol.schema import DataType, type_to_arrow
from deltalog.protocol.timestamps import parse_iso

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "<=>"]
_MOST_DIGITS = 400  # a double has 309


# ------------------------------------------------------------------------------------------------- values


def plain(value: Any) -> Any:
    """A scalar of Arrow, NumPy or pandas as a Python value; other values unchanged.

    Raises CallError for a time with a fraction of a microsecond, and for an Arrow scalar that Python cannot hold.
    """
    kind = type(value)
    if kind.__module__ in ("builtins", "datetime", "decimal"):
        return value
    if isinstance(value, pa.Scalar):
        return _from_arrow(value)
    package = kind.__module__.partition(".")[0]
    if package == "numpy" and hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        return _from_numpy(value)
    if package == "pandas" and kind.__name__ in ("NaTType", "NAType"):
        return None
    if package == "pandas" and kind.__name__ == "Timestamp":
        if value.nanosecond:
            raise CallError(f"{value!r} cannot be compared: timestamps in tables have microseconds.")
        return value.to_pydatetime()
    return value


def _from_numpy(value: Any) -> Any:
    if value.dtype.kind == "m":
        return value  # of no type that columns have
    if value.dtype.kind != "M":
        return value.item()
    if value != value:
        return None
    micros = value if value.dtype.str.endswith("[D]") else value.astype("datetime64[us]")
    if micros != value:
        raise CallError(f"{value!r} cannot be compared: timestamps in tables have microseconds.")
    return micros.item()


def _from_arrow(value: pa.Scalar) -> Any:
    try:
        if pa.types.is_timestamp(value.type):
            value = value.cast(pa.timestamp("us", value.type.tz))
        return value.as_py()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise CallError(f"{value!r} cannot be compared: {error}.") from None


def plain_values(values: Any) -> tuple[Any, ...]:
    """A list of values, an array of Arrow or NumPy, or a series, as Python values. Raises CallError."""
    if isinstance(values, (str, bytes, bytearray)) or not isinstance(values, Iterable):
        raise CallError(f"isin takes a list of values, not {values!r}. For one value write isin([value]), or use ==.")
    if isinstance(values, (pa.Array, pa.ChunkedArray)) and pa.types.is_timestamp(values.type):
        try:
            values = values.cast(pa.timestamp("us", values.type.tz))
        except pa.ArrowException as error:
            raise CallError(f"The values of isin cannot be compared: {error}.") from None
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        try:
            return tuple(values.to_pylist())
        except (ValueError, OverflowError) as error:
            raise CallError(f"The values of isin cannot be compared: {error}.") from None
    return tuple(map(plain, values))


def coerced(value: Any, data_type: DataType, column: str) -> Any:
    """A literal as a Python value of a column's type, without loss. Raises CallError."""
    if value is None:
        return None
    try:
        converted = _coerced(value, str(data_type))
        if converted is not None:
            scalar(converted, comparable_type(data_type))
            return converted
    except _UNFIT:
        pass
    raise CallError(f"{_shown(value)} cannot be compared with column {column}, which is {data_type}.")


def coerced_values(values: Sequence[Any], data_type: DataType, column: str) -> tuple[Any, ...]:
    """As ``coerced``, of many values at once."""
    name = str(data_type)
    try:
        converted = tuple(None if value is None else _coerced(value, name) for value in values)
        if converted.count(None) == values.count(None):
            array_of(converted, comparable_type(data_type))
            return converted
    except _UNFIT:
        pass
    return tuple(coerced(value, data_type, column) for value in values)


_UNFIT = (ValueError, TypeError, ArithmeticError, InvalidTimestampError, pa.ArrowException)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _coerced(value: Any, name: str) -> Any:
    number = isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)
    if isinstance(value, decimal.Decimal) and value.adjusted() > _MOST_DIGITS:
        return None  # as an int it could take all memory
    if name in ("byte", "short", "integer", "long"):
        return int(value) if number and int(value) == value else None
    if name in ("float", "double"):
        return float(value) if number else None
    if name.startswith("decimal"):
        return decimal.Decimal(str(value)) if number else None
    if name == "string":
        return value if isinstance(value, str) else None
    if name == "boolean":
        return value if isinstance(value, bool) else None
    if name == "binary":
        return bytes(value) if isinstance(value, (bytes, bytearray)) else None
    moment = parse_iso(value) if isinstance(value, str) else value
    if name == "date":
        if isinstance(moment, datetime.datetime):
            return moment.date() if isinstance(value, str) else None
        return moment if isinstance(moment, datetime.date) else None
    if not isinstance(moment, datetime.datetime) or (moment.tzinfo is None) != (name == "timestamp_ntz"):
        return None  # a naive value names no instant, and an aware one is not a wall clock
    return moment


def comparable_type(data_type: DataType) -> pa.DataType:
    """The type in which values of a column are compared."""
    name = str(data_type)
    if name in ("byte", "short", "integer", "long"):
        return pa.int64()
    if name in ("float", "double"):
        return pa.float64()
    if name.startswith("decimal"):
        return pa.decimal256(76, 38)
    return type_to_arrow(data_type)


# -------------------------------------------------------------------------------------------- comparisons


def compare(values: Any, operator: Operator, value: Any, data_type: DataType) -> Any:
    """Values of a type against a literal. Null where a value is null."""
    wide = comparable_type(data_type)
    kernels = FLOAT_COMPARISONS if pa.types.is_floating(wide) else COMPARISONS
    return kernels[operator](_widened(values, wide), scalar(value, wide))


def _widened(values: Any, wide: pa.DataType) -> Any:
    return values if values.type == wide else values.cast(wide)


def _float_equal(one: Any, other: Any) -> Any:
    return pc.or_kleene(pc.equal(one, other), pc.and_kleene(pc.is_nan(one), pc.is_nan(other)))


def _float_less(one: Any, other: Any) -> Any:
    return pc.or_kleene(pc.less(one, other), pc.and_kleene(pc.invert(pc.is_nan(one)), pc.is_nan(other)))


COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
# NaN equals itself and is the greatest number.
FLOAT_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": _float_equal,
    "!=": lambda one, other: pc.invert(_float_equal(one, other)),
    "<": _float_less,
    "<=": lambda one, other: pc.invert(_float_less(other, one)),
    ">": lambda one, other: _float_less(other, one),
    ">=": lambda one, other: pc.invert(_float_less(one, other)),
}


# ------------------------------------------------------------------------------------------ sets of values

# Below as many rows, a set is cut to the values between the least and the greatest row before it is hashed.
_FEW_ROWS = 1 << 14


@dataclass(frozen=True)
class ValueSet:
    """Values of one type, for one pass over any number of rows. ``array``: sorted, each value once, no null."""

    array: Any
    has_null: bool = False

    @classmethod
    def of(cls, values: Sequence[Any], data_type: DataType) -> ValueSet:
        """A set of values that ``coerced_values`` has given; None is null."""
        return cls.of_array(array_of([v for v in values if v is not None], comparable_type(data_type)), None in values)

    @classmethod
    def of_array(cls, array: Any, has_null: bool = False) -> ValueSet:
        """A set of the values of an Arrow array without nulls."""
        unique = _hashable(combined(array)).unique()
        return cls(unique.take(pc.sort_indices(unique)), has_null)

    @cached_property
    def has_nan(self) -> bool:
        """Whether NaN is one of the values."""
        return pa.types.is_floating(self.array.type) and bool(pc.any(pc.is_nan(self.array)).as_py())

    def contains(self, values: Any) -> Any:
        """Whether each value is in the set; null where it is null, and instead of false where the set has a null."""
        values = _hashable(_widened(values, self.array.type))
        found = pc.is_in(values, value_set=self._between_ends(values))
        if self.has_null:
            return pc.if_else(found, found, None)
        return pc.if_else(pc.is_valid(values), found, None) if values.null_count else found

    def any_between(self, low: Any, high: Any) -> Any:
        """For each pair of bounds, whether a value lies between them, both included; null where a bound is null."""
        numbers = self._numbers
        pairs = zip(_numbered(low).to_pylist(), _numbered(high).to_pylist(), strict=True)
        found = [None if a is None or b is None else _has_between(numbers, a, b) for a, b in pairs]
        return array_of(found, pa.bool_())

    def _between_ends(self, values: Any) -> Any:
        if len(values) >= _FEW_ROWS or len(self.array) <= len(values) or pa.types.is_boolean(values.type):
            return self.array
        least, greatest = (pc.min_max(values)[side] for side in ("min", "max"))
        if pa.types.is_floating(values.type) or not least.is_valid:
            return self.array  # NaN is beyond both ends
        numbers = self._numbers
        start = bisect_left(numbers, _number(least))
        end = bisect_left(numbers, _number(greatest), start)
        return self.array.slice(start, end + 1 - start)

    @cached_property
    def _numbers(self) -> list[Any]:
        """The values as Python values in their order, without NaN; times as their numbers, since Python's years end."""
        values = self.array
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        found: list[Any] = _numbered(values).to_pylist()
        return found


def _has_between(numbers: Sequence[Any], low: Any, high: Any) -> bool:
    place = bisect_left(numbers, low)
    return place < len(numbers) and numbers[place] <= high


def _hashable(values: Any) -> Any:
    """Arrow's hash tables tell -0.0 from 0.0."""
    return pc.add(values, 0.0) if pa.types.is_floating(values.type) else values


def _numbered(values: Any) -> Any:
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    return values.cast(pa.int32()) if pa.types.is_date(values.type) else values


def _number(value: pa.Scalar) -> Any:
    return _numbered(value).as_py()
