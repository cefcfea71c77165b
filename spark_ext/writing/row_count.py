"""Counts the rows that a job writes, independently of the files that it creates."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

import deltalog
from spark_ext.session import paths
from spark_ext.session.settings import is_connect, spark_version

_ROWS, _MARKED, _DIGEST = "rows", "marked", "digest"
# Spark reports the metrics through its listener queue shortly after the job, or never if the queue overflowed.
_WAIT_S = 120.0


def counts_are_not_sent(spark: SparkSession) -> bool:
    """True if the session does not report the row counts of jobs that write; this is so for Spark Connect before
    4.1."""
    return is_connect(spark) and spark_version(spark) < (4, 1)


class Count(Protocol):
    """Counts the rows that one job writes."""

    def observe(self, frame: DataFrame) -> DataFrame:
        """A DataFrame with the same rows, which are counted when they are written."""

    def rows(self, spark: SparkSession, directory: str | None) -> int | None:
        """The number of rows that the job has written; None if the number is not known. Call this method after the job.
        ``directory``: the directory that contains all files of the job; None if there is no such directory. Raises
        StoreError if Spark does not report it."""


class RowCount:
    """A count by Spark's ``observe``. Retried and speculative tasks are counted only once. ``mark``: a column of
    numbers or nulls; ``observe`` counts its non-null values and drops the column."""

    def __init__(self, mark: str | None = None) -> None:
        self._observation = Observation()
        self._mark = mark

    def observe(self, frame: DataFrame) -> DataFrame:
        """Returns ``frame`` without the mark column, and with an observation that makes Spark count the rows while it
        writes them."""
        rows = F.count(F.lit(1)).alias(_ROWS)
        if self._mark is None:
            return frame.observe(self._observation, rows)
        marked, digest = F.count(F.col(self._mark)), F.bit_xor(F.col(self._mark))
        counted = frame.observe(self._observation, rows, marked.alias(_MARKED), digest.alias(_DIGEST))
        return counted.drop(self._mark)

    def rows(self, spark: SparkSession, directory: str | None) -> int | None:
        """Like ``Count.rows``. Spark Connect before 4.1 does not send the count to the client. If the count is missing,
        the server counts the rows in the files of ``directory``; if there is no directory, the count is unknown."""
        metrics = self._metrics()
        if not metrics:
            if directory is None:
                return None
            reader = spark.read.schema("any int").option("recursiveFileLookup", "true")
            return int(reader.parquet(paths.literal(paths.uri(directory))).count())
        return int(metrics[_ROWS])

    def marked(self) -> tuple[int, int]:
        """The number of rows whose mark column is not null, and the XOR of their marks. Call this method after the job,
        and only if Spark reports counts. Raises StoreError as ``rows``."""
        metrics = self._metrics()
        if not metrics:
            raise deltalog.StoreError(
                "Spark did not report the number of rows that the job wrote, so its files cannot be checked; nothing "
                "was committed. Write again.",
                path="",
            )
        return int(metrics[_MARKED]), int(metrics[_DIGEST] or 0)

    def _metrics(self) -> dict[str, Any]:
        """The metrics that Spark's ``Observation`` has collected. The counts are read in a thread, since
        ``Observation.get`` can block forever."""
        received: list[dict[str, Any]] = []
        failed: list[Exception] = []

        def receive() -> None:
            try:
                received.append(self._observation.get)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        thread.join(_WAIT_S)
        if failed:
            raise failed[0]
        if not received:
            raise deltalog.StoreError(
                f"Spark did not report within {_WAIT_S:.0f} s how many rows the job wrote, so its files cannot be "
                "checked; nothing was committed. Spark drops such events when spark.scheduler.listenerbus.eventqueue."
                "capacity is too small for the job: increase it, and write again.",
                path="",
            )
        return received[0]


class SumOfCounts:
    """The total row count of the DataFrames that one job writes together."""

    def __init__(self, counts: Sequence[Count]) -> None:
        self._counts = counts

    def observe(self, frame: DataFrame) -> DataFrame:
        """Returns ``frame`` unchanged, because the counts of its parts already include its rows."""
        return frame

    def rows(self, spark: SparkSession, directory: str | None) -> int | None:
        """The sum of the counts; None if any count is unknown."""
        found = [each.rows(spark, None) for each in self._counts]
        return None if None in found else sum(number for number in found if number is not None)
