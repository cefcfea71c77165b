"""Looking up many files of a table at once: regular files, links, encoded names, missing files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deltalog.doctor.presence import FilePresence, parts
from deltalog.protocol.paths import place_of
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.storage.table_files import TableFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "table"
    (root / "day=a b").mkdir(parents=True)
    (root / "directory").mkdir()
    (root / "one.parquet").write_bytes(b"12345")
    (root / "day=a b" / "two.parquet").write_bytes(b"123")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "three.parquet").write_bytes(b"1")
    os.symlink(root / "one.parquet", root / "link.parquet")
    os.symlink(tmp_path / "elsewhere", root / "away")
    os.symlink(root / "nowhere", root / "dangling.parquet")
    return root


def presence_of(root: Path, *allowed: Path) -> FilePresence:
    store = LocalStore(root)
    return FilePresence(TableFiles(store, list(map(str, allowed))), place_of(store.url))


NAMES = [
    "one.parquet", "day=a%20b/two.parquet", "directory", "link.parquet", "away/three.parquet", "dangling.parquet",
    "gone.parquet", "day=a%20b/gone.parquet", "nowhere/gone.parquet", "../elsewhere/three.parquet", "s3://b/x", "%ff",
]  # fmt: skip


def test_regular_files_have_sizes(root: Path) -> None:
    absolute = f"file:{root}/one.parquet"
    found = presence_of(root).regular_sizes([*NAMES, absolute])
    assert {name: found.get(name) for name in NAMES[:2]} in (
        {"one.parquet": 5, "day=a%20b/two.parquet": 3},
        {"one.parquet": None, "day=a%20b/two.parquet": 3},  # two names of one file: one of them has the answer
    )
    assert {"one.parquet", absolute} & found.keys() and not found.keys() - {*NAMES[:2], absolute}


def test_only_what_certainly_does_not_exist_is_missing(root: Path) -> None:
    told: list[int] = []
    gone = presence_of(root).missing(NAMES, told.append)
    assert gone == {"dangling.parquet", "gone.parquet", "day=a%20b/gone.parquet", "nowhere/gone.parquet"}
    assert told == [0]


def test_a_store_without_a_listing_of_entries(root: Path) -> None:
    store = MemoryStore("memory://presence")
    store.put("one.parquet", b"12345")
    presence = FilePresence(TableFiles(store), place_of(store.url))
    assert presence.missing(["one.parquet", "gone.parquet"], lambda done: None) == {"gone.parquet"}


def test_parts() -> None:
    assert list(parts("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]] and list(parts("", 2)) == []
