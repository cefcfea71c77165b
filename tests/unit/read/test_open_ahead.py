"""Scans of remote stores: how many files are opened ahead, and what remains open when the caller stops."""

from __future__ import annotations

import gc
import random
import signal
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.errors import InvalidDataFileError, StoreError
from deltalog.parallel import opened_ahead
from deltalog.parquet import column_ranges
from deltalog.storage.memory import MemoryStore
from deltalog.storage.ranges import TAIL_BYTES
from deltalog.storage.remote import PARALLEL_GETS
from tests.support.remote import RemoteStore

FILES = 100
DECODED = 4  # files that threads decode concurrently


@pytest.fixture(scope="module")
def written() -> MemoryStore:
    """A table of FILES files with one row each."""
    store = MemoryStore()
    numbers = pa.table({"id": range(FILES), "k": range(FILES)})
    DeltaTable.create(store, numbers.schema, partition_by=["k"], data=numbers)
    return store


def opened(store: RemoteStore) -> Any:
    """A scan of all files; the scan's file list has already been read."""
    snapshot = DeltaTable.open(store).snapshot()
    snapshot.files()
    store.requests.clear()
    store.most_at_once = 0
    return snapshot.scan()


def no_thread_is_left() -> bool:
    return not any(thread.name.startswith("deltalog-") for thread in threading.enumerate())


def test_all_rows_come_in_order_with_one_request_for_each_file(written: MemoryStore) -> None:
    store = RemoteStore(written)
    scan = opened(store)
    paths = scan.files()["path"].to_pylist()
    assert scan.to_arrow()["id"].to_pylist() == DeltaTable.open(written).snapshot().scan().to_arrow()["id"].to_pylist()
    assert sorted(store.requests) == sorted(paths)
    assert store.most_at_once <= PARALLEL_GETS and no_thread_is_left()


def test_32_files_are_requested_at_once(written: MemoryStore) -> None:
    meet = threading.Barrier(PARALLEL_GETS, timeout=60)
    store = RemoteStore(written)
    batches = opened(store).batches()
    passed = threading.Event()

    def wait(path: str) -> None:
        if not passed.is_set():
            meet.wait()
            passed.set()

    store.before = wait
    next(batches)
    batches.close()
    assert store.most_at_once == PARALLEL_GETS


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_a_scan_that_is_left_after_a_batch_requests_nothing_more(written: MemoryStore, how: str) -> None:
    store = RemoteStore(written)
    batches = opened(store).batches()
    next(batches)
    if how == "closed":
        batches.close()
    del batches
    gc.collect()
    made = len(store.requests)
    assert no_thread_is_left() and store.at_once == 0
    assert made <= 2 * (PARALLEL_GETS + DECODED) and len(store.requests) == made


def test_a_missing_file_is_an_error_in_its_place(written: MemoryStore) -> None:
    store = RemoteStore(written)
    scan = opened(store)
    paths = scan.files()["path"].to_pylist()
    missing = 40

    def fail(path: str) -> None:
        if path == paths[missing]:
            raise StoreError("no answer", path=path)

    store.before = fail
    batches = scan.batches()
    for _ in range(missing):
        next(batches)
    with pytest.raises(StoreError, match="no answer"):
        next(batches)
    assert no_thread_is_left()
    assert not set(store.requests) & set(paths[missing + PARALLEL_GETS :])


def test_a_deleted_file_in_the_middle_is_named(written: MemoryStore) -> None:
    scan = opened(RemoteStore(written))
    path = scan.files()["path"][50].as_py()
    data = written.get(path)
    written.delete(path)
    try:
        with pytest.raises(InvalidDataFileError, match="is missing") as raised:
            scan.to_arrow()
        assert raised.value.path == path
    finally:
        written.put(path, data)
    assert no_thread_is_left()


def test_an_interrupt_while_requests_wait_ends_them_all(written: MemoryStore) -> None:
    store = RemoteStore(written)
    scan = opened(store)
    ready = threading.Barrier(PARALLEL_GETS, timeout=60)
    interrupted = threading.Event()

    def hold(path: str) -> None:
        if ready.wait() == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        interrupted.wait(60)

    def receive(number: int, frame: types.FrameType | None) -> None:
        threading.Timer(1.0, interrupted.set).start()  # after the scan has begun to end its requests
        signal.default_int_handler(number, frame)

    store.before = hold
    before = signal.signal(signal.SIGINT, receive)
    # An interrupt that arrives while the garbage collector calls the callback of a weak reference is ignored by Python.
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt):
            scan.to_arrow()
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, before)
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("deltalog-"):
            thread.join(60)
    assert len(store.requests) == PARALLEL_GETS and store.at_once == 0


@pytest.mark.parametrize("fail_at", [0, 1, 5, 39])
def test_an_error_of_the_items_comes_after_the_items_before_it(fail_at: int) -> None:
    def items() -> Iterator[int]:
        yield from range(fail_at)
        raise KeyError("no more items")

    def read(item: int, begun: int) -> Iterator[int]:
        yield begun

    found = []
    with pytest.raises(KeyError, match="no more items"):
        for number in opened_ahead(items(), lambda item: -item, read, 8):
            found.append(number)
    assert found == [-number for number in range(fail_at)] and no_thread_is_left()


@pytest.mark.parametrize("lie", [1, 100, 1 << 40])
def test_the_size_in_the_log_does_not_decide_what_is_read(lie: int, tampered: Callable[[int], RemoteStore]) -> None:
    store = tampered(lie)
    assert sorted(opened(store).to_arrow()["id"].to_pylist()) == list(range(FILES))


@pytest.fixture
def tampered() -> Callable[[int], RemoteStore]:
    def make(size: int) -> RemoteStore:
        store = MemoryStore()
        numbers = pa.table({"id": range(FILES), "k": [number % 3 for number in range(FILES)]})
        table = DeltaTable.create(store, numbers.schema, partition_by=["k"], data=numbers)
        sizes = table.snapshot().files()["size"].to_pylist()
        log = store.get("_delta_log/00000000000000000000.json")
        for each in set(sizes):
            log = log.replace(b'"size":%d' % each, b'"size":%d' % size)
        store.put("_delta_log/00000000000000000000.json", log)
        return RemoteStore(store)

    return make


@pytest.mark.parametrize("files", [1, 3])
def test_of_a_large_file_only_the_tail_and_the_columns_are_requested(files: int) -> None:
    inner = MemoryStore()
    chance = random.Random(0)
    rows = 90_000
    columns = {f"c{n}": [chance.random() for _ in range(rows)] for n in range(8)}
    data = pa.table({**columns, "k": [row % files for row in range(rows)]})
    properties = {"delta.enableDeletionVectors": "true"}
    table = DeltaTable.create(inner, data.schema, partition_by=["k"], properties=properties, data=data)
    table.delete("c5 < 0.001")
    assert all(size > 4 * TAIL_BYTES for size in table.snapshot().files()["size"].to_pylist())
    store = RemoteStore(inner)
    snapshot = DeltaTable.open(store).snapshot()
    snapshot.files()
    store.requests.clear()
    found = snapshot.scan(["c1", "c5"]).to_arrow()
    assert sorted(found["c1"].to_pylist()) == sorted(
        c1 for c1, c5 in zip(columns["c1"], columns["c5"], strict=True) if c5 >= 0.001
    )
    in_data = [path for path in store.requests if "deletion_vector" not in path]
    assert len(in_data) == files * 3 and no_thread_is_left()  # three reads for each file: the tail, c1 and c5


@pytest.fixture(scope="module")
def large() -> MemoryStore:
    """A table of 60 files of about 130 KiB; one column takes half of each file."""
    store = MemoryStore()
    chance = random.Random(1)
    rows = 60 * 8_000
    numbers = pa.array([chance.random() for _ in range(rows)])
    data = pa.table({"a": numbers, "b": numbers, "k": [row % 60 for row in range(rows)]})
    DeltaTable.create(store, data.schema, partition_by=["k"], data=data)
    return store


@pytest.mark.parametrize("ahead", [True, False])
def test_what_is_read_before_the_turn_of_a_file_is_bounded(
    large: MemoryStore, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """Large columns and footers are read only when it is the turn of their file, however many files are waiting."""
    monkeypatch.setattr(column_ranges, "FETCHED_AHEAD_BYTES", 70_000 if ahead else 1_000)
    store = RemoteStore(large)
    snapshot = DeltaTable.open(store).snapshot()
    files = snapshot.files()
    assert min(files["size"].to_pylist()) > 2 * 64_000
    store.bytes_read = 0
    batches = snapshot.scan(["b"]).batches()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    opened, read = (PARALLEL_GETS + 2 * DECODED), (PARALLEL_GETS + 2 * DECODED if ahead else 2 * DECODED)
    assert store.bytes_read <= opened * TAIL_BYTES + read * 70_000
    assert snapshot.scan(["b"]).to_arrow().num_rows == 60 * 8_000


@pytest.mark.parametrize("kind", ["footer", "anywhere", "begin cut off", "end cut off", "length of the footer"])
def test_a_damaged_file_is_read_or_is_an_error_that_names_it(kind: str) -> None:
    inner = MemoryStore()
    chance = random.Random(kind)
    data = pa.table({name: [chance.randrange(300) / 7 for _ in range(20_000)] for name in "ab"})
    DeltaTable.create(inner, data.schema, data=data)
    snapshot = DeltaTable.open(RemoteStore(inner)).snapshot()
    path = snapshot.files()["path"][0].as_py()
    good = inner.get(path)
    footer_bytes = int.from_bytes(good[-8:-4], "little")
    refused = 0
    for _ in range(60):
        bad = bytearray(good)
        if kind == "footer":
            bad[len(bad) - 8 - chance.randrange(1, footer_bytes)] = chance.randrange(256)
        elif kind == "anywhere":
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        elif kind == "begin cut off":
            del bad[: chance.randrange(1, len(bad))]
        elif kind == "end cut off":
            del bad[chance.randrange(len(bad)) :]
        else:
            bad[-8:-4] = chance.choice([0, 1, footer_bytes + 1, len(bad), 2**31, 2**32 - 1]).to_bytes(4, "little")
        inner.put(path, bytes(bad))
        try:
            snapshot.scan(chance.choice([None, ["a"], ["b"]])).to_arrow()
        except InvalidDataFileError as error:
            assert error.path == path
            refused += 1
    assert refused > (0 if kind == "anywhere" else 5)
    assert no_thread_is_left()
