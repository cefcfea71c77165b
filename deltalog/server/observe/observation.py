"""Passes requests and events to the audit log, the access log, the metrics and the traces of a server."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalog import metrics as library
from deltalog.errors import CallError
from deltalog.metrics import CatalogCall, StoreCall, Upkeep
from deltalog.server.access.principals import Principal
from deltalog.server.exchange import CURRENT, Exchange, Observer
from deltalog.server.observe import records
from deltalog.server.observe.audit import AuditLog
from deltalog.server.observe.audit import check as check_audit
from deltalog.server.observe.lines import STANDARD_OUTPUT, LineFile, LineWriter
from deltalog.server.observe.settings import AuditSettings, MetricsSettings, TraceSettings

if TYPE_CHECKING:
    from deltalog.server.observe.metrics import ServerMetrics
    from deltalog.server.observe.scraping import Scraping
    from deltalog.server.observe.traces import Traces

log = logging.getLogger(__name__)

_MOST_NAMES = 10_000
_FLUSH_SECONDS = 0.5
_SERVER = Principal(records.SERVER, is_admin=True)


def check_settings(audit: AuditSettings, metrics: MetricsSettings) -> None:
    """Raises CallError for invalid settings. Opens and writes nothing."""
    check_audit(audit)
    for file in (audit.file, audit.access_file):
        if file and file != STANDARD_OUTPUT and not Path(file).parent.is_dir():
            raise CallError(f"The log {file} cannot be written: there is no directory {Path(file).parent}.")
    if metrics.enabled:
        _scraping_module().token_of(metrics)


class TableNames(dict[str, str]):
    """The names of the tables that calls of the catalog returned most recently, by id."""

    def note(self, event: CatalogCall) -> None:
        """Take over what a call of the catalog showed."""
        given, result = event.arguments, event.result
        if event.error is not None or not result:
            return
        if event.method in ("table", "table_with_id"):
            self._add(result.table_id, result.name)
        elif event.method == "tables":
            for each in result:
                self._add(each.table_id, each.name)
        elif event.method == "register" and given:
            self._add(given[0].table_id, given[0].name)
        elif event.method == "rename" and len(given) > 1:
            self._add(given[0], given[1])

    def _add(self, table_id: str, name: str) -> None:
        self.pop(table_id, None)
        self[table_id] = name
        if len(self) > _MOST_NAMES:
            with contextlib.suppress(RuntimeError, StopIteration, KeyError):  # another thread changes it
                del self[next(iter(self))]


class Observation:
    """The audit log, the metrics and the traces of one server; by default, it has none of them. ``provider``: the
    tracer provider, by default that of the process.

    The library's events come from the whole process. Events that belong to a request of another server in the process
    are ignored; all others are counted.
    """

    def __init__(
        self,
        audit: AuditSettings | None = None,
        metrics: MetricsSettings | None = None,
        traces: TraceSettings | None = None,
        *,
        provider: Any = None,
    ) -> None:
        """Raises CallError; OSError if the address of the metrics is not available."""
        audit, metrics, traces = audit or AuditSettings(), metrics or MetricsSettings(), traces or TraceSettings()
        self._scraping: Scraping | None = None
        self.metrics: ServerMetrics | None = None
        self._traces: Traces | None = None
        self.audit: AuditLog | None = None
        self._access: LineWriter | None = None
        self._end: Callable[[], None] | None = None
        self._names = TableNames()
        with contextlib.ExitStack() as undone:
            undone.callback(self.close)
            if metrics.enabled:
                self.metrics, self._scraping = _metrics_of(metrics, self._names)
            if traces.enabled:
                self._traces = _traces_of(traces, provider)
            if audit.file:
                self.audit = AuditLog(audit)
            if audit.access_file:
                self._access = LineWriter(LineFile(audit.access_file), audit.queue_lines)
            self._watch_logs()
            undone.pop_all()
        self._is_on = any(each is not None for each in (self.metrics, self._traces, self.audit))
        self._background = self._exchange_of_server()

    @property
    def metrics_url(self) -> str | None:
        """Where the metrics are served; None if they are not."""
        return None if self._scraping is None else self._scraping.url

    @property
    def is_failing(self) -> bool:
        """Whether the audit log cannot be written."""
        return self.audit is not None and self.audit.is_failing

    def start(self, observers: Sequence[Observer] = ()) -> None:
        """Start listening to the library's events, if they are needed, and start serving the metrics."""
        if (self._is_on or observers) and self._end is None:
            self._end = library.listen(self._note)
            if self._scraping is not None:
                self._scraping.start()
                log.info("the metrics are served at %s", self._scraping.url)
            if self.audit is not None:
                self.audit.note("start")

    def reread(self) -> Callable[[], None]:
        """Read the token of the metrics again, and return what puts it into effect. Raises CallError."""
        return (lambda: None) if self._scraping is None else self._scraping.reread()

    def close(self) -> None:
        """Stop, and write the waiting lines, for a few seconds at most. Can be called again."""
        if self._end is not None:
            self._end()
            self._end = None
        scraping, self._scraping = self._scraping, None
        if scraping is not None:
            scraping.close()
        audit, self.audit = self.audit, None
        if audit is not None:
            audit.close()
        access, self._access = self._access, None
        if access is not None:
            access.close()

    def flush(self) -> None:
        """Write the waiting lines, for a moment at most, because the process is about to end."""
        audit = self.audit
        for writer in (None if audit is None else audit.writer, self._access):
            if writer is not None:
                writer.close(_FLUSH_SECONDS)

    def work_as_server(self) -> None:
        """Treat the work of this thread as background work of the server from now on."""
        CURRENT.set(self._background)

    # ------------------------------------------------------------------------------------------- requests

    def begin(self, exchange: Exchange, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """A request has arrived."""
        exchange.owner = self
        if self.metrics is not None:
            self.metrics.begin()
        if self._traces is not None:
            self._traces.begin(exchange, headers)

    @property
    def refuses(self) -> bool:
        """Whether no call may be made now, because the audit log cannot be written."""
        return self.audit is not None and self.audit.refuses

    def refused(self, status: int, is_unauthorized: bool = False) -> None:
        """A request was refused before any call was made for it."""
        if self.metrics is not None:
            self.metrics.refused(status, is_unauthorized, is_audit=self.refuses and status == 503)

    def refused_not_http(self, caller: str | None) -> None:
        """Bytes have arrived that are not an HTTP request."""
        if self.metrics is not None:
            self.metrics.refused_not_http()
        if self.audit is not None:
            exchange = Exchange("", "", "", caller, status=400, error="BadRequestException")
            self.audit.record_later(exchange)

    async def before_response(self, exchange: Exchange) -> None:
        """The response has been decided. Write the line of the audit log before it is sent."""
        self._settle(exchange)
        if self.audit is not None:
            await self.audit.record(exchange)

    def failed(self, exchange: Exchange) -> None:
        """No response is sent, because the server failed or shuts down."""
        self._settle(exchange)
        if self.audit is not None:
            self.audit.record_later(exchange)

    def after_response(self, exchange: Exchange) -> None:
        """The response was sent."""
        if self.metrics is not None:
            self.metrics.answered(exchange)
        if self._traces is not None and exchange.trace is not None:
            self._traces.answered(exchange)
        if self._access is not None:
            self._access.put([records.access_line(exchange)])

    # --------------------------------------------------------------------------------------------- events

    def _note(self, event: library.Event) -> None:
        exchange = CURRENT.get()
        if exchange is not None and exchange.owner is not self:
            return
        if isinstance(event, CatalogCall):
            self._names.note(event)
        if self.metrics is not None:
            self.metrics.note(event, time.time())
        if exchange is None:
            return
        if isinstance(event, (StoreCall, CatalogCall)):
            if isinstance(event, CatalogCall):
                self._note_versions(event, exchange)
            if self._traces is not None:
                self._traces.note(event, exchange)
        elif isinstance(event, Upkeep) and self.audit is not None:
            is_own = exchange is self._background
            if event.kind == "deletion" or (is_own and (event.done or event.error is not None)):
                self.audit.record_upkeep(event, None if is_own else exchange)

    def _note_versions(self, event: CatalogCall, exchange: Exchange) -> None:
        """Record in the exchange which versions a call of the catalog has committed."""
        if exchange is self._background:
            return
        given, result = event.arguments, event.result
        if event.method in ("table", "table_with_id") and result is not None:
            exchange.tables[result.table_id] = result.name
        elif event.method == "register" and len(given) > 1 and result:
            exchange.tables[given[0].table_id] = given[0].name
            self._committed(exchange, {given[0].table_id: [given[1]]})
        elif event.method == "ratify" and given:
            proposed = {table_id: [each.version for each in some] for table_id, some in given[0].commits.items()}
            if event.error == "OperationTimeoutError":
                for table_id, some in proposed.items():
                    if some:
                        self._name(exchange, table_id)
                        exchange.in_doubt[table_id] = max(some)
                if exchange.is_answered and self.audit is not None:
                    doubt = {table_id: max(some) for table_id, some in proposed.items() if some}
                    self.audit.record_late(
                        dataclasses.replace(exchange, versions={}, commits={}, in_doubt=doubt, trace=None)
                    )
            elif event.error is None and result.name == "RATIFIED":
                self._committed(exchange, proposed)

    def _committed(self, exchange: Exchange, versions: dict[str, list[int]]) -> None:
        for table_id, some in versions.items():
            if some:
                self._name(exchange, table_id)
                exchange.versions[table_id] = max(some)
                exchange.commits[table_id] = exchange.commits.get(table_id, 0) + len(some)
                exchange.in_doubt.pop(table_id, None)
                self._count(len(some))
        if exchange.is_answered and versions:
            self._committed_late(exchange, versions)

    def _name(self, exchange: Exchange, table_id: str) -> None:
        name = self._names.get(table_id)
        if name is not None:
            exchange.tables.setdefault(table_id, name)

    def _committed_late(self, exchange: Exchange, versions: dict[str, list[int]]) -> None:
        log.warning("request %s: %s committed after its response", exchange.request_id, exchange.route)
        if self.metrics is not None:
            self.metrics.late_commits.inc(sum(map(len, versions.values())))
        if self.audit is not None:
            late = {table_id: max(some) for table_id, some in versions.items() if some}
            commits = {table_id: len(some) for table_id, some in versions.items()}
            self.audit.record_late(
                dataclasses.replace(exchange, versions=late, commits=commits, in_doubt={}, trace=None)
            )

    def _settle(self, exchange: Exchange) -> None:
        """End the call. If it succeeded, the versions that were in doubt count as committed, because the call has
        resolved them.
        """
        exchange.seconds = time.monotonic() - exchange.started_s
        if 200 <= exchange.status < 400:
            for table_id, version in list(exchange.in_doubt.items()):
                if table_id not in exchange.versions:
                    exchange.versions[table_id], exchange.commits[table_id] = version, 1
                    self._count(1)
            exchange.in_doubt.clear()
        exchange.is_answered = True

    def _count(self, commits: int) -> None:
        if self.metrics is not None:
            self.metrics.commits.inc(commits)

    # ----------------------------------------------------------------------------------------------- own

    def _exchange_of_server(self) -> Exchange:
        return Exchange("", "", "", None, principal=_SERVER, owner=self)

    def _watch_logs(self) -> None:
        """Metrics of the logs themselves."""
        if self.metrics is not None:
            if self.audit is not None:
                _watch(self.metrics, "audit", self.audit.writer)
            if self._access is not None:
                _watch(self.metrics, "access", self._access)


def _watch(metrics: ServerMetrics, name: str, writer: LineWriter) -> None:
    prefix = f"deltalog_{name}"
    metrics.watch(
        f"{prefix}_lines_written_total", f"Lines of the {name} log that were written.", lambda: [({}, writer.written)]
    )
    metrics.watch(
        f"{prefix}_lines_lost_total",
        f"Lines of the {name} log that were lost because too many waited.",
        lambda: [({}, writer.lost)],
    )
    metrics.watch(
        f"{prefix}_lines_waiting", f"Lines of the {name} log that wait to be written.", lambda: [({}, writer.waiting)]
    )
    metrics.watch(
        f"{prefix}_failing",
        f"1 while lines of the {name} log cannot be written.",
        lambda: [({}, float(writer.is_failing))],
    )


def _metrics_of(settings: MetricsSettings, names: TableNames) -> tuple[ServerMetrics, Scraping]:
    scraping = _scraping_module()
    found = scraping.ServerMetrics(settings.tables, names)
    return found, scraping.Scraping(found, settings)


def _scraping_module() -> Any:
    try:
        from deltalog.server.observe import scraping
    except ModuleNotFoundError as error:
        raise CallError(f"Metrics need the extra 'server' ({error}): pip install 'deltalog[server]'.") from None
    return scraping


def _traces_of(settings: TraceSettings, provider: Any) -> Traces:
    try:
        from deltalog.server.observe import traces
    except ModuleNotFoundError as error:
        raise CallError(f"Traces need the extra 'telemetry' ({error}): pip install 'deltalog[telemetry]'.") from None
    if provider is None and not traces.exports():
        log.warning(
            "traces are enabled, but this process has no tracer provider, so no span is exported: start the "
            "server with opentelemetry-instrument"
        )
    return traces.Traces(calls=settings.calls, provider=provider)
