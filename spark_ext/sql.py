"""SQL over tables by path, with time travel, for Spark without an extension.

Each reference ``deltalog.`path``` is replaced by the argument ``{tN}`` of ``spark.sql``, a DataFrame over the table;
the rest of the statement goes to Spark as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import deltalog
from spark_ext import log_counts, pruning
from spark_ext.frames import detail, history
from spark_ext.queries import query_of
from spark_ext.reader import pruned, resolve, timestamp_ms
from spark_ext.reads import marked
from spark_ext.statements import QUERY_STARTS, Reference, Statement, Token, View, tokens_of
from spark_ext.stores import checked

Args = Mapping[str, Any] | Sequence[Any] | None

# The verbs for which there is a call that does the same with a table by path.
_CALLS = {
    "insert": "Write with spark_ext.write(df).mode('append' or 'overwrite').save(path)",
    "delete": "Call deltalog.DeltaTable.open(path).delete(condition)",
    "update": "Call deltalog.DeltaTable.open(path).update({column: expression}, condition)",
    "merge": "Write the changed rows with spark_ext.write(df).mode('overwrite').option('replaceWhere', …).save(path)",
    "create": "Create the table with spark_ext.write(df).save(path)",
    "replace": "Write with spark_ext.write(df).mode('overwrite').option('overwriteSchema', True).save(path)",
    "alter": "deltalog.DeltaTable has a method for each change",
    "restore": "Call deltalog.DeltaTable.open(path).restore",
    "cache": "Load it with spark_ext.read(spark).load(path); call cache() and createOrReplaceTempView(name)",
    "show": "SHOW COLUMNS can; spark_ext.detail and spark_ext.history have the rest",
    "begin": "Run the statements of the script one at a time",
}
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
    """Run a statement in which ``deltalog.`path``` or ``delta.`path``` names a table, also with ``VERSION AS OF 3``,
    ``TIMESTAMP AS OF '2026-01-31 10:00:00'``, ``FOR SYSTEM_TIME AS OF``, or ``path@v3`` inside the backticks.

    Statements: queries, and EXPLAIN of one; DESCRIBE, SHOW COLUMNS; CREATE TEMPORARY VIEW; SET VARIABLE; those that
    write another table from a query (INSERT, CREATE TABLE … AS, MERGE, UPDATE, DELETE); DESCRIBE HISTORY with LIMIT,
    DESCRIBE DETAIL. Other statements on a table by path, and those that would write it, are refused. A statement
    without such a table goes to Spark unchanged. WHERE leaves out files as ``Reader.where`` does, and a count of rows
    alone comes from the log where ``Reader.count`` does.

    ``args`` fill ``:name`` markers, also in the clauses; ``frames`` fill ``{name}`` as in ``spark.sql``. The
    moment may be a string, ``:name``, ``timestamp'…'``, ``date'…'``, a function call, or any constant expression
    in parentheses. Text in the session time zone, as for ``timestampAsOf``. Each reference is resolved when this
    is called. The other arguments are for all tables by path: a moment before the first or after the last commit
    means that commit where ``can_return_…`` is true; ``allowed_paths`` and ``storage_options`` are those of ``read``.
    Raises CallError, and the errors of a load.
    """
    options = {
        "can_return_earliest_commit": can_return_earliest_commit,
        "can_return_last_commit": can_return_last_commit,
        "allowed_paths": allowed_paths,
        "storage": checked(storage_options or {}),
    }
    tokens = tokens_of(query)
    if tokens is None:
        return spark.sql(query, args, **frames)
    statement = Statement(query, tokens)
    about = _about_a_table(spark, statement, storage_options)
    if about is not None:
        return about
    _check(statement)
    if not statement.references:
        return spark.sql(query, args, **frames)
    view = None if statement.is_explained else statement.temporary_view()
    if view is None:
        return _run(spark, statement, 0, len(query), args, frames, options)
    # In a view that Spark makes, the arguments are views of this one call, which end with it.
    rows = _run(spark, statement, view.query_start, view.query_end, args, frames, options, "({}\n)")
    _create(rows, view)
    return spark.range(0).select()


def _about_a_table(
    spark: SparkSession, statement: Statement, storage_options: Mapping[str, Any] | None
) -> DataFrame | None:
    """DESCRIBE HISTORY and DESCRIBE DETAIL of a table by path; None for any other statement."""
    verb, what = statement.words(0, 2)
    if verb not in ("describe", "desc") or what not in ("history", "detail") or not statement.names_table(2):
        return None
    path, rest = statement.path(2), [token.text.lower() for token in statement.tokens[5:] if token.text != ";"]
    if what == "detail" and not rest:
        return detail(spark, path, storage_options=storage_options)
    if what == "history" and not rest:
        return history(spark, path, storage_options=storage_options)
    if what == "history" and len(rest) == 2 and rest[0] == "limit" and rest[1].isdecimal():
        return history(spark, path, int(rest[1]), storage_options=storage_options)
    raise deltalog.CallError(
        f"{' '.join(rest)} cannot follow DESCRIBE {what.upper()} with a table. Only LIMIT and a number can, after "
        "DESCRIBE HISTORY."
    )


def _check(statement: Statement) -> None:
    """Refuse statements that would write a table by path, or that cannot use one."""
    head, second = statement.words(statement.start, statement.start + 2)
    if any(reference.is_target for reference in statement.references):
        verb = head if head in _CALLS else "insert"
        raise deltalog.CallError(f"{verb.upper()} cannot write a table by its path in SQL. {_CALLS[verb]}.")
    if head in _VERBS or not statement.names_tables:
        return
    if (head, second) in (("show", "columns"), ("set", "var"), ("set", "variable")):
        return
    if head in ("create", "replace") and statement.references:
        if (statement.temporary_view() is not None and not statement.is_explained) or statement.defines_table:
            return
        raise deltalog.CallError(
            "Spark cannot keep a query of a table by its path in what this statement creates. CREATE TEMPORARY VIEW "
            "and CREATE TABLE … AS can have one."
        )
    hint = f" {_CALLS[head]}." if head in _CALLS else ""
    raise deltalog.CallError(f"{head.upper()} statements cannot use a table by its path.{hint}")


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
    start: int,
    end: int,
    args: Args,
    frames: Mapping[str, DataFrame],
    options: Mapping[str, Any],
    form: str = "{}",
) -> DataFrame:
    """Run a part of a statement's text, with arguments in place of its references; ``form`` is put around it.
    ``options``: those of ``resolve``."""
    asked = query_of(statement, args)
    snapshots: dict[tuple[str, str | None, Any], deltalog.Snapshot] = {}
    loaded: dict[tuple[deltalog.Snapshot, deltalog.Predicate | None], str] = {}
    arguments: dict[str, DataFrame] = dict(frames)
    pieces, position = [], start
    for reference, conditions in zip(statement.references, asked.conditions, strict=True):
        point = _point(spark, reference, args)
        key = (reference.path, reference.clause, point)
        if key not in snapshots:
            version = point if reference.clause == "version" else None
            at_ms = point if reference.clause == "timestamp" else None
            snapshots[key] = resolve(spark, reference.path, version, at_ms=at_ms, **options)
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
    pieces.append(_literal(statement.text[position:end], bool(frames)))
    return spark.sql(form.format("".join(pieces)), args, **arguments)


def _count(spark: SparkSession, snapshot: deltalog.Snapshot, count: int, name: str) -> DataFrame:
    row = marked(spark.sql("select 1"), snapshot)
    return row.select(F.lit(count).cast("bigint").alias(name))


def _literal(text: str, has_fields: bool) -> str:
    """Text between references; its braces are the caller's own fields only when the caller gave frames."""
    return text if has_fields else text.replace("{", "{{").replace("}", "}}")


def _free_name(taken: Mapping[str, Any]) -> str:
    index = 0
    while f"t{index}" in taken:
        index += 1
    return f"t{index}"


def _point(spark: SparkSession, reference: Reference, args: Args) -> Any:
    """The version, or the moment in ms, that a reference names."""
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
        value = _string(spark, tokens)
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


def _string(spark: SparkSession, tokens: Sequence[Token]) -> str:
    """The value of a string literal, by Spark unless it is plain."""
    text = tokens[0].text
    if len(tokens) == 1 and text[0] in "'\"" and "\\" not in text:
        return text[1:-1]
    literal = " ".join(token.text for token in tokens)
    return str(spark.sql(f"select {literal} as text").collect()[0]["text"])
