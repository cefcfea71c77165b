"""HTTP on one connection, with time limits."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from deltalog.server.app import App
from deltalog.server.connections import Connections
from deltalog.server.limits import Limits
from deltalog.server.logs import Refusals
from deltalog.server.observe.observation import Observation

_TLS_SHUTDOWN_SECONDS = 0.5


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


def protocol_of(app: App, limits: Limits, connections: Connections, observation: Observation) -> type[TimedProtocol]:
    known = {
        "header_seconds": limits.header_seconds,
        "response_seconds": limits.response_seconds,
        "refusals": app.refusals,
        "open_connections": connections,
        "observation": observation,
    }
    return type("Protocol", (TimedProtocol,), known)
