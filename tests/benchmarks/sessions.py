"""Spark sessions of the benchmarks. The sessions of the tests are for short work: without the JVM's second compiler,
and with one task when delta-spark reads a log. Here both are as in production, for two cores."""

from __future__ import annotations

from typing import Any

from tests.support.spark.session import delta_session, plain_session

_JAVA = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
_DELTA = {"spark.databricks.delta.snapshotPartitions": "8"}


def with_delta_spark(**conf: str) -> Any:
    """The session that has delta-spark."""
    return delta_session(**{**_JAVA, **_DELTA, **conf})


def without_jars(**conf: str) -> Any:
    """The session that has pyspark's jars only."""
    return plain_session(**{**_JAVA, **conf})
