"""OpenTelemetry spans, with the SDK's exporter in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from deltalog import TransactionManager
from deltalog.server.app import App
from deltalog.server.observe import traces as module
from deltalog.server.observe.observation import Observation
from deltalog.server.observe.settings import TraceSettings
from tests.support.server.observed import observed
from tests.support.server.unity import ROOT
from tests.support.waiting import until

TOKEN = "sentinel-0123456789abcdef-token"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def finished(exporter: InMemorySpanExporter, requests: int = 1) -> list[Any]:
    """The spans that have ended, in this order, once those of so many requests have, which is after their response."""
    until(lambda: sum(span.kind is SpanKind.SERVER for span in exporter.get_finished_spans()) >= requests)
    return list(exporter.get_finished_spans())


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(exporter: InMemorySpanExporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    real = module.Traces
    monkeypatch.setattr(
        module, "Traces", lambda calls, provider=None, _made=provider: real(calls=calls, provider=_made)
    )
    with observed(tmp_path, token=TOKEN, traces=TraceSettings(enabled=True)) as server:
        server.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        yield server


def test_a_request_and_its_calls(traced: Any, exporter: InMemorySpanExporter) -> None:
    table = traced.unity.new_table("traced")
    finished(exporter, 3)
    exporter.clear()
    traceparent = f"00-{TRACE}-{PARENT}-01"
    add = table.stage()
    body = {"requirements": [{"type": "assert-table-uuid", "uuid": table.id}], "updates": [add]}
    headers = {"authorization": f"Bearer {TOKEN}", "traceparent": traceparent, "x_request_id": "traced-1"}
    assert traced.ask("POST", f"{ROOT}{table.path}", body, **headers)[0] == 200
    spans = finished(exporter)
    (request,) = [span for span in spans if span.kind is SpanKind.SERVER]
    assert request.name == "POST /delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
    assert f"{request.context.trace_id:032x}" == TRACE and f"{request.parent.span_id:016x}" == PARENT
    found = dict(request.attributes)
    assert found["deltalog.request_id"] == "traced-1" and found["user.id"] == "admin"
    assert found["http.response.status_code"] == 200 and found["deltalog.outcome"] == "allowed"
    assert found["deltalog.table"] == "s.traced"
    children = [span for span in spans if span.kind is SpanKind.CLIENT]
    assert {"catalog ratify", "catalog head", "store get"} <= {span.name for span in children}
    assert found["deltalog.calls"] == len(children)
    for span in children:
        assert span.context.trace_id == request.context.trace_id and span.parent.span_id == request.context.span_id
        assert request.start_time - 2e6 <= span.start_time <= span.end_time <= request.end_time


def test_errors_and_requests_of_unknown_callers(traced: Any, exporter: InMemorySpanExporter) -> None:
    finished(exporter, 1)
    exporter.clear()
    traced.ask("GET", f"{ROOT}/catalogs", traceparent="00-garbage-01", tracestate="x" * 5000)
    traced.ask("GET", f"{ROOT}/nothing", authorization=f"Bearer {TOKEN}")
    traced.ask("GET", "/health")
    unknown, absent, health = [span for span in finished(exporter, 3) if span.kind is SpanKind.SERVER]
    assert unknown.name == "GET" and dict(unknown.attributes)["deltalog.outcome"] == "denied" and unknown.parent is None
    assert dict(absent.attributes)["http.response.status_code"] == 404
    assert unknown.status.status_code is not StatusCode.ERROR and health.name == "GET /health"


def test_no_secret_is_in_a_span(traced: Any, exporter: InMemorySpanExporter) -> None:
    traced.unity.new_table("secret").commit()
    traced.ask("GET", f"{ROOT}/catalogs?X-Amz-Signature={TOKEN}", authorization=f"Bearer {TOKEN}")
    traced.ask("GET", f"{ROOT}/catalogs", authorization=f"Basic {TOKEN}", cookie=TOKEN)
    text = "".join(span.to_json() for span in finished(exporter, 6))
    assert len(text) > 1000 and TOKEN not in text and TOKEN[3:-3] not in text


def test_a_request_has_at_most_a_thousand_spans(
    exporter: InMemorySpanExporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_CHILDREN", 3)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    for _ in range(5):
        manager.start_transaction()
    observation = Observation(traces=TraceSettings(enabled=True), provider=provider)
    app = App(manager, observation=observation)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"MaxResults": 1}'}

    async def several() -> None:
        for name in (b"/StartTransaction", b"/ListTransactions"):
            scope: dict[str, Any] = {
                "type": "http",
                "method": "POST",
                "raw_path": name,
                "headers": [],
                "query_string": b"",
            }
            await app(scope, receive, send)

    import asyncio

    asyncio.run(several())
    app.close()
    for request in [span for span in finished(exporter) if span.kind is SpanKind.SERVER]:
        made = [span for span in finished(exporter) if span.parent and span.parent.span_id == request.context.span_id]
        assert len(made) == min(3, dict(request.attributes).get("deltalog.calls", 0))


def test_a_process_without_a_provider_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    Observation(traces=TraceSettings(enabled=True)).close()
    assert any("no span is exported" in each.getMessage() for each in caplog.records)
