"""ALTER TABLE, RESTORE, VACUUM, ANALYZE and OPTIMIZE in SQL: parsed, and executed by the methods of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

import deltalog
from spark_ext.delta_table import DeltaTable, vacuum_options
from spark_ext.maintenance.vacuum import vacuumed
from spark_ext.parse.cursor import Cursor
from spark_ext.parse.table_references import unquoted
from spark_ext.reading.reader import timestamp_ms
from spark_ext.statements import column_definitions, drop
from spark_ext.statements.context import Context, Target
from spark_ext.types import from_spark
from spark_ext.writing.table_builder import type_of

_SUPPORTED = (
    "Supported: ADD COLUMNS, RENAME COLUMN, DROP COLUMNS, ALTER COLUMN, CLUSTER BY, SET and UNSET TBLPROPERTIES, ADD "
    "and DROP CONSTRAINT, DROP FEATURE, RENAME TO, SET LOCATION"
)


def alter(context: Context, cursor: Cursor) -> DataFrame | None:
    """``ALTER TABLE t …``. Returns no rows; None for a Spark table. Raises as the method of ``deltalog.DeltaTable``
    that makes the change."""
    cursor.expect("alter")
    if not cursor.accept("table"):
        return None
    found = context.target(cursor)
    if found is None:
        return None
    for words, change_name in _NAME_CHANGES.items():
        if cursor.accept(*words):
            change_name(context, cursor, found)
            return context.nothing()
    for words, change in _CHANGES.items():
        if cursor.accept(*words):
            change(context, cursor, found.core)
            return context.nothing()
    raise cursor.error(f"ALTER TABLE of a deltalog table does not support this. {_SUPPORTED}")


def _add_columns(context: Context, cursor: Cursor, table: deltalog.DeltaTable) -> None:
    places: dict[str, str | None] = {}
    is_listed = cursor.word() == "("
    found = column_definitions.columns(cursor, places) if is_listed else [column_definitions.column(cursor, places)]
    while cursor.accept(","):
        found.append(column_definitions.column(cursor, places))
    cursor.finish()
    table.add_columns(from_spark(spark_types.StructType(found)), after=places)


def _rename_column(context: Context, cursor: Cursor, table: deltalog.DeltaTable) -> None:
    old = cursor.path()
    cursor.expect("to")
    new = cursor.identifier()
    cursor.finish()
    table.rename_column(old, new)


def _drop_columns(context: Context, cursor: Cursor, table: deltalog.DeltaTable) -> None:
    if cursor.accept("if", "exists"):
        raise cursor.error("DROP COLUMNS does not support IF EXISTS")
    found = cursor.names() if cursor.word() == "(" else [cursor.path()]
    while cursor.accept(","):
        found.append(cursor.path())
    cursor.finish()
    table.drop_columns(found)


def _alter_column(context: Context, cursor: Cursor, table: deltalog.DeltaTable) -> None:
    name = cursor.path()
    place = column_definitions.place(cursor)
    if place is not None:
        cursor.finish()
        table.set_column(name, **place)
    elif _is_whole(cursor):
        _change_column(context, cursor, table, name)
    elif cursor.accept("type"):
        data_type = type_of(context.spark, column_definitions.type_text(cursor))
        cursor.finish()
        plain = from_spark(spark_types.StructType([spark_types.StructField("x", data_type)]))
        table.set_column(name, data_type=plain.fields[0].data_type)
    elif cursor.accept("comment"):
        comment = cursor.string()
        cursor.finish()
        table.set_column(name, comment=comment)
    elif cursor.accept("drop", "not", "null"):
        cursor.finish()
        table.set_column(name, nullable=True)
    elif cursor.accept("set", "not", "null"):
        cursor.finish()
        table.set_column(name, nullable=False)
    elif cursor.accept("sync", "identity"):
        cursor.finish()
        table.set_column(name, sync_identity=True)
    else:
        raise cursor.error(
            "ALTER COLUMN of a deltalog table supports TYPE, COMMENT, SET NOT NULL, DROP NOT NULL, FIRST, AFTER and "
            "SYNC IDENTITY. Set defaults with CREATE TABLE. Unsupported"
        )


def _is_whole(cursor: Cursor) -> bool:
    """Whether a whole column definition (name and type) follows the column name, as in Hive's CHANGE COLUMN."""
    known = ("type", "comment", "drop", "set", "sync")
    is_change = any(token.word == "change" for token in cursor.statement.tokens[: cursor.at])
    return is_change and cursor.word() not in known and not cursor.is_at_end


def _change_column(context: Context, cursor: Cursor, table: deltalog.DeltaTable, name: str) -> None:
    """``CHANGE COLUMN name name type [COMMENT text] [FIRST | AFTER other]``."""
    places: dict[str, str | None] = {}
    start = cursor.at
    found = column_definitions.column(cursor, places)
    cursor.finish()
    if unquoted(name).lower() != found.name.lower():
        cursor.at = start
        raise cursor.error(f"CHANGE COLUMN cannot rename {name}: use RENAME COLUMN {name} TO {found.name}")
    plain = from_spark(spark_types.StructType([found])).fields[0]
    have = table.snapshot().schema.find(unquoted(name))
    changes: dict[str, Any] = {}
    if have is not None and have.data_type != plain.data_type:
        changes["data_type"] = plain.data_type
    if "comment" in found.metadata:
        changes["comment"] = found.metadata["comment"]
    for other in places.values():
        changes.update(first=other is None, after=other)
    table.set_column(name, **changes)


def _cluster_by(context: Context, cursor: Cursor, table: deltalog.DeltaTable) -> None:
    names = [] if cursor.accept("none") else cursor.names()
    cursor.finish()
    table.cluster_by(names)


def _set_properties(context: Context, cursor: Cursor, table: deltalog.DeltaTable) -> None:
    found = column_definitions.properties(cursor)
    cursor.finish()
    table.set_properties(found)


def _unset_properties(context: Context, cursor: Cursor, table: deltalog.DeltaTable) -> None:
    if_exists = cursor.accept("if", "exists")
    cursor.expect("(")
    found = [column_definitions.property_key(cursor)]
    while cursor.accept(","):
        found.append(column_definitions.property_key(cursor))
    cursor.expect(")")
    cursor.finish()
    known = table.snapshot().metadata.configuration
    missing = [key for key in found if key not in known]
    if missing and not if_exists:
        raise deltalog.errors.InvalidPropertyError(
            f"The table at {table.url} has no property {missing[0]}. Use UNSET TBLPROPERTIES IF EXISTS.", key=missing[0]
        )
    table.unset_properties(found)


def _add_constraint(context: Context, cursor: Cursor, table: deltalog.DeltaTable) -> None:
    name = cursor.identifier()
    cursor.expect("check")
    values = cursor.inside()
    if len(values) != 1:
        raise cursor.error("CHECK takes one condition")
    cursor.finish()
    table.add_constraint(name, values[0])


def _drop_constraint(context: Context, cursor: Cursor, table: deltalog.DeltaTable) -> None:
    if_exists = cursor.accept("if", "exists")
    name = cursor.identifier()
    cursor.finish()
    table.drop_constraint(name, if_exists=if_exists)


def _drop_feature(context: Context, cursor: Cursor, table: deltalog.DeltaTable) -> None:
    name = cursor.string() if cursor.token.kind == "string" else cursor.identifier()
    truncates = cursor.accept("truncate", "history")
    cursor.finish()
    DeltaTable(context.spark, table).dropFeatureSupport(name, truncates)


# Changes to the catalog, not to the table.
_NAME_CHANGES: dict[tuple[str, ...], Callable[[Context, Cursor, Target], None]] = {
    ("rename", "to"): drop.rename,
    ("set", "location"): drop.set_location,
}
_CHANGES: dict[tuple[str, ...], Callable[[Context, Cursor, deltalog.DeltaTable], None]] = {
    ("add", "columns"): _add_columns,
    ("add", "column"): _add_columns,
    ("rename", "column"): _rename_column,
    ("drop", "columns"): _drop_columns,
    ("drop", "column"): _drop_columns,
    ("alter", "column"): _alter_column,
    ("change", "column"): _alter_column,
    ("change",): _alter_column,
    ("cluster", "by"): _cluster_by,
    ("set", "tblproperties"): _set_properties,
    ("unset", "tblproperties"): _unset_properties,
    ("add", "constraint"): _add_constraint,
    ("drop", "constraint"): _drop_constraint,
    ("drop", "feature"): _drop_feature,
}


def restore(context: Context, cursor: Cursor) -> DataFrame | None:
    """``RESTORE [TABLE] t TO VERSION|TIMESTAMP AS OF value``. Returns the DataFrame of
    ``DeltaTable.restoreToVersion``; None for a Spark table."""
    cursor.expect("restore")
    cursor.accept("table")
    found = context.target(cursor)
    if found is None:
        return None
    cursor.expect("to")
    kind = cursor.accept_one("version", "timestamp")
    if not kind:
        raise cursor.error("expected VERSION or TIMESTAMP")
    cursor.expect("as", "of")
    if kind == "version":
        text = cursor.string() if cursor.token.kind == "string" else cursor.expression("the version of RESTORE")
        cursor.finish()
        number = text.removesuffix("L")
        if not number.isdecimal():
            raise cursor.error(f"the version of RESTORE is a number, not {text!r}")
        return found.table.restoreToVersion(int(number))
    moment = cursor.expression("the timestamp of RESTORE")
    cursor.finish()
    value = context.spark.sql(f"select cast(({moment}) as string) as text").collect()[0]["text"]
    timestamp_ms(context.spark, value, "TIMESTAMP AS OF")  # checks the value, so that the error names the clause
    return found.table.restoreToTimestamp(value)


def vacuum(context: Context, cursor: Cursor) -> DataFrame | None:
    """``VACUUM t [LITE | FULL] [RETAIN n HOURS] [DRY RUN]``, clauses in any order. Like delta-spark, returns the path
    of the table, or with DRY RUN the paths of the files that would be deleted; None for a Spark table. Raises as
    ``DeltaTable.vacuum``."""
    cursor.expect("vacuum")
    cursor.accept("table")
    found = context.target(cursor)
    if found is None:
        return None
    hours, is_dry, full = None, False, None
    while not cursor.is_at_end:
        if hours is None and cursor.accept("retain"):
            text = cursor.until("hours", "hour")
            try:
                hours = float(text)
            except ValueError:
                raise cursor.error(f"RETAIN takes a number of hours, not {text!r}") from None
            if not cursor.accept_one("hours", "hour"):
                raise cursor.error("expected HOURS")
        elif not is_dry and cursor.accept("dry", "run"):
            is_dry = True
        elif full is None and (kind := cursor.accept_one("lite", "full")):
            full = kind == "full"
        else:
            cursor.finish()
    if not is_dry:
        found.table.vacuum(hours, full=full)
        return context.spark.createDataFrame([(found.core.url,)], "path string")
    checks, by_conf = vacuum_options(context.spark)
    report = vacuumed(context.spark, found.core, hours, True, checks, by_conf if full is None else full)
    rows = [(f"{found.core.url}/{path}",) for path in report.paths]
    return context.spark.createDataFrame(rows, "path string")


def analyze(context: Context, cursor: Cursor) -> DataFrame | None:
    """``ANALYZE TABLE t COMPUTE DELTA STATISTICS``. Returns no rows; None for Spark's own statistics and for a Spark
    table. Raises as ``deltalog.DeltaTable.compute_statistics``."""
    cursor.expect("analyze")
    if not cursor.accept("table"):
        return None
    found = context.target(cursor)
    if found is None or not cursor.accept("compute", "delta", "statistics"):
        return None
    cursor.finish()
    found.core.compute_statistics()
    return context.nothing()


def optimize(context: Context, cursor: Cursor) -> DataFrame | None:
    """``OPTIMIZE t [FULL] [WHERE condition] [ZORDER BY (a, b)]``. Returns the metrics, like ``executeCompaction``; None
    for a Spark table."""
    cursor.expect("optimize")
    found = context.target(cursor)
    if found is None:
        return None
    builder = found.table.optimize()
    if cursor.accept("full"):
        cursor.finish()
        return builder.compacted(full=True)
    if cursor.accept("where"):
        builder = builder.where(cursor.expression("the condition of OPTIMIZE", "zorder"))
    if not cursor.accept("zorder", "by"):
        cursor.finish()
        return builder.executeCompaction()
    names = cursor.names() if cursor.word() == "(" else [cursor.path()]
    while cursor.accept(","):
        names.append(cursor.path())
    cursor.finish()
    return builder.executeZOrderBy(*names)
