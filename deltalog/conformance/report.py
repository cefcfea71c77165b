"""Reports: the JSON document of a run, and the matrix that compares several runs. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deltalog.conformance.case import AREAS, FAILED, ICT, LACKS_FEATURE, PASSED, SKIPPED, Outcome

# The space around the text of a cell, in characters.
_PADDING = 3


def document(
    engine: str,
    version: str,
    suite: str,
    outcomes: Iterable[Outcome],
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """The JSON document of a run. ``cases`` lists the id, area, outcome and reason of each case. ``environment``: the
    versions of Python and of the engine's packages. ``seconds``: the time of the whole run."""
    found = [outcome.to_json() for outcome in outcomes]
    counts = Counter(case["outcome"] for case in found)
    return {
        "suite": suite,
        "engine": engine,
        "version": version,
        "environment": dict(environment or {}),
        "seconds": None if seconds is None else round(seconds, 1),
        "summary": {name: counts[name] for name in (PASSED, FAILED, SKIPPED)},
        "cases": found,
    }


def by_area(found: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """The number of outcomes of each kind by area, in the order of the areas."""
    counts: dict[str, Counter[str]] = {area: Counter() for area in AREAS}
    for case in found["cases"]:
        counts.setdefault(case["area"], Counter())[case["outcome"]] += 1
    return {area: count for area, count in counts.items() if count}


def cell(count: Mapping[str, int]) -> str:
    """The text of a cell: the numbers of passed and of executed cases, as in ``12 of 14``, followed by the number of
    skipped cases."""
    ran = count.get(PASSED, 0) + count.get(FAILED, 0)
    if not ran:
        return f"– ({count[SKIPPED]} skipped)" if count.get(SKIPPED) else "–"
    text = f"{count.get(PASSED, 0)} of {ran}"
    return f"{text} ({count[SKIPPED]} skipped)" if count.get(SKIPPED) else text


def matrix(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The comparison of runs as rows of cells: a header with the engines, a row per area, and totals."""
    counts = [by_area(run) for run in runs]
    areas = [area for area in AREAS if any(area in each for each in counts)]
    rows = [["area", *(f"{run['engine']} {run['version']}".strip() for run in runs)]]
    for area in areas:
        rows.append([area, *(cell(each.get(area, {})) for each in counts)])
    totals = [sum(each.values(), Counter[str]()) for each in counts]
    return [*rows, ["all", *(cell(each) for each in totals)]]


def summary(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The comparison of runs as rows of cells: a header, and a row per engine, with the cases that passed of those that
    were run, the same for in-commit timestamps, the time of the whole run, the cases that were refused because the
    engine lacks a table feature, and those for which it has no call."""
    rows = [["engine", "passed of run", "on time", "run in", "refused by name", "no call"]]
    for run in runs:
        counts, refused = by_area(run), sum(is_refusal(case) for case in run["cases"])
        total = sum(counts.values(), Counter[str]())
        passed = (_fraction(total), _fraction(counts.get(ICT, {})), _time(run.get("seconds")))
        skipped = (str(refused or "–"), str(total[SKIPPED] - refused or "–"))
        rows.append([f"{run['engine']} {run['version']}".strip(), *passed, *skipped])
    return rows


def areas(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The comparison of runs as rows of cells: a header with the areas, and a row per engine."""
    counts = [by_area(run) for run in runs]
    known = [area for area in AREAS if any(area in each for each in counts)]
    rows = zip(runs, counts, strict=True)
    body = [[run["engine"], *(_fraction(each.get(area, {})) for area in known)] for run, each in rows]
    return [["engine", *known], *body]


def split(rows: Sequence[Sequence[str]], characters: int) -> list[list[list[str]]]:
    """A wide table as several tables, each with the first column and as many others as fit into a line of a number of
    characters if words wrap; at least one."""
    widths = [max(map(_widest_word, column)) + _PADDING for column in zip(*rows, strict=True)]
    parts: list[list[int]] = [[]]
    for number in range(1, len(widths)):
        if parts[-1] and sum(widths[each] for each in (0, *parts[-1], number)) > characters:
            parts.append([])
        parts[-1].append(number)
    return [[[line[0], *(line[number] for number in part)] for line in rows] for part in parts]


def _widest_word(text: str) -> int:
    """The length of the longest part of a text that does not wrap. Only the text of a link counts."""
    return max(map(len, re.split(r"[ -]", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))))


def _fraction(count: Mapping[str, int]) -> str:
    """The passed cases of those that were run, in a form that does not wrap."""
    ran = count.get(PASSED, 0) + count.get(FAILED, 0)
    return f"{count.get(PASSED, 0)}/{ran}" if ran else "–"


def is_refusal(case: Mapping[str, Any]) -> bool:
    """Whether a case was skipped because the engine lacks a table feature, not because it lacks a call."""
    return case["outcome"] == SKIPPED and (case["reason"] or "").startswith(LACKS_FEATURE)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
