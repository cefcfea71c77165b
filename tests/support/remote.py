"""An in-memory store that counts the requests an object store would receive, and can delay them or make them fail."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from deltalog.storage.base import FileMeta, LogStore
from deltalog.storage.ranges import TAIL_BYTES, RangeReader
from deltalog.storage.remote import get_together
from deltalog.storage.wrapped import WrappedStore


class RemoteStore(WrappedStore[LogStore]):
    """Reads ``inner`` as if it were an object store. ``requests``: the requested paths in order. ``most_at_once``: the
    largest number of requests that were in progress at the same time. ``bytes_read``: the number of bytes read from
    data files.

    ``before(path)`` is called in every request; it may block or raise.
    """

    def __init__(self, inner: LogStore, before: Callable[[str], None] = lambda path: None) -> None:
        super().__init__(inner)
        self.is_remote = True
        self.before = before
        self.requests: list[str] = []
        self.at_once = self.most_at_once = self.bytes_read = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _request(self, path: str) -> Iterator[None]:
        with self._lock:
            self.requests.append(path)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.before(path)
            yield
        finally:
            with self._lock:
                self.at_once -= 1

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self.bytes_read += size_bytes

    def get(self, path: str, length: int | None = None) -> bytes:
        with self._request(path):
            return super().get(path, length)

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        return get_together(self.get, paths, length)

    def head(self, path: str) -> FileMeta | None:
        with self._request(path):
            return super().head(path)

    def open_input(self, path: str) -> Any:
        with self._request(path), super().open_input(path) as file:
            data = bytes(file.read())
        self._count(len(data[-TAIL_BYTES:]))

        def read(start: int, end: int) -> bytes:
            with self._request(path):
                self._count(end - start)
                return data[start:end]

        return RangeReader(path, data[-TAIL_BYTES:], len(data), read)

    def link_target(self, path: str) -> str | None:
        return None
