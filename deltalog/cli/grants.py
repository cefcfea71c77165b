"""``deltalog grants``: lists and changes the owners and grants of a catalog that is served."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from deltalog.cli import catalog as catalogs
from deltalog.cli.options import examples, taking_options
from deltalog.cli.output import Output, plain, table_of

if TYPE_CHECKING:
    from deltalog.catalog.records import DocumentChange
    from deltalog.server.access.grants import Grants
    from deltalog.server.access.privileges import Access, Kind
    from deltalog.transactions.unity.tables import UnityTables

_Catalog = Annotated[
    str, typer.Argument(metavar="CATALOG", help="The catalog: the path of a SQLite file, or dynamodb:<table>.")
]
_Principal = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="A principal, or group:<name>.")]
_Privileges = Annotated[
    list[str],
    typer.Argument(
        metavar="PRIVILEGE...",
        help='Privileges, such as SELECT or "USE CATALOG". All are: USE CATALOG, CREATE SCHEMA, CREATE EXTERNAL TABLE, '
        "USE SCHEMA, CREATE TABLE, SELECT, MODIFY.",
    ),
]
_On = Annotated[
    str | None,
    typer.Option("--on", metavar="NAME", help="A schema, or a table: <schema>.<table>. Default: the catalog."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, one line per item of a list.")]

app = typer.Typer(
    help="The owners and grants of a catalog that is served.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


class _Object(NamedTuple):
    """An object with owner and grants. ``shown``: the name that is printed. ``kept``: as for ``Grants.grant``."""

    kind: Kind
    key: str
    shown: str
    kept: Callable[[], Sequence[DocumentChange]]


def _opened(catalog: str) -> tuple[UnityTables, Grants]:
    from deltalog.server.access.grants import Grants
    from deltalog.transactions.unity.settings import UnitySettings

    manager = catalogs.manager_of(catalog)
    return manager.unity_tables(UnitySettings()), Grants(manager.coordinator)


def _object(tables: UnityTables, name: str | None) -> _Object:
    """Raises EntityNotFoundError, CallError."""
    from deltalog.catalog.records import access_key, check_table_name
    from deltalog.server.access.privileges import Kind
    from deltalog.transactions.unity.documents import CATALOG_ACCESS_KEY, schema_access_key

    if name is None:
        return _Object(Kind.CATALOG, CATALOG_ACCESS_KEY, "the catalog", tuple)
    if "." in name:
        full = check_table_name(name)
        return _Object(Kind.TABLE, access_key(tables.table_id(full)), f"the table {full}", tuple)
    tables.check_schema(name)
    return _Object(Kind.SCHEMA, schema_access_key(name), f"the schema {name}", lambda: [tables.kept_schema(name)])


@app.command(
    "list", epilog=examples("deltalog grants list bank.db", "deltalog grants list bank.db --on sales.orders --json")
)
@taking_options
def list_grants(catalog: _Catalog, on: _On = None, as_json: _Json = False) -> None:
    """List the owners and grants of all objects of the catalog, or of one object with --on. Privileges that apply to an
    object because they were granted on its schema or catalog are listed there only.
    """
    (tables, grants), out = _opened(catalog), Output(as_json)
    objects = _all(tables) if on is None else iter([_object(tables, on)])
    found = ((each.shown, grants.of(each.key)) for each in objects)
    if as_json:
        out.documents(_document(name, access) for name, access in found)
        return
    table = table_of()
    for column in ("On", "Principal", "Privileges"):
        table.add_column(column, overflow="fold")
    for name, access in found:
        if access.owner is not None:
            table.add_row(plain(name), plain(access.owner), "owner")
        for principal in sorted(access.grants):
            table.add_row(plain(name), plain(principal), _words(access, principal))
    out.print(table)


def _all(tables: UnityTables) -> Iterator[_Object]:
    """The objects that have an owner or grants."""
    from deltalog.server.access.privileges import Kind

    names = {table_id: name for name, table_id in tables.all_tables()}
    for key in tables.access_keys():
        kind, _, rest = key.partition(" ")
        if kind != "table":
            yield _Object(Kind(kind), key, "the catalog" if kind == "catalog" else f"the schema {rest}", tuple)
        elif rest in names:
            yield _Object(Kind.TABLE, key, f"the table {names[rest]}", tuple)


@app.command(
    epilog=examples(
        'deltalog grants add bank.db alice "USE CATALOG" "USE SCHEMA"',
        "deltalog grants add bank.db group:analysts SELECT --on sales.orders",
    )
)
@taking_options
def add(
    catalog: _Catalog, principal: _Principal, privileges: _Privileges, on: _On = None, as_json: _Json = False
) -> None:
    """Grant privileges on the catalog, a schema or a table."""
    _change(catalog, principal, privileges, on, as_json, is_added=True)


@app.command(epilog=examples("deltalog grants remove bank.db alice MODIFY --on sales.orders"))
@taking_options
def remove(
    catalog: _Catalog, principal: _Principal, privileges: _Privileges, on: _On = None, as_json: _Json = False
) -> None:
    """Revoke privileges that were granted on the catalog, a schema or a table."""
    _change(catalog, principal, privileges, on, as_json, is_added=False)


def _change(
    catalog: str, principal: str, privileges: list[str], on: str | None, as_json: bool, *, is_added: bool
) -> None:
    from deltalog.server.access.grants import GrantChange, privileges_of

    words = privileges_of([each.upper().replace("_", " ") for each in privileges])
    (tables, grants), out = _opened(catalog), Output(as_json)
    found = _object(tables, on)
    change = GrantChange(principal, add=words) if is_added else GrantChange(principal, remove=words)
    access = grants.grant(found.kind, found.key, [change], found.kept)
    if as_json:
        out.document(_document(found.shown, access))
    else:
        has = _words(access, principal) or "no privileges of its own"
        out.print(f"{plain(principal)} has {has} on {plain(found.shown)}.")


@app.command(
    epilog=examples("deltalog grants owner bank.db carol --on sales", "deltalog grants owner bank.db --nobody")
)
@taking_options
def owner(
    catalog: _Catalog,
    principal: Annotated[
        str | None, typer.Argument(metavar="PRINCIPAL", help="The new owner: a principal, or group:<name>.")
    ] = None,
    nobody: Annotated[
        bool,
        typer.Option(
            "--nobody", help="Remove the owner, so that only the owners of the schema and the catalog own the object."
        ),
    ] = False,
    on: _On = None,
    as_json: _Json = False,
) -> None:
    """Change the owner of the catalog, a schema or a table."""
    if (principal is None) != nobody:
        raise typer.BadParameter("Give either a PRINCIPAL or --nobody.")
    (tables, grants), out = _opened(catalog), Output(as_json)
    found = _object(tables, on)
    access = grants.set_owner(found.key, principal, found.kept)
    if as_json:
        out.document(_document(found.shown, access))
    else:
        out.print(f"{plain(principal or 'Nobody')} owns {plain(found.shown)}.")


def _words(access: Access, principal: str) -> str:
    return ", ".join(sorted(each.value for each in access.grants.get(principal, ())))


def _document(name: str, access: Access) -> dict[str, Any]:
    from deltalog.server.access.grants import shown

    return {"on": name.removeprefix("the "), "owner": access.owner, "grants": dict(shown(access))}
