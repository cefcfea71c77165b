"""The hooks that run after a commit: they write its ``.crc`` and, when one is due, a checkpoint, and clean up the log
after a checkpoint.

The hooks write files derived from the snapshot of the committed version, so they first check that the log still has the
preceding version. If the log lacks that version, the table was replaced during the commit. If files were written in
this case, readers of the new table would use them as if they belonged to that table. Readers do not depend on the
hooks, so if a hook fails, the error is logged and the commit remains valid. An interrupt (Ctrl-C) is raised again; from
Python 3.11 on, a note on the exception states that the commit is in the log. For a table on a remote store the hooks
run in the background, so that the commit does not wait for their requests.

Spec: PROTOCOL.md#version-checksum-file, #checkpoints, #metadata-cleanup, #writer-requirements.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from deltalog.background import in_background, wait_for
from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import DeltaLogError, TableNotFoundError, TableReplacedError
from deltalog.lazy_names import lazy_modules
from deltalog.log.snapshot import LogSnapshot
from deltalog.protocol.paths import checksum_path
from deltalog.protocol.properties import ENABLE_EXPIRED_LOG_CLEANUP, checkpoint_interval
from deltalog.protocol.retention import log_cutoff_ms, midnight_ms
from deltalog.storage.base import LogStore

if TYPE_CHECKING:
    from deltalog.commit import attempt as attempts
    from deltalog.log import checksum as checksums
    from deltalog.log import cleanup
    from deltalog.log.checkpoint import writer as checkpoint_writer
else:
    lazy_modules(
        __name__,
        "deltalog.log.cleanup",
        attempts="deltalog.commit.attempt",
        checkpoint_writer="deltalog.log.checkpoint.writer",
        checksums="deltalog.log.checksum",
    )

log = logging.getLogger(__name__)


@contextlib.contextmanager
def errors_logged(fact: str, what: str) -> Iterator[None]:
    """Log an error raised in the ``with`` block instead of raising it, because the preceding operation has already
    succeeded.

    ``fact``: the success to report, such as "version 7 is committed"; ``what``: the step that the block performs. The
    log record contains both. An interrupt, such as KeyboardInterrupt, is raised again, with both messages in a note.
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


class Hooks(msgspec.Struct, frozen=True):
    """The steps after a commit. ``checkpoint``: whether a checkpoint is written when one is due. ``cleanup``: whether
    expired log files are deleted after a checkpoint; None: as delta.enableExpiredLogCleanup says."""

    checkpoint: bool = True
    cleanup: bool | None = None


ALL_HOOKS = Hooks()


class NewVersion(msgspec.Struct, frozen=True):
    """A version that was just committed, as the hooks receive it. ``base``: the version on which the transaction of the
    commit began; None for version 0. ``commits``: the commits after ``base``, in ascending order, including the commit
    of this version. ``is_followed``: whether this version is known to follow ``base`` in the log; see
    ``TipProof.is_followed``. ``hooks``: which of the steps after a commit to run."""

    snapshot: LogSnapshot
    result: CommitResult
    base: LogSnapshot | None = None
    commits: Sequence[attempts.Landed] = ()
    is_followed: Callable[[], bool] = lambda: True
    hooks: Hooks = ALL_HOOKS


# Receives a snapshot of the same version based on the new checkpoint; the handle continues from it.
OnCheckpoint = Callable[[LogSnapshot], object]


def after_commit(version: NewVersion, environment: Environment, on_checkpoint: OnCheckpoint) -> None:
    """Run the hooks of a version. If the store is remote and the environment allows it, the hooks run in the
    background; they start after the hooks of earlier versions, and run before the process ends. Raises nothing but
    interrupts.

    Cost: that of ``is_followed``; 1 PUT of the ``.crc`` if the totals are known; every delta.checkpointInterval
    versions that of ``write_checkpoint`` and 1 HEAD; after a checkpoint, once a day for a table older than
    delta.logRetentionDuration, that of ``clean_up``. No caller waits for hooks in the background unless more than
    background.MAX_WAITING commits are queued.
    """
    store = version.snapshot.reader.store
    if store.is_remote and environment.background:
        in_background(store.url, partial(_run_behind, version, environment, on_checkpoint))
        return
    if not _is_in_place(version):
        return
    latest = _run(version.snapshot, version, environment)
    if latest is not version.snapshot:
        on_checkpoint(latest)


def wait_for_hooks(store: LogStore) -> None:
    """Wait for the hooks of all commits that this process made to the table. Cost: none."""
    wait_for(store.url)


def _is_in_place(version: NewVersion) -> bool:
    """Whether the log is known to contain both this version and the base version on which it was committed. If the
    version was committed to the log of another table, the snapshot's ``tip`` says so, and the next call on the table
    handle reads the log of that other table."""
    snapshot = version.snapshot
    with errors_logged(f"{snapshot.url}: version {snapshot.version} is committed", "a check of the version before it"):
        try:
            return version.is_followed()
        except (TableNotFoundError, TableReplacedError) as error:
            snapshot.tip.is_misplaced = True
            log.warning(
                "%s: version %s was acknowledged, but the log no longer has the version before it (%s): the table was "
                "deleted or replaced at that moment. If the commit is in the new log and does not belong to it, "
                "restore "
                "the version before it.",
                snapshot.url,
                snapshot.version,
                type(error).__name__,
            )
    return False


def _run(snapshot: LogSnapshot, version: NewVersion, environment: Environment) -> LogSnapshot:
    """Run the hooks of a version and return the snapshot with which the caller continues. ``snapshot``: the snapshot of
    the same version."""
    fact = f"{snapshot.url}: version {snapshot.version} is committed"
    with errors_logged(fact, "its .crc"):
        _write_checksum(snapshot, version.result)
    with errors_logged(fact, "a checkpoint of it"):
        if version.hooks.checkpoint and _is_checkpoint_due(snapshot) and _is_there(snapshot):
            written = checkpoint_writer.write_checkpoint(
                snapshot, environment.clock_ms(), new_uuid=environment.new_uuid
            )
            snapshot = snapshot.on_checkpoint(written)
            with errors_logged(fact, "log clean-up"):
                _clean_up(snapshot, environment.clock_ms(), version.hooks.cleanup)
    return snapshot


def _run_behind(version: NewVersion, environment: Environment, on_checkpoint: OnCheckpoint) -> None:
    """Run the hooks in the background. The handle may already be at later versions, whose snapshots are not based on
    the new checkpoint. Until the handle's own snapshots are based on the new checkpoint, the hooks of those versions
    use snapshots of the same versions that are."""
    if not _is_in_place(version):
        return
    snapshot = version.snapshot
    known = None if version.base is None else version.base.rebuilt
    if known is not None:
        for commit in version.commits:
            known = known.after(*commit)
    latest = _run(known or snapshot, version, environment)
    if latest is not snapshot:
        snapshot.note_rebuilt(latest)
        on_checkpoint(latest)


def _clean_up(snapshot: LogSnapshot, clock_ms: int, wanted: bool | None) -> None:
    """Delete expired log files, at most once a day per table handle, because the cut-off moves only at midnight.
    ``wanted``: as in ``Hooks.cleanup``."""
    configuration, created_ms = snapshot.metadata.configuration, snapshot.metadata.created_time
    today_ms = midnight_ms(clock_ms)
    enabled = ENABLE_EXPIRED_LOG_CLEANUP.read(configuration) if wanted is None else wanted
    # In a table that was created after the cut-off, no version can have expired, so the log is not listed.
    is_younger = created_ms is not None and created_ms > log_cutoff_ms(configuration, clock_ms)
    if enabled and not is_younger and snapshot.reader.last_cleanup_ms != today_ms:
        cleanup.clean_up(snapshot.reader, clock_ms)
        snapshot.reader.last_cleanup_ms = today_ms


def _write_checksum(snapshot: LogSnapshot, result: CommitResult) -> None:
    cache = snapshot.cache
    totals = cache.known_totals
    if totals is None:
        return
    data = checksums.encode_checksum(snapshot.state, totals, result.txn_id, result.in_commit_timestamp_ms, cache.listed)
    # Readers check the .crc against the commit, so losing it in a crash does no harm, and no fsync delays the writer.
    snapshot.reader.store.put(checksum_path(snapshot.version), data, durable=False)


def _is_there(snapshot: LogSnapshot) -> bool:
    """Whether the log still contains this commit under its version number. Otherwise the table was deleted, and a
    checkpoint of it would corrupt the table that replaced it. Cost: 1 HEAD."""
    if snapshot.is_in_log():
        return True
    log.warning(
        "%s: version %s was committed but no longer exists: the table was deleted or replaced. No checkpoint of it is "
        "written.",
        snapshot.url,
        snapshot.version,
    )
    return False


def _is_checkpoint_due(snapshot: LogSnapshot) -> bool:
    interval = checkpoint_interval(snapshot.metadata.configuration)
    return snapshot.version > 0 and snapshot.version % interval == 0
