"""What follows a commit: its ``.crc``, and when one is due a checkpoint, and with that log clean-up.

None of it is needed for correctness, so none of it can turn a commit into an error: failures are logged.

Spec: PROTOCOL.md#version-checksum-file, #checkpoints, #metadata-cleanup.
"""

from __future__ import annotations

import logging
import weakref

from deltalog.errors import DeltaLogError
from deltalog.log.checkpoint import write_checkpoint
from deltalog.log.checksum import encode_checksum
from deltalog.log.cleanup import DAY_MS, clean_up
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import Snapshot
from deltalog.spec.paths import checksum_path
from deltalog.spec.properties import CHECKPOINT_INTERVAL, ENABLE_EXPIRED_LOG_CLEANUP, LOG_RETENTION_MS
from deltalog.write.commit import CommitResult, Environment

log = logging.getLogger(__name__)


def after_commit(snapshot: Snapshot, result: CommitResult, environment: Environment) -> Snapshot:
    """Write what is due for the version just committed; the snapshot to go on from.

    Cost: 1 PUT of the ``.crc`` when the totals are known; at every delta.checkpointInterval versions what a
    checkpoint costs, and once a day for a table that is older than delta.logRetentionDuration log clean-up.
    """
    try:
        _write_checksum(snapshot, result)
    except Exception as error:  # the commit stands, whatever a hook meets
        log.warning("%s: no .crc for version %d: %s", snapshot.url, snapshot.version, error)
    try:
        if _is_checkpoint_due(snapshot):
            written = write_checkpoint(snapshot, environment.clock_ms(), new_uuid=environment.new_uuid)
            snapshot = snapshot.rebased_on(written)
            _clean_up(snapshot, environment.clock_ms())
    except Exception as error:
        log.warning("%s: no checkpoint of version %d: %s", snapshot.url, snapshot.version, error)
    return snapshot


def _clean_up(snapshot: Snapshot, clock_ms: int) -> None:
    """Delete expired log files, at most once a day for each table handle: the cut-off is a midnight."""
    configuration, created_ms = snapshot.metadata.configuration, snapshot.metadata.created_time
    today_ms = clock_ms // DAY_MS * DAY_MS
    try:
        enabled = ENABLE_EXPIRED_LOG_CLEANUP.read(configuration)
        # A table that is younger than the retention has nothing to lose, and is not asked.
        young = created_ms is not None and created_ms > today_ms - LOG_RETENTION_MS.read(configuration)
        if enabled and not young and _cleaned.get(snapshot.reader) != today_ms:
            clean_up(snapshot.reader, clock_ms)
            _cleaned[snapshot.reader] = today_ms
    except Exception as error:
        log.warning("%s: the log was not cleaned up: %s", snapshot.url, error)


# When the log of each open table was cleaned up last.
_cleaned: weakref.WeakKeyDictionary[LogReader, int] = weakref.WeakKeyDictionary()


def _write_checksum(snapshot: Snapshot, result: CommitResult) -> None:
    totals = snapshot.known_totals
    if totals is None:
        return
    data = encode_checksum(snapshot.state, totals, result.txn_id, result.in_commit_timestamp_ms)
    # Readers check it against the commit, so it need not survive a crash: no fsync on the hot path.
    snapshot.reader.store.put(checksum_path(snapshot.version), data, durable=False)


def _is_checkpoint_due(snapshot: Snapshot) -> bool:
    try:
        interval = CHECKPOINT_INTERVAL.read(snapshot.metadata.configuration)
    except DeltaLogError:
        interval = CHECKPOINT_INTERVAL.default
    return snapshot.version > 0 and snapshot.version % interval == 0
