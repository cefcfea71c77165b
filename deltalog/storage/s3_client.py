"""Connections to S3 through s3fs, and the meaning of their errors.

A conditional PUT is sent once: if a client resends it when the connection breaks, the response to the second attempt
hides the outcome of the first.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import os
import urllib.parse
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar, cast

import aiobotocore.httpsession
import aiobotocore.session
import aiohttp
import botocore.exceptions as boto
import botocore.utils
import fsspec.asyn
import fsspec.exceptions
import s3fs

from deltalog.errors import CallError
from deltalog.storage.base import PutOutcome
from deltalog.storage.exclusive import check_answer, is_verified, place_of
from deltalog.storage.remote import PARALLEL_GETS, outcome_of_status
from deltalog.storage.request_limit import SLOW_STATUSES, RequestLimit, Turn
from deltalog.storage.secrets import Secrets, check_dictionaries, check_endpoint

_BODY_ATTEMPTS = 3
_CALL_ATTEMPTS = 5
# The time limits of s3fs begin when a body has been sent; without a limit here a stalled server would block the caller.
REQUEST_SECONDS = 60
_SLOWEST_BYTES_PER_SECOND = 1 << 20
# A larger body is sent after the server has agreed to receive it, since a refusal would waste more than a round trip.
_AT_ONCE_BYTES = 16 << 20

_NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

T = TypeVar("T")

# The read for which the current task makes requests.
_turn: contextvars.ContextVar[Turn | None] = contextvars.ContextVar("deltalog_turn", default=None)


class S3Client:
    """Connections with one set of options, shared by the stores of one table and of its allowed places."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        options = dict(options)
        self._is_exclusive = check_answer(options.pop("exclusive_create", False))
        unknown = sorted(set(options) - _known_options())
        if unknown:
            raise CallError(
                f"Unknown storage options {unknown}. S3 takes {sorted({*_known_options(), 'exclusive_create'})}."
            )
        check_dictionaries(options)
        self._options = options
        for endpoint in (options.get("endpoint_url"), (options.get("client_kwargs") or {}).get("endpoint_url")):
            check_endpoint(endpoint)
        self.secrets = Secrets(options)
        self._filesystems: tuple[int, Any, Any] | None = None
        self._places: dict[str, str | None] = {}  # by bucket
        self.limit = RequestLimit()

    def run(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Run a coroutine on the event loop that all of fsspec shares, and wait for it."""
        reading, _ = self._connect()
        return cast(T, fsspec.asyn.sync(reading.loop, function, *args, **kwargs))

    def run_read(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any) -> T:
        """As ``run``, for what has no effect: if the caller is interrupted, its requests end, and no other begins."""
        reading = self.start(function(*args, **kwargs))
        try:
            return cast(T, reading.result())
        except asyncio.TimeoutError as error:
            raise fsspec.exceptions.FSTimeoutError from error
        except BaseException:
            reading.cancel()
            raise

    def start(self, awaitable: Any) -> concurrent.futures.Future[Any]:
        """Start a coroutine on that event loop, without waiting for it."""
        reading, _ = self._connect()
        return asyncio.run_coroutine_threadsafe(awaitable, reading.loop)

    async def call(self, method: str, **arguments: Any) -> Any:
        """A request that may be repeated; s3fs and botocore do so."""
        reading, _ = self._connect()
        limit = _CALL_ATTEMPTS * _limit_seconds(arguments.get("Body", b""))
        return await asyncio.wait_for(reading._call_s3(method, **arguments), limit)

    async def read(
        self, bucket: str, key: str, byte_range: str = "", etag: str = "", size_bytes: int = 0
    ) -> tuple[bytes, Mapping[str, Any]]:
        """An object or a range of it, and the response's headers. A download that is cut off is repeated. It waits
        while this client has too many under way. ``size_bytes``: the length of the range."""
        async with self.limit.request_async(size_bytes, lambda error: status_of(error) in SLOW_STATUSES) as turn:
            _turn.set(turn)
            return await self._read(bucket, key, byte_range, etag)

    async def _read(self, bucket: str, key: str, byte_range: str, etag: str) -> tuple[bytes, Mapping[str, Any]]:
        conditions = {k: v for k, v in (("Range", byte_range), ("IfMatch", etag)) if v}
        for left in reversed(range(_BODY_ATTEMPTS)):
            response = await self.call("get_object", Bucket=bucket, Key=key, **conditions)
            try:
                async with response["Body"] as body:
                    return await body.read(), response
            except Exception:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def put_once(
        self, bucket: str, key: str, data: bytes, conditions: Mapping[str, str], seconds: float | None = None
    ) -> None:
        """One PUT, sent once, with a time limit of ``seconds``."""
        _, creating = self._connect()
        await creating.set_session()
        client = await creating.get_s3(bucket)
        arguments = creating._get_s3_method_kwargs(client.put_object, Bucket=bucket, Key=key, Body=data)
        # Added here, since s3fs drops arguments that an old botocore does not know, including the condition.
        limit = _limit_seconds(data) if seconds is None else min(seconds, _limit_seconds(data))
        await asyncio.wait_for(client.put_object(**arguments, **conditions), limit)

    def unverified_place(self, bucket: str) -> str | None:
        """Where exclusive creation is to be verified; None if it is known to work there: on AWS, if the options say so,
        and if it was verified in this process. Cost: no request."""
        if self._is_exclusive:
            return None
        if bucket not in self._places:
            _, creating = self._connect()
            client: Any = self.run(creating.set_session)
            endpoint = str(client.meta.endpoint_url)
            host = urllib.parse.urlsplit(endpoint).hostname or ""
            is_aws = host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
            self._places[bucket] = None if is_aws else place_of("s3", endpoint, bucket, options=self._options)
        place = self._places[bucket]
        return None if place is None or is_verified(place) else place

    def _connect(self) -> tuple[Any, Any]:
        """Two file systems, recreated after a fork: for requests that may be repeated, and for those that may not."""
        if self._filesystems is None or self._filesystems[0] != os.getpid():
            config = {"max_pool_connections": 2 * PARALLEL_GETS, **self._options.get("config_kwargs", {})}
            once = {
                **config,
                "retries": {"total_max_attempts": 1},
                "http_session_cls": _SendingOnce,
                # A pooled connection may have been closed unnoticed, and a request sent on it is lost.
                "connector_args": {**config.get("connector_args", {}), "force_close": True, "keepalive_timeout": None},
            }
            # s3fs caches file systems by their options, so that opening a table again reuses its connections.
            options = {"session": _session(self._options.get("profile"), os.getpid()), **self._options}
            reading, creating = (s3fs.S3FileSystem(**{**options, "config_kwargs": kwargs}) for kwargs in (config, once))
            self._filesystems = (os.getpid(), reading, creating)
        return self._filesystems[1:]


@functools.lru_cache(maxsize=16)
def _session(profile: str | None, process: int) -> Any:
    """Sessions are cached, since each reads its description of AWS from disk: a tenth of a second and 10 MB."""
    session = aiobotocore.session.AioSession(profile=profile)
    # Last: after botocore's own handler of that event, which adds the header.
    session.get_component("event_emitter").register_last("before-call.s3", _send_body_at_once)
    session.register("needs-retry.s3", _notice_slow_down)
    return session


def _send_body_at_once(params: dict[str, Any], **_: Any) -> None:
    """botocore waits for the server's consent (``100 Continue``) before it sends a body: one more round trip."""
    body = params.get("body")
    size = botocore.utils.determine_content_length(body) if hasattr(body, "read") else None
    if size is not None and size <= _AT_ONCE_BYTES:
        params["headers"].pop("Expect", None)


def _notice_slow_down(response: tuple[Any, Any] | None = None, **_: Any) -> None:
    """botocore and s3fs repeat requests that were refused, and do not tell their caller."""
    turn = _turn.get(None)
    if turn is not None and response is not None and response[0].status_code in SLOW_STATUSES:
        turn.slow_down()


def _limit_seconds(body: bytes) -> float:
    return REQUEST_SECONDS + len(body) / _SLOWEST_BYTES_PER_SECOND


class _SendingOnce(aiobotocore.httpsession.AIOHTTPSession):  # type: ignore[misc]
    """aiohttp resends a PUT automatically when the connection breaks; here it must not."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


def outcome_of(error: BaseException) -> PutOutcome | None:
    """How a conditional PUT that was sent once ended, from the error it raised; None when it had no effect."""
    status = status_of(error)
    if status is not None:
        return outcome_of_status(status)
    # botocore reports a reset in the middle of an exchange as a failure to connect, so its class is not sufficient.
    sent = isinstance(error, (boto.HTTPClientError, boto.ConnectionError)) or not isinstance(error, boto.BotoCoreError)
    below = getattr(error, "kwargs", {}).get("error")
    return PutOutcome.UNKNOWN if sent and not isinstance(below, _NEVER_SENT) else None


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


@functools.cache
def _known_options() -> frozenset[str]:
    names = set(inspect.signature(s3fs.S3FileSystem.__init__).parameters)
    # s3fs passes "profile" to its session, through **kwargs.
    return frozenset(names - {"self", "kwargs", "asynchronous", "loop"} | {"profile"})
