"""Objects whose ranges are requested concurrently: the bytes are right, there are few requests, and memory is
bounded."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from deltalog.errors import StoreError
from deltalog.storage import ranges
from deltalog.storage.ranges import PARALLEL_PIECES, RangeReader, pieces_of

KIB = 1 << 10
SIZE = 4 << 20
TAIL = 64 * KIB
DATA = random.Random(7).randbytes(SIZE)


class Requests:
    """Records the requested ranges of DATA, and the maximum number of bytes in flight."""

    def __init__(self, reader_bytes: bytes = DATA) -> None:
        self.made: list[tuple[int, int]] = []
        self.under_way = self.most_under_way = 0
        self._data = reader_bytes
        self._lock = threading.Lock()

    def __call__(self, start: int, end: int) -> bytes:
        with self._lock:
            self.made.append((start, end))
            self.under_way += end - start
            self.most_under_way = max(self.most_under_way, self.under_way)
        data = self._data[start:end]
        with self._lock:
            self.under_way -= end - start
        return data


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PIECE_BYTES", 64 * KIB)
    monkeypatch.setattr(ranges, "READ_AHEAD_BYTES", 16 * KIB)


def opened(requests: Requests) -> RangeReader:
    return RangeReader("s3://bucket/object", DATA[-TAIL:], SIZE, requests)


def read(reader: RangeReader, start: int, end: int) -> bytes:
    reader.seek(start)
    return reader.read(end - start)


@pytest.mark.parametrize(
    "announced, most, expected",
    [
        ([], 100, []),
        ([(5, 5), (9, 3)], 100, []),
        ([(0, 10), (20, 30)], 100, [[0, 30, 20]]),
        ([(20, 30), (0, 10)], 25, [[0, 25, 15]]),
        ([(-5, 10)], 100, [[0, 10, 10]]),
        ([(0, 10), (0, 10)], 100, [[0, 10, 20]]),
        ([(0, 10), (10 + 17 * KIB, 20 + 17 * KIB)], 1 << 30, [[0, 10, 10], [10 + 17 * KIB, 20 + 17 * KIB, 10]]),
        ([(0, 130 * KIB)], 1 << 30, [[0, 65536, 65536], [65536, 131072, 65536], [131072, 133120, 2048]]),
    ],
)
def test_ranges_become_pieces(announced: Any, most: int, expected: Any) -> None:
    assert pieces_of(announced, most) == expected


@pytest.mark.parametrize("seed", range(20))
def test_every_read_has_the_bytes_of_the_object_in_bounded_memory(seed: int) -> None:
    chance = random.Random(seed)
    requests = Requests()
    reader = opened(requests)
    announced = []
    for _ in range(chance.randrange(40)):
        start = chance.randrange(SIZE)
        announced.append((start, start + chance.choice([10, 5 * KIB, 200 * KIB, 2 << 20])))
    reader.expect(announced)
    wanted = [(start, min(end, SIZE)) for start, end in announced]
    wanted += [(s := chance.randrange(SIZE), min(s + chance.randrange(300 * KIB), SIZE)) for _ in range(20)]
    chance.shuffle(wanted)
    for start, end in wanted:
        assert read(reader, start, end) == DATA[start:end]
        assert len(reader._object._held) <= PARALLEL_PIECES
    assert requests.most_under_way <= max(PARALLEL_PIECES * 64 * KIB, 2 << 20)


def test_what_is_announced_is_requested_once_side_by_side() -> None:
    requests = Requests()
    reader = opened(requests)
    columns = [(number * 100 * KIB, number * 100 * KIB + 30 * KIB) for number in range(16)]
    assert reader.expect(columns) == 16 * 30 * KIB and requests.made == []
    read(reader, *columns[0])
    assert sorted(requests.made) == columns[:PARALLEL_PIECES]
    for start, end in columns[1:]:
        assert read(reader, start, end) == DATA[start:end]
    assert sorted(requests.made) == columns
    assert not reader._object._held


def test_views_in_threads_read_the_same_object_at_their_own_positions() -> None:
    reader = opened(Requests())
    reader.expect([(0, SIZE)])

    def check(seed: int) -> None:
        view = reader.view()
        chance = random.Random(seed)
        for _ in range(100):
            start = chance.randrange(SIZE)
            assert read(view, start, min(start + 10 * KIB, SIZE)) == DATA[start : start + 10 * KIB]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(check, range(8)))


def test_nothing_is_requested_after_close() -> None:
    requests = Requests()
    reader = opened(requests)
    view = reader.view()
    reader.expect([(0, 500 * KIB)])
    read(reader, 0, 10)
    made = len(requests.made)
    view.close()
    assert read(reader, 10, 20) == DATA[10:20]
    other = reader.view()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        read(other, 300 * KIB, 400 * KIB)
    assert len(requests.made) == made


def test_an_object_that_is_shorter_than_it_said_is_an_error() -> None:
    reader = opened(Requests(DATA[: 100 * KIB]))
    reader.expect([(0, 300 * KIB)])
    with pytest.raises(StoreError, match="ended at"):
        read(reader, 90 * KIB, 110 * KIB)


def test_an_error_of_one_request_leaves_no_thread() -> None:
    def fail(start: int, end: int) -> bytes:
        if start:
            raise StoreError("no answer", path="object")
        return DATA[start:end]

    reader = RangeReader("object", DATA[-TAIL:], SIZE, fail)
    reader.expect([(0, 500 * KIB)])
    with pytest.raises(StoreError, match="no answer"):
        reader.fetch()
    assert not any(thread.name.startswith("deltalog-") for thread in threading.enumerate())
