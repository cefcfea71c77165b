"""A table handle: the latest known version, and the transactions that begin on it."""

from __future__ import annotations

import copy
import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from deltalog.commit.committer import Committer
from deltalog.commit.conflicts import commits_missing_since, unexpected_version
from deltalog.commit.hooks import wait_for_hooks
from deltalog.commit.prepared import IsolationLevel
from deltalog.commit.tip_proof import replaced, replaced_by
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    CommitConflictError,
    CommitStateUnknownError,
    DeltaLogError,
    FeatureDropIncompleteError,
    VersionNotFoundError,
)
from deltalog.expressions.tree import Predicate
from deltalog.log.history import LogHistory
from deltalog.log.history_entries import CommitEntry
from deltalog.log.loader import load_after, load_latest
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import LogSnapshot
from deltalog.parallel import both
from deltalog.protocol import features
from deltalog.protocol.column_metadata import IDENTITY_KEY
from deltalog.protocol.paths import commit_path
from deltalog.read.origin import Read, decoded, origin_in
from deltalog.read.snapshot import Snapshot, is_outdated, is_read
from deltalog.storage.base import real_url
from deltalog.write.input_streams import is_in_memory
from deltalog.write.transaction import Transaction
from deltalog.write.transaction_options import NO_OPTIONS, TransactionOptions

T = TypeVar("T")

# How long a remote table's latest known version is assumed to be current.
_WARM_MS = 10_000
# Held only while a handle moves to another version.
_MOVING = threading.Lock()

log = logging.getLogger(__name__)


class TableHandle:
    """The state of one open table. Threads may share it.

    ``latest`` is the latest known version: an immutable snapshot, replaced when a later version is read.
    """

    def __init__(self, reader: LogReader, committer: Committer, environment: Environment, latest: Snapshot) -> None:
        self.options = NO_OPTIONS  # of every transaction that begins here
        self.base: Snapshot | None = None  # where the next transaction begins; None: at the latest version
        self.reader = reader
        self.committer = committer
        self.environment = environment
        self.latest = latest
        # Snapshots in use, by version; cleared if the table is replaced.
        self._shared: weakref.WeakValueDictionary[int, LogSnapshot] = weakref.WeakValueDictionary()
        # Staged files whose commit may still land, by path: they are not deleted until the commit is settled.
        self.unsettled: dict[str, CommitStateUnknownError] = {}
        # A version, and the start time of the last log check that showed it to be the latest.
        self._proven: tuple[Snapshot, int] | None = None
        self._lost: Snapshot | None = None  # a version that is gone, already reported by an error
        self._fresh_ms = 0  # when ``latest`` was last known to be current; 0 on a local store
        self._mark_fresh()

    @property
    def url(self) -> str:
        return self.reader.store.url

    def configured(
        self, options: TransactionOptions, max_attempts: int | None = None, base: Snapshot | None = None
    ) -> TableHandle:
        """A second handle on the table, on the same version, whose transactions have these options. ``max_attempts``:
        as in RetryPolicy; None: as here. ``base``: the version on which its first transaction begins, if not the
        latest: later commits are checked for conflicts. Pass its latest version to ``advance``. Cost: none."""
        other = copy.copy(self)
        other.options, other.base = options, base
        if max_attempts is not None:
            retry = replace(self.environment.retry, max_attempts=max_attempts)
            other.environment = replace(self.environment, retry=retry)
        return other

    # ------------------------------------------------------------------------------------------ the latest version

    def refresh(self) -> Snapshot:
        """The latest version. Cost: 2 concurrent HEADs if there is no new version. Versions are contiguous, so the
        absence of the next commit proves it, unless the table was removed or replaced; the HEAD of the known commit
        shows that. If clean-up has deleted commits of the known version, it is read again. Otherwise the cost of
        ``load_after`` in addition, or of ``load_latest``."""
        return self._refreshed()[0]

    def refresh_for_change(self) -> Snapshot:
        """Like ``refresh``, for a call that changes the table. Raises TableReplacedError if the log now belongs to
        another table; the handle then has moved to the new table, which the next call changes."""
        before = self.latest
        latest, is_same = self._refreshed()
        is_known = before is not self._lost and is_read(before)
        if not is_same and is_known and before.metadata.id != latest.metadata.id:
            raise replaced_by(before, latest.log)
        return latest

    def _refreshed(self) -> tuple[Snapshot, bool]:
        """The latest version, and whether the previously known version is known to be in its log."""
        latest = self.latest
        began_ms = self.environment.clock_ms() if self.reader.store.is_remote else None
        newer: LogSnapshot | None = None
        is_same = False
        if not is_outdated(latest):
            after, found = self.reader.heads([commit_path(latest.version + 1), commit_path(latest.version)])
            is_same = found is not None and latest.tip.is_file(self.reader, found)
            if is_same and after is None:
                self._mark_fresh(latest, began_ms)
                return latest, True
            newer = load_after(self.reader, latest.log) if is_same else None
            if is_same and not (newer is not None and self.reader.store.is_remote):
                # If the known commit is still there, the newer commits belong to the same table: a deleted table does
                # not come back.
                found = self.reader.store.head(commit_path(latest.version))
                is_same = found is not None and latest.tip.is_file(self.reader, found)
                newer = newer if is_same else None
        fresh = load_latest(self.reader) if newer is None else newer
        snapshot = Snapshot(fresh)
        with _MOVING:
            if newer is None:
                self._shared = weakref.WeakValueDictionary()
            # If another thread has moved the handle meanwhile, only a later version moves it again.
            if self.latest is latest or fresh.version > self.latest.version:
                self.latest = snapshot
        self._mark_fresh(snapshot, began_ms)
        return snapshot, is_same

    def recent(self) -> tuple[Snapshot, int | None]:
        """The latest version, for a call that changes the table; on a remote store up to _WARM_MS old. The second item
        is the start time of the log check that has just shown it to be the latest; None if the log was not checked.
        Cost: none without a check, else as ``refresh_for_change``."""
        if self._is_warm():
            return self.latest, None
        latest = self.refresh_for_change()
        return latest, self._proven_ms(latest)

    def at(self, version: int | None, timestamp_ms: int | None, for_change: bool = False) -> Snapshot:
        """The latest version, a specific version, or the version that was current at a point in time. As
        ``DeltaTable.snapshot``, with ms since the Unix epoch. ``for_change``: as ``refresh_for_change``."""
        if version is not None and timestamp_ms is not None:
            raise CallError("Pass a version or a timestamp, not both.")
        if not (version is None or isinstance(version, int)):
            raise CallError(f"A version must be an integer, not {version!r}. For a point in time use timestamp=.")
        latest = self.refresh_for_change() if for_change else self.refresh()
        if timestamp_ms is not None:
            history = LogHistory(self.reader, latest.log)
            found = self._snapshot(history, history.version_at(timestamp_ms).version)
            return Snapshot(found, is_time_travel=True)
        if version is None:
            return latest
        if version == latest.version:
            return latest.as_time_travel()
        return Snapshot(self._snapshot(LogHistory(self.reader, latest.log), version), is_time_travel=True)

    def _snapshot(self, history: LogHistory, version: int) -> LogSnapshot:
        """The snapshot of a version; shared, with its cached data, while it is in use. Raises and costs as
        ``LogHistory.snapshot``."""
        shared = self._shared
        found = shared.get(version)
        if found is not None and found.cache.is_outdated:
            shared.pop(version, None)
            found = None
        return shared.setdefault(version, history.snapshot(version)) if found is None else found

    def history(self) -> LogHistory:
        """The commits up to the latest version. Cost: as ``refresh``."""
        return LogHistory(self.reader, self.refresh().log)

    def history_entries(self, limit: int | None) -> list[CommitEntry]:
        """Like ``LogHistory.entries`` of ``history``. If the latest known version was read recently, its last ``limit``
        commits are read concurrently with ``refresh``, and again if there is a later version."""
        known = self.latest
        if limit is None or limit < 1 or not self._is_warm() or is_outdated(known):
            return self.history().entries(limit)

        def early() -> list[CommitEntry] | None:
            try:
                return LogHistory(self.reader, known.log).recent_entries(limit)
            except DeltaLogError:  # raised again below, unless a later version does not have the error
                return None

        fresh, entries = both(self.refresh, early, side_by_side=True)
        return entries if entries is not None and fresh is known else LogHistory(self.reader, fresh.log).entries(limit)

    def writable(self, for_change: bool = True) -> Snapshot:
        """The latest version, checked to be writable. ``for_change``: as ``refresh_for_change``. Raises
        UnsupportedFeatureError."""
        snapshot = self.refresh_for_change() if for_change else self.refresh()
        features.check_writable(snapshot.protocol, self.url)
        return snapshot

    def advance(self, snapshot: Snapshot, replaced: Snapshot | None = None) -> None:
        """Move to a version of this table that this handle's reader has read; an older one is ignored.

        ``replaced``: the snapshot of the same version without its new checkpoint. The call is ignored if the handle has
        moved on from it.
        """
        if replaced is not None:
            with _MOVING:
                if self.latest is replaced:
                    self.latest = snapshot
            return
        self.base = None
        with _MOVING:
            if snapshot.version < self.latest.version:
                return
            self.latest = snapshot
        self._mark_fresh()

    def flush(self) -> None:
        """See ``DeltaTable.flush``."""
        wait_for_hooks(self.reader.store)

    def mark_lost(self) -> None:
        """Record that the latest known version is no longer in the log and that a call has reported it. The next call
        reads the log, and changes the table found there."""
        self._lost = self.latest
        self.expire()

    def expire(self) -> None:
        """Make the next ``recent`` read the log."""
        self._fresh_ms = -_WARM_MS

    def _mark_fresh(self, proven: Snapshot | None = None, proven_ms: int | None = None) -> None:
        """``proven_ms``: the start time of the log check that showed ``proven`` to be the latest version."""
        if self.reader.store.is_remote:
            self._fresh_ms = self.environment.clock_ms()
        if proven is not None and proven_ms is not None:
            self._proven = proven, proven_ms

    def _proven_ms(self, latest: Snapshot) -> int | None:
        """The start time of the log check that showed this version to be the latest; None if another thread's later
        check showed another version."""
        proven = self._proven
        return proven[1] if proven is not None and proven[0] is latest else None

    def _is_warm(self) -> bool:
        """Whether the store is remote and the latest version was read within _WARM_MS."""
        return self.reader.store.is_remote and 0 <= self.environment.clock_ms() - self._fresh_ms < _WARM_MS

    # ------------------------------------------------------------------------------------------------ transactions

    def transaction(
        self,
        isolation_level: IsolationLevel | None = None,
        reads: Iterable[Read] = (),
        expected_version: int | None = None,
    ) -> Transaction:
        """See ``DeltaTable.transaction``."""
        latest = self.refresh_for_change()
        origins = self._own_origins(latest, reads if expected_version is None else ())
        begin = latest.version if self.base is None else min(self.base.version, latest.version)
        read = self._read_at(min((version for version, _, _ in origins), default=begin), latest)
        for version, txn_id, _ in origins:
            found = {each.version: each.tip.txn_id for each in (read, latest)}.get(version)
            if None not in (txn_id, found) and txn_id != found:
                raise replaced(self.url, version, f"version {version} is now another commit, in an older copy")
        transaction = Transaction(
            self.reader,
            self.committer,
            self.environment if expected_version is None else self._expecting(expected_version, latest),
            read,
            isolation_level=isolation_level,
            on_commit=self.advance,
            is_strict=expected_version is not None,
            latest=latest,
            proven_ms=self._proven_ms(latest),
            on_lost=self.mark_lost,
            options=self.options,
        )
        for _, _, where in origins:
            transaction.declare_read(where)
        if origins:
            transaction.check_conflicts()
        return transaction

    def transaction_for(self, data: Any, expected_version: int | None, may_be_blind: bool = False) -> Transaction:
        """A transaction for new rows. If a scan of this table read them (``Scan.origin``), the read is declared.

        ``may_be_blind``: only rows are added. If they depend on no version, the transaction is a blind append.
        """
        origin = origin_in(data)
        if may_be_blind and origin is None and expected_version is None and not self.options.app_versions:
            transaction = self._blind_append()
        else:
            reads = () if origin is None else (origin,)
            transaction = self.transaction(reads=reads, expected_version=expected_version)
        transaction.reads_callers_rows = not is_in_memory(data)
        return transaction

    def _blind_append(self) -> Transaction:
        """A transaction on a ``recent`` version: the commit attempt detects later commits, so no request looks for them
        before. Only identity columns need the latest version, because new values continue after its last ones."""
        recent, proven_ms = self.recent()
        if proven_ms is None and IDENTITY_KEY in recent.metadata.schema_string:
            recent = self.refresh_for_change()
            proven_ms = self._proven_ms(recent)
        return Transaction(
            self.reader,
            self.committer,
            self.environment,
            recent,
            on_commit=self.advance,
            refresh=self.refresh_for_change,
            proven_ms=proven_ms,
            on_lost=self.mark_lost,
            options=self.options,
        )

    def following(self, parent: Snapshot, environment: Environment, proven_ms: int | None) -> Transaction:
        """A transaction that must commit directly after ``parent``, or after as many winning commits as the attempts of
        ``environment`` allow; else VersionConflictError. ``proven_ms``: as returned by ``recent``."""
        return Transaction(
            self.reader,
            self.committer,
            environment,
            parent,
            on_commit=self.advance,
            is_strict=True,
            proven_ms=proven_ms,
            on_lost=self.mark_lost,
            options=self.options,
        )

    def continuing(self, planned: Snapshot) -> Transaction:
        """A transaction that was planned on an earlier version. Its commit is checked for conflicts with later commits.
        Cost: as ``refresh``, and 1 GET for each version in between."""
        latest = self.refresh_for_change()
        return Transaction(
            self.reader,
            self.committer,
            self.environment,
            planned,
            on_commit=self.advance,
            latest=latest,
            anchor=planned,
            on_lost=self.mark_lost,
            options=self.options,
        )

    def retrying(self, attempt: Callable[[], T], retry_count: int) -> T:
        """See ``DeltaTable.retrying``."""
        if isinstance(retry_count, bool) or not isinstance(retry_count, int) or retry_count < 0:
            raise CallError(f"retry_count must be an integer >= 0; got {retry_count!r}.")
        conflict: CommitConflictError | None = None
        for number in range(1, retry_count + 1):
            try:
                return attempt()
            except (CommitConflictError, FeatureDropIncompleteError) as error:
                found = error if isinstance(error, CommitConflictError) else error.__cause__
                if not (isinstance(found, CommitConflictError) and found.retryable):
                    raise
                conflict = found
                log.info("planning again (%d of %d) after a conflict: %s", number, retry_count, error)
            except CallError as error:
                if conflict is None:
                    raise
                raise error from conflict
            self.environment.back_off(number)
        return attempt()

    def _own_origins(
        self, latest: Snapshot, reads: Iterable[Read]
    ) -> list[tuple[int, str | None, Predicate | str | None]]:
        """The ``reads`` that concern this table: for each, the version as this handle numbers it, the txnId of its
        commit, and the condition."""
        store, authority = self.reader.store, self.reader.authority
        branch, base_version = authority.branch, authority.base_version
        return [
            (origin.version_for(branch, base_version), None if branch else origin.txn_id, where)
            for origin, where in decoded(reads)
            if origin.is_of(latest.metadata.id, real_url(store))
        ]

    def _read_at(self, version: int, latest: Snapshot) -> Snapshot:
        if version == latest.version:
            return latest
        if self.base is not None and version == self.base.version:
            return self.base
        try:
            return Snapshot(LogHistory(self.reader, latest.log).snapshot(version))
        except VersionNotFoundError as error:
            raise commits_missing_since(version, latest.version, self.url) from error

    def _expecting(self, version: int, latest: Snapshot) -> Environment:
        """An environment with one commit attempt, directly after this version."""
        if isinstance(version, bool) or not isinstance(version, int):
            raise CallError(
                f"expected_version must be an integer, the version that must be the latest; got {version!r}."
            )
        if version != latest.version:
            raise unexpected_version(version, latest.version, self.url)
        return replace(self.environment, retry=replace(self.environment.retry, max_attempts=1))
