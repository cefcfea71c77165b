"""WindowsStore keeps the guarantees of a LogStore with what Windows can do with files; its paths and names.

On Linux, the module ``os`` is restricted to what Windows can do. On Windows, .github/workflows/tests.yml runs these
tests as they are.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time

import pyarrow as pa
import pytest

from deltalog import DeltaTable, TransactionManager
from deltalog.errors import CallError, StoreError, UnsafePathError
from deltalog.protocol.paths import absolute_path, locate, place_of
from deltalog.storage import fs, registry, windows, windows_paths
from deltalog.storage.base import EntryKind, PutOutcome
from deltalog.storage.fs import LocalStore
from deltalog.storage.windows import WindowsStore
from deltalog.testing.store_contract import LogStoreTests
from tests.support.systems import windows_like

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="restricts the os module of Linux")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="restricts the os module of Linux")


@pytest.fixture
def restricted(monkeypatch):
    if sys.platform == "linux":
        windows_like.restrict(monkeypatch)


class TestWindowsStore(LogStoreTests):
    rounds = 10

    @pytest.fixture
    def store(self, tmp_path, restricted):
        return WindowsStore(tmp_path / "a table")

    @pytest.fixture
    def another(self, store):
        return WindowsStore(store.root)

    # The contract's names include some that Windows cannot hold.
    @pytest.mark.parametrize("name", ["with space", "100%", "%41", "a=b", "ünï", ".hidden"])
    def test_takes_any_name(self, store, name):
        super().test_takes_any_name(store, name)


@on_linux
def test_the_restricted_module_stops_the_store_of_other_systems(tmp_path, restricted):
    store = LocalStore(tmp_path)
    with pytest.raises(StoreError, match="Permission denied"):
        store.put("_delta_log/a", b"1")


def test_a_table_lives_its_life(tmp_path, restricted, monkeypatch):
    monkeypatch.setattr(registry, "local_store", WindowsStore)
    table = DeltaTable.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("kind", pa.string())]),
                              partition_by=["kind"])  # fmt: skip
    for number in range(12):  # with a checkpoint
        table.append(pa.table({"id": [number, -number], "kind": ["a", f"k{number % 3}"]}))
    table.delete("id < -5")
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert type(table.snapshot().reader.store) is WindowsStore
    again = DeltaTable.open(str(tmp_path / "t"))
    assert again.snapshot().scan().to_arrow().num_rows == 24 - 6
    assert [commit.operation for commit in again.history(limit=2)] == ["VACUUM END", "VACUUM START"]


def test_the_system_selects_the_store(tmp_path):
    assert type(registry.local_store(str(tmp_path), "nt")) is WindowsStore
    assert type(registry.local_store(str(tmp_path), "posix")) is LocalStore
    store = WindowsStore(tmp_path)
    assert type(pickle.loads(pickle.dumps(store))) is type(store.sibling(str(tmp_path))) is WindowsStore


# -------------------------------------------------------------------------------------------------------- open files


@on_linux
def test_an_open_file_is_replaced_when_its_reader_closes_it(tmp_path, monkeypatch):
    denied = list[str]()
    windows_like.restrict(monkeypatch, denied=denied)
    store = WindowsStore(tmp_path)
    store.put("_delta_log/_last_checkpoint", b"old")
    place = tmp_path / "_delta_log" / "_last_checkpoint"
    reader = place.open("rb")

    def close_when_denied():
        while not denied:
            time.sleep(0.001)
        reader.close()

    closing = threading.Thread(target=close_when_denied)
    closing.start()
    store.put("_delta_log/_last_checkpoint", b"new")
    closing.join()
    assert store.get("_delta_log/_last_checkpoint") == b"new" and str(place) in denied


@pytest.mark.parametrize("call", ["put", "delete", "remove", "remove_all"])
def test_an_error_says_that_a_file_is_open(tmp_path, restricted, monkeypatch, call):
    monkeypatch.setattr(windows, "_WAIT_SECONDS", 0.02)
    store = WindowsStore(tmp_path / "t")
    store.put("part-0.parquet", b"old")
    with (tmp_path / "t" / "part-0.parquet").open("rb"), pytest.raises(StoreError, match="another program has it open"):
        if call == "put":
            store.put("part-0.parquet", b"new")
        elif call == "delete":
            store.delete("part-0.parquet")
        elif call == "remove":
            store.remove(store.entries(["part-0.parquet"]))
        else:
            store.remove_all()
    assert store.get("part-0.parquet") == b"old"
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["part-0.parquet"]


def test_an_error_that_is_no_open_file_is_not_repeated(tmp_path, monkeypatch):
    calls = list[str]()

    def unlink(path):
        calls.append(path)
        raise PermissionError(13, "Permission denied", path)

    store = WindowsStore(tmp_path)
    store.put("a", b"1")
    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(StoreError, match="Permission denied"):
        store.delete("a")
    assert len(calls) == 1


# ------------------------------------------------------------------------------------------------- links and junctions


@on_linux
def test_a_junction_is_neither_entered_nor_removed(tmp_path, restricted, monkeypatch):
    """Windows says of a junction that it is a directory. Python's status of it has a tag, which is added here."""
    store = WindowsStore(tmp_path / "t")
    store.put("p=1/a", b"1")
    store.put("p=2/a", b"1")
    junction, lstat = str(tmp_path / "t" / "p=2"), os.lstat

    class Status:
        def __init__(self, found):
            self._found = found
            self.st_reparse_tag = fs._JUNCTION_TAG

        def __getattr__(self, name):
            return getattr(self._found, name)

    monkeypatch.setattr(os, "lstat", lambda path: Status(lstat(path)) if str(path) == junction else lstat(path))
    kinds = {entry.path: entry.kind for entry in store.walk(lambda directory: True)}
    assert kinds == {
        "p=1": EntryKind.DIRECTORY, "p=1/a": EntryKind.FILE, "p=2": EntryKind.OTHER
    }  # fmt: skip
    assert [entry.path for entry in store.entries(["p=1/a", "p=2/a"])] == ["p=1/a"]
    assert store.link_target("p=1/a") is None and store.link_target("p=2/a") is not None
    assert store.remove_all() == 1
    assert (tmp_path / "t" / "p=2" / "a").exists() and not (tmp_path / "t" / "p=1").exists()


def test_nothing_is_removed_below_a_root_with_a_link(tmp_path, restricted):
    WindowsStore(tmp_path / "t").put("a", b"1")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    with pytest.raises(StoreError, match="has a link"):
        WindowsStore(tmp_path / "link").remove_all()
    assert (tmp_path / "t" / "a").exists()
    assert WindowsStore(tmp_path / "absent").remove_all() == 0


# ------------------------------------------------------------------------------------------------------ names, paths


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("p=a./part-0", "ends with a dot"),
        ("p=a /part-0", "ends with a dot or a space"),
        ("a:b", "':'"),
        ("x/a<b", "'<'"),
        ('a"b', "contains"),
        ("a\\b", "contains"),
        ("what?", "contains"),
        ("NUL", "a device"),
        ("x/aux.parquet", "a device"),
        ("com1.tar.gz", "a device"),
        ("LPT9/a", "a device"),
        ("con .txt", "a device"),
    ],
)
def test_names_that_windows_cannot_hold_are_refused(tmp_path, path, reason):
    assert reason in str(windows_paths.refusal(path))
    store = WindowsStore(tmp_path)
    for call in (store.head, store.get, store.delete, lambda path: store.put_if_absent(path, b"1")):
        with pytest.raises(StoreError, match="Windows cannot hold"):
            call(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path",
    [
        "_delta_log/00000000000000000000.json", ".a", "a.b.c", "common", "com", "com10", "auxiliary", "p=con/a",
        "ä b/c", "nulls.parquet",
    ],
)  # fmt: skip
def test_other_names_are_not_refused(path):
    assert windows_paths.refusal(path) is None


def test_a_partition_whose_directory_windows_would_rename_is_refused(tmp_path, monkeypatch):
    """Windows would drop the dot, and a vacuum would then take the file for one that no version names."""
    monkeypatch.setattr(registry, "local_store", WindowsStore)
    table = DeltaTable.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("p", pa.string())]),
                              partition_by=["p"])  # fmt: skip
    with pytest.raises(StoreError, match="ends with a dot"):
        table.append(pa.table({"id": [1], "p": ["etc."]}))
    assert table.snapshot().version == 0
    table.append(pa.table({"id": [1], "p": ['C:\\a <"b"> ']}))  # encoded in the directory's name
    assert table.snapshot().scan().to_arrow()["p"].to_pylist() == ['C:\\a <"b"> ']


@pytest.mark.parametrize(
    ("root", "url"),
    [
        ("C:\\data\\a b", "/C:/data/a b"),
        ("d:\\", "/d:/"),
        ("\\\\?\\C:\\data", "/C:/data"),
        ("/data", "/data"),
    ],
)
def test_the_form_of_a_path_in_urls(root, url):
    assert windows_paths.url_of(root) == url


def test_a_log_names_files_of_windows_as_hadoop_does():
    url = windows_paths.url_of("C:\\data\\a b")
    named = absolute_path(url, "p=1/ä.parquet")
    assert named == "file:/C:/data/a%20b/p=1/ä.parquet"
    assert locate(named, [place_of(url)]) == (0, "p=1/ä.parquet")
    assert locate("file:///C:/data/a%20b/x", [place_of(url)]) == (0, "x")
    for outside in ("file:/D:/data/a%20b/x", "file:/C:/data/x", "C:/data/a%20b/x", "C:\\data\\a b\\x", "x\\..\\..\\y"):
        with pytest.raises(UnsafePathError):
            locate(outside, [place_of(url)])


def test_a_url_leads_back_to_its_path():
    for given, path in [
        ("/C:/data", "C:/data"), ("///C:/data", "C:/data"), ("/C:", "C:"), ("/data/C:/x", "/data/C:/x"),
        ("C:/x", "C:/x"), ("/CD:/x", "/CD:/x"),
    ]:  # fmt: skip
        assert windows_paths.root_of(given) == path
    assert fs._without_slash("/C:/data", "nt") == "C:/data" and fs._without_slash("/C:/data", "posix") == "/C:/data"


def test_long_paths_get_a_prefix():
    short, long = "p=1/a.parquet", "/".join(["p=" + "x" * 60] * 5)
    assert windows_paths.joined("C:\\t", short) == "C:\\t\\p=1\\a.parquet"
    whole = windows_paths.joined("C:\\t", long)
    assert whole == "\\\\?\\C:\\t\\" + long.replace("/", "\\")
    assert windows_paths.joined("\\\\?\\C:\\t", long) == whole
    assert windows_paths.joined("/t", long, "/") == f"/t/{long}"
    assert windows_paths.joined("C:\\t", "") == "C:\\t"


@pytest.mark.parametrize("root", ["\\\\server\\share\\t", "//server/share"])
def test_shares_are_refused(root):
    with pytest.raises(CallError, match="network share"):
        WindowsStore(root)
    assert not windows_paths.is_on_network("\\\\?\\C:\\t") and not windows_paths.is_on_network("C:\\t")


def test_two_writers_cannot_both_create_a_file(tmp_path, restricted):
    store, outcomes = WindowsStore(tmp_path), list[PutOutcome]()
    start = threading.Barrier(4)

    def create():
        start.wait()
        outcomes.append(store.put_if_absent("_delta_log/x", os.urandom(64)))

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome.name for outcome in outcomes) == ["COMMITTED", "EXISTS", "EXISTS", "EXISTS"]


def test_a_transaction_over_two_tables(tmp_path, restricted, monkeypatch):
    monkeypatch.setattr(registry, "local_store", WindowsStore)
    catalog = TransactionManager(str(tmp_path / "bank.db"))
    money = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
    rows = pa.table({"id": [7], "amount": [100]}, schema=money)
    catalog.create_table("bank.checking", str(tmp_path / "checking"), money, data=rows)
    catalog.create_table("bank.savings", str(tmp_path / "savings"), money)
    with catalog.transaction() as transaction:
        transaction.table("bank.checking").delete("id = 7")
        transaction.table("bank.savings").append(rows)
        transaction.commit()
    amounts = {
        name: catalog.table(f"bank.{name}").snapshot().scan().to_arrow().num_rows for name in ("checking", "savings")
    }
    assert amounts == {"checking": 0, "savings": 1}
