"""What is known of one request and its response: the audit log, the access log and the metrics are made of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from deltalog.server.access.principals import Principal


@dataclass(slots=True)
class Exchange:
    """A request and its response, while the server works on it. ``caller``: the address of the client. ``route``: the
    name of the call; None until it is known. ``table``, ``transaction_id``: what the request names. ``error``: the name
    of the error in the response. ``versions``: the versions that the call committed, by table. ``started_s``,
    ``seconds``: on the monotonic clock."""

    request_id: str
    method: str
    path: str
    caller: str | None
    started_s: float = field(default_factory=time.monotonic)
    principal: Principal | None = None
    route: str | None = None
    table: str | None = None
    transaction_id: str | None = None
    request_bytes: int = 0
    status: int = 0
    error: str | None = None
    response_bytes: int = 0
    seconds: float = 0.0
    versions: dict[str, int] = field(default_factory=dict)


Observer = Callable[[Exchange], None]
"""Called on the event loop after each response; it must not block, and raises nothing."""

Observers = Sequence[Observer]
