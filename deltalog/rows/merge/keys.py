"""Converts the equalities between source and target in a merge condition to key columns that Arrow can join. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import combined, row_numbers
from deltalog.errors import CallError
from deltalog.expressions.compile import CompiledExpression
from deltalog.expressions.tree import Expression
from deltalog.lazy_arrow import pc

_MAX_VALUES = 1 << 16  # number of distinct key values used for data skipping; beyond it, only minimum and maximum


@dataclass(frozen=True, slots=True)
class Key:
    """An equality between the target and the source of a merge. ``kind``: the Arrow type in which the values are
    compared. ``column``: the uncompiled expression for the target's side of the key. ``null_safe``: whether the
    operator is ``<=>``."""

    target: CompiledExpression
    source: CompiledExpression
    kind: Any
    null_safe: bool
    column: Expression


@dataclass(frozen=True, slots=True)
class KeyValues:
    """The source's values of a key. ``is_complete``: whether ``found`` contains all distinct values; if not, it
    contains the minimum and maximum, or nothing for a type without an order."""

    found: Any
    is_complete: bool = True

    def with_more(self, values: Any) -> KeyValues:
        """Add the non-null values of more rows."""
        if self.is_complete:
            values = pc.unique(pa.concat_arrays([self.found, values.drop_null()]))
            if len(values) <= _MAX_VALUES:
                return KeyValues(values)
        elif not len(self.found):
            return self
        try:
            ends = pc.min_max(values if self.is_complete else pa.concat_arrays([self.found, values]))
        except pa.ArrowException:
            return KeyValues(values.slice(0, 0), False)
        return KeyValues(pa.concat_arrays([pa.repeat(ends[end], 1) for end in ("min", "max")]), False)


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """The keys of the source rows that may match. ``rows``: a table with the columns of ``key_columns``, and ``s`` with
    the row numbers. ``unique``: a key column whose values are distinct, so that an index lookup can replace the join;
    None if there is no such column."""

    rows: pa.Table
    unique: str | None

    @classmethod
    def from_table(cls, rows: pa.Table) -> SourceKeys:
        """Memory: a second copy of the rows."""
        rows = rows.combine_chunks()
        return cls(rows, next((name for name in rows.schema.names if _is_unique(name, rows.column(name))), None))

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.rows.num_rows)

    def pairs(self, columns: Mapping[str, Any]) -> tuple[Any, Any]:
        """The row numbers of target and source rows with equal keys, as two arrays in the order of the target.
        ``columns``: the result of ``key_columns`` for the target's rows."""
        names = list(columns)
        if self.unique is None:
            left = pa.table({**columns, "t": row_numbers(len(columns[names[0]]))})
            found = left.join(self.rows.select([*names, "s"]), names, join_type="inner").select(["t", "s"])
            found = found.sort_by([("t", "ascending"), ("s", "ascending")])
            return combined(found.column("t")), combined(found.column("s"))
        values = combined(self.rows.column(self.unique))
        places = combined(pc.index_in(columns[self.unique], value_set=values, skip_nulls=True))
        target, source = pc.indices_nonzero(places.is_valid()).view(pa.int64()), places.drop_null()
        for name in names:
            if name != self.unique:
                are_equal = _equal(combined(columns[name]).take(target), combined(self.rows.column(name)).take(source))
                target, source = target.filter(are_equal), source.filter(are_equal)
        return target, combined(self.rows.column("s")).take(source)


def _is_unique(name: str, values: Any) -> bool:
    """Whether all values of a key column are distinct. False for floats, and for boolean key columns, because the
    latter only mark nulls of other key columns."""
    kind = values.type
    if not name.startswith("k") or _is_float(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return False
    return bool(len(pc.unique(values)) == len(values) - max(0, values.null_count - 1))


def _equal(one: Any, other: Any) -> Any:
    """Whether values are equal; NaN equals NaN, and a comparison with null gives null."""
    if not _is_float(one.type):
        return pc.equal(one, other)
    return pc.or_(pc.equal(one, other), pc.and_(pc.is_nan(one), pc.is_nan(other)))


def key_columns(keys: Sequence[Key], sides: Sequence[CompiledExpression], rows: pa.Table) -> dict[str, Any]:
    """The values of the keys, converted to columns for which Arrow's join behaves like Spark's: null equals null only
    for ``<=>``, NaN equals NaN, and -0.0 equals 0.0."""
    found: dict[str, Any] = {}
    for number, (key, side) in enumerate(zip(keys, sides, strict=True)):
        try:
            values = side.evaluate(rows)
            values = values if values.type == key.kind else values.cast(key.kind, safe=not _is_float(key.kind))
        except (pa.ArrowInvalid, OverflowError) as error:
            raise CallError(f"The condition {side.text} has no value for a row: {error}.") from None
        if _is_float(key.kind):
            values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), key.kind), pc.add(values, 0.0))
            values = values.cast(key.kind, safe=False)
        if key.null_safe:
            found[f"n{number}"] = pc.is_null(values)
            values = pc.fill_null(values, zero_of(key.kind))
        found[f"k{number}"] = values
    return found


def _is_float(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind))


def zero_of(kind: Any) -> Any:
    """A placeholder for null values, which are marked in a second column; None for types without a placeholder."""
    try:
        if kind in (pa.string(), pa.binary()):
            return pa.scalar("" if kind == pa.string() else b"", kind)
        return pa.array([0], pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)[0]
    except pa.ArrowException:
        return None
