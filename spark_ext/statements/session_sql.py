"""SQL on tables given by path or name, with time travel, for Spark without an extension.

References ``deltalog.`path``` and names of tables in the session's catalog are replaced by arguments ``{tN}`` of
``spark.sql``, which are DataFrames over these tables. Spark gets the rest of the statement unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltalog
from spark_ext.errors import explained
from spark_ext.parse.cursor import Cursor, string_value, with_literals
from spark_ext.parse.queries import query_of
from spark_ext.parse.table_references import QUERY_STARTS, Reference, Statement, View, tokens_of
from spark_ext.reading import log_counts, pruning
from spark_ext.reading.log_frames import detail, history
from spark_ext.reading.read_versions import marked, read_urls
from spark_ext.reading.reader import pruned, resolve, timestamp_ms, without_suffix
from spark_ext.session import names, paths, spark_names
from spark_ext.session.paths import Location
from spark_ext.session.stores import checked
from spark_ext.statements import alter, copies, drop, row_changes, show, tables
from spark_ext.statements.context import Context

Args = Mapping[str, Any] | Sequence[Any] | None

# For each refused statement, the call to use instead. {0}: the path or address of the table; {1} and {2}: the calls
# that save and load the table.
_CALLS = {
    "insert": "Write with spark_ext.write(df).mode('append' or 'overwrite').{1}",
    "create": "Create the table with spark_ext.write(df).{1}",
    "cache": "Load it with spark_ext.read(spark).{2}; call cache() and createOrReplaceTempView(name)",
    "drop": "DROP TABLE takes only names in the catalog",
    "show": "Only SHOW COLUMNS, SHOW TBLPROPERTIES and SHOW PARTITIONS can; for the rest, use spark_ext.detail and "
    "spark_ext.history",
    "begin": "Run the statements of the script one at a time",
}
# The options of ``resolve`` for a table that is already open.
_OPENED: Mapping[str, Any] = {"allowed_paths": (), "storage": None}
_STATEMENTS = {
    "delete": row_changes.delete,
    "update": row_changes.update,
    "merge": row_changes.merge,
    "insert": tables.insert,
    "with": tables.insert,
    "create": tables.create,
    "replace": tables.create,
    "alter": alter.alter,
    "restore": alter.restore,
    "vacuum": alter.vacuum,
    "optimize": alter.optimize,
    "analyze": alter.analyze,
    "describe": show.describe,
    "desc": show.describe,
    "show": show.show,
    "drop": drop.drop,
    "truncate": drop.truncate,
    "reorg": drop.reorg,
    "generate": copies.generate,
    "convert": copies.convert,
}
# Statements about a single table; the name of the table begins at the token ``Statement.subject_at``.
_ABOUT_ONE_TABLE = ("describe", "desc", "show", "drop", "truncate", "reorg")
# Statements whose target was already parsed as a Reference.
_WRITING = ("delete", "update", "merge", "insert", "with")
_VERBS = QUERY_STARTS | {"insert", "merge", "update", "delete", "describe", "desc"}


def sql(
    spark: SparkSession,
    query: str,
    args: Args = None,
    *,
    can_return_earliest_commit: bool = False,
    can_return_last_commit: bool = False,
    allowed_paths: str | Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    **frames: DataFrame,
) -> DataFrame:
    """Run a SQL statement over Delta tables.

    ``deltalog.`path``` or ``delta.`path``` names a table by its path, with time travel by ``VERSION AS OF 3``,
    ``TIMESTAMP AS OF '2026-01-31 10:00:00'``, ``FOR SYSTEM_TIME AS OF``, or ``path@v3`` inside the backticks. ``table``
    and ``schema.table`` name tables of the session's catalog (``use_catalog``); CTEs take precedence, and a temporary
    view or Spark table of the same name is an error. Spark resolves all other names.

    Statements on such tables: queries and EXPLAIN; DESCRIBE, DESCRIBE HISTORY with LIMIT, DESCRIBE DETAIL, SHOW
    COLUMNS; CREATE TEMPORARY VIEW; SET VARIABLE; INSERT, CREATE TABLE … AS, MERGE, UPDATE and DELETE, also on other
    tables if the query reads such tables; CREATE, REPLACE and ALTER TABLE, RESTORE, VACUUM, GENERATE, CREATE TABLE …
    CLONE, ANALYZE TABLE … COMPUTE DELTA STATISTICS, which do the same as the methods of ``DeltaTable``, ``write`` and
    ``deltalog.DeltaTable``; CONVERT TO DELTA of a directory (``parquet.`path```). Other statements on deltalog tables
    are refused. A statement that names no deltalog table is passed to Spark unchanged. WHERE skips files as
    ``Reader.where`` does, and a query that only counts rows is answered from the log under the same conditions as
    ``Reader.count``.

    ``args`` fill ``:name`` markers, also in time travel clauses; ``frames`` fill ``{name}`` as in ``spark.sql``. A
    timestamp is a string (in the session time zone, as for ``timestampAsOf``), ``:name``, ``timestamp'…'``,
    ``date'…'``, a function call, or any constant expression in parentheses. References are resolved by this call, not
    when rows are read. The other arguments apply to all tables of the statement: ``can_return_earliest_commit`` and
    ``can_return_last_commit`` allow timestamps before the first and after the last commit; ``allowed_paths`` and
    ``storage_options`` mean the same as for ``read``. Raises CallError, and the errors of ``Reader.load``. Cost: a load
    of each table; if the session has a catalog, 1 call to it for each other name.
    """
    options = {
        "can_return_earliest_commit": can_return_earliest_commit,
        "can_return_last_commit": can_return_last_commit,
        "allowed_paths": allowed_paths,
        "storage": checked(storage_options or {}),
    }
    given: dict[str, Any] = {
        "can_return_earliest_commit": can_return_earliest_commit,
        "can_return_last_commit": can_return_last_commit,
        "allowed_paths": allowed_paths,
        "storage_options": storage_options,
        **frames,
    }
    tokens = tokens_of(query)
    if tokens is None:
        return spark.sql(query, args, **frames)
    statement = Statement(query, tokens)
    tables = _named_tables(spark, statement, options)
    if tables:
        statement = Statement(query, tokens, tables)
    about = _about_a_table(spark, statement, tables, storage_options)
    if about is not None:
        return about
    changed = _changed(spark, statement, tables, args, given, lambda text: sql(spark, text, **given))
    if changed is not None:
        return changed
    _refuse_views(spark, statement)
    _check(spark, statement)
    if not statement.references:
        return spark.sql(query, args, **frames)
    view = None if statement.is_explained else statement.temporary_view()
    if view is None:
        return _run(spark, statement, tables, 0, len(query), args, frames, options)
    # If Spark created the view itself, the view would refer to the arguments of this call, which are dropped when the
    # call returns.
    rows = _run(spark, statement, tables, view.query_start, view.query_end, args, frames, options, "({}\n)")
    _create(rows, view)
    return spark.range(0).select()


def _named_tables(spark: SparkSession, statement: Statement, options: Mapping[str, Any]) -> dict[str, Location]:
    """The tables of the session's catalog that a statement names, keyed by ``schema.table``. Raises CallError for a
    name that Spark knows too. Cost: 1 catalog call for each unresolved name; for each table found, as
    ``DeltaTable.open`` and 1 Spark command."""
    catalog = names.setting_of(spark) if statement.other_names else None
    found: dict[str, Location] = {}
    if catalog == names.SPARK:
        return _tables_of_spark(spark, statement, options)
    for name, written in statement.other_names if catalog else ():
        if name not in found:
            table = _registered(spark, names.prefix_of(str(catalog)), name, options)
            if table is None:
                continue
            found[name] = table
        if spark.catalog.tableExists(written):
            raise deltalog.CallError(
                f"{written} is a table of the catalog {catalog}, and also a table or a view of Spark. For the former "
                f"write deltalog.`{names.prefix_of(str(catalog))}{name}`. For the latter drop or rename the view, or "
                "qualify the table's name with its Spark catalog, as in spark_catalog.default.t."
            )
    return found


def _tables_of_spark(spark: SparkSession, statement: Statement, options: Mapping[str, Any]) -> dict[str, Location]:
    """Like ``_named_tables``, but for names in Spark's own catalog. If a name refers to no table, CREATE, REPLACE and
    DROP of this name are left to Spark."""
    found: dict[str, Location] = {}
    for name, written in statement.other_names:
        location = None if name in found else spark_names.location_of(spark, written)
        if location is None:
            continue
        try:
            found[name] = paths.open_table(spark, location, options["allowed_paths"], options["storage"])
        except deltalog.TableNotFoundError:
            if statement.head not in ("create", "drop", "replace"):
                raise
    return found


def _registered(spark: SparkSession, catalog: str, name: str, options: Mapping[str, Any]) -> Location | None:
    """The table registered under a name, which may be followed by a version (``@v…``) or a timestamp (``@…``); None if
    the name is not registered."""
    plain = without_suffix(catalog + name).removeprefix(catalog)
    for each in dict.fromkeys((name, plain)):
        if names.can_be_registered(each):
            try:
                table = paths.open_table(spark, catalog + each, options["allowed_paths"], options["storage"])
            except deltalog.TableNotFoundError as error:
                if isinstance(error.__cause__, deltalog.errors.EntityNotFoundError):
                    continue
                raise  # the name is registered, but its table no longer exists
            return table if each == name else catalog + name
    return None


def _about_a_table(
    spark: SparkSession,
    statement: Statement,
    tables: Mapping[str, Location],
    storage_options: Mapping[str, Any] | None,
) -> DataFrame | None:
    """The result of DESCRIBE HISTORY or DESCRIBE DETAIL of a deltalog table; None for any other statement."""
    verb, what = statement.words(0, 2)
    if verb not in ("describe", "desc") or what not in ("history", "detail"):
        return None
    path: Location
    if statement.names_table(2):
        path, end = statement.path(2), 5
    else:
        name, end = statement.name(2) or ("", 2)
        if name not in tables:
            return None
        path, storage_options = tables[name], None  # it is open already
    rest = [token.text.lower() for token in statement.tokens[end:] if token.text != ";"]
    if what == "detail" and not rest:
        return detail(spark, path, storage_options=storage_options)
    if what == "history" and not rest:
        return history(spark, path, storage_options=storage_options)
    if what == "history" and len(rest) == 2 and rest[0] == "limit" and rest[1].isdecimal():
        return history(spark, path, int(rest[1]), storage_options=storage_options)
    raise deltalog.CallError(
        f"DESCRIBE {what.upper()} of a table cannot be followed by {' '.join(rest)}. Only DESCRIBE HISTORY takes a "
        "clause: LIMIT and a number."
    )


def _changed(
    spark: SparkSession,
    statement: Statement,
    tables: Mapping[str, Location],
    args: Args,
    given: Mapping[str, Any],
    query: Callable[[str], DataFrame],
) -> DataFrame | None:
    """Execute a statement that deltalog handles; return None for any other statement."""
    run = _STATEMENTS.get(statement.head)
    if run is None or statement.is_explained:
        return None
    defines = statement.head == "convert" or (statement.head in ("create", "replace") and statement.defines_table)
    lists = statement.words(0, 2) == ["show", "tables"] and names.setting_of(spark) not in (None, names.SPARK)
    if not (statement.references or defines or statement.has_known_subject or lists):
        return None
    if statement.head in _ABOUT_ONE_TABLE and not (statement.has_known_subject or lists):
        return None
    if statement.head in _WRITING and not any(reference.is_target for reference in statement.references):
        return None
    text = with_literals(statement, args)
    tokens = tokens_of(text)
    assert tokens is not None
    statement = Statement(text, tokens, tables)
    context = Context(spark, tables, given["storage_options"], given["allowed_paths"], query)
    with explained(f"The {statement.head.upper()} statement"):
        return run(context, Cursor(spark, statement))


def _refuse_views(spark: SparkSession, statement: Statement) -> None:
    """Refuse to write to a temporary view over a deltalog table. Spark would fail with an internal error, or write
    files that no version of the table contains. Cost: for statements that write, 2 Spark commands."""
    if statement.head not in _WRITING or statement.is_explained:
        return
    written = statement.other_target()
    if written is None:
        return
    try:
        if not spark.catalog.getTable(written).isTemporary:
            return
        urls = sorted(read_urls(spark.table(written)))
    except PySparkException:
        return  # Spark will report that the view or table does not exist
    if urls:
        raise deltalog.CallError(
            f"{written} is a temporary view over {', '.join(urls)}, and {statement.head.upper()} cannot change a table "
            "through a view. Name the table: delta.`path`, or its name in the catalog."
        )


def _check(spark: SparkSession, statement: Statement) -> None:
    """Raise CallError for a statement that Spark would try, and fail, to run on a deltalog table."""
    head, second = statement.words(statement.start, statement.start + 2)
    for reference in statement.references:
        if reference.is_target:
            verb = head if head in _CALLS else "insert"
            what = f"the table {reference.path}" if reference.is_name else "a table by its path"
            raise deltalog.CallError(f"{verb.upper()} cannot write {what} in SQL. {_call(spark, verb, reference)}.")
    if head in _VERBS or not (statement.has_paths or statement.references):
        return
    if (head, second) in (("show", "columns"), ("set", "var"), ("set", "variable")):
        return
    if head in ("create", "replace") and statement.references:
        if (statement.temporary_view() is not None and not statement.is_explained) or statement.defines_table:
            return
        raise deltalog.CallError(
            "Spark cannot store a query over a deltalog table in the object that this statement creates. Use CREATE "
            "TEMPORARY VIEW or CREATE TABLE … AS."
        )
    named = next((reference for reference in statement.references if reference.is_name), None)
    what = "a table by its path" if named is None else f"the table {named.path} of the catalog of deltalog"
    hint = f" {_call(spark, head, named)}." if head in _CALLS else ""
    raise deltalog.CallError(f"{head.upper()} statements cannot use {what}.{hint}")


def _call(spark: SparkSession, verb: str, reference: Reference | None) -> str:
    """The Python call to use instead of a refused statement."""
    if reference is None or not reference.is_name:
        return _CALLS[verb].format("path", "save(path)", "load(path)")
    name, address = repr(reference.path), repr(names.prefix_of(names.catalog_of(spark)) + reference.path)
    return _CALLS[verb].format(address, f"saveAsTable({name})", f"table({name})")


def _create(rows: DataFrame, view: View) -> None:
    if view.columns:
        rows = rows.toDF(*[name for name, _ in view.columns])
        for name, comment in view.columns:
            if comment is not None:
                rows = rows.withMetadata(name, {"comment": comment})
    if view.is_global:
        (rows.createOrReplaceGlobalTempView if view.replaces else rows.createGlobalTempView)(view.name)
    else:
        (rows.createOrReplaceTempView if view.replaces else rows.createTempView)(view.name)


def _run(
    spark: SparkSession,
    statement: Statement,
    tables: Mapping[str, Location],
    start: int,
    end: int,
    args: Args,
    frames: Mapping[str, DataFrame],
    options: Mapping[str, Any],
    form: str = "{}",
) -> DataFrame:
    """Insert ``text[start:end]`` of a statement into the template ``form`` and run the result, with each reference to a
    deltalog table replaced by an argument that contains the table's DataFrame. ``tables``: tables of the catalog, by
    name. ``options``: keyword arguments for ``resolve``."""
    asked = query_of(statement, args)
    snapshots: dict[tuple[str, bool, str | None, Any], deltalog.Snapshot] = {}
    loaded: dict[tuple[deltalog.Snapshot, deltalog.Predicate | None], str] = {}
    arguments: dict[str, DataFrame] = dict(frames)
    pieces, position = [], start
    for reference, conditions in zip(statement.references, asked.conditions, strict=True):
        point = _point(spark, reference, args)
        key = (reference.path, reference.is_name, reference.clause, point)
        if key not in snapshots:
            version = point if reference.clause == "version" else None
            at_ms = point if reference.clause == "timestamp" else None
            table = tables[reference.path] if reference.is_name else reference.path
            given = {**options, **_OPENED} if isinstance(table, deltalog.DeltaTable) else options
            snapshots[key] = resolve(spark, table, version, at_ms=at_ms, **given)
        snapshot = snapshots[key]
        where = pruning.predicate(snapshot, conditions)
        if (snapshot, where) not in loaded:
            if asked.count_name is not None and not statement.is_explained:
                counted = log_counts.num_records(snapshot, conditions)
                if counted is not None:
                    return _count(spark, snapshot, counted, asked.count_name)
            name = loaded[snapshot, where] = _free_name(arguments)
            found = None
            if asked.is_on_values_of(snapshot.partition_columns):
                found = log_counts.by_partition(spark, snapshot, with_counts=False)
            arguments[name] = pruned(spark, snapshot, where) if found is None else marked(found, snapshot, where)
        pieces.append(_literal(statement.text[position : reference.start], bool(frames)))
        pieces.append("{" + loaded[snapshot, where] + "}")
        position = reference.end
        if reference.alias:
            pieces.append(f"{_literal(statement.text[position : reference.alias_at], bool(frames))} as ")
            pieces.append(_literal(reference.alias, bool(frames)))
            position = reference.alias_at
    pieces.append(_literal(statement.text[position:end], bool(frames)))
    return spark.sql(form.format("".join(pieces)), args, **arguments)


def _count(spark: SparkSession, snapshot: deltalog.Snapshot, count: int, name: str) -> DataFrame:
    row = marked(spark.sql("select 1"), snapshot)
    return row.select(F.lit(count).cast("bigint").alias(name))


def _literal(text: str, has_fields: bool) -> str:
    """The text between table references. Braces are escaped, unless the caller passed frames and so uses braces for
    arguments."""
    return text if has_fields else text.replace("{", "{{").replace("}", "}}")


def _free_name(taken: Mapping[str, Any]) -> str:
    index = 0
    while f"t{index}" in taken:
        index += 1
    return f"t{index}"


def _point(spark: SparkSession, reference: Reference, args: Args) -> Any:
    """The version, or the timestamp in ms, of a reference with time travel."""
    tokens = reference.point
    if reference.clause is None:
        return None
    value: Any = None
    if tokens[0].text == ":":
        name = tokens[1].text
        if not isinstance(args, Mapping) or name not in args:
            raise deltalog.CallError(f"The marker :{name} after AS OF is not in args.")
        value = args[name]
    elif tokens[0].kind == "string":
        value = string_value(spark, tokens)
    elif reference.clause == "version":
        value = "".join(token.text for token in tokens)
    if reference.clause == "version":
        return value
    if value is not None:
        return timestamp_ms(spark, value)
    text = " ".join(token.text for token in tokens)
    if tokens[-1].kind == "number":
        raise deltalog.InvalidTimestampError(
            f"TIMESTAMP AS OF {text} is a number. Give text such as '2026-01-31 10:00:00', or say what the number is: "
            f"timestamp_millis({text}) or timestamp_seconds({text})."
        )
    query = f"select unix_micros(cast(({text}) as timestamp_ltz)) as micros"
    micros = spark.sql(query).collect()[0]["micros"]
    if micros is None:
        raise deltalog.InvalidTimestampError(f"TIMESTAMP AS OF {text} is NULL. Give a timestamp.")
    return int(micros) // 1000
