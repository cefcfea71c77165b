"""Checks Python values that are to be stored in columns, at every nesting depth, and refuses values that Arrow would
round, truncate or drop. Pure.

The checks apply to records to be written and to the new values of an update. Each check raises a ValueError that names
the problem.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Number, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from deltalog.arguments import shown
from deltalog.errors import CallError
from deltalog.expressions.literals import coerced, plain
from deltalog.lazy_names import lazy_modules
from deltalog.protocol.schema import VARIANT, ArrayType, DataType, MapType, StructType, type_to_arrow, uses_type

if TYPE_CHECKING:
    from deltalog.protocol import variant, variant_encoding
else:
    lazy_modules(__name__, "deltalog.protocol.variant", "deltalog.protocol.variant_encoding")

_MAX_FLOAT32 = 3.4028235677973362e38  # larger values are rounded to infinity
_NO_TIME = datetime.time()
_ENCODED = {"metadata", "value"}
_NO_LISTS = (str, bytes, bytearray, Mapping, set, frozenset)


def as_scalar(value: Any, data_type: DataType) -> pa.Scalar:
    """Convert a value to an Arrow scalar of a column's type.

    At every depth, a number can have any Python or NumPy type if its value can be converted without loss, and dates and
    times can be ISO 8601 strings. For a struct, the value is a mapping with exactly the struct's fields. Raises
    ValueError, TypeError and pyarrow.ArrowInvalid for a value that does not fit.
    """
    kind = type_to_arrow(data_type)
    converted = _converted(plain(value), data_type, "")
    check_values((converted,), check_of(kind))
    return pa.scalar(converted, kind)


def _converted(value: Any, data_type: DataType, where: str) -> Any:
    """``where``: the path of the value followed by ``: ``; empty at the top level."""
    if value is None:
        return None
    if data_type == VARIANT:
        return _variant_value(value, where)
    if isinstance(data_type, StructType):
        return _struct_value(value, data_type, where)
    if isinstance(data_type, ArrayType):
        if isinstance(value, _NO_LISTS) or not isinstance(value, Iterable):
            raise ValueError(f"{where}expected a list, not {type(value).__name__}")
        return [_converted(plain(each), data_type.element_type, _below(where, "element")) for each in value]
    if isinstance(data_type, MapType):
        return _map_value(value, data_type, where)
    if str(data_type) in ("float", "double") and type(value) is int:
        return value  # Arrow refuses integers that it would have to round
    try:
        return coerced(value, data_type, "")
    except CallError:
        raise ValueError(f"{where}{shown(value)} is not a {data_type}") from None


def _variant_value(value: Any, where: str) -> Any:
    """A variant as a mapping of metadata and value. Such a mapping is kept; any other Python value is encoded."""
    try:
        if isinstance(value, Mapping) and value.keys() == _ENCODED and set(map(type, value.values())) == {bytes}:
            variant.check(value["metadata"], value["value"])
            return value
        metadata, encoded = variant_encoding.encoded_python(value)
    except ValueError as error:
        raise ValueError(f"{where}it cannot be a variant: {error}") from None
    return {"metadata": metadata, "value": encoded}


def with_variants(value: Any, data_type: DataType) -> Any:
    """A value of a column that contains variants, with its variants encoded; its other parts are unchanged. Raises
    ValueError for a value that cannot be a variant."""
    if value is None or not uses_type(data_type, VARIANT.name):
        return value
    if data_type == VARIANT:
        return _variant_value(value, "")
    if isinstance(data_type, StructType) and isinstance(value, Mapping):
        columns = {each.name: each.data_type for each in data_type.fields}
        return {name: with_variants(each, columns[name]) if name in columns else each for name, each in value.items()}
    if isinstance(data_type, ArrayType) and not isinstance(value, _NO_LISTS) and isinstance(value, Iterable):
        return [with_variants(each, data_type.element_type) for each in value]
    if isinstance(data_type, MapType):
        entries = value.items() if isinstance(value, Mapping) else value
        return [(key, with_variants(each, data_type.value_type)) for key, each in entries]
    return value


def _struct_value(value: Any, data_type: StructType, where: str) -> dict[str, Any]:
    _check_fields(value, data_type.names, where)
    missing = [name for name in data_type.names if name not in value]
    if missing:
        raise ValueError(f"{where}it lacks the field {missing[0]!r}; pass None for null")
    return {
        each.name: _converted(plain(value[each.name]), each.data_type, _below(where, each.name))
        for each in data_type.fields
    }


def _map_value(value: Any, data_type: MapType, where: str) -> list[tuple[Any, Any]]:
    entries = list(value.items() if isinstance(value, Mapping) else value)
    found: list[tuple[Any, Any]] = []
    known = set[Any]()
    for entry in entries:
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise ValueError(f"{where}a map must be a mapping, or pairs of key and value")
        key = _converted(plain(entry[0]), data_type.key_type, _below(where, "key"))
        mark = repr(key) if isinstance(key, (dict, list)) else key
        if key is None or mark in known:
            raise ValueError(f"{where}it has the key {shown(key)}{'' if key is None else ' twice'}")
        known.add(mark)
        found.append((key, _converted(plain(entry[1]), data_type.value_type, _below(where, "value"))))
    return found


def _below(where: str, name: str) -> str:
    return f"{where[:-2]}.{name}: " if where else f"{name}: "


def _check_fields(value: Any, names: Iterable[str], where: str = "") -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}a struct must be a mapping from names to values, not {type(value).__name__}")
    unknown = value.keys() - names
    if unknown:
        raise ValueError(
            f"{where}it has a field {sorted(map(str, unknown))[0]!r}, but its fields are {', '.join(names)}"
        )


# ------------------------------------------------------------------------------------------------- lossless values


class Check(NamedTuple):
    """A check of values of a type, made before Arrow converts them. ``lossless``: the Python types whose values Arrow
    either converts without loss or refuses. ``check``: raises ValueError for a value of another type that Arrow would
    truncate."""

    lossless: frozenset[type]
    check: Callable[[Any], None]


def check_values(values: Iterable[Any], check: Check | None) -> None:
    """Raise ValueError for a value that Arrow would convert with loss."""
    if check is None:
        return
    lossless, check_value = check
    for value in values:
        # Arrow itself refuses a scalar whose type does not fit.
        if type(value) not in lossless and not isinstance(value, pa.Scalar):
            check_value(value)


def check_of(wanted: pa.DataType) -> Check | None:
    """The check for a type; None if Arrow either converts a value without loss or refuses it."""
    types = pa.types
    if types.is_struct(wanted):
        return _struct({field.name: check_of(field.type) for field in wanted})
    if types.is_map(wanted):
        return _map(wanted)
    if types.is_nested(wanted):
        return _list(check_of(wanted.value_type))
    if types.is_timestamp(wanted):
        return _TIMESTAMP_NTZ if wanted.tz is None else _TIMESTAMP
    return next((check for is_one, check in _LEAVES.items() if is_one(wanted)), None)


def _struct(fields: Mapping[str, Check | None]) -> Check:
    checks = {name: check for name, check in fields.items() if check is not None}

    def check_value(value: Any) -> None:
        _check_fields(value, fields.keys())
        for name, check in checks.items():
            check_values((value.get(name),), check)

    return Check(_ABSENT, check_value)


def _map(wanted: pa.MapType) -> Check:
    key, item = check_of(wanted.key_type), check_of(wanted.item_type)
    entry = _struct({wanted.key_field.name: key, wanted.item_field.name: item})

    def check_value(value: Any) -> None:
        if isinstance(value, Mapping):
            check_values(value.keys(), key)
            check_values(value.values(), item)
            return
        for each in value:
            if isinstance(each, tuple):
                check_values(each[:1], key)
                check_values(each[1:], item)
            else:
                entry.check(each)

    return Check(_ABSENT, check_value)


def _list(element: Check | None) -> Check | None:
    def check_value(value: Any) -> None:
        kind = getattr(value, "__array_interface__", _NO_ARRAY)["typestr"][1:]
        if kind.startswith("M8") and kind != "M8[us]":  # Arrow would interpret the numbers as microseconds
            raise ValueError(f"{value.dtype} is an array of times in a unit other than microseconds")
        # Checking an array is much faster after its values are converted to Python numbers.
        check_values(value.tolist() if hasattr(value, "tolist") else value, element)

    return None if element is None else Check(_ABSENT, check_value)


def _check_whole(value: Any) -> None:
    # Arrow calls __int__ if a value has this method, as the numbers and zero-dimensional arrays of other libraries do.
    if isinstance(value, Number) or hasattr(value, "__int__"):
        with contextlib.suppress(TypeError):  # raised by ``%`` if the value is not a number
            if value % 1:
                raise ValueError(f"{value} has a fraction")


def _finite(largest: float) -> Callable[[Any], None]:
    def check_value(value: Any) -> None:
        is_number = isinstance(value, (float, Real))
        if is_number and not -largest <= value <= largest and abs(value) < math.inf:
            raise ValueError(f"{value} is too large")

    return check_value


def _check_time(value: Any, has_zone: bool) -> None:
    if not isinstance(value, datetime.datetime):
        _check_whole(value)
    elif getattr(value, "nanosecond", 0) > 0:
        raise ValueError(f"{value} has nanoseconds")
    elif has_zone != (value.tzinfo is not None):
        raise ValueError(f"{value} has {'no' if has_zone else 'a'} time zone")


def _check_date(value: Any) -> None:
    if not isinstance(value, datetime.datetime):
        _check_whole(value)
    elif value.time() != _NO_TIME:
        raise ValueError(f"{value} has a time of day")
    else:
        _check_time(value, has_zone=False)


_ABSENT = frozenset({type(None)})
_INT = _ABSENT | {int}
_NO_ARRAY = {"typestr": ""}
_TIMESTAMP = Check(_INT, partial(_check_time, has_zone=True))
_TIMESTAMP_NTZ = Check(_INT, partial(_check_time, has_zone=False))
_LEAVES: dict[Callable[[pa.DataType], bool], Check] = {
    pa.types.is_integer: Check(_INT, _check_whole),
    pa.types.is_float32: Check(_INT, _finite(_MAX_FLOAT32)),
    pa.types.is_float64: Check(_INT | {float}, _finite(sys.float_info.max)),
    pa.types.is_date: Check(_INT | {datetime.date}, _check_date),
}
