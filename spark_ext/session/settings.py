"""Settings that a Spark job needs to write valid files, independent of its session and its Hadoop configuration."""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

# Requirements of the Parquet files of a Delta table: Spark's default INT96 timestamps have no statistics; not every
# reader expects another calendar or another layout of lists; columns that are mapped by id need field ids. The commit
# protocol decides which files are the job's.
TIMESTAMP_SETTING = "spark.sql.parquet.outputTimestampType"
SETTINGS: Mapping[str, str] = {
    TIMESTAMP_SETTING: "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
}
# For a table with variants: shredded ones need another feature of the table.
SETTINGS_FOR_VARIANTS: Mapping[str, str] = {"spark.sql.variant.writeShredding.enabled": "false"}
# Since this version of Spark a write takes the first of them as an option (the others only from the session).
TIMESTAMP_SETTING_AS_OPTION = (4, 2)
# Options of a write that become settings of Hadoop for it. Committers of another algorithm leave files of tasks that
# failed; files with another base name can be hidden ones.
OPTIONS: Mapping[str, str] = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.cleanup.skipped": "false",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.output.basename": "part",
    "parquet.summary.metadata.level": "NONE",
    # A file system without a checksum file beside each file, which would be removed after the job.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",  # else the one of the process, for which this setting comes too late
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
}
_PROBE = "spark.deltalog.probe"


def spark_version(spark: SparkSession) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", spark.version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect. Cost: none."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@dataclass
class _Held:
    """Settings of a session in which writes run, and their values before the first of them."""

    session: SparkSession
    keys: frozenset[str]
    writes: int
    before: Mapping[str, str | None]


_lock = threading.Lock()
_held: list[_Held] = []


@contextlib.contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set settings of the session for the time of a write; those that it has already are not changed.

    Writes of several threads share one change of the same settings, with the values of the first, also if each has a
    separate SparkSession object for the session; the last one to end restores the settings from before the first.
    """
    if not settings:
        yield
        return
    keys = frozenset(settings)
    with _lock:
        held = next((each for each in _held if each.keys == keys and _are_one(each.session, spark)), None)
        if held is None:
            other = {key: value for key, value in settings.items() if spark.conf.get(key).upper() != value.upper()}
            held = _Held(spark, keys, 0, {key: spark.conf.get(key, None) for key in other})
            for key, value in other.items():
                spark.conf.set(key, value)
            _held.append(held)
        held.writes += 1
    try:
        yield
    finally:
        with _lock:
            held.writes -= 1
            if not held.writes:
                _held.remove(held)
                for key, earlier in held.before.items():
                    if earlier is None:
                        spark.conf.unset(key)
                    else:
                        spark.conf.set(key, earlier)


def _are_one(one: SparkSession, other: SparkSession) -> bool:
    """Whether both are one session of the JVM, so that a setting of one applies to the other."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    value = str(uuid.uuid4())
    try:
        one.conf.set(_PROBE, value)
        try:
            return bool(other.conf.get(_PROBE, None) == value)
        finally:
            one.conf.unset(_PROBE)
    except Exception:
        return False  # it was stopped concurrently
