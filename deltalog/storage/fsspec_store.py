"""The LogStore for any fsspec file system: Google Cloud Storage, Azure, and every other backend.

A commit is one ``pipe_file(mode="create")``. Backends implement this mode differently: some send a condition to the
service, some check first and then write, and some ignore the mode. ``_CONDITIONAL`` lists the backends that are known
to send a condition with a write. Before the first write through any other backend, its code is inspected and tested
with scratch objects; the write fails if exclusive creation cannot be verified. See ``_exclusive``. Reading needs no
such check.

Backends retry requests, so EXISTS may mean that our own earlier request created the object; the commit loop reads the
object back. The listing caches of backends are never used.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import inspect
import logging
import os
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import fsspec
import fsspec.asyn
import fsspec.core
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.cached import CachingFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from deltalog import metrics
from deltalog.arguments import safe_repr
from deltalog.background import in_background
from deltalog.errors import CallError, ObjectNotFoundError, StoreError, UnsafeStoreError, UnsafeStoreWarning
from deltalog.protocol.paths import LOG_DIRECTORY
from deltalog.storage.base import (
    Entry,
    EntryKind,
    FileMeta,
    LogStore,
    PutOutcome,
    entries_by_head,
)
from deltalog.storage.exclusive import check_answer, check_exclusive
from deltalog.storage.ranges import TAIL_BYTES, RangeReader
from deltalog.storage.remote import EXTRAS, PARALLEL_GETS, get_together, is_below_root, outcome_of_status, spooled
from deltalog.storage.request_limit import SLOW_STATUSES, RequestLimit
from deltalog.storage.secrets import Secrets

ONE_REQUEST_BYTES = 16 << 20

# Packages whose pipe_file(mode="create") sends one conditional request, each with the first package version that does
# so. Before you add a package, test it against the service that it accesses (tests/unit/storage/test_cloud.py).
_CONDITIONAL = {"gcsfs": (2024, 12), "adlfs": (2024, 12)}
# Object stores have no directories; makedirs can create a bucket.
_WITHOUT_DIRECTORIES = frozenset(_CONDITIONAL)
_NO_EFFECT = (PermissionError, FileNotFoundError, NotADirectoryError, IsADirectoryError, NotImplementedError)
_MODIFIED = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")

log = logging.getLogger(__name__)

_proven: weakref.WeakSet[Any] = weakref.WeakSet()
_locks: weakref.WeakKeyDictionary[Any, threading.Lock] = weakref.WeakKeyDictionary()
_one_at_a_time = threading.RLock()
_warned: set[str] = set()


class FsspecStore(LogStore):
    """The objects below ``path`` in an fsspec file system.

    ``exclusive_create``: the caller asserts that the service creates objects exclusively, and the test is skipped.
    ``unsafe_single_writer``: if exclusive creation cannot be verified, check for the object and then write; the caller
    asserts that only one process writes at any time. Modification times come from the backend. Cost: no request.
    """

    is_remote = True

    def __init__(
        self,
        filesystem: Any,
        path: str,
        *,
        url: str | None = None,
        unsafe_single_writer: bool = False,
        exclusive_create: bool = False,
        secrets: Secrets | None = None,
        limit: RequestLimit | None = None,
    ) -> None:
        self._filesystem = filesystem
        self._root = filesystem._strip_protocol(path).rstrip("/")
        self.url = url.rstrip("/") if url else f"{_protocols(type(filesystem))[0]}://{self._root}"
        self._unsafe_single_writer = unsafe_single_writer
        self._exclusive_create = check_answer(exclusive_create)
        self._is_prepared = False
        self._secrets = secrets or Secrets(filesystem.storage_options)
        self._limit = limit or RequestLimit()

    @safe_repr
    def __repr__(self) -> str:
        return f"FsspecStore({self.url!r})"

    # --------------------------------------------------------------------------------------------- writing

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Cost: 1 PUT. The first call through this file system needs 2 more PUTs, 1 GET and 1 DELETE; with an unknown
        backend, another 80 requests. Raises UnsafeStoreError if creation is not exclusive."""
        full = self._full(path)
        with self._guard():
            if self._exclusive():
                return self._create(full, data)
            if self._info(full) is not None:
                return PutOutcome.EXISTS
            return self._create(full, data, mode=None)

    def prepare_commit(self, version: int) -> None:
        # Only in this case the check runs in the background. Otherwise it runs in the caller's thread, because
        # synchronous backends are not thread-safe, and the warning about ``unsafe_single_writer`` must be issued in
        # that thread.
        shared = isinstance(self._filesystem, fsspec.asyn.AsyncFileSystem) and not self._unsafe_single_writer
        if shared and not self._is_prepared and self._filesystem not in _proven:
            self._is_prepared = True
            in_background(f"{self.url}: exclusive creation", self._try_exclusive)

    def _try_exclusive(self) -> None:
        # Errors are suppressed here, because the commit repeats the check and raises them.
        with contextlib.suppress(Exception):
            self._exclusive()

    def _exclusive(self) -> bool:
        """Whether creation is exclusive; False if it is not and the caller asserted that there is a single writer.

        Creation counts as exclusive only if a test with scratch objects passes. For an unknown backend, the test
        includes races between threads, and the backend's code is inspected first.
        """
        filesystem = self._filesystem
        if filesystem in _proven:
            return True
        try:
            fault = None if _is_known(filesystem) else _fault_of(filesystem)
            if fault is not None:
                raise UnsafeStoreError(
                    f"{self.url}: {type(filesystem).__name__} does not create objects exclusively ({fault}), so two "
                    "writers could both commit one version. Nothing was committed. Write through another store, or "
                    "give unsafe_single_writer=True if there is, at any time, one writer only."
                )
            self._test_once()
        except UnsafeStoreError:
            if not self._unsafe_single_writer:
                raise
            self._warn()
            return False
        return True

    def _test_once(self) -> None:
        filesystem, clean_up = self._filesystem, None
        with _lock_of(filesystem):
            if not self._exclusive_create and filesystem not in _proven:
                race = not _is_known(filesystem)
                clean_up = check_exclusive(self.url, self._create_below, self.get, self.delete, race=race)
            _proven.add(filesystem)
        if clean_up is not None:
            clean_up()

    def _warn(self) -> None:
        if self.url not in _warned:
            _warned.add(self.url)
            warnings.warn(
                f"{self.url}: this store does not create objects exclusively, and unsafe_single_writer=True was given. "
                "With a second writer, in this process or another, commits can be lost silently.",
                UnsafeStoreWarning,
                stacklevel=4,
            )

    def _guard(self) -> contextlib.AbstractContextManager[Any]:
        """A lock for backends that check first and then write, such as fsspec's memory file system. The lock makes the
        check and the write atomic within this process."""
        alone = _is_memory(self._filesystem) or self._unsafe_single_writer
        return _one_at_a_time if alone else contextlib.nullcontext()

    def _create_below(self, path: str, data: bytes) -> PutOutcome:
        return self._create(self._full(path), data)

    def _create(self, full: str, data: bytes, mode: str | None = "create") -> PutOutcome:
        try:
            self._pipe(full, data, **({"mode": mode} if mode else {}))
        except Exception as error:
            outcome = _outcome_of(error)
            if outcome is PutOutcome.UNKNOWN:
                log.warning("%s: it is unknown whether %s was created: %s", self.url, full, self._secrets.reason(error))
            if outcome is not None:
                return outcome
            # The backend may have repeated the request, and an earlier attempt may have created the object.
            if not isinstance(error, FileNotFoundError) and self._is_there(full):
                return PutOutcome.EXISTS
            raise self._failure("create", full, error, absent_is_error=True) from self._secrets.cause(error)
        return PutOutcome.COMMITTED

    def _is_there(self, full: str) -> bool:
        try:
            return self._info(full) is not None
        except StoreError:
            return False

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        full = self._full(path)
        with self._errors("write", full, absent_is_error=True):
            self._pipe(full, data)

    def _pipe(self, full: str, data: bytes, **options: Any) -> None:
        try:
            self._filesystem.pipe_file(full, data, **options)
        except FileNotFoundError:
            if _package(self._filesystem) in _WITHOUT_DIRECTORIES:
                raise
            self._filesystem.makedirs(full.rpartition("/")[0], exist_ok=True)
            self._filesystem.pipe_file(full, data, **options)

    def delete(self, path: str) -> None:
        full = self._full(path)
        with contextlib.suppress(ObjectNotFoundError), self._errors("delete", full):
            self._filesystem.rm_file(full)

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        """Cost: 1 PUT up to 16 MiB, otherwise the cost of the backend's ``put_file``. The bytes are buffered on local
        disk until the ``with`` block ends; if the block raises, nothing is sent."""
        full = self._full(path)

        def send(file: str) -> None:
            with self._errors("write", full, absent_is_error=True):
                if os.path.getsize(file) <= ONE_REQUEST_BYTES:
                    with open(file, "rb") as read:
                        self._pipe(full, read.read())
                else:
                    self._filesystem.put_file(file, full)

        with spooled(send, lambda: self.delete(path)) as output:
            yield output

    def sync(self, paths: list[str]) -> None:
        """Does nothing, because objects are durable once the service has responded."""

    # --------------------------------------------------------------------------------------------- reading

    def get(self, path: str, length: int | None = None) -> bytes:
        full = self._full(path)
        if length == 0:
            if self._info(full) is None:
                raise self._absent("read", full)
            return b""
        return self._read(full, None, length)[:length]

    def _read(self, full: str, start: int | None, end: int | None) -> bytes:
        size_bytes = 0 if end is None else end - (start or 0)
        with self._errors("read", full), self._limit.request(size_bytes, _is_slow_down):
            try:
                return bytes(self._filesystem.cat_file(full, start=start, end=end))
            except Exception as error:
                if _status_of(error) == 416:  # range not satisfiable, because the object is empty
                    return b""
                raise

    @metrics.composed
    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        """Cost: 1 GET each; 32 at a time if the backend is asynchronous, and therefore thread-safe."""
        if isinstance(self._filesystem, fsspec.asyn.AsyncFileSystem):
            return get_together(self.get, paths, length)
        return super().get_many(paths, length)

    def head(self, path: str) -> FileMeta | None:
        info = self._info(self._full(path))
        return None if info is None else _meta(info)

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        """Cost: the backend's listing of the whole directory, because fsspec cannot start a listing at a name."""
        full = self._full(directory) if directory else self._root
        with self._errors("list", full):
            self._filesystem.invalidate_cache()
            try:
                entries = self._filesystem.ls(full, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
            inside = (entry for entry in entries if entry["type"] == "file" and _differ(entry["name"], full))
            found = (meta for meta in map(_meta, inside) if meta.name >= start)
            return sorted(found, key=lambda meta: meta.name)[:limit]

    def walk(self, enters: Callable[[str], bool]) -> Iterator[Entry]:
        """Supports only object stores and fsspec's memory file system; other backends may have links, which fsspec
        follows. Cost: the backend's listing of everything below the root."""
        if self._may_have_links:
            yield from super().walk(enters)
        with self._errors("list", self._root):
            self._filesystem.invalidate_cache()
            found = self._filesystem.find(self._root, detail=True)
        root = f"{self._root.rstrip('/')}/" if self._root else ""
        for full, info in sorted(found.items()):
            path = full.removeprefix(root)
            if info["type"] == "file" and not path.startswith(f"{LOG_DIRECTORY}/"):
                meta = _meta(info)
                yield Entry(path, EntryKind.FILE, meta.size_bytes, meta.modification_time_ms)

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        """Supports the same backends as ``walk``. Cost: 1 HEAD each; 32 at a time if the backend is asynchronous."""
        if self._may_have_links:
            return super().entries(paths)
        is_shared = isinstance(self._filesystem, fsspec.asyn.AsyncFileSystem)
        return entries_by_head(self, paths, PARALLEL_GETS if is_shared else 0)

    @property
    def _may_have_links(self) -> bool:
        return not (_is_memory(self._filesystem) or _package(self._filesystem) in _WITHOUT_DIRECTORIES)

    def open_input(self, path: str) -> Any:
        """Cost: 1 HEAD and 1 GET of the last 64 KiB, which contain most footers and all of a small file; then 1 GET for
        each read outside the cached bytes."""
        full = self._full(path)
        info = self._info(full)
        if info is None:
            raise self._absent("read", full)
        size = int(info["size"])
        tail = self._read(full, max(size - TAIL_BYTES, 0), size) if size else b""
        return RangeReader(full, tail, size, lambda start, end: self._read(full, start, end))

    def _info(self, full: str) -> Mapping[str, Any] | None:
        with self._errors("check", full):
            self._filesystem.invalidate_cache()
            try:
                info: Mapping[str, Any] = self._filesystem.info(full)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return info if info["type"] == "file" else None

    # ---------------------------------------------------------------------------------------------- places

    def sibling(self, url: str) -> LogStore:
        kind = type(self._filesystem)
        same = _scheme(url) == _scheme(self.url) or {_scheme(url), _scheme(self.url)} <= set(_protocols(kind))
        if not same or kind._get_kwargs_from_urls(url) != kind._get_kwargs_from_urls(self.url):
            raise CallError(f"{url} is not on the same service as the table {self.url}.")
        return FsspecStore(
            self._filesystem,
            url,
            url=url,
            unsafe_single_writer=self._unsafe_single_writer,
            exclusive_create=self._exclusive_create,
            secrets=self._secrets,
            limit=self._limit,
        )

    def _full(self, path: str) -> str:
        if not is_below_root(path):
            raise StoreError(f"{self.url}: {path!r} is not a path below the root.", path=path)
        return f"{self._root}/{path}" if self._root else path

    # ---------------------------------------------------------------------------------------------- errors

    @contextlib.contextmanager
    def _errors(self, verb: str, full: str, *, absent_is_error: bool = False) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            raise self._failure(verb, full, error, absent_is_error) from self._secrets.cause(error)

    def _failure(self, verb: str, full: str, error: Exception, absent_is_error: bool = False) -> StoreError:
        if isinstance(error, FileNotFoundError) and not absent_is_error:
            return self._absent(verb, full)
        return StoreError(
            f"{self.url}: cannot {verb} {full}: {self._secrets.reason(error)} "
            "Check the location, the credentials and the options.",
            path=full,
        )

    def _absent(self, verb: str, full: str) -> ObjectNotFoundError:
        return ObjectNotFoundError(f"{self.url}: cannot {verb} {full}: there is no such object.", path=full)


def _lock_of(filesystem: Any) -> threading.Lock:
    """The lock that is held while a file system is tested for exclusive creation."""
    with _one_at_a_time:
        return _locks.setdefault(filesystem, threading.Lock())


# ------------------------------------------------------------------------------------------- opening a location


def open_url(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The fsspec file system for a URL, and the path within it. Raises CallError if fsspec does not know the scheme, or
    if the backend is not installed or rejects the options."""
    protocol, rest = url.split("://", 1)
    if "::" in url:
        raise CallError(f"{url} chains file systems, whose cached copies may be stale. Give the innermost location.")
    if ":" in rest.partition("/")[0].rpartition("@")[0]:
        raise CallError(f"The {protocol}:// location has a password in it. Give it as an option of the file system.")
    try:
        kind = fsspec.get_filesystem_class(protocol)
    except ValueError as error:
        if protocol in EXTRAS:  # fsspec knows some schemes only if their package is installed
            extra = EXTRAS[protocol]
            raise CallError(f"{url} needs the extra {extra!r} ({error}): pip install 'deltalog[{extra}]'.") from error
        raise CallError(
            f"No store for scheme {protocol!r}. There are local paths, file:, memory://, s3://, and the schemes of "
            "fsspec's file systems, such as gs:// and az://."
        ) from None
    except ImportError as error:
        extra = EXTRAS.get(protocol, "")
        how = f": pip install 'deltalog[{extra}]'" if extra else ""
        raise CallError(f"{url} needs a package that is not installed ({error}){how}.") from error
    secrets = Secrets(options)
    fresh = {"use_listings_cache": False} if kind.__module__.split(".")[0] in _CONDITIONAL else {}
    try:
        filesystem, path = fsspec.core.url_to_fs(url, **{**fresh, **options})
    except Exception as error:
        raise CallError(
            f"{url} cannot be opened with the options {sorted(options)}: {secrets.reason(error)}"
        ) from secrets.cause(error)
    return filesystem, str(path)


def unwrapped(filesystem: Any, path: str) -> tuple[Any, str]:
    """The underlying file system and the path in it, without wrappers that only change paths. Raises CallError for a
    cache."""
    while True:
        if isinstance(filesystem, CachingFileSystem):
            raise CallError(f"{type(filesystem).__name__} caches copies that may be stale. Give the one below it.")
        if isinstance(filesystem, DirFileSystem):
            path = "/".join(part for part in (str(filesystem.path).rstrip("/"), path.strip("/")) if part)
            filesystem = filesystem.fs
        elif isinstance(filesystem, AsyncFileSystemWrapper):
            filesystem = filesystem.sync_fs
        else:
            return filesystem, path


def local_path(filesystem: Any, path: str) -> str | None:
    """The directory if the file system is the local disk; otherwise None. The caller then uses LocalStore, which
    creates exclusively and calls fsync."""
    return str(filesystem._strip_protocol(path)) if isinstance(filesystem, LocalFileSystem) else None


def s3_location(filesystem: Any, path: str) -> tuple[str, dict[str, Any]] | None:
    """The URL and the options with which S3Store can access the path, if the file system is s3fs; else None."""
    if _package(filesystem) != "s3fs":
        return None
    names = list(inspect.signature(type(filesystem).__init__).parameters)[1:]
    options = {**dict(zip(names, filesystem.storage_args, strict=False)), **filesystem.storage_options}
    for own in ("asynchronous", "loop", "skip_instance_cache", "use_listings_cache", "listings_expiry_time"):
        options.pop(own, None)
    return f"s3://{filesystem._strip_protocol(path)}", options


# -------------------------------------------------------------------------------------------- known backends


def _fault_of(filesystem: Any) -> str | None:
    """The reason why the code of an unknown backend cannot create files exclusively; None if no such reason is
    found."""
    kind = type(filesystem)
    is_async = isinstance(filesystem, fsspec.asyn.AsyncFileSystem)
    create = kind._pipe_file if is_async else kind.pipe_file
    if create is fsspec.AbstractFileSystem.pipe_file:
        return "it checks whether the object exists, and then writes"
    if create is fsspec.asyn.AsyncFileSystem._pipe_file:
        return "it cannot write"
    parameters = inspect.signature(create).parameters.values()
    if not any(each.name == "mode" or each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return "its pipe_file takes no mode"
    return None


def _is_known(filesystem: Any) -> bool:
    """Whether the backend is known to create files exclusively. A backend that creates exclusively either sends a
    condition to its service or is fsspec's memory file system, to which FsspecStore writes under a lock."""
    if _is_memory(filesystem):
        return True
    package = _package(filesystem)
    if package not in _CONDITIONAL:
        return False
    found = re.match(r"(\d+)\.(\d+)", importlib.metadata.version(package))
    return found is not None and (int(found[1]), int(found[2])) >= _CONDITIONAL[package]


def _is_memory(filesystem: Any) -> bool:
    return isinstance(filesystem, MemoryFileSystem)


def _package(filesystem: Any) -> str:
    return type(filesystem).__module__.split(".")[0]


def _protocols(kind: Any) -> tuple[str, ...]:
    return (kind.protocol,) if isinstance(kind.protocol, str) else tuple(kind.protocol)


def _scheme(url: str) -> str:
    return url.partition("://")[0]


def _outcome_of(error: Exception) -> PutOutcome | None:
    """The outcome of an exclusive creation, derived from the error that it raised; None if the attempt had no
    effect."""
    if isinstance(error, FileExistsError):
        return PutOutcome.EXISTS
    # In gcsfs's errors, the status 403 appears only in the message.
    if isinstance(error, _NO_EFFECT) or (isinstance(error, OSError) and str(error).startswith("Forbidden: ")):
        return None
    status = _status_of(error)
    return PutOutcome.UNKNOWN if status is None else outcome_of_status(status)


def _is_slow_down(error: Exception) -> bool:
    return _status_of(error) in SLOW_STATUSES


def _status_of(error: BaseException) -> int | None:
    """The HTTP status of a backend's error; the name of the attribute depends on the library."""
    for each in (error, error.__cause__):
        for name in ("status_code", "status", "code"):
            value = getattr(each, name, None)
            if isinstance(value, (int, str)) and str(value).isdigit() and 100 <= int(value) < 600:
                return int(value)
    return None


# ---------------------------------------------------------------------------------------------- file metadata


def _meta(info: Mapping[str, Any]) -> FileMeta:
    size = info.get("size")
    etag = info.get("ETag") or info.get("etag")
    return FileMeta(_name(info), None if size is None else int(size), _modified_ms(info), str(etag) if etag else None)


def _name(info: Mapping[str, Any]) -> str:
    return str(info["name"]).rstrip("/").rpartition("/")[2]


def _differ(name: str, full: str) -> bool:
    return name.strip("/") != full.strip("/")


def _modified_ms(info: Mapping[str, Any]) -> int | None:
    value = next((info[name] for name in _MODIFIED if info.get(name) is not None), None)
    if isinstance(value, str):
        # Python 3.10 cannot parse "Z", nor fractions of a second that do not have exactly 3 or 6 digits.
        match = re.fullmatch(r"(.{19})(\.\d+)?(Z|[+-]\d\d:\d\d)?", value)
        if match is None:
            return None
        fraction = (match[2] or ".0").ljust(7, "0")[:7]
        value = datetime.datetime.fromisoformat(match[1] + fraction + (match[3] or "Z").replace("Z", "+00:00"))
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
        return int((aware - _EPOCH) / datetime.timedelta(milliseconds=1))
    return int(value * 1000) if isinstance(value, (int, float)) else None


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
