"""The server: its address, access settings, connection time-outs, and what can be replaced while it runs.

Without a token or TLS, the server starts only on loopback, where traffic stays on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import ipaddress
import logging
import socket
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from deltalog.errors import CallError, DeltaLogError
from deltalog.server.access import issued
from deltalog.server.access.authentication import Authentication, AuthenticationSettings
from deltalog.server.app import App, Limits
from deltalog.server.connections import Connections, Listener, shortage
from deltalog.server.logs import Refusals, set_level
from deltalog.server.observe.observation import Observation
from deltalog.server.observe.settings import AuditSettings, MetricsSettings, TraceSettings
from deltalog.server.process import EXIT_CUT_OFF, Ending, Process
from deltalog.server.recovery_lease import RecoveryLease
from deltalog.server.reload import Reloader, Source
from deltalog.server.tls import ServerContext, Tls, context_of, listening
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
_DRAIN_SECONDS = 5.0
# A recovery may take longer than the interval between recoveries.
_LEASE_INTERVALS = 1.9
_LEASE_SECONDS = 1.0
_MAX_END_SECONDS = 10.0
_BACKLOG = 256
# With Python's default of 5 ms, a call that computes for long would delay each step of the other threads by 5 ms.
_SWITCH_SECONDS = 0.0002
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings. ``port`` 0 selects a free port. ``recover_seconds``: the interval between calls of ``recover``; 0
    disables these calls. ``unity``: how Unity Catalog's API is served. ``vendor``: vends credentials to its clients.
    ``drain_seconds``: the time for which the server still serves calls after SIGTERM; None: 5, or 0 on loopback.
    ``end_seconds``: the time that running calls then get to finish. ``watch_seconds``: the interval at which files with
    secrets are checked for changes; 0: they are not. ``log_level``: the lowest level of the events that are logged;
    None leaves logging as it is. ``authentication``: how callers authenticate, besides by ``token``. ``audit``,
    ``metrics``, ``traces``: the settings of these.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    limits: Limits = field(default_factory=Limits)
    recover_seconds: float = 60
    unity: UnitySettings = field(default_factory=UnitySettings)
    vendor: Vendor = field(default_factory=Vendor)
    drain_seconds: float | None = None
    end_seconds: float = 20
    watch_seconds: float = 10
    log_level: str | None = None
    authentication: AuthenticationSettings = field(default_factory=AuthenticationSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    traces: TraceSettings = field(default_factory=TraceSettings)

    @property
    def is_open(self) -> bool:
        """Whether callers need not authenticate, unless the catalog has tokens."""
        return self.token is None and not self.authentication.is_required

    @property
    def needs_certificate(self) -> bool:
        """Whether clients without a certificate are refused, if certificates are verified."""
        rule = self.authentication.certificates
        return rule is None or rule.required

    @property
    def ending(self) -> Ending:
        default = 0.0 if is_loopback(self.host) else _DRAIN_SECONDS
        return Ending(default if self.drain_seconds is None else self.drain_seconds, self.end_seconds)


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
    catalog has, or once had, tokens.
    """
    token = settings.token
    if token is not None and (len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable()):
        raise CallError(
            f"The token must have at least {MIN_TOKEN_LENGTH} printable ASCII characters. Create one with openssl rand "
            "-hex 32."
        )
    if settings.authentication.certificates is not None and (settings.tls is None or settings.tls.client_ca is None):
        raise CallError(
            "Authentication by client certificates needs TLS with the certificate authority of the clients "
            "(--tls-client-ca)."
        )
    is_open = token is None and not has_tokens and not settings.authentication.is_required
    if not is_loopback(settings.host) and is_open and settings.tls is None:
        raise CallError(
            f"{settings.host} is reachable from other machines, and every client of the server may change tables. "
            "Make tokens (deltalog tokens create), or give it one token (--token-file, or DELTALOG_SERVER_TOKEN in the "
            "environment) or TLS (--tls-cert and --tls-key), or serve on 127.0.0.1."
        )


def warnings_of(settings: Settings, *, has_tokens: bool = False) -> list[str]:
    """Warnings about settings that are allowed but unsafe on some networks, or have no full effect on this machine.
    ``has_tokens``: as for ``check``."""
    found = shortage(settings.limits.connections)
    if is_loopback(settings.host):
        return found
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
    _is_lost = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._number = self.open_connections.made(transport)
        certificate = transport.get_extra_info("peercert")  # empty unless the certificate was verified
        self.app_state = {**self.app_state, "certificate": certificate, "is_gone": self._has_gone}
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
        self._is_lost = True
        self._cancel_deadline()
        self._stop_unread()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing():  # the client may delay its TLS shutdown
            self.loop.call_later(_TLS_SHUTDOWN_SECONDS, self.transport.abort)

    def _has_gone(self) -> bool:
        return self._is_lost

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
    """Serves a manager. The constructor binds the socket; from then on, clients can connect, but wait until ``run``.
    ``source``: where the settings are read again, on SIGHUP and when its files change."""

    def __init__(self, manager: TransactionManager, settings: Settings, source: Source[Settings] | None = None) -> None:
        """Raises CallError, or OSError if the address is not available."""
        self._has_tokens = has_tokens = issued.are_required(manager.coordinator)
        check(settings, has_tokens=has_tokens)
        self.warnings = warnings_of(settings, has_tokens=has_tokens)
        self._manager = manager
        self._settings = settings
        tls = None if settings.tls is None else listening(settings.tls, needs_certificate=settings.needs_certificate)
        self._connections = Connections(settings.limits.connections, settings.limits.header_seconds)
        self._socket = _bound(settings.host, settings.port, self._connections)
        is_open = settings.is_open and not has_tokens
        trusted = is_loopback(settings.host) and is_open
        self._authentication = Authentication(
            manager.coordinator, settings.authentication, shared=settings.token, is_open=is_open
        )
        manager.coordinator.keep_staged_commits()
        manager.coordinator.close()  # so that this change does not stay in a log beside the file of a catalog
        self.observation = _observation(settings, self._connections, self._socket)
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
        self._protocol = _protocol(self._app, settings.limits, self._connections, self.observation)
        self._tls = tls
        self._process = Process(_config(self._app, self._protocol, settings.limits, tls), self._app, settings.ending)
        self._reloader = None if source is None else Reloader(source, self._apply, settings.watch_seconds)
        if self._reloader is not None:
            self._process.on_hangup = self._reloader.ask

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
        """End as after SIGTERM; ``run`` returns when all running calls have finished, or when their time is over. This
        method can be called from any thread."""
        self._process.stop()

    def signals(self) -> contextlib.AbstractContextManager[None]:
        """In this block, signals are deferred until ``run``; without it, SIGHUP would end the process. ``run`` enters
        the block itself.
        """
        return self._process.signals()

    def run(self, *, is_process: bool = False) -> None:
        """Serve until ``stop``, SIGTERM or SIGINT. After a second signal, the server does not wait for running calls.
        ``is_process``: whether the process ends with the server; it is then ended by force if the server does not
        finish in time."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        over = threading.Event()
        sweeper = threading.Thread(target=self._recover_repeatedly, args=(over,), name="deltalog-recover", daemon=True)
        self._process.is_process = is_process
        if is_process:
            # Otherwise each full collection looks at all that was imported, which stops the event loop for 60 ms.
            gc.collect()
            gc.freeze()
        try:
            with self._process.signals():
                if self._settings.recover_seconds > 0:
                    sweeper.start()
                if self._reloader is not None:
                    self._reloader.start()
                self._process.run(sockets=[self._socket])
        finally:
            over.set()
            if sweeper.is_alive():
                sweeper.join(_LEASE_SECONDS)  # it gives up the lease, unless a recovery is running
            if self._reloader is not None:
                self._reloader.close()
            self._app.close()
            self._authentication.close()
            self._publisher.close()
            self._socket.close()

    def end_process(self) -> int:
        """Call this after ``run``; returns the exit status of the process: 0, or 1 if calls were cut off. A call that
        has timed out may still be running, for example because a store hangs. It gets the request timeout once more to
        finish, but at most ten seconds, and at most what is left of ``end_seconds``. Then the process is ended by
        force; Python itself would wait for the thread."""
        seconds = min(_MAX_END_SECONDS, self._settings.limits.request_seconds, self._process.left_seconds)
        timer = threading.Timer(seconds, self._process.exit_now)
        timer.daemon = True
        timer.start()
        return EXIT_CUT_OFF if self._app.has_cut_off else 0

    # ------------------------------------------------------------------------------------------------ reloading

    def _apply(self, settings: Settings) -> None:
        """Use new settings from now on. Raises CallError if they are invalid, and then changes nothing."""
        check(settings, has_tokens=self._has_tokens)
        old = self._settings
        if settings.is_open != old.is_open:
            raise CallError(
                "Authentication cannot be switched on or off while the server runs. Restart the server to put this "
                "into effect."
            )
        authenticate = self._authentication.prepared(settings.authentication, settings.token)
        observe = self.observation.reread()
        for what in _unchangeable(old, settings):
            log.warning("%s has changed in the configuration: restart the server to put this into effect", what)
        tls = None if old.tls is None else settings.tls
        context = None if tls is None else context_of(tls, needs_certificate=settings.needs_certificate)
        service = None
        readable = settings.unity.readable
        if settings.vendor.rules != old.vendor.rules or readable != old.unity.readable:
            unity = self._manager.unity_tables(dataclasses.replace(old.unity, readable=readable))
            service = Service(unity, settings.vendor, self._publisher.ask)
        done = threading.Event()

        def swap() -> None:
            if context is not None and self._tls is not None:
                self._tls.current = context
            self._app.reload(settings.limits, service)
            authenticate()
            observe()
            self._limit(settings)
            done.set()

        loop = self._process.loop
        if loop is None:
            swap()
        else:
            loop.call_soon_threadsafe(swap)
            done.wait(settings.end_seconds)
        self._settings = dataclasses.replace(
            settings,
            host=old.host,
            port=old.port,
            tls=settings.tls if old.tls else None,
            unity=dataclasses.replace(old.unity, readable=readable),
            recover_seconds=old.recover_seconds,
            audit=old.audit,
            metrics=old.metrics,
            traces=old.traces,
        )

    def _limit(self, settings: Settings) -> None:
        limits = settings.limits
        self._connections.limit(limits.connections, limits.header_seconds)
        self._protocol.header_seconds = limits.header_seconds
        self._protocol.response_seconds = limits.response_seconds
        self._process.config.h11_max_incomplete_event_size = limits.header_bytes
        self._process.ending = settings.ending
        if settings.log_level is not None:
            set_level(settings.log_level)
        if self._reloader is not None:
            self._reloader.watch_seconds = settings.watch_seconds

    def _recover_repeatedly(self, over: threading.Event) -> None:
        """Run recovery repeatedly while this server has the lease; otherwise another server of the catalog does so."""
        seconds = self._settings.recover_seconds
        lease = RecoveryLease(self._manager.coordinator, _LEASE_INTERVALS * seconds)
        lease.look()
        self.observation.work_as_server()
        while not over.wait(seconds):
            try:
                if lease.take():
                    self._manager.recover()
            except DeltaLogError as error:
                log.warning("recovery is postponed: %s", error)
            except Exception:
                log.exception("recovery failed")
        lease.give_up()


def _observation(settings: Settings, connections: Connections, bound: socket.socket) -> Observation:
    """The audit log, metrics and traces of the settings. Closes the socket before it raises an error."""
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


def _unchangeable(old: Settings, new: Settings) -> list[str]:
    """The names of the settings that differ and cannot be changed while the server runs."""
    names = ("host", "port", "recover_seconds", "audit", "metrics", "traces")
    changed = [name for name in names if getattr(old, name) != getattr(new, name)]
    changed += [
        f"unity.{name}"
        for name in ("catalog", "warehouse", "most_unpublished")
        if getattr(old.unity, name) != getattr(new.unity, name)
    ]
    return changed + (["the use of TLS"] if (old.tls is None) != (new.tls is None) else [])


def _protocol(app: App, limits: Limits, connections: Connections, observation: Observation) -> type[TimedProtocol]:
    known = {
        "header_seconds": limits.header_seconds,
        "response_seconds": limits.response_seconds,
        "refusals": app.refusals,
        "open_connections": connections,
        "observation": observation,
    }
    return type("Protocol", (TimedProtocol,), known)


def _config(app: App, protocol: type[TimedProtocol], limits: Limits, tls: ServerContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=protocol,
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
        h11_max_incomplete_event_size=limits.header_bytes,
    )
    config.load()
    config.ssl = tls
    return config


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
