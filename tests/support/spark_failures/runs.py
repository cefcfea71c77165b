"""The test runs: which failure each run causes, what its driver must report, and the table of results."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalog
from tests.support.spark_failures.judge import Verdict, WrongError, judge
from tests.support.spark_failures.places import Place
from tests.support.spark_failures.processes import Driver

KILLS = ("kill of the driver", "kill of the JVM", "kill of both")
_VICTIMS = {"kill of the driver": "python", "kill of the JVM": "jvm", "kill of both": "both"}
_TASKS, _ROWS = 4, 6_000
# The first write of a session takes several times as long as later writes.
_FIRST_WRITE_S = 6.0
# For each kind of run, the driver that such runs use, and how many of every fifty runs are of this kind. Runs with the
# same driver are adjacent.
KINDS: dict[str, tuple[str, int]] = {
    "kill of the driver": ("local", 8),
    "kill of the JVM": ("local", 6),
    "kill of both": ("local", 8),
    "task retry": ("local", 6),
    "failing job": ("local", 6),
    "speculation": ("cluster", 5),
    "executor lost": ("cluster", 5),
    "executors lost": ("cluster", 2),
    "other disk": ("other disk", 4),
}
# For each of these kinds of run, the errors that the attempt may raise; in runs of all other kinds, the attempt must
# commit.
_ERRORS = {
    "failing job": ("PythonException", "Py4JJavaError"),  # the second in Spark 3.5
    "executors lost": ("JobFailedError",),
    "other disk": ("RowCountError",),
}


@dataclass
class Run:
    """A planned run and, once the run has been carried out, its result."""

    number: int
    kind: str
    place: Place
    seed: int
    verdict: Verdict = field(default_factory=Verdict)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    wrong: str | None = None


def planned(count: int, seed: int, places: Sequence[Place]) -> list[Run]:
    """``count`` runs, with kinds in the same proportions as in fifty runs, and with alternating locations."""
    weights = {kind: number for kind, (_, number) in KINDS.items()}
    total, shares = sum(weights.values()), dict[str, int]()
    for kind, number in weights.items():
        shares[kind] = max(1, round(count * number / total)) if len(shares) < count else 0
    while sum(shares.values()) > count:
        shares[max(shares, key=lambda kind: shares[kind])] -= 1
    while sum(shares.values()) < count:
        shares["kill of both"] += 1
    found: list[Run] = []
    for kind, number in shares.items():
        for at in range(number):
            found.append(Run(len(found) + 1, kind, places[at % len(places)], seed * 1_000 + len(found)))
    return found


class Runs:
    """Carries out runs. Keeps one driver for reuse; a run that kills its driver gets a separate driver."""

    def __init__(self, scratch: Path, tables: Path) -> None:
        self._scratch, self._tables = scratch, tables
        self._started = 0
        self._kind: str | None = None
        self._driver: Driver | None = None

    def carry_out(self, run: Run) -> None:
        """Carry out a run and judge it. If the run fails, ``run.wrong`` describes the failure."""
        start = time.monotonic()
        table = run.place.table(run.number)
        try:
            done = self._killed(run, table) if run.kind in KILLS else self._one_write(run, table)
            run.verdict = judge(run.place, table, _ROWS, done)
        except (WrongError, TimeoutError) as error:
            run.wrong = str(error)
        run.seconds = time.monotonic() - start

    def close(self) -> None:
        if self._driver is not None:
            self._driver.stop()
        self._driver = self._kind = None

    def _command(self, run: Run, table: str, **more: Any) -> dict[str, Any]:
        kind = "plain" if run.kind in (*KILLS, "other disk") else run.kind
        return {
            "table": table, "options": dict(run.place.options()), "rows": _ROWS, "tasks": _TASKS, "kind": kind,
            "seed": run.seed, "partitioned": run.seed % 2 == 0, **more,
        }  # fmt: skip

    def _new(self, kind: str) -> Driver:
        self._started += 1
        return Driver(kind, self._scratch / str(self._started), self._tables)

    def _of(self, kind: str) -> Driver:
        """The driver process for ``kind``; if a driver of another kind is running, it is closed first."""
        if self._kind != kind:
            self.close()
            self._driver, self._kind = self._new(kind), kind
        assert self._driver is not None
        return self._driver

    # -------------------------------------------------------------------------------------------------- kinds of runs

    def _one_write(self, run: Run, table: str) -> list[int]:
        """One attempt with the failure, between two attempts that succeed. Returns the acknowledged attempts."""
        driver, done = self._of(KINDS[run.kind][0]), list[int]()
        on_own_disks = run.kind == "other disk"
        if not on_own_disks:
            done += self._succeeds(driver.write(**self._command(run, table, attempt=1, kind="plain")), run)
        expected = _ERRORS.get(run.kind)
        if expected is None or (on_own_disks and run.place.name != "local disk"):
            done += self._succeeds(driver.write(**self._command(run, table, attempt=2)), run)
        else:
            answer = driver.write(**self._command(run, table, attempt=2))
            if answer.get("error") not in expected:
                raise WrongError(f"the attempt ended with {answer}, expected {' or '.join(expected)}")
            run.errors.append(answer["error"])
        left = [
            path
            for path in run.place.files(table)
            if deltalog.engine.leftover_kind(path) is deltalog.engine.LeftoverKind.JOB_FILE
        ]
        if left:
            raise WrongError(f"a write that ended left {left}")
        if not on_own_disks:
            done += self._succeeds(driver.write(**self._command(run, table, attempt=3, kind="plain")), run)
        return done

    def _succeeds(self, answer: dict[str, Any], run: Run) -> list[int]:
        if not answer.get("committed"):
            raise WrongError(f"the attempt ended with {answer}")
        return [int(answer["done"])]

    def _killed(self, run: Run, table: str) -> list[int]:
        """Make attempts until the driver is killed at a random time during a random attempt; another driver then
        repeats that attempt. Returns the acknowledged attempts."""
        draw, driver, done = random.Random(run.seed), self._new("local"), list[int]()
        driver.send(do="loop", **self._command(run, table))
        duration_s, last = _FIRST_WRITE_S, 1
        for _ in range(draw.randrange(5)):
            start = time.monotonic()
            done += self._succeeds(self._ended(driver), run)
            duration_s, last = time.monotonic() - start, last + 1
        time.sleep(draw.uniform(0.0, duration_s))
        driver.kill(_VICTIMS[run.kind])
        while (answer := driver.answer()) is not None:
            if "start" in answer:
                last = int(answer["start"])
            elif "done" in answer:
                done += self._succeeds(answer, run)
            else:
                run.errors.append(self._of_a_lost_session(answer))
                break  # the JVM is dead, so every later attempt by this process would fail in the same way
        driver.stop()
        again = self._of("local").write(**self._command(run, table, attempt=last))
        if "error" in again:
            raise WrongError(f"the attempt could not be repeated: {again}")
        return [*done, last]

    def _ended(self, driver: Driver) -> dict[str, Any]:
        """Wait until the driver's next attempt ends, and return the result."""
        while (answer := driver.answer()) is not None:
            if "start" not in answer:
                return answer
        raise WrongError("the driver ended before it was killed")

    def _of_a_lost_session(self, answer: dict[str, Any]) -> str:
        """Check and return the error of an attempt whose session was killed. Errors outside ``save`` are accepted as
        they are, because Spark itself raises them."""
        if answer["is_of_save"] and (not answer["is_of_deltalog"] or answer["outcome"] != "Outcome.NOTHING_COMMITTED"):
            raise WrongError(f"an attempt whose session was killed ended with {answer}")
        return f"{answer['error']}{'' if answer['is_of_save'] else ' outside of save'}"


@contextmanager
def running(scratch: Path, tables: Path) -> Iterator[Runs]:
    """Runs whose drivers are stopped at the end of the block. ``scratch``: a directory for the files of the runs;
    ``tables``: the directory that executors with a different disk cannot access."""
    runs = Runs(scratch, tables)
    try:
        yield runs
    finally:
        runs.close()


def table_of(runs: Sequence[Run]) -> str:
    """The results as text, with a line for each kind of run and location."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.kind, run.place.name].append(run)
    lines = [
        "| what fails | place | runs | writes landed | errors reported | leftovers recognised | rows checked | wrong |",
        "|---|---|--:|--:|---|---|--:|--:|",
    ]
    for (kind, place), some in groups.items():
        errors = Counter(error for run in some for error in run.errors)
        leftovers = Counter(each.value for run in some for each in run.verdict.leftovers.values())
        landed, rows = (sum(len(run.verdict.landed) for run in some), sum(run.verdict.num_rows for run in some))
        wrong = sum(run.wrong is not None for run in some)
        cells = (kind, place, len(some), landed, _counts(errors), _counts(leftovers), f"{rows:,}", wrong)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counter.most_common()) or "none"
