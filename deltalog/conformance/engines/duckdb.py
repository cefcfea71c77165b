"""DuckDB as an engine under test, through its extension ``delta``, which the package ``duckdb-extension-delta``
brings."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta

from deltalog.conformance.engine import Engine, NotSupported

if TYPE_CHECKING:
    import pyarrow as pa

# A table is attached as a database, whose name is the name of the table.
_TABLE = "delta_table"
_TYPES = {"long": "BIGINT", "string": "VARCHAR", "double": "DOUBLE", "boolean": "BOOLEAN", "date": "DATE"}


class DuckDBEngine(Engine):
    """DuckDB. Every call has its own connection, because an internal error ends a connection."""

    name = "duckdb"
    version = duckdb.__version__
    refusals = (duckdb.Error,)

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        at = ""
        if version is not None:
            at = f", version => {version}"
        if timestamp_ms is not None:
            at = f", timestamp => {_timestamp(timestamp_ms)}"
        with _connected() as connection:
            try:
                return connection.execute(f"SELECT * FROM delta_scan({_text(path)}{at})").to_arrow_table()
            except duckdb.BinderException as error:
                if timestamp_ms is not None and "timestamp" in str(error):
                    raise NotSupported("reading the version at a timestamp") from error
                raise

    def append(self, path: str, rows: pa.Table) -> None:
        with _attached(path) as connection:
            _insert(connection, rows)

    def checkpoint(self, path: str) -> None:
        with _attached(path) as connection:
            connection.execute(f"CHECKPOINT {_TABLE}")

    def begin(self, path: str) -> Engine:
        return _Begun(path)


class _Begun(Engine):
    """An open transaction. It reads the table at its start, which decides the version on which it is based."""

    def __init__(self, path: str) -> None:
        self._closing = contextlib.ExitStack()
        self._connection = self._closing.enter_context(_attached(path))
        self._connection.execute("BEGIN TRANSACTION")
        self._connection.execute(f"SELECT * FROM {_TABLE} LIMIT 0").fetchall()

    def append(self, path: str, rows: pa.Table) -> None:
        with self._closing:
            _insert(self._connection, rows)
            self._connection.execute("COMMIT")


@contextlib.contextmanager
def _connected() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the extension. An internal error is no refusal: it is raised as RuntimeError."""
    (extension,) = Path(duckdb_extension_delta.__path__[0]).glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD {_text(str(extension))}")
        connection.execute("SET TimeZone = 'UTC'")
        try:
            yield connection
        except (duckdb.InternalException, duckdb.FatalException) as error:
            raise RuntimeError(str(error)) from error


@contextlib.contextmanager
def _attached(path: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with _connected() as connection:
        connection.execute(f"ATTACH {_text(path)} AS {_TABLE} (TYPE delta)")
        yield connection


def _insert(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    connection.register("new_rows", rows)
    connection.execute(f"INSERT INTO {_TABLE} BY NAME SELECT * FROM new_rows")


def _timestamp(timestamp_ms: int) -> str:
    at = datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(milliseconds=timestamp_ms)
    return f"TIMESTAMPTZ '{at.isoformat(sep=' ', timespec='milliseconds')}'"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
