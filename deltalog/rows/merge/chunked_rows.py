"""Selects rows by number from a table of several batches; also assigns rows to hash partitions. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import combined
from deltalog.lazy_arrow import pc

_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
_WINDOWS = 4  # the number of 8-byte windows that are hashed at each end of a string


@dataclass(frozen=True, slots=True)
class ChunkedRows:
    """A table that consists of several batches, with a method that selects rows by number. Arrow's take would first
    concatenate the batches of each column."""

    rows: pa.Table
    batches: Sequence[pa.RecordBatch]
    starts: Sequence[int]

    @classmethod
    def from_table(cls, rows: pa.Table) -> ChunkedRows:
        """Cost: none; the rows are not copied."""
        batches = rows.to_batches()
        starts, start = [], 0
        for batch in batches:
            starts.append(start)
            start += batch.num_rows
        return cls(rows, batches, [*starts, start])

    def take(self, numbers: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """Take rows. ``numbers``: an Arrow array without nulls. ``columns``: None for all. Memory: twice the size of
        these rows."""
        names = self.rows.schema.names if columns is None else list(columns)
        rows = self.rows.select(names)
        if len(self.batches) <= 1 or not names:
            return rows.take(numbers)
        order = pc.sort_indices(numbers)
        ordered = combined(numbers.take(order)).cast(pa.int64())
        view = memoryview(ordered.buffers()[1]).cast("q")[ordered.offset : ordered.offset + len(ordered)]
        parts, at = [rows.slice(0, 0)], 0
        while at < len(view):
            batch = bisect_left(self.starts, view[at] + 1) - 1
            end = bisect_left(view, self.starts[batch + 1], at)
            local = pc.subtract(ordered.slice(at, end - at), self.starts[batch])
            parts.append(pa.Table.from_batches([self.batches[batch].select(names).take(local)]))
            at = end
        return pa.concat_tables(parts).combine_chunks().take(pc.sort_indices(order))


def partition_numbers(columns: Mapping[str, Any], count: int) -> Any:
    """The hash partition of each row: rows with equal values are in the same partition, and null equals null.
    ``count``: the number of partitions, a power of two."""
    total = None
    for place, values in enumerate(columns.values()):
        for number, word in enumerate(_words(combined(values))):
            mixed = pc.multiply(_mixed(word), _uint64(_MULTIPLIERS[(number + place) % len(_MULTIPLIERS)] + 2 * place))
            total = mixed if total is None else pc.add(total, mixed)
    return pc.bit_wise_and(pc.shift_right(_mixed(total), _uint64(40)), _uint64(count - 1)).cast(pa.int32())


def _mixed(word: Any) -> Any:
    word = pc.multiply(pc.bit_wise_xor(word, pc.shift_right(word, _uint64(32))), _uint64(_MULTIPLIERS[3]))
    return pc.bit_wise_xor(word, pc.shift_right(word, _uint64(29)))


def _uint64(value: int) -> pa.Scalar:
    return pa.scalar(value % 2**64, pa.uint64())


def _words(values: Any) -> Iterator[Any]:
    """Convert values to 64-bit words (unsigned integers); a null becomes 0. A word that would be 0 for every value may
    be omitted."""
    kind, types = values.type, pa.types
    if types.is_string(kind) or types.is_binary(kind):
        yield from _words_of_bytes(pc.fill_null(values, pa.scalar("" if types.is_string(kind) else b"", kind)))
        return
    if types.is_boolean(kind) or types.is_unsigned_integer(kind):
        word = values.cast(pa.uint64())
    elif types.is_signed_integer(kind) or types.is_date32(kind):
        word = (values.cast(pa.int32()) if types.is_date32(kind) else values).cast(pa.int64()).view(pa.uint64())
    elif types.is_floating(kind):
        word = values.cast(pa.float64()).view(pa.uint64())
    elif types.is_temporal(kind):
        word = values.cast(pa.int64()).view(pa.uint64())
    else:
        yield from _words(values.cast(pa.string()))
        return
    yield pc.fill_null(word, _uint64(0))


def _words_of_bytes(values: Any) -> Iterator[Any]:
    values = values.cast(pa.binary())
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    yield pc.binary_length(values).cast(pa.uint64())
    for number in range(min(_WINDOWS, -(-longest // 8))):
        yield _eight_bytes(pc.binary_slice(values, 8 * number, 8 * number + 8))
        yield _eight_bytes(pc.binary_slice(values, -8 * number - 8, -8 * number or None))


def _eight_bytes(values: Any) -> Any:
    padded = pc.binary_slice(pc.binary_join_element_wise(values, bytes(8), b""), 0, 8)
    start = memoryview(padded.buffers()[1]).cast("i")[padded.offset]
    return pa.Array.from_buffers(pa.uint64(), len(padded), [None, padded.buffers()[2]], offset=start // 8)
