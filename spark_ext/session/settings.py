"""Settings that make the files of a Spark job valid, whatever the settings of the session and of Hadoop are."""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

# Settings that the Parquet files of a Delta table require. Spark's default INT96 timestamps have no statistics; some
# readers support neither the Julian calendar nor the legacy layout of lists; column mapping by id needs field ids; the
# commit protocol determines the files of a job.
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
# From the Spark version SHREDS_VARIANTS on, this write option determines whether Spark shreds variants, with typed
# columns that it chooses by the first rows of each file. Before that, a setting prevents it.
SHREDS_VARIANTS = (4, 1)
SHREDDING_OPTION = "spark.sql.variant.inferShreddingSchema"
SETTINGS_FOR_VARIANTS: Mapping[str, str] = {"spark.sql.variant.writeShredding.enabled": "false"}
# The first Spark version in which a write takes the timestamp setting as an option. Writes take all other settings from
# the session.
TIMESTAMP_SETTING_AS_OPTION = (4, 2)
# Write options that become Hadoop settings of the job. With version 2 of the committer's algorithm, the files of failed
# tasks would remain; with another base name, files could be hidden.
OPTIONS: Mapping[str, str] = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.cleanup.skipped": "false",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.output.basename": "part",
    "parquet.summary.metadata.level": "NONE",
    # A file system that writes no .crc files, because such files would have to be removed after the job.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Without this setting, Hadoop returns a cached file system that was created before ``fs.file.impl`` changed.
    "fs.file.impl.disable.cache": "true",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
}
_PROBE = "spark.deltalog.probe"


def spark_version(spark: SparkSession) -> tuple[int, int]:
    """The major and minor version of Spark."""
    match = re.match(r"(\d+)\.(\d+)", spark.version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def is_connect(spark: SparkSession) -> bool:
    """Whether a session uses Spark Connect. Cost: none."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@dataclass
class _SharedSettings:
    """The session settings that concurrent writes share, and their values before the first of these writes."""

    session: SparkSession
    keys: frozenset[str]
    writes: int
    before: Mapping[str, str | None]


_lock = threading.Lock()
_held: list[_SharedSettings] = []


@contextlib.contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to the session during a write. Settings that already have the required value are not changed.

    Concurrent writes in one session share the changed settings, even through different SparkSession objects: the
    settings of the first write apply to all of them, and the last write to finish restores the previous values.
    """
    if not settings:
        yield
        return
    keys = frozenset(settings)
    with _lock:
        held = next((each for each in _held if each.keys == keys and _are_one(each.session, spark)), None)
        if held is None:
            other = {key: value for key, value in settings.items() if spark.conf.get(key).upper() != value.upper()}
            held = _SharedSettings(spark, keys, 0, {key: spark.conf.get(key, None) for key in other})
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
    """Whether both objects stand for the same session in the JVM and therefore share settings."""
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
        return False  # another thread stopped the session
