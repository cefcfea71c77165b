"""Records, pulled one by one, as Arrow batches of some MiB. Nothing is rounded, cut or dropped on the way. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from deltalog.errors import CallError, SchemaMismatchError
from deltalog.spec.schema import StructType, check_writable
from deltalog.write.datafiles import as_reader

Records = Iterable[Mapping[str, Any] | pa.RecordBatch]
_BATCH_BYTES = 4 << 20
_FIRST_RECORDS, _MOST_RECORDS = 64, 8_192
_MOST_FLOAT32 = 3.4028235677973366e38  # what is below is rounded to a finite number
_NO_TIME = datetime.time()


def record_batches(records: Records, schema: StructType, filled: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Mappings from column names to values as batches, and record batches as they are, in order.

    ``filled``: columns that the table fills in where they are absent, which the keys of each record tell; others are
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
        return iter(as_reader(records))
    try:
        return iter(records)
    except TypeError:
        raise CallError(f"Records are an iterable of mappings or of record batches; got {type(records)}.") from None


def _check_record(record: Any, names: Iterable[str]) -> None:
    if not isinstance(record, Mapping):
        raise CallError(f"A record is a mapping from column names to values, or a record batch; got {type(record)}.")
    unknown = record.keys() - names
    if unknown:
        raise SchemaMismatchError(
            f"A record has {sorted(map(str, unknown))[0]!r}, which is no column of the table. Its columns are "
            f"{', '.join(names)}."
        )


def _batch(records: list[Mapping[str, Any]], fields: list[pa.Field]) -> pa.RecordBatch:
    return pa.record_batch([_array(records, field) for field in fields], schema=pa.schema(fields))


def _array(records: list[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    values = [record.get(field.name) for record in records]
    try:
        if _may_lose(field.type):
            for value in values:
                _check_kept(value, field.type)
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SchemaMismatchError(
            f"A record's value of column {field.name} does not fit {field.type}: {error}."
        ) from None


def _may_lose(wanted: pa.DataType) -> bool:
    """Whether Arrow would take some values of other types and keep a part of them."""
    types = pa.types
    kinds = (types.is_integer, types.is_temporal, types.is_nested, types.is_float32)
    return any(is_one(wanted) for is_one in kinds)


def _check_kept(value: Any, wanted: pa.DataType) -> None:
    """Raise ValueError for a value of which Arrow would silently keep only a part."""
    types = pa.types
    if value is None:
        return
    if types.is_struct(wanted) and isinstance(value, Mapping):
        unknown = value.keys() - {field.name for field in wanted}
        if unknown:
            raise ValueError(f"it has a field {sorted(map(str, unknown))[0]!r}")
        for field in wanted:
            _check_kept(value.get(field.name), field.type)
    elif types.is_map(wanted):
        for key, item in value.items() if isinstance(value, Mapping) else value:
            _check_kept(key, wanted.key_type)
            _check_kept(item, wanted.item_type)
    elif types.is_nested(wanted) and not types.is_struct(wanted):
        for element in value:
            _check_kept(element, wanted.value_type)
    elif types.is_float32(wanted):
        if isinstance(value, (int, float)) and _MOST_FLOAT32 <= abs(value) < float("inf"):
            raise ValueError(f"{value} is too large")
    elif isinstance(value, (float, Decimal)) and (types.is_integer(wanted) or types.is_temporal(wanted)):
        if value % 1:
            raise ValueError(f"{value} has a fraction")
    elif types.is_date(wanted) and isinstance(value, datetime.datetime) and value.time() != _NO_TIME:
        raise ValueError(f"{value} has a time of day")
