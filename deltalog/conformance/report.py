"""Reports: the JSON document of a run, and the matrix that compares several runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deltalog.conformance.case import AREAS, FAILED, PASSED, SKIPPED, Outcome


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


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
