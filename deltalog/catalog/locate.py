"""From the URL of a catalog to its coordinator, and from the address of a table in one to the table's store."""

from __future__ import annotations

from typing import Any, TypeGuard

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import check_table_name
from deltalog.catalog.store import ManagedStore
from deltalog.errors import CallError, EntityNotFoundError, TableNotFoundError
from deltalog.storage.registry import open_store

_SCHEME = "catalog:"


def open_coordinator(url: str, *, create: bool = True, **options: Any) -> Coordinator:
    """The coordinator at ``url``: a path or ``sqlite:///path`` for a SQLite file, ``dynamodb:<table>`` for a table of
    DynamoDB, which is reached with ``options``, those of S3.

    Raises CallError; where there is no catalog and ``create`` is false EntityNotFoundError. Cost: as each says.
    """
    if url.startswith("dynamodb:"):
        from deltalog.catalog.dynamodb import DynamoDBCoordinator

        return DynamoDBCoordinator(url.removeprefix("dynamodb:").lstrip("/"), options, create=create)
    from deltalog.catalog.sqlite import SQLiteCoordinator

    return SQLiteCoordinator(url.removeprefix("sqlite://"), create=create)


def is_address(url: object) -> TypeGuard[str]:
    """Whether ``url`` names a table by its catalog: ``catalog:<url of the catalog>#<name of the table>``."""
    return isinstance(url, str) and url.startswith(_SCHEME)


def open_managed(address: str, **options: Any) -> ManagedStore:
    """The store of the table at an address. Raises TableNotFoundError, where there is no such catalog too; CallError.
    Cost: 1 call of the coordinator."""
    url, mark, name = address.removeprefix(_SCHEME).rpartition("#")
    if not (url and mark):
        raise CallError(f"{address} is no address of a table: write catalog:<catalog>#<name>.")
    full = check_table_name(name)
    try:
        coordinator = open_coordinator(url, create=False, **options)
    except EntityNotFoundError as error:
        raise TableNotFoundError(f"{address} is no table: {error.message}") from None
    record = coordinator.table(full)
    if record is None:
        raise TableNotFoundError(f"The catalog {coordinator.url} has no table {full}.")
    return ManagedStore(open_store(record.url, **options), coordinator, record.table_id)
