"""Per-file statistics: builds the JSON of ``add.stats`` from a Parquet footer. Pure.

Spec: PROTOCOL.md#per-file-statistics, #statistics-for-variant-columns. Every bound is valid for every row in the sort
order that readers use, or is left out: columns with NaN have no bounds, -0.0 is below 0.0, strings are truncated (the
upper bound is rounded up), and timestamps are widened to whole milliseconds.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import types as pt

from deltalog.protocol.schema import VARIANT, ArrayType, DataType, DecimalType, MapType, StructType, leaves

PREFIX_LENGTH = 32
_encoder = msgspec.json.Encoder(decimal_format="number")
_EPOCH = datetime.datetime(1970, 1, 1)
_ORDERED = frozenset(["string", "long", "integer", "short", "byte", "float", "double", "date"])


def from_footer(footer: Any, schema: StructType, indexed: Container[tuple[str, ...]]) -> tuple[int, str]:
    """The number of rows in a file, and its statistics as JSON.

    ``footer``: a pyarrow.parquet.FileMetaData. ``schema``: the table's columns with their physical names, without
    partition columns. ``indexed``: the paths of the leaves that get bounds and null counts.
    """
    chunks = chunks_by_path(footer)
    rows = footer.num_rows
    minimum: dict[str, Any] = {}
    maximum: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for path, leaf in leaves(schema):
        if path not in indexed or isinstance(leaf.data_type, (ArrayType, MapType)):
            continue
        # A variant is null if its metadata is null. Variants have no bounds.
        stored = (*path, "metadata") if leaf.data_type == VARIANT else path
        found = [] if chunks is None else chunks.get(tuple(name.lower() for name in stored))
        if found is None:
            put(nulls, path, rows)
            continue
        if not found:
            continue
        null_count = null_count_of(found)
        if null_count is not None:
            put(nulls, path, null_count)
        bounds = None if leaf.data_type == VARIANT else _bounds(found, leaf.data_type)
        if bounds is not None:
            put(minimum, path, bounds[0])
            put(maximum, path, bounds[1])
    body = {"numRecords": rows, "minValues": minimum, "maxValues": maximum, "nullCount": nulls}
    return rows, as_text({k: v for k, v in body.items() if v != {}})


def as_text(body: Mapping[str, Any]) -> str:
    """Statistics as the JSON text of ``add.stats``; decimals are numbers."""
    return _encoder.encode(body).decode()


def put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set a leaf's value in the statistics; anything on the leaf's path that is not a struct is replaced."""
    for name in path[:-1]:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    tree[path[-1]] = value


def chunks_by_path(footer: Any, fields: Iterable[Any] | None = None) -> dict[tuple[str, ...], list[Any]] | None:
    """The column chunks of all row groups, keyed by the column's path in lower-case names; columns inside lists and
    maps are left out.

    Column paths are taken from the schema tree: the dotted path in the footer would not distinguish the field b of a
    struct a from a column named "a.b". ``fields``: the fields of the footer's Arrow schema, if the caller has them.
    """
    paths = list(_leaf_paths(footer.schema.to_arrow_schema() if fields is None else fields))
    if len(paths) != footer.num_columns:
        return None  # the Arrow schema has fewer leaves than the file, so chunks cannot be matched
    found: dict[tuple[str, ...], list[Any]] = {}
    for index, path in enumerate(paths):
        if path is not None:
            chunks = [footer.row_group(group).column(index) for group in range(footer.num_row_groups)]
            # If names differ only in case, readers may pick either column, so neither gets statistics.
            found[path] = [] if path in found else chunks
    return found


def _leaf_paths(fields: Iterable[Any], above: tuple[str, ...] | None = ()) -> Iterator[tuple[str, ...] | None]:
    """The path of each leaf column, in file order; None for columns inside lists and maps."""
    for field in fields:
        path = None if above is None else (*above, field.name.lower())
        kind = field.type
        while isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if pt.is_struct(kind):
            yield from _leaf_paths([kind.field(i) for i in range(kind.num_fields)], path)
        elif pt.is_map(kind):
            yield from _leaf_paths([kind.key_field, kind.item_field], None)
        elif hasattr(kind, "value_field"):  # every kind of list
            yield from _leaf_paths([kind.value_field], None)
        else:
            yield path


def null_count_of(chunks: list[Any]) -> int | None:
    """The number of NULLs in column chunks; None if any chunk does not record it."""
    total = 0
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        total += statistics.null_count
    return total


def value_bounds(chunks: list[Any], data_type: DataType) -> tuple[Any, Any] | None:
    """The smallest and the largest value according to the footer; timestamps are in microseconds since 1970. None if
    the footer lacks these values for some rows."""
    name = str(data_type)
    is_timestamp = name in ("timestamp", "timestamp_ntz")
    if not (name in _ORDERED or is_timestamp or isinstance(data_type, DecimalType)):
        return None
    lows, highs = [], []
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is None:
            return None
        if not statistics.has_min_max:
            if statistics.has_null_count and statistics.null_count == chunk.num_values:
                continue
            return None
        try:
            low, high = (
                (_micros(statistics, "min_raw"), _micros(statistics, "max_raw"))
                if is_timestamp
                else (statistics.min, statistics.max)
            )
        except (ValueError, OverflowError, NotImplementedError):
            return None
        if low is None or high is None:
            return None
        lows.append(low)
        highs.append(high)
    try:
        return (min(lows), max(highs)) if lows else None
    except (TypeError, decimal.InvalidOperation):
        return None


def _bounds(chunks: list[Any], data_type: DataType) -> tuple[Any, Any] | None:
    """The smallest and the largest value as JSON values; None if unknown for some rows."""
    found = value_bounds(chunks, data_type)
    return None if found is None else rendered(*found, data_type)


def rendered(low: Any, high: Any, data_type: DataType) -> tuple[Any, Any] | None:
    """Bounds (timestamps in microseconds since 1970), converted to JSON values that every reader may use; None if no
    such values exist."""
    try:
        return _render(low, high, str(data_type))
    except (ValueError, OverflowError, TypeError, decimal.InvalidOperation):
        return None


def _micros(statistics: Any, side: str) -> int | None:
    raw = getattr(statistics, side)
    if not isinstance(raw, int):
        return None  # INT96: the Parquet format does not define how its values are ordered
    logical = str(statistics.logical_type)
    if "nanoseconds" in logical:
        return raw // 1000 if side == "min_raw" else -(-raw // 1000)
    return raw * 1000 if "milliseconds" in logical else raw


def _render(low: Any, high: Any, name: str) -> tuple[Any, Any] | None:
    if name in ("float", "double"):
        if not (math.isfinite(low) and math.isfinite(high)):
            return None
        return (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    if name == "string":
        low, high = (v.decode() if isinstance(v, bytes) else v for v in (low, high))
        upper = _prefix_above(high)
        return None if upper is None else (low[:PREFIX_LENGTH], upper)
    if name == "date":
        return low.isoformat(), high.isoformat()
    if name in ("timestamp", "timestamp_ntz"):
        zone = "Z" if name == "timestamp" else ""
        return _milliseconds_text(low // 1000, zone), _milliseconds_text(-(-high // 1000), zone)
    return low, high


def _milliseconds_text(milliseconds: int, zone: str) -> str:
    moment = _EPOCH + datetime.timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds") + zone


def _prefix_above(text: str) -> str | None:
    """A string of at most PREFIX_LENGTH + 1 characters that sorts at or after ``text``; None if there is none.

    Some readers compare strings by their UTF-8 bytes, others by their UTF-16 code units. The character appended to the
    prefix must sort after the character that it replaces, both by UTF-8 bytes and by UTF-16 code units.
    In both orders, U+007F and U+FFFF sort after all characters below U+D800. The truncation point therefore moves left
    past all characters from U+D800 on.
    """
    if len(text) <= PREFIX_LENGTH:
        return text
    for end in range(PREFIX_LENGTH, 0, -1):
        following = text[end]
        if ord(following) < 0x7F:
            return text[:end] + "\x7f"
        if ord(following) < 0xD800:
            return text[:end] + "\uffff"
    return None


def statistics_columns(table: Any) -> list[str] | bool:
    """The columns of an Arrow table for which footer statistics may be written: True for all columns, or the dotted
    paths of the columns without NaN. Parquet writers ignore NaN when they compute bounds, so readers would skip rows
    with NaN. Arrow's Parquet writer accepts only dotted paths, and a column "a.b" has the same path as the field b of a
    struct a; if either contains NaN, neither gets statistics.
    """
    with_nan = nan_columns(table)
    return without(table.schema, with_nan) if with_nan else True


def without(schema: Any, left_out: Collection[str]) -> list[str]:
    """The dotted paths of the leaves of an Arrow schema, except ``left_out``."""
    return [name for name in dict.fromkeys(".".join(path) for path, _ in _leaves((), schema)) if name not in left_out]


def nan_columns(table: Any) -> set[str]:
    """The dotted paths of the columns of an Arrow table that contain NaN, including fields of structs."""
    if not any(pt.is_floating(leaf) for _, leaf in _leaves((), table.schema)):
        return set()
    return {".".join(path) for path, values in _leaf_columns((), table) if _has_nan(values)}


def has_shared_paths(schema: Any) -> bool:
    """Whether two leaves of an Arrow schema have the same dotted path, such as a column "a.b" and the field b of a
    struct a.

    Spark's Parquet reader looks up dictionaries by dotted path, and would skip row groups because of the wrong
    dictionary.
    """
    paths = [path for path, _ in _leaves((), schema)]
    if not any("." in name for path in paths for name in path):
        return False
    return len({".".join(path) for path in paths}) < len(paths)


def _leaves(above: tuple[str, ...], fields: Iterable[Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The leaves of Arrow fields, including those in structs, with their types."""
    for field in fields:
        if pt.is_struct(field.type):
            yield from _leaves((*above, field.name), field.type)
        else:
            yield (*above, field.name), field.type


def _leaf_columns(above: tuple[str, ...], table: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    for index, column in enumerate(table.schema):
        path, values = (*above, column.name), table.column(index)
        if pt.is_struct(column.type):
            children = pa.table(values.combine_chunks().flatten(), names=[f.name for f in column.type.fields])
            yield from _leaf_columns(path, children)
        else:
            yield path, values


def _has_nan(values: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pt.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py())
