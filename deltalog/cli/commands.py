"""The commands of ``deltalog COMMAND TABLE``.

Exit status: 0 success, 1 error, 2 usage. Errors go to standard error, with ``--json`` as one line ``{"error": class,
"code": ..., "message": ...}``. pyarrow, PySpark and rich are imported on first use.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from deltalog.cli import (
    catalog,
    catalog_versions,
    commit_tables,
    conformance,
    copies,
    grants,
    inspection,
    maintenance,
    tokens,
    ui,
)
from deltalog.cli.options import CONTEXT, Commands
from deltalog.cli.options import AtTime as _AtTime
from deltalog.cli.options import AtTimeMs as _AtTimeMs
from deltalog.cli.options import AtVersion as _AtVersion
from deltalog.cli.options import Json as _Json
from deltalog.cli.options import Limit as _Limit
from deltalog.cli.options import Table as _Table
from deltalog.cli.options import at_most_one as _at_most_one
from deltalog.cli.options import examples as _examples
from deltalog.cli.options import open_table as _open
from deltalog.cli.options import version_or_time as _version_or_time
from deltalog.cli.output import Output, facts_of, report_error, report_warning
from deltalog.presentation.text import plural

if TYPE_CHECKING:
    from deltalog import Snapshot

_TRACEBACK = "DELTALOG_TRACEBACK"
_CLAMPING = re.compile(r'pass (before|after)="(\w+)" to version_at or snapshot')


class _Commands(TyperGroup):
    """The command group, which converts errors to a message and an exit status."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in arguments
        with _own_warnings(as_json):
            try:
                status = super().main(args=arguments, prog_name="deltalog", standalone_mode=False, **extra)
            except Exception as error:
                status = _report(error, as_json)
        sys.exit(status if isinstance(status, int) else 0)


def _report(error: Exception, as_json: bool) -> int:
    """Print an error; returns the exit status."""
    from deltalog import DeltaLogError

    name = type(error).__name__
    if isinstance(error, DeltaLogError):
        message = _CLAMPING.sub(r"pass --\1 \2 to deltalog resolve, whose answer --version takes", error.message)
        report_error(name, error.code, message, as_json)
        return 1
    if isinstance(error, typer.Abort):
        report_error(name, "INTERRUPTED", "Interrupted.", as_json)
        return 130
    if hasattr(error, "format_message") and hasattr(
        error, "exit_code"
    ):  # click's own errors, including errors of a vendored click
        command = getattr(getattr(error, "ctx", None), "command_path", "deltalog")
        report_error("UsageError", "USAGE", error.format_message(), as_json, f"Try '{command} --help'.")
        return 2
    if isinstance(error, OSError):
        report_error(name, "OS_ERROR", str(error), as_json)
        return 1
    if os.environ.get(_TRACEBACK):
        raise error
    message = f"{name}: {error}\nThis is a bug in deltalog. Set {_TRACEBACK}=1 in the environment for a traceback."
    report_error(name, "INTERNAL_ERROR", message, as_json)
    return 1


@contextlib.contextmanager
def _own_warnings(as_json: bool) -> Iterator[None]:
    """Print warnings like other messages of the command, without source lines."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        report_warning(category.__name__, str(message), as_json)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


app = Commands(
    cls=_Commands,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=CONTEXT,
)


def _snapshot(
    out: Output,
    table: str,
    version: int | None,
    timestamp: str | None,
    timestamp_ms: int | None,
    *,
    with_files: bool = False,
) -> Snapshot:
    """The snapshot selected by the options. ``with_files``: also load the snapshot's live files."""
    at = _version_or_time(version, timestamp, timestamp_ms)
    with out.working("Reading the log"):
        found = _open(table).snapshot(**at)
        if with_files:
            found.files()
    return found


@app.callback(invoke_without_command=True)
def _all(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version of deltalog and exit.")] = False,
) -> None:
    """Inspect and maintain Delta tables from the command line."""
    if version:
        from deltalog.version import VERSION

        sys.stdout.write(f"deltalog {VERSION}\n")
        raise typer.Exit(0)
    if ctx.invoked_subcommand is None:
        sys.stdout.write(ctx.get_help() + "\n")
        raise typer.Exit(2)


@app.command(
    epilog=_examples(
        "deltalog info events",
        "deltalog info events --timestamp 2026-11-20T10:00:00Z",
        "deltalog info events --json | jq .num_rows",
    )
)
def info(
    table: _Table,
    version: _AtVersion = None,
    timestamp: _AtTime = None,
    timestamp_ms: _AtTimeMs = None,
    as_json: _Json = False,
) -> None:
    """Show a table: version, time, size, columns, properties, protocol."""
    from deltalog.cli import views

    out = Output(as_json)
    snapshot = _snapshot(out, table, version, timestamp, timestamp_ms, with_files=True)
    if as_json:
        out.document(views.info(snapshot))
    else:
        views.print_info(out, snapshot)


@app.command(epilog=_examples("deltalog files events --version 3", "deltalog files events --json | jq -r .path"))
def files(
    table: _Table,
    version: _AtVersion = None,
    timestamp: _AtTime = None,
    timestamp_ms: _AtTimeMs = None,
    limit: _Limit = None,
    as_json: _Json = False,
) -> None:
    """List the data files of a version."""
    from deltalog.cli import views

    out = Output(as_json)
    snapshot = _snapshot(out, table, version, timestamp, timestamp_ms, with_files=True)
    if as_json:
        out.documents(views.files(snapshot, out.shown(limit)))
    else:
        views.print_files(out, snapshot, out.shown(limit))


@app.command(
    epilog=_examples(
        "deltalog rows events --columns id,what --limit 5",
        "deltalog rows events --where \"what = 'buy' AND id > 100\"",
        "deltalog rows events --version 1 --json > version1.jsonl",
    )
)
def rows(
    table: _Table,
    version: _AtVersion = None,
    timestamp: _AtTime = None,
    timestamp_ms: _AtTimeMs = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", metavar="A,B", help="The columns to print, in this order. May be repeated."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Print only rows for which this condition is true.")
    ] = None,
    limit: _Limit = None,
    as_json: _Json = False,
) -> None:
    """Print the rows of a version, in no particular order."""
    from deltalog.cli import views

    out = Output(as_json)
    snapshot = _snapshot(out, table, version, timestamp, timestamp_ms)
    scan = snapshot.scan(_columns(snapshot, columns), where=where, variants="json")
    if as_json:
        out.documents(views.rows(scan, out.shown(limit)))
    else:
        views.print_rows_of(out, snapshot, scan, out.shown(limit))


def _columns(snapshot: Snapshot, texts: list[str] | None) -> list[str] | None:
    """The columns named in ``texts``, either single names or comma-separated lists."""
    known = snapshot.schema.names
    names: list[str] = []
    for text in texts or ():
        names += [text] if text in known else [name if name in known else name.strip() for name in text.split(",")]
    missing = [name for name in names if name not in known]
    if missing:
        raise typer.BadParameter(f"There is no column {missing[0]!r}. Columns: {', '.join(known)}.")
    return names or None


@app.command(epilog=_examples("deltalog history events --limit 5", "deltalog history events --json | jq .timestamp_ms"))
def history(table: _Table, limit: _Limit = None, as_json: _Json = False) -> None:
    """List the commits, newest first, with their times and the clock that time travel uses for them.

    Drift is the file time of a commit minus its in-commit time: + if the file is newer, as in a copy of the table.
    """
    from deltalog.cli import views

    out = Output(as_json)
    with out.working("Reading the commits"):
        opened = _open(table)
        shown = out.shown(limit)
        entries = opened.history(shown)
    if as_json:
        out.documents(entry.to_json() for entry in entries)
    else:
        views.print_history(out, entries, views.commits_of(opened.snapshot()))


@app.command(
    epilog=_examples(
        "deltalog resolve events 2026-11-20T10:00:00Z",
        "deltalog resolve events --timestamp-ms 1795168800000 --after latest",
        "deltalog resolve events --timestamp '2026-11-20 11:00+01:00' --json | jq .answer.version",
    )
)
def resolve(
    table: _Table,
    when: Annotated[str | None, typer.Argument(metavar="[ISO]", help="The instant, like --timestamp.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp", metavar="ISO", help="The instant: 2026-11-20T10:00:00Z; an offset or Z is required."
        ),
    ] = None,
    timestamp_ms: Annotated[
        int | None, typer.Option("--timestamp-ms", metavar="MS", help="The instant in ms since 1970-01-01 UTC.")
    ] = None,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="error|earliest",
            help="For an instant before the first commit: refuse it, or use that commit.",
        ),
    ] = "error",
    after: Annotated[
        str,
        typer.Option(
            "--after",
            metavar="error|latest",
            help="For an instant after the last commit: refuse it, or use that commit.",
        ),
    ] = "error",
    as_json: _Json = False,
) -> None:
    """Explain which version TIMESTAMP AS OF selects: the clock, the candidate versions, the neighbouring commits, the
    valid range.

    If the instant is outside the history, the command still prints the explanation, and exits with status 1 unless
    --before or --after permits such an instant.
    """
    from deltalog import TimestampOutOfRangeError
    from deltalog.cli import views

    for option, value, choices in (("before", before, ("error", "earliest")), ("after", after, ("error", "latest"))):
        if value not in choices:
            raise typer.BadParameter(f"--{option} must be one of {', '.join(choices)}; got {value!r}.")
    _at_most_one(ISO=when, timestamp=timestamp, timestamp_ms=timestamp_ms)
    instant = timestamp_ms if timestamp_ms is not None else timestamp or when
    if instant is None:
        raise typer.BadParameter("Specify an instant: --timestamp ISO or --timestamp-ms MS.")
    out = Output(as_json)
    with out.working("Searching the log"):
        opened = _open(table)
        explanation = opened.explain_timestamp(instant)
        refusal, clamped = None, None
        if explanation.answer is None:
            try:
                clamped = opened.version_at(instant, before, after)
            except TimestampOutOfRangeError as error:
                refusal = error
    if as_json:
        out.document(views.explanation(explanation, clamped))
    else:
        views.print_explanation(out, explanation, clamped)
    if refusal is not None:
        raise refusal


@app.command(
    epilog=_examples(
        "deltalog timeline events -o events.html --open",
        "deltalog timeline events -o - > events.html",
        "deltalog timeline catalog:bank.db -o bank.html",
        "deltalog timeline events clicks -o both.html",
    )
)
def timeline(
    table: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...",
            help="A path, file:///…, s3://…, catalog:<catalog>#<name>, or uc://catalog.schema.table; catalog:<catalog> "
            "for all tables of a catalog. Several tables are shown on one time axis.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write; - for standard output.")
    ] = "timeline.html",
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="Only the newest N commits of each table; 0 for all.")
    ] = 10_000,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file even if it is not a timeline page.")
    ] = False,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the web browser.")] = False,
    examine: Annotated[bool, typer.Option("--check/--no-check", help="Check the tables and show the findings.")] = True,
    as_json: _Json = False,
) -> None:
    """Write an HTML page with the history of tables on a time axis. The page is a single file and works offline.

    The page of a table shows in-commit timestamps and file times with the drift between them, the enablement of
    in-commit timestamps, the changes of every commit, the findings of a check at their commits, and the version that
    TIMESTAMP AS OF selects for the instant under the pointer. The page of several tables shows the versions of all
    tables at that instant; for tables of one catalog these are consistent, as those of consistent_cut.
    """
    from deltalog.cli.timeline import of_several, write_page
    from deltalog.presentation.text import bytes_text
    from deltalog.presentation.timeline import page

    out = Output(as_json)
    several = of_several(table)
    if several is not None:
        rendered = several(out, limit or None, examine)
    else:
        opened = _open(table[0])
        report = None
        if examine:
            with out.progress("Reading the log", "Checked") as progress:
                report = opened.check(progress=progress)
        with out.working("Reading the commits"):
            rendered = page(opened, limit or None, report)
    if output == "-":
        sys.stdout.write(rendered.html)
        return
    path = Path(output)
    size = write_page(path, rendered.html, overwrite)
    if as_json:
        out.document({"path": str(path.resolve()), "commits": rendered.num_commits, "size_bytes": size})
    else:
        out.print(f"{plural(rendered.num_commits, 'commit')} in {path} ({bytes_text(size)}). Open it in a browser.")
    if browse:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


ui.register(app)


@app.command("enable-ict", epilog=_examples("deltalog enable-ict events"))
def enable_ict(table: _Table, as_json: _Json = False) -> None:
    """Turn in-commit timestamps on, so that new commits keep their time when the table is copied.

    Commits nothing if in-commit timestamps are already on.
    """
    from deltalog.protocol.timestamps import describe

    out = Output(as_json)
    opened = _open(table)
    result = opened.enable_in_commit_timestamps()
    if as_json:
        enablement = opened.snapshot().enablement
        out.document(
            {
                "version": result.version,
                "committed": not result.skipped,
                "in_commit_timestamp_ms": result.in_commit_timestamp_ms,
                "enablement": None
                if enablement is None
                else {"version": enablement.version, "timestamp_ms": enablement.timestamp_ms},
            }
        )
    elif result.skipped:
        out.print(f"In-commit timestamps are already on; nothing was committed (version {result.version}).")
    else:
        out.print(f"In-commit timestamps are on since version {result.version}, {describe(result.timestamp_ms)}.")


@app.command(
    epilog=_examples(
        "deltalog restore events --version 3 --dry-run",
        "deltalog restore events --timestamp 2026-11-20T10:00:00Z",
    )
)
def restore(
    table: _Table,
    version: _AtVersion = None,
    timestamp: _AtTime = None,
    timestamp_ms: _AtTimeMs = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes, and commit nothing.")] = False,
    ignore_missing_files: Annotated[
        bool, typer.Option("--ignore-missing-files", help="Restore without the rows of missing files.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Restore the rows, columns and properties of an earlier version in a new commit.

    The versions between the restored version and the new commit are kept and can also be restored.
    """
    from deltalog.cli import views

    at = _version_or_time(version, timestamp, timestamp_ms)
    if not any(value is not None for value in at.values()):
        raise typer.BadParameter("Specify the version to restore: --version N, --timestamp ISO or --timestamp-ms MS.")
    out = Output(as_json)
    with out.working("Restoring"):
        result = _open(table).restore(**at, ignore_missing_files=ignore_missing_files, dry_run=dry_run)
    if as_json:
        out.document(views.restored(result))
    else:
        views.print_restored(out, result)


@app.command(epilog=_examples("deltalog checkpoint events", "deltalog checkpoint events --v2-json"))
def checkpoint(
    table: _Table,
    v2_json: Annotated[
        bool, typer.Option("--v2-json", help="If delta.checkpointPolicy is v2, write a top-level file in JSON.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Write a checkpoint of the latest version, so that readers need not replay earlier commits."""
    out = Output(as_json)
    with out.working("Writing the checkpoint"):
        opened = _open(table)
        opened.checkpoint(top_level="json" if v2_json else "parquet")
        snapshot = opened.snapshot()
    found = snapshot.log.segment.checkpoint
    assert found is not None
    if as_json:
        out.document({"version": found.version, "names": list(found.names), "num_files": snapshot.num_files})
    else:
        out.print(
            f"Checkpoint of version {found.version}, {plural(snapshot.num_files, 'file')}: {', '.join(found.names)}"
        )


@app.command(epilog=_examples("deltalog compact events", "deltalog compact events --from 10 --to 19"))
def compact(
    table: _Table,
    start: Annotated[
        int | None,
        typer.Option(
            "--from", min=0, metavar="N", help="The first version. Default: the version after the last checkpoint."
        ),
    ] = None,
    end: Annotated[
        int | None, typer.Option("--to", min=1, metavar="N", help="The last version. Default: the latest.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Write a log compaction file, which readers may read instead of a range of commits."""
    out = Output(as_json)
    with out.working("Reading the commits"):
        found = _open(table).compact_log(start, end)
    if as_json:
        out.document({"from": None if found is None else found[0], "to": None if found is None else found[1]})
    elif found is None:
        out.print("There are fewer than two commits after the last checkpoint; nothing was written.")
    else:
        out.print(f"Versions {found[0]} to {found[1]} are now also in one file.")


@app.command(
    epilog=_examples(
        "deltalog cleanup events --dry-run",
        "deltalog cleanup events --dry-run --json | jq .files",
        "deltalog cleanup events --retention '7 days' --yes",
    )
)
def cleanup(
    table: _Table,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files that would be deleted.")] = False,
    retention: Annotated[
        str | None,
        typer.Option(metavar="'N days'", help="Override the retention of the table; requires --yes to delete."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --retention: delete the files.")] = False,
    as_json: _Json = False,
) -> None:
    """Delete log files that no version within delta.logRetentionDuration needs.

    The age of a commit is determined by its in-commit timestamp if in-commit timestamps are on. Afterwards, versions
    that need the deleted log files can no longer be read.
    """
    out = Output(as_json)
    only_shown = dry_run or (retention is not None and not yes)
    with out.working("Reading the log"):
        report = _open(table).cleanup_log(dry_run=only_shown, retention=maintenance.duration(retention))
    if as_json:
        out.document(report.to_json())
    else:
        out.print(facts_of(report.facts()))
        if only_shown and not dry_run and report.deleted:
            out.print("", "Nothing was deleted. --yes deletes these files.")


app.command(
    epilog=_examples(
        "deltalog vacuum events", "deltalog vacuum events --json | jq .files", "deltalog vacuum events --yes"
    )
)(maintenance.vacuum)
app.command(
    epilog=_examples(
        "deltalog optimize events --dry-run",
        "deltalog optimize events --where \"day >= '2026-11-01'\" --target-size 128mb",
        "deltalog optimize events --z-order user_id,at",
        "deltalog optimize events --purge --json | jq .rows",
    )
)(maintenance.optimize)


copies.register(app)
inspection.register(app)


@app.command(
    epilog=_examples(
        "deltalog check events", "deltalog check events --deep --sarif findings.sarif", "deltalog check events --repair"
    )
)
def check(
    table: _Table,
    deep: Annotated[bool, typer.Option("--deep", help="Also read all rows of all data files.")] = False,
    sarif: Annotated[
        Path | None, typer.Option("--sarif", metavar="FILE", help="Also write the findings as SARIF 2.1.0.")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Show the possible repairs, carry them out, check again.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --repair: only show the repairs.")] = False,
    as_json: _Json = False,
) -> None:
    """Check a table against the rules of the protocol, even if it cannot be opened.

    The exit status is 1 if there is a finding of severity error. --repair deletes damaged derived files and writes
    checkpoints and commits; it never changes existing commits.
    """
    from deltalog.cli.doctor import run

    if dry_run and not repair:
        raise typer.BadParameter("--dry-run requires --repair.")
    if not run(table, deep, sarif, repair, dry_run, as_json):
        raise typer.Exit(1)


app.command("serve", epilog=_examples("deltalog serve bank.db", "deltalog serve bank.db --port 8751"))(catalog.serve)
app.add_typer(catalog.txn, name="txn")
app.add_typer(catalog.tables, name="tables")
app.add_typer(tokens.app, name="tokens")
app.add_typer(catalog_versions.app, name="catalog")
app.add_typer(grants.app, name="grants")
app.add_typer(commit_tables.app, name="commit-table")
app.add_typer(conformance.app, name="conformance")
