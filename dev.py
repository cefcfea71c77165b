#!/usr/bin/env python3
"""Sets up the project and runs its tasks. Requires only Python 3.10+ (and Java 17+ for Spark).

    python3 dev.py demo      examples/flights: real flights, written with Spark and read with time travel
    python3 dev.py test      the usual run; tests/support/usual_run.py lists the Spark tests in it
                             --long: all tests; --long tests/spark tests/demo: all tests of these suites
                             --quick: needs neither Java, Spark nor servers
                             --lowest: the quick tests on the lowest versions that pyproject.toml allows
                             --pythons: the wheel on each Python of this machine, with the lowest and newest versions
                             --extras: each extra in a separate environment; --extras s3 cli: only these
                             --spark 3.5, --spark all: the tests of spark_ext with other versions of Spark
    python3 dev.py bench     the benchmarks, compared with deltalake and delta-spark
    python3 dev.py release   everything for a release except the upload: docs/releasing.md

Further arguments are passed to the task: `python3 dev.py demo --months 3`, `python3 dev.py test tests/unit/log`.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("DELTALOG_VENV", ROOT / ".venv"))
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

# One pytest process per entry; the entries that take longest come first. A JVM supports one kind of Spark session, so
# suites that use a session run in their own processes. Many of the other tests mostly wait for servers, processes and
# disks, so more runs are started than there are processors. The test run of a folder excludes subfolders that have
# their own test run.
SUITES = [
    ["tests/interop"],
    ["tests/spark"],
    ["tests/unit"],
    ["tests"],
    ["tests/simulation"],
    ["tests/unit/storage"],
    ["tests/unit/server", "tests/unit/transactions"],
    ["tests/spark_s3"],
    ["tests/spark_connect"],
    ["tests/demo"],
]
AT_ONCE = (os.cpu_count() or 2) + 1  # a run with a JVM needs 1.5 GiB of memory

# For each extra, the extras (including itself) that install all of its packages.
WIDER = {
    "test-core": ["test-core", "test"],
    "test-package": ["test-package", "test"],
    "demo": ["demo", "test"],
    "test": ["test"],
}
# Two parallel runs of a few minutes each. They need no JVM, no servers, and none of the packages for these.
QUICK = [
    [
        "tests/house", "tests/simulation/test_checker.py", "tests/simulation/test_schedules.py",
        "tests/unit/catalog/test_memory_coordinator.py", "tests/unit/catalog/test_sqlite_coordinator.py",
        "tests/unit/cli/test_main.py", "tests/unit/cli/test_commands.py", "tests/unit/storage/test_local.py",
        "tests/unit/storage/test_memory.py", "tests/unit/protocol", "tests/unit/parquet",
    ],
    [
        "tests/unit/test_errors.py", "tests/unit/test_parallel.py", "tests/unit/test_table.py",
        "tests/unit/commit", "tests/unit/expressions", "tests/unit/log", "tests/unit/read",
        "tests/unit/alter", "tests/unit/create", "tests/unit/maintenance", "tests/unit/rows", "tests/unit/write",
        "tests/unit/write_contract",
    ],
]  # fmt: skip
QUICK_SCHEDULES = "300"

# The versions of Spark that spark_ext supports: for each, the newest patch release, and the constraints on other
# packages.
SPARK = {
    # Spark 3.5's pandas API needs numpy 1, which later versions of pyarrow do not support.
    "3.5": ["pyspark==3.5.9", "numpy<2", "pandas<3", "pyarrow<22"],
    "4.0": ["pyspark==4.0.5"],
    "4.1": ["pyspark==4.1.4"],
    "4.2": ["pyspark==4.2.1"],
    "4.3": ["pyspark==4.3.0"],
}
EXTRAS_SUITE = "tests/extras/test_installed.py"
# The Spark versions with which ``--long`` runs tests: the oldest and the newest, each with a suite that covers a little
# of everything.
SPARK_SAMPLE = {"3.5": "classic", "4.3": "connect"}
SPARK_SAMPLE_SUITE = "tests/spark/test_central.py"
# The tests that --long runs over Spark Connect and S3; in a classic session, --long runs all S3 tests.
S3_SAMPLE_SUITE = "tests/spark_s3/test_s3_tables.py"
# The pyspark package of these Spark versions lacks the Spark Connect server, which is a separate jar.
SPARK_WITHOUT_SERVER = {"3.5"}
# tests/spark_connect itself runs the modules that are ignored here.
SPARK_SUITES = {
    "classic": ["tests/spark"],
    "connect": [
        "tests/spark", "tests/spark_connect",
        *(f"--ignore=tests/spark/test_{name}.py" for name in ("central", "guide")),
    ],
}  # fmt: skip


def main(arguments: list[str]) -> int:
    tasks = {"demo": demo, "test": test, "bench": bench, "release": release}
    if not arguments or arguments[0] not in tasks:
        print(__doc__)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    if sys.version_info < (3, 10):  # noqa: UP036  (the message is for users of older versions)
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
    if arguments[:2] == ["test", "--pythons"]:
        install("test-core")
        return run_script("installs.py", ["pythons", *arguments[2:]])
    install({"demo": "demo", "release": "test-package"}.get(arguments[0], "test"))
    return tasks[arguments[0]](arguments[1:])


def install(extra: str) -> None:
    """Install the project into the virtual environment, unless it is already installed for the current
    pyproject.toml."""
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamps = [VENV / f".deltalog-{name}" for name in WIDER[extra]]
    if any(stamp.exists() and stamp.read_text() == wanted for stamp in stamps):
        return
    install_into(VENV, PYTHON, extra)
    stamps[0].write_text(wanted)


def install_into(venv: Path, python: Path, extra: str, *options: str) -> None:
    """Create the virtual environment if it does not exist, and install the project into it. ``options``: for pip."""
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
    return run_all([Run(["-m", "not slow", *suites, *arguments]) for suites in QUICK])


def test_lowest(arguments: list[str]) -> int:
    """Run the quick tests, except the source code checks, in a separate virtual environment."""
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
    """Test each extra, or only the named extras: install it as a user would, into a new virtual environment that is
    deleted after the test. Arguments that are not names of extras go to pytest."""
    named, rest = list[str](), list[str]()
    for argument in arguments:
        (rest if argument.startswith("-") or rest else named).append(argument)
    chosen = [f"{EXTRAS_SUITE}::test_an_extra_alone[{name}]" for name in named] or [EXTRAS_SUITE]
    return run_pytest(["--extras", *chosen, *rest])


def test_spark(arguments: list[str]) -> int:
    """Run the tests of spark_ext with the given versions of Spark, and write the results to docs/spark-versions.md.

    For each version, classic sessions and Spark Connect run in parallel. Arguments after the versions replace the
    default suites.
    """
    names = list(itertools.takewhile({*SPARK, "all"}.__contains__, arguments))
    if not names:
        print(f"Name the versions of Spark: --spark all, or some of {', '.join(SPARK)}.", file=sys.stderr)
        return 2
    chosen, failed = arguments[len(names) :], 0
    for name in SPARK if "all" in names else names:
        runs = [Run(chosen or spark_run(name, mode), name, DELTALOG_TEST_SPARK=mode) for mode in spark_modes(name)]
        install_spark(name)
        failed |= run_all(runs)
    if not chosen:
        failed |= subprocess.run([str(PYTHON), "-m", "tests.spark.versions"], cwd=ROOT).returncode
    return failed


def install_spark(name: str) -> Path:
    """Create the virtual environment for a version of Spark, and return the path of its Python."""
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
    """The pytest arguments to run all suites of spark_ext and write a report for tests/spark/versions.py."""
    return [*SPARK_SUITES[mode], f"--junitxml=build/spark-versions/{name}-{mode}.xml"]


def lowest_versions(pyproject: str) -> list[str]:
    """``name==version`` for the lower bounds of the mandatory dependencies and of the command line's."""
    lists = re.findall(r"^(?:dependencies|cli) = \[(.*?)\]", pyproject, re.M | re.S)
    return [f"{name}=={version}" for each in lists for name, version in re.findall(r'"([\w-]+)>=([\w.]+)', each)]


def demo(arguments: list[str]) -> int:
    return subprocess.run([str(PYTHON), "-m", "examples.flights", *arguments], cwd=ROOT).returncode


def bench(arguments: list[str]) -> int:
    return subprocess.run([str(PYTHON), "-m", "tests.benchmarks", *arguments], cwd=ROOT).returncode


def release(arguments: list[str]) -> int:
    return run_script("release.py", arguments)


def run_script(name: str, arguments: list[str]) -> int:
    return subprocess.run([str(PYTHON), str(ROOT / "scripts" / name), *arguments], cwd=ROOT).returncode


def test(arguments: list[str]) -> int:
    """Runs the usual tests; with ``--long``, runs all tests, and repeats some of them with other versions of Spark. Any
    other arguments are passed to a single pytest run."""
    if arguments not in ([], ["--long"]):
        return run_pytest(arguments)
    option = arguments[0] if arguments else "--usual"
    runs = [Run([option, *suites, *(f"--ignore={each}" for each in inside(suites))]) for suites in SUITES]
    if option == "--long":
        runs += [Run([SPARK_SAMPLE_SUITE], name, DELTALOG_TEST_SPARK=mode) for name, mode in SPARK_SAMPLE.items()]
        runs.append(Run(["--long", S3_SAMPLE_SUITE], DELTALOG_TEST_SPARK="connect"))
    return run_all(runs)


def inside(suites: list[str]) -> list[str]:
    """The suites that lie in subfolders of ``suites`` and are run separately."""
    return [each for run in SUITES for each in run if any(each.startswith(f"{suite}/") for suite in suites)]


class Run:
    """A pytest run, with the installed version of Spark or with another one."""

    def __init__(self, arguments: list[str], spark: str | None = None, **environment: str) -> None:
        self.arguments, self.spark, self.environment = arguments, spark, environment
        self.code, self.output, self.seconds = 1, "", 0.0

    @property
    def name(self) -> str:
        suites = " ".join(each for each in self.arguments if each.startswith("tests"))
        has_others = any(each.startswith("--ignore") for each in self.arguments)
        said = [suites + " (the others)" * has_others, *self.environment.values()]
        return " ".join([*said, *([f"Spark {self.spark}"] if self.spark else [])])

    @property
    def selection(self) -> tuple[int, int, str] | None:
        """The number of selected tests, the number of all tests, and a digest of the selection, as printed by
        tests/conftest.py."""
        said = re.search(r"^selected (\d+) of (\d+) tests, (\w+)$", self.output, re.M)
        return (int(said[1]), int(said[2]), said[3]) if said else None

    def carry_out(self) -> None:
        started = time.monotonic()
        try:
            python = install_spark(self.spark) if self.spark else PYTHON
        except SystemExit as failure:  # ends only this thread
            self.output = f"Spark {self.spark}: {failure}"
            return
        command = [str(python), "-m", "pytest", *self.arguments]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **self.environment},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.code, self.output = done.returncode, f"$ {' '.join(command)}\n{done.stdout}"
        self.seconds = time.monotonic() - started


def run_all(runs: list[Run]) -> int:
    """Start the runs in order, at most AT_ONCE in parallel. Prints the output of each run when it finishes, then a
    table of the selected tests."""
    started, printing = time.monotonic(), threading.Lock()
    # Tests start hundreds of processes. If PYTHONDONTWRITEBYTECODE is set and the packages are not compiled here, each
    # process compiles them again.
    subprocess.run([str(PYTHON), "-m", "compileall", "-q", "deltalog", "spark_ext", "examples", "tests"], cwd=ROOT)

    def carry_out(run: Run) -> None:
        with printing:
            print(f"… {run.name}", flush=True)
        run.carry_out()
        with printing:
            print(run.output, flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(carry_out, runs))
    print(table_of(runs))
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    failed = any(run.code for run in runs)
    print(f"dev.py test: {'FAILED' if failed else 'all suites passed'}; {len(runs)} runs in {minutes} min {seconds} s")
    return int(failed)


def table_of(runs: list[Run]) -> str:
    """A table of the selected tests, one line per run. Two usual runs (without ``--long``) of the same source tree
    print the same numbers and digests."""
    lines = [f"{'selected':>8} {'of':>6} {'which':>8} {'minutes':>7}"]
    total, everything, digest = 0, 0, hashlib.sha256()
    for run in runs:
        selected, of, which = run.selection or (0, 0, "-")
        total, everything = total + selected, everything + of
        digest.update(which.encode())
        failed = "  FAILED" if run.code else ""
        lines.append(f"{selected:8} {of:6} {which:>8} {run.seconds / 60:7.1f}  {run.name}{failed}")
    return "\n".join([*lines, f"{total:8} {everything:6} {digest.hexdigest()[:8]:>8}          all"])


def run_pytest(arguments: list[str]) -> int:
    return subprocess.run([str(PYTHON), "-m", "pytest", *arguments], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
