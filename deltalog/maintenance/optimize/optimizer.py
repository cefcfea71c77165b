"""TableOptimizer: the methods of ``table.optimize``, which rewrite files without changing rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from deltalog.arguments import check_options, checked
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
    """The options of all verbs of ``table.optimize``.

    ``max_commit_size``: the maximum size in bytes of the files that one commit rewrites; default 16 GiB. If a run is
    interrupted, its commits remain, and a second call continues after them. ``dry_run``: only report what would be
    rewritten. ``progress``: called with the number of files rewritten so far and the total number of files to rewrite.
    ``rewrite_bins``: rewrites the files of each batch elsewhere, for example in the tasks of a Spark job. This function
    receives a ``BinTasks`` object and the serialized bins, and returns the result of ``BinTasks.run`` for each bin.
    """

    max_commit_size: int | None
    dry_run: bool
    user_metadata: UserMetadata
    progress: OptimizeProgress
    rewrite_bins: RewriteBins | None


@checked
class TableOptimizer:
    """Rewrites the files of a table. Rows and row ids do not change, and nothing is added to the change data feed.

    Commits have dataChange=false: they never conflict with appends, and conflict with other changes only if these
    remove a rewritten file or delete some of its rows. In these cases, the bin of the affected file is not rewritten,
    and the other bins are committed.

    Shared arguments. ``where``: SQL text or a predicate on partition columns; None: all partitions. ``target_size``:
    the size of new files in bytes; the default is the table property delta.targetFileSize or, if that is not set, 256
    MiB. ``max_concurrent_tasks``: the maximum number of new files written at a time; default the number of processors.
    For the other arguments, see OptimizeOptions.

    The methods raise CallError, UnsupportedFeatureError, InvalidDataFileError, RowCountError if the files' row counts
    differ from the log, and the errors of Transaction.commit.
    """

    def __init__(self, handle: TableHandle) -> None:
        """Use ``DeltaTable.optimize`` instead."""
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
        """Combine small files of a partition into files of the target size, in the order in which the small files were
        written. In a clustered table, order rows by the clustering columns.

        Rewrites files below the target size that can be combined with others, and files in which a deletion vector
        deletes more than 5 % of the rows. In a clustered table, rewrites files that are not clustered, and groups of
        files that were clustered together and are smaller than 32 times the target size; with ``full``, also rewrites
        files that were clustered by other columns or implementations. Cost: as ``Snapshot.files``, the GETs of these
        files, 1 PUT for each new file, a commit for each batch; for a clustered table as ``z_order``. Memory: about 100
        MiB for each task.
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
        """Rewrite all files of the selected partitions in Z-order of ``columns``, so that conditions on any of these
        columns skip most files. Each call rewrites all files.

        ``columns``: column paths, in the form that ``cluster_by`` accepts: in text, ``a.b`` is a field of a struct, and
        a name that contains dots is in backticks; a path can also be a list of names. Raises CallError also for columns
        that are not comparable or have no statistics, and for a clustered table. Cost: as ``compact``; also reads the
        key columns a second time, and writes temporary files on the local disk up to the size of the rows. Memory:
        about 100 MiB, plus 100 MiB for each task.
        """
        return optimize.z_order(self._handle, columns, _settings(where, target_size, max_concurrent_tasks, options))

    def purge(
        self,
        where: Predicate | str | None = None,
        target_size: int | None = None,
        max_concurrent_tasks: int | None = None,
        **options: Unpack[OptimizeOptions],
    ) -> OptimizeReport:
        """Rewrite all files that have a deletion vector, leaving out the deleted rows, like Spark's REORG … APPLY
        (PURGE).

        A later vacuum deletes the old files. Cost and memory: as for ``compact``.
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
    check_options(options, OptimizeOptions, "optimize")
    return Options(where, target_size, max_concurrent_tasks, full=full, **options)
