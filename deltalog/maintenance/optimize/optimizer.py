"""TableOptimizer: the verbs that rewrite the files of a table and keep its rows, as ``table.optimize``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from deltalog.arguments import checked
from deltalog.errors import CallError
from deltalog.expressions.tree import Predicate
from deltalog.maintenance.optimize import optimize
from deltalog.maintenance.optimize.optimize import Options
from deltalog.maintenance.optimize.plan import OptimizeProgress, OptimizeReport
from deltalog.maintenance.optimize.tasks import RewriteBins
from deltalog.write.commit_info import UserMetadata
from deltalog.write.table_handle import TableHandle

if TYPE_CHECKING:
    from typing_extensions import Unpack


class OptimizeOptions(TypedDict, total=False):
    """The options that all verbs of ``table.optimize`` have.

    ``max_commit_size``: the bytes of the files that one commit rewrites; default 16 GiB. An interrupted run keeps the
    commits that it made, and a second call does the rest. ``dry_run``: only report what would be rewritten.
    ``progress``: called with the number of files that are rewritten so far, and of all to rewrite. ``rewrite_bins``:
    rewrites the files of each batch elsewhere, for example in the tasks of a Spark job; it gets ``BinTasks`` and the
    bytes of each bin, and returns what ``BinTasks.run`` returned for each.
    """

    max_commit_size: int | None
    dry_run: bool
    user_metadata: UserMetadata
    progress: OptimizeProgress
    rewrite_bins: RewriteBins | None


@checked
class TableOptimizer:
    """Rewrites files of a table. The rows and their row ids stay the same, and the change data feed has no change.

    Commits have dataChange=false: they conflict with no append, and with other changes only where these remove, or
    delete rows of, a file that is rewritten. Then that file and those that were to share a new file with it stay, and
    the others are committed.

    Arguments that the verbs share. ``where``: SQL text or a predicate on partition columns; None: all partitions.
    ``target_size``: of new files in bytes; default delta.targetFileSize of the table, else 256 MiB.
    ``max_concurrent_tasks``: how many new files are written at a time; default the number of processors. The others are
    in OptimizeOptions.

    The verbs raise CallError, UnsupportedFeatureError, InvalidDataFileError, RowCountError where files do not hold the
    rows that the log counts, and as Transaction.commit.
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
        full: bool = False,
        **options: Unpack[OptimizeOptions],
    ) -> OptimizeReport:
        """Combine small files of a partition into ones of the target size, in the order in which they were written; in
        a clustered table, write rows that are close in the clustering columns together.

        Rewritten are files below the target size that can share a new file with others, and those of which a deletion
        vector deletes more than 5 % of the rows. In a clustered table they are those that are not clustered, and those
        that were clustered together into less than 32 times the target size; ``full``: also those that are clustered by
        other columns or implementations. Cost: as ``Snapshot.files``, the GETs of these files, 1 PUT for each new file,
        a commit for each batch; of a clustered table as ``z_order``. Memory: about 100 MiB for each task.
        """
        return optimize.compact(self._handle, _settings(where, target_size, max_concurrent_tasks, options, full))

    def z_order(
        self,
        columns: Sequence[str | Sequence[str]],
        where: Predicate | str | None = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        **options: Unpack[OptimizeOptions],
    ) -> OptimizeReport:
        """Rewrite all files of the chosen partitions with rows that are close in ``columns`` close together, so that
        conditions on any of these leave out most files. Each call rewrites all of them.

        ``columns``: paths, as of ``cluster_by``: ``a.b`` is a field of a struct, and a name that has dots is in
        backticks, or each path a list of names. Raises CallError also for columns that cannot be compared
        or have no statistics, and for a clustered table. Cost: as ``compact``, the key columns read once more, and
        temporary files on the local disk of at most the rows' size. Memory: about 100 MiB, and 100 MiB for each task.
        """
        return optimize.z_order(self._handle, columns, _settings(where, target_size, max_concurrent_tasks, options))

    def purge(
        self,
        where: Predicate | str | None = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        **options: Unpack[OptimizeOptions],
    ) -> OptimizeReport:
        """Rewrite all files that have a deletion vector, without the deleted rows: Spark's REORG … APPLY (PURGE).

        The old files are deleted by a vacuum. Cost and memory: as ``compact``.
        """
        return optimize.purge(self._handle, _settings(where, target_size, max_concurrent_tasks, options))


def _settings(
    where: Predicate | str | None,
    target_size: int | None,
    max_concurrent_tasks: int | None,
    options: OptimizeOptions,
    full: bool = False,
) -> Options:
    """Raises CallError for an unknown option."""
    unknown = options.keys() - OptimizeOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(OptimizeOptions.__annotations__)
        raise CallError(f"There is no option {sorted(unknown)[0]!r}. The options of optimize are {known}.")
    return Options(where, target_size, max_concurrent_tasks, full=full, **options)
