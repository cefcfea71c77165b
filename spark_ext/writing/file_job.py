"""The Spark job that writes rows as data files. The class of the job depends on whether the table is on S3."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

import deltalog
from spark_ext.session import paths, stores
from spark_ext.session.jobs import failure_of_job
from spark_ext.writing import row_rules
from spark_ext.writing.local_job import LocalJob
from spark_ext.writing.new_files import NewFiles
from spark_ext.writing.row_count import Count
from spark_ext.writing.task_job import TaskJob


class Job(Protocol):
    """Writes rows into new data files of a table. One object serves one write."""

    #: Whether Spark's own Parquet writer writes this job's files. If Spark's writer is used, the columns must have
    #: physical names and field ids, and partition values must be encoded as in directory names; otherwise the rows have
    #: the table's logical columns.
    is_native: bool

    @property
    def destination(self) -> str:
        """The location to which the job writes, for messages."""

    def write(
        self, frame: DataFrame, files: NewFiles, options: Mapping[str, Any], count: Count | None = None
    ) -> list[deltalog.engine.AddFile]:
        """Write the rows of ``frame``, as ``file_rows`` returns them, and stage the files of successful tasks in the
        transaction. Returns their add actions.

        ``options``: ``compression`` and ``maxRecordsPerFile``, both optional. ``count``: counts the rows; without it,
        the job itself counts them. Raises RowCountError if the number of rows in the files differs from that count.
        """

    def remove(self, stragglers: bool = False) -> None:
        """Remove the files, best effort, if nothing was committed. ``stragglers``: whether the job failed or was
        cancelled, so that some of its tasks may still be running."""


def job_of(url: str) -> Job:
    """The job that writes files of the table at a URL."""
    root = paths.checked_root(url, None)
    return TaskJob(root) if stores.bucket_of(root) else LocalJob(root)


@contextlib.contextmanager
def explained(rules: deltalog.engine.TableRules, replaced: str | None, job: Job) -> Iterator[None]:
    """Convert Spark's errors that concern the rows, the store or the cluster into errors of deltalog. ``replaced``: the
    condition of ``replaceWhere``, whose rows the write replaces."""
    try:
        yield
    # The text of an AnalysisException contains Spark's plan, in which the messages of refusals occur although no row
    # was refused.
    except (deltalog.DeltaLogError, AnalysisException):
        raise
    except Exception as error:
        refusal = row_rules.REFUSAL.search(str(error))
        if refusal is None:
            failure = failure_of_job(error, job.destination)
            if failure is None:
                raise
            raise failure from error
        raise row_rules.violation(refusal[1], rules, replaced) from error
