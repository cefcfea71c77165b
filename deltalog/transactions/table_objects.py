"""Adds, removes and lists data files by URI, for callers that write and read Parquet files themselves.

The ETag of a file that a caller adds by URI is stored in the log as the tag ``deltalog.etag``.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalog import deadline
from deltalog.catalog.records import TableRecord
from deltalog.errors import CallError, CorruptTableError, ResourceNotReadyError, SchemaMismatchError, UnsafePathError
from deltalog.expressions.bound import columns_of
from deltalog.lazy_arrow import pc
from deltalog.parquet.file_reader import naming
from deltalog.parquet.footers import open_parquet
from deltalog.protocol import column_mapping, partitions
from deltalog.protocol.actions import Metadata
from deltalog.protocol.paths import canonical_url, encode_path, is_plain
from deltalog.protocol.schema import ArrayType, DataType, MapType, StructField, StructType
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.table import DeltaTable
from deltalog.write.committed_files import live_file_rows
from deltalog.write.transaction import Transaction

ETAG = "deltalog.etag"
_DATA_FILE = ".parquet"
# The maximum lengths of an S3 key and of a file name on a local disk.
_MAX_URI_BYTES = 1024
_MAX_NAME_BYTES = 255
_THREADS = 8
_COLUMNS = ["path", "partition_values", "size", "tags", "deletion_vector"]


@dataclass(frozen=True, slots=True)
class AddObject:
    """A Parquet file below the table root that is to be added. ``size_bytes`` and ``etag`` must match the object in the
    store. ``partition_values``: the values of the partition columns as strings, in the order of the columns; None for
    null."""

    uri: str
    etag: str
    size_bytes: int
    partition_values: Sequence[str | None] = ()


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """A file to remove from the table; with ``etag``, only if the ETag matches. The object is removed from the table
    but kept in the store."""

    uri: str
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class TableObject:
    """A file of a table. ``etag``: the file's ETag when it was added, if known."""

    uri: str
    size_bytes: int
    etag: str | None
    partition_values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """A page of files, ordered by path, and the token of the next page, if any."""

    objects: list[TableObject]
    next_token: str | None


def path_below(table: TableRecord, uri: object) -> str:
    """The path of an object below the root of its table. Raises CallError if it lies elsewhere, is hidden, or has an
    impossible name."""
    if not isinstance(uri, str) or not 1 <= _byte_count(uri) <= _MAX_URI_BYTES:
        raise CallError(f"The URI of an object must be text of 1 to {_MAX_URI_BYTES} bytes; got {uri!r}.")
    root = f"{table.url.rstrip('/')}/"
    is_local = root.startswith("/")
    path = _local_path(uri, root) if is_local else canonical_url(uri)
    below = path.removeprefix(root)
    names = below.split("/")
    if not path.startswith(root) or not is_plain(below) or is_hidden(below):
        raise CallError(f"{uri!r} is not a data file of {table.name}, whose root is {table.url}.")
    if is_local and any(_byte_count(name) > _MAX_NAME_BYTES for name in names):
        raise CallError(
            f"{uri!r} is not a data file of {table.name}: a name in it has more than {_MAX_NAME_BYTES} bytes."
        )
    return below


def deletable_path(table: TableRecord, uri: object) -> str:
    """Like ``path_below``, but also raises CallError for an object that must not be deleted."""
    below = path_below(table, uri)
    if not can_be_deleted(below):
        raise CallError(
            f"{uri!r} is not named like a Parquet file, and only those are deleted when a transaction is cancelled: "
            f'name objects of {table.name} that end with "{_DATA_FILE}".'
        )
    return below


def is_hidden(path: str) -> bool:
    """Whether a path below a table root cannot be a data file because a name in it, at any depth, starts with "_" or
    ".", like the table's own directories (``_delta_log``, ``_change_data``, ``_blobs``, ...). The names of partition
    directories may start with these characters."""
    *directories, name = path.split("/")
    names = [name, *(each for each in directories if "=" not in each)]
    return any(each.startswith(("_", ".")) for each in names)


def can_be_deleted(path: str) -> bool:
    """Whether a path is named like a Parquet file and is not hidden. Only files with such a name are deleted when a
    transaction is cancelled."""
    return path.lower().endswith(_DATA_FILE) and not is_hidden(path)


def _local_path(uri: str, root: str) -> str:
    """The local path of a URI. Symbolic links are resolved unless the path starts with the root, which contains no
    symbolic links."""
    path = uri.removeprefix("file://")
    if path.startswith(root) or not path.startswith("/") or not is_plain(path[1:]):
        return path
    directory, _, name = path.rpartition("/")
    return os.path.join(os.path.realpath(directory), name)


def _byte_count(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def same_etag(one: str | None, other: str | None) -> bool:
    """Whether two ETags are equal, ignoring quotes."""
    return one is not None and other is not None and one.strip('"') == other.strip('"')


# ----------------------------------------------------------------------------------------------- changing


def update(table: DeltaTable, record: TableRecord, operations: Sequence[AddObject | DeleteObject]) -> None:
    """Commit 1 to 100 file changes as one version. See ``TransactionManager.update_table_objects``."""
    if not 1 <= len(operations) <= 100:
        raise CallError(f"update_table_objects takes 1 to 100 operations; got {len(operations)}.")
    paths = [path_below(record, operation.uri) for operation in operations]
    if len(set(paths)) < len(paths):
        raise CallError(f"{record.name}: two operations name the same object.")
    named = list(zip(paths, operations, strict=True))
    added = {path: each for path, each in named if isinstance(each, AddObject)}
    with table.transaction() as transaction:
        assert transaction.snapshot is not None
        live = live_file_rows(transaction.snapshot, paths)
        for path, each in added.items():
            if path in live:
                raise CallError(f"{each.uri} is already a file of {record.name}.")
            _check_inside(transaction.snapshot, path)
        _stage_removes(transaction, record, live, {p: each for p, each in named if isinstance(each, DeleteObject)})
        _stage_adds(transaction, record, added)
        transaction.commit("UPDATE TABLE OBJECTS")


def _check_inside(snapshot: Snapshot, path: str) -> None:
    """Refuse a symbolic link that leads outside the table, because readers would refuse it later."""
    try:
        snapshot.reader.files.find(encode_path(path))
    except UnsafePathError as error:
        raise CallError(error.message) from None


def _stage_adds(transaction: Transaction, record: TableRecord, added: Mapping[str, AddObject]) -> None:
    store = transaction.reader.store
    values = [(path, _values_of(transaction, each.partition_values)) for path, each in added.items()]
    tags = {path: {ETAG: each.etag.strip('"')} for path, each in added.items()}
    etags = _etags(store, added)
    for add, (path, each) in zip(transaction.add_parquet_files(values, tags=tags), added.items(), strict=True):
        if add.size != each.size_bytes or not same_etag(etags[path], each.etag):
            raise CallError(
                f"{each.uri} is not the object that was to be added to {record.name}: it has {add.size} bytes and the "
                f"ETag {etags[path]}, not {each.size_bytes} and {each.etag}."
            )
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(deadline.carried(functools.partial(_check_file, transaction.metadata, store)), added))


def _check_file(metadata: Metadata, store: LogStore, path: str) -> None:
    """Check that a file contains only columns of the table, with exactly the table's types and without nulls in NOT
    NULL columns, because readers differ in how they handle files that break these rules. Missing columns are null.

    Raises SchemaMismatchError, InvalidDataFileError, ResourceNotReadyError. Cost: the GETs of the footer and of NOT
    NULL columns.
    """
    where = f"{store.url}/{path}"
    with naming(store, path), contextlib.closing(store.open_input(path)) as source, open_parquet(source) as file:
        found = StructType.from_arrow(file.schema_arrow)
        for column in _checked_columns(metadata, found, where):
            stored = found.find(column.name)
            if stored is None or _has_nulls(file, stored.name, where):
                raise SchemaMismatchError(f"{where}: column {column.name} is NOT NULL, but the file has nulls in it.")


def _has_nulls(file: Any, name: str, where: str) -> bool:
    # If asked for a column named "a.b", Arrow also reads the field b of a struct a.
    for batch in file.iter_batches(columns=[name]):
        deadline.check(where)
        if batch.column(name).null_count:
            return True
    return False


def _checked_columns(metadata: Metadata, found: StructType, where: str) -> list[StructField]:
    """The NOT NULL columns of a table, and their names in files."""
    mode = column_mapping.mode_of(metadata.configuration)
    if mode == "id":
        raise ResourceNotReadyError(f"{where}: tables with column mapping by id do not accept files of other writers.")
    schema = metadata.schema
    known = {column.name.lower(): column for column in column_mapping.physical_schema(schema, mode)}
    partitioned = {
        column_mapping.physical_name(schema.field(name), mode).lower() for name in metadata.partition_columns
    }
    for column in found:
        name = column.name.lower()
        if name not in known:
            raise SchemaMismatchError(f"{where} has a column {column.name}, which is not in the table.")
        expected = known[name].data_type
        if name not in partitioned and str(expected) != "variant" and _bare(column.data_type) != _bare(expected):
            raise SchemaMismatchError(f"{where}: column {column.name} has type {column.data_type}, not {expected}.")
    return [column for name, column in known.items() if not column.nullable and name not in partitioned]


def _bare(data_type: DataType) -> DataType:
    """A type reduced to the properties that files record reliably: without metadata and nullability, and with names in
    lower case."""
    if isinstance(data_type, StructType):
        return StructType(tuple(StructField(each.name.lower(), _bare(each.data_type)) for each in data_type))
    if isinstance(data_type, ArrayType):
        return ArrayType(_bare(data_type.element_type), True)
    if isinstance(data_type, MapType):
        return MapType(_bare(data_type.key_type), _bare(data_type.value_type), True)
    return data_type


def _stage_removes(
    transaction: Transaction, record: TableRecord, live: Mapping[str, int], deleted: Mapping[str, DeleteObject]
) -> None:
    for path, each in deleted.items():
        if path not in live:
            raise CallError(f"{each.uri} is not, or no longer, a file of {record.name}.")
    assert transaction.snapshot is not None
    chosen = transaction.snapshot.files().take(pa.array([live[path] for path in deleted], pa.int64()))
    tags = chosen["tags"].to_pylist()
    known = {path: dict(each or ()).get(ETAG) for path, each in zip(deleted, tags, strict=True)}
    unknown = [path for path, each in deleted.items() if each.etag is not None and known[path] is None]
    known.update(_etags(transaction.reader.store, unknown))
    for path, each in deleted.items():
        if each.etag is not None and not same_etag(each.etag, known[path]):
            raise CallError(f"{each.uri} has the ETag {known[path]}, not {each.etag}; nothing was deleted.")
    if deleted:
        transaction.remove_files(chosen)


def _etags(store: LogStore, paths: Sequence[str] | Mapping[str, Any]) -> dict[str, str | None]:
    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(paths, threads.map(store.etag, paths), strict=True))


def _values_of(transaction: Transaction, texts: Sequence[str | None]) -> dict[str, str | None]:
    """Convert a caller's partition values to the form used in the log. Raises CallError."""
    metadata = transaction.metadata
    columns = [metadata.schema.field(name) for name in metadata.partition_columns]
    if len(texts) != len(columns):
        raise CallError(
            f"The table is partitioned by {len(columns)} columns ({', '.join(metadata.partition_columns) or 'none'}); "
            f"got {len(texts)} partition values."
        )
    mode = column_mapping.mode_of(metadata.configuration)
    return {
        column_mapping.physical_name(column, mode): _value_of(column, text)
        for column, text in zip(columns, texts, strict=True)
    }


def _value_of(column: StructField, text: str | None) -> str | None:
    if text in (None, "", partitions.HIVE_NULL):
        if not column.nullable:
            raise CallError(f"The partition column {column.name} is NOT NULL.")
        return None
    try:
        return partitions.serialize(partitions.parse(text, column.data_type, column.name), column.data_type)
    except CorruptTableError as error:
        raise CallError(error.message) from None


# ------------------------------------------------------------------------------------------------ listing


def page(snapshot: Snapshot, where: str | None, max_results: int, start: int) -> tuple[list[TableObject], int | None]:
    """The files of a version, ordered by path, from number ``start`` on, and the start of the next page (None after the
    last page).

    ``where`` may use only partition columns. Raises CallError; ResourceNotReadyError if a file has a deletion vector.
    Cost: that of ``Snapshot.files``.
    """
    files = _chosen(snapshot, where)
    end = start + max_results
    smallest = pc.select_k_unstable(files, k=min(end, files.num_rows), sort_keys=[("path", "ascending")])
    rows = files.take(smallest[start:]).to_pylist()
    return [_object(snapshot, row) for row in rows], end if files.num_rows > end else None


def _chosen(snapshot: Snapshot, where: str | None) -> pa.Table:
    if not where:
        return snapshot.files(_COLUMNS)
    scan = snapshot.scan(where=where)
    others = [] if scan.where is None else [column.name for column in columns_of(scan.where)]
    others = [name for name in others if name not in snapshot.partition_columns]
    if others:
        raise CallError(
            f"{snapshot.url} is partitioned by {', '.join(snapshot.partition_columns) or 'nothing'}: its files cannot "
            f"be chosen by {others[0]}."
        )
    return scan.files().select(_COLUMNS)


def _object(snapshot: Snapshot, row: Mapping[str, Any]) -> TableObject:
    uri = snapshot.file_path(row["path"])
    if row["deletion_vector"] is not None:
        raise ResourceNotReadyError(
            f"{uri} has a deletion vector, which a list of objects cannot express. Read the "
            "table with a Delta client, or rewrite its files."
        )
    mode = column_mapping.mode_of(snapshot.metadata.configuration)
    columns = [snapshot.schema.field(name) for name in snapshot.partition_columns]
    values = dict(row["partition_values"] or ())
    found = tuple(values.get(column_mapping.physical_name(column, mode)) or None for column in columns)
    return TableObject(uri, row["size"], dict(row["tags"] or ()).get(ETAG), found)
