"""``deltalog conformance``: tests engines against the protocol, and exports the cases."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalog.cli.options import examples
from deltalog.cli.output import Output, plain, report_warning
from deltalog.presentation.text import plural

if TYPE_CHECKING:
    from deltalog.conformance import Case, Outcome

app = typer.Typer(
    help="Test whether an engine reads and writes Delta tables according to the protocol.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_Area = Annotated[str | None, typer.Option("--area", metavar="AREA", help="Use only the cases of one area.")]
_Case = Annotated[
    list[str] | None,
    typer.Option("--case", metavar="ID", help="Use only the cases with this id; * matches any text. May be repeated."),
]
_Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="DIR",
        envvar="DELTALOG_CONFORMANCE_CACHE",
        help="The directory of the engines' environments. Default: ~/.cache/deltalog/conformance.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
# The columns of a list of cases after their ids.
_LISTED = ("area", "calls", "about")


@app.command("list", epilog=examples("deltalog conformance list --area reading"))
def list_cases(area: _Area = None, case: _Case = None, as_json: _Json = False) -> None:
    """List the cases with id, area, the calls that they make, and title."""
    from deltalog.conformance import SUITE_VERSION

    chosen, out = _chosen(area, case), Output(as_json)
    if as_json:
        out.document({"suite": SUITE_VERSION, "cases": [_described(each) for each in chosen]})
        return
    from rich.table import Column, Table

    table = Table(Column("id", no_wrap=True), *(Column(name, overflow="fold") for name in _LISTED), box=None)
    for each in chosen:
        table.add_row(*map(plain, (each.id, each.area, ", ".join(each.calls), each.about)))
    out.print(table, f"{len(chosen)} cases, suite {SUITE_VERSION}.")


@app.command(
    epilog=examples(
        "deltalog conformance run --engine polars --area reading",
        "deltalog conformance run --engine my_package:MyEngine --json > mine.json",
        "deltalog conformance run --engine my_adapter:MyEngine --python venv/bin/python",
    )
)
def run(
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="An engine that deltalog conformance engines lists, module:Class, or command:PROGRAM for a program "
            "that speaks the line protocol.",
        ),
    ],
    python: Annotated[
        Path | None,
        typer.Option(
            "--python",
            metavar="FILE",
            help="The Python of the environment in which module:Class runs; deltalog need not be installed there. "
            "Default: deltalog's own.",
        ),
    ] = None,
    area: _Area = None,
    case: _Case = None,
    limit_seconds: Annotated[
        float, typer.Option("--limit-seconds", min=1, metavar="N", help="The time limit per case.")
    ] = 120.0,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="Append what the engine writes to standard error.")
    ] = None,
    cache: _Cache = None,
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            metavar="URL",
            help="The Unity Catalog for cases on catalog-managed tables; its token is in UNITY_CATALOG_TOKEN. Default: "
            "deltalog's own server, started for the run, if deltalog\\[server] is installed.",
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Run the cases on an engine. The exit status is 1 if a case fails.

    The engine runs in a process of its own: a case that hangs or crashes does not affect other cases.
    """
    from deltalog.conformance import SUITE_VERSION, report, self_check, start_engine
    from deltalog.conformance import run as run_cases
    from deltalog.conformance.case import CATALOG_MANAGED
    from deltalog.conformance.catalog_server import catalog_for

    chosen, out = _chosen(area, case), Output(as_json)
    started = start_engine(engine, limit_seconds, cache=cache, log=log, python=python)
    began_s = time.monotonic()
    with out.working(f"Running {len(chosen)} cases on {engine}"), started:
        self_check(started)
        needs_catalog = any(each.area == CATALOG_MANAGED for each in chosen)
        with catalog_for(started, catalog) if needs_catalog else contextlib.nullcontext() as served:
            outcomes = list(run_cases(started, chosen, catalog=served))
    document = report.document(
        started.name,
        started.version,
        SUITE_VERSION,
        outcomes,
        environment=started.environment,
        seconds=time.monotonic() - began_s,
    )
    if as_json:
        out.document(document)
    else:
        _print(out, document)
    if document["summary"]["skipped"] == len(outcomes):
        report_warning("NoCaseRun", _only_skipped(chosen, outcomes, started.calls), as_json)
    if document["summary"]["failed"]:
        raise typer.Exit(1)


@app.command(
    epilog=examples("deltalog conformance install polars-deltalake", "deltalog conformance install all"),
)
def install(
    engines: Annotated[list[str], typer.Argument(metavar="ENGINE…", help="Engines, or all.")],
    cache: _Cache = None,
    again: Annotated[bool, typer.Option("--again", help="Make environments again that exist.")] = False,
    as_json: _Json = False,
) -> None:
    """Install engines, each into an environment of its own.

    pip and Maven use their own configuration. An environment is kept only if the engine has read a table there. With
    all, every engine is installed that cannot run in the environment of the kit. The exit status is 1 if one cannot be
    installed.
    """
    from deltalog import DeltaLogError
    from deltalog.conformance import installation

    out = Output(as_json)
    failed = False
    for name in installation.installable() if engines == ["all"] else engines:
        try:
            with out.working(f"Installing {name}"):
                found = installation.install(name, cache, again=again)
        except DeltaLogError as error:
            failed = True
            found = {"engine": name, "error": error.message}
        if as_json:
            out.document(found)
        elif "error" in found:
            out.print(f"{name}: {found['error']}")
        else:
            out.print(f"{name} {found['version']}: installed, {found['bytes'] / 1e6:,.0f} MB.")
    if failed:
        raise typer.Exit(1)


@app.command("engines", epilog=examples("deltalog conformance engines"))
def list_engines(cache: _Cache = None, as_json: _Json = False) -> None:
    """List the engines: the version that is installed, where it runs, and the calls that its adapter has."""
    from deltalog.conformance import installation

    found, out = installation.engines(cache), Output(as_json)
    if as_json:
        out.document({"engines": found})
        return
    from rich.table import Table

    table = Table("engine", "version", "where", "calls", box=None)
    for each in found:
        where = each["where"] or f"not installed: {each['why']}"
        table.add_row(*map(plain, (each["name"], each["version"] or "", where, ", ".join(each["calls"]))))
    out.print(table)


@app.command("report", epilog=examples("deltalog conformance report mine.json polars.json"))
def show_report(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="JSON documents written by run --json.")],
    as_json: _Json = False,
) -> None:
    """Compare runs by engine and area, as a Markdown table."""
    from deltalog.conformance import report

    rows = report.matrix([_document(file) for file in files])
    out = Output(as_json)
    if as_json:
        head, *body = rows
        out.document([dict(zip(head, line, strict=True)) for line in body])
    else:
        out.print(*report.markdown(rows).splitlines())


@app.command(epilog=examples("deltalog conformance export cases"))
def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory, or an empty one.")],
    area: _Area = None,
    case: _Case = None,
    as_json: _Json = False,
) -> None:
    """Export the cases as files for test runners in any language: tables, steps and expected results.

    docs/conformance-format.md describes the directories.
    """
    from deltalog.conformance.export import export_cases

    chosen, out = _chosen(area, case), Output(as_json)
    with out.working(f"Writing {len(chosen)} cases"):
        written = export_cases(directory, chosen)
    if as_json:
        out.document({"directory": str(directory), "cases": written})
    else:
        out.print(f"{plural(written, 'case')} {'was' if written == 1 else 'were'} written to {directory}.")


@app.command(epilog=examples("deltalog conformance pairs deltalog deltalake --variant plain --json > pairs.json"))
def pairs(
    engines: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ENGINE]…", help="Engines that write. Default: all of the kit that can run here."),
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option("--variant", metavar="NAME", help="Use only this variant. May be repeated.")
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            metavar="ENGINE",
            help="An engine that may judge the pairs without it. May be repeated. Default: all of the kit that can run "
            "here.",
        ),
    ] = None,
    limit_seconds: Annotated[
        float, typer.Option("--limit-seconds", min=1, metavar="N", help="The time limit per call.")
    ] = 120.0,
    cache: _Cache = None,
    as_json: _Json = False,
) -> None:
    """Let each pair of engines change one table in turn, judged by deltalog and another engine.

    The exit status is 1 if a variant fails. docs/conformance.md describes the variants.
    """
    from deltalog.conformance import SUITE_VERSION, pair_model, report
    from deltalog.conformance.pairs import EngineSet, run_pairs

    variants = [each for each in pair_model.VARIANTS if not variant or each.name in variant]
    if not variants or len(variants) < len({*(variant or ())}):
        known = ", ".join(each.name for each in pair_model.VARIANTS)
        raise typer.BadParameter(f"The variants are {known}.", param_hint="--variant")
    out = Output(as_json)
    with EngineSet(limit_seconds, cache) as started:
        names = list(dict.fromkeys(engines or started.writers()))
        chosen = [(first, second) for first in names for second in names if first != second]
        if not chosen:
            raise typer.BadParameter("A pair needs two engines.")
        found: dict[tuple[str, str], list[pair_model.PairResult]] = {pair: [] for pair in chosen}
        runs = run_pairs(started.engine_of, chosen, judge or started.available(), variants)
        with out.progress("Starting the engines", "Running") as shown:
            for number, (pair, result) in enumerate(runs, start=1):
                found[pair].append(result)
                shown("variants", number, len(chosen) * len(variants))
        document = pair_model.document(SUITE_VERSION, started.versions(names), found)
    if as_json:
        out.document(document)
    else:
        _print_pairs(out, document, report.markdown(pair_model.table(document)))
    if any(each.outcome == "failed" for results in found.values() for each in results):
        raise typer.Exit(1)


def _only_skipped(cases: Sequence[Case], outcomes: Sequence[Outcome], calls: Collection[str]) -> str:
    """What is said of a run without a passed or failed case. ``calls``: those that the engine says it has."""
    needed = Counter(call for case in cases for call in case.calls if call not in calls)
    reason, number = Counter(outcome.reason for outcome in outcomes).most_common(1)[0]
    text = f"No case passed or failed: {plural(len(outcomes), 'case')} skipped, {number:,} for the reason: {reason}."
    if needed:
        missing = ", ".join(f"{call} ({count:,})" for call, count in needed.most_common(5))
        text += f" These cases make calls that the adapter does not list: {missing}."
    return text


def _print_pairs(out: Output, document: dict[str, Any], summary: str) -> None:
    from rich.table import Table

    table = Table("created by", "and", "variant", "outcome", "reason", box=None)
    for pair in document["pairs"]:
        for each in pair["results"]:
            if each["reason"]:
                cells = (pair["first"], pair["second"], each["variant"], each["outcome"], each["reason"])
                table.add_row(*(plain(cell) for cell in cells))
    if table.row_count:
        out.print(table, "")
    out.print(*summary.splitlines())


def _chosen(area: str | None, patterns: list[str] | None) -> list[Case]:
    from deltalog.conformance import AREAS, all_cases

    if area is not None and area not in AREAS:
        raise typer.BadParameter(f"There is no area {area!r}; the areas are {', '.join(AREAS)}.")
    found = [case for case in all_cases() if area in (None, case.area)]
    if patterns:
        found = [case for case in found if any(fnmatch.fnmatchcase(case.id, each) for each in patterns)]
    if not found:
        raise typer.BadParameter("No case matches.")
    return found


def _described(case: Case) -> dict[str, Any]:
    return {
        "id": case.id, "area": case.area, "about": case.about, "section": case.section, "basis": case.basis,
        "rule": case.rule, "calls": list(case.calls),
    }  # fmt: skip


def _document(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        found["engine"], found["version"], found["cases"]
    except (ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(
            f"{file} is not a document written by deltalog conformance run --json: {error}"
        ) from None
    return dict(found)


def _print(out: Output, document: dict[str, Any]) -> None:
    from rich.table import Table

    from deltalog.conformance import report

    table = Table("case", "outcome", "reason", box=None)
    for case in document["cases"]:
        if case["outcome"] == "failed":
            table.add_row(plain(case["id"]), plain("failed", "red"), plain(case["reason"] or ""))
    if table.row_count:
        out.print(table, "")
    summary = Table("area", "passed of run", box=None)
    for area, count in report.by_area(document).items():
        summary.add_row(plain(area), plain(report.cell(count)))
    out.print(summary)
    counts = document["summary"]
    out.print(
        f"{document['engine']} {document['version']}, suite {document['suite']}: {counts['passed']} passed, "
        f"{counts['failed']} failed, {counts['skipped']} skipped."
    )
