"""LogStore: the interface between deltalog and a disk or an object store.

Paths are relative to the table root, use ``/``, and are already percent-decoded
(``_delta_log/00000000000000000000.json``).

Guarantees of every store:

- **Exclusive creation.** Of any number of ``put_if_absent`` calls for one path at most one takes effect.
- **Atomic objects.** A reader never sees a partial object.
- **Durable before visible.** After a call has returned success, the object survives a crash of this machine
  (or has the durability that the object store promises).
- **Fresh reads.** ``get``, ``head`` and ``list_from`` see every object whose creation returned before the call.
- **Definite errors.** An exception from ``put_if_absent`` means that nothing was written and nothing will be. If a
write may have taken effect, the outcome is UNKNOWN.

deltalog.testing.LogStoreTests tests these guarantees; subclass it for a new store.
"""

from __future__ import annotations

import enum
import io
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from deltalog import metrics
from deltalog.errors import CallError, ObjectNotFoundError
from deltalog.lazy_names import lazy_modules
from deltalog.parallel import mapped
from deltalog.protocol.paths import LOG_DIRECTORY, SIDECARS_DIRECTORY, STAGED_COMMITS_DIRECTORY, is_within

if TYPE_CHECKING:
    import hashlib
else:
    lazy_modules(__name__, "hashlib")

_PART_ENTRIES = 1_000
_LOG_DIRECTORIES = (LOG_DIRECTORY, STAGED_COMMITS_DIRECTORY, SIDECARS_DIRECTORY)


class PutOutcome(enum.Enum):
    """How a ``put_if_absent`` ended."""

    COMMITTED = "committed"  # this call created the object
    EXISTS = "exists"  # an object exists; after a retry, it may have been created by this call
    UNKNOWN = "unknown"  # the object may exist now, later, or never


class FileMeta(msgspec.Struct, frozen=True, gc=False):
    """A listed object. The size and the time are None if the listing omits them (``stat=False``). ``etag``: a value
    that distinguishes successive objects of the same name (on S3 the ETag); None if the store provides no such
    value."""

    name: str
    size_bytes: int | None
    modification_time_ms: int | None
    etag: str | None = None

    def may_be(self, other: FileMeta) -> bool:
        """Whether this metadata and ``other`` may describe the same object: False if a property that both contain
        differs. Times are compared in whole seconds, because a listing and a HEAD may report times with different
        precision."""
        if self.size_bytes != other.size_bytes:
            return False
        if self.etag and other.etag:
            return self.etag == other.etag
        times_ms = (self.modification_time_ms, other.modification_time_ms)
        return None in times_ms or times_ms[0] // 1000 == times_ms[1] // 1000  # type: ignore[operator]


class EntryKind(enum.Enum):
    """The kind of an entry that ``LogStore.walk`` returns."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "symbolic link"
    OTHER = "mount point or special file"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A file, directory, link or special file below a table's root. ``path`` is relative to the root and spelled as in
    the store. Size and time are None if the store does not report them."""

    path: str
    kind: EntryKind
    size_bytes: int | None
    modification_time_ms: int | None


class WalkPart(msgspec.Struct, frozen=True):
    """A batch of ``LogStore.walk_parts``. ``names``: the names of files in ``directory`` whose size and time were not
    read. ``entries``: all entries that are not in ``names``, from any directory."""

    directory: str
    names: list[str]
    entries: list[Entry]

    def paths(self) -> list[str]:
        """The paths of the files in ``names``."""
        return [f"{self.directory}/{name}" for name in self.names] if self.directory else self.names


class LogStore(ABC):
    """See the docstring of the module for the guarantees. All methods raise StoreError if the store fails.

    There is one method per kind of request, and one attribute for each property of a store on which callers depend.
    """

    url: str
    #: Whether each call is a request over a network, so that fewer calls save time.
    is_remote: bool = False
    #: Whether the cost of a listing with ``start`` and ``limit`` is proportional to the names that it returns.
    lists_in_pages: bool = False
    #: Opens the same store in another process, with all options of the caller; None if that is impossible.
    reopen: Callable[[], LogStore] | None = None
    #: Whether ``deltalog.metrics`` reports the calls of this store. False for stores that only call other stores.
    is_measured: bool = True

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if cls.is_measured:
            metrics.measure_store(cls)

    def __reduce__(self) -> tuple[Any, ...]:
        """The pickle contains the arguments with which the store was opened, including secrets; connections are
        reopened."""
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
        """Start the checks that precede the first commit through this store, in the background. The commit of
        ``version`` or of a later version waits for these checks and raises their errors. Raises nothing. Cost: none
        beyond that of the commit."""

    def put_stream_if_absent(self, path: str, write: Callable[[BinaryIO], object]) -> PutOutcome:
        """Like ``put_if_absent`` with the bytes that ``write`` writes to the file object that it receives; if ``write``
        raises, nothing is created.

        ``write`` may be called more than once. This default implementation buffers the object in memory; a store that
        can write to a hidden file overrides it. Cost: 1 PUT.
        """
        buffer = io.BytesIO()
        write(buffer)
        return self.put_if_absent(path, buffer.getvalue())

    def link_if_absent(self, names: Sequence[tuple[str, str, int]]) -> int:
        """Create durable hard links to objects, in order. ``names``: of each object the old and the new name, and the
        size in bytes that it must have. Stops at the first object that is missing, has another size or is a symbolic
        link, or whose new name already exists. Returns the number of objects linked; 0 for stores without hard links.
        Cost: none."""
        return 0

    @abstractmethod
    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace ``path``. Use ``durable=False`` for hints that may be lost in a crash. Cost: 1 PUT."""

    @abstractmethod
    def get(self, path: str, length: int | None = None) -> bytes:
        """The object, or its first ``length`` bytes. Raises ObjectNotFoundError. Cost: 1 GET."""

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        """``get`` of several objects, in the order of ``paths``. Remote stores override it with concurrent requests."""
        return [self.get(path, length) for path in paths]

    def get_many_with_meta(self, paths: Sequence[str], length: int | None = None) -> list[tuple[bytes, FileMeta]]:
        """Like ``get_many``, but also returns the ``head`` of each object. Raises ObjectNotFoundError. Cost: 1 GET and
        1 HEAD each; a store that opens files gets both from one open file."""
        objects = self.get_many(paths, length)
        found = []
        for path, data in zip(paths, objects, strict=True):
            meta = self.head(path)
            if meta is None:
                raise ObjectNotFoundError(f"{self.url}: {path} was deleted while it was read.", path=path)
            found.append((data, meta))
        return found

    def head_many(self, paths: Sequence[str]) -> list[FileMeta | None]:
        """``head`` of several objects, in the order of ``paths``. Cost: 1 HEAD each, one by one."""
        return [self.head(path) for path in paths]

    @abstractmethod
    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        """Objects directly in ``directory`` whose names are >= ``start``, sorted by name in code point order.

        With ``stat=False``, a store may leave out size and time if reading them costs extra. With ``limit``, at most
        that many objects are returned. A missing directory is empty. Cost: 1 LIST for each 1,000 names.
        """

    def list_names(self, directory: str, start: str = "", *, limit: int | None = None) -> list[str]:
        """The names of the objects that ``list_from`` returns. The names are unordered unless ``limit`` is given.

        A store that can return names more cheaply than FileMeta objects overrides this method, because a log of 100,000
        commits has 200,000 names. Cost: as ``list_from``.
        """
        return [meta.name for meta in self.list_from(directory, start, stat=False, limit=limit)]

    @abstractmethod
    def head(self, path: str) -> FileMeta | None:
        """Size and modification time of an object, or None if it is absent. Cost: 1 HEAD."""

    def etag(self, path: str) -> str | None:
        """The ETag of ``path``, in quotes, as S3 computes it for an object uploaded in one part; None if ``path`` is
        absent.

        Cost: as ``get``; 1 HEAD if the store keeps ETags.
        """
        try:
            return etag_of(self.get(path))
        except ObjectNotFoundError:
            return None

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove ``path``; succeeds if it is absent. Cost: 1 DELETE."""

    def remove_orphans(self, directory: str, before_ms: int) -> list[str]:
        """Remove temporary files of killed writers in ``directory`` that were last modified before ``before_ms``.
        Readers ignore these files. Returns their names. Pass a time that is at least a day ago, because a slow writer
        may still be using a younger temporary file.

        Cost: none if killed writers leave no files; otherwise as ``list_from``, and 1 DELETE each.
        """
        return []

    def find_names(self, start: str, containing: str, *, most: int) -> list[str]:
        """Paths at any depth that begin with ``start`` and contain ``containing``, among the first ``most`` objects
        with that prefix. Best effort, for clean-up. Stores that cannot list recursively return no paths. Cost: 1 LIST
        for each 1,000 objects."""
        return []

    def walk(self, enters: Callable[[str], bool]) -> Iterator[Entry]:
        """All entries at any depth, including files of other programs, except the contents of ``_delta_log``
        directories. Symbolic links are not followed, and other file systems are not entered.

        ``enters``: returns whether to descend into the directory with this path; object stores do not call it. Raises
        CallError if the store cannot list recursively. Cost: 1 LIST for each 1,000 objects; on local disk 1 for each
        directory, and 1 HEAD for each entry.
        """
        raise CallError(f"{self.url}: this store cannot list files at all depths, so its tables cannot be vacuumed.")

    def walk_parts(self, enters: Callable[[str], bool], start: str = "", end: str | None = None) -> Iterator[WalkPart]:
        """Like ``walk``, but in batches, and only for the paths with ``start`` <= path < ``end`` in code point order.
        Sizes and times that the listing does not contain are not read. Cost: as ``walk``, without the HEADs. With a
        range, S3 lists only the objects in the range, and a local disk lists only the directories that overlap the
        range; other stores list everything."""
        yield from in_parts(entry for entry in self.walk(enters) if is_within(entry.path, start, end))

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        """Return the entries that ``walk`` would return for these paths, in the order of ``paths``, without listing
        directories. Missing paths, and paths that lead through a symbolic link or another file system, are left out.

        Raises CallError as ``walk``. Cost: 1 HEAD each; on a remote store several at a time.
        """
        raise CallError(f"{self.url}: this store cannot tell files from links, so its tables cannot be vacuumed.")

    def remove(self, entries: Sequence[Entry]) -> list[Entry]:
        """Remove files and symbolic links that ``walk`` returned, then empty directories, in the order of ``entries``.
        Returns the entries that were removed.

        On a local disk, a file is kept if its size or time has changed since the listing, or if its path now contains a
        symbolic link. Cost: 1 DELETE for each file; none for directories on object stores, which have no directories.
        """
        files = [entry for entry in entries if entry.kind is EntryKind.FILE]
        for entry in files:
            self.delete(entry.path)
        return files

    def remove_all(self) -> int:
        """Remove everything below the root; returns the number of files removed. The log goes first, newest version
        first, so that no reader takes an older version for the latest.

        On a local disk, the root is removed too. Symbolic links are removed, and never followed; mount points stay,
        with what lies below them. Raises StoreError, there also if the path of the root has symbolic links. Cost: 4
        LISTs, 1 DELETE per file.
        """
        count = 0
        for directory in _LOG_DIRECTORIES:
            for name in sorted(self.list_names(directory), reverse=True):
                self.delete(f"{directory}/{name}")
                count += 1
        return count + len(self.remove([*self.walk(lambda _: True)]))

    @abstractmethod
    def open_input(self, path: str) -> Any:
        """A seekable binary file that pyarrow can read. Raises ObjectNotFoundError. Cost: 1 GET for each read."""

    @abstractmethod
    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open a new data file that is written as a stream. When the ``with`` block ends, the file is durable; if the
        block raises, the file is removed.

        The name must be unique, for example random. Stores that can detect an existing object (local disk, memory)
        raise PathExistsError. Cost: 1 PUT, or 1 for each part.
        """

    @abstractmethod
    def sync(self, paths: list[str]) -> None:
        """Fsync data files that other programs wrote below the table root. Cost: none on object stores."""

    def location(self, path: str) -> str:
        """The full path or URL of ``path``, for other tools."""
        return f"{self.url}/{path}"

    def local_path(self, path: str) -> str | None:
        """The absolute path of ``path`` on the local disk, for tools that open files themselves; None on other stores,
        and for local stores whose reads do more than open the file. Cost: none."""
        return None

    def sibling(self, url: str) -> LogStore:
        """A store for another table root on the same disk or service, with the same options.

        Raises CallError if ``url`` is on another kind of store. Cost: none.
        """
        raise CallError(f"{url} cannot be reached from the store of {self.url}.")

    def link_target(self, path: str) -> str | None:
        """The resolved path if ``path`` contains symbolic links, else None. Cost: no request."""
        return None


def in_parts(entries: Iterator[Entry]) -> Iterator[WalkPart]:
    """The entries of a listing, with sizes and times, in batches."""
    while some := [*itertools.islice(entries, _PART_ENTRIES)]:
        yield WalkPart("", [], some)


def entries_by_head(store: LogStore, paths: Sequence[str], threads: int) -> list[Entry]:
    """``LogStore.entries`` for a store without directories and links. Cost: 1 HEAD each, ``threads`` at a time."""
    metas = mapped(paths, store.head, threads, 0)
    return [
        Entry(path, EntryKind.FILE, meta.size_bytes, meta.modification_time_ms)
        for path, meta in zip(paths, metas, strict=True)
        if meta is not None
    ]


def etag_of(data: bytes) -> str:
    """The ETag, in quotes, that S3 computes for an object uploaded in one part. With some kinds of encryption, S3 uses
    other ETags."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def get_or_none(store: LogStore, path: str, length: int | None = None) -> bytes | None:
    """Like ``LogStore.get``; None if ``path`` is absent."""
    try:
        return store.get(path, length)
    except ObjectNotFoundError:
        return None


def real_url(store: LogStore) -> str:
    """The location of a table, with all symbolic links resolved. Cost: as ``link_target``."""
    return store.link_target("") or store.url


def keep_cleanup_errors(error: BaseException, failures: Sequence[Exception]) -> None:
    """Attach errors of the clean-up to ``error``, so that neither ``error`` nor the clean-up errors are lost. The error
    that was raised carries the attached errors in its attribute ``cleanup_errors`` and, from Python 3.11 on, in its
    notes."""
    if not failures:
        return
    error.cleanup_errors = (*getattr(error, "cleanup_errors", ()), *failures)  # type: ignore[attr-defined]
    if hasattr(error, "add_note"):
        for failure in failures:
            error.add_note(f"Clean-up failed too: {failure}")
