"""``deltalog catalog``: the version of a catalog, and its upgrade."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from deltalog.cli.options import examples, storage_options, taking_options
from deltalog.cli.output import Output, facts_of

_Catalog = Annotated[
    str,
    typer.Argument(
        metavar="CATALOG", help="The catalog: the path of a SQLite file, dynamodb:<table>, or postgresql://…."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    help="The version of a catalog, and its upgrade.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.command(epilog=examples("deltalog catalog info bank.db", "deltalog catalog info dynamodb:bank --json"))
@taking_options
def info(catalog: _Catalog, as_json: _Json = False) -> None:
    """Show the version of a catalog's schema, and which version this deltalog uses. Changes nothing."""
    from deltalog.catalog.locate import version_of

    found = version_of(catalog, **storage_options())
    out = Output(as_json)
    if as_json:
        out.document(dataclasses.asdict(found))
        return
    facts: list[tuple[str, Any]] = [
        ("Catalog", found.url),
        ("Kind", found.kind),
        ("Version", str(found.version)),
        ("Supported", str(found.supported)),
    ]
    out.print(facts_of(facts))


@app.command(epilog=examples("deltalog catalog upgrade dynamodb:bank"))
@taking_options
def upgrade(catalog: _Catalog, as_json: _Json = False) -> None:
    """Upgrade a catalog to the version that this deltalog uses.

    Earlier versions of deltalog refuse the catalog from then on. Before the upgrade, stop all programs of earlier
    versions, on all machines. Can be repeated; an interrupted upgrade has taken effect completely or not at all.
    """
    from deltalog.catalog import locate

    before = locate.upgrade(catalog, **storage_options())
    out = Output(as_json)
    if as_json:
        out.document({**dataclasses.asdict(before), "upgraded": before.version < before.supported})
    elif before.version < before.supported:
        out.print(f"{catalog} was upgraded from version {before.version} to {before.supported}.")
    else:
        out.print(f"{catalog} already has version {before.version}.")
