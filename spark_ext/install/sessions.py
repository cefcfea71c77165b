"""Patches a session's statements, its access to tables by name, and its catalog."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_ext.install.errors import translated
from spark_ext.install.patches import Patches, inside
from spark_ext.install.readers import session_of, table_of
from spark_ext.reading.reader import read
from spark_ext.session import names
from spark_ext.statements.session_sql import sql

_CATALOG = "spark.sql.catalog.spark_catalog"
_THEIR_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_BUILTIN = "builtin"


def add(patches: Patches, session: Any, catalog: Any) -> None:
    """Patch the classes of sessions and of ``spark.catalog``."""
    patches.method(session, "sql", _sql)
    patches.method(session, "table", _table)
    patches.method(catalog, "tableExists", _exists)
    patches.method(catalog, "listTables", _list)


def without_their_catalog(spark: SparkSession) -> bool:
    """Let a session that was configured for delta-spark use Spark's own catalog, because delta-spark's catalog cannot
    be loaded without delta-spark's jar. Whether that was necessary."""
    if spark.conf.get(_CATALOG, None) != _THEIR_CATALOG:
        return False
    spark.conf.set(_CATALOG, _BUILTIN)
    return True


def with_their_catalog(spark: SparkSession) -> None:
    """Undo ``without_their_catalog``."""
    spark.conf.set(_CATALOG, _THEIR_CATALOG)


def _sql(original: Any, spark: SparkSession, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
    if not all(isinstance(value, DataFrame) for value in kwargs.values()):
        found: DataFrame = original(spark, sqlQuery, args, **kwargs)
        return found
    with translated(), inside():
        return sql(spark, sqlQuery, args, **kwargs)


def _table(original: Any, spark: SparkSession, tableName: str) -> DataFrame:
    with translated(), inside():
        location = table_of(spark, tableName)
        if location is not None:
            return read(spark).load(location)
    found: DataFrame = original(spark, tableName)
    return found


def _exists(original: Any, catalog: Any, tableName: str, dbName: str | None = None) -> bool:
    if original(catalog, tableName, dbName):
        return True
    spark = session_of(catalog)
    name = tableName if dbName is None else f"`{dbName}`.`{tableName}`"
    with inside():
        return _is_of_deltalog(spark) and table_of(spark, name) is not None


def _list(original: Any, catalog: Any, dbName: str | None = None, pattern: str | None = None) -> Any:
    spark = session_of(catalog)
    with inside():
        if not _is_of_deltalog(spark):
            return original(catalog, dbName, pattern)
        from pyspark.sql.catalog import Table

        schema = dbName or spark.catalog.currentDatabase()
        like = "" if pattern is None else " LIKE '" + pattern.replace("'", "\\'") + "'"
        rows = sql(spark, f"SHOW TABLES IN `{schema}`{like}").collect()
    theirs = original(catalog, dbName, pattern) if spark.catalog.databaseExists(schema) else []
    known = {(table.name, bool(table.isTemporary)) for table in theirs}
    more = [row["tableName"] for row in rows if (row["tableName"], bool(row["isTemporary"])) not in known]
    return [*theirs, *(Table(name, "spark_catalog", [schema], None, "MANAGED", False) for name in more)]


def _is_of_deltalog(spark: SparkSession) -> bool:
    """Whether table names refer to a catalog of deltalog, which is unknown to Spark."""
    return names.setting_of(spark) not in (None, names.SPARK)
