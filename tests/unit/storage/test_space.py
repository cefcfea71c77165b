"""Disks that become full, become read-only or fail at any point of a commit or a checkpoint.

After each fault the result is either a clear StoreError or a complete commit; no partial or temporary file remains, and
the table can be written again. The limits are real if the kernel supports them (RLIMIT_FSIZE, RLIMIT_NOFILE, a small
tmpfs, a read-only mount); otherwise a layer between LocalStore and ``os`` makes the n-th call fail, for every n.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltalog import DeltaTable, StoreError
from deltalog.storage import durability, fs
from deltalog.storage.fs import LocalStore
from tests.support.core import environment, ids, rows

ROOT = Path(__file__).resolve().parents[3]
SWEEP = 200


def log_files(root: Path) -> dict[str, bytes]:
    """Every file of the log, including hidden files, with its bytes."""
    log = root / "_delta_log"
    return {path.name: path.read_bytes() for path in sorted(log.iterdir())} if log.is_dir() else {}


def is_temporary(name: str) -> bool:
    return name.startswith(".") or name.endswith(".tmp")


# ------------------------------------------------------------- limits of the kernel, tested in a separate process

LIMITED = """
import errno, json, os, resource, signal, sys, warnings
sys.path.insert(0, {root!r})
from deltalog import DeltaTable, StoreError
from deltalog.storage import fs
from tests.support.core import rows
from tests.unit.storage.test_space import log_files, is_temporary
directory, unnamed, operation, sweep = sys.argv[1], sys.argv[2] == "True", sys.argv[3], int(sys.argv[4])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
if not unnamed:
    fs._O_TMPFILE = 0

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

import pathlib
root = pathlib.Path(directory)
table = DeltaTable.create(root, rows(1).schema, data=rows(1))
for number in range(8):
    table.set_properties({{f"some.{{number}}": "x" * 300}})

def commit():
    table.set_properties({{"some.value": "y" * 4000}})

operations = {{"commit": commit, "checkpoint": table.checkpoint}}
run, last = operations[operation], {{"commit": "0009.json", "checkpoint": "0008.checkpoint.parquet"}}[operation]
# How large the file becomes is seen on a copy of the table.
import shutil
twin = root.parent / (root.name + "-twin")
shutil.copytree(root, twin)
kept, table = table, DeltaTable.open(twin)
(commit if operation == "commit" else table.checkpoint)()
size = next(p.stat().st_size for p in (twin / "_delta_log").iterdir() if p.name.endswith(last))
table = kept
refused = 0
for step in range(sweep):
    at = size * step // sweep
    before = log_files(root)
    limit(at)
    try:
        run()
        said = None
    except StoreError as error:
        said = str(error)
    finally:
        limit(resource.RLIM_INFINITY)
    assert said is not None and "File too large" in said and str(root) in said, (at, said)
    assert log_files(root) == before, f"the log changed at {{at}} of {{size}} bytes"
    refused += 1
limit(size)
run()
limit(resource.RLIM_INFINITY)
after = log_files(root)
assert any(name.endswith(last) and len(data) == size for name, data in after.items())
assert not any(map(is_temporary, after))
table.append(rows(2))
assert sorted(DeltaTable.open(root).snapshot().scan().to_arrow()["id"].to_pylist()) == [1, 2]
print(json.dumps([size, refused]))
"""


def in_a_process(code: str, *arguments: object) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code.format(root=str(ROOT)), *map(str, arguments)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("operation", ["commit", "checkpoint"])
@pytest.mark.parametrize("unnamed", [True, False])
def test_a_file_that_may_not_grow_past_any_of_its_bytes(tmp_path: Path, operation: str, unnamed: bool) -> None:
    offsets = SWEEP if unnamed else SWEEP // 4
    size, refused = in_a_process(LIMITED, tmp_path / "t", unnamed, operation, offsets)
    assert refused == offsets <= size


DESCRIPTORS = """
import json, os, pathlib, resource, sys
sys.path.insert(0, {root!r})
from deltalog import DeltaTable, StoreError
from tests.support.core import rows
from tests.unit.storage.test_space import log_files
root = pathlib.Path(sys.argv[1])
table = DeltaTable.create(root, rows(1).schema, data=rows(1))
table.append(rows(2))
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
said = []
for spare in range(20):
    before, number = log_files(root), table.version
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + spare, hard))
    try:
        table.set_properties({{"some.value": str(spare)}})
        break
    except StoreError as error:
        said.append(str(error))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert log_files(root) == before
else:
    raise AssertionError("never enough")
table.append(rows(3))
assert sorted(DeltaTable.open(root).snapshot().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
print(json.dumps(said))
"""


def test_no_file_descriptor_left(tmp_path: Path) -> None:
    said = in_a_process(DESCRIPTORS, tmp_path / "t")
    assert said and all("Too many open files" in text for text in said)


SMALL_DISK = """
import json, os, pathlib, sys
sys.path.insert(0, {root!r})
import pyarrow as pa, pyarrow.parquet as pq
from deltalog import DeltaTable, StoreError
from tests.support.core import rows
from tests.unit.storage.test_space import log_files, is_temporary
disk = pathlib.Path(sys.argv[1])
root, filler = disk / "t", disk / "filler"
table = DeltaTable.create(root, rows(1).schema, data=rows(1))
full, done, version = 0, 0, 0
block = os.statvfs(disk).f_bsize
for operation in ("commit", "checkpoint"):
    for left in range(12):
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, (os.statvfs(disk).f_bavail - left) * block)
        before = log_files(root)
        try:
            if operation == "commit":
                table.set_properties({{"some.value": str(left) * 9000}})
                version += 1
            else:
                table.checkpoint()
            done += 1
        except StoreError as error:
            assert "No space left on device" in str(error), error
            after = log_files(root)
            assert {{name: after[name] for name in before}} == before
            new = set(after) - set(before)  # a checkpoint that is whole stays when its hint does not fit
            assert all(pq.read_table(pa.BufferReader(after[name])).num_rows for name in new), new
            assert all(name.endswith(".checkpoint.parquet") for name in new)
            assert operation == "checkpoint" or not new
            for name in new:
                os.unlink(root / "_delta_log" / name)
            full += 1
        os.unlink(filler)
        assert not any(map(is_temporary, log_files(root)))
        assert DeltaTable.open(root).version == version
table.append(rows(2))
assert sorted(DeltaTable.open(root).snapshot().scan().to_arrow()["id"].to_pylist()) == [1, 2]
print(json.dumps([full, done]))
"""

READ_ONLY = """
import json, os, pathlib, subprocess, sys
sys.path.insert(0, {root!r})
from deltalog import DeltaTable, StoreError
from tests.support.core import rows
from tests.unit.storage.test_space import log_files
disk = pathlib.Path(sys.argv[1])
root = disk / "t"
table = DeltaTable.create(root, rows(1).schema, data=rows(1))
before, said = log_files(root), []
subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
writes = [lambda: table.append(rows(2)), lambda: table.set_properties({{"some.value": "1"}}), table.checkpoint,
          lambda: DeltaTable.create(disk / "new", rows(1).schema)]
for write in writes:
    try:
        write()
    except StoreError as error:
        said.append(str(error))
assert DeltaTable.open(root).snapshot().scan().to_arrow()["id"].to_pylist() == [1]
assert log_files(root) == before
subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
table.append(rows(2))
print(json.dumps(said))
"""


def on_a_disk_of_its_own(tmp_path: Path, code: str) -> Any:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = "mount -t tmpfs -o size=1m tmpfs"
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} "$1"', "sh", str(disk)], capture_output=True, text=True
    )
    if tried.returncode:
        pytest.skip(f"cannot create a private mount here: {tried.stderr.strip()}")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} "$1" && exec "$2" -c "$3" "$1"', "sh", str(disk), sys.executable,
         code.format(root=str(ROOT))],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_disk_without_space(tmp_path: Path) -> None:
    full, done = on_a_disk_of_its_own(tmp_path, SMALL_DISK)
    assert full >= 4 and done >= 4 and full + done == 24


def test_a_disk_that_was_mounted_read_only(tmp_path: Path) -> None:
    said = on_a_disk_of_its_own(tmp_path, READ_ONLY)
    assert len(said) == 4 and all("Read-only file system" in text for text in said)


# ------------------------------------------------------------------------------------- the n-th system call fails


class FaultyOs:
    """A replacement for the module ``os`` in LocalStore. The ``number``-th call of the function ``name`` fails with
    ``code``."""

    def __init__(self, name: str, number: int, code: int) -> None:
        self._name, self._left, self._code = name, number, code
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._faulty(real) if name == self._name else real

    def _faulty(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.failed = True
                raise OSError(self._code, os.strerror(self._code))
            return real(*arguments, **options)

        return call


OPERATIONS: dict[str, Callable[[DeltaTable], object]] = {
    "append": lambda table: table.append(rows(2)),
    "commit": lambda table: table.set_properties({"some.value": "1"}),
    "checkpoint": lambda table: table.checkpoint(),
}
FAULTS = {
    "open": [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EMFILE, errno.ENOTDIR, errno.EINTR],
    "write": [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EINTR],
    "fsync": [errno.ENOSPC, errno.EIO],
    "link": [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EMLINK, errno.EIO],
    "replace": [errno.ENOSPC, errno.EACCES, errno.EIO],
    "unlink": [errno.EACCES, errno.EIO],
    "dup": [errno.EMFILE],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("call", FAULTS)
def test_any_call_of_the_system_may_fail_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, call: str, unnamed: bool
) -> None:
    if not unnamed:
        monkeypatch.setattr(fs, "_O_TMPFILE", 0)
    injected = 0
    for code in FAULTS[call]:
        number = 1
        while True:
            root = tmp_path / f"{code}-{number}"
            table = DeltaTable.create(root, rows(1).schema, data=rows(1), environment=environment())
            before, faulty = log_files(root), FaultyOs(call, number, code)
            for module in (fs, durability):
                monkeypatch.setattr(module, "os", faulty)
            try:
                OPERATIONS[operation](table)
                said = None
            except StoreError as error:
                said = str(error)
            finally:
                for module in (fs, durability):
                    monkeypatch.setattr(module, "os", os)
            after = log_files(root)
            where = f"{call} number {number}: {errno.errorcode[code]}"
            if said is not None:
                assert os.strerror(code) in said and str(root) in said, (where, said)
                assert {name: after.get(name) for name in before} == before, where
                assert not {name for name in after if name.endswith(".json")} - set(before), where
            left = [name for name in after if is_temporary(name)]
            assert not left or call == "unlink", (where, left)
            for name, data in after.items():
                if name.endswith(".json"):
                    assert data.endswith(b"\n") and [json.loads(line) for line in data.splitlines()], where
            LocalStore(root).remove_orphans("_delta_log", before_ms=2**60)
            DeltaTable.open(root, environment=environment()).append(rows(9))
            assert set(ids(DeltaTable.open(root))) in ({1, 9}, {1, 2, 9}), where
            assert not any(map(is_temporary, log_files(root))), where
            if not faulty.failed:
                break
            injected += 1
            number += 1
    if call in ("open", "write", "fsync") or (call == "link" and operation != "checkpoint"):
        assert injected, "nothing was tried"
