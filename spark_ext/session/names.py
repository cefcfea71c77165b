"""Table names: the deltalog catalog of a session, and the addresses of its tables.

The catalog is a SQLite file or a DynamoDB table, as for ``deltalog.TransactionManager``, or a catalog of a Unity
Catalog server, so that names outlive the session. The reader, the writer and SQL statements resolve a name with
``address_of(spark, name)``, and use the address like a path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

import deltalog
from spark_ext.session import spark_names

CATALOG = "spark.deltalog.catalog"
#: The setting that selects Spark's own catalog.
SPARK = "spark"
#: The beginning of a setting that selects a catalog of a Unity Catalog server.
UNITY = "uc://"
_WAREHOUSE = "spark.sql.warehouse.dir"
_PART = r"`(?:[^`]|``)+`|[^`.\s/\\:#]+"
_NAME = re.compile(rf"({_PART})(?:\.({_PART}))?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_REGISTRABLE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
_MOST_BYTES = 255
_DEFAULT_SCHEMA = "default"


def use_catalog(spark: SparkSession, catalog: str | None) -> None:
    """Set the deltalog catalog that resolves the session's table names; None: no catalog.

    ``catalog``: the path of a SQLite file, which is created with the first table, or ``dynamodb:<table>``;
    ``uc://<catalog>``, a catalog of the Unity Catalog server that the environment names (docs/unity-client.md); or
    ``spark``, for Spark's own catalog, with Spark 4.0 or newer. In this case the names can be listed, renamed and
    dropped in Spark; the tables themselves are not managed by a catalog. Equivalent to the setting
    ``spark.deltalog.catalog``. Cost: none.
    """
    if catalog is None:
        spark.conf.unset(CATALOG)
    elif not isinstance(catalog, str) or not catalog:
        raise deltalog.CallError(f"A catalog is the path of a SQLite file or dynamodb:<table>; got {catalog!r}.")
    else:
        is_path = catalog != SPARK and not _SCHEME.match(catalog)
        spark.conf.set(CATALOG, os.path.abspath(catalog) if is_path else catalog)


def setting_of(spark: SparkSession) -> str | None:
    """The catalog to which the session is set. If it is not set: ``SPARK``, which means Spark's catalog, while
    ``spark_ext.install`` is in effect, and otherwise None. Cost: 1 Spark command."""
    found = spark.conf.get(CATALOG, None)
    return found or (SPARK if spark_names.are_default() else None)


def catalog_of(spark: SparkSession) -> str:
    """The catalog of the session. Raises CallError if none is set."""
    catalog = setting_of(spark)
    if not catalog:
        raise deltalog.CallError(
            f"Table names need a catalog: call spark_ext.use_catalog(spark, 'catalog.db') or set {CATALOG}. "
            "Tables without one are read and written by path."
        )
    return str(catalog)


def is_name(text: str) -> bool:
    """Whether text has the form ``table`` or ``schema.table``, which neither a path nor a URL has."""
    return _NAME.fullmatch(text) is not None


def full_name(name: str) -> str:
    """A name as ``schema.table`` without backticks, by default with the schema ``default``. Raises CallError."""
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise deltalog.CallError(f"{name!r} is not the name of a table: write table or schema.table.")
    first, second = (_unquoted(part) for part in found.groups())
    return f"{first}.{second}" if second else f"{_DEFAULT_SCHEMA}.{first}"


def address_of(spark: SparkSession, name: str) -> str:
    """The address of a table, for calls that expect a path; for a table in Spark's catalog, its path. ``name`` may also
    be the address of a table in a Unity Catalog. Raises CallError, and TableNotFoundError if Spark's catalog has no
    such Delta table. Cost: 1 Spark command; 2 with Spark's catalog."""
    if isinstance(name, str) and name.startswith(UNITY):
        return name
    catalog = catalog_of(spark)
    if catalog != SPARK:
        return prefix_of(catalog) + full_name(name)
    found = spark_names.location_of(spark, name)
    if found is None:
        raise deltalog.TableNotFoundError(
            f"{name} is not a Delta table: Spark's catalog has no such table (TABLE_OR_VIEW_NOT_FOUND, "
            "DELTA_MISSING_DELTA_TABLE), or it is a view or a table of another format."
        )
    return found


def is_unity(catalog: str | None) -> bool:
    """Whether the catalog of a session is one of a Unity Catalog server."""
    return catalog is not None and catalog.startswith(UNITY)


def prefix_of(catalog: str) -> str:
    """The part of a table's address before its ``schema.table``."""
    return f"{catalog.rstrip('./')}." if is_unity(catalog) else f"catalog:{catalog}#"


def unity_catalog(catalog: str, storage: Mapping[str, Any]) -> deltalog.UnityCatalog:
    """The catalog of a session on a Unity Catalog server. ``storage``: the options of its tables. Raises CallError."""
    return deltalog.UnityCatalog(catalog.removeprefix(UNITY).rstrip("./"), **storage)


def can_be_registered(full: str) -> bool:
    """Whether a catalog accepts this ``schema.table``: it is not too long and contains no control characters."""
    parts = full.partition(".")[::2]
    return all(_REGISTRABLE.fullmatch(part) and len(part.encode()) <= _MOST_BYTES for part in parts)


def location_of(spark: SparkSession, name: str) -> str:
    """The default location of a new table that is created by name: below Spark's warehouse directory, as for Spark's
    own tables."""
    schema, _, table = full_name(name).partition(".")
    warehouse = spark.conf.get(_WAREHOUSE)
    assert warehouse is not None
    below = [table] if schema == _DEFAULT_SCHEMA else [f"{schema}.db", table]
    return "/".join([re.sub(r"^file:/+", "/", warehouse).rstrip("/"), *below])


def _unquoted(part: str | None) -> str:
    if part is None:
        return ""
    return part[1:-1].replace("``", "`") if part.startswith("`") else part
