"""Spark sessions for the tests: with delta-spark, with S3A, without added jars, and over Spark Connect.

A JVM supports only one kind of session, and a process has only one JVM. Tests that need different kinds of session
therefore run in different pytest processes; a request for a second kind raises an error here, rather than returning a
session of the wrong kind.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from tests.support.spark.jars import (
    DELTA_VERSION,
    SPARK_LINE,
    SparkEnvironmentError,
    delta_jars,
    require_java,
    s3a_jars,
    uses_ivy,
)

# Spark treats a configuration without an appender as "not configured", and replaces it with its own.
_LOG4J = """\
status = off
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
rootLogger.level = off
rootLogger.appenderRef.console.ref = console
"""
# In a JVM that runs only for minutes, the C2 compiler does not pay off, and C1's small default code cache fills up,
# after which the JVM spends its time looking for free space in it.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
# PySpark sets some of these environment variables if the parent process has a Spark Connect session.
_OF_OTHER_WORK = (
    *("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_REMOTE", "SPARK_HOME", "SPARK_API_MODE"),
    *("SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"),
)
_DELTA_CLASS = "org.apache.spark.sql.delta.DeltaLog"
_sessions: dict[str, Any] = {}
_scratch: Path | None = None


def delta_session(**conf: str) -> Any:
    """The SparkSession with delta-spark's extension and catalog; `conf` has an effect only when the JVM starts."""
    if "delta" not in _sessions:
        _claim("delta")
        builder = _builder(conf)
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        # With the default of 50 partitions, each snapshot of a table with ten files would start fifty tasks, most of
        # them without work.
        if "spark.databricks.delta.snapshotPartitions" not in conf:
            builder = builder.config("spark.databricks.delta.snapshotPartitions", "1")
        if uses_ivy():
            from delta.pip_utils import configure_spark_with_delta_pip

            builder = configure_spark_with_delta_pip(builder)
        else:
            jars = delta_jars()
            more = [conf["spark.jars"]] if "spark.jars" in conf else []
            builder = builder.config("spark.jars", ",".join([*map(str, jars), *more]))
        session = _start(builder)
        found = session._jvm.io.delta.package.VERSION()
        if found != DELTA_VERSION:
            raise SparkEnvironmentError(f"delta-spark {found} was loaded, the tests are made for {DELTA_VERSION}")
    return _sessions["delta"]


def plain_session(**conf: str) -> Any:
    """A classic SparkSession with only pyspark's own jars, as `assert_no_delta` checks."""
    if "plain" not in _sessions:
        _claim("plain")
        assert_no_delta(_start(_builder(conf)))
    return _sessions["plain"]


def s3a_session(**conf: str) -> Any:
    """A classic SparkSession with the jars of Hadoop's S3A file system, but without delta-spark's."""
    if "s3a" not in _sessions:
        _claim("s3a")
        _start(_builder({**conf, "spark.jars": ",".join(map(str, s3a_jars()))}))
    return _sessions["s3a"]


def connect_session(**conf: str) -> Any:
    """A Spark Connect client session with a server in this process (`remote("local[2]")`), without added jars."""
    if "connect" not in _sessions:
        classic = _start_connect("connect", conf, "local[2]")
        if classic is not None:
            assert_no_delta(classic)
    return _sessions["connect"]


def s3a_connect_session(**conf: str) -> Any:
    """Like ``connect_session``, but the server has the jars of ``s3a_session``. A task may fail once."""
    if "s3a over Connect" not in _sessions:
        jars = ",".join(map(str, s3a_jars()))
        _start_connect("s3a over Connect", {**conf, "spark.jars": jars}, "local[2,2]")
    return _sessions["s3a over Connect"]


def _start_connect(kind: str, conf: dict[str, str], remote: str) -> Any:
    """Start a Spark Connect session. Returns the classic session that its server uses in this process, or None if there
    is none."""
    _claim(kind)
    # Without this variable the Spark Connect server listens on a fixed port, and two test runs on one machine collide.
    os.environ.setdefault("SPARK_TESTING", "0")
    with warnings.catch_warnings():
        # The client sends all settings to the server, which refuses static settings.
        warnings.filterwarnings("ignore", message="Failed to set spark")
        _start(_builder(conf, remote=remote))
    from pyspark.sql import SparkSession

    return SparkSession._instantiatedSession


def assert_no_delta(session: Any) -> None:
    """Raise an error if the classic session has an added jar or can load delta-spark's classes."""
    from py4j.protocol import Py4JJavaError

    jars = session.conf.get("spark.jars", "") + session.conf.get("spark.jars.packages", "")
    added = session.sparkContext._jsc.sc().listJars()
    if jars or not added.isEmpty():
        raise SparkEnvironmentError(f"the session without jars has jars: {jars!r} {added.mkString(',')!r}")
    try:
        session._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_DELTA_CLASS)
    except Py4JJavaError:
        return
    raise SparkEnvironmentError("delta-spark is on the class path of the session that must not have it")


def stop_sessions() -> None:
    """Stop all sessions. After this call the process cannot start another session."""
    for session in _sessions.values():
        if session is not None:
            session.stop()


def _claim(kind: str) -> None:
    if _sessions:
        (other,) = _sessions
        raise SparkEnvironmentError(
            f"this process already has a {other!r} Spark session and cannot have a {kind!r} one: "
            "run tests/interop, tests/spark, tests/spark_s3 and tests/spark_connect in separate pytest processes"
        )
    require_java()
    import pyspark

    if kind == "delta" and not pyspark.__version__.startswith(SPARK_LINE + "."):
        raise SparkEnvironmentError(
            f"delta-spark {DELTA_VERSION} needs Spark {SPARK_LINE}; pyspark is {pyspark.__version__}"
        )
    _sessions[kind] = None


def _start(builder: Any) -> Any:
    (kind,) = _sessions
    try:
        session = builder.getOrCreate()
    except BaseException:
        _sessions.clear()
        raise
    _sessions[kind] = session
    return session


def _builder(conf: dict[str, str], remote: str | None = None) -> Any:
    from pyspark.sql import SparkSession

    # Settings in the caller's environment for other Spark work must not affect the tests.
    for name in _OF_OTHER_WORK:
        os.environ.pop(name, None)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    scratch = _scratch_dir()
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    conf = dict(conf)
    java = f"-Dlog4j2.configurationFile={log4j.as_uri()} -Duser.timezone=UTC {_JAVA}"
    java = f"{java} {conf.pop('spark.driver.extraJavaOptions', '')}".strip()
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.log.level": "OFF",
        "spark.log.structuredLogging.enabled": "false",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }
    builder = SparkSession.builder.appName("deltalog tests")
    builder = builder.remote(remote) if remote else builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def _scratch_dir() -> Path:
    global _scratch
    if _scratch is None:
        _scratch = Path(tempfile.mkdtemp(prefix="deltalog-spark-"))
        (_scratch / "local").mkdir()
        atexit.register(shutil.rmtree, _scratch, ignore_errors=True)
    return _scratch
