"""Proxy rules, which decide how a request is handled."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.support.s3 import Answer, Request, Reset, Rule

Forward = Callable[[], Answer]


def error_document(status: int, code: str) -> Answer:
    return status, [("Content-Type", "application/xml")], f"<Error><Code>{code}</Code></Error>".encode()


def refused(status: int, code: str) -> Rule:
    return lambda request, forward: error_document(status, code)


slow_down = refused(503, "SlowDown")


def carried_out_but_answered(status: int, code: str) -> Rule:
    return lambda request, forward: (forward(), error_document(status, code))[1]


def reset_before(request: Request, forward: Forward) -> Answer:
    raise Reset


def reset_after(request: Request, forward: Forward) -> Answer:
    forward()
    raise Reset


def silent_for(seconds: float) -> Rule:
    """The request takes effect, but its response is delayed."""

    def silent(request: Request, forward: Forward) -> Answer:
        forward()
        time.sleep(seconds)
        raise Reset

    return silent


def only_once(rule: Rule, which: Callable[[Request], bool]) -> Rule:
    """Apply the rule to the first request for which ``which`` is true."""
    waiting = [rule]
    return lambda request, forward: waiting.pop()(request, forward) if waiting and which(request) else forward()
