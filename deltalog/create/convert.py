"""Converts a directory of Parquet files to a table in place: version 0 adds the files; no file is moved.

Footers are read twice, first for the union of the columns, then for their statistics, so that memory does not grow with
the number of files. The row counts of both passes must agree, and so must two listings of the files.

Spec: PROTOCOL.md#data-files, #add-file-and-remove-file, #partition-value-serialization, #per-file-statistics.
"""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from deltalog.commit.committer import Committer
from deltalog.create import directory_files
from deltalog.create.directory_files import DirectoryFile
from deltalog.create.new_table import check_is_empty, first_transaction, initial_state, table_schema
from deltalog.environment import Environment
from deltalog.errors import CallError, InvalidDataFileError
from deltalog.log.reader import LogReader
from deltalog.parquet import stats
from deltalog.protocol import partitions
from deltalog.protocol.actions import AddFile
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.properties import COLUMN_MAPPING_MODE
from deltalog.protocol.schema import StructField, StructType
from deltalog.storage.base import LogStore
from deltalog.storage.remote import parallel_gets
from deltalog.write.added_files import FOOTER_THREADS, read_footer
from deltalog.write.commit_info import UserMetadata
from deltalog.write.transaction import Transaction
from deltalog.write.transaction_options import NO_OPTIONS, TransactionOptions

_AT_ONCE = 256


def converted(
    reader: LogReader,
    committer: Committer,
    environment: Environment,
    partition_by: StructType | pa.Schema | Sequence[str] | None,
    properties: Mapping[str, str],
    name: str | None,
    description: str | None,
    user_metadata: UserMetadata,
    options: TransactionOptions = NO_OPTIONS,
) -> Transaction:
    """Commit version 0, and return its transaction. Like ``DeltaTable.convert``. ``options``: of the commit."""
    check_is_empty(reader)
    store = reader.store
    files = _listed(store)
    if not files:
        raise CallError(f"{store.url} has no Parquet files. To create an empty table, use DeltaTable.create.")
    if COLUMN_MAPPING_MODE.read(properties) == "id":
        raise CallError(
            f"{store.url}: columns cannot be mapped by id (delta.columnMapping.mode): existing Parquet files lack the "
            "field ids. Map them by name, or omit the property."
        )
    typed = isinstance(partition_by, (StructType, pa.Schema))
    columns = directory_files.partition_columns(files, table_schema(partition_by) if typed else partition_by)
    data, rows = _columns(store, files)
    state = initial_state(
        StructType((*(f for f in data if f.name not in columns.names), *columns.fields)),
        columns.names, properties, name, description, environment, has_files=True,
    )  # fmt: skip
    texts = {file.path: directory_files.partition_values(file, columns) for file in files}

    def examine(path: str, footer: Any) -> None:
        _check_partition_columns(path, footer, columns, texts[path])

    with first_transaction(reader, committer, environment, state, options=options) as transaction:
        adds = transaction.add_parquet_files(texts.items(), num_rows=rows, examine=examine)
        _check_same(store, adds)
        transaction.commit("CONVERT", _parameters(adds, columns), {"numConvertedFiles": len(adds)}, user_metadata)
    return transaction


def _parameters(adds: Sequence[AddFile], columns: StructType) -> dict[str, Any]:
    return {
        "numFiles": len(adds),
        "partitionedBy": canonical_json(columns.names),
        "collectStats": True,
        "sourceFormat": "parquet",
    }


def _listed(store: LogStore) -> list[DirectoryFile]:
    return directory_files.data_files(store.url, store.walk(directory_files.is_entered))


def _columns(store: LogStore, files: Sequence[DirectoryFile]) -> tuple[StructType, int]:
    """The union of the columns of all files, in order of appearance, and the total number of rows."""
    schema, rows = StructType(), 0

    def read(file: DirectoryFile) -> tuple[StructType, int]:
        footer = read_footer(store, file.path)
        return directory_files.file_schema(footer, file.path), footer.num_rows

    with ThreadPoolExecutor(parallel_gets(store) or FOOTER_THREADS) as pool:
        for start in range(0, len(files), _AT_ONCE):
            some = files[start : start + _AT_ONCE]
            for file, (found, count) in zip(some, pool.map(read, some), strict=True):
                schema = found if not schema.fields else directory_files.merged(schema, found, file.path)
                rows += count
    return schema, rows


def _check_partition_columns(path: str, footer: Any, columns: StructType, values: Mapping[str, str | None]) -> None:
    """Refuse a file that contains a partition column with a value that differs from its directory's: readers return the
    directory's value."""
    chunks = stats.chunks_by_path(footer) or {}
    for column in columns:
        found = chunks.get((column.name.lower(),))
        if found is None and column.name.lower() not in {
            each.lower() for each in footer.schema.to_arrow_schema().names
        }:
            continue
        if footer.num_rows and not _holds_only(found or [], column, values[column.name], footer.num_rows):
            raise InvalidDataFileError(
                f"{path} cannot be converted: it contains the partition column {column.name}, and its footer does not "
                f"prove that all values equal {values[column.name]!r}, the value of its directory. Move the file, or "
                "rewrite it without the column. Nothing was committed.",
                path=path,
            )


def _holds_only(chunks: list[Any], column: StructField, text: str | None, rows: int) -> bool:
    nulls = stats.null_count_of(chunks) if chunks else None
    if text is None:
        return nulls == rows
    wanted = partitions.parse(text, column.data_type, column.name)
    if str(column.data_type) in ("timestamp", "timestamp_ntz"):
        wanted = (wanted.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    bounds = stats.value_bounds(chunks, column.data_type)
    return nulls == 0 and bounds is not None and bounds[0] == wanted == bounds[1]


def _check_same(store: LogStore, adds: Sequence[AddFile]) -> None:
    """List the directory again: it must contain exactly the files that were added, with unchanged sizes."""
    added = {urllib.parse.unquote(add.path): add.size for add in adds}
    now = {file.path: file.size_bytes for file in _listed(store)}
    for path in sorted(added.keys() | now.keys()):
        size = now.get(path)
        if path not in added or path not in now or (size is not None and size != added[path]):
            raise InvalidDataFileError(
                f"{store.url} cannot be converted: {path} was written or removed during the conversion. Nothing was "
                "committed. Stop other writers, then convert it again.",
                path=path,
            )
