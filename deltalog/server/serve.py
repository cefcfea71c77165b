"""The server: its address, its start and end, and what can be replaced while it runs."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import os
import socket
import sys
import threading

import uvicorn

from deltalog.errors import CallError, DeltaLogError
from deltalog.server.access import issued
from deltalog.server.access.authentication import Authentication
from deltalog.server.access.principals import Scope
from deltalog.server.addresses import HTTP_ONLY, LOOPBACK_NAMES, bound, is_loopback, origin_of
from deltalog.server.app import App
from deltalog.server.connections import Connections, Listener
from deltalog.server.limits import Limits
from deltalog.server.logs import set_level
from deltalog.server.observe.observation import Observation
from deltalog.server.process import EXIT_CUT_OFF, Process
from deltalog.server.protocol import TimedProtocol, protocol_of
from deltalog.server.recovery_lease import RecoveryLease
from deltalog.server.reload import Reloader, Source
from deltalog.server.settings import Settings, check, warnings_of
from deltalog.server.tls import ServerContext, context_of, listening
from deltalog.server.unity.publisher import Publisher
from deltalog.server.unity.service import Service
from deltalog.transactions.manager import TransactionManager

log = logging.getLogger(__name__)

_KEEP_ALIVE_SECONDS = 60
# A recovery may take longer than the interval between recoveries.
_LEASE_INTERVALS = 1.9
_LEASE_SECONDS = 1.0
_MAX_END_SECONDS = 10.0
_BACKLOG = 256
# With Python's default of 5 ms, a call that computes for long would delay each step of the other threads by 5 ms.
_SWITCH_SECONDS = 0.00005
# Settings that cannot change while the server runs.
_UNCHANGEABLE = ("host", "port", "recover_seconds", "audit", "metrics", "traces", "ui")


def check_system(system: str = os.name) -> None:
    """Raises CallError on Windows, where asyncio accepts connections without ``Listener``. ``system``: the value of
    ``os.name``."""
    if system == "nt":
        raise CallError(
            "deltalog's server does not run on Windows: its limits of connections have no effect there. Run it on "
            "Linux or macOS, in WSL or in a container."
        )


class Server:
    """Serves a manager. The constructor binds the socket; from then on, clients can connect, but wait until ``run``.
    ``source``: where the settings are read again, on SIGHUP and when its files change."""

    def __init__(self, manager: TransactionManager, settings: Settings, source: Source[Settings] | None = None) -> None:
        """Raises CallError, also on Windows, or OSError if the address is not available."""
        check_system()
        self._has_tokens = has_tokens = issued.are_required(manager.coordinator)
        check(settings, has_tokens=has_tokens)
        self.warnings = warnings_of(settings, has_tokens=has_tokens)
        self._manager = manager
        self._settings = settings
        tls = None if settings.tls is None else listening(settings.tls, needs_certificate=settings.needs_certificate)
        self._connections = Connections(settings.limits.connections, settings.limits.header_seconds)
        self._socket = bound(settings.host, settings.port, _BACKLOG, Listener, "The server cannot listen on")
        self._socket.connections = self._connections
        is_open = settings.is_open and not has_tokens
        trusted = is_loopback(settings.host) and is_open
        self._authentication = Authentication(
            manager.coordinator,
            settings.authentication,
            shared=settings.token,
            is_open=is_open,
            shared_scope=Scope.READ if settings.is_read_only else Scope.ADMIN,
        )
        if not settings.is_read_only:
            manager.coordinator.keep_staged_commits()
        manager.coordinator.close()  # so that this change does not stay in a log beside the file of a catalog
        self.observation = _observation(settings, self._connections, self._socket)
        unity = manager.unity_tables(settings.unity)
        self._publisher = Publisher(unity, self.observation.work_as_server)
        self._app = App(
            manager,
            settings.limits,
            authenticator=self._authentication,
            hosts=LOOPBACK_NAMES | {settings.host.lower()} if trusted else None,
            unity=Service(unity, settings.vendor, self._publisher.ask, most_rows=settings.ui.rows),
            observation=self.observation,
            has_pages=settings.ui.enabled,
        )
        self._protocol = protocol_of(self._app, settings.limits, self._connections, self.observation)
        self._tls = tls
        self._process = Process(_config(self._app, self._protocol, settings.limits, tls), self._app, settings.ending)
        self._reloader = None if source is None else Reloader(source, self._apply, settings.watch_seconds)
        if self._reloader is not None:
            self._process.on_hangup = self._reloader.ask

    @property
    def url(self) -> str:
        return origin_of("http" if self._settings.tls is None else "https", self._socket)

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
            service = Service(unity, settings.vendor, self._publisher.ask, most_rows=old.ui.rows)
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
            tls=settings.tls if old.tls else None,
            unity=dataclasses.replace(old.unity, readable=readable),
            **{name: getattr(old, name) for name in _UNCHANGEABLE},
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
    changed = [name for name in _UNCHANGEABLE if getattr(old, name) != getattr(new, name)]
    changed += [
        f"unity.{name}"
        for name in ("catalog", "warehouse", "most_unpublished")
        if getattr(old.unity, name) != getattr(new.unity, name)
    ]
    return changed + (["the use of TLS"] if (old.tls is None) != (new.tls is None) else [])


def _config(app: App, protocol: type[TimedProtocol], limits: Limits, tls: ServerContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=protocol,
        **HTTP_ONLY,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=limits.header_bytes,
    )
    config.load()
    config.ssl = tls
    return config
