"""Coordinators for tests: a coordinator with injected faults, one that reports ratifications, and one that keeps the
catalog in memory.

``FaultyCoordinator`` is the counterpart of ``FaultyStore`` and accepts the same deciders:

    coordinator = FaultyCoordinator(SQLiteCoordinator(path), nth(1, Fault.LOST_ACK, method="ratify"))
    manager = TransactionManager(coordinator)

``MemoryCoordinator`` is for tests that need thousands of catalogs.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import (
    Document,
    DocumentChange,
    Head,
    Marking,
    Marks,
    Proposal,
    Ratification,
    TableRecord,
    TransactionRecord,
    TransactionStatus,
    are_nested,
    metadata_mark,
)
from deltalog.errors import CoordinatorError, OperationTimeoutError
from deltalog.testing.stores import Call, Decider, Fault, SimulatedKill, no_faults

T = TypeVar("T")
_UNMARKED = Marks()

_READ_FAULTS = (Fault.FAIL_BEFORE, Fault.UNKNOWN_NOT_WRITTEN, Fault.KILL_BEFORE)
_WRITE_FAULTS = (
    Fault.FAIL_BEFORE, Fault.UNKNOWN_NOT_WRITTEN, Fault.LOST_ACK, Fault.LATE, Fault.KILL_BEFORE, Fault.KILL_AFTER,
)  # fmt: skip
READS = (
    "table", "table_with_id", "tables", "head", "cut", "document", "documents", "marks", "transaction", "transactions",
    "uncleaned", "parts",
)  # fmt: skip
WRITES = (
    "register", "drop", "rename", "keep_staged_commits", "change_documents", "ratify", "published", "mark", "remark",
    "insert", "replace", "delete", "put_parts", "delete_parts",
)  # fmt: skip
#: The possible faults of each method of a coordinator, for a FaultPlan. See FaultyCoordinator.
COORDINATOR_FAULTS: Mapping[str, tuple[Fault, ...]] = {
    **dict.fromkeys(READS, _READ_FAULTS),
    **dict.fromkeys(WRITES, _WRITE_FAULTS),
}


class WrappedCoordinator(Coordinator):
    """Delegates all calls to ``inner`` through ``_pass``, which receives the method and the table or transaction that
    the call concerns."""

    def __init__(self, inner: Coordinator) -> None:
        self.inner = inner
        self.url = inner.url

    @property
    def most_ahead_ms(self) -> int:
        return self.inner.most_ahead_ms

    @most_ahead_ms.setter
    def most_ahead_ms(self, value: int) -> None:
        self.inner.most_ahead_ms = value

    @property
    def keeps_staged_commits(self) -> bool:
        return self.inner.keeps_staged_commits

    @keeps_staged_commits.setter
    def keeps_staged_commits(self, value: bool) -> None:
        self.inner.keeps_staged_commits = value

    def check_time(self, table: str, in_commit_timestamp_ms: int) -> None:
        self.inner.check_time(table, in_commit_timestamp_ms)

    def _pass(self, method: str, about: str, action: Callable[[], T]) -> T:
        return action()

    @property
    def catalog_id(self) -> str:
        return self.inner.catalog_id

    def close(self) -> None:
        self.inner.close()

    def register(self, table: TableRecord, version: int, documents: Sequence[DocumentChange] = ()) -> bool:
        return self._pass("register", table.name, lambda: self.inner.register(table, version, documents))

    def drop(
        self, table_id: str, version: int, marks: int | None = None, documents: Sequence[DocumentChange] = ()
    ) -> bool:
        return self._pass("drop", table_id, lambda: self.inner.drop(table_id, version, marks, documents))

    def rename(self, table_id: str, name: str, documents: Sequence[DocumentChange] = ()) -> bool:
        return self._pass("rename", table_id, lambda: self.inner.rename(table_id, name, documents))

    def table(self, name: str) -> TableRecord | None:
        return self._pass("table", name, lambda: self.inner.table(name))

    def table_with_id(self, table_id: str) -> TableRecord | None:
        return self._pass("table_with_id", table_id, lambda: self.inner.table_with_id(table_id))

    def tables(self, after: str = "", limit: int = 1000) -> list[TableRecord]:
        return self._pass("tables", after, lambda: self.inner.tables(after, limit))

    def head(self, table_id: str) -> Head | None:
        return self._pass("head", table_id, lambda: self.inner.head(table_id))

    def cut(self) -> dict[str, int]:
        return self._pass("cut", "", self.inner.cut)

    def ratify(self, proposal: Proposal) -> Ratification:
        return self._pass("ratify", " ".join(sorted(proposal.commits)), lambda: self.inner.ratify(proposal))

    def published(self, table_id: str, version: int) -> None:
        return self._pass("published", f"{table_id} {version}", lambda: self.inner.published(table_id, version))

    def keep_staged_commits(self) -> None:
        self._pass("keep_staged_commits", "", self.inner.keep_staged_commits)

    def document(self, kind: str, key: str) -> Document | None:
        return self._pass("document", f"{kind} {key}", lambda: self.inner.document(kind, key))

    def documents(self, kind: str, after: str = "", limit: int = 1000) -> list[Document]:
        return self._pass("documents", f"{kind} {after}", lambda: self.inner.documents(kind, after, limit))

    def change_documents(self, changes: Sequence[DocumentChange], free_names: Sequence[str] = ()) -> bool:
        about = " ".join(f"{each.kind} {each.key}" for each in changes)
        return self._pass("change_documents", about, lambda: self.inner.change_documents(changes, free_names))

    def marks(self, table_id: str) -> Marks:
        return self._pass("marks", table_id, lambda: self.inner.marks(table_id))

    def mark(self, table_id: str, number: int, marking: Marking) -> bool:
        return self._pass("mark", table_id, lambda: self.inner.mark(table_id, number, marking))

    def remark(self, table_id: str, number: int, marking: Marking | None) -> None:
        return self._pass("remark", table_id, lambda: self.inner.remark(table_id, number, marking))

    def insert(self, record: TransactionRecord) -> bool:
        return self._pass("insert", record.id, lambda: self.inner.insert(record))

    def transaction(self, transaction_id: str) -> TransactionRecord | None:
        return self._pass("transaction", transaction_id, lambda: self.inner.transaction(transaction_id))

    def replace(self, record: TransactionRecord) -> bool:
        return self._pass("replace", f"{record.id} {record.status.value}", lambda: self.inner.replace(record))

    def transactions(
        self, statuses: frozenset[TransactionStatus], after: tuple[int, str] | None = None, limit: int = 1000
    ) -> list[TransactionRecord]:
        return self._pass("transactions", "", lambda: self.inner.transactions(statuses, after, limit))

    def uncleaned(self, after: tuple[int, str] | None = None, limit: int = 1000) -> list[TransactionRecord]:
        return self._pass("uncleaned", "", lambda: self.inner.uncleaned(after, limit))

    def delete(self, transaction_id: str) -> None:
        return self._pass("delete", transaction_id, lambda: self.inner.delete(transaction_id))

    def put_parts(
        self, record: TransactionRecord, parts: Mapping[str, bytes], marks: Mapping[str, int] | None = None
    ) -> bool:
        return self._pass("put_parts", record.id, lambda: self.inner.put_parts(record, parts, marks))

    def parts(self, transaction_id: str, prefix: str = "") -> dict[str, bytes]:
        return self._pass("parts", f"{transaction_id} {prefix}", lambda: self.inner.parts(transaction_id, prefix))

    def delete_parts(self, transaction_id: str, keys: Sequence[str] | None = None) -> None:
        return self._pass("delete_parts", transaction_id, lambda: self.inner.delete_parts(transaction_id, keys))


class FaultyCoordinator(WrappedCoordinator):
    """Simulates one process's access to ``inner``, with injected faults.

    ``decide``, ``before``, ``defer`` and ``injected``: as for FaultyStore. FAIL_BEFORE raises CoordinatorError without
    effect. UNKNOWN_NOT_WRITTEN, LOST_ACK and LATE raise OperationTimeoutError; the change never takes effect, takes
    effect immediately, or takes effect later, respectively. Kills are simulated as in FaultyStore.
    """

    def __init__(
        self,
        inner: Coordinator,
        decide: Decider = no_faults,
        *,
        before: Callable[[Call], None] | None = None,
        defer: Callable[[str, Callable[[], object]], None] | None = None,
    ) -> None:
        super().__init__(inner)
        self.decide = decide
        self.injected: collections.Counter[Fault] = collections.Counter()
        self.pending: list[tuple[str, Callable[[], object]]] = []
        self.dead = False
        self.calls = 0
        self._before = before
        self._defer = defer or (lambda label, action: self.pending.append((label, action)))

    def land(self) -> None:
        """Execute all late requests in ``pending``, oldest first."""
        while self.pending:
            self.pending.pop(0)[1]()

    def _pass(self, method: str, about: str, action: Callable[[], T]) -> T:
        self._check_alive()
        self.calls += 1
        call = Call(self.calls, method, about)
        if self._before is not None:
            self._before(call)
            self._check_alive()
        fault = self.decide(call)
        if fault is None:
            return action()
        self.injected[fault] += 1
        if fault in (Fault.LOST_ACK, Fault.KILL_AFTER):
            action()
        if fault in (Fault.KILL_BEFORE, Fault.KILL_AFTER):
            self.dead = True
            raise SimulatedKill(fault.value)
        if fault is Fault.LATE:
            self._defer(f"late {call}", action)
        kind = CoordinatorError if fault is Fault.FAIL_BEFORE else OperationTimeoutError
        raise kind(f"Injected fault ({fault.value}) in {call} of {self.url}.", path=self.url)

    def _check_alive(self) -> None:
        if self.dead:
            raise SimulatedKill("this process is dead")


class WatchedCoordinator(WrappedCoordinator):
    """Calls ``on_ratified`` with every ratified proposal and the transaction's record at that time, before the proposal
    is visible to other clients. Not thread-safe."""

    def __init__(self, inner: Coordinator, on_ratified: Callable[[Proposal, TransactionRecord | None], object]) -> None:
        super().__init__(inner)
        self._on_ratified = on_ratified

    def ratify(self, proposal: Proposal) -> Ratification:
        found = None if proposal.before is None else self.inner.transaction(proposal.before.id)
        outcome = self.inner.ratify(proposal)
        if outcome is Ratification.RATIFIED:
            self._on_ratified(proposal, found)
        return outcome


class MemoryCoordinator(Coordinator):
    """A coordinator that keeps its catalog in memory. Thread-safe."""

    def __init__(self, url: str = "memory-catalog:", catalog_id: str | None = None) -> None:
        self.url = url
        self._catalog_id = catalog_id or str(uuid.uuid4())
        self._tables: dict[str, TableRecord] = {}
        self._heads: dict[str, Head] = {}
        self._records: dict[str, TransactionRecord] = {}
        self._parts: dict[str, dict[str, bytes]] = {}
        self._marks: dict[str, Marks] = {}
        self._documents: dict[tuple[str, str], Document] = {}
        self._lock = threading.Lock()

    @property
    def catalog_id(self) -> str:
        return self._catalog_id

    def close(self) -> None:
        return None

    def register(self, table: TableRecord, version: int, documents: Sequence[DocumentChange] = ()) -> bool:
        with self._lock:
            for other in self._tables.values():
                if other.table_id == table.table_id or other.name == table.name or are_nested(other.url, table.url):
                    return False
            if not self._changed(documents):
                return False
            self._tables[table.table_id] = table
            self._heads[table.table_id] = Head(version, (), version)
            return True

    def drop(
        self, table_id: str, version: int, marks: int | None = None, documents: Sequence[DocumentChange] = ()
    ) -> bool:
        with self._lock:
            if self._heads.get(table_id) != Head(version):
                return False
            if marks is not None and not self._are_last({table_id: marks}):
                return False
            if not self._changed(documents):
                return False
            del self._heads[table_id], self._tables[table_id]
            self._marks.pop(table_id, None)
            return True

    def rename(self, table_id: str, name: str, documents: Sequence[DocumentChange] = ()) -> bool:
        with self._lock:
            if table_id not in self._tables or any(each.name == name for each in self._tables.values()):
                return False
            if not self._changed(documents):
                return False
            self._tables[table_id] = dataclasses.replace(self._tables[table_id], name=name)
            return True

    def table(self, name: str) -> TableRecord | None:
        with self._lock:
            return next((table for table in self._tables.values() if table.name == name), None)

    def table_with_id(self, table_id: str) -> TableRecord | None:
        with self._lock:
            return self._tables.get(table_id)

    def tables(self, after: str = "", limit: int = 1000) -> list[TableRecord]:
        with self._lock:
            found = sorted((t for t in self._tables.values() if t.name > after), key=lambda table: table.name)
        return found[:limit]

    def head(self, table_id: str) -> Head | None:
        with self._lock:
            return self._heads.get(table_id)

    def cut(self) -> dict[str, int]:
        with self._lock:
            return {table_id: head.version for table_id, head in self._heads.items()}

    def ratify(self, proposal: Proposal) -> Ratification:
        self.check_times(proposal)
        with self._lock:
            before, after = proposal.before, proposal.after
            if before is not None:
                found = self._records.get(before.id)
                if found is None or found.revision != before.revision:
                    return Ratification.DECIDED
            for table_id, version in proposal.expected.items():
                head = self._heads.get(table_id)
                if head is None or head.version != version:
                    return Ratification.MOVED
            if not self._are_last(proposal.marks):
                return Ratification.MARKED
            if not self._changed(proposal.documents):
                return Ratification.CHANGED
            for table_id, commits in proposal.commits.items():
                head = self._heads[table_id]
                unpublished, mark = (*head.unpublished, *commits), metadata_mark(head, commits)
                self._heads[table_id] = Head(commits[-1].version, unpublished, *mark)
            if after is not None:
                self._records[after.id] = after
            return Ratification.RATIFIED

    def published(self, table_id: str, version: int) -> None:
        with self._lock:
            head = self._heads.get(table_id)
            if head is not None:
                unpublished = tuple(commit for commit in head.unpublished if commit.version > version)
                self._heads[table_id] = dataclasses.replace(head, unpublished=unpublished)

    def keep_staged_commits(self) -> None:
        self.keeps_staged_commits = True

    def document(self, kind: str, key: str) -> Document | None:
        with self._lock:
            return self._documents.get((kind, key))

    def documents(self, kind: str, after: str = "", limit: int = 1000) -> list[Document]:
        with self._lock:
            keys = sorted(key for key in self._documents if key[0] == kind and key[1] > after)
            return [self._documents[key] for key in keys[:limit]]

    def change_documents(self, changes: Sequence[DocumentChange], free_names: Sequence[str] = ()) -> bool:
        with self._lock:
            if any(table.name in free_names for table in self._tables.values()):
                return False
            return self._changed(changes)

    def _changed(self, changes: Sequence[DocumentChange]) -> bool:
        """Make all changes of documents or none; returns whether they were made."""
        for each in changes:
            found = self._documents.get((each.kind, each.key))
            if (0 if found is None else found.revision) != each.revision:
                return False
        for each in changes:
            if each.content is None:
                self._documents.pop((each.kind, each.key), None)
            else:
                new = Document(each.kind, each.key, each.content, each.revision + 1)
                self._documents[each.kind, each.key] = new
        return True

    def marks(self, table_id: str) -> Marks:
        with self._lock:
            return self._marks.get(table_id, _UNMARKED)

    def mark(self, table_id: str, number: int, marking: Marking) -> bool:
        with self._lock:
            known = self._marks.get(table_id, _UNMARKED)
            if table_id not in self._tables or number != known.last + 1:
                return False
            self._marks[table_id] = Marks(number, {**known.markings, number: marking})
            return True

    def remark(self, table_id: str, number: int, marking: Marking | None) -> None:
        with self._lock:
            known = self._marks.get(table_id, _UNMARKED)
            if number in known.markings:
                kept = {**known.markings, number: marking}
                self._marks[table_id] = Marks(known.last, {n: each for n, each in kept.items() if each is not None})

    def _are_last(self, marks: Mapping[str, int]) -> bool:
        return all(
            table_id in self._tables and self._marks.get(table_id, _UNMARKED).last == number
            for table_id, number in marks.items()
        )

    def insert(self, record: TransactionRecord) -> bool:
        with self._lock:
            return self._records.setdefault(record.id, record) is record

    def transaction(self, transaction_id: str) -> TransactionRecord | None:
        with self._lock:
            return self._records.get(transaction_id)

    def replace(self, record: TransactionRecord) -> bool:
        with self._lock:
            return self._replace(record)

    def transactions(
        self, statuses: frozenset[TransactionStatus], after: tuple[int, str] | None = None, limit: int = 1000
    ) -> list[TransactionRecord]:
        with self._lock:
            found = sorted((r for r in self._records.values() if r.status in statuses), key=lambda record: record.key)
        start = 0 if after is None else bisect.bisect_right(found, after, key=lambda record: record.key)
        return list(itertools.islice(found, start, start + limit))

    def uncleaned(self, after: tuple[int, str] | None = None, limit: int = 1000) -> list[TransactionRecord]:
        with self._lock:
            found = [record for id_, record in self._records.items() if record.status.is_final and self._parts.get(id_)]
        later = sorted((r for r in found if after is None or r.key > after), key=lambda record: record.key)
        return later[:limit]

    def delete(self, transaction_id: str) -> None:
        with self._lock:
            self._records.pop(transaction_id, None)
            self._parts.pop(transaction_id, None)

    def put_parts(
        self, record: TransactionRecord, parts: Mapping[str, bytes], marks: Mapping[str, int] | None = None
    ) -> bool:
        with self._lock:
            done = self._are_last(marks or {}) and self._replace(record)
            if done:
                self._parts.setdefault(record.id, {}).update(parts)
            return done

    def parts(self, transaction_id: str, prefix: str = "") -> dict[str, bytes]:
        with self._lock:
            parts = self._parts.get(transaction_id, {})
            return {key: parts[key] for key in sorted(parts) if key.startswith(prefix)}

    def delete_parts(self, transaction_id: str, keys: Sequence[str] | None = None) -> None:
        with self._lock:
            parts = self._parts.get(transaction_id, {})
            for key in list(parts) if keys is None else keys:
                parts.pop(key, None)

    def _replace(self, record: TransactionRecord) -> bool:
        found = self._records.get(record.id)
        if found is None or found.revision != record.revision - 1:
            return False
        self._records[record.id] = record
        return True
