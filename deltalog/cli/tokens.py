"""``deltalog tokens``: makes, lists and revokes the tokens for the servers of a catalog."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalog.cli.options import CONTEXT, Catalog, Json, examples, storage_options, taking_options
from deltalog.cli.output import Output, facts_of, plain, report_warning, table_of
from deltalog.presentation.text import plural

if TYPE_CHECKING:
    from deltalog.catalog.coordinator import Coordinator
    from deltalog.server.access.issued import Issued

_NEVER = "never"

app = typer.Typer(
    help="Tokens and access keys for the servers of a catalog.",
    no_args_is_help=True,
    context_settings=CONTEXT,
)


def _coordinator(catalog: str, *, create: bool = False) -> Coordinator:
    from deltalog.catalog.locate import open_coordinator

    return open_coordinator(catalog, create=create, **storage_options())


@app.command(
    epilog=examples(
        "deltalog tokens create bank.db --principal etl --scope write --expires 90d",
        "deltalog tokens create bank.db --principal root --admin --output root.token",
        "deltalog tokens create bank.db --principal etl --aws --key-file sigv4.key --json",
    )
)
@taking_options
def create(
    catalog: Catalog,
    principal: Annotated[
        str,
        typer.Option(
            "--principal",
            metavar="NAME",
            help="The principal that the token authenticates. Grants are made to principals.",
        ),
    ],
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME", help="A group of the principal. May be repeated."),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(
            "--scope",
            metavar="read|write|admin",
            help="The most that the token permits, even if its principal has more rights. Default: write; with "
            "--admin: admin.",
        ),
    ] = None,
    expires: Annotated[
        str, typer.Option("--expires", metavar="DURATION", help="When it expires: 90d, 12h, 30m, or never.")
    ] = "90d",
    admin: Annotated[bool, typer.Option("--admin", help="The principal is an administrator with this token.")] = False,
    label: Annotated[str, typer.Option("--label", metavar="TEXT", help="What the token is for.")] = "",
    aws: Annotated[
        bool, typer.Option("--aws", help="Make an access key for AWS signatures instead of a token.")
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", metavar="FILE", help="With --aws: the file with the server's key for signatures."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the secret to a new file instead of showing it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token, and print it once: the catalog stores only its hash.

    Creates the catalog if it does not exist. Once a token was made, the servers of the catalog refuse callers who do
    not authenticate. Several tokens of a principal are valid at once, so that one can replace another.
    """
    from deltalog.server.access import issued
    from deltalog.server.access.authentication import server_key
    from deltalog.server.access.principals import Scope, scope_of

    if aws != (key_file is not None):
        raise typer.BadParameter("--aws and --key-file must be given together.")
    most = (Scope.ADMIN if admin else Scope.WRITE) if scope is None else scope_of(scope)
    lifetime = None if expires == _NEVER else issued.duration_of(expires)
    key = None if key_file is None else server_key(key_file)
    coordinator = _coordinator(catalog, create=True)
    with _SecretFile(output) as file:
        made = issued.issue(
            coordinator, principal, groups=group or (), scope=most, is_admin=admin, label=label, expires=lifetime,
            server_key=key,
        )  # fmt: skip
        file.write(str(made.secret))
    name = "secret_access_key" if aws else "token"
    if as_json:
        shown = {} if output is not None else {name: made.secret}
        Output(as_json).document({**_described(made), **shown})
        return
    facts = [("Id", made.id), ("Principal", principal), ("Scope", made.credential.scope), ("Expires", _expiry(made))]
    Output(as_json).print(facts_of([*facts, ("Administrator", "yes")] if admin else facts))
    if output is None:
        what = "Secret access key" if aws else "Token"
        Output(as_json).print("", f"{what} (shown only once):", str(made.secret))
    else:
        Output(as_json).print("", f"The secret is in {output}.")


@app.command("list", epilog=examples("deltalog tokens list bank.db", "deltalog tokens list bank.db --json"))
@taking_options
def list_tokens(
    catalog: Catalog,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="NAME", help="Only those of this principal.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the tokens and access keys of a catalog, without their secrets."""
    from deltalog.server.access import issued

    out = Output(as_json)
    every = issued.issued(_coordinator(catalog))
    found = (each for each in every if principal in (None, each.credential.principal))
    if as_json:
        out.documents(map(_described, found))
        return
    table = table_of()
    for column in ("Id", "Principal", "Groups", "Scope", "Expires (UTC)", "Label"):
        table.add_column(column, no_wrap=column == "Id")
    for each in found:
        made = each.credential
        scope = f"{made.scope}, administrator" if made.is_admin else made.scope
        cells = (each.id, made.principal, ", ".join(made.groups), scope, _expiry(each), made.label)
        table.add_row(*map(plain, cells))
    out.print(table)


@app.command(
    epilog=examples(
        "deltalog tokens revoke bank.db 7fQ2mZ0aLx9B",
        "deltalog tokens revoke bank.db --principal etl",
        "deltalog tokens revoke bank.db --expired",
    )
)
@taking_options
def revoke(
    catalog: Catalog,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The ids of the tokens, not the tokens.")
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="NAME", help="All tokens of this principal.")
    ] = None,
    expired: Annotated[bool, typer.Option("--expired", help="All tokens that have expired.")] = False,
    as_json: Json = False,
) -> None:
    """Revoke tokens and access keys: servers refuse them within five seconds."""
    from deltalog.server.access import issued, token_text

    if not ids and principal is None and not expired:
        raise typer.BadParameter("Specify ids of tokens, --principal or --expired.")
    meant = []
    for each in ids or ():
        id_ = token_text.id_of(each)
        if id_ is not None:
            report_warning(
                "UserWarning",
                f"A token was given instead of its id, which is {id_}. Give ids, because other users of the machine "
                "can "
                "see command lines.",
                as_json,
            )
        meant.append(id_ or each)
    now_ms = time.time_ns() // 1_000_000 if expired else None
    done = issued.revoke(_coordinator(catalog), meant, principal=principal, expired_ms=now_ms)
    if as_json:
        Output(as_json).documents(map(_described, done))
    else:
        Output(as_json).print(f"{plural(len(done), 'token')} revoked.")


class _SecretFile:
    """A new file that only its owner can read. It is deleted again if nothing was written to it. Without a path, there
    is no file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: Any = None

    def __enter__(self) -> _SecretFile:
        if self._path is not None:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._file = os.fdopen(descriptor, "w", encoding="ascii")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._path is not None:
            self._file.close()
            if kind is not None:
                self._path.unlink()

    def write(self, secret: str) -> None:
        if self._file is not None:
            self._file.write(f"{secret}\n")


def _described(each: Issued) -> dict[str, Any]:
    made = each.credential
    return {
        "id": each.id,
        "kind": "token" if made.salt is None else "access key",
        "principal": made.principal,
        "groups": list(made.groups),
        "scope": made.scope,
        "is_admin": made.is_admin,
        "label": made.label,
        "created_ms": made.created_ms,
        "expires_ms": made.expires_ms,
    }


def _expiry(each: Issued) -> str:
    from deltalog.protocol.timestamps import to_iso

    made = each.credential
    if made.expires_ms is None:
        return _NEVER
    is_over = made.is_expired(time.time_ns() // 1_000_000)
    return f"{to_iso(made.expires_ms)}{', expired' if is_over else ''}"
