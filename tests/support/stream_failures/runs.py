"""One run: a table, a stream that fails at a step and is restarted, and checks of the result."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import deltalog
from tests.support.stream_failures.driver import STEPS

_ROOT = Path(__file__).resolve().parents[3]
_COLUMNS = pa.schema([("id", pa.int64())])
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    "spark.log.level": "OFF",
}


@dataclass(frozen=True)
class Run:
    """A run. ``turn``: the number of batches that the stream processes before the step that fails."""

    number: int
    step: str
    is_kill: bool
    turn: int


def planned(count: int, seed: int) -> list[Run]:
    """For every step, two runs in different batches: in one, an error occurs at this step; in the other, the process is
    killed there."""
    draw = random.Random(seed)
    kinds = [(step, is_kill) for is_kill in (False, True) for step in STEPS]
    return [Run(number, *kinds[number % len(kinds)], draw.randrange(3)) for number in range(count)]


class Driver:
    """The process of a Spark driver, which is restarted after it was killed."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._jvm = 0

    def stream(self, **command: Any) -> str | None:
        """Run a stream. Returns the stream's error, None if the stream succeeded, or "killed" if the driver died."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if not _is_alive(self._jvm, 10 if command["is_kill"] else 0):
            self.stop()
            return "killed"
        return None if answer["error"] is None else str(answer["error"])

    def _start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.stream_failures.driver", json.dumps(_SETTINGS)],
            cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log.open("a"),
            text=True, start_new_session=True,
        )  # fmt: skip
        self._jvm = self._answer()["jvm"]

    def _answer(self) -> Any:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        return {"error": "the driver has ended"}

    def stop(self) -> None:
        """Kill the driver and the processes that it has started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def _is_alive(pid: int, wait_s: float) -> bool:
    """Whether a process is still alive after ``wait_s`` seconds."""
    end_s = time.monotonic() + wait_s
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state == "Z":  # until its parent has noticed
            return False
        if time.monotonic() >= end_s:
            return True
        time.sleep(0.1)


@contextmanager
def driver(directory: Path) -> Iterator[Driver]:
    found = Driver(directory / "driver.log")
    try:
        yield found
    finally:
        found.stop()


def carry_out(run: Run, driver: Driver, directory: Path) -> str:
    """Carry out a run and return how the stream ended at the run's step: ``error`` or ``killed``. Raises AssertionError
    unless every row is there exactly once."""
    place = directory / f"run {run.number}"
    source, target = place / "source", place / "target"
    paths = {"source": str(source), "target": str(target), "checkpoint": str(place / "checkpoint")}
    marker = str(place / "marker")
    table, ids = deltalog.DeltaTable.create(source, _COLUMNS), 0

    def append(commits: int) -> None:
        nonlocal ids
        for _ in range(commits):
            table.append(pa.table({"id": range(ids, ids + 3)}, _COLUMNS))
            ids += 3

    if run.turn:
        append(run.turn)
        assert driver.stream(**paths, step="", marker=marker, is_kill=False) is None
    append(2)
    error = driver.stream(**paths, step=run.step, marker=marker, is_kill=run.is_kill)
    assert not Path(marker).exists(), f"the step {run.step} was not reached: {error}"
    assert error is not None and (error == "killed" if run.is_kill else "injected" in error), error
    append(1)
    again = driver.stream(**paths, step="", marker=marker, is_kill=False)
    assert again is None, again
    judge(target, ids)
    return error if run.is_kill else "error"


def judge(target: Path, ids: int) -> None:
    """Check that the target has every row once and every batch at most once, and that each version is valid."""
    table = deltalog.DeltaTable.open(target)
    snapshot = table.snapshot()
    found = Counter(snapshot.scan().to_arrow()["id"].to_pylist())
    assert found == Counter(range(ids)), (
        f"rows: {found - Counter(range(ids))} too many, {Counter(range(ids)) - found} missing"
    )
    batches = [
        json.loads(line)["txn"]["version"]
        for version in range(table.version + 1)
        for line in (target / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
        if '"txn"' in line
    ]
    assert batches == sorted(set(batches)), f"batches: {batches}"
    report = deltalog.check(str(target))
    assert report.ok, report
