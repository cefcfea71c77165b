"""Requests to S3, and the meaning of their errors.

This module routes each request. Single objects and listings are requested directly (``direct_transport``) where
``settings`` allows it. The rest goes through s3fs and botocore (``botocore_transport``), which are loaded when they are
needed: other options, multipart uploads, deletions of many objects, buckets in another region.
"""

from __future__ import annotations

import _thread
import concurrent.futures
import logging
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltalog.errors import CallError
from deltalog.storage.base import PutOutcome
from deltalog.storage.exclusive import check_answer, is_verified, place_of
from deltalog.storage.remote import PARALLEL_GETS, outcome_of_status
from deltalog.storage.request_limit import SLOW_STATUSES, RequestLimit
from deltalog.storage.s3.connections import NoAnswerError, NotConnectedError, Stop
from deltalog.storage.s3.direct_transport import DirectS3, LeftToBotocore, understands
from deltalog.storage.s3.settings import settings_of
from deltalog.storage.secrets import Secrets, check_credentials, check_dictionaries, check_endpoint

if TYPE_CHECKING:
    from deltalog.storage.s3.botocore_transport import BotocoreS3

# Without it a server that takes a body, or sends an answer, byte by byte would block the caller without limit.
REQUEST_SECONDS = 60
_SLOWEST_BYTES_PER_SECOND = 1 << 20

log = logging.getLogger(__name__)

Failed = Callable[[str, Exception], None]


class S3Client:
    """Connections with one set of options, shared by the stores of one table and of its allowed places."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        options = dict(options)
        self._is_exclusive = check_answer(options.pop("exclusive_create", False))
        check_dictionaries(options)
        check_credentials(options)
        self._settings = settings_of(options)
        self._options = options
        self.limit = RequestLimit()
        self._botocore: BotocoreS3 | None = None
        if self._settings is None:
            self._check_names()
        for endpoint in (options.get("endpoint_url"), (options.get("client_kwargs") or {}).get("endpoint_url")):
            check_endpoint(endpoint)
        self.secrets = Secrets(options)
        self._directs: dict[str, DirectS3 | None] = {}  # by bucket, as the next one
        self._places: dict[str, str | None] = {}

    def _check_names(self) -> None:
        from deltalog.storage.s3.botocore_transport import known_options

        unknown = sorted(set(self._options) - known_options())
        if unknown:
            raise CallError(
                f"Unknown storage options {unknown}. S3 takes {sorted({*known_options(), 'exclusive_create'})}."
            )

    def call(self, method: str, *, Bucket: str, **arguments: Any) -> Any:
        """A request that may be repeated, by botocore's name of it and with its arguments."""
        direct = self._direct(Bucket) if understands(method, arguments) else None
        if direct is not None:
            try:
                return direct.call(method, _limit_seconds, **arguments)
            except LeftToBotocore as reason:
                self._leave(Bucket, reason)
        return self._through_botocore().call(method, Bucket=Bucket, **arguments)

    def start(self, method: str, **arguments: Any) -> concurrent.futures.Future[Any]:
        """As ``call``, without waiting for it."""
        return self._through_botocore().start(method, **arguments)

    def read(
        self, bucket: str, key: str, byte_range: str = "", etag: str = "", size_bytes: int = 0, stop: Stop | None = None
    ) -> tuple[bytes, Mapping[str, Any]]:
        """An object or a range of it, and ``ContentRange`` and ``ETag`` of the response. A download that is cut off is
        repeated. It waits while this client has too many reads under way. ``size_bytes``: the length of the range."""
        direct = self._direct(bucket)
        if direct is not None:
            try:
                with self.limit.request(size_bytes, _is_slow) as turn:
                    return direct.read(key, byte_range, etag, _limit_seconds(b""), turn, stop)
            except LeftToBotocore as reason:
                self._leave(bucket, reason)
        return self._through_botocore().read(_is_slow, bucket, key, byte_range, etag, size_bytes)

    def read_many(
        self, bucket: str, keys: Sequence[str], byte_range: str, size_bytes: int, failed: Failed
    ) -> list[bytes]:
        """As ``read`` of several objects, 32 at a time. ``failed`` raises, or accepts an error: then the object counts
        as empty. If the caller is interrupted, or one of them fails, those under way end, and no other begins."""
        found: list[bytes] = [b""] * len(keys)
        if self._direct(bucket) is None:
            self._through_botocore().read_many(
                _is_slow, bucket, keys, byte_range, size_bytes, found.__setitem__, failed
            )
            return found
        waiting, lock, stop = iter(enumerate(keys)), threading.Lock(), Stop()

        def work() -> None:
            while not stop.is_set:
                with lock:
                    number, key = next(waiting, (-1, ""))
                if number < 0:
                    return
                try:
                    found[number] = self.read(bucket, key, byte_range, "", size_bytes, stop)[0]
                except Exception as error:
                    if not stop.is_set:
                        failed(key, error)

        _side_by_side(work, min(PARALLEL_GETS, len(keys)), stop)
        return found

    def put_once(
        self, bucket: str, key: str, data: bytes, conditions: Mapping[str, str], seconds: float | None = None
    ) -> None:
        """One PUT, sent once, with a time limit of ``seconds``, which includes the search for credentials."""
        limit = _limit_seconds(data) if seconds is None else min(seconds, _limit_seconds(data))
        ends = time.monotonic() + limit
        direct = self._direct(bucket) if understands("put_object", {"Body": data}) else None
        if direct is not None:
            try:
                direct.put_once(key, data, conditions, limit)
                return
            except LeftToBotocore as reason:  # it had no effect
                self._leave(bucket, reason)
        self._through_botocore().put_once(bucket, key, data, conditions, ends - time.monotonic())

    def unverified_place(self, bucket: str) -> str | None:
        """Where exclusive creation is to be verified; None if it is known to work there: on AWS, if the options say so,
        and if it was verified in this process. Cost: no request."""
        if self._is_exclusive:
            return None
        if bucket not in self._places:
            direct = self._direct(bucket)
            endpoint = self._through_botocore().endpoint() if direct is None else direct.endpoint
            host = urllib.parse.urlsplit(endpoint).hostname or ""
            is_aws = host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
            self._places[bucket] = None if is_aws else place_of("s3", endpoint, bucket, options=self._options)
        place = self._places[bucket]
        return None if place is None or is_verified(place) else place

    def outcome_of(self, error: BaseException) -> PutOutcome | None:
        """How a conditional PUT that was sent once ended, from the error it raised; None when it had no effect."""
        status = status_of(error)
        if status is not None:
            return outcome_of_status(status)
        if isinstance(error, NotConnectedError):
            return None
        if isinstance(error, NoAnswerError) or self._botocore is None:
            return PutOutcome.UNKNOWN
        from deltalog.storage.s3.botocore_transport import may_have_landed

        return PutOutcome.UNKNOWN if may_have_landed(error) else None

    def _direct(self, bucket: str) -> DirectS3 | None:
        if bucket not in self._directs:
            try:
                self._directs[bucket] = None if self._settings is None else DirectS3(self._settings, bucket)
            except LeftToBotocore:
                self._directs[bucket] = None
        return self._directs[bucket]

    def _leave(self, bucket: str, reason: LeftToBotocore) -> None:
        until = "for this request" if reason.is_passing else "from now on"
        log.info("s3://%s is accessed through botocore %s: %s", bucket, until, self.secrets.without(str(reason)))
        if not reason.is_passing:
            self._directs[bucket] = None

    def _through_botocore(self) -> BotocoreS3:
        if self._botocore is None:
            from deltalog.storage.s3.botocore_transport import BotocoreS3

            self._botocore = BotocoreS3(self._options, self.limit, _limit_seconds)
        return self._botocore


def _side_by_side(work: Callable[[], None], count: int, stop: Stop) -> None:
    """Call ``work`` in this thread and in ``count`` - 1 others, which have ended when this returns or raises. The first
    error stops all.

    threading.Thread waits for each thread to begin, which on a busy machine takes longer than the requests.
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
    except RuntimeError:  # no more threads: those that there are do the work
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


def _limit_seconds(body: bytes) -> float:
    return REQUEST_SECONDS + len(body) / _SLOWEST_BYTES_PER_SECOND


def _is_slow(error: Exception) -> bool:
    return status_of(error) in SLOW_STATUSES


def status_of(error: BaseException) -> int | None:
    """The HTTP status of a response. s3fs turns it into various Python errors, and keeps it in their cause."""
    response = _response_of(error)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def code_of(error: BaseException) -> str:
    return str(_response_of(error).get("Error", {}).get("Code", ""))


def _response_of(error: BaseException) -> Mapping[str, Any]:
    for each in (error, error.__cause__):
        response = getattr(each, "response", None)
        if isinstance(response, Mapping):
            return response
    return {}
