"""Tables that enter a catalog, leave it and return; writes that bypass the catalog; checkpoints."""

from __future__ import annotations

import shutil
import uuid

import pytest

from deltalog import DeltaTable
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import (
    CallError,
    CatalogBehindLogError,
    CorruptTableError,
    EntityNotFoundError,
    InvalidPropertyError,
    ResourceNotReadyError,
    StoreError,
    TableExistsError,
    TransactionCanceledError,
    UnsupportedFeatureError,
)
from deltalog.protocol.paths import commit_path
from deltalog.protocol.properties import CATALOG_ID_KEY, UNITY_TABLE_ID_KEY
from deltalog.storage.registry import open_store
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator
from deltalog.testing.stores import Fault, SimulatedKill, nth
from tests.support.transactions import SCHEMA, A, B, Clock, Meddling, bank, content, environment, manager_of, rows

C = "bank.c"
ICT = "delta.enableInCommitTimestamps"


@pytest.fixture
def coordinator():
    return MemoryCoordinator()


@pytest.fixture
def manager(coordinator):
    return bank(coordinator)


@pytest.fixture
def url():
    """A location without a table."""
    return f"memory://{uuid.uuid4()}"


def plain_table(url, **options):
    return DeltaTable.create(url, SCHEMA, data=rows((1, 1)), environment=environment(Clock()), **options)


def url_of(manager, name):
    return next(table.url for table in manager.list_tables() if table.name == name)


# ----------------------------------------------------------------------------------------------- register, create, drop


def test_a_table_that_exists_is_taken_over_as_it_is(manager, url):
    plain_table(url)
    table = manager.register_table(C, url)
    assert content(table) == [(1, 1)]
    assert table.version == 1
    with manager.transaction() as transaction:
        transaction.table(C).delete("id = 1")
        transaction.table(B).append(rows((1, 1)))
        transaction.commit()
    assert (content(table), content(manager.table(B))) == ([], [(1, 1)])


def test_names_and_places_are_given_once(manager, url):
    plain_table(url)
    manager.register_table(C, url)
    with pytest.raises(TableExistsError, match=C):
        manager.register_table(C, url)
    with pytest.raises(TableExistsError):
        manager.register_table("bank.other", url)
    with pytest.raises(TableExistsError):
        manager.create_table(C, url + "-2", SCHEMA)
    with pytest.raises(TableExistsError):
        manager.create_table("bank.other", url, SCHEMA)
    assert [table.name for table in manager.list_tables()] == [A, B, C]


@pytest.mark.parametrize("again", ["{root}/", "file://{root}", "file:{root}/", "{root}/../a", "{link}", "{up}/a/"])
def test_a_directory_is_one_place_whatever_it_is_called(tmp_path, again):
    """Two catalog tables in one directory would write the same versions, and lose one of every two commits."""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "up").symlink_to(tmp_path)
    known = {"root": tmp_path / "a", "link": tmp_path / "link", "up": tmp_path / "up"}
    catalog = str(tmp_path / "catalog.db")
    manager = bank(catalog, root=tmp_path)
    url = again.format(**known)
    for other in (manager, manager_of(catalog)):
        with pytest.raises(TableExistsError, match=f"{tmp_path}/a is the table {A}"):
            other.register_table("bank.alias", url)
        with pytest.raises(TableExistsError):
            other.create_table("bank.alias", url, SCHEMA)
    manager.table(A).append(rows((3, 7)))
    manager.drop_table(A)
    manager.register_table(A, url)
    assert url_of(manager, A) == str(tmp_path / "a")
    assert content(manager.table(A)) == [(1, 100), (2, 50), (3, 7)]


def test_a_table_that_was_made_through_a_link_stays_where_it_is(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "old")
    manager = bank(str(tmp_path / "catalog.db"), root=tmp_path / "link")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(tmp_path)
    assert url_of(manager, A) == str(tmp_path / "old/a")
    assert content(manager.table(A)) == [(1, 100), (2, 50)]
    with pytest.raises(TableExistsError, match=A):
        manager.register_table("bank.other", str(tmp_path / "old/a"))


@pytest.mark.filterwarnings("ignore::deltalog.commit.loop.ClockDriftWarning")
def test_a_prefix_on_s3_is_one_place_under_each_of_its_schemes(moto, tmp_path):
    root, options = f"//{moto.bucket()}/a", moto.options()
    manager = manager_of(str(tmp_path / "catalog.db"), **options)
    plain_table(f"s3:{root}", **options)
    manager.register_table(A, f"s3a:{root}/")
    for again in (f"s3:{root}", f"s3a:{root}", f"s3:{root}/"):
        with pytest.raises(TableExistsError, match=f"is the table {A}"):
            manager.register_table("bank.alias", again)
    manager.table(A).append(rows((2, 2)))
    assert content(manager_of(str(tmp_path / "catalog.db"), **options).table(A)) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("name", ["", ".", "a.", ".b", 7, None, "a\nb", "x" * 256])
def test_what_is_no_name(manager, url, name):
    with pytest.raises(CallError):
        manager.create_table(name, url, SCHEMA)
    with pytest.raises(CallError):
        manager.table(name)


def test_a_name_without_a_database_is_of_the_default_one(manager, url):
    manager.create_table("orders", url, SCHEMA)
    assert manager.table("default.orders").url == manager.table("orders").url
    assert "default.orders" in [table.name for table in manager.list_tables()]


def test_a_dropped_table_is_gone_and_comes_back_with_all_that_was_committed(manager):
    url = url_of(manager, A)
    handle = manager.table(A)
    handle.append(rows((3, 7)))
    manager.drop_table(A)
    for use in (lambda: manager.table(A), lambda: manager.drop_table(A), lambda: manager.transaction().table(A)):
        with pytest.raises(EntityNotFoundError):
            use()
    with pytest.raises(ResourceNotReadyError, match="dropped"):
        handle.append(rows((4, 8)))
    with pytest.raises(UnsupportedFeatureError):
        DeltaTable.open(url).append(rows((4, 8)))
    manager.register_table("bank.again", url)
    assert content(manager.table("bank.again")) == [(1, 100), (2, 50), (3, 7)]
    manager.table("bank.again").append(rows((4, 8)))
    with pytest.raises(ResourceNotReadyError):
        handle.append(rows((5, 9)))  # the handle still refers to the files of the dropped table


def ids_of(manager, name):
    """The id of a table in its catalog, and the ids in its log."""
    properties = manager.table(name).snapshot().metadata.configuration
    return manager._tables.record(name).table_id, properties.get(UNITY_TABLE_ID_KEY), properties.get(CATALOG_ID_KEY)


def test_the_id_in_the_log_is_that_of_the_registration(coordinator, tmp_path):
    """Also of a table that comes back, and of a copy: other clients take the id from the log."""
    manager, seen = bank(coordinator, root=tmp_path), set()
    shutil.copytree(url_of(manager, A), tmp_path / "copy")
    manager.register_table("bank.copy", str(tmp_path / "copy"))
    for name in (A, "bank.copy"):
        for _ in range(2):
            table_id, logged, catalog_id = ids_of(manager, name)
            assert (logged, catalog_id) == (table_id, manager.coordinator.catalog_id)
            seen.add(table_id)
            url = url_of(manager, name)
            manager.drop_table(name)
            manager.register_table(name, url)
            assert content(manager.table(name)) == [(1, 100), (2, 50)]
    assert len(seen) == 4


def test_a_table_of_another_catalog_is_taken_over_when_that_is_said(coordinator, tmp_path):
    """The other catalog, if it still exists, commits nothing more."""
    manager = bank(coordinator, root=tmp_path)
    handle, url = manager.table(A), url_of(manager, A)
    other = manager_of(MemoryCoordinator())
    with pytest.raises(ResourceNotReadyError, match="take_over=True"):
        other.register_table(A, url)
    staged = tmp_path / "a/_delta_log/_staged_commits" / f"{1:020d}.{uuid.uuid4()}.json"
    staged.parent.mkdir(exist_ok=True)
    staged.write_text("{}")
    with pytest.raises(ResourceNotReadyError, match="staged commits after its version 0"):
        other.register_table(A, url, take_over=True)
    assert other.list_tables() == []
    staged.unlink()
    assert content(other.register_table(A, url, take_over=True)) == [(1, 100), (2, 50)]
    table_id, logged, catalog_id = ids_of(other, A)
    assert (logged, catalog_id) == (table_id, other.coordinator.catalog_id)
    with pytest.raises(CatalogBehindLogError):
        handle.append(rows((3, 3)))
    other.table(A).append(rows((3, 3)))
    assert content(other.table(A)) == [(1, 100), (2, 50), (3, 3)]


def test_what_is_committed_while_a_table_is_dropped_is_not_lost(coordinator, manager):
    """After the drop has published all versions, a process ratifies a commit and dies before it publishes it."""
    url = url_of(manager, A)

    def die():
        faulty = FaultyCoordinator(coordinator, nth(1, Fault.KILL_AFTER, method="ratify"))
        transaction = manager_of(faulty).transaction()
        transaction.table(A).delete("id = 1")
        transaction.table(B).append(rows((1, 100)))
        with pytest.raises(SimulatedKill):
            transaction.commit()

    manager_of(Meddling(coordinator, "drop", die)).drop_table(A)
    manager.register_table(A, url)
    assert (content(manager.table(A)), content(manager.table(B))) == ([(2, 50)], [(1, 100)])


def test_a_table_that_is_there_is_refused_before_its_log_is_read(tmp_path):
    """If the log were read before the check that refuses the name, another process could commit to the table and drop
    it in between; the table would then be registered at a version that is no longer its latest."""
    manager = bank(SQLiteCoordinator(tmp_path / "catalog.db"), root=tmp_path)

    def commit_and_drop():
        manager.table(A).append(rows((3, 7)))
        manager.drop_table(A)

    slow = manager_of(Meddling(manager.coordinator, "register", commit_and_drop))
    with pytest.raises(TableExistsError, match=f"is the table {A}"):
        slow.register_table("bank.again", str(tmp_path / "a"))
    assert manager.table(A).append(rows((3, 7))).version == 1


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_committed_while_a_table_is_registered_is_not_lost(tmp_path, times):
    """After this process has read the table's log, another process registers the table, commits to it and drops it."""
    manager = bank(SQLiteCoordinator(tmp_path / "catalog.db"), root=tmp_path)
    manager.drop_table(A)
    coordinator, left = manager.coordinator, [(3 + number, 7) for number in range(times)]

    def come_and_go():
        manager.register_table("bank.guest", str(tmp_path / "a")).append(rows(left.pop()))
        manager.drop_table("bank.guest")

    for number in range(times, 0, -1):
        coordinator = Meddling(coordinator, "register", come_and_go, number)
    table = manager_of(coordinator).register_table("bank.again", str(tmp_path / "a"))
    expected = [(1, 100), (2, 50), *[(3 + number, 7) for number in range(times)]]
    assert left == []
    assert content(table) == content(manager.table("bank.again")) == expected
    # One commit for each registration under a new id, and one for each row.
    assert table.append(rows((9, 9))).version == manager.table("bank.again").snapshot().version == 2 * times + 2
    assert manager.publish("bank.again") == 0


@pytest.mark.filterwarnings("ignore::deltalog.commit.loop.ClockDriftWarning")
@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.FAIL_BEFORE, Fault.UNKNOWN_NOT_WRITTEN])
def test_a_registration_that_broke_off_is_finished_by_registering_again(coordinator, manager, url, fault):
    plain_table(url)
    broken = manager_of(FaultyCoordinator(coordinator, nth(1, fault, method="register")))
    with pytest.raises((SimulatedKill, StoreError)):
        broken.register_table(C, url)
    with pytest.raises(UnsupportedFeatureError):  # the table is marked as managed, but it is not in any catalog yet
        DeltaTable.open(url).append(rows((2, 2)))
    assert manager.register_table(C, url).version == 1  # the table was not marked as managed a second time
    manager.table(C).append(rows((2, 2)))
    assert content(manager.table(C)) == [(1, 1), (2, 2)]


def test_a_creation_that_broke_off_is_finished_by_registering(coordinator, manager, url):
    broken = manager_of(FaultyCoordinator(coordinator, nth(1, Fault.KILL_BEFORE, method="register")))
    with pytest.raises(SimulatedKill):
        broken.create_table(C, url, SCHEMA, data=rows((1, 1)))
    with pytest.raises(TableExistsError):
        manager.create_table(C, url, SCHEMA)
    assert content(manager.register_table(C, url)) == [(1, 1)]


def test_a_table_is_created_with_files_of_the_caller(manager, url):
    with manager.create_transaction(C, url, SCHEMA, properties={"delta.checkpointInterval": "7"}) as transaction:
        transaction.write(rows((1, 1)).to_reader())
        assert transaction.commit().version == 0
    assert C not in [table.name for table in manager.list_tables()]
    with pytest.raises(TableExistsError):
        manager.create_transaction(C, url, SCHEMA)
    assert manager.register_table(C, url).version == 0
    manager.table(C).append(rows((2, 2)))
    assert content(manager.table(C)) == [(1, 1), (2, 2)]
    for name, place in ((C, f"{url}-2"), ("bank.other", url)):
        with pytest.raises(TableExistsError):
            manager.create_transaction(name, place, SCHEMA)


def test_a_table_of_another_catalog_is_refused(manager):
    other = manager_of(MemoryCoordinator())
    with pytest.raises(ResourceNotReadyError, match="another catalog"):
        other.register_table(A, url_of(manager, A))
    assert other.list_tables() == []
    assert content(manager.table(A)) == [(1, 100), (2, 50)]


def test_two_catalogs_that_register_at_once(coordinator, manager, url):
    plain_table(url)
    other = manager_of(MemoryCoordinator())
    between = manager_of(Meddling(coordinator, "tables", lambda: other.register_table(C, url)))
    with pytest.raises(ResourceNotReadyError, match="another catalog"):
        between.register_table(C, url)
    assert other.table(C).version == 1


@pytest.mark.parametrize("do", ["append", "delete", "properties", "add file"])
def test_a_plain_writer_that_was_open_before_is_refused(manager, url, do):
    writer = plain_table(url)
    stale = DeltaTable.open(url, environment=environment(Clock()))
    with stale.transaction() as staged:
        staged.set_properties({"custom.x": "1"})
        manager.register_table(C, url)
        with pytest.raises(Exception) as raised:
            staged.commit()
        assert type(raised.value).__name__ in ("UnsupportedFeatureError", "ProtocolChangedError")
    calls = {
        "append": lambda: writer.append(rows((2, 2))),
        "delete": lambda: writer.delete("id = 1"),
        "properties": lambda: writer.set_properties({"custom.x": "1"}),
        "add file": lambda: writer.overwrite(rows((2, 2))),
    }
    with pytest.raises(Exception) as raised:
        calls[do]()
    assert type(raised.value).__name__ in ("UnsupportedFeatureError", "ProtocolChangedError")
    assert open_store(url).head(commit_path(2)) is None
    assert content(manager.table(C)) == [(1, 1)]


# -------------------------------------------------------------------------------------- writes that bypass the catalog


@pytest.mark.parametrize(
    ("do", "key"),
    [
        (lambda table: table.set_properties({ICT: "false"}), ICT),
        (lambda table: table.unset_properties(["deltalog.catalogId"]), "deltalog.catalogId"),
        (lambda table: table.set_properties({"deltalog.catalogId": "other"}), "deltalog.catalogId"),
    ],
)
def test_a_table_keeps_what_makes_it_the_catalogs(manager, url, do, key):
    table = manager.create_table("db.t", url, SCHEMA)
    with pytest.raises(InvalidPropertyError, match="managed by a catalog") as caught:
        do(table)
    assert caught.value.key == key
    with pytest.raises(UnsupportedFeatureError, match="catalogManaged cannot be dropped"):
        table.drop_feature("catalogManaged")
    assert table.snapshot().version == 0


def test_restoring_a_version_from_before_the_catalog_keeps_it_the_catalogs(manager, url):
    plain_table(url)
    table = manager.register_table("db.t", url)
    table.restore(0)
    assert table.snapshot().in_commit_timestamps_enabled
    assert table.snapshot().metadata.configuration["deltalog.catalogId"] == manager.coordinator.catalog_id


def alien(manager, name, version):
    """A commit file that was put into the log without the catalog."""
    store = open_store(url_of(manager, name))
    store.put(commit_path(version), store.get(commit_path(0)))
    return store


@pytest.mark.filterwarnings("ignore::deltalog.errors.CatalogBehindLogWarning")
def test_what_is_written_past_the_catalog_is_not_seen_and_nothing_is_put_on_top_of_it(manager):
    alien(manager, A, 1)
    for each in (manager, manager_of(manager.coordinator)):
        assert content(each.table(A)) == [(1, 100), (2, 50)]
        with pytest.raises(CatalogBehindLogError):
            each.table(A).append(rows((3, 7)))
        assert each.table(A).snapshot().version == 0
        assert [entry.version for entry in each.table(A).history()] == [0]


def test_what_is_ratified_counts_where_something_else_is_written_and_the_file_is_named(manager):
    unnoted = FaultyCoordinator(manager.coordinator, nth(1, Fault.FAIL_BEFORE, method="published"))
    manager_of(unnoted).table(A).append(rows((3, 7)))
    alien(manager, A, 1)
    fresh = manager_of(manager.coordinator)
    assert content(fresh.table(A)) == [(1, 100), (2, 50), (3, 7)]
    with pytest.raises(CorruptTableError, match=r"00000000000000000001\.json.*not written through the catalog"):
        fresh.publish(A)
    assert content(fresh.table(A)) == [(1, 100), (2, 50), (3, 7)]
    open_store(url_of(manager, A)).delete(commit_path(1))
    assert fresh.publish(A) == 1
    assert fresh.publish(A) == 0


def test_a_table_that_cannot_be_recovered_does_not_hold_up_the_others(coordinator, manager):
    faulty = FaultyCoordinator(coordinator, nth(1, Fault.KILL_AFTER, method="ratify"))
    transaction = manager_of(faulty).transaction()
    transaction.table(A).delete("id = 1")
    transaction.table(B).append(rows((1, 100)))
    with pytest.raises(SimulatedKill):
        transaction.commit()
    cancelled = manager.transaction()
    cancelled.table(B).append(rows((9, 9)))
    alien(manager, A, 1)
    with pytest.raises(CorruptTableError, match="not written through the catalog"):
        manager.recover()
    heads = {table.name: coordinator.head(table.table_id) for table in manager.list_tables()}
    assert (len(heads[A].unpublished), len(heads[B].unpublished)) == (1, 0)
    assert open_store(url_of(manager, B)).head(commit_path(1)) is not None


def test_several_unpublished_versions_are_read_and_built_upon(coordinator, manager):
    faulty = FaultyCoordinator(coordinator, lambda call: Fault.FAIL_BEFORE if call.method == "published" else None)
    writer = manager_of(faulty).table(A)
    store = open_store(url_of(manager, A))
    for number in range(3):
        writer.append(rows((10 + number, 1)))
    for number in range(1, 4):
        store.delete(commit_path(number))  # as if the writer had not yet published its commits
    assert len(coordinator.head(manager.list_tables()[0].table_id).unpublished) == 3
    fresh = manager_of(coordinator)
    assert [row[0] for row in content(fresh.table(A))] == [1, 2, 10, 11, 12]
    with fresh.transaction() as transaction:
        transaction.table(A).delete("id = 11")
        transaction.commit()
    assert [row[0] for row in content(manager.table(A))] == [1, 2, 10, 12]
    assert all(store.head(commit_path(number)) is not None for number in range(5))


# ---------------------------------------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_is_written_for_published_versions_only(coordinator, manager):
    faulty = FaultyCoordinator(coordinator, lambda call: Fault.FAIL_BEFORE if call.method == "published" else None)
    unlucky = manager_of(faulty)
    for number in range(12):
        unlucky.table(A).append(rows((number, 1)))
    store = open_store(url_of(manager, A))
    assert not [name for name in store.list_names("_delta_log") if "checkpoint" in name]
    with pytest.raises(StoreError, match="published"):
        unlucky.table(A).checkpoint()
    assert manager.publish(A) == 12
    manager.table(A).checkpoint()
    assert store.head("_delta_log/00000000000000000012.checkpoint.parquet") is not None


def test_staged_commits_that_lost_are_swept_and_those_that_may_win_are_not(coordinator, manager):
    """Clocks do not matter here: a process may be stopped for days between staging and ratifying."""
    store = open_store(url_of(manager, A))
    staged = []

    def sweep():
        staged.extend(store.list_names("_delta_log/_staged_commits"))
        tomorrow = manager_of(coordinator, Clock(4 * 10**12))
        tomorrow.recover()
        assert store.list_names("_delta_log/_staged_commits") == staged
        manager.table(A).append(rows((4, 8)))  # this writer is faster

    slow = manager_of(Meddling(coordinator, "ratify", sweep)).table(A)
    slow.append(rows((3, 7)))
    assert len(staged) == 1
    store.put(f"_delta_log/_staged_commits/{1:020d}.dead.json", b"{}")
    store.put(f"_delta_log/_staged_commits/{3:020d}.next.json", b"{}")
    store.put("_delta_log/_staged_commits/note.txt", b"mine")
    assert manager.recover()["cleaned"] == 1
    left = sorted(store.list_names("_delta_log/_staged_commits"))
    assert left == [f"{3:020d}.next.json", "note.txt"]
    assert content(manager.table(A)) == [(1, 100), (2, 50), (3, 7), (4, 8)]


def test_a_transaction_that_lost_leaves_no_staged_commit(manager):
    other = manager_of(manager.coordinator)
    transaction = manager.transaction()
    transaction.table(A).delete("id = 1")
    other.table(A).delete("id = 1")
    with pytest.raises(TransactionCanceledError):
        transaction.commit()
    for name in (A, B):
        assert open_store(url_of(manager, name)).list_names("_delta_log/_staged_commits") == []
