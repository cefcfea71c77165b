#!/usr/bin/env python3
"""Set-up and tasks, with nothing but Python 3.10+ (and Java 17+ for Spark) on the machine.

    python3 dev.py demo      the main job: real flights, written with Spark, travelled through by time
    python3 dev.py test      the tests and checks; of the tests with Spark only those of CENTRAL, below
                             --long: all of them
                             --quick: no JVM, no servers, and neither needs to be installed
                             --lowest: the quick tests on the lowest versions that pyproject.toml allows
                             --extras: each extra in an environment of its own; --extras s3 cli: these
                             --spark 3.5, --spark all: the tests of spark_ext with another version of Spark, or each
    python3 dev.py bench     the benchmarks beside deltalake and delta-spark

What follows the task's name is passed on: `python3 dev.py demo --months 3`, `python3 dev.py test tests/unit/log`.
The first run makes a virtual environment in .venv and installs the project into it; later runs reuse it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("DELTALOG_VENV", ROOT / ".venv"))
PYTHON = VENV / ("Scripts" if os.name == "nt" else "bin") / "python"

_UNITS = [f"tests/unit/{name}" for name in (
    "catalog", "cli", "commit", "conformance", "expressions", "log", "operations", "parquet", "protocol",
)]  # fmt: skip
# Lanes of about the same length, with sequential pytest runs. A JVM supports one kind of Spark session, so suites with
# a session have their own processes. Many of the other tests wait for servers, processes and disks. The first lane runs
# everything that is not listed here.
LANES = [
    [["tests/spark"], _UNITS],
    [["tests/interop"], ["tests/simulation"]],
    [
        ["tests/spark_connect"],
        ["tests/spark_s3"],
        ["tests/demo"],
        ["tests/unit/storage"],
        ["tests/unit/server", "tests/unit/transactions"],
    ],
]
# The suites with a JVM take most of the time. A usual run has only these modules of them, which cover every verb,
# feature and kind of session; --long runs all.
CENTRAL = {
    "tests/spark": [
        "central", "copies", "delta_table", "nested_values", "optimize", "row_changes", "row_merges", "sql_alter",
        "sql_rows", "sql_tables", "stream_calls", "stream_sink", "table_features", "transactions", "vacuum",
    ],
    "tests/interop": [
        "interop_alternating", "interop_catalog_managed", "interop_checkpoints", "interop_conformance",
        "interop_deltalake", "interop_environment", "interop_merge", "interop_parity", "interop_rewrites",
        "interop_same_answers", "interop_spark_writer", "interop_types", "interop_update",
    ],
    "tests/spark_connect": ["connect"],
    "tests/spark_s3": ["s3_tables"],
}  # fmt: skip

# For every extra, the extras that install at least as much.
WIDER = {"test-core": ["test-core", "test"], "demo": ["demo", "test"], "test": ["test"]}
# The tests without a JVM and servers, which need none of their packages. A few minutes in two lanes.
QUICK = [
    [
        "tests/house", "tests/simulation/test_checker.py", "tests/simulation/test_schedules.py",
        "tests/unit/catalog/test_memory_coordinator.py", "tests/unit/catalog/test_sqlite_coordinator.py",
        "tests/unit/cli/test_main.py", "tests/unit/cli/test_commands.py", "tests/unit/storage/test_local.py",
        "tests/unit/storage/test_memory.py", "tests/unit/protocol", "tests/unit/parquet",
    ],
    [
        "tests/unit/test_errors.py", "tests/unit/test_parallel.py", "tests/unit/test_table.py",
        "tests/unit/commit", "tests/unit/expressions", "tests/unit/log", "tests/unit/operations", "tests/unit/read",
    ],
]  # fmt: skip
QUICK_SCHEDULES = "300"

# The versions of Spark that spark_ext supports: the newest patch release of each, with further requirements for pip.
SPARK = {
    # Its pandas API needs numpy 1, which later versions of pyarrow do not support.
    "3.5": ["pyspark==3.5.9", "numpy<2", "pandas<3", "pyarrow<22"],
    "4.0": ["pyspark==4.0.5"],
    "4.1": ["pyspark==4.1.4"],
    "4.2": ["pyspark==4.2.1"],
    "4.3": ["pyspark==4.3.0"],
}
EXTRAS_SUITE = "tests/extras/test_installed.py"
# A usual run includes the oldest version, with the suite that covers a bit of everything; --long also the newest.
SPARK_SAMPLE = {"3.5": "classic", "4.3": "connect"}
SPARK_SAMPLE_SUITE = "tests/spark/test_central.py"
# The tests on S3 over Spark Connect in a usual run, which runs all of them in a classic session.
S3_SAMPLE_SUITE = "tests/spark_s3/test_s3_tables.py"
# Its package lacks the Spark Connect server, which is a separate jar.
SPARK_WITHOUT_SERVER = {"3.5"}
# tests/spark_connect has its own versions of these suites.
SPARK_SUITES = {
    "classic": ["tests/spark"],
    "connect": [
        "tests/spark", "tests/spark_connect",
        *(f"--ignore=tests/spark/test_{name}.py" for name in ("central", "guide")),
    ],
}  # fmt: skip


def main(arguments: list[str]) -> int:
    tasks = {"demo": demo, "test": test, "bench": bench}
    if not arguments or arguments[0] not in tasks:
        print(__doc__)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    if sys.version_info < (3, 10):  # noqa: UP036  (the message is for those who have an older one)
        found = ".".join(map(str, sys.version_info[:2]))
        print(f"deltalog needs Python 3.10 or newer; this is {found} ({sys.executable}).", file=sys.stderr)
        return 1
    if arguments[:2] == ["test", "--lowest"]:
        return test_lowest(arguments[2:])
    if arguments[:2] == ["test", "--spark"]:
        return test_spark(arguments[2:])
    if arguments[:2] == ["test", "--extras"]:
        install("test")
        return test_extras(arguments[2:])
    if arguments[:2] == ["test", "--quick"]:
        install("test-core")
        return test_quick(arguments[2:])
    install("demo" if arguments[0] == "demo" else "test")
    return tasks[arguments[0]](arguments[1:])


def install(extra: str) -> None:
    """Install the project into the virtual environment, unless it was already done for this pyproject.toml."""
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamps = [VENV / f".deltalog-{name}" for name in WIDER[extra]]
    if any(stamp.exists() and stamp.read_text() == wanted for stamp in stamps):
        return
    install_into(VENV, PYTHON, extra)
    stamps[0].write_text(wanted)


def install_into(venv: Path, python: Path, extra: str, *options: str) -> None:
    """Create a virtual environment if it does not exist, and install the project into it. ``options``: those of pip."""
    if not python.exists():
        print(f"Making a virtual environment in {venv} …", flush=True)
        if subprocess.run([sys.executable, "-m", "venv", str(venv)]).returncode:
            sys.exit("Python's venv module is not complete here; on Debian and Ubuntu: apt-get install python3-venv.")
    print(f"Installing deltalog[{extra}] …", flush=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options]
    if subprocess.run([*pip, "--editable", f".[{extra}]"], cwd=ROOT).returncode:
        sys.exit("The installation failed; see the output of pip above.")


def test_quick(arguments: list[str]) -> int:
    os.environ.setdefault("DELTALOG_SCHEDULES", QUICK_SCHEDULES)
    return run_lanes([[["-m", "not slow", *suites, *arguments]] for suites in QUICK])


def test_lowest(arguments: list[str]) -> int:
    """The quick tests without the checks of the sources, in a separate virtual environment."""
    venv = ROOT / ".venv-lowest"
    python = venv / PYTHON.relative_to(VENV)
    venv.mkdir(exist_ok=True)
    constraints = venv / "constraints.txt"
    constraints.write_text("\n".join(lowest_versions((ROOT / "pyproject.toml").read_text())) + "\n")
    install_into(venv, python, "test-core", "--constraint", str(constraints))
    os.environ.setdefault("DELTALOG_SCHEDULES", QUICK_SCHEDULES)
    suites = [suite for lane in QUICK for suite in lane if suite != "tests/house"]
    command = [str(python), "-m", "pytest", "-m", "not slow", *suites, *arguments]
    return subprocess.run(command, cwd=ROOT).returncode


def test_extras(arguments: list[str]) -> int:
    """Test extras, all or some by name, each installed into a new virtual environment that is deleted afterwards. Other
    arguments go to pytest."""
    named, rest = list[str](), list[str]()
    for argument in arguments:
        (rest if argument.startswith("-") or rest else named).append(argument)
    chosen = [f"{EXTRAS_SUITE}::test_an_extra_alone[{name}]" for name in named] or [EXTRAS_SUITE]
    return run_pytest(["--extras", *chosen, *rest])


def test_spark(arguments: list[str]) -> int:
    """Run the tests of spark_ext with these versions of Spark, and write the results to docs/spark-versions.md.

    A version runs in classic sessions and over Spark Connect in parallel. Arguments after the versions go to pytest
    instead of the suites.
    """
    names = list(itertools.takewhile({*SPARK, "all"}.__contains__, arguments))
    if not names:
        print(f"Specify versions of Spark: --spark all, or some of {', '.join(SPARK)}.", file=sys.stderr)
        return 2
    chosen, codes, started = arguments[len(names) :], list[int](), time.monotonic()
    for name in SPARK if "all" in names else names:
        python = install_spark(name)
        print(f"Spark {name}, classic and Connect …", flush=True)
        lanes = [
            Lane([chosen or spark_run(name, mode)], python, DELTALOG_TEST_SPARK=mode) for mode in spark_modes(name)
        ]
        for lane in lanes:
            lane.start()
        codes += results_of(lanes)
    if not chosen:
        codes.append(subprocess.run([str(python), "-m", "tests.spark.versions"], cwd=ROOT).returncode)
    return verdict_of(codes, started)


def install_spark(name: str) -> Path:
    """The Python of the virtual environment for a version of Spark."""
    venv = ROOT / f".venv-spark-{name}"
    python = venv / PYTHON.relative_to(VENV)
    stamp = venv / ".deltalog-installed"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + repr(SPARK[name]).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        install_into(venv, python, "test-spark", *SPARK[name])
        stamp.write_text(wanted)
    return python


def spark_modes(name: str) -> list[str]:
    return [mode for mode in SPARK_SUITES if mode == "classic" or name not in SPARK_WITHOUT_SERVER]


def spark_run(name: str, mode: str) -> list[str]:
    """All suites of spark_ext, with a report for tests/spark/versions.py."""
    return [*SPARK_SUITES[mode], f"--junitxml=build/spark-versions/{name}-{mode}.xml"]


def lowest_versions(pyproject: str) -> list[str]:
    """``name==version`` with the lower bounds of all mandatory dependencies and those of the command line."""
    lists = re.findall(r"^(?:dependencies|cli) = \[(.*?)\]", pyproject, re.M | re.S)
    return [f"{name}=={version}" for each in lists for name, version in re.findall(r'"([\w-]+)>=([\w.]+)', each)]


def demo(arguments: list[str]) -> int:
    return subprocess.run([str(PYTHON), "-m", "deltalog.cli.main", "demo", *arguments], cwd=ROOT).returncode


def bench(arguments: list[str]) -> int:
    return subprocess.run([str(PYTHON), "-m", "tests.benchmarks", *arguments], cwd=ROOT).returncode


def test(arguments: list[str]) -> int:
    """Run all suites in four lanes: of those with a JVM the modules in CENTRAL, and a sample with another version of
    Spark. ``--long`` runs all of them completely."""
    if arguments not in ([], ["--long"]):
        return run_pytest(arguments)
    elsewhere = [suite for lane in LANES for suites in lane for suite in suites]
    rest = ["tests", *(f"--ignore={suite}" for suite in elsewhere)]
    chosen = (lambda suites: suites) if arguments else central
    *lanes, last = [[[*arguments, *chosen(suites)] for suites in lane] for lane in [[rest], *LANES]]
    return run_lanes(lanes, WithSparkSample(last, "--long" in arguments))


def central(suites: list[str]) -> list[str]:
    """The suites, with those in CENTRAL replaced by their modules for a usual run."""
    return [path for suite in suites for path in central_modules(suite) or [suite]]


def central_modules(suite: str) -> list[str]:
    return [f"{suite}/test_{name}.py" for name in CENTRAL.get(suite, [])]


def run_lanes(lanes: list[list[list[str]]], *more: Lane) -> int:
    """Run lanes in parallel. The first one prints as it runs; the output of the others follows at the end."""
    started = time.monotonic()
    # Tests start hundreds of processes. If PYTHONDONTWRITEBYTECODE were set, each would recompile the package.
    subprocess.run([str(PYTHON), "-m", "compileall", "-q", "deltalog", "spark_ext", "tests"], cwd=ROOT)
    first, beside = lanes[0], [*(Lane(runs) for runs in lanes[1:]), *more]
    for lane in beside:
        lane.start()
    codes = [run_pytest(arguments) for arguments in first]
    return verdict_of(codes + results_of(beside), started)


def results_of(lanes: list[Lane]) -> list[int]:
    """Wait for running lanes, print their output, and return their exit codes."""
    for lane in lanes:
        lane.join()
        print("\n".join(lane.outputs), flush=True)
    return [code for lane in lanes for code in lane.codes]


def verdict_of(codes: list[int], started: float) -> int:
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    verdict = "all suites passed" if not any(codes) else "FAILED"
    print(f"dev.py test: {verdict}; {len(codes)} runs in {minutes} min {seconds} s")
    return int(any(codes))


class Lane(threading.Thread):
    """Sequential pytest runs, whose output is kept until the end."""

    def __init__(self, runs: list[list[str]], python: Path = PYTHON, **environment: str) -> None:
        super().__init__()
        self.runs, self.python, self.environment = runs, python, {**os.environ, **environment}
        self.codes, self.outputs = list[int](), list[str]()

    def run(self) -> None:
        for arguments in self.runs:
            command = [str(self.python), "-m", "pytest", *arguments]
            done = subprocess.run(
                command, cwd=ROOT, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            self.codes.append(done.returncode)
            self.outputs.append(f"$ {' '.join(command)}\n{done.stdout}")


class WithSparkSample(Lane):
    """A lane that starts with one suite on the oldest Spark, in its own environment and in classic sessions. With
    ``--long`` also on the newest, over Spark Connect, and the tables on S3 over Spark Connect."""

    def __init__(self, runs: list[list[str]], is_long: bool) -> None:
        super().__init__(runs)
        self.is_long = is_long

    def run(self) -> None:
        versions = list(SPARK_SAMPLE.items())
        for name, mode in versions if self.is_long else versions[:1]:
            try:
                python = install_spark(name)
            except SystemExit as failure:  # of this thread alone
                self.codes.append(1)
                self.outputs.append(f"Spark {name}: {failure}")
                continue
            self.add(Lane([[SPARK_SAMPLE_SUITE]], python, DELTALOG_TEST_SPARK=mode))
        super().run()
        if self.is_long:
            self.add(Lane([["--long", S3_SAMPLE_SUITE]], DELTALOG_TEST_SPARK="connect"))

    def add(self, lane: Lane) -> None:
        lane.run()
        self.codes += lane.codes
        self.outputs += lane.outputs


def run_pytest(arguments: list[str]) -> int:
    return subprocess.run([str(PYTHON), "-m", "pytest", *arguments], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
