"""CREATE TABLE, REPLACE TABLE and INSERT in SQL: parsed, and executed by the table builder and the writer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

import deltalog
from spark_ext.delta_table import DeltaTable
from spark_ext.parse.cursor import Cursor
from spark_ext.parse.table_references import QUERY_STARTS, unquoted
from spark_ext.session import names, paths, spark_names
from spark_ext.session.stores import checked
from spark_ext.statements import column_definitions, copies
from spark_ext.statements.context import Context, Named, default_of, duplicates
from spark_ext.types import to_spark
from spark_ext.writing.assignments import at_their_positions, inserted
from spark_ext.writing.save import save
from spark_ext.writing.table_writer import named_target
from spark_ext.writing.targets import PathTarget, Target
from spark_ext.writing.write_options import WriteRequest

_FORMATS = ("delta", "deltalog")
_QUERIES = ("select", "values", "with", "table", "from")


@dataclass
class _Definition:
    """The clauses of a CREATE TABLE after the name."""

    columns: list[spark_types.StructField] = field(default_factory=list)
    partition_columns: list[str] = field(default_factory=list)
    clustering_columns: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    location: str | None = None
    query: str | None = None


def create(context: Context, cursor: Cursor) -> DataFrame | None:
    """``CREATE [OR REPLACE] TABLE [IF NOT EXISTS]`` and ``REPLACE TABLE``, with a list of columns, ``AS`` a query, or
    ``CLONE``. Returns no rows, except for a clone; None if deltalog does not handle the table. Raises as
    ``DeltaTableBuilder.execute`` and ``write_to``."""
    if cursor.accept("replace"):
        kind = "REPLACE TABLE"
    else:
        cursor.expect("create")
        kind = "CREATE OR REPLACE TABLE" if cursor.accept("or", "replace") else "CREATE TABLE"
    if not cursor.accept("table"):
        return None
    if cursor.accept("if", "not", "exists"):
        if kind != "CREATE TABLE":
            raise cursor.error("IF NOT EXISTS cannot follow OR REPLACE")
        kind = "CREATE TABLE IF NOT EXISTS"
    named = context.named(cursor)
    if not _is_ours(context, cursor, named):
        return None
    if copies.is_clone(cursor):
        return copies.clone(context, cursor, kind, named)
    definition = _definition(cursor)
    if definition.location is not None and named.path is not None:
        raise cursor.error("a table by path cannot have a LOCATION")
    if definition.query is None and kind.startswith("CREATE TABLE") and _adopts(context, named, definition):
        return context.nothing()
    if definition.query is None:
        _build(context, kind, named, definition)
    else:
        _save(context, kind, named, definition)
    return context.nothing()


def _is_ours(context: Context, cursor: Cursor, named: Named) -> bool:
    """Whether deltalog, and not Spark, creates the table: a path identifies it, its name belongs to the deltalog
    catalog, or USING selects deltalog."""
    start = cursor.at
    cursor.skip("using", "as", *QUERY_STARTS - {"("})
    used = cursor.word(1) if cursor.word() == "using" else ""
    cursor.at = start
    if named.path is not None or named.location is not None:
        if cursor.word() == "like":
            raise cursor.error(f"CREATE TABLE {cursor.word().upper()} is not supported for deltalog tables")
        if used not in ("", *_FORMATS):
            raise cursor.error(f"USING {used} cannot create a deltalog table: use delta or deltalog")
        return True
    has_catalog = names.setting_of(context.spark) is not None
    return used == "deltalog" or (used == "delta" and has_catalog)


def _adopts(context: Context, named: Named, definition: _Definition) -> bool:
    """Register an existing table under a name of Spark's catalog, as delta-spark does; False if the statement does not
    require this. Raises SchemaMismatchError."""
    if named.path is not None or named.location is not None or definition.location is None:
        return False
    if names.setting_of(context.spark) != names.SPARK or spark_names.location_of(
        context.spark, named.name, past_views=True
    ):
        return False
    try:
        table = paths.open_table(context.spark, definition.location, storage=checked(context.storage or {}))
    except deltalog.TableNotFoundError:
        return False
    schema = table.snapshot().schema
    wanted, found = [each.name for each in definition.columns], schema.names
    if wanted and wanted != found:
        raise deltalog.SchemaMismatchError(
            f"The table at {table.url} has the columns {', '.join(found)}, and not {', '.join(wanted)}. Leave the list "
            f"of columns out, so that {named.name} is a name for that table."
        )
    spark_names.add(context.spark, named.name, definition.location, to_spark(schema))
    return True


def _definition(cursor: Cursor) -> _Definition:
    found = _Definition()
    if cursor.word() == "(":
        found.columns = column_definitions.columns(cursor)
    while not cursor.is_at_end:
        if cursor.accept("using"):
            cursor.identifier()
        elif cursor.accept("partitioned", "by"):
            found.partition_columns = [unquoted(name) for name in cursor.names()]
        elif cursor.accept("cluster", "by"):
            found.clustering_columns = cursor.names()
        elif cursor.accept("comment"):
            found.comment = cursor.string()
        elif cursor.accept("tblproperties"):
            found.properties = column_definitions.properties(cursor)
        elif cursor.accept("location"):
            found.location = cursor.string()
        elif cursor.word() in ("clustered", "options", "skewed", "stored"):
            raise cursor.error(f"the clause {cursor.word().upper()} is not supported for deltalog tables")
        elif cursor.accept("as") or cursor.word() in _QUERIES:
            found.query = cursor.text(cursor.at, cursor.skip())
            cursor.finish()
            if found.columns:
                raise cursor.error("CREATE TABLE … AS takes the columns of the query: leave out the list of columns")
        else:
            cursor.finish()
    return found


def _build(context: Context, kind: str, named: Named, definition: _Definition) -> None:
    builders: dict[str, Any] = {
        "CREATE TABLE": DeltaTable.create,
        "CREATE TABLE IF NOT EXISTS": DeltaTable.createIfNotExists,
        "REPLACE TABLE": DeltaTable.replace,
        "CREATE OR REPLACE TABLE": DeltaTable.createOrReplace,
    }
    builder = builders[kind](context.spark).storage_options(**context.storage or {})
    builder = builder.tableName(named.name) if named.path is None else builder.location(named.path)
    if definition.location is not None:
        builder = builder.location(definition.location)
    builder = builder.addColumns(definition.columns).partitionedBy(definition.partition_columns)
    builder = builder.clusterBy(definition.clustering_columns)
    if definition.comment is not None:
        builder = builder.comment(definition.comment)
    for key, value in definition.properties.items():
        builder = builder.property(key, value)
    builder.execute()


def _save(context: Context, kind: str, named: Named, definition: _Definition) -> None:
    assert definition.query is not None
    rows = context.query(definition.query)
    target: Target = (
        named_target(rows, named.name, definition.location) if named.path is None else PathTarget(named.path)
    )
    replaces = kind in ("REPLACE TABLE", "CREATE OR REPLACE TABLE")
    mode = "overwrite" if replaces else "ignore" if kind == "CREATE TABLE IF NOT EXISTS" else "error"
    request = WriteRequest(
        mode=mode,
        partition_by=tuple(definition.partition_columns),
        cluster_by=tuple(definition.clustering_columns),
        options={"overwriteSchema": True, "partitionOverwriteMode": False} if replaces else {},
        properties=definition.properties,
        storage=checked(context.storage or {}),
        statement="CREATE TABLE" if not replaces else kind,
        description=definition.comment,
    )
    save(rows, request, target, must_exist=kind == "REPLACE TABLE")


def insert(context: Context, cursor: Cursor) -> DataFrame | None:
    """``[WITH …] INSERT INTO|OVERWRITE [TABLE] t [PARTITION (…)] [(columns)|BY NAME] [REPLACE WHERE condition] query``.
    Returns no rows; None for a Spark table. Raises as ``Writer.save``."""
    start = cursor.at
    cursor.skip("insert")
    prefix = cursor.text(start, cursor.at)
    cursor.expect("insert")
    evolves = cursor.accept("with", "schema", "evolution")
    overwrites = cursor.accept("overwrite")
    if not overwrites:
        cursor.expect("into")
    cursor.accept("table")
    found = context.target(cursor)
    if found is None:
        return None
    schema = found.schema
    partition = _partition(cursor, schema) if cursor.accept("partition") else {}
    by_name = cursor.accept("by", "name")
    columns = None
    if not by_name and cursor.word() == "(" and cursor.word(1) not in QUERY_STARTS:
        columns = [unquoted(name) for name in cursor.names()]
        twice = duplicates(columns)
        if twice:
            raise cursor.error(f"column {twice[0]} is inserted twice")
    where = _replaced(cursor, overwrites)
    expected = [name for name in schema.names if name not in partition] if columns is None else columns
    query = _with_defaults(cursor, schema, expected)
    rows = context.query(f"{prefix} {query}" if prefix else query)
    if not by_name:
        rows = _renamed(rows, expected, found.core.url, columns is not None)
    for name, value in partition.items():
        rows = rows.withColumn(name, F.expr(value))
    if partition and overwrites:
        where = " AND ".join(_equal(name, value) for name, value in partition.items())
    options: dict[str, Any] = {"mergeSchema": True} if evolves else {}
    if where is not None:
        options["replaceWhere"] = where
    mode = "append" if where is None and not overwrites else "overwrite"
    rows = _fitted(rows, schema, by_name, found.core.url)
    save(rows, WriteRequest(mode=mode, options=options), PathTarget(found.core), must_exist=True)
    return context.nothing()


def _replaced(cursor: Cursor, overwrites: bool) -> str | None:
    if not cursor.accept("replace"):
        return None
    if overwrites:
        raise cursor.error("REPLACE WHERE needs INSERT INTO, not INSERT OVERWRITE")
    cursor.expect("where")
    return cursor.expression("the condition of REPLACE WHERE", *_QUERIES)


def _partition(cursor: Cursor, schema: deltalog.schema.StructType) -> dict[str, str]:
    """The static values in ``PARTITION (…)``, keyed by column."""
    found: dict[str, str] = {}
    cursor.expect("(")
    while True:
        name = cursor.identifier()
        column = schema.find(name)
        if column is None:
            raise cursor.error(f"the table has no column {name}")
        if cursor.accept("="):
            found[column.name] = cursor.expression(f"the value of {name}", ",")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    if cursor.accept("if", "not", "exists"):
        raise cursor.error("PARTITION does not support IF NOT EXISTS")
    return found


def _equal(name: str, value: str) -> str:
    quoted = "`" + name.replace("`", "``") + "`"
    return f"{quoted} IS NULL" if value.lower() == "null" else f"{quoted} = {value}"


def _with_defaults(cursor: Cursor, schema: deltalog.schema.StructType, columns: Sequence[str]) -> str:
    """The query, with DEFAULT in VALUES replaced by the defaults of the columns."""
    is_values, pieces, depth, column = cursor.word() == "values", list[str](), 0, 0
    if cursor.is_at_end:
        raise cursor.error("the query is missing")
    tokens = cursor.statement.tokens
    position = tokens[cursor.at].start
    while not cursor.is_at_end:
        word = cursor.word()
        depth += (word == "(") - (word == ")")
        if depth == 1:
            column = 0 if word == "(" else column + (word == ",")
            if is_values and word == "default" and cursor.word(1) in (",", ")") and column < len(columns):
                token = cursor.token
                pieces += [cursor.statement.text[position : token.start], default_of(schema, columns[column])]
                position = token.end
        cursor.at += 1
    return "".join([*pieces, cursor.statement.text[position : tokens[cursor.at - 1].end]])


def _renamed(rows: DataFrame, columns: Sequence[str], url: str, are_listed: bool) -> DataFrame:
    if len(rows.columns) != len(columns):
        what = "The INSERT lists" if are_listed else f"The table at {url} has"
        raise deltalog.SchemaMismatchError(
            f"{what} {len(columns)} columns ({', '.join(columns)}), but the query has {len(rows.columns)}."
        )
    return rows.toDF(*columns)


def _fitted(rows: DataFrame, schema: deltalog.schema.StructType, by_name: bool, url: str) -> DataFrame:
    """The rows, cast to the types of the table's columns with checked casts. Columns of the query that the table lacks
    are kept. ``by_name``: whether struct fields are matched by name; if false, they are matched by position. Raises
    SchemaMismatchError."""
    known = {name: schema.find(name) for name in rows.columns}
    twice = duplicates(rows.columns)
    if twice:
        raise deltalog.SchemaMismatchError(
            f"The query of an INSERT into {url} has the column {twice[0]} more than once."
        )
    fields = [each for each in known.values() if each is not None]
    others = [name for name, each in known.items() if each is None]
    rows = rows.withColumnsRenamed({name: each.name for name, each in known.items() if each is not None})
    if not by_name:
        rows = at_their_positions(rows, fields, url)
    return inserted(rows, fields, others, url) if fields else rows
