"""Converts Arrow arguments and results. Results are objects of arro3 if arro3 is installed, as in deltalake; otherwise
they are objects of pyarrow."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.errors import CallError, SchemaMismatchError
from deltalog.protocol.arrow_types import plain_layout


@cache
def _arro3() -> Any:
    """The module arro3.core; None if it is not installed."""
    if importlib.util.find_spec("arro3") is None:
        return None
    import arro3.core

    return arro3.core


def given_table(table: pa.Table) -> Any:
    """A table for the caller."""
    core = _arro3()
    return table if core is None else core.Table.from_arrow(table)


def given_reader(reader: pa.RecordBatchReader) -> Any:
    """The caller's data as a stream of batches."""
    core = _arro3()
    return reader if core is None else core.RecordBatchReader.from_arrow(reader)


def given_schema(schema: pa.Schema) -> Any:
    """A schema for the caller."""
    core = _arro3()
    return schema if core is None else core.Schema.from_arrow(schema)


def given_field(field: pa.Field) -> Any:
    """A field for the caller."""
    core = _arro3()
    return field if core is None else core.Field.from_arrow(field)


def given_type(data_type: pa.DataType) -> Any:
    """A type for the caller."""
    core = _arro3()
    return data_type if core is None else core.DataType.from_arrow(pa.field("", data_type))


def taken_schema(schema: Any) -> pa.Schema:
    """The caller's schema, from any object with the Arrow C schema interface. Raises CallError."""
    if isinstance(schema, pa.Schema):
        return schema
    if not hasattr(schema, "__arrow_c_schema__"):
        raise CallError(f"{type(schema).__name__} is not an Arrow schema. Pass a pyarrow, arro3 or polars schema.")
    return pa.schema(schema)


def taken_field(field: Any) -> pa.Field:
    """The caller's field or type, as a field. Raises CallError."""
    if isinstance(field, pa.Field):
        return field
    if isinstance(field, pa.DataType):
        return pa.field("", field)
    if not hasattr(field, "__arrow_c_schema__"):
        raise CallError(f"{type(field).__name__} is not an Arrow field. Pass a pyarrow or arro3 field.")
    return pa.field(field)


def taken_stream(data: Any) -> pa.RecordBatchReader:
    """The caller's rows as a stream: from any object with the Arrow C stream or array interface, or a sequence of such
    arrays. Like deltalake, keeps the index of a pandas DataFrame as a column. Raises CallError."""
    reader = _stream(data)
    if b"pandas" not in (reader.schema.metadata or {}):
        return reader
    # The metadata of pandas marks some columns as the index, and deltalog would leave these columns out.
    batches = (batch.replace_schema_metadata(None) for batch in reader)
    return pa.RecordBatchReader.from_batches(reader.schema.remove_metadata(), batches)


def _stream(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, Sequence) and not hasattr(data, "__arrow_c_stream__"):
        try:
            schema = taken_schema(data[0].schema)
        except IndexError:
            raise CallError(
                "The data is an empty sequence, which has no schema. Pass an Arrow table without rows."
            ) from None
        return pa.RecordBatchReader.from_batches(schema, (batch for each in data for batch in _batches(each)))
    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    batch = _batch(data)
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


def _batches(data: Any) -> list[pa.RecordBatch]:
    return data.to_batches() if isinstance(data, pa.Table) else [_batch(data)]


def _batch(data: Any) -> pa.RecordBatch:
    if isinstance(data, pa.RecordBatch):
        return data
    if hasattr(data, "__arrow_c_array__"):
        return pa.record_batch(data)
    raise CallError(
        f"Data of type {type(data).__name__} has no Arrow interface. Pass a pyarrow, arro3, polars or pandas table."
    )


def nested_as(given: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """A nested type in which each field has the type of the field with the same name in ``wanted``."""
    types = pa.types
    if types.is_struct(given) and types.is_struct(wanted):
        known = {field.name: field.type for field in wanted.fields}
        return pa.struct(
            [f.with_type(nested_as(f.type, known[f.name])) if f.name in known else f for f in given.fields]
        )
    if types.is_list(given) and types.is_list(wanted):
        return pa.list_(given.value_field.with_type(nested_as(given.value_type, wanted.value_type)))
    return given if types.is_nested(given) or types.is_nested(wanted) else wanted


_SIGNED = {"uint8": pa.int8(), "uint16": pa.int16(), "uint32": pa.int32(), "uint64": pa.int64()}


def delta_schema(schema: pa.Schema, existing: pa.Schema | None = None, nanoseconds: bool = False) -> pa.Schema:
    """An Arrow schema with the types that a table gets: signed integers, timestamps in microseconds and UTC, and binary
    of variable length. A column of type null gets the type of the ``existing`` column. ``nanoseconds``: whether to keep
    the nanosecond precision of timestamps."""
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_null(kind) and existing is not None and field.name in existing.names:
            kind = existing.field(field.name).type
        fields.append(field.with_type(_delta_type(kind, nanoseconds)))
    return pa.schema(fields, schema.metadata)


def _delta_type(kind: pa.DataType, nanoseconds: bool) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(kind):
        unit = "ns" if nanoseconds and kind.unit == "ns" else "us"
        return pa.timestamp(unit, None if kind.tz is None else "UTC")
    if types.is_struct(kind):
        return pa.struct([field.with_type(_delta_type(field.type, nanoseconds)) for field in kind.fields])
    for is_list, made in (
        (types.is_list, pa.list_), (types.is_large_list, pa.large_list),
        (types.is_list_view, pa.list_view), (types.is_large_list_view, pa.large_list_view),
    ):  # fmt: skip
        if is_list(kind):
            return made(kind.value_field.with_type(_delta_type(kind.value_type, nanoseconds)))
    if types.is_fixed_size_list(kind):
        inner = kind.value_field.with_type(_delta_type(kind.value_type, nanoseconds))
        return pa.list_(inner.with_name("element") if inner.name == "item" else inner, kind.list_size)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    return _SIGNED.get(str(kind), kind)


def converted(reader: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    """The rows, with the types of ``schema``, which is a result of ``delta_schema``. Rows whose values do not fit raise
    SchemaMismatchError when they are read."""
    if reader.schema.equals(schema):
        return reader

    def batches() -> Any:
        for batch in reader:
            yield pa.RecordBatch.from_arrays(
                [cast(values, field) for values, field in zip(batch.columns, schema, strict=True)], schema=schema
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def cast(values: Any, field: pa.Field) -> Any:
    """The values of a column, converted to another type; digits beyond microseconds are cut off. Raises
    SchemaMismatchError."""
    if values.type.equals(field.type):
        return values
    try:
        if pa.types.is_dictionary(values.type):  # Arrow cannot cast a dictionary of string views to text
            values = plain_layout(values)
        return pc.cast(values, options=pc.CastOptions(target_type=field.type, allow_time_truncate=True))
    except (pa.ArrowException, TypeError) as error:
        raise SchemaMismatchError(f"Cast error: column {field.name}: {error}") from None


def with_views(rows: pa.Table) -> pa.Table:
    """The rows with string and binary columns cast to Arrow's view types, as DataFusion returns them."""
    return rows.cast(pa.schema([field.with_type(_viewed(field.type)) for field in rows.schema], rows.schema.metadata))


def view_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of ``with_views``."""
    return pa.schema([field.with_type(_viewed(field.type)) for field in schema])


def _viewed(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string_view()
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.binary_view()
    if types.is_timestamp(kind) and kind.tz == "Etc/UTC":  # as DuckDB names it
        return pa.timestamp(kind.unit, "UTC")
    return kind


def with_large_types(schema: pa.Schema) -> pa.Schema:
    """A schema in which text, binary and list columns use 64-bit offsets."""
    return pa.schema([field.with_type(_large(field.type)) for field in schema], schema.metadata)


def _large(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string(kind):
        return pa.large_string()
    if types.is_binary(kind):
        return pa.large_binary()
    if types.is_list(kind):
        return pa.large_list(kind.value_field.with_type(_large(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_large(field.type)) for field in kind.fields])
    if types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_large(kind.key_type)), kind.item_field.with_type(_large(kind.item_type))
        )
    return kind


def names_of(columns: Sequence[str] | None) -> list[str] | None:
    """Column names as a list."""
    return None if columns is None else list(columns)
