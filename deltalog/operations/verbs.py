"""The verbs of a table, each as what it stages on a transaction and how it signs the commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import CallError
from deltalog.expressions.predicate_sql import shown
from deltalog.expressions.predicates import Predicate
from deltalog.operations import rewrite
from deltalog.operations.data_files import as_reader, change_file
from deltalog.operations.transaction import Transaction
from deltalog.protocol import column_mapping, features, metadata_update, widening
from deltalog.protocol.actions import Format, Metadata, Protocol
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.partitions import check_partition_columns
from deltalog.protocol.properties import ENABLE_TYPE_WIDENING, check_assignment
from deltalog.protocol.schema import StructType
from deltalog.protocol.schema_enforcement import check_column_names, check_writable, merge_schemas

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
    check_assignment(dict(properties))
    schema_string = schema.to_json()
    check_column_names(schema, column_mapping.mode_of(properties) != "none")
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
    return metadata_update.complete(None, metadata, protocol, environment.new_uuid)


def table_schema(schema: object) -> StructType:
    """The columns that a caller gives a new table. Raises CallError, SchemaMismatchError."""
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, pa.Schema):
        return StructType.from_arrow(schema)
    raise CallError(
        f"The columns of a table are a pyarrow Schema or a StructType, not {type(schema).__name__}: for example "
        'pa.schema([("id", pa.int64())]).'
    )


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
    return transaction.commit("CREATE TABLE AS SELECT", parameters, _write(transaction, fitting(transaction, data)))


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
    reader = fitting(transaction, data, merge_schema)
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
    if overwrite_schema:
        reader = as_reader(data)
        transaction.set_schema(StructType.from_arrow(reader.schema))
    else:
        reader = fitting(transaction, data)
    transaction.remove_all_files()
    metrics = {**_write(transaction, reader), **_removed_rows(transaction)}
    return _commit_write(transaction, "Overwrite", metrics, user_metadata, txn)


def replace_where(
    transaction: Transaction,
    data: Any,
    where: Predicate | str,
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
) -> CommitResult:
    """Stage and commit rows that take the place of those for which ``where`` is true."""
    if _is_recorded(transaction, txn):
        return skipped(transaction)
    reader = fitting(transaction, data)
    deletion = rewrite.plan(transaction, where)
    matching = rewrite.matching(transaction, reader, where)
    if deletion.as_changes:
        adds, rows = transaction.row_writer.write_inserts(matching)
        transaction.staged.add_written(adds)
        transaction.staged.add_change_files(map(change_file, adds))
    else:
        rows = transaction.write(matching)
    if not rows and deletion.is_empty and txn is None:
        return skipped(transaction)
    inserted = len(transaction.staged.cdc)
    effect = rewrite.stage(transaction, deletion)
    metrics = {
        **transaction.staged.metrics(),
        "numOutputRows": rows + effect["numCopiedRows"],
        "numAddedChangeFiles": effect["numAddedChangeFiles"] + inserted,
        **{name: effect[name] for name in _REPLACE_METRICS if name in effect},
    }
    return _commit_write(transaction, "Overwrite", _as_text(metrics), user_metadata, txn, predicate=_condition(where))


_REPLACE_METRICS = ("numRemovedFiles", "numRemovedBytes", "numCopiedRows", "numDeletedRows")


def replace_partitions(
    transaction: Transaction, data: Any, user_metadata: UserMetadata, txn: tuple[str, int] | None
) -> CommitResult:
    """Stage and commit rows that take the place of all others in the partitions that they lie in."""
    if _is_recorded(transaction, txn):
        return skipped(transaction)
    rewrite.check_replaces_partitions(transaction)
    reader = fitting(transaction, data)
    written = _write(transaction, reader)
    transaction.replace_partitions()
    if not transaction.staged.adds and txn is None:
        return skipped(transaction)
    metrics = {**written, **transaction.staged.metrics(), **_removed_rows(transaction)}
    return _commit_write(transaction, "Overwrite", metrics, user_metadata, txn, isDynamicPartitionOverwrite=True)


def delete(
    transaction: Transaction, where: Predicate | str | None, user_metadata: UserMetadata, txn: tuple[str, int] | None
) -> CommitResult:
    """Stage and commit the deletion of the rows for which ``where`` is true (None: of all)."""
    if _is_recorded(transaction, txn):
        return skipped(transaction)
    deletion = rewrite.plan(transaction, where)
    if deletion.is_empty and txn is None:
        return skipped(transaction)
    metrics = rewrite.stage(transaction, deletion)
    if txn is not None:
        transaction.set_transaction(*txn)
    parameters = {"predicate": canonical_json([_condition(where)])}
    return transaction.commit("DELETE", parameters, _as_text(metrics), user_metadata)


def _condition(where: Predicate | str | None) -> str:
    if where is None:
        return "true"
    return shown(where)


def _as_text(metrics: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in metrics.items()}


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
    if not (isinstance(txn, (tuple, list)) and len(txn) == 2 and isinstance(txn[0], str) and isinstance(txn[1], int)):
        raise CallError(f"txn is an application id and a version such as ('nightly', 12); got {txn!r}.")
    assert transaction.latest is not None
    recorded = transaction.latest.transaction_version(txn[0])
    return recorded is not None and recorded >= txn[1]


def fitting(transaction: Transaction, data: Any, merge: bool = False) -> pa.RecordBatchReader:
    """The rows as a stream whose columns fit the table's; with ``merge`` the table grows by those that it lacks."""
    reader = as_reader(data)
    given, table = StructType.from_arrow(reader.schema), transaction.schema
    if merge:
        widens = ENABLE_TYPE_WIDENING.read(transaction.metadata.configuration)
        merged = merge_schemas(table, given, widening.is_widening_of_its_kind if widens else None)
        if merged != table:
            transaction.set_schema(widening.recorded(table, merged))
            table = merged
    check_writable(table, given)
    return reader


def _write(transaction: Transaction, reader: pa.RecordBatchReader) -> dict[str, str]:
    rows = transaction.write(reader)
    return {"numOutputRows": str(rows), **transaction.staged.metrics()}


def _removed_rows(transaction: Transaction) -> dict[str, str]:
    """The metric of an overwrite that removes whole files; none where their statistics do not tell."""
    rows = transaction.staged.removed_rows
    return {} if rows is None else {"numDeletedRows": str(rows)}


def _commit_write(
    transaction: Transaction,
    mode: str,
    metrics: Mapping[str, str],
    user_metadata: UserMetadata,
    txn: tuple[str, int] | None,
    **more: Any,
) -> CommitResult:
    if txn is not None:
        transaction.set_transaction(*txn)
    partition_by = canonical_json(list(transaction.metadata.partition_columns))
    parameters = {"mode": mode, "partitionBy": partition_by, **more}
    return transaction.commit("WRITE", parameters, metrics, user_metadata)
