"""Sends requests to S3 through s3fs and botocore. Supports every option, every kind of credentials, and multipart
uploads.

A conditional PUT is sent only once. If the client sent the PUT again after a broken connection, the response to the
second attempt would hide the outcome of the first.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, cast

import aiobotocore.credentials
import aiobotocore.httpsession
import aiobotocore.session
import aiohttp
import botocore.credentials
import botocore.exceptions as boto
import botocore.utils
import fsspec.asyn
import fsspec.exceptions
import s3fs

from deltalog.storage.client_logs import keep_out_of_client_logs
from deltalog.storage.remote import PARALLEL_GETS
from deltalog.storage.request_limit import SLOW_STATUSES, RequestLimit, Turn
from deltalog.storage.s3.credentials import READING, CredentialSource
from deltalog.storage.s3.transport import Failed, Transport, is_sent_at_once, is_slow, limit_seconds

_BODY_ATTEMPTS = 3
_CALL_ATTEMPTS = 5

_NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

T = TypeVar("T")

# The slot that a read occupies within the limit on concurrent requests. The value in a task's context is the slot of
# the read whose requests this task sends.
_turn: contextvars.ContextVar[Turn | None] = contextvars.ContextVar("deltalog_turn", default=None)
_writes: contextvars.ContextVar[bool] = contextvars.ContextVar("deltalog_writes", default=False)


class BotocoreTransport(Transport):
    """Sends requests through s3fs and botocore, which retry requests that are safe to repeat."""

    def __init__(self, connections: BotocoreConnections, bucket: str) -> None:
        self._connections = connections
        self._bucket = bucket

    @property
    def endpoint(self) -> str:
        _, creating = self._connections.connect()
        client: Any = self._connections.run(creating.set_session)
        return str(client.meta.endpoint_url)

    def call(self, method: str, **arguments: Any) -> Any:
        return self._connections.run(self._call, method, **arguments)

    def start(self, method: str, **arguments: Any) -> concurrent.futures.Future[Any]:
        """Like ``call``, without waiting for the response."""
        return self._connections.start(self._call(method, **arguments))

    def read(
        self, key: str, byte_range: str = "", etag: str = "", size_bytes: int = 0
    ) -> tuple[bytes, Mapping[str, Any]]:
        return self._connections.run_read(self._read, key, byte_range, etag, size_bytes)

    def read_many(self, keys: Sequence[str], byte_range: str, size_bytes: int, failed: Failed) -> list[bytes]:
        waiting, found = iter(enumerate(keys)), [b""] * len(keys)

        async def work() -> None:
            for number, key in waiting:
                try:
                    found[number], _ = await self._read(key, byte_range, "", size_bytes)
                except Exception as error:
                    failed(key, error)

        async def work_together() -> None:
            workers = [asyncio.ensure_future(work()) for _ in range(min(PARALLEL_GETS, len(keys)))]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()

        self._connections.run_read(work_together)
        return found

    def _send_once(self, key: str, data: bytes, conditions: Mapping[str, str], seconds: float) -> None:
        self._connections.run(self._put_once, key, data, conditions, seconds)

    def _may_have_landed(self, error: Exception) -> bool:
        # botocore reports a connection reset during a request as a failure to connect, so the cause is checked.
        answered = isinstance(error, (boto.HTTPClientError, boto.ConnectionError))
        sent = answered or not isinstance(error, boto.BotoCoreError)
        below = getattr(error, "kwargs", {}).get("error")
        return sent and not isinstance(below, _NEVER_SENT)

    async def _call(self, method: str, **arguments: Any) -> Any:
        reading, _ = self._connections.connect()
        limit = _CALL_ATTEMPTS * limit_seconds(arguments.get("Body", b""))
        return await asyncio.wait_for(reading._call_s3(method, Bucket=self._bucket, **arguments), limit)

    async def _read(self, key: str, byte_range: str, etag: str, size_bytes: int) -> tuple[bytes, Mapping[str, Any]]:
        async with self._connections.limit.request_async(size_bytes, is_slow) as turn:
            _turn.set(turn)
            return await self._get(key, byte_range, etag)

    async def _get(self, key: str, byte_range: str, etag: str) -> tuple[bytes, Mapping[str, Any]]:
        """Send a GET, and repeat it if the download is truncated."""
        conditions = {k: v for k, v in (("Range", byte_range), ("IfMatch", etag)) if v}
        for left in reversed(range(_BODY_ATTEMPTS)):
            response = await self._call("get_object", Key=key, **conditions)
            try:
                async with response["Body"] as body:
                    return await body.read(), response
            except Exception:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def _put_once(self, key: str, data: bytes, conditions: Mapping[str, str], seconds: float) -> None:
        _, creating = self._connections.connect()
        await creating.set_session()
        client = await creating.get_s3(self._bucket)
        arguments = creating._get_s3_method_kwargs(client.put_object, Bucket=self._bucket, Key=key, Body=data)
        # The conditions bypass s3fs, which drops arguments unknown to an old botocore.
        await asyncio.wait_for(client.put_object(**arguments, **conditions), seconds)


class BotocoreConnections:
    """The s3fs file systems for one set of options, for all buckets. ``limit``: the limit on concurrent reads."""

    def __init__(self, options: Mapping[str, Any], limit: RequestLimit) -> None:
        keep_out_of_client_logs()
        self.limit = limit
        self._options = options
        self._filesystems: tuple[int, Any, Any] | None = None

    def run(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Run a coroutine on fsspec's event loop, and wait for it."""
        reading, _ = self.connect()
        return cast(T, fsspec.asyn.sync(reading.loop, function, *args, **kwargs))

    def run_read(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Like ``run``, but for reads, which are cancelled if the caller is interrupted."""
        reading = self.start(function(*args))
        try:
            return cast(T, reading.result())
        except asyncio.TimeoutError as error:
            raise fsspec.exceptions.FSTimeoutError from error
        except BaseException:
            reading.cancel()
            raise

    def start(self, awaitable: Any) -> concurrent.futures.Future[Any]:
        """Like ``run``, but without waiting for the coroutine."""
        reading, _ = self.connect()
        return asyncio.run_coroutine_threadsafe(awaitable, reading.loop)

    def connect(self) -> tuple[Any, Any]:
        """Two s3fs file systems, recreated after a fork: one retries requests, and the other sends each request only
        once."""
        if self._filesystems is None or self._filesystems[0] != os.getpid():
            config = {"max_pool_connections": 2 * PARALLEL_GETS, **self._options.get("config_kwargs", {})}
            once = {
                **config,
                "retries": {"total_max_attempts": 1},
                "http_session_cls": _SendingOnce,
                # The server may have closed a pooled connection, and a request sent over it would be lost.
                "connector_args": {**config.get("connector_args", {}), "force_close": True, "keepalive_timeout": None},
            }
            # s3fs caches file systems by their options, so a table that is opened again reuses their connections.
            options = dict(self._options)
            source = options.pop("credentials", None)
            options.setdefault(
                "session",
                _session(options.get("profile"), os.getpid()) if source is None else _signing_session(source),
            )
            reading, creating = (s3fs.S3FileSystem(**{**options, "config_kwargs": kwargs}) for kwargs in (config, once))
            self._filesystems = (os.getpid(), reading, creating)
        return self._filesystems[1:]


@functools.lru_cache(maxsize=16)
def _session(profile: str | None, process: int) -> Any:
    """The session is cached, because a new one takes a tenth of a second and 10 MB of memory to read its AWS service
    definitions from disk."""
    return _new_session(profile)


def _signing_session(source: CredentialSource) -> Any:
    """A session whose requests are signed with the credentials of a source."""
    session = _new_session(None)
    session._credentials = _FromSource(source)
    session.register("before-sign.s3", _notice_method)
    return session


def _new_session(profile: str | None) -> Any:
    session = aiobotocore.session.AioSession(profile=profile)
    # Registered last, so that it runs after botocore's handler, which adds the header ``Expect``.
    session.get_component("event_emitter").register_last("before-call.s3", _send_body_at_once)
    session.register("needs-retry.s3", _notice_slow_down)
    return session


def _send_body_at_once(params: dict[str, Any], **_: Any) -> None:
    """Remove botocore's ``Expect: 100-continue`` header from small requests, for which it costs a round trip."""
    body = params.get("body")
    size = botocore.utils.determine_content_length(body) if hasattr(body, "read") else None
    if size is not None and is_sent_at_once(size):
        params["headers"].pop("Expect", None)


def _notice_slow_down(response: tuple[Any, Any] | None = None, **_: Any) -> None:
    """Report throttled attempts to the request limit, because botocore and s3fs retry throttled requests without
    reporting this to their caller."""
    turn = _turn.get(None)
    if turn is not None and response is not None and response[0].status_code in SLOW_STATUSES:
        turn.slow_down()


def _notice_method(request: Any, **_: Any) -> None:
    """Tell ``_FromSource`` whether the request that is about to be signed changes something."""
    _writes.set(request.method not in READING)


class _FromSource(aiobotocore.credentials.AioCredentials):  # type: ignore[misc]
    """The credentials of a source, read for every signature."""

    def __init__(self, source: CredentialSource) -> None:
        super().__init__("", "", "", method="deltalog")
        self._source = source

    async def get_frozen_credentials(self) -> Any:
        found = await asyncio.to_thread(self._source.current, writes=_writes.get())
        return botocore.credentials.ReadOnlyCredentials(found.access_key, found.secret_key, found.token)


class _SendingOnce(aiobotocore.httpsession.AIOHTTPSession):  # type: ignore[misc]
    """An aiohttp session that does not automatically resend a PUT when the connection breaks."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


@functools.cache
def known_options() -> frozenset[str]:
    """The names of the keyword options that s3fs accepts."""
    names = set(inspect.signature(s3fs.S3FileSystem.__init__).parameters)
    # s3fs passes "profile" to its session through **kwargs.
    return frozenset(names - {"self", "kwargs", "asynchronous", "loop"} | {"profile"})
