"""Settings of the audit log, the metrics and the traces. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """``file``: the file to which the lines of the audit log are appended; ``-``: standard output; empty: no audit log
    is written. ``on_failure``: what happens while lines cannot be written, for example because the disk is full:
    ``warn``: calls are served; ``refuse``: calls are refused with status 503. ``sync``: whether each line is on the
    disk (fsync) before its response is sent; otherwise it is in the operating system's cache by then, and only a crash
    of the machine can lose it. ``write_seconds``: how long a response waits for its line to be written. ``line_bytes``:
    the maximum length of a line; members are shortened to fit. ``queue_lines``: how many lines may wait for the disk;
    further lines are lost, and counted. ``reads``: whether successful calls that only read are written too.
    ``refused_per_second``: how many refused calls per second of unknown callers get lines of their own; the others are
    only counted. ``access_file``: the file for the access log, one line per request in the common log format; ``-``:
    standard output; empty: no access log is written."""

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
    """``enabled``: whether ``GET /metrics`` is served, in Prometheus' text format, on a listener of its own. ``host``:
    the address of this listener. ``port``: its port; 0 selects a free one. ``token_file``: a file with the token that a
    scraper must send as ``Authorization: Bearer``; empty: no token is needed, which is possible only on loopback, or
    with ``any_address``. ``any_address``: permits an address other than loopback without a token: set it if the network
    limits who can reach the listener. ``tables``: how many tables, those with the most unpublished commits, have series
    with their names as labels."""

    enabled: bool = False
    host: str = "127.0.0.1"
    port: int = 9464
    token_file: str = ""
    any_address: bool = False
    tables: int = 0


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """``enabled``: whether each request is an OpenTelemetry span. This needs the package opentelemetry-api; spans go to
    the tracer provider of the process, such as the one that ``opentelemetry-instrument`` sets up. ``calls``: whether
    calls of the catalog and of stores are child spans of the request."""

    enabled: bool = False
    calls: bool = True
