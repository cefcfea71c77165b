"""Data files: Arrow rows to Parquet below the table, and Parquet files to add actions.

Spec: PROTOCOL.md#data-files, #per-file-statistics.
"""

from __future__ import annotations

import hashlib
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.arguments import shown
from deltalog.arrow_arrays import combined
from deltalog.errors import (
    CallError,
    InvalidDataFileError,
    ObjectNotFoundError,
    RowCountError,
    SchemaMismatchError,
    keep_cleanup_errors,
)
from deltalog.log.commit_summary import CHECKSUM_TAG
from deltalog.operations.one_pass import check_unread, read_once
from deltalog.operations.rules import NO_RULES, Rules
from deltalog.parquet import stats
from deltalog.parquet.file_reader import EXACT, DataFile, FileLayout, conform, read_file, with_child
from deltalog.protocol import column_mapping, partitions
from deltalog.protocol.actions import AddCDCFile, AddFile, Metadata
from deltalog.protocol.column_mapping import Mode
from deltalog.protocol.paths import encode_path
from deltalog.protocol.properties import DATA_SKIPPING_NUM_INDEXED_COLS, RANDOM_PREFIX_LENGTH, RANDOMIZE_FILE_PREFIXES
from deltalog.protocol.schema import ArrayType, DataType, MapType, StructField, StructType, type_to_arrow
from deltalog.read.changes import CHANGE_TYPE_FIELD
from deltalog.storage.base import LogStore
from deltalog.storage.table_files import TableFiles

TARGET_BYTES = 128 << 20
BUFFER_BYTES = 256 << 20
CHANGES_DIRECTORY = "_change_data"
_FOOTER_THREADS = 8
Checksum = Literal["sha256"]
Examine = Callable[[str, Any], None]  # of a file's path, and its footer (pyarrow.parquet.FileMetaData)


@dataclass(frozen=True, slots=True)
class Layout:
    """What decides how files are written: the table's schema, its partition columns, its indexed leaves, under
    which names files hold the columns, and the length of random prefixes of paths (0: Hive directories).

    ``rules``: what is checked and filled in; none for rows that the table has already, which are only moved.
    ``beside``: columns of the files that are none of the table, such as ids of rows that were moved; they come last
    and have no statistics. ``as_changes``: files are change files. ``checksum``: what is kept of the bytes of each.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    indexed_columns: int
    mapping: Mode = "none"
    prefix_length: int = 0
    rules: Rules = NO_RULES
    beside: tuple[StructField, ...] = ()
    as_changes: bool = False
    checksum: Checksum | None = None

    @classmethod
    def of(cls, metadata: Metadata) -> Layout:
        """The layout of a table. Raises CorruptTableError, InvalidPropertyError."""
        configuration = metadata.configuration
        mapping = column_mapping.mode_of(configuration)
        # Renamed columns leave Hive directories with names that mean nothing, or something else.
        prefixed = mapping != "none" or RANDOMIZE_FILE_PREFIXES.read(configuration)
        return cls(
            metadata.schema,
            metadata.partition_columns,
            DATA_SKIPPING_NUM_INDEXED_COLS.read(configuration),
            mapping,
            RANDOM_PREFIX_LENGTH.read(configuration) if prefixed else 0,
        )

    @property
    def row_schema(self) -> StructType:
        """The columns that rows have when they come."""
        return StructType((*self.schema.fields, *self.beside))

    @property
    def data_schema(self) -> StructType:
        """The table's columns that are in the files."""
        return StructType(tuple(f for f in self.schema if f.name not in self.partition_columns))

    @property
    def stored_schema(self) -> StructType:
        """The table's columns that are in the files, under the names that files and statistics have for them."""
        return column_mapping.physical_schema(self.data_schema, self.mapping)

    def path(self, values: Mapping[str, str | None], unique: str) -> str:
        """Where a new file lies: below a random prefix, or in the Hive directory of its partition values. Change files
        lie all in one directory."""
        if self.as_changes:
            return f"{CHANGES_DIRECTORY}/cdc-{unique}.snappy.parquet"
        name = f"part-{unique}.snappy.parquet"
        if self.prefix_length:
            return f"{unique.replace('-', '')[-self.prefix_length :]}/{name}"
        directory = partitions.directory(values)
        return f"{directory}/{name}" if directory else name


def as_reader(data: Any) -> pa.RecordBatchReader:
    """A stream of batches of anything that speaks Arrow. Raises CallError, for a stream that was read before too."""
    if isinstance(data, pa.RecordBatchReader):
        check_unread(data)
        return data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        try:
            return pa.RecordBatchReader.from_stream(data)
        except (pa.ArrowException, OSError, RuntimeError, TypeError, ValueError) as error:
            raise CallError(
                f"Data of type {type(data).__name__} cannot be read as an Arrow stream: {error}. If it was read "
                "before, make a new one for each call."
            ) from error
    raise CallError(
        f"Data of type {type(data).__name__} has no __arrow_c_stream__. Pass a pyarrow Table or RecordBatchReader, "
        "a polars or pandas (2.2+) DataFrame, or a duckdb relation; for rows, pyarrow.Table.from_pylist(rows)."
    )


def as_batches(data: Any) -> Iterator[pa.RecordBatch]:
    """What speaks Arrow as batches, or batches one by one as they are. Raises CallError, as ``read_once`` too."""
    if hasattr(data, "__arrow_c_stream__"):
        return read_once(as_reader(data))
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise CallError(f"Rows are an iterable of Arrow record batches; got {shown(data)}.")
    return map(_batch, read_once(data))


def _batch(batch: Any) -> pa.RecordBatch:
    if not isinstance(batch, pa.RecordBatch):
        raise CallError(f"Rows are an iterable of Arrow record batches; one item is {shown(batch)}.")
    return batch


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
    except BaseException as error:
        keep_cleanup_errors(error, discard(store, [add.path for add in adds]))
        raise
    return adds, rows


def discard(store: LogStore, add_paths: Iterable[str]) -> list[Exception]:
    """Remove files that no commit names, best effort: what could not be removed, and why, is returned."""
    failures: list[Exception] = []
    for path in add_paths:
        try:
            store.delete(urllib.parse.unquote(path))
        except Exception as failure:
            failures.append(failure)
    return failures


class HashedFile:
    """A file that is written once from the start, and the SHA-256 of what was written."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Write all of it."""
        self._digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        """The bytes written so far."""
        return self._file.tell()

    def flush(self) -> None:
        """Pass on what is held."""
        self._file.flush()

    def hexdigest(self) -> str:
        """The hash of what was written so far."""
        return self._digest.hexdigest()


def check_checksum(wanted: object) -> None:
    """Raises CallError for a checksum that is not known; None is none."""
    if wanted not in (None, "sha256"):
        raise CallError(f"checksum is 'sha256' or None; got {wanted!r}.")


def with_kind(kind: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as change files have them: with the kind of change as their last column."""
    for batch in as_batches(batches):
        yield batch.append_column(CHANGE_TYPE_FIELD.name, pa.repeat(pa.scalar(kind), batch.num_rows))


def change_file(add: AddFile) -> AddCDCFile:
    """A file that ``write_rows`` made, as a change file."""
    return AddCDCFile(path=add.path, partition_values=add.partition_values, size=add.size, data_change=False)


def _buffered(reader: pa.RecordBatchReader, layout: Layout) -> Iterator[pa.Table]:
    """Tables of the table's schema, of TARGET_BYTES (partitioned: BUFFER_BYTES) in memory or less."""
    limit = BUFFER_BYTES if layout.partition_columns else TARGET_BYTES
    held: list[pa.Table] = []
    held_bytes = 0
    for batch in as_batches(reader):
        if not batch.num_rows:
            continue
        table = conformed(pa.Table.from_batches([batch]), layout.row_schema, layout.rules)
        held.append(table)
        held_bytes += table.nbytes
        if held_bytes >= limit:
            yield pa.concat_tables(held)
            held, held_bytes = [], 0
    if held:
        yield pa.concat_tables(held)


def conformed(table: pa.Table, schema: StructType, rules: Rules = NO_RULES) -> pa.Table:
    """The rows with the table's columns, in its order and types, as its rules want them."""
    given = {name.lower(): table.column(i) for i, name in enumerate(table.schema.names)}
    columns = []
    absent: list[StructField] = []
    arrow_schema = schema.to_arrow()
    for column, field in zip(schema, arrow_schema, strict=True):
        values = given.get(column.name.lower())
        if values is None:
            columns.append(pa.nulls(table.num_rows, field.type))
            absent.append(column)
            continue
        try:
            columns.append(conform(values.combine_chunks(), column.data_type, EXACT))
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"Values of column {column.name} ({values.type}) do not fit {column.data_type}: {error}."
            ) from None
        check_not_null(columns[-1], column, column.name)
    rows = pa.Table.from_arrays(columns, schema=arrow_schema)
    if rules:
        rows = rules.applied(rows, {column.name for column in absent})
    for column in absent:
        check_not_null(combined(rows.column(column.name)), column, column.name)
    return rows


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
    logged = [column_mapping.physical_name(layout.schema.field(n), layout.mapping) for n in names]
    # Arrow takes a name such as ".x" for a path, so that the columns are grouped under numbers.
    keys = [str(number) for number in range(len(names))]
    columns = [table.column(name) for name in names]
    indexed = pa.table([*columns, pa.array(range(table.num_rows), pa.int64())], names=[*keys, "row"])
    groups = indexed.group_by(keys, use_threads=False).aggregate([("row", "list")])
    merged: dict[tuple[str | None, ...], list[int]] = {}
    try:
        found = groups.to_pylist()
    except (OverflowError, ValueError) as error:
        raise SchemaMismatchError(
            f"A value of the partition columns {', '.join(names)} lies outside the years 1 to 9999: {error}."
        ) from None
    for group in found:
        texts = tuple(
            partitions.serialize(group[key], layout.schema.field(name).data_type)
            for key, name in zip(keys, names, strict=True)
        )
        merged.setdefault(texts, []).extend(group["row_list"])
    data = table.drop_columns(names)
    for texts, rows in merged.items():
        yield dict(zip(logged, texts, strict=True)), data.take(pa.array(rows, pa.int64()))


def _write_file(
    store: LogStore,
    table: pa.Table,
    values: Mapping[str, str | None],
    layout: Layout,
    unique: str,
    clock_ms: int,
) -> AddFile:
    path = layout.path(values, unique)
    schema = pa.schema(
        [
            *(_stored_field(c, table.schema.field(c.name), layout.mapping) for c in layout.data_schema),
            *(pa.field(c.name, type_to_arrow(c.data_type)) for c in layout.beside),
        ]
    )
    columns = [_retyped(c, f.type) for c, f in zip(table.columns, schema, strict=True)]
    table = pa.Table.from_arrays(columns, schema=schema)
    with store.open_output(path) as file:
        sink = file if layout.checksum is None else HashedFile(file)
        writer = pq.ParquetWriter(
            sink,
            schema,
            compression="snappy",
            use_dictionary=not stats.has_shared_paths(table),
            write_statistics=stats.statistics_columns(table),
        )
        try:
            writer.write_table(table, row_group_size=1 << 20)
        finally:
            writer.close()
        size_bytes = sink.tell()
    _, text = stats.from_footer(writer.writer.metadata, layout.stored_schema, layout.indexed_columns)
    return AddFile(
        path=encode_path(path),
        partition_values=dict(values),
        size=size_bytes,
        modification_time=clock_ms,
        data_change=True,
        stats=text,
        tags={CHECKSUM_TAG: sink.hexdigest()} if isinstance(sink, HashedFile) else None,
    )


def _stored_field(column: StructField, held: pa.Field, mode: Mode) -> pa.Field:
    """The field of a file for a column of the table: its physical name and id, and always optional, as Spark's
    files are: nullability is the log's business."""
    name = column_mapping.physical_name(column, mode)
    field_id = column_mapping.parquet_id(column, mode)
    return pa.field(name, _stored_type(column.data_type, held.type, mode), True, field_id)


def _stored_type(data_type: DataType, held: pa.DataType, mode: Mode) -> pa.DataType:
    if isinstance(data_type, StructType):
        if not data_type.fields:
            raise SchemaMismatchError("A column of the table is a struct without fields, which Parquet cannot hold.")
        pairs = zip(data_type.fields, held.fields, strict=True)
        return pa.struct([_stored_field(column, field, mode) for column, field in pairs])
    if isinstance(data_type, MapType):
        key = _stored_type(data_type.key_type, held.key_type, mode)
        return pa.map_(key, pa.field("value", _stored_type(data_type.value_type, held.item_type, mode), True))
    if isinstance(data_type, ArrayType):
        return pa.list_(pa.field("element", _stored_type(data_type.element_type, held.value_type, mode), True))
    return _all_nullable(held)


def _all_nullable(held: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(held):  # a variant
        return pa.struct([pa.field(f.name, f.type, True) for f in held.fields])
    return held


def _retyped(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """The same values under a type that differs in the names and nullability of nested fields only."""
    if values.type.equals(wanted, check_metadata=True):
        return values
    return pa.chunked_array([_viewed(chunk, wanted) for chunk in values.chunks], wanted)


def _viewed(values: Any, wanted: pa.DataType) -> pa.Array:
    if values.type.equals(wanted, check_metadata=True):
        return values
    if pa.types.is_struct(wanted):
        children = [_viewed(child, f.type) for child, f in zip(values.flatten(), wanted.fields, strict=True)]
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(wanted.fields), mask=mask)
    if pa.types.is_map(wanted):
        children = [_viewed(values.keys, wanted.key_type), _viewed(values.items, wanted.item_type)]
        entries = pa.StructArray.from_arrays(children, fields=[wanted.key_field, wanted.item_field])
        return with_child(values, wanted, entries)
    return with_child(values, wanted, _viewed(values.values, wanted.value_type))


def check_files(files: TableFiles, adds: Iterable[AddFile], layout: Layout) -> None:
    """Whether the rows of Parquet files keep to the rules of a layout. Raises ConstraintViolationError,
    InvalidDataFileError. Cost: the GETs of the columns that the rules look at; memory is bounded."""
    if not layout.rules:
        return
    schema = StructType(tuple(layout.schema.field(name) for name in layout.rules.columns))
    read = FileLayout(schema, layout.partition_columns, layout.mapping)
    for add in adds:
        file = DataFile(add.path, add.partition_values, add.deletion_vector, size=add.size)
        for batch in read_file(files, file, read):
            layout.rules.check(pa.Table.from_batches([batch]))


def describe_files(
    store: LogStore,
    files: Iterable[tuple[str, Mapping[str, str | None]]],
    layout: Layout,
    num_rows: int | None = None,
    examine: Examine | None = None,
) -> list[AddFile]:
    """Add actions for Parquet files that lie below the table, from their footers.

    ``files``: (relative path, not percent-encoded; partition values as the log has them). The files are made
    durable. ``num_rows``: how many rows they must have together. ``examine`` is called for each file, in threads.
    Cost: for each 1 HEAD and 1 or 2 ranged GETs, in threads. Raises InvalidDataFileError, RowCountError, and
    what ``examine`` does.
    """
    listed = list(files)
    data_schema = layout.stored_schema

    def describe(item: tuple[str, Mapping[str, str | None]]) -> tuple[AddFile, int]:
        path, values = item
        meta = store.head(path)
        try:
            if meta is None:
                raise ObjectNotFoundError(f"There is no file {path} below {store.url}.", path=path)
            source = store.open_input(path)
            with pq.ParquetFile(source) as file:
                footer = file.metadata
                _check_readable(source, footer)
                rows, text = stats.from_footer(footer, data_schema, layout.indexed_columns)
                without_id = _without_id(footer.schema.to_arrow_schema(), layout) if layout.mapping == "id" else None
        except (pa.ArrowException, OSError) as error:
            raise InvalidDataFileError(
                f"{store.url}: {path} cannot be added: it is not a Parquet file that can be read ({error}).",
                path=path,
            ) from error
        if without_id is not None:
            raise InvalidDataFileError(
                f"{store.url}: {path} cannot be added: its column {without_id} does not have the id of the table's "
                "column. This table matches columns by id (delta.columnMapping.mode), so the column would be read as "
                "null. Write the file with field ids.",
                path=path,
            )
        if examine is not None:
            examine(path, footer)
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
    _check_rows(store.url, num_rows, [rows for _, rows in described])
    store.sync([path for path, _ in listed])
    return [add for add, _ in described]


def _check_readable(source: Any, footer: Any) -> None:
    """Raises OSError for a file with encrypted columns below a footer that is not: looking at one of these ends the
    process. Behind such a footer comes its signature, which counts as a part of it."""
    source.seek(-8, 2)
    if int.from_bytes(source.read(8)[:4], "little") != footer.serialized_size:
        raise OSError("it has encrypted columns: its footer is signed")


def _check_rows(url: str, written: int | None, found: list[int]) -> None:
    if written is None or written == sum(found):
        return
    fault = "Rows are missing" if written > sum(found) else "Rows are duplicated"
    raise RowCountError(
        f"{url}: {written} rows were written, and the {len(found)} files found hold {sum(found)}. {fault}, "
        "and nothing was committed. Check that the writer's processes and this one have the table's storage under the "
        "same path, and that nothing else deletes or copies files there; then write again.",
        written=written,
        found=sum(found),
    )


def _without_id(stored: Iterable[pa.Field], layout: Layout) -> str | None:
    """A column that a file has by its physical name and not by its id."""

    def look(schema: StructType, stored: Iterable[pa.Field]) -> str | None:
        by_name = {field.name: field for field in stored}
        for column in schema:
            field = by_name.get(column_mapping.physical_name(column, layout.mapping))
            if field is None:
                continue
            wanted = column_mapping.parquet_id(column, layout.mapping) or {}
            if not wanted.items() <= (field.metadata or {}).items():
                return str(field.name)
            found = inside(column.data_type, field.type)
            if found is not None:
                return f"{field.name}.{found}"
        return None

    def inside(data_type: DataType, have: pa.DataType) -> str | None:
        if isinstance(data_type, StructType) and pa.types.is_struct(have):
            return look(data_type, have.fields)
        if isinstance(data_type, ArrayType) and pa.types.is_list(have):
            return inside(data_type.element_type, have.value_type)
        if isinstance(data_type, MapType) and pa.types.is_map(have):
            return inside(data_type.key_type, have.key_type) or inside(data_type.value_type, have.item_type)
        return None

    return look(layout.data_schema, stored)
