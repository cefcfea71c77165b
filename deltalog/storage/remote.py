"""Common parts of stores over a network: ranged reads, the meaning of responses, streams."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from deltalog.errors import StoreError
from deltalog.storage.base import LogStore, PutOutcome

TAIL_BYTES = 64 << 10
READ_AHEAD_BYTES = 256 << 10
PARALLEL_GETS = 32
# The names in one response to a listing, of S3 and of those like it.
LIST_PAGE = 1_000

# Responses after which the object may exist: a time-out, an unsettled conflict, throttling.
_OPEN_STATUSES = {408, 409, 425, 429}


def outcome_of_status(status: int) -> PutOutcome | None:
    """How a conditional PUT ended, from the HTTP status of its error response; None when it had no effect."""
    if status == 412:
        return PutOutcome.EXISTS
    refused = status == 501 or (300 <= status < 500 and status not in _OPEN_STATUSES)
    return None if refused else PutOutcome.UNKNOWN


def is_below_root(path: str) -> bool:
    """Whether a path has no segment that HTTP clients, proxies and file systems would resolve on the way."""
    return all(segment not in ("", ".", "..") for segment in path.split("/"))


def parallel_gets(store: LogStore) -> int:
    """How many requests of one operation may wait for ``store`` at once; 0 where a call is no request."""
    return PARALLEL_GETS if store.is_remote else 0


def get_together(get: Callable[[str, int | None], bytes], paths: Sequence[str], length: int | None) -> list[bytes]:
    """``get`` of every path, 32 at a time, in the order of ``paths``."""
    if len(paths) < 2:
        return [get(path, length) for path in paths]
    with ThreadPoolExecutor(min(PARALLEL_GETS, len(paths)), thread_name_prefix="deltalog-get") as pool:
        return list(pool.map(lambda path: get(path, length), paths))


@contextlib.contextmanager
def spooled(send: Callable[[str], None], discard: Callable[[], None]) -> Iterator[BinaryIO]:
    """A file on this machine's disk, whose path is passed to ``send`` when the block ends, but not if it raises.
    ``discard`` removes what a failed ``send`` may have left."""
    with tempfile.TemporaryDirectory(prefix="deltalog-") as directory:
        path = os.path.join(directory, "file")
        try:
            with open(path, "wb") as file:
                yield file
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(
                f"Cannot buffer {path} on this machine's disk before it is uploaded: {error}.", path=path
            ) from error
        try:
            send(path)
        except BaseException:
            with contextlib.suppress(StoreError):
                discard()
            raise


class RangeReader(io.RawIOBase):
    """An object as a seekable file. The tail and the last block that was read ahead are cached.

    ``tail`` are its last bytes, ``size`` is its length in bytes, and ``read(start, end)`` reads a range.
    """

    def __init__(self, where: str, tail: bytes, size: int, read: Callable[[int, int], bytes]) -> None:
        self._where = where
        self._tail = tail
        self._size = size
        self._read = read
        self._position = 0
        self._block, self._block_start = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._position = base + offset
        return self._position

    def size(self) -> int:
        return self._size

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._position + size, self._size)
        data = self._range(self._position, end) if self._position < end else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _range(self, start: int, end: int) -> bytes:
        tail_start = self._size - len(self._tail)
        if end > tail_start:
            before = self._range(start, tail_start) if start < tail_start else b""
            return before + self._tail[max(start - tail_start, 0) : end - tail_start]
        if not (self._block_start <= start and end <= self._block_start + len(self._block)):
            wanted = max(end, min(start + READ_AHEAD_BYTES, tail_start))
            data = self._read(start, wanted)
            if len(data) != wanted - start:
                raise StoreError(f"{self._where} ended at {start + len(data)}.", path=self._where)
            if wanted == end:
                return data
            self._block, self._block_start = data, start
        return self._block[start - self._block_start : end - self._block_start]
