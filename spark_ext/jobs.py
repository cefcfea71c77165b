"""Cancels Spark jobs when their caller is interrupted, and explains failures of the storage."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator

from pyspark.sql import SparkSession

import deltalog

# Errors of the executors' file systems, as they appear in Spark's messages.
_OF_THE_STORE = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|Read-only file system|Input/output error"
)


@contextlib.contextmanager
def cancelled_with_its_caller(spark: SparkSession) -> Iterator[None]:
    """Cancels the jobs that are started in the block when it is interrupted. A KeyboardInterrupt alone ends only the
    call that waits for a job: the job would continue, and write."""
    tag = f"deltalog-{uuid.uuid4()}"
    is_tagged = True
    try:
        spark.addTag(tag)
    except Exception:  # Spark 3.5 has it on Connect only
        is_tagged = False
    try:
        yield
    except Exception:
        raise  # Spark itself has ended the job
    except BaseException:
        if is_tagged:
            with contextlib.suppress(Exception):
                # A classic session keeps its tags by thread, and the thread of the interrupted call has ended. Ctrl-C
                # in PySpark itself ends all jobs of the session too.
                _ = spark.interruptTag(tag) or spark.interruptAll()
        raise
    finally:
        if is_tagged:
            with contextlib.suppress(Exception):
                spark.removeTag(tag)


def failure_of_store(error: Exception, directory: str) -> deltalog.StoreError | None:
    """The error for a job that failed because its files could not be written; None for other failures."""
    found = _OF_THE_STORE.search(str(error))
    if found is None:
        return None
    return deltalog.StoreError(
        f"{directory}: Spark cannot write the files: {found[0]}. Nothing was committed and the files are removed. "
        "Check the disks of the table and of Spark's temporary files (space, quota, read-only), then write again.",
        path=directory,
    )
