"""The number of rows that a job wrote, counted by the job itself and not from the files that are listed afterwards."""

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
# Spark reports a job's metrics through its listener queue, shortly after the job, and never if the queue overflowed.
_WAIT_S = 120.0


def counts_are_not_sent(spark: SparkSession) -> bool:
    """Whether a session does not report what a job that writes counts: Spark Connect before 4.1."""
    return is_connect(spark) and spark_version(spark) < (4, 1)


class Count(Protocol):
    """Counts the rows of one job while it writes them."""

    def of(self, frame: DataFrame) -> DataFrame:
        """The same rows, counted when they are written."""

    def rows(self, spark: SparkSession, directory: str | None) -> int | None:
        """The number of rows, after the job has ended; None where it is not known. ``directory``: that of the job's
        files, if they have one. Raises StoreError if Spark does not report it."""


class RowCount:
    """A count that Spark makes while the job runs. Tasks that are retried, or run twice, count once. ``mark``: a column
    that the rows have for this count only, with numbers or nulls."""

    def __init__(self, mark: str | None = None) -> None:
        self._observation = Observation()
        self._mark = mark

    def of(self, frame: DataFrame) -> DataFrame:
        """The same rows without the mark, counted when they are written."""
        rows = F.count(F.lit(1)).alias(_ROWS)
        if self._mark is None:
            return frame.observe(self._observation, rows)
        marked, digest = F.count(F.col(self._mark)), F.bit_xor(F.col(self._mark))
        counted = frame.observe(self._observation, rows, marked.alias(_MARKED), digest.alias(_DIGEST))
        return counted.drop(self._mark)

    def rows(self, spark: SparkSession, directory: str | None) -> int | None:
        """As ``Count.rows``. Spark Connect before 4.1 does not send the count to the client: there the server counts
        the rows of the files that it lists; without a directory the number is not known."""
        metrics = self._metrics()
        if not metrics:
            if directory is None:
                return None
            reader = spark.read.schema("any int").option("recursiveFileLookup", "true")
            return int(reader.parquet(paths.literal(paths.uri(directory))).count())
        return int(metrics[_ROWS])

    def marked(self) -> tuple[int, int]:
        """How many rows have a number as their mark, and these numbers by XOR. After the job, where Spark reports
        counts. Raises StoreError as ``rows``."""
        metrics = self._metrics()
        if not metrics:
            raise deltalog.StoreError(
                "Spark did not report which rows the job wrote, so its files cannot be checked; nothing was committed. "
                "Write again.",
                path="",
            )
        return int(metrics[_MARKED]), int(metrics[_DIGEST] or 0)

    def _metrics(self) -> dict[str, Any]:
        """The metrics of the observation, which blocks without limit if Spark does not report them."""
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
    """The count of a job that writes rows of several kinds, each with a count already: their sum."""

    def __init__(self, counts: Sequence[Count]) -> None:
        self._counts = counts

    def of(self, frame: DataFrame) -> DataFrame:
        """The same rows."""
        return frame

    def rows(self, spark: SparkSession, directory: str | None) -> int | None:
        """The sum of all counts; None where one is not known."""
        found = [each.rows(spark, None) for each in self._counts]
        return None if None in found else sum(number for number in found if number is not None)
