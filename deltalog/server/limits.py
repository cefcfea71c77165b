"""The limits of the server, as an operator sets them."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltalog.server.quotas import Quotas


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the server. ``header_bytes``: the maximum total size of the headers of a request.
    ``header_seconds``: the maximum time until the headers of a request have arrived. It starts with the connection, and
    so includes the TLS handshake; for later requests on the same connection it starts with their first byte.
    ``body_bytes``: the maximum size of the body of a request. ``pending_bytes``: the maximum total size of bodies that
    are being received or processed; beyond it, bodies of more than 16 KiB are refused. ``body_seconds``: the maximum
    time for receiving a body. ``request_seconds``: the time within which a call is answered. ``response_seconds``: the
    maximum time for which a caller may pause while reading a response. ``slow_seconds``: a call that takes longer than
    this is slow. Slow calls do not count towards ``threads``, but their number is limited for each table. ``threads``:
    the maximum number of calls that run at the same time. It applies separately to calls that need stores and to calls
    that need only the catalog. ``requests``: the maximum number of calls that run or wait for a thread, also separately
    for these two kinds; further calls are refused, except those of callers who have less than an eighth of them.
    ``connections``: the maximum number of open connections; beyond it, the connections that have been idle longest are
    closed. ``quotas``: the limits of each caller."""

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
