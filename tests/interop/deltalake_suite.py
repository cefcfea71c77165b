"""Runs delta-rs's own Python tests against ``deltalog.deltalake``, and prints for each file what passed.

    python -m tests.interop.deltalake_suite <checkout of delta-rs> [--real] [--only test_merge] [--report report.json]

``--real`` runs the tests against the installed deltalake instead, for comparison. The tests are copied into a scratch
directory outside of the project and are not changed. They need pytest-mock, arro3-core, arro3-compute and
azure-storage-blob, besides what deltalog's tests need. Tests of services that are not available here (LakeFS, Unity
Catalog, OpenDAL, OpenTelemetry), benchmarks and file system handlers are left out; so are tests that delta-rs leaves
out by default.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
LEFT_OUT = (
    "test_lakefs.py", "test_benchmark.py", "test_tracing.py", "test_opendal.py", "test_unity_catalog.py",
    "test_file_system_handler.py", "test_fs.py", "data_acceptance", "pyspark_integration",
)  # fmt: skip
_MARKERS = "not integration and not benchmark and not no_pyarrow"
_INSTALL = "import deltalog.deltalake\n\ndeltalog.deltalake.install()\n"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test. ``reason``: the last line of the test's error."""

    name: str
    group: str
    status: str
    reason: str = ""


def build(checkout: Path, scratch: Path, real: bool) -> Path:
    """Copy the tests and the tables that they read; return the directory in which to run the tests."""
    python = scratch / "python"
    shutil.copytree(checkout / "python" / "tests", python / "tests", ignore=shutil.ignore_patterns(*LEFT_OUT))
    data = Path("crates") / "test" / "tests" / "data"
    shutil.copytree(checkout / data, scratch / data, symlinks=True)
    (python / "conftest.py").write_text("" if real else _INSTALL)
    return python


def run(directory: Path, only: str | None, timeout_s: int) -> list[Outcome]:
    """Run deltalake's own tests in a separate process."""
    report = directory / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", _MARKERS, "--tb=short"]
    command += [f"--junitxml={report}", "-o", "junit_family=xunit1", "tests"]
    command += ["-k", only] if only else []
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    subprocess.run(command, cwd=directory, env=environment, timeout=timeout_s, check=False, stdout=subprocess.DEVNULL)
    return [_outcome(case) for case in ElementTree.parse(report).getroot().iter("testcase")]


def _outcome(case: ElementTree.Element) -> Outcome:
    group = case.get("classname", "").rpartition(".")[2]
    name = f"{group}::{case.get('name')}"
    for status in ("failure", "error", "skipped"):
        found = case.find(status)
        if found is not None:
            message = found.get("message") or ""
            return Outcome(name, group, "failed" if status != "skipped" else status, message.strip())
    return Outcome(name, group, "passed")


def summary(outcomes: list[Outcome]) -> str:
    """A table of counts by file, and the failed tests with their reasons."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for each in outcomes:
        counts[each.group][each.status] += 1
    columns = ("passed", "failed", "skipped")
    lines = [f"{'':36}" + "".join(f"{name:>9}" for name in columns)]
    for group, count in sorted(counts.items()):
        lines.append(f"{group:36}" + "".join(f"{count[name]:>9}" for name in columns))
    total = Counter(each.status for each in outcomes)
    lines.append(f"{'all':36}" + "".join(f"{total[name]:>9}" for name in columns))
    failed = [f"{each.name}: {each.reason.splitlines()[0][:160] if each.reason else ''}" for each in outcomes
              if each.status == "failed"]  # fmt: skip
    return "\n".join([*lines, "", *failed])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="the directory of a checkout of delta-rs")
    parser.add_argument("--real", action="store_true", help="run against the installed deltalake")
    parser.add_argument("--only", help="a pytest expression that selects tests (-k)")
    parser.add_argument("--report", type=Path, help="where to write the outcomes as JSON")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for the whole run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deltalake-suite-") as scratch:
        directory = build(arguments.checkout, Path(scratch), arguments.real)
        outcomes = run(directory, arguments.only, arguments.timeout)
    print(summary(outcomes))
    if arguments.report:
        arguments.report.write_text(json.dumps([vars(each) for each in outcomes], indent=1))
    return 0 if outcomes else 1


if __name__ == "__main__":
    sys.exit(main())
