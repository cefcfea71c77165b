"""The page with the histories of several tables on one time axis. It is made like that of one table; see ``timeline``.

For tables of one catalog, the page shows for each instant the versions that ``TransactionManager.consistent_cut``
returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalog.doctor.findings import CheckReport
from deltalog.errors import EntityNotFoundError
from deltalog.log.history import LogHistory
from deltalog.log.history_entries import CommitEntry
from deltalog.presentation.activity import activity
from deltalog.presentation.timeline import Page, clocks_of, effect, filled
from deltalog.protocol.actions import CommitInfo
from deltalog.table import DeltaTable
from deltalog.transactions.branch import place_in_transaction, transaction_of
from deltalog.transactions.manager import TransactionManager
from deltalog.version import VERSION


@dataclass(frozen=True, slots=True)
class TableOnPage:
    """A table of the page. ``history``: its commits up to the instant as of which the page is made. ``catalog``: the
    URL of its catalog; None: it is not used through a catalog."""

    name: str
    table: DeltaTable
    history: LogHistory
    catalog: str | None = None
    report: CheckReport | None = None


def tables_of(manager: TransactionManager, names: Sequence[str] | None = None) -> Iterator[TableOnPage]:
    """Tables of a catalog, all as of one instant. ``names``: which ones; by default all. Raises EntityNotFoundError.
    Cost: 1 coordinator call, that of ``list_tables``, and for each table that of ``snapshot``."""
    latest = manager.coordinator.cut()
    records = {record.name: record for record in manager.list_tables()}
    for name in records if names is None else names:
        if name not in records:
            raise EntityNotFoundError(f"The catalog {manager.coordinator.url} has no table {name}.")
        record = records[name]
        version = latest.get(record.table_id)
        if version is not None:  # else it was created after the instant
            table = manager.table(name)
            snapshot = table.snapshot(version)
            yield TableOnPage(name, table, LogHistory(snapshot.reader, snapshot.log), manager.coordinator.url)


def page(title: str, tables: Sequence[TableOnPage], limit: int | None = None) -> Page:
    """Render the newest ``limit`` commits of each table. Cost: that of the history of each table."""
    data = page_data(title, tables, limit)
    html, policy = filled("tables", f"{title}: history", data)
    return Page(html, sum(len(table["commits"]) for table in data["tables"]), policy)


def page_data(title: str, tables: Sequence[TableOnPage], limit: int | None = None) -> dict[str, Any]:
    """The data of the page. Of each table, ``commits`` has a list for each commit, newest first: the version, the time
    that counts in milliseconds, the effect on rows, the operation, whether that time is an in-commit timestamp, and the
    rows added and removed. ``transactions`` has a list for each of these commits that is part of a transaction: the
    version, the id of the transaction, and as in ``place_in_transaction``. ``latest``: the latest version."""
    return {
        "generator": f"deltalog {VERSION}",
        "title": title,
        "tables": [_table(each, each.history.entries(limit)) for each in tables],
    }


def _table(table: TableOnPage, entries: list[CommitEntry]) -> Mapping[str, Any]:
    history = table.history
    return {
        "name": table.name,
        "catalog": table.catalog,
        "location": history.latest.url,
        "latest": history.latest.version,
        **clocks_of(history, entries),
        "commits": [_commit(entry) for entry in entries],
        "transactions": [found for entry in entries if (found := _part(entry)) is not None],
        "check": None if table.report is None else table.report.counts,
    }


def _commit(entry: CommitEntry) -> list[Any]:
    done = activity(entry.operation_metrics)
    time = entry.file_modification_time_ms if entry.timestamp_ms is None else entry.timestamp_ms
    return [
        entry.version,
        time,
        effect(entry),
        entry.operation,
        entry.clock == "in-commit",
        done["rows_added"],
        done["rows_removed"],
    ]


def _part(entry: CommitEntry) -> list[Any] | None:
    info = CommitInfo(entry.commit_info)
    transaction = transaction_of(info)
    return None if transaction is None else [entry.version, transaction, *place_in_transaction(info)]
