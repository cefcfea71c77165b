"""What reaches the disk on Linux and on macOS."""

from __future__ import annotations

import errno
import os

import pytest

from deltalog.errors import StoreError
from deltalog.storage import durability
from deltalog.storage.base import PutOutcome
from deltalog.storage.fs import LocalStore


class Fcntl:
    """The module fcntl of macOS. ``error``: the number of the error that F_FULLFSYNC raises."""

    F_FULLFSYNC = 51

    def __init__(self, error: int | None = None) -> None:
        self.error = error
        self.flushed = list[str]()

    def fcntl(self, descriptor: int, command: int) -> int:
        assert command == self.F_FULLFSYNC
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        self.flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return 0


@pytest.fixture
def fsynced(monkeypatch):
    """The inodes of the files and directories that were fsynced."""
    found, fsync = list[int](), os.fsync

    def call(descriptor):
        found.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", call)
    return found


def writes(store: LocalStore) -> None:
    assert store.put_if_absent("_delta_log/1.json", b"1") is PutOutcome.COMMITTED
    store.put("_delta_log/_last_checkpoint", b"2")
    with store.open_output("part-0.parquet") as file:
        file.write(b"3")


def inodes(root):
    log = root / "_delta_log"
    return {os.stat(path).st_ino for path in (root, log, *log.iterdir(), root / "part-0.parquet")}


@pytest.mark.skipif(hasattr(durability._fcntl(), "F_FULLFSYNC"), reason="macOS")
def test_every_file_and_its_directory_is_fsynced(tmp_path, fsynced):
    writes(LocalStore(tmp_path / "t"))
    assert inodes(tmp_path / "t") <= set(fsynced)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="finds out the paths of descriptors on Linux")
def test_macos_empties_the_cache_of_the_disk(tmp_path, fsynced, monkeypatch):
    fcntl = Fcntl()
    monkeypatch.setattr(durability, "flush", durability.flusher(fcntl))
    store = LocalStore(tmp_path / "t")
    writes(store)
    found, root = set(fcntl.flushed), str(tmp_path / "t")
    assert {root, f"{root}/_delta_log", f"{root}/part-0.parquet"} <= found
    assert len([path for path in found if path.startswith(f"{root}/_delta_log/")]) == 2
    assert fsynced == []
    store.sync(["part-0.parquet"])
    assert fcntl.flushed[-4:].count(f"{root}/part-0.parquet") == 1


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_macos_fsyncs_on_file_systems_that_cannot_do_more(tmp_path, fsynced, monkeypatch, error):
    monkeypatch.setattr(durability, "flush", durability.flusher(Fcntl(error)))
    writes(LocalStore(tmp_path / "t"))
    assert inodes(tmp_path / "t") <= set(fsynced)


def test_an_error_of_the_disk_is_not_taken_for_a_missing_call(tmp_path, fsynced, monkeypatch):
    monkeypatch.setattr(durability, "flush", durability.flusher(Fcntl(errno.EIO)))
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(StoreError, match="Input/output error"):
        LocalStore(tmp_path).put_if_absent("_delta_log/1.json", b"1")
    assert fsynced == [] and list((tmp_path / "_delta_log").iterdir()) == []
