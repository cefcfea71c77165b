"""TableOptimizer: the verbs that rewrite the files of a table and keep its rows, as ``table.optimize``."""

from __future__ import annotations

from collections.abc import Sequence

from deltalog.arguments import checked
from deltalog.expressions.tree import Predicate
from deltalog.maintenance.optimize import optimize
from deltalog.maintenance.optimize.optimize import Options
from deltalog.maintenance.optimize.plan import OptimizeProgress, OptimizeReport
from deltalog.maintenance.optimize.tasks import RewriteBins
from deltalog.write.commit_info import UserMetadata
from deltalog.write.table_handle import TableHandle


@checked
class TableOptimizer:
    """Rewrites files of a table. The rows and their row ids stay the same, and the change data feed has no change.

    Commits have dataChange=false: they conflict with no append, and with other changes only where these remove, or
    delete rows of, a file that is rewritten. Then that file and those that were to share a new file with it stay, and
    the others are committed.

    Arguments that the verbs share. ``where``: SQL text or a predicate on partition columns; None: all partitions.
    ``target_size``: of new files in bytes; default delta.targetFileSize of the table, else 256 MiB.
    ``max_concurrent_tasks``: how many new files are written at a time; default the number of processors.
    ``max_commit_size``: how many bytes of files are a commit; default 16 GiB. An interrupted run keeps the commits that
    it made, and a second call does the rest. ``dry_run``: only report what would be rewritten. ``progress``: called
    with the number of files that are rewritten, and of all to rewrite. ``rewrite_bins``: rewrites the files of each
    batch elsewhere, for example in the tasks of a Spark job; it gets ``BinTasks`` and bytes for each bin, and returns
    what ``BinTasks.run`` returned for each.

    They raise CallError, UnsupportedFeatureError, InvalidDataFileError, RowCountError where files do not hold the rows
    that the log counts, and as Transaction.commit.
    """

    def __init__(self, handle: TableHandle) -> None:
        """Made by ``DeltaTable.optimize``."""
        self._handle = handle

    def compact(
        self,
        where: Predicate | str | None = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        *,
        max_commit_size: int | None = None,
        dry_run: bool = False,
        user_metadata: UserMetadata = None,
        progress: OptimizeProgress = optimize.silent,
        rewrite_bins: RewriteBins | None = None,
        full: bool = False,
    ) -> OptimizeReport:
        """Combine small files of a partition into ones of the target size, in the order in which they were written; in
        a clustered table, write rows that are close in the clustering columns together.

        Rewritten are files below the target size that can share a new file with others, and those of which a deletion
        vector deletes more than 5 % of the rows. In a clustered table they are those that are not clustered, and those
        that were clustered together into less than 32 times the target size; ``full``: also those that are clustered by
        other columns or implementations. Cost: as ``Snapshot.files``, the GETs of these files, 1 PUT for each new file,
        a commit for each batch; of a clustered table as ``z_order``. Memory: about 100 MiB for each task.
        """
        asked = Options(
            where, target_size, max_concurrent_tasks, max_commit_size, dry_run, user_metadata, progress, rewrite_bins,
            full,
        )  # fmt: skip
        return optimize.compact(self._handle, asked)

    def z_order(
        self,
        columns: Sequence[str | Sequence[str]],
        where: Predicate | str | None = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        *,
        max_commit_size: int | None = None,
        dry_run: bool = False,
        user_metadata: UserMetadata = None,
        progress: OptimizeProgress = optimize.silent,
        rewrite_bins: RewriteBins | None = None,
    ) -> OptimizeReport:
        """Rewrite all files of the chosen partitions with rows that are close in ``columns`` close together, so that
        conditions on any of these leave out most files. Each call rewrites all of them.

        ``columns``: paths, as of ``cluster_by``: ``a.b`` is a field of a struct, and a name that has dots is in
        backticks, or each path a list of names. Raises CallError also for columns that cannot be compared
        or have no statistics, and for a clustered table. Cost: as ``compact``, the key columns read once more, and
        temporary files on the local disk of at most the rows' size. Memory: about 100 MiB, and 100 MiB for each task.
        """
        asked = Options(
            where, target_size, max_concurrent_tasks, max_commit_size, dry_run, user_metadata, progress, rewrite_bins
        )
        return optimize.z_order(self._handle, columns, asked)

    def purge(
        self,
        where: Predicate | str | None = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        *,
        max_commit_size: int | None = None,
        dry_run: bool = False,
        user_metadata: UserMetadata = None,
        progress: OptimizeProgress = optimize.silent,
        rewrite_bins: RewriteBins | None = None,
    ) -> OptimizeReport:
        """Rewrite all files that have a deletion vector, without the deleted rows: Spark's REORG … APPLY (PURGE).

        The old files are deleted by a vacuum. Cost and memory: as ``compact``.
        """
        asked = Options(
            where, target_size, max_concurrent_tasks, max_commit_size, dry_run, user_metadata, progress, rewrite_bins
        )
        return optimize.purge(self._handle, asked)
