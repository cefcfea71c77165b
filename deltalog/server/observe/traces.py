"""OpenTelemetry spans: one per request, and one per call of the catalog and of stores that the request makes.

The spans go to the tracer provider of the process. Their attributes contain no query, header, body or error message.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from deltalog.metrics import CatalogCall, StoreCall
from deltalog.server.exchange import Exchange
from deltalog.server.observe.records import outcome_of
from deltalog.version import VERSION

_NAME = "deltalog.server"
_MOST_CHILDREN = 1000
_MOST_CHARACTERS = 256
_PROPAGATOR = TraceContextTextMapPropagator()
_CARRIED = frozenset({b"traceparent", b"tracestate"})


class _Trace:
    """The span of a request. ``context``: the context in which its child spans are started."""

    __slots__ = ("children", "context", "span")

    def __init__(self, span: trace.Span, context: Context) -> None:
        self.span = span
        self.context = context
        self.children = 0


class Traces:
    """The traces of a server. ``calls``: whether calls of the catalog and of stores get spans. ``provider``: the tracer
    provider; None: that of the process.
    """

    def __init__(self, *, calls: bool = True, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(_NAME, VERSION, tracer_provider=provider)
        self._calls = calls

    def begin(self, exchange: Exchange, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Start the span of a request, as a child of the caller's span if the headers name one."""
        carrier = {
            name.lower().decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name.lower() in _CARRIED
        }
        parent = _PROPAGATOR.extract(carrier, Context())
        span = self._tracer.start_span(
            exchange.method[:16], parent, SpanKind.SERVER, start_time=exchange.started_ms * 1_000_000
        )
        exchange.trace = _Trace(span, trace.set_span_in_context(span, Context()))

    def answered(self, exchange: Exchange) -> None:
        """End the span of a request."""
        found: _Trace = exchange.trace
        span = found.span
        if span.is_recording():
            if exchange.route is not None:
                span.update_name(exchange.route)
            principal = exchange.principal
            known = {
                "http.request.method": exchange.method[:16],
                "http.route": exchange.route,
                "http.response.status_code": exchange.status,
                "client.address": exchange.caller,
                "error.type": exchange.error,
                "user.id": None if principal is None else principal.name[:_MOST_CHARACTERS],
                "deltalog.request_id": exchange.request_id,
                "deltalog.outcome": outcome_of(exchange),
                "deltalog.table": (exchange.table or "")[:_MOST_CHARACTERS] or None,
                "deltalog.transaction": exchange.transaction_id and exchange.transaction_id[:_MOST_CHARACTERS],
                "deltalog.calls": found.children or None,
            }
            for name, value in known.items():
                if value is not None:
                    span.set_attribute(name, value)
            if exchange.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
        span.end()

    def note(self, event: StoreCall | CatalogCall, exchange: Exchange) -> None:
        """Add the span of a call that has just ended. A request has at most 1,000 of these; its attribute
        ``deltalog.calls`` counts all calls.
        """
        found: _Trace | None = exchange.trace
        if found is None or not self._calls or not found.span.is_recording():
            return
        found.children += 1
        if found.children > _MOST_CHILDREN:
            return
        end_ns = time.time_ns()
        is_store = isinstance(event, StoreCall)
        attributes: dict[str, Any] = {"deltalog.store" if is_store else "deltalog.catalog": _place(event)}
        if isinstance(event, StoreCall) and event.objects != 1:
            attributes["deltalog.objects"] = event.objects
        if event.error is not None:
            attributes["error.type"] = event.error
        name = f"{'store' if is_store else 'catalog'} {event.method}"
        begun_ns = end_ns - int(event.seconds * 1e9)
        span = self._tracer.start_span(name, found.context, SpanKind.CLIENT, attributes, start_time=begun_ns)
        if event.error is not None and event.error != "ObjectNotFoundError":
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_ns)


def _place(event: StoreCall | CatalogCall) -> str:
    return (event.store if isinstance(event, StoreCall) else event.catalog)[:_MOST_CHARACTERS]


def exports() -> bool:
    """Whether the process has a tracer provider that can export spans; the default one of the API drops them all."""
    return not isinstance(trace.get_tracer_provider(), (trace.NoOpTracerProvider, trace.ProxyTracerProvider))
