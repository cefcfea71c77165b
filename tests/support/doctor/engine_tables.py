"""Checks the tables that an engine writes in the cases of the conformance kit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deltalog import CheckReport, check
from deltalog.conformance.case import PASSED, Case
from deltalog.conformance.engine import Engine
from deltalog.conformance.runner import build, run_case

# Cases in which another writer commits what the doctor rightly reports, with the rule.
BY_DESIGN = {
    "conflict-append-new-version": "protocol-version-unknown",
    "ict-conflict-winner-without-info": "commit-info-missing",
}


@dataclass(frozen=True)
class Written:
    """The outcome of a case, and the errors that the doctor reports for its table after the case but not before it: a
    case may begin with a damaged table."""

    case: str
    outcome: str
    errors: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.case} ({self.outcome})", *(f"  {each}" for each in self.errors)])


def examine_written(engine: Engine, cases: Iterable[Case], directory: Path | None = None) -> Iterator[Written]:
    """Run the cases that write, and check the table that each of them leaves."""
    for case in cases:
        if not case.writes:
            continue
        with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as place:
            (Path(place) / "before").mkdir()
            before = _errors(build(case, Path(place) / "before"))
            outcome = run_case(engine, case, Path(place))
            after = _errors(Path(place) / "table") if outcome.outcome == PASSED else {}
            known = {*before, BY_DESIGN.get(case.id)}
            yield Written(case.id, outcome.outcome, tuple(text for rule, text in after.items() if rule not in known))


def _errors(root: Path) -> dict[str, str]:
    if not any((root / "_delta_log").glob("*")):
        return {}  # no table: the engine has refused to create one
    report: CheckReport = check(root, deep=True)
    return {each.rule: str(each) for each in report.findings if each.severity == "error"}
