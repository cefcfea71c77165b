"""A branch: the commits of a transaction on top of the version that the transaction reads; when the transaction is
committed, they are rebased and renumbered."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog import CallError, CommitStateUnknownError
from deltalog.commit.attempt import Attempt, build_attempt
from deltalog.commit.committer import Committed, Unknown
from deltalog.commit.loop import base_of
from deltalog.commit.prepared import Prepared, Reads
from deltalog.errors import (
    ConcurrentAppendError,
    ConcurrentModificationError,
    OperationTimeoutError,
    TransactionCommitInProgressError,
    TransactionCommittedError,
)
from deltalog.protocol.paths import commit_path
from deltalog.protocol.schema import StructType
from deltalog.transactions.branch import Branch, place_in_transaction, transaction_of
from deltalog.transactions.branch_committer import BranchCommitter
from deltalog.transactions.branch_store import BranchStore
from tests.support.transactions import START_MS, A, bank, rows


@pytest.fixture
def manager() -> Any:
    return bank()


def branch_of(manager: Any, must_not_move: bool = False) -> Branch:
    record, snapshot = manager._tables.record(A), manager.table(A).snapshot()
    store = BranchStore(manager._tables.store(record, snapshot.version))
    return Branch(record.table_id, snapshot, store, must_not_move)


def change(txn_id: str, reads: Reads | None = None) -> Prepared:
    return Prepared(txn_id, "TEST", reads=reads or Reads())


def next_of(branch: Branch, prepared: Prepared) -> Attempt:
    """An attempt to commit the version after the last commit of the branch."""
    return build_attempt(prepared, branch._tip, START_MS)


class Kept:
    """Stores commits as a catalog does, but first raises the given errors."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.commits: dict[int, str] = {}

    def __call__(self, number: int, prepared: Prepared, schema: StructType) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.commits[number] = prepared.txn_id


def test_a_branch_reads_its_own_commits_and_nobody_else_does(manager: Any) -> None:
    branch, kept = branch_of(manager), Kept()
    committer = BranchCommitter(branch, kept)
    attempts = []
    for name in ("a", "b"):
        attempts.append(next_of(branch, change(name)))
        assert committer.commit(attempts[-1]) == Committed()
    first, second = attempts
    assert (first.version, second.version) == (1, 2) and kept.commits == {0: "a", 1: "b"}
    assert branch.store.get(commit_path(2)) == second.data and branch.store.get(commit_path(1), 10) == first.data[:10]
    assert branch.store.list_names("_delta_log", "00000000000000000001.json")[-2:] == [
        "00000000000000000001.json", "00000000000000000002.json",
    ]  # fmt: skip
    assert manager.table(A).snapshot().version == 0
    assert branch.store.inner.inner.head(commit_path(1)) is None  # type: ignore[attr-defined]


def test_a_branch_writes_no_file_of_the_log(manager: Any) -> None:
    store = branch_of(manager).store
    for write in (
        lambda: store.put("_delta_log/00000000000000000001.json", b""),
        lambda: store.put_if_absent("_delta_log/00000000000000000001.checkpoint.parquet", b""),
        lambda: store.delete("_delta_log/00000000000000000000.json"),
    ):
        with pytest.raises(CallError, match="before it is committed"):
            write()


def test_an_attempt_that_does_not_follow_the_last_commit_is_refused(manager: Any) -> None:
    branch, kept = branch_of(manager), Kept()
    stale = next_of(branch, change("stale"))
    BranchCommitter(branch, kept).commit(next_of(branch, change("first")))
    with pytest.raises(ConcurrentModificationError, match="another thread"):
        BranchCommitter(branch, kept).commit(stale)
    assert kept.commits == {0: "first"} and branch.count() == 1


def unknown(outcome: Any) -> CommitStateUnknownError:
    assert isinstance(outcome, Unknown) and outcome.error is not None
    return outcome.error


def test_a_commit_whose_keeping_is_not_known_is_kept_again_when_it_is_resolved(manager: Any) -> None:
    branch, kept = branch_of(manager), Kept(OperationTimeoutError("no answer"))
    error = unknown(BranchCommitter(branch, kept).commit(next_of(branch, change("a"))))
    assert branch.count() == 0 and kept.commits == {}
    result = error.resolve()
    assert result is not None and (result.version, result.txn_id) == (1, "a")
    assert kept.commits == {0: "a"} and branch.count() == 1
    assert error.resolve() == result and branch.count() == 1


def test_a_commit_that_is_not_known_is_none_where_another_one_took_its_place(manager: Any) -> None:
    branch, kept = branch_of(manager), Kept(OperationTimeoutError("no answer"))
    committer = BranchCommitter(branch, kept)
    error = unknown(committer.commit(next_of(branch, change("a"))))
    assert committer.commit(next_of(branch, change("b"))) == Committed()
    assert error.resolve() is None and kept.commits == {0: "b"}


def test_a_commit_that_is_not_known_is_looked_for_in_the_log_of_a_transaction_that_ended(manager: Any) -> None:
    ended = TransactionCommittedError("over", transaction_id="t")
    busy = TransactionCommitInProgressError("busy", transaction_id="t")
    branch, kept = branch_of(manager), Kept(OperationTimeoutError("no answer"), busy, ended, ended)
    error = unknown(BranchCommitter(branch, kept).commit(next_of(branch, change("a"))))
    with pytest.raises(OperationTimeoutError, match="resolve"):
        error.resolve()
    assert error.resolve() is None
    with manager.table(A).transaction() as transaction:
        transaction._txn_id = "a"
        transaction.add()
        committed = transaction.commit()
    found = error.resolve()
    assert found is not None and (found.version, found.txn_id) == (committed.version, "a")
    assert found.in_commit_timestamp_ms == committed.in_commit_timestamp_ms


def test_a_branch_is_put_on_top_of_what_others_committed(manager: Any) -> None:
    branch = branch_of(manager)
    BranchCommitter(branch, Kept()).commit(next_of(branch, change("a")))
    BranchCommitter(branch, Kept()).commit(next_of(branch, change("b")))
    table = manager.table(A)
    table.append(rows((3, 1)))
    branch.catch_up(table.snapshot().reader, 1)
    assert branch.version == 1
    last_ms = branch.earliest_ms + 100
    attempts = branch.attempts("t", last_ms)
    assert [each.version for each in attempts] == [2, 3]
    assert [each.in_commit_timestamp_ms for each in attempts] == [last_ms - 1, last_ms]
    infos = [each.actions.commit_info for each in attempts]
    assert [place_in_transaction(info) for info in infos] == [(1, 2), (2, 2)]
    assert {transaction_of(info) for info in infos} == {"t"}
    landed = branch.landed(attempts)
    assert [(each.snapshot.version, each.result.txn_id) for each in landed] == [(2, "a"), (3, "b")]


@pytest.mark.parametrize("must_not_move", [False, True])
def test_a_conflict_with_what_others_committed(manager: Any, must_not_move: bool) -> None:
    branch = branch_of(manager, must_not_move)
    if not must_not_move:
        BranchCommitter(branch, Kept()).commit(next_of(branch, change("a", Reads(whole_table=True))))
    table = manager.table(A)
    table.append(rows((3, 1)))
    with pytest.raises(ConcurrentAppendError):
        branch.catch_up(table.snapshot().reader, 1)


def test_the_next_commit_follows_the_last_one_of_the_branch(manager: Any) -> None:
    branch = branch_of(manager)
    base = base_of(manager.table(A).snapshot().log)
    attempt = next_of(branch, change("a"))
    BranchCommitter(branch, Kept()).commit(attempt)
    following = next_of(branch, change("b"))
    assert base.previous_ms is not None and attempt.in_commit_timestamp_ms is not None
    assert following.in_commit_timestamp_ms is not None
    assert base.previous_ms < attempt.in_commit_timestamp_ms < following.in_commit_timestamp_ms
