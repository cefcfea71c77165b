"""Tokens, vended keys and signed URLs are in no log line, metric or span."""

from __future__ import annotations

import io
import logging
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from deltalog.server.logs import LineFormatter
from deltalog.server.observe import traces
from deltalog.server.observe.settings import AuditSettings, MetricsSettings, TraceSettings
from deltalog.server.unity.credentials import Static, Vendor
from tests.support.server.observed import observed
from tests.support.server.unity import ROOT

TOKEN, KEY, SIGNED = "sentinel-token-0123456789", "SENTINELKEY0123456789", "sentinelsignature0123456789"


def test_no_secret_leaves_by_what_is_observed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter, provider, made = InMemorySpanExporter(), TracerProvider(), traces.Traces
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(
        traces, "Traces", lambda calls, provider=None, _made=provider: made(calls=calls, provider=_made)
    )
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    logger = logging.getLogger("deltalog")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    keys = {"s3.access-key-id": KEY, "s3.secret-access-key": KEY, "s3.session-token": KEY}
    audit = AuditSettings(file=str(tmp_path / "audit.log"), access_file=str(tmp_path / "access.log"))
    settings: dict[str, Any] = {
        "audit": audit, "metrics": MetricsSettings(enabled=True, port=0), "traces": TraceSettings(enabled=True),
        "vendor": Vendor([Static(prefix="s3://vault/", config=keys)]),
    }  # fmt: skip
    bearer = {"authorization": f"Bearer {TOKEN}"}
    try:
        with observed(tmp_path, token=TOKEN, **settings) as server:
            server.unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
            server.unity.new_table("t").commit()
            location = urllib.parse.quote("s3://vault/x", safe="")
            path = f"{ROOT}/delta/v1/temporary-path-credentials?operation=READ_WRITE&location={location}"
            status, _, body = server.ask("GET", path, **bearer)
            assert status == 200 and KEY.encode() in body
            signed = f"{path}&X-Amz-Signature={SIGNED}&X-Amz-Credential={KEY}"
            server.ask("GET", signed, **bearer)
            server.ask("GET", signed)
            server.ask("GET", f"{ROOT}/none?X-Amz-Signature={SIGNED}", **bearer)
            server.ask("GET", f"{ROOT}/catalogs?token={TOKEN}", **bearer)
            server.ask("GET", f"{ROOT}/catalogs", authorization=f"Basic {TOKEN}", cookie=TOKEN)
            server.ask("GET", f"{ROOT}/catalogs", authorization=f"Basic {TOKEN}", x_amz_security_token=f"{TOKEN}x")
            server.ask("GET", f"{ROOT}/catalogs", x_request_id=TOKEN, **bearer)
            server.ask("POST", f"{ROOT}/schemas", {"name": "x", "properties": {"k": KEY}}, **bearer)
            server.ask("POST", f"{ROOT}/schemas", f'{{"name": "{KEY}'.encode(), **bearer)
            scraped = "\n".join(server.metrics())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    seen = {
        "audit": (tmp_path / "audit.log").read_text(), "access": (tmp_path / "access.log").read_text(),
        "metrics": scraped, "spans": "".join(span.to_json() for span in exporter.get_finished_spans()),
        "log": stream.getvalue(),
    }  # fmt: skip
    for name, text in seen.items():
        assert len(text) > 100, name
        for secret in (TOKEN, KEY, SIGNED):
            assert secret not in text and secret[2:-2] not in text, (name, secret)


def test_each_line_of_the_log_names_the_request_that_caused_it() -> None:
    from deltalog.server.exchange import CURRENT, Exchange

    def line(message: str) -> str:
        return LineFormatter().format(logging.LogRecord("deltalog.catalog", logging.INFO, "", 0, message, (), None))

    assert line("hello").endswith("deltalog.catalog: hello")
    token = CURRENT.set(Exchange("id-7", "GET", "/", None))
    try:
        assert line("hello").endswith("deltalog.catalog: hello (request id-7)")
        assert line("request id-7: done").endswith("deltalog.catalog: request id-7: done")
    finally:
        CURRENT.reset(token)
