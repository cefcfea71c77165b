"""A table's rules for its rows; Spark evaluates them in the job that writes the rows.

deltalog parses every expression first, so Spark never evaluates an expression that deltalog does not support.
Expressions use the session's time zone, as in delta-spark.
"""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading.table_columns import named
from spark_ext.types import spark_type

# Extracts the message of a refusal from the error of the Spark job that raised it.
REFUSAL = re.compile(r"DELTALOG: (.*?) :DELTALOG", re.DOTALL)
# The start of the error message for a new row that does not satisfy the replacement's condition.
_OUTSIDE = "a row lies outside of the replaced rows, "


def refuse(message: str) -> Column:
    """A column expression that makes the Spark job fail with the message of a deltalog error."""
    return F.raise_error(F.lit(refusal(message)))


def refusal(message: str) -> str:
    """The error message, with delimiters by which ``REFUSAL`` finds it inside Spark's message."""
    return f"DELTALOG: {message} :DELTALOG"


def filled(
    df: DataFrame, rules: deltalog.engine.TableRules, target: deltalog.schema.StructType, absent: set[str]
) -> DataFrame:
    """The rows with missing columns filled in: first the default values, since generated columns may use these."""
    for name, expression in rules.fillings.items():
        if name in absent:
            value = F.expr(expression.text).cast(spark_type(target.field(name).data_type))
            df = df.withColumn(name, null_if_empty(value) if name in rules.null_if_empty else value)
    return df


def null_if_empty(value: Column) -> Column:
    """A string as a partition column stores it: null if empty."""
    return F.when(value != "", value)


def check_identities(rules: deltalog.engine.TableRules, absent: set[str]) -> None:
    """Refuse rows that lack an identity column, since Spark jobs do not generate its values, or that have values for an
    identity column that is GENERATED ALWAYS. Raises UnsupportedFeatureError, SchemaMismatchError."""
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


def checked(df: DataFrame, rules: deltalog.engine.TableRules) -> DataFrame:
    """The rows; the job fails if a row violates a condition."""
    for check in rules.checks:
        condition = F.expr(check.text)
        if check.generates in rules.null_if_empty:
            condition = null_if_empty(condition)
        if check.generates:
            condition = named(check.generates).eqNullSafe(condition)
        refusal_of_row = refuse(_violated(check.name, check.text)).cast("boolean")
        df = df.filter(F.when(F.coalesce(condition, F.lit(False)), F.lit(True)).otherwise(refusal_of_row))
    return df


def selected(df: DataFrame, replacement: deltalog.engine.Replacement) -> DataFrame:
    """The rows; the job fails if any of them does not satisfy the condition of the replacement."""
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
    """An expression that makes the job fail, for a value that is longer than its char(n) or varchar(n) column
    allows."""
    return refuse(_too_long(name, declared))


def violation(message: str, rules: deltalog.engine.TableRules, replaced: str | None) -> deltalog.DeltaLogError:
    """The error for a job that failed because a row was refused with ``message``. ``replaced``: the condition of
    replaceWhere."""
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
