"""Sends requests to S3 without a botocore client: botocore's signer signs them, and urllib3 sends them.

A botocore client needs two milliseconds of CPU time per request, and half a second to load. This module implements
requests for single objects and for listings, with the same names, arguments and results as botocore. If this module
cannot handle a response, such as one from a bucket in another region, it raises ``LeftToBotocore``.
"""

from __future__ import annotations

import _thread
import base64
import codecs
import contextlib
import dataclasses
import datetime
import email.utils
import hashlib
import itertools
import random
import threading
import time
import urllib.parse
import xml.etree.ElementTree as xml
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from deltalog.storage.remote import PARALLEL_GETS
from deltalog.storage.request_limit import SLOW_STATUSES, RequestLimit, Turn
from deltalog.storage.s3.connections import (
    IDLE_SECONDS,
    JUST_USED_SECONDS,
    Answer,
    Limits,
    NoAnswerError,
    NotConnectedError,
    Stop,
    connections_to,
)
from deltalog.storage.s3.credentials import READING, CredentialsNotFoundError, CredentialSource, hidden_by
from deltalog.storage.s3.settings import Settings
from deltalog.storage.s3.signing import UNSIGNED_BODY, Credentials, encoded_path, encoded_query, signed
from deltalog.storage.s3.transport import (
    Failed,
    LeftToBotocore,
    Transport,
    is_sent_at_once,
    is_slow,
    limit_seconds,
)
from deltalog.storage.secrets import Secrets
from deltalog.version import VERSION

METHODS = frozenset({"head_object", "list_objects_v2", "put_object", "delete_object"})
_ARGUMENTS = frozenset({"Key", "Body", "Prefix", "Delimiter", "StartAfter", "MaxKeys", "ContinuationToken"})
_USER_AGENT = f"deltalog/{VERSION}"
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.1, 5.0
_TRANSIENT_STATUSES = {408, 429, 500, 502, 503, 504}
_TRANSIENT_CODES = {"RequestTimeout", "SlowDown", "InternalError"}
# Error codes of requests that had no effect and are retried through botocore.
_BOTOCORE_CODES = {"AuthorizationHeaderMalformed", "InvalidRequest", "SignatureDoesNotMatch"}
_REDIRECT_STATUSES = {301, 302, 303, 307, 308}
# Error codes of requests that had no effect and are retried with renewed credentials.
_INVALID_CREDENTIALS_CODES = {
    *("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"),
    *("InvalidToken", "InvalidTokenId", "InvalidAccessKeyId"),
}
# The same for a HEAD. The response to a HEAD has no body with an error code, and its status can also have other causes
# than invalid credentials.
_MAYBE_INVALID_CREDENTIALS_CODES = {"400", "403"}

T = TypeVar("T")


class RefusedError(Exception):
    """An error response. ``response`` has the structure of botocore's errors."""

    def __init__(self, method: str, answer: Answer, credentials: Credentials | None) -> None:
        secrets = Secrets(hidden_by(credentials))
        code, message = map(secrets.without, _error_of(answer))
        super().__init__(f"{method} was answered by HTTP {answer.status} {code}{f': {message}' if message else ''}")
        self.answer = answer
        self.code = code
        self.response = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": answer.status, "HTTPHeaders": dict(answer.headers)},
        }


class _IncompleteError(Exception):
    """The body of a response does not match its headers."""


class DirectTransport(Transport):
    """A transport that signs and sends requests itself. ``limit``: the limit on concurrent reads."""

    def __init__(self, settings: Settings, bucket: str, limit: RequestLimit) -> None:
        place = settings.place(bucket)
        if place is None:
            raise LeftToBotocore(bucket)
        self._settings = settings
        self._limit = limit
        origin, self._root = place
        self._host = origin.address
        self._endpoint = f"{origin.scheme}://{origin.address}"
        self._is_encrypted = origin.scheme == "https"
        self._connections = connections_to(origin)

    @property
    def endpoint(self) -> str:
        return self._endpoint

    def takes(self, method: str, arguments: Mapping[str, Any]) -> bool:
        is_known = method in METHODS and not arguments.keys() - _ARGUMENTS
        return is_known and is_sent_at_once(len(arguments.get("Body", b"")))

    def call(self, method: str, **arguments: Any) -> Any:
        key, body = arguments.get("Key"), arguments.get("Body", b"")
        limits = self._limits(limit_seconds(body))
        if method == "list_objects_v2":
            return self._send_with_retries("GET", None, limits, _listing, query=_listing_query(arguments))
        if method == "head_object":
            return self._send_with_retries("HEAD", key, limits, _head)
        if method == "put_object":
            return self._send_with_retries("PUT", key, limits, _no_result, body=body)
        return self._send_with_retries("DELETE", key, limits, _no_result)

    def read(
        self, key: str, byte_range: str = "", etag: str = "", size_bytes: int = 0
    ) -> tuple[bytes, Mapping[str, Any]]:
        return self._read(key, byte_range, etag, size_bytes, None)

    def read_many(self, keys: Sequence[str], byte_range: str, size_bytes: int, failed: Failed) -> list[bytes]:
        waiting, lock, stop, found = iter(enumerate(keys)), threading.Lock(), Stop(), [b""] * len(keys)

        def work() -> None:
            while not stop.is_set:
                with lock:
                    number, key = next(waiting, (-1, ""))
                if number < 0:
                    return
                try:
                    found[number], _ = self._read(key, byte_range, "", size_bytes, stop)
                except LeftToBotocore:
                    raise
                except Exception as error:
                    if not stop.is_set:
                        failed(key, error)

        _run_concurrently(work, min(PARALLEL_GETS, len(keys)), stop)
        return found

    def _read(
        self, key: str, byte_range: str, etag: str, size_bytes: int, stop: Stop | None
    ) -> tuple[bytes, Mapping[str, Any]]:
        headers = {k: v for k, v in (("range", byte_range), ("if-match", etag)) if v}
        if not byte_range:
            headers["x-amz-checksum-mode"] = "ENABLED"
        limits = self._limits(limit_seconds())
        with self._limit.request(size_bytes, is_slow) as turn:
            answer = self._send_with_retries("GET", key, limits, _verified, headers=headers, turn=turn, stop=stop)
        named = {"ContentRange": "content-range", "ETag": "etag"}
        return answer.body, {k: answer.headers[v] for k, v in named.items() if v in answer.headers}

    def _send_once(self, key: str, data: bytes, conditions: Mapping[str, str], seconds: float) -> None:
        """See Transport. The PUT is sent again only if the service rejected its credentials as no longer valid. Raises
        RefusedError, NotConnectedError and NoAnswerError."""
        names = {"IfNoneMatch": "if-none-match", "IfMatch": "if-match"}
        headers = {names[name]: value for name, value in conditions.items()}
        self._send_authenticated("PUT", key, self._limits(seconds), headers=headers, body=data, may_repeat=False)

    def _may_have_landed(self, error: Exception) -> bool:
        return not isinstance(error, NotConnectedError)

    def _limits(self, whole_s: float) -> Limits:
        return Limits(self._settings.limits.connect, self._settings.limits.read, whole_s)

    def _send_with_retries(
        self,
        method: str,
        key: str | None,
        limits: Limits,
        understand: Callable[[Answer], T],
        *,
        stop: Stop | None = None,
        **request: Any,
    ) -> T:
        stop = stop or Stop()
        for number in itertools.count():
            try:
                return understand(self._send_authenticated(method, key, limits, stop=stop, **request))
            except (NotConnectedError, NoAnswerError, RefusedError, _IncompleteError) as error:
                is_slow = isinstance(error, RefusedError) and error.answer.status in SLOW_STATUSES
                most = self._settings.slow_attempts if is_slow else self._settings.attempts
                if stop.is_set or number + 1 >= most or not _is_transient(error):
                    raise
            stop.wait(min(_FIRST_WAIT_SECONDS * 2**number, _LONGEST_WAIT_SECONDS) * random.uniform(0.5, 1))
        raise AssertionError("unreachable")

    def _send_authenticated(self, method: str, key: str | None, limits: Limits, **request: Any) -> Answer:
        """Send a request once. If the service rejects the credentials as no longer valid, the request is sent once more
        with renewed credentials; this is safe, because the rejected request had no effect."""
        ends = time.monotonic() + limits.whole
        source = self._settings.credentials
        if not isinstance(source, CredentialSource):
            return self._send_request(method, key, limits, source, **request)
        writes = method not in READING
        try:
            credentials = source.current(writes=writes)
            try:
                return self._send_request(method, key, _limits_until(ends, limits), credentials, **request)
            except RefusedError as error:
                if (
                    error.answer.status not in (400, 403)
                    or error.code not in _INVALID_CREDENTIALS_CODES | _MAYBE_INVALID_CREDENTIALS_CODES
                ):
                    raise
                refused = error
            is_other = source.renew(credentials, is_certain=refused.code in _INVALID_CREDENTIALS_CODES)
            credentials = source.current(writes=writes)
        except CredentialsNotFoundError as error:
            if not source.is_botocore:
                raise
            raise LeftToBotocore(str(error), is_passing=error.is_passing) from None
        if not is_other or time.monotonic() >= ends:
            raise refused
        return self._send_request(method, key, _limits_until(ends, limits), credentials, **request)

    def _send_request(
        self,
        method: str,
        key: str | None,
        limits: Limits,
        credentials: Credentials | None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        turn: Turn | None = None,
        stop: Stop | None = None,
        may_repeat: bool = True,
    ) -> Answer:
        path = f"{self._root}/{key}" if key is not None else self._root or "/"
        path, query_text = encoded_path(path), encoded_query(query or {})
        target = f"{path}?{query_text}" if query_text else path
        full = self._signed(method, target, {"host": self._host, **(headers or {})}, body, credentials)

        def send(idle_s: float) -> Answer:
            sent = {**full, "user-agent": _USER_AGENT}  # not signed, because proxies may change this header
            return self._connections.exchange(method, target, sent, body, limits, most_idle_s=idle_s, stop=stop)

        try:
            answer = send(IDLE_SECONDS if may_repeat else JUST_USED_SECONDS)
        except NoAnswerError as error:
            if not may_repeat or not error.was_kept:
                raise
            answer = send(-1)  # on a new connection, because the server had closed the idle one
        if turn is not None and answer.status in SLOW_STATUSES:
            turn.slow_down()
        if answer.status >= 300:
            refused = RefusedError(method, answer, credentials)
            if self._needs_botocore(refused):
                raise LeftToBotocore(str(refused)) from refused
            raise refused
        return answer

    def _signed(
        self, method: str, target: str, headers: dict[str, str], body: bytes, credentials: Credentials | None
    ) -> Mapping[str, str]:
        if method == "PUT":
            headers["x-amz-checksum-crc32"] = _crc32(body)
        if credentials is None:
            return headers
        body_hash = UNSIGNED_BODY if body and self._is_encrypted else hashlib.sha256(body).hexdigest()
        return signed(method, f"{self._endpoint}{target}", headers, body_hash, credentials, self._settings.region)

    def _needs_botocore(self, error: RefusedError) -> bool:
        if error.answer.status in _REDIRECT_STATUSES:
            return True
        region = error.answer.headers.get("x-amz-bucket-region", self._settings.region)
        return error.answer.status in (400, 403) and (region != self._settings.region or error.code in _BOTOCORE_CODES)


def _run_concurrently(work: Callable[[], None], count: int, stop: Stop) -> None:
    """Call ``work`` in this thread and in ``count`` - 1 other threads; all these threads have ended when this function
    returns or raises. The first error stops all threads.

    This function does not use threading.Thread, because that class waits for each thread to start, which on a busy
    machine takes longer than the requests.
    """
    ended, errors = threading.Semaphore(0), list[BaseException]()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
            stop.set()
        finally:
            ended.release()

    started = 0
    try:
        for _ in range(count - 1):
            _thread.start_new_thread(run, ())
            started += 1
    except RuntimeError:  # no more threads can be started; the existing threads do the work
        pass
    except BaseException:
        stop.set()
        raise
    finally:
        run()
        for _ in range(started + 1):
            ended.acquire()
    if errors:
        raise errors[0]


def _limits_until(ends_s: float, limits: Limits) -> Limits:
    """``limits`` with the time that is left after resolving credentials. Raises NotConnectedError if there is none."""
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise NotConnectedError("the time limit passed while credentials were looked for")
    return dataclasses.replace(limits, whole=left_s)


def _is_transient(error: Exception) -> bool:
    if not isinstance(error, RefusedError):
        return True
    return error.answer.status in _TRANSIENT_STATUSES or error.code in _TRANSIENT_CODES


def _crc32(body: bytes) -> str:
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


def _no_result(answer: Answer) -> dict[str, Any]:
    return {}


def _verified(answer: Answer) -> Answer:
    """Raises _IncompleteError if the length of a range, or the checksum of the object, does not match the headers."""
    size = len(answer.body)
    if answer.status == 206:
        span = answer.headers.get("content-range", "").partition("bytes ")[2].partition("/")[0]
        first, dash, last = span.partition("-")
        if dash and first.isdigit() and last.isdigit() and size != int(last) - int(first) + 1:
            raise _IncompleteError(f"{size} bytes arrived of {span}")
        return answer
    announced = answer.headers.get("x-amz-checksum-crc32", "")
    # The checksum of a multipart upload has the form "<checksum of the parts' checksums>-<number of parts>".
    if announced and "-" not in announced and announced != _crc32(answer.body):
        raise _IncompleteError(f"the {size} bytes that arrived do not have the object's checksum")
    return answer


def _parsed(body: bytes) -> xml.Element:
    """An XML response. A document type is refused, since its entities could make a small response large. S3 sends
    UTF-8, and in UTF-16 a document type would look different. Raises ParseError."""
    if b"<!DOCTYPE" in body or body[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in body:
        raise xml.ParseError("it has a document type, or is not in UTF-8")
    return xml.fromstring(body)


def _error_of(answer: Answer) -> tuple[str, str]:
    """Code and message of an error response. If the response has no body (HEAD), the status is used as the code, as in
    botocore."""
    with contextlib.suppress(xml.ParseError):
        root = _parsed(answer.body)
        found = {_local(each.tag): each.text or "" for each in root.iter()}
        if "Code" in found:
            return found["Code"], found.get("Message", "")
    return str(answer.status), ""


def _head(answer: Answer) -> dict[str, Any]:
    try:
        return {
            "ContentLength": int(answer.headers["content-length"]),
            "LastModified": email.utils.parsedate_to_datetime(answer.headers["last-modified"]),
            "ETag": answer.headers.get("etag", ""),
        }
    except (KeyError, ValueError) as error:
        raise _IncompleteError(f"the answer to HEAD is not complete ({type(error).__name__}: {error})") from error


def _listing_query(arguments: Mapping[str, Any]) -> dict[str, str]:
    names = {
        "Prefix": "prefix",
        "Delimiter": "delimiter",
        "StartAfter": "start-after",
        "MaxKeys": "max-keys",
        "ContinuationToken": "continuation-token",
    }
    given = {names[name]: str(value) for name, value in arguments.items() if name in names}
    # encoding-type: XML cannot represent every key, so keys are percent-encoded in the response.
    return {"list-type": "2", "encoding-type": "url", **given}


def _listing(answer: Answer) -> dict[str, Any]:
    try:
        root = _parsed(answer.body)
        is_escaped = any(_local(each.tag) == "EncodingType" and each.text == "url" for each in root)
        found = {_local(each.tag): each.text or "" for each in root}
        return {
            "Contents": list(_contents(root, is_escaped)),
            "IsTruncated": found["IsTruncated"] == "true",
            "NextContinuationToken": found.get("NextContinuationToken", ""),
        }
    except (xml.ParseError, KeyError, ValueError) as error:
        raise _IncompleteError(f"the answer is no listing ({type(error).__name__}: {error})") from error


def _contents(root: xml.Element, is_escaped: bool) -> Iterator[dict[str, Any]]:
    for each in root:
        if _local(each.tag) != "Contents":
            continue
        fields = {_local(field.tag): field.text or "" for field in each}
        key = urllib.parse.unquote_plus(fields["Key"]) if is_escaped else fields["Key"]
        listed = {"Key": key, "Size": int(fields["Size"]), "LastModified": _time(fields["LastModified"])}
        yield {**listed, "ETag": fields.get("ETag", "")}


def _time(text: str) -> datetime.datetime:
    if text.endswith("Z"):  # fractions are not needed
        return datetime.datetime.fromisoformat(text[:19]).replace(tzinfo=datetime.timezone.utc)
    return datetime.datetime.fromisoformat(text)


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]
