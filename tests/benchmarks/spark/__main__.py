"""``python -m tests.benchmarks.spark`` compares spark_ext with delta-spark 4.4.0 and plain Parquet, in fresh sessions.

Each measurement has its own sessions. In a session the systems alternate, and each session begins with a different
system; all answers are checked. It prints the seconds of the first call, the minimum and the median of the later calls
of a session (for long calls, of all calls), and the times of the other systems as multiples of deltalog's. The output
is a table in Markdown; a final line about time and load goes to standard error.

With ``--heap`` each system has its own sessions, with a JVM of this maximum heap size, and the peak resident memory of
the JVM and of the Python process is printed in MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.run import ROOT
from tests.benchmarks.spark.measurements import DELTA, KEYS, OURS, PARQUET, RARE, SYSTEMS


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark", description=__doc__)
    parser.add_argument("--only", default="", help="run measurements whose key contains one of these, comma-separated")
    parser.add_argument("--sessions", type=int, default=1, help="sessions of each measurement (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="counted calls of a system in a session (default: %(default)s)"
    )
    parser.add_argument("--all", action="store_true", help=f"also run what takes many minutes: {', '.join(RARE)}")
    parser.add_argument("--quick", action="store_true", help="small tables, one session: checks, not figures")
    parser.add_argument("--heap", help="measure memory instead of time, in JVMs of this maximum heap, such as 1g")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all seconds to this file")
    parser.add_argument(
        "--tables", type=Path, default=Path.home() / ".cache" / "deltalog" / "benchmarks-spark",
        help="where the generated tables are kept (about 1.5 GB without --quick; default: %(default)s)",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    keys = [key for key in KEYS if any(text in key for text in chosen.only.split(","))]
    if not (chosen.all or chosen.quick or set(chosen.only.split(",")).intersection(RARE)):
        keys = [key for key in keys if key not in RARE]
    if not keys:
        parser.error(f"no measurement has {chosen.only!r} in its key: {', '.join(KEYS)}")
    found: dict[str, Any] = {}
    begin = time.monotonic()
    last = (" reach |", "---|") if chosen.heap is None else ("", "")
    print(f"| | deltalog | delta-spark | Parquet |{last[0]}\n|---|---:|---:|---:|{last[1]}")
    for key in keys:
        found[key] = _measured(key, chosen) if chosen.heap is None else _peaks(key, chosen)
        print(row(found[key]) if chosen.heap is None else peaks_row(found[key]), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))
    loads = [each["load"] for each in found.values()]
    minutes = (time.monotonic() - begin) / 60
    print(f"{minutes:.0f} minutes, load of the machine {min(loads)} to {max(loads)}", file=sys.stderr)
    return 0


def _measured(key: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """The data that the workers report for a measurement; ``seconds`` contains, for each system, one list of call times
    per session."""
    sessions = [_session(key, chosen, number) for number in range(1 if chosen.quick else chosen.sessions)]
    calls = {system: [each["seconds"][system] for each in sessions] for system in sessions[0]["seconds"]}
    return {**sessions[0], "load": round(os.getloadavg()[0], 1), "seconds": calls}


def _session(key: str, chosen: argparse.Namespace, number: int, *more: str) -> dict[str, Any]:
    """A worker's answer."""
    repeats = 1 if chosen.quick else chosen.repeats
    command = [sys.executable, "-m", "tests.benchmarks.spark.worker", key, str(chosen.tables), *more]
    command += ["--repeats", str(repeats), "--first", str(number), *(["--quick"] if chosen.quick else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{key}: {done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _peaks(key: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """The title of a measurement, and the peak memory of each system's session."""
    ours = _session(key, chosen, 0, "--heap", chosen.heap, "--system", OURS)
    peaks = {OURS: ours["peak_mib"]}
    for system in ours["systems"]:
        if system != OURS:
            peaks[system] = _session(key, chosen, 0, "--heap", chosen.heap, "--system", system)["peak_mib"]
    return {"title": ours["title"], "peak_mib": peaks, "load": round(os.getloadavg()[0], 1)}


def peaks_row(measured: dict[str, Any]) -> str:
    """A row of the memory table."""
    cells = [
        "{}, Python {}".format(*measured["peak_mib"][each]) if each in measured["peak_mib"] else "" for each in SYSTEMS
    ]
    return f"| {measured['title']} | {' | '.join(cells)} |"


def row(measured: dict[str, Any]) -> str:
    """A row of the table: the minimum and median seconds of the counted calls, and the ratios of the medians."""
    skipped = 0 if measured["is_long"] else 1
    counted = {system: [s for calls in runs for s in calls[skipped:]] for system, runs in measured["seconds"].items()}
    ours = statistics.median(counted[OURS])
    cells = []
    for system in SYSTEMS:
        if system not in counted:
            cells.append("")
            continue
        least, median = min(counted[system]), statistics.median(counted[system])
        first = max(calls[0] for calls in measured["seconds"][system])
        ratio = "" if system == OURS else f" ({median / ours:.2f}x)"
        cells.append(f"{least:.2f}, {median:.2f}, first {first:.2f}{ratio}")
    factor, limit_s, writes = measured["delta_factor"], measured["limit_s"], measured["writes"]
    goals = {}
    if factor is not None:
        goals[f"{factor:.0f}x delta-spark"] = statistics.median(counted[DELTA]) / factor
    if limit_s is not None:
        goals[f"{limit_s:.0f} s"] = limit_s
    if measured["near_parquet"]:
        each = " each" if writes > 1 else ""
        goals[f"1.05x Parquet + 0.2 s{each}"] = 1.05 * statistics.median(counted[PARQUET]) + 0.2 * writes
    reached = [f"{goal}: {'met' if ours <= limit_s else 'not met'}" for goal, limit_s in goals.items()]
    return f"| {measured['title']} | {' | '.join(cells)} | {'; '.join(reached)} |"


if __name__ == "__main__":
    sys.exit(main())
