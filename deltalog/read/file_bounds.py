"""What the statistics of a file guarantee about all of its rows. Pure.

Spec: PROTOCOL.md#per-file-statistics. Bounds that are used as guarantees must be sound for skipping and must also mean
the same to other readers. Therefore the bounds of floats, which may ignore NaN, and of decimals, which may have been
rounded, are not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import scalar
from deltalog.lazy_arrow import pc
from deltalog.log.file_statistics import Leaf, column_name, statistics_of_files
from deltalog.protocol.char_varchar import has_char
from deltalog.protocol.schema import StructField

_EXACT = frozenset({"byte", "short", "integer", "long", "date", "string", "timestamp", "timestamp_ntz"})
# Writers truncate times to milliseconds. ``_LATEST``, in microseconds: adding a millisecond to a later time would
# overflow.
_LATEST, _MILLISECOND = scalar(2**63 - 2000, pa.int64()), scalar(1000, pa.int64()).cast(pa.duration("us"))


@dataclass(frozen=True, slots=True)
class FileBounds:
    """The bounds of a column in a file, as Arrow scalars of the column's type, and the number of nulls in the column;
    None: not known."""

    name: str
    low: Any
    high: Any
    null_count: int | None
    rows: int | None


def has_exact_bounds(field: StructField) -> bool:
    """Whether the bounds of this column are used as guarantees."""
    return str(field.data_type) in _EXACT and not has_char(field)


def bounds_of(files: pa.Table, leaves: Sequence[Leaf]) -> Iterator[list[FileBounds]]:
    """For each file, the bounds of ``leaves``, which are top-level columns for which ``has_exact_bounds`` is true."""
    statistics = statistics_of_files(files, leaves)
    rows = statistics.column("numRecords").to_pylist()
    found = []
    for leaf in leaves:
        low, high = (
            statistics.column(column_name(group, leaf)).combine_chunks() for group in ("minValues", "maxValues")
        )
        if str(leaf.data_type) in ("timestamp", "timestamp_ntz"):
            overflows = pc.greater(high, _LATEST.cast(high.type))
            high = pc.add(pc.if_else(overflows, pa.nulls(len(high), high.type), high), _MILLISECOND)
        nulls = statistics.column(column_name("nullCount", leaf)).to_pylist()
        found.append((leaf.path[0], low, high, nulls))
    for number, count in enumerate(rows):
        yield [
            FileBounds(name, _known(low[number]), _known(high[number]), nulls[number], count)
            for name, low, high, nulls in found
        ]


def _known(value: Any) -> Any:
    return value if value.is_valid else None
