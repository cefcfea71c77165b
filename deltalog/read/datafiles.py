"""One data file as Arrow: the table's columns, whatever the file has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from deltalog.errors import InvalidDataFileError, ObjectNotFoundError, UnsupportedFeatureError
from deltalog.spec import column_mapping, deletion_vectors, partitions
from deltalog.spec.actions import DeletionVector
from deltalog.spec.arrow import type_to_arrow
from deltalog.spec.column_mapping import Lookup, Mode
from deltalog.spec.paths import resolve_path
from deltalog.spec.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from deltalog.storage.base import LogStore

VARIANT = PrimitiveType("variant")
BY_NAME = column_mapping.lookup("none")


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What is read of each file: the columns wanted, which of them partition the table, and the mapping."""

    schema: StructType
    partition_columns: Sequence[str]
    mapping: Mode = "none"


def read_file(
    store: LogStore,
    add_path: str,
    partition_values: Mapping[str, str | None],
    vector: DeletionVector | None,
    layout: FileLayout,
) -> pa.Table:
    """The columns of ``layout`` from a file that the log names, without the rows that ``vector`` deletes.

    Partition columns come from ``partition_values``; columns that the file lacks are null. Raises
    InvalidDataFileError, UnsafePathError. Cost: 1 GET of the footer and some for the columns; 1 more for a
    deletion vector in a file.
    """
    path = resolve_path(add_path, store.url)
    partitioned = {name.lower() for name in layout.partition_columns}
    find = column_mapping.lookup(layout.mapping)
    try:
        # INT96 in its default nanoseconds would wrap around outside the years 1677 to 2262.
        with pq.ParquetFile(store.open_input(path), coerce_int96_timestamp_unit="us") as file:
            fields = list(file.schema_arrow)
            stored = {c.name: find(c, fields) for c in layout.schema if c.name.lower() not in partitioned}
            wanted = [fields[index].name for index in stored.values() if index is not None]
            data = file.read(columns=wanted)
            rows = file.metadata.num_rows
        columns = []
        for column in layout.schema:
            if column.name.lower() in partitioned:
                columns.append(_constant(partition_values, column, layout.mapping, rows))
                continue
            index = stored[column.name]
            values = None if index is None else data.column(fields[index].name).combine_chunks()
            arrow = type_to_arrow(column.data_type)
            columns.append(pa.nulls(rows, arrow) if values is None else conform(values, column.data_type, find))
        table = pa.Table.from_arrays(columns, schema=layout.schema.to_arrow())
    except ObjectNotFoundError as error:
        raise InvalidDataFileError(
            f"{store.url}: the data file {path} is missing, though the log has it. It was deleted by hand, or by "
            "VACUUM when this is an old version; restore it, or read a version that does not need it.",
            path=path,
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise InvalidDataFileError(f"{store.url}: the data file {path} cannot be read: {error}", path=path) from error
    return table if vector is None else without_positions(table, read_vector(store, vector))


def read_vector(store: LogStore, vector: DeletionVector) -> BitMap64:
    """The positions that a deletion vector deletes. Cost: 1 GET unless it is inline."""
    if vector.storage_type == "i":
        return deletion_vectors.from_inline(vector)
    relative = vector.storage_type == "u"
    named = deletion_vectors.relative_path(vector) if relative else vector.path_or_inline_dv
    # The encoded UUID is a plain name; only an absolute path is percent-encoded.
    path = resolve_path(named, store.url)
    try:
        return deletion_vectors.from_file(store.get(path), vector)
    except ObjectNotFoundError as error:
        raise InvalidDataFileError(
            f"{store.url}: the deletion vector file {path} is missing. Without it, deleted rows would come back; "
            "restore it.",
            path=path,
        ) from error


def without_positions(table: pa.Table, deleted: BitMap64) -> pa.Table:
    """The rows whose positions are not deleted."""
    live = BitMap64()
    live.add_range(0, table.num_rows)
    live -= deleted
    return table if len(live) == table.num_rows else table.take(pa.array(live.to_array()))


def _constant(values: Mapping[str, str | None], column: StructField, mode: Mode, rows: int) -> Any:
    name = column_mapping.physical_name(column, mode)
    folded = {key.lower(): text for key, text in values.items()}
    text = values[name] if name in values else folded.get(name.lower())
    value = partitions.parse(text, column.data_type, column.name)
    return pa.repeat(pa.scalar(value, type_to_arrow(column.data_type)), rows)


def conform(values: Any, data_type: DataType, find: Lookup = BY_NAME) -> Any:
    """Stored values as a type of the table: struct fields found by ``find``, absent ones null, numbers widened.

    Raises pyarrow.ArrowInvalid or ArrowNotImplementedError where that is not possible without loss.
    """
    wanted = type_to_arrow(data_type)
    types = pa.types
    if data_type == VARIANT:
        return _conform_variant(values, wanted)
    if types.is_dictionary(values.type):
        return conform(values.dictionary_decode(), data_type, find)
    if isinstance(data_type, StructType) and types.is_struct(values.type):
        return _conform_struct(values, data_type, find)
    if isinstance(data_type, MapType) and types.is_map(values.type):
        keys = conform(values.keys, data_type.key_type, find)
        items = conform(values.items, data_type.value_type, find)
        entries = pa.StructArray.from_arrays([keys, items], fields=[wanted.key_field, wanted.item_field])
        return _with_child(values, wanted, entries)
    if isinstance(data_type, ArrayType) and types.is_list(values.type):
        return _with_child(values, wanted, conform(values.values, data_type.element_type, find))
    if values.type == wanted:
        return values
    if types.is_timestamp(values.type) and types.is_timestamp(wanted):
        # A timestamp without a zone in a file (INT96, or not adjusted to UTC) is UTC in Delta.
        return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(wanted)
    return values.cast(wanted)


def _conform_struct(values: Any, data_type: StructType, find: Lookup) -> Any:
    wanted = type_to_arrow(data_type)
    stored = list(values.type.fields)
    children = values.flatten()
    conformed = []
    for column in data_type.fields:
        index = find(column, stored)
        if index is None:
            conformed.append(pa.nulls(len(values), type_to_arrow(column.data_type)))
        else:
            conformed.append(conform(children[index], column.data_type, find))
    if not conformed:
        return pa.nulls(len(values), wanted)
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(conformed, fields=list(wanted.fields), mask=mask)


def _with_child(values: Any, wanted: pa.DataType, child: Any) -> Any:
    """A list or map with another child array under the same offsets and nulls; a null entry may hide values."""
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(wanted, len(values), [validity, offsets], offset=values.offset, children=[child])


def _conform_variant(values: Any, wanted: pa.StructType) -> Any:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    stored = {field.name: index for index, field in enumerate(values.type.fields)}
    if "typed_value" in stored:
        raise UnsupportedFeatureError("Shredded variants are not read yet.", features=("variantShredding",))
    children = [values.field(stored[field.name]).cast(field.type) for field in wanted.fields]
    return pa.StructArray.from_arrays(children, fields=list(wanted.fields), mask=values.is_null())
