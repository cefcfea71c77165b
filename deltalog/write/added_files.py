"""Creates add actions for Parquet files that other programs wrote below the table, and checks their rows.

Spec: PROTOCOL.md#data-files, #per-file-statistics, #add-file-and-remove-file,
#consistency-between-table-metadata-and-data-files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from deltalog.errors import InvalidDataFileError, ObjectNotFoundError, RowCountError, SchemaMismatchError, StoreError
from deltalog.parquet import footers, stats
from deltalog.parquet.file_reader import DataFile, FileLayout, read_file
from deltalog.parquet.footers import READ_ERRORS
from deltalog.protocol import column_mapping
from deltalog.protocol.actions import AddFile
from deltalog.protocol.paths import encode_path
from deltalog.protocol.schema import VARIANT, ArrayType, DataType, MapType, StructType
from deltalog.protocol.schema_enforcement import names_twice
from deltalog.storage.base import LogStore
from deltalog.storage.remote import parallel_gets
from deltalog.storage.table_files import TableFiles
from deltalog.write.data_files import WriteLayout

FOOTER_THREADS = 8
# A callback that receives a file's path and its footer (pyarrow.parquet.FileMetaData).
Examine = Callable[[str, Any], None]


def check_files(files: TableFiles, adds: Iterable[AddFile], layout: WriteLayout) -> None:
    """Check the rows of Parquet files against the rules in a layout, and advance the high-water marks of identity
    columns past the values in these rows. Raises ConstraintViolationError, InvalidDataFileError. Cost: the GETs of the
    columns that the rules use; memory is bounded."""
    if not layout.rules:
        return
    schema = StructType(tuple(layout.schema.field(name) for name in layout.rules.columns))
    read = FileLayout(schema, layout.partition_columns, layout.mapping)
    for add in adds:
        file = DataFile(add.path, add.partition_values, add.deletion_vector, size=add.size)
        for batch in read_file(files, file, read):
            rows = pa.Table.from_batches([batch])
            layout.rules.check(rows)
            if layout.rules.identities is not None:
                layout.rules.identities.note_all(rows)


def describe_files(
    store: LogStore,
    files: Iterable[tuple[str, Mapping[str, str | None]]],
    layout: WriteLayout,
    num_rows: int | None = None,
    examine: Examine | None = None,
) -> list[AddFile]:
    """Creates add actions for Parquet files below the table, using their footers.

    ``files``: pairs of a path, which is relative and not percent-encoded, and the partition values in the log's
    serialization. The files are made durable. ``num_rows``: the total number of rows that the files must have.
    ``examine`` is called for each file, in several threads. Raises InvalidDataFileError, also for duplicate column
    names, SchemaMismatchError for a null (or empty, which means null) partition value in a NOT NULL column,
    RowCountError, and what ``examine`` raises. Cost: for each file 1 HEAD and 1 or 2 ranged GETs, in threads.
    """
    listed = list(files)
    data_schema = layout.file_columns.stored
    partitioned = [layout.schema.field(name) for name in layout.partition_columns]
    required = [column_mapping.physical_name(each, layout.mapping) for each in partitioned if not each.nullable]
    for path, values in listed:
        missing = next((name for name in required if not values.get(name)), None)
        if missing is not None:
            raise SchemaMismatchError(
                f"{store.url}: {path} cannot be added: its partition value of {missing} is null, but the column is "
                "NOT NULL."
            )

    def describe(item: tuple[str, Mapping[str, str | None]]) -> tuple[AddFile, int]:
        path, values = item
        meta = store.head(path)
        if meta is None:
            raise _not_readable(
                store, path, ObjectNotFoundError(f"There is no file {path} below {store.url}.", path=path)
            )
        footer = read_footer(store, path)
        try:
            rows, text = stats.from_footer(footer, data_schema, layout.indexed)
            stored = footer.schema.to_arrow_schema()
            without_id = _without_id(stored, layout) if layout.mapping == "id" else None
            twice = names_twice(stored, parts=_parts) if layout.mapping != "id" else None
        except READ_ERRORS as error:
            raise _not_readable(store, path, error) from error
        shredded = None if layout.shreds else next(_shredded(stored, data_schema), None)
        if shredded is not None:
            raise InvalidDataFileError(
                f"{store.url}: {path} cannot be added: its variants in {shredded} are shredded, which the table does "
                "not allow. Set delta.enableVariantShredding to true, or write the file without shredding.",
                path=path,
            )
        if without_id is not None:
            raise InvalidDataFileError(
                f"{store.url}: {path} cannot be added: its column {without_id} does not have the field id of the "
                "table's column. This table matches columns by id (delta.columnMapping.mode), so the column would be "
                "read as null. Write the file with field ids.",
                path=path,
            )
        if twice is not None:
            raise InvalidDataFileError(
                f"{store.url}: {path} cannot be added: it has two columns {twice[0]}{twice[2]} up to case, so readers "
                "return one or neither. Drop or rename one of them.",
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

    with ThreadPoolExecutor(parallel_gets(store) or FOOTER_THREADS) as threads:
        described = list(threads.map(describe, listed))
    check_rows(store.url, num_rows, [rows for _, rows in described])
    store.sync([path for path, _ in listed])
    return [add for add, _ in described]


def read_footer(store: LogStore, path: str) -> Any:
    """The footer of a Parquet file (pyarrow.parquet.FileMetaData), checked and reduced by ``parquet.footers``. Raises
    InvalidDataFileError if it is not a Parquet file, and StoreError. Cost: 1 or 2 ranged GETs."""
    try:
        with contextlib.closing(store.open_input(path)) as source:
            return footers.read_footer(source)
    except READ_ERRORS as error:
        if isinstance(error, StoreError) and not isinstance(error, ObjectNotFoundError):
            raise
        raise _not_readable(store, path, error) from error


def _not_readable(store: LogStore, path: str, error: Exception) -> InvalidDataFileError:
    return InvalidDataFileError(
        f"{store.url}: {path} cannot be added: it is not a Parquet file, or is damaged ({error}).",
        path=path,
    )


def check_rows(url: str, written: int | None, found: list[int]) -> None:
    """Raise RowCountError unless the files' row counts ``found`` add up to ``written``. None: unknown, not checked."""
    if written is None or written == sum(found):
        return
    fault = "Rows are missing" if written > sum(found) else "Rows are duplicated"
    raise RowCountError(
        f"{url}: {written} rows were written, but the {len(found)} files hold {sum(found)}. {fault}; nothing was "
        "committed. Check that the writer's processes and this one see the table's storage under the same path, and "
        "that nothing else deletes or copies files there; then write again.",
        written=written,
        found=sum(found),
    )


def _shredded(stored: Iterable[pa.Field], schema: StructType) -> Iterator[str]:
    """The dotted paths of the shredded variants among the columns of a file that are not in arrays and maps."""
    for field in stored:
        column = schema.find(field.name)
        kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        if column is None or not pa.types.is_struct(kind):
            continue
        if column.data_type == VARIANT and any(part.name == "typed_value" for part in kind.fields):
            yield field.name
        elif isinstance(column.data_type, StructType):
            yield from (f"{field.name}.{path}" for path in _shredded(kind.fields, column.data_type))


def _parts(kind: Any) -> Iterable[tuple[str, pa.DataType]]:
    """The names and types of the direct children of an Arrow type or schema."""
    if isinstance(kind, pa.Schema):
        fields = list(kind)
    else:
        fields = [kind.field(index) for index in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return ((field.name, field.type) for field in fields)


def _without_id(stored: Iterable[pa.Field], layout: WriteLayout) -> str | None:
    """The dotted path of the first column that matches by physical name but lacks the field id; None if there is no
    such column."""

    def in_struct(schema: StructType, stored: Iterable[pa.Field]) -> str | None:
        by_name = {field.name: field for field in stored}
        for column in schema:
            field = by_name.get(column_mapping.physical_name(column, layout.mapping))
            if field is None:
                continue
            wanted = column_mapping.parquet_id(column, layout.mapping) or {}
            if not wanted.items() <= (field.metadata or {}).items():
                return str(field.name)
            nested = in_type(column.data_type, field.type)
            if nested is not None:
                return f"{field.name}.{nested}"
        return None

    def in_type(data_type: DataType, stored: pa.DataType) -> str | None:
        if isinstance(data_type, StructType) and pa.types.is_struct(stored):
            return in_struct(data_type, stored.fields)
        if isinstance(data_type, ArrayType) and pa.types.is_list(stored):
            return in_type(data_type.element_type, stored.value_type)
        if isinstance(data_type, MapType) and pa.types.is_map(stored):
            return in_type(data_type.key_type, stored.key_type) or in_type(data_type.value_type, stored.item_type)
        return None

    return in_struct(layout.file_columns.columns, stored)
