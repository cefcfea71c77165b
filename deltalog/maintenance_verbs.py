"""The part of DeltaTable with the verbs that keep a table in order: its check, files of the log, optimize, vacuum."""

from __future__ import annotations

import datetime

from deltalog.arguments import checked
from deltalog.commit_result import CommitResult
from deltalog.doctor.check import examine
from deltalog.doctor.examination import Progress, silent
from deltalog.doctor.findings import CheckReport
from deltalog.expressions.tree import Predicate
from deltalog.log.checkpoint.writer import SIDECAR_ROWS, TopLevel
from deltalog.log.cleanup import CleanupReport
from deltalog.maintenance import log_files, statistics
from deltalog.maintenance.optimize.optimizer import TableOptimizer
from deltalog.maintenance.vacuum import vacuum as vacuuming
from deltalog.maintenance.vacuum.decisions import VacuumReport
from deltalog.maintenance.vacuum.tasks import RunTasks, VacuumRunner
from deltalog.write.commit_info import UserMetadata
from deltalog.write.table_handle import TableHandle


@checked
class MaintenanceVerbs:
    """What ``DeltaTable`` inherits; its rules are in ``operations`` and ``doctor``."""

    _handle: TableHandle

    def check(self, deep: bool = False, *, progress: Progress = silent) -> CheckReport:
        """Examine the log and the files of the table; see ``deltalog.check``, which also takes a table that cannot be
        opened. Cost: as ``deltalog.check``."""
        return examine(self._handle.reader, deep, progress, self._handle.environment)

    def flush(self) -> None:
        """Wait for the derived files of this process's commits, which follow them on a remote store. Cost: none."""
        self._handle.flush()

    def checkpoint(self, *, top_level: TopLevel = "parquet", sidecar_rows: int = SIDECAR_ROWS) -> None:
        """Write a checkpoint of the latest version now: a classic one, or where delta.checkpointPolicy is v2 a
        UUID-named one of the form ``top_level``, with sidecars of ``sidecar_rows`` file actions if there are more.

        Raises CallError, UnsupportedFeatureError, StoreError. Cost: reads and writes the whole state once, in pieces.
        """
        log_files.checkpoint(self._handle, top_level, sidecar_rows)

    def compact_log(self, from_version: int | None = None, to_version: int | None = None) -> tuple[int, int] | None:
        """Write a log compaction file: a range of commits in one file, which readers may read instead of the commits.

        Default: from the last checkpoint on. Returns the first and the last version; None if there are fewer than two.
        Raises CallError, MissingVersionError, UnsupportedFeatureError, StoreError. Cost: 1 GET for each commit, 1 PUT.
        """
        return log_files.compact(self._handle, from_version, to_version)

    def cleanup_log(self, *, dry_run: bool = False, retention: datetime.timedelta | None = None) -> CleanupReport:
        """Delete the files of the log that no version within the retention needs; with ``dry_run`` only report them.

        ``retention``: default delta.logRetentionDuration, 30 days. Kept are the newest checkpoint at or before the last
        midnight UTC before it, and later files. The report says which versions become unreachable, and why a file is
        kept. Checkpoints run clean-up too, unless delta.enableExpiredLogCleanup is false. Cost: docs/log-files.md.
        Raises CallError, UnsupportedFeatureError, MissingInCommitTimestampError, StoreError.
        """
        return log_files.delete_expired(self._handle, dry_run, retention)

    def compute_statistics(
        self, where: Predicate | str | None = None, *, user_metadata: UserMetadata = None
    ) -> CommitResult:
        """Give files the statistics that they lack, as ANALYZE TABLE … COMPUTE DELTA STATISTICS, so that scans leave
        them out. Returns the last commit; none is made where no file lacks statistics that can be computed.

        Files that have none, or not of all columns that delta.dataSkippingStatsColumns, else
        delta.dataSkippingNumIndexedCols, and the clustering columns select, are added again with them and with their
        deletion vectors, row ids and tags (dataChange=false). Statistics come from the footers; the columns that a
        footer does not cover are read: floating-point numbers, for NaN, and those without statistics in it. A column
        that has no bounds in a file, because it holds NaN, is read with each call. Rows are counted by the log and by
        the files: RowCountError where they differ. ``where``: as for ``optimize``, on partition columns.

        Conflicts with no append; after ten conflicts with other changes of the same files CommitConflictError is
        raised. Raises CallError, InvalidDataFileError, UnsupportedFeatureError, UnsafePathError, StoreError. An
        interrupted run keeps the commits that it made. Cost: as ``Snapshot.files``, 1 or 2 ranged GETs for each such
        file, those of the columns that are read, and a commit for every 100,000 files.
        """
        return statistics.compute_statistics(self._handle, where, user_metadata)

    @property
    def optimize(self) -> TableOptimizer:
        """The verbs that rewrite files and keep the rows: ``table.optimize.compact()``. Cost: none."""
        return TableOptimizer(self._handle)

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = True,
        enforce_retention_duration: bool = True,
        *,
        full: bool = True,
        progress: vacuuming.VacuumProgress = vacuuming.silent,
        run_tasks: RunTasks | None = None,
        num_tasks: int = 64,
    ) -> VacuumReport:
        """Delete the files below the table's root that no version within the retention needs; by default only report
        them: pass ``dry_run=False`` to delete.

        ``retention_hours``: default delta.deletedFileRetentionDuration, 7 days. A shorter one is a CallError, unless
        ``enforce_retention_duration=False``: readers of versions within it then lose files. A file that no version
        names stays until it is a day old in any case, since its commit may follow. Kept are all files that the version
        at the cut-off and every later one name, also in their change feeds; hidden files, links, other tables. What is
        deleted is recorded by two commits, VACUUM START and VACUUM END; without files to delete none is made. Safe to
        interrupt: a second call continues. ``full=False`` lists no files, and considers those only that the commits
        since the last vacuum removed (Spark's VACUUM LITE): what no version ever named, and empty directories, stay.
        ``progress``: called with the numbers of deleted files and of all to delete. ``run_tasks``: has the files
        listed and deleted elsewhere, for example by the tasks of Spark jobs; at most ``num_tasks`` of them list. It
        gets what to do with some bytes and a text of each attempt's own, the bytes for each task, and what they do, in
        words; it returns what was returned for each, in their order. The log is read and written here.

        Raises CallError, ResourceNotReadyError for a table of a catalog, UnsupportedFeatureError, UnsafePathError for a
        path in the log whose file is not known, CorruptTableError, StoreError, VersionNotFoundError with ``full=False``
        where the log no longer has the commits since the last vacuum. Cost: as ``LogStore.walk``, the files of the
        latest version and of that at the cut-off, 1 GET for each commit since, 1 DELETE for each file, 2 commits and 1
        PUT. With ``full=False`` instead of the listing 1 GET for each commit since the last vacuum, 1 HEAD for each
        file that these removed, and 1 HEAD and 1 LIST for each directory with such files.
        Spec: PROTOCOL.md#vacuum-protocol-check.
        """
        return vacuuming.vacuum(
            self._handle,
            retention_hours,
            dry_run,
            enforce_retention_duration,
            full,
            progress,
            runner=None if run_tasks is None else VacuumRunner(run_tasks, num_tasks),
        )
