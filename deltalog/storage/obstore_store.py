"""The LogStore for an obstore store: S3, Google Cloud Storage and Azure through Rust's object_store.

Exclusive creation is ``put(mode="create")``, one conditional request. obstore retries the request if there is no
response, and reports an unresolved conflict (409) as "already exists". So EXISTS may mean that the object is our own,
or that no object exists; in either case the commit loop reads the object back. obstore's fsspec wrapper ignores the
mode and is not used.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import obstore
import obstore.store
from obstore import exceptions

from deltalog import metrics
from deltalog.arguments import safe_repr
from deltalog.background import in_background
from deltalog.errors import CallError, ObjectNotFoundError, StoreError, UnsafeStoreError
from deltalog.protocol.paths import LOG_DIRECTORY
from deltalog.storage.base import Entry, EntryKind, FileMeta, LogStore, PutOutcome, entries_by_head
from deltalog.storage.exclusive import check_answer, check_exclusive, is_verified, place_of, verify_once
from deltalog.storage.ranges import TAIL_BYTES, RangeReader
from deltalog.storage.remote import LIST_PAGE, PARALLEL_GETS, get_together, is_below_root, outcome_of_status, spooled
from deltalog.storage.request_limit import SLOW_STATUSES, RequestLimit
from deltalog.storage.secrets import Secrets, check_dictionaries, check_endpoint

# Stores that list in name order and can start at any name.
_IN_PAGES = (obstore.store.S3Store, obstore.store.GCSStore)
_EXISTS = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
_NOT_SUPPORTED = (exceptions.NotSupportedError, NotImplementedError)
# Errors of requests that were refused by the service or never sent.
_NO_EFFECT = (
    *_NOT_SUPPORTED,
    FileNotFoundError,
    ValueError,
    exceptions.InvalidPathError,
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.UnknownConfigurationKeyError,
)
# In obstore, the HTTP status of the last response appears only in the message.
_STATUS = re.compile(r"status code: (\d{3})")
_BUCKETS = {"bucket", "container_name"}
_PLAIN_SETTINGS = {*_BUCKETS, "region", "account_name"}

log = logging.getLogger(__name__)

_processes: set[int] = set()


class ObstoreStore(LogStore):
    """The objects of an obstore store, below its prefix.

    ``url``: the location used in messages and in absolute paths in the log. The store reports modification times in
    whole seconds. Raises CallError if ``url`` is omitted and cannot be derived from the store. Cost: no request.
    """

    is_remote = True

    def __init__(self, store: Any, *, url: str | None = None, exclusive_create: bool = False) -> None:
        self._store = store
        self.url = (url or _url_of(store)).rstrip("/")
        self._secrets = Secrets({k: v for k, v in _settings(store).items() if k not in _PLAIN_SETTINGS})
        self._is_exclusive = check_answer(exclusive_create) or isinstance(store, obstore.store.MemoryStore)
        self._is_prepared = False
        settings = _settings(store)
        # Without a bucket, the settings do not identify the service, so a passed test is valid only for this store
        # object.
        name = type(store).__name__ if settings.keys() & _BUCKETS else str(uuid.uuid4())
        self._place = place_of("obstore", name, options=settings)
        self._limit = RequestLimit()
        self.lists_in_pages = isinstance(store, _IN_PAGES)

    @safe_repr
    def __repr__(self) -> str:
        return f"ObstoreStore({self.url!r})"

    # --------------------------------------------------------------------------------------------- writing

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Cost: 1 PUT. The first call of the process needs 2 more PUTs, 1 GET and 1 DELETE, to verify that the service
        enforces the conditions of PUT requests. Raises UnsafeStoreError if it does not."""
        self._check_path(path)
        self._check_exclusive()
        return self._create(path, data)

    def prepare_commit(self, version: int) -> None:
        if not (self._is_prepared or self._is_exclusive or is_verified(self._place)):
            self._is_prepared = True
            in_background(f"{self.url}: exclusive creation", self._try_exclusive)

    def _try_exclusive(self) -> None:
        with contextlib.suppress(Exception):  # the commit repeats the check and raises its error
            self._check_exclusive()

    def _check_exclusive(self) -> None:
        if not self._is_exclusive:
            test = partial(check_exclusive, self.url, self._create, self.get, self.delete, race=False)
            verify_once(self._place, test)
            self._is_exclusive = True

    def _create(self, path: str, data: bytes) -> PutOutcome:
        self._check_process()
        try:
            obstore.put(self._store, path, data, mode="create")
        except Exception as error:
            outcome = _outcome_of(error)
            if outcome is PutOutcome.UNKNOWN:
                log.warning("%s: it is unknown whether %s was created: %s", self.url, path, self._secrets.reason(error))
            if outcome is not None:
                return outcome
            if isinstance(error, _NOT_SUPPORTED):
                raise UnsafeStoreError(
                    f"{self.url}: this store cannot create objects exclusively ({self._secrets.reason(error)}). "
                    "Nothing was committed; write through one that can."
                ) from self._secrets.cause(error)
            # An earlier attempt whose response was lost may have succeeded.
            if not isinstance(error, FileNotFoundError) and self._is_there(path):
                return PutOutcome.EXISTS
            raise self._failure("create", path, error, absent_is_error=True) from self._secrets.cause(error)
        return PutOutcome.COMMITTED

    def _is_there(self, path: str) -> bool:
        try:
            return self.head(path) is not None
        except StoreError:
            return False

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._check_path(path)
        with self._errors("write", path, absent_is_error=True):
            obstore.put(self._store, path, data)

    def delete(self, path: str) -> None:
        self._check_path(path)
        with contextlib.suppress(ObjectNotFoundError), self._errors("delete", path):
            obstore.delete(self._store, path)

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        """Cost: 1 PUT up to 5 MiB, otherwise 1 for each 5 MiB and 2 more. The bytes are buffered on local disk until
        the ``with`` block ends; if the block raises, nothing is sent."""
        self._check_path(path)

        def send(file: str) -> None:
            with self._errors("write", path, absent_is_error=True), open(file, "rb") as content:
                obstore.put(self._store, path, content)

        with spooled(send, lambda: self.delete(path)) as output:
            yield output

    def sync(self, paths: list[str]) -> None:
        """Does nothing, because objects are durable once the service has responded."""

    # --------------------------------------------------------------------------------------------- reading

    def get(self, path: str, length: int | None = None) -> bytes:
        self._check_path(path)
        if length is None:
            with self._reading(path, 0):
                return bytes(obstore.get(self._store, path).bytes())
        return self._get_start(path, length)

    @contextlib.contextmanager
    def _reading(self, path: str, size_bytes: int) -> Iterator[None]:
        """Wait while too many reads are in progress. obstore retries throttled requests itself, so throttling is
        visible only as the error after obstore's last retry."""
        with self._errors("read", path), self._limit.request(size_bytes, _is_slow_down):
            yield

    def _get_start(self, path: str, length: int) -> bytes:
        with self._reading(path, length):
            try:
                if length > 0:
                    return bytes(obstore.get(self._store, path, options={"range": (0, length)}).bytes())
            except (exceptions.BaseError, ValueError):  # an empty object does not contain the range
                if obstore.head(self._store, path)["size"]:
                    raise
                return b""
            obstore.head(self._store, path)
            return b""

    @metrics.composed
    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        """Cost: 1 GET each, 32 at a time."""
        return get_together(self.get, paths, length)

    def head(self, path: str) -> FileMeta | None:
        self._check_path(path)
        try:
            with self._errors("check", path):
                return _meta(obstore.head(self._store, path))
        except ObjectNotFoundError:
            return None

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        """Cost: 1 LIST for each 1,000 names from ``start`` on, including those in subdirectories; without ``start``
        1 LIST for each 1,000 names directly in ``directory``."""
        if directory:
            self._check_path(directory)
        prefix = f"{directory}/" if directory else ""
        with self._errors("list", directory):
            if start:
                # The offset is exclusive. The shortened offset may admit additional names, which are filtered out
                # below.
                stream = obstore.list(self._store, directory or None, offset=prefix + start[:-1], chunk_size=LIST_PAGE)
                entries = []
                for chunk in stream:
                    entries += [each for each in chunk if _is_listed(each["path"][len(prefix) :], start)]
                    if limit is not None and len(entries) >= limit and self.lists_in_pages:
                        break
            else:
                entries = list(obstore.list_with_delimiter(self._store, directory or None)["objects"])
        found = (_meta(each, name) for each in entries if _is_listed(name := each["path"][len(prefix) :], start))
        return sorted(found, key=lambda meta: meta.name)[:limit]

    def walk(self, enters: Callable[[str], bool]) -> Iterator[Entry]:
        """Cost: 1 LIST for each 1,000 objects, including those of the log."""
        with self._errors("list", ""):
            for chunk in obstore.list(self._store, chunk_size=LIST_PAGE):
                for each in chunk:
                    if not each["path"].startswith(f"{LOG_DIRECTORY}/"):
                        meta = _meta(each)
                        yield Entry(each["path"], EntryKind.FILE, meta.size_bytes, meta.modification_time_ms)

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        return entries_by_head(self, paths, PARALLEL_GETS)

    def open_input(self, path: str) -> Any:
        """Cost: 1 GET of the last 64 KiB, which contain most footers and all of a small file (on Azure also 1 HEAD);
        then 1 GET for each read outside the cached bytes."""
        self._check_path(path)
        with self._reading(path, TAIL_BYTES):
            tail, size = self._tail(path)
        return RangeReader(f"{self.url}/{path}", tail, size, lambda start, end: self._range(path, start, end))

    def _tail(self, path: str) -> tuple[bytes, int]:
        try:
            answer = obstore.get(self._store, path, options={"range": {"suffix": TAIL_BYTES}})
            return bytes(answer.bytes()), answer.meta["size"]
        except (exceptions.BaseError, ValueError):  # the object is empty, or the service (Azure) has no suffix ranges
            size = obstore.head(self._store, path)["size"]
            start = max(size - TAIL_BYTES, 0)
            return (bytes(obstore.get_range(self._store, path, start=start, end=size)) if size else b""), size

    def _range(self, path: str, start: int, end: int) -> bytes:
        with self._reading(path, end - start):
            return bytes(obstore.get_range(self._store, path, start=start, end=end))

    # --------------------------------------------------------------------------------- paths and processes

    def _check_path(self, path: str) -> None:
        if not is_below_root(path):
            raise StoreError(f"{self.url}: {path!r} is not a path below the root.", path=path)

    def _check_process(self) -> None:
        """Raises StoreError in a forked child, which lacks obstore's threads and would block forever."""
        _processes.add(os.getpid())
        if len(_processes) > 1:
            raise StoreError(
                f"{self.url}: obstore was used before this process was forked, and cannot be used after that. Start "
                "processes by 'spawn' or 'forkserver', or leave driver='obstore' out.",
                path="",
            )

    @contextlib.contextmanager
    def _errors(self, verb: str, path: str, *, absent_is_error: bool = False) -> Iterator[None]:
        self._check_process()
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            raise self._failure(verb, path, error, absent_is_error) from self._secrets.cause(error)

    def _failure(self, verb: str, path: str, error: Exception, absent_is_error: bool = False) -> StoreError:
        if isinstance(error, FileNotFoundError) and not absent_is_error:
            return ObjectNotFoundError(f"{self.url}: cannot {verb} {path}: there is no such object.", path=path)
        return StoreError(
            f"{self.url}: cannot {verb} {path}: {self._secrets.reason(error)} Check the location, the credentials, the "
            "region and the endpoint.",
            path=path,
        )


# ------------------------------------------------------------------------------------------- opening a location


def open_url(url: str, options: Mapping[str, Any]) -> ObstoreStore:
    """The store of a URL. For s3://, use the options of s3fs that have an equivalent in obstore; for other schemes,
    obstore's own options. ``exclusive_create`` can be used with every scheme. Raises CallError for an unknown
    option."""
    options = dict(options)
    exclusive_create = check_answer(options.pop("exclusive_create", False))
    secrets = Secrets(options)
    scheme, _, rest = url.partition("://")
    if scheme in ("s3", "s3a", "gs"):
        check_endpoint(url, "location")
    bucket, _, prefix = rest.partition("/")
    try:
        store: Any
        if scheme in ("s3", "s3a"):
            store = obstore.store.S3Store(bucket, prefix=prefix.strip("/") or None, **_s3_settings(options))
        elif scheme == "gs":
            store = obstore.store.GCSStore(bucket, prefix=prefix.strip("/") or None, **options)
        elif set(url) & set("%?#"):
            shown = re.split("[?#]", url)[0]  # the rest may be a signature
            raise CallError(
                f"obstore would decode the location {shown!r}, or what follows. Give a store of obstore itself."
            )
        else:
            store = obstore.store.from_url(url, **options)
    except CallError:
        raise
    except Exception as error:
        raise CallError(
            f"{url} cannot be opened by obstore with the options {sorted(options)}: {secrets.reason(error)}"
        ) from secrets.cause(error)
    return ObstoreStore(store, url=url, exclusive_create=exclusive_create)


def local_path(store: Any) -> str | None:
    """The directory of an obstore store on the local disk; None for other stores. LocalStore also fsyncs."""
    if not isinstance(store, obstore.store.LocalStore):
        return None
    return os.fspath(store.prefix or "/")


_S3_NAMES = {"key": "access_key_id", "secret": "secret_access_key", "token": "session_token", "anon": "skip_signature"}
_OWN_NAMES = {"client_options", "retry_config", "credential_provider"}


def _s3_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of s3fs, translated to obstore's settings. Raises CallError."""
    check_dictionaries(options)
    client = dict(options.get("client_kwargs") or {})
    config = dict(options.get("config_kwargs") or {})
    endpoint = options.get("endpoint_url") or client.pop("endpoint_url", None)
    check_endpoint(endpoint)
    settings: dict[str, Any] = {_S3_NAMES[name]: options[name] for name in _S3_NAMES.keys() & options.keys()}
    http = {"timeout": config.pop("read_timeout", None), "connect_timeout": config.pop("connect_timeout", None)}
    http = {name: datetime.timedelta(seconds=seconds) for name, seconds in http.items() if seconds is not None}
    retries = dict(config.pop("retries", None) or {}).get("max_attempts")
    settings |= {name: options[name] for name in _OWN_NAMES & options.keys()}
    if (region := client.pop("region_name", None)) is not None:
        settings["region"] = region
    if endpoint:
        settings["endpoint"] = endpoint
        http["allow_http"] = endpoint.startswith("http://")
    if http:
        settings["client_options"] = {**http, **settings.get("client_options", {})}
    if retries is not None:
        settings.setdefault("retry_config", {"max_retries": retries})
    known = _S3_NAMES.keys() | _OWN_NAMES | {"endpoint_url", "client_kwargs", "config_kwargs"}
    unknown = sorted({*(options.keys() - known), *client, *config})
    if unknown:
        raise CallError(
            f"Storage options {unknown} are not known to driver='obstore'. It takes {sorted(known)}; of client_kwargs "
            "region_name and endpoint_url, of config_kwargs read_timeout, connect_timeout and retries. Give a store "
            "of obstore itself for others."
        )
    return settings


def _settings(store: Any) -> Mapping[str, Any]:
    config = getattr(store, "config", None)
    return dict(config) if config else {}


def _url_of(store: Any) -> str:
    settings, prefix = _settings(store), str(getattr(store, "prefix", None) or "").strip("/")
    if isinstance(store, obstore.store.MemoryStore):
        return f"obstore-memory://{id(store):x}"
    kinds = (
        (obstore.store.S3Store, "s3", "bucket"),
        (obstore.store.GCSStore, "gs", "bucket"),
        (obstore.store.AzureStore, "az", "container_name"),
    )
    for kind, scheme, name in kinds:
        if isinstance(store, kind) and settings.get(name):
            return "/".join([f"{scheme}://{settings[name]}", *([prefix] if prefix else [])])
    raise CallError(f"The location of {type(store).__name__} is unknown. Give ObstoreStore its url.")


def _outcome_of(error: Exception) -> PutOutcome | None:
    """The outcome of an exclusive creation that raised this error; None if the creation had no effect."""
    if isinstance(error, _EXISTS):
        return PutOutcome.EXISTS
    if isinstance(error, _NO_EFFECT):
        return None
    status = _STATUS.search(str(error))
    return outcome_of_status(int(status[1])) if status else PutOutcome.UNKNOWN


def _is_listed(name: str, start: str) -> bool:
    """Whether a path (relative to the directory) names an entry directly in the directory and does not sort before
    ``start``."""
    return bool(name) and name >= start and "/" not in name


def _is_slow_down(error: Exception) -> bool:
    status = _STATUS.search(str(error))
    return status is not None and int(status[1]) in SLOW_STATUSES


def _meta(meta: Mapping[str, Any], name: str | None = None) -> FileMeta:
    # HEAD returns whole seconds, and some listings return milliseconds. Truncate both times, so that two times of the
    # same object are equal.
    modified_ms = int(meta["last_modified"].timestamp()) * 1000
    return FileMeta(name or meta["path"].rpartition("/")[2], meta["size"], modified_ms, meta.get("e_tag"))
