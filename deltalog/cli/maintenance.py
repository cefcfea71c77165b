"""``deltalog vacuum``: the files that no version needs."""

from __future__ import annotations

from typing import Annotated

import typer

from deltalog.cli.options import Json, Table, open_table
from deltalog.cli.output import Output, facts_of, plural

_SHOWN = 20


def vacuum(
    table: Table,
    retention_hours: Annotated[
        float | None,
        typer.Option(min=0, metavar="HOURS", help="Default: delta.deletedFileRetentionDuration of the table, 7 days."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete the files; without it they are only shown.")] = False,
    below_retention: Annotated[
        bool, typer.Option("--below-retention", help="Accept fewer hours than the table's: versions are lost.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the files that no version within the retention needs; with --yes delete them.

    Versions that were replaced before the retention can no longer be read afterwards.
    """
    out = Output(as_json)
    with out.progress("Listing the files and reading the log", "Deleted") as progress:
        report = open_table(table).vacuum(
            retention_hours,
            dry_run=not yes,
            enforce_retention_duration=not below_retention,
            progress=lambda done, of: progress("files", done, of),
        )
    if as_json:
        out.document(report.to_json())
        return
    shown = report.paths[: out.shown(None, _SHOWN)]
    out.print(facts_of(report.facts()))
    if shown:
        out.print("", *shown)
    if len(report.paths) > len(shown):
        out.print(f"and {plural(len(report.paths) - len(shown), 'file')} more")
    if report.dry_run and report.paths:
        out.print("", "Nothing was deleted. --yes deletes these files.")
