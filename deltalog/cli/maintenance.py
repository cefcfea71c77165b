"""``deltalog vacuum`` and ``deltalog optimize``: delete unneeded files, and combine small files."""

from __future__ import annotations

import datetime
from functools import partial
from typing import Annotated

import typer

from deltalog.cli.options import Json, Table, open_table, vacuum_of
from deltalog.cli.output import Output, facts_of
from deltalog.presentation.text import plural
from deltalog.protocol.column_paths import parse_paths
from deltalog.protocol.properties import LOG_RETENTION_MS, TARGET_FILE_SIZE

_SHOWN = 20


def duration(text: str | None) -> datetime.timedelta | None:
    """Parse an interval such as "7 days", in the format of table properties."""
    try:
        return None if text is None else datetime.timedelta(milliseconds=LOG_RETENTION_MS.parse(text))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"--retention: {error}. Write it as '7 days' or '36 hours'.") from None


def vacuum(
    table: Table,
    retention_hours: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="HOURS", help="Default: delta.deletedFileRetentionDuration of the table, or 7 days."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete the files instead of only showing them.")] = False,
    below_retention: Annotated[
        bool,
        typer.Option(
            "--below-retention", help="Allow a shorter retention than the table's, which makes versions unreadable."
        ),
    ] = False,
    lite: Annotated[
        bool,
        typer.Option("--lite", help="Do not list files; consider only those removed by commits since the last vacuum."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the files that no version within the retention period needs; with --yes, delete them.

    Versions older than the retention period can no longer be read afterwards.
    """
    out = Output(as_json)
    doing = "Reading the log" if lite else "Listing the files and reading the log"
    with out.progress(doing, "Deleted") as progress:
        report = vacuum_of(table)(
            retention_hours,
            dry_run=not yes,
            enforce_retention_duration=not below_retention,
            full=not lite,
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


def optimize(
    table: Table,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="A condition on partition columns. Default: all partitions.")
    ] = None,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Instead, rewrite all files with a deletion vector, without the deleted rows."),
    ] = False,
    z_order: Annotated[
        str | None,
        typer.Option("--z-order", metavar="A,B", help="Rewrite all files in Z-order of these columns."),
    ] = None,
    target_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The size of new files, as a number of bytes or with a unit, such as 128mb. Default: "
            "delta.targetFileSize, or 256mb.",
        ),
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="The number of files written in parallel. Default: the number of processors."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Clustered tables: also rewrite files clustered by other columns.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, but commit nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Combine small files into larger ones without changing rows. In a clustered table, the new files have their rows
    ordered by the clustering columns.

    The old files are kept until a vacuum; earlier versions can be read until then.
    """
    out = Output(as_json)
    if purge + bool(z_order) + full > 1:
        raise typer.BadParameter("--purge, --z-order and --full are mutually exclusive.")
    try:
        size = None if target_size is None else TARGET_FILE_SIZE.parse(target_size)
    except ValueError as error:
        raise typer.BadParameter(f"--target-size: {error}.") from None
    with out.progress("Reading the log", "Rewrote") as progress:
        optimizer = open_table(table).optimize
        compact = partial(optimizer.compact, full=True) if full else optimizer.compact
        verb = partial(optimizer.z_order, parse_paths(z_order)) if z_order else compact
        report = (optimizer.purge if purge else verb)(
            where,
            size,
            tasks,
            dry_run=dry_run,
            progress=lambda done, of: progress("files", done, of),
        )
    if as_json:
        out.document(report.to_json())
    else:
        out.print(facts_of(report.facts()))
