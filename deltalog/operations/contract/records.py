"""Records, read one by one, as Arrow batches of some MiB. A value that Arrow would round or truncate is refused."""

from __future__ import annotations

import contextlib
import datetime
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from numbers import Number, Real
from typing import Any, NamedTuple

import pyarrow as pa

from deltalog.errors import CallError, SchemaMismatchError
from deltalog.operations.input_streams import as_reader, read_once
from deltalog.protocol.schema import StructType
from deltalog.protocol.schema_enforcement import check_writable

Records = Iterable[Mapping[str, Any] | pa.RecordBatch]
_BATCH_BYTES = 4 << 20
_FIRST_RECORDS, _MAX_RECORDS = 64, 8_192
_MAX_FLOAT32 = 3.4028235677973362e38  # values above are rounded to infinity
_NO_TIME = datetime.time()


def record_batches(records: Records, schema: StructType, filled: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Mappings from column names to values as batches, and record batches as they are, in order.

    ``filled``: columns that the table fills in where a record lacks them; other absent columns are null. Raises
    CallError for an item that is not a record, SchemaMismatchError for values that do not fit.
    """
    columns = {field.name: field for field in schema.to_arrow()}
    held: list[Mapping[str, Any]] = []
    given: frozenset[str] = frozenset()
    limit = _FIRST_RECORDS
    for record in _iterated(records):
        if isinstance(record, pa.RecordBatch):
            check_writable(schema, StructType.from_arrow(record.schema))
            keys = given
        else:
            _check_record(record, columns.keys())
            keys = filled.intersection(record)
        if held and (keys != given or len(held) >= limit or isinstance(record, pa.RecordBatch)):
            batch = _batch(held, [field for name, field in columns.items() if name not in filled - given])
            yield batch
            held.clear()
            limit = max(1, min(_MAX_RECORDS, 2 * limit, limit * _BATCH_BYTES // max(batch.nbytes, 1)))
        given = keys
        if isinstance(record, pa.RecordBatch):
            yield record
        else:
            held.append(record)
    if held:
        yield _batch(held, [field for name, field in columns.items() if name not in filled - given])


def _iterated(records: Records) -> Iterator[Any]:
    if hasattr(records, "__arrow_c_stream__"):
        return read_once(as_reader(records))
    if not isinstance(records, Iterable):
        raise CallError(f"Records are an iterable of mappings or of record batches; got {type(records)}.")
    return read_once(records, is_callers=True)


def _check_record(record: Any, names: Iterable[str]) -> None:
    if not isinstance(record, Mapping):
        raise CallError(f"A record is a mapping from column names to values, or a record batch; got {type(record)}.")
    unknown = record.keys() - names
    if unknown:
        raise SchemaMismatchError(
            f"A record has {sorted(map(str, unknown))[0]!r}, which is not a column of the table. Its columns are "
            f"{', '.join(names)}."
        )


def _batch(records: list[Mapping[str, Any]], fields: list[pa.Field]) -> pa.RecordBatch:
    return pa.record_batch([_array(records, field) for field in fields], schema=pa.schema(fields))


def _array(records: list[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    values = [record.get(field.name) for record in records]
    try:
        _check_values(values, _check_of(field.type))
        return pa.array(values, field.type)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise SchemaMismatchError(
            f"A record's value of column {field.name} does not fit {field.type}: {error}."
        ) from None


# ------------------------------------------------------------------------------------------------- lossless values


class _Check(NamedTuple):
    """How values of a type are checked before Arrow converts them. ``lossless``: Python types that Arrow converts
    without loss, or refuses. ``check``: raises ValueError for a value of another type that Arrow would truncate."""

    lossless: frozenset[type]
    check: Callable[[Any], None]


def _check_values(values: Iterable[Any], check: _Check | None) -> None:
    if check is None:
        return
    lossless, check_value = check
    for value in values:
        # Arrow itself refuses scalars of another type.
        if type(value) not in lossless and not isinstance(value, pa.Scalar):
            check_value(value)


def _check_of(wanted: pa.DataType) -> _Check | None:
    """The check for a type; None where Arrow converts every value without loss, or refuses it."""
    types = pa.types
    if types.is_struct(wanted):
        return _struct({field.name: _check_of(field.type) for field in wanted})
    if types.is_map(wanted):
        return _map(wanted)
    if types.is_nested(wanted):
        return _list(_check_of(wanted.value_type))
    if types.is_timestamp(wanted):
        return _TIMESTAMP_NTZ if wanted.tz is None else _TIMESTAMP
    return next((check for is_one, check in _LEAVES.items() if is_one(wanted)), None)


def _struct(fields: Mapping[str, _Check | None]) -> _Check:
    checks = {name: check for name, check in fields.items() if check is not None}

    def check_value(value: Any) -> None:
        if not isinstance(value, Mapping):
            raise ValueError(f"a struct is a mapping from names to values, and not {type(value).__name__}")
        unknown = value.keys() - fields.keys()
        if unknown:
            raise ValueError(f"it has a field {sorted(map(str, unknown))[0]!r}")
        for name, check in checks.items():
            _check_values((value.get(name),), check)

    return _Check(_ABSENT, check_value)


def _map(wanted: pa.MapType) -> _Check:
    key, item = _check_of(wanted.key_type), _check_of(wanted.item_type)
    entry = _struct({wanted.key_field.name: key, wanted.item_field.name: item})

    def check_value(value: Any) -> None:
        if isinstance(value, Mapping):
            _check_values(value.keys(), key)
            _check_values(value.values(), item)
            return
        for each in value:
            if isinstance(each, tuple):
                _check_values(each[:1], key)
                _check_values(each[1:], item)
            else:
                entry.check(each)

    return _Check(_ABSENT, check_value)


def _list(element: _Check | None) -> _Check | None:
    def check_value(value: Any) -> None:
        kind = getattr(value, "__array_interface__", _NO_ARRAY)["typestr"][1:]
        if kind.startswith("M8") and kind != "M8[us]":  # Arrow takes the numbers, and makes microseconds of them
            raise ValueError(f"{value.dtype} is an array of times in another unit than microseconds")
        # Checking the numbers of an array is much faster as Python numbers.
        _check_values(value.tolist() if hasattr(value, "tolist") else value, element)

    return None if element is None else _Check(_ABSENT, check_value)


def _check_whole(value: Any) -> None:
    # Arrow calls __int__ where it exists: on numbers of other libraries, and on their arrays of dimension 0.
    if isinstance(value, Number) or hasattr(value, "__int__"):
        with contextlib.suppress(TypeError):  # the value is not a number
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
    elif not has_zone and value.tzinfo is not None:
        raise ValueError(f"{value} has a time zone")


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
_TIMESTAMP = _Check(_INT | {datetime.datetime}, partial(_check_time, has_zone=True))
_TIMESTAMP_NTZ = _Check(_INT, partial(_check_time, has_zone=False))
_LEAVES: dict[Callable[[pa.DataType], bool], _Check] = {
    pa.types.is_integer: _Check(_INT, _check_whole),
    pa.types.is_float32: _Check(_INT, _finite(_MAX_FLOAT32)),
    pa.types.is_float64: _Check(_INT | {float}, _finite(sys.float_info.max)),
    pa.types.is_date: _Check(_INT | {datetime.date}, _check_date),
}
