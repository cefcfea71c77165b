"""``deltalog serve``, ``deltalog txn`` and ``deltalog tables``: catalogs, their tables and transactions."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalog.cli.options import (
    CONTEXT,
    Catalog,
    Json,
    examples,
    given_on_command_line,
    manager_of,
    options_in_file,
    storage_options,
    taking_options,
)
from deltalog.cli.output import Output, facts_of, plain, report_warning, table_of

if TYPE_CHECKING:
    from deltalog import TransactionManager
    from deltalog.catalog.coordinator import Coordinator
    from deltalog.catalog.records import Head, TableRecord
    from deltalog.transactions import Resync, TransactionDescription

TOKEN_VARIABLE = "DELTALOG_SERVER_TOKEN"

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The table's name: <database>.<table>.")]
_Id = Annotated[str, typer.Argument(metavar="ID", help="The transaction's id.")]
_Seconds = Annotated[
    float | None,
    typer.Option(
        "--idle-timeout",
        min=0.001,
        max=1e9,
        metavar="SECONDS",
        help="Abort a transaction after this time without activity. Default: 1800.",
    ),
]

txn = typer.Typer(help="Transactions over several tables.", no_args_is_help=True, context_settings=CONTEXT)
tables = typer.Typer(help="The tables of a catalog.", no_args_is_help=True, context_settings=CONTEXT)


# ---------------------------------------------------------------------------------------------- transactions


@txn.command(
    epilog=examples("deltalog txn start bank.db", "deltalog txn start bank.db --serializable --idle-timeout 60")
)
@taking_options
def start(
    catalog: Catalog,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Read all tables at one instant; refuse writes.")
    ] = False,
    serializable: Annotated[
        bool, typer.Option("--serializable", help="Fail the commit if a table that was read has changed.")
    ] = False,
    idle_timeout: _Seconds = None,
    as_json: Json = False,
) -> None:
    """Start a transaction and print its id, which other processes can use."""
    manager = manager_of(catalog, idle_timeout)
    made = manager.start_transaction(
        "READ_ONLY" if read_only else "READ_AND_WRITE", isolation="SERIALIZABLE" if serializable else "SNAPSHOT"
    )
    if as_json:
        Output(as_json).document(_described(manager.describe_transaction(made)))
    else:
        Output(as_json).print(made)


@txn.command(epilog=examples("deltalog txn commit bank.db 8b5beda6-c230-49bb-8d34-4b0aca1c4482"))
@taking_options
def commit(catalog: Catalog, transaction_id: _Id, as_json: Json = False) -> None:
    """Commit a transaction: either all of its changes become the next versions of their tables, or none does.
    Idempotent."""
    manager, out = manager_of(catalog), Output(as_json)
    with out.working("Committing"):
        manager.commit_transaction(transaction_id)
    _show(out, manager.describe_transaction(transaction_id))


@txn.command(epilog=examples("deltalog txn cancel bank.db 8b5beda6-c230-49bb-8d34-4b0aca1c4482"))
@taking_options
def cancel(catalog: Catalog, transaction_id: _Id, as_json: Json = False) -> None:
    """Cancel a transaction: none of its changes take effect, and the files that it wrote are deleted. Idempotent."""
    manager = manager_of(catalog)
    manager.cancel_transaction(transaction_id)
    _show(Output(as_json), manager.describe_transaction(transaction_id))


@txn.command(epilog=examples("deltalog txn extend bank.db 8b5beda6-c230-49bb-8d34-4b0aca1c4482"))
@taking_options
def extend(catalog: Catalog, transaction_id: _Id, as_json: Json = False) -> None:
    """Record activity of a transaction, so that it is not aborted by its idle timeout."""
    manager = manager_of(catalog)
    manager.extend_transaction(transaction_id)
    _show(Output(as_json), manager.describe_transaction(transaction_id))


@txn.command(epilog=examples("deltalog txn describe bank.db 8b5beda6-c230-49bb-8d34-4b0aca1c4482 --json"))
@taking_options
def describe(catalog: Catalog, transaction_id: _Id, as_json: Json = False) -> None:
    """Show the state of a transaction."""
    _show(Output(as_json), manager_of(catalog).describe_transaction(transaction_id))


@txn.command(
    "list",
    epilog=examples("deltalog txn list bank.db --status ACTIVE", "deltalog txn list dynamodb:bank --limit 20 --json"),
)
@taking_options
def list_transactions(
    catalog: Catalog,
    status: Annotated[
        str, typer.Option("--status", metavar="ALL|COMPLETED|ACTIVE|COMMITTED|ABORTED", help="Only those.")
    ] = "ALL",
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, metavar="N", help="At most N; 0 for all. Default: 20, with --json all."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the transactions of a catalog, oldest first."""
    out = Output(as_json)
    found = _transactions(manager_of(catalog), status.upper(), out.shown(limit))
    if as_json:
        out.documents(map(_described, found))
        return
    table = table_of()
    for column in ("Id", "Status", "Type", "Started (UTC)", "Ended (UTC)"):
        table.add_column(column, no_wrap=True)
    for each in found:
        ended = "" if each.end_ms is None else _time(each.end_ms)
        table.add_row(each.transaction_id, each.status.value, each.type.value, _time(each.start_ms), ended)
    out.print(table)


def _transactions(manager: TransactionManager, status: str, limit: int | None) -> Iterator[TransactionDescription]:
    token, remaining = None, limit
    while True:
        page = manager.list_transactions(status, min(1000, remaining or 1000), token)
        shown = page.transactions[:remaining]
        yield from shown
        remaining = None if remaining is None else remaining - len(shown)
        token = page.next_token
        if token is None or remaining == 0:
            return


def _show(out: Output, found: TransactionDescription) -> None:
    if out.as_json:
        out.document(_described(found))
        return
    facts = [
        ("Transaction", found.transaction_id),
        ("Status", found.status.value),
        ("Type", found.type.value),
        ("Started", _time(found.start_ms)),
    ]
    if found.end_ms is not None:
        facts.append(("Ended", _time(found.end_ms)))
    if found.reason is not None:
        facts.append(("Reason", found.reason))
    out.print(facts_of(facts))


def _described(found: TransactionDescription) -> dict[str, Any]:
    return {
        "transaction_id": found.transaction_id,
        "status": found.status.value,
        "type": found.type.value,
        "start_ms": found.start_ms,
        "end_ms": found.end_ms,
        "reason": found.reason,
    }


def _time(ms: int) -> str:
    from deltalog.protocol.timestamps import to_iso

    return to_iso(ms)


# ---------------------------------------------------------------------------------------------------- tables


@tables.command(epilog=examples("deltalog tables register bank.db bank.accounts /data/accounts"))
@taking_options
def register(
    catalog: Catalog,
    name: _Name,
    location: Annotated[str, typer.Argument(metavar="TABLE", help="The table's location: a path, or s3://….")],
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="The other catalog that manages the table is gone, or was this one earlier."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Add an existing table to a catalog, by a commit that adds the required table feature.

    From then on, the table is read and written only through the catalog. Creates the catalog if it does not exist. A
    table that is managed by another catalog is refused: release it there. ``--take-over`` is for a catalog that is
    gone, or that was this one before it was restored from a backup.
    """
    manager, out = manager_of(catalog, create=True), Output(as_json)
    with out.working("Registering the table"):
        manager.register_table(name, location, take_over=take_over)
    record, head = manager.ratified(name)
    if as_json:
        out.document(_shown(record, head))
    else:
        out.print(f"{record.name} is managed by {manager.coordinator.url} since version {head.version}.")


@tables.command("list", epilog=examples("deltalog tables list bank.db", "deltalog tables list dynamodb:bank --json"))
@taking_options
def list_tables(catalog: Catalog, as_json: Json = False) -> None:
    """List the tables of a catalog with their locations and latest versions."""
    manager, out = manager_of(catalog), Output(as_json)
    found = [manager.ratified(record.name) for record in manager.list_tables()]
    if as_json:
        out.documents(_shown(record, head) for record, head in found)
        return
    table = table_of()
    table.add_column("Name", no_wrap=True)
    for column in ("Version", "Unpublished"):
        table.add_column(column, no_wrap=True, justify="right")
    table.add_column("Location", overflow="fold")  # the longest column comes last, so that the others are not cut
    for record, head in found:
        table.add_row(plain(record.name), str(head.version), str(len(head.unpublished)), plain(record.url))
    out.print(table)


@tables.command(epilog=examples("deltalog tables drop bank.db bank.accounts"))
@taking_options
def drop(catalog: Catalog, name: _Name, as_json: Json = False) -> None:
    """Publish all commits of a table and remove it from a catalog. The files of the table are kept; ``register`` adds
    the table again."""
    manager, out = manager_of(catalog), Output(as_json)
    record, head = manager.ratified(name)
    manager.drop_table(name)
    if as_json:
        out.document({"name": record.name, "url": record.url, "version": head.version})
    else:
        out.print(f"{record.name} is no longer in the catalog; its files stay at {record.url}.")


@tables.command(epilog=examples("deltalog tables release bank.db bank.accounts"))
@taking_options
def release(catalog: Catalog, name: _Name, as_json: Json = False) -> None:
    """Release a table from a catalog: a commit removes the table feature catalogManaged, and the table is removed from
    the catalog.

    After the release, any engine can read and write the table by its path. If interrupted, run it again.
    """
    manager, out = manager_of(catalog), Output(as_json)
    record, _ = manager.ratified(name)
    with out.working("Releasing the table"):
        manager.release_table(name)
    if as_json:
        out.document({"name": record.name, "url": record.url})
    else:
        out.print(f"{record.name} is no longer in the catalog; read and write it by its path, {record.url}.")


@tables.command(epilog=examples("deltalog tables publish bank.db bank.accounts"))
@taking_options
def publish(catalog: Catalog, name: _Name, as_json: Json = False) -> None:
    """Copy ratified commits of a table to its log, as writers do after every commit."""
    manager, out = manager_of(catalog), Output(as_json)
    count = manager.publish(name)
    record, head = manager.ratified(name)
    if as_json:
        out.document({**_shown(record, head), "published": count})
    else:
        out.print(f"{record.name}: {count} commits were published; the log is at version {head.published_version}.")


@tables.command("restart-timestamps", epilog=examples("deltalog tables restart-timestamps bank.db bank.accounts"))
@taking_options
def restart_timestamps(catalog: Catalog, name: _Name, as_json: Json = False) -> None:
    """Restart in-commit timestamps from the current time, for a table whose last timestamp is ahead of the clock."""
    manager, out = manager_of(catalog), Output(as_json)
    version = manager.restart_timestamps(name)
    if as_json:
        out.document({**_shown(*manager.ratified(name)), "restartedAt": version})
    else:
        out.print(f"{name}: in-commit timestamps restart from the current time at version {version}.")


@tables.command(epilog=examples("deltalog tables recover bank.db --retention-days 7"))
@taking_options
def recover(
    catalog: Catalog,
    retention: Annotated[
        float,
        typer.Option(
            "--retention-days",
            min=0,
            max=1e8,
            metavar="DAYS",
            help="Remove the records of transactions that ended longer ago than this.",
        ),
    ] = 30,
    as_json: Json = False,
) -> None:
    """Clean up after processes that died: publish ratified commits, abort timed-out transactions, and delete the files
    of these transactions."""
    manager, out = manager_of(catalog), Output(as_json)
    with out.working("Recovering"):
        done = manager.recover(datetime.timedelta(days=retention))
    if as_json:
        out.document(done)
    else:
        out.print(
            f"{done['published']} commits published, {done['aborted']} transactions aborted, {done['cleaned']} "
            f"leftovers deleted, {done['forgotten']} transactions forgotten."
        )


@tables.command(
    epilog=examples(
        "deltalog tables resync bank.db --dry-run", "deltalog tables resync bank.db --keep-log bank.accounts"
    )
)
@taking_options
def resync(
    catalog: Catalog,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the differences without changing anything.")] = False,
    staged: Annotated[
        list[str] | None,
        typer.Option(
            "--staged",
            metavar="FILE",
            help="Accept this staged commit, whose ratification is unknown. May be repeated.",
        ),
    ] = None,
    keep_log: Annotated[
        list[str] | None,
        typer.Option("--keep-log", metavar="NAME", help="If log and catalog diverge, keep the log of this table."),
    ] = None,
    as_json: Json = False,
) -> None:
    """From the logs of its tables, update a catalog that was restored from a backup.

    Adds the commits that are in the logs but not in the catalog. If a table cannot be updated, it is listed with the
    reason, and the exit status is 1.
    """
    manager, out = manager_of(catalog), Output(as_json)
    with out.working("Comparing the catalog with its logs"):
        done = manager.resync(dry_run=dry_run, staged=staged or (), keep_log=keep_log or ())
    if as_json:
        out.document({"in_step": done.is_in_step, "dry_run": dry_run, **dataclasses.asdict(done)})
    else:
        _show_resync(out, done, dry_run)
    if any(each.problem for each in done.tables):
        raise typer.Exit(1)


def _show_resync(out: Output, done: Resync, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    for each in done.tables:
        if each.problem is not None:
            out.print(f"{each.name}: {each.problem}")
        elif each.added:
            out.print(
                f"{each.name}: {each.added} commits {would}added to the catalog, versions {each.catalog_version + 1} "
                f"to {each.catalog_version + each.added}."
            )
        for file in each.in_doubt:
            out.print(
                f"{each.name}: {file} is staged, but it is unknown whether it was ratified. Accept it with --staged."
            )
    for id_ in done.committed:
        out.print(f"Transaction {id_} is {would}recorded as committed.")
    for id_ in done.aborted:
        out.print(f"Transaction {id_} is {would}aborted: it was active when the backup was made.")
    if done.is_in_step:
        out.print("The catalog and the logs of its tables agree.")


def _shown(record: TableRecord, head: Head) -> dict[str, Any]:
    return {
        "name": record.name,
        "url": record.url,
        "table_id": record.table_id,
        "version": head.version,
        "unpublished": len(head.unpublished),
    }


# ---------------------------------------------------------------------------------------------------- server


@taking_options
def serve(
    catalog: Annotated[
        str | None,
        typer.Argument(
            metavar="CATALOG",
            help="The catalog: the path of a SQLite file, dynamodb:<table>, or postgresql://…. Default: catalog.url of "
            "--config.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="The configuration file, in TOML; other options override it."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="A setting of the configuration, such as limits.threads=32. May be repeated.",
        ),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", metavar="URL", help="The location below which clients create managed tables."),
    ] = None,
    catalog_name: Annotated[
        str | None,
        typer.Option("--catalog-name", metavar="NAME", help="Its name in Unity Catalog's API. Default: main."),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="The address to listen on. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, metavar="N", help="0: a free port. Default: 8750.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help=f"File with the bearer token. Or {TOKEN_VARIABLE}."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="A certificate, PEM.")] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The private key of the certificate, PEM.")
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option("--tls-client-ca", metavar="FILE", help="The CA that must have signed client certificates."),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level", metavar="error|warning|info", help="The lowest log level that is printed. Default: info."
        ),
    ] = None,
    check_config: Annotated[
        bool,
        typer.Option("--check-config", help="Check the configuration and print it, without secrets; do not serve."),
    ] = False,
    check_catalog: Annotated[
        bool, typer.Option("--check-catalog", help="With --check-config: also check that the catalog answers.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Serve a catalog: Unity Catalog's API for Delta tables, and the transaction calls of AWS Lake Formation.

    Creates the catalog if there is none. Needs pip install 'deltalog\\[server]'. Listens on 127.0.0.1 unless another
    address is given; other addresses need a token or TLS. SIGHUP reloads the configuration. On SIGTERM or Ctrl-C, the
    server answers the running calls and then exits.
    """
    server = server_module("config")
    above = _set(server, settings)
    flags = {
        ("catalog", "url"): catalog, ("unity", "warehouse"): warehouse, ("unity", "catalog"): catalog_name,
        ("listen", "host"): host, ("listen", "port"): port, ("tokens", "token_file"): token_file,
        ("tls", "certificate_file"): tls_cert, ("tls", "key_file"): tls_key, ("tls", "client_ca_file"): tls_client_ca,
        ("process", "log_level"): log_level,
    }  # fmt: skip
    for (section, key), value in flags.items():
        if value is not None:
            above = server.merged(above, {section: {key: str(value) if isinstance(value, Path) else value}})
    with _as_usage():
        server.read(above, "The command line")
    if config is None and (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("TLS needs --tls-cert and --tls-key.")
    if check_config:
        _check_configuration(config, above, check_catalog, as_json)
        return
    source = server.Configuration(config, above)
    if not source.config.catalog.url:
        raise typer.BadParameter(
            "No catalog is given. Give it as CATALOG, or as url in [catalog] of the configuration."
        )
    _serve(source, as_json)


def _set(server: Any, texts: list[str] | None) -> dict[str, Any]:
    """The settings from ``--set``. Raises BadParameter."""
    found: dict[str, Any] = {}
    with _as_usage():
        for text in texts or ():
            found = server.merged(found, server.set_of(text))
    return found


@contextlib.contextmanager
def _as_usage() -> Iterator[None]:
    from deltalog import CallError

    try:
        yield
    except CallError as error:
        raise typer.BadParameter(str(error)) from None


def _serve(source: Any, as_json: bool) -> None:
    """Run the configured server until the process is asked to end."""
    config, serve, logs = server_module("config"), server_module("serve"), server_module("logs")
    found = source.config
    read = source.settings()
    manager = manager_of(
        found.catalog.url,
        found.catalog.idle_timeout_seconds,
        found.catalog.most_ahead_seconds,
        create=True,
        options={**config.storage_options_of(found.storage, _options_in), **storage_options()},
        postgresql=found.catalog.postgresql,
    )
    made = serve.Server(manager, read, source)
    out = Output(as_json)
    warnings = [*made.warnings, *config.exposed(config.files_of(found)), *_on_command_line(config)]
    for warning in warnings:
        report_warning("UserWarning", warning, as_json)
    with made.signals():  # a program may send signals as soon as it has read the first line
        if as_json:
            out.document({"url": made.url, "pid": os.getpid(), "catalog": found.catalog.url})
        else:
            out.print(f"{found.catalog.url} is served at {made.url}")
        sys.stdout.flush()
        logs.configure(found.process.log_level)
        made.run(is_process=True)
    if status := made.end_process():
        raise typer.Exit(status)


def _on_command_line(config: Any) -> list[str]:
    """A warning if a value of ``--option`` is a secret."""
    if not any(config.is_secret(name) for name in given_on_command_line()):
        return []
    return [
        "Every user of the machine can list the arguments of its processes: give secret storage options in the file of "
        "--storage-options-file or in [storage] of --config."
    ]


def _check_configuration(file: Path | None, above: dict[str, Any], catalog: bool, as_json: bool) -> None:
    checks = server_module("config_checks")
    found = checks.check(file, above, _options_in, _answering if catalog else None)
    out = Output(as_json)
    if as_json:
        out.document(dataclasses.asdict(found))
    else:
        for section, settings in found.configuration.items():
            out.print(f"[{section}]")
            for key, value in ((key, value) for key, value in settings.items() if value is not None):
                out.print(f"{key} = {plain(json.dumps(value, ensure_ascii=False))}")
        for each in found.warnings:
            out.print(f"Warning: {plain(each)}")
        for each in found.problems:
            out.print(f"Problem: {plain(each)}")
        out.print("The configuration is valid." if found.ok else "The configuration is invalid.")
    if not found.ok:
        raise typer.Exit(1)


def _options_in(file: Path) -> dict[str, Any]:
    """The storage options in a file that the configuration names. Raises CallError."""
    from deltalog import CallError

    try:
        return options_in_file(file)
    except typer.BadParameter as error:
        raise CallError(error.message.removeprefix("--storage-options-file ")) from None


def _answering(found: Any, options: dict[str, Any]) -> Coordinator | None:
    """The catalog of some settings; None if opening it would upgrade it, so that servers of the earlier version fail.
    Raises DeltaLogError unless it exists and answers."""
    from deltalog.catalog.locate import version_of

    options = {**options, **storage_options()}
    version = version_of(found.url, **options)
    if version.kind == "SQLite" and version.version < version.supported:
        return None
    manager = manager_of(found.url, options=options, postgresql=found.postgresql)
    manager.check()
    return manager.coordinator


def server_module(name: str) -> Any:
    from deltalog import CallError

    try:
        return importlib.import_module(f"deltalog.server.{name}")
    except ImportError as error:
        raise CallError(f"The server needs the extra 'server' ({error}): pip install 'deltalog[server]'.") from None
