"""``python -m tests.support.simulation.soak --minutes 30``: all simulations for a fixed time, and one line of output.

The parts of bounded size run first, on all cores: the mutants (all must be detected), a failure of every call of every
operation, the interleavings of two writers, the state machine, and killed processes. Schedules take the rest of the
time. Each failure is appended to a file as one line; ``--replay`` runs its schedules again. Needs greenlet and
hypothesis. The exit status is 1 if an invariant was broken or a mutant survived.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import multiprocessing
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.simulation import (
    commit_mutants,
    exhaustive,
    merge_mutants,
    optimize_mutants,
    row_mutants,
    sweep,
    transaction_mutants,
    vacuum_mutants,
)
from tests.support.simulation.mutants import find
from tests.support.simulation.row_simulation import run_row_schedule
from tests.support.simulation.simulation import ScheduleResult, Totals, run_schedule, run_schedules
from tests.support.simulation.sweep_operations import OPERATIONS
from tests.support.simulation.transactions import run_transactions
from tests.support.simulation.vacuum_simulation import run_vacuum_schedule

CHUNK = 250  # the number of schedules that a process runs before it gets its next chunk
_ROW_CHUNK = 50  # the number of schedules per chunk if they also change rows, because these take longer
_TRANSACTION_CHUNKS = 3  # per minute, so that half an hour has at least 20,000 schedules
_MODEL_STEPS = 50
_MUTANTS = (
    *commit_mutants.MUTANTS,
    *row_mutants.MUTANTS,
    *merge_mutants.MUTANTS,
    *optimize_mutants.MUTANTS,
    *transaction_mutants.MUTANTS,
    *vacuum_mutants.MUTANTS,
)


@dataclass
class Part:
    """The totals and failures of one part of a soak. Each failure is a line whose first word identifies the part of the
    soak that failed."""

    figures: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)

    def merge(self, other: Part) -> None:
        self.figures.update(other.figures)
        self.failures += other.failures


def schedules(seeds: range) -> Part:
    part, totals = _run(seeds, run_schedule, "schedules", "schedule")
    part.figures["steps"] = totals.steps
    return part


def row_schedules(seeds: range) -> Part:
    return _run(seeds, run_row_schedule, "row_schedules", "row-schedule")[0]


def vacuum_schedules(seeds: range) -> Part:
    return _run(seeds, run_vacuum_schedule, "vacuum_schedules", "vacuum-schedule")[0]


def transaction_schedules(seeds: range) -> Part:
    return _run(seeds, run_transactions, "transactions", "transactions")[0]


def _run(seeds: range, run: Callable[..., ScheduleResult], figure: str, failure: str) -> tuple[Part, Totals]:
    totals, bad = run_schedules(seeds, keep=CHUNK, run=run)
    figures = collections.Counter({
        figure: totals.schedules,
        "faults": sum(totals.faults.values()),
        "acked": totals.outcomes["ok"],
        "violations": totals.violations,
    })  # fmt: skip
    return Part(figures, [f"{failure} {result.seed} {result.violations[0]}" for result in bad]), totals


def mutants(numbers: range) -> Part:
    survivors = [_MUTANTS[number].name for number in numbers if find(_MUTANTS[number]) is None]
    figures = collections.Counter(mutants=len(numbers), mutants_killed=len(numbers) - len(survivors))
    return Part(figures, [f"mutant {name} survived" for name in survivors])


def failing_calls(number: int, everything: bool) -> Part:
    totals, failures = sweep.sweep([OPERATIONS[number]], () if everything else sweep.HALF)
    return _swept(totals, failures)


def failing_pairs(seed: int, number: int) -> Part:
    return _swept(*sweep.pairs(OPERATIONS, seed, number))


def _swept(totals: sweep.SweepTotals, failures: list[str]) -> Part:
    faults, acked = sum(totals.faults.values()), totals.outcomes["ok"]
    figures = collections.Counter(nth_call_cases=totals.cases, faults=faults, acked=acked, violations=len(failures))
    return Part(figures, [f"call {' '.join(failure.split())}" for failure in failures])


def interleavings(table: str, faults: int, max_switches: int | None) -> Part:
    totals, bad = exhaustive.explore(table, faults=faults, max_switches=max_switches)
    figures = collections.Counter(
        interleavings=totals.schedules,
        faults=sum(totals.faults.values()),
        acked=totals.outcomes["ok"],
        violations=len(bad),
    )
    return Part(figures, [f"interleaving {table} {' '.join(report.splitlines()[:2])}" for report in bad])


def model(examples: int) -> Part:
    # Imported inside this function, because importing hypothesis takes a second.
    from tests.support.simulation.model import (
        STEPS,
        state_machine,
    )

    STEPS.clear()
    failures = []
    try:
        state_machine(examples, _MODEL_STEPS, derandomize=False, shrink=False)("runTest").runTest()
    except Exception as error:
        failures.append(f"model {type(error).__name__}: {' '.join(str(error).split())[:500]}")
    return Part(collections.Counter(model_steps=STEPS["steps"], violations=len(failures)), failures)


def kills(number: int, seed: int) -> Part:
    from tests.support.simulation.crash import run_kills

    with tempfile.TemporaryDirectory() as directory:
        records = Path(directory, "records")
        records.mkdir()
        report = run_kills(str(Path(directory, "table")), records, kills=number, seed=seed, stop_seconds=2.0)
    figures = collections.Counter(
        kills=report.killed,
        stops=report.kills["stopped"],
        acked=report.outcomes["ok"],
        violations=len(report.problems),
    )
    return Part(figures, [f"kill {seed} {problem}" for problem in report.problems])


def bounded_parts(minutes: float, seed: int) -> Iterator[tuple[Callable[..., Part], tuple[object, ...]]]:
    """The parts of the soak test whose duration is bounded; together they take about a quarter of an hour."""
    thorough = minutes >= 10
    for start in range(0, len(_MUTANTS), 4):
        yield mutants, (range(start, min(start + 4, len(_MUTANTS))),)
    if hasattr(os, "fork"):
        for number in range(max(1, round(minutes / 10))):
            yield kills, (min(300, round(60 * minutes)), seed + number)
    for table in exhaustive.TABLES:
        yield interleavings, (table, 1, None if thorough else 2)
        if thorough:
            yield interleavings, (table, 2, 1)
    for _ in range(os.cpu_count() or 1):
        yield model, (max(10, round(15 * minutes)),)
    for number in range(len(OPERATIONS)):
        yield failing_calls, (number, thorough)
    for number in range(round(minutes)):
        yield failing_pairs, (seed + number, 100)
        for run in (row_schedules, vacuum_schedules):
            yield run, (range(seed + number * _ROW_CHUNK, seed + (number + 1) * _ROW_CHUNK),)
        for part in range(_TRANSACTION_CHUNKS * number, _TRANSACTION_CHUNKS * (number + 1)):
            yield transaction_schedules, (range(seed + part * CHUNK, seed + (part + 1) * CHUNK),)


def soak(minutes: float, seeds: range, processes: int, *, only_schedules: bool = False) -> tuple[Part, range, float]:
    """Run until the time limit is reached or no seeds are left. Returns the totals, the range of the seeds used, and
    the elapsed seconds."""
    started = time.monotonic()
    deadline = started + minutes * 60 if minutes else float("inf")
    planned = [] if only_schedules else list(bounded_parts(minutes, seeds.start))
    total, waiting, following = Part(), set[concurrent.futures.Future[Part]](), seeds.start
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        while True:
            while len(waiting) <= processes and time.monotonic() < deadline:
                if planned:
                    run, arguments = planned.pop(0)
                    waiting.add(pool.submit(run, *arguments))
                elif following < seeds.stop:
                    chunk = range(following, min(following + CHUNK, seeds.stop))
                    waiting.add(pool.submit(schedules, chunk))
                    following = chunk.stop
                else:
                    break
            if not waiting:
                break
            done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                total.merge(future.result())
    total.figures["parts_left_out"] = len(planned)  # the parts that had not started when the running time ended
    return total, range(seeds.start, following), time.monotonic() - started


def line(total: Part, seeds: range, seconds: float, processes: int) -> dict[str, object]:
    """The figures in the order in which they are reported."""
    figures = total.figures
    ends = ["kills", "stops", "model_steps", "nth_call_cases", "interleavings"]
    names = ["schedules", "row_schedules", "vacuum_schedules", "transactions", "faults", "acked", *ends]
    return {
        **{name: figures[name] for name in names},
        "violations": figures["violations"],
        "parts_left_out": figures["parts_left_out"],
        "mutants": f"{figures['mutants_killed']}/{figures['mutants']}",
        "seconds": round(seconds),
        "seeds": f"{seeds.start}..{seeds.stop - 1}" if seeds else "none",
        "processes": processes,
    }


_REPLAYED: dict[str, Callable[[int], ScheduleResult]] = {
    "schedule": run_schedule,
    "row-schedule": run_row_schedule,
    "vacuum-schedule": run_vacuum_schedule,
    "transactions": run_transactions,
}


def replay(path: Path) -> int:
    """Rerun the failed schedules that a file lists. Returns how many of these schedules still break an
    invariant."""
    failed = 0
    for text in path.read_text().splitlines():
        kind, seed, *_ = text.split()
        if kind in _REPLAYED:
            result = _REPLAYED[kind](int(seed))
            failed += bool(result.violations)
            print(result.report() if result.violations else f"seed {seed} is clean")
    return failed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulation.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0, help="duration (default: until the seeds are used up)")
    parser.add_argument("--seeds", metavar="A:B", help="run only schedules, with the seeds A to B - 1")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    parser.add_argument("--json", action="store_true", help="print the line as JSON")
    parser.add_argument("--failures", type=Path, default=Path("soak-failures.txt"), help="default: %(default)s")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run the failed schedules of this file again")
    chosen = parser.parse_args(arguments)
    if chosen.replay:
        return int(replay(chosen.replay) > 0)
    if not (chosen.minutes or chosen.seeds):
        parser.error("give --minutes or --seeds")
    # Each soak uses new seeds, so the schedules of several soaks add up; these seeds are far above the seeds of normal
    # test runs.
    first = 1_000_000 * (1 + secrets.randbelow(1_000_000))
    seeds = range(first, first + 1_000_000_000)
    if chosen.seeds:
        start, _, stop = chosen.seeds.partition(":")
        seeds = range(int(start), int(stop))
    total, used, seconds = soak(chosen.minutes, seeds, chosen.processes, only_schedules=bool(chosen.seeds))
    if total.failures:
        with chosen.failures.open("a") as file:
            file.writelines(f"{failure}\n" for failure in total.failures)
    told = line(total, used, seconds, chosen.processes)
    print(json.dumps(told) if chosen.json else "soak: " + " ".join(f"{name}={value}" for name, value in told.items()))
    for failure in total.failures[:20]:
        print(failure, file=sys.stderr)
    return int(bool(total.failures))


if __name__ == "__main__":
    sys.exit(main())
