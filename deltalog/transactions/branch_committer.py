"""The committer of a table opened in a transaction, which commits to the transaction's branch."""

from __future__ import annotations

from collections.abc import Callable

from deltalog.catalog.committer import check_managed
from deltalog.commit.attempt import Attempt
from deltalog.commit.committer import CommitOutcome, Committed, Committer, Unknown
from deltalog.commit.hooks import NewVersion, OnCheckpoint
from deltalog.commit.prepared import Prepared
from deltalog.commit_result import CommitResult
from deltalog.environment import Environment
from deltalog.errors import (
    CommitStateUnknownError,
    OperationTimeoutError,
    TransactionCommitInProgressError,
    TransactionCommittedError,
)
from deltalog.log.loader import load_latest
from deltalog.protocol.schema import StructType
from deltalog.protocol.timestamps import required_ict
from deltalog.transactions.branch import Branch

Keep = Callable[[int, Prepared, StructType], None]


class BranchCommitter(Committer):
    """Adds versions to a branch. Log files are written and hooks are run when the transaction is committed.

    ``keep``: stores a commit, with its number and the schema on which it is based, so that other processes can use it.
    ``keep`` must be idempotent; if it raises an error, the commit fails.
    """

    def __init__(self, branch: Branch, keep: Keep) -> None:
        self._branch = branch
        self._keep = keep

    def commit(self, attempt: Attempt) -> CommitOutcome:
        """Raises ConcurrentModificationError if another thread committed to the branch since the attempt was built,
        ResourceNotReadyError if the catalog has released the table, and the errors of ``keep``. Cost: that of
        ``keep``."""
        branch = self._branch
        check_managed(attempt.protocol, branch.store.url, str(branch.pinned.reader.authority.catalog))
        with branch.lock:
            branch.check_next(attempt)
            number, schema = len(branch.prepared), branch.schema
            try:
                self._keep(number, attempt.prepared, schema)
            except OperationTimeoutError as error:
                return Unknown(self._unknown(number, schema, attempt, error))
            branch.add(attempt)
        return Committed()

    def after_commit(self, version: NewVersion, environment: Environment, on_checkpoint: OnCheckpoint) -> None:
        """No hooks. Cost: none."""

    def _unknown(
        self, number: int, schema: StructType, attempt: Attempt, cause: OperationTimeoutError
    ) -> CommitStateUnknownError:
        branch, prepared = self._branch, attempt.prepared
        url = branch.store.url

        def resolve() -> CommitResult | None:
            with branch.lock:
                if len(branch.prepared) == number:
                    try:
                        self._keep(number, prepared, schema)
                    except TransactionCommittedError:
                        return self._in_log(prepared)
                    except TransactionCommitInProgressError as error:
                        raise OperationTimeoutError(
                            f"{url}: the transaction is being committed; until that has ended it is not known whether "
                            "this change is part of it. Call resolve() again when it is committed.",
                            path=url,
                        ) from error
                    branch.add(attempt)
            return attempt.result() if branch.prepared[number] is prepared else None

        error = CommitStateUnknownError(
            f"{url}: the catalog stopped answering while a change was added to the transaction; whether the change is "
            "part of it is not known. Call resolve() on this error when the catalog answers again, or cancel the "
            "transaction.",
            resolve=resolve,
            version=attempt.version,
            txn_id=prepared.txn_id,
        )
        error.__cause__ = cause
        return error

    def _in_log(self, prepared: Prepared) -> CommitResult | None:
        """The result of one commit of a committed transaction, read from the table's log; None if the log does not
        contain the commit."""
        before = self._branch.pinned
        reader = before.reader
        versions = range(before.version + 1, load_latest(reader).version + 1)
        for version, info in zip(versions, reader.commit_infos(versions), strict=True):
            if info is not None and info.txn_id == prepared.txn_id:
                ict_ms = required_ict(info, version, reader.store.url)
                metrics = prepared.reported_metrics
                return CommitResult(version, ict_ms, ict_ms, 1, prepared.txn_id, metrics, prepared.operation)
        return None
