"""The Delta kernel in Rust as an engine under test, through the wrapper that the client of Delta Sharing uses."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import delta_kernel_rust_sharing_wrapper as kernel
import pyarrow

from deltalog.conformance.engine import Engine, NotSupported


class KernelRsEngine(Engine):
    """The Rust kernel. The wrapper reads the latest version, and changes by version; it has no call for an older
    version, for a time, or for a write."""

    name = "kernel-rs"
    version = importlib.metadata.version("delta-kernel-rust-sharing-wrapper")
    # The wrapper raises ValueError; an error of a batch arrives as an error of pyarrow's stream.
    refusals = (ValueError, OSError, pyarrow.ArrowException)
    lacks = r"Unsupported: |Unsupported Delta table type|Start and end version schemas are different"

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if version is not None:
            raise NotSupported("reading an older version")
        if timestamp_ms is not None:
            raise NotSupported("reading the version at a timestamp")
        interface, snapshot = self._snapshot(path)
        return kernel.ScanBuilder(snapshot).build().execute(interface).read_all()

    def latest_version(self, path: str) -> int:
        return int(self._snapshot(path)[1].version())

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
        place = _url(path)
        interface = kernel.PythonInterface(place)
        builder = kernel.TableChangesScanBuilder(kernel.Table(place), interface, from_version or 0, to_version)
        return builder.build().execute(interface).read_all()

    def _snapshot(self, path: str) -> tuple[Any, Any]:
        place = _url(path)
        interface = kernel.PythonInterface(place)
        return interface, kernel.Table(place).snapshot(interface)


def _url(path: str) -> str:
    return Path(path).absolute().as_uri() + "/"
