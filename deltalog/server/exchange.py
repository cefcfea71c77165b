"""The facts of one request and its response, from which the audit log, the access log, the metrics and the traces are
written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from deltalog.server.access.principals import Principal, Rejected


@dataclass(slots=True)
class Exchange:
    """A request and its response, filled in while the server works on it. ``caller``: the address of the client.
    ``route``: the name of the call; None until it is known. ``names``: the variable segments of the path. ``table``,
    ``transaction_id``: what the request names. ``error``: the name of the error in the response. ``versions``: the last
    version that the call committed, by id of the table; ``commits``: how many versions it committed; ``in_doubt``:
    versions that may have been committed. ``tables``: the names of tables, by id. ``started_s``, ``seconds``: by the
    monotonic clock. ``is_hidden``: whether the response reports something as missing that exists and that the caller
    may not see. ``rejected``: the credential for which the request was refused. ``is_answered``: whether the response
    has been decided. ``owner``: the ``Observation`` of the server. ``trace``: the span of the request, used by
    ``Traces`` only. Background work has an exchange too, without method and path.
    """

    request_id: str
    method: str
    path: str
    caller: str | None
    started_s: float = field(default_factory=time.monotonic)
    started_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    principal: Principal | None = None
    route: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    table: str | None = None
    transaction_id: str | None = None
    request_bytes: int = 0
    status: int = 0
    error: str | None = None
    response_bytes: int = 0
    seconds: float = 0.0
    versions: dict[str, int] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    in_doubt: dict[str, int] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    is_hidden: bool = False
    rejected: Rejected | None = None
    is_answered: bool = False
    owner: object = None
    trace: Any = None


Observer = Callable[[Exchange], None]
"""Called on the event loop after each response; it must not block, and raises nothing."""

Observers = Sequence[Observer]

CURRENT: ContextVar[Exchange | None] = ContextVar("deltalog_exchange", default=None)
"""The exchange on which this thread or task works."""
