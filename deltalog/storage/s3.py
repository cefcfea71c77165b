"""S3, and stores that speak its protocol, through s3fs.

Exclusive creation is one PUT with ``If-None-Match: *``. What its answer leaves open is UNKNOWN; the commit loop
reads the object back.

Keys are given to S3 as bucket and key, never as a path that s3fs takes apart: it reads ``?versionId=`` in a name
as a version. Nothing is listed through its cache.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import datetime
import io
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

from deltalog.errors import CallError, ObjectNotFoundError, StoreError, UnsafeStoreError
from deltalog.spec.paths import log_path
from deltalog.storage.base import FileMeta, LogStore, PutOutcome
from deltalog.storage.s3_client import PARALLEL_GETS, S3Client, code_of, outcome_of, status_of

MAX_KEY_BYTES = 1024
PART_BYTES = 16 << 20
TAIL_BYTES = 64 << 10
READ_AHEAD_BYTES = 256 << 10
_PARALLEL_PARTS = 4
_SCHEMES = ("s3", "s3a")

log = logging.getLogger(__name__)


class S3Store(LogStore):
    """The objects of a bucket whose keys begin with a prefix: ``s3://bucket/prefix`` or ``s3a://bucket/prefix``.

    ``options`` are those of s3fs.S3FileSystem. Modification times are whole seconds, as S3 itself has them.
    Raises CallError for a location or an option that is not known. Cost: no request.
    """

    def __init__(self, url: str, *, client: S3Client | None = None, **options: Any) -> None:
        scheme, self.bucket, prefix = _parse(url)
        self.url = "/".join([f"{scheme}://{self.bucket}", *([prefix] if prefix else [])])
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = client or S3Client(options)

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    # --------------------------------------------------------------------------------------------- writing

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Cost: 1 PUT; before the first one to a bucket of another service than AWS 2 PUTs and 1 DELETE, to see
        whether it honours the condition. Raises UnsafeStoreError when it does not."""
        key = self._key(path)
        self._check_exclusive()
        return self._create(key, data)

    def _create(self, key: str, data: bytes) -> PutOutcome:
        try:
            self._client.run(self._client.create, self.bucket, key, data)
        except Exception as error:
            outcome = outcome_of(error)
            if outcome is None:
                raise self._failure("create", key, error) from self._client.cause(error)
            if outcome is PutOutcome.UNKNOWN:
                log.warning("%s: no telling whether %s was created: %s", self.url, key, self._client.reason(error))
            return outcome
        return PutOutcome.COMMITTED

    def _check_exclusive(self) -> None:
        key = self._key(log_path(f".probe-{uuid.uuid4()}"))
        try:
            if self._client.honours_conditions(self.bucket):
                return
        except Exception as error:
            raise self._failure("create", key, error) from self._client.cause(error)
        try:
            outcomes = [self._create(key, b"probe"), self._create(key, b"probe")]
        finally:
            with contextlib.suppress(StoreError):
                self._call("delete", key, "delete_object")
        if outcomes == [PutOutcome.COMMITTED, PutOutcome.COMMITTED]:
            raise UnsafeStoreError(
                f"{self.url}: this service ignores If-None-Match, so two writers could both commit one version. "
                "Nothing was committed; write through a service that honours it."
            )
        if outcomes != [PutOutcome.COMMITTED, PutOutcome.EXISTS]:
            raise StoreError(
                f"{self.url}: whether this service creates objects exclusively could not be seen "
                f"({outcomes[0].value}, {outcomes[1].value}). Nothing was committed; try again.",
                path=key,
            )
        self._client.exclusive_buckets.add(self.bucket)

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._call("write", self._key(path), "put_object", Body=data)

    def delete(self, path: str) -> None:
        self._call("delete", self._key(path), "delete_object")

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        """Cost: 1 PUT, or for more than 16 MiB 1 for each 16 MiB and 2 more."""
        upload = _Upload(self, self._key(path))
        try:
            yield cast(BinaryIO, upload)
            upload.finish()
        except BaseException:
            upload.abort()
            raise

    def sync(self, paths: list[str]) -> None:
        """S3 is durable when it answers."""

    # --------------------------------------------------------------------------------------------- reading

    def get(self, path: str, length: int | None = None) -> bytes:
        key = self._key(path)
        if length == 0:
            self._call("read", key, "head_object")
            return b""
        return self._read(key, "" if length is None else f"bytes=0-{length - 1}")[0][:length]

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        """Cost: 1 GET each, at most 32 at a time."""
        if length == 0:
            return [self.get(path, 0) for path in paths]
        byte_range = "" if length is None else f"bytes=0-{length - 1}"
        keys = [self._key(path) for path in paths]
        found: list[bytes] = [b""] * len(keys)
        waiting = iter(enumerate(keys))

        async def work() -> None:
            for number, key in waiting:
                try:
                    body, _ = await self._client.read(self.bucket, key, byte_range)
                    found[number] = body[:length]
                except Exception as error:
                    if status_of(error) == 416:  # no such bytes: the object is empty
                        continue
                    raise self._failure("read", key, error) from self._client.cause(error)

        async def work_together() -> None:
            workers = [asyncio.ensure_future(work()) for _ in range(min(PARALLEL_GETS, len(keys)))]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()

        self._client.run(work_together)
        return found

    def head(self, path: str) -> FileMeta | None:
        key = self._key(path)
        try:
            response = self._call("look at", key, "head_object")
        except ObjectNotFoundError:
            return None
        name = path.rsplit("/", 1)[-1]
        return FileMeta(name, response["ContentLength"], _whole_seconds_ms(response["LastModified"]))

    def list_from(self, directory: str, start: str = "", *, stat: bool = True) -> list[FileMeta]:
        prefix = f"{self._key(directory)}/" if directory else self._prefix
        arguments: dict[str, Any] = {"Prefix": prefix, "Delimiter": "/"}
        if start:
            # StartAfter leaves its own name out; all that the shortened name lets in besides is dropped below.
            arguments["StartAfter"] = prefix + start[:-1]
        found = []
        while True:
            page = self._call("list", prefix, "list_objects_v2", with_key=False, **arguments)
            found += [
                FileMeta(each["Key"][len(prefix) :], each["Size"], _whole_seconds_ms(each["LastModified"]))
                for each in page.get("Contents", ())
            ]
            if not page.get("IsTruncated"):
                break
            arguments["ContinuationToken"] = page["NextContinuationToken"]
        wanted = (meta for meta in found if meta.name and meta.name >= start and "/" not in meta.name)
        return sorted(wanted, key=lambda meta: meta.name)

    def open_input(self, path: str) -> Any:
        """Cost: 1 GET of the last 64 KiB, which holds most footers and small files whole; then 1 GET for each
        read outside what was read before."""
        return _RangeReader(self, self._key(path))

    # ---------------------------------------------------------------------------------------------- places

    def sibling(self, url: str) -> S3Store:
        if url.split("://", 1)[0] not in _SCHEMES:
            raise CallError(f"{url} is not on S3, where the table {self.url} is.")
        return S3Store(url, client=self._client)

    def _key(self, path: str) -> str:
        # A dot segment would be resolved on its way by HTTP clients and proxies, and leave the prefix.
        if any(segment in ("", ".", "..") for segment in path.split("/")):
            raise StoreError(f"{self.url}: {path!r} is no path below the root.", path=path)
        key = self._prefix + path
        if len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
            shown = f"{key[:200]}…"
            raise StoreError(f"{self.url}: the key {shown!r} has more than {MAX_KEY_BYTES} bytes.", path=path)
        return key

    # ------------------------------------------------------------------------------------------- requests

    def _call(self, verb: str, key: str, method: str, *, with_key: bool = True, **arguments: Any) -> Any:
        named = {"Key": key} if with_key else {}
        try:
            return self._client.run(self._client.call, method, Bucket=self.bucket, **named, **arguments)
        except Exception as error:
            raise self._failure(verb, key, error) from self._client.cause(error)

    def _read(self, key: str, byte_range: str = "", etag: str = "") -> tuple[bytes, Mapping[str, Any]]:
        try:
            return self._client.run(self._client.read, self.bucket, key, byte_range, etag)
        except Exception as error:
            if status_of(error) == 416:  # no such bytes: the object is empty
                return b"", {}
            raise self._failure("read", key, error) from self._client.cause(error)

    def _failure(self, verb: str, key: str, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        where = f"{_SCHEMES[0]}://{self.bucket}/{key}"
        status, code = status_of(error), self._client.without_secrets(code_of(error))
        if status == 404 and code != "NoSuchBucket":
            return ObjectNotFoundError(f"Cannot {verb} {where}: there is no such object.", path=key)
        if status == 412:
            return StoreError(f"Cannot {verb} {where}: it was replaced while it was read. Read it again.", path=key)
        reason = self._client.reason(error)
        answer = "" if status is None else f" (HTTP {status} {code})"
        return StoreError(
            f"Cannot {verb} {where}{answer}: {reason} Check the bucket, the credentials, the region and the endpoint.",
            path=key,
        )


class _RangeReader(io.RawIOBase):
    """An object as a seekable file. The tail and the last block that was read ahead are kept."""

    def __init__(self, store: S3Store, key: str) -> None:
        self._store = store
        self._key = key
        self._position = 0
        self._tail, head = store._read(key, f"bytes=-{TAIL_BYTES}")
        # "bytes 10-99/100"; without it the server sent everything.
        self._size = int(head.get("ContentRange", f"/{len(self._tail)}").rsplit("/", 1)[1])
        self._etag = head.get("ETag", "")
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
            data, _ = self._store._read(self._key, f"bytes={start}-{wanted - 1}", self._etag)
            if len(data) != wanted - start:
                raise StoreError(f"{self._store.url}: {self._key} ended at {start + len(data)}.", path=self._key)
            if wanted == end:
                return data
            self._block, self._block_start = data, start
        return self._block[start - self._block_start : end - self._block_start]


class _Upload(io.BufferedIOBase):
    """A new object, sent in parts while it is written; it is there after ``finish`` and not before."""

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
        """Leave nothing. An answer that got lost may hide that the object is there, so it is deleted too."""
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
        arguments = {"Bucket": self._store.bucket, "Key": self._key, "UploadId": self._upload_id}
        self._sending.append(
            self._client.start(self._client.call("upload_part", PartNumber=number, Body=data, **arguments))
        )

    def _await_parts(self, left: int) -> None:
        while len(self._sending) > left:
            try:
                self._parts.append(self._sending.popleft().result())
            except Exception as error:
                raise self._store._failure("write", self._key, error) from self._client.cause(error)

    def _call(self, method: str, **arguments: Any) -> Any:
        return self._store._call("write", self._key, method, UploadId=self._upload_id, **arguments)


def _parse(url: str) -> tuple[str, str, str]:
    """Scheme, bucket and prefix. Nothing is decoded: a key may hold any character."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if scheme not in _SCHEMES or not bucket or set(bucket) & set("@:?#%\\ "):
        raise CallError(
            f"{scheme}:// needs a bucket, as in s3://bucket/prefix; credentials are options, not in the URL."
        )
    if prefix and any(segment in ("", ".", "..") for segment in prefix.split("/")):
        raise CallError(f"The location {url!r} has an empty or dotted segment, which HTTP does not keep.")
    return scheme, bucket, prefix


def _whole_seconds_ms(time: datetime.datetime) -> int:
    """HEAD has whole seconds everywhere; some services list milliseconds, and one object must have one time."""
    return int(time.timestamp()) * 1000
