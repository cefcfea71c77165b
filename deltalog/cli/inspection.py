"""``deltalog schema``, ``properties``, ``diff``, ``changes`` and ``explain``."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalog.cli.options import (
    AtTime,
    AtTimeMs,
    AtVersion,
    Commands,
    Json,
    Limit,
    Table,
    examples,
    open_table,
    pairs,
    storage_options,
    version_or_time,
)
from deltalog.cli.output import Output, facts_of, plain, table_of
from deltalog.presentation.text import bytes_text, count, plural

if TYPE_CHECKING:
    pass

_From = Annotated[int, typer.Option("--from", min=0, metavar="N", help="The first version.")]
_To = Annotated[int | None, typer.Option("--to", min=0, metavar="N", help="The last version. Default: the latest.")]


def register(app: Commands) -> None:
    """Add these commands to the application."""
    app.command(epilog=examples("deltalog schema events", "deltalog schema events --version 3 --json"))(schema)
    app.command(
        epilog=examples(
            "deltalog properties events",
            "deltalog properties events --set delta.deletedFileRetentionDuration='30 days' --unset owner",
        )
    )(properties)
    app.command(epilog=examples("deltalog diff events --from 3", "deltalog diff events --from 3 --to 7 --json"))(diff)
    app.command(epilog=examples("deltalog changes events --from 3", "deltalog changes events --from 3 --json"))(changes)
    app.command(epilog=examples("deltalog explain events", "deltalog explain events --version 3 --json"))(explain)


# ---------------------------------------------------------------------------------------- the schema command


def schema(
    table: Table,
    version: AtVersion = None,
    timestamp: AtTime = None,
    timestamp_ms: AtTimeMs = None,
    as_json: Json = False,
) -> None:
    """Show the columns of a version with their nested fields; with --json, the schema as in the log."""
    from deltalog.presentation.schemas import columns_of

    out = Output(as_json)
    snapshot = open_table(table).snapshot(**version_or_time(version, timestamp, timestamp_ms))
    if as_json:
        out.document(json.loads(snapshot.schema.to_json()))
        return
    listing = table_of()
    for heading in ("Column", "Type", "Null", "Comment"):
        listing.add_column(heading, overflow="fold")
    partitions = snapshot.partition_columns
    for name, kind, nullable, comment in columns_of(snapshot.schema):
        null = "" if nullable else "not null"
        notes = [*(["partition column"] if name in partitions else []), *([comment] if comment else [])]
        listing.add_row(plain(name), plain(kind, "cyan"), null, plain(", ".join(notes)))
    out.print(listing)


# ------------------------------------------------------------------------------------------------ properties


def properties(
    table: Table,
    assign: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a property. May be repeated.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove a property. May be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the properties of a table. --set and --unset change them first, in one commit each."""
    out = Output(as_json)
    wanted = pairs("--set", assign)
    opened = open_table(table)
    if wanted:
        opened.set_properties(wanted)
    if unset:
        opened.unset_properties(unset)
    found = opened.snapshot().metadata.configuration
    if as_json:
        out.document(dict(sorted(found.items())))
    elif found:
        out.print(facts_of(sorted(found.items())))
    else:
        out.print("The table has no properties.")


# ------------------------------------------------------------------------------------------------------ diff


def diff(table: Table, start: _From, end: _To = None, limit: Limit = None, as_json: Json = False) -> None:
    """Show the differences between two versions: files, row counts according to statistics, columns, properties, table
    features."""
    from deltalog.presentation.difference import differences

    out = Output(as_json)
    with out.working("Reading the log"):
        opened = open_table(table)
        old, new = opened.snapshot(version=start), opened.snapshot(version=end)
        facts = differences(old, new)
    if as_json:
        out.document(facts)
    else:
        _print_diff(out, facts, out.shown(limit))


def _print_diff(out: Output, facts: dict[str, Any], limit: int | None) -> None:
    def change(before: Any, after: Any) -> str:
        return f"{before}, unchanged" if before == after else f"{before} → {after}"

    known = [("unknown" if number is None else count(number)) for number in facts["num_rows"]]
    lists = [",".join(names) or "none" for names in facts["partition_columns"]]
    out.print(
        facts_of(
            [
                ("Versions", f"{facts['from']} → {facts['to']}"),
                ("Files", change(*map(count, facts["num_files"]))),
                ("Size", change(*map(bytes_text, facts["size_bytes"]))),
                ("Rows", change(*known)),
                *([("Partitioned by", change(*lists))] if lists[0] != lists[1] else []),
            ]
        )
    )
    for title in ("columns", "properties", "features"):
        for key, (before, after) in facts[title].items():
            mark = "+" if before is None else "-" if after is None else "~"
            what = " → ".join(text for text in (before, after) if text)
            out.print(
                f"{mark} {title.removesuffix('s') if title != 'properties' else 'property'} {key}: {what}".rstrip(": ")
            )
    for mark, name in (("+", "files_added"), ("-", "files_removed")):
        for file in facts[name][:limit]:
            vector = ", deletion vector" if file["has_deletion_vector"] else ""
            out.print(f"{mark} {file['path']}  {bytes_text(file['size_bytes'])}{vector}")
        if limit is not None and len(facts[name]) > limit:
            out.print(f"{mark} and {plural(len(facts[name]) - limit, 'file')} more")


# -------------------------------------------------------------------------------------- the change data feed


def changes(table: Table, start: _From, end: _To = None, limit: Limit = None, as_json: Json = False) -> None:
    """Print the change data feed of a range of versions, both ends included."""
    from deltalog.cli import views

    out = Output(as_json)
    with out.working("Reading the log"):
        found = open_table(table).changes(start, end)
    if as_json:
        out.documents(views.rows(found, out.shown(limit)))
        return
    shown = out.shown(limit)
    number = views.print_rows(out, found, shown)
    out.print(f"{'The first ' if number == shown else ''}{plural(number, 'changed row')}")


# --------------------------------------------------------------------------------------------------- explain


def explain(
    table: Table,
    version: AtVersion = None,
    timestamp: AtTime = None,
    timestamp_ms: AtTimeMs = None,
    as_json: Json = False,
) -> None:
    """Show the log segment of a version, and the store calls needed to open it and to list its files."""
    from deltalog import DeltaTable
    from deltalog.addresses import handle_on_latest, open_log
    from deltalog.environment import Environment
    from deltalog.log.reader import LogReader
    from deltalog.testing.stores import CountingStore

    at = version_or_time(version, timestamp, timestamp_ms)
    out = Output(as_json)
    plain = open_log(table, **storage_options())
    store = CountingStore(plain.store)
    reader = LogReader(store, authority=plain.authority)
    with out.working("Reading the log"):
        with store.counted() as opening:
            snapshot = DeltaTable(handle_on_latest(reader, Environment())).snapshot(**at)
            number = snapshot.num_files
        with store.counted() as listing:
            found = snapshot.files().num_rows
    # The files are listed from another checkpoint, or from the commits, if the checkpoint cannot be read.
    unreadable = [name for each in snapshot.log.cache.unusable for name in each.names]
    segment, is_used = snapshot.log.segment, snapshot.log.cache.uses_checksum
    facts: dict[str, Any] = {
        "table": snapshot.url,
        "version": snapshot.version,
        "checkpoint": None if segment.checkpoint is None else list(segment.checkpoint.names),
        "compactions": [each.name for each in segment.compactions],
        "commits": list(segment.commits),
        "checksum": segment.has_checksum,
        "num_files": found,
        "num_files_by_checksum": number if is_used else None,
        "unreadable_checkpoints": unreadable,
        "calls": {"open": _by_method(opening), "files": _by_method(listing)},
        "read": {"open": _paths(opening), "files": _paths(listing)},
    }
    if as_json:
        out.document(facts)
        return
    commits = segment.commits
    out.print(
        facts_of(
            [
                ("Table", snapshot.url),
                ("Version", str(snapshot.version)),
                ("Checkpoint", ", ".join(segment.checkpoint.names) if segment.checkpoint else "none"),
                *([("Compactions", ", ".join(facts["compactions"]))] if segment.compactions else []),
                *([("Unreadable", _passed_over(unreadable))] if unreadable else []),
                ("Commits", f"{commits[0]} to {commits[-1]} ({plural(len(commits), 'commit')})" if commits else "none"),
                ("Checksum", _checksum_text(segment.has_checksum, number if is_used else None, found)),
                ("To open it", _calls_text(facts["calls"]["open"])),
                (f"To list {plural(found, 'file')}", _calls_text(facts["calls"]["files"])),
            ]
        )
    )
    out.print("", *facts["read"]["open"], *facts["read"]["files"])


_READS = ("get", "open_input")


def _passed_over(names: Sequence[str]) -> str:
    return f"{', '.join(names)}: an older checkpoint or the commits are read instead (see deltalog check)"


def _checksum_text(is_present: bool, counted: int | None, found: int) -> str:
    """``counted``: the number of files according to the ``.crc``; None if it was not used."""
    if not is_present:
        return "none"
    if counted is None:
        return "present, but not used: it contradicts itself or its commit (see deltalog check)"
    return "present" if counted == found else f"present, but counts {plural(counted, 'file')} (see deltalog check)"


def _by_method(calls: Mapping[tuple[str, str], int]) -> dict[str, int]:
    found: collections.Counter[str] = collections.Counter()
    for (method, _), number in calls.items():
        found[method] += number
    return dict(sorted(found.items()))


def _paths(calls: Iterable[tuple[str, str]]) -> list[str]:
    return sorted({path for method, path in calls if method in _READS})


def _calls_text(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {method}" for method, number in calls.items()) or "no calls"
