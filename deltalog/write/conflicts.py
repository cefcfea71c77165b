"""Whether a transaction still holds after another writer's commit, and on what it then builds. Pure.

The rules and their order are those of delta-spark's conflict checker, at isolation level Serializable.
Spec: PROTOCOL.md leaves conflict detection to writers, but for the in-commit timestamp of a rebased commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from deltalog.errors import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
    TableExistsError,
)
from deltalog.log.reader import required_ict
from deltalog.log.replay import file_key
from deltalog.spec import features
from deltalog.spec.actions import (
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltalog.spec.codec import CommitActions
from deltalog.spec.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLEMENT_TIMESTAMP_KEY,
    ENABLEMENT_VERSION_KEY,
)

# A winner may add these features without making a transaction that was planned before them wrong.
_HARMLESS_FEATURES = frozenset(
    {
        "appendOnly",
        "invariants",
        "changeDataFeed",
        "timestampNtz",
        "deletionVectors",
        "domainMetadata",
        "v2Checkpoint",
        "typeWidening",
        "inCommitTimestamp",
        "vacuumProtocolCheck",
    }
)
# A winner may set these properties where they were absent (or false).
_HARMLESS_PROPERTIES: Mapping[str, str | None] = {
    ENABLE_IN_COMMIT_TIMESTAMPS.key: "true",
    ENABLEMENT_VERSION_KEY: None,
    ENABLEMENT_TIMESTAMP_KEY: None,
    "delta.enableDeletionVectors": "true",
    "delta.checkpointPolicy": "v2",
}


@dataclass(frozen=True, slots=True)
class Reads:
    """What a transaction has looked at: the whole table, or files by ``file_key``; application ids; metadata."""

    whole_table: bool = False
    files: frozenset[str] = frozenset()
    app_ids: frozenset[str] = frozenset()
    metadata: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction ready to be committed; nothing in it depends on the version it will get."""

    txn_id: str
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    user_metadata: str | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    transactions: tuple[SetTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    reads: Reads = Reads()

    @property
    def is_blind_append(self) -> bool:
        """Only adds files, and looked at none."""
        looked = self.reads.whole_table or self.reads.files
        return not (looked or self.removes or self.metadata or self.protocol)


@dataclass(frozen=True, slots=True)
class Base:
    """The version that an attempt follows.

    ``version`` is -1 before a table exists. ``previous_ms``: what the next in-commit timestamp must exceed:
    the in-commit timestamp of ``version``, or its monotonised file time when ``prepared`` is to enable them;
    None where no in-commit timestamp will be written.
    """

    version: int
    protocol: Protocol | None
    metadata: Metadata | None
    previous_ms: int | None

    @property
    def is_ict_active(self) -> bool:
        if self.protocol is None or self.metadata is None:
            return False
        return features.is_ict_active(self.protocol, self.metadata)


def rebase(prepared: Prepared, base: Base, winner: CommitActions, winner_file_time_ms: int | None, table: str) -> Base:
    """The base after ``winner`` took version ``base.version + 1``.

    ``winner_file_time_ms`` is needed only where the commit is to enable in-commit timestamps. Raises a
    CommitConflictError, TableExistsError, UnsupportedFeatureError, MissingInCommitTimestampError.
    """
    if base.protocol is None or base.metadata is None:
        raise TableExistsError(
            f"Another writer created {table} first. Open it with DeltaTable.open, or choose another location."
        )
    protocol = _protocol_after(prepared, base.protocol, winner, table)
    metadata = _metadata_after(prepared, base.metadata, winner, table)
    if winner.protocol is not None or winner.metadata is not None:
        features.check_writable(protocol, metadata, metadata.schema, table)
    _check_transactions(prepared, winner, table)
    _check_files(prepared, winner, table)
    rebased = replace(base, version=winner.version, protocol=protocol, metadata=metadata)
    if rebased.is_ict_active:
        return replace(rebased, previous_ms=required_ict(winner.commit_info, winner.version, table))
    if winner_file_time_ms is None:
        return replace(rebased, previous_ms=None)
    # Enabling: above every file time before it, made increasing as readers do.
    return replace(rebased, previous_ms=max(winner_file_time_ms, (base.previous_ms or 0) + 1))


def _protocol_after(prepared: Prepared, base: Protocol, winner: CommitActions, table: str) -> Protocol:
    changed = winner.protocol
    if changed is None or changed == base:
        return base
    before, after = set(features.writer_features(base)), set(features.writer_features(changed))
    if prepared.protocol is not None:
        raise _conflict(ProtocolChangedError, winner, table, "changed the protocol, as this transaction does")
    if before - after or not after - before <= _HARMLESS_FEATURES:
        difference = ", ".join(sorted(before ^ after))
        raise _conflict(ProtocolChangedError, winner, table, f"changed the table features {difference}")
    return changed


def _metadata_after(prepared: Prepared, base: Metadata, winner: CommitActions, table: str) -> Metadata:
    changed = winner.metadata
    if changed is None or changed == base:
        return base
    if prepared.metadata is not None or prepared.reads.metadata:
        raise _conflict(MetadataChangedError, winner, table, "changed schema or properties, as this transaction does")
    same_but_properties = replace_configuration(changed, base.configuration) == base
    if not same_but_properties:
        raise _conflict(MetadataChangedError, winner, table, "changed the schema, the partitioning or the name")
    for key in {**base.configuration, **changed.configuration}:
        old, new = base.configuration.get(key), changed.configuration.get(key)
        if old != new and not _is_harmless(key, old, new):
            raise _conflict(MetadataChangedError, winner, table, f"changed the property {key} from {old} to {new}")
    return changed


def _is_harmless(key: str, old: str | None, new: str | None) -> bool:
    if key not in _HARMLESS_PROPERTIES or new is None:
        return False
    wanted = _HARMLESS_PROPERTIES[key]
    if wanted is None:
        return True
    return new == wanted and old in (None, "false")


def replace_configuration(metadata: Metadata, configuration: Mapping[str, str]) -> Metadata:
    """The same metadata with other properties."""
    return msgspec.structs.replace(metadata, configuration=dict(configuration))


def _check_transactions(prepared: Prepared, winner: CommitActions, table: str) -> None:
    ours = prepared.reads.app_ids | {t.app_id for t in prepared.transactions}
    for transaction in winner.transactions:
        if transaction.app_id in ours:
            raise _conflict(
                ConcurrentTransactionError, winner, table,
                f"recorded version {transaction.version} of application {transaction.app_id!r}, as this one does",
            )  # fmt: skip
    domains = {d.domain for d in prepared.domains}
    for domain in winner.domains:
        if domain.domain in domains:
            raise _conflict(
                ConcurrentTransactionError,
                winner,
                table,
                f"changed the metadata domain {domain.domain!r} too",
            )


def _check_files(prepared: Prepared, winner: CommitActions, table: str) -> None:
    reads = prepared.reads
    if reads.whole_table and winner.adds:
        raise _conflict(
            ConcurrentAppendError,
            winner,
            table,
            f"added {winner.adds[0].path}, and this transaction read the table",
        )
    removed = {file_key(r.path, r.deletion_vector): r.path for r in winner.removes}
    ours = {file_key(r.path, r.deletion_vector) for r in prepared.removes}
    both = sorted(removed.keys() & ours)
    if both:
        raise _conflict(ConcurrentDeleteDeleteError, winner, table, f"removed {removed[both[0]]}, as this one does")
    read = sorted(removed if reads.whole_table else removed.keys() & reads.files)
    if read:
        raise _conflict(
            ConcurrentDeleteReadError,
            winner,
            table,
            f"removed {removed[read[0]]}, which this transaction read",
        )


def _conflict(kind: type[CommitConflictError], winner: CommitActions, table: str, what: str) -> CommitConflictError:
    operation = None if winner.commit_info is None else winner.commit_info.operation
    return kind(
        f"{table}: version {winner.version} ({operation or 'unknown operation'}), committed by another writer "
        f"meanwhile, {what}. Nothing was committed; read the table again and repeat the operation.",
        winning_version=winner.version,
        winning_operation=operation,
        retryable=True,
    )
