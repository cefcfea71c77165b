"""Hooks after a commit: its ``.crc``, a checkpoint when one is due, and log clean-up after a checkpoint.

They derive files from what is known of the version, so the log must still have the version before it: otherwise the
table was replaced at the moment of the commit, and readers of the new table would take these files for its own. Readers
do not depend on the hooks, so a failing hook is logged and the commit stands. An interrupt (Ctrl-C) is raised; from
Python 3.11 on, it carries a note that the commit is in the log. For a table on a remote store the hooks run in the
background, so that the commit does not wait for their requests.

Spec: PROTOCOL.md#version-checksum-file, #checkpoints, #metadata-cleanup, #writer-requirements.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from deltalog.background import in_background, wait_for
from deltalog.commit.attempt import Landed
from deltalog.commit.prepared import ALL_HOOKS, Hooks
from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import DeltaLogError, TableNotFoundError, TableReplacedError
from deltalog.log.checkpoint.writer import write_checkpoint
from deltalog.log.checksum import encode_checksum
from deltalog.log.cleanup import clean_up
from deltalog.log.snapshot import LogSnapshot
from deltalog.protocol.paths import checksum_path
from deltalog.protocol.properties import ENABLE_EXPIRED_LOG_CLEANUP, checkpoint_interval
from deltalog.protocol.retention import log_cutoff_ms, midnight_ms
from deltalog.storage.base import LogStore

log = logging.getLogger(__name__)


@contextlib.contextmanager
def errors_logged(fact: str, what: str) -> Iterator[None]:
    """Log an error in the block instead of raising it, because the operation has already succeeded.

    ``fact``: what has succeeded, such as a commit; ``what``: what the block does. The log record has both. An interrupt
    is raised, with both in a note.
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


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version that was just committed. ``base``: the version that its transaction began on, None for version 0.
    ``commits``: the commits after ``base`` up to and including this version's, ascending. ``is_followed``: whether it
    is known to follow ``base`` in the log; see ``TipProof.is_followed``. ``hooks``: which steps follow."""

    snapshot: LogSnapshot
    result: CommitResult
    base: LogSnapshot | None = None
    commits: Sequence[Landed] = ()
    is_followed: Callable[[], bool] = lambda: True
    hooks: Hooks = ALL_HOOKS


# Receives the same version based on a checkpoint that was written since, to continue from.
OnCheckpoint = Callable[[LogSnapshot], object]


def after_commit(version: NewVersion, environment: Environment, on_checkpoint: OnCheckpoint) -> None:
    """Run the hooks of a version. If the store is remote and the environment allows it, they run in the background,
    after the hooks of earlier versions and before the process ends. Raises nothing but interrupts.

    Cost: that of ``is_followed``; 1 PUT of the ``.crc`` if the totals are known; every delta.checkpointInterval
    versions that of ``write_checkpoint`` and 1 HEAD; after a checkpoint, once a day for a table older than
    delta.logRetentionDuration, that of ``clean_up``. In the background, no caller waits for it unless more than
    background.MAX_WAITING commits are waiting.
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
    """Whether the log is known to have this version after its base. If it is in another table's log instead, its tip
    records that, and the next call of its handle reads that log."""
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
    """Run the hooks of a version and return the snapshot to continue from. ``snapshot``: of the same version."""
    fact = f"{snapshot.url}: version {snapshot.version} is committed"
    with errors_logged(fact, "its .crc"):
        _write_checksum(snapshot, version.result)
    with errors_logged(fact, "a checkpoint of it"):
        if version.hooks.checkpoint and _is_checkpoint_due(snapshot) and _is_there(snapshot):
            written = write_checkpoint(snapshot, environment.clock_ms(), new_uuid=environment.new_uuid)
            snapshot = snapshot.on_checkpoint(written)
            with errors_logged(fact, "log clean-up"):
                _clean_up(snapshot, environment.clock_ms(), version.hooks.cleanup)
    return snapshot


def _run_behind(version: NewVersion, environment: Environment, on_checkpoint: OnCheckpoint) -> None:
    """Run the hooks in the background. The table may already be at later versions that are not based on the new
    checkpoint; their hooks continue from it until they have caught up and the handle continues from it too."""
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
    """Delete expired log files, at most once a day per table handle, because the cut-off is a midnight. ``wanted``: as
    in ``Hooks.cleanup``."""
    configuration, created_ms = snapshot.metadata.configuration, snapshot.metadata.created_time
    today_ms = midnight_ms(clock_ms)
    enabled = ENABLE_EXPIRED_LOG_CLEANUP.read(configuration) if wanted is None else wanted
    # In a table created after the cut-off, no version can have expired, so its log is not listed.
    is_younger = created_ms is not None and created_ms > log_cutoff_ms(configuration, clock_ms)
    if enabled and not is_younger and snapshot.reader.last_cleanup_ms != today_ms:
        clean_up(snapshot.reader, clock_ms)
        snapshot.reader.last_cleanup_ms = today_ms


def _write_checksum(snapshot: LogSnapshot, result: CommitResult) -> None:
    cache = snapshot.cache
    totals = cache.known_totals
    if totals is None:
        return
    data = encode_checksum(snapshot.state, totals, result.txn_id, result.in_commit_timestamp_ms, cache.listed)
    # Readers check it against the commit, so it need not survive a crash: no fsync on the hot path.
    snapshot.reader.store.put(checksum_path(snapshot.version), data, durable=False)


def _is_there(snapshot: LogSnapshot) -> bool:
    """Whether the log still has this commit under its version number: a checkpoint of a deleted table would corrupt the
    table that replaced it. Cost: 1 HEAD."""
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
