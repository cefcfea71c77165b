"""``deltalog commit-table``: the DynamoDB tables that coordinate commits on S3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deltalog.cli.options import CONTEXT, examples, storage_options, taking_options
from deltalog.cli.output import Output

if TYPE_CHECKING:
    from deltalog.storage import CommitTable

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The table's name in DynamoDB.")]
_Kind = Annotated[
    str,
    typer.Option(
        "--kind", metavar="dynamo|s3-dynamodb|catalog", help="The commit protocol, the KIND in commit='KIND:NAME'."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    help="The DynamoDB tables that coordinate commits on S3.",
    no_args_is_help=True,
    context_settings=CONTEXT,
)


@app.command(epilog=examples("deltalog commit-table create delta_log --kind s3-dynamodb"))
@taking_options
def create(name: _Name, kind: _Kind = "dynamo", as_json: _Json = False) -> None:
    """Create the table with on-demand billing and expiry of old items, and wait until it is active.

    If the DynamoDB table exists, only the expiry of its items is turned on.
    """
    from deltalog.storage import create_commit_table

    out = Output(as_json)
    with out.working("Waiting for the table"):
        table = create_commit_table(name, kind, **storage_options())
    _show(out, table, as_json)


@app.command(epilog=examples("deltalog commit-table show delta_log --kind s3-dynamodb"))
@taking_options
def show(name: _Name, kind: _Kind = "dynamo", as_json: _Json = False) -> None:
    """Show whether the table exists and has the right keys. Changes nothing."""
    from deltalog.storage import describe_commit_table

    out = Output(as_json)
    _show(out, describe_commit_table(name, kind, **storage_options()), as_json)


def _show(out: Output, table: CommitTable, as_json: bool) -> None:
    if as_json:
        out.document(
            {
                "name": table.name,
                "kind": table.kind,
                "status": table.status,
                "expires": table.expires,
                "created": table.created,
            }
        )
        return
    made = "created" if table.created else "there"
    expiry = {True: "old items expire", False: "old items do NOT expire", None: "whether old items expire is unknown"}
    if table.kind == "catalog":
        out.print(f"{table.name} is {made} ({table.status}). Its catalog is dynamodb://{table.name}.")
        return
    out.print(f"{table.name} is {made} ({table.status}); {expiry[table.expires]}.")
    out.print(f"Open tables with commit='{table.kind}:{table.name}'.")
