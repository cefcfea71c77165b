"""QueryBuilder: SQL on tables. deltalake runs the SQL on DataFusion, this package on DuckDB if that is installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import pyarrow as pa

from deltalog.deltalake.arrow import given_reader, view_schema, with_views
from deltalog.deltalake.exceptions import DeltaError, translated
from deltalog.deltalake.table import DeltaTable

__all__ = ["QueryBuilder"]


class QueryBuilder:
    """SQL queries on registered tables, in DuckDB's dialect. ``session_config`` is an option of DataFusion, and has no
    effect here. Raises DeltaError if duckdb is not installed."""

    def __init__(self, session_config: dict[str, str] | None = None) -> None:
        if importlib.util.find_spec("duckdb") is None:
            raise DeltaError("QueryBuilder needs duckdb, which is not installed: pip install duckdb.")
        self._tables: dict[str, DeltaTable] = {}

    def register(self, table_name: str, delta_table: DeltaTable) -> QueryBuilder:
        """Add a table under a name."""
        self._tables[table_name] = delta_table
        return self

    def execute(self, sql: str) -> Any:
        """Run a query. Returns a stream of batches."""
        import duckdb

        connection = duckdb.connect()
        with translated():
            for name, table in self._tables.items():
                connection.register(name, pa.table(table.scan()))
        try:
            found = connection.sql(sql)
            # None for a statement that returns no rows, such as CREATE TABLE.
            rows = pa.table({}) if found is None else found.to_arrow_table()
        except duckdb.Error as error:
            raise DeltaError(f"The query failed: {error}") from error
        return given_reader(_typed(rows, self._tables).to_reader())


def _typed(rows: pa.Table, tables: dict[str, DeltaTable]) -> pa.Table:
    """The result with the types and nullability of the table columns of the same names."""
    known: dict[str, pa.Field] = {}
    for table in tables.values():
        known.update({field.name: field for field in table.schema()._arrow_schema()})
    fields, rows = [], with_views(rows)
    for field in rows.schema:
        own = known.get(field.name)
        is_same = own is not None and view_schema(pa.schema([own])).field(0).type == field.type
        if own is not None and is_same and (own.nullable or not rows[field.name].null_count):
            field = own.with_type(field.type)
        fields.append(field)
    return rows.cast(pa.schema(fields))
