"""Base class for stores that wrap another store and override some of its methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Generic, TypeVar

from deltalog.arguments import safe_repr
from deltalog.storage.base import Entry, FileMeta, LogStore, PutOutcome, WalkPart

S = TypeVar("S", bound=LogStore)


class WrappedStore(LogStore, Generic[S]):
    """Delegates every call to ``inner``, at the same cost."""

    is_measured = False

    def __init__(self, inner: S) -> None:
        self.inner = inner
        self.url = inner.url
        self.is_remote = inner.is_remote
        self.lists_in_pages = inner.lists_in_pages

    @safe_repr
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return self.inner.put_if_absent(path, data)

    def prepare_commit(self, version: int) -> None:
        self.inner.prepare_commit(version)

    def link_if_absent(self, names: Sequence[tuple[str, str, int]]) -> int:
        return self.inner.link_if_absent(names)

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.inner.put(path, data, durable=durable)

    def get(self, path: str, length: int | None = None) -> bytes:
        return self.inner.get(path, length)

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        return self.inner.get_many(paths, length)

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        return self.inner.list_from(directory, start, stat=stat, limit=limit)

    def list_names(self, directory: str, start: str = "", *, limit: int | None = None) -> list[str]:
        return self.inner.list_names(directory, start, limit=limit)

    def head(self, path: str) -> FileMeta | None:
        return self.inner.head(path)

    def etag(self, path: str) -> str | None:
        return self.inner.etag(path)

    def delete(self, path: str) -> None:
        self.inner.delete(path)

    def remove_orphans(self, directory: str, before_ms: int) -> list[str]:
        return self.inner.remove_orphans(directory, before_ms)

    def find_names(self, start: str, containing: str, *, most: int) -> list[str]:
        return self.inner.find_names(start, containing, most=most)

    def walk(self, enters: Callable[[str], bool]) -> Iterator[Entry]:
        return self.inner.walk(enters)

    def walk_parts(self, enters: Callable[[str], bool], start: str = "", end: str | None = None) -> Iterator[WalkPart]:
        return self.inner.walk_parts(enters, start, end)

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        return self.inner.entries(paths)

    def remove(self, entries: Sequence[Entry]) -> list[Entry]:
        return self.inner.remove(entries)

    def remove_all(self) -> int:
        return self.inner.remove_all()

    def open_input(self, path: str) -> Any:
        return self.inner.open_input(path)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self.inner.open_output(path)

    def sync(self, paths: list[str]) -> None:
        self.inner.sync(paths)

    def location(self, path: str) -> str:
        return self.inner.location(path)

    def link_target(self, path: str) -> str | None:
        return self.inner.link_target(path)
