"""Renames and removes managed tables."""

from __future__ import annotations

import logging

from deltalog.catalog.committer import publish
from deltalog.catalog.marks import check_none_deletes
from deltalog.catalog.records import DROPPED, EXTERNAL, RETIRED, DocumentChange, TableRecord
from deltalog.environment import Environment
from deltalog.errors import ConcurrentModificationError, CorruptTableError, ObjectNotFoundError
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import TABLE, DroppedTable
from deltalog.transactions.unity.managed import ManagedHeads
from deltalog.transactions.unity.names import Names
from deltalog.transactions.unity.warehouse import Warehouse

log = logging.getLogger(__name__)

_TRIES = 20


class Drops:
    """Renames and removes managed tables. Thread-safe."""

    def __init__(
        self, tables: ManagedTables, names: Names, warehouse: Warehouse, managed: ManagedHeads, environment: Environment
    ) -> None:
        self.coordinator = tables.coordinator
        self._tables = tables
        self._names = names
        self._warehouse = warehouse
        self._managed = managed
        self._environment = environment

    def rename(self, record: TableRecord, new_name: str) -> None:
        """Raises EntityNotFoundError, TableExistsError; CallError. Cost: 3 coordinator calls."""
        self._names.check_free(new_name)
        if not self.coordinator.rename(record.table_id, new_name, [documents.absent(EXTERNAL, new_name)]):
            self._names.check_free(new_name)
            raise self._names.absent(record.name)

    def drop(self, record: TableRecord) -> None:
        """Remove a table from the catalog. The files of a table that was created below the warehouse are deleted later,
        by ``delete_dropped``; those of other tables stay. Raises EntityNotFoundError, ObjectBeingDeletedError. Cost:
        that of ``publish``, 4 coordinator calls."""
        for number in range(_TRIES):
            self._environment.back_off(number)
            head = self.coordinator.head(record.table_id)
            if head is None:
                raise self._names.absent(record.name)
            last = check_none_deletes(self.coordinator, record, self._environment.clock_ms())
            try:
                publish(self._tables.plain_store(record.url), self.coordinator, record.table_id, head)
            except (CorruptTableError, ObjectNotFoundError) as error:
                if not self._warehouse.owns(record.url):
                    raise
                log.warning("%s is dropped, although its log has errors: %s", record.name, error)
                self.coordinator.published(record.table_id, head.version)
            if self.coordinator.drop(record.table_id, head.version, last, self._on_drop(record)):
                self._tables.forget(record.table_id)
                return
        raise ConcurrentModificationError(
            f"{record.name} was not dropped, because it received a commit during every attempt. Try again."
        )

    def _on_drop(self, record: TableRecord) -> list[DocumentChange]:
        changes = self._tables.without_access(record.table_id)
        _, revision = self._managed.document(record.table_id)
        if revision:
            changes.append(documents.deletion(TABLE, record.table_id, revision))
        if self._warehouse.owns(record.url):
            dropped = DroppedTable(name=record.name, url=record.url, dropped_ms=self._environment.clock_ms())
            changes.append(documents.change(DROPPED, record.table_id, 0, dropped))
        else:
            changes.append(DocumentChange(RETIRED, record.table_id, 0, "{}"))
        return changes
