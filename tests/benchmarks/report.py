"""Computes figures from the runs: medians, ratios, checks of the answers, and whether the goals are met."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from statistics import median
from typing import Any

from tests.benchmarks.plan import FLOOR, OURS, PEERS, Measurement, growth
from tests.benchmarks.run import Results
from tests.benchmarks.tables import TABLES, LogTable

PHASES = ("first", "warm")


@dataclass(frozen=True)
class Row:
    """The figures of one system in one measurement. Times in seconds: medians over processes (warm: medians of the
    processes' medians)."""

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
    first_mib: float
    peak_mib: float
    written_mib: float
    requests: dict[str, dict[str, int]] | None


@dataclass(frozen=True)
class Reach:
    """A stated goal. ``met``: whether the goal was met; None if it was not measured."""

    goal: str
    found: str
    met: bool | None
    timed: bool


def rows(plan: Sequence[Measurement], results: Results) -> list[Row]:
    """The measured values, in the order in which the plan lists them."""
    found = []
    for measurement in plan:
        for system, runs in results.runs.get(measurement.key, {}).items():
            if runs:
                found.append(_row(measurement, system, runs))
    return found


def _row(measurement: Measurement, system: str, runs: list[dict[str, Any]]) -> Row:
    judged = [] if system == FLOOR else [a for run in runs for a in run["answers"]]
    wrong = [a for a in judged if not is_right(a["got"], a["right"])]
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
        median(run["first_mib"] for run in runs),
        median(run["peak_mib"] for run in runs),
        max((each.get("written_mib", 0.0) for run in runs for each in run["details"]), default=0.0),
        runs[-1]["requests"],
    )


def is_right(got: Any, right: Any) -> bool:
    """Whether all fields of an answer equal those of the expected answer."""
    if not isinstance(got, dict):
        return bool(got == right)
    return bool(got) and all(name in right and right[name] == value for name, value in got.items())


class Figures:
    """The rows, keyed by measurement and system."""

    def __init__(self, found: Sequence[Row]) -> None:
        self._rows = {(row.key, row.system): row for row in found}

    def get(self, key: str, system: str = OURS) -> Row | None:
        return self._rows.get((key, system))

    def ratio(self, key: str, phase: str, peers: Sequence[str] = PEERS) -> tuple[float, str] | None:
        """The factor by which deltalog is faster than the fastest other system, and the name of that system; ``phase``
        is first or warm."""
        ours = self.get(key)
        theirs = [row for peer in peers if (row := self.get(key, peer)) is not None]
        if ours is None or not theirs:
            return None
        best = min(theirs, key=lambda row: _time(row, phase))
        return _time(best, phase) / _time(ours, phase), best.system


def _time(row: Row, phase: str) -> float:
    return row.first_s if phase == "first" else row.warm_s


def reach(plan: Sequence[Measurement], found: Sequence[Row], quick: bool) -> list[Reach]:
    """The goals, each with the result of comparing it with these rows; a quick run gives no result for goals about
    times, because its tables are small."""
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
    for measurement in plan:
        key = measurement.key
        if measurement.in_runs or not measurement.writes:
            goals.append(_right(figures, key))
        if measurement.call == "version_at":
            goals.append(_within(figures, key, 0.010))
        if measurement.call == "appends":
            goals.extend(_append_requests(figures, key))
        factor = next((factor for pattern, factor in _FASTER if fnmatchcase(key, pattern)), None)
        if factor is not None:
            goals.append(_faster(figures, key, factor, PEERS))
        if measurement.call == "checkpoint":
            goals.append(_a_share(figures, key, "written_mib", 3, "file size"))
        if key == "checkpoint:files1m":
            goals.append(_a_share(figures, key, "first_mib", 4, "memory"))
        if fnmatchcase(key, "files:files1m*"):
            goals.append(_near_the_floor(figures, key, 1.3))
            goals.append(_no_more_memory(figures, key))
    goals.extend(_growth(figures, group) for group in growth(quick=False) if set(group) <= set(keys))
    return goals


# The factor by which deltalog must be faster than the fastest peer; the first pattern that matches a key applies.
_FASTER = (
    ("appends:*", 5.0),
    ("writers:*", 5.0),
    ("adds:100000", 3.0),
    ("append:*", 100.0),
    ("open+append:*", 100.0),
    ("version_at:*", 3.0),
    ("resolve+load:*-copied", None),
    ("resolve+load:*", 5.0),
    ("history:*", 4.0),
    ("files:files1m*", 5.0),
    ("files:files100k", 3.0),
    ("files:commits2k", 3.0),
    ("statistics:*-deltalog", 4.0),
    ("statistics:*", 1.5),
    ("protocol:*", 50.0),
    ("checkpoint:files100k", 1.0),
    ("checkpoint:files1m", 1.5),
)


def _faster(figures: Figures, key: str, factor: float, peers: Sequence[str]) -> Reach:
    goal = f"{key}: at least {factor:g}x faster than {' and '.join(peers)}"
    ratios = [(phase, figures.ratio(key, phase, peers)) for phase in ("first", "warm")]
    measured = [(phase, ratio) for phase, ratio in ratios if ratio is not None]
    if not measured:
        return Reach(goal, "no peer measured", None, True)
    text = ", ".join(f"{phase} {ratio:.1f}x ({peer})" for phase, (ratio, peer) in measured)
    return Reach(goal, text, all(ratio >= factor for _, (ratio, _) in measured), True)


def _within(figures: Figures, key: str, most_s: float) -> Reach:
    goal = f"{key}: at most {_ms(most_s)} ms"
    ours = figures.get(key)
    if ours is None:
        return Reach(goal, "not measured", None, True)
    times = {phase: _time(ours, phase) for phase in PHASES}
    text = ", ".join(f"{phase} {_ms(value)} ms" for phase, value in times.items())
    return Reach(goal, text, all(value <= most_s for value in times.values()), True)


def _flat(figures: Figures, call: str, lengths: Sequence[str]) -> Reach:
    goal = f"{call}: flat within 2x from {lengths[0]} to {lengths[-1]} commits"
    measured = [row for length in lengths if (row := figures.get(f"{call}:{length}")) is not None]
    if len(measured) < 2:
        return Reach(goal, "not measured", None, True)
    spread = {p: max(_time(r, p) for r in measured) / min(_time(r, p) for r in measured) for p in ("first", "warm")}
    text = ", ".join(f"{phase} slowest/fastest {value:.1f}" for phase, value in spread.items())
    return Reach(goal, text, spread["warm"] <= 2, True)


def _near_the_floor(figures: Figures, key: str, factor: float) -> Reach:
    goal = f"{key}: at most {factor:g}x of reading the columns"
    ours, floor = figures.get(key), figures.get(key, FLOOR)
    if ours is None or floor is None:
        return Reach(goal, "not measured", None, True)
    ratios = {phase: _time(ours, phase) / _time(floor, phase) for phase in ("first", "warm")}
    text = ", ".join(f"{phase} {value:.2f}x" for phase, value in ratios.items())
    return Reach(goal, text, all(value <= factor for value in ratios.values()), True)


def _no_more_memory(figures: Figures, key: str) -> Reach:
    goal = f"{key}: no more memory than deltalake"
    ours, theirs = figures.get(key), figures.get(key, "deltalake")
    if ours is None or theirs is None or math.isnan(ours.first_mib):
        return Reach(goal, "not measured", None, True)
    pairs = [("first", ours.first_mib, theirs.first_mib), ("all calls", ours.peak_mib, theirs.peak_mib)]
    text = ", ".join(f"{name} {mine:,.0f} of {other:,.0f} MiB" for name, mine, other in pairs)
    return Reach(goal, text, all(mine <= other for _, mine, other in pairs), True)


def _a_share(figures: Figures, key: str, attribute: str, parts: int, title: str) -> Reach:
    goal = f"{key}: {title} at most 1/{parts} of deltalake's"
    ours, theirs = figures.get(key), figures.get(key, "deltalake")
    if ours is None or theirs is None or math.isnan(ours.first_mib):
        return Reach(goal, "not measured", None, True)
    mine, other = getattr(ours, attribute), getattr(theirs, attribute)
    return Reach(goal, f"{mine:,.1f} of {other:,.1f} MiB, 1/{other / mine:.1f}", mine * parts <= other, True)


def _growth(figures: Figures, keys: Sequence[str]) -> Reach:
    goal = f"{keys[0]} to {keys[-1].split(':')[1]}: doubled at most by doubling"
    ratios = {phase: doubling(figures, keys, OURS, phase) for phase in PHASES}
    measured = {phase: ratio for phase, ratio in ratios.items() if ratio is not None}
    if not measured:
        return Reach(goal, "not measured", None, True)
    text = ", ".join(f"{phase} {value:.2f}x" for phase, value in measured.items())
    return Reach(goal, text, all(round(value, 1) <= 2 for value in measured.values()), True)


def doubling(figures: Figures, keys: Sequence[str], system: str, phase: str) -> float | None:
    """The factor by which the time increases when the size doubles, averaged over all doublings in ``keys``."""
    ends = [figures.get(key, system) for key in (keys[0], keys[-1])]
    if None in ends or len(keys) < 2:
        return None
    times = [_time(row, phase) for row in ends if row is not None]
    return float((times[1] / times[0]) ** (1 / (len(keys) - 1)))


def most_reads(commits: int) -> int:
    """The maximum number of commits that are read to find a commit by its time: each round reads 8 commits, and leaves
    at most a fifth of the versions as candidates for the next round."""
    return 8 * math.ceil(math.log(commits, 5))


def _reads(figures: Figures, key: str) -> list[Reach]:
    row = figures.get(key)
    if row is None or row.requests is None:
        return []
    table = TABLES[row.table]
    assert isinstance(table, LogTable)
    bound = most_reads(table.size)
    goal = f"{key}: at most {bound} commit reads for {table.size:,} commits"
    if not table.checksums:
        tail = table.size - 1 - max(table.checkpoint_versions())
        bound += tail
        goal += f" and {tail} for the commits after the checkpoint"
    counts = row.requests["call"]
    reads, listings = counts.get("GET commit", 0), counts.get("LIST", 0)
    return [
        Reach(goal, f"{reads}", reads <= bound, False),
        Reach(f"{key}: no listing", f"{listings}", listings == 0, False),
    ]


# The requests that an append on a warm handle may send to a remote store. One of the counted PUTs writes the ``.crc``.
_APPEND_REQUESTS = {
    "append": {"data PUT": 1, "PUT": 2},
    "append after a lost race": {"data PUT": 1, "PUT": 3, "GET commit": 1},
}


def _append_requests(figures: Figures, key: str) -> list[Reach]:
    row = figures.get(key)
    if row is None or row.requests is None:
        return []
    return [
        Reach(f"{key}: {name}: {_counts(allowed)}", _counts(row.requests[name]), row.requests[name] == allowed, False)
        for name, allowed in _APPEND_REQUESTS.items()
    ]


def _right(figures: Figures, key: str) -> Reach:
    row = figures.get(key)
    if row is None:
        return Reach(f"{key}: every answer right", "not measured", None, False)
    return Reach(f"{key}: every answer right", f"{row.asked - row.wrong} of {row.asked}", row.wrong == 0, False)


def to_json(plan: Sequence[Measurement], results: Results, quick: bool) -> dict[str, Any]:
    """All results as JSON, including the figures of the single runs."""
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
    times = ("start s", "first ms", "cpu", "warm ms", "cpu", "first x", "warm x")
    header = ("", "system", "n", *times, "MiB", "file", "wrong")
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
                    f"{row.peak_mib:,.0f}",
                    f"{row.written_mib:,.1f}" if row.written_mib else "",
                    f"{row.wrong}/{row.asked}" if row.asked else "",
                )
            )
    lines += _columns(table)
    lines += [
        "",
        "n: number of fresh processes. start: import, or start of the JVM, which is not part of the calls. first: the",
        "first call in a fresh process. warm: later calls in the same process. Times are medians of wall time; cpu:",
        "CPU time of the process itself. x: the time as a multiple of deltalog's. MiB: peak memory of the process",
        "(delta-spark: of the JVM). file: MiB of the checkpoint that was written.",
        "All systems read files from the page cache.",
        "",
        "Reach",
    ]
    verdict = {True: "met", False: "NOT MET", None: "not judged"}
    lines += _columns([(f"  {verdict[g.met]}", g.goal, g.found) for g in reach(plan, found, quick)])
    lines += ["", "Growth: the ratio of times when the size doubles (first, warm)", *_columns(_grown(figures, quick))]
    lines += ["", "deltalog's requests to the store"]
    lines += [f"  {row.key}: {_requests(row.requests)}" for row in found if row.requests]
    rates = _rates(plan, results, found)
    if rates:
        lines += ["", "Commits per second, in total and by writer", *_columns(rates)]
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


def _rates(plan: Sequence[Measurement], results: Results, found: Sequence[Row]) -> list[tuple[str, ...]]:
    """The median of each figure over the runs of all processes; for the longest commit, the maximum."""
    chosen = {m.key: m for m in plan if m.call in ("appends", "writers")}
    table: list[tuple[str, ...]] = []
    for row in (row for row in found if row.key in chosen):
        table.append((f"  {row.key}", row.system, f"{1 / row.first_s:,.0f}", f"{1 / row.warm_s:,.0f}"))
        details = [each for run in results.runs[row.key][row.system] for each in run["details"]]
        if details:
            slowest, fastest = (median(each[f"{name} writer, commits/s"] for each in details) for name in _ENDS)
            longest = max(each["longest commit, ms"] for each in details)
            repeated = sum(each["given up and repeated"] for each in details)
            shares = (f"{slowest:,.1f}", f"{fastest:,.1f}", f"{longest:,.0f}", f"{repeated:,.0f}")
        else:
            shares = ("", "", "", "")
        table[-1] += shares
    header = ("", "system", "first", "warm", "slowest writer", "fastest", "longest commit, ms", "given up and repeated")
    return [header, *table] if table else []


_ENDS = ("slowest", "fastest")


def markdown(plan: Sequence[Measurement], found: Sequence[Row]) -> str:
    """A table for docs/benchmarks.md: deltalog's times, and the times of the other systems as multiples of deltalog's
    (first / warm)."""
    figures = Figures(found)
    others = (*PEERS, FLOOR)
    lines = [
        "| | deltalog, ms | MiB | " + " | ".join(f"{system}, x | MiB" for system in others) + " |",
        "|---|" + "---:|" * (2 + 2 * len(others)),
    ]
    for measurement in plan:
        ours = figures.get(measurement.key)
        cells = ["–", "–"] if ours is None else [f"{_ms(ours.first_s)} / {_ms(ours.warm_s)}", f"{ours.peak_mib:,.0f}"]
        for system in others:
            row = figures.get(measurement.key, system)
            ratios = "–" if row is None else " / ".join(_times(figures, row, phase) or "–" for phase in PHASES)
            cells += [ratios, "–" if row is None else f"{row.peak_mib:,.0f}"]
        lines.append(f"| {measurement.title} | " + " | ".join(cells) + " |")
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


def _grown(figures: Figures, quick: bool) -> list[tuple[str, ...]]:
    found = []
    for keys in growth(quick):
        for pair in itertools.pairwise(keys):
            for system in (OURS, *PEERS, FLOOR):
                ratios = [doubling(figures, pair, system, phase) for phase in PHASES]
                if None not in ratios:
                    title = f"  {pair[0]} to {pair[1].split(':')[1]}"
                    found.append((title, system, *(f"{ratio:.2f}" for ratio in ratios)))
    return found


def _requests(requests: dict[str, dict[str, int]]) -> str:
    return "; ".join(f"{name}: {_counts(counts)}" for name, counts in requests.items())


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none"


def _columns(table: Sequence[tuple[str, ...]]) -> list[str]:
    if not table:
        return []
    widths = [max(len(cells[i]) for cells in table) for i in range(len(table[0]))]
    numeric = [i >= 2 and len(table[0]) > 3 for i in range(len(widths))]
    return [
        "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, numeric, strict=True)).rstrip()
        for cells in table
    ]
