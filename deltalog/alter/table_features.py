"""Adds and drops table features.

A writer-only feature can be dropped once the table contains no trace of the feature. For a reader feature this is not
sufficient, because earlier versions in the log also contain traces of the feature. If the protocol no longer listed the
feature, clients that do not support it would misread the traces of the feature in earlier versions. So a reader feature
can be dropped only after log clean-up has deleted the versions that use the feature.

Spec: PROTOCOL.md#table-features, #protocol-evolution, #table-features-for-new-and-existing-tables, #clustered-table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from deltalog.commit_result import CommitResult
from deltalog.errors import (
    CallError,
    DeltaLogError,
    FeatureDropIncompleteError,
    InvalidCheckpointError,
    Outcome,
    StoreError,
    UnsupportedFeatureError,
)
from deltalog.lazy_arrow import pc
from deltalog.log.file_cache import FileCache
from deltalog.log.file_tables import add_actions
from deltalog.log.loader import load
from deltalog.log.reader import LogReader
from deltalog.log.segment import Checkpoint
from deltalog.parquet.footers import READ_ERRORS, open_parquet
from deltalog.protocol import column_mapping, features, row_tracking, timestamps
from deltalog.protocol.actions import AddFile, Metadata, Protocol, RemoveFile
from deltalog.protocol.codec import canonical_json
from deltalog.protocol.column_metadata import DEFAULT_KEY, GENERATION_KEY, IDENTITY_KEY, INVARIANT_KEY
from deltalog.protocol.paths import LogFileKind, log_path
from deltalog.protocol.properties import (
    APPEND_ONLY,
    CHECKPOINT_POLICY,
    CHECKPOINT_PROTECTION_BEFORE,
    ENABLE_CHANGE_DATA_FEED,
    ENABLE_DELETION_VECTORS,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_ROW_TRACKING,
    ENABLE_TYPE_WIDENING,
    Property,
)
from deltalog.protocol.schema import uses_type
from deltalog.protocol.widening import TYPE_CHANGES_KEY
from deltalog.read.snapshot import Snapshot
from deltalog.write import clustering_columns
from deltalog.write.commit_info import UserMetadata
from deltalog.write.transaction import Transaction, skipped

_COMMITS_AT_ONCE = 256


def add_feature(transaction: Transaction, name: str, user_metadata: UserMetadata) -> CommitResult:
    """Commit a protocol with a feature and the features that it requires. If the protocol already contains these
    features, nothing is committed."""
    protocol = with_features(transaction.protocol, [name])
    if protocol == transaction.protocol:
        return skipped(transaction)
    transaction.metadata_changes.set_protocol(protocol)
    parameters = {"newProtocol": canonical_json(protocol.to_json())}
    return transaction.commit("UPGRADE PROTOCOL", parameters, user_metadata=user_metadata)


def with_features(protocol: Protocol, names: Sequence[str]) -> Protocol:
    """A protocol with the given features and the features that these require. Raises InvalidPropertyError for names
    that Delta does not have, UnsupportedFeatureError for features with which tables cannot be written."""
    for name in names:
        if features.feature(name).writes is features.Writes.NO:
            raise UnsupportedFeatureError(
                f"{name} cannot be added: deltalog cannot write tables with this feature.", features=(name,)
            )
    return features.with_features(protocol, names)


def upgrade_protocol(
    transaction: Transaction, reader_version: int, writer_version: int, user_metadata: UserMetadata
) -> CommitResult:
    """Commit a protocol with at least these versions. If the protocol already has these versions, or the features that
    they imply, nothing is committed."""
    protocol = features.upgraded(transaction.protocol, reader_version, writer_version)
    if protocol == transaction.protocol:
        return skipped(transaction)
    transaction.metadata_changes.set_protocol(protocol)
    parameters = {"newProtocol": canonical_json(protocol.to_json())}
    return transaction.commit("UPGRADE PROTOCOL", parameters, user_metadata=user_metadata)


def drop_feature(
    begin: Callable[[], Transaction],
    name: str,
    user_metadata: UserMetadata,
    purge: Callable[[], Sequence[CommitResult]] = tuple,
) -> CommitResult:
    """Drop a table feature in at most two commits: the first unsets the properties that use the feature, the second
    removes the feature from the protocol. Between these commits, if the feature is deletionVectors, ``purge`` rewrites
    the files that have deletion vectors, and returns the commits that it made.

    As long as the table (or, for a reader feature, the log) contains traces of the feature, the last commit is refused
    with a CallError that says what to do. If the last commit fails after an earlier one has succeeded,
    FeatureDropIncompleteError is raised, with the reason as its cause; a CommitStateUnknownError is raised unchanged.
    """
    feature = features.feature(name)
    removal = _REMOVALS.get(name)
    if removal is None:
        why = _PERMANENT.get(name, "the rows would have to be rewritten. Copy them into a new table")
        raise UnsupportedFeatureError(f"The table feature {name} cannot be dropped: {why}.", features=(name,))
    done: tuple[str, CommitResult] | None = None  # the commit before the one that drops the feature
    with begin() as transaction:
        if name not in features.writer_features(transaction.protocol):
            return skipped(transaction)
        _check_not_required(transaction, name)
        in_use = [key for key in removal.properties if key in transaction.metadata.configuration]
        if in_use:
            transaction.unset_properties(in_use)
            parameters = {"properties": canonical_json(in_use), "ifExists": "true"}
            commit = transaction.commit("UNSET TBLPROPERTIES", parameters, user_metadata=user_metadata)
            done = f"unset {', '.join(in_use)}", commit
    try:
        for commit in purge() if removal.vectors else ():
            done = "rewritten the files with deletion vectors", commit
        with begin() as transaction:
            return _removed_from_protocol(transaction, feature, removal, user_metadata)
    except DeltaLogError as error:
        if done is None or error.outcome is Outcome.UNKNOWN:
            raise
        raise FeatureDropIncompleteError(
            f"Version {done[1].version} has {done[0]}, but the commit that drops the table feature {name} failed: "
            f"{error}",
            feature=name,
            version=done[1].version,
        ) from error


def _removed_from_protocol(
    transaction: Transaction, feature: features.Feature, removal: Removal, user_metadata: UserMetadata
) -> CommitResult:
    name = feature.name
    _check_not_required(transaction, name)
    snapshot = transaction.snapshot
    assert snapshot is not None
    obstacle = removal.obstacle(snapshot) or (_traces(snapshot, removal) if feature.reader else None)
    if obstacle is not None:
        raise CallError(f"{snapshot.url}: the table feature {name} cannot be dropped yet: {obstacle}")
    # A concurrent commit may use the feature again, so any change to metadata or files is a conflict.
    transaction.unset_properties(removal.unset_with_it)
    transaction.read_whole_table()
    if name == row_tracking.FEATURE:
        _forget_row_ids(transaction, snapshot)
    if removal.domain is not None:
        _remove_domain(transaction, snapshot, removal.domain)
    transaction.metadata_changes.set_protocol(features.without_feature(transaction.protocol, name))
    parameters = {"featureName": name, "truncateHistory": "false"}
    return transaction.commit("DROP FEATURE", parameters, user_metadata=user_metadata)


def _check_not_required(transaction: Transaction, name: str) -> None:
    dependents = features.requiring(transaction.protocol, name)
    if dependents:
        raise CallError(
            f"The table feature {name} is required by {', '.join(dependents)}. Drop the dependent features first."
        )


def _forget_row_ids(transaction: Transaction, snapshot: Snapshot) -> None:
    """Remove the row ids of all files: otherwise, if row tracking is turned on again later, ids could be assigned
    twice."""
    files = snapshot.files()
    tracked = files.filter(pc.or_(files["base_row_id"].is_valid(), files["default_row_commit_version"].is_valid()))
    for add in add_actions(tracked):
        transaction.add(msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None))


def _remove_domain(transaction: Transaction, snapshot: Snapshot, name: str) -> None:
    for domain in snapshot.domain_metadata:
        if domain.domain == name:
            transaction.metadata_changes.stage_domain(msgspec.structs.replace(domain, removed=True))


# ------------------------------------------------------------------------------------- traces of a feature


def _nothing(snapshot: Snapshot) -> str | None:
    return None


def _no_metadata(metadata: Metadata) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Removal:
    """How a feature is dropped.

    ``properties``: properties that must be unset first. ``unset_with_it`` and ``domain``: properties to unset and a
    metadata domain to remove in the same commit that drops the feature. ``obstacle``: returns a message that says why
    the table still needs the feature and what to do; None if it does not need it. For a reader feature, no version in
    the log may have metadata for which ``uses`` is true or, with ``vectors``, a deletion vector.
    """

    properties: tuple[str, ...] = ()
    unset_with_it: tuple[str, ...] = ()
    domain: str | None = None
    obstacle: Callable[[Snapshot], str | None] = _nothing
    uses: Callable[[Metadata], bool] = _no_metadata
    vectors: bool = False


def _traces(snapshot: Snapshot, removal: Removal) -> str | None:
    version = _last_trace(snapshot, removal)
    if version is None:
        return None
    return (
        f"version {version}, which is still in the log, uses it, and clients without the feature would misread that "
        "version. The latest version no longer uses it. Write a checkpoint (checkpoint()), wait until log clean-up "
        "has deleted that version (delta.logRetentionDuration), and call drop_feature again."
    )


def _last_trace(snapshot: Snapshot, removal: Removal) -> int | None:
    """The last version in the log in which a feature is used. Cost: 1 LIST, 1 GET for each commit, the oldest
    checkpoint."""
    reader = snapshot.reader
    listing = reader.list_from()
    versions = [version for version in listing.commits if version <= snapshot.version]
    for start in range(len(versions) - 1, -1, -_COMMITS_AT_ONCE):
        for commit in reversed(reader.commits(versions[max(0, start + 1 - _COMMITS_AT_ONCE) : start + 1])):
            files: list[AddFile | RemoveFile] = [*commit.adds, *commit.removes]
            if removal.vectors and any(file.deletion_vector is not None for file in files):
                return commit.version
            if commit.metadata is not None and removal.uses(commit.metadata):
                return commit.version
    if listing.checkpoints and (not versions or versions[0] > 0):
        oldest = load(reader, listing, listing.checkpoints[0].version, snapshot.protocol)
        if removal.uses(oldest.metadata) or (removal.vectors and _has_vectors(oldest.cache)):
            return oldest.version
    return None


def _has_vectors(cache: FileCache) -> bool:
    tables = (cache.files(["deletion_vector"]), cache.tombstones(-1))
    return any(table["deletion_vector"].null_count < table.num_rows for table in tables)


def _fields_with(key: str, what: str) -> Callable[[Snapshot], str | None]:
    def obstacle(snapshot: Snapshot) -> str | None:
        return f"{what}." if features.any_field_has(snapshot.schema, key) else None

    return obstacle


def _columns_of(type_name: str) -> Callable[[Snapshot], str | None]:
    def obstacle(snapshot: Snapshot) -> str | None:
        found = uses_type(snapshot.schema, type_name)
        return f"the table has columns of type {type_name}; drop them first." if found else None

    return obstacle


def _constraints(snapshot: Snapshot) -> str | None:
    used = features.is_used("checkConstraints", snapshot.metadata, snapshot.schema)
    return "the table has constraints; drop them first." if used else None


def _domains(snapshot: Snapshot) -> str | None:
    names = [each.domain for each in snapshot.domain_metadata]
    return f"the table has the metadata domains {', '.join(names)}; remove them first." if names else None


def _vectors(snapshot: Snapshot) -> str | None:
    files = snapshot.files(["deletion_vector"])
    with_vector = files.num_rows - files["deletion_vector"].null_count
    if not with_vector:
        return None
    return f"{with_vector} files have deletion vectors; rewrite them first (optimize.purge())."


def _mapping(snapshot: Snapshot) -> str | None:
    used = features.is_used("columnMapping", snapshot.metadata, snapshot.schema)
    return "the table maps its columns; copy the rows into a new table." if used else None


def _v2_checkpoints(snapshot: Snapshot) -> str | None:
    reader = snapshot.reader
    held = [each.version for each in reader.list_from().checkpoints if _is_v2(reader, each)]
    if not held:
        return None
    return (
        f"the log has a V2 checkpoint of version {held[-1]}. Write a classic checkpoint (checkpoint()), wait until "
        "log clean-up has deleted the V2 one, and call drop_feature again."
    )


def _is_v2(reader: LogReader, checkpoint: Checkpoint) -> bool:
    if checkpoint.kind is not LogFileKind.CLASSIC_CHECKPOINT:
        return checkpoint.kind is LogFileKind.UUID_CHECKPOINT
    # A V2 checkpoint may have a classic file name, but only V2 checkpoints have this column.
    path = log_path(checkpoint.names[0])
    try:
        with contextlib.closing(reader.store.open_input(path)) as source, open_parquet(source) as file:
            return "checkpointMetadata" in file.schema_arrow.names
    except StoreError:
        raise
    except READ_ERRORS as error:
        raise InvalidCheckpointError(
            f"{reader.store.location(path)} cannot be read: {error}. Write another checkpoint (checkpoint()), delete "
            "this one, and call drop_feature again.",
            version=checkpoint.version,
        ) from error


def _protection(snapshot: Snapshot) -> str | None:
    before = CHECKPOINT_PROTECTION_BEFORE.read(snapshot.metadata.configuration)
    listing = snapshot.reader.list_from()
    oldest = min((*listing.commits[:1], *(each.version for each in listing.checkpoints[:1])), default=0)
    if before <= oldest:
        return None
    return f"the log has versions before {before}, whose checkpoints are protected. Wait for log clean-up."


def _has_field(key: str) -> Callable[[Metadata], bool]:
    return lambda metadata: features.any_field_has(metadata.schema, key)


def _has_type(name: str) -> Callable[[Metadata], bool]:
    return lambda metadata: uses_type(metadata.schema, name)


def _is_true(prop: Property[bool]) -> Callable[[Metadata], bool]:
    return lambda metadata: prop.read(metadata.configuration)


_WIDENING = Removal(
    (ENABLE_TYPE_WIDENING.key,),
    obstacle=_fields_with(TYPE_CHANGES_KEY, "columns were widened; copy the rows into a new table"),
    uses=lambda metadata: _is_true(ENABLE_TYPE_WIDENING)(metadata) or _has_field(TYPE_CHANGES_KEY)(metadata),
)
# Features that cannot be dropped, and why.
_PERMANENT = {
    features.CATALOG_MANAGED: (
        "its catalog must stop ratifying commits. Call TransactionManager.release_table or run deltalog tables release"
    )
}
_REMOVALS = {
    "appendOnly": Removal((APPEND_ONLY.key,)),
    "invariants": Removal(obstacle=_fields_with(INVARIANT_KEY, "columns have invariants")),
    "checkConstraints": Removal(obstacle=_constraints),
    "generatedColumns": Removal(obstacle=_fields_with(GENERATION_KEY, "columns are generated")),
    "identityColumns": Removal(obstacle=_fields_with(IDENTITY_KEY, "the table has identity columns")),
    "allowColumnDefaults": Removal(obstacle=_fields_with(DEFAULT_KEY, "columns have defaults")),
    "changeDataFeed": Removal((ENABLE_CHANGE_DATA_FEED.key,)),
    "domainMetadata": Removal(obstacle=_domains),
    clustering_columns.FEATURE: Removal(domain=column_mapping.CLUSTERING_DOMAIN),
    row_tracking.FEATURE: Removal((ENABLE_ROW_TRACKING.key, "delta.rowTrackingSuspended"), domain=row_tracking.DOMAIN),
    timestamps.FEATURE: Removal((ENABLE_IN_COMMIT_TIMESTAMPS.key,)),
    "checkpointProtection": Removal(unset_with_it=(CHECKPOINT_PROTECTION_BEFORE.key,), obstacle=_protection),
    "vacuumProtocolCheck": Removal(),
    "v2Checkpoint": Removal((CHECKPOINT_POLICY.key,), obstacle=_v2_checkpoints),
    "deletionVectors": Removal(
        (ENABLE_DELETION_VECTORS.key,),
        obstacle=_vectors,
        uses=_is_true(ENABLE_DELETION_VECTORS),
        vectors=True,
    ),
    "columnMapping": Removal(
        obstacle=_mapping, uses=lambda metadata: features.is_used("columnMapping", metadata, metadata.schema)
    ),
    "typeWidening": _WIDENING,
    "typeWidening-preview": _WIDENING,
    "timestampNtz": Removal(obstacle=_columns_of("timestamp_ntz"), uses=_has_type("timestamp_ntz")),
    "variantType": Removal(obstacle=_columns_of("variant"), uses=_has_type("variant")),
    "variantType-preview": Removal(obstacle=_columns_of("variant"), uses=_has_type("variant")),
}
