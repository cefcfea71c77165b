"""Records, pulled one by one, as Arrow batches of some MiB. Nothing is rounded, cut or dropped on the way."""

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
_FIRST_RECORDS, _MOST_RECORDS = 64, 8_192
_MOST_FLOAT32 = 3.4028235677973362e38  # what is above is rounded to infinity
_NO_TIME = datetime.time()


def record_batches(records: Records, schema: StructType, filled: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Mappings from column names to values as batches, and record batches as they are, in order.

    ``filled``: columns that the table fills in where the keys of a record do not have them; others are
    null then. Raises CallError for what is no record, SchemaMismatchError for values that do not fit.
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
            limit = max(1, min(_MOST_RECORDS, 2 * limit, limit * _BATCH_BYTES // max(batch.nbytes, 1)))
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
        _look_at(values, _check_of(field.type))
        return pa.array(values, field.type)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise SchemaMismatchError(
            f"A record's value of column {field.name} does not fit {field.type}: {error}."
        ) from None


# ------------------------------------------------------------------------------------------------- nothing is lost


class _Check(NamedTuple):
    """How values of a type are checked before Arrow converts them. ``whole``: types that Arrow converts without loss,
    or refuses. ``look`` raises ValueError for another value of which Arrow would silently keep only a part."""

    whole: frozenset[type]
    look: Callable[[Any], None]


def _look_at(values: Iterable[Any], check: _Check | None) -> None:
    if check is None:
        return
    whole, look = check
    for value in values:
        # Scalars of Arrow are refused where their type is another.
        if type(value) not in whole and not isinstance(value, pa.Scalar):
            look(value)


def _check_of(wanted: pa.DataType) -> _Check | None:
    """None for types of which Arrow keeps a value whole, or refuses it."""
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

    def look(value: Any) -> None:
        if not isinstance(value, Mapping):
            raise ValueError(f"a struct is a mapping from names to values, and not {type(value).__name__}")
        unknown = value.keys() - fields.keys()
        if unknown:
            raise ValueError(f"it has a field {sorted(map(str, unknown))[0]!r}")
        for name, check in checks.items():
            _look_at((value.get(name),), check)

    return _Check(_ABSENT, look)


def _map(wanted: pa.MapType) -> _Check:
    key, item = _check_of(wanted.key_type), _check_of(wanted.item_type)
    entry = _struct({wanted.key_field.name: key, wanted.item_field.name: item})

    def look(value: Any) -> None:
        if isinstance(value, Mapping):
            _look_at(value.keys(), key)
            _look_at(value.values(), item)
            return
        for each in value:
            if isinstance(each, tuple):
                _look_at(each[:1], key)
                _look_at(each[1:], item)
            else:
                entry.look(each)

    return _Check(_ABSENT, look)


def _list(element: _Check | None) -> _Check | None:
    def look(value: Any) -> None:
        kind = getattr(value, "__array_interface__", _NO_ARRAY)["typestr"][1:]
        if kind.startswith("M8") and kind != "M8[us]":  # Arrow takes the numbers, and makes microseconds of them
            raise ValueError(f"{value.dtype} is an array of times in another unit than microseconds")
        # Checking the numbers of an array is much faster as Python numbers.
        _look_at(value.tolist() if hasattr(value, "tolist") else value, element)

    return None if element is None else _Check(_ABSENT, look)


def _look_whole(value: Any) -> None:
    # Arrow calls __int__ of what has it: numbers of other libraries, and their arrays without a dimension.
    if isinstance(value, Number) or hasattr(value, "__int__"):
        with contextlib.suppress(TypeError):  # of what is no number at all
            if value % 1:
                raise ValueError(f"{value} has a fraction")


def _finite(most: float) -> Callable[[Any], None]:
    def look(value: Any) -> None:
        is_number = isinstance(value, (float, Real))
        if is_number and not -most <= value <= most and abs(value) < math.inf:
            raise ValueError(f"{value} is too large")

    return look


def _look_time(value: Any, has_zone: bool) -> None:
    if not isinstance(value, datetime.datetime):
        _look_whole(value)
    elif getattr(value, "nanosecond", 0) > 0:
        raise ValueError(f"{value} has nanoseconds")
    elif not has_zone and value.tzinfo is not None:
        raise ValueError(f"{value} has a time zone")


def _look_date(value: Any) -> None:
    if not isinstance(value, datetime.datetime):
        _look_whole(value)
    elif value.time() != _NO_TIME:
        raise ValueError(f"{value} has a time of day")
    else:
        _look_time(value, has_zone=False)


_ABSENT = frozenset({type(None)})
_INT = _ABSENT | {int}
_NO_ARRAY = {"typestr": ""}
_TIMESTAMP = _Check(_INT | {datetime.datetime}, partial(_look_time, has_zone=True))
_TIMESTAMP_NTZ = _Check(_INT, partial(_look_time, has_zone=False))
_LEAVES: dict[Callable[[pa.DataType], bool], _Check] = {
    pa.types.is_integer: _Check(_INT, _look_whole),
    pa.types.is_float32: _Check(_INT, _finite(_MOST_FLOAT32)),
    pa.types.is_float64: _Check(_INT | {float}, _finite(sys.float_info.max)),
    pa.types.is_date: _Check(_INT | {datetime.date}, _look_date),
}
