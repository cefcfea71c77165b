"""What transactions that failed, and processes that died, leave behind; and its removal.

Nothing here decides anything: all of it can be done at any time, by any process, again and again.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deltalog.catalog.ledger import Ledger
from deltalog.catalog.prepared import added_files, written_files
from deltalog.catalog.records import Head, StatusFilter, TableRecord, TransactionRecord, TransactionStatus, are_nested
from deltalog.catalog.store import check_next, publish
from deltalog.errors import DeltaLogError, UnsafePathError
from deltalog.log.snapshot import Snapshot
from deltalog.spec.actions import DeletionVector
from deltalog.spec.deletion_vectors import relative_path
from deltalog.spec.paths import LOG_DIRECTORY, STAGED_COMMITS_DIRECTORY, encode_path
from deltalog.storage.base import LogStore
from deltalog.storage.table_files import TableFiles
from deltalog.transactions.objects import can_be_deleted, same_etag
from deltalog.transactions.tables import ManagedTables
from deltalog.transactions.transaction import CHANGES, OBJECTS
from deltalog.write.datafiles import discard

log = logging.getLogger(__name__)

# Few have ended so long ago, and DynamoDB fetches each record of a page.
_FORGOTTEN_AT_ONCE = 100


def recover(ledger: Ledger, tables: ManagedTables, retention_ms: int) -> dict[str, int]:
    """See ``TransactionManager.recover``."""
    done = {"published": 0, "aborted": 0, "cleaned": 0, "forgotten": 0}
    failed: list[DeltaLogError] = []
    for table in tables.all():
        try:
            store, head = tables.plain_store(table.url), ledger.coordinator.head(table.table_id)
            if head is not None:
                done["published"] += publish(store, ledger.coordinator, table.table_id, head)
                done["cleaned"] += _sweep_staged(ledger, store, table, head)
        except DeltaLogError as error:  # one that is damaged or away must not hold up the others
            log.warning("%s was not recovered: %s", table.name, error)
            failed.append(error)
    for record in ledger.all(StatusFilter.ACTIVE):
        done["aborted"] += ledger.settled(record).status is TransactionStatus.ABORTED
    for record in ledger.uncleaned():
        done["cleaned"] += _cleaned(ledger, tables, record)[0]
    oldest_ms = ledger.now_ms() - retention_ms
    for record in ledger.all(StatusFilter.COMPLETED, _FORGOTTEN_AT_ONCE):
        if record.start_ms >= oldest_ms:
            break  # they come by their start, and none has ended before that
        if record.end_ms is not None and record.end_ms < oldest_ms:
            cleaned, is_left = _cleaned(ledger, tables, record)
            done["cleaned"] += cleaned
            if not is_left:
                ledger.coordinator.delete(record.id)
                done["forgotten"] += 1
    if failed:
        raise failed[0]
    return done


def clean_up(ledger: Ledger, tables: ManagedTables, record: TransactionRecord) -> None:
    """Delete what an aborted transaction wrote and named, and forget what it was; of a committed one only the latter.
    What cannot be deleted stays for the next time."""
    if record.status is TransactionStatus.ABORTED:
        _cleaned(ledger, tables, record)
        return
    try:
        ledger.coordinator.delete_parts(record.id)
    except DeltaLogError as error:
        log.warning("transaction %s: its parts stay for now: %s", record.id, error)


def _cleaned(ledger: Ledger, tables: ManagedTables, record: TransactionRecord) -> tuple[int, bool]:
    """The number of parts that are done with, and whether some are left."""
    coordinator = ledger.coordinator
    try:
        parts = coordinator.parts(record.id)
        done = list(parts)
        if parts and record.status is TransactionStatus.ABORTED:
            cleaner = _Cleaner(ledger, tables)
            cleaner.check_known(dict.fromkeys(key.split("/", 2)[1] for key in parts))
            done = [key for key, part in parts.items() if cleaner.is_cleaned(key, part)]
        if done and len(done) < len(parts):
            coordinator.delete_parts(record.id, done)
        elif len(done) == len(parts):
            coordinator.delete_parts(record.id)
    except DeltaLogError as error:
        log.warning("transaction %s: what it left stays for now: %s", record.id, error)
        return 0, True
    return len(done), len(done) < len(parts)


@dataclass(frozen=True, slots=True)
class _InUse:
    """Paths of a table: ``had`` by its last version or an earlier one that can still be read, ``wanted`` by
    transactions that are not decided."""

    files: TableFiles
    had: set[str]
    wanted: set[str]


class _Cleaner:
    """Does away with what aborted transactions left; each table is looked at once, when an object in it was named."""

    def __init__(self, ledger: Ledger, tables: ManagedTables) -> None:
        self._ledger = ledger
        self._tables = tables
        self._known = {table.table_id: table for table in tables.all()}
        self._in_use: dict[str, _InUse] = {}
        self._is_table: dict[tuple[str, str], bool] = {}

    def check_known(self, table_ids: Iterable[str]) -> None:
        """Whether the catalog knows all that is in the logs of these tables: a restored one takes for aborted what was
        committed after its backup, and its files must stay. Raises CatalogBehindLogError. Cost: 1 call of the
        coordinator and 1 HEAD for each table."""
        coordinator = self._ledger.coordinator
        for table in filter(None, map(self._known.get, table_ids)):
            head = coordinator.head(table.table_id)
            if head is not None:
                check_next(self._tables.plain_store(table.url), coordinator, table.table_id, head.version + 1)

    def is_cleaned(self, key: str, part: bytes) -> bool:
        """Whether nothing of a part is left now. One that cannot be done away with must not hold up the others."""
        kind, table_id, rest = key.split("/", 2)
        table = self._known.get(table_id)
        if table is None:
            return True  # the table was dropped, and its files are no business of the catalog any more
        try:
            store = self._tables.plain_store(table.url)
            if kind == CHANGES:
                return not discard(store, written_files(part))
            return kind != OBJECTS or self._is_gone(table, store, rest, json.loads(part))
        except DeltaLogError as error:
            log.warning("%s: %s stays for now: %s", table.url, rest, error)
            return False

    def _is_gone(self, table: TableRecord, store: LogStore, path: str, etag: str | None) -> bool:
        """Delete an object, unless the table has it or has had it, or it is not the one that was named. False where
        that is not known, because a transaction may yet add it."""
        if (reason := self._foreign(table, store, path)) is not None:
            log.warning("%s: %s stays: %s", table.url, path, reason)
            return True
        in_use = self._in_use.get(table.table_id) or self._look(table)
        try:
            in_use.files.find(encode_path(path))
        except UnsafePathError as error:
            log.warning("%s stays: %s", path, error)
            return True
        if path in in_use.had:
            log.warning("%s: %s is a file of the table, and stays", table.url, path)
        elif path in in_use.wanted:
            log.info("%s: %s stays for now: a transaction that is not decided adds it", table.url, path)
            return False
        elif etag is None or same_etag(etag, store.etag(path)):
            store.delete(path)
        return True

    def _foreign(self, table: TableRecord, store: LogStore, path: str) -> str | None:
        """Why a path is none of a data file of this table, whoever named it; None where it may be one. Cost: 1 LIST for
        each directory that was not yet looked at."""
        if not can_be_deleted(path):
            return "that is not the name of a Parquet file"
        place = f"{table.url.rstrip('/')}/{path}"
        for other in self._known.values():
            is_inside = other.table_id != table.table_id and are_nested(other.url, table.url)
            if is_inside and len(other.url) > len(table.url) and are_nested(other.url, place):
                return f"it lies in the table {other.name}"
        names = path.split("/")[:-1]
        for depth in range(1, len(names) + 1):
            directory = "/".join(names[:depth])
            if self._has_log(table, store, directory):
                return f"{directory} is a table of its own"
        return None

    def _has_log(self, table: TableRecord, store: LogStore, directory: str) -> bool:
        key = table.table_id, directory
        if key not in self._is_table:
            self._is_table[key] = bool(store.list_names(f"{directory}/{LOG_DIRECTORY}"))
        return self._is_table[key]

    def _look(self, table: TableRecord) -> _InUse:
        """Cost: 1 call of the coordinator for each transaction that is not decided, and 1 for each 1,000; as
        ``Snapshot.files``."""
        # First what may be committed, then what is: in this order nothing is missed that is committed in between.
        wanted = _added(self._ledger, table.table_id)
        snapshot = self._tables.handle(table).snapshot()
        files = snapshot.reader.files
        found = _InUse(files, _paths(files, _named(snapshot)), _paths(files, wanted))
        self._in_use[table.table_id] = found
        return found


def _paths(files: TableFiles, names: Iterable[str]) -> set[str]:
    return {files.find(name)[1] for name in names}


def _named(snapshot: Snapshot) -> Iterator[str]:
    """The files that a version names, or an earlier one that can still be read, as its log names them."""
    columns = ["path", "deletion_vector"]
    for table in (snapshot.files(columns), snapshot.tombstones(0).select(columns)):
        yield from table["path"].to_pylist()
        for each in table["deletion_vector"].drop_null().to_pylist():
            yield from _vector_file(DeletionVector(**each))


def _added(ledger: Ledger, table_id: str) -> set[str]:
    """The files that transactions which are not decided would add to a table, as its log would name them."""
    names: set[str] = set()
    for record in ledger.all(StatusFilter.ACTIVE):
        for part in ledger.coordinator.parts(record.id, f"{CHANGES}/{table_id}/").values():
            for add in added_files(part):
                names.update((add.path, *_vector_file(add.deletion_vector)))
    return names


def _vector_file(vector: DeletionVector | None) -> Iterator[str]:
    if vector is not None and vector.storage_type == "u":
        yield relative_path(vector)
    elif vector is not None and vector.storage_type == "p":
        yield vector.path_or_inline_dv


def _sweep_staged(ledger: Ledger, store: LogStore, table: TableRecord, head: Head) -> int:
    """Delete staged commits of versions that others got. Those of later versions can still be ratified, by a process
    that was stopped for however long, so no clock is asked. Raises CatalogBehindLogError. Cost: 1 HEAD and 1 LIST."""
    check_next(store, ledger.coordinator, table.table_id, head.version + 1)
    listed = store.list_names(STAGED_COMMITS_DIRECTORY)
    wanted = {commit.file for commit in head.unpublished}
    dead = [name for name in listed if name not in wanted and _staged_version(name) <= head.version]
    for name in dead:
        store.delete(f"{STAGED_COMMITS_DIRECTORY}/{name}")
    return len(dead)


def _staged_version(name: str) -> float:
    """The version that a staged commit was made for; above all others for what is none."""
    number = name.partition(".")[0]
    return int(number) if len(number) == 20 and number.isdigit() else math.inf
