"""Streams that read from and write to Delta tables with ``readStream`` and ``writeStream``."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext.delta_table import DeltaTable
from spark_ext.install import calls
from spark_ext.install.errors import translated
from spark_ext.install.patches import Patches, inside
from spark_ext.install.readers import session_of, table_of
from spark_ext.session import names, spark_names
from spark_ext.stream.registration import register

_FORMAT = "deltalog"
_READY = "_deltalog_registered"


def add(patches: Patches, reader: Any, writer: Any) -> None:
    """Patch the classes of ``readStream`` and ``writeStream``, which ``spark_ext.stream.calls`` has patched before."""
    patches.method(reader, "format", _format)
    patches.method(writer, "format", _format)
    patches.method(writer, "toTable", _to_table)


def prepare(spark: SparkSession) -> None:
    """Register the data source ``deltalog`` in a session, once. Raises UnsupportedFeatureError before Spark 4.0."""
    if not vars(spark).get(_READY):
        with inside():
            register(spark)
        vars(spark)[_READY] = True


def _format(original: Any, of: Any, source: str) -> Any:
    calls.calls_of(of).source = source
    if not (isinstance(source, str) and source.lower() in calls.FORMATS):
        return original(of, source)
    with translated():
        prepare(session_of(of))
    return original(of, _FORMAT)


def _to_table(original: Any, writer: Any, tableName: str, format: str | None = None, *args: Any, **options: Any) -> Any:
    if format is not None:
        writer.format(format)
    spark, of = session_of(writer), calls.calls_of(writer)
    with translated():
        with inside():
            known = table_of(spark, tableName) is not None
        if of.source is None and known:
            writer.format(_FORMAT)
        if of.are_ours and not known:
            _create(spark, writer, tableName, options)
    return original(writer, tableName, None, *args, **options)


def _create(spark: SparkSession, writer: Any, name: str, options: Any) -> None:
    """Register the name of a new table in Spark's catalog; the stream creates the table."""
    rows = getattr(writer, "_df", None)
    if names.setting_of(spark) != names.SPARK or not isinstance(rows, DataFrame):
        return
    with inside():
        try:
            builder = DeltaTable.createIfNotExists(spark).tableName(name).addColumns(rows.schema)
            partition_by = options.pop("partitionBy", None) or ()
            listed = [partition_by] if isinstance(partition_by, str) else partition_by
            listed = [*listed, *vars(writer).get("_deltalog_calls", {}).get("partitionBy", ())]
            builder.partitionedBy(*listed).execute()
        except deltalog.DeltaLogError:
            spark_names.drop(spark, name)
            raise
