"""The kernel as an engine of the conformance kit, for tables of a Unity Catalog only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from deltalog.conformance.engine import Engine, NotSupported
from tests.support.unity_clients.jvm import JavaError, Jvm
from tests.support.unity_clients.kernel import Kernel, KernelSnapshot


class KernelEngine(Engine):
    name = "kernel"
    version = "4.4.0"
    refusals = (JavaError,)

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm

    def of_catalog(self, url: str, token: str | None) -> Engine:
        return _OfCatalog(Kernel(self._jvm, url.partition("/api/")[0], token or "any"))


class _OfCatalog(Engine):
    name, version, refusals = KernelEngine.name, KernelEngine.version, KernelEngine.refusals

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def _load(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> KernelSnapshot:
        return self._kernel.load(self._kernel.find(path), version, timestamp_ms)

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        return pa.Table.from_pylist(self._load(path, version, timestamp_ms).rows())

    def version_at(self, path: str, timestamp_ms: int) -> int:
        return self._load(path, timestamp_ms=timestamp_ms).version

    def latest_version(self, path: str) -> int:
        return self._load(path).version

    def append(self, path: str, rows: pa.Table) -> None:
        self._load(path).append(rows.to_pylist())

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        if None in properties.values():
            raise NotSupported("removing properties")
        self._load(path).set_properties({key: value for key, value in properties.items() if value is not None})

    def begin(self, path: str) -> Engine:
        return _Begun(self._load(path))


class _Begun(Engine):
    """A snapshot on which the next commit is made."""

    def __init__(self, snapshot: KernelSnapshot) -> None:
        self._snapshot = snapshot

    def append(self, path: str, rows: pa.Table) -> None:
        self._snapshot.append(rows.to_pylist())
