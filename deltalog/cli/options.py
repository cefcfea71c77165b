"""``--option``: storage options for every command that takes a table."""

from __future__ import annotations

import copy
import datetime
import functools
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.main import get_command_name

if TYPE_CHECKING:
    from deltalog import DeltaTable, TransactionManager, VacuumReport

# Options that are strings even if the value looks like a number: credentials and endpoints.
_TEXT = re.compile(r"key|secret|token|pass|user|url|profile|commit|_id")
_JSON = re.compile(r"true|false|null|-?[0-9]+(\.[0-9]+)?|[\[{\"].*", re.S)
_NAME, _FILE = "storage_options", "storage_options_file"
# Parameters, other than storage options, of the calls that open tables.
_RESERVED = frozenset(["self", "url", "create", "environment", "allowed_paths", "idle_timeout", "filesystem"])

Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="A path, file:///…, s3://…, catalog:<catalog>#<name>, or uc://catalog.schema.table."
    ),
]
Catalog = Annotated[
    str,
    typer.Argument(
        metavar="CATALOG", help="The catalog: the path of a SQLite file, dynamodb:<table>, or postgresql://…."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one line per item of a list.")]

_POINTS_IN_TIME = "Point in time (default: the latest version)"
AtVersion = Annotated[
    int | None,
    typer.Option("--version", min=0, metavar="N", help="This version.", rich_help_panel=_POINTS_IN_TIME),
]
AtTime = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="ISO",
        help="The version that was current at this time, such as 2026-11-20T10:00:00Z or '2026-11-20 11:00:00+01:00'.",
        rich_help_panel=_POINTS_IN_TIME,
    ),
]
AtTimeMs = Annotated[
    int | None,
    typer.Option(
        "--timestamp-ms",
        metavar="MS",
        help="The timestamp in milliseconds since 1970-01-01 UTC.",
        rich_help_panel=_POINTS_IN_TIME,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=0, metavar="N", help="At most N; 0 for all. Default: 20, with --json all."),
]

# For every group of commands.
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_GIVEN: ContextVar[dict[str, Any]] = ContextVar("storage_options")
_ON_COMMAND_LINE: ContextVar[tuple[str, ...]] = ContextVar("names_of_options")
_Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="A storage option, such as endpoint_url=http://… or client_kwargs.region_name=eu-west-1. May be repeated.",
        rich_help_panel="Storage",
    ),
]

_OptionsFile = Annotated[
    Path | None,
    typer.Option(
        "--storage-options-file",
        metavar="FILE",
        help="A JSON file with storage options; by_location in it maps location prefixes to options.",
        rich_help_panel="Storage",
    ),
]

F = TypeVar("F", bound=Callable[..., Any])


class Commands(typer.Typer):
    """A command group that adds the storage options (``--option``) to commands with a parameter ``table``."""

    def with_only(self, name: str = "") -> Commands:
        """The group with no other command than ``name``, or the whole group if it has no such command. typer builds the
        parameters of all commands of a group before it calls one of them."""
        chosen = [each for each in self.registered_commands if name == (each.name or _command_name(each.callback))]
        if not chosen:
            return self
        one = copy.copy(self)
        one.registered_commands, one.registered_groups = chosen, []
        return one

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        register = super().command(name, **settings)
        return lambda function: register(
            taking_options(function) if "table" in inspect.signature(function).parameters else function
        )


def _command_name(function: Callable[..., Any] | None) -> str | None:
    return None if function is None else get_command_name(function.__name__)


def taking_options(function: F) -> F:
    """Add ``--option`` and ``--storage-options-file`` to a command; ``storage_options()`` returns their values."""

    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        single = parse_options(named.pop(_NAME) or ())
        token = _GIVEN.set(_together(single, options_in_file(named.pop(_FILE))))
        names = _ON_COMMAND_LINE.set(tuple(single))
        try:
            return function(*arguments, **named)
        finally:
            _GIVEN.reset(token)
            _ON_COMMAND_LINE.reset(names)

    hints = typing.get_type_hints(function, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[name]) for name, parameter in inspect.signature(function).parameters.items()
    ]
    more = inspect.Parameter(_NAME, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Option)
    file = inspect.Parameter(_FILE, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_OptionsFile)
    run.__signature__ = inspect.Signature([*parameters, more, file])  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, _NAME: _Option, _FILE: _OptionsFile}
    return typing.cast(F, run)


def storage_options() -> dict[str, Any]:
    """The storage options of the running command."""
    return _GIVEN.get({})


def given_on_command_line() -> tuple[str, ...]:
    """The names of the storage options that ``--option`` gave to the running command."""
    return _ON_COMMAND_LINE.get(())


def open_table(table: str) -> DeltaTable:
    """Open the table at a location or catalog address with the storage options of the running command."""
    from deltalog import DeltaTable

    return DeltaTable.open(table, storage_options=storage_options())


def vacuum_of(table: str) -> Callable[..., VacuumReport]:
    """``DeltaTable.vacuum`` for a location, ``TransactionManager.vacuum`` for a catalog address."""
    from deltalog import TransactionManager
    from deltalog.addresses import is_address, split_address
    from deltalog.catalog.locate import open_coordinator

    if not is_address(table):
        return open_table(table).vacuum
    url, name = split_address(table)
    options = storage_options()
    manager = TransactionManager(open_coordinator(url, create=False, **options), **options)
    return functools.partial(manager.vacuum, name)


def at_most_one(**options: Any) -> None:
    """Raise BadParameter if more than one of the given options is set."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} are mutually exclusive.")


def version_or_time(version: int | None, timestamp: str | None, timestamp_ms: int | None) -> dict[str, Any]:
    """Convert the command-line options to the arguments ``version`` and ``timestamp``. Raises BadParameter if more than
    one is set."""
    at_most_one(version=version, timestamp=timestamp, timestamp_ms=timestamp_ms)
    return {"version": version, "timestamp": timestamp if timestamp_ms is None else timestamp_ms}


def pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Parse strings of the form KEY=VALUE. Raises BadParameter."""
    parts = [text.partition("=") for text in texts or ()]
    if not all(key and equals for key, equals, _ in parts):
        raise typer.BadParameter(f"{option} needs KEY=VALUE, as in {option} delta.appendOnly=true.")
    return {key: value for key, _, value in parts}


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\n\n".join(["[dim]Examples[/dim]", *lines])


def parse_options(texts: Iterable[str]) -> dict[str, Any]:
    """Parse strings of the form ``NAME=VALUE``. A dotted name refers to a key of a dictionary option. A value that
    looks like JSON is parsed as JSON. Raises BadParameter, whose message contains no values because they may be
    secrets."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        keys = name.split(".")
        if not equals or not all(key.isidentifier() for key in keys):
            raise typer.BadParameter("--option needs NAME=VALUE, as in --option endpoint_url=http://127.0.0.1:9000.")
        if keys[0] in _RESERVED:
            raise typer.BadParameter(f"There is no storage option {keys[0]!r}.")
        place = found
        for key in keys[:-1]:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise typer.BadParameter(f"--option {name}: conflicting values for {key}.")
        place[keys[-1]] = _value(name, keys[-1], value)
    return found


def options_in_file(file: Path | None) -> dict[str, Any]:
    """Read storage options from a file. Raises BadParameter, whose message contains no values because they may be
    secrets."""
    if file is None:
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"--storage-options-file {file}: {error.strerror}.") from None
    except ValueError:
        raise typer.BadParameter(f"--storage-options-file {file} is not JSON.") from None
    if not isinstance(found, dict):
        raise typer.BadParameter(f"--storage-options-file {file} is not a JSON object.")
    for name in found:
        if name in _RESERVED:
            raise typer.BadParameter(f"There is no storage option {name!r}.")
    return found


def _together(single: dict[str, Any], of_file: dict[str, Any]) -> dict[str, Any]:
    if twice := sorted(single.keys() & of_file.keys()):
        raise typer.BadParameter(f"{', '.join(twice)}: set by both --option and --storage-options-file.")
    return {**of_file, **single}


def _value(name: str, key: str, text: str) -> Any:
    if _TEXT.search(key) or not _JSON.fullmatch(text):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise typer.BadParameter(f"--option {name}: the value looks like JSON but is invalid.") from None


def manager_of(
    catalog: str,
    idle_timeout: float | None = None,
    most_ahead: float | None = None,
    *,
    create: bool = False,
    options: dict[str, Any] | None = None,
    postgresql: Any = None,
) -> TransactionManager:
    """Open a catalog. ``create``: whether to create a missing catalog instead of raising an error. ``options``: storage
    options; None: those of the command. ``postgresql``: the limits of a catalog in PostgreSQL."""
    from deltalog import TransactionManager
    from deltalog.catalog.locate import open_coordinator

    options = dict(storage_options() if options is None else options)
    coordinator = open_coordinator(catalog, create=create, postgresql=postgresql, **options)
    if idle_timeout is not None:
        options["idle_timeout"] = datetime.timedelta(seconds=idle_timeout)
    if most_ahead is not None:
        options["most_ahead"] = datetime.timedelta(seconds=most_ahead)
    return TransactionManager(coordinator, **options)
