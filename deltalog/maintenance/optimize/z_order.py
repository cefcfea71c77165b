"""Z-order: maps each row to a number so that rows with similar values in several columns get similar numbers. Pure.

Each column is divided into ranges with about equally many sampled rows; a row's Z-order value interleaves the bits of
its range numbers in all columns.

Spec: PROTOCOL.md leaves the order of rows to writers; a suitable order makes the statistics (#per-file-statistics) more
selective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import FALSE, int64s, scalar
from deltalog.errors import CallError
from deltalog.expressions.bind import find_fields
from deltalog.lazy_arrow import pc
from deltalog.protocol.column_paths import Path, parse_path, path_text
from deltalog.protocol.schema import VARIANT, ArrayType, DataType, MapType, StructType

#: The number of bits in a range number; fewer are used if there are many columns.
_BITS = 12
_ALL_BITS = 62


def column_paths(
    columns: Sequence[str | Sequence[str]], schema: StructType, partition_columns: Sequence[str]
) -> list[Path]:
    """Resolve columns to paths in the schema. Raises CallError for unknown, duplicate or incomparable columns."""
    paths: list[Path] = []
    for column in columns:
        fields = find_fields(parse_path(column), schema)
        path = tuple(field.name for field in fields)
        name = path_text(path)
        if path[0] in partition_columns:
            raise CallError(
                f"{name} is a partition column. Z-Ordering can only be performed on data columns, within partitions. "
                "Omit it."
            )
        if path in paths:
            raise CallError(f"The column {name} is named twice.")
        if _is_nested(fields[-1].data_type):
            raise CallError(f"Rows cannot be ordered by {name}, a column of type {fields[-1].data_type}.")
        paths.append(path)
    if not paths or len(paths) > _ALL_BITS:
        raise CallError(f"Pass 1 to {_ALL_BITS} columns to order by; got {len(paths)}.")
    return paths


def _is_nested(data_type: DataType) -> bool:
    return isinstance(data_type, (StructType, ArrayType, MapType)) or data_type == VARIANT


def values_of(rows: pa.Table | pa.RecordBatch, path: Sequence[str]) -> Any:
    """A column as a single array of comparable values: NaN is greater than all other numbers."""
    values = rows.column(path[0])
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    for name in path[1:]:
        values = pc.struct_field(values, name)
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), scalar(float("inf"), values.type), values)
    return values


def quantiles(sample: Any, ranges: int) -> Any:
    """Up to ``ranges - 1`` distinct values, in order, that divide a sample into parts of about equal size."""
    ordered = sample.drop_null()
    ordered = ordered.take(pc.array_sort_indices(ordered))
    at = sorted({number * len(ordered) // ranges for number in range(1, ranges)}) if len(ordered) else []
    return pc.unique(ordered.take(int64s(at)))


def range_numbers(values: Any, bounds: Any, bits: int) -> Any:
    """For each value, the number of ``bounds`` that are less than or equal to it; 0 for nulls.

    ``bounds``: the sorted bounds, fewer than 2 ** ``bits``. A vectorized binary search, whose memory and time are those
    of ``bits`` columns with one number per value.
    """
    padded = pa.concat_arrays([bounds, pa.nulls((1 << bits) - 1 - len(bounds), bounds.type)])
    found = pa.repeat(scalar(0, pa.int64()), len(values))
    for bit in reversed(range(bits)):
        step = scalar(1 << bit, pa.int64())
        last = scalar((1 << bit) - 1, pa.int64())
        is_above = pc.greater_equal(values, padded.take(pc.add(found, last)))
        found = pc.if_else(pc.fill_null(is_above, FALSE), pc.add(found, step), found)
    return found


@dataclass(frozen=True)
class Curve:
    """The Z-order curve of columns. ``bounds``: for each column, the values that separate its ranges. ``spreads``: for
    each column, the bits of each range number, spread out to leave gaps for the bits of the other columns. The range
    numbers of a column with few ranges are scaled up, so that the leading bits of the position on the curve depend on
    this column too."""

    paths: Sequence[tuple[str, ...]]
    bounds: Sequence[Any]
    bits: int
    spreads: Sequence[Any]

    @classmethod
    def from_samples(cls, paths: Sequence[tuple[str, ...]], samples: Sequence[Any]) -> Curve:
        """Build the Z-order curve from samples of each column's values, as returned by ``values_of``."""
        bits = max(1, min(_BITS, _ALL_BITS // len(paths)))
        spread = [sum((number >> bit & 1) << bit * len(paths) for bit in range(bits)) for number in range(1 << bits)]
        bounds = [quantiles(sample, 1 << bits) for sample in samples]
        numbers = [[(number << bits) // (len(each) + 1) for number in range(len(each) + 1)] for each in bounds]
        return cls(paths, bounds, bits, [int64s([spread[number] for number in each]) for each in numbers])

    def numbers(self, columns: Sequence[Any]) -> Any:
        """The position of each row on the Z-order curve, computed from its values in the columns. The first column
        provides the most significant bits."""
        place = None
        for number, (values, bounds, spread) in enumerate(zip(columns, self.bounds, self.spreads, strict=True)):
            bits = spread.take(range_numbers(values, bounds, self.bits))
            shifted = pc.shift_left(bits, scalar(len(columns) - 1 - number, pa.int64()))
            place = shifted if place is None else pc.bit_wise_or(place, shifted)
        return place

    def of_rows(self, rows: pa.Table) -> Any:
        """The position of each row on the Z-order curve."""
        return self.numbers([values_of(rows, path) for path in self.paths])
