"""``python -m tests.benchmarks.first_calls``: whole processes of a few lines, with deltalog and deltalake.

Each program runs in fresh processes, one after another, so that both sides have the same moments of a busy machine. The
figures are medians of the CPU time (user and system) and of the wall time of the whole process: the start of Python and
all imports are part of it. Bytecode is cached, as after an installation. Each program asserts its result; the exit code
is 1 if one fails, and never depends on a time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import pyarrow as pa

from deltalog import DeltaTable
from tests.benchmarks.tables import instants, obtain

ROOT = Path(__file__).resolve().parents[2]
_ROWS = "import pyarrow as pa; rows = pa.table({'id': [1], 'name': ['a']})\n"
_OURS, _THEIRS = "from deltalog import DeltaTable\n", "from deltalake import DeltaTable\n"


@dataclass(frozen=True)
class Program:
    """A program for deltalog and the program that it is compared with, each with the root of its table (``root``).
    ``table``: a table of tests.benchmarks.tables; if empty, each program uses a small table of its own. ``reach``: the
    CPU time that ``ours`` may take at most, as a share of the CPU time of ``theirs``."""

    key: str
    title: str
    ours: str
    theirs: str
    reach: float
    table: tuple[str, str] = ("", "")


@dataclass
class Figures:
    """Medians of the CPU and wall times of whole processes, in milliseconds."""

    key: str
    ours_cpu_ms: float
    theirs_cpu_ms: float
    ours_wall_ms: float
    theirs_wall_ms: float

    @property
    def cpu_share(self) -> float:
        return self.ours_cpu_ms / self.theirs_cpu_ms


def programs(is_quick: bool = False) -> list[Program]:
    few, many, commits = ("2k", "2k", 100) if is_quick else ("100k", "1m", 10_000)
    files, log = f"files{few}", "100" if is_quick else "10k"
    asked = instants(commits)[0]
    at_ms, version = asked["timestamp_ms"], asked["version"]
    number = {"2k": 2_000, "100k": 100_000, "1m": 1_000_000}
    command = "import sys\nfrom deltalog.cli.main import main\n"
    history = command + "sys.argv = ['deltalog', 'history', root]\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
    return [
        Program("import", "`from deltalog import DeltaTable` / `import pyarrow`", _OURS, "import pyarrow", 1.6),
        Program(
            "append", "open, append a row",
            _ROWS + _OURS + "DeltaTable.open(root).append(rows)",
            _ROWS + "from deltalake import DeltaTable, write_deltalake\n"
            "write_deltalake(DeltaTable(root), rows, mode='append')", 1.1,
        ),
        Program(
            "filter", "open, read by a condition in Python",
            "from deltalog import DeltaTable, col\n"
            "assert DeltaTable.open(root).snapshot().scan(where=col('id') == 7).to_arrow().num_rows == 1",
            _THEIRS + "assert DeltaTable(root).to_pyarrow_table(filters=[('id', '=', 7)]).num_rows == 1", 1.1,
        ),
        Program(
            "filter-sql", "open, read by a condition in SQL (deltalake: as above)",
            _OURS + "assert DeltaTable.open(root).snapshot().scan(where='id = 7').to_arrow().num_rows == 1",
            _THEIRS + "assert DeltaTable(root).to_pyarrow_table(filters=[('id', '=', 7)]).num_rows == 1", 1.1,
        ),
        Program(
            "files", f"the files of a table of {number[few]:,} files",
            _OURS + f"assert DeltaTable.open(root).snapshot().files().num_rows == {number[few]}",
            _THEIRS + f"assert DeltaTable(root).get_add_actions().num_rows == {number[few]}",
            1 / 2, (files, files),
        ),
        Program(
            "protocol", f"protocol and metadata of a table of {number[many]:,} files",
            _OURS + "snapshot = DeltaTable.open(root).snapshot(); assert snapshot.protocol and snapshot.metadata.id",
            _THEIRS + "table = DeltaTable(root); assert table.protocol() and table.metadata().id", 1 / 8,
            (f"files{many}", f"files{many}"),
        ),
        Program(
            "timestamp", f"the version at a timestamp, {commits:,} commits",
            _OURS + f"assert DeltaTable.open(root).snapshot(timestamp={at_ms}).version == {version}",
            f"import datetime\n{_THEIRS}at = datetime.datetime.fromtimestamp({at_ms} / 1000, datetime.timezone.utc)\n"
            f"table = DeltaTable(root); table.load_as_version(at); assert table.version() == {version}", 1 / 3,
            (f"ict{log}", f"noict{log}"),
        ),
        Program(
            "history", "`deltalog history` / `from deltalog import DeltaTable`", history, _OURS, 1.5,
        ),
        Program(
            "version", "`deltalog --version` / `from deltalog import DeltaTable`",
            command + "sys.argv = ['deltalog', '--version']\nmain()", _OURS, 0.5,
        ),
    ]  # fmt: skip


def floors(is_quick: bool = False) -> list[Program]:
    """Programs that use only the libraries below deltalog (pyarrow, typer and rich) for what deltalog does with them.
    deltalog cannot take less time than these programs."""
    by_key = {program.key: program for program in programs(is_quick)}
    columns = "path partitionValues size modificationTime stats tags deletionVector baseRowId defaultRowCommitVersion"
    append = _ROWS + (
        "import os, pyarrow.parquet as pq\npath = os.path.join(root, 'row.parquet')\npq.write_table(rows, path)\n"
        "file = os.open(path, os.O_RDONLY); os.fsync(file)"
    )
    files = (
        "import glob, pyarrow.parquet as pq\n"
        "path = glob.glob(root + '/_delta_log/*.checkpoint.parquet')[-1]\n"
        f"columns = ['add.' + name for name in {columns!r}.split()]\n"
        "assert list(pq.ParquetFile(path).iter_batches(32768, columns=columns, use_threads=False))"
    )
    history = (
        "import sys, typer\napp = typer.Typer(pretty_exceptions_enable=False)\n@app.command()\ndef show(name: str):\n"
        "    from rich.console import Console\n    from rich.table import Table\n    table = Table('name')\n"
        "    table.add_row(name)\n    Console().print(table)\n"
        "sys.argv = ['show', 'history']\ntry:\n    app()\nexcept SystemExit:\n    pass"
    )
    return [
        replace(by_key["append"], key="append-floor", title="pyarrow: write a row / deltalake: append it", ours=append),
        replace(by_key["files"], key="files-floor", title="pyarrow: read the files / deltalake: list them", ours=files),
        replace(
            by_key["history"],
            key="history-floor",
            title="typer, rich: print / `from deltalog import DeltaTable`",
            ours=history,
        ),
    ]


def compare(chosen: Sequence[Program], tables: Path, times: int) -> Iterator[Figures]:
    """Run our program and theirs alternately, ``times`` times each, after one run that fills the caches; do so for each
    of ``chosen``."""
    with tempfile.TemporaryDirectory(prefix="first-calls-") as place:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(Path(place) / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for program in chosen:
            roots = [_root(program, side, Path(place), tables) for side in (0, 1)]
            texts = [
                f"root = {root!r}\n{text}" for text, root in zip((program.ours, program.theirs), roots, strict=True)
            ]
            runs: tuple[list[tuple[float, float]], ...] = ([], [])
            for number in range(times + 1):
                for text, found in zip(texts, runs, strict=True):
                    taken = _run(text, environment, place)
                    found.extend([taken] if number else [])
            ours, theirs = ([median(times_ms) for times_ms in zip(*found, strict=True)] for found in runs)
            yield Figures(program.key, ours[0], theirs[0], ours[1], theirs[1])


def _root(program: Program, side: int, place: Path, tables: Path) -> str:
    if program.table[side]:
        return str(obtain(program.table[side], tables))
    root = place / f"{program.key}-{side}"
    rows = pa.table({"id": list(range(1_000)), "name": ["a"] * 1_000})
    DeltaTable.create(root, rows.schema, data=rows)
    return str(root)


def _run(program: str, environment: dict[str, str], place: str) -> tuple[float, float]:
    """The CPU and wall times of one process, in milliseconds. Raises CalledProcessError.

    A process of deltalake often aborts when it exits, after its work ("terminate called without an active
    exception"); such a run is repeated.
    """
    for attempts_left in reversed(range(30)):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run([sys.executable, "-c", program], env=environment, cwd=place, stdout=subprocess.DEVNULL)
        wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != -signal.SIGABRT or not attempts_left:
            break
    done.check_returncode()
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * cpu_s, 1000 * wall_s


def line(program: Program, found: Figures) -> str:
    """A row of the table in docs/benchmarks.md."""
    is_met = "met" if found.cpu_share <= program.reach else "not met"
    return (
        f"| {program.title} | {found.ours_cpu_ms:.0f} / {found.ours_wall_ms:.0f} | {found.theirs_cpu_ms:.0f} / "
        f"{found.theirs_wall_ms:.0f} | {found.cpu_share:.2f} | {program.reach:.2g}: {is_met} |"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.first_calls", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small tables, one run each: checks, not figures")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--only", default="", help="the keys of programs, comma-separated")
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--tables", type=Path, default=Path.home() / ".cache" / "deltalog" / "benchmarks")
    given = parser.parse_args(arguments)
    keys = {key for key in given.only.split(",") if key}
    known = [*programs(given.quick), *floors(given.quick)]
    chosen = [each for each in known if each.key in keys or not keys]
    print("| whole process | ours: CPU / wall, ms | theirs | share of CPU | reach |\n| --- | --- | --- | --- | --- |")
    figures = []
    try:
        for program, found in zip(chosen, compare(chosen, given.tables, 1 if given.quick else given.runs), strict=True):
            print(line(program, found), flush=True)
            figures.append(asdict(found))
    except subprocess.CalledProcessError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
