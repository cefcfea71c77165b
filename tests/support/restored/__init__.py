"""Catalogs that can be backed up and restored."""

from __future__ import annotations

import contextlib
import copy
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.dynamodb import DynamoDBCoordinator
from deltalog.catalog.postgresql import PostgresCoordinator
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.testing.coordinators import MemoryCoordinator
from tests.support.postgresql import Postgres
from tests.support.s3 import Server
from tests.support.s3.dynamodb import client, new_table

Restore = Callable[[], Coordinator]


class Backups:
    """A new catalog. ``backup`` returns a function that restores the catalog and reopens it."""

    coordinator: Coordinator

    def backup(self) -> Restore:
        raise NotImplementedError


class InMemory(Backups):
    def __init__(self) -> None:
        self.coordinator = MemoryCoordinator()

    def backup(self) -> Restore:
        kept = _copied(self.coordinator)
        return lambda: _copied(kept)


class OnSQLite(Backups):
    """Uses SQLite's backup API, as docs/transactions.md recommends."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "catalog.db"
        self.coordinator = SQLiteCoordinator(self.path)
        self._count = 0

    def backup(self) -> Restore:
        self._count += 1
        kept = self.path.with_suffix(f".{self._count}")
        _copy_database(self.path, kept)

        def restore() -> Coordinator:
            self.coordinator.close()
            _copy_database(kept, self.path)
            return SQLiteCoordinator(self.path, create=False)

        return restore


class OnPostgres(Backups):
    """Uses pg_dump and pg_restore, as docs/transactions.md recommends."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self.coordinator = server.coordinator()
        self._schema = self.coordinator.url.partition("schema=")[2].partition("&")[0]
        self._count = 0

    def backup(self) -> Restore:
        self._count += 1
        server, file = self._server, str(self._server.directory / f"{self._schema}.{self._count}")
        place = ["--host", str(server.directory), "--port", str(server.port), "--username", server.user]
        server.run("pg_dump", *place, "--format=custom", f"--schema={self._schema}", f"--file={file}", "catalogs")

        def restore() -> Coordinator:
            self.coordinator.close()
            server.execute(f"DROP SCHEMA {self._schema} CASCADE")
            server.run("pg_restore", *place, "--dbname=catalogs", "--single-transaction", file)
            return PostgresCoordinator(self.coordinator.url, create=False)

        return restore


class OnDynamoDB(Backups):
    """Copies the items one by one, because the server has no backups. The copy is consistent, like a table that
    DynamoDB restores from a backup."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.name = new_table(server, "catalog")
        self.coordinator = DynamoDBCoordinator(self.name, server.options())

    def backup(self) -> Restore:
        kept = self.items()

        def restore() -> Coordinator:
            asked = client(self._server)
            for item in self.items():
                asked.delete_item(TableName=self.name, Key={"pk": item["pk"], "sk": item["sk"]})
            for item in kept:
                asked.put_item(TableName=self.name, Item=item)
            return DynamoDBCoordinator(self.name, self._server.options(), create=False)

        return restore

    def items(self) -> list[dict[str, Any]]:
        """The items of the table."""
        pages = client(self._server).get_paginator("scan").paginate(TableName=self.name, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]


def _copied(coordinator: Any) -> MemoryCoordinator:
    made = MemoryCoordinator(coordinator.url, coordinator.catalog_id)
    for name, value in vars(coordinator).items():
        if name != "_lock":
            setattr(made, name, copy.deepcopy(value))
    return made


def _copy_database(source: Path, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        old.backup(new)
