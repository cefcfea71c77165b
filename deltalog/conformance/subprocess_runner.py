"""Runs cases on an engine in a subprocess. A case that hangs is killed after a time limit. Cases that hang or crash the
process do not affect other cases."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from queue import Empty, Queue
from types import TracebackType
from typing import Any

from deltalog.conformance.case import FAILED, Case, Outcome
from deltalog.errors import CallError

# Longer than a JVM takes to start.
_START_SECONDS = 300.0


class EngineProcess:
    """An engine in a subprocess. ``limit_seconds``: the time limit per case, after which the process is restarted."""

    def __init__(self, name: str, limit_seconds: float = 120.0) -> None:
        self._name = name
        self._limit_seconds = limit_seconds
        self._process: subprocess.Popen[str] | None = None
        self._answers: Queue[str | None] = Queue()
        self.engine = ""
        self.version = ""

    def __enter__(self) -> EngineProcess:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, cases: Iterable[Case]) -> Iterator[Outcome]:
        """Run the cases in order and yield their outcomes."""
        for case in cases:
            yield self._outcome(case)

    def _outcome(self, case: Case) -> Outcome:
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(case.id + "\n")
            self._process.stdin.flush()
            found = self._answer(self._limit_seconds)
        except (BrokenPipeError, EOFError):
            status = self._end()
            return Outcome(case.id, case.area, FAILED, f"the engine's process exited with status {status}")
        except Empty:
            self._end()
            return Outcome(case.id, case.area, FAILED, f"no outcome within {self._limit_seconds:g} seconds")
        return Outcome(found["id"], found["area"], found["outcome"], found["reason"])

    def _start(self) -> None:
        command = [sys.executable, "-m", "deltalog.conformance.worker", self._name]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._process, self._answers = process, Queue()
        threading.Thread(target=_pump, args=(process, self._answers), daemon=True).start()
        try:
            found = self._answer(_START_SECONDS)
        except (EOFError, Empty):
            self._end()
            raise CallError(f"the process of the engine {self._name} did not start.") from None
        if "error" in found:
            self._end()
            raise CallError(str(found["error"]))
        self.engine, self.version = found["engine"], found["version"]

    def _answer(self, seconds: float) -> dict[str, Any]:
        line = self._answers.get(timeout=seconds)
        if line is None:
            raise EOFError
        found: dict[str, Any] = json.loads(line)
        return found

    def _end(self) -> int | None:
        """Close the standard input of the process so that the process exits; kill it if it does not exit."""
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            return process.wait(0.5 if process.poll() is None else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _pump(process: subprocess.Popen[str], answers: Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put(None)
