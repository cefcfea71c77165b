"""``deltalog ui``: shows the tables of a catalog, or of directories, in a browser on this machine."""

from __future__ import annotations

import dataclasses
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalog.cli.catalog import server_module
from deltalog.cli.options import Commands, Json, examples, manager_of, open_table
from deltalog.cli.output import Output
from deltalog.presentation.text import plural

if TYPE_CHECKING:
    from deltalog import TransactionManager

_DEEPEST = 4
_MOST_TABLES = 1_000
_CATALOGS = ("catalog:", "sqlite:", "dynamodb:", "postgresql:", "postgres:")
_SCHEMA, _SEPARATOR = "tables", "__"


def register(app: Commands) -> None:
    chosen = examples("deltalog ui catalog.db --open", "deltalog ui lake/", "deltalog ui s3://bucket/events")
    app.command(epilog=chosen)(ui)


def ui(
    table: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="A catalog (the path of a SQLite file, dynamodb:<table>, postgresql://…), or tables: their locations, "
            "or directories in which to look for them.",
        ),
    ],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="N", help="0: a free port.")] = 0,
    rows: Annotated[int, typer.Option("--rows", min=1, max=10_000, metavar="N", help="The most rows on a page.")] = 100,
    browse: Annotated[bool, typer.Option("--open", help="Open the pages in the web browser.")] = False,
    as_json: Json = False,
) -> None:
    """Show tables in a browser: columns, rows of any version, history, timeline, differences of versions, a check.

    Needs pip install 'deltalog\\[server]'. The pages change nothing. They are served on 127.0.0.1 only, until Ctrl-C;
    the printed address contains a new password, without which other users of the machine see nothing. To show the
    tables of a catalog to others, set ui.enabled for deltalog serve.
    """
    import tempfile

    server_module("serve")
    with tempfile.TemporaryDirectory(prefix="deltalog-ui-") as place:
        if len(table) == 1 and _is_catalog(table[0]):
            _run(manager_of(table[0].removeprefix("catalog:")), (), table[0], port, rows, browse, as_json)
            return
        locations = _located(table)
        manager = manager_of(str(Path(place) / "catalog.db"), create=True)
        readable = _registered(manager, locations)
        _run(manager, readable, plural(len(locations), "table"), port, rows, browse, as_json)


def _is_catalog(what: str) -> bool:
    return what.startswith(_CATALOGS) or Path(what).is_file()


def _located(addresses: Sequence[str]) -> dict[str, str]:
    """The locations of the tables, by their names on the pages. Raises CallError if there are none, or too many."""
    from deltalog import CallError

    found: dict[str, str] = {}
    for address in addresses:
        for location in _tables_in(address):
            parts = Path(location).parts if "://" not in location else location.split("/")
            name = parts[-1]
            for number in range(2, len(parts) + 1):
                if name not in found:
                    break
                name = _SEPARATOR.join(parts[-number:])
            found[name] = location
            if len(found) > _MOST_TABLES:
                raise CallError(
                    f"There are more than {_MOST_TABLES} tables in {', '.join(addresses)}. Name some of them."
                )
    if not found:
        raise CallError(f"There is no Delta table in {', '.join(addresses)}.")
    return found


def _tables_in(address: str) -> Iterator[str]:
    """The table at a location, or the tables in a directory and in those below it."""
    if "://" in address or not Path(address).is_dir():
        yield open_table(address).url
        return
    root = os.path.realpath(address)
    for directory, names, _ in os.walk(root):
        if "_delta_log" in names:
            yield directory
            names.clear()
        elif len(Path(directory).relative_to(root).parts) >= _DEEPEST:
            names.clear()
        names[:] = sorted(name for name in names if not name.startswith((".", "_")))


def _registered(manager: TransactionManager, locations: dict[str, str]) -> tuple[str, ...]:
    """Register tables with a catalog that has been made for them; returns where its server may read."""
    from deltalog.transactions.unity.locations import location_of
    from deltalog.transactions.unity.settings import UnitySettings

    tables = manager.unity_tables(UnitySettings())
    tables.create_schema(_SCHEMA, None, {})
    for name, location in locations.items():
        tables.register_external(f"{_SCHEMA}.{name}", location_of(location), "DELTA", None, {}, [], None, ())
    return tuple(locations.values())


def _run(
    manager: TransactionManager,
    readable: tuple[str, ...],
    what: str,
    port: int,
    rows: int,
    browse: bool,
    as_json: bool,
) -> None:
    """Serve the pages until the process is asked to end."""
    serve, settings, logs = (server_module(name) for name in ("serve", "settings", "logs"))
    pages = server_module("ui.settings")
    token = secrets.token_urlsafe(24)
    chosen: Any = settings.Settings(
        port=port,
        token=token,
        recover_seconds=0,
        ui=pages.UiSettings(enabled=True, rows=rows),
        is_read_only=True,
    )
    chosen = dataclasses.replace(chosen, unity=dataclasses.replace(chosen.unity, readable=readable))
    made = serve.Server(manager, chosen)
    out = Output(as_json)
    address = made.url.replace("://", f"://ui:{token}@", 1) + "/ui/"
    with made.signals():
        if as_json:
            out.document({"url": f"{made.url}/ui/", "password": token, "pid": os.getpid()})
        else:
            out.print(f"{what} at {address}")
            out.print("The address contains a password. Ctrl-C ends the server.")
        sys.stdout.flush()
        logs.configure("warning")
        if browse:
            import webbrowser

            webbrowser.open(address)
        made.run(is_process=True)
    if status := made.end_process():
        raise typer.Exit(status)
