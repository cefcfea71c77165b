"""fsspec backends as third parties might write them: one correct backend, and several incorrect ones."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from typing import Any

from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

Objects = dict[str, tuple[bytes, datetime.datetime]]


class ServiceError(Exception):
    """The error that a client library raises for an error response."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(f"{status} {text}")
        self.status = status


class HonestFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Objects in a dictionary, created exclusively under a lock. ``calls`` records the requests."""

    protocol = ("honest", "honestly")
    cachable = False

    # Each instance is a separate service. fsspec compares instances by constructor arguments, so the check result of an
    # instance that is not yet garbage-collected would be reused for the next one.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __init__(self, objects: Objects | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.objects: Objects = {} if objects is None else objects
        self.lock = threading.Lock()
        self.calls: list[tuple[str, str]] = []

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        self.calls.append(("create" if mode == "create" else "write", path))
        self._pipe(path, bytes(value), exclusively=mode == "create")

    def _pipe(self, path: str, value: bytes, exclusively: bool) -> None:
        with self.lock:
            if exclusively and path in self.objects:
                raise FileExistsError(path)
            self.objects[path] = (value, datetime.datetime.now(datetime.timezone.utc))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        self.calls.append(("read", path))
        return self._object(path)[0][start:end]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        self.calls.append(("info", path))
        return self._info_of(path)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        self.calls.append(("list", path))
        prefix = f"{path}/" if path else ""
        with self.lock:
            below = [name for name in self.objects if name.startswith(prefix)]
        if not below:
            raise FileNotFoundError(path)
        found = [self._info_of(name) for name in below if "/" not in name[len(prefix) :]]
        inner = {prefix + name[len(prefix) :].split("/")[0] for name in below if "/" in name[len(prefix) :]}
        found += [{"name": name, "size": 0, "type": "directory"} for name in inner]
        return found if detail else [entry["name"] for entry in found]

    def rm_file(self, path: str) -> None:
        self.calls.append(("delete", path))
        with self.lock:
            if self.objects.pop(path, None) is None:
                raise FileNotFoundError(path)

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        with open(lpath, "rb") as file:
            self.pipe_file(rpath, file.read())

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        raise AssertionError("an object store has no directories")

    def _info_of(self, path: str) -> dict[str, Any]:
        value, modified = self._object(path)
        return {"name": path, "size": len(value), "type": "file", "modified": modified}

    def _object(self, path: str) -> tuple[bytes, datetime.datetime]:
        with self.lock:
            if path not in self.objects:
                raise FileNotFoundError(path)
            return self.objects[path]


class LyingFileSystem(HonestFileSystem):
    """A file system that accepts the mode "create" but overwrites existing objects."""

    def _pipe(self, path: str, value: bytes, exclusively: bool) -> None:
        super()._pipe(path, value, exclusively=False)


class OverwritingFileSystem(HonestFileSystem):
    """Reports that the object exists, but replaces it."""

    def _pipe(self, path: str, value: bytes, exclusively: bool) -> None:
        there = path in self.objects
        super()._pipe(path, value, exclusively=False)
        if exclusively and there:
            raise FileExistsError(path)


class RacyFileSystem(HonestFileSystem):
    """This file system checks whether an object exists and then writes it, so another writer can write in between."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.looking = threading.Barrier(2)

    def _pipe(self, path: str, value: bytes, exclusively: bool) -> None:
        if exclusively:
            if path in self.objects:
                raise FileExistsError(path)
            try:
                self.looking.wait(0.1)  # both writers check for the object before either of them writes
            except threading.BrokenBarrierError:
                self.looking.reset()
        super()._pipe(path, value, exclusively=False)


class PlainFileSystem(HonestFileSystem):
    """This file system inherits ``pipe_file`` from fsspec, as most backends do."""

    pipe_file = AbstractFileSystem.pipe_file


class UnawareFileSystem(HonestFileSystem):
    """The methods of this file system do not have the argument ``mode``, like the methods of backends that were written
    before fsspec introduced this argument."""

    def pipe_file(self, path: str, value: bytes) -> None:  # type: ignore[override]
        super().pipe_file(path, value)


class FaultyFileSystem(HonestFileSystem):
    """``fate(number, effect)`` decides the outcome of the number-th exclusive creation (from 1) of a commit."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.fate: Callable[[int, Callable[[], None]], None] = lambda number, effect: effect()
        self.creations = 0

    def _pipe(self, path: str, value: bytes, exclusively: bool) -> None:
        def effect() -> None:
            HonestFileSystem._pipe(self, path, value, exclusively)

        if not exclusively or not path.endswith(".json"):
            return effect()
        self.creations += 1
        return self.fate(self.creations, effect)


class StaleFileSystem(HonestFileSystem):
    """Serves listings and look-ups from its listing cache until the cache is invalidated."""

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        if path not in self.dircache:
            self.dircache[path] = super().ls(path, detail=True)
        return self.dircache[path] if detail else [entry["name"] for entry in self.dircache[path]]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        known = next((entry for entry in self.dircache.get(self._parent(path), []) if entry["name"] == path), None)
        return known or super().info(path)

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()


class AsyncHonestFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """An asynchronous wrapper around a correct backend, like the backends of cloud services."""

    protocol = "async-honest"
    cachable = False

    def __init__(self, inner: HonestFileSystem | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.inner = inner or HonestFileSystem()

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        self.inner.pipe_file(path, value, mode)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        data = self.inner.cat_file(path)
        if (start is not None and start >= len(data)) or (end is not None and not data):
            raise ServiceError(416)
        return data[start:end]

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return self.inner.info(path)

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        return self.inner.ls(path, detail)

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        self.inner.rm_file(path)

    async def _put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        self.inner.put_file(lpath, rpath)
