"""Formats the measured phases as a table, and determines whether the goals are met."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from tests.benchmarks.latency.plan import PEER, Operation, Phase
from tests.benchmarks.latency.run import Measured, Results
from tests.benchmarks.plan import OURS
from tests.benchmarks.report import Reach

FASTER = 3.0
COMPARED_MS = 25


@dataclass(frozen=True)
class Line:
    """The measurements of one phase of one system at one delay. ``seconds``: the median of all processes; the other
    fields come from the process with the fewest rounds, because load on the machine can only increase the number of
    rounds. ``open_s``: the median time to open the table before this phase."""

    key: str
    phase: str
    title: str
    system: str
    delay_ms: int
    seconds: float
    open_s: float
    rounds: int
    requests: dict[str, int]
    new: int
    wrong: int
    chain: list[tuple[str, str, int, int]]

    @property
    def total(self) -> int:
        return sum(self.requests.values())


def lines(plan: Sequence[Operation], results: Results) -> list[Line]:
    """The report's lines, in the order of the operations in the plan."""
    found = []
    for operation in plan:
        mine = [each for each in results.measured if each.key == operation.key]
        for phase in operation.phases:
            for delay_ms in dict.fromkeys(each.delay_ms for each in mine):
                for system in dict.fromkeys(each.system for each in mine):
                    some = [e for e in mine if (e.delay_ms, e.system) == (delay_ms, system)]
                    if any(each.phase == phase.name for each in some):
                        found.append(_line(operation, phase, some))
    return found


def _line(operation: Operation, phase: Phase, some: Sequence[Measured]) -> Line:
    runs = [each for each in some if each.phase == phase.name]
    best = min(runs, key=lambda run: (run.rounds, run.seconds))
    right = operation.right.get(phase.name)
    wrong = sum(right is not None and run.got != right for run in runs)
    opened = [each.seconds for each in some if each.phase == "open"]
    return Line(
        operation.key, phase.name, f"{phase.title}, {operation.length}" if operation.length else phase.title,
        best.system, best.delay_ms, median(run.seconds for run in runs), median(opened), best.rounds, best.requests,
        best.new, wrong, best.chain,
    )  # fmt: skip


class Table:
    """Looks up report lines by operation, phase, system and delay."""

    def __init__(self, found: Sequence[Line]) -> None:
        self._lines = {(each.key, each.phase, each.system, each.delay_ms): each for each in found}
        self.delays_ms = sorted({each.delay_ms for each in found})

    def get(self, key: str, phase: str, system: str = OURS, delay_ms: int | None = None) -> Line | None:
        """The line for a delay; by default the longest delay, whose rounds depend least on the machine."""
        if not self.delays_ms:
            return None
        return self._lines.get((key, phase, system, self.delays_ms[-1] if delay_ms is None else delay_ms))

    def ratio(self, key: str, phase: str, delay_ms: int, *, with_open: bool = False) -> float | None:
        """The peer's time divided by deltalog's time."""
        ours, theirs = (self.get(key, phase, system, delay_ms) for system in (OURS, PEER))
        if ours is None or theirs is None:
            return None
        more = (theirs.open_s, ours.open_s) if with_open else (0.0, 0.0)
        return (theirs.seconds + more[0]) / (ours.seconds + more[1])


def reach(plan: Sequence[Operation], found: Sequence[Line], quick: bool) -> list[Reach]:
    """The goals. Answers are always judged; the numbers of rounds and requests are judged only on long logs, although a
    quick run shows them too."""
    table, goals = Table(found), list[Reach]()
    for operation in plan:
        for phase in operation.phases:
            line = table.get(operation.key, phase.name)
            if line is not None:
                goals += _of_phase(operation, phase, line, table)
    single, several = (table.get(f"latency:transaction:{count}", "commit again") for count in (1, 3))
    if single is not None and several is not None:
        goal = "latency:transaction: the commit takes no more rounds over 3 tables than over 1"
        text = f"{several.rounds} and {single.rounds}"
        goals.append(Reach(goal, text, several.rounds <= single.rounds, True))
    return [replace(goal, met=None) if quick and goal.timed else goal for goal in goals]


def _of_phase(operation: Operation, phase: Phase, line: Line, table: Table) -> Iterator[Reach]:
    name = f"{operation.key}: {phase.title}"
    if phase.name in operation.right:
        yield Reach(f"{name}: right", "right" if not line.wrong else f"{line.wrong} wrong", not line.wrong, False)
    if phase.most_rounds is not None:
        met = line.rounds <= phase.most_rounds
        yield Reach(f"{name}: at most {phase.most_rounds} rounds", str(line.rounds), met, True)
    if phase.most_requests is not None:
        met = line.total <= phase.most_requests
        yield Reach(f"{name}: at most {phase.most_requests} requests", str(line.total), met, True)
    ratio = table.ratio(operation.key, phase.name, COMPARED_MS)
    if phase.faster and ratio is not None:
        goal = f"{name}: at least {FASTER:g}x faster than {PEER} with {COMPARED_MS} ms"
        yield Reach(goal, f"{ratio:.1f}x", ratio >= FASTER, True)


def _counts(line: Line) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in line.requests.items()) or "none"


def _cells(plan: Sequence[Operation], found: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    """A table row for each phase: the requests and rounds at the longest delay, the seconds at each delay, and the
    peer's time as a multiple of deltalog's, both for the phase alone and together with opening the table."""
    table = Table(found)
    for operation in plan:
        for phase in operation.phases:
            if phase.is_shown:
                for system in (OURS, PEER):
                    line = table.get(operation.key, phase.name, system)
                    if line is not None:
                        yield _cell(phase, line, table)


def _cell(phase: Phase, line: Line, table: Table) -> tuple[str, ...]:
    each = [table.get(line.key, line.phase, line.system, delay_ms) for delay_ms in table.delays_ms]
    seconds = ["" if one is None else f"{one.seconds:.2f}" for one in each]
    alone = both = ""
    if line.system == PEER:
        delay_ms = COMPARED_MS if COMPARED_MS in table.delays_ms else table.delays_ms[-1]
        alone = _times(table.ratio(line.key, line.phase, delay_ms))
        both = _times(table.ratio(line.key, line.phase, delay_ms, with_open=True)) if phase.with_open else ""
    first = line.title if line.system == OURS else ""
    wrong = "wrong" if line.wrong else ""
    return first, line.system, _counts(line), str(line.rounds), str(line.new), *seconds, alone, both, wrong


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.1f}"


def _header(found: Sequence[Line]) -> tuple[str, ...]:
    seconds = [f"s at {delay_ms} ms" for delay_ms in Table(found).delays_ms]
    return "", "system", "requests", "rounds", "connections", *seconds, "x", "x with open", ""


def text(plan: Sequence[Operation], results: Results, quick: bool) -> str:
    """The report for people."""
    found = lines(plan, results)
    rows = [_header(found), *_cells(plan, found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    shown = ["Latency", ""]
    for row in rows:
        cells = (c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        shown.append("  ".join(cells).rstrip())
    shown.append("")
    verdicts = {True: "met", False: "NOT MET", None: "-"}
    shown += [f"  {verdicts[goal.met]:8} {goal.goal}: {goal.found}" for goal in reach(plan, found, quick)]
    shown += [f"FAILED: {failure}" for failure in results.failures]
    return "\n".join(shown)


def markdown(plan: Sequence[Operation], results: Results) -> str:
    """The table in docs/benchmarks.md."""
    found = lines(plan, results)
    header = _header(found)[:-1]
    shown = [f"| {' | '.join(header)} |", "|---|---|---|" + "---:|" * (len(header) - 3)]
    shown += [f"| {' | '.join(row[:-1])} |" for row in _cells(plan, found)]
    return "\n".join(shown)


def to_json(plan: Sequence[Operation], results: Results, quick: bool) -> dict[str, Any]:
    """All results as JSON values. The results of each process contain one of its longest chains of requests that do not
    overlap."""
    found = lines(plan, results)
    return {
        "lines": [asdict(line) for line in found],
        "reach": [asdict(goal) for goal in reach(plan, found, quick)],
        "measured": [asdict(each) for each in results.measured],
        "failures": results.failures,
    }
