"""The page docs/spark-parity.md: the results of delta-spark and spark_ext for every scenario.

    python -m tests.interop.parity.page                      # runs all scenarios and writes the page
    python -m tests.interop.parity.page -k "replace or page_has"   # runs some and rewrites their lines

test_interop_parity.py compares its own results with the page.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.interop.parity.scenarios import AREAS, GENERAL, Finding, Scenario
from tests.support.spark.jars import DELTA_VERSION, SPARK_LINE

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark-parity.md"
WRITE = "DELTALOG_WRITE_SPARK_PARITY"
SAME = "same"
_SHOWN, _LENGTH = 2, 60


def row(scenario: Scenario, finding: Finding) -> str:
    """The scenario's line in the table of its area."""
    if not finding.differences:
        return f"| {scenario.name} | {SAME} | |"
    places = [f"`{place}` {_short(theirs)} / {_short(ours)}" for place, theirs, ours in finding.differences[:_SHOWN]]
    more = len(finding.differences) - _SHOWN
    if more > 0:
        places.append(f"{more} more")
    return f"| {scenario.name} | {', '.join(finding.facets)} | {scenario.differs} {'; '.join(places)} |"


def _short(value: Any) -> str:
    text = " ".join(str(value).split()).replace("|", "\\|").replace("`", "'")
    return f"`{text[:_LENGTH]}{'…' if len(text) > _LENGTH else ''}`"


def render(rows: Mapping[str, str], scenarios: Iterable[Scenario]) -> str:
    """The text of the page: the introduction, and one line for each scenario."""
    listed = list(scenarios)
    same = sum(rows[each.name].endswith(f"| {SAME} | |") for each in listed)
    text = _INTRODUCTION + _counts(len(listed), same)
    for area, title in AREAS.items():
        lines = [rows[each.name] for each in listed if each.area == area]
        text += f"\n## {title}\n\n| scenario | differs in | why; delta-spark / spark_ext |\n|---|---|---|\n"
        text += "\n".join(lines) + "\n"
    return text + _OWN_TESTS


def _counts(number: int, same: int) -> str:
    return f"\nOf {number} scenarios, {same} have the same results and {number - same} differ.\n"


_INTRODUCTION = f"""\
# The same scenarios in delta-spark and in spark_ext

Each row is a scenario that a test runs twice in one session of Spark {SPARK_LINE}: with
`df.write.format("delta")` and `spark.read.format("delta")` of delta-spark {DELTA_VERSION}, and with
`spark_ext.write(df)` and `spark_ext.read(spark)`; SQL statements with `spark.sql` and `spark_ext.sql`; streams with
`format("delta")` and `format("deltalog")`, until each has read all available rows.
The scenarios follow delta-spark's documentation and the subjects of its tests.
The test fails if the results differ from this page, or if a difference has no explanation;
`python -m tests.interop.parity.page` writes the page.

What is compared:

- *errors*: whether each step succeeds; if not, what its error means (columns that do not fit, a table that exists, …);
- *rows*, *schema*: what each step reads, with types, nullability and metadata of columns. At the end each engine reads
  its own table, and delta-spark also reads the one that spark_ext wrote;
- *history*: operation, parameters and metrics of each commit, except times and file sizes;
- *log*: the other actions of each commit: added and removed files by partition values and row counts, change files, row
  ids, deletion vectors, schema, partition columns, properties, protocol, transactions, domains.

The following may differ in any scenario, and does not count as a difference:

{"".join(f"- {sentence}" + chr(10) for sentence in GENERAL.values())}"""


_OWN = {
    "`test_exceptions.py`, `test_exceptions_init.py`, `test_pip_utils.py`, `test_version.py`": (
        "They test delta-spark's jar and package: exceptions of its Java classes, its Maven set-up, its version file."
    ),
    "`test_deltatable.py::test_create_table_geo_types`, `test_deltatable.py::test_create_table_with_identity_column`": (
        "spark_ext does not create such columns: the preview types geometry and geography, and identity columns."
    ),
    "`test_deltatable.py::test_dropFeatureSupport`": "It adds and drops features that exist only in Delta's tests.",
    "`test_deltatable.py::test_optimize_w_partition_filter`": (
        "The history contains the condition as written, not as Spark prints the parsed condition."
    ),
    "`test_deltatable.py::test_vacuum`": (
        "A file that no version refers to is kept until it is a day old, whatever the retention, since it may still be"
        " committed."
    ),
    "`test_sql.py::test_ddls`": (
        "A table created by name is in a deltalog catalog, and therefore has table features; the test expects none. It"
        " passes with [`install`](from-delta-spark.md), where names are those of Spark's own catalog."
    ),
}
_OWN_TESTS = f"""
## delta-spark's own Python tests

`python scripts/delta_spark_tests.py FOLDER` runs the tests of delta-spark {DELTA_VERSION}
(`python/delta/tests` of its repository) with spark_ext in place of delta-spark. They pass, except for these:

| tests | why they differ |
|---|---|
{"".join(f"| {names} | {why} |" + chr(10) for names, why in _OWN.items())}"""


def committed_rows() -> dict[str, str]:
    """The lines of the page as it is in the repository, keyed by scenario."""
    if not PAGE.exists():
        return {}
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines}


def main() -> int:
    os.environ[WRITE] = "1"
    return int(pytest.main(["-q", "--long", str(Path(__file__).parents[1] / "test_interop_parity.py"), *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
