"""The metrics of a server, in a registry of its own, for Prometheus.

Labels have few values: names of routes, methods, statuses and names of errors. No label contains text from a caller.
Names of tables are labels only for as many tables as ``MetricsSettings.tables`` permits.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from deltalog.metrics import CatalogCall, Commit, Event, StoreCall, TransactionCommit, Upkeep
from deltalog.server.exchange import Exchange
from deltalog.server.observe.records import outcome_of
from deltalog.version import VERSION

Sample: TypeAlias = "tuple[dict[str, str], float]"
Source = Callable[[], Iterable[Sample]]

# Beyond this number, new values of a label are "other".
MOST_VALUES = 200
OTHER = "other"
_CALL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_REQUEST_SECONDS = (0.0005, *_CALL_SECONDS)
_RECOVERY_SECONDS = (0.01, 0.1, 1, 5, 10, 30, 60, 300)
_MOST_TABLES = 10_000
_BUILD = "The version of deltalog."
_CONFLICTS = frozenset({
    "CommitVersionConflictException", "UpdateRequirementConflictException", "ConcurrentModificationException",
    "TransactionCommitInProgressException",
})  # fmt: skip
_REASONS = {
    400: "malformed", 401: "unauthenticated", 403: "denied", 404: "not_found", 405: "not_found", 408: "slow",
    413: "too_large", 429: "busy", 431: "too_large", 503: "busy",
}  # fmt: skip


class Bounded:
    """At most ``most`` values of a label; further ones become ``other``."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(value)
        return value


class Unpublished:
    """The unpublished commits of tables, as this process last saw them. Thread-safe."""

    def __init__(self) -> None:
        self._ranges: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, event: CatalogCall) -> None:
        """Update the numbers from the result of a call of the catalog."""
        given, result = event.arguments, event.result
        with self._lock:
            if event.method == "head" and given:
                commits = () if result is None else result.unpublished
                self._set(given[0], (commits[0].version, commits[-1].version) if commits else None)
            elif event.method == "ratify" and result is not None and result.name == "RATIFIED":
                for table_id, commits in given[0].commits.items():
                    if commits:
                        first, last = self._ranges.get(table_id, (commits[0].version, commits[-1].version))
                        self._set(table_id, (first, max(last, commits[-1].version)))
            elif event.method == "published" and len(given) == 2 and event.error is None:
                first, last = self._ranges.get(given[0], (0, -1))
                self._set(given[0], (max(first, given[1] + 1), last))
            elif event.method == "drop" and given and result:
                self._set(given[0], None)

    def _set(self, table_id: str, versions: tuple[int, int] | None) -> None:
        self._ranges.pop(table_id, None)
        if versions is not None and versions[0] <= versions[1]:
            self._ranges[table_id] = versions
            if len(self._ranges) > _MOST_TABLES:
                self._ranges.popitem(last=False)

    def counts(self) -> dict[str, int]:
        """The number of unpublished commits, by id of the table."""
        with self._lock:
            return {table_id: last - first + 1 for table_id, (first, last) in self._ranges.items()}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric whose value is read when it is scraped."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class _Gauges(Collector):
    """Metrics whose values are read when they are scraped. If reading a value fails, the metric has no value."""

    def __init__(self) -> None:
        self.sources: list[tuple[Metric, Source]] = []

    def describe(self) -> Iterable[Any]:
        return [_family(metric) for metric, _ in self.sources]

    def collect(self) -> Iterable[Any]:
        for metric, source in self.sources:
            family = _family(metric)
            try:
                for values, number in source():
                    family.add_metric([values[label] for label in metric.labels], number)
            except Exception:
                family.samples.clear()
            yield family
        yield InfoMetricFamily("deltalog_build", _BUILD, {"version": VERSION})


def _family(metric: Metric) -> Any:
    family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return family(metric.name, metric.meaning, labels=metric.labels)


class ServerMetrics:
    """The metrics of one server. ``tables``: the number of tables that have their own series. ``names``: the names of
    tables, by id.
    """

    def __init__(self, tables: int = 0, names: Mapping[str, str] | None = None) -> None:
        self._names: Mapping[str, str] = {} if names is None else names
        self.registry = CollectorRegistry()
        self.all: list[Metric] = [Metric("deltalog_build_info", "gauge", ("version",), _BUILD)]
        self._tables = tables
        self._unpublished = Unpublished()
        self._gauges = _Gauges()
        self._route, self._error, self._method = Bounded(), Bounded(), Bounded()
        counter, histogram = self._counter, self._histogram
        self.requests = counter(
            "deltalog_server_requests", "Requests that were answered, by call and HTTP status.", "route", "status"
        )
        self.request_seconds = histogram(
            "deltalog_server_request_duration_seconds",
            "Time from the headers of a request to the end of its response.",
            _REQUEST_SECONDS,
            "route",
        )
        self.in_progress = self._set_gauge(
            "deltalog_server_requests_in_progress", "Requests that have not been answered yet."
        )
        self.refusals = counter(
            "deltalog_server_refusals",
            "Requests that were refused: denied (the caller may not make the call, or may not see the object), and "
            "before a call was made: unauthenticated, not_found, malformed, slow (the body did not arrive in time), "
            "too_large, busy (too many calls), not_http, audit (the audit log cannot be written), other.",
            "reason",
        )
        self.request_bytes = counter("deltalog_server_request_bytes", "Bytes of the bodies of requests.")
        self.response_bytes = counter("deltalog_server_response_bytes", "Bytes of the bodies of responses.")
        self.commits = counter(
            "deltalog_server_commits", "Versions of tables that were committed by calls of this server."
        )
        self.late_commits = counter(
            "deltalog_server_late_commits",
            "Versions that calls committed after they had been answered with a time-out.",
        )
        self.conflicts = counter(
            "deltalog_server_conflicts",
            "Calls that failed because they conflict with a change of another caller.",
            "error",
        )
        self.unknown = counter(
            "deltalog_server_unknown_outcomes", "Calls whose response says that they may have taken effect."
        )
        self.ratifications = counter(
            "deltalog_catalog_ratifications",
            "Commits that were proposed to the catalog: ratified, moved (another commit came first), marked (a "
            "clean-up marked a file first), decided (it was ratified or refused before), timeout (the outcome is not "
            "known yet), error.",
            "result",
        )
        self.retries = counter(
            "deltalog_commit_retries",
            "Further attempts of commits because another commit came first, and requests that were repeated because "
            "their outcome was unknown.",
        )
        self.recoveries = counter("deltalog_recovery_runs", "Runs of recovery: ok, failed.", "result")
        self.recovery_seconds = histogram(
            "deltalog_recovery_duration_seconds", "Duration of a run of recovery.", _RECOVERY_SECONDS
        )
        self.recovery_success = self._set_gauge(
            "deltalog_recovery_last_success_timestamp_seconds",
            "When recovery last ended without an error, in seconds since 1970; 0: not since the server started.",
        )
        self.recovered = counter(
            "deltalog_recovery_items",
            "What recovery has published (commits), aborted (transactions), cleaned (files and records) and forgotten "
            "(records of transactions that ended long ago).",
            "kind",
        )
        self.published = counter(
            "deltalog_published_commits", "Ratified commits that were published (copied to _delta_log)."
        )
        self.publication_errors = counter("deltalog_publication_errors", "Publications that failed.")
        self.deleted = counter(
            "deltalog_deleted_files",
            "Deleted files: those of dropped tables or of aborted transactions, and staged commits.",
            "kind",
        )
        self.catalog_calls = counter(
            "deltalog_catalog_calls", "Calls of the catalog's database, by method; result: ok, error.",
            "method", "result",
        )  # fmt: skip
        self.catalog_seconds = histogram(
            "deltalog_catalog_call_duration_seconds",
            "Duration of calls of the catalog's database.",
            _CALL_SECONDS,
            "method",
        )
        self.catalog_errors = counter(
            "deltalog_catalog_errors",
            "Calls of the catalog's database that failed, by the class of the error.",
            "error",
        )
        self.store_calls = counter(
            "deltalog_store_calls",
            "Calls of stores, by method; result: ok, absent (there is no such object, which is not an error), error.",
            "method", "result",
        )  # fmt: skip
        self.store_seconds = histogram(
            "deltalog_store_call_duration_seconds", "Duration of calls of stores.", _CALL_SECONDS, "method"
        )
        self.watch("deltalog_unpublished_commits",
            "Ratified commits of all tables that are not in _delta_log yet, as far as this process has seen.",
            lambda: [({}, sum(self._unpublished.counts().values()))])  # fmt: skip
        self.watch("deltalog_unpublished_commits_max",
            "The number of unpublished commits of the table that has the most.",
            lambda: [({}, max(self._unpublished.counts().values(), default=0))])  # fmt: skip
        self.watch("deltalog_tables_with_unpublished_commits", "Tables that have unpublished commits.",
            lambda: [({}, len(self._unpublished.counts()))])  # fmt: skip
        if tables > 0:
            self.watch("deltalog_table_unpublished_commits",
                "Unpublished commits of the tables that have the most; only if [metrics] tables is set.",
                self._worst_tables, "table")  # fmt: skip
        self.registry.register(self._gauges)
        # Registered afterwards: with the registry as an argument, the constructor would read /proc now.
        self.registry.register(ProcessCollector(registry=None))
        GCCollector(registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        self.all.append(Metric(f"{name}_total", "counter", labels, text))
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        self.all.append(Metric(name, "histogram", labels, text))
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _set_gauge(self, name: str, text: str) -> Gauge:
        self.all.append(Metric(name, "gauge", (), text))
        return Gauge(name, text, registry=self.registry)

    def watch(self, name: str, text: str, source: Source, *labels: str) -> None:
        """Add a metric whose values are read when it is scraped: a counter if its name ends with ``_total``, otherwise
        a gauge."""
        metric = Metric(name, "counter" if name.endswith("_total") else "gauge", labels, text)
        self.all.append(metric)
        self._gauges.sources.append((metric, source))

    def collect(self) -> Iterable[Any]:
        """All metrics, to be written in prometheus_client's formats. The ``_created`` series are left out, because they
        would double the number of series.
        """
        for family in self.registry.collect():
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family

    # ------------------------------------------------------------------------------------------- requests

    def begin(self) -> None:
        self.in_progress.inc()

    def answered(self, exchange: Exchange) -> None:
        """Count a request whose response was sent."""
        self.in_progress.dec()
        route = self._route(exchange.route) if exchange.route is not None else OTHER
        self.requests.labels(route, str(exchange.status)).inc()
        self.request_seconds.labels(route).observe(exchange.seconds)
        self.request_bytes.inc(exchange.request_bytes)
        self.response_bytes.inc(exchange.response_bytes)
        if exchange.error in _CONFLICTS:
            self.conflicts.labels(self._error(str(exchange.error))).inc()
        outcome = outcome_of(exchange)
        if outcome == "unknown":
            self.unknown.inc()
        elif outcome == "denied" and exchange.principal is not None:  # refusals of unknown callers are counted already
            self.refusals.labels(_REASONS[403]).inc()

    def refused(self, status: int, is_unauthorized: bool = False, is_audit: bool = False) -> None:
        """Count a request that no call was made for."""
        reason = "audit" if is_audit else "unauthenticated" if is_unauthorized else _REASONS.get(status, OTHER)
        self.refusals.labels(reason).inc()

    def refused_not_http(self) -> None:
        self.refusals.labels("not_http").inc()

    # --------------------------------------------------------------------------------------------- events

    def note(self, event: Event, now_s: float) -> None:
        """Count an event of the library."""
        if isinstance(event, StoreCall):
            self._store_call(event)
        elif isinstance(event, CatalogCall):
            self._catalog_call(event)
        elif isinstance(event, Upkeep):
            self._upkeep(event, now_s)
        else:
            self._commit(event)

    def _store_call(self, event: StoreCall) -> None:
        result = "ok" if event.error is None else "absent" if event.error == "ObjectNotFoundError" else "error"
        self.store_calls.labels(event.method, result).inc()
        self.store_seconds.labels(event.method).observe(event.seconds)

    def _catalog_call(self, event: CatalogCall) -> None:
        method = self._method(event.method)
        self.catalog_calls.labels(method, "ok" if event.error is None else "error").inc()
        self.catalog_seconds.labels(method).observe(event.seconds)
        if event.error is not None:
            self.catalog_errors.labels(self._error(event.error)).inc()
        if event.method == "ratify":
            self.ratifications.labels(_ratification(event)).inc()
        self._unpublished.note(event)

    def _commit(self, event: Commit | TransactionCommit) -> None:
        resent = event.resent if isinstance(event, Commit) else 0
        self.retries.inc(max(0, event.attempts - 1) + resent)

    def _upkeep(self, event: Upkeep, now_s: float) -> None:
        if event.kind == "recovery":
            self.recoveries.labels("ok" if event.error is None else "failed").inc()
            self.recovery_seconds.observe(event.seconds)
            if event.error is None:
                self.recovery_success.set(now_s)
            for kind, number in event.done.items():
                self.recovered.labels(kind).inc(number)
        elif event.kind == "publication":
            self.published.inc(event.done.get("commits", 0))
            self.publication_errors.inc(event.error is not None)
        else:
            for kind, number in event.done.items():
                self.deleted.labels(kind).inc(number)

    def _worst_tables(self) -> Iterable[Sample]:
        counts = self._unpublished.counts()
        worst = sorted(counts, key=lambda table_id: (-counts[table_id], table_id))[: self._tables]
        return [({"table": self._names.get(table_id, table_id)}, counts[table_id]) for table_id in worst]


def _ratification(event: CatalogCall) -> str:
    if event.error is not None:
        return "timeout" if event.error == "OperationTimeoutError" else "error"
    return str(event.result.name).lower()
