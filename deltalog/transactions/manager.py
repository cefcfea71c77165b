"""TransactionManager: the tables of a catalog, and transactions over several of them.

The calls and their errors are those of AWS Lake Formation's transactions; they are implemented with catalog-managed
tables: a transaction is one ratification by a coordinator. docs/transactions.md lists the guarantees.
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
from deltalog.read.snapshot import Snapshot
from deltalog.table import DeltaTable, PointInTime
from deltalog.transactions import external_commits, table_objects, timestamp_restart
from deltalog.transactions.commit import CommitTarget, at_once, commit
from deltalog.transactions.ledger import Ledger, TransactionDescription, TransactionPage, description
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.open_transactions import OpenTransactions
from deltalog.transactions.recovery import clean_up, recover
from deltalog.transactions.release import release
from deltalog.transactions.resync import Resync, resync
from deltalog.transactions.table_objects import AddObject, DeleteObject, ObjectPage, deletable_path
from deltalog.transactions.transaction import OBJECTS, ManagedTransaction
from deltalog.transactions.vacuum import vacuum
from deltalog.write.transaction import Transaction

_MS = datetime.timedelta(milliseconds=1)
E = TypeVar("E", bound=enum.Enum)


@dataclass(frozen=True, slots=True)
class VirtualObject:
    """An object that is to be deleted when its transaction is cancelled; if ``etag`` is given, only if it has that."""

    uri: str
    etag: str | None = None


@checked
class TransactionManager:
    """The tables of a catalog. Threads may share it.

    ``url``: where the coordinator is: the path of a SQLite file, ``dynamodb:<table>``, or an open Coordinator.
    ``idle_timeout``: how long a transaction that is started here may be idle before any process may abort it.
    ``most_ahead``: how far ahead of the clock an in-commit timestamp may be for the coordinator to ratify it; by
    default one hour. ``storage_options``: those of the tables, as for ``DeltaTable.open``;
    ``by_location={"s3://lake/sales": {…}}`` where tables differ in them, or some are on local disks, which take none.
    The catalog keeps no options.

    Members: one for each call of AWS Lake Formation's transactions, and those by which tables come and go.
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
        table. Cost: as ``DeltaTable.create`` and an open, 2 HEADs, and 3 calls of the coordinator, and 1 for
        each 1,000 tables.
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
        """A transaction whose commit is version 0 of a table that this catalog manages, for a table that is created
        with files. ``options``: as for ``DeltaTable.create_transaction``.

        ``register_table`` with the same name and location has to follow the commit: until then the catalog does not
        have the table, and nothing else can write it. Raises TableExistsError as ``create_table``.
        """
        return self._tables.creation(name, url, schema, properties or {}, options)

    def register_table(self, name: str, url: str) -> DeltaTable:
        """Make this catalog manage an existing table, with a commit that enables ``catalogManaged``. From then on it
        can only be written through the catalog: other writers lack the feature, or go through the catalog too.

        Completes a registration that was interrupted. Raises TableExistsError for a name that is taken, and for a
        table that is in the catalog under another name, or nested with one, however its location is spelled;
        ResourceNotReadyError for a table of another catalog; TimestampAheadError for one whose last in-commit timestamp
        is too far ahead. Cost: as two opens and a commit, 2 HEADs, and 3 calls of the coordinator, and 1 for each 1,000
        tables.
        """
        return self._tables.register(name, url)

    def drop_table(self, name: str) -> None:
        """Publish a table in full, and remove it from the catalog. Its files stay; ``register_table`` adds it again.

        Raises EntityNotFoundError; ObjectBeingDeletedError while the clean-up of a transaction may be deleting objects
        of it. Cost: as ``publish``, and 2 calls of the coordinator.
        """
        self._tables.drop(name)

    def release_table(self, name: str) -> None:
        """Return a table to access by its path, for any engine: a commit removes ``catalogManaged`` from its protocol,
        and when all commits are published, the catalog removes the table. In-commit timestamps stay. Writers that
        have it open through the catalog then get a ResourceNotReadyError, which names its path.

        Call again after an error, which completes an interrupted release; ``recover`` does too. Raises
        FeatureDropIncompleteError if a step after that commit failed; OperationTimeoutError if it is unknown whether it
        was ratified; EntityNotFoundError for a table that is not in the catalog, as after its release;
        ObjectBeingDeletedError as ``drop_table``. Cost: as ``publish``, a snapshot, a commit and ``drop_table``.
        """
        release(self._tables, self._tables.record(name), self._environment)

    def places(self) -> list[str]:
        """The locations of the catalog and of the tables opened here, for callers that remove them from messages.
        Cost: none."""
        return [self.coordinator.url, *self._tables.places()]

    def check(self) -> None:
        """Read a table and a transaction from the catalog's database. Raises CoordinatorError if it is damaged or
        cannot be reached, OperationTimeoutError if it does not answer. Cost: 2 calls of the coordinator."""
        self.coordinator.tables(limit=1)
        self.coordinator.transactions(frozenset(TransactionStatus), limit=1)

    def list_tables(self) -> list[TableRecord]:
        """All tables, by name. Cost: 1 call of the coordinator for each 1,000, and 1."""
        return self._tables.all()

    def table(self, name: str) -> DeltaTable:
        """A handle whose commits go through the catalog, each by itself. Raises EntityNotFoundError.

        Cost: as ``DeltaTable.open`` and 2 calls of the coordinator the first time, then 1 call.
        """
        return self._tables.table(self._tables.record(name))

    def publish(self, name: str) -> int:
        """Copy ratified commits of a table to its log, in order; returns their number. Writers do so after each commit.

        Cost: 2 calls of the coordinator, and 1 for each 100 commits; 1 GET, 1 PUT and 1 DELETE for each commit.
        """
        return self._tables.publish(self._tables.record(name))

    def vacuum(self, name: str, retention_hours: float | None = None, dry_run: bool = True,
               enforce_retention_duration: bool = True, *, full: bool = True,
               progress: vacuuming.VacuumProgress = vacuuming.silent) -> VacuumReport:  # fmt: skip
        """As ``DeltaTable.vacuum``, which refuses tables of a catalog. Files that a transaction needs stay, and those
        of the version that it reads. Raises EntityNotFoundError, CatalogBehindLogError. Cost: as there; for each 500
        files 4 calls of the coordinator, and 1 for each open transaction."""
        return vacuum(self._ledger, self._tables, self._tables.record(name), retention_hours=retention_hours,
                      dry_run=dry_run, enforce_retention_duration=enforce_retention_duration, full=full,
                      progress=progress)  # fmt: skip

    def restart_timestamps(self, name: str) -> int:
        """Restart the in-commit timestamps of a table from the current time, when the last one is so far ahead of the
        clock that the catalog ratifies no further commit. Returns the version of the commit that restarts them.

        Earlier versions keep their in-commit timestamps in the log, but are found by the times of their files, as
        before in-commit timestamps were enabled; so ``consistent_cut`` may divide a transaction among them. Concurrent
        transactions go on. Raises CallError if the last timestamp is not ahead of the clock; EntityNotFoundError,
        ConcurrentModificationError.
        Cost: as ``publish``, a snapshot and a commit, and 1 LIST of the log.
        """
        return timestamp_restart.restart(self._tables, self._tables.record(name), self._environment)

    def consistent_cut(self, timestamp: PointInTime, names: Sequence[str] | None = None) -> dict[str, int]:
        """The version of each table, by name, that was current at one point in time by its in-commit timestamps. They
        include a transaction in all of its tables or in none, unless the timestamps of one were restarted since.

        Raises TimestampOutOfRangeError for a table that is younger. Cost: 1 call of the coordinator, and as
        ``list_tables`` or 1 for each name; for each table 2 more, as ``DeltaTable.version_at``, and 1 GET.
        """
        if names is None:
            tables = {table.name: table for table in self.list_tables()}
        else:
            tables = {name: self._tables.record(name) for name in names}
        # Commits made while the tables are read are left out of all of them.
        latest = self.coordinator.cut()
        return {name: self._tables.version_at(table, timestamp, latest) for name, table in tables.items()}

    # --------------------------------------------------------------------------------------- transactions

    def transaction(
        self,
        transaction_id: str | None = None,
        *,
        transaction_type: str = "READ_AND_WRITE",
        isolation: str = "SNAPSHOT",
    ) -> ManagedTransaction:
        """A new transaction, or one that any process has started.

            with manager.transaction() as txn:
                txn.table("bank.accounts").delete("id = 7")
                txn.table("bank.archive").append(rows)
                txn.commit()

        ``isolation="SERIALIZABLE"``: no table that it opened may have changed when it commits.
        Leaving the block without ``commit`` cancels it. Raises EntityNotFoundError, CallError.
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
        """As ``Ledger.current``; releases the handle of one that is decided."""
        record = self._ledger.current(transaction_id)
        if record.status.is_final:
            self._open.pop(record.id)
        return record

    def _allowed(self, transaction_id: str, call: Call) -> TransactionRecord:
        """As ``Ledger.allowed``; releases the handle of one that is decided."""
        record = self._current(transaction_id)
        records.check_allowed(record, call)
        return record

    def start_transaction(self, transaction_type: str = "READ_AND_WRITE", *, isolation: str = "SNAPSHOT") -> str:
        """Start a transaction; returns its id. Raises CallError. Cost: 1 call of the coordinator."""
        return self._start(transaction_type, isolation).id

    def _start(self, transaction_type: str, isolation: str) -> TransactionRecord:
        kind = _member(TransactionType, transaction_type, "transaction type")
        return self._ledger.start(kind, _member(Isolation, isolation, "isolation"))

    def commit_transaction(self, transaction_id: str) -> TransactionStatus:
        """Make what the transaction did the next versions of its tables. Idempotent: returns COMMITTED again if it is,
        and COMMIT_IN_PROGRESS while another call commits it.

        Raises TransactionCanceledError if it was aborted, or is aborted now because of its ``conflicts``;
        TransactionContentionError if other writers won every attempt: the transaction is still active; StoreError if
        nothing was committed, and the call can be repeated; OperationTimeoutError if the outcome is unknown: call again
        to get it. A commit that did not land is aborted a minute later. Raises EntityNotFoundError, CallError.
        Cost: 3 calls of the coordinator and as ``deltalog.transactions.commit``; then for each table 1 call, 1 PUT and
        1 DELETE for each commit, and its hooks.
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
            raise  # another call has changed the record, and it stays as that call left it
        except DeltaLogError as error:
            if error.outcome is not Outcome.UNKNOWN:
                self._reactivate(in_progress)
            raise
        with errors_logged(f"Transaction {landed.id} is committed", "the publication of its commits"):
            at_once(self._follow_up, targets)
        self._close(landed)
        return landed.status

    def cancel_transaction(self, transaction_id: str) -> None:
        """Abort a transaction: none of its changes becomes visible. Files that it wrote, and objects named with
        ``delete_objects_on_cancel``, are deleted. Idempotent.

        Raises TransactionCommittedError, TransactionCommitInProgressError, EntityNotFoundError.
        """

        def cancelled(record: TransactionRecord) -> TransactionRecord:
            return records.aborted(record, "cancelled", self._ledger.now_ms())

        self._close(self._ledger.change(transaction_id, Call.CANCEL, cancelled))

    def extend_transaction(self, transaction_id: str) -> None:
        """Reset the idle time of a transaction. Raises as ``cancel_transaction``, and TransactionCanceledError."""
        self._ledger.change(transaction_id, Call.EXTEND)

    def describe_transaction(self, transaction_id: str) -> TransactionDescription:
        """Raises EntityNotFoundError. Cost: 1 call of the coordinator."""
        return description(self._current(transaction_id))

    def list_transactions(
        self, status_filter: str = "ALL", max_results: int = 1000, next_token: str | None = None
    ) -> TransactionPage:
        """Transactions in the order of their start; decided ones until ``recover`` deletes them.

        A page may have fewer than ``max_results`` (1 to 1,000); the last one has no token. Raises CallError, also for a
        token of another catalog or another filter. Cost: 1 call of the coordinator.
        """
        wanted = _member(StatusFilter, status_filter, "status filter")
        _check_max_results(max_results)
        found, token = self._ledger.page(wanted, max_results, next_token)
        return TransactionPage([description(record) for record in found], token)

    def delete_objects_on_cancel(self, transaction_id: str, name: str, objects: Sequence[VirtualObject]) -> None:
        """Name 1 to 100 objects of a table that are about to be written, to be deleted if the transaction is aborted.
        Name them before they are written, so that none is left behind. An object is a Parquet file: its name ends with
        ".parquet", and no part of its path begins with "_" or ".", except partition directories.

        Raises ObjectBeingDeletedError for one that the clean-up of another transaction, which had named it, may be
        deleting; CallError, EntityNotFoundError; TransactionStateError or ConcurrentModificationError for its state.
        """
        if not 1 <= len(objects) <= 100:
            raise CallError(f"delete_objects_on_cancel takes 1 to 100 objects; got {len(objects)}.")
        self._allowed(transaction_id, Call.DELETE_OBJECTS_ON_CANCEL)
        table = self._tables.record(name)
        named = {deletable_path(table, each.uri): each.etag for each in objects}
        parts = {f"{OBJECTS}/{table.table_id}/{path}": json.dumps(etag).encode() for path, etag in named.items()}
        known = self._tables.marks(table.table_id)

        def marks(number: int) -> dict[str, int]:
            if number > 0:
                known.refresh()
            return {table.table_id: known.check_named(table.url, named)}

        self._ledger.change(transaction_id, Call.DELETE_OBJECTS_ON_CANCEL, parts=lambda record: parts, marks=marks)

    def update_table_objects(
        self, name: str, operations: Sequence[AddObject | DeleteObject], transaction_id: str | None = None
    ) -> None:
        """Add Parquet files that the caller has written below a table, and delete files of it, as one commit to the
        table in a transaction, or without ``transaction_id`` as a commit by itself. 1 to 100 operations, and no object
        in two of them.

        Files of the caller stay when the transaction is cancelled, unless ``delete_objects_on_cancel`` names them.
        Raises CallError, InvalidDataFileError and the errors of ``Transaction.commit`` for what cannot be committed;
        EntityNotFoundError, TransactionStateError. Cost: for each object to be added as
        ``Transaction.add_parquet_files`` and ``LogStore.etag``; a commit.
        """
        if transaction_id is None:
            record = self._tables.record(name)
            return table_objects.update(self._tables.table(record), record, operations)
        self._allowed(transaction_id, Call.WRITE)
        record = self._tables.record(name)
        transaction = self.transaction(transaction_id)
        with transaction.alone():
            table_objects.update(transaction.table(name), record, operations)

    def get_table_objects(
        self,
        name: str,
        transaction_id: str | None = None,
        *,
        timestamp: PointInTime | None = None,
        where: str | None = None,
        max_results: int = 1000,
        next_token: str | None = None,
    ) -> ObjectPage:
        """The files of a table as of a transaction, with its own changes; as of a point in time, as in
        ``consistent_cut``; or of the latest version. All pages are of one version.

        ``where``: a predicate over partition columns. Raises CallError, also for a token of another listing;
        EntityNotFoundError, TimestampOutOfRangeError, VersionNotFoundError; ResourceNotReadyError for a file of which
        some rows are deleted; TransactionStateError. Cost: as a snapshot, and its files.
        """
        _check_max_results(max_results)
        if transaction_id is not None and timestamp is not None:
            raise CallError("Give a transaction or a timestamp, not both.")
        record = self._tables.record(name)
        table = self._tables.table(record) if transaction_id is None else self.transaction(transaction_id).table(name)
        listing = _listing(record.table_id, transaction_id, where)
        version, start = None, 0
        if next_token is not None:
            version, number = self._ledger.place(listing, next_token)
            start = int(number)
        elif timestamp is not None:
            version = self.consistent_cut(timestamp, [name])[name]
        snapshot = table.snapshot(version)
        found, following = table_objects.page(snapshot, where, max_results, start)
        if following is None:
            return ObjectPage(found, None)
        return ObjectPage(found, self._ledger.token(listing, snapshot.version, str(following)))

    # -------------------------------------------------------------------------------- other Delta clients

    def ratified(self, name: str) -> tuple[TableRecord, Head]:
        """A table, its latest version, and the ratified commits that may not be published yet.

        Raises EntityNotFoundError, CallError. Cost: 2 calls of the coordinator.
        """
        record = self._tables.record(name)
        return record, external_commits.head_of(self._tables, record)

    def propose_commit(self, name: str, version: int, file: str) -> tuple[TableRecord, Head]:
        """Ratify a commit that another client has staged as ``_delta_log/_staged_commits/<file>``, as the next version
        of a table; returns the table, and its head. Repeating the call with the same file is idempotent until it is
        published.

        Raises CommitConflictError when the version is that of another commit; InvalidActionError for one that readers
        could not read, or that ends the catalog's management of the table; ResourceNotReadyError for a table that was
        released; CallError, EntityNotFoundError. Cost: 3 calls of the coordinator and 2 GETs; 1 more GET when the
        version before is published.
        """
        record = self._tables.record(name)
        return record, external_commits.propose(self._tables, record, version, file)

    def confirm_published(self, name: str, version: int) -> tuple[TableRecord, Head]:
        """Record that commits up to ``version`` are in ``_delta_log``, after checking each; a missing one is
        published. Returns the table, and its head. Raises as ``publish``, and CallError. Cost: as ``publish``, and 1
        call of the coordinator."""
        record = self._tables.record(name)
        return record, external_commits.confirm_published(self._tables, record, version)

    # ------------------------------------------------------------------------------------------- recovery

    def recover(self, retention: datetime.timedelta = datetime.timedelta(days=30)) -> dict[str, int]:
        """Finish what processes that died left: publish ratified commits, abort overdue transactions, delete the files
        of aborted ones, delete the records of those that ended ``retention`` ago; returns the number of each. Completes
        releases of tables that were interrupted.

        Any process may do it at any time. Raises CatalogBehindLogError if the catalog is older than the log of a
        table, whose leftovers are then kept. Cost: 1 call of the coordinator, 1 HEAD and 1 LIST for each table; 1 call
        for each 1,000 transactions that are not decided, have leftovers, or began ``retention`` ago; and the cost of
        the work found.
        """
        opened = self._open.ids()
        done = recover(self._ledger, self._tables, retention // _MS)
        active = {record.id for record in self._ledger.all(StatusFilter.ACTIVE)}
        for transaction_id in opened - active:  # ended by another process, or overdue
            self._open.pop(transaction_id)
        return done

    def resync(self, *, dry_run: bool = False, staged: Collection[str] = (), keep_log: Collection[str] = ()) -> Resync:
        """Bring a catalog that is older than the logs of its tables, such as one restored from a backup, up to date:
        add the commits that only the logs have, and record how their transactions ended. Returns the differences;
        with ``dry_run`` nothing is changed.

        ``staged``: names of staged commits to accept, of those that an earlier call listed as in doubt.
        ``keep_log``: names of tables whose log is kept where it and the catalog diverge, since the catalog has commits
        that the log lacks or has replaced. Commits that only the catalog has are moved aside as
        ``_delta_log/_staged_commits/set-aside.*``, never deleted. Stop the writers of such a table first.

        The call can be repeated, and others may write meanwhile. A table that cannot be brought up to date has a
        ``problem`` and is left unchanged. Raises CoordinatorError; ConcurrentModificationError. Cost: as
        ``list_tables``; for each table 1 call of the coordinator and 2 LISTs, and 1 GET for each commit that it does
        not know to be published; for each transaction that is not decided 1 call, and 1 GET for each version since.
        """
        return resync(self._ledger, self._tables, dry_run, staged, keep_log)

    # ---------------------------------------------------------------------------------------------- parts

    def _end_without_changes(self, record: TransactionRecord) -> TransactionStatus:
        """Commit a transaction without changes, unless its record has changed since: it may have changes now."""
        ended = records.committed(record, {}, self._ledger.now_ms())
        if not self.coordinator.replace(ended):
            return self.commit_transaction(record.id)
        self._close(ended)
        return ended.status

    def _begin(self, in_progress: TransactionRecord) -> bool:
        """Record that a commit begins; False if the record has changed. Undone, best effort, if there is no response:
        otherwise other processes would wait for a commit that never comes."""
        try:
            return self.coordinator.replace(in_progress)
        except OperationTimeoutError:
            with contextlib.suppress(DeltaLogError):
                if self.coordinator.transaction(in_progress.id) == in_progress:
                    self._reactivate(in_progress)
            raise

    def _reactivate(self, in_progress: TransactionRecord) -> None:
        """Make a transaction active again of which nothing was committed."""
        with contextlib.suppress(CoordinatorError):  # otherwise it becomes overdue
            self.coordinator.replace(records.active_again(in_progress, self._ledger.now_ms()))

    def _abort(self, record: TransactionRecord, reason: str) -> None:
        with contextlib.suppress(CoordinatorError):  # otherwise it becomes overdue
            ended = records.aborted(record, reason, self._ledger.now_ms())
            if self.coordinator.replace(ended):
                self._close(ended)

    def _follow_up(self, target: CommitTarget) -> None:
        """Publish a commit and run its hooks. If this fails, the commit stands."""
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
        """Release a decided transaction, and clean up after it."""
        self._open.pop(record.id)
        with errors_logged(f"Transaction {record.id} is {record.status.value}", "clean-up, left to recover()"):
            clean_up(self._ledger, self._tables, record)


def _member(kind: type[E], text: object, what: str) -> E:
    try:
        return kind(text)
    except ValueError:
        raise CallError(f"A {what} is one of {', '.join(each.value for each in kind)}; got {text!r}.") from None


def _listing(table_id: str, transaction_id: str | None, where: str | None) -> str:
    """The listing that a page token belongs to; a hash, so that tokens stay within the length that callers may send."""
    arguments = json.dumps([table_id, transaction_id, where]).encode()
    return f"objects {hashlib.sha256(arguments).hexdigest()}"


def _check_max_results(max_results: object) -> None:
    if isinstance(max_results, bool) or not isinstance(max_results, int) or not 1 <= max_results <= 1000:
        raise CallError(f"max_results is a number from 1 to 1000; got {max_results!r}.")
