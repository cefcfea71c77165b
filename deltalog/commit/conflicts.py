"""Whether a transaction still holds after another writer's commit, and on what it then builds. Pure.

The rules and their order are those of delta-spark's conflict checker. Where that judges a read by partition values
alone, this one also looks at the statistics of the files that the winner added: a file that cannot hold a row of
the predicate was not read.

Spec: PROTOCOL.md leaves conflict detection to writers, but for the in-commit timestamp and the row ids of a rebased
commit (#row-tracking).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import msgspec

from deltalog.errors import (
    CallError,
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
    TableExistsError,
)
from deltalog.expressions.bound import Bound
from deltalog.log.reader import required_ict
from deltalog.log.replay import files_table
from deltalog.protocol import column_mapping, features, row_tracking
from deltalog.protocol.actions import (
    AddCDCFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
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

IsolationLevel = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]

# A winner may add these features without making a transaction that was planned before them wrong.
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
# A winner may set these properties where they were absent (or false).
_HARMLESS_PROPERTIES: Mapping[str, str | None] = {
    ENABLE_IN_COMMIT_TIMESTAMPS.key: "true",
    ENABLEMENT_VERSION_KEY: None,
    ENABLEMENT_TIMESTAMP_KEY: None,
    "delta.enableDeletionVectors": "true",
    "delta.checkpointPolicy": "v2",
    # What exists keeps its names in files, and ids of new rows are given out at each attempt.
    column_mapping.MODE_KEY: "name",
    column_mapping.MAX_ID_KEY: None,
    ENABLE_ROW_TRACKING.key: "true",
    **dict.fromkeys(row_tracking.MATERIALIZED_KEYS),
}


@dataclass(frozen=True, slots=True)
class Reads:
    """What a transaction has looked at: the whole table, or the rows of some predicates, which are bound to the
    table's schema; files, by path; application ids; metadata; all metadata domains."""

    whole_table: bool = False
    predicates: tuple[Bound, ...] = ()
    files: frozenset[str] = frozenset()
    app_ids: frozenset[str] = frozenset()
    metadata: bool = False
    domains: bool = False


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
    add_lines: bytes | None = None  # these adds as lines of a commit, where they were encoded before
    removes: tuple[RemoveFile, ...] = ()
    transactions: tuple[SetTransaction, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    cdc: tuple[AddCDCFile, ...] = ()
    written: tuple[str, ...] = ()  # the files that were written for it, so nobody's when it fails
    annotations: Mapping[str, Any] | None = None  # its author's, for ``deltalog`` in commitInfo
    is_strict: bool = False  # a version that another writer takes is a conflict, when no attempt is left
    reads: Reads = Reads()
    read_version: int | None = None  # the version that it was planned on, for people
    isolation_level: IsolationLevel = "Serializable"

    @property
    def is_blind_append(self) -> bool:
        """Only adds files, and looked at none."""
        looked = self.reads.whole_table or self.reads.predicates or self.reads.files
        return not (looked or self.removes or self.metadata or self.protocol)

    @property
    def may_move_rows(self) -> bool:
        """Whether new files may hold rows that the table had in others."""
        removed = {remove.path for remove in self.removes}
        return bool(removed) and any(add.path not in removed for add in self.adds)

    @property
    def reported_metrics(self) -> dict[str, str]:
        """The metrics as commitInfo and the CommitResult have them."""
        return {key: str(value) for key, value in self.metrics.items()}

    @property
    def changes_data(self) -> bool:
        """Whether rows come or go; rearranging them in other files is no such change."""
        return any(add.data_change for add in self.adds) or any(remove.data_change for remove in self.removes)


def check_isolation_level(wanted: object) -> None:
    """Raises CallError for what is no isolation level; None, which leaves it to the table, is fine."""
    if wanted is not None and wanted not in get_args(IsolationLevel):
        raise CallError(f"An isolation level is one of {', '.join(get_args(IsolationLevel))}; got {wanted!r}.")


def isolation_for(prepared: Prepared, wanted: IsolationLevel) -> IsolationLevel:
    """The level that a transaction is judged at: one that only rearranges files needs no more than SnapshotIsolation.

    Raises CallError where SnapshotIsolation is wanted for a change of rows, which it would let go wrong unseen.
    """
    check_isolation_level(wanted)
    only_files = not (prepared.metadata or prepared.protocol or prepared.transactions or prepared.domains)
    rearranges = only_files and not prepared.changes_data
    if wanted == "SnapshotIsolation" and not rearranges:
        raise CallError(
            "SnapshotIsolation is for transactions that only rearrange rows (dataChange=false); this one changes the "
            "table. Use WriteSerializable or Serializable."
        )
    return "SnapshotIsolation" if rearranges and (prepared.adds or prepared.removes) else wanted


@dataclass(frozen=True, slots=True)
class Base:
    """The version that an attempt follows.

    ``version`` is -1 before a table exists. ``previous_ms``: what the next in-commit timestamp must exceed:
    the in-commit timestamp of ``version``, or its monotonised file time when ``prepared`` is to enable them;
    None where no in-commit timestamp will be written. ``row_id_high_water_mark``: the highest row id given out, -1
    before the first.
    """

    version: int
    protocol: Protocol | None
    metadata: Metadata | None
    previous_ms: int | None
    row_id_high_water_mark: int = -1

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
    _check_added(prepared, winner, metadata, table)
    _check_removed(prepared, winner, table)
    mark = row_tracking.high_water_mark(winner.domains, base.row_id_high_water_mark)
    rebased = replace(base, version=winner.version, protocol=protocol, metadata=metadata, row_id_high_water_mark=mark)
    if rebased.is_ict_active:
        return replace(rebased, previous_ms=required_ict(winner.commit_info, winner.version, table))
    if winner_file_time_ms is None:
        return replace(rebased, previous_ms=None)
    # Enabling: above every file time before it, made increasing as readers do.
    return replace(rebased, previous_ms=max(winner_file_time_ms, (base.previous_ms or 0) + 1))


def _protocol_after(prepared: Prepared, base: Protocol, winner: CommitActions, table: str) -> Protocol:
    changed = winner.protocol
    if prepared.protocol is not None:
        dropped = set(features.writer_features(base)) - set(features.writer_features(prepared.protocol))
        if dropped:
            what = f"came while this transaction drops {', '.join(sorted(dropped))}, and may use it"
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
        # Rows that are moved were written without the ids that they have for good from then on.
        too_late = key == ENABLE_ROW_TRACKING.key and prepared.may_move_rows
        if old != new and (too_late or not _is_harmless(key, old, new)):
            raise _conflict(
                MetadataChangedError, prepared, winner, table, f"changed the property {key} from {old} to {new}"
            )
    return changed


def _without_properties(metadata: Metadata) -> tuple[Metadata, StructType]:
    """What must stay as it is. Ids and physical names of columns may be added: they name what is there."""
    bare = msgspec.structs.replace(metadata, configuration={}, schema_string="")
    return bare, column_mapping.unmapped(metadata.schema)


def _is_harmless(key: str, old: str | None, new: str | None) -> bool:
    if key not in _HARMLESS_PROPERTIES or new is None:
        return False
    wanted = _HARMLESS_PROPERTIES[key]
    if wanted is None:
        return True
    return new == wanted and old in (None, "false", "none")


def files_still_fit(before: Metadata, after: Metadata) -> bool:
    """Whether new files written under ``before`` are files of a table with ``after`` too: it has all their columns,
    in the same form, and asks for no others and for nothing else of their rows."""
    written, wanted = _stored_columns(before), _stored_columns(after)
    added = [column for name, column in wanted.items() if name not in written]
    return (
        before.partition_columns == after.partition_columns
        and _constraints(before) == _constraints(after)
        and all(wanted.get(name) == column for name, column in written.items())
        and all(column.nullable and not column.metadata for column in added)
    )


def _stored_columns(metadata: Metadata) -> dict[str, StructField]:
    """The columns by the names that files have for them."""
    stored = column_mapping.physical_schema(metadata.schema, column_mapping.mode_of(metadata.configuration))
    return {column.name: column for column in column_mapping.unmapped(stored)}


def _constraints(metadata: Metadata) -> dict[str, str]:
    return {k: v for k, v in metadata.configuration.items() if k.startswith(CONSTRAINT_PREFIX)}


def replace_configuration(metadata: Metadata, configuration: Mapping[str, str]) -> Metadata:
    """The same metadata with other properties."""
    return msgspec.structs.replace(metadata, configuration=dict(configuration))


def _check_transactions(prepared: Prepared, winner: CommitActions, table: str) -> None:
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


def _check_added(prepared: Prepared, winner: CommitActions, metadata: Metadata, table: str) -> None:
    """Rows that came and that this transaction would have read, had it begun after them."""
    ours = {add.path for add in prepared.adds}
    twice = next((add for add in winner.adds if add.path in ours), None)
    if twice is not None and not any(remove.path == twice.path for remove in prepared.removes):
        raise _conflict(ConcurrentAppendError, prepared, winner, table, f"added {twice.path}, as this one does", twice)
    if prepared.isolation_level == "SnapshotIsolation":
        return
    if prepared.isolation_level == "WriteSerializable" and prepared.metadata is None and _is_blind_append(winner):
        return
    # Rows that were only moved were read where they were before: their removal is what counts.
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
    says_so = info is not None and info.body.get("isBlindAppend") is True
    return says_so and not commit.removes and commit.metadata is None


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
    """Files that went and that this transaction removes too, or has read."""
    ours = {remove.path for remove in prepared.removes}
    reads = prepared.reads
    for removed in winner.removes:
        if removed.path in ours:
            what = f"removed {removed.path}, as this one does"
            raise _conflict(ConcurrentDeleteDeleteError, prepared, winner, table, what, removed)
    for removed in winner.removes:
        # Rows that were only moved are still as they were read.
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
        f"{table}: version {winner.version} ({operation or 'unknown operation'}), committed by another writer {since}, "
        f"{what}. Nothing was committed; read the table again and repeat the operation "
        "(DeltaTable.retrying does both).",
        winning_version=winner.version,
        winning_operation=operation,
        read_version=read,
        path=None if file is None else file.path,
        partition_values=None if file is None else file.partition_values,
        retryable=True,
    )
