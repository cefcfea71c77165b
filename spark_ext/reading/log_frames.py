"""DESCRIBE HISTORY and DESCRIBE DETAIL as DataFrames, from the log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext.session import paths, stores
from spark_ext.session.paths import Location

# The columns of delta-spark's DESCRIBE HISTORY and DESCRIBE DETAIL, then deltalog's own. Times are milliseconds since
# 1970 here, and timestamps in the DataFrame.
_HISTORY = """
    version bigint, timestamp bigint, userId string, userName string, operation string,
    operationParameters map<string, string>,
    job struct<jobId string, jobName string, jobRunId string, runId string, jobOwnerId string, triggerType string>,
    notebook struct<notebookId string>, clusterId string, readVersion bigint, isolationLevel string,
    isBlindAppend boolean, operationMetrics map<string, string>, userMetadata string, engineInfo string,
    inCommitTimestamp bigint
"""
_JOB = ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")
_DETAIL = """
    format string, id string, name string, description string, location string, createdAt bigint,
    lastModified bigint, partitionColumns array<string>, clusteringColumns array<string>, numFiles bigint,
    sizeInBytes bigint, properties map<string, string>, minReaderVersion int, minWriterVersion int,
    tableFeatures array<string>
"""


def history(
    spark: SparkSession,
    path: Location,
    limit: int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The commits, newest first, with the columns of delta-spark's DESCRIBE HISTORY and ``inCommitTimestamp``. Values
    that the log does not contain are null. ``limit``: the number of commits, by default all. ``storage_options``: as
    for ``Reader.storage_options``.

    ``timestamp`` is the time that time travel uses; null if the commit lacks a required in-commit timestamp.
    Raises TableNotFoundError, CallError. Cost: as ``DeltaTable.history``; no Spark job.
    """
    rows = [_commit_row(entry) for entry in _open(spark, path, storage_options).history(limit)]
    return _frame(spark, rows, _HISTORY, ("timestamp", "inCommitTimestamp"))


def detail(spark: SparkSession, path: Location, *, storage_options: Mapping[str, Any] | None = None) -> DataFrame:
    """One row that describes the latest version, with the columns of delta-spark's DESCRIBE DETAIL. ``lastModified`` is
    the time of the version's commit. Raises TableNotFoundError. Cost: as ``DeltaTable.open``, and at most 1 GET or 1
    HEAD; as ``Snapshot.files`` if the version has no usable ``.crc``; no Spark job.
    """
    snapshot = _open(spark, path, storage_options).snapshot()
    metadata, protocol = snapshot.metadata, snapshot.protocol
    row = (
        "delta",
        metadata.id,
        metadata.name,
        metadata.description,
        paths.uri(snapshot.url),
        metadata.created_time,
        snapshot.timestamp_ms,
        list(snapshot.partition_columns),
        [".".join(column) for column in snapshot.clustering_columns],
        snapshot.num_files,
        snapshot.size_bytes,
        dict(metadata.configuration),
        protocol.min_reader_version,
        protocol.min_writer_version,
        list(snapshot.table_features),
    )
    return _frame(spark, [row], _DETAIL, ("createdAt", "lastModified"))


def _open(spark: SparkSession, path: Location, storage: Mapping[str, Any] | None) -> deltalog.DeltaTable:
    return paths.open_table(spark, path, storage=stores.checked(storage or {}))


def _commit_row(entry: deltalog.CommitEntry) -> tuple[Any, ...]:
    info = entry.commit_info
    job, notebook = info.get("job"), info.get("notebook")
    return (
        entry.version,
        entry.timestamp_ms,
        _text(info.get("userId")),
        _text(info.get("userName")),
        entry.operation,
        _texts(entry.operation_parameters),
        tuple(_text(job.get(name)) for name in _JOB) if isinstance(job, Mapping) else None,
        (_text(notebook.get("notebookId")),) if isinstance(notebook, Mapping) else None,
        _text(info.get("clusterId")),
        entry.read_version,
        entry.isolation_level,
        entry.is_blind_append,
        _texts(entry.operation_metrics),
        entry.user_metadata,
        entry.engine_info,
        entry.in_commit_timestamp_ms,
    )


def _texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str | None:
    """Returns a string unchanged, and any other value as JSON text."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _frame(spark: SparkSession, rows: Sequence[Any], columns: str, times: Sequence[str]) -> DataFrame:
    """Converts rows, in which times are in milliseconds, to a DataFrame with timestamps."""
    df = spark.createDataFrame(list(rows), columns)
    return df.selectExpr(*[f"timestamp_millis({name}) as {name}" if name in times else name for name in df.columns])
