"""Settings of the audit log, the metrics and the traces. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """``file``: the file to which the lines of the audit log are appended; ``-``: standard output; empty: there is no
    audit log. ``on_failure``: what happens while lines cannot be written, for example because the disk is full:
    ``warn``: calls are served; ``refuse``: calls are refused with status 503. ``sync``: whether each line is on the
    disk (fsync) before its response is sent; otherwise, it is in the operating system's cache, and only a crash of the
    machine can lose it. ``write_seconds``: how long a response waits for its line to be written. ``line_bytes``: the
    longest line; longer members are shortened. ``queue_lines``: how many lines may wait for a slow disk; more are lost
    and counted. ``reads``: whether calls that only read and succeed are written, too. ``refused_per_second``: how many
    refused calls of callers who are not known get lines of their own; the others are counted. ``access_file``: the file
    for the access log, one line per request in the common log format; ``-``: standard output; empty: there is no access
    log."""

    file: str = ""
    on_failure: Literal["warn", "refuse"] = "warn"
    sync: bool = False
    write_seconds: float = 5
    line_bytes: int = 8192
    queue_lines: int = 10_000
    reads: bool = True
    refused_per_second: int = 100
    access_file: str = ""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """``enabled``: whether ``GET /metrics`` is served, in Prometheus' text format, on a listener of its own. ``host``,
    ``port``: its address; port 0 selects a free one. ``token_file``: a file with the token that a scraper must send as
    ``Authorization: Bearer``; empty: none is needed, which is refused unless the address is on loopback.
    ``any_address``: allows another address without a token, because the network limits who can reach it. ``tables``:
    for how many tables, those with the most unpublished commits, there are series with the name of the table as a
    label."""

    enabled: bool = False
    host: str = "127.0.0.1"
    port: int = 9464
    token_file: str = ""
    any_address: bool = False
    tables: int = 0


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """``enabled``: whether there is an OpenTelemetry span per request. This needs the package opentelemetry-api; spans
    go to the tracer provider that the process has, such as that of ``opentelemetry-instrument``. ``calls``: whether
    there are child spans for the calls to the catalog and to stores."""

    enabled: bool = False
    calls: bool = True
