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
    maximum length of a line; members that would make it longer are shortened. ``queue_lines``: how many lines may wait
    for a slow disk; further lines are lost and counted. ``reads``: whether successful calls that only read are written,
    too. ``refused_per_second``: how many refused calls of unauthenticated callers get their own lines per second; the
    others are only counted. ``access_file``: the file for the access log, one line per request in the common log
    format; ``-``: standard output; empty: there is no access log.
    """

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
    """``enabled``: whether ``GET /metrics`` is served, in Prometheus' text format, on a separate listener. ``host``,
    ``port``: its address; port 0 selects a free one. ``token_file``: a file with the token that a scraper must send as
    ``Authorization: Bearer``; empty: no token is needed, which is permitted only on a loopback address.
    ``any_address``: permits other addresses without a token, for networks that limit who can reach them. ``tables``:
    the number of tables that have their own series, labelled with the name of the table: those with the most
    unpublished commits.
    """

    enabled: bool = False
    host: str = "127.0.0.1"
    port: int = 9464
    token_file: str = ""
    any_address: bool = False
    tables: int = 0


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """``enabled``: whether there is an OpenTelemetry span per request. This needs the package opentelemetry-api; spans
    go to the tracer provider of the process, for example the one that ``opentelemetry-instrument`` sets up. ``calls``:
    whether there are child spans for the calls to the catalog and to stores.
    """

    enabled: bool = False
    calls: bool = True
