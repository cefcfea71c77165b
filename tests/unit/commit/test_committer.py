"""A committer writes one version and reports the outcome; the commit loop resolves unknown outcomes."""

from __future__ import annotations

import pytest

from deltalog import (
    CommitStateUnknownError,
    DeltaTable,
    Environment,
    RetryPolicy,
    StoreError,
)
from deltalog.commit.attempt import Attempt, build_attempt
from deltalog.commit.committer import CommitOutcome, Committed, Committer, Exists, FileSystemCommitter, Unknown
from deltalog.commit.hooks import NewVersion, OnCheckpoint
from deltalog.commit.loop import CommitLoop, base_of
from deltalog.commit.prepared import Prepared
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import commit_path
from deltalog.storage.base import LogStore
from deltalog.testing.stores import Fault, FaultyStore, nth
from deltalog.write.table_handle import TableHandle
from tests.support.core import NOW, SCHEMA, environment, memory


def attempt_on(store: LogStore, txn_id: str = "mine") -> Attempt:
    """An empty commit for the next version."""
    snapshot = DeltaTable.open(store, environment=environment()).snapshot()
    return build_attempt(Prepared(txn_id, "TEST"), base_of(snapshot.log), NOW)


@pytest.fixture
def store() -> LogStore:
    made = memory()
    DeltaTable.create(made, SCHEMA, environment=environment())
    return made


def test_a_version_is_the_bytes_of_the_attempt(store: LogStore) -> None:
    attempt = attempt_on(store)
    assert FileSystemCommitter(store).commit(attempt) == Committed()
    assert store.get(commit_path(1)) == attempt.data


def test_a_version_is_made_once(store: LogStore) -> None:
    first, second = attempt_on(store, "first"), attempt_on(store, "second")
    committer = FileSystemCommitter(store)
    assert [committer.commit(each) for each in (first, second, first)] == [Committed(), Exists(), Exists()]
    assert store.get(commit_path(1)) == first.data


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault.LOST_ACK, Unknown()),
        (Fault.UNKNOWN_NOT_WRITTEN, Unknown()),
        (Fault.FAIL_BEFORE, None),
    ],
)
def test_a_store_that_does_not_answer(store: LogStore, fault: Fault, outcome: CommitOutcome | None) -> None:
    attempt = attempt_on(store)
    committer = FileSystemCommitter(FaultyStore(store, nth(1, fault, method="put_if_absent")))
    if outcome is None:
        with pytest.raises(StoreError):
            committer.commit(attempt)
    else:
        assert committer.commit(attempt) == outcome
    assert (store.head(commit_path(1)) is not None) == (fault is Fault.LOST_ACK)


class Scripted(Committer):
    """A committer that returns the given outcomes one after another; unless the outcome is Unknown, it also writes the
    commit file."""

    def __init__(self, store: LogStore, *answers: CommitOutcome) -> None:
        self.store, self.answers, self.attempts = store, list(answers), list[Attempt]()

    def commit(self, attempt: Attempt) -> CommitOutcome:
        self.attempts.append(attempt)
        answer = self.answers.pop(0)
        if not isinstance(answer, Unknown):
            self.store.put(commit_path(attempt.version), attempt.data)
        return answer


def run(store: LogStore, committer: Committer, **retry: int) -> int:
    base = base_of(DeltaTable.open(store, environment=environment()).snapshot().log)
    world = environment(retry=RetryPolicy(**retry))
    loop = CommitLoop(committer, LogReader(store), Prepared("mine", "TEST"), base, world)
    return loop.run().result.version


def test_the_loop_commits_the_same_attempt_again_while_the_version_is_free(store: LogStore) -> None:
    committer = Scripted(store, Unknown(), Unknown(), Committed())
    assert run(store, committer) == 1
    assert [each is committer.attempts[0] for each in committer.attempts] == [True, True, True]


def test_the_loop_takes_a_version_that_exists_with_its_own_txn_id_as_committed(store: LogStore) -> None:
    committer = Scripted(store, Exists())
    assert run(store, committer) == 1
    assert len(committer.attempts) == 1


@pytest.mark.parametrize("settle_attempts", [0, 3])
def test_what_only_the_committer_can_settle_is_raised_as_it_says(store: LogStore, settle_attempts: int) -> None:
    error = CommitStateUnknownError("not known", resolve=lambda: None, version=1, txn_id="mine")
    committer = Scripted(store, Unknown(error))
    with pytest.raises(CommitStateUnknownError) as raised:
        run(store, committer, settle_attempts=settle_attempts)
    assert raised.value is error and len(committer.attempts) == 1


class WithoutHooks(FileSystemCommitter):
    def after_commit(self, version: NewVersion, environment: Environment, on_checkpoint: OnCheckpoint) -> None:
        return None


@pytest.mark.parametrize("kind", [FileSystemCommitter, WithoutHooks])
def test_the_committer_runs_the_hooks(store: LogStore, kind: type[FileSystemCommitter]) -> None:
    reader, latest = LogReader(store), DeltaTable.open(store, environment=environment()).snapshot()
    table = DeltaTable(TableHandle(reader, kind(store), environment(), latest))
    assert table.set_properties({"a": "b"}).version == table.version == 1
    assert (store.head("_delta_log/00000000000000000001.crc") is not None) == (kind is FileSystemCommitter)
