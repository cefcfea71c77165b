"""Serves ``GET /metrics`` on a separate listener, so that scrapers need no rights on tables, and callers of the server
cannot see the metrics. The listener runs in a thread with its own event loop, so that it answers while the server is
busy.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client.exposition import choose_encoder
from uvicorn.protocols.http.h11_impl import H11Protocol

from deltalog.errors import CallError
from deltalog.server.addresses import HTTP_ONLY, bound, is_loopback, origin_of
from deltalog.server.observe.metrics import ServerMetrics
from deltalog.server.observe.settings import MetricsSettings
from deltalog.server.secret_files import MIN_TOKEN_LENGTH, check_secret, secret_in

log = logging.getLogger(__name__)

_MOST_HEADER_BYTES = 8 << 10
_MOST_CONNECTIONS = 32
_BACKLOG = 128
_KEEP_ALIVE_SECONDS = 75
_END_SECONDS = 1
_FIRST_REQUEST_SECONDS = 10

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def token_of(settings: MetricsSettings) -> str | None:
    """The token that a scraper must send; None if none is needed. Raises CallError."""
    if not settings.token_file:
        if not is_loopback(settings.host) and not settings.any_address:
            raise CallError(
                f"Other machines could read the metrics at {settings.host} without a token. Set token_file "
                "in [metrics], or set any_address if the network limits who can reach the address, or "
                "serve the metrics on 127.0.0.1."
            )
        return None
    token = secret_in(Path(settings.token_file))
    check_secret(token, MIN_TOKEN_LENGTH, f"The token in {settings.token_file}")
    return token


class _Timed(H11Protocol):
    """Closes connections that send no request in time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(_FIRST_REQUEST_SECONDS, self._check)

    def _check(self) -> None:
        if self.cycle is None:
            self.transport.abort()


class Scraping:
    """The listener. The constructor binds the socket; ``start`` serves it."""

    def __init__(self, metrics: ServerMetrics, settings: MetricsSettings) -> None:
        """Raises CallError, or OSError if the address is not available."""
        self._metrics = metrics
        self._settings = settings
        self._token = token_of(settings)
        self._socket = bound(settings.host, settings.port, _BACKLOG, socket.socket, "The metrics cannot be served on")
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._answer,
                http=_Timed,
                **HTTP_ONLY,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_END_SECONDS,
                h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
            )
        )
        self._thread = threading.Thread(target=self._run, name="deltalog-metrics", daemon=True)

    @property
    def url(self) -> str:
        return f"{origin_of('http', self._socket)}/metrics"

    def start(self) -> None:
        self._thread.start()

    def reread(self) -> Callable[[], None]:
        """Read the token again, and return what puts it into effect. Raises CallError."""
        token = token_of(self._settings)

        def use() -> None:
            self._token = token

        return use

    def close(self) -> None:
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(2 * _END_SECONDS)
        self._socket.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        except Exception:
            log.exception("the metrics are no longer served")

    async def _answer(self, scope: Mapping[str, Any], receive: Any, send: Send) -> None:
        status, kind, body = self._page(scope)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        headers += [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _page(self, scope: Mapping[str, Any]) -> tuple[int, str, bytes]:
        text = "text/plain; charset=utf-8"
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if b"origin" in headers:
            return 403, text, b"This server does not answer web pages.\n"
        if self._token is not None and not self._is_allowed(headers.get(b"authorization", "")):
            return 401, text, b"The token is missing or wrong.\n"
        if scope["path"] != "/metrics":
            return 404, text, b"Only /metrics is here.\n"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, text, b"Use GET.\n"
        encode, kind = choose_encoder(headers.get(b"accept", ""))
        return 200, kind, encode(self._metrics)

    def _is_allowed(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        assert self._token is not None
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode())
