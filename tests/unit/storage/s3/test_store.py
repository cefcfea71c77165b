"""S3Store keeps the guarantees of a LogStore on two servers, and sends no unnecessary requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable, StoreError
from deltalog.errors import ObjectNotFoundError
from deltalog.storage import ranges
from deltalog.storage.s3 import store as s3_store
from deltalog.storage.s3 import transport
from deltalog.storage.s3.store import S3Store
from deltalog.testing.store_contract import LogStoreTests
from tests.support.core import ids, rows
from tests.support.s3 import Answer, Proxy, Request, Server, proxied
from tests.support.s3.clients import through_botocore
from tests.support.s3.rules import carried_out_but_answered, refused, reset_before

COMMIT = "_delta_log/00000000000000000000.json"


class TestOnMinistack(LogStoreTests):
    rounds = 8

    @pytest.fixture
    def store(self, ministack: Server) -> S3Store:
        return ministack.store()

    @pytest.fixture
    def another(self, store: S3Store, ministack: Server) -> S3Store:
        return S3Store(store.url, **ministack.options())


class TestOnMoto(TestOnMinistack):
    """A second S3 server, which rejects requests with different errors, and a table whose prefix looks
    percent-encoded."""

    @pytest.fixture
    def store(self, one_at_a_time: Server) -> S3Store:
        return one_at_a_time.store("deep/prefix/%41 table")

    @pytest.fixture
    def another(self, store: S3Store, one_at_a_time: Server) -> S3Store:
        return S3Store(store.url.replace("s3://", "s3a://"), **one_at_a_time.options())


class TestAtTheRootOfABucket(LogStoreTests):
    rounds = 2

    @pytest.fixture
    def store(self, ministack: Server) -> S3Store:
        return ministack.store("")


# ---------------------------------------------------------------------------------------------------- requests


def test_a_body_is_sent_at_once_without_waiting_for_consent(
    seen: tuple[Proxy, S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    store.put_if_absent(COMMIT, b"a commit")
    store.put("hint", b"a hint")
    with store.open_output("small") as file:
        file.write(b"1" * 1000)
    with store.open_output("parts") as file:
        file.write(b"2" * (s3_store.PART_BYTES + 1000))
    sent = {request.target: len(request.body) for request in proxy.requests if request.method == "PUT"}
    assert sorted(sent.values()) == [6, 8, 1000, 1000, s3_store.PART_BYTES]
    assert not [request for request in proxy.requests if "Expect" in request.headers]
    proxy.requests.clear()
    monkeypatch.setattr(transport, "AT_ONCE_BYTES", 999)
    store.put("larger", b"3" * 1000)  # the cost of a refusal
    assert [request.headers.get("Expect") for request in proxy.requests] == ["100-continue"]


def test_a_listing_begins_at_its_start_and_goes_through_all_pages(ministack: Server) -> None:
    with proxied(ministack) as (proxy, server):
        store = S3Store(f"s3://{server.bucket()}/t", **server.options(s3_additional_kwargs={"MaxKeys": 7}))
        for number in range(30):
            store.put(f"_delta_log/{number:020d}.json", b"")
        store.put("_delta_log/_sidecars/a", b"")
        proxy.requests.clear()
        assert len(store.list_from("_delta_log")) == 30
        assert len(proxy.requests) == 5
        proxy.requests.clear()
        found = store.list_from("_delta_log", f"{20:020d}.")
        assert [int(meta.name[:20]) for meta in found] == list(range(20, 30))
        assert len(proxy.requests) == 2
        assert "start-after=t%2F_delta_log%2F00000000000000000020&" in proxy.requests[0].target + "&"


def test_a_listing_never_comes_from_a_cache(ministack: Server) -> None:
    store = ministack.store()
    other = S3Store(store.url, **ministack.options())
    assert store.list_from("") == []
    other.put("a", b"")
    assert [meta.name for meta in store.list_from("")] == ["a"]
    other.delete("a")
    assert store.list_from("") == []


def test_many_objects_are_read_at_the_same_time(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    paths = [f"{n}" for n in range(96)]
    for path in paths:
        store.put(path, path.encode())
    together = threading.Barrier(32)  # waits until 32 requests are in flight at the same time

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        together.wait(30)
        return forward()

    proxy.rule = rule
    assert store.get_many(paths) == [path.encode() for path in paths]


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 3_000_000])
def test_a_file_is_read_as_it_is_wherever_one_looks(seen: tuple[Proxy, S3Store], size: int) -> None:
    proxy, store = seen
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    store.put("f", data)
    proxy.requests.clear()
    file = store.open_input("f")
    assert (file.size(), file.read(), file.read(1), file.tell()) == (size, data, b"", size)
    assert len(proxy.requests) == (1 if size <= ranges.TAIL_BYTES else 2)
    for start in (0, size // 2, max(size - 70_000, 0), max(size - 5, 0), size, size + 9):
        for length in (0, 1, 5, 100_000, 500_000, size):
            assert file.seek(start) == start
            assert file.read(length) == data[start : start + length], (start, length)
    buffer = bytearray(7)
    file.seek(0)
    assert bytes(buffer[: file.readinto(buffer)]) == data[:7]


def test_a_small_parquet_file_is_one_request_and_a_column_of_a_large_one_is_two(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    for name, count in [("small", 1_000), ("large", 400_000)]:
        with store.open_output(name) as file:
            pq.write_table(pa.table({c: [i * 7919 % 1_000_003 for i in range(count)] for c in "abc"}), file)
    sizes = {meta.name: meta.size_bytes or 0 for meta in store.list_from("")}
    assert sizes["small"] < ranges.TAIL_BYTES and sizes["large"] > 20 * ranges.TAIL_BYTES
    for name, requests in [("small", 1), ("large", 2)]:
        with proxy.counted() as made, pq.ParquetFile(store.open_input(name)) as parquet:
            parquet.read(columns=["b"])
        assert len(made) == requests
        assert all(request.headers["Range"].startswith("bytes=") for request in made)


def test_a_file_that_is_replaced_while_it_is_read_is_noticed(ministack: Server) -> None:
    store = ministack.store()
    store.put("f", b"1" * 500_000)
    file = store.open_input("f")
    store.put("f", b"2" * 500_000)
    with pytest.raises(StoreError, match="replaced while it was read"):
        file.read(100)


def test_opening_a_table_costs_what_the_page_says(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    table = DeltaTable.create(store, rows(1).schema, data=rows(1))
    for number in range(2, 5):
        table.append(rows(number))
    table.flush()
    with proxy.counted() as made:
        opened = DeltaTable.open(store)
    assert [r.method for r in made] == ["GET"] * 4
    # The requests are the GETs of the hint, of the listing, and of the latest version's .crc and commit.
    assert sum("list-type=2" in r.target for r in made) == 1
    with proxy.counted() as made:
        opened.snapshot()
    assert [r.method for r in made] == ["HEAD", "HEAD"]
    with proxy.counted() as made:
        assert ids(DeltaTable.open(store)) == [1, 2, 3, 4]
    assert all(r.key.startswith(store.url.removeprefix("s3://")) for r in made)


# ------------------------------------------------------------------------------------------- interrupted reads


def test_reads_are_repeated_until_they_are_whole(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    store.put("a", b"0123456789" * 1000)
    faults: list[Callable[..., Answer]] = [
        refused(503, "SlowDown"),
        reset_before,
        _cut_short,
        refused(500, "InternalError"),
    ]

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        return faults.pop()(request, forward) if faults else forward()

    proxy.rule = rule
    assert store.get("a") == b"0123456789" * 1000
    assert not faults


def _cut_short(request: Request, forward: Callable[[], Answer]) -> Answer:
    """Return half of the body as if it were complete, although the checksum and the server's Content-Length do not
    match it."""
    status, headers, body = forward()
    return status, headers, body[: len(body) // 2]


@pytest.mark.parametrize("way", [lambda store: store, through_botocore], ids=["direct", "botocore"])
@pytest.mark.parametrize("call", ["get", "head", "open_input", "list_from", "get_many", "put", "delete"])
def test_a_refusal_is_an_error_of_the_store_and_not_an_absence(
    seen: tuple[Proxy, S3Store], call: str, way: Callable[[S3Store], S3Store]
) -> None:
    proxy, store = seen[0], way(seen[1])
    proxy.rule = refused(403, "AccessDenied")
    arguments: dict[str, tuple[Any, ...]] = {"get_many": (["a", "b"],), "put": ("a", b"")}
    with pytest.raises(StoreError, match=r"HTTP 403.*Check the bucket, the credentials") as caught:
        getattr(store, call)(*arguments.get(call, ("a",)))
    assert not isinstance(caught.value, ObjectNotFoundError)


def test_a_bucket_that_is_not_there_is_an_error_and_no_empty_table(ministack: Server) -> None:
    with pytest.raises(StoreError, match="NoSuchBucket"):
        DeltaTable.open("s3://no-such-bucket-here/table", **ministack.options())


# ------------------------------------------------------------------------------------------------------ streams


@pytest.mark.parametrize("size", [5 * 2**20 - 1, 5 * 2**20, 5 * 2**20 + 1, 21 * 2**20 + 5])
def test_a_stream_in_parts_is_the_object_and_is_seen_at_its_end(
    ministack: Server, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(s3_store, "PART_BYTES", 5 * 2**20)  # the smallest that S3 allows
    store, data = ministack.store(), b"".join(n.to_bytes(4, "big") for n in range(size // 4 + 1))[:size]
    with store.open_output("f") as file:
        for start in range(0, size, 700_001):
            file.write(data[start : start + 700_001])
        assert file.tell() == size and store.head("f") is None
    assert store.get("f") == data


def test_a_stream_in_parts_that_fails_leaves_no_object_and_no_parts(
    ministack: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_store, "PART_BYTES", 5 * 2**20)
    store = ministack.store()
    with pytest.raises(ZeroDivisionError), store.open_output("f") as file:
        file.write(bytes(21 * 2**20))
        _ = 1 / 0
    assert store.head("f") is None
    uploads = store._client.call(store.bucket, "list_multipart_uploads")
    assert not uploads.get("Uploads")


@pytest.mark.parametrize("size", [10, 11 * 2**20])
def test_a_stream_whose_end_is_refused_leaves_nothing(
    seen: tuple[Proxy, S3Store], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """No object remains even if the server created it and then responded with an error."""
    monkeypatch.setattr(s3_store, "PART_BYTES", 5 * 2**20)
    proxy, store = seen

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        last = request.method == ("PUT" if size == 10 else "POST") and "uploads" not in request.target
        return carried_out_but_answered(403, "AccessDenied")(request, forward) if last else forward()

    proxy.rule = rule
    with pytest.raises(StoreError, match="HTTP 403"), store.open_output("f") as file:
        file.write(bytes(size))
    assert store.head("f") is None
