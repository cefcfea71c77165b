"""A Spark job whose tasks write data files with deltalog, to any store that deltalog supports.

Tasks return the add actions of their files. Spark returns the result of one attempt per task, even if tasks were
retried or ran speculatively, and the driver commits the files in these results. Nothing is listed or renamed. The
executors need deltalog with the extra for the store.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

import deltalog
from spark_ext.reading.table_columns import named
from spark_ext.session.jobs import cancelled_with_its_caller
from spark_ext.writing.new_files import NewFiles
from spark_ext.writing.row_count import Count, RowCount

_RETURNED = "add string, rows long"
# The session setting that contains Spark's default for each of these options.
_SETTINGS = {
    "compression": "spark.sql.parquet.compression.codec",
    "maxRecordsPerFile": "spark.sql.files.maxRecordsPerFile",
}

# Patterns for Spark's messages about failed tasks: a missing module, and an error of deltalog.
_ABSENT = re.compile(r"No module named '(deltalog|s3fs)\b")
_OF_DELTALOG = re.compile(r"^(?:deltalog\.errors\.)(\w+): (.*?)\.?$", re.MULTILINE)
# The seconds between searches for files of stragglers (tasks that are still running), and the maximum number of
# searches.
_CHECK_EVERY_S, _MAX_CHECKS = 0.5, 10


class TaskJob:
    """The job of one write. The names of the files that the job writes begin with ``part-`` and the id of the job."""

    is_native = False

    def __init__(self, url: str) -> None:
        self._url = url
        self._id = str(uuid.uuid4())
        self._tasks: Any = None

    @property
    def destination(self) -> str:
        """The location to which the job writes, for messages."""
        return self._url

    def write(
        self, frame: DataFrame, files: NewFiles, options: Mapping[str, Any], count: Count | None = None
    ) -> list[deltalog.engine.AddFile]:
        """Like ``Job.write``; ``frame`` has the table's columns and ``files.extra_columns``.

        Raises RowCountError, and Spark's own errors. Cost: the job; 1 PUT for each file up to 16 MiB.
        """
        spark, transaction, count = frame.sparkSession, files.transaction, count or RowCount()
        chosen = {name: options.get(name, spark.conf.get(setting)) for name, setting in _SETTINGS.items()}
        tasks = self._tasks = transaction.row_writer.task_files(
            self._id,
            compression=str(chosen["compression"]).lower(),
            max_rows=int(chosen["maxRecordsPerFile"]),
            extra_columns=files.extra_columns,
            as_changes=files.as_changes,
        )
        counted = count.observe(frame)
        if files.partition_columns:
            # The rows are sorted by partition, so that a task has only one open file at a time and its memory use does
            # not grow with the number of partitions.
            counted = counted.sortWithinPartitions(*(named(name) for name in files.partition_columns))
        with explained_by_task(self._url):
            job = counted.mapInArrow(_task(tasks.write), _RETURNED)
            returned = cancelled_with_its_caller(spark, job.collect)
        adds = [deltalog.engine.AddFile.from_json(json.loads(row[0])) for row in returned]
        transaction.row_writer.take_over(adds, [row[1] for row in returned], count.rows(spark, None))
        if files.as_changes:
            transaction.add_cdc(*adds)
        else:
            transaction.add(*adds, known=True)
        return adds

    def remove(self, stragglers: bool = False) -> None:
        """Remove files that tasks left behind, best effort; the transaction has already removed the files whose add
        actions Spark returned. ``stragglers``: whether tasks may still be writing; if so, the store is searched for
        files of the job."""
        if not stragglers or self._tasks is None:
            return
        with contextlib.suppress(Exception):
            for _ in range(_MAX_CHECKS):
                if not self._tasks.remove_all():
                    break
                time.sleep(_CHECK_EVERY_S)


@contextlib.contextmanager
def explained_by_task(url: str, work: str = "write", outcome: str = " Nothing was committed.") -> Iterator[None]:
    """Raise errors of deltalog that occurred in Spark's tasks as the same errors on the driver. ``work``: a verb that
    says what the tasks do with the files; ``outcome``: a sentence that says how the failure affects the table."""
    try:
        yield
    except ImportError as error:
        raise deltalog.UnsupportedFeatureError(
            f"{url}: Spark's tasks {work} the files with pyarrow, and PySpark needs pandas for that: "
            f"pip install 'deltalog[spark]', here and on the executors. ({error})",
            features=(f"{work} by tasks",),
        ) from error
    except Exception as error:
        text = str(error)
        absent = _ABSENT.search(text)
        if absent is not None:
            raise deltalog.UnsupportedFeatureError(
                f"{url}: Spark's tasks {work} the files with deltalog, and the executors have no module "
                f"{absent[1]}: pip install 'deltalog[s3]' on each of them, in the version of this process.",
                features=(f"{work} by tasks",),
            ) from error
        found = _OF_DELTALOG.search(text)
        if found is None:
            raise
        kind = deltalog.SchemaMismatchError if found[1] == "SchemaMismatchError" else deltalog.StoreError
        message = f"{url}: a task could not {work} its files: {found[2]}.{outcome}"
        if kind is deltalog.StoreError:
            raise deltalog.StoreError(message, path=url) from None
        raise deltalog.SchemaMismatchError(message) from None


def _task(write: Callable[..., Any]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a task runs. The function captures nothing from spark_ext, so executors need only deltalog."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json

        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        adds, rows = write(batches, context.partitionId(), context.taskAttemptId())
        # From here on, nothing is deleted, since the driver may commit the files.
        texts = pyarrow.array([json.dumps(add.to_json()) for add in adds], pyarrow.string())
        yield pyarrow.RecordBatch.from_arrays([texts, pyarrow.array(rows, pyarrow.int64())], ["add", "rows"])

    return run
