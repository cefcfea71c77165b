"""FsspecStore keeps the guarantees of a LogStore on backends that support them, and refuses to write on others."""

from __future__ import annotations

import importlib.metadata
import logging
import subprocess
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from deltalog import CallError, CommitStateUnknownError, DeltaTable, StoreError, open_store
from deltalog.errors import UnsafeStoreError, UnsafeStoreWarning
from deltalog.storage import fsspec_store
from deltalog.storage.base import PutOutcome
from deltalog.storage.fs import LocalStore
from deltalog.storage.fsspec_store import FsspecStore
from deltalog.testing.store_contract import LogStoreTests
from tests.support.core import environment, ids, rows
from tests.support.fsspec import (
    AsyncHonestFileSystem,
    FaultyFileSystem,
    HonestFileSystem,
    LyingFileSystem,
    OverwritingFileSystem,
    PlainFileSystem,
    RacyFileSystem,
    ServiceError,
    StaleFileSystem,
    UnawareFileSystem,
)
from tests.support.s3 import Server

COMMIT = "_delta_log/00000000000000000000.json"
COMMITTED, EXISTS, UNKNOWN = PutOutcome.COMMITTED, PutOutcome.EXISTS, PutOutcome.UNKNOWN


class TestOnAnHonestBackend(LogStoreTests):
    rounds = 10

    @pytest.fixture
    def store(self) -> FsspecStore:
        return FsspecStore(HonestFileSystem(), "bucket/a table")

    @pytest.fixture
    def another(self, store: FsspecStore) -> FsspecStore:
        return FsspecStore(HonestFileSystem(store._filesystem.objects), "bucket/a table")


class TestOnAnAsynchronousBackend(TestOnAnHonestBackend):
    @pytest.fixture
    def store(self) -> FsspecStore:
        return FsspecStore(AsyncHonestFileSystem(), "bucket/%41")

    @pytest.fixture
    def another(self, store: FsspecStore) -> FsspecStore:
        return FsspecStore(AsyncHonestFileSystem(store._filesystem.inner), "bucket/%41")


class TestOnABackendWithAListingCache(TestOnAnHonestBackend):
    @pytest.fixture
    def store(self) -> FsspecStore:
        return FsspecStore(StaleFileSystem(), "bucket")

    @pytest.fixture
    def another(self, store: FsspecStore) -> FsspecStore:
        return FsspecStore(StaleFileSystem(store._filesystem.objects), "bucket")


class TestOnTheMemoryOfFsspec(LogStoreTests):
    """The file system first checks whether the file exists and then writes it; the store's lock makes the two steps
    atomic."""

    @pytest.fixture
    def store(self) -> Iterator[FsspecStore]:
        root = f"/{uuid.uuid4()}"
        yield FsspecStore(MemoryFileSystem(), root)
        MemoryFileSystem().rm(root, recursive=True) if MemoryFileSystem().exists(root) else None

    @pytest.fixture
    def another(self, store: FsspecStore) -> FsspecStore:
        return FsspecStore(MemoryFileSystem(skip_instance_cache=True), store._root)


def end_to_end(table: DeltaTable) -> None:
    """Append, checkpoint, history and time travel, also through a second handle."""
    for number in range(2, 13):
        table.append(rows(number))
    assert ids(table) == list(range(1, 13))
    again = DeltaTable.open(table._handle.reader.store)
    assert ids(again) == list(range(1, 13))
    assert [entry.version for entry in again.history()] == list(range(11, -1, -1))
    assert sorted(again.snapshot(version=3).scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    table.flush()
    assert table._handle.reader.store.head("_delta_log/00000000000000000010.checkpoint.parquet") is not None


@pytest.mark.parametrize("kind", [HonestFileSystem, AsyncHonestFileSystem, StaleFileSystem, MemoryFileSystem])
def test_a_table_from_its_creation_to_time_travel(kind: Any) -> None:
    path = f"bucket/{uuid.uuid4()}"
    end_to_end(DeltaTable.create(path, rows(1).schema, data=rows(1), filesystem=kind()))


# ----------------------------------------------------------------------------------- backends that must be refused


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (LyingFileSystem, "2 of 2 writers"),
        (RacyFileSystem, "of 8 writers"),
        (OverwritingFileSystem, "replaced an object although it reported that it exists"),
        (PlainFileSystem, "checks whether the object exists, and then writes"),
        (UnawareFileSystem, "takes no mode"),
    ],
)
def test_a_backend_that_does_not_create_exclusively_is_refused_before_the_commit(kind: Any, why: str) -> None:
    filesystem = kind()
    store = FsspecStore(filesystem, "bucket/t")
    with pytest.raises(UnsafeStoreError, match=why):
        store.put_if_absent(COMMIT, b"x")
    with pytest.raises(UnsafeStoreError):
        store.put_if_absent(COMMIT, b"x")  # the second attempt to write is refused too
    assert filesystem.objects == {}, "neither the commit nor a scratch object"


@pytest.mark.parametrize("kind", [LyingFileSystem, PlainFileSystem])
def test_a_table_there_can_be_read(kind: Any) -> None:
    honest = HonestFileSystem()
    DeltaTable.create("b/t", rows(1).schema, data=rows(1, 2), filesystem=honest)
    filesystem = kind(honest.objects)
    table = DeltaTable.open("b/t", filesystem=filesystem)
    assert ids(table) == [1, 2]
    assert not [call for call in filesystem.calls if call[0] in ("create", "write", "delete")]
    with pytest.raises(UnsafeStoreError):
        table.append(rows(3))


def test_the_callers_word_makes_it_written_and_warned_of_once() -> None:
    store = FsspecStore(LyingFileSystem(), f"bucket/{uuid.uuid4()}", unsafe_single_writer=True)
    with pytest.warns(UnsafeStoreWarning, match="does not create objects exclusively, and"):
        assert store.put_if_absent(COMMIT, b"1") is COMMITTED
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.put_if_absent(COMMIT, b"2") is EXISTS
        assert (
            FsspecStore(store._filesystem, store._root, unsafe_single_writer=True).put_if_absent("a", b"") is COMMITTED
        )
    assert store.get(COMMIT) == b"1"


def test_the_callers_word_changes_nothing_where_it_is_not_needed() -> None:
    store = FsspecStore(HonestFileSystem(), "bucket/t", unsafe_single_writer=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.put_if_absent(COMMIT, b"1") is COMMITTED
    assert ("create", f"bucket/t/{COMMIT}") in store._filesystem.calls


@pytest.mark.parametrize("word", ["true", 1, None])
def test_the_callers_word_is_true_or_false(word: Any) -> None:
    with pytest.raises(CallError, match="True or False"):
        open_store("b/t", filesystem=LyingFileSystem(), unsafe_single_writer=word)


def test_the_threads_of_a_single_writer_are_kept_apart() -> None:
    store = FsspecStore(PlainLocked(), f"bucket/{uuid.uuid4()}", unsafe_single_writer=True)
    with pytest.warns(UnsafeStoreWarning):
        store.put_if_absent("first", b"")
    with ThreadPoolExecutor(4) as pool:
        for number in range(20):
            outcomes = list(pool.map(lambda path: store.put_if_absent(path, b"").value, [str(number)] * 4))
            assert sorted(outcomes) == ["committed", "exists", "exists", "exists"]


class PlainLocked(PlainFileSystem):
    """A PlainFileSystem whose open() supports writing."""

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        filesystem = self

        class Output:
            def __enter__(self) -> Output:
                return self

            def __exit__(self, *_: object) -> None:
                return None

            def write(self, value: bytes) -> None:
                HonestFileSystem.pipe_file(filesystem, path, value)

        assert mode == "wb"
        return Output()


def test_what_was_seen_of_a_file_system_is_not_looked_for_again() -> None:
    filesystem = HonestFileSystem()
    store = FsspecStore(filesystem, "bucket/t")
    store.put_if_absent(COMMIT, b"")
    assert [name for name, _ in filesystem.calls].count("create") == 2 + 8 * 8 + 1
    filesystem.calls.clear()
    store.put_if_absent("a", b"")
    FsspecStore(filesystem, "bucket/other").put_if_absent("a", b"")
    assert filesystem.calls == [("create", "bucket/t/a"), ("create", "bucket/other/a")]
    assert {path for path in filesystem.objects if "probe" in path} == set()


def test_a_known_backend_is_not_raced(monkeypatch: pytest.MonkeyPatch) -> None:
    """gcsfs and adlfs are known to pass the condition on to their services, so no race is needed to test them."""
    monkeypatch.setitem(fsspec_store._CONDITIONAL, "tests", (2024, 12))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2025.1.0")
    filesystem = HonestFileSystem()
    FsspecStore(filesystem, "bucket/t").put_if_absent(COMMIT, b"")
    assert [name for name, _ in filesystem.calls] == ["create", "create", "read", "delete", "create"]
    with monkeypatch.context() as patch:  # for a known client, the code is not inspected
        patch.setattr(fsspec_store, "_fault_of", lambda filesystem: "its code was read")
        FsspecStore(HonestFileSystem(of="known"), "bucket/t").put_if_absent(COMMIT, b"")
        patch.setattr(importlib.metadata, "version", lambda name: "2024.11.0")
        with pytest.raises(UnsafeStoreError, match="its code was read"):
            FsspecStore(HonestFileSystem(of="unknown"), "bucket/t").put_if_absent(COMMIT, b"")
    lying = LyingFileSystem()
    with pytest.raises(UnsafeStoreError):  # an emulator behind a known client might still ignore the condition
        FsspecStore(lying, "bucket/t").put_if_absent(COMMIT, b"")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2024.11.0")
    old = HonestFileSystem(of="before")
    FsspecStore(old, "bucket/t").put_if_absent(COMMIT, b"")
    assert len(old.calls) > 64  # an older version, which may not pass on the condition


# --------------------------------------------------------------------------------- outcomes of an exclusive create


def raising(error: Exception, *, after: bool) -> Callable[[int, Callable[[], None]], None]:
    """Make the first creation fail with ``error``, after it took effect or without effect; later creations succeed."""

    def fate(number: int, effect: Callable[[], None]) -> None:
        if after or number > 1:
            effect()
        if number == 1:
            raise error

    return fate


FATES: dict[str, tuple[Exception, bool, PutOutcome | None]] = {
    # the error, whether the object exists afterwards, and the expected outcome (None: a StoreError)
    "lost answer": (TimeoutError("no answer"), True, UNKNOWN),
    "lost request": (ConnectionResetError("reset"), False, UNKNOWN),
    "an error nobody knows": (RuntimeError("?"), True, UNKNOWN),
    "own, repeated": (FileExistsError("it is there"), True, EXISTS),
    "412": (ServiceError(412), True, EXISTS),
    "409": (ServiceError(409), False, UNKNOWN),
    "500 after": (ServiceError(500), True, UNKNOWN),
    "503 before": (ServiceError(503), False, UNKNOWN),
    "no permission": (PermissionError("no"), False, None),
    "no permission, in words": (OSError("Forbidden: b\nno"), False, None),
    "403": (ServiceError(403), False, None),
    "403 to the repetition of one that landed": (ServiceError(403), True, EXISTS),
    "400": (ServiceError(400), False, None),
    "cannot write": (NotImplementedError(), False, None),
}


@pytest.mark.parametrize("fate", FATES)
def test_what_became_of_a_creation_is_never_guessed(fate: str, caplog: pytest.LogCaptureFixture) -> None:
    error, landed, outcome = FATES[fate]
    filesystem = FaultyFileSystem()
    store = FsspecStore(filesystem, "bucket/t")
    filesystem.fate = raising(error, after=landed)
    with caplog.at_level(logging.WARNING, "deltalog"):
        if outcome is None:
            with pytest.raises(StoreError, match=r"cannot create bucket/t/_delta_log/0+\.json"):
                store.put_if_absent(COMMIT, b"mine")
        else:
            assert store.put_if_absent(COMMIT, b"mine") is outcome
    assert ("it is unknown whether" in caplog.text) == (outcome is UNKNOWN)
    assert (store.head(COMMIT) is not None) == landed


@pytest.mark.parametrize("fate", [name for name, (_, _, outcome) in FATES.items() if outcome is not None])
def test_a_commit_is_made_once_whatever_became_of_its_creation(fate: str) -> None:
    error, landed, _ = FATES[fate]
    filesystem = FaultyFileSystem()
    table = DeltaTable.create("b/t", rows(1).schema, data=rows(1), filesystem=filesystem, environment=environment())
    filesystem.creations, filesystem.fate = 0, raising(error, after=landed)
    assert table.append(rows(2)).version == 1
    assert ids(DeltaTable.open("b/t", filesystem=filesystem)) == [1, 2]
    names = sorted(path.rpartition("/")[2] for path in filesystem.objects if path.endswith(".json"))
    assert names == [f"{n:020d}.json" for n in range(2)]


def test_a_service_that_stays_silent_is_an_unknown_commit_that_can_be_resolved() -> None:
    filesystem = FaultyFileSystem()
    table = DeltaTable.create("b/t", rows(1).schema, filesystem=filesystem, environment=environment())

    def silent(number: int, effect: Callable[[], None]) -> None:
        raise TimeoutError("no answer")

    filesystem.fate = silent
    with pytest.raises(CommitStateUnknownError) as caught:
        table.append(rows(2))
    assert caught.value.resolve() is None
    filesystem.fate = lambda number, effect: effect()
    table.append(rows(3))
    assert ids(table) == [3]


@pytest.mark.parametrize("call", ["get", "head", "open_input", "list_from", "delete"])
def test_an_error_of_the_backend_is_an_error_of_the_store(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store = FsspecStore(HonestFileSystem(), "bucket/t")

    def fail(*arguments: Any, **options: Any) -> None:
        raise ServiceError(503, "slow down")

    for name in ("cat_file", "info", "ls", "rm_file"):
        monkeypatch.setattr(store._filesystem, name, fail)
    with pytest.raises(StoreError, match="503 slow down"):
        getattr(store, call)("a")


# ------------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("size", [0, 1000, 3000])
def test_a_stream_is_sent_whole_when_it_ends(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(fsspec_store, "ONE_REQUEST_BYTES", 2000)
    store, data = FsspecStore(HonestFileSystem(), "bucket/t"), bytes(range(250)) * 12
    with store.open_output("f") as file:
        file.write(data[:size])
        assert store.head("f") is None
    assert store.get("f") == data[:size]


def test_a_stream_that_cannot_be_sent_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FsspecStore(HonestFileSystem(), "bucket/t")

    def half(path: str, value: bytes, **options: Any) -> None:
        HonestFileSystem._pipe(store._filesystem, path, value[:2], exclusively=False)
        raise ServiceError(500)

    monkeypatch.setattr(store._filesystem, "pipe_file", half)
    with pytest.raises(StoreError, match="cannot write bucket/t/f"), store.open_output("f") as file:
        file.write(b"1234")
    assert store.head("f") is None


# ------------------------------------------------------------------------------------------ locations and options


def test_the_local_disk_goes_to_the_store_that_is_atomic_there(tmp_path: Any) -> None:
    local = LocalFileSystem()
    wrapped = AsyncFileSystemWrapper(DirFileSystem(path=str(tmp_path), fs=local))
    for store in (
        open_store(str(tmp_path / "t"), filesystem=local),
        open_store("t", filesystem=wrapped),
        open_store(f"local://{tmp_path}/t"),
    ):
        assert isinstance(store, LocalStore) and store.root == str(tmp_path / "t")
    end_to_end(DeltaTable.create("t", rows(1).schema, data=rows(1), filesystem=wrapped))


def test_s3fs_goes_to_the_store_that_knows_its_answers(ministack: Server) -> None:
    import s3fs

    from deltalog.storage.s3.store import S3Store

    filesystem = s3fs.S3FileSystem(False, **ministack.options(use_listings_cache=False))
    bucket = ministack.bucket()
    end_to_end(DeltaTable.create(f"{bucket}/t", rows(1).schema, data=rows(1), filesystem=filesystem))
    store = open_store("t", filesystem=DirFileSystem(path=bucket, fs=filesystem))
    assert isinstance(store, S3Store) and store.url == f"s3://{bucket}/t"
    assert ids(DeltaTable.open(store)) == list(range(1, 13))


def test_a_file_system_that_keeps_copies_is_refused() -> None:
    caching = fsspec.filesystem("filecache", fs=MemoryFileSystem(), cache_storage="TMP")
    with pytest.raises(CallError, match="copies that may be stale"):
        open_store("t", filesystem=caching)
    with pytest.raises(CallError, match="chains file systems"):
        open_store("simplecache::gs://bucket/t")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s3n://bucket/x", "No store for scheme 's3n'"),
        ("nowhere://bucket/x", "the schemes of fsspec's file systems, such as gs://"),
        ("sftp://me:a-sentinel@host/x", "with credentials in its URL"),
        ("file://host/x", "names another host"),
    ],
)
def test_a_location_that_cannot_be_opened_says_what_is_missing(url: str, text: str) -> None:
    with pytest.raises(CallError, match=text) as caught:
        open_store(url)
    assert "a-sentinel" not in str(caught.value)


def test_options_go_to_the_backend_and_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky(HonestFileSystem):
        protocol: Any = "picky"

        def __init__(self, secret: str, **options: Any) -> None:
            super().__init__(**options)
            if secret == "wrong-sentinel":
                raise ValueError(f"{secret} opens nothing")
            self.secret = secret

        def cat_file(self, path: str, **kwargs: Any) -> bytes:  # type: ignore[override]
            raise ServiceError(401, f"signature made with {self.secret}")

    fsspec.register_implementation("picky", Picky, clobber=True)
    store = open_store("picky://bucket/t", secret="right-sentinel")
    with pytest.raises(StoreError) as caught:
        store.get("a")
    assert "401" in str(caught.value) and "sentinel" not in str(caught.value) + repr(store)
    assert caught.value.__cause__ is None
    with pytest.raises(CallError, match=r"options \['secret'\]") as refused:
        open_store("picky://bucket/t", secret="wrong-sentinel")
    assert "sentinel" not in str(refused.value)
    assert (store.url, store.location("x")) == ("picky://bucket/t", "picky://bucket/t/x")


def test_siblings_are_other_places_of_the_same_service() -> None:
    store = FsspecStore(HonestFileSystem(), "bucket/t", url="honest://bucket/t")
    sibling = store.sibling("honestly://bucket/other")
    sibling.put("x", b"1")
    assert FsspecStore(store._filesystem, "bucket").get("other/x") == b"1"
    for url in ("/data/t", "memory://x", "s3://bucket/x"):
        with pytest.raises(CallError, match="not on the same service"):
            store.sibling(url)


@pytest.mark.parametrize("path", ["", "a//b", "../x", "a/../../x", "./x", "a/."])
def test_a_path_that_leaves_the_root_is_not_asked_for(path: str) -> None:
    store = FsspecStore(HonestFileSystem(), "bucket/t")
    for call in (store.get, store.head, store.open_input, store.delete, lambda p: store.put_if_absent(p, b"")):
        with pytest.raises(StoreError, match="not a path below the root"):
            call(path)
    assert store._filesystem.calls == []


@pytest.mark.parametrize(
    ("info", "modified_ms"),
    [
        ({"mtime": 1_700_000_000.25}, 1_700_000_000_250),
        ({"mtime": "2023-11-14T22:13:20.5Z"}, 1_700_000_000_500),
        ({"updated": "2023-11-14T22:13:20Z"}, 1_700_000_000_000),
        ({"updated": "2023-11-14T23:13:20.123456789+01:00"}, 1_700_000_000_123),
        ({"LastModified": "yesterday"}, None),
        ({}, None),
    ],
)
def test_modification_times_as_backends_tell_them(info: dict[str, Any], modified_ms: int | None) -> None:
    assert fsspec_store._modified_ms(info) == modified_ms


@pytest.mark.parametrize(
    ("package", "url", "told"),
    [
        ("fsspec", "sftp://host/x", "pip install 'deltalog[fsspec]'"),
        ("fsspec", "gs://b/x", "pip install 'deltalog[gcs]'"),
        ("gcsfs", "gs://b/x", "pip install 'deltalog[gcs]'"),
    ],
)
def test_without_the_package_the_error_names_it(package: str, url: str, told: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import deltalog\n"
        f"try: deltalog.DeltaTable.open({url!r})\n"
        "except deltalog.CallError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert told in done.stdout


def test_a_parquet_column_is_read_in_ranges() -> None:
    store = FsspecStore(HonestFileSystem(), "bucket/t")
    import pyarrow.parquet as pq

    with store.open_output("f") as file:
        pq.write_table(pa.table({c: [i * 7919 % 1_000_003 for i in range(300_000)] for c in "abc"}), file)
    store._filesystem.calls.clear()
    with pq.ParquetFile(store.open_input("f")) as parquet:
        parquet.read(columns=["b"])
    assert [name for name, _ in store._filesystem.calls] == ["info", "read", "read"]
