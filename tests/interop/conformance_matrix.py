"""Writes the page docs/conformance-matrix.md, which shows the results of the conformance kit for every engine.

    python -m tests.interop.conformance_matrix                   # runs all engines and writes the page
    python -m tests.interop.conformance_matrix deltalake polars  # runs these, and reuses the results of the others
    python -m tests.interop.conformance_matrix --new             # runs only the cases without a stored result
    python -m tests.interop.conformance_matrix --case 'ict-*' polars  # runs some cases, and keeps the other results
    python -m tests.interop.conformance_matrix --keep polars.json     # stores what conformance run --json has printed

Every engine runs in a process of its own; one that needs an environment of its own is installed first:
``deltalog conformance install all``. Results are stored in tests/interop/conformance/<engine>.json, those of pairs of
writers in pairs.json there, by tests/interop/conformance_pairs.py.

Failures of other engines are explained in tests/interop/conformance/explanations.json, and confirmed without the kit by
tests/interop/confirmations.py. test_interop_conformance.py compares the results with the engines, and fails if a
failure has no explanation.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalog import CallError
from deltalog.conformance import (
    ENGINES,
    SUITE_VERSION,
    Case,
    Engine,
    Outcome,
    RemoteEngine,
    all_cases,
    pair_model,
    report,
    run,
    self_check,
    start_engine,
)
from deltalog.conformance.case import FAILED, LACKS_FEATURE, PASSED, SKIPPED
from deltalog.conformance.catalog_server import catalog_for
from tests.support.protocol_coverage import case_link, rule_link
from tests.support.protocol_sections import URL

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance-matrix.md"
RESULTS = ROOT / "tests" / "interop" / "conformance"
EXPLANATIONS = RESULTS / "explanations.json"
PAIRS = RESULTS / "pairs.json"
# What fits into 400 pixels.
_CHARACTERS = 40
# The Spark engines with the sessions of the tests, which find delta-spark's jars by Maven.
ADAPTERS = {
    "delta-spark": "tests.interop.conformance_matrix:delta_spark",
    "spark_ext": "tests.interop.conformance_matrix:spark_ext",
}
# What differs from run to run or from machine to machine: the table of a case, also where an engine has cut its path
# short; the directory of an engine's environment; stack traces; addresses in memory; the random names of files.
_VARYING = (
    (re.compile(r"(?:file:)?/[^\s'\"`]*?/table(?=[/\s'\"`.:,]|$)"), "TABLE"),
    (re.compile(r"(?:file:)?/[^\s'\"`]*/deltalog-conformance-[^\s'\"`]*"), "TABLE"),
    (re.compile(r"/[^\s'\"`]*?/lib/python3[.\d]*/site-packages/"), ""),
    (re.compile(r" Stack Trace:.*"), ""),
    (re.compile(r"\[?\b0x[0-9a-f]{6,}\b\]?"), "…"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "…"),
)
_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}


def delta_spark() -> Engine:
    from spark_ext.conformance import DeltaSparkEngine
    from tests.support.spark import delta_session

    return DeltaSparkEngine(delta_session(**_CONF))


def spark_ext() -> Engine:
    from spark_ext.conformance import SparkExtEngine
    from tests.support.spark import plain_session

    return SparkExtEngine(plain_session(**_CONF))


def results(engine: Engine, cases: Iterable[Case]) -> dict[str, Any]:
    """The results of a run, as they are stored: without what differs from run to run."""
    began_s = time.monotonic()
    with catalog_for(engine) as catalog:
        outcomes = list(run(engine, cases, catalog=catalog))
    environment = engine.environment if isinstance(engine, RemoteEngine) else None
    seconds = time.monotonic() - began_s
    found = report.document(
        engine.name, engine.version, SUITE_VERSION, outcomes, environment=environment, seconds=seconds
    )
    return tidy(found)


def tidy(found: dict[str, Any]) -> dict[str, Any]:
    for case in found["cases"]:
        case["reason"] = case["reason"] and steady(case["reason"])[:300]
    return found


def steady(reason: str) -> str:
    """The reason without what differs from run to run."""
    for pattern, put in _VARYING:
        reason = pattern.sub(put, reason)
    return reason


def keep_document(file: Path) -> str:
    """Store the results in a document that ``deltalog conformance run --json`` has printed. Returns the engine's name.
    Raises ValueError if it is none, or is of another suite or of no engine of the kit."""
    found = json.loads(file.read_text(encoding="utf-8"))
    if found["suite"] != SUITE_VERSION or found["engine"] not in ENGINES:
        raise ValueError(f"{file} has results of {found['engine']} with suite {found['suite']}, not {SUITE_VERSION}.")
    known = {case.id for case in all_cases()}
    found["cases"] = [case for case in found["cases"] if case["id"] in known]
    store(found["engine"], tidy(found))
    return str(found["engine"])


def store(name: str, found: Mapping[str, Any]) -> None:
    """Store results, together with the stored results of the other cases."""
    partly = len(found["cases"]) < len(all_cases())
    keep(name, merged(stored(name), found) if partly and name in available() else found)


def stored(name: str) -> dict[str, Any]:
    """The stored results of an engine, in the order of the cases."""
    found = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    kept = dict.fromkeys(found[PASSED], (PASSED, None))
    kept.update({id: (kind, reason) for kind in (FAILED, SKIPPED) for id, reason in found[kind].items()})
    outcomes = [Outcome(case.id, case.area, *kept[case.id]) for case in all_cases() if case.id in kept]
    known = {key: found.get(key) for key in ("environment", "seconds")}
    return report.document(found["engine"], found["version"], found["suite"], outcomes, **known)


def keep(name: str, found: Mapping[str, Any]) -> None:
    """Store results, with the reason of every case that did not pass."""
    document: dict[str, Any] = {key: found[key] for key in ("engine", "version", "environment", "suite", "seconds")}
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
    return report.document(
        found["engine"],
        found["version"],
        found["suite"],
        outcomes,
        environment=found["environment"],
        seconds=before["seconds"],  # of a run of all cases
    )


def chosen(name: str, patterns: str | None, only_new: bool) -> list[Case]:
    """The cases of a run: all, those that match a pattern, or those without a stored result."""
    known = {case["id"] for case in stored(name)["cases"]} if only_new and name in available() else set()
    return [
        case
        for case in all_cases()
        if case.id not in known and (patterns is None or any(fnmatch.fnmatchcase(case.id, p) for p in patterns.split()))
    ]


def run_and_keep(name: str, patterns: str | None, only_new: bool) -> None:
    """Run an engine, and store its results together with the stored results of the other cases."""
    cases = chosen(name, patterns, only_new)
    if not cases:
        return
    with start_engine(ADAPTERS.get(name, name)) as engine:
        self_check(engine)
        store(name, results(engine, cases))


def explanation(engine: str, id: str, explanations: Mapping[str, Any]) -> Mapping[str, str] | None:
    """The first explanation that is listed for a case, or for a pattern that matches the case, and the confirmation of
    that explanation."""
    for entry in explanations.get(engine, ()):
        if any(fnmatch.fnmatchcase(id, pattern) for pattern in entry["cases"].split()):
            return dict(entry)
    return None


def page(runs: Sequence[Mapping[str, Any]], explanations: Mapping[str, Any], pairs: Mapping[str, Any] | None) -> str:
    """The page."""
    cases = all_cases()
    timestamps = sum(case.area == "in-commit-timestamps" for case in cases)
    lines = [
        "# Conformance of engines",
        "",
        f"Generated by `python -m tests.interop.conformance_matrix`, with suite {SUITE_VERSION} of the",
        f"[conformance kit](conformance.md): {len(cases)} cases, {timestamps} of them on in-commit timestamps.",
        "A cell shows how many of the cases that were run have passed. A case is skipped if the engine has no such",
        "call, or refuses it by the name of a table feature; this is not a failure. *reference* marks a case that the",
        "protocol does not specify, and whose expected outcome is usually that of Delta's reference implementation; if",
        "delta-spark differs, its explanation says how. Each explanation was confirmed without the kit, on a table",
        "made by hand, by `python -m tests.interop.confirmations ENGINE`. Each engine ran in a process of its own;",
        "the times are of whole runs, on a machine that did other work too.",
        "",
        *_tables(_with_links(report.summary(runs))),
    ]
    for found in runs:
        if len(found["cases"]) < len(cases):
            lines += [f"Of {found['engine']}, {len(found['cases'])} cases were run.", ""]
    lines += ["## Areas", "", *_tables(report.areas(runs))]
    lines += _pairs(pairs) if pairs else []
    lines += _refused(runs)
    lines += _without_call(runs)
    for found in runs:
        lines += _engine(found, explanations)
    return "\n".join(lines)


def _tables(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, in parts that can be read on a phone."""
    return [line for part in report.split(rows, _CHARACTERS) for line in (report.markdown(part).rstrip("\n"), "")]


def _with_links(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows with a link from each engine to its section."""
    head, *body = rows
    return [[*head], *([f"[{line[0]}](#{_anchor(line[0])})", *line[1:]] for line in body)]


def _anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _pairs(found: Mapping[str, Any]) -> list[str]:
    """The results of pairs of writers, and what failed in them."""
    lines = [
        "## Pairs of writers",
        "",
        f"Two engines change one table in turn, in {len(found['variants'])} variants: {', '.join(found['variants'])}.",
        "[The conformance kit](conformance.md#pairs-of-writers) says what must hold after each step. A cell shows how",
        "many of the variants in which both have written passed; a variant is refused if one of them could not write,",
        "and said so.",
        "",
    ]
    lines += _tables(pair_model.table(found))
    failed: dict[str, list[str]] = {}
    for pair in found["pairs"]:
        for each in pair["results"]:
            if each["outcome"] == FAILED:
                name = f"{pair['first']} and {pair['second']}, {each['variant']}"
                failed.setdefault(_without_step(each["reason"]), []).append(name)
    if failed:
        lines += ["What failed, and for which pair and variant; the first engine created the table:", ""]
    for reason, names in failed.items():
        lines += [f"- {_quoted(reason, 300)}", *(f"  - {name}" for name in names)]
    return [*lines, ""] if failed else lines


def _without_step(reason: str) -> str:
    """The reason without the number of the step, so that reasons of several variants are equal."""
    return re.sub(r"^step \d+, ", "", reason)


def _refused(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each engine refuses by the name of a table feature that it lacks."""
    lines = [
        "## What engines refuse by name",
        "",
        "The messages in which an engine named a table feature that it lacks, and the number of cases. These cases are",
        "neither passed nor failed.",
        "",
    ]
    return [*lines, *_reasons(runs, lambda case: report.is_refusal(case)), ""]


def _without_call(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The calls that engines lack, with the number of skipped cases."""
    lines = [
        "## Calls that engines do not have",
        "",
        "The calls that engines lack, and the number of cases that need each. A write through Spark reads the",
        "latest version and commits in one call, and delta-spark and spark_ext have no public API that keeps a",
        "transaction open in between, so neither can run the area `conflicts`.",
        "",
    ]
    return [*lines, *_reasons(runs, lambda case: case["outcome"] == SKIPPED and not report.is_refusal(case)), ""]


def _reasons(runs: Sequence[Mapping[str, Any]], chosen: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    lines = []
    for found in runs:
        reasons = Counter(_refusal(case["reason"]) for case in found["cases"] if chosen(case))
        if reasons:
            lines += [f"- {found['engine']}:"]
            lines += [f"  - {number} for {_quoted(reason)}" for reason, number in reasons.most_common()]
    return lines or ["None."]


def _refusal(reason: str) -> str:
    """The message of a refusal; what differs from case to case is left out."""
    text = reason.removeprefix(f"{LACKS_FEATURE}: ").partition(" This error occurred with")[0]
    return re.sub(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\bcol-[0-9a-f-]+\b", "…", text)


def _engine(found: Mapping[str, Any], explanations: Mapping[str, Any]) -> list[str]:
    """The section of an engine: its environment and its failures with their explanations."""
    cases = {case.id: case for case in all_cases()}
    name = found["engine"]
    packages = ", ".join(f"{package} {version}" for package, version in found["environment"].items())
    lines = [f"## {name} {found['version']}", ""]
    lines += [f"With {packages}." if packages else "", ""] if packages else []
    lines += [f"[All outcomes with their reasons](../tests/interop/conformance/{name}.json).", ""]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    entries: dict[str, Mapping[str, str]] = {}
    for case in found["cases"]:
        if case["outcome"] == FAILED:
            entry = explanation(name, case["id"], explanations) or _UNEXPLAINED
            groups.setdefault(entry["why"], []).append(case)
            entries[entry["why"]] = entry
    for why, group in groups.items():
        lines += [f"- {why}{_reported(entries[why])}", ""]
        lines += [f"  - {_linked(cases[case['id']])}" for case in group]
        lines += [f"  - Observed in `{group[0]['id']}`: {_quoted(group[0]['reason'])}"]
        if confirmed := entries[why].get("confirmed"):
            lines += [f"  - Confirmed on a table made by hand: {_quoted(confirmed, 400)}"]
        lines += [""]
    return lines


# A test fails if there is one.
_UNEXPLAINED: Mapping[str, str] = {"why": "Not explained yet."}


def _reported(entry: Mapping[str, str]) -> str:
    """Where a failure is reported: a public issue, or a draft of a report."""
    if issue := entry.get("issue"):
        return f" ([issue]({issue}))"
    return f" ([draft of a report](conformance/reports/{entry['report']}.md))" if entry.get("report") else ""


def _linked(case: Case) -> str:
    rule = f", rule {rule_link(case.rule)}" if case.rule else ""
    reference = ", *reference*" if case.basis == "reference" else ""
    return f"{case_link(case)}: {case.about} ([section]({URL}#{case.section}){rule}{reference})"


def _quoted(reason: str, most: int = 160) -> str:
    """The reason in a result, marked as code and truncated to one line."""
    text = reason.replace("`", "'")
    return f"`{text if len(text) <= most else text[: most - 1] + '…'}`"


def main(names: Sequence[str], patterns: str | None, only_new: bool) -> int:
    """Run engines, one after the other, and write the page. An engine that cannot run is left out. Returns the number
    of these."""
    left_out = 0
    for name in names:
        try:
            run_and_keep(name, patterns, only_new)
        except CallError as error:
            left_out += 1
            print(f"{name}: {error.message}", flush=True)
        else:
            counts = ", ".join(f"{number} {kind}" for kind, number in stored(name)["summary"].items())
            print(f"{name}: {counts}", flush=True)
    PAGE.write_text(current_page(), encoding="utf-8")
    return left_out


def current_page() -> str:
    """The page of the stored results."""
    explanations = json.loads(EXPLANATIONS.read_text(encoding="utf-8"))
    pairs = json.loads(PAIRS.read_text(encoding="utf-8")) if PAIRS.exists() else None
    return page([stored(name) for name in available()], explanations, pairs)


def available() -> list[str]:
    """The engines with results, in the order of the page."""
    return [name for name in ENGINES if (RESULTS / f"{name}.json").exists()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.interop.conformance_matrix")
    parser.add_argument("engines", nargs="*", help=f"some of {', '.join(ENGINES)}; all by default")
    parser.add_argument("--case", help="patterns of ids: run only these cases, and keep the results of the others")
    parser.add_argument("--new", action="store_true", help="run only the cases without a kept result")
    parser.add_argument("--page", action="store_true", help="run nothing, and write the page from the kept results")
    parser.add_argument(
        "--keep", type=Path, action="append", default=[], metavar="FILE",
        help="run nothing, and store the results that deltalog conformance run --json has printed into a file",
    )  # fmt: skip
    given = parser.parse_args()
    for file in given.keep:
        print(keep_document(file))
    sys.exit(min(main([] if given.page or given.keep else given.engines or ENGINES, given.case, given.new), 1))
