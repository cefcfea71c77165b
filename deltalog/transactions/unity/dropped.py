"""Deletes the files of tables that the catalog owned and that were dropped, or staged and never created.

Spec: ManagedTablesSpec.md#table-lifecycle-operations.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from deltalog import metrics
from deltalog.catalog.records import DROPPED, EXTERNAL, Document, are_nested, nested_with
from deltalog.environment import Environment
from deltalog.errors import DeltaLogError
from deltalog.protocol.paths import canonical_url
from deltalog.storage.base import real_url
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import STAGING, DroppedTable, ExternalTable, StagingDocument

log = logging.getLogger(__name__)

# Clients with credentials for a dropped table may write files until the credentials expire. For this time after the
# drop, such files are deleted too.
LATE_MS = 24 * 60 * 60 * 1000
# A table may be staged long before it is created, because its first rows are written in between.
STAGED_MS = 7 * 24 * 60 * 60 * 1000
_AT_ONCE = 1000


def delete_dropped(tables: ManagedTables, environment: Environment) -> int:
    """Delete the files of dropped tables; returns the number of deleted files. A table whose files cannot be deleted is
    left to the next call. Tables that were staged more than STAGED_MS ago count as dropped. Cost: 2 coordinator calls;
    per table that of ``LogStore.remove_all`` and of ``ManagedTables.all``."""
    count = 0
    _drop_staged(tables, environment.clock_ms())
    for document in list(_all(tables, DROPPED)):
        dropped = documents.decoded(document, DroppedTable)
        try:
            count += _delete(tables, dropped)
        except DeltaLogError as error:
            log.warning("the files of %s, which was dropped, are not deleted yet: %s", dropped.name, error)
            continue
        if environment.clock_ms() - dropped.dropped_ms > LATE_MS:
            tables.coordinator.change_documents([documents.deletion(DROPPED, document.key, document.revision)])
    return count


def _drop_staged(tables: ManagedTables, now_ms: int) -> None:
    """Forget the tables that were staged and not created in time, so that they can no longer be created."""
    for document in list(_all(tables, STAGING)):
        staged = documents.decoded(document, StagingDocument)
        if now_ms - staged.created_ms > STAGED_MS:
            dropped = DroppedTable(name=staged.name, url=staged.url, dropped_ms=now_ms)
            # Without effect if the table is created at the same moment.
            tables.coordinator.change_documents(
                [
                    documents.deletion(STAGING, document.key, document.revision),
                    documents.change(DROPPED, document.key, 0, dropped),
                ]
            )


def _delete(tables: ManagedTables, dropped: DroppedTable) -> int:
    externals = (documents.decoded(each, ExternalTable) for each in _all(tables, EXTERNAL))
    other = nested_with(dropped.url, tables.all())
    place = next((each.name for each in externals if _overlaps(each.url, dropped.url)), other and other.name)
    if place is not None:
        log.warning("the files of %s, which was dropped, are kept: the table %s lies there", dropped.name, place)
        return 0
    store = tables.plain_store(dropped.url)
    if real_url(store) != store.url:
        log.warning("the files of %s, which was dropped, are kept: a symbolic link took its place", dropped.name)
        return 0
    with metrics.upkeep("deletion", dropped.url) as done:
        done["files_of_dropped_table"] = store.remove_all()
    return done["files_of_dropped_table"]


def _overlaps(url: str, other: str) -> bool:
    return are_nested(canonical_url(url), canonical_url(other))


def _all(tables: ManagedTables, kind: str) -> Iterator[Document]:
    after = ""
    while page := tables.coordinator.documents(kind, after, _AT_ONCE):
        yield from page
        after = page[-1].key
