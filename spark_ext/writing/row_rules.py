"""A table's rules for its rows, evaluated by Spark in the job that writes them.

deltalog has checked every expression before, so Spark never runs an expression that deltalog does not support.
Expressions evaluate times in the session's time zone, as in delta-spark.
"""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading.table_columns import named
from spark_ext.types import spark_type

# Extracts a refusal that was raised inside a Spark job from Spark's message.
REFUSAL = re.compile(r"DELTALOG: (.*?) :DELTALOG", re.DOTALL)
# How the message of a row begins that a replacement does not select.
_OUTSIDE = "a row lies outside of the replaced rows, "


def refuse(message: str) -> Column:
    """A value that fails the job, with a message that becomes an error of deltalog."""
    return F.raise_error(F.lit(refusal(message)))


def refusal(message: str) -> str:
    """The text by which ``REFUSAL`` finds the message in Spark's."""
    return f"DELTALOG: {message} :DELTALOG"


def filled(df: DataFrame, rules: deltalog.TableRules, target: deltalog.StructType, absent: set[str]) -> DataFrame:
    """The rows with the columns that the data lacks: defaults first, as generated columns may use them."""
    for name, expression in rules.fillings.items():
        if name in absent:
            value = F.expr(expression.text).cast(spark_type(target.field(name).data_type))
            df = df.withColumn(name, null_if_empty(value) if name in rules.null_if_empty else value)
    return df


def null_if_empty(value: Column) -> Column:
    """Text as a partition column holds it: null where it is empty."""
    return F.when(value != "", value)


def check_identities(rules: deltalog.TableRules, absent: set[str]) -> None:
    """Refuse new rows that lack an identity column, whose values no job of Spark makes, or have values for one that
    takes none. Raises UnsupportedFeatureError, SchemaMismatchError."""
    if rules.identities is None:
        return
    missing = sorted(rules.identities.names & absent)
    if missing:
        raise deltalog.UnsupportedFeatureError(
            f"{rules.table}: {missing[0]} is an identity column (identityColumns), and spark_ext does not generate its "
            "values. Append the rows with deltalog.DeltaTable.append, or with delta-spark.",
            features=("identityColumns",),
        )
    rules.identities.check_given(rules.identities.names)


def checked(df: DataFrame, rules: deltalog.TableRules) -> DataFrame:
    """The same rows; the job fails at one that violates a condition."""
    for check in rules.checks:
        condition = F.expr(check.text)
        if check.generates in rules.null_if_empty:
            condition = null_if_empty(condition)
        if check.generates:
            condition = named(check.generates).eqNullSafe(condition)
        refusal_of_row = refuse(_violated(check.name, check.text)).cast("boolean")
        df = df.filter(F.when(F.coalesce(condition, F.lit(False)), F.lit(True)).otherwise(refusal_of_row))
    return df


def selected(df: DataFrame, replacement: deltalog.Replacement) -> DataFrame:
    """The same rows; the job fails at one that the condition of a replacement does not select."""
    values = [
        F.concat(F.lit(f"{name} = "), F.coalesce(named(name).cast("string"), F.lit("NULL")))
        for name in replacement.columns
    ]
    outside = F.concat(
        F.lit(f"DELTALOG: {_OUTSIDE}{replacement.where}: "),
        F.concat_ws(", ", *values),
        F.lit(". Nothing was committed; filter the rows, or replace more. :DELTALOG"),
    )
    is_inside = F.coalesce(F.expr(replacement.where), F.lit(False))
    return df.filter(F.when(is_inside, F.lit(True)).otherwise(F.raise_error(outside).cast("boolean")))


def too_long(name: str, declared: str) -> Column:
    """A value that fails the job, for one that is longer than its column char(n) or varchar(n)."""
    return refuse(_too_long(name, declared))


def violation(message: str, rules: deltalog.TableRules, replaced: str | None) -> deltalog.DeltaLogError:
    """The error for the message of a refusal that a job failed with. ``replaced``: the condition of replaceWhere."""
    if replaced is not None and message.startswith(_OUTSIDE):
        return _violation(message, "the condition of the replaced rows", replaced)
    violated = {_violated(check.name, check.text): (check.name, check.text) for check in rules.checks}
    for name, length in rules.lengths.items():
        violated[_too_long(name, length.text)] = (f"column {name}", length.text)
    if message in violated:
        name, text = violated[message]
        return _violation(f"{rules.table}: {message}. Nothing was committed; correct the rows.", name, text)
    return deltalog.SchemaMismatchError(message)


def _violation(message: str, name: str, text: str) -> deltalog.ConstraintViolationError:
    return deltalog.ConstraintViolationError(message, constraint=name, expression=text, violations=None)


def _too_long(name: str, declared: str) -> str:
    return f"column {name} is {declared} in the table and the data has a longer value"


def _violated(name: str, text: str) -> str:
    return f"a row violates {name} ({text})"
