"""``deltalog check``: checks a table, prints the findings, and repairs what can be repaired."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deltalog.addresses import open_log
from deltalog.cli.options import storage_options
from deltalog.cli.output import Output, plain, table_of
from deltalog.doctor.check import examine
from deltalog.doctor.findings import CheckReport, to_sarif
from deltalog.doctor.repair import Outcome, Repair, carry_out, plan
from deltalog.doctor.rules import RULES
from deltalog.environment import Environment
from deltalog.presentation.text import plural
from deltalog.version import VERSION

_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def run(table: str, deep: bool, sarif: Path | None, repair: bool, dry_run: bool, as_json: bool) -> bool:
    """Check a table, print the findings, and carry out the possible repairs. Returns whether the report is ``ok``."""
    out = Output(as_json)
    reader, environment = open_log(table, **storage_options()), Environment()
    with out.progress("Reading the log", "Checked") as progress:
        report = examine(reader, deep, progress, environment)
    steps = plan(report) if repair else []
    outcomes: list[Outcome] = []
    if not as_json:
        _print(out, report)
        _print_steps(out, steps, repair)
    if steps and not dry_run:
        outcomes = carry_out(steps, reader, environment)
        with out.progress("Reading the log", "Checked") as progress:
            report = examine(reader, deep, progress, environment)
        if not as_json:
            _print_outcomes(out, outcomes, report)
    if sarif is not None:
        sarif.write_text(json.dumps(to_sarif(report, VERSION), indent=1), encoding="utf-8")
    if as_json:
        repairs = [{**each.repair.to_json(), "error": each.error} for each in outcomes] or [
            {**each.to_json(), "error": None} for each in steps
        ]
        out.document({**report.to_json(), **({"repairs": repairs} if repair else {})})
    return report.ok


def _print(out: Output, report: CheckReport) -> None:
    seen = report.examined
    numbers = report.counts
    of = "no version" if report.version is None else f"version {report.version}"
    out.print(
        f"{report.url}, {of}: {plural(seen.commits, 'commit')}, {plural(seen.checkpoints, 'checkpoint')}, "
        f"{plural(seen.live_files, 'live file')}, {plural(seen.footers, 'footer')}, {plural(seen.rows, 'row')} read."
    )
    if not report.findings:
        out.print("No findings.")
        return
    table = table_of()
    for name in ("severity", "rule", "version", "where", "finding"):
        table.add_column(name, overflow="fold", justify="right" if name == "version" else "left")
    for finding in report.findings:
        version = "" if finding.version is None else str(finding.version)
        cells: list[Any] = [plain(finding.severity, _STYLES[finding.severity]), plain(finding.rule), version]
        table.add_row(*cells, plain(finding.path or ""), plain(finding.message))
    out.print(table)
    for rule in report.rules:
        left_out = report.of_rules[rule] - sum(finding.rule == rule for finding in report.findings)
        more = f" ({left_out} more findings are not shown)" if left_out else ""
        out.print(f"{rule}: {RULES[rule].title}.{more} {RULES[rule].remedy}")
    out.print(", ".join(f"{number} {name}" for name, number in numbers.items()))


def _print_steps(out: Output, steps: Sequence[Repair], is_wanted: bool) -> None:
    if not is_wanted:
        return
    out.print("Repairs:" if steps else "Nothing can be repaired with derived files or new commits.")
    for number, step in enumerate(steps, 1):
        out.print(f"{number}. {step.text} ({', '.join(step.rules)})")


def _print_outcomes(out: Output, outcomes: Sequence[Outcome], report: CheckReport) -> None:
    for number, outcome in enumerate(outcomes, 1):
        out.print(f"{number}. {'done' if outcome.error is None else f'failed: {outcome.error}'}")
    out.print("After the repair:")
    _print(out, report)
