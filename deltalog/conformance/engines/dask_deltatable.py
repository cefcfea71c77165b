"""Dask as an engine under test, through dask-deltatable, which reads the log through deltalake and data files through
pyarrow. Columns keep their Arrow types: by default, pandas has no integers beside nulls, and Dask turns lists and
structs into text."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import dask_deltatable
import pandas

from deltalog.conformance.engine import Engine, utc


class DaskDeltatableEngine(Engine):
    """Dask through ``read_deltalake`` and ``to_deltalake``."""

    name = "dask-deltatable"
    version = f"{importlib.metadata.version('dask-deltatable')} (deltalake {importlib.metadata.version('deltalake')})"

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        at = None
        if timestamp_ms is not None:
            at = utc(ms=timestamp_ms).isoformat(timespec="milliseconds")
        types = {"types_mapper": pandas.ArrowDtype}
        frame = dask_deltatable.read_deltalake(path, version=version, datetime=at, pyarrow_to_pandas=types)
        return frame.compute().reset_index(drop=True)
