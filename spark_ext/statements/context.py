"""Code shared by the SQL statements: it resolves the tables that a statement names, and runs the statement's
queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext.delta_table import DeltaTable
from spark_ext.parse.cursor import Cursor
from spark_ext.parse.table_references import unquoted
from spark_ext.session import paths, stores
from spark_ext.session.paths import Location


@dataclass(frozen=True)
class Named:
    """A table as a statement names it, by path or by name."""

    #: None for a table by name.
    path: str | None
    #: The name or the path, as it is written in the statement.
    name: str
    #: The location of a table in the session's catalog; None if it is not in the catalog.
    location: Location | None
    #: The name with which a statement can qualify the table's columns.
    qualifier: str | None


@dataclass(frozen=True)
class Target:
    """A deltalog table that a statement reads or changes."""

    core: deltalog.DeltaTable
    table: DeltaTable
    #: The name with which a statement can qualify the table's columns.
    qualifier: str | None
    #: The name as written; None for a table given by path.
    name: str | None

    @property
    def schema(self) -> deltalog.schema.StructType:
        """The schema of the latest version."""
        return self.core.snapshot().schema


@dataclass(frozen=True)
class Context:
    """The session and the arguments with which a statement runs."""

    spark: SparkSession
    #: The tables of the session's catalog to which the statement refers, keyed by ``schema.table``.
    tables: Mapping[str, Location]
    #: Storage options for the tables that a statement names by path.
    storage: Mapping[str, Any] | None
    allowed_paths: str | Sequence[str]
    #: Runs a query over deltalog tables.
    query: Callable[[str], DataFrame]

    def named(self, cursor: Cursor) -> Named:
        """Parse the name of a table. Raises CallError."""
        statement, at = cursor.statement, cursor.at
        if statement.head == "vacuum" and not cursor.is_at_end and cursor.token.kind == "string":
            return Named(cursor.string(), cursor.text(at, cursor.at), None, None)
        if statement.names_table(at):
            cursor.at += 3
            return Named(statement.path(at), cursor.text(at, at + 3), None, None)
        found = statement.name(at)
        if found is None:
            raise cursor.error("expected the name of a table")
        full, cursor.at = found
        last = unquoted(statement.tokens[cursor.at - 1].text)
        written = "".join(token.text for token in statement.tokens[at : cursor.at])
        return Named(None, written, self.tables.get(full), last)

    def target(self, cursor: Cursor) -> Target | None:
        """Parse the name of a table and open the table; None if the name is not in the session's catalog. Raises
        TableNotFoundError, CallError."""
        found = self.named(cursor)
        if found.path is None and found.location is None:
            return None
        location = found.path if found.location is None else found.location
        # A table of the catalog is already open, so no storage options are needed.
        storage = stores.checked(self.storage or {}) if found.path is not None else None
        assert location is not None
        core = paths.open_table(self.spark, location, self.allowed_paths, storage)
        name = found.name if found.path is None else None
        return Target(core, DeltaTable(self.spark, core), found.qualifier, name)

    def numbers(self, **columns: int | None) -> DataFrame:
        """A DataFrame with one row of numbers, like the results of delta-spark's statements."""
        schema = ", ".join(f"{name} bigint" for name in columns)
        return self.spark.createDataFrame([tuple(columns.values())], schema)

    def nothing(self) -> DataFrame:
        """A DataFrame with neither rows nor columns."""
        return self.spark.range(0).select()


def default_of(schema: deltalog.schema.StructType, column: str) -> str:
    """The default of a column as SQL; NULL if the column has none."""
    field = schema.find(unquoted(column))
    return "NULL" if field is None else str(field.metadata.get("CURRENT_DEFAULT", "NULL"))


def duplicates(found: Sequence[str]) -> list[str]:
    """The names that already occur earlier in the list, ignoring case."""
    lower = [name.lower() for name in found]
    return [name for at, name in enumerate(found) if name.lower() in lower[:at]]
