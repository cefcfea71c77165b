"""Removes the leftovers of failed transactions and of processes that died.

This module does not decide whether a transaction is committed, so any process may run a recovery at any time, any
number of times.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from deltalog import metrics
from deltalog.catalog.committer import check_managed, check_next, publish
from deltalog.catalog.marks import live_marks, vector_files
from deltalog.catalog.records import (
    Head,
    Marking,
    StatusFilter,
    TableRecord,
    TransactionRecord,
    TransactionStatus,
    are_nested,
    cleaned,
)
from deltalog.errors import CatalogBehindLogError, DeltaLogError, StoreError, UnsafePathError
from deltalog.log.reader import LogReader
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.paths import LOG_DIRECTORY, STAGED_COMMITS_DIRECTORY, commit_path, encode_path
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import FileMeta, LogStore
from deltalog.storage.table_files import TableFiles
from deltalog.transactions.commit import side_by_side
from deltalog.transactions.deletions import chunks, end_marking, mark, undecided
from deltalog.transactions.ledger import Ledger
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.prepared_codec import written_files
from deltalog.transactions.release import complete_release, is_released
from deltalog.transactions.table_objects import can_be_deleted, same_etag
from deltalog.transactions.transaction import CHANGES, OBJECTS
from deltalog.transactions.unity.dropped import delete_dropped

log = logging.getLogger(__name__)

# The page size is small, because few transactions ended that long ago, and DynamoDB reads the records of a page one by
# one.
_FORGOTTEN_AT_ONCE = 100


# Additional clean-up passes run at these times, in milliseconds after the end of an aborted transaction, because a PUT
# that was in flight at the end can appear later. An object that is younger than LATE_AGE_MS is kept at first, because a
# retry may be about to add it.
LATE_PASSES_MS = (15 * 60 * 1000, 24 * 60 * 60 * 1000)
LATE_AGE_MS = 10 * 60 * 1000
# For how long clients may read a staged commit after the catalog has named it to them.
KEPT_STAGED_MS = 60 * 60 * 1000
_THREADS = 8


def recover(ledger: Ledger, tables: ManagedTables, retention_ms: int, done: dict[str, int]) -> None:
    """See ``TransactionManager.recover``. ``done``: receives what was done, as counts, even if this raises an error."""
    done.update(published=0, aborted=0, cleaned=0, forgotten=0)
    failed: list[DeltaLogError] = []
    for table in tables.all():
        try:
            head = ledger.coordinator.head(table.table_id)
            if head is not None:
                _recover_table(ledger, tables, table, head, done)
        except DeltaLogError as error:  # a damaged or unreachable table must not block the others
            log.warning("%s was not recovered: %s", table.name, error)
            failed.append(error)
    for record in ledger.all(StatusFilter.ACTIVE):
        done["aborted"] += ledger.settled(record).status is TransactionStatus.ABORTED
    uncleaned = list(ledger.uncleaned())
    if any(record.status is TransactionStatus.ABORTED for record in uncleaned):
        _forget_markings(ledger, tables)
    for record in uncleaned:
        if _is_due(record, ledger.now_ms()):
            done["cleaned"] += _clean(ledger, tables, record)[0]
    done["cleaned"] += delete_dropped(tables, ledger.environment)
    oldest_ms = ledger.now_ms() - retention_ms
    for record in ledger.all(StatusFilter.COMPLETED, _FORGOTTEN_AT_ONCE):
        if record.start_ms >= oldest_ms:
            # Records are ordered by start time, so all later records also started, and therefore ended, after
            # oldest_ms.
            break
        if record.end_ms is not None and record.end_ms < oldest_ms:
            count, has_leftovers = _clean(ledger, tables, record)
            done["cleaned"] += count
            # A record is kept until the last clean-up pass for its objects, regardless of the retention.
            if not (has_leftovers or ledger.coordinator.parts(record.id)):
                ledger.coordinator.delete(record.id)
                done["forgotten"] += 1
    if failed:
        raise failed[0]


def _recover_table(ledger: Ledger, tables: ManagedTables, table: TableRecord, head: Head, done: dict[str, int]) -> None:
    """Publish a table's commits, delete staged commits that lost, and complete an interrupted release. Looks for an
    interrupted release only if there were unpublished commits or the log has a later version. Cost: that of
    ``publish``, 1 HEAD and 1 LIST; 1 GET if a release may have been interrupted."""
    store = tables.plain_store(table.url)
    done["published"] += publish(store, ledger.coordinator, table.table_id, head)
    tables.record_late(table.table_id, head.unpublished)
    behind: CatalogBehindLogError | None = None
    try:
        done["cleaned"] += _sweep_staged(ledger, tables, store, table, head)
    except CatalogBehindLogError as error:
        behind = error
    if (head.unpublished or behind) and is_released(LogReader(store), head.version):
        complete_release(tables, table, ledger.environment)
    elif behind is not None:
        raise behind


def clean_up(ledger: Ledger, tables: ManagedTables, record: TransactionRecord) -> None:
    """Delete the parts of a decided transaction and, if it was aborted, the files that it wrote and the objects that it
    registered. Anything that cannot be deleted is left to ``recover``."""
    if record.status is TransactionStatus.ABORTED:
        if record.looks == 0:
            _clean(ledger, tables, record)
        return
    try:
        ledger.coordinator.delete_parts(record.id)
    except DeltaLogError as error:
        log.warning("transaction %s: its parts could not be deleted yet: %s", record.id, error)


def _is_due(record: TransactionRecord, now_ms: int) -> bool:
    """Whether a clean-up pass over the objects that this transaction left behind is due now."""
    is_aborted = record.status is TransactionStatus.ABORTED
    return not is_aborted or record.looks > len(LATE_PASSES_MS) or record.looks < _passes_due(record, now_ms)


def _passes_due(record: TransactionRecord, now_ms: int) -> int:
    """The number of clean-up passes that are due for an aborted transaction: one pass at the end of the transaction,
    and the late passes."""
    ended_ms = record.last_activity_ms if record.end_ms is None else record.end_ms
    return 1 + sum(now_ms >= ended_ms + late_ms for late_ms in LATE_PASSES_MS)


def _clean(ledger: Ledger, tables: ManagedTables, record: TransactionRecord) -> tuple[int, bool]:
    """Returns the number of deleted files and records, and whether any remain to be deleted."""
    coordinator = ledger.coordinator
    try:
        parts = coordinator.parts(record.id)
        if record.status is not TransactionStatus.ABORTED:
            coordinator.delete_parts(record.id)
            return len(parts), False
        return _Cleaner(ledger, tables, record).clean(parts)
    except DeltaLogError as error:
        log.warning("transaction %s: its leftovers could not be deleted yet: %s", record.id, error)
        return 0, True


def _forget_markings(ledger: Ledger, tables: ManagedTables) -> None:
    """Delete expired markings. Cost: 1 coordinator call per table, and 1 per expired marking."""
    for table in tables.all():
        live_marks(ledger.coordinator, table.table_id, ledger.now_ms())


@dataclass(frozen=True, slots=True)
class _OrphanFile:
    """A file that an aborted transaction wrote or registered, and the key of the part that names it."""

    key: str
    path: str
    etag: str | None = None
    is_object: bool = False


@dataclass(frozen=True, slots=True)
class _InUse:
    """The paths of a table that are in use: ``referenced``: the paths to which the table's last version or an earlier
    readable version refers. ``added``: the paths of files that undecided transactions add. ``named``: the paths of
    objects that undecided transactions registered for deletion on cancel."""

    referenced: Set[str]
    added: Set[str]
    named: Set[str]


class _Cleaner:
    """Deletes the leftovers of one aborted transaction."""

    def __init__(self, ledger: Ledger, tables: ManagedTables, record: TransactionRecord) -> None:
        self._ledger = ledger
        self._coordinator = ledger.coordinator
        self._tables = tables
        self._record = record
        self._known = {table.table_id: table for table in tables.all()}
        self._is_table: dict[tuple[str, str], bool] = {}

    def clean(self, parts: Mapping[str, bytes]) -> tuple[int, bool]:
        """Returns the number of deleted files and records, and whether any remain to be deleted. Object names are kept
        for later checks until no clean-up can still be deleting the objects; other finished records are removed."""
        passes, count, remaining = _passes_due(self._record, self._ledger.now_ms()), 0, set[str]()
        tables = {table_id: self._known.get(table_id) for table_id in _by_table(parts)}
        is_due = self._record.looks < passes
        if is_due:
            self._check_known(filter(None, tables.values()))
        for deleted, kept_keys in self._of_tables(parts, tables) if is_due else ():
            count += deleted
            remaining |= kept_keys
        is_last = passes > len(LATE_PASSES_MS) and not any(map(self._has_markings, tables))
        kept = {key for key in parts if key.startswith(f"{OBJECTS}/") and tables[key.split("/", 2)[1]] is not None}
        finished = parts.keys() - remaining - (set[str]() if is_last else kept)
        if len(finished) == len(parts):
            self._coordinator.delete_parts(self._record.id)
            return count, False
        if finished:
            self._coordinator.delete_parts(self._record.id, sorted(finished))
        if is_due and not remaining:
            self._coordinator.replace(cleaned(self._record, passes))
        return count, bool(remaining)

    def _of_tables(
        self, parts: Mapping[str, bytes], tables: Mapping[str, TableRecord | None]
    ) -> list[tuple[int, set[str]]]:
        """``_delete_orphans`` for all tables."""

        def delete(table: TableRecord, some: Mapping[str, bytes]) -> tuple[int, set[str]]:
            try:
                return self._delete_orphans(table, some)
            except DeltaLogError as error:  # an unreachable table must not block the others
                log.warning(
                    "%s: leftovers of transaction %s could not be deleted yet: %s", table.url, self._record.id, error
                )
                return 0, set(some)

        # The files of a dropped table are kept, because after the drop the catalog no longer manages them.
        known = [(table, some) for table_id, some in _by_table(parts).items() if (table := tables[table_id])]
        return side_by_side(lambda each: delete(*each), known, self._is_remote(table for table, _ in known))

    def _is_remote(self, tables: Iterable[TableRecord]) -> bool:
        return any(self._tables.plain_store(table.url).is_remote for table in tables)

    def _has_markings(self, table_id: str) -> bool:
        """Whether the catalog contains a marking by this transaction (files marked for deletion) whose clean-up may
        still be running."""
        markings = self._coordinator.marks(table_id).markings.values()
        return any(marking.transaction_id == self._record.id and marking.deleting for marking in markings)

    def _check_known(self, tables: Iterable[TableRecord]) -> None:
        """Check that the logs of the tables have no commits that are missing from the catalog. A catalog restored from
        a backup treats transactions that committed after the backup as aborted; nevertheless their files must be kept.
        Raises CatalogBehindLogError. Cost: 1 coordinator call and 1 HEAD per table."""

        def check(table: TableRecord) -> None:
            head = self._coordinator.head(table.table_id)
            if head is not None:
                store = self._tables.plain_store(table.url)
                check_next(store, self._coordinator, table.table_id, head.version + 1)

        some = list(tables)
        side_by_side(check, some, self._is_remote(some))

    def _delete_orphans(self, table: TableRecord, parts: Mapping[str, bytes]) -> tuple[int, set[str]]:
        """Delete the orphaned files of a table, except those that are in use or too young. Returns the number of
        deleted files, and the keys of the parts that name files which were kept."""
        store = self._tables.plain_store(table.url)
        files, count, remaining = TableFiles(store), 0, set[str]()
        found = list[_OrphanFile]()
        for orphan, is_young in self._existing(table, store, files, list(_orphans(files, parts))):
            if is_young:
                remaining.add(orphan.key)
            else:
                found.append(orphan)
        for some in chunks(found, lambda each: each.path):
            deleted, kept_keys = self._delete_unused(table, store, some)
            count += deleted
            remaining |= kept_keys
        return count, remaining

    def _existing(
        self, table: TableRecord, store: LogStore, files: TableFiles, orphans: Sequence[_OrphanFile]
    ) -> Iterator[tuple[_OrphanFile, bool]]:
        """Returns the existing files that may be deleted, and whether some files cannot be deleted yet. Cost: 1 HEAD
        per object."""

        def is_young(each: _OrphanFile) -> bool | None:
            if not each.is_object:
                return False
            if (reason := self._why_foreign(table, store, files, each.path)) is not None:
                log.warning("%s: %s stays: %s", table.url, each.path, reason)
                return None
            meta = store.head(each.path)
            if meta is None or (each.etag is not None and not same_etag(each.etag, store.etag(each.path))):
                return None
            age_ms = self._ledger.now_ms() - (meta.modification_time_ms or 0)
            return self._record.looks > 0 and age_ms < LATE_AGE_MS

        with ThreadPoolExecutor(_THREADS) if store.is_remote else contextlib.nullcontext() as threads:
            found = map(is_young, orphans) if threads is None else threads.map(is_young, orphans)
            yield from ((each, young) for each, young in zip(orphans, found, strict=True) if young is not None)

    def _delete_unused(
        self, table: TableRecord, store: LogStore, orphans: Sequence[_OrphanFile]
    ) -> tuple[int, set[str]]:
        """Mark files as candidates for deletion, check which of them are in use, and delete the others. The files are
        marked first, so that a transaction that later registers or adds one of them detects the marking (see
        ``catalog.marks``)."""
        paths = tuple(dict.fromkeys(each.path for each in orphans))
        marking = Marking(self._record.id, self._ledger.now_ms(), paths)
        number = mark(self._ledger, table, marking)
        try:
            in_use = self._in_use(table)
        except DeltaLogError:
            # Withdraw the marking, since none of the files that it marks were deleted.
            self._coordinator.remark(table.table_id, number, None)
            raise
        waiting = in_use.added - in_use.referenced - in_use.named
        kept = in_use.referenced | in_use.added | in_use.named
        doomed = [path for path in paths if path not in kept]
        if len(doomed) < len(paths):
            log.info(
                "%s: %d objects are kept because the table or a transaction uses them",
                table.url,
                len(paths) - len(doomed),
            )
            marking = replace(marking, deleting=tuple(doomed))
            self._coordinator.remark(table.table_id, number, marking if doomed else None)
        with metrics.upkeep("deletion", store.url) as done:
            failed = [path for path in doomed if not _deleted(store, path)]
            done["files_of_aborted_transaction"] = len(doomed) - len(failed)
        if doomed:
            ended = replace(marking, deleting=tuple(failed), deleted=tuple({*doomed} - {*failed}))
            end_marking(self._ledger, table, number, ended)
        kept_keys = {each.key for each in orphans if each.path in failed or each.path in waiting}
        return len(doomed) - len(failed), kept_keys

    def _why_foreign(self, table: TableRecord, store: LogStore, files: TableFiles, path: str) -> str | None:
        """The reason why a path cannot be a data file of this table, or None. Cost: 1 LIST per unchecked directory."""
        if not can_be_deleted(path):
            return "it is not named like a Parquet file"
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

    def _in_use(self, table: TableRecord) -> _InUse:
        """The paths of the files of a table that a readable version references, that an undecided transaction has
        added, or that it has registered for deletion on cancel. Cost: 1 coordinator call per undecided transaction, and
        1 per 1,000; that of ``Snapshot.files``."""
        # Read the undecided transactions first and the last version of the table afterwards, so that a transaction
        # committed in between is not missed.
        open_ = undecided(self._ledger, table.table_id)
        snapshot = self._tables.handle(table).refresh()
        check_managed(snapshot.protocol, table.url, self._coordinator.url)
        files = snapshot.reader.files
        return _InUse(_paths(files, _named(snapshot)), _paths(files, open_.added), open_.named)


def _by_table(parts: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for key, part in parts.items():
        found.setdefault(key.split("/", 2)[1], {})[key] = part
    return found


def _orphans(files: TableFiles, parts: Mapping[str, bytes]) -> Iterator[_OrphanFile]:
    for key, part in parts.items():
        kind, _, rest = key.split("/", 2)
        if kind == OBJECTS:
            yield _OrphanFile(key, rest, json.loads(part), is_object=True)
        elif kind == CHANGES:
            yield from (_OrphanFile(key, path) for path in _paths(files, written_files(part)))


def _deleted(store: LogStore, path: str) -> bool:
    """Delete a file. Returns False if the deletion failed; the file may then still exist, or be deleted later."""
    try:
        store.delete(path)
    except StoreError as error:
        log.warning("%s: %s could not be deleted yet: %s", store.url, path, error)
        return False
    return True


def _paths(files: TableFiles, names: Iterable[str]) -> set[str]:
    return {files.find(name)[1] for name in names}


def _named(snapshot: Snapshot) -> Iterator[str]:
    """The files that a version or an earlier readable version references, as paths in the form used in the log."""
    columns = ["path", "deletion_vector"]
    for table in (snapshot.files(columns), snapshot.log.cache.tombstones(0).select(columns)):
        yield from table["path"].to_pylist()
        for each in table["deletion_vector"].drop_null().to_pylist():
            yield from vector_files(DeletionVector(**each))


def _sweep_staged(ledger: Ledger, tables: ManagedTables, store: LogStore, table: TableRecord, head: Head) -> int:
    """Delete staged commits for versions at which other commits were ratified; if the catalog keeps staged commits,
    only those that were written and published more than KEPT_STAGED_MS ago. Staged commits of later versions are kept
    regardless of age, because a suspended process may still have them ratified. Raises CatalogBehindLogError. Cost: 1
    HEAD and 1 LIST; 1 coordinator call if there are staged commits, and 1 HEAD per version of old ones."""
    check_next(store, ledger.coordinator, table.table_id, head.version + 1)
    wanted = {commit.file for commit in head.unpublished}
    found = [
        meta
        for meta in store.list_from(STAGED_COMMITS_DIRECTORY)
        if meta.name not in wanted and _staged_version(meta.name) <= head.version
    ]
    if not found:
        return 0
    if not ledger.coordinator.keeps_staged_commits:
        # Reads again whether the catalog keeps them: another process may have begun to serve it.
        ledger.coordinator.published(table.table_id, head.version)
    if ledger.coordinator.keeps_staged_commits:
        oldest_ms = ledger.now_ms() - KEPT_STAGED_MS
        # The files of a version are deleted together, so that not only those remain that lost.
        young = {_staged_version(meta.name) for meta in found if (meta.modification_time_ms or 0) >= oldest_ms}
        # A commit may have been published long after it was written. On a local disk, its two names are one file, whose
        # time says nothing about that.
        young |= {version for version in _versions(found) - young if version <= tables.late(table.table_id, oldest_ms)}
        versions = sorted(_versions(found) - young)
        for version, meta in zip(versions, store.head_many([*map(commit_path, versions)]), strict=True):
            if meta is not None and (meta.modification_time_ms or 0) >= oldest_ms:
                young.add(version)
        found = [meta for meta in found if _staged_version(meta.name) not in young]
    dead = [meta.name for meta in found]
    with metrics.upkeep("deletion", store.url) as done:
        for number, name in enumerate(dead, 1):
            store.delete(f"{STAGED_COMMITS_DIRECTORY}/{name}")
            done["staged_commits"] = number
    return len(dead)


def _versions(found: Iterable[FileMeta]) -> set[int]:
    return {int(_staged_version(meta.name)) for meta in found}


def _staged_version(name: str) -> float:
    """The version of a staged commit, from its name; infinity for other files."""
    number = name.partition(".")[0]
    return int(number) if len(number) == 20 and number.isdigit() else math.inf
