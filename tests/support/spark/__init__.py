"""Support for tests that run Spark: Java, the delta-spark jars, sessions, and queries through delta-spark."""

from tests.support.spark.jars import SparkEnvironmentError, delta_jars, java_major, require_java
from tests.support.spark.oracle import DeltaSpark, probe_times, sql_time
from tests.support.spark.rows import plain_rows
from tests.support.spark.session import (
    assert_no_delta,
    connect_session,
    delta_session,
    plain_session,
    stop_sessions,
)

__all__ = [
    "DeltaSpark",
    "SparkEnvironmentError",
    "assert_no_delta",
    "connect_session",
    "delta_jars",
    "delta_session",
    "java_major",
    "plain_rows",
    "plain_session",
    "probe_times",
    "require_java",
    "sql_time",
    "stop_sessions",
]
