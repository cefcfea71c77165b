"""Creates tables, and writes to tables, from deltalake's arguments."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.addresses import committer_of, handle_on, open_handle
from deltalog.create.convert import converted
from deltalog.create.new_table import check_is_empty, first_transaction, initial_state
from deltalog.deltalake import nanoseconds
from deltalog.deltalake.arrow import converted as converted_rows
from deltalog.deltalake.arrow import delta_schema, nested_as
from deltalog.deltalake.commit_properties import AddAction, CommitProperties, PostCommitHookProperties, RemoveAction
from deltalog.deltalake.creation_rules import (
    VERSION_KEYS,
    with_version_keys,
    with_versions,
    without_lists,
)
from deltalog.deltalake.exceptions import CommitFailedError, DeltaError
from deltalog.deltalake.filters import coerced
from deltalog.deltalake.options import max_attempts, transaction_options
from deltalog.deltalake.schema import Schema
from deltalog.environment import Environment
from deltalog.errors import SchemaMismatchError, TableExistsError, TableNotFoundError
from deltalog.expressions.tree import Predicate
from deltalog.log.reader import LogReader
from deltalog.parquet.file_options import DEFAULT, FileOptions
from deltalog.protocol.actions import AddFile
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.column_metadata import DEFAULT_KEY, GENERATION_KEY, IDENTITY_KEY
from deltalog.protocol.paths import encode_path
from deltalog.protocol.schema import StructType
from deltalog.rows.overwrite import Columns, overwrite, replace_where
from deltalog.storage.registry import open_store
from deltalog.write import write_steps
from deltalog.write.table_handle import TableHandle
from deltalog.write.transaction import Transaction

Commit = CommitProperties | None
Hook = PostCommitHookProperties | None
_MODES = {"error": "ErrorIfExists", "append": "Append", "overwrite": "Overwrite", "ignore": "Ignore"}


def properties_of(configuration: Mapping[str, str | None] | None, is_checked: bool = True) -> dict[str, str]:
    """The table properties in a configuration, without those that are None. ``is_checked`` has no effect here: unknown
    properties are passed on to deltalog, which refuses them."""
    return {name: str(value) for name, value in (configuration or {}).items() if value is not None}


def new_transaction(
    reader: LogReader,
    schema: StructType,
    partition_by: Sequence[str],
    name: str | None,
    description: str | None,
    configuration: Mapping[str, str | None] | None,
    commit: Commit,
    hook: Hook,
    files: FileOptions = DEFAULT,
) -> Transaction:
    """A transaction whose commit is version 0. In-commit timestamps are off unless the configuration turns them on."""
    environment = Environment()
    check_is_empty(reader)
    properties = properties_of(configuration)
    versions = {key: properties.pop(key) for key in VERSION_KEYS if key in properties}
    protocol, metadata = initial_state(schema, partition_by, properties, name, description, environment)
    state = with_versions(without_lists(protocol, metadata), versions), with_version_keys(metadata, versions)
    return first_transaction(
        reader, committer_of(reader, environment), environment, state,
        options=transaction_options(commit, hook, files),
    )  # fmt: skip


def set_versions(transaction: Transaction, properties: Mapping[str, str]) -> None:
    """Stage the protocol versions that the properties specify, and the properties."""
    versions = {key: value for key, value in properties.items() if key in VERSION_KEYS}
    if versions:
        changes = transaction.metadata_changes
        protocol = with_versions(transaction.protocol, versions)
        changes.set_state(protocol, with_version_keys(transaction.metadata, versions))


def log_at(table_uri: str, storage_options: Mapping[str, Any] | None) -> LogReader:
    """The log at a location, whether or not there is a table."""
    return LogReader(open_store(table_uri, storage_options=dict(storage_options or {})), (), Environment().clock_ms)


def create(
    table_uri: str,
    schema: Schema,
    partition_by: Sequence[str],
    mode: str,
    raise_if_key_not_exists: bool,
    name: str | None,
    description: str | None,
    configuration: Mapping[str, str | None] | None,
    storage_options: Mapping[str, Any] | None,
    commit: Commit,
    hook: Hook,
) -> None:
    """Create a table without rows; ``mode="overwrite"`` replaces an existing table."""
    columns, reader = schema._delta(), log_at(table_uri, storage_options)
    assert isinstance(columns, StructType)
    try:
        transaction = new_transaction(reader, columns, partition_by, name, description, configuration, commit, hook)
    except TableExistsError:
        if mode == "ignore":
            return
        if mode != "overwrite":
            raise
        _replace(table_uri, columns, partition_by, name, description, configuration, storage_options, commit, hook)
        return
    with transaction:
        transaction.commit("CREATE TABLE", _description(transaction, table_uri, mode))


def _description(transaction: Transaction, table_uri: str, mode: str) -> dict[str, Any]:
    return {
        "mode": _MODES.get(mode, mode),
        "location": table_uri,
        "protocol": canonical_json(transaction.protocol.to_json()),
        "metadata": canonical_json(transaction.metadata.to_json()),
    }


def _replace(
    table_uri: str, columns: StructType, partition_by: Sequence[str], name: str | None, description: str | None,
    configuration: Mapping[str, str | None] | None, storage_options: Mapping[str, Any] | None, commit: Commit,
    hook: Hook,
) -> None:  # fmt: skip
    handle = open_handle(table_uri, (), Environment(), storage_options=dict(storage_options or {}))
    handle = handle.configured(transaction_options(commit, hook), max_attempts(commit))
    with handle.transaction() as transaction:
        transaction.remove_all_files()
        transaction.set_schema(columns, list(partition_by))
        wanted = properties_of(configuration)
        gone = [key for key in transaction.metadata.configuration if _is_replaced(key) and key not in wanted]
        transaction.unset_properties(gone)
        transaction.set_properties({key: value for key, value in wanted.items() if key not in VERSION_KEYS})
        set_versions(transaction, wanted)
        transaction.set_metadata(name=name or "", description=description or "")
        transaction.commit("CREATE OR REPLACE TABLE", _description(transaction, table_uri, "overwrite"))


def _is_replaced(key: str) -> bool:
    """Whether a property is removed when its table is replaced; properties that the writer maintains are kept."""
    kept = ("delta.inCommitTimestamp", "delta.enableInCommitTimestamps", "delta.columnMapping", "delta.rowTracking",
            "delta.enableRowTracking", "delta.constraints.")  # fmt: skip
    return not key.startswith(kept)


# ------------------------------------------------------------------------------------------------- existing files


def create_with_files(
    table_uri: str, schema: Schema, actions: Sequence[AddAction], mode: str, partition_by: Sequence[str],
    name: str | None, description: str | None, configuration: Mapping[str, str | None] | None,
    storage_options: Mapping[str, Any] | None, commit: Commit, hook: Hook,
) -> None:  # fmt: skip
    """Create a table that consists of existing files, with the statistics that the caller gives."""
    columns, reader = schema._delta(), log_at(table_uri, storage_options)
    assert isinstance(columns, StructType)
    try:
        transaction = new_transaction(reader, columns, partition_by, name, description, configuration, commit, hook)
    except TableExistsError:
        if mode == "ignore":
            return
        raise
    with transaction:
        transaction.add(*map(add_file, actions), known=True)
        transaction.commit("WRITE", {"mode": _MODES.get(mode, mode), "partitionBy": canonical_json(list(partition_by))})


def write_actions(
    handle: TableHandle, actions: Sequence[AddAction | RemoveAction], mode: str, schema: Schema,
    partition_by: Sequence[str], where: Predicate | str | None,
) -> None:  # fmt: skip
    """Commit existing files to a table. ``where``: with ``mode="overwrite"``, the files to replace."""
    with handle.transaction() as transaction:
        snapshot = transaction.snapshot
        assert snapshot is not None
        if list(partition_by) != list(snapshot.partition_columns) and (partition_by or mode != "overwrite"):
            raise DeltaError(wrong_partitioning(snapshot.partition_columns, partition_by))
        if mode == "error":
            raise TableExistsError(handle.url)
        if mode == "ignore":
            return
        columns = schema._delta()
        assert isinstance(columns, StructType)
        if mode == "overwrite":
            transaction.remove_files(transaction.find_files(where))
            if columns != snapshot.schema:
                transaction.set_schema(columns)
        adds = [add_file(each) for each in actions if not isinstance(each, RemoveAction)]
        removes = [encode_path(each.path) for each in actions if isinstance(each, RemoveAction)]
        if removes:
            transaction.remove(removes)
        transaction.add(*adds, known=True)
        parameters = {"mode": _MODES[mode], "partitionBy": canonical_json(list(snapshot.partition_columns))}
        transaction.commit("WRITE", parameters, transaction.staged.metrics())


def add_file(action: AddAction) -> AddFile:
    """An add action of deltalog's."""
    return AddFile(
        path=encode_path(action.path.lstrip("/")),
        partition_values=dict(action.partition_values),
        size=action.size,
        modification_time=action.modification_time or time.time_ns() // 1_000_000,
        data_change=action.data_change,
        stats=action.stats or None,
    )


def convert(
    uri: str, partition_by: Schema | None, name: str | None, description: str | None,
    configuration: Mapping[str, str | None] | None, storage_options: Mapping[str, Any] | None, commit: Commit,
    hook: Hook,
) -> None:  # fmt: skip
    """Turn a directory of Parquet files into a table."""
    environment, reader = Environment(), log_at(uri, storage_options)
    columns = None if partition_by is None else partition_by._delta()
    assert columns is None or isinstance(columns, StructType)
    converted(
        reader, committer_of(reader, environment), environment, columns, properties_of(configuration), name,
        description, None, options=transaction_options(commit, hook),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- rows


def wrong_partitioning(expected: Sequence[str], given: Sequence[str]) -> str:
    """The error message for partition columns that differ from those of the table."""
    return (
        "Generic error: Specified table partitioning does not match table partitioning: expected: "
        f"{json.dumps(list(expected))}, got: {json.dumps(list(given))}"
    )


def write_new(
    reader: LogReader, rows: pa.RecordBatchReader, mode: str, partition_by: Sequence[str], name: str | None,
    description: str | None, configuration: Mapping[str, str | None] | None, files: FileOptions, commit: Commit,
    hook: Hook,
) -> None:  # fmt: skip
    """Create a table with rows."""
    wanted = delta_schema(rows.schema, None, nanoseconds.enabled())
    schema = Schema.from_arrow(wanted)._delta()
    assert isinstance(schema, StructType)
    transaction = new_transaction(reader, schema, partition_by, name, description, configuration, commit, hook, files)
    with transaction:
        metrics = write_steps.write(transaction, converted_rows(rows, wanted))
        write_steps.commit_write(transaction, _MODES[mode], metrics, None, None)


def write_into(
    handle: TableHandle, rows: pa.RecordBatchReader, mode: str, schema_mode: str | None, predicate: str | None,
    partition_by: Sequence[str] | None,
) -> None:  # fmt: skip
    """Append rows to a table, or overwrite its rows. ``handle`` was opened with the options of the call."""
    if mode == "error":
        raise TableExistsError(handle.url)
    if schema_mode == "overwrite" and mode != "overwrite":
        raise DeltaError("Generic error: Schema overwrite not supported for Append")
    if predicate is not None and mode != "overwrite":
        raise DeltaError("Generic error: A predicate is only supported with mode='overwrite'")
    replaces = mode == "overwrite" and schema_mode == "overwrite" and predicate is None
    with handle.transaction_for(rows, None, mode == "append" and schema_mode is None) as transaction:
        own = list(transaction.metadata.partition_columns)
        if partition_by is not None and list(partition_by) != own and not replaces:
            raise DeltaError(wrong_partitioning(own, partition_by))
        check_generated(rows.schema, transaction.schema, schema_mode, replaces)
        fitted = _fitted(rows, transaction.schema, schema_mode, replaces)
        if mode == "append":
            reader = write_steps.fitting(transaction, fitted, schema_mode == "merge")
            metrics = write_steps.write(transaction, reader)
            write_steps.commit_write(transaction, "Append", metrics, None, None)
            return
        _check_removes(transaction)
        columns = Columns(schema_mode == "merge", schema_mode == "overwrite", partition_by if replaces else None)
        if predicate is not None:
            where = coerced(predicate, transaction.schema)
            assert where is not None
            replace_where(transaction, fitted, where, None, None, columns)
        else:
            overwrite(transaction, fitted, columns, None, None)


def _check_removes(transaction: Transaction) -> None:
    if transaction.metadata.configuration.get("delta.appendOnly", "").lower() == "true":
        raise CommitFailedError(
            "The transaction includes Remove action with data change but Delta table is append-only: "
            "delta.appendOnly is true. Set it to false, or append."
        )


def _fitted(
    rows: pa.RecordBatchReader, schema: StructType, schema_mode: str | None, replaces: bool
) -> pa.RecordBatchReader:
    """The rows, cast to the column types of the table. Raises SchemaMismatchError for rows that lack columns, or have
    others, unless the call changes the schema; for generated columns, defaults and identities that may be absent."""
    existing = schema.to_arrow()
    wanted = delta_schema(rows.schema, existing, nanoseconds.enabled())
    if replaces:
        return converted_rows(rows, wanted)
    if schema_mode is None:
        filled = (GENERATION_KEY, DEFAULT_KEY, IDENTITY_KEY)
        needed = {column.name for column in schema if not any(key in column.metadata for key in filled)}
        given = set(wanted.names)
        if needed - given or given - set(schema.names):
            raise SchemaMismatchError(
                "Cannot cast schema, number of fields does not match: "
                f"{len(given)} vs {len(schema.fields)}. The data has the columns {', '.join(wanted.names)}, the table "
                f"{', '.join(schema.names)}. Pass schema_mode='merge' to add columns or to leave some out."
            )
    fields = [field if field.name not in existing.names else _kept(field, existing.field(field.name))
              for field in wanted]  # fmt: skip
    return converted_rows(rows, pa.schema(fields))


def check_generated(given: pa.Schema, own: StructType, schema_mode: str | None, replaces: bool) -> None:
    """Raise SchemaMismatchError if a new column has a generation expression, because existing rows would violate it."""
    for field in given if schema_mode is not None else ():
        is_generated = GENERATION_KEY.encode() in (field.metadata or {})
        if is_generated and (replaces or own.find(field.name) is None):
            raise SchemaMismatchError(
                "Schema evolved fields cannot have generated expressions. Recreate the table to achieve this. The data "
                f"has one for {field.name}."
            )


def _kept(given: pa.Field, existing: pa.Field) -> pa.Field:
    """A field of the data, converted to the type of the table's column; fields of structs are matched by name."""
    return given.with_type(nested_as(given.type, existing.type))


def try_open(table_uri: str, storage_options: Mapping[str, Any] | None) -> TableHandle | None:
    """The table at a location; None if there is none."""
    try:
        return open_handle(table_uri, (), Environment(), storage_options=dict(storage_options or {}))
    except TableNotFoundError:
        return None


__all__ = ["handle_on"]
