"""A store in the memory of this process, for tests, simulations and temporary tables."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from deltalog.errors import CallError, ObjectNotFoundError, PathExistsError
from deltalog.protocol.paths import LOG_DIRECTORY
from deltalog.storage.base import Entry, EntryKind, FileMeta, LogStore, PutOutcome, entries_by_head, etag_of


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore(LogStore):
    """Objects in a dictionary. ``clock_ms`` returns the modification time of new objects."""

    def __init__(self, url: str = "memory://", clock_ms: Callable[[], int] = _wall_clock_ms) -> None:
        self.url = url.rstrip("/")
        self._clock_ms = clock_ms
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        with self._lock:
            if path in self._objects:
                return PutOutcome.EXISTS
            self._objects[path] = (bytes(data), self._clock_ms())
            return PutOutcome.COMMITTED

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        with self._lock:
            self._objects[path] = (bytes(data), self._clock_ms())

    def get(self, path: str, length: int | None = None) -> bytes:
        return self._object(path)[0][:length]

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        prefix = f"{directory}/" if directory else ""
        with self._lock:
            items = [(path[len(prefix) :], item) for path, item in self._objects.items() if path.startswith(prefix)]
        listed = sorted(item for item in items if "/" not in item[0] and item[0] >= start)[:limit]
        return [FileMeta(name, len(data), time_ms, etag_of(data) if stat else None) for name, (data, time_ms) in listed]

    def head(self, path: str) -> FileMeta | None:
        with self._lock:
            item = self._objects.get(path)
        return None if item is None else FileMeta(path.rsplit("/", 1)[-1], len(item[0]), item[1], etag_of(item[0]))

    def delete(self, path: str) -> None:
        with self._lock:
            self._objects.pop(path, None)

    def walk(self, enters: Callable[[str], bool]) -> Iterator[Entry]:
        with self._lock:
            items = [(path, len(data), time_ms) for path, (data, time_ms) in self._objects.items()]
        for path, size, time_ms in sorted(items):
            if not path.startswith(f"{LOG_DIRECTORY}/"):
                yield Entry(path, EntryKind.FILE, size, time_ms)

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        return entries_by_head(self, paths, 0)

    def open_input(self, path: str) -> Any:
        import pyarrow as pa

        return pa.BufferReader(self._object(path)[0])

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        buffer = io.BytesIO()
        yield buffer
        if self.put_if_absent(path, buffer.getvalue()) is PutOutcome.EXISTS:
            raise PathExistsError(f"{self.url} has an object {path} already, which is unchanged.", path=path)

    def sync(self, paths: list[str]) -> None:
        return None

    def sibling(self, url: str) -> MemoryStore:
        if not url.startswith("memory://"):
            raise CallError(f"{url} is not in memory, where the table {self.url} is.")
        return named_store(url)

    def _object(self, path: str) -> tuple[bytes, int]:
        with self._lock:
            item = self._objects.get(path)
        if item is None:
            raise ObjectNotFoundError(f"{self.url} has no object {path}.", path=path)
        return item


_named: dict[str, MemoryStore] = {}
_named_lock = threading.Lock()


def named_store(url: str) -> MemoryStore:
    """The store ``memory://name`` of this process, which is created on first use and exists until the process ends."""
    with _named_lock:
        return _named.setdefault(url.rstrip("/"), MemoryStore(url))
