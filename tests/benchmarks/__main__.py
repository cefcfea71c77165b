"""``python -m tests.benchmarks`` compares deltalog with deltalake and delta-spark; see docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.benchmarks import report
from tests.benchmarks.latency import report as latency_report
from tests.benchmarks.latency import run as latency_run
from tests.benchmarks.latency.plan import operations
from tests.benchmarks.plan import OURS, PEERS, plan
from tests.benchmarks.run import Effort, installed, run, say

QUICK = Effort(processes=1, repeats=3, commit_repeats=3, jvm_processes=1, jvm_repeats=1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small tables, one process each: checks, not figures")
    parser.add_argument("--peers", default=",".join((OURS, *PEERS)), help="comma-separated (default: %(default)s)")
    parser.add_argument("--only", default="", help="run measurements whose key contains one of these, comma-separated")
    parser.add_argument("--processes", type=int, help="fresh processes for each measurement and system")
    parser.add_argument(
        "--markdown", type=Path, metavar="OUT", help="write the table of docs/benchmarks.md to this file"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write figures and raw runs to this file")
    parser.add_argument(
        "--delays", help="delays of each request to the S3 server in milliseconds, comma-separated (default: 5,25,100)"
    )
    parser.add_argument(
        "--tables", type=Path, default=Path.home() / ".cache" / "deltalog" / "benchmarks",
        help="where the generated tables are kept (about 8 GB on disk without --quick; default: %(default)s)",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    peers = [name.strip() for name in chosen.peers.split(",") if name.strip()]
    unknown = set(peers) - {OURS, *PEERS}
    if unknown:
        parser.error(f"unknown peers {sorted(unknown)}; known are {[OURS, *PEERS]}")
    missing = [name for name in peers if not installed(name)]
    if missing:
        parser.error(f"not installed: {', '.join(missing)}. Install deltalog[test], or leave them out with --peers.")
    effort = QUICK if chosen.quick else Effort()
    if chosen.processes:
        effort.processes = chosen.processes
    texts = chosen.only.split(",")
    measurements = [m for m in plan(chosen.quick) if any(text in m.key for text in texts)]
    remote = [each for each in operations(chosen.quick) if any(text in each.key for text in texts)]
    if not measurements and not remote:
        keys = [m.key for m in plan(chosen.quick)] + [each.key for each in operations(chosen.quick)]
        parser.error(f"no measurement has {chosen.only!r} in its key: {keys}")
    results = run(measurements, peers, effort, chosen.tables)
    found = report.to_json(measurements, results, chosen.quick)
    tables = [report.markdown(measurements, report.rows(measurements, results))] if measurements else []
    texts = [report.text(measurements, results, chosen.quick)]
    if remote:
        delays_ms = [int(delay_ms) for delay_ms in (chosen.delays or ("25" if chosen.quick else "5,25,100")).split(",")]
        felt = latency_run.run(remote, peers, delays_ms, min(effort.processes, 3), chosen.quick)
        found["latency"] = latency_report.to_json(remote, felt, chosen.quick)
        tables.append(latency_report.markdown(remote, felt))
        texts.append(latency_report.text(remote, felt, chosen.quick))
        found["failures"] += felt.failures
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))
        say(f"written: {chosen.json}")
    if chosen.markdown:
        chosen.markdown.write_text("\n\n".join(tables) + "\n")
    print("\n\n".join(texts))
    goals = [*found["reach"], *found.get("latency", {}).get("reach", ())]
    return int(bool(found["failures"]) or any(goal["met"] is False for goal in goals if not goal["timed"]))


if __name__ == "__main__":
    sys.exit(main())
