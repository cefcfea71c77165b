"""Deletes the files below a table root that no version within the retention needs.

Only the hashes of the needed paths are kept in memory. The listing is streamed, and each path in it is compared with
these hashes. After the listing, new commits are read, so that files committed in the meantime are kept. A lite vacuum
does not list files; it looks up the files that, according to the log, were removed. Later commits are read after VACUUM
START is committed, before the first file is deleted.

Spec: PROTOCOL.md leaves vacuum to writers; #vacuum-protocol-check.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from deltalog.errors import CallError, DeltaLogError, ResourceNotReadyError, StoreError
from deltalog.log.history import LogHistory
from deltalog.maintenance.vacuum.decisions import (
    UNCOMMITTED_AGE_MS,
    NamedFiles,
    Need,
    VacuumedFiles,
    VacuumReport,
    VacuumRules,
    decide,
    sift,
)
from deltalog.maintenance.vacuum.needed_files import files_of, metadata_of_iceberg, named_files, named_since
from deltalog.maintenance.vacuum.path_hashes import shared_hash
from deltalog.maintenance.vacuum.plan import VacuumPlan, plan
from deltalog.maintenance.vacuum.ranges import PathSample
from deltalog.maintenance.vacuum.removed_files import record_vacuum, removed_files
from deltalog.maintenance.vacuum.tasks import DistributedVacuum, VacuumRunner, deleted_in_steps
from deltalog.protocol.properties import DELETED_FILE_RETENTION_MS
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import Entry, WalkPart, keep_cleanup_errors
from deltalog.write.table_handle import TableHandle

HOUR_MS = 3_600_000
_RETRIES = 10

log = logging.getLogger(__name__)

#: Called with the number of files deleted so far and the total.
VacuumProgress = Callable[[int, int], None]


class Claims:
    """Determines which unreferenced files are still needed. This base class knows only the files of this process's
    commits whose outcome is still open."""

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle

    def needed(self, history: LogHistory, named: NamedFiles, rules: VacuumRules) -> dict[str, Need]:
        """The reasons why files must be kept, keyed by path. Cost: none."""
        files = self._handle.reader.files
        return {files.find(path)[1]: Need.UNSETTLED for path in self._handle.unsettled}

    def remove(self, entries: Sequence[Entry], version: int) -> list[Entry]:
        """Like ``LogStore.remove``, but keeps files that have become needed in the meantime. ``version``: the table
        version for which the plan was made. Raises TableReplacedError or MissingVersionError if the latest version is
        no longer in the log: the table may have been replaced by an older copy, in which these files are live. Cost: 1
        more HEAD."""
        latest, store = self._handle.latest, self._handle.reader.store
        if self._handle.reader.authority.catalog is None:
            latest.tip.check_is_there(self._handle.reader, "a vacuum")
        return store.remove(entries)


def silent(done: int, of: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention, in milliseconds. ``given_ms``: the retention that the caller specified; None: use the table's
    retention, ``of_table_ms``."""

    given_ms: int | None
    of_table_ms: int
    is_enforced: bool

    @property
    def ms(self) -> int:
        return self.of_table_ms if self.given_ms is None else self.given_ms


def vacuum(
    handle: TableHandle,
    retention_hours: float | None,
    dry_run: bool,
    enforce_retention_duration: bool,
    full: bool,
    progress: VacuumProgress,
    claims: Claims | None = None,
    runner: VacuumRunner | None = None,
    keep_versions: Sequence[int] = (),
) -> VacuumReport:
    """See ``DeltaTable.vacuum``. ``claims``: determines which unreferenced files are still needed; required for a
    catalog table, and cannot be combined with ``runner``."""
    store, authority = handle.reader.store, handle.reader.authority
    if authority.branch is not None:
        raise CallError(
            f"{store.url}: a table cannot be vacuumed in a transaction. Open it outside of the transaction."
        )
    authority.check_maintenance("VACUUM", store.url)
    if authority.catalog is not None and not authority.is_served and claims is None:
        raise ResourceNotReadyError(
            f"{store.url} is managed by the catalog {authority.catalog}, and the open transactions of a catalog may "
            "need files that no version names. Vacuum it through its catalog: TransactionManager.vacuum(name), or "
            "deltalog vacuum catalog:<catalog>#<name>."
        )
    claims = claims or Claims(handle)
    before = handle.writable()  # this call includes the protocol check that vacuumProtocolCheck requires
    retention = _retention(before, retention_hours, enforce_retention_duration)
    now_ms = handle.environment.clock_ms()
    rules = VacuumRules(
        now_ms - retention.ms,
        now_ms,
        before.partition_columns,
        metadata_of_iceberg(before.metadata.configuration),
    )
    distributed = None if runner is None else DistributedVacuum.for_table(runner, handle, before.version, rules)
    history, late = LogHistory(handle.reader, before.log), dict[str, Need]()
    if full:
        if distributed is None:
            named = named_files(history, rules.cutoff_ms)
            listed = sift(store.walk_parts(rules.enters), named.needed)
            parts = decide(listed, named, rules, store.entries)
        else:
            sample = PathSample()
            named = named_files(history, rules.cutoff_ms, shared_hash, sample.add)
            parts = distributed.decided(named, sample)
        removed, are_settled = named.removed, named.is_settled
        history = LogHistory(handle.reader, handle.writable().log)
        late = dict.fromkeys(named_since(history, before.version), Need.EARLIER)
        late = {**claims.needed(history, named, rules), **_kept(history, keep_versions), **late}
    else:
        named = named_files(history, rules.cutoff_ms)
        needed = {**claims.needed(history, named, rules), **_kept(history, keep_versions)}
        named = replace(named, needed=named.needed.besides(needed))
        found = removed_files(history, named)
        removed, are_settled = found.paths, found.are_settled
        listed = sift([WalkPart("", [], found.entries)], named.needed)
        parts = decide(listed, named, rules, store.entries)
    decided = plan(parts, named.needed, late, rules)
    report = _report(store.url, before, dry_run, retention, rules, decided, full)
    if dry_run:
        return report
    if decided.files or decided.directories:
        remove = partial(claims.remove, version=report.version)
        delete = partial(deleted_in_steps, remove) if distributed is None else distributed.deleted
        report = _carry_out(handle, report, decided, retention, delete, progress)
    # A full vacuum cannot distinguish removed files from uncommitted files if they are younger than a day.
    is_short = full and rules.cutoff_ms > now_ms - UNCOMMITTED_AGE_MS
    waiting = decided.young if is_short else decided.young & removed
    if are_settled and not waiting and len(report.files) == len(decided.files):
        _record(handle, named.cutoff_version, report)
    return report


def _kept(history: LogHistory, versions: Sequence[int]) -> dict[str, Need]:
    """The files of the versions that the caller asked to keep."""
    return {path: Need.EARLIER for version in sorted(set(versions)) for path in files_of(history, version)}


def _record(handle: TableHandle, cutoff_version: int | None, report: VacuumReport) -> None:
    """Record ``cutoff_version``; later lite vacuums begin after this version. Never raises an error, because the files
    have already been deleted."""
    if cutoff_version is None:
        return
    try:
        record_vacuum(handle.reader.store, cutoff_version, report.version)
    except StoreError as error:
        log.warning("%s: the next lite vacuum will read more commits, because of an error: %s", report.table, error)


def _retention(snapshot: Snapshot, hours: float | None, is_enforced: bool) -> Retention:
    of_table_ms = DELETED_FILE_RETENTION_MS.read(snapshot.metadata.configuration)
    if hours is None:
        return Retention(None, of_table_ms, is_enforced)
    if isinstance(hours, bool) or not math.isfinite(hours) or not 0 <= hours * HOUR_MS < 2**62:
        raise CallError(f"retention_hours must be a number of hours >= 0, or None; got {hours!r}.")
    given_ms = int(hours * HOUR_MS)
    if is_enforced and given_ms < of_table_ms:
        raise CallError(
            f"{snapshot.url}: a retention of {hours:g} hours is shorter than the table's retention of "
            f"{of_table_ms / HOUR_MS:g} hours (delta.deletedFileRetentionDuration). Versions within that retention "
            "could become unreadable. Pass a longer retention, or change the property. If no reader needs these "
            "versions and no writer takes longer than a day to commit its files, pass enforce_retention_duration=False "
            "(deltalog vacuum: --below-retention; in Spark set spark.databricks.delta.retentionDurationCheck.enabled "
            "to false)."
        )
    return Retention(given_ms, of_table_ms, is_enforced)


def _report(
    url: str,
    latest: Snapshot,
    dry_run: bool,
    retention: Retention,
    rules: VacuumRules,
    decided: VacuumPlan,
    full: bool,
) -> VacuumReport:
    return VacuumReport(
        url,
        dry_run,
        latest.version,
        retention.ms,
        rules.cutoff_ms,
        decided.files,
        tuple(entry.path for entry in decided.directories),
        dict(decided.kept),
        full=full,
    )


# ---------------------------------------------------------------------------------------------- deletion


def _carry_out(
    handle: TableHandle,
    report: VacuumReport,
    decided: VacuumPlan,
    retention: Retention,
    delete: Callable[[VacuumedFiles], Iterator[tuple[int, list[int]]]],
    progress: VacuumProgress,
) -> VacuumReport:
    """Commit VACUUM START, delete the files, and commit VACUUM END. The commits contain no file actions."""
    start = _commit(
        handle,
        "VACUUM START",
        {
            "retentionCheckEnabled": retention.is_enforced,
            **({} if retention.given_ms is None else {"specifiedRetentionMillis": retention.given_ms}),
            "defaultRetentionMillis": retention.of_table_ms,
        },
        {"numFilesToDelete": len(decided.files), "sizeOfDataToDelete": report.size_bytes},
    )
    deleted = VacuumedFiles()
    try:
        committed = named_since(LogHistory(handle.reader, handle.refresh().log), report.version)
        files, done = decided.files.without(committed), 0
        for asked, gone in delete(files):
            deleted.extend(files, gone)  # records the progress so far, in case an error follows
            done += asked
            progress(done, len(files))
        directories = handle.reader.store.remove(decided.directories)
    except Exception as error:
        try:
            _commit(handle, "VACUUM END", {"status": "FAILED"}, {})
        except Exception as failure:
            keep_cleanup_errors(error, [failure])
        if not isinstance(error, StoreError):
            raise
        raise StoreError(
            f"{report.table}: the vacuum stopped after deleting at least {len(deleted)} of {len(decided.files)} "
            "files. No version within the retention needs the deleted files. To continue, call it again. "
            f"{error.message}",
            path=error.path,
            service_code=error.service_code,
        ) from error
    commits = [start]
    metrics = {"numDeletedFiles": len(deleted), "numVacuumedDirectories": decided.directory_count}
    try:
        commits.append(_commit(handle, "VACUUM END", {"status": "COMPLETED"}, metrics))
    except DeltaLogError as error:
        log.warning("%s: the files are deleted, but VACUUM END was not recorded: %s", report.table, error)
    return replace(
        report,
        files=deleted,
        directories=tuple(entry.path for entry in directories),
        commits=tuple(commits),
    )


def _commit(
    handle: TableHandle, operation: str, parameters: Mapping[str, object], metrics: Mapping[str, object]
) -> int:
    """Commit a version that only records an operation, and return it."""

    def attempt() -> int:
        with handle.transaction() as transaction:
            return transaction.commit(operation, parameters, metrics).version

    return handle.retrying(attempt, _RETRIES)
