"""Table names in Spark's own catalog, which ``use_catalog(spark, "spark")`` selects.

A name is an entry in Spark's catalog that contains the location of the table and the provider: ``deltalog``, or
``delta`` if another engine registered the name. Spark lists, renames and drops the name; deltalog reads and writes the
table there. The table itself does not record its name, so it can also be used by its path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

#: The attribute in which a method that ``install`` puts in place of one of PySpark's methods holds PySpark's own
#: method.
ORIGINAL = "_deltalog_original"
PROVIDERS = ("delta", "deltalog")
_PART = re.compile(r"`(?:[^`]|``)+`|[^`.\s/\\:#]+")
_PROVIDER = re.compile(r"^Provider: (\w+)$", re.MULTILINE)
_LOCATION = re.compile(r"^Location: (.+)$", re.MULTILINE)
_BY_PATH = re.compile(r"(?:delta|deltalog)\.`((?:[^`]|``)+)`", re.IGNORECASE)
_FILE = re.compile(r"^file:/+")
# The hook that ``install`` sets: a function that registers the provider ``deltalog`` in a session.
_provide: Callable[[SparkSession], None] | None = None


def use_by_default(provide: Callable[[SparkSession], None] | None) -> None:
    """Set whether table names refer to Spark's catalog in sessions that do not set this themselves. ``provide``: a
    function that registers the provider ``deltalog`` in a session; None if names do not refer to Spark's catalog by
    default."""
    global _provide
    _provide = provide


def are_default() -> bool:
    return _provide is not None


def plain_sql(spark: SparkSession, text: str) -> Any:
    """Run a statement in Spark, also while ``spark_ext.install`` is in effect."""
    kind = type(spark)
    return getattr(kind.sql, ORIGINAL, kind.sql)(spark, text)


def location_of(spark: SparkSession, name: str, *, past_views: bool = False) -> str | None:
    """The location of a Delta table in Spark's catalog; None for other tables, for views, and if there is no such
    name. ``name``: as written in SQL. ``past_views``: whether to ignore a temporary view of the same name, as Spark
    does in places where only a table can be named. Cost: 1 Spark command."""
    parts = _PART.findall(name)
    if not parts or "".join(parts) != name.replace(" ", "").replace(".", ""):
        return None
    schema, table = ".".join(parts[:-1]), parts[-1].strip("`").replace("``", "`")
    place = f" IN {schema}" if schema else ""
    try:
        rows = plain_sql(spark, f"SHOW TABLE EXTENDED{place} LIKE {_literal(table)}").collect()
    except (AnalysisException, ParseException):
        return None
    rows = [row for row in rows if row["tableName"].lower() == table.lower()]
    if not schema and not past_views and any(row["isTemporary"] for row in rows):
        return None
    for row in rows:
        if not row["isTemporary"]:
            return _location(row["information"])
    return None


def _location(information: str) -> str | None:
    """The location of a Delta table, taken from Spark's description of the table. Between its lines ``Provider`` and
    ``Location``, the description contains the table's comment, which may be any text."""
    shown = information.rpartition("\nSchema: root")[0] or information
    provider, places = _PROVIDER.search(shown), _LOCATION.findall(shown)
    if provider is None or provider[1].lower() not in PROVIDERS or not places:
        return None
    return _FILE.sub("/", str(places[-1]))


def add(spark: SparkSession, name: str, location: str | None, columns: StructType) -> None:
    """Register a name. Without ``location``, Spark chooses the location, below its warehouse directory, and deletes the
    files when the name is dropped. ``columns``: what Spark lists as the columns. Raises Spark's errors. Cost: 1 Spark
    command."""
    if _provide is not None:
        _provide(spark)
    at = "" if location is None else f" LOCATION {_literal(location)}"
    listed = ", ".join(f"`{each.name.replace('`', '``')}` {each.dataType.simpleString()}" for each in columns.fields)
    plain_sql(spark, f"CREATE TABLE {name} ({listed}) USING deltalog{at}")


def drop(spark: SparkSession, name: str) -> None:
    """Drop a name. Cost: 1 Spark command."""
    plain_sql(spark, f"DROP TABLE IF EXISTS {name}")


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def path_in(name: str) -> str | None:
    """The path in ``delta.`path``` or ``deltalog.`path```; None for other names."""
    found = _BY_PATH.fullmatch(name) if isinstance(name, str) else None
    return None if found is None else found[1].replace("``", "`")
