"""What transactions that failed, and processes that died, leave behind; and its removal.

Nothing here decides anything: all of it can be done at any time, by any process, again and again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from deltalog.catalog.committer import check_next, publish
from deltalog.catalog.marks import live_marks, vector_files
from deltalog.catalog.records import (
    Head,
    Marking,
    StatusFilter,
    TableRecord,
    TransactionRecord,
    TransactionStatus,
    are_nested,
    looked,
)
from deltalog.errors import ConcurrentModificationError, DeltaLogError, StoreError, UnsafePathError
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.paths import LOG_DIRECTORY, STAGED_COMMITS_DIRECTORY, encode_path
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.storage.table_files import TableFiles
from deltalog.transactions.ledger import Ledger
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.prepared_codec import added_files, written_files
from deltalog.transactions.table_objects import can_be_deleted, same_etag
from deltalog.transactions.transaction import CHANGES, OBJECTS

log = logging.getLogger(__name__)

# Few have ended so long ago, and DynamoDB fetches each record of a page.
_FORGOTTEN_AT_ONCE = 100


# An aborted transaction's objects are looked for again this long after its end: a PUT that was in flight when it ended
# can appear later. An object found then that is younger than LATE_AGE_MS may be one that a retry is about to add.
LATE_LOOKS_MS = (15 * 60 * 1000, 24 * 60 * 60 * 1000)
LATE_AGE_MS = 10 * 60 * 1000
# The size of one marking: its names cannot be used while it exists, which is a day if the process dies.
_MARKED_AT_ONCE, _MARKED_BYTES = 500, 128 << 10
_TRIES = 20
_THREADS = 8


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
    uncleaned = list(ledger.uncleaned())
    if any(record.status is TransactionStatus.ABORTED for record in uncleaned):
        _forget_markings(ledger, tables)
    for record in uncleaned:
        if _is_due(record, ledger.now_ms()):
            done["cleaned"] += _cleaned(ledger, tables, record)[0]
    oldest_ms = ledger.now_ms() - retention_ms
    for record in ledger.all(StatusFilter.COMPLETED, _FORGOTTEN_AT_ONCE):
        if record.start_ms >= oldest_ms:
            break  # they are ordered by their start, and none has ended before that
        if record.end_ms is not None and record.end_ms < oldest_ms:
            cleaned, is_left = _cleaned(ledger, tables, record)
            done["cleaned"] += cleaned
            # Names that are looked for again keep it, however short the retention is.
            if not (is_left or ledger.coordinator.parts(record.id)):
                ledger.coordinator.delete(record.id)
                done["forgotten"] += 1
    if failed:
        raise failed[0]
    return done


def clean_up(ledger: Ledger, tables: ManagedTables, record: TransactionRecord) -> None:
    """Delete what an aborted transaction wrote and named, and forget what it was; of a committed one only the latter.
    What cannot be deleted stays for the next time."""
    if record.status is TransactionStatus.ABORTED:
        if record.looks == 0:
            _cleaned(ledger, tables, record)
        return
    try:
        ledger.coordinator.delete_parts(record.id)
    except DeltaLogError as error:
        log.warning("transaction %s: its parts are kept for now: %s", record.id, error)


def _is_due(record: TransactionRecord, now_ms: int) -> bool:
    """Whether the leftovers of a transaction are to be cleaned up now."""
    is_aborted = record.status is TransactionStatus.ABORTED
    return not is_aborted or record.looks > len(LATE_LOOKS_MS) or record.looks < _looks_due(record, now_ms)


def _looks_due(record: TransactionRecord, now_ms: int) -> int:
    """How many looks an aborted transaction should have had by now: one at once, and those that come later."""
    ended_ms = record.last_activity_ms if record.end_ms is None else record.end_ms
    return 1 + sum(now_ms >= ended_ms + late_ms for late_ms in LATE_LOOKS_MS)


def _cleaned(ledger: Ledger, tables: ManagedTables, record: TransactionRecord) -> tuple[int, bool]:
    """How many files and records were deleted, and whether some remain that should have been."""
    coordinator = ledger.coordinator
    try:
        parts = coordinator.parts(record.id)
        if record.status is not TransactionStatus.ABORTED:
            coordinator.delete_parts(record.id)
            return len(parts), False
        return _Cleaner(ledger, tables, record).clean(parts)
    except DeltaLogError as error:
        log.warning("transaction %s: its leftovers are kept for now: %s", record.id, error)
        return 0, True


def _forget_markings(ledger: Ledger, tables: ManagedTables) -> None:
    """Cost: 1 call of the coordinator for each table, and 1 for each marking that is too old."""
    for table in tables.all():
        live_marks(ledger.coordinator, table.table_id, ledger.now_ms())


@dataclass(frozen=True, slots=True)
class _Leftover:
    """A file that an aborted transaction wrote or named, and the part of its record that names it."""

    key: str
    path: str
    etag: str | None = None
    is_object: bool = False


@dataclass(frozen=True, slots=True)
class _InUse:
    """Paths of a table: ``had`` by its last version or an earlier one that can still be read, ``added`` and ``named``
    by transactions that are not decided."""

    had: Set[str]
    added: Set[str]
    named: Set[str]


class _Cleaner:
    """Deletes what one aborted transaction left."""

    def __init__(self, ledger: Ledger, tables: ManagedTables, record: TransactionRecord) -> None:
        self._ledger = ledger
        self._coordinator = ledger.coordinator
        self._tables = tables
        self._record = record
        self._known = {table.table_id: table for table in tables.all()}
        self._is_table: dict[tuple[str, str], bool] = {}

    def clean(self, parts: Mapping[str, bytes]) -> tuple[int, bool]:
        """How many files and records were deleted, and whether some remain that should have been. The names of objects
        are kept for later checks, until no clean-up can be deleting them; other finished records are removed."""
        looks, count, left = _looks_due(self._record, self._ledger.now_ms()), 0, set[str]()
        tables = {table_id: self._known.get(table_id) for table_id in _by_table(parts)}
        is_due = self._record.looks < looks
        if is_due:
            self._check_known(filter(None, tables.values()))
        for table_id, some in _by_table(parts).items() if is_due else ():
            table = tables[table_id]
            if table is None:
                continue  # it was dropped: the catalog no longer manages its files
            try:
                deleted, stays = self._clear(table, some)
                count += deleted
                left |= stays
            except DeltaLogError as error:  # a table that cannot be reached must not hold up the others
                log.warning(
                    "%s: the leftovers of transaction %s are kept for now: %s", table.url, self._record.id, error
                )
                left.update(some)
        is_last = looks > len(LATE_LOOKS_MS) and not any(map(self._has_markings, tables))
        kept = {key for key in parts if key.startswith(f"{OBJECTS}/") and tables[key.split("/", 2)[1]] is not None}
        gone = parts.keys() - left - (set[str]() if is_last else kept)
        if len(gone) == len(parts):
            self._coordinator.delete_parts(self._record.id)
            return count, False
        if gone:
            self._coordinator.delete_parts(self._record.id, sorted(gone))
        if is_due and not left:
            self._coordinator.replace(looked(self._record, looks))
        return count, bool(left)

    def _has_markings(self, table_id: str) -> bool:
        """Whether the catalog has a marking of this transaction whose clean-up may not be over."""
        markings = self._coordinator.marks(table_id).markings.values()
        return any(marking.transaction_id == self._record.id and marking.deleting for marking in markings)

    def _check_known(self, tables: Iterable[TableRecord]) -> None:
        """Check that the logs of some tables have no commits that the catalog lacks: a restored catalog takes
        transactions that committed after its backup for aborted, and their files must stay. Raises
        CatalogBehindLogError. Cost: 1 call of the coordinator and 1 HEAD for each table."""
        for table in tables:
            head = self._coordinator.head(table.table_id)
            if head is not None:
                store = self._tables.plain_store(table.url)
                check_next(store, self._coordinator, table.table_id, head.version + 1)

    def _clear(self, table: TableRecord, parts: Mapping[str, bytes]) -> tuple[int, set[str]]:
        """Delete the unused files of a table; returns their number, and the parts of which some files are left."""
        store = self._tables.plain_store(table.url)
        files, count, left = TableFiles(store), 0, set[str]()
        found = list[_Leftover]()
        for leftover, is_young in self._there(table, store, files, list(_leftovers(files, parts))):
            if is_young:
                left.add(leftover.key)
            else:
                found.append(leftover)
        for some in _chunks(found):
            deleted, stays = self._take_away(table, store, some)
            count += deleted
            left |= stays
        return count, left

    def _there(
        self, table: TableRecord, store: LogStore, files: TableFiles, leftovers: Sequence[_Leftover]
    ) -> Iterator[tuple[_Leftover, bool]]:
        """Those of the files that are there and may be deleted, and whether it is too early for that. Cost: 1 HEAD for
        each object."""

        def look(each: _Leftover) -> bool | None:
            if not each.is_object:
                return False
            if (reason := self._foreign(table, store, files, each.path)) is not None:
                log.warning("%s: %s stays: %s", table.url, each.path, reason)
                return None
            meta = store.head(each.path)
            if meta is None or (each.etag is not None and not same_etag(each.etag, store.etag(each.path))):
                return None
            age_ms = self._ledger.now_ms() - (meta.modification_time_ms or 0)
            return self._record.looks > 0 and age_ms < LATE_AGE_MS

        with ThreadPoolExecutor(_THREADS) if store.is_remote else contextlib.nullcontext() as threads:
            looked_at = map(look, leftovers) if threads is None else threads.map(look, leftovers)
            yield from ((each, young) for each, young in zip(leftovers, looked_at, strict=True) if young is not None)

    def _take_away(self, table: TableRecord, store: LogStore, leftovers: Sequence[_Leftover]) -> tuple[int, set[str]]:
        """Mark some files, check which are in use, and delete the others. The marking comes first, so that a
        transaction that names or adds one afterwards sees it (see ``catalog.marks``)."""
        paths = tuple(dict.fromkeys(each.path for each in leftovers))
        marking = Marking(self._record.id, self._ledger.now_ms(), paths)
        number = self._mark(table, marking)
        try:
            in_use = self._look(table)
        except DeltaLogError:
            self._coordinator.remark(table.table_id, number, None)  # nothing is deleted by it
            raise
        waiting = in_use.added - in_use.had - in_use.named
        kept = in_use.had | in_use.added | in_use.named
        doomed = [path for path in paths if path not in kept]
        if len(doomed) < len(paths):
            log.info(
                "%s: %d objects are kept: they are files of the table, or in use", table.url, len(paths) - len(doomed)
            )
            marking = replace(marking, deleting=tuple(doomed))
            self._coordinator.remark(table.table_id, number, marking if doomed else None)
        failed = [path for path in doomed if not _is_deleted(store, path)]
        if doomed:
            self._end(table, number, replace(marking, deleting=tuple(failed), deleted=tuple({*doomed} - {*failed})))
        stays = {each.key for each in leftovers if each.path in failed or each.path in waiting}
        return len(doomed) - len(failed), stays

    def _mark(self, table: TableRecord, marking: Marking) -> int:
        for number in range(_TRIES):
            self._ledger.environment.back_off(number)
            last = live_marks(self._coordinator, table.table_id, self._ledger.now_ms()).last
            if self._coordinator.mark(table.table_id, last + 1, marking):
                return last + 1
        raise ConcurrentModificationError(
            f"{table.url}: another clean-up marked objects before each attempt. Nothing was deleted; recover again."
        )

    def _end(self, table: TableRecord, number: int, marking: Marking) -> None:
        """Record that a clean-up is over. Otherwise its names cannot be used for a day."""
        for attempt in range(self._ledger.environment.retry.settle_attempts):
            self._ledger.environment.back_off(attempt)
            try:
                return self._coordinator.remark(table.table_id, number, marking)
            except DeltaLogError as error:
                log.warning("%s: marking %d is kept for now: %s", table.url, number, error)

    def _foreign(self, table: TableRecord, store: LogStore, files: TableFiles, path: str) -> str | None:
        """Why a path cannot be that of a data file of this table; None if it can. Cost: 1 LIST for each directory that
        was not checked before."""
        if not can_be_deleted(path):
            return "that is not the name of a Parquet file"
        try:
            files.find(encode_path(path))
        except UnsafePathError as error:
            return error.message
        place = f"{table.url.rstrip('/')}/{path}"
        for other in self._known.values():
            is_inside = other.table_id != table.table_id and are_nested(other.url, table.url)
            if is_inside and len(other.url) > len(table.url) and are_nested(other.url, place):
                return f"it lies in the table {other.name}"
        names = path.split("/")[:-1]
        for depth in range(1, len(names) + 1):
            directory = "/".join(names[:depth])
            if self._has_log(table, store, directory):
                return f"{directory} is another table"
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
        added, named = set[str](), set[str]()
        changes, objects = f"{CHANGES}/{table.table_id}/", f"{OBJECTS}/{table.table_id}/"
        for record in self._ledger.all(StatusFilter.ACTIVE):
            for key, part in self._coordinator.parts(record.id).items():
                if key.startswith(changes):
                    added.update(
                        each for add in added_files(part) for each in (add.path, *vector_files(add.deletion_vector))
                    )
                elif key.startswith(objects):
                    named.add(key.removeprefix(objects))
        snapshot = self._tables.handle(table).refresh()
        files = snapshot.reader.files
        return _InUse(_paths(files, _named(snapshot)), _paths(files, added), named)


def _by_table(parts: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for key, part in parts.items():
        found.setdefault(key.split("/", 2)[1], {})[key] = part
    return found


def _leftovers(files: TableFiles, parts: Mapping[str, bytes]) -> Iterator[_Leftover]:
    for key, part in parts.items():
        kind, _, rest = key.split("/", 2)
        if kind == OBJECTS:
            yield _Leftover(key, rest, json.loads(part), is_object=True)
        elif kind == CHANGES:
            yield from (_Leftover(key, path) for path in _paths(files, written_files(part)))


def _chunks(leftovers: Sequence[_Leftover]) -> Iterator[list[_Leftover]]:
    some, size = list[_Leftover](), 0
    for each in leftovers:
        length = len(each.path.encode("utf-8", "surrogatepass"))
        if some and (len(some) == _MARKED_AT_ONCE or size + length > _MARKED_BYTES):
            yield some
            some, size = [], 0
        some.append(each)
        size += length
    if some:
        yield some


def _is_deleted(store: LogStore, path: str) -> bool:
    """False where it may be deleted yet, by a request that was not answered."""
    try:
        store.delete(path)
    except StoreError as error:
        log.warning("%s: %s is kept for now: %s", store.url, path, error)
        return False
    return True


def _paths(files: TableFiles, names: Iterable[str]) -> set[str]:
    return {files.find(name)[1] for name in names}


def _named(snapshot: Snapshot) -> Iterator[str]:
    """The files that a version names, or an earlier one that can still be read, as its log names them."""
    columns = ["path", "deletion_vector"]
    for table in (snapshot.files(columns), snapshot.log.cache.tombstones(0).select(columns)):
        yield from table["path"].to_pylist()
        for each in table["deletion_vector"].drop_null().to_pylist():
            yield from vector_files(DeletionVector(**each))


def _sweep_staged(ledger: Ledger, store: LogStore, table: TableRecord, head: Head) -> int:
    """Delete staged commits of versions that others got. Those of later versions can still be ratified, by a process
    that was stopped for however long, so no clock is used. Raises CatalogBehindLogError. Cost: 1 HEAD and 1 LIST."""
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
