"""Sends each request to S3 through one of two transports.

The direct transport is used if ``settings`` allows it and the transport supports the request. All other requests, such
as multipart uploads, deletions of many objects, and requests with other options or to buckets in another region, go
through s3fs and botocore, which are loaded on demand.
"""

from __future__ import annotations

import concurrent.futures
import logging
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from deltalog.errors import CallError
from deltalog.storage.base import PutOutcome
from deltalog.storage.exclusive import check_answer, is_verified, place_of
from deltalog.storage.option_names import S3_NAMES
from deltalog.storage.request_limit import RequestLimit
from deltalog.storage.s3.credentials import CredentialSource
from deltalog.storage.s3.direct_transport import DirectTransport
from deltalog.storage.s3.settings import settings_of
from deltalog.storage.s3.transport import Failed, LeftToBotocore, Transport, limit_seconds
from deltalog.storage.secrets import Secrets, check_credentials, check_dictionaries, check_endpoint

if TYPE_CHECKING:
    from deltalog.storage.s3.botocore_transport import BotocoreConnections, BotocoreTransport

T = TypeVar("T")

log = logging.getLogger(__name__)


class S3Client:
    """Connections with one set of options, shared by the stores of a table and of its allowed locations. ``source``:
    the option ``credentials``."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        options = dict(options)
        self._is_exclusive = check_answer(options.pop("exclusive_create", False))
        check_dictionaries(options)
        check_credentials(options)
        self.source = _source_of(options)
        self._settings = settings_of(options)
        self._options = options
        self.limit = RequestLimit()
        self._connections: BotocoreConnections | None = None
        if self._settings is None:
            self._check_names()
        for endpoint in (options.get("endpoint_url"), (options.get("client_kwargs") or {}).get("endpoint_url")):
            check_endpoint(endpoint)
        self.secrets = Secrets(options)
        self._directs: dict[str, DirectTransport | None] = {}  # by bucket, as _places
        self._places: dict[str, str | None] = {}

    def _check_names(self) -> None:
        from deltalog.storage.s3.botocore_transport import known_options

        unknown = sorted(set(self._options) - known_options() - {"credentials"})
        if unknown:
            raise CallError(
                f"Unknown storage options {unknown}. S3 takes object_store's names ({', '.join(S3_NAMES)}), also "
                f"without AWS_ and in lower case, and those of s3fs: {sorted({*known_options(), 'exclusive_create'})}."
            )

    # ----------------------------------------------------------------------- requests, as Transport describes them

    def call(self, bucket: str, method: str, **arguments: Any) -> Any:
        def send(transport: Transport) -> Any:
            return transport.call(method, **arguments)

        return self._dispatch(bucket, send, lambda direct: direct.takes(method, arguments))

    def start(self, bucket: str, method: str, **arguments: Any) -> concurrent.futures.Future[Any]:
        """Like ``call``, but does not wait for the response."""
        return self._through_botocore(bucket).start(method, **arguments)

    def read(
        self, bucket: str, key: str, byte_range: str = "", etag: str = "", size_bytes: int = 0
    ) -> tuple[bytes, Mapping[str, Any]]:
        return self._dispatch(bucket, lambda transport: transport.read(key, byte_range, etag, size_bytes))

    def read_many(
        self, bucket: str, keys: Sequence[str], byte_range: str, size_bytes: int, failed: Failed
    ) -> list[bytes]:
        return self._dispatch(bucket, lambda transport: transport.read_many(keys, byte_range, size_bytes, failed))

    def put_once(
        self, bucket: str, key: str, data: bytes, conditions: Mapping[str, str], seconds: float | None = None
    ) -> tuple[PutOutcome, Exception | None]:
        """``seconds``: the time limit, including the resolution of credentials."""
        limit = limit_seconds(data) if seconds is None else min(seconds, limit_seconds(data))
        ends = time.monotonic() + limit

        def send(transport: Transport) -> tuple[PutOutcome, Exception | None]:
            return transport.put_once(key, data, conditions, ends - time.monotonic())

        return self._dispatch(bucket, send, lambda direct: direct.takes("put_object", {"Body": data}))

    def unverified_place(self, bucket: str) -> str | None:
        """The key under which exclusive creation must be verified (see ``place_of``). None if exclusive creation is
        known to work: on AWS, if the options assert it, or if it was verified in this process. Cost: no request."""
        if self._is_exclusive:
            return None
        if bucket not in self._places:
            endpoint = (self._direct(bucket) or self._through_botocore(bucket)).endpoint
            host = urllib.parse.urlsplit(endpoint).hostname or ""
            is_aws = host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
            self._places[bucket] = None if is_aws else place_of("s3", endpoint, bucket, options=self._options)
        place = self._places[bucket]
        return None if place is None or is_verified(place) else place

    # ---------------------------------------------------------------------------------------- choosing a transport

    def _dispatch(
        self,
        bucket: str,
        send: Callable[[Transport], T],
        takes: Callable[[DirectTransport], bool] = lambda direct: True,
    ) -> T:
        """Call ``send`` with the direct transport if ``takes`` accepts it, otherwise with the transport through
        botocore."""
        direct = self._direct(bucket)
        if direct is not None and takes(direct):
            try:
                return send(direct)
            except LeftToBotocore as reason:  # the request had no effect
                self._leave_to_botocore(bucket, reason)
        return send(self._through_botocore(bucket))

    def _direct(self, bucket: str) -> DirectTransport | None:
        if bucket not in self._directs:
            try:
                direct = None if self._settings is None else DirectTransport(self._settings, bucket, self.limit)
            except LeftToBotocore:
                direct = None
            self._directs[bucket] = direct
        return self._directs[bucket]

    def _leave_to_botocore(self, bucket: str, reason: LeftToBotocore) -> None:
        until = "for this request" if reason.is_passing else "from now on"
        log.info("s3://%s is accessed through botocore %s: %s", bucket, until, self.secrets.without(str(reason)))
        if not reason.is_passing:
            self._directs[bucket] = None

    def _through_botocore(self, bucket: str) -> BotocoreTransport:
        from deltalog.storage.s3.botocore_transport import BotocoreConnections, BotocoreTransport

        if self._connections is None:
            self._connections = BotocoreConnections(self._options, self.limit)
        return BotocoreTransport(self._connections, bucket)


def _source_of(options: Mapping[str, Any]) -> CredentialSource | None:
    source = options.get("credentials")
    if source is None:
        return None
    if not isinstance(source, CredentialSource):
        raise CallError(f"The storage option credentials must be a CredentialSource, not {type(source).__name__}.")
    twice = sorted(name for name in ("key", "secret", "token", "anon", "profile") if options.get(name))
    if twice:
        raise CallError(f"The storage options {twice} cannot be combined with credentials. Leave them out.")
    return source
