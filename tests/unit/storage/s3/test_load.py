"""S3Store sends fewer requests at once when the service asks it to slow down, repeats deletions, and stops when its
caller stops."""

from __future__ import annotations

import gc
import itertools
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from deltalog import DeltaTable, StoreError
from deltalog.errors import InvalidDataFileError
from deltalog.storage.base import Entry
from deltalog.storage.s3 import store as s3_store
from deltalog.storage.s3.store import S3Store
from tests.support.s3 import Answer, Proxy, Request, pass_on
from tests.support.s3.clients import with_own_limit
from tests.support.s3.faults import answered

# ------------------------------------------------------------------------------------- a service that is overloaded


def test_a_service_that_asks_to_slow_down_gets_fewer_requests_at_once(seen: tuple[Proxy, S3Store]) -> None:
    """32 reads are refused together. They are repeated, and all later reads share half as many slots."""
    proxy, store = seen[0], with_own_limit(seen[1])
    paths = [f"{n:03}" for n in range(132)]
    for path in paths:
        store.put(path, path.encode())
    together = threading.Barrier(32)
    first: set[str] = set()
    lock = threading.Lock()
    under_way = most = 0

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        nonlocal under_way, most
        with lock:
            is_first = len(first) < 32
            if is_first:
                first.add(request.target)
            counts = request.target not in first
            under_way += counts
            most = max(most, under_way)
        try:
            if is_first:
                together.wait(30)
                return answered(503, "SlowDown")(proxy, request, forward)
            time.sleep(0.005)
            return forward()
        finally:
            with lock:
                under_way -= counts

    assert store._client.limit.window.size == 64
    proxy.rule = rule
    assert store.get_many(paths) == [path.encode() for path in paths]
    # 32 requests were in flight, so the window was halved to 16; it grows by one for each full window of responses.
    assert 1 <= most <= 24
    assert store._client.limit.window.size < 25 and store._client.limit.window.burst == 1


def test_the_ranges_of_a_scan_wait_for_their_turns(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen[0], with_own_limit(seen[1])
    data = bytes(range(256)) * (1 << 16)
    store.put("large", data)
    file = store.open_input("large")
    file.expect([(0, len(data))])
    refused: list[str] = []

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        if not refused:
            refused.append(request.headers["Range"])
            return answered(503, "SlowDown")(proxy, request, forward)
        return forward()

    proxy.rule = rule
    assert file.read() == data and refused
    assert store._client.limit.window.burst == 1


# ------------------------------------------------------------------------------------------------ many deletions


def deleted_by(request: Request) -> list[str]:
    """The keys in a DeleteObjects request; none for any other request."""
    is_deletion = request.method == "POST" and "delete" in request.target
    return re.findall("<Key>([^<]*)</Key>", request.body.decode()) if is_deletion else []


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the sleeps between deletions; the sleeps return immediately."""
    found: list[float] = []
    monkeypatch.setattr(s3_store, "_pause", found.append)
    return found


def many(store: S3Store, count: int) -> list[Entry]:
    for number in range(count):
        store.put(f"{number:03}", b"")
    return [*store.walk(lambda directory: True)]


def not_deleted(keys: Sequence[str], code: str) -> Answer:
    """A DeleteObjects response that reports all keys except the given ones as deleted."""
    errors = (f"<Error><Key>{key}</Key><Code>{code}</Code><Message>.</Message></Error>" for key in keys)
    return 200, [("Content-Type", "application/xml")], f"<DeleteResult>{''.join(errors)}</DeleteResult>".encode()


def test_files_that_s3_refuses_to_delete_at_once_are_deleted_later(
    seen: tuple[Proxy, S3Store], pauses: list[float]
) -> None:
    """S3 answers for each key; here it deletes 15 keys of a request, and returns SlowDown for the others."""
    proxy, store = seen
    entries = many(store, 60)
    sizes: list[int] = []
    deleted: list[str] = []

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        keys = deleted_by(request)
        if not keys:
            return forward()
        sizes.append(len(keys))
        deleted.extend(keys[:15])
        return not_deleted(keys[15:], "SlowDown")

    proxy.rule = rule
    assert store.remove(entries) == entries
    assert sorted(deleted) == [store.key(entry.path) for entry in entries]
    assert sizes[0] == 60 and sizes[1] == 45 and len(pauses) == sum(size > 15 for size in sizes) > 0


def test_requests_to_delete_that_s3_refuses_become_smaller_and_slower(
    seen: tuple[Proxy, S3Store], pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    monkeypatch.setattr(s3_store, "LIST_PAGE", 40)
    monkeypatch.setattr(s3_store, "_MORE_DELETES", 5)
    entries = many(store, 60)
    once = {"config_kwargs": {"retries": {"total_max_attempts": 1}, "read_timeout": 3}}
    store = S3Store(store.url, **{**store._client._options, **once})
    sizes: list[int] = []

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        if keys := deleted_by(request):
            sizes.append(len(keys))
            if len(keys) > 20:
                return answered(503, "SlowDown")(proxy, request, forward)
        return forward()

    proxy.rule = rule
    assert store.remove(entries) == entries
    assert [*store.walk(lambda directory: True)] == []
    # The HTTP clients repeat refused requests, so equal sizes in succession count only once.
    assert [size for size, _ in itertools.groupby(sizes)] == [40, 20, 25, 12, 17, 11] and len(pauses) == 2


@pytest.mark.parametrize("code", ["SlowDown", "AccessDenied"])
def test_a_file_that_cannot_be_deleted_is_an_error(seen: tuple[Proxy, S3Store], pauses: list[float], code: str) -> None:
    proxy, store = seen
    entries = many(store, 3)
    requests: list[int] = []

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        keys = deleted_by(request)
        if not keys:
            return forward()
        requests.append(len(keys))
        return not_deleted(keys, code)

    proxy.rule = rule
    with pytest.raises(StoreError, match=rf"Cannot delete s3://.*/table/000 \({code}\)") as caught:
        store.remove(entries)
    assert caught.value.service_code == code
    assert len(requests) == (s3_store._DELETE_ATTEMPTS if code == "SlowDown" else 1) == len(pauses) + 1
    assert pauses == sorted(pauses) or max(pauses) <= s3_store._LONGEST_PAUSE_S


# --------------------------------------------------------------------------------------------- callers that stop


def test_no_request_follows_an_interrupt(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen[0], with_own_limit(seen[1])
    paths = [f"{n:03}" for n in range(200)]
    for path in paths:
        store.put(path, b"data")
    proxy.requests.clear()
    together, released = threading.Barrier(32), threading.Event()

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        if together.wait(30) == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        released.wait(30)
        return forward()

    proxy.rule = rule
    with pytest.raises(KeyboardInterrupt):
        store.get_many(paths)
    proxy.rule = pass_on
    released.set()
    assert store.get_many(paths[:3]) == [b"data"] * 3
    assert len(proxy.requests) == 32 + 3
    assert not store._client.limit._under_way


@pytest.mark.parametrize("end", ["close", "drop", "error"])
def test_no_request_follows_the_end_of_a_scan(seen: tuple[Proxy, S3Store], end: str) -> None:
    proxy, store = seen
    data = pa.table({"id": range(80), "k": range(80)})
    DeltaTable.create(store, data.schema, partition_by=["k"], data=data)
    snapshot = DeltaTable.open(store).snapshot()
    files = snapshot.files()["path"].to_pylist()
    if end == "error":
        store.delete(files[3])
    proxy.requests.clear()
    batches = snapshot.scan().batches()
    for _ in range(3):
        next(batches)
    if end == "close":
        batches.close()  # type: ignore[attr-defined]
    elif end == "error":
        with pytest.raises(InvalidDataFileError, match="is missing"):
            next(batches)
    del batches
    gc.collect()
    made = len(proxy.requests)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("deltalog-")]
    assert not store._client.limit._under_way and made < 80
    store.get(files[0])
    assert len(proxy.requests) == made + 1
