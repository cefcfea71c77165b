"""Nested table roots are refused; a file that belongs to another table, or is not a data file, is never deleted."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable
from deltalog.catalog.records import are_nested
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import CallError, TableExistsError
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.manager import VirtualObject
from deltalog.transactions.table_objects import can_be_deleted
from tests.support.transactions import SCHEMA, content, manager_of, rows

T, INNER = "lake.t", "lake.inner"

BELOW = ["{root}/inner", "{root}/a/b", "{root}/inner/", "{root}//inner", "{root}/../t/inner", "{link}/inner",
    "file://{root}/inner", "FILE://{root}/inner", "file:{root}/in%20ner", "{parent}/./t/inner"]  # fmt: skip
AROUND = ["{parent}", "{parent}/", "file://{parent}", "{root}/..", "/", "{above}", "{uplink}"]
SAME = ["{root}", "{root}/", "file://{root}", "{link}", "{root}/x/.."]


@pytest.fixture
def places(tmp_path):
    """Directories, keyed by words that describe their relation to the table at ``root``."""
    lake = tmp_path / "lake"
    (lake / "t").mkdir(parents=True)
    (tmp_path / "link").symlink_to(lake / "t")
    (tmp_path / "uplink").symlink_to(lake)
    return {"root": lake / "t", "parent": lake, "above": tmp_path, "link": tmp_path / "link",
        "uplink": tmp_path / "uplink"}  # fmt: skip


@pytest.fixture
def manager(places, tmp_path):
    made = manager_of(SQLiteCoordinator(tmp_path / "catalog.db"))
    made.create_table(T, str(places["root"]), SCHEMA, data=rows((1, 1)))
    return made


@pytest.mark.parametrize("spelling", [*BELOW, *AROUND, *SAME])
@pytest.mark.parametrize("call", ["create", "register"])
def test_a_root_below_or_around_that_of_another_table_is_refused(manager, places, spelling, call, monkeypatch):
    url = spelling.format(**places)
    if call == "create":
        with pytest.raises(TableExistsError, match=r"are nested|is the table|root of lake.t"):
            manager.create_table(INNER, url, SCHEMA)
    else:
        made = places["parent"] / "somewhere"  # the contents of this directory do not matter
        monkeypatch.chdir(made.parent)
        with pytest.raises(TableExistsError, match=r"are nested|is the table|root of lake.t"):
            manager.register_table(INNER, url)
    assert [table.name for table in manager.list_tables()] == [T]
    assert content(manager.table(T)) == [(1, 1)]
    assert not list(places["root"].rglob("inner/_delta_log")) and not (places["parent"] / "_delta_log").exists()


@pytest.mark.parametrize("beside", ["{root}2", "{parent}/u", "{above}/t"])
def test_a_root_beside_another_is_taken(manager, places, beside):
    manager.create_table(INNER, beside.format(**places), SCHEMA)


@pytest.mark.parametrize(
    ("one", "other", "nested"),
    [("s3://b/t", "s3://b/t/x", True), ("s3://b", "s3://b/t", True), ("s3://b/t", "s3://b/tx", False),
     ("/", "/x", True), ("s3://b/t", "/b/t/x", False), ("s3://b/t", "s3://c/t/x", False),
     ("s3://b/a%20b", "s3://b/a%20b/c", True)],
)  # fmt: skip
def test_nesting_goes_by_whole_names(one, other, nested):
    assert are_nested(one, other) is are_nested(other, one) is nested


@pytest.mark.parametrize(
    "spelling", ["s3a://bucket/lake/t/x", "s3://bucket/lake/t/x/", "s3a://bucket", "s3://bucket/lake/"]
)
def test_a_root_on_s3_is_refused_by_each_of_its_names(spelling):
    catalog = MemoryCoordinator()
    table = manager_of(catalog).create_table(T, f"memory://{uuid.uuid4()}", SCHEMA)
    record = catalog.table(T)
    assert record is not None
    catalog.drop(record.table_id, table.version)
    catalog.register(replace(record, url="s3://bucket/lake/t"), 0)
    manager = manager_of(catalog, key="k", secret="s", endpoint_url="http://127.0.0.1:1")
    with pytest.raises(TableExistsError, match="are nested"):
        manager.create_table(INNER, spelling, SCHEMA)


# ------------------------------------------------------------------------------------ paths that count as objects

OBJECTS = ["x.parquet", "day=1/x.parquet", "_day=1/.x=2/x.PARQUET", "a/b c/é.snappy.parquet"]
NONE = ["x", "notes.txt", "x.parquet.crc", "_x.parquet", ".x.parquet", "_delta_log/x.parquet", "a/_delta_log/x.parquet",
    "a/b/_delta_log/_sidecars/x.parquet", "a/_staged_commits/x.parquet", "a/_change_data/cdc-1.parquet",
    "a/_blobs/x.parquet", "_temporary/0/x.parquet", "a/.hidden/x.parquet", "day=1/_x=1.parquet",
    "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin", "_delta_index/x.parquet"]  # fmt: skip


@pytest.mark.parametrize("path", [*OBJECTS, *NONE])
def test_an_object_is_a_parquet_file_that_is_not_hidden(manager, places, path):
    assert can_be_deleted(path) is (path in OBJECTS)
    transaction = manager.transaction()
    named = [VirtualObject(f"{places['root']}/{path}")]
    if path in OBJECTS:
        manager.delete_objects_on_cancel(transaction.id, T, named)
    else:
        with pytest.raises(CallError, match=r"Parquet|not a data file"):
            manager.delete_objects_on_cancel(transaction.id, T, named)
    transaction.cancel()


def files_of(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("inner", ["in the catalog", "dropped from it", "never in it"])
def test_the_clean_up_of_an_outer_table_touches_nothing_of_an_inner_one(places, tmp_path, inner):
    """Catalogs that an earlier version of deltalog wrote may contain a table (inner) whose directory is inside that of
    another table (outer)."""
    catalog = MemoryCoordinator()
    manager = manager_of(catalog)
    root = places["root"]
    if inner == "never in it":
        DeltaTable.create(str(root / "a/inner"), SCHEMA, data=rows((7, 7)))
    else:
        manager.create_table(INNER, str(root / "a/inner"), SCHEMA, data=rows((7, 7)))
    known = catalog.table(INNER)
    if known is not None:
        catalog.drop(known.table_id, 0)
    manager.create_table(T, str(root), SCHEMA, data=rows((1, 1)))
    if inner == "in the catalog":
        made = catalog.table(T)
        assert known is not None and made is not None
        catalog._tables[known.table_id] = known
        catalog._heads[known.table_id] = catalog._heads[made.table_id]
    pq.write_table(rows((9, 9)), root / "a/orphan.parquet")
    before = files_of(root)
    transaction = manager.transaction()
    record = next(table for table in manager.list_tables() if table.name == T)
    # The transaction's parts are stored in the form in which earlier versions of deltalog stored them.
    parts = {f"object/{record.table_id}/{path}": b"null" for path in before}
    kept = catalog.transaction(transaction.id)
    assert kept is not None and catalog.put_parts(replace(kept, revision=1), parts)
    transaction.cancel()
    assert files_of(root) == [path for path in before if path != "a/orphan.parquet"]
    assert content(manager.table(T)) == [(1, 1)]
    if inner == "in the catalog":
        assert content(manager_of(catalog).table(INNER)) == [(7, 7)]
    assert os.path.exists(root / "a/inner/_delta_log" / f"{0:020d}.json")
