"""The number of rows that a job wrote, counted by the job itself and not from the files that are listed afterwards."""

from __future__ import annotations

import threading
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

import deltalog
from spark_ext import paths
from spark_ext.session import is_connect, spark_version

_ROWS = "rows"
# Spark reports a job's metrics through its listener queue, shortly after the job, and never if the queue overflowed.
_WAIT_S = 120.0


def counts_are_not_sent(spark: SparkSession) -> bool:
    """Whether a session does not report what a job that writes counts: Spark Connect before 4.1."""
    return is_connect(spark) and spark_version(spark) < (4, 1)


class RowCount:
    """The number of rows of one job. Tasks that are retried, or run twice, count once."""

    def __init__(self) -> None:
        self._observation = Observation()

    def of(self, frame: DataFrame) -> DataFrame:
        """The same rows, counted when they are written."""
        return frame.observe(self._observation, F.count(F.lit(1)).alias(_ROWS))

    def rows(self, spark: SparkSession, directory: str | None) -> int | None:
        """The number of rows, after the job has ended. ``directory``: that of the job's files, if they have one.

        Raises StoreError if Spark does not report it. Spark Connect before 4.1 does not send it to the client: there
        the server counts the rows of the files that it lists; without a directory the number is not known (None).
        """
        metrics = self._metrics()
        if not metrics:
            if directory is None:
                return None
            reader = spark.read.schema("any int").option("recursiveFileLookup", "true")
            return int(reader.parquet(paths.literal(paths.uri(directory))).count())
        return int(metrics[_ROWS])

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
