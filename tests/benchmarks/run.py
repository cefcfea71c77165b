"""Runs the plan: each measurement in a fresh process, alternating between the systems, several times."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.plan import FLOOR, OURS, Measurement
from tests.benchmarks.tables import TABLES, obtain, restore

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 1200
PACKAGES = {"deltalog": "deltalog", "deltalake": "deltalake", "delta-spark": "delta-spark"}


@dataclass
class Effort:
    """The number of processes for each measurement and system, and the number of repeated calls in each process after
    the first call."""

    processes: int = 5
    repeats: int = 4
    commit_repeats: int = 20
    jvm_processes: int = 1
    jvm_repeats: int = 3
    run_repeats: int = 2  # for measurements that make many commits in a run
    jvm_share: int = 10  # in a run with many commits, a JVM makes only one tenth of them
    budget_s: float = 20.0  # no further repeat begins after this time; three repeats are enough if they take this long

    def of(self, system: str, measurement: Measurement) -> tuple[int, int]:
        if system == "delta-spark":
            return self.jvm_processes, self.run_repeats if measurement.in_runs else self.jvm_repeats
        if measurement.in_runs:
            return self.processes, self.run_repeats
        return self.processes, self.commit_repeats if measurement.writes else self.repeats

    def amount(self, system: str, measurement: Measurement) -> int:
        """The number of commits, or of actions, in one run."""
        if system == "delta-spark" and measurement.call in ("appends", "writers"):
            return max(measurement.amount // self.jvm_share, measurement.writers)
        return measurement.amount


@dataclass
class Results:
    """The processes' answers: ``runs[measurement key][system]`` is the list of runs, in the order in which they were
    made."""

    runs: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)


def run(plan: Sequence[Measurement], peers: Sequence[str], effort: Effort, tables: Path) -> Results:
    """Measure everything. A failed process is recorded in ``failures``, and the other processes still run."""
    results = Results(machine=machine(peers))
    tables.mkdir(parents=True, exist_ok=True)
    systems = [OURS, *(p for p in peers if p != OURS), FLOOR]
    needed = sorted({t for m in plan for s, t in m.tables.items() if s in systems}, key=list(TABLES).index)
    for name in needed:
        say(f"table {name}: {TABLES[name].description}")
        obtain(name, tables)
    # The measurements of a group alternate. Commits to logs of different lengths form one group, because they are
    # compared with each other.
    groups = [list(g) for _, g in itertools.groupby(plan, key=lambda m: m.call if m.writes else m.key)]
    # Files written by a measurement are deleted at the end: ext4 does not reuse an inode within five seconds, so
    # creating a file soon after many deletions takes half a millisecond longer.
    with tempfile.TemporaryDirectory(prefix="used-", dir=tables) as used:
        for number, group in enumerate(groups, 1):
            say(f"[{number}/{len(groups)}] {group[0].title}{' and more' if len(group) > 1 else ''}")
            _group(group, systems, effort, tables, Path(used), results)
    results.machine["load_after"] = os.getloadavg()
    return results


def _group(
    group: Sequence[Measurement], systems: Sequence[str], effort: Effort, tables: Path, used: Path, results: Results
) -> None:
    collected: dict[tuple[str, str], list[dict[str, Any]]] = {
        (m.key, system): [] for m in group for system in systems if system in m.tables
    }
    failed: set[tuple[str, str]] = set()
    by_key = {m.key: m for m in group}
    turns = max(effort.of(system, by_key[key])[0] for key, system in collected)
    for turn in range(turns):
        order = list(collected)
        shift = turn % len(order)
        for each in (*order[shift:], *order[:shift]):
            key, system = each
            processes, repeats = effort.of(system, by_key[key])
            if turn >= processes or each in failed or _is_slow(collected[each], effort):
                continue
            answer = _process(by_key[key], system, repeats, effort, tables, used, results.failures)
            if answer is None:
                failed.add(each)
            else:
                collected[each].append(answer)
    for (key, system), answers in collected.items():
        results.runs.setdefault(key, {})[system] = answers


def _is_slow(answers: list[dict[str, Any]], effort: Effort) -> bool:
    return len(answers) >= 3 and max(a["first_s"] + sum(a["warm_s"]) for a in answers) > effort.budget_s / 2


def _process(
    measurement: Measurement,
    system: str,
    repeats: int,
    effort: Effort,
    tables: Path,
    used: Path,
    failures: list[str],
) -> dict[str, Any] | None:
    name = measurement.tables[system]
    table = TABLES[name]
    root = obtain(name, tables)
    spec = {
        "system": system,
        "call": measurement.call,
        "root": str(root),
        "used": str(used),
        "repeats": repeats,
        "budget_s": effort.budget_s,
        "questions": table.questions(measurement.call),
        "requests": system == OURS and measurement.counts_requests,
        "amount": effort.amount(system, measurement),
        "writers": measurement.writers,
    }
    with tempfile.TemporaryDirectory(prefix="deltalog-bench-") as scratch:
        path = Path(scratch) / "spec.json"
        path.write_text(json.dumps(spec))
        command = [sys.executable, "-m", "tests.benchmarks.worker", str(path)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S
            )
            said = done.stdout.strip()
        except subprocess.TimeoutExpired:
            said = f"no answer within {TIMEOUT_S} s"
        finally:
            if measurement.writes:
                restore(root, table.size, used)
        answer = path.with_suffix(".out")
        if not answer.exists():
            failures.append(f"{measurement.key}, {system}: {said[-1500:]}")
            say(f"  {system} FAILED: {said[-300:]}")
            return None
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def machine(peers: Sequence[str]) -> dict[str, Any]:
    """The properties of the machine that influence the figures."""
    versions = {"python": platform.python_version()}
    for name in ("deltalog", "pyarrow", *(p for p in peers if p != OURS), "pyspark"):
        if name == "pyspark" and "delta-spark" not in peers:
            continue
        versions[name] = importlib.metadata.version(name)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load_before": os.getloadavg(),
        "versions": versions,
    }


def installed(system: str) -> bool:
    """Whether a system to compare is installed on this machine."""
    try:
        importlib.metadata.version(PACKAGES[system])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
