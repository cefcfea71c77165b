"""The files that remain after a commit through a catalog, and those that remain after a failure."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
from deltalog.catalog import committer
from deltalog.catalog.group_commit import Execute
from deltalog.catalog.sqlite_file import SQLiteFile
from deltalog.storage.base import PutOutcome
from deltalog.storage.fs import LocalStore

SCHEMA = pa.schema([("id", pa.int64())])
NAMES = ("b.one", "b.two", "b.three")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


@pytest.fixture
def manager(tmp_path: Path) -> deltalog.TransactionManager:
    manager = deltalog.TransactionManager(str(tmp_path / "catalog.db"))
    for name in NAMES:
        manager.create_table(name, str(tmp_path / name), SCHEMA)
    return manager


def log_files(root: Path, ending: str) -> list[str]:
    return sorted(each.name for each in root.rglob(f"_delta_log/*{ending}"))


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_version_that_is_not_published_has_no_crc(
    manager: deltalog.TransactionManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_transaction: bool
) -> None:
    """If an unpublished version had a .crc, a reader that opens the table by path would find a .crc newer than the
    log."""

    def fail(*arguments: Any) -> None:
        raise deltalog.StoreError("the disk is full")

    monkeypatch.setattr(LocalStore, "link_if_absent", fail)
    if in_transaction:
        with manager.transaction() as transaction:
            transaction.table("b.one").append(rows(1))
            transaction.commit()
    else:
        manager.table("b.one").append(rows(1))
    assert manager.table("b.one").snapshot().version == 1
    root = tmp_path / "b.one"
    assert log_files(root, ".json") == ["00000000000000000000.json"]
    assert log_files(root, ".crc") == ["00000000000000000000.crc"]


def test_a_transaction_that_could_not_be_staged_can_be_committed_again(
    manager: deltalog.TransactionManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = manager.transaction()
    for name in NAMES:
        transaction.table(name).append(rows(1))
    real, staged = LocalStore.put_if_absent, []

    def put_if_absent(self: LocalStore, path: str, data: bytes) -> PutOutcome:
        if "_staged_commits" in path:
            staged.append(path)
            if len(staged) == 2:
                raise deltalog.StoreError("the disk is full")
        return real(self, path, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", put_if_absent)
    with pytest.raises(deltalog.StoreError, match="disk is full"):
        transaction.commit()
    assert manager.describe_transaction(transaction.id).status is deltalog.catalog.TransactionStatus.ACTIVE
    assert [each.name for each in tmp_path.rglob("_staged_commits/*")] == []
    assert transaction.commit() is deltalog.catalog.TransactionStatus.COMMITTED
    assert [manager.table(name).snapshot().num_files for name in NAMES] == [1, 1, 1]


@pytest.mark.parametrize(
    "kind", [deltalog.CallError, deltalog.errors.CoordinatorError, deltalog.errors.EntityNotFoundError]
)
@pytest.mark.parametrize("in_transaction", [False, True])
def test_what_was_staged_goes_when_it_is_refused(
    manager: deltalog.TransactionManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_transaction: bool,
    kind: type[deltalog.DeltaLogError],
) -> None:
    transaction = manager.transaction()
    table = transaction.table("b.one") if in_transaction else manager.table("b.one")
    if in_transaction:
        table.append(rows(1))

    def ratify(proposal: Any) -> Any:
        raise kind("too many")

    with monkeypatch.context() as patch:
        patch.setattr(manager.coordinator, "ratify", ratify)
        with pytest.raises(kind, match="too many"):
            transaction.commit() if in_transaction else table.append(rows(1))
    assert [each.name for each in tmp_path.rglob("_staged_commits/*")] == []
    assert transaction.commit() is deltalog.catalog.TransactionStatus.COMMITTED
    assert manager.table("b.one").snapshot().num_files == in_transaction


def test_what_was_staged_stays_when_nobody_can_tell_whether_it_was_ratified(
    manager: deltalog.TransactionManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response to the ratification is lost, and the transaction's record is deleted before it can be read."""
    transaction = manager.transaction()
    transaction.table("b.one").append(rows(1))
    real = manager.coordinator.ratify
    answers = iter([deltalog.errors.OperationTimeoutError("no answer")])

    def ratify(proposal: Any) -> Any:
        decision = real(proposal)
        for lost in answers:
            manager.coordinator.delete(transaction.id)
            raise lost
        return decision

    with monkeypatch.context() as patch:
        patch.setattr(manager.coordinator, "ratify", ratify)
        with pytest.raises(deltalog.errors.OperationTimeoutError, match="landed is unknown"):
            transaction.commit()
    assert len(list(tmp_path.rglob("_staged_commits/*"))) == 1
    assert manager.table("b.one").snapshot().num_files == 1


@pytest.mark.parametrize("fails", [False, True])
def test_requests_over_a_network_go_out_at_once_and_are_all_settled(
    manager: deltalog.TransactionManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The requests are concurrent: each one waits until all others have started. If one request fails, no file
    remains."""
    transaction = manager.transaction()
    for name in NAMES:
        transaction.table(name).append(rows(1))
    real, barrier = LocalStore.put_if_absent, threading.Barrier(len(NAMES), timeout=60)

    def put_if_absent(self: LocalStore, path: str, data: bytes) -> PutOutcome:
        if "_staged_commits" in path:
            barrier.wait()
            if fails and "b.two" in self.url:
                raise deltalog.StoreError("no answer")
        return real(self, path, data)

    monkeypatch.setattr(LocalStore, "is_remote", True)
    monkeypatch.setattr(LocalStore, "put_if_absent", put_if_absent)
    for target in transaction.targets(manager.coordinator.transaction(transaction.id)):  # type: ignore[arg-type]
        target.store.is_remote = True
    if fails:
        with pytest.raises(deltalog.StoreError, match="no answer"):
            transaction.commit()
    else:
        transaction.commit()
    assert [manager.table(name).snapshot().num_files for name in NAMES] == [0 if fails else 1] * 3
    assert [each.name for each in tmp_path.rglob("_staged_commits/*")] == []


def test_what_another_thread_wrote_is_committed_too(manager: deltalog.TransactionManager) -> None:
    transaction = manager.transaction()

    def write(name: str) -> None:
        for number in range(5):
            transaction.table(name).append(rows(number))

    threads = [threading.Thread(target=write, args=(name,)) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    transaction.commit()
    assert [manager.table(name).snapshot().num_files for name in NAMES] == [5, 5, 5]


@pytest.mark.parametrize("has_links", [True, False])
def test_publishing_again_is_no_error_and_another_file_in_the_place_of_a_commit_is(
    manager: deltalog.TransactionManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:
        monkeypatch.setattr(LocalStore, "link_if_absent", lambda self, names: 0)
    with monkeypatch.context() as patch:
        patch.setattr(committer, "publish", lambda *arguments, **named: 0)
        for number in range(5):
            manager.table("b.one").append(rows(number))
    log = tmp_path / "b.one" / "_delta_log"
    staged = sorted((log / "_staged_commits").iterdir())
    contents = [each.read_bytes() for each in staged]
    # As if the process that staged the commit had published it and then died.
    (log / f"{1:020d}.json").write_bytes(contents[0])
    (log / f"{4:020d}.json").write_bytes(contents[0])
    with pytest.raises(deltalog.CorruptTableError, match="not written through the catalog"):
        manager.publish("b.one")
    assert manager.table("b.one").snapshot().num_files == 5
    (log / f"{4:020d}.json").unlink()
    assert manager.publish("b.one") == 5 and manager.publish("b.one") == 0
    assert [(log / f"{version:020d}.json").read_bytes() for version in range(1, 6)] == contents
    assert not list((log / "_staged_commits").iterdir())


def test_what_is_told_waits_for_the_disk_also_after_a_note_that_does_not(
    manager: deltalog.TransactionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """synchronous=FULL (2) calls fsync at each change and NORMAL (1) never; the fsync of a decision includes all
    earlier changes."""
    waited: list[tuple[str, int]] = []
    real = SQLiteFile.write

    def write(self: SQLiteFile, make: Callable[[Execute], Any], *, durable: bool = True) -> Any:
        caller = sys._getframe(1).f_code.co_name

        def seen(execute: Execute) -> Any:
            waited.append((caller, execute("PRAGMA synchronous").fetchone()[0]))
            return make(execute)

        return real(self, seen, durable=durable)

    monkeypatch.setattr(SQLiteFile, "write", write)
    with manager.transaction() as transaction:
        transaction.table("b.one").append(rows(1))
        transaction.table("b.two").append(rows(2))
        transaction.commit()
    assert waited == [
        ("insert", 2), ("put_parts", 2), ("put_parts", 2), ("put_parts", 2), ("replace", 1), ("ratify", 2),
        ("published", 1), ("published", 1), ("delete_parts", 1),
    ]  # fmt: skip
    manager.transaction().cancel()
    assert waited[-2:] == [("put_parts", 2), ("delete_parts", 1)]
