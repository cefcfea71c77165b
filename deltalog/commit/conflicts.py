"""Decides whether a transaction conflicts with the commit that won the version, and rebases the transaction if it does
not. Pure.

The rules and their order are those of delta-spark's conflict checker, which compares reads only by partition values.
This module also uses the statistics of the files that the winner added: a file whose statistics exclude every row that
matches the read predicate counts as not read.

Spec: PROTOCOL.md leaves conflict detection to writers, except for the in-commit timestamp and the row ids of a rebased
commit (#row-tracking), and for statistics on clustering columns (#writer-requirements-for-clustered-table).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from deltalog.commit.base import Base
from deltalog.commit.prepared import Prepared
from deltalog.errors import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
    TableExistsError,
    VersionConflictError,
)
from deltalog.expressions.bound import Bound
from deltalog.log.file_tables import files_table
from deltalog.protocol import column_mapping, features, identity_columns, row_tracking, timestamps
from deltalog.protocol.actions import (
    AddFile,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.properties import (
    CONSTRAINT_PREFIX,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_ROW_TRACKING,
    ENABLEMENT_TIMESTAMP_KEY,
    ENABLEMENT_VERSION_KEY,
)
from deltalog.protocol.schema import StructField, StructType
from deltalog.read.data_skipping import prune

# Table features that the winner may add without causing a conflict.
_HARMLESS_FEATURES = frozenset(
    {
        "appendOnly",
        "invariants",
        "changeDataFeed",
        "columnMapping",
        "rowTracking",
        "timestampNtz",
        "deletionVectors",
        "domainMetadata",
        "v2Checkpoint",
        "typeWidening",
        "inCommitTimestamp",
        "vacuumProtocolCheck",
    }
)
# Table properties that the winning commit may set without a conflict if they were absent or false before.
_HARMLESS_PROPERTIES: Mapping[str, str | None] = {
    ENABLE_IN_COMMIT_TIMESTAMPS.key: "true",
    ENABLEMENT_VERSION_KEY: None,
    ENABLEMENT_TIMESTAMP_KEY: None,
    "delta.enableDeletionVectors": "true",
    "delta.checkpointPolicy": "v2",
    # Enabling column mapping or row tracking concurrently is not a conflict: column mapping does not rename existing
    # columns in data files, and every attempt to commit assigns row ids anew.
    column_mapping.MODE_KEY: "name",
    column_mapping.MAX_ID_KEY: None,
    ENABLE_ROW_TRACKING.key: "true",
    **dict.fromkeys(row_tracking.MATERIALIZED_KEYS),
}


def rebase(prepared: Prepared, base: Base, winner: CommitActions, winner_file_time_ms: int | None, table: str) -> Base:
    """The base of the next attempt, after ``winner`` committed version ``base.version + 1`` without a conflict.

    ``winner_file_time_ms``: the modification time of the winner's commit file, in milliseconds since 1970; used only if
    the transaction enables in-commit timestamps. ``table``: the URL of the table root, for error messages. Raises
    CommitConflictError, TableExistsError, UnsupportedFeatureError, MissingInCommitTimestampError. Cost: none.
    """
    if base.protocol is None or base.metadata is None:
        raise TableExistsError(
            f"Another writer created {table} first. Open it with DeltaTable.open, or choose another location."
        )
    protocol = _protocol_after(prepared, base.protocol, winner, table)
    metadata = _metadata_after(prepared, base.metadata, winner, table)
    if winner.protocol is not None or winner.metadata is not None:
        features.check_writable(protocol, table)
    _check_transactions(prepared, winner, table)
    _check_added(prepared, winner, metadata, table)
    _check_removed(prepared, winner, table)
    mark = row_tracking.high_water_mark(winner.domains, base.row_id_high_water_mark)
    rebased = replace(base, version=winner.version, protocol=protocol, metadata=metadata, row_id_high_water_mark=mark)
    ict_ms = timestamps.required_ict(winner.commit_info, winner.version, table) if rebased.is_ict_active else None
    return replace(rebased, previous_ms=timestamps.previous_timestamp(ict_ms, winner_file_time_ms, base.previous_ms))


def _protocol_after(prepared: Prepared, base: Protocol, winner: CommitActions, table: str) -> Protocol:
    changed = winner.protocol
    if prepared.protocol is not None:
        dropped = set(features.writer_features(base)) - set(features.writer_features(prepared.protocol))
        if dropped:
            what = f"may use {', '.join(sorted(dropped))}, which this transaction drops"
            raise _conflict(ProtocolChangedError, prepared, winner, table, what)
    if changed is None or changed == base:
        return base
    before, after = set(features.writer_features(base)), set(features.writer_features(changed))
    if prepared.protocol is not None:
        raise _conflict(ProtocolChangedError, prepared, winner, table, "changed the protocol, as this transaction does")
    if before - after or not after - before <= _HARMLESS_FEATURES:
        difference = ", ".join(sorted(before ^ after))
        raise _conflict(ProtocolChangedError, prepared, winner, table, f"changed the table features {difference}")
    return changed


def _metadata_after(prepared: Prepared, base: Metadata, winner: CommitActions, table: str) -> Metadata:
    changed = winner.metadata
    if changed is None or changed == base:
        return base
    if prepared.metadata is not None or prepared.reads.metadata:
        raise _conflict(
            MetadataChangedError, prepared, winner, table, "changed schema or properties, as this transaction does"
        )
    if _without_properties(changed) != _without_properties(base):
        raise _conflict(
            MetadataChangedError, prepared, winner, table, "changed the schema, the partitioning or the name"
        )
    for key in {**base.configuration, **changed.configuration}:
        old, new = base.configuration.get(key), changed.configuration.get(key)
        # Rewritten files lack the row ids that the winner assigned to the rows copied into them.
        loses_ids = key == ENABLE_ROW_TRACKING.key and prepared.may_move_rows
        if old != new and (loses_ids or not _is_harmless(key, old, new)):
            raise _conflict(
                MetadataChangedError, prepared, winner, table, f"changed the property {key} from {old} to {new}"
            )
    return changed


def _without_properties(metadata: Metadata) -> tuple[Metadata, StructType]:
    """The part of the metadata that the winning commit must not have changed. The winner may have assigned column ids
    and physical names to existing columns, and may have advanced the high-water marks of identity columns; these marks
    concern only transactions that generate identity values, which change the metadata themselves."""
    bare = msgspec.structs.replace(metadata, configuration={}, schema_string="")
    return bare, identity_columns.without_marks(column_mapping.unmapped(metadata.schema))


def _is_harmless(key: str, old: str | None, new: str | None) -> bool:
    if key not in _HARMLESS_PROPERTIES or new is None:
        return False
    wanted = _HARMLESS_PROPERTIES[key]
    if wanted is None:
        return True
    return new == wanted and old in (None, "false", "none")


def files_still_fit(before: Metadata, after: Metadata) -> bool:
    """Whether files written under the metadata ``before`` are also valid under ``after``, that is, whether
    partitioning, constraints and existing columns are unchanged, and new columns are nullable and have no column
    metadata."""
    written, wanted = _stored_columns(before), _stored_columns(after)
    added = [column for name, column in wanted.items() if name not in written]
    return (
        before.partition_columns == after.partition_columns
        and _constraints(before) == _constraints(after)
        and all(wanted.get(name) == column for name, column in written.items())
        and all(column.nullable and not column.metadata for column in added)
    )


def _stored_columns(metadata: Metadata) -> dict[str, StructField]:
    """The columns by physical name."""
    stored = column_mapping.physical_schema(metadata.schema, column_mapping.mode_of(metadata.configuration))
    return {column.name: column for column in column_mapping.unmapped(stored)}


def _constraints(metadata: Metadata) -> dict[str, str]:
    return {k: v for k, v in metadata.configuration.items() if k.startswith(CONSTRAINT_PREFIX)}


def _check_transactions(prepared: Prepared, winner: CommitActions, table: str) -> None:
    """Raise a conflict if the winner sets an application id or a metadata domain that this transaction sets or has
    read."""
    ours = prepared.reads.app_ids | {t.app_id for t in prepared.transactions}
    for transaction in winner.transactions:
        if transaction.app_id in ours:
            raise _conflict(
                ConcurrentTransactionError, prepared, winner, table,
                f"recorded version {transaction.version} of application {transaction.app_id!r}, as this one does",
            )  # fmt: skip
    domains = {d.domain for d in prepared.domains}
    for domain in winner.domains:
        if domain.domain in domains or (prepared.reads.domains and domain.domain != row_tracking.DOMAIN):
            raise _conflict(
                ConcurrentTransactionError,
                prepared,
                winner,
                table,
                f"changed the metadata domain {domain.domain!r} too",
            )
        if domain.domain == column_mapping.CLUSTERING_DOMAIN and prepared.adds:
            what = "changed the clustering columns, for which all files must have statistics"
            raise _conflict(ConcurrentTransactionError, prepared, winner, table, what)


def _check_added(prepared: Prepared, winner: CommitActions, metadata: Metadata, table: str) -> None:
    """Raise a conflict if the winner added rows that this transaction would have read if it had begun after the
    winner."""
    ours = {add.path for add in prepared.adds}
    twice = next((add for add in winner.adds if add.path in ours), None)
    if twice is not None and not any(remove.path == twice.path for remove in prepared.removes):
        raise _conflict(ConcurrentAppendError, prepared, winner, table, f"added {twice.path}, as this one does", twice)
    if prepared.isolation_level == "SnapshotIsolation":
        return
    if prepared.isolation_level == "WriteSerializable" and prepared.metadata is None and _is_blind_append(winner):
        return
    # Copied rows need no check here: their source files were removed, and ``_check_removed`` checks those.
    added = [add for add in winner.adds if add.data_change]
    reads = prepared.reads
    if added and reads.whole_table:
        what = f"added {added[0].path}, and this transaction read the whole table"
        raise _conflict(ConcurrentAppendError, prepared, winner, table, what, added[0])
    if added and reads.predicates:
        read = _first_that_may_match(added, reads.predicates, metadata)
        if read is not None:
            what = f"added {read.path}, which may hold rows that this transaction would have read"
            raise _conflict(ConcurrentAppendError, prepared, winner, table, what, read)


def _is_blind_append(commit: CommitActions) -> bool:
    info = commit.commit_info
    is_declared = info is not None and info.body.get("isBlindAppend") is True
    return is_declared and not commit.removes and commit.metadata is None


def _first_that_may_match(adds: Sequence[AddFile], predicates: Sequence[Bound], metadata: Metadata) -> AddFile | None:
    files, schema = files_table(adds), metadata.schema
    mapping = column_mapping.mode_of(metadata.configuration)
    for predicate in predicates:
        kept = prune(files, predicate, schema, metadata.partition_columns, mapping)
        if kept.num_rows:
            path = kept.column("path")[0].as_py()
            return next(add for add in adds if add.path == path)
    return None


def _check_removed(prepared: Prepared, winner: CommitActions, table: str) -> None:
    """Raise a conflict if the winner removed files that this transaction also removes, adds again, or has read."""
    ours = {remove.path for remove in prepared.removes}
    again = {add.path for add in prepared.adds}
    reads = prepared.reads
    for removed in winner.removes:
        if removed.path in ours:
            what = f"removed {removed.path}, as this one does"
            raise _conflict(ConcurrentDeleteDeleteError, prepared, winner, table, what, removed)
    for removed in winner.removes:
        if removed.path in again:
            what = f"removed {removed.path}, which this one adds again"
            raise _conflict(ConcurrentDeleteReadError, prepared, winner, table, what, removed)
        # Rows that were only copied still contain the values that this transaction read.
        if removed.data_change and (reads.whole_table or removed.path in reads.files):
            what = f"removed {removed.path}, which this transaction read"
            raise _conflict(ConcurrentDeleteReadError, prepared, winner, table, what, removed)


def _conflict(
    kind: type[CommitConflictError],
    prepared: Prepared,
    winner: CommitActions,
    table: str,
    what: str,
    file: AddFile | RemoveFile | None = None,
) -> CommitConflictError:
    operation = None if winner.commit_info is None else winner.commit_info.operation
    read = prepared.read_version
    since = "meanwhile" if read is None else f"after version {read}, on which this commit was planned"
    return kind(
        f"{table}: version {winner.version} ({operation or 'unknown operation'}), committed by another transaction "
        f"(possibly in this session) {since}, {what}. Nothing was committed; read the table again and repeat the "
        "operation (DeltaTable.retrying does both).",
        winning_version=winner.version,
        winning_operation=operation,
        read_version=read,
        path=None if file is None else file.path,
        partition_values=None if file is None else file.partition_values,
        retryable=True,
    )


def unexpected_version(expected: int, latest: int | None, table: str) -> VersionConflictError:
    """The error for a write if ``latest``, the latest version (None: there is none), is not the version that the caller
    expected."""
    return VersionConflictError(
        f"{table}: version {expected} was expected to be the latest, but version {latest} is. Nothing was committed. "
        "Read the table again, and repeat the write.",
        expected_parent=expected,
        read_version=expected,
        winning_version=latest,
        winning_operation=None,
    )


def parent_taken(parent: int, winner: CommitActions, table: str) -> VersionConflictError:
    """The error for a commit that must directly follow ``parent`` (-1: no version), although another commit already
    does."""
    expected = parent if parent >= 0 else None
    return VersionConflictError(
        f"{table}: another writer committed version {winner.version}, which was to follow {expected}. "
        "Nothing was committed. Read latest() and write again, or pass retry_count.",
        expected_parent=expected,
        read_version=expected,
        winning_version=winner.version,
        winning_operation=None if winner.commit_info is None else winner.commit_info.operation,
    )


def commits_missing_since(read: int, latest: int, table: str) -> CommitConflictError:
    """The error for a write based on a version so old that commits after it are no longer in the log."""
    return CommitConflictError(
        f"{table}: the rows were read from version {read}, the latest version is {latest}, and the log no longer has "
        "the commits between them. Nothing was committed; read the table again and repeat the operation.",
        winning_version=latest,
        winning_operation=None,
        read_version=read,
    )
