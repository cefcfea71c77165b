"""What follows a commit: its ``.crc``, and a checkpoint when one is due.

None of it is needed for correctness, so none of it can turn a commit into an error: failures are logged.

Spec: PROTOCOL.md#version-checksum-file, #checkpoints.
"""

from __future__ import annotations

import logging

from deltalog.errors import DeltaLogError
from deltalog.log.checkpoint import write_checkpoint
from deltalog.log.checksum import encode_checksum
from deltalog.log.snapshot import Snapshot
from deltalog.spec.paths import checksum_path
from deltalog.spec.properties import CHECKPOINT_INTERVAL
from deltalog.write.commit import CommitResult, Environment

log = logging.getLogger(__name__)


def after_commit(snapshot: Snapshot, result: CommitResult, environment: Environment) -> Snapshot:
    """Write what is due for the version just committed; the snapshot to go on from.

    Cost: 1 PUT of the ``.crc`` when the totals are known; at every delta.checkpointInterval versions what a
    checkpoint costs.
    """
    try:
        _write_checksum(snapshot, result)
    except Exception as error:  # the commit stands, whatever a hook meets
        log.warning("%s: no .crc for version %d: %s", snapshot.url, snapshot.version, error)
    try:
        if _is_checkpoint_due(snapshot):
            return snapshot.rebased_on(write_checkpoint(snapshot, environment.clock_ms()))
    except Exception as error:
        log.warning("%s: no checkpoint of version %d: %s", snapshot.url, snapshot.version, error)
    return snapshot


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
