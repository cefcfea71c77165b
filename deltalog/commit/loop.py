"""Turns a prepared transaction into exactly one commit.

The loop and its one rule: **a version is never left before it is known to be occupied.**

The table's committer makes one version, and returns the outcome:

- *Committed*: done.
- *Exists*: the winner is read. If its txnId is ours, our request had arrived and only the response was lost: done.
  Otherwise the conflict rules decide, and the next version is attempted with a new in-commit timestamp.
- *Unknown*: the version is read back. Our txnId: done. Another txnId: as above. Absent: the same attempt is committed
  again, so that a late arrival of the first request changes nothing. When this cannot be settled,
  CommitStateUnknownError has version and txnId; it does not mean that the commit failed.

Spec: PROTOCOL.md#delta-log-entries.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import ClassVar

from deltalog.commit.attempt import Attempt, build_attempt
from deltalog.commit.base import Base
from deltalog.commit.committer import CommitOutcome, Committed, Committer, Unknown
from deltalog.commit.conflicts import parent_taken, rebase
from deltalog.commit.prepared import Prepared
from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import (
    CommitAttemptsExhaustedError,
    CommitStateUnknownError,
    DeltaLogError,
    InvalidCommitError,
    ObjectNotFoundError,
    Outcome,
    StoreError,
)
from deltalog.log.reader import LogReader
from deltalog.protocol import features, row_tracking, timestamps
from deltalog.protocol.codec import CommitActions, decode_commit
from deltalog.protocol.paths import commit_path
from deltalog.read.snapshot import Snapshot
from deltalog.storage.base import LogStore

log = logging.getLogger(__name__)


class ClockDriftWarning(UserWarning):
    """The last commit's in-commit timestamp is far ahead of this machine's clock."""

    outcome: ClassVar[Outcome] = Outcome.NOTHING_COMMITTED  # where warnings are errors: it precedes the request


@dataclass(frozen=True, slots=True)
class Landed:
    """A commit that is in the log: the result, the winners it was rebased on, and the attempt that was committed."""

    result: CommitResult
    winners: list[CommitActions]
    attempt: Attempt


def base_of(snapshot: Snapshot, file_time_ms: int | None = None) -> Base:
    """The version of a snapshot. ``file_time_ms``: as ``timestamps.previous_timestamp`` has it, where the attempt
    enables in-commit timestamps."""
    previous_ms = timestamps.previous_timestamp(snapshot.in_commit_timestamp_ms, file_time_ms)
    mark = row_tracking.high_water_mark(snapshot.domain_metadata)
    return Base(snapshot.version, snapshot.protocol, snapshot.metadata, previous_ms, mark)


def rebased_on(prepared: Prepared, base: Base, winner: CommitActions, store: LogStore) -> Base:
    """The base after a winner. Raises as ``rebase``. Cost: 1 HEAD where the commit enables in-commit timestamps."""
    protocol, metadata = prepared.protocol or base.protocol, prepared.metadata or base.metadata
    will_be_active = protocol is not None and metadata is not None and features.is_ict_active(protocol, metadata)
    file_time_ms = None
    if will_be_active and not base.is_ict_active:
        meta = store.head(commit_path(winner.version))
        file_time_ms = 0 if meta is None else meta.modification_time_ms or 0
    return rebase(prepared, base, winner, file_time_ms, store.url)


class CommitLoop:
    """Carries one prepared transaction through the loop. Used once."""

    def __init__(
        self, committer: Committer, reader: LogReader, prepared: Prepared, base: Base, environment: Environment
    ) -> None:
        self._committer = committer
        self._reader = reader
        self._store = reader.store
        self._prepared = prepared
        self._base = base
        self._environment = environment
        self._winners: list[CommitActions] = []
        self._tried = 0  # versions

    def run(self) -> Landed:
        """Commit, or raise: CommitConflictError, TableExistsError, CommitAttemptsExhaustedError and StoreError
        when nothing was and will be committed, CommitStateUnknownError when that is unknown.

        Cost: as ``Committer.commit``; for each version that another writer won, 1 GET and one such call more, and
        1 LIST from the second one in a row on.
        """
        retry = self._environment.retry
        for number in range(1, retry.max_attempts + 1):
            self._tried = number
            attempt = build_attempt(self._prepared, self._base, self._clock_ms())
            winner = self._try(attempt)
            if winner is None:
                return Landed(attempt.result(number), self._winners, attempt)
            if self._prepared.is_strict and number == retry.max_attempts:
                raise parent_taken(self._base.version, winner, self._store.url)
            self._yield_to(winner)
            # List after waiting: earlier reads are stale by then.
            self._environment.back_off(number - retry.immediate, retry.race_max_delay_ms)
            if number > 1:
                self._catch_up()
        raise CommitAttemptsExhaustedError(
            f"{self._store.url}: {retry.max_attempts} versions in a row were committed by other writers "
            f"(last: {self._base.version}). Nothing was committed. Try again, or use fewer writers."
        )

    def _clock_ms(self) -> int:
        now_ms = self._environment.clock_ms()
        ahead_ms = (self._base.previous_ms or now_ms) - now_ms
        if ahead_ms > self._environment.drift_warning_ms and self._base.is_ict_active:
            warnings.warn(
                f"{self._store.url}: the in-commit timestamp of version {self._base.version} is {ahead_ms} ms ahead "
                "of this machine's clock. Commits continue at +1 ms each; check the clocks of all writers.",
                ClockDriftWarning,
                stacklevel=2,
            )
        return now_ms

    def _try(self, attempt: Attempt) -> CommitActions | None:
        """None when the attempt is in the log, else the actions of the commit that has its version."""
        outcome = self._commit(attempt)
        return None if isinstance(outcome, Committed) else self._settle(attempt, outcome)

    def _commit(self, attempt: Attempt) -> CommitOutcome:
        """As the committer's; raises what only the committer can settle."""
        outcome = self._committer.commit(attempt)
        if isinstance(outcome, Unknown) and outcome.error is not None:
            raise outcome.error
        return outcome

    def _settle(self, attempt: Attempt, outcome: CommitOutcome) -> CommitActions | None:
        version, path = attempt.version, commit_path(attempt.version)
        cause: Exception | None = None
        for number in range(self._environment.retry.settle_attempts):
            self._environment.back_off(number)
            try:
                occupant = decode_commit(self._store.get(path), version)
                return None if self._is_ours(occupant) else occupant
            except ObjectNotFoundError as error:
                # After EXISTS this is a store that forgot; after UNKNOWN the request has not (yet) arrived.
                cause = error
            except InvalidCommitError:
                raise  # another writer's: what this one has sent can be read
            except DeltaLogError as error:
                cause = error
                continue
            try:
                outcome = self._commit(attempt)
            except CommitStateUnknownError:
                raise
            except DeltaLogError as error:
                cause = error  # definite for this request; an earlier one may still arrive
                continue
            if isinstance(outcome, Committed):
                return None
        raise self._unknown(attempt, cause)

    def _is_ours(self, occupant: CommitActions) -> bool:
        return occupant.commit_info is not None and occupant.commit_info.txn_id == self._prepared.txn_id

    def _unknown(self, attempt: Attempt, cause: Exception | None) -> CommitStateUnknownError:
        version = attempt.version
        store, txn_id = self._store, self._prepared.txn_id
        result = attempt.result(self._tried)

        def resolve() -> CommitResult | None:
            try:
                occupant = decode_commit(store.get(commit_path(version)), version)
            except ObjectNotFoundError:
                return None
            return result if self._is_ours(occupant) else None

        error = CommitStateUnknownError(
            f"{store.url}: the store stopped answering while version {version} was being committed; whether it "
            f"landed is unknown. Its txnId is {txn_id}. Call resolve() on this error when the store answers "
            "again; do not repeat the operation before that.",
            resolve=resolve,
            version=version,
            txn_id=txn_id,
        )
        error.__cause__ = cause
        return error

    def _yield_to(self, winner: CommitActions) -> None:
        """Rebase on the winner, or raise its conflict."""
        self._base = rebased_on(self._prepared, self._base, winner, self._store)
        self._winners.append(winner)

    def _catch_up(self) -> None:
        """Rebase on all commits that exist already, instead of one failed PUT for each."""
        try:
            listed = self._reader.list_from(self._base.version + 1).commits
        except StoreError as error:
            log.debug("cannot list the log to catch up: %s", error)
            return
        expected = list(range(self._base.version + 1, self._base.version + 1 + len(listed)))
        if listed and list(listed) == expected:
            for winner in self._reader.commits(listed):
                self._yield_to(winner)
