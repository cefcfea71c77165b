"""If a catalog restored from a backup is older than its tables' logs, all writers are refused, and no acknowledged
write is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import uuid
import warnings

import pytest

from deltalog.catalog import TransactionStatus
from deltalog.catalog.dynamodb import DynamoDBCoordinator
from deltalog.catalog.records import RatifiedCommit
from deltalog.errors import CatalogBehindLogError, CatalogBehindLogWarning, CorruptTableError, StoreError
from deltalog.protocol.codec import first_commit_info
from deltalog.protocol.paths import commit_path
from deltalog.storage.dynamodb.client import DynamoTable
from deltalog.storage.registry import open_store
from deltalog.testing.coordinators import FaultyCoordinator
from deltalog.testing.stores import Fault, SimulatedKill, nth
from tests.support.restored import InMemory, OnDynamoDB, OnPostgres, OnSQLite
from tests.support.s3.dynamodb import FakeTime, client
from tests.support.transactions import SCHEMA, A, B, Clock, Meddling, bank, content, manager_of, rows

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
    """Open the catalog again, and suppress the warnings that the catalog is behind the log."""
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
        assert [each.status for each in only] == []  # the transaction was canceled at the end of the ``with`` block


def test_a_process_that_has_seen_more_of_the_table_stops_too(kept, manager, clock):
    """The process's handle has loaded versions that the restored catalog does not contain."""
    restore = kept.backup()
    manager.table(A).append(rows((3, 3)))
    seen = manager.table(A)
    forgot = restore()
    seen.snapshot().reader.store.coordinator = forgot
    for call in (seen.snapshot, lambda: seen.append(rows((4, 4)))):
        with pytest.raises(CatalogBehindLogError, match="this process has read version 1"):
            call()


def test_opening_a_table_tells_that_its_catalog_is_behind(kept, manager, clock):
    restore = kept.backup()
    manager.table(A).append(rows((3, 3)))
    after = manager_of(restore(), clock)
    with pytest.warns(CatalogBehindLogWarning, match=r"has version 1, but the catalog .* up to 0.*tables resync"):
        after.table(A)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after.table(B)


def test_a_writer_that_is_only_slower_is_told_nothing_of_that(kept, manager, clock):
    """The slow writer does not report that the catalog was restored, because the catalog contains the version that
    another process has just published."""
    fast = manager_of(kept.coordinator, clock)
    # The other process commits right after the head is read.
    slow = manager_of(Meddling(kept.coordinator, "head", lambda: fast.table(A).append(rows((4, 4))), 3), clock)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slow.table(A)
        slow.table(A).append(rows((5, 5)))
    assert content(slow.table(A)) == [(1, 100), (2, 50), (4, 4), (5, 5)]


@pytest.mark.parametrize("ends", ["expiry", "cancel"])
def test_files_of_a_transaction_that_was_committed_since_are_not_cleaned_up(kept, manager, clock, root, ends):
    """The transaction was active at the time of the backup, and the restored record still has the status ACTIVE."""
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
    """The transaction's commit to the other table was ratified but not yet published."""
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
    """An earlier release of deltalog could leave this state if it kept writing after a restore."""
    store = open_store(f"{root}/a")
    head = kept.coordinator.head
    manager.table(A).append(rows((3, 3)))
    table_id = next(table.table_id for table in manager.list_tables() if table.name == A)
    assert head(table_id).version == 1
    store.put(commit_path(1), store.get(commit_path(0)))
    restored = kept.coordinator
    restored._heads[table_id] = type(head(table_id))(1, (RatifiedCommit(1, f"{1:020d}.x.json", 1, 2, "x"),))
    store.put(f"{STAGED}/{1:020d}.x.json", b"{}")
    with pytest.raises(CorruptTableError, match="not written through the catalog") as found:
        manager.publish(A)
    assert "keep both files" in str(found.value) and "nothing of it counts" not in str(found.value)
    assert f"{STAGED}/{1:020d}.x.json" in str(found.value)


# ------------------------------------------------------------------------------------------------------- resync


@pytest.mark.parametrize(
    "kept", [InMemory, OnSQLite, OnPostgres, OnDynamoDB], ids=["memory", "sqlite", "postgresql", "dynamodb"]
)
def test_the_backup_procedure(kept, clock, tmp_path, request):
    """The procedure in docs/transactions.md works: back up while other clients write, restore, and resync; afterwards
    all operations work again."""
    server = {OnPostgres: "postgresql", OnDynamoDB: "ministack"}.get(kept)
    given = (tmp_path,) if kept is OnSQLite else (request.getfixturevalue(server),) if server else ()
    kept = kept(*given)
    manager = bank(kept.coordinator, clock, tmp_path / "tables")
    manager.table(A).append(rows((3, 3)))
    in_flight, idle = manager.transaction(), manager.transaction()
    for each in (in_flight, idle):
        each.table(A).append(rows((4, 4)))
        each.table(B).append(rows((4, 4)))
    restore = kept.backup()
    clock.pass_(seconds=1)
    for number in (5, 6):
        manager.table(A).append(rows((number, number)))
    in_flight.commit()
    later = transfer(manager)
    clock.pass_(seconds=1)

    after = reopened(restore, clock)
    expected = {"name": A, "catalog_version": 1, "log_version": 5, "added": 4, "in_doubt": (), "problem": None}
    for dry_run in (True, False):
        done = after.resync(dry_run=dry_run)
        found = dataclasses.asdict(done.tables[0])
        assert {name: found[name] for name in expected} == expected
        assert (done.tables[1].catalog_version, done.tables[1].log_version, done.tables[1].added) == (0, 2, 2)
        assert (sorted(done.committed), done.aborted) == (sorted([in_flight.id, later]), [idle.id])
        assert not done.is_in_step
    warnings.simplefilter("error")
    fresh = manager_of(after.coordinator, clock)
    assert fresh.resync().is_in_step and after.resync(dry_run=True).is_in_step
    assert content(fresh.table(A)) == [(1, 100), (2, 50), (3, 3), (4, 4), (5, 5), (6, 6), (7, 1)]
    assert content(fresh.table(B)) == [(4, 4), (7, 1)]
    for id_ in (in_flight.id, later):
        assert fresh.commit_transaction(id_) is TransactionStatus.COMMITTED
    clock.pass_(hours=1)
    assert fresh.recover() == {"published": 0, "aborted": 0, "cleaned": 0, "forgotten": 0}
    transfer(fresh, 8)
    assert content(fresh.table(A)) == [(1, 100), (2, 50), (3, 3), (4, 4), (5, 5), (6, 6), (7, 1), (8, 1)]
    assert len(list((tmp_path / "tables" / "b").rglob("*.parquet"))) == 3  # the idle transaction's files are deleted


def test_a_backup_whose_items_are_of_several_moments(clock, tmp_path, ministack, monkeypatch):
    """In the restored catalog, a table's head is newer than the records of its commits and of the transaction, as can
    happen with a backup of DynamoDB."""
    monkeypatch.setattr(DynamoTable, "ask", unpublished := Unpublished(DynamoTable.ask))
    kept = OnDynamoDB(ministack)
    manager = bank(kept.coordinator, clock, tmp_path)
    transaction = manager.transaction()
    transaction.table(A).append(rows((7, 1)))
    old = [item for item in kept.items() if item["pk"]["S"].startswith(("transaction ", "open"))]
    unpublished.is_on = True
    transaction.commit()
    unpublished.is_on = False
    asked = client(ministack)
    for item in kept.items():
        if item["pk"]["S"].split()[0] in ("commits", "done", "left"):
            asked.delete_item(TableName=kept.name, Key={"pk": item["pk"], "sk": item["sk"]})
    for item in old:
        asked.put_item(TableName=kept.name, Item=item)
    after = manager_of(DynamoDBCoordinator(kept.name, ministack.options(), timing=FakeTime().timing()), clock)
    assert after.resync().committed == [transaction.id]
    assert after.resync().is_in_step
    clock.pass_(hours=1)
    after.recover()
    assert content(manager_of(after.coordinator, clock).table(A)) == [(1, 100), (2, 50), (7, 1)]


class Unpublished:
    """Passes requests on to DynamoDB; while ``is_on``, it drops requests that record commits as published."""

    def __init__(self, real):
        self.real, self.is_on = real, False

    def __get__(self, table, kind):
        return functools.partial(self.ask, table)

    def ask(self, table, operation, **request):
        if self.is_on and operation == "transact_write_items" and "published" in str(request):
            raise StoreError("lost")
        return self.real(table, operation, **request)


def test_a_table_that_was_made_since_is_registered_again(kept, manager, clock, root):
    restore = kept.backup()
    manager.create_table("bank.c", f"{root}/c", SCHEMA, data=rows((1, 1)))
    manager.table("bank.c").append(rows((2, 2)))
    after = reopened(restore, clock)
    assert after.resync().is_in_step
    assert content(after.register_table("bank.c", f"{root}/c")) == [(1, 1), (2, 2)]


def test_one_that_was_taken_for_aborted_is_committed(kept, manager, clock, root):
    """Before the resync, a client has canceled the transaction in the restored catalog."""
    transaction = manager.transaction()
    transaction.table(A).append(rows((7, 1)))
    restore = kept.backup()
    transaction.commit()
    after = reopened(restore, clock)
    after.cancel_transaction(transaction.id)
    assert after.resync().committed == [transaction.id]
    assert after.describe_transaction(transaction.id).status is TransactionStatus.COMMITTED
    assert after.recover()["cleaned"] == 0
    assert content(manager_of(after.coordinator, clock).table(A)) == [(1, 100), (2, 50), (7, 1)]


def test_what_was_ratified_and_not_published_is_found_by_the_other_tables_of_its_transaction(
    kept, manager, clock, root
):
    restore = kept.backup()
    staged = keep_staged(f"{root}/b")
    transfer(manager)
    open_store(f"{root}/b").delete(commit_path(1))
    staged()
    after = reopened(restore, clock)
    done = after.resync()
    assert [(each.added, each.problem) for each in done.tables] == [(1, None), (1, None)]
    fresh = manager_of(after.coordinator, clock)
    assert content(fresh.table(B)) == [(7, 1)]
    assert open_store(f"{root}/b").head(commit_path(1)) is not None


def keep_staged(url):
    """Record the commits that are staged after this call. The returned function restores the staged files of these
    commits, as if the commits had not been published."""
    store = open_store(url)
    kept, real = {}, type(store).put_if_absent

    def put(self, path, data):
        if self.url == url and path.startswith(STAGED):
            kept[path] = data
        return real(self, path, data)

    patch = pytest.MonkeyPatch()
    patch.setattr(type(store), "put_if_absent", put)

    def undo():
        patch.undo()
        for path, data in kept.items():
            store.put(path, data)

    return undo


def test_a_single_staged_commit_is_in_doubt_and_counts_when_it_is_named(kept, manager, clock, root):
    restore = kept.backup()
    staged = keep_staged(f"{root}/a")
    manager.table(A).append(rows((3, 3)))
    open_store(f"{root}/a").delete(commit_path(1))
    staged()
    after = reopened(restore, clock)
    done = after.resync()
    (name,) = done.tables[0].in_doubt
    assert done.is_in_step and content(after.table(A)) == [(1, 100), (2, 50)]
    assert after.resync(staged=[name]).tables[0].added == 1
    assert content(manager_of(after.coordinator, clock).table(A)) == [(1, 100), (2, 50), (3, 3)]


def test_commits_that_log_clean_up_has_removed_are_made_up_for_by_a_checkpoint(kept, manager, clock, root):
    restore = kept.backup()
    for number in range(3, 8):
        manager.table(A).append(rows((number, number)))
    table = manager.table(A)
    table.checkpoint()
    manager.table(A).append(rows((8, 8)))
    store = open_store(f"{root}/a")
    for version in range(5):
        store.delete(commit_path(version))
    after = reopened(restore, clock)
    assert after.resync().tables[0].added == 6
    assert after.resync().is_in_step
    fresh = manager_of(after.coordinator, clock)
    assert len(content(fresh.table(A))) == 8
    fresh.table(A).append(rows((9, 9)))


PROBLEMS = {
    "no log": (lambda root: [f"_delta_log/{n:020d}.json" for n in range(3)], "There is no log"),
    "log older": (lambda root: [f"_delta_log/{n:020d}.json" for n in (1, 2)], "the log is older than the catalog"),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_cannot_be_mended_is_named_and_the_other_tables_are_mended(kept, manager, clock, root, problem):
    names, says = PROBLEMS[problem]
    for number in (3, 4):
        manager.table(A).append(rows((number, number)))
    restore = kept.backup()
    manager.table(B).append(rows((3, 3)))
    store = open_store(f"{root}/a")
    for name in names(root):
        store.delete(name)
    after = reopened(restore, clock)
    first, second = after.resync().tables
    assert says in first.problem and first.added == 0
    assert (second.added, second.problem) == (1, None)
    assert not after.resync().is_in_step


def test_a_commit_of_a_stranger_is_not_taken_over(kept, manager, clock, root):
    store = open_store(f"{root}/a")
    store.put(commit_path(1), b'{"commitInfo":{"operation":"WRITE"}}\n')
    after = reopened(kept.backup(), clock)
    assert "is not a commit that this catalog can have ratified" in after.resync().tables[0].problem
    store.put(commit_path(1), b'{"commit')
    assert "is not a commit that this catalog can have ratified" in after.resync().tables[0].problem


def test_two_histories_are_named_and_left_alone(kept, manager, clock, root):
    """An earlier version of deltalog that kept writing after a restore of the catalog could leave the tables in this
    state."""
    unnoted = manager_of(FaultyCoordinator(kept.coordinator, nth(1, Fault.FAIL_BEFORE, method="published")), clock)
    unnoted.table(A).append(rows((3, 3)))
    store = open_store(f"{root}/a")
    data = store.get(commit_path(1))
    info = first_commit_info(data, whole=True)
    assert info is not None and info.txn_id is not None
    store.put(commit_path(1), data.replace(info.txn_id.encode(), str(uuid.uuid4()).encode()))
    before = manager.resync()
    assert "Two histories" in before.tables[0].problem and info.txn_id in before.tables[0].problem
    assert manager.resync(dry_run=True) == before
    assert manager.resync(keep_log=[A]).tables[0].added == 1
    assert [name for name in store.list_names(STAGED) if name.startswith("set-aside.")]
    for each in (manager, manager_of(kept.coordinator, clock)):
        assert each.resync().is_in_step
        each.recover()
        each.table(A).append(rows((4, 4)))
    assert [name for name in store.list_names(STAGED) if name.startswith("set-aside.")]


def test_a_catalog_goes_back_to_a_log_that_was_restored(kept, manager, clock, root):
    manager.table(A).append(rows((3, 3)))
    manager.table(A).append(rows((4, 4)))
    store = open_store(f"{root}/a")
    store.delete(commit_path(2))
    store.delete("_delta_log/00000000000000000002.crc")
    assert "the log is older than the catalog" in manager.resync(dry_run=True, keep_log=[A]).tables[0].problem
    assert manager.resync(keep_log=[A, B]).is_in_step
    fresh = manager_of(kept.coordinator, clock)
    assert content(fresh.table(A)) == [(1, 100), (2, 50), (3, 3)]
    fresh.table(A).append(rows((5, 5)))


def test_others_may_write_while_the_catalog_is_brought_up(kept, manager, clock, root):
    """The resync reads the logs at each step of a concurrent writer."""
    for method, number in [("head", 1), ("head", 2), ("ratify", 1), ("published", 1)]:
        slow = manager_of(Meddling(kept.coordinator, method, lambda: transfer(manager), number), clock)
        assert slow.resync().is_in_step or method != "head"
        assert manager.resync().is_in_step


def test_others_may_bring_it_up_at_the_same_time(kept, manager, clock, root):
    restore = kept.backup()
    for number in range(3):
        manager.table(A).append(rows((number, number)))
        transfer(manager, number)
    for method, number in [("ratify", 1), ("ratify", 3), ("published", 1), ("published", 2), ("insert", 1)]:
        after = reopened(restore, clock)
        other = manager_of(after.coordinator, clock)
        meddled = manager_of(Meddling(after.coordinator, method, other.resync, number), clock)
        meddled.resync()
        assert other.resync().is_in_step
        assert content(manager_of(after.coordinator, clock).table(A)) == content(manager.table(A))
        assert len(after.list_transactions("COMMITTED").transactions) == 3


def test_whoever_dies_while_it_is_brought_up_is_followed_by_another(kept, manager, clock, root):
    transaction = manager.transaction()
    transaction.table(A).append(rows((7, 1)))
    restore = kept.backup()
    manager.table(A).append(rows((3, 3)))
    transaction.commit()
    transfer(manager, 8)
    for number in itertools.count(1):
        after = reopened(restore, clock)
        dying = manager_of(FaultyCoordinator(after.coordinator, nth(number, Fault.KILL_AFTER)), clock)
        with contextlib.suppress(SimulatedKill):
            dying.resync()
            break
        after.resync()
        fresh = manager_of(after.coordinator, clock)
        assert fresh.resync().is_in_step
        assert content(fresh.table(A)) == content(manager.table(A))
        assert fresh.describe_transaction(transaction.id).status is TransactionStatus.COMMITTED
    assert number > 10
