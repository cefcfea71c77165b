"""Resolves the URL of a catalog to its coordinator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalog.errors import CallError
from deltalog.storage import option_names
from deltalog.storage.locations import options_at
from deltalog.storage.registry import CATALOG_SCHEME, UNITY_SCHEME, spread
from deltalog.storage.secrets import check_location

if TYPE_CHECKING:
    from deltalog.catalog.coordinator import Coordinator
    from deltalog.catalog.postgresql_schema import PostgresSettings

_SQLITE = re.compile(r"sqlite:(/*)(.*)", re.S)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open_coordinator(
    url: str, *, create: bool = True, postgresql: PostgresSettings | None = None, **options: Any
) -> Coordinator:
    """Open the coordinator at ``url``: a path or ``sqlite:////absolute/path`` for a SQLite file, ``dynamodb:<table>``
    for a DynamoDB table, ``postgresql://user@host:5432/database`` for a PostgreSQL database. ``options``: as for S3;
    only DynamoDB uses them. ``postgresql``: the limits of a catalog in PostgreSQL.

    Raises CallError; EntityNotFoundError if there is no catalog and ``create`` is false. Cost: that of the
    coordinator's constructor.
    """
    check_location(url)
    if url.startswith("dynamodb:"):
        from deltalog.catalog.dynamodb import DynamoDBCoordinator

        found = option_names.of_dynamodb(options_at(url, spread(options)))
        return DynamoDBCoordinator(url.removeprefix("dynamodb:").lstrip("/"), found, create=create)
    if url.startswith(("postgresql://", "postgres://")):
        try:
            from deltalog.catalog.postgresql import PostgresCoordinator
        except ImportError as error:
            raise CallError(
                f"PostgreSQL needs the extra 'postgresql' ({error}): pip install 'deltalog[postgresql]'."
            ) from error
        return PostgresCoordinator(url, settings=postgresql, create=create)
    from deltalog.catalog.sqlite import SQLiteCoordinator

    return SQLiteCoordinator(_sqlite_path(url), create=create)


@dataclass(frozen=True, slots=True)
class CatalogVersion:
    """``kind``: SQLite, DynamoDB or PostgreSQL. ``version``: the version of its schema (DynamoDB: its format).
    ``supported``: the version that this deltalog writes.
    """

    url: str
    kind: str
    version: int
    supported: int


def version_of(url: str, **options: Any) -> CatalogVersion:
    """The version of the catalog at ``url``; it may be later than the one that this deltalog supports. Changes nothing.
    ``options``: as for ``open_coordinator``. Raises CallError, CoordinatorError; EntityNotFoundError if there is no
    catalog.
    """
    check_location(url)
    if url.startswith("dynamodb:"):
        from deltalog.catalog import dynamodb

        found = option_names.of_dynamodb(options_at(url, spread(options)))
        version = dynamodb.format_of(url.removeprefix("dynamodb:").lstrip("/"), found)
        return CatalogVersion(url, "DynamoDB", version, dynamodb.FORMAT)
    if url.startswith(("postgresql://", "postgres://")):
        coordinator = open_coordinator(url, create=False)  # there is only one version so far
        from deltalog.catalog import postgresql_schema

        coordinator.close()
        return CatalogVersion(url, "PostgreSQL", postgresql_schema.SCHEMA_VERSION, postgresql_schema.SCHEMA_VERSION)
    from deltalog.catalog import sqlite_file

    path = sqlite_file.file_path(_sqlite_path(url))
    return CatalogVersion(url, "SQLite", sqlite_file.schema_version(path), sqlite_file.SCHEMA_VERSION)


def upgrade(url: str, **options: Any) -> CatalogVersion:
    """Upgrade the catalog at ``url`` to the version that this deltalog supports, in one transaction; returns the
    version before the upgrade. Raises as ``version_of``, and CoordinatorError if the catalog has a later version.
    """
    before = version_of(url, **options)
    if url.startswith("dynamodb:"):
        from deltalog.catalog.dynamodb import DynamoDBCoordinator

        found = option_names.of_dynamodb(options_at(url, spread(options)))
        DynamoDBCoordinator(url.removeprefix("dynamodb:").lstrip("/"), found, create=False, upgrade=True)
    else:
        open_coordinator(url, create=False, **options).close()
    return before


def _sqlite_path(url: str) -> str:
    """The file path in the URL of a SQLite catalog."""
    if url.startswith((UNITY_SCHEME, "http://", "https://")):
        raise CallError(
            f"{url} is a Unity Catalog, whose API has no transactions over several tables. Open its tables one by one, "
            "with DeltaTable.open('uc://catalog.schema.table'). For a server of deltalog, give the catalog that it "
            "serves: the path of its SQLite file, dynamodb:<table>, or postgresql://…"
        )
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
            "sqlite:////data/catalog.db, dynamodb:<table>, or postgresql://user@host:5432/database."
        )
    return url
