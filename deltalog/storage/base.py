"""LogStore: the one seam between deltalog and a disk or an object store.

Paths are relative to the table root, with ``/``, already decoded (``_delta_log/00000000000000000000.json``).

What every store guarantees:

- **Exclusive creation.** Of any number of ``put_if_absent`` calls for one path at most one takes effect.
- **Whole or nothing.** No reader ever sees a part of an object.
- **Durable before visible.** When a call has returned success, the object survives a crash of this machine
  (or is stored as the object store promises).
- **Fresh.** ``get``, ``head`` and ``list_from`` see every object whose creation had returned before they began.
- **Honest.** An exception from ``put_if_absent`` means that nothing was and nothing will be written. When that
  cannot be known the outcome is UNKNOWN; a store never guesses.

deltalog.testing.LogStoreTests holds these sentences as tests: subclass it for a new store.
"""

from __future__ import annotations

import enum
import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

from deltalog.errors import CallError, ObjectNotFoundError


class UnsafeStoreWarning(UserWarning):
    """A table is written on a store that cannot keep two writers apart, because the caller said that there is one."""


class PutOutcome(enum.Enum):
    """How a ``put_if_absent`` ended."""

    COMMITTED = "committed"  # this call created the object
    EXISTS = "exists"  # an object was there; after a transport retry it may be our own
    UNKNOWN = "unknown"  # the object may be there now, later, or never


@dataclass(frozen=True, slots=True)
class FileMeta:
    """A listed object. Size and time are None where the listing was asked to leave them out."""

    name: str
    size_bytes: int | None
    modification_time_ms: int | None


class LogStore(ABC):
    """See the module for what is guaranteed. All methods raise StoreError when the store fails."""

    url: str
    #: Whether each call is a request over a network, so that a call saved is time saved.
    is_remote: bool = False
    #: How another process gets the same store, with all that the caller gave to open it; None where none can.
    reopen: Callable[[], LogStore] | None = None
    #: The catalog that says which commits there are; None where the files themselves do.
    catalog: str | None = None
    #: Of what a transaction has done to the table and nobody else sees: the version that this is on top of.
    base_version: int | None = None
    #: The id of that transaction.
    branch: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled is how the store was opened, with its options and any secrets in them; connections are made anew."""
        if self.reopen is None:
            raise CallError(
                f"{self.url}: this store cannot be pickled, since it was not opened by a URL or a path. Open it where "
                "it is needed, as open_store(url, **options)."
            )
        return self.reopen, ()

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create ``path``. Cost: 1 PUT."""

    def put_stream_if_absent(self, path: str, write: Callable[[BinaryIO], object]) -> PutOutcome:
        """As ``put_if_absent`` of what ``write`` writes to the file that it is given; of nothing when it raises.

        It may be called again from the start. A store that can write to a hidden place overrides it: here the
        object is held in memory. Cost: 1 PUT.
        """
        buffer = io.BytesIO()
        write(buffer)
        return self.put_if_absent(path, buffer.getvalue())

    def link_if_absent(self, names: Sequence[tuple[str, str]]) -> int:
        """Give objects second names, (old, new), durably and in order, up to one that is not there, one whose new name
        is taken, and at most as far as the store has second names. How many got one. Cost: none, and 0, where it has
        none."""
        return 0

    @abstractmethod
    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace ``path``. ``durable=False`` is for hints that may be lost in a crash. Cost: 1 PUT."""

    @abstractmethod
    def get(self, path: str, length: int | None = None) -> bytes:
        """The object, or its first ``length`` bytes. Raises ObjectNotFoundError. Cost: 1 GET."""

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        """As ``get`` of several objects, in the order asked for; stores with latency override it with parallel
        requests."""
        return [self.get(path, length) for path in paths]

    @abstractmethod
    def list_from(self, directory: str, start: str = "", *, stat: bool = True) -> list[FileMeta]:
        """Objects directly in ``directory`` whose names are >= ``start``, sorted by name in code point order.

        ``stat=False`` lets a store leave out size and time where they cost extra. An absent directory is
        empty. Cost: 1 LIST for each 1,000 names.
        """

    def list_names(self, directory: str, start: str = "") -> list[str]:
        """The names that ``list_from`` gives, in any order.

        A store for which a name is cheaper than a FileMeta overrides it: a log of 100,000 commits has 200,000
        names. Cost: as ``list_from``.
        """
        return [meta.name for meta in self.list_from(directory, start, stat=False)]

    @abstractmethod
    def head(self, path: str) -> FileMeta | None:
        """Size and modification time, or None when absent. Cost: 1 HEAD."""

    def etag(self, path: str) -> str | None:
        """What the content of ``path`` is told by, in quotes, as S3 has it for an object of one part; None when absent.

        Cost: as ``get``; 1 HEAD where the store knows it.
        """
        try:
            return f'"{hashlib.md5(self.get(path), usedforsecurity=False).hexdigest()}"'
        except ObjectNotFoundError:
            return None

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove ``path``; absent is no error. Cost: 1 DELETE."""

    def remove_orphans(self, directory: str, before_ms: int) -> list[str]:
        """Remove what writers of this store that were killed before a time left half done in ``directory``, which no
        reader sees and nobody finishes; their names. Give them a day: a slow writer is not a dead one.

        Cost: none where kills leave nothing; else as ``list_from``, and 1 DELETE each.
        """
        return []

    @abstractmethod
    def open_input(self, path: str) -> Any:
        """A seekable binary file that pyarrow can read. Raises ObjectNotFoundError. Cost: 1 GET for each read."""

    @abstractmethod
    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Write a new data file as a stream; it is durable when the block ends, gone when it raises.

        The name must be one that nobody else uses, such as a random one: PathExistsError says otherwise where a store
        can tell, which local disk and memory can. Cost: 1 PUT, or 1 for each part.
        """

    @abstractmethod
    def sync(self, paths: list[str]) -> None:
        """Make data files that others wrote below the root durable. Cost: none on object stores."""

    def location(self, path: str) -> str:
        """The path or URL under which other tools find ``path``."""
        return f"{self.url}/{path}"

    def sibling(self, url: str) -> LogStore:
        """The store of another root on the same disk or service, with the same options.

        Raises CallError when ``url``, which is the caller's, is of another kind. Cost: none.
        """
        raise CallError(f"{url} cannot be reached from the store of {self.url}.")

    def link_target(self, path: str) -> str | None:
        """Where ``path`` leads when there are symbolic links on the way to it, else None. Cost: no request."""
        return None


def real_url(store: LogStore) -> str:
    """Where a table is, the same for each of the links by which it is opened. Cost: as ``link_target``."""
    return store.link_target("") or store.url
