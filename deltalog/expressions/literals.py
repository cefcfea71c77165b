"""Converts Python values in expressions to built-in Python types, and to the type of the column with which they are
compared. Pure."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from deltalog.arrow_arrays import array_of, scalar
from deltalog.errors import CallError, InvalidTimestampError
from deltalog.protocol.schema import DataType, type_to_arrow
from deltalog.protocol.timestamps import parse_iso

_MOST_DIGITS = 400  # the largest double has 309 digits
_PLAIN_MODULES = ("builtins", "datetime", "decimal")
# For each column type, the Python type whose values need no conversion.
_OWN_KINDS = {"byte": int, "short": int, "integer": int, "long": int, "string": str, "boolean": bool}


def plain(value: Any) -> Any:
    """Convert an Arrow, NumPy or pandas scalar to a Python value; other values are returned unchanged.

    Raises CallError for a time with a fraction of a microsecond, and for an Arrow scalar that Python cannot represent.
    """
    kind = type(value)
    if kind.__module__ in _PLAIN_MODULES:
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
            raise CallError(f"{value!r} cannot be compared: timestamps in tables have microsecond precision.")
        return value.to_pydatetime()
    return value


def _from_numpy(value: Any) -> Any:
    if value.dtype.kind == "m":
        return value  # a timedelta, which matches no column type
    if value.dtype.kind != "M":
        return value.item()
    if value != value:
        return None
    micros = value if value.dtype.str.endswith("[D]") else value.astype("datetime64[us]")
    if micros != value:
        raise CallError(f"{value!r} cannot be compared: timestamps in tables have microsecond precision.")
    return micros.item()


def _from_arrow(value: pa.Scalar) -> Any:
    try:
        if pa.types.is_timestamp(value.type):
            value = value.cast(pa.timestamp("us", value.type.tz))
        return value.as_py()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise CallError(f"{value!r} cannot be compared: {error}.") from None


def plain_values(values: Any) -> tuple[Any, ...]:
    """Convert a list of values, an Arrow or NumPy array, or a pandas Series to Python values. Raises CallError."""
    if isinstance(values, (str, bytes, bytearray)) or not isinstance(values, Iterable):
        raise CallError(f"isin takes a list of values, not {values!r}. For one value, write isin([value]) or use ==.")
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
    items = tuple(values)
    if all(kind.__module__ in _PLAIN_MODULES for kind in set(map(type, items))):
        return items
    return tuple(map(plain, items))


def coerced(value: Any, data_type: DataType, column: str) -> Any:
    """Convert a literal without loss to a Python value of a column's type. Raises CallError."""
    if value is None:
        return None
    try:
        converted = _coerced(value, str(data_type))
        if converted is not None:
            scalar(converted, comparable_type(data_type))
            return converted
    except _UNFIT:
        pass
    what = f"{_shown(value)} cannot be compared with column {column}, which is {data_type}"
    raise CallError(f"{what}{_lack(value, data_type)}.")


def coerced_values(values: Sequence[Any], data_type: DataType, column: str) -> tuple[Any, ...]:
    """Like ``coerced``, for many values at once."""
    name = str(data_type)
    try:
        if set(map(type, values)) == {_OWN_KINDS.get(name)}:
            converted = tuple(values)
        else:
            converted = tuple(None if value is None else _coerced(value, name) for value in values)
        if converted.count(None) == values.count(None):
            array_of(converted, comparable_type(data_type))
            return converted
    except _UNFIT:
        pass
    return tuple(coerced(value, data_type, column) for value in values)


_UNFIT = (ValueError, TypeError, ArithmeticError, InvalidTimestampError, pa.ArrowException)


def _lack(value: Any, data_type: DataType) -> str:
    """What is wrong with the zone of a time, and what to write instead; empty for other values."""
    try:
        moment = parse_iso(value) if isinstance(value, str) else value
    except InvalidTimestampError:
        return ""
    if not isinstance(moment, datetime.datetime):
        return ""
    if str(data_type) == "timestamp" and moment.tzinfo is None:
        return f": its offset is missing. For UTC, write '{moment.isoformat()}Z'"
    if str(data_type) == "timestamp_ntz" and moment.tzinfo is not None:
        return f" and has no zone. Write '{moment.replace(tzinfo=None).isoformat()}'"
    return ""


def _shown(value: Any) -> str:
    if isinstance(value, (datetime.date, datetime.datetime)):
        return repr(str(value))
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4300 digits
        return f"A number of {value.bit_length()} bits"
    return text if len(text) <= 100 else f"{text[:100]}…"


def _coerced(value: Any, name: str) -> Any:
    number = isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)
    if isinstance(value, decimal.Decimal) and value.adjusted() > _MOST_DIGITS:
        return None  # converting it to an int could use up all memory
    if name in ("byte", "short", "integer", "long"):
        return int(value) if number and int(value) == value else None
    if name in ("float", "double"):
        return _one_nan(float(value)) if number else None
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
        return None  # timestamp requires a time zone, and timestamp_ntz requires that there is none
    return moment


def _one_nan(value: float) -> float:
    """Replace every NaN with the same object, so that trees that contain NaN compare equal."""
    return math.nan if value != value else value


def comparable_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which values of a column type are compared."""
    name = str(data_type)
    if name in ("byte", "short", "integer", "long"):
        return pa.int64()
    if name in ("float", "double"):
        return pa.float64()
    if name.startswith("decimal"):
        return pa.decimal256(76, 38)
    return type_to_arrow(data_type)
