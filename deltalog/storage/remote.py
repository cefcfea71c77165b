"""Code that the remote stores share: concurrent reads, interpretation of responses, buffered uploads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from deltalog.errors import StoreError
from deltalog.lazy_names import lazy_modules
from deltalog.storage.base import LogStore, PutOutcome

if TYPE_CHECKING:
    import concurrent.futures as futures
    import tempfile
else:
    lazy_modules(__name__, "tempfile", futures="concurrent.futures")

PARALLEL_GETS = 32
# The extra of deltalog that installs the fsspec file system of a scheme.
EXTRAS = {"gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure"}
# The number of names in one page of a listing, on S3 and compatible services.
LIST_PAGE = 1_000

# Client errors after which the object may exist nevertheless: a time-out, an unresolved conflict, throttling.
_OPEN_STATUSES = {408, 409, 425, 429}


def outcome_of_status(status: int) -> PutOutcome | None:
    """The outcome of a conditional PUT, from the HTTP status of its error response; None if the request was refused
    without effect."""
    if status == 412:
        return PutOutcome.EXISTS
    refused = status == 501 or (300 <= status < 500 and status not in _OPEN_STATUSES)
    return None if refused else PutOutcome.UNKNOWN


def is_below_root(path: str) -> bool:
    """Whether a path is free of segments (empty, ``.``, ``..``) that HTTP clients, proxies or file systems resolve."""
    return all(segment not in ("", ".", "..") for segment in path.split("/"))


def parallel_gets(store: LogStore) -> int:
    """The number of concurrent requests that one operation may send to ``store``; 0 for a local store."""
    return PARALLEL_GETS if store.is_remote else 0


def get_together(get: Callable[[str, int | None], bytes], paths: Sequence[str], length: int | None) -> list[bytes]:
    """``get`` of every path, 32 at a time, in the order of ``paths``."""
    if len(paths) < 2:
        return [get(path, length) for path in paths]
    with futures.ThreadPoolExecutor(min(PARALLEL_GETS, len(paths)), thread_name_prefix="deltalog-get") as pool:
        return list(pool.map(lambda path: get(path, length), paths))


@contextlib.contextmanager
def spooled(send: Callable[[str], None], discard: Callable[[], None]) -> Iterator[BinaryIO]:
    """Buffer the output of the ``with`` block in a local file. When the block ends without an error, ``send`` is called
    with the path of the file; if it fails, ``discard`` removes what it may have left behind."""
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
