"""Data files: Arrow rows to Parquet below the table, and Parquet files to add actions.

Spec: PROTOCOL.md#data-files, #per-file-statistics.
"""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.errors import CallError, InvalidDataFileError, ObjectNotFoundError, SchemaMismatchError
from deltalog.read.datafiles import conform
from deltalog.spec import partitions, stats
from deltalog.spec.actions import AddFile
from deltalog.spec.paths import encode_path
from deltalog.spec.schema import ArrayType, MapType, StructField, StructType
from deltalog.storage.base import LogStore

TARGET_BYTES = 128 << 20
BUFFER_BYTES = 256 << 20
_FOOTER_THREADS = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """What decides how files are written: the table's schema, its partition columns, its indexed leaves."""

    schema: StructType
    partition_columns: tuple[str, ...]
    indexed_columns: int

    @property
    def data_schema(self) -> StructType:
        """The columns that are in the files."""
        return StructType(tuple(f for f in self.schema if f.name not in self.partition_columns))


def as_reader(data: Any) -> pa.RecordBatchReader:
    """A stream of batches of anything that speaks Arrow. Raises CallError."""
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    raise CallError(
        f"Data of type {type(data).__name__} has no __arrow_c_stream__. Pass a pyarrow Table or RecordBatchReader, "
        "a polars or pandas (2.2+) DataFrame, or a duckdb relation; for rows, pyarrow.Table.from_pylist(rows)."
    )


def write_rows(
    store: LogStore, reader: pa.RecordBatchReader, layout: Layout, new_uuid: Callable[[], str], clock_ms: int
) -> tuple[list[AddFile], int]:
    """Write a stream into new files, durable when this returns. The add actions and the number of rows.

    On any error the files written so far are removed, best effort. Memory: about BUFFER_BYTES. Raises
    SchemaMismatchError when the rows do not fit the schema. Cost: 1 PUT for each file.
    """
    adds: list[AddFile] = []
    rows = 0
    try:
        for table in _buffered(reader, layout):
            rows += table.num_rows
            for values, part in _by_partition(table, layout):
                adds.append(_write_file(store, part, values, layout, new_uuid(), clock_ms))
    except BaseException:
        discard(store, [add.path for add in adds])
        raise
    return adds, rows


def discard(store: LogStore, add_paths: Iterable[str]) -> None:
    """Remove files that no commit names, best effort."""
    for path in add_paths:
        with contextlib.suppress(Exception):
            store.delete(urllib.parse.unquote(path))


def _buffered(reader: pa.RecordBatchReader, layout: Layout) -> Iterator[pa.Table]:
    """Tables of the table's schema, of TARGET_BYTES (partitioned: BUFFER_BYTES) in memory or less."""
    limit = BUFFER_BYTES if layout.partition_columns else TARGET_BYTES
    held: list[pa.Table] = []
    held_bytes = 0
    for batch in reader:
        if not batch.num_rows:
            continue
        table = _conformed(pa.Table.from_batches([batch]), layout.schema)
        held.append(table)
        held_bytes += table.nbytes
        if held_bytes >= limit:
            yield pa.concat_tables(held)
            held, held_bytes = [], 0
    if held:
        yield pa.concat_tables(held)


def _conformed(table: pa.Table, schema: StructType) -> pa.Table:
    """The rows with the table's columns, in its order and types."""
    given = {name.lower(): table.column(i) for i, name in enumerate(table.schema.names)}
    columns = []
    for column, field in zip(schema, schema.to_arrow(), strict=True):
        values = given.get(column.name.lower())
        if values is None:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        try:
            columns.append(conform(values.combine_chunks(), column.data_type))
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"Values of column {column.name} ({values.type}) do not fit {column.data_type}: {error}."
            ) from None
        check_not_null(columns[-1], column, column.name)
    return pa.Table.from_arrays(columns, schema=schema.to_arrow())


def check_not_null(values: Any, column: StructField, name: str) -> None:
    """Refuse nulls in a NOT NULL column, and in NOT NULL fields below structs, lists and maps that are there."""
    if not column.nullable and values.null_count:
        raise SchemaMismatchError(f"Column {name} is NOT NULL and the data has nulls in it.")
    data_type = column.data_type
    if isinstance(data_type, StructType):
        present = values.drop_null() if values.null_count else values
        for child, field in zip(present.flatten(), data_type.fields, strict=True):
            check_not_null(child, field, f"{name}.{field.name}")
    elif isinstance(data_type, ArrayType):
        element = StructField("element", data_type.element_type, data_type.contains_null)
        check_not_null(values.flatten(), element, f"{name}.element")
    elif isinstance(data_type, MapType):
        entries = values.drop_null() if values.null_count else values
        value = StructField("value", data_type.value_type, data_type.value_contains_null)
        check_not_null(pa.concat_arrays([entries.items]), value, f"{name}.value")


def _by_partition(table: pa.Table, layout: Layout) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    if not layout.partition_columns:
        yield {}, table
        return
    names = list(layout.partition_columns)
    indexed = table.select(names).append_column("\0row", pa.array(range(table.num_rows), pa.int64()))
    groups = indexed.group_by(names, use_threads=False).aggregate([("\0row", "list")])
    merged: dict[tuple[str | None, ...], list[int]] = {}
    try:
        found = groups.to_pylist()
    except (OverflowError, ValueError) as error:
        raise SchemaMismatchError(
            f"A value of the partition columns {', '.join(names)} lies outside the years 1 to 9999: {error}."
        ) from None
    for group in found:
        texts = tuple(partitions.serialize(group[n], layout.schema.field(n).data_type) for n in names)
        merged.setdefault(texts, []).extend(group["\0row_list"])
    data = table.drop_columns(names)
    for texts, rows in merged.items():
        yield dict(zip(names, texts, strict=True)), data.take(pa.array(rows, pa.int64()))


def _write_file(
    store: LogStore,
    table: pa.Table,
    values: Mapping[str, str | None],
    layout: Layout,
    unique: str,
    clock_ms: int,
) -> AddFile:
    directory = partitions.directory(values)
    path = f"{directory}/part-{unique}.snappy.parquet" if directory else f"part-{unique}.snappy.parquet"
    # Nullability is the log's business: files say optional, as Spark's do.
    schema = pa.schema([pa.field(f.name, _all_nullable(f.type), True) for f in table.schema])
    table = pa.Table.from_arrays(
        [c if c.type == f.type else c.cast(f.type) for c, f in zip(table.columns, schema, strict=True)], schema=schema
    )
    with store.open_output(path) as sink:
        writer = pq.ParquetWriter(sink, schema, compression="snappy", write_statistics=stats.statistics_columns(table))
        try:
            writer.write_table(table, row_group_size=1 << 20)
        finally:
            writer.close()
        size_bytes = sink.tell()
    _, text = stats.from_footer(writer.writer.metadata, layout.data_schema, layout.indexed_columns)
    return AddFile(
        path=encode_path(path),
        partition_values=dict(values),
        size=size_bytes,
        modification_time=clock_ms,
        data_change=True,
        stats=text,
    )


def _all_nullable(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, _all_nullable(f.type), True) for f in kind.fields])
    if types.is_map(kind):
        return pa.map_(_all_nullable(kind.key_type), pa.field("value", _all_nullable(kind.item_type), True))
    if types.is_list(kind):
        return pa.list_(pa.field("element", _all_nullable(kind.value_type), True))
    return kind


def describe_files(
    store: LogStore, files: Iterable[tuple[str, Mapping[str, str | None]]], layout: Layout
) -> tuple[list[AddFile], int]:
    """Add actions for Parquet files that lie below the table, from their footers; and the number of rows.

    ``files``: (relative path, not percent-encoded; partition values as the log has them). The files are made
    durable. Cost: for each 1 HEAD and 1 or 2 ranged GETs, in threads. Raises InvalidDataFileError.
    """
    listed = list(files)
    data_schema = layout.data_schema

    def describe(item: tuple[str, Mapping[str, str | None]]) -> tuple[AddFile, int]:
        path, values = item
        meta = store.head(path)
        try:
            if meta is None:
                raise ObjectNotFoundError(f"There is no file {path} below {store.url}.", path=path)
            with pq.ParquetFile(store.open_input(path)) as file:
                rows, text = stats.from_footer(file.metadata, data_schema, layout.indexed_columns)
        except (pa.ArrowException, OSError) as error:
            raise InvalidDataFileError(
                f"{store.url}: {path} cannot be added: it is not a Parquet file that can be read ({error}).",
                path=path,
            ) from error
        add = AddFile(
            path=encode_path(path),
            partition_values=dict(values),
            size=meta.size_bytes or 0,
            modification_time=meta.modification_time_ms or 0,
            data_change=True,
            stats=text,
        )
        return add, rows

    with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
        described = list(threads.map(describe, listed))
    store.sync([path for path, _ in listed])
    return [add for add, _ in described], sum(rows for _, rows in described)
