"""DuckDB as an engine under test, through its extension ``delta``, which DuckDB downloads on first use."""

from __future__ import annotations

from typing import Any

import duckdb

from deltalog.conformance.engine import Engine, NotSupported
from deltalog.errors import CallError


class DuckDBEngine(Engine):
    """DuckDB through ``delta_scan``."""

    name = "duckdb"
    version = duckdb.__version__

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        try:
            self._connection.execute("INSTALL delta")
            self._connection.execute("LOAD delta")
        except duckdb.Error as error:
            raise CallError(
                f"DuckDB's extension delta cannot be installed here: {str(error).splitlines()[0]}"
            ) from error

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            raise NotSupported("time travel by timestamp is not tested with DuckDB")
        place = path.replace("'", "''")
        at = "" if version is None else f", version => {version}"
        return self._connection.execute(f"SELECT * FROM delta_scan('{place}'{at})").to_arrow_table()
