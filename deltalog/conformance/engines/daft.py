"""Daft as an engine under test. It reads the log through deltalake, and data files itself."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import daft

from deltalog.conformance.engine import Engine, utc

if TYPE_CHECKING:
    import pyarrow as pa


class DaftEngine(Engine):
    """Daft through ``read_deltalake`` and ``write_deltalake``."""

    name = "daft"
    version = f"{daft.__version__} (deltalake {importlib.metadata.version('deltalake')})"
    lacks = (
        r"deletion vectors are not yet supported|Unsupported table features required|Error parsing property 'delta\."
        r"|Feature '\w+' is not supported"
    )

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        at: int | datetime.datetime | None = version
        if timestamp_ms is not None:
            at = utc(ms=timestamp_ms)
        return daft.read_deltalake(path, version=at).to_arrow()

    def create(self, path: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
        frame = daft.from_arrow(schema.empty_table())
        frame.write_deltalake(
            path, partition_cols=list(partition_by) or None, mode="error", configuration=dict(properties) or None
        )

    def append(self, path: str, rows: pa.Table) -> None:
        daft.from_arrow(rows).write_deltalake(path, mode="append")

    def overwrite(self, path: str, rows: pa.Table) -> None:
        daft.from_arrow(rows).write_deltalake(path, mode="overwrite")
