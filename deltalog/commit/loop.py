"""The commit loop: turns a prepared transaction into exactly one commit, or none.

The commit loop has one rule: **the loop attempts the next version only when it knows the outcome of its attempt at the
version before.**

The table's committer commits one version and returns one of three outcomes:

- *Committed*: the transaction is committed.
- *Exists*: the loop reads the commit that won the version. If that commit has this transaction's txnId, the loop's own
request had arrived and only the acknowledgement was lost: the transaction is committed. If it is another writer's
commit, the conflict rules are checked, and if
  there is no conflict, the loop attempts the next version with a new in-commit timestamp.
- *Unknown*: the loop reads the version back. If the commit that it finds there belongs to this transaction, the
transaction is committed. If that version was committed by another writer, the loop proceeds as for *Exists*. If the
version is absent, the loop commits the same attempt again, so that
  the first request has no effect if it arrives late. If the outcome cannot be determined, the loop raises
  CommitStateUnknownError with version and txnId, never an error that means that nothing was committed.

Before each attempt, the loop proves that the version on which the transaction was planned is still in the log
(``tip_proof``): nothing is committed to a table that was deleted or replaced meanwhile.

Spec: PROTOCOL.md#delta-log-entries, #creation-of-new-log-entries.
"""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalog import metrics
from deltalog.commit.attempt import Attempt, Landed, build_attempt
from deltalog.commit.base import Base
from deltalog.commit.committer import CommitOutcome, Committed, Committer, Unknown
from deltalog.commit.prepared import Prepared
from deltalog.commit.tip_proof import TipProof, replaced
from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import (
    ClockDriftWarning,
    CommitAttemptsExhaustedError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptTableError,
    DeltaLogError,
    InvalidCommitError,
    MissingVersionError,
    ObjectNotFoundError,
    Outcome,
    StoreError,
    TableNotFoundError,
    TableReplacedError,
)
from deltalog.lazy_names import lazy_modules
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import LogSnapshot
from deltalog.log.tip import Tip
from deltalog.protocol import features, row_tracking, timestamps
from deltalog.protocol.codec import CommitActions, decode_commit
from deltalog.protocol.paths import commit_path
from deltalog.storage.base import FileMeta, LogStore

if TYPE_CHECKING:
    from deltalog.commit import conflicts
else:
    lazy_modules(__name__, "deltalog.commit.conflicts")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommittedAttempt:
    """A commit in the log: its result, the winners on which it was rebased (ascending), and the committed attempt.
    ``meta``: the metadata of the commit file, if the store has returned this metadata since the commit."""

    result: CommitResult
    winners: list[CommitActions]
    attempt: Attempt
    meta: FileMeta | None = None

    @property
    def commits(self) -> list[Landed]:
        """The commits that won the race against the earlier attempts, followed by this commit."""
        return [
            *(Landed(winner, winner.in_commit_timestamp_ms) for winner in self.winners),
            self.attempt.landed,
        ]


def base_of(snapshot: LogSnapshot, file_time_ms: int | None = None) -> Base:
    """The base for an attempt to commit on top of ``snapshot``. ``file_time_ms``: the snapshot's monotonised file time,
    in milliseconds since 1970, if the attempt enables in-commit timestamps. Raises MissingInCommitTimestampError. Cost:
    at most 1 GET of 4 KiB."""
    previous_ms = timestamps.previous_timestamp(snapshot.in_commit_timestamp_ms, file_time_ms)
    mark = row_tracking.high_water_mark(snapshot.state.domains.values())
    return Base(snapshot.version, snapshot.protocol, snapshot.metadata, previous_ms, mark)


def rebased_on(prepared: Prepared, base: Base, winner: CommitActions, store: LogStore) -> Base:
    """The base after a winner. Raises as ``rebase``, and StoreError. Cost: 1 HEAD if the transaction enables in-commit
    timestamps."""
    protocol, metadata = prepared.protocol or base.protocol, prepared.metadata or base.metadata
    will_be_active = protocol is not None and metadata is not None and features.is_ict_active(protocol, metadata)
    file_time_ms = None
    if will_be_active and not base.is_ict_active:
        meta = store.head(commit_path(winner.version))
        file_time_ms = 0 if meta is None else meta.modification_time_ms or 0
    return conflicts.rebase(prepared, base, winner, file_time_ms, store.url)


def _outcome_of(error: BaseException) -> str:
    if isinstance(error, CommitConflictError):
        return "conflict"
    return "unknown" if isinstance(error, DeltaLogError) and error.outcome is Outcome.UNKNOWN else "failed"


class CommitLoop:
    """Commits one prepared transaction. Call ``run`` once."""

    def __init__(
        self,
        committer: Committer,
        reader: LogReader,
        prepared: Prepared,
        base: Base,
        environment: Environment,
        proof: TipProof | None = None,
    ) -> None:
        """``proof``: proves that the version on which the transaction was planned is in the log; None for version 0."""
        self._committer = committer
        self._reader = reader
        self._store = reader.store
        self._prepared = prepared
        self._base = base
        self._environment = environment
        self._proof = TipProof(reader, None, environment) if proof is None else proof
        self._winners: list[CommitActions] = []
        self._attempts = 0
        self._resent = 0
        self._occupant = b""  # the bytes of the commit that won the last version attempted

    def run(self) -> CommittedAttempt:
        """Commit the transaction.

        Raises CommitConflictError, TableExistsError, TableNotFoundError, TableReplacedError,
        CommitAttemptsExhaustedError and StoreError if nothing was committed and nothing will be later;
        CommitStateUnknownError if that is unknown. Cost: that of ``Committer.commit`` and of ``TipProof.check``; for
        each version that another writer committed, 1 GET and the same again, and 1 LIST from the second consecutive one
        on. On a local store, 2 HEADs after the commit.
        """
        if not metrics.has_listeners():
            return self._run()
        begun_s = time.perf_counter()
        try:
            done = self._run()
        except BaseException as error:
            self._report(self._base.version + 1, _outcome_of(error), begun_s, type(error).__name__)
            raise
        self._report(done.result.version, "committed", begun_s)
        return done

    def _report(self, version: int, outcome: str, begun_s: float, error: str | None = None) -> None:
        seconds = time.perf_counter() - begun_s
        table, attempts, rebased = self._store.url, self._attempts, len(self._winners)
        metrics.report(metrics.Commit(table, outcome, version, attempts, rebased, self._resent, seconds, error))

    def _run(self) -> CommittedAttempt:
        retry = self._environment.retry
        for number in range(1, retry.max_attempts + 1):
            self._attempts = number
            attempt = build_attempt(self._prepared, self._base, self._clock_ms())
            self._proof.check(attempt.version)
            winner = self._try(attempt)
            if winner is None:
                return CommittedAttempt(attempt.result(number), self._winners, attempt, self._confirmed(attempt))
            if self._prepared.is_strict and number == retry.max_attempts:
                raise conflicts.parent_taken(self._base.version, winner, self._store.url)
            self._rebase_on(winner, self._occupant)
            # Lists the log after the wait, because an earlier listing would be stale.
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
                "of this machine's clock. Each commit continues at +1 ms; check the clocks of all writers.",
                ClockDriftWarning,
                stacklevel=2,
            )
        return now_ms

    def _try(self, attempt: Attempt) -> CommitActions | None:
        """Try one attempt. Returns None if the attempt is in the log, otherwise the actions of the commit that won the
        attempted version."""
        outcome = self._commit(attempt)
        if isinstance(outcome, Committed):
            return None
        self._proof.begin()  # runs while the winner is read
        return self._settle(attempt, outcome)

    def _commit(self, attempt: Attempt) -> CommitOutcome:
        """The committer's outcome. Raises CommitStateUnknownError for one that only the committer can settle."""
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
                self._occupant = data = self._store.get(path)
                occupant = decode_commit(data, version)
                return None if self._is_ours(occupant) else occupant
            except ObjectNotFoundError as error:
                # The commit file is absent. After Exists, this means that the store returned a stale read; after
                # Unknown, it means that the request has not arrived (yet).
                cause = error
            except InvalidCommitError:
                raise  # this is another writer's commit, because our own can be decoded
            except DeltaLogError as error:
                cause = error
                continue
            self._resent += 1
            try:
                self._proof.check(attempt.version)
                outcome = self._commit(attempt)
            except CommitStateUnknownError:
                raise
            except (TableNotFoundError, TableReplacedError, CommitConflictError) as error:
                raise self._unknown(attempt, error) from error  # an earlier request may still arrive
            except DeltaLogError as error:
                cause = error  # this request committed nothing, but an earlier request may still take effect
                continue
            if isinstance(outcome, Committed):
                return None
        raise self._unknown(attempt, cause)

    def _confirmed(self, attempt: Attempt) -> FileMeta | None:
        """After a commit, check that the log still contains the previous version, if this needs no network request.
        Return the metadata of the commit file. If the table was deleted or replaced at the same moment, withdraw the
        commit."""
        if not self._proof.is_checked_after:
            return None
        try:
            is_certain, meta = self._proof.confirm(attempt.version)
            if is_certain and meta is not None and self._is_file_of(attempt, meta):
                return meta
            # Not deleted by log clean-up, which would have deleted the preceding version first.
            is_rolled_back = is_certain and meta is None
            if not is_rolled_back and self._is_ours(self._reader.commit(attempt.version)):
                return None
            raise replaced(self._store.url, self._base.version, "an older copy replaced it")
        except MissingVersionError:  # deleted by clean-up
            return None
        except (TableNotFoundError, TableReplacedError) as error:
            self._withdraw(attempt, error)
            # Raises a more specific error, one that describes the log that exists now.
            self._proof.check(attempt.version)
            raise
        except DeltaLogError as error:  # this error is no evidence against the commit
            log.debug("%s: cannot check the log after the commit: %s", self._store.url, error)
            return None

    def _is_file_of(self, attempt: Attempt, found: FileMeta) -> bool:
        """Whether the commit file found for the attempt's version is the one that the attempt created. A rollback may
        have deleted the attempt's file but kept the version before it, and another writer may then have committed the
        same version. Cost: as ``Tip.is_file``."""
        own = Tip(attempt.version, self._prepared.txn_id)
        own.note_written(attempt.data, None)
        return own.is_file(self._reader, found)

    def _withdraw(self, attempt: Attempt, reason: DeltaLogError) -> None:
        """Delete a commit file from a location where the commit's table no longer exists. Raises
        CommitStateUnknownError if the store fails, or if the commit cannot be deleted because readers can see it and
        another writer may build on it at any moment."""
        path = commit_path(attempt.version)
        try:
            is_read = self._is_read(attempt.version)
            # Check this right before the deletion, because the file may have become another writer's commit.
            if not self._is_ours(decode_commit(self._store.get(path), attempt.version)):
                return
            if not is_read:
                self._store.delete(path)
                return
        except (ObjectNotFoundError, InvalidCommitError):
            return  # deleted with its table
        except DeltaLogError as error:
            log.debug("%s: version %s cannot be withdrawn: %s", self._store.url, attempt.version, error)
            raise self._unknown(attempt, reason) from reason
        raise self._unknown(
            attempt,
            reason,
            "the table was replaced at the moment of the commit, and the new log has the commit as its version "
            f"{attempt.version}. It stays, because other writers may follow it. Read the new table; if the commit does "
            "not belong to it, restore the version before it.",
        ) from reason

    def _is_read(self, version: int) -> bool:
        """Whether readers that list the log can see a version; they cannot if its predecessor is missing. Raises
        StoreError. Cost: 1 GET of the checkpoint hint and 1 LIST, or 2."""
        try:
            return self._reader.segment(self._reader.list_latest()).version >= version
        except TableNotFoundError:
            return False
        except CorruptTableError:
            return self._store.head(commit_path(version - 1)) is not None

    def _is_ours(self, occupant: CommitActions) -> bool:
        return occupant.commit_info is not None and occupant.commit_info.txn_id == self._prepared.txn_id

    def _unknown(self, attempt: Attempt, cause: Exception | None, what: str | None = None) -> CommitStateUnknownError:
        version = attempt.version
        store, txn_id = self._store, self._prepared.txn_id
        result = attempt.result(self._attempts)

        def resolve() -> CommitResult | None:
            try:
                occupant = decode_commit(store.get(commit_path(version)), version)
            except ObjectNotFoundError:
                return None
            return result if self._is_ours(occupant) else None

        if what is None:
            what = (
                f"the store stopped answering while version {version} was being committed; whether the commit is in "
                f"the log is unknown. Its txnId is {txn_id}. Call resolve() on this error when the store answers "
                "again; "
                "do not repeat the operation before that."
            )
        error = CommitStateUnknownError(
            f"{store.url}: {what}",
            resolve=resolve,
            version=version,
            txn_id=txn_id,
        )
        error.__cause__ = cause
        return error

    def _rebase_on(self, winner: CommitActions, data: bytes) -> None:
        """Rebase on the winner's version. ``data``: the bytes of the commit file that the winning writer created.
        Raises CommitConflictError if the winner conflicts."""
        self._base = rebased_on(self._prepared, self._base, winner, self._store)
        self._winners.append(winner)
        self._proof.follow(winner, data)

    def _catch_up(self) -> None:
        """Rebase on all later commits in the log, which costs 1 LIST instead of one failed PUT for each of them."""
        try:
            listed = self._reader.list_from(self._base.version + 1).commits
        except StoreError as error:
            log.debug("cannot list the log to catch up: %s", error)
            return
        expected = list(range(self._base.version + 1, self._base.version + 1 + len(listed)))
        if listed and list(listed) == expected:
            for version, data in zip(listed, self._reader.commit_files(listed), strict=True):
                self._rebase_on(decode_commit(data, version), data)
