"""From the runs to figures: medians, ratios, facts, and the reach with met or not met."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from tests.benchmarks.plan import FLOOR, OURS, PEERS, Measurement
from tests.benchmarks.run import Results
from tests.benchmarks.tables import TABLES


@dataclass(frozen=True)
class Row:
    """One system in one measurement. Times in seconds, medians over processes (warm: of their medians)."""

    key: str
    title: str
    system: str
    table: str
    processes: int
    start_s: float
    first_s: float
    first_cpu_s: float
    warm_s: float
    warm_cpu_s: float
    asked: int
    wrong: int
    example: str | None
    facts: dict[str, Any] | None


@dataclass(frozen=True)
class Reach:
    """A stated goal. ``met`` is None where it was not measured."""

    goal: str
    found: str
    met: bool | None
    timed: bool


def rows(plan: Sequence[Measurement], results: Results) -> list[Row]:
    """The figures, in the order of the plan."""
    found = []
    for measurement in plan:
        for system, runs in results.runs.get(measurement.key, {}).items():
            if runs:
                found.append(_row(measurement, system, runs))
    return found


def _row(measurement: Measurement, system: str, runs: list[dict[str, Any]]) -> Row:
    answers = [a for run in runs for a in run["answers"]]
    judged = [] if measurement.call == "resolve" and system == FLOOR else answers
    wrong = [a for a in judged if a["got"] != a["right"]]
    example = f"right {wrong[0]['right']}, got {wrong[0]['got']}" if wrong else None
    warm = [run for run in runs if run["warm_s"]]
    return Row(
        measurement.key,
        measurement.title,
        system,
        measurement.tables[system],
        len(runs),
        median(run["start_s"] for run in runs),
        median(run["first_s"] for run in runs),
        median(run["first_cpu_s"] for run in runs),
        median(median(run["warm_s"]) for run in warm) if warm else math.nan,
        median(median(run["warm_cpu_s"]) for run in warm) if warm else math.nan,
        len(judged),
        len(wrong),
        example,
        runs[-1]["facts"],
    )


class Figures:
    """Rows by measurement and system."""

    def __init__(self, found: Sequence[Row]) -> None:
        self._rows = {(row.key, row.system): row for row in found}

    def get(self, key: str, system: str = OURS) -> Row | None:
        return self._rows.get((key, system))

    def ratio(self, key: str, phase: str, peers: Sequence[str] = PEERS) -> tuple[float, str] | None:
        """How many times faster than the best of the peers, and its name; ``phase`` is first or warm."""
        ours = self.get(key)
        theirs = [row for peer in peers if (row := self.get(key, peer)) is not None]
        if ours is None or not theirs:
            return None
        best = min(theirs, key=lambda row: _time(row, phase))
        return _time(best, phase) / _time(ours, phase), best.system


def _time(row: Row, phase: str) -> float:
    return row.first_s if phase == "first" else row.warm_s


def reach(plan: Sequence[Measurement], found: Sequence[Row], quick: bool) -> list[Reach]:
    """The goals, judged by these rows; those on time are not judged by a quick run's small tables."""
    goals = _goals(plan, found)
    return [replace(goal, met=None) if quick and goal.timed else goal for goal in goals]


def _goals(plan: Sequence[Measurement], found: Sequence[Row]) -> list[Reach]:
    figures = Figures(found)
    keys = [m.key for m in plan]
    lengths = [m.key.split(":")[1] for m in plan if m.call == "commit"]
    goals = []
    if lengths:
        goals.append(_faster(figures, f"commit:{lengths[0]}", 2, ("deltalake",)))
        goals.append(_faster(figures, f"commit:{lengths[-1]}", 100, ("deltalake",)))
        goals.append(_flat(figures, "commit", lengths))
    for key in keys:
        if key.startswith("resolve:"):
            goals.extend(_reads(figures, key))
    for key in keys:
        if key.startswith(("resolve:", "resolve+load:", "files:")):
            goals.append(_right(figures, key))
        if key.startswith("resolve+load:") and not key.endswith("-copied"):
            goals.append(_faster(figures, key, 5, PEERS))
        if key.startswith("files:"):
            goals.append(_faster(figures, key, 3, ("deltalake",)))
    return goals


def _faster(figures: Figures, key: str, factor: int, peers: Sequence[str]) -> Reach:
    goal = f"{key}: at least {factor}x faster than {' and '.join(peers)}"
    ratios = [(phase, figures.ratio(key, phase, peers)) for phase in ("first", "warm")]
    measured = [(phase, ratio) for phase, ratio in ratios if ratio is not None]
    if not measured:
        return Reach(goal, "no peer measured", None, True)
    text = ", ".join(f"{phase} {ratio:.1f}x ({peer})" for phase, (ratio, peer) in measured)
    return Reach(goal, text, all(ratio >= factor for _, (ratio, _) in measured), True)


def _flat(figures: Figures, call: str, lengths: Sequence[str]) -> Reach:
    goal = f"{call}: flat within 2x from {lengths[0]} to {lengths[-1]} commits"
    measured = [row for length in lengths if (row := figures.get(f"{call}:{length}")) is not None]
    if len(measured) < 2:
        return Reach(goal, "not measured", None, True)
    spread = {p: max(_time(r, p) for r in measured) / min(_time(r, p) for r in measured) for p in ("first", "warm")}
    text = ", ".join(f"{phase} slowest/fastest {value:.1f}" for phase, value in spread.items())
    return Reach(goal, text, spread["warm"] <= 2, True)


def _reads(figures: Figures, key: str) -> list[Reach]:
    row = figures.get(key)
    if row is None or row.facts is None:
        return []
    table = TABLES[row.table]
    bound = math.ceil(math.log2(table.size)) + 2
    goal = f"{key}: at most {bound} commit reads for {table.size:,} commits"
    if not table.checksums:
        tail = table.size - 1 - max(table.checkpoint_versions())
        bound += tail
        goal += f" and {tail} for the commits after the checkpoint"
    counts = row.facts["resolving"]
    reads, listings = counts.get("commit reads", 0), counts.get("full listings", 0)
    others = counts.get("listings", 0)
    return [
        Reach(goal, f"{reads}", reads <= bound, False),
        Reach(f"{key}: one listing", f"{listings} whole, {others} partial", (listings, others) == (1, 0), False),
    ]


def _right(figures: Figures, key: str) -> Reach:
    row = figures.get(key)
    if row is None:
        return Reach(f"{key}: every answer right", "not measured", None, False)
    return Reach(f"{key}: every answer right", f"{row.asked - row.wrong} of {row.asked}", row.wrong == 0, False)


def to_json(plan: Sequence[Measurement], results: Results, quick: bool) -> dict[str, Any]:
    """Everything, raw runs included."""
    found = rows(plan, results)
    return {
        "quick": quick,
        "machine": results.machine,
        "rows": [asdict(row) for row in found],
        "reach": [asdict(goal) for goal in reach(plan, found, quick)],
        "failures": results.failures,
        "runs": results.runs,
    }


def text(plan: Sequence[Measurement], results: Results, quick: bool) -> str:
    """The report for people."""
    found = rows(plan, results)
    figures = Figures(found)
    lines = _machine(results)
    header = ("", "system", "n", "start s", "first ms", "cpu", "warm ms", "cpu", "first x", "warm x", "wrong")
    table: list[tuple[str, ...]] = [header]
    for measurement in plan:
        mine = [row for row in found if row.key == measurement.key]
        for row in mine:
            table.append(
                (
                    measurement.title if row is mine[0] else "",
                    row.system,
                    str(row.processes),
                    f"{row.start_s:.2f}",
                    _ms(row.first_s),
                    _ms(row.first_cpu_s) if row.system != "delta-spark" else "",
                    _ms(row.warm_s),
                    _ms(row.warm_cpu_s) if row.system != "delta-spark" else "",
                    _times(figures, row, "first"),
                    _times(figures, row, "warm"),
                    f"{row.wrong}/{row.asked}" if row.asked else "",
                )
            )
    lines += _columns(table)
    lines += [
        "",
        "n: fresh processes. start: import, or start of the JVM, not part of the calls. first: the first call in a",
        "fresh process. warm: calls after it, in the same process. Medians, wall clock; cpu: of the process itself.",
        "x: how many times as long as deltalog takes. Files are in the page cache for all.",
        "",
        "Reach",
    ]
    verdict = {True: "met", False: "NOT MET", None: "not judged"}
    lines += _columns([(f"  {verdict[g.met]}", g.goal, g.found) for g in reach(plan, found, quick)])
    lines += ["", "Requests of deltalog to the store, counted"]
    lines += [f"  {row.key}: {_facts(row.facts)}" for row in found if row.facts]
    wrong = [f"  {row.key}, {row.system}, first of {row.wrong}: {row.example}" for row in found if row.example]
    if wrong:
        lines += ["", "Wrong answers", *wrong]
    lines += ["", "What is not equal"]
    told: set[str] = set()
    for measurement in plan:
        for note in measurement.notes:
            if note not in told:
                told.add(note)
                lines.append(f"  {measurement.key}: {note}")
    if results.failures:
        lines += ["", "Failed", *(f"  {failure}" for failure in results.failures)]
    return "\n".join(lines)


def _machine(results: Results) -> list[str]:
    about = results.machine
    loads = [f"{about[k][0]:.1f}" for k in ("load_before", "load_after") if k in about]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return [
        f"{about['cpus']} CPUs, {about['memory_gib']} GiB, {about['system']}; load {' to '.join(loads)}",
        versions,
        "",
    ]


def _ms(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    value = seconds * 1000
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _times(figures: Figures, row: Row, phase: str) -> str:
    ours = figures.get(row.key)
    if ours is None or row.system == OURS:
        return ""
    value = _time(row, phase) / _time(ours, phase)
    return "-" if math.isnan(value) else f"{value:.1f}" if value >= 0.95 else f"{value:.2f}"


def _facts(facts: dict[str, Any] | None) -> str:
    parts = []
    for name in ("opening", "resolving", "travelling"):
        counts = (facts or {}).get(name, {})
        parts.append(f"{name} " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return "; ".join(parts)


def _columns(table: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cells[i]) for cells in table) for i in range(len(table[0]))]
    numeric = [i >= 2 and len(table[0]) > 3 for i in range(len(widths))]
    return [
        "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, numeric, strict=True)).rstrip()
        for cells in table
    ]
