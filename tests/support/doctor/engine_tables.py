"""Checks the tables that an engine writes in the cases of the conformance kit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deltalog import CheckReport, check
from deltalog.conformance.case import PASSED, Case
from deltalog.conformance.engine import Engine
from deltalog.conformance.runner import CaseRun, build, outcome_of


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
            root = build(case, Path(place))
            before = _errors(root) if root.exists() else {}
            outcome = outcome_of(case, lambda root=root, case=case: CaseRun(engine, root).take(case.steps))  # type: ignore[misc]
            after = _errors(root) if outcome.outcome == PASSED and root.exists() else {}
            yield Written(case.id, outcome.outcome, tuple(text for rule, text in after.items() if rule not in before))


def _errors(root: Path) -> dict[str, str]:
    report: CheckReport = check(root, deep=True)
    return {each.rule: str(each) for each in report.findings if each.severity == "error"}
