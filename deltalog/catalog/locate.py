"""Resolves the URL of a catalog to its coordinator, the address of a table to its store, and a store to its committer.

Spec: PROTOCOL.md#table-discovery.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from deltalog.commit.committer import Committer, FileSystemCommitter
from deltalog.environment import Environment
from deltalog.errors import CallError, EntityNotFoundError, TableNotFoundError
from deltalog.log.loader import load_latest
from deltalog.log.reader import LogReader
from deltalog.operations.table_handle import TableHandle
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.storage.locations import options_at
from deltalog.storage.registry import CATALOG_SCHEME, Location, open_store, spread
from deltalog.storage.secrets import check_location

if TYPE_CHECKING:
    from deltalog.catalog.coordinator import Coordinator
    from deltalog.catalog.store import ManagedStore

_SQLITE = re.compile(r"sqlite:(/*)(.*)", re.S)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open_coordinator(url: str, *, create: bool = True, **options: Any) -> Coordinator:
    """Open the coordinator at ``url``: a path or ``sqlite:////absolute/path`` for a SQLite file, ``dynamodb:<table>``
    for a DynamoDB table. ``options``: those of S3.

    Raises CallError; EntityNotFoundError if there is no catalog and ``create`` is false. Cost: that of the
    coordinator's constructor.
    """
    check_location(url)
    if url.startswith("dynamodb:"):
        from deltalog.catalog.dynamodb import DynamoDBCoordinator

        found = options_at(url, spread(options))
        return DynamoDBCoordinator(url.removeprefix("dynamodb:").lstrip("/"), found, create=create)
    from deltalog.catalog.sqlite import SQLiteCoordinator

    return SQLiteCoordinator(_sqlite_path(url), create=create)


def _sqlite_path(url: str) -> str:
    """The path in the URL of a SQLite catalog."""
    if url.startswith(CATALOG_SCHEME):
        raise CallError(f"{url} is the address of a table, not a catalog. Use the part between 'catalog:' and '#'.")
    if found := _SQLITE.match(url):
        slashes, path = found.groups()
        if len(slashes) != 4 or not path:
            # Three slashes mean a relative path in SQLAlchemy and an absolute one in other URLs. A wrong guess would
            # create an empty catalog next to the intended one.
            raise CallError(
                f"{url} is ambiguous: the file may be in the working directory or in the root directory. Write "
                f"{path or 'catalog.db'} for the former, sqlite:////{path or 'catalog.db'} for the latter."
            )
        return f"/{path}"
    if _URL.match(url):
        raise CallError(
            f"{url} is not a catalog. Specify the path of a SQLite file, such as catalog.db or "
            "sqlite:////data/catalog.db, or dynamodb:<table>."
        )
    return url


def open_location(url: Location, **options: Any) -> LogStore:
    """The store of the table at a location or an address. ``options``: as for ``open_store``. Raises and costs as
    ``open_managed`` and ``open_store``."""
    return open_managed(url, **spread(options)) if is_address(url) else open_store(url, **options)


def committer_of(store: LogStore, environment: Environment) -> Committer:
    """The committer of the table at a store. Cost: none."""
    if store.catalog is not None:
        from deltalog.catalog.committer import CatalogCommitter
        from deltalog.catalog.store import ManagedStore

        if isinstance(store, ManagedStore):
            return CatalogCommitter(store, environment.new_uuid)
    return FileSystemCommitter(store)


def open_handle(url: Location, allowed_paths: Sequence[str], environment: Environment, **options: Any) -> TableHandle:
    """A handle on the table at a location or an address, at its latest version. As ``DeltaTable.open``."""
    reader = LogReader(open_location(url, **options), allowed_paths, environment.clock_ms)
    return handle_on_latest(reader, environment)


def handle_on_latest(reader: LogReader, environment: Environment) -> TableHandle:
    """A handle on the table of a reader, at its latest version. Raises the errors of ``load_latest``. Cost: that of
    ``load_latest``."""
    return handle_on(reader, environment, Snapshot(load_latest(reader)))


def handle_on(reader: LogReader, environment: Environment, latest: Snapshot) -> TableHandle:
    """The state of a handle on the table of a reader, which is not part of a transaction over several tables.
    Cost: none."""
    return TableHandle(reader, committer_of(reader.store, environment), environment, latest)


def is_address(url: object) -> TypeGuard[str]:
    """Whether ``url`` is the address of a table in a catalog: ``catalog:<url of the catalog>#<name of the table>``."""
    return isinstance(url, str) and url.startswith(CATALOG_SCHEME)


def split_address(address: str) -> tuple[str, str]:
    """Split an address into the URL of the catalog and the name of the table. Raises CallError. Cost: none."""
    check_location(address)
    url, mark, name = address.removeprefix(CATALOG_SCHEME).rpartition("#")
    if not (url and mark):
        raise CallError(f"{address} is not the address of a table: write catalog:<catalog>#<name>.")
    return url, name


def open_managed(address: str, **options: Any) -> ManagedStore:
    """The store of the table at an address. Raises CallError; TableNotFoundError, caused by EntityNotFoundError if
    there is no such catalog or table. Cost: 1 coordinator call."""
    from deltalog.catalog.records import check_table_name
    from deltalog.catalog.store import ManagedStore

    url, name = split_address(address)
    full = check_table_name(name)
    try:
        coordinator = open_coordinator(url, create=False, **options)
    except EntityNotFoundError as error:
        raise TableNotFoundError(f"{address} is not a table: {error.message}") from error
    record = coordinator.table(full)
    if record is None:
        message = f"The catalog {coordinator.url} has no table {full}."
        raise TableNotFoundError(message) from EntityNotFoundError(message)
    return ManagedStore(open_store(record.url, **options), coordinator, record.table_id)
