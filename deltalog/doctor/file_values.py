"""Compares types, bounds and counts of a data file with the schema and the statistics. Pure.

Spec: PROTOCOL.md#per-file-statistics, #consistency-between-table-metadata-and-data-files.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from deltalog.doctor.file_entries import as_value
from deltalog.errors import DeltaLogError
from deltalog.protocol.arrow_types import is_binary
from deltalog.protocol.schema import VARIANT, VOID, ArrayType, DataType, DecimalType, MapType, StructType
from deltalog.protocol.widening import is_widening

_EXACT = frozenset(["byte", "short", "integer", "long", "date"])
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_SECOND = 1_000_000  # in microseconds
_MICROSECOND = datetime.timedelta(microseconds=1)


def of_column(body: Mapping[str, Any], group: str, name: str) -> Any:
    values = body.get(group)
    if not isinstance(values, dict):
        return None
    if name in values:
        return values[name]
    return next((value for key, value in values.items() if key.lower() == name.lower()), None)


def below(body: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    """The part of the statistics that describes the struct at ``path``."""
    if not path:
        return body
    groups = ((group, of_column(body, group, path[0])) for group in ("minValues", "maxValues", "nullCount"))
    return below({group: value for group, value in groups if isinstance(value, dict)}, path[1:])


def stored_type(stored: Mapping[str, pa.DataType], path: Sequence[str]) -> pa.DataType | None:
    """The type of a column, possibly nested in structs, in a data file."""
    kind = stored.get(path[0].lower())
    for name in path[1:]:
        if kind is None or not pa.types.is_struct(kind):
            return None
        kind = next((each.type for each in kind if each.name.lower() == name.lower()), None)
    return kind


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def contradictions(
    body: Mapping[str, Any], name: str, kind: DataType, actual: tuple[Any, Any], is_tight: bool
) -> Iterator[tuple[bool, str]]:
    """Compare bounds in statistics with ``actual``, the minimum and maximum of a file. Yields each contradiction
    together with a flag, which is true if a timestamp is off by less than a second because of rounding. ``is_tight``:
    whether the bounds must be exact, as far as the type allows."""
    own_low, own_high = of_column(body, "minValues", name), of_column(body, "maxValues", name)
    try:
        low = None if own_low is None else _plain(as_value(own_low, kind), kind)
        high = None if own_high is None else _plain(as_value(own_high, kind), kind)
        first, last = (_plain(value, kind) for value in actual)
    except (ValueError, TypeError, ArithmeticError, AttributeError, DeltaLogError):
        return
    if any(isinstance(value, float) and math.isnan(value) for value in (low, high, first, last)):
        return
    # Statistics truncate timestamps to milliseconds and strings to a prefix.
    slack = 1000 if str(kind) in ("timestamp", "timestamp_ntz") else 0
    exact = is_tight and (str(kind) in _EXACT or isinstance(kind, DecimalType))
    if isinstance(kind, DecimalType) or str(kind) in ("float", "double"):
        # Decimals in statistics are JSON numbers, which writers and readers round; the statistics of widened columns
        # may be floats.
        low, first = _rounded(low, first, kind)
        high, last = _rounded(high, last, kind)
    try:
        if low is not None and first is not None and (low > first or (exact and low != first)):
            slight = bool(slack) and low - first < _SECOND
            yield slight, f"The minimum of {name} is {own_low!r}; the file has {actual[0]!r}."
        if high is None or last is None:
            return
        below = high + slack <= last if slack else high < last
        if isinstance(high, bytes) and isinstance(last, bytes) and last.startswith(high):
            below = False
        if below or (exact and high != last):
            slight = bool(slack) and last - high < _SECOND
            yield slight, f"The maximum of {name} is {own_high!r}; the file has {actual[1]!r}."
    except TypeError:
        return


def is_same_kind(stored: pa.DataType | None, wanted: DataType) -> bool:
    """Whether values in a footer can be compared with the column's values; they cannot if type widening changed the
    kind of type."""
    if stored is None:
        return False
    if str(wanted) in ("timestamp", "timestamp_ntz"):
        return bool(pa.types.is_timestamp(stored))
    return isinstance(wanted, DecimalType) == bool(pa.types.is_decimal(stored))


def _rounded(own: Any, actual: Any, kind: DataType) -> tuple[Any, Any]:
    """Returns both values, or ``actual`` twice if the two differ only by rounding."""
    if own is None or actual is None:
        return own, actual
    largest = 1e-15 if isinstance(kind, DecimalType) else 1.2e-7
    return (actual, actual) if math.isclose(own, actual, rel_tol=largest) else (own, actual)


def _plain(value: Any, kind: DataType) -> Any:
    """Convert a value from statistics or from a file, so that both can be compared."""
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MICROSECOND if value.tzinfo is not None else value
    if str(kind) == "string":
        return value.encode() if isinstance(value, str) else value
    if str(kind) == "float" and isinstance(value, (int, float)):
        return pa.scalar(value, pa.float32()).as_py()
    return value


def _is_list(kind: pa.DataType) -> bool:
    """Whether a type is any of Arrow's types of lists: a file may name one that Parquet does not distinguish."""
    return hasattr(kind, "value_field")


def fits(stored: pa.DataType, wanted: DataType) -> bool:
    """Whether the type of a column in a file matches the column of the table, possibly after widening."""
    while isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    if pa.types.is_dictionary(stored):
        stored = stored.value_type
    if wanted == VARIANT:
        return _is_variant(stored)
    if isinstance(wanted, StructType):
        return bool(pa.types.is_struct(stored))
    if isinstance(wanted, MapType):
        return bool(pa.types.is_map(stored)) or (_is_list(stored) and pa.types.is_struct(stored.value_type))
    if isinstance(wanted, ArrayType):
        return _is_list(stored) and fits(stored.value_type, wanted.element_type)
    if pa.types.is_nested(stored):
        return False
    return wanted == VOID or bool(pa.types.is_null(stored)) or _fits_value(stored, wanted)


@lru_cache(10_000)
def _fits_value(stored: pa.DataType, wanted: DataType) -> bool:
    """``fits`` for types of single values."""
    texts = {"string", "binary"}
    try:
        own = StructType.from_arrow(pa.schema([("a", stored)])).fields[0].data_type
    except DeltaLogError:
        return False
    names = {str(own), str(wanted)}
    if own == wanted or names <= texts or names <= {"timestamp", "timestamp_ntz"} or is_widening(own, wanted):
        return True
    if isinstance(own, DecimalType) and isinstance(wanted, DecimalType):
        return own.scale == wanted.scale and own.precision <= wanted.precision
    # Other writers store byte and short as 32-bit integers.
    return str(own) == "integer" and str(wanted) in ("byte", "short")


def _is_variant(stored: pa.DataType) -> bool:
    parts = {each.name: each.type for each in stored} if pa.types.is_struct(stored) else {}
    typed = parts.pop("typed_value", None)
    found = set(parts) == {"metadata", "value"} or (typed is not None and set(parts) == {"metadata"})
    return found and all(map(is_binary, parts.values()))


def variants_in(stored: pa.DataType, wanted: DataType, name: str) -> Iterator[tuple[str, pa.DataType]]:
    """The variants in a column of a data file, at every depth: their paths, and their types in the file."""
    while isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    if wanted == VARIANT:
        yield name, stored
    elif isinstance(wanted, StructType) and pa.types.is_struct(stored):
        held = {each.name.lower(): each.type for each in stored}
        for column in wanted.fields:
            if column.name.lower() in held:
                yield from variants_in(held[column.name.lower()], column.data_type, f"{name}.{column.name}")
    elif isinstance(wanted, ArrayType) and hasattr(stored, "value_type"):
        yield from variants_in(stored.value_type, wanted.element_type, f"{name}.element")
    elif isinstance(wanted, MapType) and pa.types.is_map(stored):
        yield from variants_in(stored.item_type, wanted.value_type, f"{name}.value")


def is_shredded(stored: pa.DataType) -> bool:
    """Whether a variant in a data file is shredded."""
    return bool(pa.types.is_struct(stored)) and any(each.name == "typed_value" for each in stored)
