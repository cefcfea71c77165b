"""DROP TABLE, TRUNCATE TABLE, REORG TABLE in SQL, and the names of tables in ALTER TABLE."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext.parse.cursor import Cursor
from spark_ext.session import names, paths, stores
from spark_ext.statements.context import Context, Target
from spark_ext.writing.targets import NameNotRegisteredError


def drop(context: Context, cursor: Cursor) -> DataFrame | None:
    """``DROP TABLE [IF EXISTS] t``: the catalog of the session forgets the name, and the files stay. Returns no rows;
    None for a table of Spark. Raises CallError for a table by its path, and as ``TransactionManager.drop_table``."""
    cursor.expect("drop")
    if not cursor.accept("table"):
        return None
    cursor.accept("if", "exists")
    named = context.named(cursor)
    if named.path is not None:
        raise deltalog.CallError(
            "DROP TABLE cannot drop a table by its path, which has no name to forget. Delete the directory "
            f"{named.path} if nothing reads it any more, or its rows with DELETE or TRUNCATE TABLE."
        )
    if named.location is None:
        return None
    if cursor.accept("purge"):
        raise cursor.error("PURGE is not available: DROP TABLE keeps the files")
    cursor.finish()
    _manager(context.spark, named.name).drop_table(names.full_name(named.name))
    return context.nothing()


def truncate(context: Context, cursor: Cursor) -> DataFrame | None:
    """``TRUNCATE TABLE t``: removes all rows, in one commit that reads none. Returns no rows; None for a table of
    Spark. Raises as ``DeltaTable.overwrite`` of deltalog, and CallError for PARTITION."""
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
    """``REORG TABLE t [WHERE condition] APPLY (PURGE)``: rewrites the files with deletion vectors. Returns as
    ``DeltaTable.optimize``; None for a table of Spark."""
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
        raise cursor.error("only PURGE can be applied to a table of deltalog")
    cursor.expect(")")
    cursor.finish()
    return builder.purged()


def rename(context: Context, cursor: Cursor, found: Target) -> None:
    """``RENAME TO name``: another name in the catalog; files stay where they are. Raises TableExistsError for a name
    that is taken, NameNotRegisteredError where only the old name was removed."""
    old = _name_of(cursor, found, "RENAME TO")
    named = context.named(cursor)
    cursor.finish()
    if named.path is not None:
        raise cursor.error("RENAME TO takes a name, not a path")
    new = names.full_name(named.name)
    _move(context.spark, found, old, new, found.core.url)


def set_location(context: Context, cursor: Cursor, found: Target) -> None:
    """``SET LOCATION 'path'``: the name of another table, which has the same columns. Raises SchemaMismatchError,
    TableNotFoundError, NameNotRegisteredError where only the old location was removed."""
    name = _name_of(cursor, found, "SET LOCATION")
    location = cursor.string()
    cursor.finish()
    storage = stores.checked(context.storage or {})
    other = paths.open_table(context.spark, location, context.allowed_paths, storage).snapshot()
    ours = found.core.snapshot()
    if _shape(other) != _shape(ours):
        raise deltalog.SchemaMismatchError(
            f"The table at {location} has other columns than {name}: {other.schema.names} instead of "
            f"{ours.schema.names}, or other types or partition columns. Give the table another name."
        )
    _move(context.spark, found, name, name, location)


def _shape(snapshot: deltalog.Snapshot) -> object:
    return [(field.name, field.data_type) for field in snapshot.schema], snapshot.partition_columns


def _name_of(cursor: Cursor, found: Target, what: str) -> str:
    if found.name is None:
        raise deltalog.CallError(f"{what} changes what the catalog says of a name, and {found.core.url} is a path.")
    return names.full_name(found.name)


def _move(spark: SparkSession, found: Target, old: str, new: str, url: str) -> None:
    """Register a table under a name instead of another one. The catalog has no call that does both at once."""
    manager = _manager(spark, new)
    if new != old and any(record.name == new for record in manager.list_tables()):
        raise deltalog.TableExistsError(f"The catalog {names.catalog_of(spark)} has a table {new} already.")
    manager.drop_table(old)
    try:
        manager.register_table(new, url)
    except deltalog.DeltaLogError as error:
        try:
            manager.register_table(old, found.core.url)
        except deltalog.DeltaLogError:
            raise NameNotRegisteredError(_half_moved(spark, old, new, url, error), name=new, url=url) from error
        raise  # as it was before


def _half_moved(spark: SparkSession, old: str, new: str, url: str, error: deltalog.DeltaLogError) -> str:
    catalog = names.catalog_of(spark)
    return (
        f"The name {old} was removed from the catalog {catalog}, and {new} was not entered for the table at {url}: "
        f"{error.message} Its rows are where they were. Call deltalog.TransactionManager({catalog!r}).register_table("
        f"{new!r}, {url!r})."
    )


def _manager(spark: SparkSession, name: str) -> deltalog.TransactionManager:
    storage = paths.storage_of(spark, names.location_of(spark, name), {})
    return deltalog.TransactionManager(names.catalog_of(spark), **storage)
