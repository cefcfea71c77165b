"""The public keys of an OpenID Connect issuer: fetched with limits, cached, refreshed.

Spec: OpenID Connect Discovery 1.0, section 4; RFC 7517.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from deltalog.errors import CallError
from deltalog.server.access.principals import NotAuthenticatedError, NotIdentifiedYetError

log = logging.getLogger(__name__)

# By algorithm: the type of the key, and its curve.
ALGORITHMS: dict[str, tuple[str, str | None]] = {
    **{f"{kind}{bits}": ("RSA", None) for kind in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", None),
}
_MOST_KEYS = 100
_MOST_WAITING = 64
_RSA_BITS = (2048, 8192)
_DISCOVERY = "/.well-known/openid-configuration"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class FetchError(Exception):
    """The keys cannot be fetched. The message has no secret."""


def check_url(url: str) -> None:
    """Raises CallError unless the URL begins with https, or with http and a loopback address."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
        is_plain = bool(parts.hostname) and "@" not in parts.netloc and not parts.fragment and url.isprintable()
    except ValueError:
        is_safe = is_plain = False
    if not (is_safe and is_plain and url.isascii() and " " not in url):
        raise CallError(
            "The URLs of an issuer must be https://…, or http://… with a loopback address, and have no user and "
            "password."
        )


def fetch_json(url: str, seconds: float, most_bytes: int) -> Any:
    """Fetch a JSON document. Redirects are not followed. Raises FetchError."""
    sockets: list[socket.socket] = []
    is_over = threading.Event()

    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock)

    class Tls(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock)

    class PlainHandler(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, req)

    class TlsHandler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Tls, req)

    def end() -> None:
        """Close the connection at the deadline: a socket's timeout limits each read, not all of them together."""
        is_over.set()
        for each in sockets:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)  # TLS would wait for the peer

    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.ProxyHandler(), PlainHandler(), TlsHandler()):
        opener.add_handler(handler)
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        request = urllib.request.Request(url, headers={"accept": "application/json", "user-agent": "deltalog"})
        with contextlib.closing(opener.open(request, timeout=seconds)) as response:
            if response.status != 200:
                raise FetchError(f"{url} answers with status {response.status}")
            data = response.read(most_bytes + 1)
        if is_over.is_set():
            raise FetchError(f"{url} does not answer within {seconds:g} s")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(f"{url} cannot be read: {type(error).__name__}") from error
    finally:
        timer.cancel()
    if len(data) > most_bytes:
        raise FetchError(f"{url} answers with more than {most_bytes} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise FetchError(f"{url} does not answer with JSON") from None


@dataclass(frozen=True, slots=True)
class Key:
    """A public key. ``kind``, ``curve``: as in ``ALGORITHMS``. ``algorithm``: the only algorithm that the issuer
    permits it for; None: any. ``value``: the key for PyJWT.
    """

    kid: str | None
    kind: str
    curve: str | None
    algorithm: str | None
    value: Any = field(repr=False)

    def fits(self, algorithm: str) -> bool:
        kind, curve = ALGORITHMS[algorithm]
        return self.kind == kind and curve in (None, self.curve) and self.algorithm in (None, algorithm)


def keys_of(document: Any) -> list[Key]:
    """The keys in a JWK Set that can verify signatures; others are left out. Raises FetchError."""
    given = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(given, list) or len(given) > _MOST_KEYS:
        raise FetchError(f"the issuer's keys are not a JWK Set of at most {_MOST_KEYS} keys")
    found = [_key_of(each) for each in given if isinstance(each, dict)]
    return [each for each in found if each is not None]


def _key_of(given: dict[str, Any]) -> Key | None:
    import jwt

    kid, kind, curve, algorithm = (given.get(name) for name in ("kid", "kty", "crv", "alg"))
    is_public = kind in ("RSA", "EC", "OKP") and "d" not in given
    operations = given.get("key_ops", ["verify"])
    may_verify = given.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    if not (
        is_public and may_verify and all(each is None or isinstance(each, str) for each in (kid, curve, algorithm))
    ):
        return None
    default = {"RSA": "RS256", "OKP": "EdDSA"}.get(str(kind)) or _algorithm_of_curve(curve)
    try:
        made = jwt.PyJWK(given, algorithm=default).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError):
        return None
    if kind == "RSA" and not _RSA_BITS[0] <= made.key_size <= _RSA_BITS[1]:
        return None
    return Key(kid, str(kind), curve, algorithm, made)


def _algorithm_of_curve(curve: Any) -> str:
    return next((name for name, (_, of) in ALGORITHMS.items() if of is not None and of == curve), "ES256")


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of a ``KeySet``, as described in ``OidcSettings``."""

    refresh_seconds: float
    max_age_seconds: float
    retry_seconds: float
    fetch_seconds: float
    fetch_bytes: int


class KeySet:
    """The keys of an issuer. ``jwks_url``: the URL of the keys; if empty, it is taken from the issuer's discovery
    document.

    Everything but the requests runs on the event loop. The keys are fetched when they are first needed, when they are
    older than ``refresh_seconds``, and when a token names an unknown key, but at most once in ``retry_seconds``. If the
    issuer is down, the last keys remain in use until they are ``max_age_seconds`` old."""

    def __init__(
        self,
        issuer: str,
        jwks_url: str,
        limits: KeyLimits,
        *,
        fetch: Callable[[str, float, int], Any] = fetch_json,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._limits = limits
        self._fetch = fetch
        self._clock_s = clock_s
        self._keys: Sequence[Key] = ()
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._has_failed = False
        self._waiting = 0
        self._running: asyncio.Future[list[Key]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deltalog-oidc")

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def find(self, kid: str | None, algorithm: str) -> Any:
        """The key to verify a token with, for PyJWT. Raises NotAuthenticatedError, and NotIdentifiedYetError if the
        keys cannot be fetched.
        """
        if self._age() > self._limits.refresh_seconds:
            self._refresh()
            # While the last fetched keys may be used, callers do not wait for an issuer whose last fetch failed.
            if not self._has_failed or self._age() > self._limits.max_age_seconds:
                await self._refreshed()
        if self._age() > self._limits.max_age_seconds:
            raise NotIdentifiedYetError("The keys of the token's issuer cannot be fetched. Try again later.")
        found = self._matching(kid, algorithm)
        if found is None:
            self._refresh()
            await self._refreshed()
            found = self._matching(kid, algorithm)
        if found is None:
            raise NotAuthenticatedError("The token is not signed with a key of its issuer.")
        return found.value

    def _age(self) -> float:
        return float("inf") if self._fetched_s is None else self._clock_s() - self._fetched_s

    def _matching(self, kid: str | None, algorithm: str) -> Key | None:
        fitting = [each for each in self._keys if each.fits(algorithm) and kid in (None, each.kid)]
        return fitting[0] if len(fitting) == 1 else None

    def _refresh(self) -> None:
        """Start to fetch the keys, unless a fetch is in progress or was tried less than ``retry_seconds`` ago."""
        now_s = self._clock_s()
        if self._running is not None:
            return
        if self._tried_s is not None and now_s - self._tried_s < self._limits.retry_seconds:
            return
        self._tried_s = now_s
        self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._fetched)
        self._running.add_done_callback(lambda done: self._done(done, now_s))

    def _done(self, done: asyncio.Future[list[Key]], began_s: float) -> None:
        self._running = None
        if done.cancelled():
            return
        error = done.exception()
        self._has_failed = error is not None
        if error is None:
            self._keys, self._fetched_s = done.result(), began_s
        else:
            log.warning("the keys of %s cannot be fetched: %s", self._issuer, error)

    async def _refreshed(self) -> None:
        """Wait until the keys have been fetched, if a fetch is in progress. Raises NotIdentifiedYetError if too many
        calls wait already, because each of them occupies a connection.
        """
        running = self._running
        if running is None:
            return
        if self._waiting >= _MOST_WAITING:
            raise NotIdentifiedYetError(
                "Too many calls are waiting for the keys of the token's issuer. Try again later."
            )
        self._waiting += 1
        try:
            with contextlib.suppress(asyncio.TimeoutError, FetchError):
                await asyncio.wait_for(asyncio.shield(running), 2 * self._limits.fetch_seconds)
        finally:
            self._waiting -= 1

    def _fetched(self) -> list[Key]:
        limits = self._limits
        url = self._jwks_url
        if not url:
            found = self._fetch(self._issuer.rstrip("/") + _DISCOVERY, limits.fetch_seconds, limits.fetch_bytes)
            if not isinstance(found, dict) or found.get("issuer") != self._issuer:
                raise FetchError("the discovery document names another issuer")
            url = str(found.get("jwks_uri"))
            try:
                check_url(url)
            except CallError:
                raise FetchError("the discovery document has no jwks_uri with https") from None
        return keys_of(self._fetch(url, limits.fetch_seconds, limits.fetch_bytes))
