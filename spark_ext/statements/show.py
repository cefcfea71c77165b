"""DESCRIBE TABLE and SHOW in SQL, answered from the log with the rows that delta-spark returns."""

from __future__ import annotations

import fnmatch
import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.parse.cursor import Cursor
from spark_ext.reading.reader import read, resolve
from spark_ext.session import names, paths, stores
from spark_ext.statements.context import Context, Named
from spark_ext.types import to_spark

_DESCRIBED = "col_name string not null, data_type string not null, comment string"
_Row = tuple[str | None, ...]


def describe(context: Context, cursor: Cursor) -> DataFrame | None:
    """``DESCRIBE [TABLE] [EXTENDED | FORMATTED] t``. None for a Spark table, and if something follows the name, such as
    a column. Raises as ``Reader.load``."""
    cursor.accept_one("describe", "desc")
    cursor.accept("table")
    is_extended = bool(cursor.accept_one("extended", "formatted"))
    named = context.named(cursor)
    if not cursor.is_at_end:
        return None
    snapshot = _snapshot(context, named)
    if snapshot is None:
        return None
    rows = [*_columns(snapshot), *(_details(snapshot, named) if is_extended else ())]
    return context.spark.createDataFrame(rows, _DESCRIBED)


def _columns(snapshot: deltalog.Snapshot) -> list[_Row]:
    fields = {field.name: field for field in to_spark(snapshot.schema).fields}
    row = {name: (name, each.dataType.simpleString(), each.metadata.get("comment")) for name, each in fields.items()}
    rows: list[_Row] = list(row.values())
    if snapshot.partition_columns:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [row[name] for name in snapshot.partition_columns]
    if snapshot.clustering_columns:
        rows += [("# Clustering Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [row.get(".".join(path), (".".join(path), "", None)) for path in snapshot.clustering_columns]
    return rows


def _details(snapshot: deltalog.Snapshot, named: Named) -> list[_Row]:
    schema, _, table = (
        ("delta", "", named.path) if named.path is not None else names.full_name(named.name).partition(".")
    )
    given = {
        "Catalog": "spark_catalog",
        "Namespace": schema,
        "Database": schema,
        "Table": table,
        "Type": "MANAGED",
        "Comment": snapshot.metadata.description,
        "Location": paths.uri(snapshot.url),
        "Provider": "delta",
        "Table Properties": "[" + ",".join(f"{key}={value}" for key, value in _properties(snapshot)) + "]",
    }
    rows: list[_Row] = [("", "", ""), ("# Detailed Table Information", "", "")]
    rows += [(name, text, "") for name, text in given.items() if text is not None]
    defaults = [field for field in snapshot.schema if "CURRENT_DEFAULT" in field.metadata]
    if defaults:
        kinds = {field.name: field.dataType.simpleString() for field in to_spark(snapshot.schema).fields}
        rows += [("", "", ""), ("# Column Default Values", "", "")]
        rows += [(each.name, kinds[each.name], str(each.metadata["CURRENT_DEFAULT"])) for each in defaults]
    return rows


def _properties(snapshot: deltalog.Snapshot) -> list[tuple[str, str]]:
    """The table properties, listed table features and protocol versions, sorted by key."""
    protocol = snapshot.protocol
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return sorted(
        {
            **snapshot.metadata.configuration,
            **{f"delta.feature.{name}": "supported" for name in listed},
            "delta.minReaderVersion": str(protocol.min_reader_version),
            "delta.minWriterVersion": str(protocol.min_writer_version),
        }.items()
    )


def show(context: Context, cursor: Cursor) -> DataFrame | None:
    """``SHOW TBLPROPERTIES t [(key)]``, ``SHOW PARTITIONS t``, ``SHOW TABLES [IN schema] [[LIKE] pattern]``. None for
    other statements and for a Spark table. Raises UnsupportedFeatureError for SHOW CREATE TABLE, and as
    ``Reader.load``."""
    cursor.expect("show")
    if cursor.accept("tblproperties"):
        return _show_properties(context, cursor)
    if cursor.accept("partitions"):
        return _show_partitions(context, cursor)
    if cursor.accept("tables"):
        return _show_tables(context, cursor)
    if cursor.accept("create", "table"):
        named = context.named(cursor)
        if named.path is not None or named.location is not None:
            raise deltalog.UnsupportedFeatureError(
                "As in delta-spark, SHOW CREATE TABLE is not supported for deltalog tables. DESCRIBE EXTENDED shows "
                "the columns and the location, SHOW TBLPROPERTIES the properties.",
                features=("SHOW CREATE TABLE",),
            )
    return None


def _show_properties(context: Context, cursor: Cursor) -> DataFrame | None:
    named = context.named(cursor)
    snapshot = _snapshot(context, named)
    if snapshot is None:
        return None
    rows = _properties(snapshot)
    if cursor.accept("("):
        key = cursor.string() if cursor.token.kind == "string" else cursor.path()
        cursor.expect(")")
        rows = [(key, dict(rows).get(key, f"Table {named.name} does not have property: {key}"))]
    cursor.finish()
    return context.spark.createDataFrame(rows, "key string not null, value string not null")


def _show_partitions(context: Context, cursor: Cursor) -> DataFrame | None:
    named = context.named(cursor)
    snapshot = _snapshot(context, named)
    if snapshot is None:
        return None
    if cursor.accept("partition"):
        raise cursor.error("SHOW PARTITIONS of a deltalog table shows all partitions: leave PARTITION out")
    cursor.finish()
    if not snapshot.partition_columns:
        raise deltalog.CallError(
            f"The table at {snapshot.url} is not partitioned, so SHOW PARTITIONS has no rows to show."
        )
    reader = read(context.spark)
    if named.path is not None:
        reader = reader.storage_options(**context.storage or {})
    location = named.path if named.location is None else named.location
    assert location is not None
    columns = list(snapshot.partition_columns)
    return reader.partitions(location).select(*columns).orderBy(*columns)


def _show_tables(context: Context, cursor: Cursor) -> DataFrame | None:
    """Spark's tables, and the tables of the session's deltalog catalog."""
    spark = context.spark
    if names.setting_of(spark) == names.SPARK:
        return None
    schema = cursor.identifier() if cursor.accept_one("in", "from") else None
    cursor.accept("like")
    pattern = None if cursor.is_at_end else cursor.string()
    cursor.finish()
    wanted = str(spark.catalog.currentDatabase()) if schema is None else schema
    catalog = names.catalog_of(spark)
    if names.is_unity(catalog):
        storage = paths.storage_of(spark, names.prefix_of(catalog), context.storage)
        found = [each.name for each in names.unity_catalog(catalog, storage).tables(wanted)]
    else:
        records = deltalog.TransactionManager(catalog).list_tables()
        found = [name for each in records for of, _, name in [each.name.partition(".")] if of == wanted]
    ours = [(wanted, name, False) for name in found if _is_like(name, pattern)]
    rows = spark.createDataFrame(ours, "namespace string, tableName string, isTemporary boolean")
    if ours and not spark.catalog.databaseExists(wanted):
        return rows.orderBy("tableName")
    theirs = spark.sql(cursor.statement.text)
    return theirs.unionByName(rows).orderBy(F.col("isTemporary"), F.col("tableName"))


def _is_like(name: str, pattern: str | None) -> bool:
    """Match as Spark does: ``*`` matches any text, ``|`` separates patterns, and case is ignored."""
    if pattern is None:
        return True
    parts = [re.sub(r"([\[\]?])", r"[\1]", part.strip()) for part in pattern.lower().split("|")]
    return any(fnmatch.fnmatchcase(name.lower(), part) for part in parts)


def _snapshot(context: Context, named: Named) -> deltalog.Snapshot | None:
    location = named.path if named.location is None else named.location
    if location is None:
        return None
    if isinstance(location, deltalog.DeltaTable):
        return location.snapshot()
    storage = stores.checked(context.storage or {}) if named.path is not None else None
    return resolve(context.spark, location, None, at_ms=None, allowed_paths=context.allowed_paths, storage=storage)
