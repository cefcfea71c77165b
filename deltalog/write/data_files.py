"""Writes Arrow rows as data files: casts them to the table's columns, applies its rules, partitions them, and returns
add actions.

Spec: PROTOCOL.md#data-files, #per-file-statistics, #writer-requirements-for-clustered-table.
"""

from __future__ import annotations

import functools
import itertools
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalog.arrow_arrays import combined, int64s, row_numbers
from deltalog.errors import (
    SchemaMismatchError,
)
from deltalog.lazy_arrow import pc
from deltalog.lazy_names import lazy_modules
from deltalog.log.commit_summary import CHECKSUM_TAG
from deltalog.log.file_statistics import indexed_leaves
from deltalog.parquet.file_options import DEFAULT, FileOptions
from deltalog.parquet.file_reader import EXACT, conform
from deltalog.parquet.file_writer import Checksum, FileColumns, write_file
from deltalog.protocol import column_mapping, features, partitions
from deltalog.protocol.actions import AddCDCFile, AddFile, Metadata, Protocol
from deltalog.protocol.column_mapping import Mode
from deltalog.protocol.paths import encode_path
from deltalog.protocol.properties import RANDOM_PREFIX_LENGTH, RANDOMIZE_FILE_PREFIXES
from deltalog.protocol.schema import ArrayType, MapType, StructField, StructType
from deltalog.storage.base import LogStore, keep_cleanup_errors
from deltalog.write.input_streams import as_batches
from deltalog.write.table_rules import NO_RULES, TableRules

if TYPE_CHECKING:
    from deltalog.expressions import compile as expressions
    from deltalog.read import changes as change_feed
else:
    lazy_modules(__name__, expressions="deltalog.expressions.compile", change_feed="deltalog.read.changes")

TARGET_BYTES = 128 << 20
BUFFER_BYTES = 256 << 20
_MOST_RUNS, _RUN_ROWS = 256, 1000
_MOST_LISTED = 100_000
CHANGES_DIRECTORY = "_change_data"


@dataclass(frozen=True)
class WriteLayout:
    """How data files are written.

    ``indexed``: the physical paths of the leaf columns for which statistics are collected. ``mapping``: the mode of
    column mapping. ``prefix_length``: the length of the random path prefix, in characters (0: Hive directories).
    ``rules``: the rules to check and the columns to fill in; empty for existing rows that are copied.
    ``extra_columns``: file columns that are not in the table, such as the row ids of copied rows; they come last and
    have no statistics. ``as_changes``: whether the files are change data files. ``checksum``: which hash to record for
    each file, if any. ``is_new``: whether the rows are new to the table; if so, a struct with a NOT NULL field must not
    be null. ``options``: how the files are encoded. ``shreds``: whether variants are shredded.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    indexed: frozenset[tuple[str, ...]]
    mapping: Mode = "none"
    prefix_length: int = 0
    rules: TableRules = NO_RULES
    extra_columns: tuple[StructField, ...] = ()
    as_changes: bool = False
    checksum: Checksum | None = None
    is_new: bool = False
    options: FileOptions = DEFAULT
    shreds: bool = False

    @classmethod
    def for_table(
        cls, metadata: Metadata, protocol: Protocol, clustered_by: Sequence[tuple[str, ...]] = ()
    ) -> WriteLayout:
        """The layout of a table. ``clustered_by``: the paths of columns that always have statistics. Raises
        CorruptTableError, InvalidPropertyError."""
        configuration = metadata.configuration
        mapping = column_mapping.mode_of(configuration)
        # After a rename, the column name in a Hive directory would be unknown or would refer to another column.
        prefixed = mapping != "none" or RANDOMIZE_FILE_PREFIXES.read(configuration)
        return cls(
            metadata.schema,
            metadata.partition_columns,
            frozenset(leaf.physical for leaf in indexed_leaves(metadata, clustered_by)),
            mapping,
            RANDOM_PREFIX_LENGTH.read(configuration) if prefixed else 0,
            shreds=features.shreds_variants(protocol, metadata),
        )

    @functools.cached_property
    def row_schema(self) -> StructType:
        """The columns of the rows to write."""
        return StructType((*self.schema.fields, *self.extra_columns))

    @functools.cached_property
    def file_columns(self) -> FileColumns:
        """The columns of the files: all except the partition columns."""
        columns = StructType(tuple(f for f in self.schema if f.name not in self.partition_columns))
        return FileColumns(columns, self.indexed, self.mapping, self.extra_columns, self.shreds)

    @functools.cached_property
    def stored_options(self) -> FileOptions:
        """``options`` with the column names that files have."""
        mapping, schema = self.mapping, self.schema
        return self.options.renamed(lambda name: column_mapping.physical_name(schema.field(name), mapping))

    def path(self, values: Mapping[str, str | None], unique: str, codec: str | None = None) -> str:
        """The relative path of a new file: below a random prefix, or in the Hive-style directory of the file's
        partition values. All change data files are in one directory. ``unique``: a unique string that ends in random
        letters and digits. ``codec``: the compression codec, if it differs from that of ``options``."""
        codec = codec or self.options.compression or "snappy"
        if self.as_changes:
            return f"{CHANGES_DIRECTORY}/cdc-{unique}.{codec}.parquet"
        name = f"part-{unique}.{codec}.parquet"
        if self.prefix_length:
            return f"{unique.replace('-', '')[-self.prefix_length :]}/{name}"
        directory = partitions.directory(values)
        return f"{directory}/{name}" if directory else name


def write_rows(
    store: LogStore, reader: pa.RecordBatchReader, layout: WriteLayout, new_uuid: Callable[[], str], clock_ms: int
) -> tuple[list[AddFile], int]:
    """Write a stream of rows into new files, which are durable on return. Returns the add actions and the number of
    rows.

    On an error, the files written so far are deleted, best effort. Memory: about twice BUFFER_BYTES. Raises
    SchemaMismatchError if the rows do not fit the schema. Cost: 1 PUT for each file.
    """
    adds: list[AddFile] = []
    rows = 0
    try:
        for table in _buffered(reader, layout):
            rows += table.num_rows
            for values, part in by_partition(table, layout):
                adds.append(_write_file(store, part, values, layout, new_uuid(), clock_ms))
    except BaseException as error:
        keep_cleanup_errors(error, discard(store, [add.path for add in adds]))
        raise
    return adds, rows


def discard(store: LogStore, add_paths: Iterable[str]) -> list[Exception]:
    """Delete files that no commit names; errors are collected. Returns the failures."""
    failures: list[Exception] = []
    for path in add_paths:
        try:
            store.delete(urllib.parse.unquote(path))
        except Exception as failure:
            failures.append(failure)
    return failures


def remove_job_files(store: LogStore, job: str, layout: WriteLayout) -> int:
    """Delete all files of a failed distributed job, best effort; no version can refer to them. The names of a job's
    files begin with ``part-`` or ``cdc-`` and the job id. Returns the number of files found. Cost: 1 LIST for each
    1,000 objects below the table, at most 100, and 1 DELETE for each file; nothing on stores without such a listing."""
    name = f"{'cdc' if layout.as_changes else 'part'}-{job}-"
    in_root = not (layout.partition_columns or layout.prefix_length)
    prefix = f"{CHANGES_DIRECTORY}/{name}" if layout.as_changes else name if in_root else ""
    found = store.find_names(prefix, name, most=_MOST_LISTED)
    discard(store, map(encode_path, found))
    return len(found)


def with_change_type(kind: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Append a column with the change type to the rows."""
    for batch in as_batches(batches):
        yield batch.append_column(change_feed.CHANGE_TYPE_FIELD.name, pa.repeat(pa.scalar(kind), batch.num_rows))


def change_file(add: AddFile) -> AddCDCFile:
    """The cdc action of a file that ``write_rows`` wrote."""
    return AddCDCFile(path=add.path, partition_values=add.partition_values, size=add.size, data_change=False)


def _buffered(reader: pa.RecordBatchReader, layout: WriteLayout) -> Iterator[pa.Table]:
    """Collect rows, cast to the table's schema, into Arrow tables of about TARGET_BYTES (if the table is partitioned:
    BUFFER_BYTES) in memory."""
    limit = BUFFER_BYTES if layout.partition_columns else TARGET_BYTES
    held: list[pa.Table] = []
    held_bytes = 0
    for batch in as_batches(reader):
        if not batch.num_rows:
            continue
        table = conformed(pa.Table.from_batches([batch]), layout.row_schema, layout.rules, layout.is_new)
        held.append(table)
        held_bytes += table.nbytes
        if held_bytes >= limit:
            yield pa.concat_tables(held)
            held, held_bytes = [], 0
    if held:
        yield pa.concat_tables(held)


def conformed(table: pa.Table, schema: StructType, rules: TableRules = NO_RULES, is_new: bool = False) -> pa.Table:
    """Cast rows to the order and the types of the table's columns, and apply the table's rules. ``is_new``: as in
    ``WriteLayout``. Raises SchemaMismatchError, also for columns that would be lost: unknown columns, and names that
    are equal up to case."""
    given = {name.lower(): table.column(i) for i, name in enumerate(table.schema.names)}
    lost = given.keys() - {column.name.lower() for column in schema}
    if lost or len(given) < table.num_columns:
        _refuse_columns(table.schema.names, lost)
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
            columns.append(conform(combined(values), column.data_type, EXACT))
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"Values of column {column.name} ({values.type}) do not fit {column.data_type}: {error}."
                f"{_remedy(values.type)}"
            ) from None
        if column.name in rules.null_if_empty:
            columns[-1] = expressions.without_empty(columns[-1])
        check_not_null(columns[-1], column, column.name, is_new)
    rows = pa.Table.from_arrays(columns, schema=arrow_schema)
    if rules:
        rows = rules.applied(rows, {column.name for column in absent}, is_new)
    for column in absent:
        check_not_null(combined(rows.column(column.name)), column, column.name, is_new)
    return rows


def _remedy(kind: pa.DataType) -> str:
    """Advice for values whose type is more precise than any Delta type, as the end of an error message; empty if there
    is no advice."""
    if not pa.types.is_timestamp(kind) or kind.unit != "ns":
        return ""
    return (
        " Timestamps of tables are in microseconds: round them first, with .dt.round('us') in pandas and polars, or "
        "pyarrow.compute.round_temporal(column, unit='microsecond')."
    )


def _refuse_columns(names: Sequence[str], lost: Collection[str]) -> None:
    for position, name in enumerate(names):
        if name.lower() in lost:
            raise SchemaMismatchError(f"The rows have a column {name!r}, which the table does not have. Drop it.")
        if name.lower() in map(str.lower, names[:position]):
            raise SchemaMismatchError(f"The rows have two columns {name!r} up to case. Rename one.")


def check_not_null(values: Any, column: StructField, name: str, is_new: bool = False) -> None:
    """Raise SchemaMismatchError for nulls in a NOT NULL column, and for nulls in NOT NULL parts of non-null structs,
    lists and maps. With ``is_new``, also raise for a null struct that has a NOT NULL field, except in lists and maps,
    because delta-spark reads that field as null and cannot delete, update or compact rows in a file with such a row.
    Copying existing rows that contain such values is allowed."""
    if not column.nullable and values.null_count:
        raise SchemaMismatchError(f"Column {name} is NOT NULL, but the data has nulls in it.")
    data_type = column.data_type
    if isinstance(data_type, StructType):
        required = next(required_fields(data_type), None) if is_new and values.null_count else None
        if required is not None:
            raise SchemaMismatchError(
                f"Column {name}.{'.'.join(required)} is NOT NULL, but {name} is null in the data, so the field has no "
                f"value. Give {name} a value, or make the field nullable (set_column)."
            )
        present = values.drop_null() if values.null_count else values
        for child, field in zip(present.flatten(), data_type.fields, strict=True):
            check_not_null(child, field, f"{name}.{field.name}", is_new)
    elif isinstance(data_type, ArrayType):
        element = StructField("element", data_type.element_type, data_type.contains_null)
        check_not_null(values.flatten(), element, f"{name}.element")
    elif isinstance(data_type, MapType):
        entries = values.drop_null() if values.null_count else values
        value = StructField("value", data_type.value_type, data_type.value_contains_null)
        check_not_null(pa.concat_arrays([entries.items]), value, f"{name}.value")


def required_fields(struct: StructType) -> Iterator[tuple[str, ...]]:
    """The paths of the NOT NULL fields of a struct, including the fields of nested structs."""
    for field in struct.fields:
        if not field.nullable:
            yield (field.name,)
        elif isinstance(field.data_type, StructType):
            yield from ((field.name, *path) for path in required_fields(field.data_type))


def by_partition(table: pa.Table, layout: WriteLayout) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """For each partition, in order of first occurrence: its serialized partition values, and its rows without the
    partition columns. Raises SchemaMismatchError."""
    if not layout.partition_columns:
        yield {}, table
        return
    names = list(layout.partition_columns)
    data = table.drop_columns(names)
    logged = [column_mapping.physical_name(layout.schema.field(n), layout.mapping) for n in names]
    columns = [table.column(name) for name in names]
    ends = _ends_of_runs(columns)
    if ends is None:
        # Arrow parses a name such as ".x" as a path, so the grouping uses numbers as column names.
        keys = [str(number) for number in range(len(names))]
        indexed = pa.table([*columns, row_numbers(table.num_rows)], names=[*keys, "row"])
        groups = indexed.group_by(keys, use_threads=False).aggregate([("row", "list")])
        firsts, pieces = groups.select(keys), [each.values for each in groups.column("row_list")]
    else:
        keys = names
        firsts = pa.table([column.take(int64s([end - 1 for end in ends])) for column in columns], names=names)
        pieces = [data.slice(start, end - start) for start, end in itertools.pairwise([0, *ends])]
    merged: dict[tuple[str | None, ...], list[Any]] = {}
    try:
        found = firsts.to_pylist()
    except (OverflowError, ValueError) as error:
        raise SchemaMismatchError(
            f"A value of the partition columns {', '.join(names)} is outside the years 1 to 9999: {error}."
        ) from None
    for group, piece in zip(found, pieces, strict=True):
        texts = tuple(
            partitions.serialize(group[key], layout.schema.field(name).data_type)
            for key, name in zip(keys, names, strict=True)
        )
        merged.setdefault(texts, []).append(piece)
    for texts, parts in merged.items():
        if len(found) == 1:
            part = data
        else:
            part = data.take(pa.concat_arrays(parts)) if ends is None else pa.concat_tables(parts)
        yield dict(zip(logged, texts, strict=True)), part


def _ends_of_runs(columns: Sequence[Any]) -> list[int] | None:
    """The end positions of runs of equal partition values, if the rows are ordered by partition; None if the runs are
    so short that grouping is faster."""
    ends = set[int]()
    for column in columns:
        try:
            runs = pc.run_end_encode(combined(column)).run_ends
        except pa.ArrowException:
            return None
        if len(runs) > _MOST_RUNS or (len(runs) > 1 and len(runs) * _RUN_ROWS > len(column)):
            return None
        ends.update(runs.to_pylist())
    return sorted(ends)


def _write_file(
    store: LogStore,
    table: pa.Table,
    values: Mapping[str, str | None],
    layout: WriteLayout,
    unique: str,
    clock_ms: int,
) -> AddFile:
    path = layout.path(values, unique)
    written = write_file(store, path, table, layout.file_columns, layout.checksum, layout.stored_options)
    return AddFile(
        path=encode_path(path),
        partition_values=dict(values),
        size=written.size_bytes,
        modification_time=clock_ms,
        data_change=True,
        stats=written.statistics,
        tags=None if written.sha256 is None else {CHECKSUM_TAG: written.sha256},
    )
