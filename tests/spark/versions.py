"""Writes the page docs/spark-versions.md, which shows the parts of spark_ext that work with each version of Spark.

    python3 dev.py test --spark 4.0       # tests/spark with a version, and then the page
    python -m tests.spark.versions        # the page alone, from the reports of the last runs

Each version has two reports of pytest (JUnit XML), one of classic sessions and one of Spark Connect. The results in
these reports are stored in version_results.json, so that the page keeps the results of the other versions when one
version is run. If a report contains a failed test, its version and mode are removed from the page.
"""

from __future__ import annotations

import collections
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "spark-versions.md"
REPORTS = ROOT / "build" / "spark-versions"
RESULTS = Path(__file__).with_name("version_results.json")
MODES = ("classic", "connect")
NONE = "–"
# Matches the path at which a skipped test looked for a requirement; the path depends on the machine.
_LOCATION = re.compile(r" \(looked for [^)]*\)")
# The rows of the page, each with the regular expression that selects its tests; a test belongs to the first row whose
# expression matches in "module::test".
ROWS: Sequence[tuple[str, str]] = (
    ("Variants", r"variant"),
    ("Deletion vectors", r"vector|deleted"),
    ("Column mapping", r"mapp(?:ed|ing)|by_id|renamed"),
    ("Change data feed", r"changes_by|_changes|change_feed|no_change_in"),
    ("Time travel", r"time_travel|timestamp_as|version_as|moment|by_path|as_of"),
    ("SQL", r"test_sql"),
    ("History and detail", r"test_frames"),
    ("Catalogs and transactions", r"test_transactions"),
    ("Row count check", r"test_row_count"),
    ("Conflicts with commits after the read", r"test_read_then_write|what_was_read|concurrent"),
    ("Constraints, generated columns, defaults", r"test_rules"),
    ("Settings of the session", r"test_session_defaults|test_pinned|test_odd_sessions|of_the_session|session_says"),
    ("Failed and interrupted jobs", r"test_failed_jobs|failed_job"),
    ("Tables of many files", r"test_many_files"),
    ("Tables by delta-spark, deltalake and others", r"test_fixtures|test_corpus"),
    ("Read by polars, DuckDB and pandas", r"test_other_readers"),
    ("Examples of the guide", r"guide"),
    ("Writing", r"test_writer|test_central.*writ|schema_mismatch|commit_files|way_through|no_data_frame|modes"),
    ("Reading", r"test_spark_reader|test_table_features|test_central|test_connect"),
    ("Other", r""),
)
HEAD = """# Spark versions

This page shows which parts of [`spark_ext`](spark.md) work with which version of Spark. The tests in `tests/spark` and
`tests/spark_connect` were run with the newest patch of each version, in classic sessions and over Spark Connect,
without a jar. `python3 dev.py test --spark 4.0` runs them for one version, in a separate virtual environment, and
writes the results of that version to this page; `--spark all` does this for each version. A version is shown only if
none of its tests failed. The PySpark 3.5 package has no Spark Connect server, so 3.5 runs in classic sessions only.
"""


SAMPLED = (
    "`python3 dev.py test --long` runs all suites with PySpark 4.2.0 in classic sessions, and the central suite with "
    "the oldest version and, over Connect, with the newest."
)


class IncompleteResultsError(Exception):
    """A test failed in a run, or a run's report is for another version."""


@dataclass
class Run:
    """The results with one version of Spark in one mode. ``date``: of the run."""

    lane: str
    mode: str
    spark: str
    python: str
    packages: str
    date: str
    passed: collections.Counter[str] = field(default_factory=collections.Counter)
    skipped: collections.Counter[str] = field(default_factory=collections.Counter)
    reasons: dict[str, set[str]] = field(default_factory=dict)  # names of the skipped tests by reason

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Run:
        """A run, built from the result of ``to_json``."""
        counts = {name: collections.Counter(found[name]) for name in ("passed", "skipped")}
        return cls(**{**found, **counts, "reasons": {why: set(tests) for why, tests in found["reasons"].items()}})

    def to_json(self) -> dict[str, Any]:
        """The run as JSON values, in a stable order."""
        counts = {name: dict(sorted(getattr(self, name).items())) for name in ("passed", "skipped")}
        return {**asdict(self), **counts, "reasons": {why: sorted(self.reasons[why]) for why in sorted(self.reasons)}}


def row_of(test: str) -> str:
    """The row of the page to which a test belongs; the test is given as ``module::test``."""
    return next(row for row, pattern in ROWS if re.search(pattern, test))


def parse(report: str, lane: str, mode: str) -> Run:
    """The results in a pytest report. Raises IncompleteResultsError if a test failed, or none passed."""
    suite = next(ET.fromstring(report).iter("testsuite"))
    properties = {each.get("name", ""): each.get("value", "") for each in suite.iter("property")}
    missing = {"pyspark", "python", "packages"} - set(properties)
    if missing or not properties["pyspark"].startswith(lane + "."):
        raise IncompleteResultsError(f"Spark {lane} {mode}: the report is of {properties}, not of Spark {lane}.")
    date = suite.get("timestamp", "")[:10]
    run = Run(lane, mode, properties["pyspark"], properties["python"], properties["packages"], date)
    failed = []
    for case in suite.iter("testcase"):
        test = f"{case.get('classname', '').rsplit('tests.', 1)[-1]}::{case.get('name')}"
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(test)
        elif skip is None:
            run.passed[row_of(test)] += 1
        else:
            run.skipped[row_of(test)] += 1
            reason = _LOCATION.sub("", skip.get("message", ""))
            run.reasons.setdefault(reason, set()).add(case.get("name", "").partition("[")[0])
    if failed or not run.passed:
        raise IncompleteResultsError(f"Spark {lane} {mode}: {len(failed)} tests failed: {', '.join(failed[:5])}.")
    return run


def page(runs: Sequence[Run], missing: Sequence[str] = ()) -> str:
    """The text of the page. ``runs``: the runs, in the order of the page's columns. ``missing``: the Spark versions and
    modes for which there are no results."""
    columns = " | ".join(f"{run.spark} {'Connect' if run.mode == 'connect' else run.mode}" for run in runs)
    lines = [HEAD, f"| | {columns} |", "|---" * (len(runs) + 1) + "|"]
    for row, _ in ROWS:
        if any(run.passed[row] + run.skipped[row] for run in runs):
            lines.append(f"| {row} | {' | '.join(_cell(run.passed[row], run.skipped[row]) for run in runs)} |")
    totals = (_cell(run.passed.total(), run.skipped.total()) for run in runs)
    lines += [f"| All | {' | '.join(totals)} |", f"| Run on | {' | '.join(run.date for run in runs)} |", ""]
    if missing:
        lines += [f"Not run completely yet, or with a test that failed: {', '.join(missing)}. {SAMPLED}", ""]
    lines += [
        "A cell contains the number of tests that passed and the number that were skipped. Reasons for skipping:",
        "",
    ]
    lines += [f"- {each}" for each in _reasons(runs)]
    lines += ["", "The environments that `dev.py` creates:", ""]
    environments = {run.lane: f"- PySpark {run.spark} on Python {run.python}, with {run.packages}" for run in runs}
    return "\n".join([*lines, *environments.values(), ""])


def _cell(passed: int, skipped: int) -> str:
    if not passed:
        return NONE
    return f"{passed}, {skipped} skipped" if skipped else str(passed)


def _reasons(runs: Sequence[Run]) -> list[str]:
    """One line for each reason why tests are skipped: the Spark versions and modes, and the number of tests."""
    places: dict[str, list[str]] = collections.defaultdict(list)
    tests: dict[str, set[str]] = collections.defaultdict(set)
    for run in runs:
        for reason, names in run.reasons.items():
            places[reason].append(f"{run.lane} {run.mode}")
            tests[reason] |= names
    every = {mode: [f"{run.lane} {mode}" for run in runs if run.mode == mode] for mode in MODES}
    return [
        f"{_places(found, every)}: {reason} ({', '.join(f'`{name}`' for name in sorted(tests[reason]))})"
        for reason, found in sorted(places.items())
    ]


def _places(found: Sequence[str], every: Mapping[str, Sequence[str]]) -> str:
    if set(found) == {place for places in every.values() for place in places}:
        return "everywhere"
    for mode, places in every.items():
        if list(found) == list(places):
            return {"classic": "classic Spark", "connect": "Spark Connect"}[mode]
    return ", ".join(found)


def main(lanes: Sequence[tuple[str, str]]) -> int:
    """Read the reports of these versions and modes, and write the page. Returns 1 if any of the reports contains a
    failed test, else 0."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    problems = []
    for lane, mode in lanes:
        path = REPORTS / f"{lane}-{mode}.xml"
        if path.exists():
            kept.pop(f"{lane} {mode}", None)
            try:
                run = parse(path.read_text(encoding="utf-8"), lane, mode)
                kept[f"{lane} {mode}"] = run.to_json()
            except IncompleteResultsError as error:
                problems.append(str(error))
    RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(rendered(lanes), encoding="utf-8")
    print("\n".join([*problems, f"wrote {PAGE.relative_to(ROOT)}"]), file=sys.stderr if problems else sys.stdout)
    return int(bool(problems))


def rendered(lanes: Sequence[tuple[str, str]]) -> str:
    """The page with the stored results, in the order of ``lanes``."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    names = [f"{lane} {mode}" for lane, mode in lanes]
    runs = [Run.from_json(kept[name]) for name in names if name in kept]
    return page(runs, [name.replace("connect", "Connect") for name in names if name not in kept])


def all_lanes() -> list[tuple[str, str]]:
    """The pairs of Spark version and session mode (classic or Connect) that ``dev.py`` runs."""
    import dev

    return [(lane, mode) for lane in dev.SPARK for mode in dev.spark_modes(lane)]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(all_lanes()))
