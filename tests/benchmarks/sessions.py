"""Spark sessions of the benchmarks. The sessions of the tests are tuned for short work: they disable the JVM's second
compiler (C2), and delta-spark reads a log with one task. The sessions here use production settings, for two cores."""

from __future__ import annotations

from typing import Any

from tests.support.spark.session import delta_session, plain_session

_JAVA = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
_DELTA = {"spark.databricks.delta.snapshotPartitions": "8"}


def with_delta_spark(**conf: str) -> Any:
    """A session with delta-spark."""
    return delta_session(**{**_JAVA, **_DELTA, **conf})


def without_jars(**conf: str) -> Any:
    """A Spark session whose only jars are those of pyspark."""
    return plain_session(**{**_JAVA, **conf})
