"""Converts records, which are read one by one, to Arrow batches of a few MiB. Values that Arrow would round or truncate
are refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from deltalog.errors import CallError, SchemaMismatchError
from deltalog.expressions.python_values import check_of, check_values, with_variants
from deltalog.protocol.schema import DataType, StructField, StructType, uses_type
from deltalog.protocol.schema_enforcement import check_writable
from deltalog.write.input_streams import as_reader, read_once
from deltalog.write.write_steps import columns_of

Records = Iterable[Mapping[str, Any] | pa.RecordBatch]
_BATCH_BYTES = 4 << 20
_FIRST_RECORDS, _MAX_RECORDS = 64, 8_192


def record_batches(records: Records, schema: StructType, filled: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Convert records (mappings from column names to values) to batches; record batches among them are passed through,
    in order.

    ``filled``: columns that the table fills in if a record lacks them; other absent columns are null. Raises CallError
    for an item that is not a record, SchemaMismatchError for values that do not fit.
    """
    columns = {field.name: (field, column) for field, column in zip(schema.to_arrow(), schema.fields, strict=True)}
    held: list[Mapping[str, Any]] = []
    given: frozenset[str] = frozenset()
    limit = _FIRST_RECORDS
    for record in _iterated(records):
        if isinstance(record, pa.RecordBatch):
            check_writable(schema, columns_of(record.schema, schema))
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
        raise CallError(f"Records must be an iterable of mappings or of record batches, not {type(records).__name__}.")
    return read_once(records, is_callers=True)


def _check_record(record: Any, names: Iterable[str]) -> None:
    if not isinstance(record, Mapping):
        raise CallError(
            f"A record must be a mapping from column names to values, or a record batch, not {type(record).__name__}."
        )
    unknown = record.keys() - names
    if unknown:
        raise SchemaMismatchError(
            f"A record has {sorted(map(str, unknown))[0]!r}, which is not a column of the table. Its columns are "
            f"{', '.join(names)}."
        )


def _batch(records: list[Mapping[str, Any]], fields: list[tuple[pa.Field, StructField]]) -> pa.RecordBatch:
    arrays = [_array(records, field, column.data_type) for field, column in fields]
    return pa.record_batch(arrays, schema=pa.schema([field for field, _ in fields]))


def _array(records: list[Mapping[str, Any]], field: pa.Field, data_type: DataType) -> pa.Array:
    values = [record.get(field.name) for record in records]
    try:
        if uses_type(data_type, "variant"):
            values = [with_variants(value, data_type) for value in values]
        check_values(values, check_of(field.type))
        return pa.array(values, field.type)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise SchemaMismatchError(
            f"A record's value of column {field.name} does not fit {field.type}: {error}."
        ) from None
