"""A table handle: keeps the latest known version of a table, and begins transactions on it."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from deltalog.commit.committer import Committer
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
from deltalog.lazy_names import lazy_modules
from deltalog.log.loader import load_after, load_latest
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import LogSnapshot
from deltalog.parallel import both
from deltalog.protocol import features
from deltalog.protocol.column_metadata import IDENTITY_KEY
from deltalog.protocol.paths import commit_path
from deltalog.read.snapshot import Snapshot, is_outdated, is_read
from deltalog.storage.base import real_url

if TYPE_CHECKING:
    import logging

    from deltalog.commit import conflicts, hooks, prepared, tip_proof
    from deltalog.log import history as histories
    from deltalog.log import history_entries as past_commits
    from deltalog.read import origin as row_origins
    from deltalog.write import input_streams, transaction_options
    from deltalog.write import transaction as transactions
else:
    lazy_modules(
        __name__,
        "logging",
        "deltalog.commit.conflicts",
        "deltalog.commit.hooks",
        "deltalog.commit.prepared",
        "deltalog.commit.tip_proof",
        "deltalog.write.input_streams",
        "deltalog.write.transaction_options",
        histories="deltalog.log.history",
        past_commits="deltalog.log.history_entries",
        row_origins="deltalog.read.origin",
        transactions="deltalog.write.transaction",
    )

T = TypeVar("T")

# For how long the latest known version of a remote table is assumed to be the current one.
_WARM_MS = 10_000
# A lock that is held only for the moment in which a handle moves to another version.
_MOVING = threading.Lock()


class TableHandle:
    """The state of one open table. Threads may share it.

    ``latest`` is the latest known version: an immutable snapshot, replaced when a later version is read.
    """

    def __init__(self, reader: LogReader, committer: Committer, environment: Environment, latest: Snapshot) -> None:
        self._options: transaction_options.TransactionOptions | None = None
        self.base: Snapshot | None = None  # where the next transaction begins; None: at the latest version
        self.reader = reader
        self.committer = committer
        self.environment = environment
        self.latest = latest
        # Snapshots in use, keyed by version; cleared if the table is replaced.
        self._shared: weakref.WeakValueDictionary[int, LogSnapshot] = weakref.WeakValueDictionary()
        # Staged files whose commit may still succeed, keyed by path. A staged file is not deleted until the outcome of
        # its commit is known.
        self.unsettled: dict[str, CommitStateUnknownError] = {}
        # A version, and the time at which the last check began that found this version to be the latest in the log.
        self._proven: tuple[Snapshot, int] | None = None
        self._lost: Snapshot | None = None  # a lost version that an error has already reported
        self._fresh_ms = 0  # the time at which ``latest`` was last known to be current; 0 on a local store
        self._mark_fresh()

    @property
    def url(self) -> str:
        return self.reader.store.url

    @property
    def options(self) -> transaction_options.TransactionOptions:
        """The options of every transaction that this handle begins."""
        return transaction_options.NO_OPTIONS if self._options is None else self._options

    def configured(
        self,
        options: transaction_options.TransactionOptions,
        max_attempts: int | None = None,
        base: Snapshot | None = None,
    ) -> TableHandle:
        """A second handle on the table, on the same version, whose transactions have these options. ``max_attempts``:
        as in RetryPolicy; None: the same as in this handle. ``base``: the version on which the first transaction of the
        handle begins, if not the latest; commits after this version are checked for conflicts. Pass the latest version
        of the second handle to ``advance`` of this one. Cost: none."""
        other = copy.copy(self)
        other._options, other.base = options, base
        if max_attempts is not None:
            retry = replace(self.environment.retry, max_attempts=max_attempts)
            other.environment = replace(self.environment, retry=retry)
        return other

    # ------------------------------------------------------------------------------------------ the latest version

    def refresh(self) -> Snapshot:
        """The latest version. Cost: 2 concurrent HEADs if there is no new version. Versions are contiguous. So if the
        next commit is absent, the known version is the latest, unless the table was deleted or replaced, which the HEAD
        of the known commit detects. If clean-up has deleted commits from which the known version is read, that version
        is loaded again. If there is a new version, also the cost of ``load_after`` or ``load_latest``."""
        return self._refreshed()[0]

    def refresh_for_change(self) -> Snapshot:
        """Like ``refresh``, for a call that changes the table. Raises TableReplacedError if the log now belongs to
        another table. By then the handle has moved to the new table, so that the next call changes the new table."""
        before = self.latest
        latest, is_same = self._refreshed()
        is_known = before is not self._lost and is_read(before)
        if not is_same and is_known and before.metadata.id != latest.metadata.id:
            raise tip_proof.replaced_by(before, latest.log)
        return latest

    def _refreshed(self) -> tuple[Snapshot, bool]:
        """The latest version, and whether its log is known to still contain the commit of the version that the handle
        knew before."""
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
                # If the known commit is still in the log, the newer commits belong to the same table, because a deleted
                # table is never restored in place.
                found = self.reader.store.head(commit_path(latest.version))
                is_same = found is not None and latest.tip.is_file(self.reader, found)
                newer = newer if is_same else None
        fresh = load_latest(self.reader) if newer is None else newer
        snapshot = Snapshot(fresh)
        with _MOVING:
            if newer is None:
                self._shared = weakref.WeakValueDictionary()
            # If another thread has moved the handle in the meantime, only a later version moves it again.
            if self.latest is latest or fresh.version > self.latest.version:
                self.latest = snapshot
        self._mark_fresh(snapshot, began_ms)
        return snapshot, is_same

    def recent(self) -> tuple[Snapshot, int | None]:
        """The latest version, for a call that changes the table. On a remote store, this version may be up to _WARM_MS
        out of date. The second item of the result is None if the log was not checked; otherwise it is the time at which
        the check began, which has shown this version to be the latest. Cost: none without a check, else as
        ``refresh_for_change``."""
        if self._is_warm():
            return self.latest, None
        latest = self.refresh_for_change()
        return latest, self._proven_ms(latest)

    def at(
        self,
        version: int | None,
        timestamp_ms: int | None,
        for_change: bool = False,
        before: str = "error",
        after: str = "error",
    ) -> Snapshot:
        """The latest version, a specific version, or the version that was current at a point in time. Like
        ``DeltaTable.snapshot``, but the time is in milliseconds since 1970. ``for_change``: whether to find the latest
        version as ``refresh_for_change`` does. ``before``, ``after``: as for ``LogHistory.version_at``."""
        if version is not None and timestamp_ms is not None:
            raise CallError("Pass a version or a timestamp, not both.")
        if timestamp_ms is None and (before, after) != ("error", "error"):
            raise CallError("Pass before and after with a timestamp: they clamp times outside the history.")
        if not (version is None or isinstance(version, int)):
            raise CallError(f"A version must be an integer, not {version!r}. For a point in time use timestamp=.")
        latest = self.refresh_for_change() if for_change else self.refresh()
        if timestamp_ms is not None:
            history = histories.LogHistory(self.reader, latest.log)
            found = self._snapshot(history, history.version_at(timestamp_ms, before, after).version)
            return Snapshot(found, is_time_travel=True)
        if version is None:
            return latest
        if version == latest.version:
            return latest.as_time_travel()
        return Snapshot(self._snapshot(histories.LogHistory(self.reader, latest.log), version), is_time_travel=True)

    def _snapshot(self, history: histories.LogHistory, version: int) -> LogSnapshot:
        """The snapshot of a version. While a snapshot is in use, all callers share it and its cached data. Raises and
        costs as ``LogHistory.snapshot``."""
        shared = self._shared
        found = shared.get(version)
        if found is not None and found.cache.is_outdated:
            shared.pop(version, None)
            found = None
        return shared.setdefault(version, history.snapshot(version)) if found is None else found

    def history(self) -> histories.LogHistory:
        """The commits up to the latest version. Cost: as ``refresh``."""
        return histories.LogHistory(self.reader, self.refresh().log)

    def history_entries(self, limit: int | None) -> list[past_commits.CommitEntry]:
        """The same entries as ``history().entries(limit)``. If the latest known version was read recently, the last
        ``limit`` commits up to it are read concurrently with ``refresh``. If ``refresh`` finds a later version, the
        last commits are read again."""
        known = self.latest
        if limit is None or limit < 1 or not self._is_warm() or is_outdated(known):
            return self.history().entries(limit)

        def early() -> list[past_commits.CommitEntry] | None:
            try:
                return histories.LogHistory(self.reader, known.log).recent_entries(limit)
            except DeltaLogError:  # raised again below if a later version has the same error
                return None

        fresh, entries = both(self.refresh, early, side_by_side=True)
        return (
            entries
            if entries is not None and fresh is known
            else histories.LogHistory(self.reader, fresh.log).entries(limit)
        )

    def writable(self, for_change: bool = True) -> Snapshot:
        """The latest version, after a check that this client supports writing the table. ``for_change``: whether to
        find the latest version as ``refresh_for_change`` does. Raises UnsupportedFeatureError."""
        snapshot = self.refresh_for_change() if for_change else self.refresh()
        features.check_writable(snapshot.protocol, self.url)
        return snapshot

    def advance(self, snapshot: Snapshot, replaced: Snapshot | None = None) -> None:
        """Move to a version of this table that this handle's reader has read; an older version is ignored.

        ``replaced``: a snapshot of the same version that was read without the new checkpoint. If the handle already
        refers to another snapshot, the call has no effect.
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
        hooks.wait_for_hooks(self.reader.store)

    def mark_lost(self) -> None:
        """Record that the latest known version is no longer in the log and that a call has reported it. The next call
        reads the log again, and uses the table that it finds there."""
        self._lost = self.latest
        self.expire()

    def expire(self) -> None:
        """Make the next call of ``recent`` read the log again."""
        self._fresh_ms = -_WARM_MS

    def _mark_fresh(self, proven: Snapshot | None = None, proven_ms: int | None = None) -> None:
        """``proven_ms``: the start time of the log check that showed ``proven`` to be the latest version."""
        if self.reader.store.is_remote:
            self._fresh_ms = self.environment.clock_ms()
        if proven is not None and proven_ms is not None:
            self._proven = proven, proven_ms

    def _proven_ms(self, latest: Snapshot) -> int | None:
        """The time at which the last check of the log began, if it showed that ``latest`` is the latest version; None
        if a later check by another thread found another version."""
        proven = self._proven
        return proven[1] if proven is not None and proven[0] is latest else None

    def _is_warm(self) -> bool:
        """Whether the store is remote and the latest version was read within _WARM_MS."""
        return self.reader.store.is_remote and 0 <= self.environment.clock_ms() - self._fresh_ms < _WARM_MS

    # ------------------------------------------------------------------------------------------------ transactions

    def transaction(
        self,
        isolation_level: prepared.IsolationLevel | None = None,
        reads: Iterable[row_origins.Read] = (),
        expected_version: int | None = None,
    ) -> transactions.Transaction:
        """See ``DeltaTable.transaction``."""
        latest = self.refresh_for_change()
        origins = self._own_origins(latest, reads if expected_version is None else ())
        begin = latest.version if self.base is None else min(self.base.version, latest.version)
        read = self._read_at(min((version for version, _, _ in origins), default=begin), latest)
        for version, txn_id, _ in origins:
            found = {each.version: each.tip.txn_id for each in (read, latest)}.get(version)
            if None not in (txn_id, found) and txn_id != found:
                raise tip_proof.replaced(
                    self.url, version, f"version {version} is now another commit, in an older copy"
                )
        transaction = transactions.Transaction(
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

    def transaction_for(
        self, data: Any, expected_version: int | None, may_be_blind: bool = False
    ) -> transactions.Transaction:
        """A transaction for new rows. If the rows were read by a scan of this table (``Scan.origin``), the transaction
        records this read, for conflict detection. ``may_be_blind``: whether the transaction only adds rows; the
        transaction is a blind append if these rows depend on no version of the table.
        """
        origin = row_origins.origin_in(data)
        if may_be_blind and origin is None and expected_version is None and not self.options.app_versions:
            transaction = self._blind_append()
        else:
            reads = () if origin is None else (origin,)
            transaction = self.transaction(reads=reads, expected_version=expected_version)
        transaction.reads_callers_rows = not input_streams.is_in_memory(data)
        return transaction

    def _blind_append(self) -> transactions.Transaction:
        """Begin a transaction on the version that ``recent`` returns. No request checks for later commits in advance,
        because the commit attempt detects them. Only identity columns need the latest version, because new values
        continue from that version's high-water marks."""
        recent, proven_ms = self.recent()
        if proven_ms is None and IDENTITY_KEY in recent.metadata.schema_string:
            recent = self.refresh_for_change()
            proven_ms = self._proven_ms(recent)
        return transactions.Transaction(
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

    def following(self, parent: Snapshot, environment: Environment, proven_ms: int | None) -> transactions.Transaction:
        """A transaction that must commit directly after ``parent``, or after a limited number of other commits (the
        number of attempts in ``environment``); otherwise it raises VersionConflictError. ``proven_ms``: as
        returned by ``recent``."""
        return transactions.Transaction(
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

    def continuing(self, planned: Snapshot) -> transactions.Transaction:
        """A transaction whose changes were planned on the earlier version ``planned``. The commit of this transaction
        is checked for conflicts with the commits after the version on which it was planned. Cost: as ``refresh``, and 1
        GET for each version in between."""
        latest = self.refresh_for_change()
        return transactions.Transaction(
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
                logging.getLogger(__name__).info(
                    "planning again (%d of %d) after a conflict: %s", number, retry_count, error
                )
            except CallError as error:
                if conflict is None:
                    raise
                raise error from conflict
            self.environment.back_off(number)
        return attempt()

    def _own_origins(
        self, latest: Snapshot, reads: Iterable[row_origins.Read]
    ) -> list[tuple[int, str | None, Predicate | str | None]]:
        """Those of ``reads`` that refer to this table, each as a tuple: the version in this handle's numbering, the
        txnId of the commit that was read, and the condition."""
        store, authority = self.reader.store, self.reader.authority
        branch, base_version = authority.branch, authority.base_version
        return [
            (origin.version_for(branch, base_version), None if branch else origin.txn_id, where)
            for origin, where in row_origins.decoded(reads)
            if origin.is_of(latest.metadata.id, real_url(store))
        ]

    def _read_at(self, version: int, latest: Snapshot) -> Snapshot:
        if version == latest.version:
            return latest
        if self.base is not None and version == self.base.version:
            return self.base
        try:
            return Snapshot(histories.LogHistory(self.reader, latest.log).snapshot(version))
        except VersionNotFoundError as error:
            raise conflicts.commits_missing_since(version, latest.version, self.url) from error

    def _expecting(self, version: int, latest: Snapshot) -> Environment:
        """An environment that allows only one commit attempt, for the version directly after ``version``, which must be
        the latest."""
        if isinstance(version, bool) or not isinstance(version, int):
            raise CallError(
                f"expected_version must be an integer, the version that must be the latest; got {version!r}."
            )
        if version != latest.version:
            raise conflicts.unexpected_version(version, latest.version, self.url)
        return replace(self.environment, retry=replace(self.environment.retry, max_attempts=1))
