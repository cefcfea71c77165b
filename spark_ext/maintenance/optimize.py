"""OPTIMIZE on Spark's executors: deltalog plans the bins of files and commits; the tasks of Spark jobs rewrite the
bins. The executors need deltalog.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext import arguments
from spark_ext.session.bytes_job import returned
from spark_ext.session.jobs import lost_session_explained
from spark_ext.writing.task_job import explained_by_task
from spark_ext.writing.write_options import column_names

# delta-spark's setting for the size of new files. The default of this setting is larger than deltalog's target size.
_TARGET_SIZE = "spark.databricks.delta.optimize.maxFileSize"
_FILES = "struct<min: bigint, max: bigint, avg: double, totalFiles: bigint, totalSize: bigint>"
_MOVED = "struct<num: bigint, size: bigint>"
# The columns of delta-spark's result, except the metrics of delta-spark's scheduling.
_RESULT = (
    f"path string, metrics struct<numFilesAdded: bigint, numFilesRemoved: bigint, filesAdded: {_FILES}, "
    f"filesRemoved: {_FILES}, partitionsOptimized: bigint, numBins: bigint, numBatches: bigint, "
    "totalConsideredFiles: bigint, totalFilesSkipped: bigint, preserveInsertionOrder: boolean, startTimeMs: bigint, "
    "endTimeMs: bigint, deletionVectorStats: struct<numDeletionVectorsRemoved: bigint, "
    f"numDeletionVectorRowsRemoved: bigint>, zOrderStats: struct<strategyName: string, inputCubeFiles: {_MOVED}, "
    f"inputOtherFiles: {_MOVED}, inputNumCubes: bigint, mergedFiles: {_MOVED}, numOutputCubes: bigint, "
    "mergedNumCubes: bigint>>"
)


class DeltaOptimizeBuilder:
    """Optimizes a table, or the partitions that ``where`` selects, with ``executeCompaction`` or ``executeZOrderBy``.
    Optimizing changes no rows, and adds nothing to the change data feed. Returned by ``DeltaTable.optimize``.

    This class has the same methods as delta-spark's ``DeltaOptimizeBuilder``.
    """

    def __init__(self, spark: SparkSession, table: deltalog.DeltaTable, where: str | None = None) -> None:
        """Used by ``DeltaTable.optimize``."""
        self._spark = spark
        self._table = table
        self._where = where

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Only optimize partitions for which a condition on partition columns is true. Raises CallError. Cost: none."""
        if not arguments.text("partitionFilter", partitionFilter).strip():
            raise deltalog.CallError(f"where takes a condition as SQL text, not {partitionFilter!r}.")
        both = partitionFilter if self._where is None else f"({self._where}) AND ({partitionFilter})"
        return DeltaOptimizeBuilder(self._spark, self._table, both)

    def executeCompaction(self) -> DataFrame:
        """Combine small files; in a clustered table, order rows by the clustering columns. Returns one row with the
        path and the metrics, under the names that delta-spark uses.

        A task writes one new file, or orders rows for up to 64 files. Raises as ``deltalog.TableOptimizer.compact``,
        JobFailedError, StoreError, and UnsupportedFeatureError if the executors lack deltalog. Cost: as ``compact``,
        and a job for every batch of 16 GiB.
        """
        return self.compacted(full=False)

    def compacted(self, full: bool) -> DataFrame:
        """Like ``executeCompaction``; ``full``: as for ``TableOptimizer.compact``."""
        orders = bool(self._table.snapshot().clustering_columns)
        return self._executed(orders, lambda **options: self._table.optimize.compact(self._where, full=full, **options))

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> DataFrame:
        """Rewrite all files of the partitions, with the rows in Z-order by ``cols``. Returns the metrics, like
        ``executeCompaction``. One task sorts a partition of the table of up to 16 GiB; larger partitions are split
        among several tasks. Raises as ``deltalog.TableOptimizer.z_order``, and as ``executeCompaction``. Cost: as
        ``executeCompaction``, and temporary files on the executors' disks, at most as large as the rows."""
        given = list(column_names("executeZOrderBy", cols))
        z_order = self._table.optimize.z_order
        return self._executed(True, lambda **options: z_order(given, self._where, **options), is_z_order=True)

    def purged(self) -> DataFrame:
        """Rewrite all files that have deletion vectors, without the deleted rows (``REORG TABLE … APPLY (PURGE)``). The
        result, the errors and the costs are those of ``executeCompaction``."""
        return self._executed(False, lambda **options: self._table.optimize.purge(self._where, **options))

    def _executed(self, is_ordered: bool, optimize: Any, is_z_order: bool = False) -> DataFrame:
        spark, started_ms = self._spark, _now_ms()
        size = spark.conf.get(_TARGET_SIZE, None)
        with lost_session_explained(self._table.url):
            report = optimize(
                target_size=None if size is None else _bytes(size),
                rewrite_bins=lambda tasks, bins: _rewritten(spark, self._table.url, tasks, bins),
            )
            return spark.createDataFrame(
                [(report.table, _metrics(report, is_ordered, is_z_order, started_ms))], _RESULT
            )


def _rewritten(spark: SparkSession, url: str, tasks: Any, bins: Sequence[bytes]) -> Iterator[str]:
    """The results of the tasks, in the order of the bins."""
    with explained_by_task(url):
        work, what = _as_bytes(tasks.run), f"OPTIMIZE {url}: rewrite {len(bins)} groups of files"
        return iter([result.decode() for result in returned(spark, url, work, bins, what)])


def _as_bytes(run: Any) -> Any:
    return lambda files, attempt: run(files, attempt).encode()


def _metrics(report: deltalog.OptimizeReport, is_ordered: bool, is_z_order: bool, started_ms: int) -> tuple[Any, ...]:
    added, removed = list(report.added.values()), list(report.removed.values())
    moved = (len(removed), sum(removed))
    # All files of a partition are ordered together, so a partition always consists of one cube, and there are no older
    # cubes.
    z_order = ("all", (0, 0), moved, 0, moved, report.partitions, None) if is_z_order else None
    return (
        len(added),
        len(removed),
        _of_files(added),
        _of_files(removed),
        report.partitions,
        report.bins,
        len(report.commits),
        report.considered,
        report.considered - len(removed),
        not is_ordered,
        started_ms,
        _now_ms(),
        (report.deletion_vectors, None),
        z_order,
    )


def _of_files(sizes: Sequence[int]) -> tuple[Any, ...]:
    if not sizes:
        return (None, None, 0.0, 0, 0)
    return (min(sizes), max(sizes), sum(sizes) / len(sizes), len(sizes), sum(sizes))


def _bytes(text: str) -> int:
    if not text.strip().isdecimal() or int(text) <= 0:
        raise deltalog.CallError(f"{_TARGET_SIZE} must be a positive number of bytes, not {text!r}.")
    return int(text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
