"""Common parts of stores over a network: concurrent reads, the meaning of responses, streams."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

from deltalog.errors import StoreError
from deltalog.storage.base import LogStore, PutOutcome

PARALLEL_GETS = 32
# The extras that bring the file systems of fsspec for a scheme.
EXTRAS = {"gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure"}
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
