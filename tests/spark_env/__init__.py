"""Support for tests that run Spark: Java, the delta-spark jars, sessions, questions to delta-spark."""

from tests.spark_env.jars import SparkEnvironmentError, delta_jars, java_major, require_java
from tests.spark_env.oracle import DeltaSpark, probe_times, sql_time
from tests.spark_env.rows import plain_rows
from tests.spark_env.session import (
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
