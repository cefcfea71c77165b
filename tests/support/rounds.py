"""Counts rounds: the length of an operation's longest chain of dependent requests.

On an object store, the length of an operation's longest chain of dependent requests determines how long the operation
takes. ``RoundStore`` delays every request until the end of its round. A round ends when no thread of the
process can continue; all requests made before then are concurrent. A round is one unit of virtual time.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from msgspec import structs

from deltalog.storage.base import FileMeta, LogStore, PutOutcome, etag_of
from deltalog.storage.ranges import TAIL_BYTES, RangeReader
from deltalog.storage.remote import LIST_PAGE, get_together
from deltalog.storage.wrapped import WrappedStore

# The process counts as waiting if, between two samples, its other threads use less processor time than this.
_IDLE_NS = 30_000
_LOOK_S = 0.001
_LOOKS = 3


class RoundStore(WrappedStore[LogStore]):
    """A store that simulates the latency of an object store: each request takes one round.

    A listing takes one request per page of 1,000 names. Opening a data file takes one request for the last 64 KiB of
    the file; each read outside these bytes takes one more request. ``get_many`` sends 32 requests at a time, like the
    S3 store.
    """

    def __init__(self, inner: LogStore, beside: RoundStore | None = None) -> None:
        """``beside``: a second store that counts this store's requests too."""
        super().__init__(inner)
        self._beside = beside
        self.is_remote = self.lists_in_pages = True
        self.requests = self.rounds = 0
        self._changed = threading.Condition()
        self._waiting = 0
        self._is_counting = False

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count the requests and rounds in the block, starting from 0. Requests outside a ``with counted()`` block are
        not delayed."""
        self.requests = self.rounds = 0
        self._is_counting = True
        clock = threading.Thread(target=self._end_rounds, name="rounds", daemon=True)
        clock.start()
        try:
            yield
        finally:
            self._is_counting = False
            clock.join()

    def request(self) -> None:
        if self._beside is not None:
            self._beside.request()
            return
        with self._changed:
            if not self._is_counting:
                return
            self.requests += 1
            self._waiting += 1
            mine = self.rounds
            self._changed.wait_for(lambda: self.rounds > mine or not self._is_counting)

    def _end_rounds(self) -> None:
        while self._is_counting:
            time.sleep(_LOOK_S)
            # background work may still be waiting when the block ends
            if self._is_stuck() and self._is_counting:
                with self._changed:
                    self.rounds += 1
                    self._waiting = 0
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _is_stuck(self) -> bool:
        """Whether requests are waiting, and for a moment no other thread of this process has run or been ready to
        run."""
        waiting = self._waiting
        return waiting > 0 and all(_is_idle() for _ in range(_LOOKS)) and waiting == self._waiting

    # ------------------------------------------------------------------------------------------- requests

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        self.request()
        return super().put_if_absent(path, data)

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.request()
        super().put(path, data, durable=durable)

    def get(self, path: str, length: int | None = None) -> bytes:
        self.request()
        return super().get(path, length)

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        return get_together(self.get, paths, length)

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        found = super().list_from(directory, start, stat=stat, limit=limit)
        for _ in range(0, max(len(found), 1), LIST_PAGE):
            self.request()
        return [self._as_on_s3(f"{directory}/{meta.name}", meta) for meta in found]

    def _as_on_s3(self, path: str, meta: FileMeta) -> FileMeta:
        """Add the ETag of the bytes."""
        if meta.etag is None or not path.endswith(".json"):
            return meta
        return structs.replace(meta, etag=etag_of(self.inner.get(path)))

    def list_names(self, directory: str, start: str = "", *, limit: int | None = None) -> list[str]:
        return [meta.name for meta in self.list_from(directory, start, stat=False, limit=limit)]

    def head(self, path: str) -> FileMeta | None:
        self.request()
        found = super().head(path)
        return None if found is None else self._as_on_s3(path, found)

    def delete(self, path: str) -> None:
        self.request()
        super().delete(path)

    def open_input(self, path: str) -> Any:
        self.request()
        with super().open_input(path) as file:
            data = file.read()

        def read(start: int, end: int) -> bytes:
            self.request()
            return bytes(data[start:end])

        return RangeReader(path, bytes(data[-TAIL_BYTES:]), len(data), read)

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        with super().open_output(path) as file:
            yield file
            self.request()

    def link_target(self, path: str) -> str | None:
        return None

    def sibling(self, url: str) -> LogStore:
        return self.inner.sibling(url)


def _is_idle() -> bool:
    """Whether all other threads are idle: none has run for a moment, and none is ready to run. One sample is not
    enough: a thread that waits for the interpreter lock, which the caller holds, looks idle."""
    used_ns = time.process_time_ns() - time.thread_time_ns()
    time.sleep(_LOOK_S)
    return time.process_time_ns() - time.thread_time_ns() - used_ns < _IDLE_NS and not _can_run()


def _can_run() -> bool:
    """Whether any thread of this process other than the calling thread is running, runnable or blocked in a system
    call."""
    own = threading.get_native_id()
    for thread in os.listdir("/proc/self/task"):
        if int(thread) == own:
            continue
        try:
            with open(f"/proc/self/task/{thread}/stat") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
        if state != "S":
            return True
    return False
