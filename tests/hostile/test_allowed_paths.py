"""Absolute paths in a log are allowed inside the table and inside the locations that the caller allows, as shallow
clones need."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from deltalog import CallError, DeltaTable
from deltalog.errors import UnsafePathError
from deltalog.protocol.paths import encode_path
from deltalog.storage import LogStore
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore, named_store
from deltalog.storage.registry import open_store
from deltalog.storage.s3.store import S3Store
from deltalog.testing.stores import CountingStore
from tests.support.core import add_action, ids, info_action, metadata_action, protocol_action, put_commit, rows
from tests.support.s3 import Server

Make = Callable[[str], LogStore]


@pytest.fixture(params=["local", "memory", "s3"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A function that creates the store of a named directory; all these directories are on the same disk or service."""
    if request.param == "local":
        return lambda place: LocalStore(tmp_path / "a dir" / place)
    series = uuid.uuid4()
    if request.param == "memory":
        return lambda place: named_store(f"memory://{series}/{place}")
    root = request.getfixturevalue("ministack").store(str(series))
    return lambda place: root.sibling(f"{root.url}/{place}")


def absolute(store: LogStore, path: str) -> str:
    """A file's absolute URI in the form that engines write."""
    scheme, separator, rest = store.url.rpartition("://")
    return (
        f"{scheme}{separator}{quote(rest)}/{encode_path(path)}"
        if separator
        else f"file:{quote(rest)}/{encode_path(path)}"
    )


def clone_of(store: LogStore, *paths: str, **more: Any) -> None:
    """A table whose data files are outside its directory."""
    put_commit(
        store, 0, info_action(), protocol_action(), metadata_action(), *(add_action(path, **more) for path in paths)
    )


def test_a_shallow_clone_reads_its_source_when_the_caller_names_it(make: Make) -> None:
    source, clone = make("source"), make("clone")
    DeltaTable.create(source, rows(1).schema, data=rows(1, 2))
    [path] = DeltaTable.open(source).snapshot().files()["path"].to_pylist()
    clone_of(clone, absolute(source, path))
    with pytest.raises(UnsafePathError, match="allowed_paths"):
        ids(DeltaTable.open(clone))
    opened = DeltaTable.open(clone, allowed_paths=[source.url])
    assert ids(opened) == [1, 2]
    assert opened.snapshot().file_path(absolute(source, path)) == source.location(path)
    assert ids(DeltaTable.open(clone, allowed_paths=[make("elsewhere").url, source.url + "/"])) == [1, 2]


@pytest.mark.parametrize(
    "other", ["source-evil", "source2", "sourc", "Source", "clone-evil", "source%2F..%2Fclone-evil"]
)
def test_a_name_that_only_begins_like_an_allowed_one_is_not(make: Make, other: str) -> None:
    clone, near = make("clone"), make(other)
    near.put("x.parquet", b"")
    clone_of(clone, absolute(near, "x.parquet"))
    with pytest.raises(UnsafePathError):
        ids(DeltaTable.open(clone, allowed_paths=[make("source").url]))


@pytest.mark.parametrize(
    "path", ["../clone-evil/x", "%2e%2e/clone-evil/x", "a/../../x", "", ".", "a//b", "a%00", "a\\b"]
)
def test_an_allowed_place_is_not_left_either(make: Make, path: str) -> None:
    source, clone = make("source"), make("clone")
    clone_of(clone, f"{absolute(source, 'x')[:-2]}/{path}")
    with pytest.raises(UnsafePathError):
        ids(DeltaTable.open(clone, allowed_paths=[source.url]))


def test_relative_paths_lie_in_the_table_whatever_is_allowed(make: Make) -> None:
    source, clone = make("source"), make("clone")
    source.put("x.parquet", b"of the source")
    clone.put("x.parquet", b"of the clone")
    clone_of(clone, "x.parquet")
    snapshot = DeltaTable.open(clone, allowed_paths=[source.url]).snapshot()
    assert snapshot.file_path("x.parquet") == clone.location("x.parquet")


def test_a_table_may_name_its_own_files_by_absolute_paths(make: Make) -> None:
    store = make("table")
    DeltaTable.create(store, rows(1).schema, data=rows(1))
    [path] = DeltaTable.open(store).snapshot().files()["path"].to_pylist()
    put_commit(store, 0, info_action(), protocol_action(), metadata_action(), add_action(absolute(store, path)))
    assert ids(DeltaTable.open(store)) == [1]


def test_s3_and_s3a_are_one_store(ministack: Server) -> None:
    source, clone = ministack.store("source"), ministack.store("clone")
    DeltaTable.create(source, rows(1).schema, data=rows(1))
    [path] = DeltaTable.open(source).snapshot().files()["path"].to_pylist()
    clone_of(clone, absolute(source, path).replace("s3://", "s3a://"))
    opened = DeltaTable.open(clone.url, allowed_paths=[source.url], **ministack.options())
    assert ids(opened) == [1]
    assert opened.snapshot().file_path(absolute(source, path)).startswith("s3://")


def test_another_bucket_is_allowed_only_when_it_is_named(ministack: Server) -> None:
    source, clone = ministack.store(""), ministack.store("clone")
    clone_of(clone, f"{source.url}/x.parquet")
    with pytest.raises(UnsafePathError):
        DeltaTable.open(clone).snapshot().file_path(f"{source.url}/x.parquet")
    allowed = DeltaTable.open(clone, allowed_paths=[f"s3://{source.bucket}/"]).snapshot()
    assert allowed.file_path(f"{source.url}/x.parquet") == f"{source.url}/x.parquet"


@pytest.mark.parametrize(
    ("url", "other"),
    [("memory://m", "/data"), ("memory://m", "s3://b/x"), ("/data/t", "s3://b/x"), ("/data/t", "http://h/x"),
     ("s3://b/t", "/data"), ("s3://b/t", "file:///data"), ("s3://b/t", "memory://m")],
)  # fmt: skip
def test_a_place_on_another_kind_of_store_cannot_be_allowed(url: str, other: str) -> None:
    with pytest.raises(CallError):
        DeltaTable.open(open_store(url), allowed_paths=[other])


def test_a_store_of_ones_own_has_no_other_places_unless_it_says_so() -> None:
    class Own(MemoryStore):
        sibling: Any = LogStore.sibling

    with pytest.raises(CallError, match="cannot be reached"):
        DeltaTable.open(Own("own://x"), allowed_paths=["own://y"])


def test_calls_to_an_allowed_place_are_counted_with_the_tables(tmp_path: Path) -> None:
    source, clone = LocalStore(tmp_path / "source"), LocalStore(tmp_path / "clone")
    DeltaTable.create(source, rows(1).schema, data=rows(1))
    [path] = DeltaTable.open(source).snapshot().files()["path"].to_pylist()
    clone_of(clone, absolute(source, path))
    counting = CountingStore(clone)
    ids(DeltaTable.open(counting, allowed_paths=[source.url]))
    assert counting.calls.of("open_input", path) == 1


# ------------------------------------------------------------------------------------------------------- symlinks


def table_with(tmp_path: Path, path: str, **more: Any) -> Path:
    root = tmp_path / "tables" / "t"
    (root / "_delta_log").mkdir(parents=True)
    clone_of(LocalStore(root), path, **more)
    return root


def data_file(place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    with LocalStore(place.parent).open_output(place.name) as file:
        pq.write_table(rows(7), file)
    return place


@pytest.mark.parametrize("path", ["link.parquet", "dir/x.parquet", "dir/deeper/x.parquet"])
def test_a_link_out_of_the_table_is_not_followed_unless_its_end_is_allowed(tmp_path: Path, path: str) -> None:
    root, outside = table_with(tmp_path, path), tmp_path / "outside"
    target = data_file(outside / Path(path).relative_to(Path(path).parts[0]) if "/" in path else outside / "x.parquet")
    (root / Path(path).parts[0]).symlink_to(target if "/" not in path else outside)
    with pytest.raises(UnsafePathError, match="symbolic link"):
        ids(DeltaTable.open(root))
    with pytest.raises(UnsafePathError, match="symbolic link"):
        DeltaTable.open(root).snapshot().file_path(path)
    assert ids(DeltaTable.open(root, allowed_paths=[str(outside)])) == [7]


@pytest.mark.parametrize("kind", ["u", "p"])
def test_a_deletion_vector_behind_a_link_is_not_read(tmp_path: Path, kind: str) -> None:
    vector = {"storageType": kind, "offset": 1, "sizeInBytes": 34, "cardinality": 1}
    named = "linkvBn[lx{q8@P<9BNH/isA" if kind == "u" else (tmp_path / "tables" / "t" / "link" / "x.bin").as_uri()
    root = table_with(tmp_path, "x.parquet", deletionVector={**vector, "pathOrInlineDv": named})
    data_file(root / "x.parquet")
    (tmp_path / "outside").mkdir()
    (root / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafePathError, match="symbolic link"):
        ids(DeltaTable.open(root))


def test_links_that_stay_in_the_table_are_followed(tmp_path: Path) -> None:
    root = table_with(tmp_path, "day=2/x.parquet")
    data_file(root / "day=1" / "real.parquet")
    (root / "day=2").symlink_to("day=1")
    (root / "day=1" / "x.parquet").symlink_to(root / "day=1" / "real.parquet")
    assert ids(DeltaTable.open(root)) == [7]


def test_a_root_that_is_a_link_is_the_callers_choice(tmp_path: Path) -> None:
    root = table_with(tmp_path, "x.parquet")
    data_file(root / "real.parquet")
    (root / "x.parquet").symlink_to("real.parquet")
    (tmp_path / "current").symlink_to(root)
    assert ids(DeltaTable.open(tmp_path / "current")) == [7]


def test_a_link_is_looked_at_anew_at_every_read(tmp_path: Path) -> None:
    root = table_with(tmp_path, "day/x.parquet")
    data_file(root / "day" / "x.parquet")
    opened = DeltaTable.open(root)
    assert ids(opened) == [7]
    data_file(tmp_path / "outside" / "x.parquet")
    os.rename(root / "day", root / "was")
    (root / "day").symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafePathError):
        ids(opened)


# ------------------------------------------------------------------------------------------------ unusual names

ODD = [
    *("a b", "100%", "%41", "%2e%2e", "ünï", "日本語", "😀", "day=2024-01-01", "a:b", "c#d", "e?f", "a+b", "a&b=c"),
    *("x?versionId=1", "'q'", '"dq"', "[x]", "{y}", "~t", "$z", "a,b;c", "@at", "!", "(p)", "trailing.", " lead"),
    *("...", "..x", "\u202ertl", "\u200b", "x" * 200, "*", "|", "<>", "^`", "s3:", "file:", "NUL", "-rf"),
]


def test_odd_names_are_read_back_on_every_store(make: Make) -> None:
    store = make("odd names %41")
    paths = [f"p={name}/{name}.parquet" for name in ODD] + [f"{name}" for name in ODD]
    for number, path in enumerate(paths):
        with store.open_output(path) as file:
            pq.write_table(rows(number), file)
    half = len(paths) // 2
    named = [encode_path(path) for path in paths[:half]] + [absolute(store, path) for path in paths[half:]]
    clone_of(store, *named)
    opened = DeltaTable.open(store)
    assert ids(opened) == list(range(len(paths)))
    assert [opened.snapshot().file_path(name) for name in named] == [store.location(path) for path in paths]


def test_s3_siblings_keep_their_place(ministack: Server) -> None:
    store = ministack.store("a/b")
    assert isinstance(store.sibling(f"s3://{store.bucket}/a"), S3Store)
    assert store.sibling(f"s3a://{store.bucket}/a").url == f"s3a://{store.bucket}/a"
