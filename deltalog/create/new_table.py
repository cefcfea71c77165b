"""The verb that creates a table, with or without rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from deltalog.arguments import checked
from deltalog.commit.committer import Committer
from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import CallError, TableExistsError
from deltalog.log.reader import LogReader
from deltalog.protocol import column_mapping, features, metadata_update
from deltalog.protocol.actions import Format, Metadata, Protocol
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.column_paths import path_text
from deltalog.protocol.identity_columns import check_identities
from deltalog.protocol.partitions import check_partition_columns
from deltalog.protocol.properties import check_assignment
from deltalog.protocol.schema import StructType
from deltalog.protocol.schema_enforcement import check_column_names
from deltalog.write import write_steps
from deltalog.write.input_streams import as_reader
from deltalog.write.transaction import Transaction


def initial_state(
    schema: StructType,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    name: str | None,
    description: str | None,
    environment: Environment,
    has_files: bool = False,
) -> tuple[Protocol, Metadata]:
    """The protocol and metadata of a new table. ``has_files``: the table consists of existing files, so with column
    mapping the physical names are the column names in these files. Raises SchemaMismatchError, InvalidPropertyError."""
    check_assignment(dict(properties))
    schema_string = schema.to_json()
    check_column_names(schema, column_mapping.mode_of(properties) != "none")
    check_identities(schema, partition_by)
    named, configuration = features.split_feature_properties(properties)
    metadata = Metadata(
        id=environment.new_uuid(),
        name=name,
        description=description,
        format=Format(),
        schema_string=schema_string,
        partition_columns=check_partition_columns(schema, partition_by),
        configuration=configuration,
        created_time=environment.clock_ms(),
    )
    protocol = features.with_features(features.BASE_PROTOCOL, named)
    before = msgspec.structs.replace(metadata, configuration={}) if has_files else None
    return metadata_update.complete(before, metadata, protocol, environment.new_uuid)


def table_schema(schema: object) -> StructType:
    """The schema of a new table, as a StructType. Raises CallError, SchemaMismatchError."""
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, pa.Schema):
        return StructType.from_arrow(schema)
    raise CallError(
        f"The columns of a table must be a pyarrow Schema or a StructType, not {type(schema).__name__}: for example "
        'pa.schema([("id", pa.int64())]). DeltaTable.create also takes rows, such as a data frame or a pyarrow Table.'
    )


def check_is_empty(reader: LogReader) -> None:
    """Raise TableExistsError if a log exists. Cost: 1 LIST."""
    if not reader.list_from().is_empty:
        raise TableExistsError(
            f"A table already exists at {reader.store.url}. Open it with DeltaTable.open, or choose another location."
        )


def first_transaction(
    reader: LogReader, committer: Committer, environment: Environment, state: tuple[Protocol, Metadata], **more: Any
) -> Transaction:
    """A transaction that commits version 0, with this protocol and metadata."""
    protocol, metadata = state
    return Transaction(reader, committer, environment, None, metadata=metadata, protocol=protocol, **more)


@checked
def creation(
    reader: LogReader,
    committer: Committer,
    environment: Environment,
    schema: StructType | pa.Schema,
    *,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Transaction:
    """Like ``DeltaTable.create_transaction``, but for the location that ``reader`` reads."""
    check_is_empty(reader)
    state = initial_state(table_schema(schema), partition_by, properties or {}, name, description, environment)
    transaction = first_transaction(reader, committer, environment, state)
    if cluster_by:
        transaction.metadata_changes.set_clustering(cluster_by)
    return transaction


def columns_and_rows(schema: Any, data: Any) -> tuple[StructType | pa.Schema, Any]:
    """The columns and the first rows of a new table; ``schema`` may itself contain the rows. Raises CallError."""
    if isinstance(schema, (StructType, pa.Schema)) or not hasattr(schema, "__arrow_c_stream__"):
        return table_schema(schema), data
    if data is not None:
        raise CallError(
            f"schema is a {type(schema).__name__} with rows, and data has rows too. Give the rows as one of them; the "
            "columns alone are a pyarrow Schema or a StructType."
        )
    rows = as_reader(schema)
    return rows.schema, rows


def create(transaction: Transaction, data: Any) -> CommitResult:
    """Commit version 0, with the rows of ``data`` unless it is None."""
    metadata = transaction.metadata
    parameters: dict[str, Any] = {
        "partitionBy": canonical_json(list(metadata.partition_columns)),
        "properties": canonical_json(metadata.configuration),
        "isManaged": "false",
        "description": metadata.description,
    }
    clustered_by = transaction.metadata_changes.clustering_columns
    if clustered_by:
        parameters["clusterBy"] = canonical_json([path_text(path) for path in clustered_by])
    if data is None:
        return transaction.commit("CREATE TABLE", parameters)
    return transaction.commit(
        "CREATE TABLE AS SELECT", parameters, write_steps.write(transaction, write_steps.fitting(transaction, data))
    )
