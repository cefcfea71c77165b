"""Restores an earlier version of a table, in a new commit after the latest version.

Files that are live only in the earlier version are added again; files that are live only in the latest version are
removed. The schema, partitioning, properties and metadata domains of the earlier version are restored. State that
must not be reset keeps its current value: in-commit timestamps, table features, the maximum column id, the row id
high-water mark, the high-water marks of identity columns, application versions (txn).

Spec: PROTOCOL.md leaves restore to writers; #row-tracking, #column-mapping, #in-commit-timestamps, #identity-columns
define what is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa

from deltalog.commit_result import CommitResult
from deltalog.errors import InvalidDataFileError
from deltalog.lazy_arrow import pc
from deltalog.log.file_statistics import live_rows_of_each
from deltalog.log.file_tables import add_actions
from deltalog.log.replay import files_without
from deltalog.protocol import column_mapping, deletion_vectors, features, metadata_update, row_tracking, timestamps
from deltalog.protocol.actions import AddFile, DomainMetadata, Metadata, Protocol
from deltalog.protocol.column_metadata import IDENTITY_KEY
from deltalog.protocol.identity_columns import keeping_marks
from deltalog.protocol.properties import (
    CATALOG_ID_KEY,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLEMENT_TIMESTAMP_KEY,
    ENABLEMENT_VERSION_KEY,
    UNITY_TABLE_ID_KEY,
)
from deltalog.read.snapshot import Snapshot
from deltalog.storage.table_files import TableFiles
from deltalog.write.commit_info import UserMetadata
from deltalog.write.transaction import Transaction, skipped

_HEAD_THREADS, _HEADS_AT_ONCE = 16, 32
# Properties that a restore does not change: those that enable in-commit timestamps, and those that mark a table as
# managed by a catalog.
_KEPT_PROPERTIES = (
    ENABLE_IN_COMMIT_TIMESTAMPS.key, ENABLEMENT_VERSION_KEY, ENABLEMENT_TIMESTAMP_KEY, CATALOG_ID_KEY,
    UNITY_TABLE_ID_KEY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore or, with ``dry_run``, the plan of the restore. Sizes are those of data files, in bytes.

    ``version``: the restored version. ``missing_files``: the paths, as in the log, of files to add that no longer exist
    in the store. ``commit``: None for a dry run.
    """

    version: int
    added_files: int
    added_bytes: int
    removed_files: int
    removed_bytes: int
    files_after: int
    bytes_after: int
    changes_metadata: bool
    missing_files: tuple[str, ...] = ()
    commit: CommitResult | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether the table already equals the restored version."""
        return not (self.added_files or self.removed_files or self.changes_metadata)


def restore(
    transaction: Transaction,
    target: Snapshot,
    timestamp_ms: int | None,
    ignore_missing_files: bool,
    dry_run: bool,
    user_metadata: UserMetadata,
) -> RestoreResult:
    """Stage and commit the restore of ``target``; with ``dry_run`` only return what it would change.

    ``timestamp_ms``: the point in time that was resolved to the target, in ms since the Unix epoch; it is recorded in
    commitInfo. Raises InvalidDataFileError if files are missing, before anything is staged. Cost: the files of both
    versions, 1 HEAD for each file to add and for its deletion vector, in threads, and a commit.
    """
    current = transaction.snapshot
    assert current is not None
    to_remove = files_without(current.files(), target.files())
    to_add = _to_add(current.files(), target.files())
    back = add_actions(to_add)
    missing = missing_among(current.reader.files, back)
    if missing and not (ignore_missing_files or dry_run):
        raise _files_are_gone(target, missing)
    lost = set(missing)
    back = [msgspec.structs.replace(add, data_change=True) for add in back if add.path not in lost]
    protocol, metadata = _state_after(transaction, current, target)
    domains = _domains_after(current, target)
    changes_metadata = bool(domains) or (protocol, metadata) != (current.protocol, current.metadata)
    result = _counted(target, back, to_remove, missing, changes_metadata)
    if dry_run:
        return result
    if result.changes_nothing:
        return replace(result, commit=skipped(transaction))
    transaction.staged.require_serializable()
    transaction.read_whole_table()
    transaction.staged.read_all_domains()
    transaction.remove_files(to_remove)
    transaction.add(*back, known=True)
    for domain in domains:
        transaction.metadata_changes.stage_domain(domain)
    transaction.metadata_changes.set_state(protocol, metadata)
    parameters = {
        "version": target.version if timestamp_ms is None else None,
        "timestamp": None if timestamp_ms is None else timestamps.to_iso(timestamp_ms),
    }
    metrics = {**_metrics(result), **_rows_metrics(_without(to_add, lost), to_remove)}
    commit = transaction.commit("RESTORE", parameters, metrics, user_metadata)
    return replace(result, commit=commit)


# -------------------------------------------------------------------------------------- files to restore


def _to_add(current: pa.Table, target: pa.Table) -> pa.Table:
    """The files of the target version that are no longer live, and those that are still live but have lost their row
    ids."""
    absent = files_without(target, current)
    had_ids = target.filter(target["base_row_id"].is_valid())
    without_ids = current.filter(current["base_row_id"].is_null())
    return pa.concat_tables([absent, files_without(had_ids, files_without(had_ids, without_ids))])


def missing_among(files: TableFiles, adds: Sequence[AddFile]) -> tuple[str, ...]:
    """The paths of files that no longer exist in the store or whose deletion vector file no longer exists. Cost: 1 HEAD
    for each file and each deletion vector file, in threads."""

    def missing(some: Sequence[AddFile]) -> list[str]:
        return [add.path for add in some if any(_is_absent(files, name) for name in _names(add))]

    pieces = [adds[start : start + _HEADS_AT_ONCE] for start in range(0, len(adds), _HEADS_AT_ONCE)]
    with ThreadPoolExecutor(_HEAD_THREADS) as threads:
        return tuple(path for found in threads.map(missing, pieces) for path in found)


def _is_absent(files: TableFiles, name: str) -> bool:
    store, path = files.find(name)
    return store.head(path) is None


def _names(add: AddFile) -> list[str]:
    vector_file = deletion_vectors.file_of(add.deletion_vector)
    return [add.path] if vector_file is None else [add.path, vector_file]


def _files_are_gone(target: Snapshot, missing: Sequence[str]) -> InvalidDataFileError:
    return InvalidDataFileError(
        f"{target.url}: version {target.version} cannot be restored: {len(missing)} of its files no longer exist, for "
        f"example after a vacuum (the first: {missing[0]}). Nothing was committed. Restore a later version, or pass "
        "ignore_missing_files=True to restore it without their rows.",
        path=missing[0],
    )


# ----------------------------------------------------------------------------------------- everything else


def _state_after(transaction: Transaction, current: Snapshot, target: Snapshot) -> tuple[Protocol, Metadata]:
    """The protocol and metadata of the version to restore, but with the current values of all state that must not be
    reset."""
    now, then = current.metadata, target.metadata
    kept = {key: value for key, value in now.configuration.items() if key in _KEPT_PROPERTIES}
    others = {key: value for key, value in then.configuration.items() if key not in _KEPT_PROPERTIES}
    restored = msgspec.structs.replace(then, id=now.id, created_time=now.created_time, configuration={**others, **kept})
    metadata = _with_marks(_mapped_as_now(restored, now, transaction), now)
    # The setting of in-commit timestamps is not restored, and neither is the table feature.
    returning = [name for name in features.writer_features(target.protocol) if name != timestamps.FEATURE]
    wanted = [*returning, *features.features_for(metadata, metadata.schema)]
    return features.with_features(current.protocol, wanted), metadata


def _mapped_as_now(then: Metadata, now: Metadata, transaction: Transaction) -> Metadata:
    """The metadata with the current maxColumnId; column mapping stays enabled if it is enabled now."""
    before = column_mapping.with_kept_max_column_id(then, now)
    mode = column_mapping.mode_of(now.configuration)
    if mode == "none" or column_mapping.mode_of(then.configuration) != "none":
        return before
    # Column mapping was enabled after the restored version, so the files of that version use its logical names, which
    # are now the physical names.
    after = _with(before, {column_mapping.MODE_KEY: mode})
    return metadata_update.complete(before, after, transaction.protocol, transaction.metadata_changes.new_uuid)[1]


def _with_marks(metadata: Metadata, now: Metadata) -> Metadata:
    """The metadata with the current high-water marks of identity columns, so that values that were already generated
    are not generated again."""
    if IDENTITY_KEY not in metadata.schema_string:
        return metadata
    schema = keeping_marks(metadata.schema, now.schema)
    return metadata if schema == metadata.schema else msgspec.structs.replace(metadata, schema_string=schema.to_json())


def _with(metadata: Metadata, properties: Mapping[str, str]) -> Metadata:
    return msgspec.structs.replace(metadata, configuration={**metadata.configuration, **properties})


def _domains_after(current: Snapshot, target: Snapshot) -> list[DomainMetadata]:
    """The domainMetadata actions that restore the metadata domains of the target version; the row id high-water mark is
    kept."""
    now = {each.domain: each for each in current.domain_metadata}
    then = {each.domain: each for each in target.domain_metadata}
    if row_tracking.DOMAIN in now:
        then[row_tracking.DOMAIN] = now[row_tracking.DOMAIN]
    removed = [msgspec.structs.replace(each, removed=True) for name, each in now.items() if name not in then]
    return [*removed, *(each for name, each in then.items() if now.get(name) != each)]


# --------------------------------------------------------------------------------------- restore results


def _without(files: pa.Table, paths: Set[str]) -> pa.Table:
    return files.filter(pc.invert(pc.is_in(files["path"], value_set=pa.array([*paths], pa.string()))))


def _counted(
    target: Snapshot, back: Sequence[AddFile], to_remove: pa.Table, missing: Sequence[str], changes_metadata: bool
) -> RestoreResult:
    files = target.files(["path", "size"])
    lost = files.filter(pc.is_in(files["path"], value_set=pa.array(missing, pa.string())))
    return RestoreResult(
        version=target.version,
        added_files=len(back),
        added_bytes=sum(add.size for add in back),
        removed_files=to_remove.num_rows,
        removed_bytes=_bytes(to_remove),
        files_after=files.num_rows - lost.num_rows,
        bytes_after=_bytes(files) - _bytes(lost),
        changes_metadata=changes_metadata,
        missing_files=tuple(missing),
    )


def _bytes(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)


def _rows_metrics(back: pa.Table, to_remove: pa.Table) -> dict[str, int]:
    """The numbers of added and deleted rows; for a file whose deletion vector changes, only the difference is counted.
    The metrics are empty if a file has no statistics. The metrics have the names that delta-spark uses for writes,
    because delta-spark does not count rows for RESTORE."""
    rows = [dict(zip(t["path"].to_pylist(), live_rows_of_each(t).to_pylist(), strict=True)) for t in (back, to_remove)]
    changes = []
    for path in rows[0].keys() | rows[1].keys():
        after, before = (each.get(path, 0) for each in rows)
        if after is None or before is None:
            return {}
        changes.append(after - before)
    return {"numOutputRows": sum(n for n in changes if n > 0), "numDeletedRows": -sum(n for n in changes if n < 0)}


def _metrics(result: RestoreResult) -> dict[str, int]:
    return {
        "numRestoredFiles": result.added_files,
        "restoredFilesSize": result.added_bytes,
        "numRemovedFiles": result.removed_files,
        "removedFilesSize": result.removed_bytes,
        "numOfFilesAfterRestore": result.files_after,
        "tableSizeAfterRestore": result.bytes_after,
    }
