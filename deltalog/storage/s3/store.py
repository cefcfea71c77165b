"""S3 and compatible services.

Exclusive creation is one PUT with ``If-None-Match: *``. If the response is ambiguous, the outcome is UNKNOWN, and the
commit loop reads the object back.

Bucket and key are passed separately, never as a path that s3fs parses, because s3fs interprets ``?versionId=`` in a
name. The listing cache of s3fs is not used.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import datetime
import io
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, cast

from deltalog.arguments import safe_repr
from deltalog.background import in_background
from deltalog.errors import CallError, ObjectNotFoundError, StoreError, UnsafeStoreError
from deltalog.protocol.paths import LOG_DIRECTORY, commit_version, log_path, version_prefix
from deltalog.storage.base import Entry, EntryKind, FileMeta, LogStore, PutOutcome, WalkPart, entries_by_head, in_parts
from deltalog.storage.exclusive import remove, scratch, verify_once
from deltalog.storage.progress import Pages
from deltalog.storage.ranges import TAIL_BYTES, RangeReader
from deltalog.storage.remote import LIST_PAGE, PARALLEL_GETS, is_below_root
from deltalog.storage.request_limit import SLOW_STATUSES
from deltalog.storage.s3.client import S3Client
from deltalog.storage.s3.transport import code_of, status_of

STAGED_DIRECTORY = f"{LOG_DIRECTORY}/.tmp"
MAX_KEY_BYTES = 1024
PART_BYTES = 16 << 20
_PARALLEL_PARTS = 4
_RECENT_VERSIONS = 10
_SCHEMES = ("s3", "s3a")
# The batch size of deletions adapts to throttling, because S3 limits the rate of deleted keys, not of requests.
_FEWEST_DELETES, _MORE_DELETES = 10, 100
_DELETE_ATTEMPTS, _PAUSE_S, _LONGEST_PAUSE_S = 10, 0.1, 20
# Error codes of keys whose deletion can be retried.
_RETRYABLE_DELETE_CODES = {
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
    "RequestTimeout",
    "Throttling",
    "ThrottlingException",
}

log = logging.getLogger(__name__)


class S3Store(LogStore):
    """The objects of a bucket whose keys begin with a prefix: ``s3://bucket/prefix`` or ``s3a://bucket/prefix``.

    ``options``: as for s3fs.S3FileSystem. Modification times are in whole seconds, as S3 reports them. Raises CallError
    for an invalid location or an unknown option. Cost: no request.
    """

    is_remote = True
    lists_in_pages = True

    def __init__(self, url: str, *, client: S3Client | None = None, **options: Any) -> None:
        scheme, self.bucket, prefix = _parse(url)
        self.url = "/".join([f"{scheme}://{self.bucket}", *([prefix] if prefix else [])])
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = client or S3Client(options)
        self._background = f"{self.url}: exclusive creation"
        self._nothing_staged = self._is_prepared = False
        self._staged_lock = threading.Lock()

    @safe_repr
    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    # --------------------------------------------------------------------------------------------- writing

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Cost: 1 PUT. For a bucket outside AWS, the first call of the process needs 2 more PUTs and 1 DELETE, to
        verify that the service enforces the condition. The first commit through this store object needs 1 LIST, to
        detect whether Spark commits through DynamoDB. Raises UnsafeStoreError if the service ignores the condition or
        Spark commits through DynamoDB."""
        key = self.key(path)
        self._check_exclusive()
        version = commit_version(path)
        if version:
            self.check_nothing_staged(version)
        return self._put_once("create", key, data)

    def prepare_commit(self, version: int) -> None:
        if self._is_prepared:
            return
        self._is_prepared = True
        source = self._client.source
        if source is not None:
            in_background(f"{self.url}: credentials", partial(_check_early, partial(source.current, writes=True)))
        in_background(self._background, partial(_check_early, self._check_exclusive))
        if version:
            in_background(
                f"{self.url}: staged commits", partial(_check_early, partial(self.check_nothing_staged, version))
            )

    def put_once(self, path: str, data: bytes, expected: str | None, seconds: float | None = None) -> PutOutcome:
        """Send one PUT, for commit protocols that protect ``path`` by other means. The PUT creates the object
        (``expected="*"``), replaces the object that has the ETag ``expected``, or replaces any object (None).

        EXISTS: the condition failed, because the object already exists or does not have the ETag ``expected``. UNKNOWN:
        no response, or none within ``seconds``. Does not verify that the service enforces conditions. Cost: 1 PUT, sent
        once.
        """
        return self._put_once("write", self.key(path), data, expected, seconds)

    def _put_once(
        self, verb: str, key: str, data: bytes, expected: str | None = "*", seconds: float | None = None
    ) -> PutOutcome:
        conditions = {} if expected is None else {"IfNoneMatch" if expected == "*" else "IfMatch": expected}
        try:
            outcome, error = self._client.put_once(self.bucket, key, data, conditions, seconds)
        except Exception as refusal:
            raise self._failure(verb, key, refusal) from self._client.secrets.cause(refusal)
        if outcome is PutOutcome.UNKNOWN and error is not None:
            reason = self._client.secrets.reason(error)
            log.warning("%s: it is unknown whether %s was created: %s", self.url, key, reason)
        return outcome

    def _check_exclusive(self) -> None:
        try:
            place = self._client.unverified_place(self.bucket)
        except Exception as error:
            key = self.key(LOG_DIRECTORY)
            raise self._failure("create", key, error) from self._client.secrets.cause(error)
        if place is not None:
            verify_once(place, self._probe)

    def _probe(self) -> Callable[[], None]:
        path = log_path(f".probe-{uuid.uuid4()}")
        key = self.key(path)
        with scratch(self.delete) as paths:
            paths.append(path)
            self._judge(key, [self._put_once("create", key, b"probe") for _ in range(2)])
        clean_up = partial(remove, paths, self.delete)
        # After prepare_commit, commits do not wait for the deletion of the objects that this test wrote, even if a
        # commit itself runs the test.
        return partial(in_background, self._background, clean_up) if self._is_prepared else clean_up

    def _judge(self, key: str, outcomes: list[PutOutcome]) -> None:
        if outcomes == [PutOutcome.COMMITTED, PutOutcome.COMMITTED]:
            raise UnsafeStoreError(
                f"{self.url}: this service ignores If-None-Match, so two writers could both commit one version. "
                "Nothing was committed; write through a service that honours it."
            )
        if outcomes != [PutOutcome.COMMITTED, PutOutcome.EXISTS]:
            raise StoreError(
                f"{self.url}: whether this service creates objects exclusively could not be determined "
                f"({outcomes[0].value}, {outcomes[1].value}). Nothing was committed; try again.",
                path=key,
            )

    def check_nothing_staged(self, version: int) -> None:
        """Raises UnsafeStoreError if Spark's S3DynamoDBLogStore staged one of the versions before ``version``.

        S3DynamoDBLogStore copies its staged commits without a condition; it assumes that a commit file that already
        exists is its own. So a commit that bypasses S3DynamoDBLogStore can be lost, or can cause the loss of a commit
        by Spark. Cost: 1 LIST, once for each store object.
        """
        with self._staged_lock:
            if not self._nothing_staged:
                self._refuse_staged(version)
                self._nothing_staged = True

    def _refuse_staged(self, version: int) -> None:
        staged = self.list_from(STAGED_DIRECTORY, version_prefix(max(version - _RECENT_VERSIONS, 0)))
        if staged:
            raise UnsafeStoreError(
                f"{self.url}: {STAGED_DIRECTORY}/{staged[-1].name} was staged by a writer that commits through "
                "Spark's S3DynamoDBLogStore. A commit without it could be lost; nothing was committed. Open the table "
                "with commit='s3-dynamodb:<its DynamoDB table>'; or, when no writer uses that log store any more, "
                f"delete {STAGED_DIRECTORY}/."
            )

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._call("write", self.key(path), "put_object", Body=data)

    def delete(self, path: str) -> None:
        self._call("delete", self.key(path), "delete_object")

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        """Cost: 1 PUT; above 16 MiB 1 PUT for each 16 MiB and 2 requests more."""
        upload = _Upload(self, self.key(path))
        try:
            yield cast(BinaryIO, upload)
            upload.finish()
        except BaseException:
            upload.abort()
            raise

    def sync(self, paths: list[str]) -> None:
        """Does nothing, because objects are durable once S3 has responded."""

    # --------------------------------------------------------------------------------------------- reading

    def get(self, path: str, length: int | None = None) -> bytes:
        key = self.key(path)
        if length == 0:
            self._call("read", key, "head_object")
            return b""
        return self._read(key, "" if length is None else f"bytes=0-{length - 1}", size_bytes=length or 0)[0][:length]

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        """Cost: 1 GET each, at most 32 at a time."""
        if length == 0:
            return [self.get(path, 0) for path in paths]
        byte_range = "" if length is None else f"bytes=0-{length - 1}"

        def failed(key: str, error: Exception) -> None:
            if status_of(error) != 416:  # range not satisfiable, because the object is empty
                raise self._failure("read", key, error) from self._client.secrets.cause(error)

        keys = [self.key(path) for path in paths]
        return [body[:length] for body in self._client.read_many(self.bucket, keys, byte_range, length or 0, failed)]

    def head(self, path: str) -> FileMeta | None:
        key = self.key(path)
        try:
            response = self._call("check", key, "head_object")
        except ObjectNotFoundError:
            return None
        name = path.rsplit("/", 1)[-1]
        modified_ms = _whole_seconds_ms(response["LastModified"])
        return FileMeta(name, response["ContentLength"], modified_ms, response.get("ETag") or None)

    def etag(self, path: str) -> str | None:
        """The object's ETag as S3 returns it, with quotes; None if the object does not exist. Cost: 1 HEAD."""
        try:
            return str(self._call("check", self.key(path), "head_object")["ETag"])
        except ObjectNotFoundError:
            return None

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        prefix = f"{self.key(directory)}/" if directory else self._prefix
        arguments: dict[str, Any] = {"Prefix": prefix, "Delimiter": "/"}
        if start:
            # StartAfter is exclusive. The shortened name may admit additional names, which are filtered out below.
            arguments["StartAfter"] = prefix + start[:-1]
        found: list[FileMeta] = []
        pages = Pages(f"{self.url}/{directory}")
        while True:
            if limit is not None:
                arguments["MaxKeys"] = min(LIST_PAGE, max(limit - len(found), 0) + 2)
            page = self._call("list", prefix, "list_objects_v2", with_key=False, **arguments)
            listed = (
                FileMeta(
                    each["Key"][len(prefix) :],
                    each["Size"],
                    _whole_seconds_ms(each["LastModified"]),
                    each.get("ETag") or None,
                )
                for each in page.get("Contents", ())
            )
            found += [meta for meta in listed if meta.name and meta.name >= start and "/" not in meta.name]
            if not page.get("IsTruncated") or (limit is not None and len(found) >= limit):
                break
            arguments["ContinuationToken"] = self._following(pages, page)
        return sorted(found, key=lambda meta: meta.name)[:limit]

    def find_names(self, start: str, containing: str, *, most: int) -> list[str]:
        arguments: dict[str, Any] = {"Prefix": self._prefix + start}
        found: list[str] = []
        pages = Pages(f"{self.url}/{start}")
        for _ in range(0, most, LIST_PAGE):
            page = self._call("list", self._prefix, "list_objects_v2", with_key=False, **arguments)
            names = (each["Key"][len(self._prefix) :] for each in page.get("Contents", ()))
            found += [name for name in names if containing in name]
            if not page.get("IsTruncated"):
                break
            arguments["ContinuationToken"] = self._following(pages, page)
        return found

    def walk(self, enters: Callable[[str], bool]) -> Iterator[Entry]:
        yield from self._walk("", None)

    def walk_parts(self, enters: Callable[[str], bool], start: str = "", end: str | None = None) -> Iterator[WalkPart]:
        yield from in_parts(self._walk(start, end))

    def _walk(self, start: str, end: str | None) -> Iterator[Entry]:
        log_keys = f"{self._prefix}{LOG_DIRECTORY}/"
        arguments: dict[str, Any] = {"Prefix": self._prefix}
        if start:
            arguments["StartAfter"] = self._prefix + start[:-1]  # exclusive
        pages = Pages(self.url)
        while True:
            page = self._call("list", self._prefix, "list_objects_v2", with_key=False, **arguments)
            last = ""
            for each in page.get("Contents", ()):
                last = each["Key"]
                path = last[len(self._prefix) :]
                if end is not None and path >= end:
                    return
                if path >= start and not last.startswith(log_keys):
                    modified_ms = _whole_seconds_ms(each["LastModified"])
                    yield Entry(path, EntryKind.FILE, each["Size"], modified_ms)
            if not page.get("IsTruncated"):
                return
            token = self._following(pages, page)
            if last.startswith(log_keys):  # skip the rest of the log
                pages.begin_again()
                arguments = {"Prefix": self._prefix, "StartAfter": f"{log_keys[:-1]}{chr(ord('/') + 1)}"}
            else:
                arguments["ContinuationToken"] = token

    def _following(self, pages: Pages, page: Mapping[str, Any]) -> str:
        """The token of the page after ``page``. Raises StoreError if the listing makes no progress."""
        names = [each["Key"] for each in page.get("Contents", ())]
        names += [each["Prefix"] for each in page.get("CommonPrefixes", ())]
        try:
            return pages.following(page.get("NextContinuationToken"), names)
        except ValueError as error:
            raise StoreError(f"Cannot list {error}. Check the endpoint: it is not S3.", path=self._prefix) from None

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        return entries_by_head(self, paths, PARALLEL_GETS)

    def remove(self, entries: Sequence[Entry]) -> list[Entry]:
        """Cost: 1 DeleteObjects for each 1,000 files, one after the other. Throttled deletions are retried in smaller
        requests after a pause."""
        files = [entry for entry in entries if entry.kind is EntryKind.FILE]
        waiting = [self.key(entry.path) for entry in files]
        size, refusals = LIST_PAGE, 0
        while waiting:
            some = waiting[:size]
            refused = self._delete(some, is_last=refusals == _DELETE_ATTEMPTS - 1)
            waiting[:size] = refused
            if not refused:
                size, refusals = min(size + _MORE_DELETES, LIST_PAGE), 0
                continue
            refusals = refusals + 1 if len(refused) == len(some) else 1
            size = max(size // 2, _FEWEST_DELETES)
            log.info(
                "%s: S3 refused %d of %d deletions at this rate; a pause follows", self.url, len(refused), len(some)
            )
            _pause(random.uniform(0.5, 1) * min(_PAUSE_S * 2**refusals, _LONGEST_PAUSE_S))
        return files

    def _delete(self, keys: Sequence[str], is_last: bool) -> list[str]:
        """Send one DeleteObjects. Returns the keys whose deletion can be retried. Raises StoreError for other errors,
        and if ``is_last`` and no key was deleted."""
        named = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            done = self._client.call(self.bucket, "delete_objects", Delete=named)
        except Exception as error:
            if not is_last and status_of(error) in SLOW_STATUSES:
                return [*keys]
            raise self._failure("delete", self._prefix, error) from self._client.secrets.cause(error)
        refused: list[str] = []
        errors = done.get("Errors", ())
        are_all = is_last and len(errors) >= len(keys)
        for each in errors:
            key, code = each.get("Key", ""), self._client.secrets.without(str(each.get("Code", "")))
            if are_all or code not in _RETRYABLE_DELETE_CODES or key not in keys:
                raise StoreError(
                    f"Cannot delete {_SCHEMES[0]}://{self.bucket}/{key} ({code}). Check the permissions of the bucket; "
                    "the other objects of the request may be deleted.",
                    path=key,
                    service_code=code,
                )
            refused.append(key)
        return refused

    def open_input(self, path: str) -> Any:
        """Cost: 1 GET of the last 64 KiB, which contain most footers and all of a small file; then 1 GET for each
        read outside the cached bytes."""
        key = self.key(path)
        tail, head = self._read(key, f"bytes=-{TAIL_BYTES}", size_bytes=TAIL_BYTES)
        # The content range, such as "bytes 10-99/100"; if the header is missing, the server sent the whole object.
        size, etag = int(head.get("ContentRange", f"/{len(tail)}").rsplit("/", 1)[1]), head.get("ETag", "")
        where = f"{_SCHEMES[0]}://{self.bucket}/{key}"

        def read(start: int, end: int) -> bytes:
            return self._read(key, f"bytes={start}-{end - 1}", etag, end - start)[0]

        return RangeReader(where, tail, size, read)

    # ----------------------------------------------------------------------------------- keys and siblings

    def sibling(self, url: str) -> S3Store:
        if url.split("://", 1)[0] not in _SCHEMES:
            raise CallError(f"{url} is not on S3, where the table {self.url} is.")
        return S3Store(url, client=self._client)

    def key(self, path: str) -> str:
        """The key of an object in its bucket. Raises StoreError for a path that is not below the root."""
        # HTTP clients and proxies would resolve a dot segment, and the path could then leave the prefix.
        if not is_below_root(path):
            raise StoreError(f"{self.url}: {path!r} is not a path below the root.", path=path)
        key = self._prefix + path
        if len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
            shown = f"{key[:200]}…"
            raise StoreError(f"{self.url}: the key {shown!r} has more than {MAX_KEY_BYTES} bytes.", path=path)
        return key

    # ------------------------------------------------------------------------------------------- requests

    def _call(self, verb: str, key: str, method: str, *, with_key: bool = True, **arguments: Any) -> Any:
        named = {"Key": key} if with_key else {}
        try:
            return self._client.call(self.bucket, method, **named, **arguments)
        except Exception as error:
            raise self._failure(verb, key, error) from self._client.secrets.cause(error)

    def _read(
        self, key: str, byte_range: str = "", etag: str = "", size_bytes: int = 0
    ) -> tuple[bytes, Mapping[str, Any]]:
        try:
            return self._client.read(self.bucket, key, byte_range, etag, size_bytes)
        except Exception as error:
            if status_of(error) == 416:  # range not satisfiable, because the object is empty
                return b"", {}
            raise self._failure("read", key, error) from self._client.secrets.cause(error)

    def _failure(self, verb: str, key: str, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        where = f"{_SCHEMES[0]}://{self.bucket}/{key}"
        status, code = status_of(error), self._client.secrets.without(code_of(error))
        if status == 404 and code != "NoSuchBucket":
            return ObjectNotFoundError(f"Cannot {verb} {where}: there is no such object.", path=key)
        if status == 412:
            return StoreError(f"Cannot {verb} {where}: it was replaced while it was read. Read it again.", path=key)
        reason = self._client.secrets.reason(error).rstrip(". ")
        answer = "" if status is None else f" (HTTP {status} {code})"
        return StoreError(
            f"Cannot {verb} {where}{answer}: {reason}. Check the bucket, the credentials, the region and the endpoint.",
            path=key,
        )


def _pause(seconds: float) -> None:
    time.sleep(seconds)


def _check_early(check: Callable[[], object]) -> None:
    """Run a check in advance, before the commit needs its result. Errors of the check are ignored, because
    the commit repeats a check that failed and raises its error."""
    with contextlib.suppress(Exception):
        check()


class _Upload(io.BufferedIOBase):
    """A new object that is uploaded in parts while it is being written. ``finish`` makes it visible."""

    def __init__(self, store: S3Store, key: str) -> None:
        self._store = store
        self._client = store._client
        self._key = key
        self._buffer = bytearray()
        self._written = 0
        self._upload_id = ""
        self._sending: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
        self._parts: list[dict[str, Any]] = []

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._buffer += view
        self._written += len(view)
        while len(self._buffer) >= PART_BYTES:
            self._send_part(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]
        return len(view)

    def finish(self) -> None:
        self.close()
        if not self._upload_id:
            self._store._call("write", self._key, "put_object", Body=bytes(self._buffer))
            return
        if self._buffer:
            self._send_part(bytes(self._buffer))
        self._await_parts(0)
        parts = [{"PartNumber": number, "ETag": part["ETag"]} for number, part in enumerate(self._parts, 1)]
        self._call("complete_multipart_upload", MultipartUpload={"Parts": parts})

    def abort(self) -> None:
        """Abort the upload, and delete the object, which may exist if the response to ``finish`` was lost."""
        self.close()
        for part in self._sending:
            part.cancel()
        if self._upload_id:
            with contextlib.suppress(StoreError):
                self._call("abort_multipart_upload")
        with contextlib.suppress(StoreError):
            self._store._call("delete", self._key, "delete_object")

    def _send_part(self, data: bytes) -> None:
        if not self._upload_id:
            self._upload_id = self._store._call("write", self._key, "create_multipart_upload")["UploadId"]
        self._await_parts(_PARALLEL_PARTS - 1)
        number = len(self._parts) + len(self._sending) + 1
        arguments = {"Key": self._key, "UploadId": self._upload_id, "PartNumber": number, "Body": data}
        self._sending.append(self._client.start(self._store.bucket, "upload_part", **arguments))

    def _await_parts(self, left: int) -> None:
        while len(self._sending) > left:
            try:
                self._parts.append(self._sending.popleft().result())
            except Exception as error:
                raise self._store._failure("write", self._key, error) from self._client.secrets.cause(error)

    def _call(self, method: str, **arguments: Any) -> Any:
        return self._store._call("write", self._key, method, UploadId=self._upload_id, **arguments)


def _parse(url: str) -> tuple[str, str, str]:
    """The scheme, the bucket and the prefix of a URL. The parts of the URL are not percent-decoded, because keys may
    contain any character."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if scheme not in _SCHEMES or not bucket or set(bucket) & set("@:?#%\\ "):
        raise CallError(
            f"{scheme}:// needs a bucket, as in s3://bucket/prefix; credentials are options, not in the URL."
        )
    if prefix and not is_below_root(prefix):
        raise CallError(f"The location {url!r} has an empty or dotted segment, which HTTP does not preserve.")
    return scheme, bucket, prefix


def _whole_seconds_ms(time: datetime.datetime) -> int:
    """Truncate to seconds: HEAD returns whole seconds, some listings return milliseconds, and the two must agree."""
    return int(time.timestamp()) * 1000
