"""TransactionManager: manages the tables of a catalog, and transactions on several of them.

The calls, and the errors that they raise, are those of AWS Lake Formation's transactions. Transactions are implemented
with catalog-managed tables: each transaction is committed when a coordinator ratifies it in a single step.
docs/transactions.md lists the guarantees.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from deltalog import metrics
from deltalog.arguments import checked, safe_repr
from deltalog.catalog import records
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.locate import open_coordinator
from deltalog.catalog.records import (
    Call,
    Head,
    Isolation,
    StatusFilter,
    TableRecord,
    TransactionRecord,
    TransactionStatus,
    TransactionType,
)
from deltalog.commit.hooks import after_commit, errors_logged
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    CommitConflictError,
    CoordinatorError,
    DeltaLogError,
    OperationTimeoutError,
    Outcome,
    TransactionCanceledError,
    TransactionStateError,
)
from deltalog.log.snapshot import LogSnapshot
from deltalog.maintenance.vacuum import vacuum as vacuuming
from deltalog.maintenance.vacuum.decisions import VacuumReport
from deltalog.protocol.schema import StructType
from deltalog.protocol.timestamps import to_epoch_ms
from deltalog.read.snapshot import Snapshot
from deltalog.table import DeltaTable, PointInTime
from deltalog.time_zones import TimeZone, zone_of
from deltalog.transactions import external_commits, table_objects, timestamp_restart
from deltalog.transactions.callers import ADMINISTRATOR, Caller
from deltalog.transactions.commit import CommitTarget, at_once, commit
from deltalog.transactions.ledger import Ledger, TransactionDescription, TransactionPage, description
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.open_transactions import OpenTransactions
from deltalog.transactions.recovery import clean_up, recover
from deltalog.transactions.release import release
from deltalog.transactions.resync import Resync, resync
from deltalog.transactions.table_objects import AddObject, DeleteObject, ObjectPage, deletable_path
from deltalog.transactions.transaction import CHANGES, OBJECTS, ManagedTransaction
from deltalog.transactions.unity.settings import UnitySettings
from deltalog.transactions.unity.tables import UnityTables
from deltalog.transactions.vacuum import vacuum
from deltalog.write.transaction import Transaction

_MS = datetime.timedelta(milliseconds=1)
E = TypeVar("E", bound=enum.Enum)


@dataclass(frozen=True, slots=True)
class VirtualObject:
    """An object that is deleted if its transaction is cancelled and, if ``etag`` is passed, its ETag matches."""

    uri: str
    etag: str | None = None


@checked
class TransactionManager:
    """Manages the tables of a catalog and the transactions on them. Thread-safe.

    ``url``: the coordinator, as the path of a SQLite file, ``dynamodb:<table>``, ``postgresql://user@host/database``,
    or an open Coordinator.
    ``idle_timeout``: how long a transaction that this manager starts may be idle before any process may abort it.
    ``most_ahead``: by how much the in-commit timestamp of a ratified commit may be ahead of the clock; by default one
    hour. ``storage_options``: options for the tables, as for ``DeltaTable.open``. Use ``by_location={"s3://lake/sales":
    {…}}`` if tables need different options, or if some are on local disks, which take no options. The catalog does not
    store options.

    The methods are the calls of AWS Lake Formation's transaction API, and calls that add, drop and maintain tables.
    """

    @checked
    def __init__(
        self,
        url: str | Coordinator,
        *,
        idle_timeout: datetime.timedelta = records.IDLE_TIMEOUT_MS * _MS,
        environment: Environment | None = None,
        most_ahead: datetime.timedelta | None = None,
        **storage_options: Any,
    ) -> None:
        self.coordinator = url if isinstance(url, Coordinator) else open_coordinator(url, **storage_options)
        if most_ahead is not None:
            self.coordinator.most_ahead_ms = most_ahead // _MS
        self._environment = environment or Environment()
        self._ledger = Ledger(self.coordinator, self._environment, idle_timeout // _MS)
        self._tables = ManagedTables(self.coordinator, self._environment, storage_options)
        self._open: OpenTransactions[ManagedTransaction] = OpenTransactions()

    @safe_repr
    def __repr__(self) -> str:
        return f"TransactionManager({self.coordinator.url!r})"

    # --------------------------------------------------------------------------------------------- tables

    def create_table(
        self,
        name: str,
        url: str,
        schema: StructType | pa.Schema,
        *,
        properties: Mapping[str, str] | None = None,
        **options: Any,
    ) -> DeltaTable:
        """Create a table that this catalog manages. ``name``: ``database.table``. ``options``: as for
        ``DeltaTable.create``.

        Raises TableExistsError if the name or the location is taken, or the location is nested with the root of another
        table. Cost: that of ``DeltaTable.create`` and an open, 2 HEADs, 3 coordinator calls, and 1 per 1,000 tables.
        """
        return self._tables.create(name, url, schema, properties or {}, options)

    def create_transaction(
        self,
        name: str,
        url: str,
        schema: StructType | pa.Schema,
        *,
        properties: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Transaction:
        """A transaction that creates a table in this catalog together with the table's first files; the commit of this
        transaction is version 0. ``options``: as for ``DeltaTable.create_transaction``.

        After the commit, call ``register_table`` with the same name and location; until then, the table is not in the
        catalog and cannot be written. Raises TableExistsError as ``create_table``.
        """
        return self._tables.creation(name, url, schema, properties or {}, options)

    def register_table(self, name: str, url: str, *, take_over: bool = False) -> DeltaTable:
        """Add an existing table to this catalog, with a commit that enables ``catalogManaged``. After this commit, the
        table can only be written through the catalog, because other writers either do not support the feature or use
        the catalog.

        The call also completes an interrupted registration, and adds a table again that was dropped. ``take_over``:
        asserts that no other catalog manages the table any more, although its log says so: that catalog is gone, or was
        this one before it was restored from a backup. If it still exists, a commit tells it that it has lost the table.

        Raises TableExistsError if the name is taken, or if the location equals, contains or lies below the location of
        another table of the catalog; ResourceNotReadyError if the table belongs to another catalog, if this catalog is
        deleting its files, or if it is to be taken over and has staged commits that may have been accepted;
        TimestampAheadError if its last in-commit timestamp is too far ahead. Cost: two opens and a commit, 2 HEADs, 8
        coordinator calls, and 1 per 1,000 tables, managed and external; 1 LIST to take it over.
        """
        return self._tables.register(name, url, take_over)

    def drop_table(self, name: str) -> None:
        """Publish all commits of a table and remove it from the catalog. The table's files are kept; ``register_table``
        adds the table again.

        Raises EntityNotFoundError; ObjectBeingDeletedError while the clean-up of a transaction may be deleting objects
        of the table. Cost: that of ``publish``, and 2 coordinator calls.
        """
        self._tables.drop_record(self._tables.record(name))

    def release_table(self, name: str) -> None:
        """Release a table from the catalog, so that any engine can access it by its path: a commit removes
        ``catalogManaged`` from its protocol, and once all commits are published, the catalog removes the table.
        In-commit timestamps remain enabled. After the release, writers that have opened the table through the catalog
        get a ResourceNotReadyError that names the table's path.

        After an error, call ``release_table`` again to complete the release; ``recover`` also completes it. Raises
        FeatureDropIncompleteError if a step after the commit failed; OperationTimeoutError if it is unknown whether the
        commit was ratified; EntityNotFoundError if the table is not in the catalog, for example because it was
        released; ObjectBeingDeletedError as ``drop_table``. Cost: that of ``publish``, a snapshot, a commit and
        ``drop_table``.
        """
        release(self._tables, self._tables.record(name), self._environment)

    def places(self) -> list[str]:
        """The locations of the catalog and of all tables that were opened, for callers that remove these locations from
        messages. Cost: none."""
        return [self.coordinator.url, *self._tables.places()]

    def check(self) -> None:
        """Check the catalog's health by reading a table and a transaction from its database. Raises CoordinatorError if
        it is damaged or unreachable, OperationTimeoutError if it does not respond. Cost: 2 coordinator calls."""
        self.coordinator.tables(limit=1)
        self.coordinator.transactions(frozenset(TransactionStatus), limit=1)

    def list_tables(self) -> list[TableRecord]:
        """All tables, ordered by name. Cost: 1 coordinator call, and 1 per 1,000."""
        return self._tables.all()

    def table(self, name: str) -> DeltaTable:
        """A handle on a table; each commit is made through the catalog and takes effect individually. Raises
        EntityNotFoundError.

        Cost: the first time that of ``DeltaTable.open`` and 2 coordinator calls, then 1 call.
        """
        return self._tables.table(self._tables.record(name))

    def publish(self, name: str) -> int:
        """Copy ratified commits of a table to its log, in order; returns their number. Writers also publish after every
        commit.

        Cost: 2 coordinator calls, and 1 per 100 commits; 1 GET, 1 PUT and 1 DELETE per commit.
        """
        return self._tables.publish(self._tables.record(name))

    def vacuum(self, name: str, retention_hours: float | None = None, dry_run: bool = True,
               enforce_retention_duration: bool = True, *, full: bool = True,
               progress: vacuuming.VacuumProgress = vacuuming.silent) -> VacuumReport:  # fmt: skip
        """``DeltaTable.vacuum`` for a table of this catalog. Keeps the files that open transactions need, including the
        files of the versions that they read. Raises EntityNotFoundError, CatalogBehindLogError. Cost: that of
        ``DeltaTable.vacuum``; 4 coordinator calls per 500 files, and 1 per open transaction."""
        return vacuum(self._ledger, self._tables, self._tables.record(name), retention_hours=retention_hours,
                      dry_run=dry_run, enforce_retention_duration=enforce_retention_duration, full=full,
                      progress=progress)  # fmt: skip

    def restart_timestamps(self, name: str) -> int:
        """Restart the in-commit timestamps of a table from the current time, if the last one is so far ahead of the
        clock that the catalog refuses further commits. Returns the version of the commit that restarts the timestamps.

        Earlier versions keep their in-commit timestamps in the log, but time travel uses the modification times of
        their files, as for versions before in-commit timestamps were enabled. Therefore ``consistent_cut`` at an
        earlier time may include a transaction's commits to some tables without those to its other tables. Concurrent
        transactions are not affected. Raises CallError if the last timestamp is not ahead of the clock;
        EntityNotFoundError, ConcurrentModificationError. Cost: that of ``publish``, a snapshot and a commit, and 1 LIST
        of the log.
        """
        return timestamp_restart.restart(self._tables, self._tables.record(name), self._environment)

    def consistent_cut(
        self,
        timestamp: PointInTime,
        names: Sequence[str] | None = None,
        *,
        time_zone: TimeZone | None = None,
    ) -> dict[str, int]:
        """For each table name, the version of the table that was current at ``timestamp`` according to in-commit
        timestamps. For each transaction, these versions include either all of its commits to these tables or none of
        them, unless the timestamps of a table have been restarted since then.

        Raises TimestampOutOfRangeError if a table is younger. Cost: 1 coordinator call, and that of ``list_tables`` or
        1 call per name; per table 2 more calls, ``DeltaTable.version_at``, and 1 GET.
        """
        if names is None:
            tables = {table.name: table for table in self.list_tables()}
        else:
            tables = {name: self._tables.record(name) for name in names}
        at_ms = to_epoch_ms(timestamp, zone_of(time_zone))
        # The time is taken before the tables are read, so that later commits are excluded from all tables alike.
        latest = self.coordinator.cut()
        return {name: self._tables.version_at(table, at_ms, latest) for name, table in tables.items()}

    # --------------------------------------------------------------------------------------- transactions

    def transaction(
        self,
        transaction_id: str | None = None,
        *,
        transaction_type: str = "READ_AND_WRITE",
        isolation: str = "SNAPSHOT",
    ) -> ManagedTransaction:
        """A new transaction, or with ``transaction_id`` an existing transaction, which any process may have started.

            with manager.transaction() as txn:
                txn.table("bank.accounts").delete("id = 7")
                txn.table("bank.archive").append(rows)
                txn.commit()

        ``isolation="SERIALIZABLE"``: the commit fails if any table that the transaction opened has been changed by
        others. If the ``with`` block is left without ``commit``, the transaction is cancelled. Raises
        EntityNotFoundError, CallError.
        """
        if transaction_id is None:
            return self._handle_of(self._start(transaction_type, isolation), is_new=True)
        return self._handle_of(self._current(transaction_id))

    def _handle_of(self, record: TransactionRecord, is_new: bool = False) -> ManagedTransaction:
        end, started = (self.commit_transaction, self.cancel_transaction), record if is_new else None
        made = ManagedTransaction(record.id, self._ledger, self._tables, end, started)
        if record.status.is_final:
            return made
        return self._open.setdefault(record.id, made)

    def _current(self, transaction_id: str) -> TransactionRecord:
        """Like ``Ledger.current``; also releases the handle of a decided transaction."""
        record = self._ledger.current(transaction_id)
        if record.status.is_final:
            self._open.pop(record.id)
        return record

    def _allowed(self, transaction_id: str, call: Call) -> TransactionRecord:
        """Like ``Ledger.allowed``; also releases the handle of a decided transaction."""
        record = self._current(transaction_id)
        records.check_allowed(record, call)
        return record

    def start_transaction(
        self, transaction_type: str = "READ_AND_WRITE", *, isolation: str = "SNAPSHOT", starter: str | None = None
    ) -> str:
        """Start a transaction and return its id. ``starter``: the principal for whom a server starts it; the id
        contains a hash of it, by which it can be verified. Raises CallError. Cost: 1 coordinator call.
        """
        return self._start(transaction_type, isolation, starter).id

    def _start(self, transaction_type: str, isolation: str, starter: str | None = None) -> TransactionRecord:
        kind = _member(TransactionType, transaction_type, "transaction type")
        return self._ledger.start(kind, _member(Isolation, isolation, "isolation"), starter)

    def commit_transaction(self, transaction_id: str) -> TransactionStatus:
        """Commit the changes of a transaction as the next versions of its tables. The call is idempotent: it returns
        COMMITTED if the transaction is already committed, and COMMIT_IN_PROGRESS while another call commits it.

        Raises TransactionCanceledError if the transaction was aborted before, or is aborted now because of its
        ``conflicts``; TransactionContentionError if other writers won every attempt (the transaction is still active);
        StoreError if nothing was committed and the call can be repeated; OperationTimeoutError if the outcome is
        unknown (call again to get it; a commit that did not take effect is aborted a minute later);
        EntityNotFoundError, CallError. Cost: 3 coordinator calls and ``deltalog.transactions.commit``; then per table 1
        call, 1 PUT and 1 DELETE per commit, and the hooks.
        """
        record = self._allowed(transaction_id, Call.COMMIT)
        if record.status is not TransactionStatus.ACTIVE:
            return record.status
        targets = self._handle_of(record).targets(record)
        if not any(target.branch.prepared for target in targets):
            return self._end_without_changes(record)
        in_progress = records.committing(record, self._ledger.now_ms())
        if not self._begin(in_progress):
            return self.commit_transaction(transaction_id)
        try:
            landed = commit(self.coordinator, in_progress, targets, self._environment)
        except CommitConflictError as conflict:
            self._abort(in_progress, f"conflict: {conflict.message}")
            raise TransactionCanceledError(
                f"Transaction {transaction_id} is aborted, because another writer won: {conflict.message}",
                transaction_id=transaction_id,
                conflicts=[conflict],
            ) from conflict
        except TransactionStateError:
            raise  # another call has changed the record, so it is left unchanged
        except DeltaLogError as error:
            if error.outcome is not Outcome.UNKNOWN:
                self._reactivate(in_progress)
            raise
        with errors_logged(f"Transaction {landed.id} is committed", "the publication of its commits"):
            at_once(self._follow_up, targets)
        self._close(landed)
        return landed.status

    def cancel_transaction(self, transaction_id: str) -> None:
        """Abort a transaction, so that it has no effect. Files that the transaction wrote, and objects that were
        registered with ``delete_objects_on_cancel``, are deleted. Idempotent.

        Raises TransactionCommittedError, TransactionCommitInProgressError, EntityNotFoundError.
        """

        def cancelled(record: TransactionRecord) -> TransactionRecord:
            return records.aborted(record, "cancelled", self._ledger.now_ms())

        self._close(self._ledger.change(transaction_id, Call.CANCEL, cancelled))

    def extend_transaction(self, transaction_id: str) -> None:
        """Reset the idle timer of a transaction. Raises the errors of ``cancel_transaction``, and
        TransactionCanceledError."""
        self._ledger.change(transaction_id, Call.EXTEND)

    def describe_transaction(self, transaction_id: str) -> TransactionDescription:
        """Raises EntityNotFoundError. Cost: 1 coordinator call."""
        return description(self._current(transaction_id))

    def list_transactions(
        self,
        status_filter: str = "ALL",
        max_results: int = 1000,
        next_token: str | None = None,
        *,
        starter: str | None = None,
    ) -> TransactionPage:
        """Lists transactions in the order of their start times. Decided transactions are included until ``recover``
        deletes their records. ``starter``: list only the transactions that were started for this principal.

        A page may have fewer than ``max_results`` (1 to 1,000) items; the last page has no token. Raises CallError,
        also if the token belongs to another catalog or filter. Cost: 1 coordinator call; with a starter, 1 per 1,000
        transactions.
        """
        wanted = _member(StatusFilter, status_filter, "status filter")
        _check_max_results(max_results)
        found, token = self._ledger.page(wanted, max_results, next_token, starter)
        return TransactionPage([description(record) for record in found], token)

    def changed_tables(self, transaction_id: str) -> list[TableRecord]:
        """The tables that a transaction changes, or from which objects are deleted if it is aborted, except dropped
        tables. Cost: 1 coordinator call, and 1 per table.
        """
        parts = (key.split("/", 2) for key in self.coordinator.parts(transaction_id))
        ids = {table_id for kind, table_id, _ in parts if kind in (CHANGES, OBJECTS)}
        found = map(self.coordinator.table_with_id, sorted(ids))
        return [record for record in found if record is not None]

    def delete_objects_on_cancel(
        self, transaction_id: str, name: str, objects: Sequence[VirtualObject], *, caller: Caller = ADMINISTRATOR
    ) -> None:
        """Register 1 to 100 objects of a table for deletion if the transaction is aborted. Register objects before
        writing them, so that none is left behind. An object must be a Parquet file: its name ends with ".parquet", and
        no part of its path starts with "_" or ".", except partition directories. ``caller``: for whom a server calls.

        Raises ObjectBeingDeletedError if the clean-up of another transaction may be deleting one of the objects;
        CallError, EntityNotFoundError; TransactionStateError or ConcurrentModificationError depending on the
        transaction's state.
        """
        if not 1 <= len(objects) <= 100:
            raise CallError(f"delete_objects_on_cancel takes 1 to 100 objects; got {len(objects)}.")
        self._allowed(transaction_id, Call.DELETE_OBJECTS_ON_CANCEL)
        table = self._tables.record(name, caller)
        named = {deletable_path(table, each.uri): each.etag for each in objects}
        parts = {f"{OBJECTS}/{table.table_id}/{path}": json.dumps(etag).encode() for path, etag in named.items()}
        known = self._tables.marks(table.table_id)

        def marks(number: int) -> dict[str, int]:
            if number > 0:
                known.refresh()
            return {table.table_id: known.check_named(table.url, named)}

        self._ledger.change(transaction_id, Call.DELETE_OBJECTS_ON_CANCEL, parts=lambda record: parts, marks=marks)

    def update_table_objects(
        self,
        name: str,
        operations: Sequence[AddObject | DeleteObject],
        transaction_id: str | None = None,
        *,
        caller: Caller = ADMINISTRATOR,
    ) -> None:
        """Add Parquet files that the caller has written below the table root, and remove files from the table, in one
        commit; with ``transaction_id``, the commit belongs to that transaction. Takes 1 to 100 operations on distinct
        objects.

        If the transaction is cancelled, the caller's files are kept unless they were registered with
        ``delete_objects_on_cancel``. ``caller``: for whom a server calls. Raises CallError, InvalidDataFileError and
        the errors of ``Transaction.commit``; EntityNotFoundError, TransactionStateError. Cost:
        ``Transaction.add_parquet_files`` and ``LogStore.etag`` for each added object; a commit.
        """
        if transaction_id is None:
            record = self._tables.record(name, caller)
            return table_objects.update(self._tables.table(record), record, operations)
        self._allowed(transaction_id, Call.WRITE)
        record = self._tables.record(name, caller)
        transaction = self.transaction(transaction_id)
        with transaction.alone():
            table_objects.update(transaction.opened(lambda: record), record, operations)

    def get_table_objects(
        self,
        name: str,
        transaction_id: str | None = None,
        *,
        timestamp: PointInTime | None = None,
        time_zone: TimeZone | None = None,
        where: str | None = None,
        max_results: int = 1000,
        next_token: str | None = None,
        caller: Caller = ADMINISTRATOR,
    ) -> ObjectPage:
        """The files of a table as seen by a transaction (including its own changes), at a point in time as in
        ``consistent_cut``, or of the latest version. All pages belong to the same version.

        ``where``: a predicate on partition columns. ``caller``: for whom a server calls. Raises CallError, also if the
        token belongs to another listing; EntityNotFoundError, TimestampOutOfRangeError, VersionNotFoundError;
        ResourceNotReadyError if a file has a deletion vector; TransactionStateError. Cost: a snapshot and its
        files.
        """
        _check_max_results(max_results)
        if transaction_id is not None and timestamp is not None:
            raise CallError("Pass either a transaction or a timestamp, not both.")
        record = self._tables.record(name, caller)
        if transaction_id is None:
            table = self._tables.table(record)
        else:
            table = self.transaction(transaction_id).opened(lambda: record)
        listing = _listing(record.table_id, transaction_id, where)
        version, start = None, 0
        if next_token is not None:
            version, start = self._ledger.numbers(listing, next_token)
        elif timestamp is not None:
            version = self.consistent_cut(timestamp, [name], time_zone=time_zone)[name]
        snapshot = table.snapshot(version)
        found, following = table_objects.page(snapshot, where, max_results, start)
        if following is None:
            return ObjectPage(found, None)
        return ObjectPage(found, self._ledger.token(listing, snapshot.version, str(following)))

    # -------------------------------------------------------------------- methods for other Delta clients

    def ratified(self, name: str) -> tuple[TableRecord, Head]:
        """The record of a table, and its head: the latest version, and ratified commits that may not have been
        published yet.

        Raises EntityNotFoundError, CallError. Cost: 2 coordinator calls.
        """
        record = self._tables.record(name)
        return record, external_commits.head_of(self._tables, record)

    def propose_commit(self, name: str, version: int, file: str) -> tuple[TableRecord, Head]:
        """Ratify a commit that another client staged as ``_delta_log/_staged_commits/<file>`` as the next version of a
        table; returns the record and head of the table. The call is idempotent for the same file until the commit is
        published.

        Raises CommitConflictError if the version is already another commit; InvalidActionError if the commit is
        unreadable or if the table would no longer be catalog-managed; ResourceNotReadyError if the table was released;
        CallError, EntityNotFoundError. Cost: 3 coordinator calls and 2 GETs; 1 more GET if the previous version is
        published.
        """
        record = self._tables.record(name)
        return record, external_commits.propose(self._tables, record, version, file)

    def confirm_published(self, name: str, version: int) -> tuple[TableRecord, Head]:
        """Check that all commits up to ``version`` are in ``_delta_log``, publish those that are missing there, and
        record this. Returns the record and head of the table. Raises the errors of ``publish``, and CallError. Cost:
        that of ``publish``, and 1 coordinator call."""
        record = self._tables.record(name)
        return record, external_commits.confirm_published(self._tables, record, version)

    def unity_tables(self, settings: UnitySettings) -> UnityTables:
        """The tables of this catalog as a Unity Catalog, for a server. Raises CallError if the warehouse is not a
        location. Cost: none."""
        return UnityTables(self._tables, self._environment, settings)

    # ------------------------------------------------------------------------------------------- recovery

    def recover(self, retention: datetime.timedelta = datetime.timedelta(days=30)) -> dict[str, int]:
        """Clean up after processes that died: publish ratified commits, abort overdue transactions, delete the files of
        aborted transactions, and delete the records of transactions that ended more than ``retention`` ago. Returns the
        number of each. The call also completes interrupted releases of tables.

        Any process may call this method at any time. Raises CatalogBehindLogError if the catalog is older than the log
        of a table, whose leftovers are then kept. Cost: 1 coordinator call, 1 HEAD and 1 LIST per table; 1 call per
        1,000 transactions that are undecided, have leftovers, or began ``retention`` ago; and the cost of the work
        itself.
        """
        opened = self._open.ids()
        with metrics.upkeep("recovery", self.coordinator.url) as done:
            recover(self._ledger, self._tables, retention // _MS, done)
        active = {record.id for record in self._ledger.all(StatusFilter.ACTIVE)}
        # Another process has ended the transaction, or its idle timeout has passed.
        for transaction_id in opened - active:
            self._open.pop(transaction_id)
        return done

    def resync(self, *, dry_run: bool = False, staged: Collection[str] = (), keep_log: Collection[str] = ()) -> Resync:
        """Update a catalog that is older than the logs of its tables, for example after a restore from a backup: add
        the commits that only the logs contain, and record how the transactions of these commits ended. Returns the
        differences; with ``dry_run``, changes nothing.

        ``staged``: names of staged commits to accept, from those that an earlier call listed as in doubt. ``keep_log``:
        names of tables whose log takes precedence over the catalog if the catalog has commits that the log lacks or
        that differ from those in the log. Commits that only the catalog has are not deleted; they are moved to
        ``_delta_log/_staged_commits/set-aside.*``. Stop all writers of a table in ``keep_log`` before the call.

        The call can be repeated, and writers may continue during the call. For a table that cannot be updated, the
        result states the ``problem``, and the table is left unchanged. Raises CoordinatorError,
        ConcurrentModificationError. Cost: that of ``list_tables``; per table 1 coordinator call and 2 LISTs, and 1 GET
        per commit that the catalog does not know to be published; per undecided transaction 1 call, and 1 GET per
        version since.
        """
        return resync(self._ledger, self._tables, dry_run, staged, keep_log)

    # ---------------------------------------------------------------------------------------------- parts

    def _end_without_changes(self, record: TransactionRecord) -> TransactionStatus:
        """Commit a transaction that has no changes. If another process has modified the transaction's record in the
        meantime, it may have added changes; these changes are committed too."""
        ended = records.committed(record, {}, self._ledger.now_ms())
        if not self.coordinator.replace(ended):
            return self.commit_transaction(record.id)
        self._close(ended)
        return ended.status

    def _begin(self, in_progress: TransactionRecord) -> bool:
        """Record the start of a commit; returns False if another process changed the record in the meantime. If there
        is no response, the method tries to undo the change of the record, so that other processes do not wait for a
        commit that is never made."""
        try:
            return self.coordinator.replace(in_progress)
        except OperationTimeoutError:
            with contextlib.suppress(DeltaLogError):
                if self.coordinator.transaction(in_progress.id) == in_progress:
                    self._reactivate(in_progress)
            raise

    def _reactivate(self, in_progress: TransactionRecord) -> None:
        """Make a transaction active again after a failed commit."""
        with contextlib.suppress(CoordinatorError):  # otherwise it becomes overdue
            self.coordinator.replace(records.active_again(in_progress, self._ledger.now_ms()))

    def _abort(self, record: TransactionRecord, reason: str) -> None:
        with contextlib.suppress(CoordinatorError):  # otherwise it becomes overdue
            ended = records.aborted(record, reason, self._ledger.now_ms())
            if self.coordinator.replace(ended):
                self._close(ended)

    def _follow_up(self, target: CommitTarget) -> None:
        """Publish a commit and run its hooks. If the publication or a hook fails, the commit is not affected."""
        if not target.staged:
            return
        fact = f"{target.store.url}: version {target.staged[-1].version} is committed"
        with errors_logged(fact, "publication of the commit (the next commit publishes it)"):
            target.publish(self.coordinator)
            for version in target.branch.landed(target.attempts):
                snapshot = Snapshot(version.snapshot)
                self._tables.advance(target.table_id, snapshot)
                after_commit(version, self._environment, partial(self._on_checkpoint, target.table_id, snapshot))

    def _on_checkpoint(self, table_id: str, snapshot: Snapshot, latest: LogSnapshot) -> None:
        self._tables.advance(table_id, Snapshot(latest), snapshot)

    def _close(self, record: TransactionRecord) -> None:
        """Forget a transaction that was committed or aborted, and clean up after it."""
        self._open.pop(record.id)
        with errors_logged(f"Transaction {record.id} is {record.status.value}", "clean-up, left to recover()"):
            clean_up(self._ledger, self._tables, record)


def _member(kind: type[E], text: object, what: str) -> E:
    try:
        return kind(text)
    except ValueError:
        raise CallError(f"The {what} must be one of {', '.join(each.value for each in kind)}; got {text!r}.") from None


def _listing(table_id: str, transaction_id: str | None, where: str | None) -> str:
    """Identifies the listing to which a page token belongs; a hash keeps the tokens short."""
    arguments = json.dumps([table_id, transaction_id, where]).encode()
    return f"objects {hashlib.sha256(arguments).hexdigest()}"


def _check_max_results(max_results: object) -> None:
    if isinstance(max_results, bool) or not isinstance(max_results, int) or not 1 <= max_results <= 1000:
        raise CallError(f"max_results must be a number from 1 to 1000; got {max_results!r}.")
