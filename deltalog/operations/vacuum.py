"""Vacuum: deletes the files below a table's root that no version within the retention needs.

The listing is made before the log is read: a file that is committed in between is found in the log. What is committed
later is read again after the commit that records the start, before the first file is deleted.

Spec: PROTOCOL.md leaves vacuum to writers; #vacuum-protocol-check.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from deltalog.errors import CallError, DeltaLogError, ResourceNotReadyError, StoreError
from deltalog.log.history import LogHistory
from deltalog.log.needed_files import added_since, metadata_of_iceberg, named_files
from deltalog.log.vacuum import NamedFiles, Need, VacuumedFile, VacuumPlan, VacuumReport, VacuumRules, plan
from deltalog.operations.table_handle import TableHandle
from deltalog.protocol.properties import DELETED_FILE_RETENTION_MS
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import Entry, keep_cleanup_errors

HOUR_MS = 3_600_000
_AT_ONCE = 1_000
_RETRIES = 10

log = logging.getLogger(__name__)

#: Called with the number of files that are deleted so far, and of all to delete.
VacuumProgress = Callable[[int, int], None]


def silent(done: int, of: int) -> None:
    """No progress is shown."""


@dataclass(frozen=True, slots=True)
class Retention:
    """In milliseconds. ``given_ms``: as the caller gave it; None: that of the table, ``of_table_ms``."""

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
    progress: VacuumProgress,
) -> VacuumReport:
    """See ``DeltaTable.vacuum``."""
    store = handle.reader.store
    if store.branch is not None:
        raise CallError(f"{store.url}: a table cannot be vacuumed in a transaction. Open it outside of one.")
    if store.catalog is not None:
        raise ResourceNotReadyError(
            f"{store.url} is managed by the catalog {store.catalog}, and the open transactions of a catalog may need "
            "files that no version names. Managed tables cannot be vacuumed yet."
        )
    before = handle.writable()  # the protocol check that vacuumProtocolCheck requires
    retention = _retention(before, retention_hours, enforce_retention_duration)
    now_ms = handle.environment.clock_ms()
    rules = VacuumRules(
        now_ms - retention.ms,
        now_ms,
        before.partition_columns,
        metadata_of_iceberg(before.metadata.configuration),
    )
    entries = list(store.walk(rules.enters))
    latest = handle.writable()
    named = named_files(LogHistory(handle.reader, latest.log), rules.cutoff_ms)
    decided = plan(entries, _with_unsettled(named, handle), rules)
    report = _report(store.url, latest, dry_run, retention, rules, decided)
    if dry_run or not (decided.files or decided.directories):
        return report
    return _carry_out(handle, report, decided, retention, progress)


def _retention(snapshot: Snapshot, hours: float | None, is_enforced: bool) -> Retention:
    of_table_ms = DELETED_FILE_RETENTION_MS.read(snapshot.metadata.configuration)
    if hours is None:
        return Retention(None, of_table_ms, is_enforced)
    if isinstance(hours, bool) or not math.isfinite(hours) or not 0 <= hours * HOUR_MS < 2**62:
        raise CallError(f"retention_hours is a number of hours from 0 on, or None; got {hours!r}.")
    given_ms = int(hours * HOUR_MS)
    if is_enforced and given_ms < of_table_ms:
        raise CallError(
            f"{snapshot.url}: a retention of {hours:g} hours is shorter than that of the table, "
            f"{of_table_ms / HOUR_MS:g} hours (delta.deletedFileRetentionDuration). Versions within it could no longer "
            "be read. Give a longer one, change the property, or pass enforce_retention_duration=False if no reader "
            "needs them, and no writer takes longer than a day to commit its files."
        )
    return Retention(given_ms, of_table_ms, is_enforced)


def _with_unsettled(named: NamedFiles, handle: TableHandle) -> NamedFiles:
    """With the staged files whose commit may still take effect."""
    files = handle.reader.files
    unsettled = {files.find(path)[1]: Need.UNSETTLED for path in handle.unsettled}
    return replace(named, needed={**unsettled, **named.needed}) if unsettled else named


def _report(
    url: str, latest: Snapshot, dry_run: bool, retention: Retention, rules: VacuumRules, decided: VacuumPlan
) -> VacuumReport:
    return VacuumReport(
        url,
        dry_run,
        latest.version,
        retention.ms,
        rules.cutoff_ms,
        tuple(file for file, _ in decided.files),
        tuple(entry.path for entry in decided.directories),
        dict(decided.kept),
    )


# ---------------------------------------------------------------------------------------------- deletion


def _carry_out(
    handle: TableHandle, report: VacuumReport, decided: VacuumPlan, retention: Retention, progress: VacuumProgress
) -> VacuumReport:
    """Record the start, delete, and record the end. The commits add and remove no files."""
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
    deleted: list[VacuumedFile] = []
    try:
        committed = added_since(LogHistory(handle.reader, handle.refresh().log), report.version)
        files = [each for each in decided.files if each[0].path not in committed]
        _delete(handle, files, deleted, progress)
        directories = handle.reader.store.remove(decided.directories)
    except Exception as error:
        try:
            _commit(handle, "VACUUM END", {"status": "FAILED"}, {})
        except Exception as failure:
            keep_cleanup_errors(error, [failure])
        if not isinstance(error, StoreError):
            raise
        raise StoreError(
            f"{report.table}: the vacuum ended after at least {len(deleted)} of {len(decided.files)} files. What it "
            f"deleted is needed by no version within the retention; call it again. {error.message}",
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
        files=tuple(deleted),
        directories=tuple(entry.path for entry in directories),
        commits=tuple(commits),
    )


def _delete(
    handle: TableHandle,
    files: Sequence[tuple[VacuumedFile, Entry]],
    deleted: list[VacuumedFile],
    progress: VacuumProgress,
) -> None:
    """Adds what is deleted to ``deleted``, which is right after an error, too."""
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        gone = {entry.path for entry in handle.reader.store.remove([entry for _, entry in some])}
        deleted += [file for file, _ in some if file.path in gone]
        progress(min(start + _AT_ONCE, len(files)), len(files))


def _commit(
    handle: TableHandle, operation: str, parameters: Mapping[str, object], metrics: Mapping[str, object]
) -> int:
    """Commit a version that only records what happened; returns it."""

    def attempt() -> int:
        with handle.transaction() as transaction:
            return transaction.commit(operation, parameters, metrics).version

    return handle.retrying(attempt, _RETRIES)
