"""LogStore: the interface between deltalog and a disk or an object store.

Paths are relative to the table root, with ``/``, already decoded (``_delta_log/00000000000000000000.json``).

Guarantees of every store:

- **Exclusive creation.** Of any number of ``put_if_absent`` calls for one path at most one takes effect.
- **Atomic objects.** No reader ever reads a part of an object.
- **Durable before visible.** When a call has returned success, the object survives a crash of this machine
  (or is stored as the object store promises).
- **Fresh reads.** ``get``, ``head`` and ``list_from`` return every object whose creation had returned before the call.
- **Definite errors.** An exception from ``put_if_absent`` means that nothing was and nothing will be written. If the
  store cannot rule a write out, the outcome is UNKNOWN.

deltalog.testing.LogStoreTests tests these guarantees: subclass it for a new store.
"""

from __future__ import annotations

import enum
import hashlib
import io
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import msgspec

from deltalog.errors import CallError, ObjectNotFoundError
from deltalog.parallel import mapped
from deltalog.protocol.paths import is_within

_PART_ENTRIES = 1_000


class PutOutcome(enum.Enum):
    """How a ``put_if_absent`` ended."""

    COMMITTED = "committed"  # this call created the object
    EXISTS = "exists"  # an object exists; after a transport retry it may be our own
    UNKNOWN = "unknown"  # the object may exist now, later, or never


class FileMeta(msgspec.Struct, frozen=True, gc=False):
    """A listed object. Size and time are None if the listing left them out (``stat=False``). ``etag``: a text that
    differs between objects that were created under one name, as far as the store has one; on S3 the ETag."""

    name: str
    size_bytes: int | None
    modification_time_ms: int | None
    etag: str | None = None

    def may_be(self, other: FileMeta) -> bool:
        """Whether nothing that is known of two objects of one name tells them apart. Times are compared in seconds: a
        listing may have them more exactly than a HEAD, or less."""
        if self.size_bytes != other.size_bytes:
            return False
        if self.etag and other.etag:
            return self.etag == other.etag
        times_ms = (self.modification_time_ms, other.modification_time_ms)
        return None in times_ms or times_ms[0] // 1000 == times_ms[1] // 1000  # type: ignore[operator]


class EntryKind(enum.Enum):
    """What an entry of ``LogStore.walk`` is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    OTHER = "mount point or special file"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Anything below a table's root, with its path below that, as the store has it. Size and time are of files and
    directories; None where a store has none."""

    path: str
    kind: EntryKind
    size_bytes: int | None
    modification_time_ms: int | None


class WalkPart(msgspec.Struct, frozen=True):
    """A part of what ``LogStore.walk`` returns. ``names``: of files in ``directory`` whose size and time were not read.
    ``entries``: all else, in whatever directory."""

    directory: str
    names: list[str]
    entries: list[Entry]

    def paths(self) -> list[str]:
        """Of the files in ``names``."""
        return [f"{self.directory}/{name}" for name in self.names] if self.directory else self.names


class LogStore(ABC):
    """See the module for the guarantees. All methods raise StoreError when the store fails.

    Members: one for each kind of request, and for each fact about a store that others decide by.
    """

    url: str
    #: Whether each call is a request over a network, so that fewer calls save time.
    is_remote: bool = False
    #: Whether a listing with ``start`` and ``limit`` costs only the names that it returns.
    lists_in_pages: bool = False
    #: How another process opens the same store, with all options of the caller; None if it cannot.
    reopen: Callable[[], LogStore] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """The pickle has the arguments that opened the store, with any secrets in them; connections are reopened."""
        if self.reopen is None:
            raise CallError(
                f"{self.url}: this store cannot be pickled, since it was not opened by a URL or a path. Open it where "
                "it is needed, as open_store(url, **options)."
            )
        return self.reopen, ()

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create ``path``. Cost: 1 PUT."""

    def prepare_commit(self, version: int) -> None:  # noqa: B027 - most stores check nothing
        """Begin what the first commit through this store checks, without waiting for it; the commit of ``version``, or
        of a later one, waits, and raises what it finds. Raises nothing. Cost: none that a commit would not have."""

    def put_stream_if_absent(self, path: str, write: Callable[[BinaryIO], object]) -> PutOutcome:
        """Like ``put_if_absent`` with the bytes that ``write`` writes to its argument; nothing is created if it raises.

        ``write`` may be called again from the start. A store that can write to a hidden file overrides this method:
        here the object is held in memory. Cost: 1 PUT.
        """
        buffer = io.BytesIO()
        write(buffer)
        return self.put_if_absent(path, buffer.getvalue())

    def link_if_absent(self, names: Sequence[tuple[str, str]]) -> int:
        """Give objects second names, (old, new), durably and in order, up to the first object that does not exist or
        whose new name exists. Returns how many got one. Stores without hard links return 0. Cost: none."""
        return 0

    @abstractmethod
    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace ``path``. ``durable=False`` is for hints that may be lost in a crash. Cost: 1 PUT."""

    @abstractmethod
    def get(self, path: str, length: int | None = None) -> bytes:
        """The object, or its first ``length`` bytes. Raises ObjectNotFoundError. Cost: 1 GET."""

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        """Like ``get``, for several objects, in the order of ``paths``; stores with latency override it with concurrent
        requests."""
        return [self.get(path, length) for path in paths]

    def get_many_with_meta(self, paths: Sequence[str], length: int | None = None) -> list[tuple[bytes, FileMeta]]:
        """Like ``get_many``, each with what ``head`` returns. Raises ObjectNotFoundError. Cost: 1 GET and 1 HEAD each;
        a store that opens files has both from one."""
        objects = self.get_many(paths, length)
        found = []
        for path, data in zip(paths, objects, strict=True):
            meta = self.head(path)
            if meta is None:
                raise ObjectNotFoundError(f"{self.url}: {path} was deleted while it was read.", path=path)
            found.append((data, meta))
        return found

    def head_many(self, paths: Sequence[str]) -> list[FileMeta | None]:
        """Like ``head``, for several objects, in the order of ``paths``. Cost: 1 HEAD each, one by one."""
        return [self.head(path) for path in paths]

    @abstractmethod
    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        """Objects directly in ``directory`` whose names are >= ``start``, sorted by name in code point order.

        With ``stat=False`` a store may leave out size and time where they cost extra. With ``limit``, only the first
        that many names. An absent directory is empty. Cost: 1 LIST for each 1,000 names.
        """

    def list_names(self, directory: str, start: str = "", *, limit: int | None = None) -> list[str]:
        """The names that ``list_from`` returns; in any order, unless there is a ``limit``.

        A store for which a name is cheaper than a FileMeta overrides it: a log of 100,000 commits has 200,000
        names. Cost: as ``list_from``.
        """
        return [meta.name for meta in self.list_from(directory, start, stat=False, limit=limit)]

    @abstractmethod
    def head(self, path: str) -> FileMeta | None:
        """Size and modification time, or None when absent. Cost: 1 HEAD."""

    def etag(self, path: str) -> str | None:
        """The content fingerprint (ETag) of ``path``, in quotes, as S3 computes it for an object of one part; None when
        absent.

        Cost: as ``get``; 1 HEAD where the store has it.
        """
        try:
            return etag_of(self.get(path))
        except ObjectNotFoundError:
            return None

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove ``path``; succeeds if it is absent. Cost: 1 DELETE."""

    def remove_orphans(self, directory: str, before_ms: int) -> list[str]:
        """Remove temporary files in ``directory`` that killed writers of this store left before a time; no reader reads
        them. Returns their names. Use a time at least a day ago: a slow writer may still use its file.

        Cost: none if killed writers leave no files; else as ``list_from``, and 1 DELETE each.
        """
        return []

    def find_names(self, start: str, containing: str, *, most: int) -> list[str]:
        """Paths at any depth that begin with ``start`` and contain a text, among the first ``most`` objects that begin
        so: for a clean-up, best effort. Stores that cannot list all depths together return none. Cost: 1 LIST for each
        1,000 objects."""
        return []

    def walk(self, enters: Callable[[str], bool]) -> Iterator[Entry]:
        """Everything at any depth, except what is in a directory ``_delta_log``. What other programs put there is
        included, whatever its name. Symbolic links are not followed, and other file systems not entered.

        ``enters``: whether the entries of a directory, given by its path, are wanted; object stores return them anyway.
        Raises CallError if the store cannot list all depths. Cost: 1 LIST for each 1,000 objects; on local disk 1 for
        each directory, and 1 HEAD for each entry.
        """
        raise CallError(f"{self.url}: this store cannot list files at all depths, so its tables cannot be vacuumed.")

    def walk_parts(self, enters: Callable[[str], bool], start: str = "", end: str | None = None) -> Iterator[WalkPart]:
        """Like ``walk``, without size and time of files where a listing lacks them; only of paths from ``start`` on and
        before ``end``, in code point order. Cost: as ``walk``, without these HEADs. Of a range: on S3 only that of its
        objects, on a local disk that of the directories with paths in it; elsewhere that of all."""
        yield from in_parts(entry for entry in self.walk(enters) if is_within(entry.path, start, end))

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        """What ``walk`` would return for these paths, in their order, without a listing. A path is left out where
        nothing is, and where a symbolic link or another file system is on the way.

        Raises CallError as ``walk``. Cost: 1 HEAD each; on a remote store several at a time.
        """
        raise CallError(f"{self.url}: this store cannot tell files from links, so its tables cannot be vacuumed.")

    def remove(self, entries: Sequence[Entry]) -> list[Entry]:
        """Remove files of ``walk``, and then directories, those that are empty, in the order given. Returns what was
        there and is gone now.

        A local disk keeps a file whose size or time has changed since, or that is now reached through a symbolic link.
        Cost: 1 DELETE for each file; none for directories of object stores, which do not exist.
        """
        files = [entry for entry in entries if entry.kind is EntryKind.FILE]
        for entry in files:
            self.delete(entry.path)
        return files

    @abstractmethod
    def open_input(self, path: str) -> Any:
        """A seekable binary file that pyarrow can read. Raises ObjectNotFoundError. Cost: 1 GET for each read."""

    @abstractmethod
    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Write a new data file as a stream; it is durable when the block ends, and removed if the block raises.

        The name must be unique, such as a random one. Stores that can detect an existing object (local disk, memory)
        raise PathExistsError. Cost: 1 PUT, or 1 for each part.
        """

    @abstractmethod
    def sync(self, paths: list[str]) -> None:
        """Make data files that other programs wrote below the root durable. Cost: none on object stores."""

    def location(self, path: str) -> str:
        """The path or URL of ``path`` for other tools."""
        return f"{self.url}/{path}"

    def sibling(self, url: str) -> LogStore:
        """The store of another root on the same disk or service, with the same options.

        Raises CallError when ``url``, an argument of the caller, is of another kind. Cost: none.
        """
        raise CallError(f"{url} cannot be reached from the store of {self.url}.")

    def link_target(self, path: str) -> str | None:
        """The resolved path if ``path`` contains symbolic links, else None. Cost: no request."""
        return None


def in_parts(entries: Iterator[Entry]) -> Iterator[WalkPart]:
    """The entries of a listing that reads sizes and times anyway."""
    while some := [*itertools.islice(entries, _PART_ENTRIES)]:
        yield WalkPart("", [], some)


def entries_by_head(store: LogStore, paths: Sequence[str], threads: int) -> list[Entry]:
    """``LogStore.entries`` of a store without directories and links. Cost: 1 HEAD each, ``threads`` at a time."""
    metas = mapped(paths, store.head, threads, 0)
    return [
        Entry(path, EntryKind.FILE, meta.size_bytes, meta.modification_time_ms)
        for path, meta in zip(paths, metas, strict=True)
        if meta is not None
    ]


def etag_of(data: bytes) -> str:
    """The ETag that S3 gives to an object of one part, in quotes; with some kinds of encryption it gives another."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def get_or_none(store: LogStore, path: str, length: int | None = None) -> bytes | None:
    """Like ``LogStore.get``; None where ``path`` is absent."""
    try:
        return store.get(path, length)
    except ObjectNotFoundError:
        return None


def real_url(store: LogStore) -> str:
    """The location of a table with symbolic links resolved. Cost: as ``link_target``."""
    return store.link_target("") or store.url


def keep_cleanup_errors(error: BaseException, failures: Sequence[Exception]) -> None:
    """Attach errors of the clean-up to ``error``, so that neither hides the other: in its attribute ``cleanup_errors``,
    and as notes where Python has those."""
    if not failures:
        return
    error.cleanup_errors = (*getattr(error, "cleanup_errors", ()), *failures)  # type: ignore[attr-defined]
    if hasattr(error, "add_note"):
        for failure in failures:
            error.add_note(f"Clean-up failed too: {failure}")
