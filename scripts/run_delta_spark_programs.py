"""Runs delta-spark's own Python examples and tests on spark_ext, with ``spark_ext.install`` and nothing else changed.

``python scripts/run_delta_spark_programs.py FOLDER [--only NAME …] [--json FILE]`` takes the folder of a checkout of
github.com/delta-io/delta; nothing of it is copied. Each example is a process of its own, and so is each test module.
Prints what passes, by group, and the last line of the error of what does not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = (
    "quickstart.py", "quickstart_sql.py", "quickstart_sql_on_paths.py", "table_exists.py", "utilities.py",
    "using_with_pip.py", "streaming.py", "change_data_feed.py",
)  # fmt: skip
# Examples that need a service, or that test delta-spark's own installation.
NOT_RUN = {
    "delta_connect.py": "needs a Spark Connect server with delta-spark's plugins",
    "image_storage.py": "downloads images",
    "missing_delta_storage_jar.py": "expects the error of a missing jar of delta-spark",
}
TESTS = ("test_deltatable", "test_sql")
_START = "import spark_ext; spark_ext.install()"
_EXAMPLE = f"{_START}; import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
# The package delta of the checkout has the base class of the tests.
_TESTS = f"""
{_START}
import json, sys, unittest, delta
delta.__path__.append(sys.argv[1])

class Result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        self.failed = None
    def addError(self, test, error):
        super().addError(test, error)
        self.failed = error
    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.failed = error
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.failed = (None, "skipped: " + reason, None)
    def stopTest(self, test):
        super().stopTest(test)
        if hasattr(test, "_testMethodName"):
            error = None if self.failed is None else (
                self.failed[1] if self.failed[0] is None else self.failed[0].__name__ + ": " + str(self.failed[1]))
            print("RESULT " + json.dumps([test._testMethodName, error]), flush=True)

chosen = unittest.defaultTestLoader.loadTestsFromName("delta.tests." + sys.argv[2])
unittest.TextTestRunner(resultclass=Result, stream=open(sys.argv[3], "w")).run(chosen)
"""


@dataclass(frozen=True)
class Outcome:
    """One program or test: ``error`` is None if it passes."""

    group: str
    name: str
    error: str | None


def run(checkout: Path, only: list[str]) -> Iterator[Outcome]:
    """Run the programs and the tests, in order."""
    for name in EXAMPLES:
        if not only or name in only:
            yield _example(checkout / "examples" / "python" / name)
    for module in TESTS:
        if not only or module in only:
            yield from _tests(checkout / "python" / "delta", module)


def _example(path: Path) -> Outcome:
    done = _python(_EXAMPLE, str(path))
    lines = [line for line in done.stderr.splitlines() if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return Outcome("examples", path.name, None if done.returncode == 0 else (lines or ["no message"])[-1])


def _tests(package: Path, module: str) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory() as scratch:
        done = _python(_TESTS, str(package), module, f"{scratch}/log")
    found = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not found:
        yield Outcome(module, "(module)", done.stderr[-2000:])
    for name, error in found:
        yield Outcome(module, name, error)


def _python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)


def main() -> None:
    """Print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="names of examples, or test_deltatable or test_sql")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = []
    for each in run(given.checkout, given.only):
        found.append(each)
        print(f"{each.group:16} {each.name:56} {'passes' if each.error is None else each.error[:300]}", flush=True)
    for group in dict.fromkeys(each.group for each in found):
        of = [each for each in found if each.group == group]
        print(f"{group}: {sum(each.error is None for each in of)} of {len(of)} pass")
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
