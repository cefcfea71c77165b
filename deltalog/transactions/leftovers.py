"""What transactions that failed, and processes that died, leave behind; and its removal.

Nothing here decides anything: all of it can be done at any time, by any process, again and again.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping

from deltalog.catalog.ledger import Ledger
from deltalog.catalog.records import StatusFilter, TableRecord, TransactionRecord, TransactionStatus
from deltalog.catalog.staged import written_files
from deltalog.errors import DeltaLogError, StoreError, UnsafePathError
from deltalog.log.snapshot import Snapshot
from deltalog.spec.actions import DeletionVector
from deltalog.spec.deletion_vectors import relative_path
from deltalog.spec.paths import STAGED_COMMITS_DIRECTORY, encode_path
from deltalog.storage.base import LogStore
from deltalog.transactions.objects import same_etag
from deltalog.transactions.tables import ManagedTables
from deltalog.transactions.transaction import CHANGES, OBJECTS
from deltalog.write.datafiles import discard

log = logging.getLogger(__name__)


def recover(ledger: Ledger, tables: ManagedTables, retention_ms: int) -> dict[str, int]:
    """See ``TransactionManager.recover``."""
    done = {"published": 0, "aborted": 0, "cleaned": 0, "forgotten": 0}
    failed: list[DeltaLogError] = []
    for table in tables.all():
        try:
            done["published"] += tables.publish(table)
            done["cleaned"] += _sweep_staged(ledger, tables, table)
        except DeltaLogError as error:  # one that is damaged or away must not hold up the others
            log.warning("%s was not recovered: %s", table.name, error)
            failed.append(error)
    for record in ledger.all(StatusFilter.ACTIVE):
        done["aborted"] += ledger.settled(record).status is TransactionStatus.ABORTED
    for record in ledger.all(StatusFilter.COMPLETED):
        cleaned, is_left = _cleaned(ledger, tables, record)
        done["cleaned"] += cleaned
        is_old = record.end_ms is not None and ledger.now_ms() - record.end_ms > retention_ms
        if is_old and not is_left:
            ledger.coordinator.delete(record.id)
            done["forgotten"] += 1
    if failed:
        raise failed[0]
    return done


def clean_up(ledger: Ledger, tables: ManagedTables, record: TransactionRecord) -> None:
    """Delete what an aborted transaction wrote and named, and forget what it was; of a committed one only the latter.
    What cannot be deleted stays for the next time."""
    _cleaned(ledger, tables, record)


def _cleaned(ledger: Ledger, tables: ManagedTables, record: TransactionRecord) -> tuple[int, bool]:
    """The number of parts that are done with, and whether some are left."""
    coordinator = ledger.coordinator
    try:
        parts = coordinator.parts(record.id)
        done = list(parts)
        if parts and record.status is TransactionStatus.ABORTED:
            known = {table.table_id: table for table in tables.all()}
            done = [key for key, part in parts.items() if _is_cleaned(tables, known, key, part)]
        if done:
            coordinator.delete_parts(record.id, done)
    except DeltaLogError as error:
        log.warning("transaction %s: what it left stays for now: %s", record.id, error)
        return 0, True
    return len(done), len(done) < len(parts)


def _is_cleaned(tables: ManagedTables, known: Mapping[str, TableRecord], key: str, part: bytes) -> bool:
    kind, table_id, rest = key.split("/", 2)
    if table_id not in known:
        return True  # the table was dropped, and its files are no business of the catalog any more
    store = tables.plain_store(known[table_id].url)
    try:
        if kind == CHANGES:
            return not discard(store, written_files(part))
        if kind == OBJECTS:
            _delete_object(tables, known[table_id], store, rest, json.loads(part))
    except StoreError as error:
        log.warning("%s: %s stays for now: %s", store.url, rest, error)
        return False
    return True


def _delete_object(tables: ManagedTables, table: TableRecord, store: LogStore, path: str, etag: str | None) -> None:
    """Delete an object, unless the table has it or has had it, or it is not the one that was named."""
    snapshot = tables.handle(table).snapshot()
    files = snapshot.reader.files
    try:
        files.find(encode_path(path))
    except UnsafePathError as error:
        log.warning("%s stays: %s", path, error)
        return
    if path in {files.find(name)[1] for name in _named(snapshot)}:
        log.warning("%s: %s is a file of the table, and stays", table.url, path)
    elif etag is None or same_etag(etag, store.etag(path)):
        store.delete(path)


def _named(snapshot: Snapshot) -> set[str]:
    """The files that a version names, or an earlier one that can still be read, as its log names them."""
    columns = ["path", "deletion_vector"]
    names: set[str] = set()
    for table in (snapshot.files(columns), snapshot.tombstones(0).select(columns)):
        names.update(table["path"].to_pylist())
        vectors = [DeletionVector(**each) for each in table["deletion_vector"].drop_null().to_pylist()]
        names.update(relative_path(vector) for vector in vectors if vector.storage_type == "u")
        names.update(vector.path_or_inline_dv for vector in vectors if vector.storage_type == "p")
    return names


def _sweep_staged(ledger: Ledger, tables: ManagedTables, table: TableRecord) -> int:
    """Delete staged commits of versions that others got. Those of later versions can still be ratified, by a process
    that was stopped for however long, so no clock is asked. Cost: 1 LIST and 1 call of the coordinator."""
    store = tables.plain_store(table.url)
    listed = store.list_names(STAGED_COMMITS_DIRECTORY)
    if not listed:
        return 0
    head = ledger.coordinator.head(table.table_id)
    if head is None:
        return 0
    wanted = {commit.file for commit in head.unpublished}
    dead = [name for name in listed if name not in wanted and _staged_version(name) <= head.version]
    for name in dead:
        store.delete(f"{STAGED_COMMITS_DIRECTORY}/{name}")
    return len(dead)


def _staged_version(name: str) -> float:
    """The version that a staged commit was made for; above all others for what is none."""
    number = name.partition(".")[0]
    return int(number) if len(number) == 20 and number.isdigit() else math.inf
