"""polars-deltalake as an engine under test: a reader for polars on the Delta kernel in Rust, unlike polars' own
``read_delta``."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import polars
import polars_deltalake

from deltalog.conformance.engine import Engine, NotSupported


class PolarsDeltalakeEngine(Engine):
    """polars-deltalake, which reads versions and changes by number. It has no call for a time, and none that writes."""

    name = "polars-deltalake"
    version = f"{importlib.metadata.version('polars-deltalake')} (polars {polars.__version__})"
    lacks = r"Unsupported: |Unsupported Delta table type|Start and end version schemas are different"

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            raise NotSupported("reading the version at a timestamp")
        return polars_deltalake.read_delta(path, version=version)

    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        if from_timestamp_ms is not None or to_timestamp_ms is not None:
            raise NotSupported("reading the change data feed by timestamp")
        return polars_deltalake.read_cdf(path, start_version=from_version or 0, end_version=to_version)
