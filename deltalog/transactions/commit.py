"""Commits all branches of a transaction as the next versions of their tables, or commits none of them.

Every branch is rebased on the latest version of its table; this fails if an intervening commit conflicts. Then the
commits of the branch are staged. A single ratification then commits all branches. If one of the tables has a newer
version by then, nothing is ratified and the next attempt starts. A failed attempt leaves only staged files, which it
tries to delete.

The operation that ratifies the commits also updates the transaction's record. So if a response is lost, the outcome can
be read from the record, and a repeated proposal takes effect only once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from deltalog import metrics
from deltalog.catalog.committer import discard_commits, publish, stage
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import (
    COMMIT_LEASE_MS,
    Call,
    Head,
    Proposal,
    Ratification,
    RatifiedCommit,
    TransactionRecord,
    TransactionStatus,
    check_allowed,
    committed,
)
from deltalog.catalog.store import ManagedStore
from deltalog.commit.attempt import Attempt
from deltalog.environment import Environment
from deltalog.errors import (
    CommitConflictError,
    CoordinatorError,
    DeltaLogError,
    EntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    TransactionContentionError,
)
from deltalog.log.reader import LogReader
from deltalog.transactions.branch import Branch

T = TypeVar("T")
R = TypeVar("R")

_NO_HEAD = Head(-1)
_THREADS = 16


@dataclass(slots=True)
class CommitTarget:
    """A branch, its table, the table's head, and the commits that the last attempt staged."""

    branch: Branch
    reader: LogReader
    store: ManagedStore[Coordinator]
    head: Head = _NO_HEAD
    attempts: Sequence[Attempt] = ()
    staged: tuple[RatifiedCommit, ...] = ()

    @property
    def table_id(self) -> str:
        return self.branch.table_id

    def catch_up(self) -> None:
        """Rebase the branch on the latest version. Cost: 1 coordinator call; 1 GET per newer version."""
        self.head = self.store.refresh_head()
        self.branch.catch_up(self.reader, self.head.version)

    def stage(self, transaction_id: str, last_ms: int, environment: Environment) -> None:
        """Stage the commits of the branch. Raises CatalogBehindLogError. Cost: 1 HEAD and 1 PUT per commit."""
        self.staged = ()  # the staged files of an attempt with unknown outcome are kept
        self.attempts = self.branch.attempts(transaction_id, last_ms)
        for attempt in self.attempts:
            made = stage(self.store.inner, self.store.coordinator, self.table_id, attempt, environment.new_uuid)
            self.staged = (*self.staged, made)

    def publish(self, coordinator: Coordinator) -> None:
        """Publish the branch's commits; call it only after they have been ratified. Raises the errors of ``publish``.
        Cost: that of ``publish`` with known head and contents."""
        head = Head(self.head.version + len(self.staged), (*self.head.unpublished, *self.staged))
        written = zip(self.staged, self.attempts, strict=True)
        contents = {commit.file: attempt.data for commit, attempt in written}
        publish(self.store.inner, coordinator, self.table_id, head, contents)
        if isinstance(self.reader.store, ManagedStore):
            self.reader.store.record_head(Head(head.version))

    def discard(self) -> None:
        discard_commits(self.store.inner, self.staged)
        self.staged = ()


def commit(
    coordinator: Coordinator, record: TransactionRecord, targets: Sequence[CommitTarget], environment: Environment
) -> TransactionRecord:
    """Commit a transaction whose record has the status COMMIT_IN_PROGRESS, and return the new record. This function
    ratifies the commits, but does not publish them.

    If nothing was committed, raises CommitConflictError for a conflicting change to a table; TransactionContentionError
    if other writers won every attempt or another call took over the commit; TransactionCanceledError if another process
    aborted the transaction; or StoreError. Raises OperationTimeoutError only if the outcome is unknown: the
    transaction's record shows it, now or later. Cost per attempt: those of ``CommitTarget.catch_up`` and
    ``CommitTarget.stage`` for every table, and 1 coordinator call.
    """
    if not metrics.has_listeners():
        return _commit(coordinator, record, targets, environment, [])
    begun_s, attempts = time.perf_counter(), list[int]()

    def report(outcome: str, versions: Mapping[str, int], error: str | None = None) -> None:
        seconds = time.perf_counter() - begun_s
        metrics.report(metrics.TransactionCommit(record.id, outcome, versions, len(attempts), seconds, error))

    try:
        done = _commit(coordinator, record, targets, environment, attempts)
    except BaseException as error:
        report(_outcome_of(error), {}, type(error).__name__)
        raise
    report("committed", {target.table_id: target.staged[-1].version for target in targets if target.staged})
    return done


def _outcome_of(error: BaseException) -> str:
    if isinstance(error, (CommitConflictError, TransactionContentionError)):
        return "conflict"
    return "unknown" if isinstance(error, DeltaLogError) and error.outcome is Outcome.UNKNOWN else "failed"


def _commit(
    coordinator: Coordinator,
    record: TransactionRecord,
    targets: Sequence[CommitTarget],
    environment: Environment,
    attempts: list[int],
) -> TransactionRecord:
    """Implements ``commit``. Appends the number of each attempt to ``attempts``."""
    retry = environment.retry
    for number in range(retry.max_attempts):
        attempts.append(number)
        environment.back_off(number, retry.race_max_delay_ms)
        proposal = _stage(coordinator, record, targets, environment)
        try:
            if _is_ratified(coordinator, record, proposal, environment):
                assert proposal.after is not None
                return proposal.after
        except DeltaLogError as error:
            if error.outcome is not Outcome.UNKNOWN:
                _discard(targets)
            raise
        _discard(targets)
    raise TransactionContentionError(
        f"Transaction {record.id}: other writers won {retry.max_attempts} times in a row. Nothing was "
        "committed; commit it again, or use fewer writers."
    )


def at_once(work: Callable[[CommitTarget], object], targets: Sequence[CommitTarget]) -> None:
    """Call ``work`` for all targets, in threads if a store is remote. All calls have ended when this function returns
    or raises."""
    side_by_side(work, targets, any(target.store.is_remote for target in targets))


def side_by_side(work: Callable[[T], R], items: Sequence[T], is_remote: bool) -> list[R]:
    """The results of ``work`` for all items, in order. Uses threads if ``is_remote``; all threads have ended when this
    function returns or raises."""
    if len(items) < 2 or not is_remote:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), _THREADS), thread_name_prefix="deltalog-commit") as pool:
        started = [pool.submit(work, item) for item in items]
    return [each.result() for each in started]


def _stage(
    coordinator: Coordinator, record: TransactionRecord, targets: Sequence[CommitTarget], environment: Environment
) -> Proposal:
    try:
        at_once(CommitTarget.catch_up, targets)
    except OperationTimeoutError as error:
        raise CoordinatorError(
            f"Transaction {record.id}: {error.message} Nothing was committed; commit it again.", path=error.path
        ) from error
    # The last commits to all tables have the same in-commit timestamp, so that no point in time separates them.
    changed = [target for target in targets if target.branch.prepared]
    for target in changed:
        coordinator.check_time(target.store.url, target.branch.earliest_ms)
    last_ms = max([environment.clock_ms(), *(target.branch.earliest_ms for target in changed)])
    try:
        at_once(lambda target: target.stage(record.id, last_ms, environment), targets)
    except BaseException:
        _discard(targets)
        raise
    commits = {target.table_id: target.staged for target in targets if target.staged}
    unmoved = {target.table_id: target.branch.version for target in targets}
    versions = {table_id: staged[-1].version for table_id, staged in commits.items()}
    return Proposal(commits, unmoved, record, committed(record, versions, environment.clock_ms()))


def _is_ratified(
    coordinator: Coordinator, record: TransactionRecord, proposal: Proposal, environment: Environment
) -> bool:
    """Whether the proposal was ratified; False means that it never will be ratified."""
    in_doubt: OperationTimeoutError | None = None
    for number in range(environment.retry.settle_attempts):
        environment.back_off(number)
        try:
            decision = coordinator.ratify(proposal)
            if decision is Ratification.RATIFIED:
                return True
            if decision is Ratification.MOVED and in_doubt is None:
                return False
            found = coordinator.transaction(record.id)
        except OperationTimeoutError as error:
            in_doubt = error
            continue
        except DeltaLogError:
            if in_doubt is None:
                raise
            continue
        if found is not None:
            return _is_ours(found, record)
        if in_doubt is None:
            raise EntityNotFoundError(f"Transaction {record.id} was deleted from {coordinator.url}.")
        break  # the record that contained the outcome was deleted
    assert in_doubt is not None
    raise OperationTimeoutError(
        f"Transaction {record.id}: the catalog {coordinator.url} stopped answering while it was being committed; "
        "whether it landed is unknown. Call describe_transaction, or commit it again: both return the outcome. If "
        f"nothing landed, it is aborted {COMMIT_LEASE_MS / 1000:g} s after it began.",
        path=coordinator.url,
    ) from in_doubt


def _is_ours(found: TransactionRecord, record: TransactionRecord) -> bool:
    """Whether the current record, ``found``, shows that the commit that began with ``record`` has succeeded; False if
    ``found`` equals ``record``. Raises TransactionCanceledError if the transaction was aborted,
    TransactionContentionError if another call continued it.
    """
    check_allowed(found, Call.COMMIT)
    if found.revision == record.revision:
        return False
    # an earlier request succeeded, but its response was lost
    if found.status is TransactionStatus.COMMITTED and found.revision == record.revision + 1:
        return True
    raise TransactionContentionError(
        f"Transaction {record.id}: another call has changed it since this commit began. This one committed "
        "nothing; commit it again, which returns the outcome."
    )


def _discard(targets: Sequence[CommitTarget]) -> None:
    at_once(CommitTarget.discard, targets)
