"""Benchmark of the doctor's check on long logs and on many files: ``python -m tests.benchmarks.doctor [--commits N]
[--files N]``.

Each table is checked in a separate process; its wall time, CPU time and peak memory are printed. Data files are hard
links to a few Parquet files, so that every file exists and has a real size and footer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalog import DeltaTable, check

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
_LINKS = 30_000  # the maximum number of hard links to one file; file systems limit it
_ADDS = 50_000  # in one commit


def _first(path: Path) -> tuple[dict[str, Any], int]:
    """Create a table with one file. Returns the file's add action, and its in-commit timestamp
    in milliseconds."""
    DeltaTable.create(path, SCHEMA, properties={"delta.enableInCommitTimestamps": "true"})
    DeltaTable.open(path).append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    lines = (path / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
    add = next(json.loads(line)["add"] for line in lines if '"add"' in line)
    return add, json.loads(lines[0])["commitInfo"]["inCommitTimestamp"]


def _linked(path: Path, add: dict[str, Any], number: int) -> str:
    """A line with another add action; its file is a hard link to a copy of the original file."""
    source = path / f"source-{number // _LINKS}.bin"
    if not source.exists():
        source.write_bytes((path / add["path"]).read_bytes())
    name = f"part-{number:08d}.parquet"
    os.link(source, path / name)
    return json.dumps({"add": {**add, "path": name}}) + "\n"


def _commit(path: Path, version: int, time_ms: int, lines: list[str]) -> None:
    body = {"timestamp": time_ms, "inCommitTimestamp": time_ms, "operation": "WRITE"}
    text = json.dumps({"commitInfo": body}) + "\n" + "".join(lines)
    (path / "_delta_log" / f"{version:020d}.json").write_text(text)


def build(path: Path, commits: int, adds: int) -> None:
    """A table with two initial commits, ``commits`` further commits with ``adds`` add actions each, and a checkpoint of
    the last version."""
    add, start_ms = _first(path)
    number = 0
    for version in range(2, commits + 2):
        _commit(path, version, start_ms + version, [_linked(path, add, number + each) for each in range(adds)])
        number += adds
    DeltaTable.open(path).checkpoint()


def measure(path: Path) -> dict[str, Any]:
    """Check a table in a separate process. Returns the duration of the check in seconds, the peak memory of the process
    in MiB, the counts of what was examined, and the findings."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.doctor", "--child", str(path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _child(path: str) -> None:
    start, start_cpu = time.perf_counter(), time.process_time()
    report = check(path)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    # Not ru_maxrss, which includes the peak of the process that started this one.
    status = Path("/proc/self/status").read_text()
    peak_mib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
    print(
        json.dumps(
            {
                "seconds": round(seconds, 1),
                "cpu_seconds": round(cpu_seconds, 1),
                "peak_mib": round(peak_mib),
                **report.to_json(),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--directory", default=None)
    parser.add_argument("--child")
    arguments = parser.parse_args()
    if arguments.child:
        _child(arguments.child)
        return
    with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
        for name, commits, adds in (
            (f"{arguments.commits:,} commits of one file", arguments.commits, 1),
            (f"{arguments.files:,} files", max(1, arguments.files // _ADDS), min(_ADDS, arguments.files)),
        ):
            path = Path(place) / str(commits)
            build(path, commits, adds)
            found = measure(path)
            print(
                f"{name}: {found['seconds']} s ({found['cpu_seconds']} s of a core), {found['peak_mib']} MiB, "
                f"{found['examined']}, {found['counts']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
