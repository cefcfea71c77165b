"""The pages: which tables there are; of a table its columns, rows, history, timeline, differences and a check.

Rows, versions and commits are read by the server with its own access, and shown only to callers with SELECT on the
table. What a page can show is limited, and a call ends at its deadline as those of the APIs do.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from deltalog import deadline
from deltalog.errors import (
    CallError,
    CatalogNotFoundError,
    CorruptTableError,
    DeltaLogError,
    NotFoundError,
    ResourceNotReadyError,
    TableReplacedError,
    UnsupportedFeatureError,
)
from deltalog.presentation import timeline as timelines
from deltalog.presentation.activity import activity_text
from deltalog.presentation.difference import changed_rows, differences
from deltalog.presentation.schemas import columns_of
from deltalog.presentation.text import bytes_text, count, drift_text, plural
from deltalog.presentation.values import plain_json, value_of
from deltalog.protocol.timestamps import to_epoch_ms, to_iso
from deltalog.read.snapshot import Snapshot
from deltalog.server.access import rules
from deltalog.server.answers import Answer, Document
from deltalog.server.calls import Needs
from deltalog.server.ui.layout import document, page, table_page
from deltalog.server.ui.markup import Child, Html, address_of, address_of_table, facts_of, joined, link, rows_of, tag
from deltalog.server.unity import administration
from deltalog.server.unity.errors import answer_of, response
from deltalog.server.unity.requests import UnityRequest, full_name
from deltalog.server.unity.router import Router
from deltalog.server.unity.service import Endpoint, Service, Work
from deltalog.table import DeltaTable

ROOT = "/ui"
_TABLE = f"{ROOT}/tables/{{name}}"
_MOST_TABLES = 50
_MOST_COLUMNS = 100
_MOST_COMMITS = 1000
_FIRST_COMMITS = 50
_MOST_LISTED = 200
_MOST_CHARACTERS = 200
_MOST_PAGE_CHARACTERS = 4 << 20
_MOST_COMPARED = 20_000
_MOST_DIGITS = 18
# Errors that say something about a table or a version rather than about the server.
_OF_TABLES = (CorruptTableError, UnsupportedFeatureError, ResourceNotReadyError, TableReplacedError)


def explain(error: DeltaLogError) -> Answer:
    """The response for an error; its body becomes a page later."""
    if isinstance(error, _OF_TABLES):
        return response("UnsupportedTableFormatException", error.message)
    return answer_of(error, NotFoundError if isinstance(error, NotFoundError) else CatalogNotFoundError)


# ---------------------------------------------------------------------------------------------------- tables


def list_tables(request: UnityRequest) -> Work:
    prefix, after = request.parameter("prefix") or "", request.parameter("after") or ""

    def run(service: Service) -> Document:
        service.caller.enter(None)
        names = service.tables.all_names_after(prefix, after, _MOST_TABLES + 1, service.caller)
        found = [each for name in names[:_MOST_TABLES] if (each := administration.listed_table(service, name))]
        rows = [
            [
                link(each.name, address_of_table(each.name, "")),
                each.table_type.lower(),
                "" if each.version is None else f"v{each.version}",
                to_iso(each.created_ms),
            ]
            for each in found
        ]
        more = len(names) > _MOST_TABLES
        search = tag(
            "form",
            tag("label", "Names that begin with", tag("input", name="prefix", value=prefix, type="search")),
            tag("button", "Show"),
            method="get",
            action=address_of(""),
        )
        listing = (
            rows_of(["Table", "Kind", "Version", "Created"], rows, class_="wide")
            if rows
            else tag("p", "There are no tables that you may see.", class_="note")
        )
        following = address_of("", prefix=prefix or None, after=names[_MOST_TABLES - 1]) if more else None
        pages = tag("p", link("More tables", following), class_="pages") if following else None
        return page(f"Catalog {service.tables.settings.catalog}", tag("section", search, listing, pages))

    return Work(run)


def _of_table(tab: str, read: Callable[[UnityRequest], Callable[[Service, str, DeltaTable], Any]]) -> Any:
    """The call of a page of a table. ``read``: checks the request, and returns what makes the sections of the page, or
    the whole page."""

    def call(request: UnityRequest) -> Work:
        name = _name(request)
        made = read(request)

        def run(service: Service) -> Document:
            service.caller.enter(None, name.partition(".")[0])
            table = service.tables.opened(name, service.caller)
            found = made(service, name, table)
            return found if isinstance(found, Document) else table_page(name, tab, *found)

        return Work(run, name)

    return call


# -------------------------------------------------------------------------------------------- columns and rows


def _columns(request: UnityRequest) -> Callable[[Service, str, DeltaTable], Any]:
    chosen = _version_asked(request)

    def run(service: Service, name: str, table: DeltaTable) -> list[Child]:
        snapshot = chosen(table)
        metadata, partitions = snapshot.metadata, snapshot.partition_columns
        columns = list(itertools.islice(columns_of(snapshot.schema), _MOST_LISTED + 1))
        rows = [
            [
                path,
                _short(kind),
                ", ".join([*([] if nullable else ["not null"]), *(["partition column"] if path in partitions else [])]),
                _short(comment),
            ]
            for path, kind, nullable, comment in columns[:_MOST_LISTED]
        ]
        enablement = snapshot.enablement if snapshot.in_commit_timestamps_enabled else None
        facts = facts_of(
            [
                ("Version", str(snapshot.version)),
                ("Description", metadata.description),
                ("Files", f"{count(snapshot.num_files)} ({bytes_text(snapshot.size_bytes)})"),
                (
                    "In-commit timestamps",
                    "off"
                    if not snapshot.in_commit_timestamps_enabled
                    else "since version 0"
                    if enablement is None
                    else f"since version {enablement.version}, {to_iso(enablement.timestamp_ms)}",
                ),
                ("Partitioned by", ", ".join(partitions) or None),
                ("Table features", ", ".join(snapshot.table_features) or None),
                ("Location", service.tables.location(name, service.caller)),
            ]
        )
        configuration = [[key, _short(value)] for key, value in sorted(metadata.configuration.items())]
        return [
            tag("section", _version_form(request, name, ""), facts),
            tag(
                "section",
                tag("h2", "Columns"),
                rows_of(["Column", "Type", "", "Comment"], rows, class_="wide"),
                tag("p", "The page shows the first columns only.", class_="note") if columns[_MOST_LISTED:] else None,
            ),
            tag("section", tag("h2", "Properties"), rows_of(["Property", "Value"], configuration, class_="wide"))
            if configuration
            else None,
        ]

    return run


def _rows(request: UnityRequest) -> Callable[[Service, str, DeltaTable], Any]:
    chosen = _version_asked(request)

    def run(service: Service, name: str, table: DeltaTable) -> list[Child]:
        snapshot, most = chosen(table), service.most_rows
        names = snapshot.schema.names
        scan = snapshot.scan(names[:_MOST_COLUMNS], variants="json")
        cells = list(_cells(scan.batches(most + 1), snapshot.url))
        shown, size = list[list[Html]](), 0
        for row in cells[:most]:
            size += sum(map(len, row))
            if size > _MOST_PAGE_CHARACTERS:
                break
            shown.append(row)
        more = "The first " if len(cells) > len(shown) else ""
        notes = [f"{more}{plural(len(shown), 'row')} of version {snapshot.version}."]
        if names[_MOST_COLUMNS:]:
            notes.append(f"The page shows {_MOST_COLUMNS} of {count(len(names))} columns.")
        return [
            tag(
                "section",
                _version_form(request, name, "rows"),
                tag("p", " ".join(notes), class_="note"),
                rows_of(names[:_MOST_COLUMNS], shown, class_="cells"),
            )
        ]

    return run


def _cells(batches: Iterator[pa.RecordBatch], url: str) -> Iterator[list[Html]]:
    """The cells of each row. Raises StoreError after the deadline of the call."""
    for batch in batches:
        deadline.check(url)
        for number in range(batch.num_rows):
            yield [_shown(plain_json(value_of(column[number]))) for column in batch.columns]


def _shown(value: Any) -> Html:
    if value is None:
        return tag("span", "null", class_="none")
    return joined([_short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))])


# --------------------------------------------------------------------------------------------------- history


def _history(request: UnityRequest) -> Callable[[Service, str, DeltaTable], Any]:
    limit = _number(request, "limit")
    shown = _FIRST_COMMITS if limit is None else min(max(limit, 1), _MOST_COMMITS)

    def run(service: Service, name: str, table: DeltaTable) -> list[Child]:
        entries = table.history(shown + 1)
        rows = [
            [
                link(f"v{entry.version}", address_of_table(name, "rows", version=entry.version)),
                "missing" if entry.timestamp_ms is None else to_iso(entry.timestamp_ms),
                "in-commit time" if entry.clock == "in-commit" else "file time",
                ""
                if entry.in_commit_timestamp_ms is None
                else drift_text(entry.file_modification_time_ms - entry.in_commit_timestamp_ms),
                _short(entry.operation or "unknown"),
                activity_text(entry.operation_metrics, entry.operation),
                _short(entry.user_metadata or ""),
                link("diff", address_of_table(name, "diff", from_=entry.version - 1, to=entry.version))
                if entry.version
                else "",
            ]
            for entry in entries[:shown]
        ]
        wider = min(4 * shown, _MOST_COMMITS)
        more = tag("p", link("More commits", address_of_table(name, "history", limit=wider)), class_="pages")
        headings = ["Version", "Committed", "Clock", "Drift", "Operation", "Changes", "User metadata", ""]
        return [
            tag(
                "section",
                rows_of(headings, rows, class_="wide"),
                more if len(entries) > shown and wider > shown else None,
            )
        ]

    return run


def _timeline(request: UnityRequest) -> Callable[[Service, str, DeltaTable], Any]:
    def run(service: Service, name: str, table: DeltaTable) -> Document:
        made = timelines.page(table, _MOST_COMMITS)
        return document(made.html, made.policy)

    return run


# ------------------------------------------------------------------------------------------ differences, a check


def _diff(request: UnityRequest) -> Callable[[Service, str, DeltaTable], Any]:
    start, end = _number(request, "from"), _number(request, "to")

    def run(service: Service, name: str, table: DeltaTable) -> list[Child]:
        new = table.snapshot(end)
        old = table.snapshot(max(new.version - 1, 0) if start is None else start)
        form = tag(
            "form",
            _field("From version", "from", str(old.version)),
            _field("to version", "to", str(new.version)),
            tag("button", "Compare"),
            method="get",
            action=address_of_table(name, "diff"),
        )
        found = differences(old, new)
        rows = [_unknown(number) for number in found["num_rows"]]
        facts = facts_of(
            [
                ("Rows", _change(*rows)),
                ("Files", _change(*map(count, found["num_files"]))),
                ("Size", _change(*map(bytes_text, found["size_bytes"]))),
                ("Partitioned by", _change(*(", ".join(each) or "nothing" for each in found["partition_columns"]))),
            ]
        )
        changes = [
            [_mark(before is None, after is None), title[:-1] if title != "properties" else "property", key,
             _short(" → ".join(each for each in (before, after) if each))]
            for title in ("columns", "properties", "features")
            for key, (before, after) in list(found[title].items())[:_MOST_LISTED]
        ]  # fmt: skip
        files = [
            [_mark(is_new, not is_new), _short(file["path"]), bytes_text(file["size_bytes"]),
             "with a deletion vector" if file["has_deletion_vector"] else ""]
            for is_new, key in ((True, "files_added"), (False, "files_removed"))
            for file in found[key][:_MOST_LISTED]
        ]  # fmt: skip
        left_off = sum(max(len(found[key]) - _MOST_LISTED, 0) for key in ("files_added", "files_removed"))
        return [
            tag("section", form, facts),
            tag("section", tag("h2", "Columns, properties, table features"), rows_of((), changes, class_="wide"))
            if changes
            else None,
            tag("section", tag("h2", "Rows"), *_row_changes(old, new, service.most_rows)),
            tag(
                "section",
                tag("h2", "Files"),
                rows_of((), files, class_="wide") if files else tag("p", "The same files.", class_="note"),
                tag("p", f"and {plural(left_off, 'more file')}", class_="note") if left_off else None,
            ),
        ]

    return run


def _row_changes(old: Snapshot, new: Snapshot, most: int) -> list[Child]:
    found = changed_rows(old, new, _MOST_COMPARED, lambda: deadline.check(new.url))
    if found is None:
        return [tag("p", f"The files that differ have more than {count(_MOST_COMPARED)} rows.", class_="note")]
    names, removed, added = found
    if not removed and not added:
        return [tag("p", "The same rows.", class_="note")]
    rows = [
        [_mark(is_new, not is_new), *map(_shown, values[:_MOST_COLUMNS])]
        for is_new, side in ((False, removed), (True, added))
        for values in side[:most]
    ]
    left_off = sum(max(len(side) - most, 0) for side in (removed, added))
    return [
        rows_of(["", *names[:_MOST_COLUMNS]], rows, class_="cells"),
        tag("p", f"and {plural(left_off, 'more row')}", class_="note") if left_off else None,
    ]


def _check(request: UnityRequest) -> Callable[[Service, str, DeltaTable], Any]:
    def run(service: Service, name: str, table: DeltaTable) -> list[Child]:
        report = table.check(progress=lambda what, done, of: deadline.check(table.url))
        deadline.check(table.url)
        numbers = [f"{count(n)} {severity}" for severity, n in report.counts.items() if n]
        nothing = f"A check of version {report.version} found nothing."
        title = f"Findings in version {report.version}: {', '.join(numbers)}" if numbers else nothing
        headings = ["", "Version", "Rule", "What", "Where, and what to do"]
        rows = [
            [
                tag("span", finding.severity, class_=finding.severity),
                "" if finding.version is None else f"v{finding.version}",
                finding.rule,
                _short(finding.message),
                _short(" · ".join(each for each in (finding.path, finding.remedy) if each)),
            ]
            for finding in report.findings[:_MOST_LISTED]
        ]
        left_off = sum(report.counts.values()) - len(rows)
        return [
            tag(
                "section",
                tag("h2", title, class_="" if numbers else "good"),
                rows_of(headings, rows, class_="wide") if rows else None,
                tag("p", f"and {plural(left_off, 'more finding')}", class_="note") if left_off else None,
            )
        ]

    return run


# -------------------------------------------------------------------------------------------- parts of requests


def _name(request: UnityRequest) -> str:
    schema, _, table = request.parts["name"].partition(".")
    return full_name(schema, table)


def _number(request: UnityRequest, name: str) -> int | None:
    """Raises CallError."""
    given = (request.parameter(name) or "").strip()
    if not given:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= _MOST_DIGITS):
        raise CallError(f"{name} must be a version, such as 7.")
    return int(given)


def _version_asked(request: UnityRequest) -> Callable[[DeltaTable], Snapshot]:
    """Returns a function that returns the version that the request names, by number or by time. Raises CallError."""
    version, at = _number(request, "version"), (request.parameter("at") or "").strip()
    if version is not None and at:
        raise CallError("Give either a version or an instant, not both.")
    at_ms = to_epoch_ms(at) if at else None
    return lambda table: table.snapshot(version) if at_ms is None else table.snapshot(table.version_at(at_ms).version)


def _version_form(request: UnityRequest, name: str, tab: str) -> Html:
    return tag(
        "form",
        _field("Version", "version", request.parameter("version") or ""),
        _field("or as of", "at", request.parameter("at") or "", placeholder="2026-11-20T10:00:00Z"),
        tag("button", "Show"),
        method="get",
        action=address_of_table(name, tab),
    )


def _field(label: str, name: str, value: str, placeholder: str | None = None) -> Html:
    return tag("label", label, tag("input", name=name, value=value, placeholder=placeholder, autocomplete="off"))


def _short(value: str) -> str:
    return value if len(value) <= _MOST_CHARACTERS else f"{value[:_MOST_CHARACTERS]}…"


def _mark(is_added: bool, is_removed: bool) -> Html:
    if is_added:
        return tag("span", "+", class_="plus", title="added")
    return tag("span", "−", class_="minus", title="removed") if is_removed else tag("span", "~", title="changed")


def _change(before: str, after: str) -> str:
    return f"{before}, unchanged" if before == after else f"{before} → {after}"


def _unknown(number: int | None) -> str:
    return "unknown" if number is None else count(number)


ENDPOINTS = (
    Endpoint("GET", f"{ROOT}/", list_tables, rules.SEE_CATALOG),
    *(
        Endpoint("GET", f"{_TABLE}{'/' if tab else ''}{tab}", _of_table(tab, read), rules.READ_TABLE, Needs.TABLE)
        for tab, read in (
            ("", _columns),
            ("rows", _rows),
            ("history", _history),
            ("timeline", _timeline),
            ("diff", _diff),
            ("check", _check),
        )
    ),
)
ROUTER = Router(ENDPOINTS)
