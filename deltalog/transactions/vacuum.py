"""Vacuums catalog-managed tables: keeps the files that transactions need, and marks files before deleting them.

Spec: PROTOCOL.md#maintenance-operations-on-catalog-managed-tables, #terminology-commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from deltalog.catalog.committer import check_managed, check_next
from deltalog.catalog.marks import vector_files
from deltalog.catalog.records import VACUUM_ID, Marking, TableRecord
from deltalog.errors import DeltaLogError, InvalidCommitError, ObjectNotFoundError, VersionNotFoundError
from deltalog.log.history import LogHistory
from deltalog.maintenance.vacuum import vacuum as vacuuming
from deltalog.maintenance.vacuum.decisions import UNCOMMITTED_AGE_MS, NamedFiles, Need, VacuumReport, VacuumRules
from deltalog.maintenance.vacuum.needed_files import files_of, named_since, paths_named
from deltalog.protocol.codec import decode_commit
from deltalog.protocol.paths import STAGED_COMMITS_DIRECTORY, staged_commit_path
from deltalog.storage.base import Entry, LogStore
from deltalog.transactions.deletions import chunks, end_marking, mark, undecided
from deltalog.transactions.ledger import Ledger
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.write.table_handle import TableHandle


def vacuum(ledger: Ledger, tables: ManagedTables, record: TableRecord, **options: Any) -> VacuumReport:
    """See ``TransactionManager.vacuum``. ``options``: as for ``maintenance.vacuum.vacuum``."""
    handle = tables.handle(record)
    claims = _CatalogClaims(ledger, record, handle, tables.plain_store(record.url))
    return vacuuming.vacuum(handle, claims=claims, **options)


class _CatalogClaims(vacuuming.Claims):
    """The files needed by transactions of a catalog, and by staged commits that the catalog may still ratify."""

    def __init__(self, ledger: Ledger, record: TableRecord, handle: TableHandle, files: LogStore) -> None:
        """``files``: the store of the table's files, without the catalog."""
        super().__init__(handle)
        self._files = files
        self._ledger = ledger
        self._record = record
        self._id = f"{VACUUM_ID}{ledger.environment.new_uuid()}"

    def needed(self, history: LogHistory, named: NamedFiles, rules: VacuumRules) -> dict[str, Need]:
        """The files to keep. Raises CatalogBehindLogError if the log has commits that the catalog lacks,
        ResourceNotReadyError if the table was released. Cost: 1 HEAD, 1 LIST, 1 GET per staged commit that may be
        ratified, that of ``undecided``, and the files of versions that transactions read and that are older than the
        retention."""
        store, version = history.reader.store, history.latest.version
        check_managed(history.latest.protocol, self._record.url, self._ledger.coordinator.url)
        check_next(self._files, self._ledger.coordinator, self._record.table_id, version + 1)
        found = super().needed(history, named, rules)
        found.update(dict.fromkeys(paths_named(store, self._staged(history, rules)), Need.UNSETTLED))
        open_ = undecided(self._ledger, self._record.table_id)
        used = paths_named(store, open_.added | open_.written) | open_.named
        first = version if named.cutoff_version is None else named.cutoff_version
        for pin in open_.pins:
            if pin < first:
                try:
                    used |= files_of(history, pin)
                except VersionNotFoundError:
                    continue  # log clean-up has deleted the version, so the transaction cannot read it anyway
        found.update(dict.fromkeys(used, Need.TRANSACTION))
        return found

    def _staged(self, history: LogHistory, rules: VacuumRules) -> Iterator[str]:
        """The files in unratified staged commits that are younger than the retention, because their writers may still
        propose these commits."""
        store, oldest_ms = history.reader.store, min(rules.cutoff_ms, rules.now_ms - UNCOMMITTED_AGE_MS)
        for meta in store.list_from(STAGED_COMMITS_DIRECTORY, f"{history.latest.version + 1:020d}"):
            if meta.modification_time_ms is not None and meta.modification_time_ms < oldest_ms:
                continue
            try:
                commit = decode_commit(store.get(staged_commit_path(meta.name)), history.latest.version + 1)
            except (InvalidCommitError, ObjectNotFoundError):
                continue  # the staged commit was truncated or deleted, so it will not be ratified
            for add in commit.adds:
                yield from (add.path, *vector_files(add.deletion_vector))
            yield from (cdc.path for cdc in commit.cdc)

    def remove(self, entries: Sequence[Entry], version: int) -> list[Entry]:
        """Cost: that of ``LogStore.remove``; per 500 files 3 coordinator calls, that of ``undecided``, and 1 GET per
        commit since the plan."""
        removed: list[Entry] = []
        for some in chunks(entries, lambda entry: entry.path):
            removed += self._remove(some, version)
        return removed

    def _remove(self, entries: Sequence[Entry], version: int) -> list[Entry]:
        ledger, table = self._ledger, self._record
        paths = tuple(entry.path for entry in entries)
        number = mark(ledger, table, Marking(self._id, ledger.now_ms(), paths))
        try:
            in_use = self._in_use(version)
        except DeltaLogError:
            end_marking(ledger, table, number, None)  # no file was deleted while this marking applied
            raise
        removed = super().remove([entry for entry in entries if entry.path not in in_use], version)
        gone = tuple(entry.path for entry in removed)
        end_marking(ledger, table, number, Marking(self._id, ledger.now_ms(), (), gone) if gone else None)
        return removed

    def _in_use(self, version: int) -> set[str]:
        # Read the undecided transactions before the log, so that a transaction committed in between is not missed.
        open_ = undecided(self._ledger, self._record.table_id)
        history = LogHistory(self._handle.reader, self._handle.refresh().log)
        check_managed(history.latest.protocol, self._record.url, self._ledger.coordinator.url)
        used = paths_named(history.reader.store, open_.added | open_.written) | open_.named
        return used.union(named_since(history, version))
