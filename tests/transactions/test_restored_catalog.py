"""A catalog that was restored from a backup is older than the logs of its tables: nobody writes on, and nothing that
was acknowledged is lost."""

from __future__ import annotations

import uuid
import warnings

import pytest

from deltalog import CatalogBehindLogError, CatalogBehindLogWarning
from deltalog.catalog.records import RatifiedCommit
from deltalog.errors import CorruptTableError
from deltalog.spec.paths import commit_path
from deltalog.storage.registry import open_store
from tests.restored_env import InMemory
from tests.transaction_env import A, B, Clock, Meddling, bank, content, manager_of, rows

STAGED = "_delta_log/_staged_commits"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def kept():
    return InMemory()


@pytest.fixture
def root():
    return f"memory://{uuid.uuid4()}"


@pytest.fixture
def manager(kept, clock, root):
    return bank(kept.coordinator, clock, root)


def transfer(manager, number=7):
    with manager.transaction() as transaction:
        transaction.table(A).append(rows((number, 1)))
        transaction.table(B).append(rows((number, 1)))
        transaction.commit()
    return transaction.id


def reopened(restore, clock):
    """Without the warnings of a catalog that is behind."""
    warnings.simplefilter("ignore", CatalogBehindLogWarning)
    return manager_of(restore(), clock)


@pytest.fixture(autouse=True)
def _as_they_were():
    with warnings.catch_warnings():
        yield


def propose(manager):
    store = open_store(manager.table(A).url)
    last = store.get(commit_path(manager.table(A).snapshot().version + 1))
    version = manager.table(A).snapshot().version + 1
    name = f"{version:020d}.{uuid.uuid4()}.json"
    store.put(f"{STAGED}/{name}", last)
    manager.propose_commit(A, version, name)


WRITERS = {
    "append": lambda manager: manager.table(A).append(rows((9, 9))),
    "delete": lambda manager: manager.table(A).delete("id = 1"),
    "properties": lambda manager: manager.table(A).set_properties({"some.key": "1"}),
    "transaction": transfer,
    "another client": propose,
}


@pytest.mark.parametrize("writes", WRITERS)
def test_no_writer_goes_on_from_a_catalog_that_is_older_than_the_log(kept, manager, clock, root, writes):
    manager.table(A).append(rows((3, 3)))
    restore = kept.backup()
    for number in (4, 5):
        manager.table(A).append(rows((number, number)))
    transfer(manager)
    before = sorted(open_store(f"{root}/a").list_names("_delta_log"))
    after = reopened(restore, clock)
    with pytest.raises(CatalogBehindLogError, match=r"up to 1.*from a backup.*tables resync") as found:
        WRITERS[writes](after)
    assert found.value.version == 1
    assert sorted(open_store(f"{root}/a").list_names("_delta_log")) == before
    head = after.coordinator.head(after.list_tables()[0].table_id)
    assert (head.version, head.unpublished) == (1, ())
    if writes == "transaction":
        only = after.list_transactions("ACTIVE").transactions
        assert [each.status for each in only] == []  # the block was left, and has cancelled it


def test_a_process_that_has_seen_more_of_the_table_stops_too(kept, manager, clock):
    """Its handle has loaded versions that the catalog has forgotten."""
    restore = kept.backup()
    manager.table(A).append(rows((3, 3)))
    seen = manager.table(A)
    forgot = restore()
    seen.snapshot().reader.store.coordinator = forgot
    for call in (seen.snapshot, lambda: seen.append(rows((4, 4)))):
        with pytest.raises(CatalogBehindLogError, match="this process has seen version 1"):
            call()


def test_opening_a_table_tells_that_its_catalog_is_behind(kept, manager, clock):
    restore = kept.backup()
    manager.table(A).append(rows((3, 3)))
    after = manager_of(restore(), clock)
    with pytest.warns(CatalogBehindLogWarning, match=r"has version 1, and the catalog .* up to 0.*tables resync"):
        after.table(A)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after.table(B)


def test_a_writer_that_is_only_slower_is_told_nothing_of_that(kept, manager, clock):
    """What another has published just now is known to the catalog."""
    fast = manager_of(kept.coordinator, clock)
    # Between the look at the head and what follows.
    slow = manager_of(Meddling(kept.coordinator, "head", lambda: fast.table(A).append(rows((4, 4))), 3), clock)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slow.table(A)
        slow.table(A).append(rows((5, 5)))
    assert content(slow.table(A)) == [(1, 100), (2, 50), (4, 4), (5, 5)]


@pytest.mark.parametrize("ends", ["expiry", "cancel"])
def test_files_of_a_transaction_that_was_committed_since_are_not_cleaned_up(kept, manager, clock, root, ends):
    """At the time of the backup it was at work; the restored record says so still."""
    transaction = manager.transaction()
    transaction.table(A).append(rows((7, 1)))
    transaction.table(B).append(rows((7, 1)))
    restore = kept.backup()
    transaction.commit()
    after = reopened(restore, clock)
    if ends == "cancel":
        after.cancel_transaction(transaction.id)
    else:
        clock.pass_(hours=1)
        with pytest.raises(CatalogBehindLogError):
            after.recover()
    for name, number in (("a", 2), ("b", 1)):
        store = open_store(f"{root}/{name}")
        assert len([each for each in store.list_names("") if each.endswith(".parquet")]) == number
    assert content(manager.table(A)) == [(1, 100), (2, 50), (7, 1)]
    assert content(manager.table(B)) == [(7, 1)]


def test_one_table_that_is_behind_protects_what_the_transaction_did_to_the_others(kept, manager, clock, root):
    """Of the other the commit was ratified and not yet published."""
    transaction = manager.transaction()
    transaction.table(A).append(rows((7, 1)))
    transaction.table(B).append(rows((7, 1)))
    restore = kept.backup()
    transaction.commit()
    open_store(f"{root}/b").delete(commit_path(1))
    after = reopened(restore, clock)
    after.cancel_transaction(transaction.id)
    assert len([each for each in open_store(f"{root}/b").list_names("") if each.endswith(".parquet")]) == 1


def test_two_commits_of_one_version_are_both_kept_and_named(kept, manager, root):
    """As a deltalog has left it that wrote on after a restore."""
    store = open_store(f"{root}/a")
    head = kept.coordinator.head
    manager.table(A).append(rows((3, 3)))
    table_id = next(table.table_id for table in manager.list_tables() if table.name == A)
    assert head(table_id).version == 1
    store.put(commit_path(1), store.get(commit_path(0)))
    restored = kept.coordinator
    restored._heads[table_id] = type(head(table_id))(1, (RatifiedCommit(1, f"{1:020d}.x.json", 1, 1, "x"),))
    store.put(f"{STAGED}/{1:020d}.x.json", b"{}")
    with pytest.raises(CorruptTableError, match="written past the catalog") as found:
        manager.publish(A)
    assert "keep both files" in str(found.value) and "nothing of it counts" not in str(found.value)
    assert f"{STAGED}/{1:020d}.x.json" in str(found.value)
