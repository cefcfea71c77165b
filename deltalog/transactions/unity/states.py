"""The states of managed tables at their heads in the catalog, kept in memory.

A state is small: it has no list of files. A call about a table whose head has not moved needs no request to the table's
store.
"""

from __future__ import annotations

import collections
import logging
import threading
from dataclasses import dataclass

from deltalog.catalog.records import Head, TableRecord
from deltalog.errors import CoordinatorError, EntityNotFoundError, MissingVersionError
from deltalog.log.authority import Authority
from deltalog.log.loader import load_latest
from deltalog.log.reader import LogReader
from deltalog.protocol.codec import CommitActions
from deltalog.protocol.timestamps import required_ict
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.unity.table_state import TableState

log = logging.getLogger(__name__)

_TRIES = 20
# If a state is at most this many commits behind, they are read one by one; otherwise the version is loaded anew.
_MOST_COMMITS = 50
_MOST_TABLES = 10_000


@dataclass(frozen=True, slots=True)
class StateAt:
    """The state of a table at a version. ``ict_ms``: the version's in-commit timestamp."""

    version: int
    state: TableState
    ict_ms: int

    def after(self, actions: CommitActions, ict_ms: int) -> StateAt:
        """The state after the next commit, whose actions these are."""
        changed = actions.protocol is not None or actions.metadata is not None or bool(actions.domains)
        state = self.state.after(actions.protocol, actions.metadata, actions.domains) if changed else self.state
        return StateAt(actions.version, state, ict_ms)


@dataclass(frozen=True, slots=True)
class _Kept:
    """``mark``: the ``metadata_version`` and ``metadata_ms`` of the head with this state."""

    at: StateAt
    mark: tuple[int | None, int | None]

    def is_before(self, head: Head) -> bool:
        """Whether the state can belong to the history of a head that was read later. If not, the catalog was restored
        from a backup, and the versions since then were lost or made again."""
        if head.version < self.at.version:
            return False
        commit = head.commit(self.at.version)
        if commit is not None and commit.in_commit_timestamp_ms != self.at.ict_ms:
            return False
        is_changed = head.metadata_version is not None and head.metadata_version > self.at.version
        return is_changed or (head.metadata_version, head.metadata_ms) == self.mark


class States:
    """The states of the tables of a catalog. Thread-safe. ``most``: how many are kept."""

    def __init__(self, tables: ManagedTables, most: int = _MOST_TABLES) -> None:
        self._tables = tables
        self._most = most
        self._known: collections.OrderedDict[str, _Kept] = collections.OrderedDict()
        self._times_ms: collections.OrderedDict[tuple[str, int], int] = collections.OrderedDict()
        self._lock = threading.Lock()

    def at_head(self, record: TableRecord) -> tuple[Head, StateAt]:
        """The head of a table and the state at this head. Raises EntityNotFoundError if the table was dropped. Cost: 1
        coordinator call; 1 GET per commit since the last call and 1 more, or that of ``load_latest``."""
        for _ in range(_TRIES):
            with self._lock:
                known = self._known.get(record.table_id)
            # After the kept state, so that a head that is older than it was restored.
            head = self._tables.coordinator.head(record.table_id)
            if head is None:
                raise EntityNotFoundError(f"{record.name} was dropped from the catalog.")
            if known is not None and not known.is_before(head):
                log.warning("%s: the catalog has another history than before: was it restored?", record.name)
                self._forget(record.table_id)
                known = None
            at = None if known is None else known.at
            if at is None or at.version < head.version:
                at = self._read(record, head, at)
                if at.version == head.version:
                    self.keep(record.table_id, at, head)
            if at.version == head.version:
                return head, at
        raise CoordinatorError(f"{record.name} received a commit during every attempt to read it. Try again.")

    def keep(self, table_id: str, state: StateAt, head: Head) -> None:
        """Keep the state at a head, unless that of a later one is kept. Cost: none."""
        new = _Kept(state, (head.metadata_version, head.metadata_ms))
        with self._lock:
            known = self._known.pop(table_id, None)
            self._known[table_id] = new if known is None or known.at.version < state.version else known
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def _forget(self, table_id: str) -> None:
        with self._lock:
            self._known.pop(table_id, None)
            for key in [key for key in self._times_ms if key[0] == table_id]:
                del self._times_ms[key]

    def time_ms(self, record: TableRecord, version: int) -> int | None:
        """The in-commit timestamp of an earlier version; None if its commit cannot be read. Cost: the first time, 1
        GET."""
        key = record.table_id, version
        with self._lock:
            found = self._times_ms.get(key)
        if found is not None:
            return found
        info = LogReader(self._tables.plain_store(record.url)).commit_info(version)
        ict_ms = None if info is None else info.in_commit_timestamp_ms
        if ict_ms is not None:
            self.keep_time(record.table_id, version, ict_ms)
        return ict_ms

    def keep_time(self, table_id: str, version: int, ict_ms: int) -> None:
        """Keep the in-commit timestamp of a version. Cost: none."""
        with self._lock:
            self._times_ms[table_id, version] = ict_ms
            while len(self._times_ms) > self._most:
                self._times_ms.popitem(last=False)

    def _read(self, record: TableRecord, head: Head, known: StateAt | None) -> StateAt:
        store = self._tables.store(record)
        store.record_head(head)
        reader = LogReader(store, authority=Authority(self._tables.coordinator.url))
        if known is not None and head.version - known.version <= _MOST_COMMITS:
            after = self._after(record, reader, head, known)
            if after is not None:
                return after
        snapshot = load_latest(reader)
        state = TableState.of(snapshot.protocol, snapshot.metadata, snapshot.state.domains.values())
        return StateAt(snapshot.version, state, snapshot.in_commit_timestamp_ms or 0)

    def _after(self, record: TableRecord, reader: LogReader, head: Head, known: StateAt) -> StateAt | None:
        """The state at a head, from an earlier one; None if that one is of another history, or its commit was removed
        by log clean-up."""
        at = known
        try:
            for actions in reader.commits(range(known.version, head.version + 1)):
                ict_ms = required_ict(actions.commit_info, actions.version, record.url)
                if actions.version > known.version:
                    at = at.after(actions, ict_ms)
                elif ict_ms != known.ict_ms:
                    return None
        except MissingVersionError:
            return None
        return at
