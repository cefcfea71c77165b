"""ManagedTransaction: reads several tables as of the same time and changes them together.

Every table has its own branch. The coordinator stores the commits of branches, so that another process can continue the
transaction, commit it, or clean up after it.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType

from deltalog import deadline
from deltalog.arguments import checked, safe_repr
from deltalog.catalog import records
from deltalog.catalog.marks import added_paths
from deltalog.catalog.records import Call, Isolation, TableRecord, TransactionRecord, TransactionStatus
from deltalog.commit.prepared import Prepared
from deltalog.errors import (
    ConcurrentModificationError,
    DeltaLogError,
    EntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ResourceNotReadyError,
    StoreError,
    TransactionCanceledError,
)
from deltalog.log.authority import Authority
from deltalog.log.loader import load_latest
from deltalog.log.reader import LogReader
from deltalog.protocol.schema import StructType
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore
from deltalog.storage.table_files import TableFiles
from deltalog.table import DeltaTable
from deltalog.transactions.branch import Branch
from deltalog.transactions.branch_committer import BranchCommitter
from deltalog.transactions.branch_store import BranchStore
from deltalog.transactions.commit import CommitTarget
from deltalog.transactions.ledger import Ledger
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.prepared_codec import decode_prepared, encode_prepared
from deltalog.write.table_handle import TableHandle

# The kinds of parts of a transaction: commits to a table, tables that must not change, and objects to delete if the
# transaction is canceled.
CHANGES, READS, OBJECTS = "change", "read", "object"


@checked
class ManagedTransaction:
    """A transaction that spans several tables. Created by ``TransactionManager.transaction``; ``end`` commits or
    cancels the transaction."""

    def __init__(
        self,
        transaction_id: str,
        ledger: Ledger,
        tables: ManagedTables,
        end: tuple[Callable[[str], TransactionStatus], Callable[[str], None]],
        started: TransactionRecord | None = None,
    ) -> None:
        """``started``: the record, if the transaction was just started."""
        self.id = transaction_id
        self._ledger = ledger
        self._tables = tables
        self._commit, self._cancel = end
        self._opened: dict[str, tuple[DeltaTable, CommitTarget]] = {}
        # The last record that is known to contain only changes made by this object. ``_kept``: the number of commits
        # that this object holds, by table; a table that is not open has no entry.
        self._own: TransactionRecord | None = started
        self._kept: collections.Counter[str] = collections.Counter()
        self._is_over = False
        self._lock = threading.RLock()

    @safe_repr
    def __repr__(self) -> str:
        return f"ManagedTransaction({self.id!r})"

    def __enter__(self) -> ManagedTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_over and self._ledger.current(self.id).status is TransactionStatus.ACTIVE:
            self.cancel()

    def table(self, name: str) -> DeltaTable:
        """The table as of the transaction's time, with the transaction's own changes. All methods of a DeltaTable can
        be used; their effects become visible to other clients when the transaction is committed. The version numbers
        are those that the commits get if there are no concurrent writers.

        Raises EntityNotFoundError, TransactionCommittedError, TransactionCanceledError;
        TransactionCommitInProgressError if a serializable transaction is being committed and had not opened the table.
        Cost: 2 coordinator calls, 1 more if another process worked on the transaction. The first call for a table also
        has the cost of ``TransactionManager.table`` if the table was not opened yet; in addition, 2 calls for the first
        table, 1 call if another process worked on the transaction, and 1 to 3 calls to record the read if the
        transaction is serializable.
        """
        return self.opened(lambda: self._tables.record(name))

    def opened(self, find: Callable[[], TableRecord]) -> DeltaTable:
        """Like ``table``, for the table whose record ``find`` returns."""
        record = self._ledger.allowed(self.id, Call.READ)
        with self.alone():
            self._changed_elsewhere(record)
            return self._open(record, find())[0]

    def commit(self) -> TransactionStatus:
        """See ``TransactionManager.commit_transaction``."""
        status = self._commit(self.id)
        self._is_over = status.is_final
        return status

    def cancel(self) -> None:
        """See ``TransactionManager.cancel_transaction``."""
        self._cancel(self.id)

    def extend(self) -> None:
        """See ``TransactionManager.extend_transaction``."""
        self._change(Call.EXTEND)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Prevent other threads from opening tables in this transaction and from committing the transaction. Raises
        StoreError if a deadline passes first."""
        if not self._lock.acquire(timeout=deadline.seconds_left()):
            raise StoreError(f"Transaction {self.id}: another call on it did not end before the deadline.")
        try:
            yield
        finally:
            self._lock.release()

    def targets(self, record: TransactionRecord) -> list[CommitTarget]:
        """The branches to commit, and the branches of tables that must not have changed, both according to the record,
        which was just read.

        Raises ResourceNotReadyError if a table was dropped. Cost: none; if another process worked on the transaction, 1
        coordinator call, and that of ``table`` per table.
        """
        with self.alone():
            elsewhere = self._changed_elsewhere(record)
            for table in self._tables.all() if elsewhere else ():
                if table.table_id in elsewhere:
                    self._open(record, table)
            targets = [target for _, target in self._opened.values()]
        if dropped := elsewhere - self._opened.keys():
            raise ResourceNotReadyError(
                f"Transaction {self.id} uses tables that were dropped from the catalog meanwhile, with the "
                f"ids {', '.join(sorted(dropped))}. Cancel it."
            )
        return [target for target in targets if target.branch.prepared_to_check()]

    def _changed_elsewhere(self, record: TransactionRecord) -> set[str]:
        """The names of the tables that a process other than this one has opened or changed in this transaction. Tables
        that another process has changed since they were opened in this process are closed, so that they are opened
        again."""
        kept, elsewhere = self._kept, set()
        if not self._is_own(record):
            parts = [key.split("/", 2) for key in self._ledger.coordinator.parts(self.id)]
            kept = collections.Counter(table_id for kind, table_id, _ in parts if kind == CHANGES)
            elsewhere = {table_id for kind, table_id, _ in parts if kind != OBJECTS}
        for table_id, (_, target) in list(self._opened.items()):
            if target.branch.count() < kept[table_id]:
                del self._opened[table_id]
                elsewhere.add(table_id)
        return elsewhere - self._opened.keys()

    def _open(self, record: TransactionRecord, table: TableRecord) -> tuple[DeltaTable, CommitTarget]:
        if table.table_id not in self._opened:
            self._opened[table.table_id] = self._opening(record, table)
        return self._opened[table.table_id]

    def _opening(self, record: TransactionRecord, table: TableRecord) -> tuple[DeltaTable, CommitTarget]:
        is_own = self._is_own(record)
        pin = self._pins(record).get(table.table_id)
        if pin is None:
            raise EntityNotFoundError(
                f"{table.name} was added to the catalog after the instant that transaction {self.id} reads. Start "
                "another one."
            )
        latest = self._tables.handle(table).latest  # read only once, because another thread may advance the handle
        snapshot = latest if latest.version == pin else self._tables.table(table).snapshot(version=pin)
        store = BranchStore(self._tables.store(table, pin))
        serializable = record.isolation is Isolation.SERIALIZABLE
        keep = functools.partial(self._keep, table.table_id, self._tables.plain_store(table.url))
        branch = Branch(table.table_id, snapshot, store, serializable)
        read = f"{READS}/{table.table_id}/"
        if serializable and (is_own or read not in self._ledger.coordinator.parts(self.id, read)):
            self._change(Call.READ, parts=lambda latest: {read: b""})
        if not (is_own and self._own is not None) or self._kept[table.table_id]:
            for part in self._ledger.coordinator.parts(self.id, f"{CHANGES}/{table.table_id}/").values():
                branch.restore(decode_prepared(part, branch.schema), self._ledger.now_ms())
        reader = LogReader(store, authority=Authority(self._tables.coordinator.url, self.id, pin))
        latest = Snapshot(load_latest(reader) if branch.prepared else snapshot.log.through(reader))
        # In-commit timestamps on a branch are provisional: committing the transaction sets and checks the final
        # timestamps.
        environment = replace(self._ledger.environment, drift_warning_ms=sys.maxsize)
        handle = TableHandle(reader, BranchCommitter(branch, keep), environment, latest)
        return DeltaTable(handle), CommitTarget(branch, snapshot.reader, self._tables.store(table))

    def _pins(self, record: TransactionRecord) -> Mapping[str, int]:
        """For each table, the version that was current at the time of the transaction's first read."""
        if record.pins is None:
            cut, now_ms = self._ledger.coordinator.cut(), self._ledger.now_ms()

            def pinned(latest: TransactionRecord) -> TransactionRecord:
                return records.pinned(latest, cut if latest.pins is None else latest.pins, now_ms)

            record = self._change(Call.READ, pinned)
        assert record.pins is not None
        return record.pins

    def _keep(self, table_id: str, store: LogStore, number: int, prepared: Prepared, schema: StructType) -> None:
        """Store a commit of a branch; idempotent. Raises ObjectBeingDeletedError; OperationTimeoutError if the outcome
        is unknown."""
        key, encoded = f"{CHANGES}/{table_id}/{number:08d}", encode_prepared(prepared, schema)

        def part(record: TransactionRecord) -> dict[str, bytes]:
            if not self._is_own(record):
                found = self._ledger.coordinator.parts(self.id, key).get(key)
                if found not in (None, encoded):
                    self._opened.pop(table_id, None)
                    raise ConcurrentModificationError(
                        f"Transaction {self.id}: another process has changed the table in it concurrently. Open "
                        "the table in it again, and repeat the operation."
                    )
            return {key: encoded}

        def marks(number: int) -> dict[str, int]:
            known = self._tables.marks(table_id)
            if number > 0:
                known.refresh()
            return {table_id: known.check_added(store, lambda: added_paths(TableFiles(store), prepared.adds))}

        in_doubt: DeltaLogError | None = None
        for attempt in range(self._ledger.environment.retry.settle_attempts):
            self._ledger.environment.back_off(attempt)
            try:
                self._change(Call.WRITE, parts=part, table_id=table_id, marks=marks)
                return
            except TransactionCanceledError:
                raise  # whether or not the commit was stored, it will not be part of the transaction
            except DeltaLogError as error:
                if in_doubt is None and error.outcome is not Outcome.UNKNOWN:
                    raise
                in_doubt = error
        raise OperationTimeoutError(
            f"Transaction {self.id}: the catalog {self._ledger.coordinator.url} stopped answering; whether the change "
            "was stored is unknown.",
            path=self._ledger.coordinator.url,
        ) from in_doubt

    def _change(
        self,
        call: Call,
        change: Callable[[TransactionRecord], TransactionRecord] | None = None,
        parts: Callable[[TransactionRecord], Mapping[str, bytes]] = lambda record: {},
        table_id: str | None = None,
        marks: Callable[[int], Mapping[str, int]] | None = None,
    ) -> TransactionRecord:
        """Like ``Ledger.change``. ``table_id``: the table of a stored commit, if any."""
        own = self._own
        changed = self._ledger.change(self.id, call, change, parts, own, marks)
        if table_id is not None:
            self._kept[table_id] += 1
        self._own = changed if own is not None and changed.revision == own.revision + 1 else None
        return changed

    def _is_own(self, record: TransactionRecord) -> bool:
        """Whether, according to its record, the transaction has been changed only by this object."""
        return self._own is not None and self._own.revision == record.revision
