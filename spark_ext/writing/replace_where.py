"""Checks that a condition of ``replaceWhere`` means the same to deltalog, which uses it to select rows of the table,
and to Spark, which uses it to check new rows."""

from __future__ import annotations

from pyspark.sql import SparkSession

import deltalog
from spark_ext.types import CHAR_VARCHAR

# Names of the time zone UTC, in which deltalog evaluates conditions.
_UTC = frozenset(["UTC", "ETC/UTC", "GMT", "Z", "+00:00"])
_TIME_ZONE = "spark.sql.session.timeZone"
_ANSI = "spark.sql.ansi.enabled"
_ESCAPED = "spark.sql.parser.escapedStringLiterals"
_QUOTED = "spark.sql.ansi.doubleQuotedIdentifiers"
_CHAR_AS_STRING = "spark.sql.legacy.charVarcharAsString"


def check(spark: SparkSession, replacement: deltalog.engine.Replacement) -> None:
    """Raise CallError for a condition of ``replaceWhere`` that this session's parser reads differently, or that depends
    on the session's time zone."""
    where = replacement.where
    zone = spark.conf.get(_TIME_ZONE)
    if replacement.counts_in_utc and str(zone).upper() not in _UTC:
        raise deltalog.CallError(
            f"replaceWhere {where!r} depends on the time zone, and the session's is {zone}: rows of the table would be "
            "selected in UTC, but new rows checked in that zone. Compare timestamps with instants (at >= "
            "'2026-01-31T00:00:00Z'), or set spark.sql.session.timeZone to UTC."
        )
    if "\\" in where and _is_on(spark, _ESCAPED):
        raise _other_meaning(where, f"a backslash is a plain character if {_ESCAPED} is true")
    if '"' in where and _is_on(spark, _ANSI) and _is_on(spark, _QUOTED):
        raise _other_meaning(where, f"double quotes enclose a name if {_QUOTED} is true; write 'text' and `name`")


def may_differ(
    spark: SparkSession, replacement: deltalog.engine.Replacement, schema: deltalog.schema.StructType
) -> bool:
    """Whether the condition may select a row in Spark but not in deltalog: without ANSI mode, failing computations
    return null or another value, and char(n) may be compared without padding."""
    if replacement.is_computed and not _is_on(spark, _ANSI):
        return True
    has_char = any(CHAR_VARCHAR in schema.field(name).metadata for name in replacement.columns)
    return has_char and _is_on(spark, _CHAR_AS_STRING)


def _is_on(spark: SparkSession, setting: str) -> bool:
    return str(spark.conf.get(setting, "false")).strip().lower() == "true"


def _other_meaning(where: str, why: str) -> deltalog.CallError:
    return deltalog.CallError(
        f"replaceWhere {where!r} means one thing to deltalog, which selects rows of the table, and another to this "
        f"Spark session, which checks new rows: {why}. Change the setting, or the condition."
    )
