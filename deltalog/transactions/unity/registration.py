"""Registers existing tables for remote callers, at locations where the operator permits this.

Registration makes the server read and write at a location that a caller names, with the server's own credentials.
Therefore only locations below the warehouse, and locations for which there are storage options, are opened at all.
"""

from __future__ import annotations

import os
import urllib.parse

from deltalog.catalog import records
from deltalog.catalog.records import ACCESS, DocumentChange, Head, TableRecord, access_key
from deltalog.commit.hooks import errors_logged
from deltalog.environment import Environment
from deltalog.errors import CallError, CorruptTableError, ResourceNotReadyError, TableExistsError
from deltalog.protocol.paths import LOG_DIRECTORY, canonical_url
from deltalog.storage.fs import local_root
from deltalog.transactions.callers import ADMINISTRATOR, Caller
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import AccessDocument
from deltalog.transactions.unity.external import ExternalTables
from deltalog.transactions.unity.locations import canonical_location
from deltalog.transactions.unity.names import Names
from deltalog.transactions.unity.warehouse import Warehouse

_SQLITE = "sqlite:///"


class Registration:
    """Registers existing tables. Thread-safe."""

    def __init__(
        self,
        tables: ManagedTables,
        names: Names,
        warehouse: Warehouse,
        external: ExternalTables,
        environment: Environment,
    ) -> None:
        self._tables = tables
        self._names = names
        self._warehouse = warehouse
        self._external = external
        self._environment = environment

    def register(
        self, name: str, location: str, take_over: bool, caller: Caller = ADMINISTRATOR
    ) -> tuple[TableRecord, Head]:
        """Add an existing table to the catalog, as ``TransactionManager.register_table``. Raises CallError for a
        location that is not permitted, and for a table that cannot be registered; TableNotFoundError,
        TableExistsError, SchemaNotFoundError. Cost: that of ``TransactionManager.register_table``, 4 coordinator calls,
        and 1 per 1,000 external tables."""
        root = self._permitted(location)
        self._names.check_schema(name.partition(".")[0])
        self._names.check_free(name)
        self._check_apart(root, location, caller)
        ids: list[str] = []

        def along(table_id: str) -> list[DocumentChange]:
            ids.append(table_id)
            return _owned(table_id, caller.owner)

        now_ms = self._environment.clock_ms()
        try:
            table = self._tables.register(name, root, take_over, along)
        except (CorruptTableError, ResourceNotReadyError) as error:
            raise CallError(error.message) from error
        # The table is registered, so nothing may fail from here on.
        record = TableRecord(ids[-1], name, root, now_ms)
        with errors_logged(f"{name} is registered", "reading its record"):
            record = self._tables.coordinator.table_with_id(ids[-1]) or record
        return record, Head(table.version)

    def _permitted(self, location: str) -> str:
        """The root that a caller names, if callers may register tables there. Raises CallError, which does not tell
        what is at other locations."""
        root = canonical_url(canonical_location(location))
        given = urllib.parse.unquote(location) if location.startswith("file:") else location
        if {".", ".."}.intersection(given.split("/")):
            raise CallError(f"{location} has a segment '.' or '..'. Give the location without such segments.")
        for prefix in [self._warehouse.root, *self._tables.named_locations()]:
            if prefix is not None and _is_below(root, location, prefix):
                self._check_links(root, location)
                return root
        raise CallError(
            f"Tables at {location} cannot be registered over HTTP: the server permits this only below its "
            "warehouse and below the prefixes in by_location of its storage options. Register it with "
            "'deltalog tables register'."
        )

    def _check_links(self, root: str, location: str) -> None:
        """Refuse a log behind a symbolic link. Raises CallError. Cost: none."""
        if self._tables.plain_store(root).link_target(LOG_DIRECTORY) is not None:
            raise CallError(f"{LOG_DIRECTORY} at {location} is a symbolic link. Register the table where its log is.")

    def _check_apart(self, root: str, location: str, caller: Caller) -> None:
        """Check that a location does not overlap another table, the location for managed tables, or files of the
        catalog. Raises CallError, TableExistsError, which name no table that the caller may not see.
        """
        self._warehouse.check_outside(root, location)
        url = self._tables.coordinator.url
        if url.startswith(_SQLITE) and os.path.realpath(url.removeprefix(_SQLITE)).startswith(f"{root.rstrip('/')}/"):
            raise CallError(f"{location} cannot be a table: the server has files of its own below it.")
        other = records.nested_with(root, self._tables.all())
        if other is not None and not caller.sees(other.table_id, other.name):
            raise TableExistsError(f"{location} is another table of the catalog, or is inside or contains one.")
        for each in self._external.all():
            if records.are_nested(canonical_url(each.url), root):
                shown = f"the external table {each.name}" if caller.sees(each.table_id, each.name) else "another table"
                raise CallError(f"{location} overlaps {shown}. If both are the same table, drop that one first.")


def _owned(table_id: str, owner: str | None) -> list[DocumentChange]:
    if owner is None:
        return []
    return [documents.change(ACCESS, access_key(table_id), 0, AccessDocument(owner=owner))]


def _is_below(root: str, location: str, prefix: str) -> bool:
    """Whether a root lies below a prefix, and not only by a symbolic link that someone made there."""
    local = local_root(prefix)
    base = canonical_url(prefix) if local is None else os.path.realpath(local)
    if not root.startswith(f"{base.rstrip('/')}/"):
        return False
    if local is None:
        return True
    given, rest = local_root(location), root[len(base) :].lstrip("/")
    return given in (f"{base.rstrip('/')}/{rest}", f"{local.rstrip('/')}/{rest}")
