"""delete_objects_on_cancel: which objects are deleted when a transaction is canceled, and which never are."""

from __future__ import annotations

import datetime
import hashlib
import shutil

import pyarrow.parquet as pq
import pytest

from deltalog.catalog.records import TableRecord
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import CallError, EntityNotFoundError
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.testing.stores import Fault, FaultyStore, nth
from deltalog.transactions.manager import VirtualObject
from deltalog.transactions.table_objects import AddObject, path_below
from tests.support.simulation.bank import SimulatedManager
from tests.support.transactions import A, B, Clock, Meddling, bank, content, environment, manager_of, rows


@pytest.fixture(params=["memory", "disk"])
def manager(request, tmp_path):
    return bank(root=None if request.param == "memory" else tmp_path)


def place(manager, name=A):
    url = next(table.url for table in manager.list_tables() if table.name == name)
    return url, manager._tables.plain_store(url)


def name_objects(manager, transaction, paths, etag=None, name=A):
    url, _ = place(manager, name)
    manager.delete_objects_on_cancel(transaction.id, name, [VirtualObject(f"{url}/{path}", etag) for path in paths])


@pytest.mark.parametrize("end", ["cancel", "commit", "leave"])
def test_objects_go_when_it_is_cancelled_and_stay_when_it_is_committed(manager, end):
    transaction, (_, store) = manager.transaction(), place(manager)
    name_objects(manager, transaction, ["x.parquet", "day=1/y z.parquet", "never-written.parquet"])
    for path in ("x.parquet", "day=1/y z.parquet"):
        store.put(path, b"rows")
    if end != "leave":
        getattr(transaction, end)()
    there = [store.head(path) is not None for path in ("x.parquet", "day=1/y z.parquet")]
    assert there == [end != "cancel"] * 2


def test_objects_of_a_transaction_that_is_overdue_go_with_recovery(manager):
    clock = Clock()
    other = manager_of(manager.coordinator, clock)
    transaction, (_, store) = other.transaction(), place(manager)
    name_objects(other, transaction, ["x.parquet"])
    store.put("x.parquet", b"rows")
    clock.pass_(minutes=31)
    assert other.recover() == {"published": 0, "aborted": 1, "cleaned": 1, "forgotten": 0}
    assert store.head("x.parquet") is None
    assert other.recover()["cleaned"] == 0


def test_files_of_the_table_stay_whoever_names_them(manager):
    table = manager.table(A)
    first = table.snapshot().files(["path"])["path"].to_pylist()
    table.append(rows((3, 7)))
    table.delete("id < 3")  # the first file is now only a tombstone, but earlier versions still need the file
    paths = sorted({*first, *table.snapshot().files(["path"])["path"].to_pylist()})
    transaction = manager.transaction()
    name_objects(manager, transaction, paths)
    transaction.cancel()
    assert content(table) == [(3, 7)]
    assert content(table, version=0) == [(1, 100), (2, 50)]


def test_a_file_that_was_committed_meanwhile_stays(manager):
    transaction, (_, store) = manager.transaction(), place(manager)
    name_objects(manager, transaction, ["named.parquet"])
    other = manager.table(A)
    with other.transaction() as writer:
        with store.open_output("named.parquet") as file:
            pq.write_table(rows((9, 9)), file)
        writer.add_parquet_files([("named.parquet", {})])
        writer.commit()
    transaction.cancel()
    assert (9, 9) in content(other)


def add_object(manager, transaction_id, path):
    url, store = place(manager)
    add = AddObject(f"{url}/{path}", store.etag(path), store.head(path).size_bytes)
    manager.update_table_objects(A, [add], transaction_id)


@pytest.fixture
def catalog(tmp_path):
    return SQLiteCoordinator(tmp_path / "catalog.db")


def named_here_and_added_there(catalog, root):
    """Two transactions, and a file whose name the first transaction has registered and which the second has added."""
    manager = bank(catalog, root=root)
    first, second, (_, store) = manager.transaction(), manager.transaction(), place(manager)
    name_objects(manager, first, ["mine.parquet"])
    with store.open_output("mine.parquet") as file:
        pq.write_table(rows((9, 9)), file)
    add_object(manager, second.id, "mine.parquet")
    return manager, first, second, store


@pytest.mark.parametrize("end", ["commit", "cancel"])
def test_a_file_that_another_transaction_has_added_waits_for_its_end(catalog, tmp_path, end):
    manager, first, second, store = named_here_and_added_there(catalog, tmp_path)
    first.cancel()
    assert manager.recover()["cleaned"] == 0
    assert store.head("mine.parquet") is not None
    getattr(second, end)()
    done = manager.recover(datetime.timedelta(days=-1))
    assert done == {"published": 0, "aborted": 0, "cleaned": int(end == "cancel"), "forgotten": 1}
    assert (store.head("mine.parquet") is not None) == (end == "commit")
    assert content(manager.table(A)) == [(1, 100), (2, 50), *[(9, 9)] * (end == "commit")]


@pytest.mark.parametrize(("method", "number"), [("parts", 1), ("transactions", 1), ("parts", 2), ("head", 1)])
def test_a_file_that_another_transaction_commits_while_it_is_looked_for_stays(catalog, tmp_path, method, number):
    manager, first, second, _ = named_here_and_added_there(catalog, tmp_path)
    other = manager_of(Meddling(catalog, method, second.commit, number))
    other.cancel_transaction(first.id)
    assert second.commit() == "COMMITTED"
    assert (9, 9) in content(manager.table(A))


@pytest.mark.parametrize("etag", [None, "0" * 32])
def test_what_is_no_file_is_not_there_to_be_deleted(catalog, tmp_path, etag):
    """Anything that is not a file must count as absent; otherwise its deletion would be retried forever."""
    manager = bank(catalog, root=tmp_path)
    transaction, (_, store) = manager.transaction(), place(manager)
    name_objects(manager, transaction, ["day=1.parquet", "day=1/x/y.parquet"], etag)
    store.put("day=1/x", b"rows")
    store.put("day=1.parquet/x", b"rows")
    transaction.cancel()
    assert catalog.transaction(transaction.id).looks == 1
    assert store.get("day=1/x") == b"rows"


@pytest.mark.parametrize("quotes", ["", '"'])
def test_the_etag_decides(manager, quotes):
    transaction, (_, store) = manager.transaction(), place(manager)
    for path, data in (("same.parquet", b"as named"), ("other.parquet", b"changed since")):
        etag = hashlib.md5(b"as named").hexdigest()
        name_objects(manager, transaction, [path], f"{quotes}{etag}{quotes}")
        store.put(path, data)
    transaction.cancel()
    assert (store.head("same.parquet"), store.head("other.parquet") is not None) == (None, True)


def test_the_last_etag_that_was_named_counts_and_an_object_is_named_once(manager):
    transaction, (_, store) = manager.transaction(), place(manager)
    name_objects(manager, transaction, ["x.parquet"], "0" * 32)
    name_objects(manager, transaction, ["x.parquet"])
    store.put("x.parquet", b"rows")
    assert len(manager.coordinator.parts(transaction.id)) == 1
    transaction.cancel()
    assert store.head("x.parquet") is None


OUTSIDE = [
    "{root}", "{root}/", "{root}-2/x", "{root}/../x", "{root}/a/../../x", "{root}/./x", "{root}//x",
    "{root}/_delta_log/00000000000000000000.json", "{root}/_delta_log", "s3://elsewhere/x", "x", "", 7, None,
    "{root}/" + "x" * 1024, "{root}/" + "/".join(["é" * 100] * 6), "{root}/_blobs",
    "{root}/_blobs/x", "{root}/_change_data/x", "{root}/a\\b",
    "{root}/\0", "{root}/\ud800", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("uri", OUTSIDE)
def test_what_is_no_object_of_the_table_is_refused(manager, uri):
    url, store = place(manager)
    transaction = manager.transaction()
    named = uri.format(root=url) if isinstance(uri, str) else uri
    with pytest.raises(CallError):
        manager.delete_objects_on_cancel(
            transaction.id, A, [VirtualObject(f"{url}/fine.parquet"), VirtualObject(named)]
        )
    assert manager.coordinator.parts(transaction.id) == {}
    transaction.cancel()
    assert store.head("_delta_log/00000000000000000000.json") is not None


@pytest.mark.parametrize("path", ["x" * 248 + ".parquet", "é" * 124 + ".parquet", f"day=1/{'x' * 256}/y.parquet"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path, path):
    """If such a name were accepted, every attempt to delete the object would fail, and the record of its transaction
    would never be deleted."""
    manager = bank(str(tmp_path / "catalog.db"), root=tmp_path)
    transaction = manager.transaction()
    with pytest.raises(CallError, match="255 bytes"):
        name_objects(manager, transaction, [path])
    assert manager.coordinator.parts(transaction.id) == {}


def test_the_longest_names_are_allowed_and_can_be_deleted(manager):
    paths = ["x" * 247 + ".parquet", "é" * 123 + ".parquet", f"day=1/{'x' * 247}.parquet"]
    transaction, (_, store) = manager.transaction(), place(manager)
    name_objects(manager, transaction, paths, "0" * 32)
    name_objects(manager, transaction, paths[:2])
    with store.open_output(paths[0]) as file:
        file.write(b"rows")
    transaction.cancel()
    assert store.head(paths[0]) is None
    assert manager.coordinator.transaction(transaction.id).looks == 1


@pytest.mark.parametrize("scheme", ["{link}", "file://{link}", "file://{root}"])
def test_an_object_is_found_by_any_name_of_its_place(tmp_path, scheme):
    (tmp_path / "link").symlink_to(tmp_path / "a")
    manager = bank(str(tmp_path / "catalog.db"), root=tmp_path)
    transaction, (root, store) = manager.transaction(), place(manager)
    url = scheme.format(link=tmp_path / "link", root=root)
    store.put("day=1/x.parquet", b"rows")
    manager.delete_objects_on_cancel(transaction.id, A, [VirtualObject(f"{url}/day=1/x.parquet")])
    for outside in (f"{url}/../x.parquet", f"{url}-2/x.parquet", f"{url}/_blobs/x"):
        with pytest.raises(CallError, match="not a data file"):
            manager.delete_objects_on_cancel(transaction.id, A, [VirtualObject(outside)])
    transaction.cancel()
    assert store.head("day=1/x.parquet") is None


@pytest.mark.parametrize("url", ["s3://b/t", "s3a://b/t"])
def test_an_object_on_s3_is_found_by_each_of_its_schemes(url):
    table = TableRecord("id", A, "s3://b/t", 0)
    assert path_below(table, f"{url}/day=1/x") == "day=1/x"
    assert path_below(table, f"{url}/{'x' * 300}/y") == f"{'x' * 300}/y"  # the maximum length of a key
    for outside in ("-2/x", "/../x", "/" + "é" * 600):
        with pytest.raises(CallError):
            path_below(table, url + outside)


@pytest.mark.parametrize("number", [0, 101])
def test_how_many_objects(manager, number):
    transaction = manager.transaction()
    with pytest.raises(CallError, match="1 to 100"):
        name_objects(manager, transaction, [f"x{n}.parquet" for n in range(number)])
    name_objects(manager, transaction, [f"x{n}.parquet" for n in range(100)])


@pytest.mark.parametrize("name", ["bank.none", "none.a", "none"])
def test_a_table_that_is_not_there(manager, name):
    with pytest.raises(EntityNotFoundError):
        manager.delete_objects_on_cancel(manager.start_transaction(), name, [VirtualObject("/x")])


def test_what_cannot_be_deleted_now_is_tried_again_by_recover():
    coordinator = MemoryCoordinator()
    plain = bank(coordinator)
    _, store = place(plain)
    faulty = FaultyStore(store, nth(1, Fault.FAIL_BEFORE, method="delete", path="x.parquet"))
    other = place(plain, B)[1]
    stores = {store.url: faulty, other.url: other}
    manager = SimulatedManager(coordinator, environment(Clock()), stores.__getitem__)
    transaction = manager.transaction()
    name_objects(plain, transaction, ["x.parquet", "y.parquet"])
    for path in ("x.parquet", "y.parquet"):
        store.put(path, b"rows")
    transaction.cancel()
    assert (store.head("x.parquet") is not None, store.head("y.parquet")) == (True, None)
    assert manager.recover()["cleaned"] == 1
    assert store.head("x.parquet") is None


def test_a_table_whose_log_is_gone_does_not_hold_up_the_others(catalog, tmp_path):
    manager = bank(catalog, root=tmp_path)
    transaction, (_, store) = manager.transaction(), place(manager, B)
    transaction.table(B).append(rows((3, 7)))
    name_objects(manager, transaction, ["x.parquet", "y.parquet"])
    for path in ("w.parquet", "z.parquet"):
        name_objects(manager, transaction, [path], name=B)
        store.put(path, b"rows")
    for path in ("x.parquet", "y.parquet"):
        place(manager, A)[1].put(path, b"rows")
    shutil.rmtree(tmp_path / "a/_delta_log")
    other = manager_of(catalog)
    other.cancel_transaction(transaction.id)
    assert store.list_names("") == []
    lost = next(table.table_id for table in other.list_tables() if table.name == A)
    assert catalog.transaction(transaction.id).looks == 0
    assert {f"object/{lost}/x.parquet", f"object/{lost}/y.parquet"} < catalog.parts(transaction.id).keys()
    other.drop_table(A)
    assert other.recover(datetime.timedelta(days=-1)) == {"published": 0, "aborted": 0, "cleaned": 0, "forgotten": 0}
    # The remaining objects will be looked up again.
    assert not any(lost in key for key in catalog.parts(transaction.id))


def test_a_transaction_is_not_forgotten_before_its_objects_are_gone():
    coordinator, clock = MemoryCoordinator(), Clock()
    plain = bank(coordinator, clock)
    _, store = place(plain)
    faulty = FaultyStore(store, lambda call: Fault.FAIL_BEFORE if call.path == "x.parquet" else None)
    stores = {store.url: faulty, place(plain, B)[0]: place(plain, B)[1]}
    manager = SimulatedManager(coordinator, environment(clock), stores.__getitem__)
    transaction = manager.transaction()
    name_objects(plain, transaction, ["x.parquet"])
    store.put("x.parquet", b"rows")
    transaction.cancel()
    clock.pass_(days=100)
    assert manager.recover(datetime.timedelta(days=1))["forgotten"] == 0
    faulty.decide = lambda call: None
    assert manager.recover(datetime.timedelta(days=1)) == {"published": 0, "aborted": 0, "cleaned": 1, "forgotten": 1}
    assert store.head("x.parquet") is None


def test_files_that_its_own_operations_wrote_go_without_being_named(manager):
    _, store = place(manager)
    before = set(store.list_names(""))
    transaction = manager.transaction()
    transaction.table(A).append(rows((3, 7)))
    transaction.table(A).delete("id = 1")
    assert set(store.list_names("")) > before
    transaction.cancel()
    assert set(store.list_names("")) == before
