"""The timeline page: the history of a table as one HTML file that works offline.

The contents of a log are untrusted. The contents of the log are embedded as JSON with every ``<``, ``>`` and ``&``
escaped, in a script element that contains data and never runs. The page's own script inserts the contents of the log
only as text. The content security policy allows only the page's own script, identified by its hash, and no requests.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

from deltalog.doctor.findings import CheckReport
from deltalog.log.history import LogHistory
from deltalog.log.history_entries import CommitEntry
from deltalog.presentation.activity import ACTIVITY, activity, removes_unknown_rows
from deltalog.presentation.text import visible
from deltalog.protocol.timestamps import monotonised
from deltalog.table import DeltaTable
from deltalog.version import VERSION

MARK = '<meta name="generator" content="deltalog timeline">'
# The effect of a commit on rows: added, replaced (all or by condition), removed, changed, rewritten to other files,
# none.
EFFECTS = ("append", "overwrite", "delete", "change", "rewrite", "none")
_OVERWRITES = re.compile(r"RESTORE|REPLACE TABLE|CREATE OR REPLACE TABLE")
_WRITES = re.compile(r"WRITE|STREAMING UPDATE|COPY INTO")
_NO_MORE = "base-uri 'none'; form-action 'none'"
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Page:
    """A rendered page. ``policy``: its content security policy, which it also has itself."""

    html: str
    num_commits: int
    policy: str


def page(table: DeltaTable, limit: int | None = None, report: CheckReport | None = None) -> Page:
    """Render the newest ``limit`` commits of a table with the findings of a check. Cost: that of ``history``."""
    data = page_data(table, limit, report)
    html, policy = filled("timeline", _title(data), data)
    return Page(html, len(data["commits"]), policy)


def page_data(table: DeltaTable, limit: int | None = None, report: CheckReport | None = None) -> dict[str, Any]:
    """The data of the page.

    ``commits``: CommitEntry.to_json() of the commits, newest first. ``activity``: for each commit, the numbers that
    ``activity_fields`` names; ``effects``: the effect of each commit on rows, one of EFFECTS;
    ``unknown_rows_removed``: versions that removed an unknown number of rows. ``check``: the counts and findings of
    ``report``, or None. ``resolution``: the data with which the page resolves TIMESTAMP AS OF like deltalog: versions
    with adjusted file times, versions with in-commit timestamps, and the instant from which on only versions with
    in-commit timestamps are candidates. ``left_off``: the number of older commits that the page omits.
    """
    history = LogHistory(table.snapshot().reader)
    entries = history.entries(limit)
    latest = history.latest
    return {
        "generator": f"deltalog {VERSION}",
        "table": {
            "location": latest.url,
            "name": latest.metadata.name,
            "description": latest.metadata.description,
            "id": latest.metadata.id,
            "partition_columns": list(latest.metadata.partition_columns),
        },
        **clocks_of(history, entries),
        "commits": [entry.to_json() for entry in entries],
        "activity_fields": list(ACTIVITY),
        "activity": [list(activity(entry.operation_metrics).values()) for entry in entries],
        "effects": [effect(entry) for entry in entries],
        "unknown_rows_removed": [
            entry.version for entry in entries if removes_unknown_rows(entry.operation_metrics, entry.operation)
        ],
        "check": None
        if report is None
        else {
            "version": report.version,
            "counts": report.counts,
            "findings": [finding.to_json() for finding in report.findings],
        },
    }


def clocks_of(history: LogHistory, entries: list[CommitEntry]) -> dict[str, Any]:
    """The members ``in_commit_timestamps``, ``resolution`` and ``left_off`` of the data of a table. ``entries``: the
    commits that the page contains."""
    enablement = history.enablement
    return {
        "in_commit_timestamps": {
            "enabled": history.latest.in_commit_timestamps_enabled,
            "enablement": None
            if enablement is None
            else {"version": enablement.version, "timestamp_ms": enablement.timestamp_ms},
        },
        "resolution": _resolution(history, entries),
        "left_off": len(history.listing.commits) - len(entries),
    }


def effect(entry: CommitEntry) -> str:
    """The effect of a commit on rows, one of EFFECTS, according to its operation, mode and metrics."""
    operation = (entry.operation or "").upper()
    done = activity(entry.operation_metrics)
    adds = any(done[name] for name in ("rows_added", "files_added"))
    removes = any(done[name] for name in ("rows_removed", "files_removed"))
    mode = str(entry.operation_parameters.get("mode", "")).upper()
    if _OVERWRITES.match(operation) or (mode == "OVERWRITE" and _WRITES.match(operation)):
        return "overwrite"
    if operation in ("DELETE", "TRUNCATE"):
        return "delete"
    if operation in ("UPDATE", "MERGE"):
        return "change"
    if _WRITES.match(operation) and mode != "IGNORE":
        return "append"
    if adds and removes:
        return "rewrite"
    return "append" if adds else "delete" if removes else "none"


def _resolution(history: LogHistory, entries: list[CommitEntry]) -> dict[str, Any]:
    if not history.candidates:
        return {"file": [], "in_commit": [], "from_ms": None, "cut": False}
    log = history.timeline
    oldest = entries[-1].version if entries else 0
    icts = {entry.version: entry.in_commit_timestamp_ms for entry in entries}
    file_times = monotonised(history.file_times_of(log.file_versions)) if log.file_versions else []
    return {
        "file": [[v, t] for v, t in zip(log.file_versions, file_times, strict=True) if v >= oldest],
        "in_commit": [[v, icts[v]] for v in log.ict_versions if v >= oldest],
        "from_ms": log.ict_from_ms,
        "cut": log.versions[0] < oldest,
    }


def render(data: dict[str, Any]) -> str:
    """The page for ``page_data``."""
    return filled("timeline", _title(data), data)[0]


def _title(data: dict[str, Any]) -> str:
    table = data["table"]
    name = table["name"] or table["location"].rstrip("/").rsplit("/", 1)[-1]
    return f"{name}: history"


def filled(kind: str, title: str, data: dict[str, Any]) -> tuple[str, str]:
    """The page ``kind``, which is the name of its files, with its data; and its content security policy."""
    source = resources.files("deltalog.presentation").joinpath("page")
    own = "".join(source.joinpath(name).read_text(encoding="utf-8") for name in ("common.js", f"{kind}.js"))
    script = f'"use strict";\n(() => {{\n{own}}})();\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; {_NO_MORE}"
    parts = {
        "mark": MARK,
        "title": html.escape(visible(title)),
        "policy": policy,
        "style": source.joinpath("timeline.css").read_text(encoding="utf-8"),
        "script": script,
        "data": embedded(data),
    }
    template = source.joinpath(f"{kind}.html").read_text(encoding="utf-8")
    # All placeholders are replaced in a single pass, so inserted text is never searched for placeholders.
    return _PLACEHOLDER.sub(lambda found: parts[found[1]], template), policy


def embedded(data: Any) -> str:
    """ASCII JSON without characters that are special in HTML, for a script element."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
