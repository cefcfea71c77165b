"""Writes the page docs/conformance-matrix.md, which shows the results of the conformance kit for every engine.

    python -m tests.interop.conformance_matrix                   # runs all engines and writes the page
    python -m tests.interop.conformance_matrix deltalake polars  # runs these, and reuses the results of the others
    python -m tests.interop.conformance_matrix --new             # runs only the cases without a stored result
    python -m tests.interop.conformance_matrix --case 'ict-*' polars  # runs some cases, and keeps the other results

Results are stored in tests/interop/conformance/<engine>.json. Failures of other engines are explained in
tests/interop/conformance/explanations.json, and confirmed without the kit by tests/interop/confirmations.py; a failure
without an explanation is an error. test_interop_conformance.py compares the results with the engines.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalog.conformance import ENGINES, SUITE_VERSION, Engine, all_cases, load_engine, report, run
from deltalog.conformance.case import FAILED, PASSED, SKIPPED, Case, Outcome
from tests.support.protocol_coverage import case_link, rule_link
from tests.support.protocol_sections import URL

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance-matrix.md"
RESULTS = ROOT / "tests" / "interop" / "conformance"
EXPLANATIONS = RESULTS / "explanations.json"
SPARK = ("delta-spark", "spark_ext")
_PLACE = re.compile(r"(?:file:)?/[^\s'\"`]*?/table(?=[/\s'\"`.:,]|$)")
_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}


def engine_of(name: str) -> Engine:
    """The engine with this name; Spark engines use the Spark session of the tests."""
    if name not in SPARK:
        return load_engine(name)
    from spark_ext.conformance import DeltaSparkEngine, SparkExtEngine
    from tests.support.spark import delta_session, plain_session

    return DeltaSparkEngine(delta_session(**_CONF)) if name == "delta-spark" else SparkExtEngine(plain_session(**_CONF))


def results(name: str, cases: Iterable[Case]) -> dict[str, Any]:
    """The results of a run, as they are stored: without paths that differ from run to run."""
    engine = engine_of(name)
    found = report.document(engine.name, engine.version, SUITE_VERSION, run(engine, cases))
    for case in found["cases"]:
        case["reason"] = case["reason"] and _PLACE.sub("TABLE", case["reason"])[:300]
    return found


def stored(name: str) -> dict[str, Any]:
    """The stored results of an engine, in the order of the cases."""
    found = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    kept = dict.fromkeys(found[PASSED], (PASSED, None))
    kept.update({id: (kind, reason) for kind in (FAILED, SKIPPED) for id, reason in found[kind].items()})
    outcomes = [Outcome(case.id, case.area, *kept[case.id]) for case in all_cases() if case.id in kept]
    return report.document(found["engine"], found["version"], found["suite"], outcomes)


def keep(name: str, found: Mapping[str, Any]) -> None:
    """Store results, with the reason of every case that did not pass."""
    document: dict[str, Any] = {key: found[key] for key in ("engine", "version", "suite")}
    for kind in (FAILED, SKIPPED):
        document[kind] = {case["id"]: case["reason"] for case in found["cases"] if case["outcome"] == kind}
    document[PASSED] = [case["id"] for case in found["cases"] if case["outcome"] == PASSED]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def merged(before: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The stored results, updated with the results of a run that executed only some cases. Raises ValueError if the
    engine's version has changed, because results of two versions must not be mixed."""
    if (before["engine"], before["version"]) != (found["engine"], found["version"]):
        raise ValueError(
            f"The kept results of {before['engine']} are of {before['version']}, not {found['version']}: run all cases."
        )
    new = {case["id"] for case in found["cases"]}
    outcomes = [Outcome(**case) for case in (*found["cases"], *(c for c in before["cases"] if c["id"] not in new))]
    order = {case.id: number for number, case in enumerate(all_cases())}
    outcomes.sort(key=lambda outcome: order[outcome.id])
    return report.document(found["engine"], found["version"], found["suite"], outcomes)


def chosen(name: str, patterns: str | None, only_new: bool) -> list[Case]:
    """The cases of a run: all, those that match a pattern, or those without a stored result."""
    known = {case["id"] for case in stored(name)["cases"]} if only_new and name in available() else set()
    return [
        case
        for case in all_cases()
        if case.id not in known and (patterns is None or any(fnmatch.fnmatchcase(case.id, p) for p in patterns.split()))
    ]


def run_and_keep(name: str, patterns: str | None, only_new: bool) -> None:
    """Run an engine in this process, and store its results together with the stored results of the other cases."""
    cases = chosen(name, patterns, only_new)
    if not cases:
        return
    found = results(name, cases)
    keep(name, merged(stored(name), found) if len(cases) < len(all_cases()) and name in available() else found)


def explanation(engine: str, id: str, explanations: Mapping[str, Any]) -> Mapping[str, str] | None:
    """The first explanation that is listed for a case, or for a pattern that matches the case, and the confirmation of
    that explanation."""
    for entry in explanations.get(engine, ()):
        if any(fnmatch.fnmatchcase(id, pattern) for pattern in entry["cases"].split()):
            return dict(entry)
    return None


def page(runs: Sequence[Mapping[str, Any]], explanations: Mapping[str, Any]) -> str:
    """The page. Raises ValueError for a failure without an explanation."""
    cases = {case.id: case for case in all_cases()}
    timestamps = sum(case.area == "in-commit-timestamps" for case in cases.values())
    lines = [
        "# Conformance of engines",
        "",
        f"Generated by `python -m tests.interop.conformance_matrix`, with suite {SUITE_VERSION} of the",
        f"[conformance kit](conformance.md): {len(cases)} cases, {timestamps} of them on in-commit timestamps.",
        "A cell shows how many of the cases that were run have passed. A case is skipped if the engine has no",
        "such call, or reports that it lacks a table feature; this is not a failure. *reference* marks a case that the",
        "protocol does not specify, and whose expected outcome is usually that of Delta's reference implementation; if",
        "delta-spark differs, its explanation says how. Each explanation was confirmed without the kit, on a table",
        "made by hand, by `python -m tests.interop.confirmations ENGINE`.",
        "",
        report.markdown(report.matrix(runs)).rstrip("\n"),
        "",
    ]
    for found in runs:
        if len(found["cases"]) < len(cases):
            lines += [f"Of {found['engine']}, {len(found['cases'])} cases were run.", ""]
    lines += _skipped(runs)
    for found in runs:
        failed = [case for case in found["cases"] if case["outcome"] == FAILED]
        if not failed:
            continue
        groups: dict[str, list[Mapping[str, Any]]] = {}
        confirmed: dict[str, str] = {}
        for case in failed:
            entry = explanation(found["engine"], case["id"], explanations)
            if entry is None:
                raise ValueError(f"{found['engine']} fails {case['id']} without an explanation: {case['reason']}")
            groups.setdefault(entry["why"], []).append(case)
            confirmed[entry["why"]] = entry["confirmed"]
        name = found["engine"]
        lines += [f"## {name} {found['version']}", ""]
        lines += [f"[All outcomes with their reasons](../tests/interop/conformance/{name}.json).", ""]
        for why, group in groups.items():
            lines += [f"- {why}", ""]
            lines += [f"  - {_linked(cases[case['id']])}" for case in group]
            lines += [f"  - Observed in `{group[0]['id']}`: {_quoted(group[0]['reason'])}"]
            lines += [f"  - Confirmed on a table made by hand: {_quoted(confirmed[why], 400)}", ""]
    return "\n".join(lines)


def _skipped(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The capabilities that engines lack, with the number of skipped cases."""
    lines = [
        "## Skipped cases",
        "",
        "The capabilities that engines lack, and the number of cases that need each. A write through Spark reads the",
        "latest version and commits in one call, and delta-spark and spark_ext have no public API that keeps a",
        "transaction open in between, so neither can run the area `conflicts`.",
        "",
    ]
    for found in runs:
        reasons = Counter(_quoted(case["reason"]) for case in found["cases"] if case["outcome"] == SKIPPED)
        if reasons:
            # Lists only the most frequent reasons; the file of outcomes lists the reason for every case.
            shown = "; ".join(f"{number} for {reason}" for reason, number in reasons.most_common(8))
            lines += [f"- {found['engine']}: {shown}" + (" and others." if len(reasons) > 8 else ".")]
    return [*lines, ""]


def _linked(case: Case) -> str:
    rule = f", rule {rule_link(case.rule)}" if case.rule else ""
    reference = ", *reference*" if case.basis == "reference" else ""
    return f"{case_link(case)}: {case.about} ([section]({URL}#{case.section}){rule}{reference})"


def _quoted(reason: str, most: int = 160) -> str:
    """The reason in a result, marked as code and truncated to one line."""
    text = reason.replace("`", "'")
    return f"`{text if len(text) <= most else text[: most - 1] + '…'}`"


def main(names: Sequence[str], more: Sequence[str]) -> None:
    """Run engines, each in its own process, and write the page. ``more``: further command line options, which select
    cases."""
    for name in names:
        # A separate process for each engine, because a process supports only one kind of Spark session.
        command = [sys.executable, "-m", "tests.interop.conformance_matrix", "--run", name, *more]
        subprocess.run(command, cwd=ROOT, check=True)
    explanations = json.loads(EXPLANATIONS.read_text(encoding="utf-8"))
    PAGE.write_text(page([stored(name) for name in available()], explanations), encoding="utf-8")


def available() -> list[str]:
    """The engines with results, in the order of the page."""
    return [name for name in ENGINES if (RESULTS / f"{name}.json").exists()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.interop.conformance_matrix")
    parser.add_argument("engines", nargs="*", help=f"some of {', '.join(ENGINES)}; all but duckdb by default")
    parser.add_argument("--case", help="patterns of ids: run only these cases, and keep the results of the others")
    parser.add_argument("--new", action="store_true", help="run only the cases without a kept result")
    parser.add_argument("--page", action="store_true", help="run nothing, and write the page from the kept results")
    parser.add_argument("--run", metavar="ENGINE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run_and_keep(given.run, given.case, given.new)
    else:
        passed_on = [*(["--case", given.case] if given.case else []), *(["--new"] if given.new else [])]
        everything = given.engines or [name for name in ENGINES if name != "duckdb"]
        main([] if given.page else everything, passed_on)
