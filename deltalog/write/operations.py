"""The verbs of a table, each as what it stages on a transaction and how it signs the commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltalog.errors import CallError
from deltalog.spec import features
from deltalog.spec.actions import Format, Metadata, Protocol
from deltalog.spec.codec import canonical_json
from deltalog.spec.partitions import check_partition_columns
from deltalog.spec.properties import check_assignment
from deltalog.spec.schema import StructType, check_column_names, check_writable, merge_schemas
from deltalog.write.commit import CommitResult, Environment
from deltalog.write.datafiles import as_reader
from deltalog.write.transaction import Transaction

UserMetadata = str | Mapping[str, Any] | None


def initial_state(
    schema: StructType,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    name: str | None,
    description: str | None,
    environment: Environment,
) -> tuple[Protocol, Metadata]:
    """The protocol and metadata of a new table. Raises SchemaMismatchError, InvalidPropertyError."""
    check_column_names(schema)
    check_assignment(dict(properties))
    named, configuration = features.split_feature_properties(properties)
    metadata = Metadata(
        id=environment.new_uuid(),
        name=name,
        description=description,
        format=Format(),
        schema_string=schema.to_json(),
        partition_columns=check_partition_columns(schema, partition_by),
        configuration=configuration,
        created_time=environment.clock_ms(),
    )
    wanted = [*features.features_for(metadata, schema), *named]
    return features.with_features(features.BASE_PROTOCOL, wanted), metadata


def create(transaction: Transaction, data: Any) -> CommitResult:
    """Commit version 0, with the rows of ``data`` if there are any."""
    metadata = transaction.metadata
    parameters: dict[str, Any] = {
        "partitionBy": canonical_json(list(metadata.partition_columns)),
        "properties": canonical_json(metadata.configuration),
        "isManaged": "false",
        "description": metadata.description,
    }
    if data is None:
        return transaction.commit("CREATE TABLE", parameters)
    metrics = _write(transaction, data)
    return transaction.commit("CREATE TABLE AS SELECT", parameters, metrics)


def append(
    transaction: Transaction,
    data: Any,
    merge_schema: bool,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    """Stage and commit rows added to the table."""
    if _is_recorded(transaction, txn):
        return skipped(transaction)
    reader = as_reader(data)
    _fit_schema(transaction, StructType.from_arrow(reader.schema), merge_schema)
    metrics = _write(transaction, reader)
    return _commit_write(transaction, "Append", metrics, user_metadata, txn)


def overwrite(
    transaction: Transaction,
    data: Any,
    overwrite_schema: bool,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    """Stage and commit rows that take the place of all others."""
    if _is_recorded(transaction, txn):
        return skipped(transaction)
    reader = as_reader(data)
    schema = StructType.from_arrow(reader.schema)
    if overwrite_schema:
        transaction.set_schema(schema)
    else:
        _fit_schema(transaction, schema, False)
    transaction.remove_all_files()
    metrics = _write(transaction, reader)
    return _commit_write(transaction, "Overwrite", metrics, user_metadata, txn)


def set_properties(
    transaction: Transaction, properties: Mapping[str, str], user_metadata: UserMetadata
) -> CommitResult:
    """Commit table properties."""
    transaction.set_properties(properties)
    parameters = {"properties": canonical_json(dict(properties))}
    return transaction.commit("SET TBLPROPERTIES", parameters, user_metadata=user_metadata)


def unset_properties(transaction: Transaction, keys: Sequence[str], user_metadata: UserMetadata) -> CommitResult:
    """Commit the removal of table properties."""
    transaction.unset_properties(keys)
    parameters = {"properties": canonical_json(list(keys)), "ifExists": "true"}
    return transaction.commit("UNSET TBLPROPERTIES", parameters, user_metadata=user_metadata)


def skipped(transaction: Transaction) -> CommitResult:
    """The result of a call that found nothing to do: the version as it was read."""
    snapshot = transaction.snapshot
    assert snapshot is not None
    ict_ms = snapshot.in_commit_timestamp_ms
    return CommitResult(snapshot.version, snapshot.timestamp_ms, ict_ms, 0, transaction.txn_id)


def _is_recorded(transaction: Transaction, txn: tuple[str, int] | None) -> bool:
    if txn is None or transaction.snapshot is None:
        return False
    if not (len(txn) == 2 and isinstance(txn[0], str) and isinstance(txn[1], int)):
        raise CallError(f"txn is an application id and a version such as ('nightly', 12); got {txn!r}.")
    recorded = transaction.snapshot.transaction_version(txn[0])
    return recorded is not None and recorded >= txn[1]


def _fit_schema(transaction: Transaction, data: StructType, merge: bool) -> None:
    table = transaction.schema
    if merge:
        merged = merge_schemas(table, data)
        if merged != table:
            transaction.set_schema(merged)
            table = merged
    check_writable(table, data)


def _write(transaction: Transaction, data: Any) -> dict[str, str]:
    reader = as_reader(data)
    check_writable(transaction.schema, StructType.from_arrow(reader.schema))
    rows = transaction.write(reader)
    return {"numOutputRows": str(rows), **transaction.staged_metrics()}


def _commit_write(
    transaction: Transaction,
    mode: str,
    metrics: Mapping[str, str],
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    if txn is not None:
        transaction.set_transaction(*txn)
    parameters = {"mode": mode, "partitionBy": canonical_json(list(transaction.metadata.partition_columns))}
    return transaction.commit("WRITE", parameters, metrics, user_metadata)
