"""DuckDB as an engine under test, through its extension ``delta``, which the package ``duckdb-extension-delta``
brings."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta

from deltalog.conformance.engine import Engine, NotSupported, utc

if TYPE_CHECKING:
    import pyarrow as pa


class DuckDBEngine(Engine):
    """DuckDB."""

    name = "duckdb"
    version = duckdb.__version__
    refusals = (duckdb.Error,)
    lacks = r"UnsupportedError|Unsupported Delta table type|Unsupported Arrow type VARIANT"

    def __init__(self) -> None:
        self._database = _Database()

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            return self._rows_at(path, timestamp_ms)
        at = "" if version is None else f", version => {version}"
        with self._database.connected() as connection:
            return connection.execute(f"SELECT * FROM delta_scan({_text(path)}{at})").to_arrow_table()

    def _rows_at(self, path: str, timestamp_ms: int) -> Any:
        with self._database.attached(path) as (connection, table):
            try:
                found = connection.execute(f"SELECT * FROM {table} AT (TIMESTAMP => {_timestamp(timestamp_ms)})")
            except duckdb.Error as error:
                if "only support at_clause with unit 'version'" in str(error):
                    raise NotSupported("reading the version at a timestamp") from error
                raise
            return found.to_arrow_table()

    def append(self, path: str, rows: pa.Table) -> None:
        with self._database.attached(path) as (connection, table):
            _insert(connection, table, rows)

    def checkpoint(self, path: str) -> None:
        with self._database.attached(path) as (connection, table):
            connection.execute(f"CHECKPOINT {table}")

    def begin(self, path: str) -> Engine:
        return _Begun(self._database, path)


class _Begun(Engine):
    """An open transaction, which has read the table."""

    def __init__(self, database: _Database, path: str) -> None:
        self._closing = contextlib.ExitStack()
        self._connection, self._table = self._closing.enter_context(database.attached(path))
        self._connection.execute("BEGIN TRANSACTION")
        self._connection.execute(f"SELECT count(*) FROM {self._table}").fetchall()

    def append(self, path: str, rows: pa.Table) -> None:
        with self._closing:
            _insert(self._connection, self._table, rows)
            self._connection.execute("COMMIT")


class _Database:
    """DuckDB in memory, with the extension. An internal error ends it; a new one is made for the next call. Such an
    error is no refusal: it is raised as RuntimeError."""

    def __init__(self) -> None:
        self._opened: duckdb.DuckDBPyConnection | None = None
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def connected(self) -> Iterator[duckdb.DuckDBPyConnection]:
        if self._opened is None:
            place = Path(duckdb_extension_delta.__path__[0])
            (extension,) = place.glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")
            self._opened = duckdb.connect()
            self._opened.execute(f"LOAD {_text(str(extension))}")
        with self._opened.cursor() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            try:
                yield connection
            except (duckdb.InternalException, duckdb.FatalException) as error:
                self._opened = None
                raise RuntimeError(str(error)) from error

    @contextlib.contextmanager
    def attached(self, path: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """A connection, and the name under which the table is attached. DuckDB attaches a table as a database."""
        name = f"table_{next(self._numbers)}"
        with self.connected() as connection:
            connection.execute(f"ATTACH {_text(path)} AS {name} (TYPE delta)")
            try:
                yield connection, name
            finally:
                with contextlib.suppress(duckdb.Error):  # a transaction that failed has ended, or ends here
                    connection.execute("ROLLBACK")
                with contextlib.suppress(duckdb.Error):
                    connection.execute(f"DETACH {name}")


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    connection.register("new_rows", rows)
    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")


def _timestamp(timestamp_ms: int) -> str:
    return f"TIMESTAMPTZ '{utc(ms=timestamp_ms).isoformat(sep=' ', timespec='milliseconds')}'"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
