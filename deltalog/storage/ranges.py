"""A seekable file over a remote object, which prefetches announced byte ranges concurrently."""

from __future__ import annotations

import bisect
import io
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from deltalog.errors import StoreError
from deltalog.lazy_names import lazy_modules

if TYPE_CHECKING:
    import concurrent.futures as futures
else:
    lazy_modules(__name__, futures="concurrent.futures")

TAIL_BYTES = 64 << 10
READ_AHEAD_BYTES = 256 << 10
# Announced ranges are requested in pieces of this size; at most PARALLEL_PIECES of them are in flight or in memory.
PIECE_BYTES = 8 << 20
PARALLEL_PIECES = 8

Range = tuple[int, int]


def pieces_of(ranges: Iterable[Range], most: int) -> list[list[int]]:
    """Combine byte ranges (start, end) into pieces [start, end, count], where count is the number of bytes of the piece
    that will be read.

    Ranges less than READ_AHEAD_BYTES apart are merged, and pieces longer than PIECE_BYTES are split. Bytes from
    position ``most`` on are ignored. Pure.
    """
    merged: list[list[int]] = []
    for start, end in sorted((max(start, 0), min(end, most)) for start, end in ranges):
        if start >= end:
            continue
        if merged and start <= merged[-1][1] + READ_AHEAD_BYTES and end - merged[-1][0] <= PIECE_BYTES:
            last = merged[-1]
            last[2] += end - start
            last[1] = max(last[1], end)
            continue
        start = max(start, merged[-1][1]) if merged else start
        merged.extend(
            [at, min(at + PIECE_BYTES, end), min(PIECE_BYTES, end - at)] for at in range(start, end, PIECE_BYTES)
        )
    return merged


class _Object:
    """The cached bytes of an object, shared by any number of readers and threads.

    The cache contains the tail, the last read-ahead block, and fetched pieces that have not been completely read yet.
    """

    def __init__(self, where: str, tail: bytes, size: int, read: Callable[[int, int], bytes]) -> None:
        self.where = where
        self.size = size
        self.tail_start = size - len(tail)
        self._tail = tail
        self._read = read
        self._block, self._block_start = b"", 0
        self._pieces: list[list[int]] = []
        self._starts: list[int] = []
        self._held: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        self._held.clear()

    def expect(self, ranges: Iterable[Range]) -> int:
        pieces = pieces_of(ranges, self.tail_start)
        with self._lock:
            self._pieces, self._starts = pieces, [piece[0] for piece in pieces]
            self._held.clear()
        return sum(piece[1] - piece[0] for piece in pieces)

    def fetch(self) -> None:
        with self._lock:
            if self._pieces:
                self._fetch_from(0)

    def read(self, start: int, end: int) -> bytes:
        with self._lock:
            parts = list(self._parts(start, end))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _parts(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            if start >= self.tail_start:
                yield self._tail[start - self.tail_start : end - self.tail_start]
                return
            after = bisect.bisect_right(self._starts, start)
            number = after - 1
            if number >= 0 and start < self._pieces[number][1]:
                stop = min(end, self._pieces[number][1])
                yield self._read_piece(number, start, stop)
            else:
                limit = self._starts[after] if after < len(self._starts) else self.tail_start
                stop = min(end, limit)
                yield self._read_block(start, stop, limit)
            start = stop

    def _read_piece(self, number: int, start: int, stop: int) -> bytes:
        """Read from a piece, which is dropped once all of its announced bytes have been read."""
        piece = self._pieces[number]
        if number not in self._held:
            if piece[2] <= 0:  # already dropped
                return self._read_exactly(start, stop)
            self._fetch_from(number)
        data = self._held[number]
        piece[2] -= stop - start
        if piece[2] <= 0:
            del self._held[number]
        return data if stop - start == len(data) else data[start - piece[0] : stop - piece[0]]

    def _read_block(self, start: int, stop: int, limit: int) -> bytes:
        if not (self._block_start <= start and stop <= self._block_start + len(self._block)):
            wanted = max(stop, min(start + READ_AHEAD_BYTES, limit))
            data = self._read_exactly(start, wanted)
            if wanted == stop:
                return data
            self._block, self._block_start = data, start
        return self._block[start - self._block_start : stop - self._block_start]

    def _fetch_from(self, number: int) -> None:
        """Request a piece and as many of the following pieces as fit into the cache. If the cache is full, its last
        piece is evicted and requested again when it is read."""
        if len(self._held) >= PARALLEL_PIECES:
            del self._held[max(self._held)]
        free = PARALLEL_PIECES - len(self._held)
        others = (k for k in range(number, len(self._pieces)) if k not in self._held and self._pieces[k][2] > 0)
        wanted = list(itertools.islice(others, free))
        together(lambda k: self._held.__setitem__(k, self._read_exactly(*self._pieces[k][:2])), wanted)

    def _read_exactly(self, start: int, end: int) -> bytes:
        if self.is_closed:
            raise ValueError(f"{self.where} was closed.")
        data = self._read(start, end)
        if len(data) != end - start:
            raise StoreError(f"{self.where} ended at {start + len(data)}.", path=self.where)
        return data


def together(function: Callable[[int], None], numbers: Sequence[int]) -> None:
    """Call ``function`` with each number concurrently. All calls have ended when this function returns or raises."""
    if len(numbers) < 2:
        for number in numbers:
            function(number)
        return
    with futures.ThreadPoolExecutor(len(numbers), thread_name_prefix="deltalog-range") as pool:
        list(pool.map(function, numbers))


class RangeReader(io.RawIOBase):
    """An object as a seekable file. The tail and the last read-ahead block are cached.

    ``tail``: the last bytes of the object. ``size``: the length of the object in bytes. ``read(start, end)`` reads a
    range and may be called from several threads. A reader must not be used by several threads at the same time;
    ``view`` returns a reader for another thread.
    """

    def __init__(self, where: str, tail: bytes, size: int, read: Callable[[int, int], bytes]) -> None:
        self._object = _Object(where, tail, size, read)
        self._is_view = False
        self._position = 0

    def view(self) -> RangeReader:
        """Another reader of the same object, with a position of its own. The view shares the cache and the announced
        ranges with this reader, and cannot be used once this reader is closed."""
        view = RangeReader.__new__(RangeReader)
        view._object, view._is_view, view._position = self._object, True, 0
        return view

    @property
    def is_complete(self) -> bool:
        """Whether the tail contains the whole object."""
        return self._object.tail_start <= 0

    def expect(self, ranges: Iterable[Range]) -> int:
        """Announce the ranges (start, end) that will be read; this replaces earlier announcements. If a range will be
        read twice, include it twice. Returns the number of bytes that will be requested.

        Nothing is requested here. The first read of a range requests that range and the following ranges concurrently,
        up to 64 MiB in memory.
        """
        return self._object.expect(ranges)

    def fetch(self) -> None:
        """Request the first 64 MiB of the announced ranges now. Raises StoreError."""
        self._object.fetch()

    def close(self) -> None:
        if not self._is_view and not self.closed:
            self._object.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._object.size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def size(self) -> int:
        return self._object.size

    def read(self, size: int | None = -1) -> bytes:
        start, most = self._position, self._object.size
        end = most if size is None or size < 0 else min(start + size, most)
        data = self._object.read(start, end) if start < end else b""
        self._position = start + len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
