"""Comparison of values in Arrow arrays, with Spark's semantics. Pure.

NaN equals itself and is greater than every other number, and -0.0 equals 0.0. Values are compared in the widest type of
their kind, so that, for example, a byte can be compared with 300.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import array_of, combined, scalar
from deltalog.expressions.literals import comparable_type
from deltalog.lazy_arrow import pc
from deltalog.protocol.schema import DataType


def compare(values: Any, operator: str, value: Any, data_type: DataType) -> Any:
    """Compare values of a type with a literal. Null where a value is null."""
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

# For fewer rows than this, a set is cut to the range between the least and the greatest value in the rows before it is
# hashed.
_FEW_ROWS = 1 << 14


@dataclass(frozen=True)
class ValueSet:
    """Values of one type, to be searched for in any number of rows in one pass. ``array``: an array whose values are
    sorted and unique, without nulls."""

    array: Any
    has_null: bool = False

    @classmethod
    def from_values(cls, values: Sequence[Any], data_type: DataType) -> ValueSet:
        """The set of values that ``coerced_values`` returned; None is null."""
        return cls.from_array(
            array_of([v for v in values if v is not None], comparable_type(data_type)), None in values
        )

    @classmethod
    def from_array(cls, array: Any, has_null: bool = False) -> ValueSet:
        """The set of the values of an Arrow array that contains no nulls."""
        unique = _hashable(combined(array)).unique()
        return cls(unique.take(pc.sort_indices(unique)), has_null)

    def without_null(self) -> ValueSet:
        """The same values, without null."""
        return ValueSet(self.array)

    @cached_property
    def has_nan(self) -> bool:
        """Whether the set contains NaN."""
        return pa.types.is_floating(self.array.type) and bool(pc.any(pc.is_nan(self.array)).as_py())

    def contains(self, values: Any) -> Any:
        """Whether each value is in the set. The result is null for a null value, and null instead of false if the set
        contains null."""
        values = _hashable(_widened(values, self.array.type))
        found = pc.is_in(values, value_set=self._between_ends(values))
        if self.has_null:
            return pc.if_else(found, found, None)
        return pc.if_else(pc.is_valid(values), found, None) if values.null_count else found

    def any_between(self, low: Any, high: Any) -> Any:
        """For each pair of bounds, whether the set has a value between them, both included; null for a null bound."""
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
        """The values as sorted Python values, without NaN. Dates and timestamps are integers, because Python supports
        only the years 1 to 9999."""
        values = self.array
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        found: list[Any] = _numbered(values).to_pylist()
        return found


def _has_between(numbers: Sequence[Any], low: Any, high: Any) -> bool:
    place = bisect_left(numbers, low)
    return place < len(numbers) and not numbers[place] > high  # no number is greater than NaN


def _hashable(values: Any) -> Any:
    """The values with -0.0 replaced by 0.0, because Arrow's hash tables treat the two as different values."""
    return pc.add(values, 0.0) if pa.types.is_floating(values.type) else values


def _numbered(values: Any) -> Any:
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    return values.cast(pa.int32()) if pa.types.is_date(values.type) else values


def _number(value: pa.Scalar) -> Any:
    return _numbered(value).as_py()
