"""VACUUM on Spark's executors: deltalog reads the log and commits; tasks of Spark jobs list files, decide by deltalog's
rules which of them are unneeded, and delete these. The executors need deltalog, and access to the table's files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

import deltalog
from spark_ext.session.bytes_job import parallelism, returned
from spark_ext.writing.task_job import explained_by_task

# Whether Spark tasks list and delete the files. By default, tasks do this only for large tables on S3. On a local disk,
# a single process is faster (docs/benchmarks.md), and the executors of a cluster may not have access to the disk.
EXECUTORS = "spark.deltalog.vacuum.executors"
_MANY_FILES = 500_000
# The number of tasks per parallel task slot. It is greater than one, since some tasks take longer than others.
_FOR_EACH = 4
_MOST_TASKS = 512
_SWITCH = {"true": True, "false": False}


def vacuumed(
    spark: SparkSession,
    table: deltalog.DeltaTable,
    retention_hours: float | None,
    dry_run: bool,
    is_enforced: bool,
    full: bool,
    on_executors: bool | None = None,
) -> deltalog.VacuumReport:
    """Like ``deltalog.DeltaTable.vacuum``. ``on_executors``: the default is the session's setting ``EXECUTORS``; if
    that is unset, tasks do the work only for a table on S3 whose latest version has at least 500,000 files.

    Raises as ``deltalog.DeltaTable.vacuum``, StoreError and UnsupportedFeatureError if tasks cannot do the work, and
    Spark's own errors for a job.
    """
    tasks: dict[str, Any] = {}
    if _on_executors(spark, table, on_executors):
        at_once = parallelism(spark)
        tasks = {"run_tasks": _runner(spark, table.url, at_once), "num_tasks": _in_a_job(at_once)}
    return table.vacuum(retention_hours, dry_run=dry_run, enforce_retention_duration=is_enforced, full=full, **tasks)


def _on_executors(spark: SparkSession, table: deltalog.DeltaTable, given: bool | None) -> bool:
    if given is not None:
        return given
    text = spark.conf.get(EXECUTORS, None)
    if text is None:
        return "://" in table.url and table.snapshot().num_files >= _MANY_FILES
    if text.strip().lower() not in _SWITCH:
        raise deltalog.CallError(f"{EXECUTORS} must be true or false, not {text!r}.")
    return _SWITCH[text.strip().lower()]


def _in_a_job(at_once: int) -> int:
    return min(_FOR_EACH * at_once, _MOST_TASKS)


def _runner(
    spark: SparkSession, url: str, at_once: int
) -> Callable[[Callable[[bytes, str], bytes], Iterable[bytes], str], Iterator[bytes]]:
    def run(work: Callable[[bytes, str], bytes], inputs: Iterable[bytes], what: str) -> Iterator[bytes]:
        # The work is split into several jobs, so that neither all inputs nor all results are in memory at once.
        waiting, number = iter(inputs), 0
        while some := [*itertools.islice(waiting, _in_a_job(at_once))]:
            number += 1
            with explained_by_task(url, "list or delete", outcome=""):
                yield from returned(spark, url, work, some, f"VACUUM {url}: {what}, job {number}")

    return run
