"""``deltalog convert``, ``clone`` and ``generate``: tables from existing files, and symlink manifests."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from deltalog.cli.options import (
    AtTime,
    AtTimeMs,
    AtVersion,
    Commands,
    Json,
    Table,
    examples,
    open_table,
    pairs,
    storage_options,
    version_or_time,
)
from deltalog.cli.output import Output
from deltalog.errors import CorruptTableError, InvalidPropertyError
from deltalog.presentation.text import bytes_text, plural

_Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="KEY=VALUE", help="A property of the new table. May be repeated."),
]

# SQL type names that Delta's schemas do not use.
_ALIASES = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte", "real": "float"}


def convert(
    table: Table,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by",
            metavar="NAME[:TYPE]",
            help="A partition column that the directory names contain. Specify types for all or for none: string, "
            "integer, long, date, double, timestamp, decimal(10,2) … May be repeated. Default: inferred from the "
            "directories.",
        ),
    ] = None,
    properties: _Properties = None,
    as_json: Json = False,
) -> None:
    """Convert a directory of Parquet files to a table in place: no file is moved, rewritten or deleted.

    Directories such as day=2026-11-20 become partition columns. No process may write to the directory during the
    conversion.
    """
    from deltalog import DeltaTable

    out = Output(as_json)
    with out.working("Reading the footers"):
        made = DeltaTable.convert(
            table, partition_by=_columns(partition_by), properties=pairs("--property", properties), **storage_options()
        )
        snapshot = made.snapshot()
    if as_json:
        out.document(_made(snapshot))
        return
    by = ", partitioned by " + ", ".join(snapshot.partition_columns) if snapshot.partition_columns else ""
    out.print(f"{made.url} is now a table of {_files(snapshot)}{by}.")


def clone(
    table: Table,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The location of the clone.")],
    shallow: Annotated[
        bool, typer.Option("--shallow", help="Copy no files: the clone refers to those of its source.")
    ] = False,
    version: AtVersion = None,
    timestamp: AtTime = None,
    timestamp_ms: AtTimeMs = None,
    properties: _Properties = None,
    as_json: Json = False,
) -> None:
    """Clone a version of a table, with copies of its files.

    A shallow clone copies no files: it refers to the files of its source. A vacuum of the source may delete files that
    the clone needs.
    """
    at = version_or_time(version, timestamp, timestamp_ms)
    out = Output(as_json)
    with out.working("Cloning" if shallow else "Copying the files"):
        made = open_table(table).clone(
            target,
            shallow=shallow,
            **at,
            properties=pairs("--property", properties),
            **storage_options(),
        )
        snapshot = made.snapshot()
    if as_json:
        out.document(_made(snapshot))
        return
    kind = "shallow" if shallow else "deep"
    out.print(f"{made.url} is now a {kind} clone of {_files(snapshot)}.")


def generate(table: Table, as_json: Json = False) -> None:
    """Write symlink manifests of the live files, for engines that do not read the log.

    Later commits do not update the manifests.
    """
    out = Output(as_json)
    with out.working("Writing the manifests"):
        paths = open_table(table).generate()
    if as_json:
        out.documents({"path": path} for path in paths)
    else:
        out.print(f"{plural(len(paths), 'manifest')} written below _symlink_format_manifest.")


def _files(snapshot: Any) -> str:
    return f"{plural(snapshot.num_files, 'file')}, {bytes_text(snapshot.size_bytes)}"


def _made(snapshot: Any) -> dict[str, Any]:
    return {
        "table": snapshot.url,
        "version": snapshot.version,
        "num_files": snapshot.num_files,
        "size_bytes": snapshot.size_bytes,
        "partition_columns": list(snapshot.partition_columns),
    }


def _columns(texts: list[str] | None) -> Any:
    """The column names, or a schema if types are given."""
    from deltalog.schema import StructType

    if texts is None:
        return None
    pairs = [text.partition(":") for text in texts]
    if not any(colon for _, colon, _ in pairs):
        return [name for name, _, _ in pairs]
    types = [_ALIASES.get(kind.strip().lower(), kind.strip().lower()) for _, _, kind in pairs]
    fields = [
        {"name": pair[0], "type": kind, "nullable": True, "metadata": {}}
        for pair, kind in zip(pairs, types, strict=True)
    ]
    try:
        return StructType.from_json(json.dumps({"type": "struct", "fields": fields}))
    except (CorruptTableError, InvalidPropertyError) as error:
        raise typer.BadParameter(f"--partition-by needs NAME:TYPE for every column: {error}") from None


def register(app: Commands) -> None:
    """Add these commands to the application."""
    app.command(
        epilog=examples(
            "deltalog convert events",
            "deltalog convert events --partition-by day:date --property delta.enableInCommitTimestamps=true",
        )
    )(convert)
    app.command(
        epilog=examples("deltalog clone events events-copy", "deltalog clone events trial --shallow --version 3")
    )(clone)
    app.command(epilog=examples("deltalog generate events"))(generate)
