"""A Spark job whose tasks call a deltalog function that takes and returns bytes.

Tasks capture only plain values and deltalog's classes, so that executors need deltalog but not spark_ext.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import deltalog
from spark_ext.session.jobs import cancelled_with_its_caller
from spark_ext.session.settings import is_connect

_INPUTS = StructType([StructField("number", LongType(), False), StructField("input", BinaryType(), False)])
_RETURNED = "number long, output binary"
_DESCRIPTION = "spark.job.description"


def returned(
    spark: SparkSession, url: str, work: Callable[[bytes, str], bytes], inputs: Sequence[bytes], description: str
) -> list[bytes]:
    """The results of ``work`` for ``inputs``, in order, with one task per input. ``work`` also receives a string that
    is unique to the task attempt. ``description``: what Spark's UI shows for the job, in classic sessions. ``url``: the
    URL of the table, for error messages.

    Raises StoreError if the tasks do not return one result per input, and Spark's own errors. Cost: the job, and one
    that samples the inputs to partition them.
    """
    frame = spark.createDataFrame([(number, bytearray(item)) for number, item in enumerate(inputs)], _INPUTS)
    job = frame.repartitionByRange(len(inputs), "number").mapInArrow(_task(work), _RETURNED)
    with _described(spark, description):
        rows = cancelled_with_its_caller(spark, job.collect)
    outputs = {row[0]: bytes(row[1]) for row in rows}
    if len(rows) != len(inputs) or len(outputs) != len(inputs):
        raise deltalog.StoreError(
            f"{url}: Spark returned {len(rows)} results for {len(outputs)} of {len(inputs)} tasks. Repeat the call.",
            path=url,
        )
    return [outputs[number] for number in range(len(inputs))]


def parallelism(spark: SparkSession) -> int:
    """The number of tasks that the session runs in parallel. Cost: over Spark Connect one small job."""
    if is_connect(spark):
        return len(spark.range(1_000).selectExpr("spark_partition_id() AS id").distinct().collect())
    return int(spark.sparkContext.defaultParallelism)


@contextlib.contextmanager
def _described(spark: SparkSession, description: str) -> Iterator[None]:
    """Set the description of the jobs of this thread and its child threads."""
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(description)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def _task(work: Any) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = f"{context.partitionId():05d}-{context.taskAttemptId()}"
        for batch in batches:
            for number, item in zip(batch.column(0), batch.column(1), strict=True):
                outputs = pyarrow.array([work(item.as_py(), attempt)], pyarrow.binary())
                yield pyarrow.RecordBatch.from_arrays(
                    [pyarrow.array([number.as_py()], pyarrow.int64()), outputs], ["number", "output"]
                )

    return run
