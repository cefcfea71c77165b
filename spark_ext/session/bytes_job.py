"""A Spark job in which each task does something of deltalog's with some bytes, and returns bytes.

Tasks refer to plain values and to deltalog's classes, so that executors need deltalog and no spark_ext.
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

_INPUTS = StructType([StructField("number", LongType(), False), StructField("given", BinaryType(), False)])
_RETURNED = "number long, made binary"
_DESCRIPTION = "spark.job.description"


def returned(
    spark: SparkSession, url: str, work: Callable[[bytes, str], bytes], inputs: Sequence[bytes], description: str
) -> list[bytes]:
    """What ``work`` returned for each of ``inputs``, in their order: one task for each. ``work`` also gets a text that
    is its own for each attempt of a task. ``description``: of the job in Spark's UI; Spark Connect has its own there.
    ``url``: of the table, for messages.

    Raises StoreError where the tasks did not return one answer for each, and Spark's own errors. Cost: one job, and one
    that counts the inputs for it.
    """
    frame = spark.createDataFrame([(number, bytearray(given)) for number, given in enumerate(inputs)], _INPUTS)
    job = frame.repartitionByRange(len(inputs), "number").mapInArrow(_task(work), _RETURNED)
    with _described(spark, description):
        rows = cancelled_with_its_caller(spark, job.collect)
    made = {row[0]: bytes(row[1]) for row in rows}
    if len(rows) != len(inputs) or len(made) != len(inputs):
        raise deltalog.StoreError(
            f"{url}: {len(inputs)} tasks were to do a part each, and {len(rows)} answers came for {len(made)} parts. "
            "Do it again.",
            path=url,
        )
    return [made[number] for number in range(len(inputs))]


def parallelism(spark: SparkSession) -> int:
    """How many tasks the session runs at a time. Cost: over Spark Connect one small job."""
    if is_connect(spark):
        return len(spark.range(1_000).selectExpr("spark_partition_id() AS id").distinct().collect())
    return int(spark.sparkContext.defaultParallelism)


@contextlib.contextmanager
def _described(spark: SparkSession, description: str) -> Iterator[None]:
    """Jobs of this thread, and of those that it starts, have the description meanwhile."""
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
            for number, given in zip(batch.column(0), batch.column(1), strict=True):
                made = pyarrow.array([work(given.as_py(), attempt)], pyarrow.binary())
                yield pyarrow.RecordBatch.from_arrays(
                    [pyarrow.array([number.as_py()], pyarrow.int64()), made], ["number", "made"]
                )

    return run
