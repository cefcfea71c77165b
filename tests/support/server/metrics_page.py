"""Generates the table of metrics in docs/server-metrics.md from the registry of a server with all metrics.

``python -m tests.support.server.metrics_page`` writes it into the page.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from deltalog import TransactionManager
from deltalog.server.observe.settings import AuditSettings, MetricsSettings
from deltalog.server.serve import Server, Settings

PAGE = Path(__file__).parents[3] / "docs" / "server-metrics.md"
BEGIN, END = "<!-- metrics: made by python -m tests.support.server.metrics_page -->", "<!-- end of metrics -->"


def table() -> str:
    """The table of all metrics, ordered by name."""
    with tempfile.TemporaryDirectory() as place:
        audit = AuditSettings(file=f"{place}/audit.log", access_file=f"{place}/access.log")
        metrics = MetricsSettings(enabled=True, port=0, tables=1)
        manager = TransactionManager(f"{place}/catalog.db")
        server = Server(manager, Settings(audit=audit, metrics=metrics, recover_seconds=0))
        server.stop()
        found = server.observation.metrics
        assert found is not None
        server.run()
    rows = [f"| `{each.name}` | {each.kind} | {_labels(each.labels)} | {each.meaning} |" for each in found.all]
    return "\n".join(["| name | kind | labels | meaning |", "| --- | --- | --- | --- |", *sorted(rows)])


def _labels(labels: tuple[str, ...]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def with_table(text: str) -> str:
    """The text of the page with a current table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest and after
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
