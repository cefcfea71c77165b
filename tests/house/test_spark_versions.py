"""The docs name only Spark versions with results in docs/spark-versions.md, and dev.py runs the tests with the versions
on that page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.versions import (
    MODES,
    PAGE,
    IncompleteResultsError,
    Run,
    all_lanes,
    page,
    parse,
    rendered,
    row_of,
)

ROOT = Path(__file__).resolve().parents[2]
CLAIM = re.compile(r"(?<!delta-)\b(?:Py)?Spark(?: Connect)?\s+(\d+\.\d+)(?:\s+to\s+(\d+\.\d+))?")
REPORT = """<testsuites><testsuite name="pytest" timestamp="2026-01-02T03:04:05">
<properties><property name="pyspark" value="3.5.9"/>
<property name="python" value="3.11.7"/><property name="packages" value="pandas 2.3.3"/></properties>
<testcase classname="tests.spark.test_sql" name="test_clauses[a]"/>
<testcase classname="tests.spark.test_writer" name="test_not_null"/>
<testcase classname="tests.spark.test_x" name="test_variants[b]"><skipped message="none here"/></testcase>
{more}</testsuite></testsuites>"""


def test_the_page_has_the_results_that_are_kept_and_says_what_is_missing() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == rendered(all_lanes())
    head = next(line for line in text.splitlines() if line.startswith("| |"))
    shown = [cell.strip() for cell in head.strip("|").split("|")[1:]]
    missing = re.search(r"test that failed: (.*?)\. Each", text)
    names = [
        *(name.rpartition(".")[0] + " " + name.split()[1] for name in shown),
        *(missing[1] if missing else "").split(", "),
    ]
    assert sorted(filter(None, names)) == sorted(
        f"{lane} {mode.replace('connect', 'Connect')}" for lane, mode in all_lanes()
    )


def test_dev_runs_the_newest_patch_of_each_version() -> None:
    import dev

    pins = [pin.removeprefix("pyspark==") for pin, *_ in dev.SPARK.values()]
    assert [pin.rpartition(".")[0] for pin in pins] == list(dev.SPARK)


def test_no_other_version_is_claimed() -> None:
    versions = list(dict.fromkeys(lane for lane, _ in all_lanes()))
    first, last = versions[0], versions[-1]
    sources = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "spark_ext").rglob("*.py")]
    for source in sources:
        for claim in CLAIM.finditer(source.read_text(encoding="utf-8")):
            assert {claim[1], claim[2] or last} <= set(versions), f"{source.name}: {claim[0]!r}"
    for name in ("spark_ext/__init__.py", "docs/spark.md"):
        assert f"Spark {first} to {last}" in (ROOT / name).read_text(encoding="utf-8"), name
    assert f'"pyspark>={first}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_a_report_becomes_a_column() -> None:
    run = parse(REPORT.format(more=""), "3.5", "classic")
    assert (run.spark, dict(run.passed), dict(run.skipped)) == ("3.5.9", {"SQL": 1, "Writing": 1}, {"Variants": 1})
    text = page([run, parse(REPORT.format(more=""), "3.5", "connect")])
    assert "| | 3.5.9 classic | 3.5.9 Connect |" in text and "| Variants | – | – |" in text
    assert "| Run on | 2026-01-02 | 2026-01-02 |" in text and Run.from_json(run.to_json()) == run
    assert "test that failed: 4.0 Connect. `python3 dev.py test --long` runs" in page([run], ["4.0 Connect"])
    assert "| All | 2, 1 skipped | 2, 1 skipped |" in text and "- everywhere: none here (`test_variants`)" in text


@pytest.mark.parametrize("kind", ["failure", "error"])
def test_a_failed_test_is_no_column(kind: str) -> None:
    failed = f'<testcase classname="tests.spark.test_x" name="test_y"><{kind}/></testcase>'
    with pytest.raises(IncompleteResultsError, match=r"1 tests failed: spark\.test_x::test_y"):
        parse(REPORT.format(more=failed), "3.5", MODES[0])
    with pytest.raises(IncompleteResultsError, match=r"not of Spark 4\.0"):
        parse(REPORT.format(more=""), "4.0", MODES[0])


def test_tests_have_rows() -> None:
    assert row_of("spark.test_sql::test_variants") == "Variants" and row_of("spark.test_new::test_x") == "Other"
