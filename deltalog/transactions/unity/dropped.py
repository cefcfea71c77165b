"""Deletes the files of tables that the catalog owned and that were dropped.

Spec: ManagedTablesSpec.md#table-lifecycle-operations.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from deltalog.catalog.records import DROPPED, EXTERNAL, Document, are_nested, nested_with
from deltalog.environment import Environment
from deltalog.errors import DeltaLogError
from deltalog.protocol.paths import LOG_DIRECTORY, SIDECARS_DIRECTORY, STAGED_COMMITS_DIRECTORY, canonical_url
from deltalog.storage.base import Entry, EntryKind, FileMeta, LogStore, real_url
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import DroppedTable, ExternalTable

log = logging.getLogger(__name__)

# Clients that had credentials for a table may write files until these expire. They are deleted until then.
LATE_MS = 24 * 60 * 60 * 1000
_AT_ONCE = 1000


def delete_dropped(tables: ManagedTables, environment: Environment) -> int:
    """Delete the files of dropped tables; returns their number. A table whose files cannot be deleted is left to the
    next call. Cost: 1 coordinator call; per table 4 LISTs, 1 DELETE per file, and that of ``ManagedTables.all``."""
    count = 0
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
    return delete_all(store)


def _overlaps(url: str, other: str) -> bool:
    return are_nested(canonical_url(url), canonical_url(other))


def delete_all(store: LogStore) -> int:
    """Delete all files of a table; returns their number. The log goes first, newest version first, so that no reader
    takes an older version for the latest. Symbolic links are not followed, but removed. Cost: 4 LISTs, 1 DELETE per
    file."""
    count = 0
    for directory in (LOG_DIRECTORY, STAGED_COMMITS_DIRECTORY, SIDECARS_DIRECTORY):
        if store.link_target(directory) is None:
            found = sorted(store.list_from(directory), key=lambda each: each.name, reverse=True)
            count += len(store.remove([_file(f"{directory}/{each.name}", each) for each in found]))
    entries = list(store.walk(lambda _: True))
    count += len(store.remove(entries[::-1]))
    empty = store.entries([STAGED_COMMITS_DIRECTORY, SIDECARS_DIRECTORY, LOG_DIRECTORY])
    store.remove(empty)
    return count


def _file(path: str, meta: FileMeta) -> Entry:
    return Entry(path, EntryKind.FILE, meta.size_bytes, meta.modification_time_ms)


def _all(tables: ManagedTables, kind: str) -> Iterator[Document]:
    after = ""
    while page := tables.coordinator.documents(kind, after, _AT_ONCE):
        yield from page
        after = page[-1].key
