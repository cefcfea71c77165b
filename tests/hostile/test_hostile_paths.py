"""Whatever paths a log contains, deltalog opens and requests nothing outside the table: on local disk, in memory and on
S3."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaLogError, DeltaTable
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.deletion_vectors import relative_path
from deltalog.storage import LogStore, memory
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.storage.s3.store import S3Store
from tests.support.core import add_action, info_action, metadata_action, remove_action
from tests.support.hostile import CANARY, VECTOR_ID, hostile_paths, make_links, opened_by_python, opened_in
from tests.support.s3 import Proxy, Server, proxied

SECRET = 666_666_666
SCHEMA = pa.schema([("p", pa.string()), ("x", pa.int64())])
READABLE = ["deletionVectors", "v2Checkpoint"]
PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": READABLE, "writerFeatures": READABLE}
STATE = ({"protocol": PROTOCOL}, metadata_action({"delta.enableChangeDataFeed": "true"}, SCHEMA, ("p",)))
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
VECTOR_NAME = relative_path(DeletionVector("u", VECTOR_ID, 1, 4, 1))


def parquet(x: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": [x]}), sink)
    return sink.getvalue()


class Arena(ABC):
    """A store with a table in it, files outside the table that must not be read, and a record of every access to
    anything outside the table."""

    name: str
    store: LogStore  # at the table's own root
    words: dict[str, str]

    @abstractmethod
    def at(self, table: str) -> LogStore:
        """A store for the reader, whose root is the directory ``table`` below this arena's root."""

    @abstractmethod
    def watched(self) -> contextlib.AbstractContextManager[list[str]]:
        """The accesses outside the table that occur during the block."""


class LocalArena(Arena):
    name = "local"

    def __init__(self, base: Path, listener: Proxy) -> None:
        self.base, self.data, self.root = base, base / "data", base / "data" / "t"
        for directory in (self.root, self.data / "t-evil", base):
            directory.mkdir(parents=True, exist_ok=True)
        for place in (base, self.data, self.data / "t-evil"):
            (place / CANARY).write_bytes(parquet(SECRET))
            (place / VECTOR_NAME).write_bytes(b"\1")
        (self.data / f"t{CANARY}").write_bytes(parquet(SECRET))
        self.store = LocalStore(self.root)
        self.words = words(str(self.root), str(self.data), str(self.root), "bucket", listener)

    def at(self, table: str) -> LogStore:
        make = not (self.root / table).exists()
        if make:
            (self.root / table / "_delta_log").mkdir(parents=True)
            make_links(self.root / table, self.base)
        return LocalStore(self.root / table)

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[str]]:
        touched: list[str] = []
        with opened_in(self.base, self.data, self.data / "t-evil") as seen, opened_by_python() as opened:
            yield touched
        touched += [name for name in seen if name not in ("data", "t", "t-evil", "")]
        # Python itself may load a module in the meantime.
        allowed = (f"{self.root}/", f"{sys.prefix}/", *(f"{os.path.realpath(place)}/" for place in sys.path if place))
        touched += [path for path in map(os.path.realpath, opened) if not path.startswith(allowed)]


class WatchedMemory(MemoryStore):
    def __init__(self, url: str, touched: list[str]) -> None:
        super().__init__(url)
        self.touched = touched

    def _object(self, path: str) -> tuple[bytes, int]:
        self.touched.append(f"{self.url}/{path}")
        return super()._object(path)


class MemoryArena(Arena):
    name = "memory"

    def __init__(self, listener: Proxy) -> None:
        self.touched: list[str] = []
        for url in ("memory://hostile", "memory://hostile-evil", "memory://other"):
            memory._named[url] = WatchedMemory(url, self.touched)
            for name in (CANARY, VECTOR_NAME, f"t/{CANARY}", f"../{CANARY}"):
                memory._named[url].put(name, parquet(SECRET))
        self.words = words("memory://hostile/t", "memory://hostile", "/hostile/t", "hostile", listener)
        self.store = self.at("t")

    def at(self, table: str) -> LogStore:
        return memory.named_store(f"memory://hostile/t/{table}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[str]]:
        self.touched.clear()
        known, touched = set(memory._named), list[str]()
        yield touched
        touched += [*self.touched, *(set(memory._named) - known)]


class S3Arena(Arena):
    name = "s3"

    def __init__(self, direct: Server, proxy: Proxy, seen: Server, listener: Proxy) -> None:
        self.proxy = proxy
        bucket = direct.bucket()
        outside = S3Store(f"s3://{bucket}", **direct.options())
        for place in ("", "t-evil/", "tables/"):
            outside.put(f"{place}{CANARY}", parquet(SECRET))
            outside.put(f"{place}{VECTOR_NAME}", b"\1")
        self.store = S3Store(f"s3://{bucket}/t", **direct.options())
        self._seen = S3Store(f"s3://{bucket}/t", **seen.options())
        self.words = words(self.store.url, f"s3://{bucket}", f"/{bucket}/t", bucket, listener)

    def at(self, table: str) -> LogStore:
        return self._seen.sibling(f"{self._seen.url}/{table}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[str]]:
        touched: list[str] = []
        with self.proxy.counted() as made:
            yield touched
        inside = self.store.url.removeprefix("s3://") + "/"
        for request in made:
            if not request.key.startswith(inside) or {".", ".."} & set(request.key.split("/")):
                touched.append(f"{request.method} {request.target}")


def words(root: str, parent: str, path: str, bucket: str, listener: Proxy) -> dict[str, str]:
    return {"root": root, "parent": parent, "path": path, "bucket": bucket, "listener": f"127.0.0.1:{listener.port}"}


@pytest.fixture(scope="module")
def listener() -> Iterator[Proxy]:
    """A server that must not receive any request."""
    proxy = Proxy(None)
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def arenas(ministack: Server, listener: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Arena]]:
    with proxied(ministack) as (proxy, seen):
        yield [
            LocalArena(tmp_path_factory.mktemp("hostile"), listener),
            MemoryArena(listener),
            S3Arena(ministack, proxy, seen, listener),
        ]


@dataclass
class Tally:
    paths: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)
    positions: set[str] = field(default_factory=set)
    reads: int = 0
    escapes: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def expect_refusal(self, arena: Arena, position: str, path: str, read: Callable[[], Any]) -> None:
        self.paths.add(path)
        self.stores.add(arena.name)
        self.positions.add(position)
        self.reads += 1
        try:
            found = read()
        except DeltaLogError as error:
            if str(SECRET) in str(error):
                self.escapes.append(f"{arena.name} {position} {path!a}: {error}")
            return
        self.escapes.append(f"{arena.name} {position} {path!a} gave {found}")


def lines(*actions: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


def put(arena: Arena, table: str, name: str, data: bytes) -> None:
    """Write without being recorded, and without fsync."""
    if isinstance(arena, LocalArena):
        (arena.root / table / name).write_bytes(data)
    elif isinstance(arena, S3Arena):
        arena.store.put(f"{table}/{name}", data)
    else:
        arena.at(table).put(name, data)


def vector(kind: str, path: str) -> dict[str, Any]:
    named = path if kind == "p" else path + VECTOR_ID
    return {"storageType": kind, "pathOrInlineDv": named, "offset": 1, "sizeInBytes": 40, "cardinality": 1}


def read_files_of_one_table(arena: Arena, paths: list[str], tally: Tally) -> None:
    """``add.path`` and both kinds of deletion vector: each path has its own partition, so that it is read alone."""
    makers: dict[str, Callable[[str], dict[str, Any]]] = {
        "add.path": lambda path: {"path": path},
        "deletionVector p": lambda path: {"path": "good.parquet", "deletionVector": vector("p", path)},
        "deletionVector u": lambda path: {"path": "good.parquet", "deletionVector": vector("u", path)},
    }
    for position, make in makers.items():
        table = position.replace(".", "-").replace(" ", "-")
        store = arena.at(table)
        put(arena, table, "good.parquet", parquet(1))
        adds = [add_action(partitionValues={"p": str(n)}, **make(path)) for n, path in enumerate(paths)]
        put(arena, table, "_delta_log/00000000000000000000.json", lines(info_action(), *STATE, *adds))
        with arena.watched() as outside:
            snapshot = DeltaTable.open(store).snapshot()
            for n, path in enumerate(paths):
                if path or position != "deletionVector u":  # an empty prefix is valid for deletion vectors
                    tally.expect_refusal(arena, position, path, partial(rows_of, snapshot, n))
        tally.outside += [f"{arena.name} {position}: {touched}" for touched in outside]


def rows_of(snapshot: Any, number: int) -> list[Any]:
    found: list[Any] = snapshot.scan(["x"], where=f"p = '{number}'").to_arrow().to_pylist()
    return found


def read_tables_of_their_own(arena: Arena, paths: list[str], tally: Tally) -> None:
    """Tests hostile paths in the parts of a log that need a separate table for each path: removed files and change data
    files in the change data feed, sidecars, and the hint."""
    for number, path in enumerate(paths):
        table = f"t{number}"
        store = arena.at(table)
        version = "_delta_log/0000000000000000000"
        manifest: list[dict[str, Any]] = [
            {"checkpointMetadata": {"version": 2}},
            *STATE,
            {"sidecar": {**SIDECAR, "path": path}},
        ]
        put(
            arena,
            table,
            f"{version}0.json",
            lines(info_action(), *STATE, remove_action(path, partitionValues={"p": "1"})),
        )
        put(arena, table, f"{version}1.json", lines(info_action(), {"cdc": {**CDC, "path": path}}))
        put(arena, table, f"{version}2.json", lines(info_action()))
        put(arena, table, f"{version}2.checkpoint.{UUID}.json", lines(*manifest))
        hint = {"version": 2, "size": 3, "parts": path, "checksum": path, "path": path}
        hint["v2Checkpoint"] = {"path": path, "sidecarFiles": [{**SIDECAR, "path": path}], "nonFileActions": [path]}
        put(arena, table, "_delta_log/_last_checkpoint", json.dumps(hint).encode())
        with arena.watched() as outside:
            opened = DeltaTable.open(store)
            tally.positions.add("_last_checkpoint")
            assert opened.version == 2
            tally.expect_refusal(arena, "sidecar.path", path, opened.snapshot().files)
            tally.expect_refusal(arena, "remove.path", path, opened.changes(0, 0).to_arrow)
            tally.expect_refusal(arena, "cdc.path", path, opened.changes(1, 1).to_arrow)
        tally.outside += [f"{arena.name} {path!a}: {touched}" for touched in outside]


SIDECAR = {"sizeInBytes": 10, "modificationTime": 1}
CDC = {"partitionValues": {"p": "1"}, "size": 10, "dataChange": False}


def test_no_hostile_path_leaves_its_table(
    arenas: list[Arena], listener: Proxy, capsys: pytest.CaptureFixture[str], is_long: bool
) -> None:
    """Creating a table for each path takes a long time. Therefore, without --long, only every twelfth path gets its own
    table, and on S3 only every 48th."""
    tally = Tally()
    counts = []
    for arena in arenas:
        paths = hostile_paths(**arena.words)
        counts.append(len(paths))
        read_files_of_one_table(arena, paths, tally)
        every = 1 if is_long else 48 if isinstance(arena, S3Arena) else 12
        read_tables_of_their_own(arena, paths[::every], tally)
    tally.outside += [f"asked the listener: {request.method} {request.target}" for request in listener.requests]
    with capsys.disabled():
        print(
            f"\npaths={min(counts)} stores={len(tally.stores)} positions={len(tally.positions)} reads={tally.reads} "
            f"escapes={len(tally.escapes)} requests_outside={len(tally.outside)}"
        )
    assert tally.escapes == [] and tally.outside == []
    assert (min(counts) >= 200, len(tally.stores), len(tally.positions)) == (True, 3, 7)


def test_the_witnesses_see_what_is_outside(arenas: list[Arena], listener: Proxy) -> None:
    """On every store, this test would detect a reader that does not check paths."""
    local, in_memory, on_s3 = arenas
    assert isinstance(local, LocalArena) and isinstance(on_s3, S3Arena)
    with local.watched() as outside:
        LocalStore(local.root).open_input(f"../{CANARY}")  # Arrow opens files itself
        LocalStore(local.root).get(f"../t-evil/{CANARY}")
    assert [os.path.basename(path) for path in outside].count(CANARY) >= 3
    with in_memory.watched() as outside:
        memory.named_store("memory://hostile").get(CANARY)
        memory.named_store("memory://newly-named")
    assert len(outside) == 2
    with on_s3.watched() as outside:
        on_s3._seen.sibling(f"s3://{on_s3.words['bucket']}/t-evil").get(CANARY)
        on_s3._seen.sibling(f"s3://{on_s3.words['bucket']}").list_from("")
    assert len(outside) == 2
