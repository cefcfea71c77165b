"""The statements DROP TABLE, TRUNCATE TABLE and REORG TABLE, and the clauses RENAME TO and SET LOCATION of ALTER
TABLE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext.parse.cursor import Cursor
from spark_ext.session import names, paths, spark_names, stores
from spark_ext.statements.context import Context, Target
from spark_ext.writing.targets import NameNotRegisteredError


def drop(context: Context, cursor: Cursor) -> DataFrame | None:
    """``DROP TABLE [IF EXISTS] t``: removes the name from the session's catalog; the files stay, unless a Unity Catalog
    manages the table. Returns no rows; None for a Spark table. Raises CallError for a table by path, and as
    ``TransactionManager.drop_table`` or ``UnityCatalog.drop_table``."""
    cursor.expect("drop")
    if not cursor.accept("table"):
        return None
    cursor.accept("if", "exists")
    named = context.named(cursor)
    if named.path is not None:
        raise deltalog.CallError(
            "DROP TABLE removes a name from the catalog, and cannot drop a table by path. If nothing reads the table "
            f"any more, delete the directory {named.path}; to delete its rows use DELETE or TRUNCATE TABLE."
        )
    if named.location is None:
        return None
    if names.setting_of(context.spark) == names.SPARK:
        spark_names.plain_sql(context.spark, cursor.statement.text)
        return context.nothing()
    if cursor.accept("purge"):
        raise cursor.error("PURGE is not supported: DROP TABLE keeps the files")
    cursor.finish()
    catalog = names.catalog_of(context.spark)
    if names.is_unity(catalog):
        _unity(context.spark, catalog, context.storage).drop_table(names.full_name(named.name))
    else:
        _manager(context.spark, named.name).drop_table(names.full_name(named.name))
    return context.nothing()


def truncate(context: Context, cursor: Cursor) -> DataFrame | None:
    """``TRUNCATE TABLE t``: removes all files in one commit, without reading rows. Returns no rows; None for a Spark
    table. Raises as ``deltalog.DeltaTable.overwrite``, and CallError for PARTITION."""
    cursor.expect("truncate", "table")
    found = context.target(cursor)
    if found is None:
        return None
    if cursor.accept("partition"):
        raise cursor.error("TRUNCATE TABLE removes all rows: use DELETE FROM … WHERE for a partition")
    cursor.finish()
    with found.core.transaction() as transaction:
        removed = transaction.remove_all_files()
        transaction.commit("TRUNCATE", {}, {"numRemovedFiles": removed})
    return context.nothing()


def reorg(context: Context, cursor: Cursor) -> DataFrame | None:
    """``REORG TABLE t [WHERE condition] APPLY (PURGE)``: rewrites files that have deletion vectors. Returns the
    metrics, like ``executeCompaction``; None for a Spark table."""
    cursor.expect("reorg")
    cursor.accept("table")
    found = context.target(cursor)
    if found is None:
        return None
    builder = found.table.optimize()
    if cursor.accept("where"):
        builder = builder.where(cursor.expression("the condition of REORG", "apply"))
    cursor.expect("apply", "(")
    if not cursor.accept("purge"):
        raise cursor.error("only APPLY (PURGE) is supported for a deltalog table")
    cursor.expect(")")
    cursor.finish()
    return builder.purged()


def rename(context: Context, cursor: Cursor, found: Target) -> None:
    """``RENAME TO name``: renames the table in the catalog; its files stay. Raises TableExistsError if the name is
    taken, NameNotRegisteredError if the old name was removed but the new one could not be registered."""
    old = _name_of(cursor, found, "RENAME TO")
    named = context.named(cursor)
    cursor.finish()
    if named.path is not None:
        raise cursor.error("RENAME TO takes a name, not a path")
    if names.setting_of(context.spark) == names.SPARK:
        spark_names.plain_sql(context.spark, cursor.statement.text)
        return
    new, catalog = names.full_name(named.name), names.catalog_of(context.spark)
    if not names.is_unity(catalog):
        _reregister(context.spark, found, old, new, found.core.url)
        return
    schema, _, table = new.partition(".")
    if schema != old.partition(".")[0]:
        raise deltalog.CallError(f"{old} cannot be renamed to {new}: the catalog {catalog} renames within a schema.")
    _unity(context.spark, catalog, context.storage).rename_table(old, table)


def set_location(context: Context, cursor: Cursor, found: Target) -> None:
    """``SET LOCATION 'path'``: makes the name refer to another table with the same columns. Raises SchemaMismatchError,
    TableNotFoundError, NameNotRegisteredError if the name was removed but could not be registered again."""
    name = _name_of(cursor, found, "SET LOCATION")
    location = cursor.string()
    cursor.finish()
    storage = stores.checked(context.storage or {})
    other = paths.open_table(context.spark, location, context.allowed_paths, storage).snapshot()
    ours = found.core.snapshot()
    if _shape(other) != _shape(ours):
        raise deltalog.SchemaMismatchError(
            f"The table at {location} has other columns than {name}: {other.schema.names} instead of "
            f"{ours.schema.names}, or other types or partition columns. Register it under another name."
        )
    setting = names.setting_of(context.spark)
    if setting == names.SPARK:
        spark_names.plain_sql(context.spark, cursor.statement.text)
        return
    if names.is_unity(setting):
        raise deltalog.CallError(f"The catalog {setting} chooses the locations of its tables: SET LOCATION cannot.")
    _reregister(context.spark, found, name, name, location)


def _shape(snapshot: deltalog.Snapshot) -> object:
    return [(field.name, field.data_type) for field in snapshot.schema], snapshot.partition_columns


def _name_of(cursor: Cursor, found: Target, what: str) -> str:
    if found.name is None:
        raise deltalog.CallError(f"{what} changes a name in the catalog, and {found.core.url} is a path.")
    return names.full_name(found.name)


def _reregister(spark: SparkSession, found: Target, old: str, new: str, url: str) -> None:
    """Remove the name ``old`` and register the table at ``url`` as ``new``. The catalog has no single call that does
    both atomically."""
    manager = _manager(spark, new)
    if new != old and any(record.name == new for record in manager.list_tables()):
        raise deltalog.TableExistsError(f"The catalog {names.catalog_of(spark)} already has a table {new}.")
    manager.drop_table(old)
    try:
        manager.register_table(new, url)
    except deltalog.DeltaLogError as error:
        try:
            manager.register_table(old, found.core.url)
        except deltalog.DeltaLogError:
            raise NameNotRegisteredError(_half_done(spark, old, new, url, error), name=new, url=url) from error
        raise  # the old name has been registered again, so only the error is reported


def _half_done(spark: SparkSession, old: str, new: str, url: str, error: deltalog.DeltaLogError) -> str:
    catalog = names.catalog_of(spark)
    return (
        f"The name {old} was removed from the catalog {catalog}, but {new} could not be registered for the table at "
        f"{url}: {error.message} The table itself is unchanged. Call deltalog.TransactionManager({catalog!r})"
        f".register_table({new!r}, {url!r})."
    )


def _unity(spark: SparkSession, catalog: str, storage: Mapping[str, Any] | None) -> deltalog.UnityCatalog:
    return names.unity_catalog(catalog, paths.storage_of(spark, names.prefix_of(catalog), storage))


def _manager(spark: SparkSession, name: str) -> deltalog.TransactionManager:
    storage = paths.storage_of(spark, names.location_of(spark, name), {})
    return deltalog.TransactionManager(names.catalog_of(spark), **storage)
