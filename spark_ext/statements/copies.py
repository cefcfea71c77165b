"""CONVERT TO DELTA, CREATE TABLE … CLONE and GENERATE in SQL: parsed, and executed by the methods of DeltaTable."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from spark_ext.delta_table import DeltaTable, cloned
from spark_ext.parse.cursor import Cursor
from spark_ext.reading.reader import timestamp_ms
from spark_ext.session.stores import checked
from spark_ext.statements import column_definitions
from spark_ext.statements.context import Context, Named

# The metrics that a CLONE returns, keyed by the column names in delta-spark's result.
_CLONED = {
    "source_table_size": "sourceTableSize",
    "source_num_of_files": "sourceNumOfFiles",
    "num_removed_files": "numRemovedFiles",
    "num_copied_files": "numCopiedFiles",
    "removed_files_size": "removedFilesSize",
    "copied_files_size": "copiedFilesSize",
}


def convert(context: Context, cursor: Cursor) -> DataFrame:
    """``CONVERT TO DELTA parquet.`path` [NO STATISTICS] [PARTITIONED BY (name type, …)]``. Returns no rows. NO
    STATISTICS is ignored: statistics are always collected. Raises as ``DeltaTable.convertToDelta``."""
    cursor.expect("convert", "to", "delta")
    start = cursor.at
    cursor.expect("parquet", ".")
    cursor.identifier()
    identifier = "".join(token.text for token in cursor.statement.tokens[start : cursor.at])
    cursor.accept("no", "statistics")
    columns = None
    if cursor.accept("partitioned", "by"):
        columns = spark_types.StructType(column_definitions.columns(cursor))
    cursor.finish()
    DeltaTable.convertToDelta(context.spark, identifier, columns, storage_options=context.storage)
    return context.nothing()


def is_clone(cursor: Cursor) -> bool:
    """Whether the next keywords are CLONE, SHALLOW CLONE or DEEP CLONE."""
    return cursor.word() == "clone" or (cursor.word() in ("shallow", "deep") and cursor.word(1) == "clone")


def clone(context: Context, cursor: Cursor, kind: str, named: Named) -> DataFrame:
    """The part of ``CREATE TABLE [IF NOT EXISTS] t [SHALLOW|DEEP] CLONE s [VERSION|TIMESTAMP AS OF value]
    [TBLPROPERTIES (…)]`` that follows the table name ``t``. Returns a row of metrics, as delta-spark does. Raises as
    ``DeltaTable.clone``."""
    if named.path is None:
        raise cursor.error("a clone needs a path: write delta.`path` instead of a name")
    if kind not in ("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"):
        raise cursor.error("a clone cannot replace a table")
    shallow = cursor.accept_one("shallow", "deep") == "shallow"
    cursor.expect("clone")
    source = context.target(cursor)
    if source is None:
        raise cursor.error("the source of a clone must be a deltalog table")
    point: dict[str, Any] = {}
    what = cursor.accept_one("version", "timestamp")
    if what:
        cursor.expect("as", "of")
        text = cursor.expression(f"the {what} of CLONE", "tblproperties")
        value = context.spark.sql(f"select cast(({text}) as string) as text").collect()[0]["text"]
        point = _point(context, cursor, what, value)
    properties = column_definitions.properties(cursor) if cursor.accept("tblproperties") else {}
    cursor.finish()
    if kind == "CREATE TABLE IF NOT EXISTS" and DeltaTable.isDeltaTable(
        context.spark, named.path, storage_options=context.storage
    ):
        return context.nothing()
    storage = checked(context.storage or {})
    target = cloned(context.spark, source.core, named.path, shallow, properties, storage, **point)
    metrics = target.history(1)[0].operation_metrics or {}
    return context.numbers(**{name: int(metrics[key]) for name, key in _CLONED.items()})


def _point(context: Context, cursor: Cursor, what: str, value: str) -> dict[str, Any]:
    if what == "timestamp":
        return {"timestamp": timestamp_ms(context.spark, value, "TIMESTAMP AS OF")}
    if not value.isdecimal():
        raise cursor.error(f"the version of CLONE must be a number, not {value!r}")
    return {"version": int(value)}


def generate(context: Context, cursor: Cursor) -> DataFrame | None:
    """``GENERATE symlink_format_manifest FOR TABLE t``. Returns no rows; None for a Spark table. Raises as
    ``DeltaTable.generate``."""
    cursor.expect("generate")
    mode = cursor.identifier()
    cursor.expect("for", "table")
    found = context.target(cursor)
    if found is None:
        return None
    cursor.finish()
    found.table.generate(mode.lower())
    return context.nothing()
