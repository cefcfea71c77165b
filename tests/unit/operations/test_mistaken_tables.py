"""Files that look like those of the table that a handle knows, and are others; and what is derived from a version, read
or deleted while another table takes the place of its own.

``test_lost_tables.py`` has the verbs, and the moments of a commit.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from deltalog import DeltaTable, LogStore
from deltalog.protocol.paths import commit_path
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.storage.wrapped import WrappedStore
from tests.support.core import SCHEMA, ids, rows

# ------------------------------------------------------------------------- another file that looks like the known one


def _in_seconds(root: Path) -> None:
    """The times of files as ``tar`` keeps them, and images of containers: they are equal then."""
    for directory, _, names in os.walk(root):
        for name in names:
            os.utime(Path(directory, name), (1_700_000_000, 1_700_000_000))


def test_an_inode_that_is_used_again_is_another_file(tmp_path: Path) -> None:
    """A file system gives the inode of a deleted file to the next one; the size of another commit is equal as a
    rule, and its time where a tool sets that."""
    root = tmp_path / "t"
    DeltaTable.create(root, SCHEMA).append(rows(1))
    shutil.copytree(root, tmp_path / "other")
    DeltaTable.open(tmp_path / "other").append(rows(200))
    DeltaTable.open(root).append(rows(100))
    _in_seconds(root)
    table = DeltaTable.open(root)
    assert ids(table) == [1, 100]
    mine, other = (each / commit_path(2) for each in (root, tmp_path / "other"))
    assert mine.stat().st_size == other.stat().st_size
    # As if the other file got the inode, which the system decides.
    mine.write_bytes(other.read_bytes())
    shutil.copytree(tmp_path / "other", root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*2.json"))
    _in_seconds(root)
    assert ids(table) == [1, 200]
    table.overwrite(rows(3))
    assert ids(DeltaTable.open(root)) == [3]


class Ahead(WrappedStore[LogStore]):
    """Other writers without a txnId, as delta-rs is one, win the first ``races``."""

    races = 0

    def put_if_absent(self, path: str, data: bytes) -> Any:
        while self.races and path.endswith(".json"):
            self.races -= 1
            anothers = data.replace(b'"txnId":"', b'"other":"').replace(b'"path":"', b'"path":"other-%d-' % self.races)
            if self.inner.put_if_absent(path, anothers) is not None and self.races % 2:
                break
        return self.inner.put_if_absent(path, data)


@pytest.mark.parametrize("races", [1, 2, 6])
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_commit_without_a_txn_id_is_known_by_its_bytes(tmp_path: Path, store: str, races: int) -> None:
    table = DeltaTable.create(MemoryStore() if store == "memory" else LocalStore(tmp_path / "t"), SCHEMA)
    ahead = Ahead(table._handle.reader.store)
    ahead.races = races
    writer = DeltaTable.open(ahead)
    assert writer.append(rows(1)).version == DeltaTable.open(ahead.inner).version > 1
    assert writer.snapshot().num_files == writer.version
