"""Locations whose tables are deleted, re-created, rolled back or restored while a handle to the table is open."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from deltalog import DeltaTable
from deltalog.errors import ObjectNotFoundError
from deltalog.storage import LogStore
from deltalog.storage.base import EntryKind
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from tests.support.core import SCHEMA, rows

# : The columns of the table that replaces the first table.
OTHER = pa.schema([("other", pa.string())])
_number = itertools.count()


class FarStore(MemoryStore):
    """An in-memory store that claims to be remote."""

    is_remote = True


class Place:
    """A location. ``store``: the store of the handle under test. ``reach``: opens a store on the location as another
    process would."""

    def __init__(self, store: LogStore, reach: Callable[[], LogStore]) -> None:
        self.store = store
        self.reach = reach

    def names(self) -> list[str]:
        """The paths of all objects."""
        store = self.reach()
        log = [f"_delta_log/{name}" for name in store.list_names("_delta_log")]
        with contextlib.suppress(ObjectNotFoundError):  # not a directory
            return [*log, *(entry.path for entry in store.walk(lambda path: True) if entry.kind is EntryKind.FILE)]
        return log

    def commits(self) -> list[str]:
        names = (name for name in self.names() if name.startswith("_delta_log/0") and name.endswith(".json"))
        return sorted(name[-7:-5] for name in names)

    def drop(self) -> None:
        store = self.reach()
        for name in self.names():
            store.delete(name)
        if isinstance(store, LocalStore):
            shutil.rmtree(store.root, ignore_errors=True)

    def copy(self) -> dict[str, bytes]:
        store = self.reach()
        return {name: store.get(name) for name in self.names()}

    def restore(self, copy: dict[str, bytes]) -> None:
        self.drop()
        store = self.reach()
        for name, data in copy.items():
            store.put(name, data)

    def create(self, schema: pa.Schema = SCHEMA, commits: int = 0) -> DeltaTable:
        table = DeltaTable.create(self.reach(), schema)
        for number in range(commits):
            table.append(pa.table({name: [number] for name in schema.names}).cast(schema))
        table.flush()
        return table


def opened(place: Place, commits: int = 2) -> DeltaTable:
    """A warm handle that itself committed the latest version."""
    table = DeltaTable.create(place.store, SCHEMA)
    for number in range(commits):
        table.append(rows(number))
    table.flush()
    return table


def place_of(kind: str, path: Path) -> Place:
    """``kind``: "memory"; "far", a remote memory store; "disk", at ``path``."""
    if kind == "disk":
        return Place(LocalStore(path / "t"), lambda: LocalStore(path / "t"))
    shared = (FarStore if kind == "far" else MemoryStore)(f"memory://lost-{next(_number)}")
    return Place(shared, lambda: shared)
