"""Hooks after a commit: its ``.crc``, a checkpoint when one is due, and log clean-up after a checkpoint.

Readers do not depend on them, so a hook that fails is logged and the commit stands. An interrupt (Ctrl-C) is raised;
from Python 3.11 on, a note on it says that the commit is in the log.

Spec: PROTOCOL.md#version-checksum-file, #checkpoints, #metadata-cleanup.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator

from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import DeltaLogError
from deltalog.log.checkpoint.writer import write_checkpoint
from deltalog.log.checksum import encode_checksum
from deltalog.log.cleanup import clean_up
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import LogSnapshot
from deltalog.protocol.paths import checksum_path
from deltalog.protocol.properties import ENABLE_EXPIRED_LOG_CLEANUP, checkpoint_interval
from deltalog.protocol.retention import log_cutoff_ms, midnight_ms

log = logging.getLogger(__name__)


@contextlib.contextmanager
def errors_logged(fact: str, what: str) -> Iterator[None]:
    """Log an error in the block instead of raising it, because the operation has succeeded already.

    ``fact``: what has succeeded, such as a commit; ``what``: what the block does; both are in the log record. An
    interrupt is raised, with both in a note.
    """
    try:
        yield
    except Exception as error:
        unexpected = None if isinstance(error, DeltaLogError) else error
        log.warning("%s. This step after it failed: %s: %s", fact, what, error, exc_info=unexpected)
    except BaseException as interrupt:
        if hasattr(interrupt, "add_note"):
            interrupt.add_note(f"{fact}. This step after it was interrupted: {what}.")
        raise


def after_commit(snapshot: LogSnapshot, result: CommitResult, environment: Environment) -> LogSnapshot:
    """Run the hooks of the version just committed; the snapshot to continue from. Raises nothing but interrupts.

    Cost: 1 PUT of the ``.crc`` when the totals are known; every delta.checkpointInterval versions that of
    ``write_checkpoint``; after a checkpoint, once a day for a table older than delta.logRetentionDuration, that of
    ``clean_up``.
    """
    fact = f"{snapshot.url}: version {snapshot.version} is committed"
    with errors_logged(fact, "its .crc"):
        _write_checksum(snapshot, result)
    with errors_logged(fact, "a checkpoint of it"):
        if _is_checkpoint_due(snapshot):
            written = write_checkpoint(snapshot, environment.clock_ms(), new_uuid=environment.new_uuid)
            snapshot = snapshot.on_checkpoint(written)
            with errors_logged(fact, "log clean-up"):
                _clean_up(snapshot, environment.clock_ms())
    return snapshot


def _clean_up(snapshot: LogSnapshot, clock_ms: int) -> None:
    """Delete expired log files, at most once a day for each table handle: the cut-off is a midnight."""
    configuration, created_ms = snapshot.metadata.configuration, snapshot.metadata.created_time
    today_ms = midnight_ms(clock_ms)
    enabled = ENABLE_EXPIRED_LOG_CLEANUP.read(configuration)
    # No version of a table that was created after the cut-off can have expired, so its log is not listed.
    is_younger = created_ms is not None and created_ms > log_cutoff_ms(configuration, clock_ms)
    if enabled and not is_younger and _last_cleanup_ms.get(snapshot.reader) != today_ms:
        clean_up(snapshot.reader, clock_ms)
        _last_cleanup_ms[snapshot.reader] = today_ms


# The midnight before the last clean-up of each open table's log.
_last_cleanup_ms: weakref.WeakKeyDictionary[LogReader, int] = weakref.WeakKeyDictionary()


def _write_checksum(snapshot: LogSnapshot, result: CommitResult) -> None:
    totals = snapshot.cache.known_totals
    if totals is None:
        return
    data = encode_checksum(snapshot.state, totals, result.txn_id, result.in_commit_timestamp_ms)
    # Readers check it against the commit, so it need not survive a crash: no fsync on the hot path.
    snapshot.reader.store.put(checksum_path(snapshot.version), data, durable=False)


def _is_checkpoint_due(snapshot: LogSnapshot) -> bool:
    interval = checkpoint_interval(snapshot.metadata.configuration)
    return snapshot.version > 0 and snapshot.version % interval == 0
