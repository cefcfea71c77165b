"""Every failure of another engine is a public issue or a draft of a report; the drafts are current, and their programs
print what the drafts say."""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import Any

import pytest

from tests.interop import conformance_reports as reports
from tests.interop.confirmations import EXPLANATIONS, python_of, run_there
from tests.interop.conformance_reports import PLACE, Report
from tests.support.spark import DeltaSpark

EXPLAINED = reports.explanations()
REPORTS = reports.reports(EXPLAINED)
ENTRIES = [
    (engine, entry)
    for engine, entries in EXPLAINED.items()
    for entry in entries
    if (reports.RESULTS / f"{engine}.json").exists()
]
ISSUE = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull|discussions)/\d+")
PROGRAM = re.compile(r"```python no-run\n(.*?)```", re.S)
HERE = ("deltalake", "polars")
IN_PYTHON = [report for report in REPORTS if report.engine in HERE]
IN_SPARK = [report for report in REPORTS if report.engine == "delta-spark"]
ELSEWHERE = [report for report in REPORTS if report.engine not in (*HERE, "delta-spark")]


def test_every_explanation_has_a_public_issue_or_a_draft() -> None:
    assert json.loads(EXPLANATIONS.read_text(encoding="utf-8")) == EXPLAINED
    drafts = {report.name for report in REPORTS}
    for engine, entry in ENTRIES:
        issue, report = entry.get("issue"), entry.get("report")
        assert (issue is None) != (report is None), f"{engine}: {entry['cases']}"
        assert ISSUE.fullmatch(issue) if issue else report in drafts, f"{engine}: {entry['cases']}"


def test_every_draft_is_of_an_explanation() -> None:
    for report in REPORTS:
        assert reports.explanation(report, EXPLAINED).get("report") == report.name
        assert all(ISSUE.fullmatch(url) for url, _ in report.related)
    assert len({report.name for report in REPORTS}) == len(REPORTS)


def test_the_pages_are_current() -> None:
    found = reports.pages(EXPLAINED)
    assert set(PLACE.glob("*.md")) == set(found)
    assert [path.name for path, text in found.items() if path.read_text(encoding="utf-8") != text] == []


def of_page(report: Report) -> str:
    (found,) = PROGRAM.findall(report.path.read_text(encoding="utf-8"))
    return str(found)


def printed(program: str, **names: Any) -> str:
    """What a program prints. It runs in this process, in its own namespace."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program, "<draft>", "exec", dont_inherit=True), {"__name__": "draft", **names})
    return out.getvalue().rstrip("\n")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("report", IN_PYTHON, ids=lambda report: report.name)
def test_a_program_prints_what_was_observed(report: Report) -> None:
    program = of_page(report)
    assert "deltalog" not in program
    assert printed(program) == reports.explanation(report, EXPLAINED)["confirmed"]


@pytest.mark.long
@pytest.mark.parametrize("report", IN_SPARK, ids=lambda report: report.name)
def test_a_program_with_spark_prints_what_was_observed(report: Report, delta: DeltaSpark) -> None:
    """In the session of the tests, because a process has one."""
    start, session, rest = of_page(report).partition(reports._SESSION)
    assert session and "deltalog" not in rest
    assert printed(start + rest, spark=delta.spark) == reports.explanation(report, EXPLAINED)["confirmed"]


@pytest.mark.long
@pytest.mark.parametrize("report", ELSEWHERE, ids=lambda report: report.name)
def test_a_program_prints_what_was_observed_in_the_environment_of_its_engine(report: Report) -> None:
    python = python_of(report.engine)
    if python is None:
        pytest.skip(f"{report.engine} is not installed: deltalog conformance install {report.engine}")
    program = of_page(report)
    assert "deltalog" not in program
    # An engine may print its progress before.
    assert run_there(python, ["-c", program]).splitlines()[-1] == reports.explanation(report, EXPLAINED)["confirmed"]


def test_the_check_of_a_program_can_fail() -> None:
    assert printed("print(1)") != reports.explanation(IN_PYTHON[0], EXPLAINED)["confirmed"]
