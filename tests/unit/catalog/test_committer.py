"""The catalog's committer stages, ratifies and publishes; its store shows ratified versions but writes no commits."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog import CommitStateUnknownError, StoreError
from deltalog.addresses import committer_of
from deltalog.catalog.committer import CatalogCommitter, publish
from deltalog.catalog.store import ManagedStore
from deltalog.commit.attempt import Attempt, build_attempt
from deltalog.commit.committer import Committed, Exists, FileSystemCommitter, Unknown
from deltalog.commit.loop import base_of
from deltalog.commit.prepared import Prepared
from deltalog.errors import CatalogBehindLogError, CoordinatorError, OperationTimeoutError, Outcome, TimestampAheadError
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import STAGED_COMMITS_DIRECTORY, commit_path
from deltalog.testing.coordinators import FaultyCoordinator
from deltalog.testing.stores import Call, Fault, nth
from tests.support.transactions import START_MS, A, Clock, bank, content, environment, manager_of, rows


@pytest.fixture
def manager() -> Any:
    return bank()


def store_of(manager: Any) -> ManagedStore:
    return manager._tables.store(manager._tables.record(A))


def attempt_on(manager: Any, txn_id: str = "mine") -> Attempt:
    return build_attempt(Prepared(txn_id, "TEST"), base_of(manager.table(A).snapshot().log), START_MS)


def staged(store: ManagedStore) -> list[str]:
    return store.inner.list_names(STAGED_COMMITS_DIRECTORY)


def committer_at(store: ManagedStore) -> CatalogCommitter:
    return CatalogCommitter(store, environment(Clock()).new_uuid)


def test_a_commit_is_ratified_and_published(manager: Any) -> None:
    store, attempt = store_of(manager), attempt_on(manager)
    assert committer_at(store).commit(attempt) == Committed()
    assert store.inner.get(commit_path(attempt.version)) == store.get(commit_path(attempt.version)) == attempt.data
    assert staged(store) == []
    assert (
        store.known.version == store.refresh_head().version == attempt.version
        and store.refresh_head().unpublished == ()
    )


def test_a_version_is_ratified_once(manager: Any) -> None:
    store, first, second = store_of(manager), attempt_on(manager, "first"), attempt_on(manager, "second")
    committer = committer_at(store)
    assert [committer.commit(each) for each in (first, second)] == [Committed(), Exists()]
    assert store.get(commit_path(first.version)) == first.data and staged(store) == []


@pytest.mark.parametrize("landed", [False, True])
def test_no_answer_to_a_ratification(manager: Any, landed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store, attempt = store_of(manager), attempt_on(manager)
    real = manager.coordinator.ratify

    def ratify(proposal: Any) -> Any:
        if landed:
            real(proposal)
        raise OperationTimeoutError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(manager.coordinator, "ratify", ratify)
        assert committer_at(store).commit(attempt) == Unknown()
    # The staged file is kept, because its commit may already be ratified or be ratified later.
    assert len(staged(store)) == 1
    assert (store.refresh_head().version == attempt.version) == landed
    again = committer_at(store).commit(attempt)
    assert again == (Exists() if landed else Committed())
    assert store.get(commit_path(attempt.version)) == attempt.data


def test_a_refusal_leaves_nothing(manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, attempt = store_of(manager), attempt_on(manager)

    def ratify(proposal: Any) -> Any:
        raise CoordinatorError("no room")

    monkeypatch.setattr(manager.coordinator, "ratify", ratify)
    with pytest.raises(CoordinatorError, match="no room"):
        committer_at(store).commit(attempt)
    assert staged(store) == [] and store.refresh_head().version == attempt.version - 1


def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(manager: Any) -> None:
    """The first request may still reach the catalog, so the files of the commit are kept."""
    inner, calls = manager.coordinator, list[str]()
    bound_ms = inner.most_ahead_ms

    def clock_is_set_back_before_the_second_try(call: Call) -> None:
        calls.append(call.method)
        if calls.count("ratify") > 1:
            inner.most_ahead_ms = -(10**12)

    faulty = FaultyCoordinator(
        inner, nth(1, Fault.LATE, method="ratify"), before=clock_is_set_back_before_the_second_try
    )
    with pytest.raises(CommitStateUnknownError) as raised:
        manager_of(faulty).table(A).append(rows((3, 7)))
    assert isinstance(raised.value.__cause__, TimestampAheadError)
    inner.most_ahead_ms = bound_ms
    faulty.land()
    result = raised.value.resolve()
    assert result is not None and result.version == manager.table(A).snapshot().version == 1
    assert content(manager.table(A)) == [(1, 100), (2, 50), (3, 7)]


def test_a_head_that_cannot_be_read_before_a_proposal_is_no_unknown_outcome(manager: Any) -> None:
    store, attempt = store_of(manager), attempt_on(manager)
    manager.table(A).append(rows((3, 7)))  # publish the version
    store.coordinator = FaultyCoordinator(store.coordinator, nth(1, Fault.UNKNOWN_NOT_WRITTEN, method="head"))
    with pytest.raises(CoordinatorError, match="Nothing was committed") as raised:
        committer_at(store).commit(attempt)
    assert raised.value.outcome is Outcome.NOTHING_COMMITTED and staged(store) == []


def test_a_log_that_is_ahead_of_the_catalog(manager: Any) -> None:
    store, attempt = store_of(manager), attempt_on(manager)
    store.inner.put(commit_path(attempt.version), attempt.data)
    with pytest.raises(CatalogBehindLogError):
        committer_at(store).commit(attempt)
    assert staged(store) == []


def test_what_could_not_be_published_is_read_from_where_it_is_staged(
    manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, attempt = store_of(manager), attempt_on(manager)

    def unable(*arguments: Any) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("deltalog.catalog.committer._publish", unable)
        assert committer_at(store).commit(attempt) == Committed()
    path = commit_path(attempt.version)
    assert store.inner.head(path) is None and store.get(path) == attempt.data
    assert publish(store.inner, store.coordinator, store.table_id) == 1
    assert store.inner.get(path) == attempt.data and staged(store) == []


def test_its_store_writes_no_commit(manager: Any) -> None:
    store, attempt = store_of(manager), attempt_on(manager)
    path = commit_path(attempt.version)
    for write in (
        lambda: store.put_if_absent(path, attempt.data),
        lambda: store.put(path, attempt.data),
        lambda: store.put_stream_if_absent(path, lambda file: file.write(attempt.data)),
    ):
        with pytest.raises(StoreError, match="go through its catalog"):
            write()
    assert store.inner.head(path) is None


def test_each_store_has_its_committer(manager: Any) -> None:
    reader = manager._tables.handle(manager._tables.record(A)).reader
    assert isinstance(committer_of(reader, environment(Clock())), CatalogCommitter)
    adopted = LogReader(reader.store.inner, authority=reader.authority)
    for plain in (adopted, LogReader(reader.store.inner)):
        assert isinstance(committer_of(plain, environment(Clock())), FileSystemCommitter)
