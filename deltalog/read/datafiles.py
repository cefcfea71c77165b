"""One data file as Arrow: the table's columns, whatever the file has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltalog.errors import InvalidDataFileError, ObjectNotFoundError
from deltalog.spec import partitions
from deltalog.spec.arrow import type_to_arrow
from deltalog.spec.paths import resolve_path
from deltalog.spec.schema import StructField, StructType
from deltalog.storage.base import LogStore


def read_file(
    store: LogStore,
    add_path: str,
    partition_values: Mapping[str, str | None],
    schema: StructType,
    partition_columns: Sequence[str],
) -> pa.Table:
    """The columns of ``schema`` from a file that the log names.

    Partition columns come from ``partition_values``; columns that the file lacks are null. Raises
    InvalidDataFileError, UnsafePathError. Cost: 1 GET of the footer and some for the columns.
    """
    path = resolve_path(add_path, store.url)
    partitioned = {name.lower() for name in partition_columns}
    try:
        # INT96 in its default nanoseconds would wrap around outside the years 1677 to 2262.
        with pq.ParquetFile(store.open_input(path), coerce_int96_timestamp_unit="us") as file:
            stored = {name.lower(): name for name in file.schema_arrow.names}
            wanted = [stored[f.name.lower()] for f in schema if f.name.lower() in stored.keys() - partitioned]
            data = file.read(columns=wanted)
            rows = file.metadata.num_rows
        columns = [
            _constant(partition_values, column, rows)
            if column.name.lower() in partitioned
            else _stored(data, stored.get(column.name.lower()), column, rows)
            for column in schema
        ]
    except ObjectNotFoundError as error:
        raise InvalidDataFileError(
            f"{store.url}: the data file {path} is missing, though the log has it. It was deleted by hand, or by "
            "VACUUM when this is an old version; restore it, or read a version that does not need it.",
            path=path,
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise InvalidDataFileError(f"{store.url}: the data file {path} cannot be read: {error}", path=path) from error
    return pa.Table.from_arrays(columns, schema=schema.to_arrow())


def _constant(values: Mapping[str, str | None], column: StructField, rows: int) -> Any:
    folded = {name.lower(): text for name, text in values.items()}
    value = partitions.parse(folded.get(column.name.lower()), column.data_type, column.name)
    return pa.repeat(pa.scalar(value, type_to_arrow(column.data_type)), rows)


def _stored(data: pa.Table, name: str | None, column: StructField, rows: int) -> Any:
    wanted = type_to_arrow(column.data_type)
    if name is None:
        return pa.nulls(rows, wanted)
    return conform(data.column(name).combine_chunks(), wanted)


def conform(values: Any, wanted: pa.DataType) -> Any:
    """Stored values as the table's type: struct fields by name, absent ones null, numbers widened.

    Raises pyarrow.ArrowInvalid or ArrowNotImplementedError where that is not possible without loss.
    """
    if values.type == wanted:
        return values
    types = pa.types
    if types.is_struct(wanted) and types.is_struct(values.type):
        stored = {f.name.lower(): i for i, f in enumerate(values.type.fields)}
        children = values.flatten()
        conformed = [
            pa.nulls(len(values), field.type)
            if field.name.lower() not in stored
            else conform(children[stored[field.name.lower()]], field.type)
            for field in wanted.fields
        ]
        mask = values.is_null() if values.null_count else None
        if not conformed:
            return pa.nulls(len(values), wanted)
        return pa.StructArray.from_arrays(conformed, fields=list(wanted.fields), mask=mask)
    if types.is_map(wanted) and types.is_map(values.type):
        keys = conform(values.keys, wanted.key_type)
        items = conform(values.items, wanted.item_type)
        return pa.MapArray.from_arrays(_offsets(values), keys, items).cast(wanted)
    if types.is_list(wanted) and types.is_list(values.type):
        elements = conform(values.values, wanted.value_type)
        return pa.ListArray.from_arrays(_offsets(values), elements, type=wanted)
    if types.is_timestamp(values.type) and types.is_timestamp(wanted):
        # A timestamp without a zone in a file (INT96, or not adjusted to UTC) is UTC in Delta.
        return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(wanted)
    if types.is_dictionary(values.type):
        return conform(values.dictionary_decode(), wanted)
    return values.cast(wanted)


def _offsets(values: Any) -> Any:
    """Offsets of a list or map array with nulls where its values are null."""
    if not values.null_count:
        return values.offsets
    valid = pa.concat_arrays([values.is_valid(), pa.array([True])])
    return pc.if_else(valid, values.offsets, pa.scalar(None, pa.int32()))
