"""Faults of single HTTP requests, and the requests that a writer sends."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from tests.support.s3 import Answer, CutShort, Proxy, Request, Reset

Forward = Callable[[], Answer]
Fault = Callable[[Proxy, Request, Forward], Answer]

LATE_SECONDS = 0.4
#: The read timeout of the clients in these tests, and a delay that exceeds this timeout.
TIME_LIMIT_SECONDS, TOO_LONG_SECONDS = 1, 1.6


def answered(status: int, code: str) -> Fault:
    """The service responds with an error, and the request has no effect."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()

    def fault(proxy: Proxy, request: Request, forward: Forward) -> Answer:
        return status, [("Content-Type", "application/xml")], body

    return fault


def dropped_after(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    forward()
    raise Reset


def dropped_before(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    raise Reset


def half_body(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    """Half of the body arrives: when writing, the server receives half of it; when reading, the client does, and then
    the connection closes normally."""
    if request.method == "PUT":
        proxy.send_half(request)
        raise Reset
    status, headers, body = forward()
    return status, headers, body[: len(body) // 2]


def slow(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    answer = forward()
    time.sleep(TOO_LONG_SECONDS)
    return answer


def repeated(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    """The request is delivered twice, and the client gets the first response."""
    answer = forward()
    forward()
    return answer


def own_412(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    """The first response is lost, the transport sends the request again, and the client gets the second response."""
    forward()
    return forward()


def late(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    """The client's connection is reset, and the request reaches the server after the client has given up."""
    threading.Timer(LATE_SECONDS, forward).start()
    raise Reset


def reset_in_the_answer(proxy: Proxy, request: Request, forward: Forward) -> Answer:
    raise CutShort(forward())


FAULTS: dict[str, Fault] = {
    "dropped after it took effect": dropped_after,
    "dropped before": dropped_before,
    "500": answered(500, "InternalError"),
    "503": answered(503, "SlowDown"),
    "429": answered(429, "TooManyRequests"),
    "409": answered(409, "ConditionalRequestConflict"),
    "half of the body": half_body,
    "slower than the time limit": slow,
    "delivered twice": repeated,
    "delivered late": late,
    "412 by its own repetition": own_412,
    "reset in the answer": reset_in_the_answer,
}


def _put(pattern: str) -> Callable[[Request], bool]:
    return lambda request: request.method == "PUT" and re.search(pattern, request.key) is not None


REQUESTS: dict[str, Callable[[Request], bool]] = {
    "PUT of the commit": _put(r"/_delta_log/\d{20}\.json$"),
    "PUT of data": _put(r"/part-[^/]*\.parquet$"),
    "PUT of the checkpoint": _put(r"/_delta_log/\d{20}\.checkpoint\.parquet$"),
    "PUT of _last_checkpoint": _put(r"/_last_checkpoint$"),
    "PUT of the .crc": _put(r"/_delta_log/\d{20}\.crc$"),
    "GET of a commit": lambda request: request.method == "GET" and request.key.endswith(".json"),
    "LIST": lambda request: "list-type=2" in request.target,
    "HEAD": lambda request: request.method == "HEAD",
}
