"""The managed tables of a catalog, read at their heads."""

from __future__ import annotations

from dataclasses import dataclass

from deltalog.catalog.records import Head, TableRecord
from deltalog.commit.hooks import errors_logged
from deltalog.errors import CallError, EntityNotFoundError
from deltalog.protocol.paths import canonical_url
from deltalog.transactions.callers import ADMINISTRATOR, Caller
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import TABLE, TableDocument
from deltalog.transactions.unity.locations import canonical_location
from deltalog.transactions.unity.names import Names
from deltalog.transactions.unity.states import StateAt, States
from deltalog.transactions.unity.views import ManagedView

_NO_DOCUMENT = TableDocument()


@dataclass(frozen=True, slots=True)
class Place:
    """The identity of a table and the state against which a commit is checked."""

    head: Head
    at: StateAt
    document: TableDocument
    revision: int


class ManagedHeads:
    """Reads managed tables. Thread-safe."""

    def __init__(self, tables: ManagedTables, names: Names) -> None:
        self.coordinator = tables.coordinator
        self.states = States(tables)
        self._names = names

    def record(self, name: str) -> TableRecord:
        """The record of a managed table. Raises EntityNotFoundError. Cost: 1 coordinator call."""
        record = self.coordinator.table(name)
        if record is None:
            raise self._names.absent(name)
        return record

    def view(self, record: TableRecord) -> ManagedView:
        """A managed table at its head. Raises EntityNotFoundError. Cost: 2 coordinator calls, that of
        ``States.at_head``."""
        place = self.place(record)
        return self.view_of(record, place.head, place.at, place.document)

    def view_of(self, record: TableRecord, head: Head, at: StateAt, document: TableDocument) -> ManagedView:
        version = head.metadata_version or 0
        time_ms = head.metadata_ms
        if time_ms is None and version == at.version:
            time_ms = at.ict_ms
        if time_ms is None:
            with errors_logged(f"{record.name} is loaded", f"reading the time of version {version}"):
                time_ms = self.states.time_ms(record, version)
        return ManagedView(record, head, at, document, version, record.created_ms if time_ms is None else time_ms)

    def place(self, record: TableRecord) -> Place:
        document, revision = self.document(record.table_id)
        head, at = self.states.at_head(record)
        return Place(head, at, document, revision)

    def document(self, table_id: str) -> tuple[TableDocument, int]:
        found = self.coordinator.document(TABLE, table_id)
        return (_NO_DOCUMENT, 0) if found is None else (documents.decoded(found, TableDocument), found.revision)

    def head(self, record: TableRecord) -> Head:
        """Raises EntityNotFoundError. Cost: 1 coordinator call."""
        head = self.coordinator.head(record.table_id)
        if head is None:
            raise EntityNotFoundError(f"{record.name} was dropped from the catalog.")
        return head

    def managed_with_id(self, table_id: str, location: str, caller: Caller = ADMINISTRATOR) -> TableRecord:
        """The managed table with an id. Raises EntityNotFoundError, what ``caller.admits`` raises; CallError if it has
        another location. Cost: 1 coordinator call."""
        record = self.coordinator.table_with_id(table_id)
        name = f"missing.{table_id}" if record is None else record.name
        if not caller.admits(None if record is None else table_id, name) or record is None:
            raise EntityNotFoundError(f"There is no managed table with the id {table_id}.")
        if canonical_url(canonical_location(location)) != record.url:
            raise CallError(f"The table {table_id} is not at {location}.")
        return record
