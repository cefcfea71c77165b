"""LocalStore keeps the guarantees of a LogStore when disks and processes fail."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deltalog.errors import ObjectNotFoundError, StoreError
from deltalog.storage import fs
from deltalog.storage.base import PutOutcome
from deltalog.storage.fs import LocalStore
from deltalog.storage.registry import open_store
from deltalog.testing.store_contract import LogStoreTests

COMMIT = "_delta_log/00000000000000000000.json"
WRITES = ["put_if_absent", "put", "open_output"]


class TestLocalStore(LogStoreTests):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "a table")

    @pytest.fixture
    def another(self, store):
        return LocalStore(store.root)


class TestWithoutUnnamedFiles(LogStoreTests):
    """On file systems (and operating systems) without O_TMPFILE, temporary files have hidden names."""

    rounds = 10

    @pytest.fixture
    def store(self, tmp_path, monkeypatch):
        monkeypatch.setattr(fs, "_O_TMPFILE", 0)
        store = LocalStore(tmp_path / "table")
        assert not store._tmpfile_works
        return store


def write(store, method, path, data):
    """Write the same file with any of the three write methods."""
    if method == "open_output":
        with store.open_output(path) as file:
            for start in range(0, len(data), 8192):
                file.write(data[start : start + 8192])
    else:
        getattr(store, method)(path, data)


def every_file(root):
    return sorted(str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file())


# ------------------------------------------------------------------------------------------- processes that race


RACER = """
import json, sys, time
from deltalog.storage.fs import LocalStore
root, who, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = LocalStore(root)
print("ready", flush=True)
start = float(sys.stdin.readline())
outcomes = []
for n in range(rounds):
    time.sleep(max(0.0, start + n * 0.004 - time.monotonic()))
    outcomes.append(store.put_if_absent(f"_delta_log/{n:020d}.json", who.encode() * 2000).value)
print(json.dumps(outcomes))
"""


def test_one_of_eight_processes_wins_each_round(tmp_path):
    rounds, processes = 100, 8
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), str(who), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in range(processes)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
        start = time.monotonic() + 0.1
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write(f"{start}\n")
            racer.stdin.flush()
        told = [racer.communicate(timeout=60)[0] for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
    outcomes = [json.loads(text) for text in told]
    store, winners = LocalStore(tmp_path), []
    for n in range(rounds):
        [winner] = [who for who in range(processes) if outcomes[who][n] == "committed"]
        assert [outcomes[who][n] for who in range(processes)].count("exists") == processes - 1
        assert store.get(f"_delta_log/{n:020d}.json") == str(winner).encode() * 2000
        winners.append(winner)
    assert len(set(winners)) > 1, "there was no race"
    assert len(every_file(tmp_path)) == rounds


# ------------------------------------------------------------------------------------------------ temporary files


def test_uses_an_unnamed_file_where_there_is_one(tmp_path, monkeypatch):
    if not fs._O_TMPFILE:
        pytest.skip("this system has no O_TMPFILE")
    store, seen = LocalStore(tmp_path), []
    link = os.link

    def linking(*arguments, **options):
        seen.extend(every_file(tmp_path))
        link(*arguments, **options)

    monkeypatch.setattr(os, "link", linking)
    assert store.put_if_absent(COMMIT, b"1") is PutOutcome.COMMITTED
    assert store._tmpfile_works
    assert seen == [], "a temporary name could be seen"


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL])
def test_falls_back_when_unnamed_files_cannot_be_opened(tmp_path, monkeypatch, number):
    store, refused, opened = LocalStore(tmp_path), [], os.open

    def refuse(path, flags, *mode):
        if fs._O_TMPFILE and flags & fs._O_TMPFILE == fs._O_TMPFILE:
            refused.append(path)
            raise OSError(number, os.strerror(number))
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", refuse)
    assert store.put_if_absent(COMMIT, b"1") is PutOutcome.COMMITTED
    assert store.put_if_absent(COMMIT, b"2") is PutOutcome.EXISTS
    assert refused or not fs._O_TMPFILE
    assert every_file(tmp_path) == [COMMIT]


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EPERM, errno.EXDEV])
def test_falls_back_when_unnamed_files_cannot_be_linked(tmp_path, monkeypatch, number):
    """Linking an unnamed file fails as it does on systems without /proc, or without permission to link from it."""
    store, refused, link = LocalStore(tmp_path), [], os.link

    def refuse(source, target, **options):
        if str(source).startswith("/proc/"):
            refused.append(source)
            raise OSError(number, os.strerror(number))
        return link(source, target, **options)

    monkeypatch.setattr(os, "link", refuse)
    assert store.put_if_absent(COMMIT, b"1") is PutOutcome.COMMITTED
    assert store.put_if_absent(f"{COMMIT}2", b"2") is PutOutcome.COMMITTED
    assert len(refused) == (1 if fs._O_TMPFILE else 0), "it must not be tried twice"
    assert every_file(tmp_path) == [COMMIT, f"{COMMIT}2"]


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("took_effect", [True, False])
def test_a_lost_reply_to_link(tmp_path, monkeypatch, unnamed, took_effect):
    """Network file systems lose replies; the temporary file's link count then shows the outcome."""
    store, link = LocalStore(tmp_path), os.link
    store._tmpfile_works = unnamed and bool(fs._O_TMPFILE)

    def lose(source, target, **options):
        if took_effect:
            link(source, target, **options)
        raise OSError(errno.EIO, "the server does not answer")

    monkeypatch.setattr(os, "link", lose)
    if took_effect:
        assert store.put_if_absent(COMMIT, b"1") is PutOutcome.COMMITTED
        assert every_file(tmp_path) == [COMMIT]
    else:
        with pytest.raises(StoreError, match="does not answer"):
            store.put_if_absent(COMMIT, b"1")
        assert every_file(tmp_path) == []


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("ours", [True, False])
def test_a_link_that_is_there_already_may_be_the_one_just_made(tmp_path, monkeypatch, unnamed, ours):
    """A network file system repeats the request if the reply is lost; the repeated request then fails with EEXIST."""
    store, link = LocalStore(tmp_path), os.link
    store._tmpfile_works = unnamed and bool(fs._O_TMPFILE)
    store.put("_delta_log/x", b"")

    def resend(source, target, **options):
        if ours:
            link(source, target, **options)
        else:
            Path(target).write_bytes(b"theirs")
        link(source, target, **options)

    monkeypatch.setattr(os, "link", resend)
    assert store.put_if_absent(COMMIT, b"mine") is (PutOutcome.COMMITTED if ours else PutOutcome.EXISTS)
    assert store.get(COMMIT) == (b"mine" if ours else b"theirs")
    assert every_file(tmp_path) == [COMMIT, "_delta_log/x"]


# ------------------------------------------------------------------------------------------------------ durability


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("unnamed", [True, False])
def test_durable_before_visible(tmp_path, monkeypatch, method, unnamed):
    """The bytes are fsynced before the name appears, and the directory is fsynced before the call returns."""
    store, events = LocalStore(tmp_path), []
    store._tmpfile_works = unnamed and bool(fs._O_TMPFILE)
    store.put("_delta_log/x", b"")  # the directory exists
    fsync = os.fsync

    def spy_fsync(descriptor):
        is_directory = os.path.isdir(f"/proc/self/fd/{descriptor}")
        events.append("fsync directory" if is_directory else "fsync file")
        fsync(descriptor)

    def spy(name, real):
        def call(*args, **options):
            events.append(name)
            return real(*args, **options)

        return call

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "link", spy("name", os.link))
    monkeypatch.setattr(os, "replace", spy("name", os.replace))
    write(store, method, COMMIT, b"12345")
    expected = ["fsync file", "name", "fsync directory"]
    assert events == [event for event in expected if method != "open_output" or event != "name"]


def test_new_directories_are_durable_in_their_parents(tmp_path, monkeypatch):
    synced, fsync = set(), os.fsync

    def spy(descriptor):
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    LocalStore(tmp_path / "a" / "b").put_if_absent(COMMIT, b"")
    for directory in (tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "_delta_log"):
        assert str(directory) in synced


@pytest.mark.parametrize("unnamed", [True, False])
def test_unknown_when_the_name_may_not_last(tmp_path, monkeypatch, unnamed):
    """The name exists but the directory could not be fsynced: the store must report neither success nor failure."""
    store, fsync = LocalStore(tmp_path), os.fsync
    store._tmpfile_works = unnamed and bool(fs._O_TMPFILE)
    store.put("_delta_log/x", b"")

    def refuse(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "disk error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    assert store.put_if_absent(COMMIT, b"1") is PutOutcome.UNKNOWN
    assert store.get(COMMIT) == b"1"


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("method", ["put_if_absent", "put"])
def test_a_full_or_broken_disk(tmp_path, monkeypatch, unnamed, call, number, method):
    store = LocalStore(tmp_path)
    store._tmpfile_works = unnamed and bool(fs._O_TMPFILE)
    store.put("_delta_log/x", b"")

    def fail(*args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(StoreError) as error:
        write(store, method, COMMIT, b"12345")
    monkeypatch.undo()
    assert os.strerror(number) in str(error.value)
    assert COMMIT in str(error.value)
    assert every_file(tmp_path) == ["_delta_log/x"]
    assert store.put_if_absent(COMMIT, b"later") is PutOutcome.COMMITTED


LIMITED = """
import json, os, resource, signal, sys
from deltalog.errors import StoreError
from deltalog.storage import fs
root, limit, size, unnamed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True"
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
results = {}
for method in ("put_if_absent", "put", "open_output"):
    store = fs.LocalStore(os.path.join(root, method))
    store._tmpfile_works = unnamed and store._tmpfile_works
    store.put("_delta_log/old", b"old")
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        if method == "open_output":
            with store.open_output("_delta_log/new") as file:
                for start in range(0, size, 8192):
                    file.write(b"x" * min(8192, size - start))
        else:
            getattr(store, method)("_delta_log/new", b"x" * size)
        results[method] = "written"
    except StoreError as error:
        results[method] = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(json.dumps(results))
"""


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("limit", [0, 1, 4096, 99_999, 100_000])
def test_a_disk_that_is_full_after_some_bytes(tmp_path, unnamed, limit):
    """Set a kernel limit at which a write of 100,000 bytes stops after ``limit`` bytes."""
    size = 100_000
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), str(limit), str(size), str(unnamed)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    results = json.loads(done.stdout)
    for method in WRITES:
        files = every_file(tmp_path / method)
        if limit >= size:
            assert results[method] == "written"
            assert files == ["_delta_log/new", "_delta_log/old"]
        else:
            assert "File too large" in results[method], results
            assert "_delta_log/new" in results[method]
            assert files == ["_delta_log/old"], f"{method} left something behind"


DENIED = """
import json, os, sys
import pyarrow  # another user may not be allowed to read where Python's packages are
from deltalog.errors import StoreError
from deltalog.storage.fs import LocalStore
store = LocalStore(sys.argv[1])
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
calls = {
    "put_if_absent": lambda: store.put_if_absent("_delta_log/new", b"x"),
    "put": lambda: store.put("_delta_log/new", b"x"),
    "open_output": lambda: store.open_output("_delta_log/new").__enter__(),
    "a new directory": lambda: store.put_if_absent("_delta_log/sub/new", b"x"),
    "get": lambda: store.get("_delta_log/secret"),
    "open_input": lambda: store.open_input("_delta_log/secret"),
    "delete": lambda: store.delete("_delta_log/secret"),
    "list": lambda: store.list_from("closed"),
    "head": lambda: store.head("closed/a"),
}
results = {}
for name, call in calls.items():
    try:
        results[name] = f"no error: {call()}"
    except StoreError as error:
        results[name] = str(error)
print(json.dumps(results))
"""


def test_no_permission(tmp_path):
    root = tmp_path / "table"
    for path in reversed([tmp_path, *tmp_path.parents]):
        if os.access(path, os.W_OK) and path.stat().st_uid == os.getuid() and len(path.parts) > 2:
            path.chmod(path.stat().st_mode | 0o011)  # lets another user enter the directory
    store = LocalStore(root)
    store.put("_delta_log/secret", b"s")
    store.put("closed/a", b"s")
    (root / "_delta_log" / "secret").chmod(0)
    (root / "_delta_log").chmod(0o555)
    (root / "closed").chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", DENIED, str(root)], capture_output=True, text=True, timeout=60, check=True
        )
    finally:
        (root / "_delta_log").chmod(0o755)
        (root / "closed").chmod(0o755)
    results = json.loads(done.stdout)
    for name, text in results.items():
        assert "Permission denied" in text, (name, text)
        assert str(root) in text, (name, text)
    assert every_file(root) == ["_delta_log/secret", "closed/a"]


@pytest.mark.parametrize("method", WRITES)
def test_a_file_where_a_directory_should_be(tmp_path, method):
    (tmp_path / "_delta_log").write_bytes(b"I am a file")
    with pytest.raises(StoreError, match="_delta_log"):
        write(LocalStore(tmp_path), method, COMMIT, b"1")
    assert LocalStore(tmp_path).list_from("_delta_log") == []
    assert LocalStore(tmp_path).head(COMMIT) is None
    with pytest.raises(StoreError):
        LocalStore(tmp_path).get(COMMIT)


@pytest.mark.parametrize("path", ["day=1", "day=1/x/y"])
def test_a_directory_and_what_would_lie_below_a_file_are_no_objects(tmp_path, path):
    store = LocalStore(tmp_path)
    store.put("day=1/x", b"rows")
    store.delete(path)
    assert store.etag(path) is None
    with pytest.raises(ObjectNotFoundError):
        store.get(path)
    assert store.get("day=1/x") == b"rows"


def test_a_dangling_link_is_not_overwritten(tmp_path):
    store = LocalStore(tmp_path)
    store.put("_delta_log/x", b"")
    os.symlink(tmp_path / "elsewhere", tmp_path / COMMIT)
    assert store.put_if_absent(COMMIT, b"1") is PutOutcome.EXISTS
    assert not (tmp_path / "elsewhere").exists()


def test_the_directory_is_made_again_when_somebody_removed_it(tmp_path):
    store = LocalStore(tmp_path / "table")
    store.put_if_absent(COMMIT, b"1")
    os.unlink(store.location(COMMIT))
    os.rmdir(store.location("_delta_log"))
    assert store.put_if_absent(COMMIT, b"2") is PutOutcome.COMMITTED


# -------------------------------------------------------------------------------------------------- killed writers


KILLED = """
import sys
from deltalog.storage import fs
root, method, unnamed = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
store = fs.LocalStore(root)
store._tmpfile_works = unnamed and store._tmpfile_works
store.put("_delta_log/x", b"")
print("ready", flush=True)
n = 0
while True:
    data = (b"%09d\\n" % n) * 100_000
    if method == "put":
        store.put("_delta_log/hint", data, durable=False)
    else:
        store.put_if_absent(f"_delta_log/{n:020d}.json", data)
    n += 1
"""


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("method", ["put_if_absent", "put"])
def test_a_killed_writer_leaves_whole_objects(tmp_path, method, unnamed):
    rng = random.Random(f"{method} {unnamed}")
    names = set()
    for number in range(4):
        root = tmp_path / str(number)
        writer = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(root), method, str(unnamed)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.005, 0.05))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        store = LocalStore(root)
        for meta in store.list_from("_delta_log"):
            if meta.name.startswith(".") or meta.name == "x":
                continue  # files with hidden names are temporary
            data = store.get(f"_delta_log/{meta.name}")
            assert len(data) == 1_000_000
            assert data == data[:10] * 100_000
            names.add(meta.name)
    assert names, "every writer was killed before it wrote anything"


def test_what_killed_writers_left_is_removed_when_it_is_old(tmp_path, monkeypatch):
    """Temporary files that were written without O_TMPFILE are removed; links and other tools' temporary files are
    not."""
    monkeypatch.setattr(fs, "_O_TMPFILE", 0)
    store, link = LocalStore(tmp_path), os.link
    store.put("_delta_log/x", b"")

    class Killed(BaseException):
        pass

    def die(*_, **__):
        raise Killed

    def leave_a_temporary_file():
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", die)
            patch.setattr(fs._TemporaryFile, "close", lambda self: os.close(self._descriptor))
            with pytest.raises(Killed):
                store.put_if_absent(COMMIT, b"half")
        assert os.link is link

    def hidden():
        return {path.name for path in (tmp_path / "_delta_log").iterdir() if path.name.startswith(".")}

    leave_a_temporary_file()
    [old] = hidden()
    os.utime(tmp_path / "_delta_log" / old, ns=(0, 1_000_000_000))
    leave_a_temporary_file()
    [young] = hidden() - {old}
    others = {".hidden", ".00000000000000000001.json.0a.tmp", f".{'0' * 8}-0000-0000-0000-{'0' * 12}.tmp"}
    for name in others - {max(others, key=len)}:
        (tmp_path / "_delta_log" / name).write_bytes(b"")
        os.utime(tmp_path / "_delta_log" / name, ns=(0, 0))
    os.symlink(tmp_path / "_delta_log" / "x", tmp_path / "_delta_log" / max(others, key=len))
    assert store.remove_orphans("_delta_log", before_ms=1_000) == []
    assert store.remove_orphans("_delta_log", before_ms=1_001) == [old]
    assert hidden() == {young, *others}
    assert store.remove_orphans("absent", before_ms=1_001) == []
    assert store.put_if_absent(COMMIT, b"whole") is PutOutcome.COMMITTED


# ---------------------------------------------------------------------------------------------- other properties


def test_takes_urls_and_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for location in ["a b", (tmp_path / "a b").as_uri(), tmp_path / "a b", f"file:{tmp_path}/a%20b"]:
        store = open_store(location)
        assert isinstance(store, LocalStore)
        assert store.root == str(tmp_path / "a b")


def test_modification_time_is_that_of_the_file(tmp_path):
    store = LocalStore(tmp_path)
    store.put_if_absent(COMMIT, b"123")
    os.utime(tmp_path / COMMIT, ns=(0, 1_700_000_000_123_456_789))
    head = store.head(COMMIT)
    assert head is not None and head.modification_time_ms == 1_700_000_000_123
    assert store.list_from("_delta_log")[0] == head


def test_missing_objects_are_not_found(tmp_path):
    store = LocalStore(tmp_path / "absent")
    for call in (store.get, store.open_input):
        with pytest.raises(ObjectNotFoundError, match="no such file"):
            call(COMMIT)
    with pytest.raises(StoreError):
        store.sync([COMMIT])


@pytest.mark.parametrize(
    "path", ["link", "_delta_log/_sidecars", "_delta_log/_staged_commits", "_delta_log", "a/b/link"]
)
def test_removing_all_follows_no_link(tmp_path, path):
    outside, table = tmp_path / "outside", tmp_path / "table"
    (outside / "below").mkdir(parents=True)
    (outside / "precious.txt").write_text("x")
    (outside / "below" / "precious.txt").write_text("x")
    (table / path).parent.mkdir(parents=True, exist_ok=True)
    (table / "a").mkdir(exist_ok=True)
    (table / "a" / "file").write_text("x")
    (table / path).symlink_to(outside)
    assert LocalStore(table).remove_all() == 2
    assert not table.exists()
    assert sorted(each.name for each in outside.rglob("*")) == ["below", "precious.txt", "precious.txt"]


def test_removing_all_refuses_a_root_that_is_a_link(tmp_path):
    (tmp_path / "real" / "table").mkdir(parents=True)
    (tmp_path / "real" / "table" / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "table").symlink_to(tmp_path / "real" / "table")
    (tmp_path / "file").write_text("x")
    for root in ("table", "link/table", "file"):
        with pytest.raises(StoreError, match="Nothing is deleted"):
            LocalStore(tmp_path / root).remove_all()
    assert (tmp_path / "real" / "table" / "file").exists()
    assert LocalStore(tmp_path / "absent").remove_all() == 0


def test_removing_all_survives_a_directory_that_becomes_a_link(tmp_path, monkeypatch):
    outside, table = tmp_path / "outside", tmp_path / "table"
    outside.mkdir()
    (outside / "precious.txt").write_text("x")
    (table / "a").mkdir(parents=True)
    stat = os.stat

    def replaced(path, **options):
        found = stat(path, **options)
        if path == "a":
            (table / "a").rmdir()
            (table / "a").symlink_to(outside)
        return found

    monkeypatch.setattr(os, "stat", replaced)
    assert LocalStore(table).remove_all() == 0
    monkeypatch.undo()
    assert (outside / "precious.txt").exists()
    assert LocalStore(table).remove_all() == 1
    assert not table.exists()


def test_removing_all_ends_at_a_depth(tmp_path):
    table = tmp_path / "table"
    deep = table / "_delta_log"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    deep.joinpath(*["d"] * 120).mkdir(parents=True)
    with pytest.raises(StoreError, match="nested too deeply"):
        LocalStore(table).remove_all()
    assert not (deep / "file").exists()
