"""The limits of the server, as an operator sets them."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltalog.server.quotas import Quotas


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the server. ``header_bytes``: the largest headers. ``header_seconds``: the maximum time, including
    the TLS handshake, from the connection (for later requests on it, from the first byte) to the end of the headers.
    ``body_bytes``: the largest body. ``pending_bytes``: the maximum total size of bodies that are being received or
    processed; beyond it, bodies of more than 16 KiB are refused. ``body_seconds``: the maximum time for receiving a
    body. ``request_seconds``: the time within which a call is answered. ``response_seconds``: the maximum time for
    which a caller may pause while reading a response. ``slow_seconds``: the number of calls that take longer than this
    is limited for each table. ``threads``: the maximum number of calls that run at the same time, of those that need
    stores and of those that need only the catalog. ``requests``: the maximum number of calls of each of these kinds
    that run in the threads or wait for a thread; further calls are refused, except those of callers who have less than
    an eighth of them. ``connections``: the maximum number of open connections; beyond it, the connections that have
    been idle longest are closed. ``quotas``: the limits of each caller."""

    header_bytes: int = 32 << 10
    header_seconds: float = 10
    body_bytes: int = 4 << 20
    pending_bytes: int = 64 << 20
    body_seconds: float = 30
    request_seconds: float = 60
    response_seconds: float = 60
    slow_seconds: float = 2
    threads: int = 16
    requests: int = 64
    connections: int = 512
    quotas: Quotas = field(default_factory=Quotas)
