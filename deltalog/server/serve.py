"""The server process: its address, access settings, connection time-outs and shutdown.

Without a token or TLS, the server starts only on loopback, where traffic stays on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from deltalog.errors import CallError, DeltaLogError
from deltalog.server.access import issued
from deltalog.server.access.authentication import Authentication, AuthenticationSettings
from deltalog.server.app import App, Limits
from deltalog.server.connections import Connections, Listener
from deltalog.server.logs import Refusals
from deltalog.server.observe.observation import Observation
from deltalog.server.observe.settings import AuditSettings, MetricsSettings, TraceSettings
from deltalog.server.unity import sts
from deltalog.server.unity.credentials import Vendor, read_rules
from deltalog.server.unity.publisher import Publisher
from deltalog.server.unity.service import Service
from deltalog.transactions.manager import TransactionManager
from deltalog.transactions.unity.settings import UnitySettings

log = logging.getLogger(__name__)

MIN_TOKEN_LENGTH = 16
_KEEP_ALIVE_SECONDS = 60
_TLS_SHUTDOWN_SECONDS = 0.5
_MAX_END_SECONDS = 10
_BACKLOG = 256
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. ``client_ca``: the certificate authority that must have signed the certificates of callers."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings. ``port`` 0 selects a free port. ``recover_seconds``: the interval between calls of ``recover``; 0
    disables these calls. ``unity``: how Unity Catalog's API is served. ``vendor``: vends credentials to its
    clients. ``authentication``: how callers prove who they are, besides ``token``. ``audit``, ``metrics``, ``traces``:
    what is observed."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    limits: Limits = field(default_factory=Limits)
    recover_seconds: float = 60
    unity: UnitySettings = field(default_factory=UnitySettings)
    vendor: Vendor = field(default_factory=Vendor)
    authentication: AuthenticationSettings = field(default_factory=AuthenticationSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    traces: TraceSettings = field(default_factory=TraceSettings)


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def vendor_of(file: Path | None) -> Vendor:
    """The vendor of credentials that a file describes. Raises CallError."""
    return Vendor() if file is None else Vendor(read_rules(file), sts.assume)


def check(settings: Settings, *, has_tokens: bool = False) -> None:
    """Raises CallError for settings that would admit untrusted clients or no clients. ``has_tokens``: whether the
    catalog has, or has had, tokens."""
    token = settings.token
    if token is not None and (len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable()):
        raise CallError(
            f"The token must have at least {MIN_TOKEN_LENGTH} printable ASCII characters. Create one with openssl rand "
            "-hex 32."
        )
    if settings.authentication.certificates is not None and (settings.tls is None or settings.tls.client_ca is None):
        raise CallError(
            "Principals by client certificates need TLS with the authority of the clients (--tls-client-ca)."
        )
    is_open = token is None and not has_tokens and not settings.authentication.is_required
    if not is_loopback(settings.host) and is_open and settings.tls is None:
        raise CallError(
            f"{settings.host} is reachable from other machines, and every client of the server may change tables. "
            "Make tokens (deltalog tokens create), or give it one token (--token-file, or DELTALOG_SERVER_TOKEN in the "
            "environment) or TLS (--tls-cert and --tls-key), or serve on 127.0.0.1."
        )


def warnings_of(settings: Settings, *, has_tokens: bool = False) -> list[str]:
    """Warnings about settings that are allowed but unsafe on some networks. ``has_tokens``: as for ``check``."""
    if is_loopback(settings.host):
        return []
    found = []
    if settings.tls is None:
        found.append("Without TLS the token and all requests can be intercepted.")
    elif (
        settings.token is None
        and settings.tls.client_ca is None
        and not has_tokens
        and not settings.authentication.is_required
    ):
        found.append("With neither a token nor --tls-client-ca every client that reaches the server may change tables.")
    return found


class TimedProtocol(H11Protocol):
    """Closes connections on which one of these takes too long: the headers (from their first byte on), a body that no
    handler reads, or the client's receipt of a response."""

    header_seconds: ClassVar[float]
    response_seconds: ClassVar[float]
    refusals: ClassVar[Refusals]
    open_connections: ClassVar[Connections]
    observation: ClassVar[Observation]
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _number: int = -1

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._number = self.open_connections.made(transport)
        certificate = transport.get_extra_info("peercert")
        if certificate:  # empty unless it was verified
            self.app_state = {**self.app_state, "certificate": certificate}
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_deadline()
        else:
            self._cancel_deadline()
            self.open_connections.busy(self._number)

    def on_response_complete(self) -> None:
        self.open_connections.idle(self._number)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.response_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread()

    def send_400_response(self, msg: str) -> None:
        caller = self.client[0] if self.client else "an unknown address"
        self.refusals.log(f"refused a request from {caller} that is not HTTP")
        self.observation.refused_not_http(self.client[0] if self.client else None)
        super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._stop_unread()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing():  # the client may delay its TLS shutdown
            self.loop.call_later(_TLS_SHUTDOWN_SECONDS, self.transport.abort)

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.header_seconds, self._close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _close(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


class Server:
    """Serves a manager. The constructor binds the socket; from then on, clients can connect, but wait until ``run``."""

    def __init__(self, manager: TransactionManager, settings: Settings) -> None:
        """Raises CallError, or OSError if the address is not available."""
        has_tokens = issued.are_required(manager.coordinator)
        check(settings, has_tokens=has_tokens)
        self.warnings = warnings_of(settings, has_tokens=has_tokens)
        self._manager = manager
        self._settings = settings
        connections = Connections(settings.limits.connections, settings.limits.header_seconds)
        self._socket = _bound(settings.host, settings.port, connections)
        is_open = settings.token is None and not has_tokens and not settings.authentication.is_required
        trusted = is_loopback(settings.host) and is_open
        self._authentication = Authentication(
            manager.coordinator, settings.authentication, shared=settings.token, is_open=is_open
        )
        manager.coordinator.keep_staged_commits()
        manager.coordinator.close()  # so that this change does not stay in a log beside the file of a catalog
        self.observation = _observation(settings, connections, self._socket)
        unity = manager.unity_tables(settings.unity)
        self._publisher = Publisher(unity, self.observation.work_as_server)
        self._app = App(
            manager,
            settings.limits,
            authenticator=self._authentication,
            hosts=_LOOPBACK | {settings.host.lower()} if trusted else None,
            unity=Service(unity, settings.vendor, self._publisher.ask),
            observation=self.observation,
        )
        self._server = uvicorn.Server(_config(self._app, settings, connections, self.observation))

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self._settings.tls is None else 'https'}://{shown}:{port}"

    @property
    def metrics_url(self) -> str | None:
        """Where the metrics are served; None if they are not."""
        return self.observation.metrics_url

    def stop(self) -> None:
        """Stop accepting calls, and make ``run`` return when all running calls have finished. This method can be called
        from any thread."""
        self._server.should_exit = True

    def run(self) -> None:
        """Serve until ``stop``, SIGTERM or SIGINT. After a second SIGINT, the server does not wait for running
        calls."""
        over = threading.Event()
        sweeper = threading.Thread(target=self._recover_repeatedly, args=(over,), name="deltalog-recover", daemon=True)
        try:
            with _signals_ignored():
                if self._settings.recover_seconds > 0:
                    sweeper.start()
                self._server.run(sockets=[self._socket])
        finally:
            over.set()
            self._app.close()
            self._authentication.close()
            self._publisher.close()
            self._socket.close()

    def end_process(self) -> None:
        """Call this after ``run``. Calls that have timed out and are still running get the request timeout once more to
        finish, but at most ten seconds. If a call is still running after this extra time, for example because a store
        hangs, the process exits with status 1; Python itself would wait for the thread."""
        seconds = min(_MAX_END_SECONDS, self._settings.limits.request_seconds)
        timer = threading.Timer(seconds, _exit_now, (self.observation,))
        timer.daemon = True
        timer.start()

    def _recover_repeatedly(self, over: threading.Event) -> None:
        self.observation.work_as_server()
        while not over.wait(self._settings.recover_seconds):
            try:
                self._manager.recover()
            except DeltaLogError as error:
                log.warning("recovery is postponed: %s", error)
            except Exception:
                log.exception("recovery failed")


def _exit_now(observation: Observation) -> None:
    log.error("the server exits while a call is still running: its changes may or may not take effect")
    observation.close()
    logging.shutdown()
    os._exit(1)


def _observation(settings: Settings, connections: Connections, bound: socket.socket) -> Observation:
    """What is observed. Closes the socket if that cannot be."""
    try:
        found = Observation(settings.audit, settings.metrics, settings.traces)
    except (OSError, DeltaLogError):
        bound.close()
        raise
    if found.metrics is not None:
        text = "Open connections, busy or idle."
        source = lambda: [({"state": state}, count) for state, count in connections.counts().items()]  # noqa: E731
        found.metrics.watch("deltalog_server_connections", text, source, "state")
    return found


def _config(app: App, settings: Settings, connections: Connections, observation: Observation) -> uvicorn.Config:
    limits = settings.limits
    known = {
        "header_seconds": limits.header_seconds,
        "response_seconds": limits.response_seconds,
        "refusals": app.refusals,
        "open_connections": connections,
        "observation": observation,
    }
    tls = settings.tls
    ca = None if tls is None else tls.client_ca
    return uvicorn.Config(
        app,
        http=type("Protocol", (TimedProtocol,), known),
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(limits.request_seconds) + 1,
        h11_max_incomplete_event_size=limits.header_bytes,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
        ssl_ca_certs=None if ca is None else str(ca),
        ssl_cert_reqs=ssl.CERT_NONE if ca is None else ssl.CERT_REQUIRED,
    )


def _bound(host: str, port: int, connections: Connections) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = Listener(family, kind, protocol)
    bound.connections = connections
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"The server cannot listen on {host} port {port}: {error.strerror}") from None
    return bound


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM in this block: uvicorn handles them while it runs, and afterwards raises them again for
    the handlers that were installed before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored: Callable[..., None] = lambda *_: None  # noqa: E731
    before = {number: signal.signal(number, ignored) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
