"""A file is added to a table at most once, and is not discarded after that."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import CommitConflictError, CommitStateUnknownError, DeltaTable, StagedFiles
from deltalog.engine import AddFile
from deltalog.environment import RetryPolicy
from deltalog.errors import (
    ConcurrentAppendError,
    FilesCommittedError,
    InvalidActionError,
    TransactionCanceledError,
    VersionConflictError,
)
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.paths import commit_path
from deltalog.storage import LogStore
from deltalog.testing.stores import Call, CountingStore, Fault, FaultyStore, nth
from deltalog.write import committed_files
from tests.support.core import SCHEMA, environment, ids, memory, objects, overtaken, rows
from tests.support.transactions import A, bank, content
from tests.support.transactions import rows as accounts

VECTORS = {"delta.enableDeletionVectors": "true"}


def create(store: LogStore | None = None) -> DeltaTable:
    return DeltaTable.create(
        memory() if store is None else store, SCHEMA, properties=VECTORS, environment=environment(), data=rows(0)
    )


def reopened(table: DeltaTable) -> DeltaTable:
    """The table opened again from its store, as another process would open it."""
    store = table.snapshot().reader.store
    return DeltaTable.open(store, environment=environment())


def data_files(table: DeltaTable) -> set[str]:
    store: Any = table.snapshot().reader.store
    return {path for path in objects(store) if path.endswith(".parquet") and "/" not in path}


SINCE: dict[str, Callable[[DeltaTable], Any]] = {
    "live": lambda table: None,
    "live in a checkpoint": lambda table: table.checkpoint(),
    "live, with a deletion vector": lambda table: table.delete("id = 1"),
    "removed": lambda table: table.delete("id > 0"),
    "overwritten": lambda table: table.overwrite(rows(5)),
    "brought back": lambda table: (table.delete(), table.restore(1)),
    "followed by others": lambda table: [table.append(rows(n)) for n in (7, 8)],
}


@pytest.mark.parametrize("how", ["here", "elsewhere", "by an older release", "long ago"])
@pytest.mark.parametrize("since", list(SINCE))
def test_staged_files_are_committed_once_and_not_discarded_then(
    since: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create()
    staged = table.stage(rows(1, 2))
    table.commit_staged([staged])
    SINCE[since](table)
    if how == "long ago":
        monkeypatch.setattr(committed_files, "_FEW_COMMITS", -1)
    if how != "here":
        table, staged = reopened(table), StagedFiles.from_json(staged.to_json())
    if how == "by an older release":
        text = staged.to_json().replace('"version":0', '"later":0')
        staged = StagedFiles.from_json(text)
        assert staged.version is None
    version, before, files = table.snapshot().version, ids(table), data_files(table)
    another = table.stage(rows(100))
    with pytest.raises(FilesCommittedError) as raised:
        table.commit_staged([another, staged])
    assert raised.value.path == staged.files[0].path
    assert raised.value.version == (1 if how in ("here", "elsewhere") else None)
    with pytest.raises(FilesCommittedError, match="Nothing was deleted"):
        table.discard_staged([another, staged])
    assert table.snapshot().version == version and ids(table) == before
    assert ids(table, version=1) == [0, 1, 2] and files < data_files(table)
    assert table.discard_staged([another]) == [] and data_files(table) == files


def test_after_the_log_was_cleaned_up_the_state_tells() -> None:
    table = create()
    staged = table.stage(rows(1, 2))
    table.commit_staged([staged])
    table.append(rows(3))
    table.checkpoint()
    for version in (0, 1):
        table.snapshot().reader.store.delete(commit_path(version))
    with pytest.raises(FilesCommittedError) as raised:
        reopened(table).commit_staged([staged])
    assert raised.value.version is None


def test_two_writers_that_commit_the_same_files_at_once_do_not_both_succeed() -> None:
    inner = memory()
    staged = create(inner).stage(rows(1, 2))
    rival = DeltaTable.open(inner, environment=environment())
    table = DeltaTable.open(
        overtaken(inner, lambda: rival.commit_staged([staged]), lambda: rival.delete()), environment=environment()
    )
    with pytest.raises(VersionConflictError):
        table.commit_staged([staged])
    with pytest.raises(FilesCommittedError):
        table.commit_staged([staged], retry_count=5)
    staged = table.stage(rows(4))
    table = DeltaTable.open(overtaken(inner, lambda: rival.commit_staged([staged])), environment=environment())
    with pytest.raises(ConcurrentAppendError, match="as this one does"):
        table.commit_staged([staged], retry_count=5)
    assert ids(table) == [0, 1, 2, 4]


def test_low_level_adds_of_the_same_file_at_once_do_not_both_succeed() -> None:
    inner = memory()
    with create(inner).transaction() as transaction:
        transaction.write(rows(1).to_batches())
        files = transaction.staged.adds
        transaction.row_writer.release()

    def add(table: DeltaTable) -> None:
        with table.transaction() as transaction:
            transaction.add(*files)
            transaction.commit()

    rival = DeltaTable.open(inner, environment=environment())

    def add_and_delete() -> None:
        add(rival)
        rival.delete()

    table = DeltaTable.open(
        overtaken(inner, add_and_delete),
        environment=environment(),  # added, and removed again
    )
    with pytest.raises(ConcurrentAppendError):
        add(table)


UNSETTLED = environment(retry=RetryPolicy(settle_attempts=0))


@pytest.mark.parametrize("fault", [Fault.LOST_ACK, Fault.UNKNOWN_NOT_WRITTEN, Fault.LATE])
def test_what_follows_a_commit_whose_state_is_unknown_loses_and_doubles_nothing(fault: Fault) -> None:
    inner = memory()
    create(inner)
    store = FaultyStore(inner, nth(1, fault, method="put_if_absent", path="*.json"))
    table = DeltaTable.open(store, environment=UNSETTLED)
    staged = table.stage(rows(1, 2))
    with pytest.raises(CommitStateUnknownError) as unknown:
        table.commit_staged([staged])
    # The commit may still take effect, so nothing is deleted before the outcome is known.
    with pytest.raises(FilesCommittedError if fault is Fault.LOST_ACK else CommitStateUnknownError):
        table.discard_staged([staged])
    if fault is Fault.LOST_ACK:
        with pytest.raises(FilesCommittedError) as raised:
            table.commit_staged([staged])
        assert raised.value.version == 1
    else:
        assert unknown.value.resolve() is None
        assert table.commit_staged([staged]).version == 1
        store.land()
        with pytest.raises(FilesCommittedError):
            table.discard_staged([staged])
    assert ids(DeltaTable.open(inner)) == [0, 1, 2]


def test_another_handle_does_not_delete_files_of_a_commit_that_may_yet_land() -> None:
    inner = memory()
    create(inner)
    store = FaultyStore(inner, nth(1, Fault.LATE, method="put_if_absent", path="*.json"))
    table = DeltaTable.open(store, environment=UNSETTLED)
    staged = table.stage(rows(1))
    with pytest.raises(CommitStateUnknownError):
        table.commit_staged([staged])
    for each in (staged, pickle.loads(pickle.dumps(staged))):
        with pytest.raises(CommitStateUnknownError):
            DeltaTable.open(inner).discard_staged([each])
    store.land()
    assert ids(DeltaTable.open(inner)) == [0, 1]


def test_no_copy_from_json_deletes_files_of_a_commit_that_may_yet_land() -> None:
    inner = memory()
    create(inner)

    def commits_are_late(call: Call) -> Fault | None:
        return Fault.LATE if call.method == "put_if_absent" and call.path.endswith(".json") else None

    store = FaultyStore(inner, commits_are_late)
    table = DeltaTable.open(store, environment=UNSETTLED)
    staged = table.stage(rows(1))
    before = staged.to_json()  # the form in which a task sends the staged files to the committing process
    with pytest.raises(CommitStateUnknownError) as raised:
        table.commit_staged([StagedFiles.from_json(before)])
    with pytest.raises(CommitStateUnknownError):
        table.discard_staged([StagedFiles.from_json(before)])
    with pytest.raises(CommitStateUnknownError):
        table.commit_staged([staged])
    after = StagedFiles.from_json(staged.to_json())
    with pytest.raises(CommitStateUnknownError) as again:
        DeltaTable.open(inner).discard_staged([after])
    assert after == staged and again.value.txn_id != raised.value.txn_id
    store.land()
    assert ids(DeltaTable.open(inner)) == [0, 1]


def test_staged_files_are_discarded_when_another_writer_has_the_version_that_was_in_doubt() -> None:
    inner = memory()
    create(inner)
    store = FaultyStore(inner, nth(1, Fault.LATE, method="put_if_absent", path="*.json"))
    table = DeltaTable.open(store, environment=UNSETTLED)
    staged = table.stage(rows(1))
    with pytest.raises(CommitStateUnknownError):
        table.commit_staged([staged])
    DeltaTable.open(inner).append(rows(9))
    store.land()
    assert table.discard_staged([staged]) == [] and ids(DeltaTable.open(inner)) == [0, 9]


def test_a_transaction_over_tables_takes_staged_files_once() -> None:
    manager = bank()
    staged = manager.table(A).stage(accounts((3, 30)))
    with manager.transaction() as transaction:
        table = transaction.table(A)
        table.append(accounts((9, 90)))
        manager.table(A).append(accounts((8, 80)))
        late = manager.table(A).stage(accounts((4, 40)))  # based on a version that the transaction does not read
        inside = table.stage(accounts((5, 50)))
        table.commit_staged([staged, late, inside])
        for each in (staged, late, inside):
            with pytest.raises(FilesCommittedError):
                table.commit_staged([each])
            with pytest.raises(FilesCommittedError):
                table.discard_staged([each])
        # This commit must follow its parent directly, but (8, 80) came first.
        with pytest.raises(TransactionCanceledError):
            transaction.commit()
    with manager.transaction() as transaction:
        transaction.table(A).commit_staged([staged, late, inside])
        transaction.commit()
    for table in (manager.table(A), manager.transaction().table(A)):
        with pytest.raises(FilesCommittedError):
            table.commit_staged([inside])
    assert [key for key, _ in content(manager.table(A))] == [1, 2, 3, 4, 5, 8]


def test_a_transaction_over_tables_conflicts_with_whoever_commits_its_staged_files() -> None:
    manager = bank()
    staged = manager.table(A).stage(accounts((3, 30)))
    transaction = manager.transaction()
    with transaction.table(A).transaction() as inner:
        inner.add(*staged.files)
        inner.commit()
    manager.table(A).commit_staged([staged])
    with pytest.raises(TransactionCanceledError) as raised:
        transaction.commit()
    assert isinstance(raised.value.conflicts[0], ConcurrentAppendError)
    assert content(manager.table(A)) == [(1, 100), (2, 50), (3, 30)]


def put_parquet(table: DeltaTable, path: str, data: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink)
    table.snapshot().reader.store.put(path, sink.getvalue().to_pybytes())


@pytest.mark.parametrize("since", ["live", "live in a checkpoint", "live, with a deletion vector"])
@pytest.mark.parametrize("path", ["mine.parquet", "mine é %.parquet"])
def test_parquet_files_that_are_live_are_not_added_again(since: str, path: str) -> None:
    table = create()
    put_parquet(table, path, rows(1, 2))

    def add(*, replacing: bool = False) -> None:
        with table.transaction() as transaction:
            (added,) = transaction.add_parquet_files([(path, {})])
            if replacing:
                transaction.remove([added.path])
            transaction.commit()

    add()
    SINCE[since](table)
    version = table.version
    with pytest.raises(FilesCommittedError, match="Nothing was committed"):
        add()
    assert table.snapshot().version == version and path in objects(table.snapshot().reader.store)  # type: ignore[arg-type]
    if "vector" in since:
        add(replacing=True)
        assert ids(table) == [0, 1, 2]
    table.delete()
    add()
    assert ids(table) == [1, 2]


def test_one_path_is_added_once_in_a_commit_whatever_vectors_it_has() -> None:
    table = create()
    vector = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6)
    add = AddFile(path="x", partition_values={}, size=1, modification_time=1, data_change=True)
    seen = AddFile(path="x", partition_values={}, size=1, modification_time=1, data_change=True, deletion_vector=vector)
    with table.transaction() as transaction:
        transaction.add(add, seen)
        with pytest.raises(InvalidActionError, match="x is staged twice"):
            transaction.commit()


def test_looking_costs_a_request_for_each_version_since() -> None:
    store = CountingStore(memory())
    table = create(store)
    staged = [table.stage(rows(number)) for number in (1, 2)]
    with store.counted() as calls:
        table.commit_staged(staged[:1])
    assert calls.of("get") + calls.of("get_many") == 0
    for number in range(4):
        table.append(rows(number))
    with store.counted() as calls:
        table.commit_staged(staged[1:])
    assert calls.of("get", commit_path(1)) == calls.of("get", commit_path(5)) == 1 and calls.of("get") == 5


def test_what_a_conflict_leaves_is_committed_or_discarded() -> None:
    inner = memory()
    create(inner)
    table = DeltaTable.open(overtaken(inner, lambda: DeltaTable.open(inner).append(rows(9))), environment=environment())
    staged = table.stage(rows(1))
    with pytest.raises(CommitConflictError):
        table.commit_staged([staged])
    assert table.discard_staged([staged]) == []
    left = data_files(DeltaTable.open(inner))
    assert len(left) == 2 and left.isdisjoint(file.path for file in staged.files)
