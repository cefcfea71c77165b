"""Runs a supervised worker process for each target. Each crash, hang or memory growth is attributed to the seed that
caused it, and the run continues.

The worker reports each seed before it runs the case, and the outcome afterwards; the parent only listens. A case that
ends the process, or is killed because it takes too long, is a violation; a new worker continues after it.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
SEEDS = Path(__file__).with_name("seeds.txt")
WORKER = ("-X", "faulthandler", "-m", "tests.fuzz.worker")
# The longest time for which a worker may send nothing. This limit stops only workers that sleep forever; all other
# workers that hang are stopped by the limit on CPU time.
MAX_WALL_SECONDS = 120.0
MAX_START_SECONDS = 600.0


@dataclass
class Report:
    """The results of a target."""

    target: str
    executions: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        top = ", ".join(f"{code} {count}" for code, count in self.outcomes.most_common(8))
        first = (
            f"{self.target}: {self.executions} executions in {self.seconds:.0f} s, {len(self.kinds)} distinct "
            f"outcomes, {len(self.violations)} violations ({top})"
        )
        return "\n".join([first, *self.violations])


def kept_seeds(target: str) -> list[int]:
    """Seeds that failed before; they are replayed first."""
    rows = (line.split("#")[0].split() for line in SEEDS.read_text().splitlines())
    return [int(row[1]) for row in rows if row and row[0] == target]


def run(target: str, seconds: float, first_seed: int = 0, most: int | None = None) -> Report:
    """Run the kept seeds, then ``first_seed`` and the seeds after it, until ``seconds`` have passed or ``most`` cases
    have run. No case can end it."""
    report = Report(target)
    started = time.monotonic()
    kept, following, broken = kept_seeds(target), first_seed, True
    while broken:
        left = max(0.0, seconds - (time.monotonic() - started))
        budget = None if most is None else max(0, most - (following - first_seed))
        begun, broken = _work(report, kept, following, left, budget)
        following += max(0, len(begun) - len(kept))
        kept = kept[len(begun) :]
    report.seconds = time.monotonic() - started
    return report


def _work(report: Report, kept: list[int], following: int, seconds: float, most: int | None) -> tuple[list[int], bool]:
    """Run one worker to its end. Returns the seeds that the worker started, and whether the last of these seeds ended
    the worker early."""
    arguments = {"target": report.target, "kept": kept, "following": following, "seconds": seconds, "most": most}
    environment = {**os.environ, "MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    command = [sys.executable, *WORKER, json.dumps(arguments)]
    # A file, because a pipe that nobody reads could fill up and block the worker.
    with tempfile.TemporaryFile() as errors:
        worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors)
        return _listen(report, worker, errors)


def _listen(report: Report, worker: subprocess.Popen[bytes], errors: IO[bytes]) -> tuple[list[int], bool]:
    begun: list[int] = []
    current: int | None = None
    for message in _messages(worker):
        if "begin" in message:
            current = message["begin"]
            begun.append(current)
            continue
        current = None
        _count(report, message)
    silent = worker.poll() is None
    worker.kill()
    worker.communicate()
    if current is None and not silent and worker.returncode == 0:
        return begun, False
    errors.seek(0)
    said = errors.read(3000).decode(errors="replace")
    if current is None:
        raise RuntimeError(f"The worker for {report.target} ended ({worker.returncode}) between cases:\n{said}")
    ended = f"was killed after {MAX_WALL_SECONDS:g} s of silence" if silent else f"died ({worker.returncode})"
    report.executions += 1
    report.violations.append(
        f"python -m tests.fuzz --target {report.target} --seed {current}\nThe process {ended}.\n{said}"
    )
    return begun, True


def _count(report: Report, message: dict[str, Any]) -> None:
    report.executions += 1
    report.outcomes.update(message["outcomes"])
    report.kinds.add(message["kind"])
    if message["violation"]:
        report.violations.append(message["violation"])


def _messages(worker: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """The worker's messages, until the worker ends or has sent no message for too long."""
    assert worker.stdout is not None
    pipe, rest = worker.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        patience = MAX_START_SECONDS
        while selector.select(patience):
            patience = MAX_WALL_SECONDS
            data = os.read(pipe, 1 << 16)
            if not data:
                worker.wait()
                return
            *lines, rest = (rest + data).split(b"\n")
            yield from map(json.loads, lines)
