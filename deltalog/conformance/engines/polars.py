"""polars as an engine under test. It reads and writes Delta tables through deltalake."""

from __future__ import annotations

from typing import Any

import polars
import pyarrow as pa

from deltalog.conformance.engine import Engine, utc


class PolarsEngine(Engine):
    """polars through ``read_delta`` and ``write_delta``."""

    name = "polars"
    version = polars.__version__
    lacks = (
        r"Unsupported table features required|reader features?:? [\[{]|not yet supported|does not support|"
        r"This feature is not implemented"
    )

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            return self.rows_at_us(path, timestamp_ms * 1000)
        return polars.read_delta(path, version=version)

    def rows_at_us(self, path: str, timestamp_us: int) -> Any:
        return polars.read_delta(path, version=utc(us=timestamp_us))

    def append(self, path: str, rows: pa.Table) -> None:
        polars.from_arrow(rows).write_delta(path, mode="append")  # type: ignore[union-attr]

    def overwrite(self, path: str, rows: pa.Table) -> None:
        polars.from_arrow(rows).write_delta(path, mode="overwrite")  # type: ignore[union-attr]
