"""Backfills row ids in files written without them, so that row tracking can be turned on.

The table feature is added first, so that all writers assign row ids from then on. After the feature is added, the files
without row ids are added again, unchanged, in batches, with one commit per batch. While the files are added again,
readers always see the same rows.

Spec: PROTOCOL.md#writer-requirements-for-row-tracking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from deltalog.alter.table_features import add_feature
from deltalog.log.file_tables import add_actions
from deltalog.protocol import row_tracking
from deltalog.protocol.actions import AddFile
from deltalog.protocol.properties import ENABLE_ROW_TRACKING, ROW_TRACKING_SUSPENDED
from deltalog.read.snapshot import Snapshot
from deltalog.storage.remote import parallel_gets
from deltalog.storage.table_files import TableFiles
from deltalog.write.added_files import FOOTER_THREADS, read_footer
from deltalog.write.commit_info import UserMetadata
from deltalog.write.table_handle import TableHandle

#: The number of files that each commit adds again.
FILES_PER_COMMIT = 100_000
_RETRIES = 10


def prepare(handle: TableHandle, properties: Mapping[str, str], user_metadata: UserMetadata) -> None:
    """If ``properties`` turn row tracking on, assign row ids to all files that lack them. The commits of an interrupted
    run are kept; the next run continues with the remaining files.

    Raises CommitConflictError after ten conflicts with other writers, InvalidDataFileError for a file without
    numRecords whose footer cannot be read, InvalidPropertyError. Memory: FILES_PER_COMMIT add actions. Cost: none if
    row tracking is not turned on or all files have row ids; else as ``Snapshot.files``, 1 commit for the feature and
    for each FILES_PER_COMMIT files, and 1 or 2 GETs for each file without the statistic numRecords.
    """
    if not ENABLE_ROW_TRACKING.read(properties) or not _lacks_row_ids(handle.writable(), properties):
        return
    handle.retrying(lambda: add_feature(handle.transaction(), row_tracking.FEATURE, user_metadata), _RETRIES)
    batch = 0
    while handle.retrying(lambda number=batch: _backfill(handle, number, user_metadata), _RETRIES):  # type: ignore[misc]
        batch += 1


def _lacks_row_ids(snapshot: Snapshot, properties: Mapping[str, str]) -> bool:
    """Whether files need row ids before these properties can be set. False if the properties will be refused in any
    case."""
    configuration = snapshot.metadata.configuration
    if ENABLE_ROW_TRACKING.read(configuration) or ROW_TRACKING_SUSPENDED.read({**configuration, **properties}):
        return False
    return bool(snapshot.files(["base_row_id"])["base_row_id"].null_count)


def _backfill(handle: TableHandle, batch: int, user_metadata: UserMetadata) -> bool:
    """Commit one batch. Returns whether there are still files without row ids."""
    with handle.transaction() as transaction:
        assert transaction.snapshot is not None
        files = transaction.snapshot.files()
        without = files.filter(files["base_row_id"].is_null())
        if not without.num_rows:
            return False
        adds = _counted(transaction.reader.files, add_actions(without.slice(0, FILES_PER_COMMIT)))
        transaction.staged.add(adds, is_checked=True)
        metrics = {"numFiles": str(len(adds))}
        transaction.commit("ROW TRACKING BACKFILL", {"batchId": str(batch)}, metrics, user_metadata)
        return bool(without.num_rows > len(adds))


def _counted(files: TableFiles, adds: Sequence[AddFile]) -> list[AddFile]:
    """The files, each with numRecords in its statistics; where the log lacks numRecords, it is read from the Parquet
    footer."""

    def counted(add: AddFile) -> AddFile:
        if row_tracking.num_records(add) is not None:
            return add
        rows = read_footer(*files.find(add.path)).num_rows
        return msgspec.structs.replace(add, stats=f'{{"numRecords":{rows}}}')

    store = files.store
    with ThreadPoolExecutor(parallel_gets(store) or FOOTER_THREADS) as threads:
        return list(threads.map(counted, adds))
