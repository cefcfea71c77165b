"""Cloning a version: the clone has the same rows; only a shallow clone shares files with its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, StoreError, TableExistsError, TransactionManager
from deltalog.errors import InvalidDataFileError, InvalidPropertyError, UnsafePathError
from deltalog.testing.stores import Fault, FaultyStore
from tests.support.core import ICT, environment, memory, objects, tree

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
EVERYTHING = {
    "delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true", "delta.columnMapping.mode": "name",
    "delta.enableChangeDataFeed": "true",
}  # fmt: skip


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "p": ["a" if each % 2 else "b c" for each in ids]}, SCHEMA)


def ids(table: DeltaTable, *columns: str) -> list[Any]:
    return sorted(tuple(row.values()) for row in table.snapshot().scan(["id", *columns]).to_arrow().to_pylist())


def source(path: Path, properties: dict[str, str] | None = None) -> DeltaTable:
    table = DeltaTable.create(path, SCHEMA, partition_by=["p"], properties=properties, data=rows(1, 2))
    table.append(rows(3, 4, 5), txn=("app", 7))
    return table


def errors(table: DeltaTable) -> list[str]:
    return [str(each) for each in table.check(deep=True).findings if each.severity != "info"]


@pytest.mark.parametrize("shallow", [False, True])
def test_a_clone_has_the_rows_and_a_life_of_its_own(tmp_path: Path, shallow: bool) -> None:
    table = source(tmp_path / "s", {"owner": "me"})
    clone = table.clone(tmp_path / "c", shallow=shallow, user_metadata="why")
    assert (clone.version, ids(clone)) == (0, ids(table)) == (0, [(1,), (2,), (3,), (4,), (5,)])
    assert bool(list((tmp_path / "c").rglob("*.parquet"))) is not shallow
    found = clone.history()[0]
    assert (found.operation, found.user_metadata) == ("CLONE", "why")
    assert found.operation_parameters == {
        "source": f"delta.`file:{tmp_path}/s`", "sourceVersion": "1", "isShallow": str(shallow).lower(),
    }  # fmt: skip
    size = str(table.snapshot().size_bytes)
    copied = ("0", "0") if shallow else ("4", size)
    assert found.operation_metrics == {
        "sourceTableSize": size, "sourceNumOfFiles": "4", "numRemovedFiles": "0", "numCopiedFiles": copied[0],
        "removedFilesSize": "0", "copiedFilesSize": copied[1],
    }  # fmt: skip
    snapshot = clone.snapshot()
    assert snapshot.metadata.id != table.snapshot().metadata.id and snapshot.metadata.configuration == {"owner": "me"}
    assert snapshot.partition_columns == ("p",) and snapshot.log.state.transactions == {}
    before = tree(tmp_path / "s")
    clone.append(rows(6))
    clone.delete("id = 1")
    assert ids(clone) == [(2,), (3,), (4,), (5,), (6,)] and tree(tmp_path / "s") == before
    table.overwrite(rows(9))
    assert ids(clone) == [(2,), (3,), (4,), (5,), (6,)]
    allowed = [tmp_path / "s"] if shallow else []
    again = DeltaTable.open(tmp_path / "c", allowed_paths=[str(each) for each in allowed])
    assert ids(again) == ids(clone) and errors(again) == []


@pytest.mark.parametrize("shallow", [False, True])
def test_vectors_row_ids_and_mapped_columns_are_kept(tmp_path: Path, shallow: bool) -> None:
    table = source(tmp_path / "s", EVERYTHING)
    table.append(rows(*range(10, 400)))
    table.delete("id % 3 = 0")  # the deletion vector is too large to be inline in the log
    table.delete("id = 1")
    table.rename_column("id", "key")
    table.rename_column("key", "id")
    table.set_domain_metadata("mine", "1")
    columns = ("_metadata.row_id",)
    clone = table.clone(tmp_path / "c", shallow=shallow)
    assert ids(clone, *columns) == ids(table, *columns)
    vectors = [v for v in clone.snapshot().files()["deletion_vector"].to_pylist() if v is not None]
    assert {v["storage_type"] for v in vectors} >= {"p" if shallow else "u"}
    assert {d.domain: d.configuration for d in clone.snapshot().domain_metadata} == {
        d.domain: d.configuration for d in table.snapshot().domain_metadata
    }
    assert clone.schema == table.schema and clone.snapshot().protocol == table.snapshot().protocol
    for each in (table, clone):
        each.append(rows(1000))
        each.update({"p": "'z'"}, "id = 5")
        each.delete("id = 7")
    assert ids(clone, "p", *columns) == ids(table, "p", *columns)
    clone.optimize.purge()
    assert ids(clone, "p", *columns) == ids(table, "p", *columns)
    assert errors(clone) == []


@pytest.mark.parametrize("shallow", [False, True])
def test_in_commit_timestamps_begin_with_the_clone(tmp_path: Path, shallow: bool) -> None:
    table = source(tmp_path / "s")
    table.enable_in_commit_timestamps()
    assert table.snapshot().enablement is not None
    clone = table.clone(tmp_path / "c", shallow=shallow)
    snapshot = clone.snapshot()
    assert snapshot.in_commit_timestamps_enabled and snapshot.enablement is None
    assert snapshot.metadata.configuration == ICT
    assert snapshot.in_commit_timestamp_ms is not None
    assert clone.version_at(snapshot.in_commit_timestamp_ms).version == 0
    clone.append(rows(7))
    assert errors(clone) == []


def test_an_earlier_version_and_a_time(tmp_path: Path) -> None:
    table = source(tmp_path / "s", ICT)
    table.delete("id = 1")
    first = table.history()[-1].timestamp_ms
    assert ids(table.clone(tmp_path / "v", version=1)) == [(1,), (2,), (3,), (4,), (5,)]
    assert ids(table.clone(tmp_path / "t", timestamp=first, shallow=True)) == [(1,), (2,)]
    with pytest.raises(CallError, match="not both"):
        table.clone(tmp_path / "x", version=1, timestamp=first)
    assert not (tmp_path / "x").exists()


def test_properties_of_the_clone(tmp_path: Path) -> None:
    table = source(tmp_path / "s", {"owner": "me", "a": "1"})
    clone = table.clone(
        tmp_path / "c",
        shallow=True,
        properties={"owner": "you", "delta.enableRowTracking": "true", "delta.feature.v2Checkpoint": "supported"},
    )
    found = clone.snapshot().metadata.configuration
    assert (found["owner"], found["a"]) == ("you", "1")
    assert {"rowTracking", "v2Checkpoint"} <= set(clone.snapshot().table_features)
    assert sorted(each[1] for each in ids(clone, "_metadata.row_id")) == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidPropertyError):
        table.clone(tmp_path / "x", properties={"delta.nope": "1"})
    assert not (tmp_path / "x").exists()


def test_a_clone_of_a_clone(tmp_path: Path) -> None:
    table = source(tmp_path / "s", EVERYTHING)
    table.append(rows(*range(10, 400)))
    table.delete("id % 3 = 0")
    shallow = table.clone(tmp_path / "one", shallow=True)
    shallow.append(rows(7))
    twice = shallow.clone(tmp_path / "two", shallow=True)
    deep = twice.clone(tmp_path / "three")
    assert ids(twice) == ids(deep) == ids(shallow)
    expected = ids(deep)
    for kept in ("s", "one", "two"):
        (tmp_path / kept).rename(tmp_path / f"{kept} away")
    (tmp_path / "three").rename(tmp_path / "moved")
    assert len(ids(DeltaTable.open(tmp_path / "moved"))) == len(expected)
    assert errors(DeltaTable.open(tmp_path / "moved")) == []


def test_files_of_two_places_under_one_name(tmp_path: Path) -> None:
    """The clone has two files with the same relative name: its own, and one of its source."""
    table = DeltaTable.create(tmp_path / "s", SCHEMA, data=rows(1))
    clone = table.clone(tmp_path / "c", shallow=True)
    (name,) = [each.name for each in (tmp_path / "s").glob("*.parquet")]
    clone.append(rows(2))
    (mine,) = (tmp_path / "c").glob("*.parquet")
    log = tmp_path / "c" / "_delta_log" / f"{1:020d}.json"
    log.write_text(log.read_text().replace(mine.name, name))
    mine.rename(tmp_path / "c" / name)
    for derived in (tmp_path / "c" / "_delta_log").glob("*.crc"):
        derived.unlink()
    both = DeltaTable.open(tmp_path / "c", allowed_paths=[str(tmp_path / "s")])
    assert ids(both) == [(1,), (2,)]
    assert ids(both.clone(tmp_path / "d")) == [(1,), (2,)]


def test_a_shallow_clone_can_be_restored(tmp_path: Path) -> None:
    """The versions of a clone name files by absolute paths; a restore adds these files again."""
    table = source(tmp_path / "s")
    clone = table.clone(tmp_path / "c", shallow=True)
    clone.delete("id < 3")
    clone.overwrite(rows(8))
    clone.restore(0)
    assert ids(clone) == ids(table)
    clone.restore(2)
    assert ids(clone) == [(8,)]
    closed = DeltaTable.open(tmp_path / "c")
    with pytest.raises(UnsafePathError):
        closed.restore(0)
    assert closed.version == 4


def test_a_log_names_no_place_that_the_caller_has_not_allowed(tmp_path: Path) -> None:
    table = source(tmp_path / "s")
    table.clone(tmp_path / "c", shallow=True)
    closed = DeltaTable.open(tmp_path / "c")
    for shallow in (False, True):
        with pytest.raises(UnsafePathError):
            closed.clone(tmp_path / "x", shallow=shallow)
        assert not list((tmp_path / "x").rglob("*.json"))


def test_a_place_that_is_taken(tmp_path: Path) -> None:
    table = source(tmp_path / "s")
    for shallow in (False, True):
        with pytest.raises(TableExistsError):
            table.clone(tmp_path / "s", shallow=shallow)
    (tmp_path / "c").mkdir()
    other = tmp_path / "c" / "part-0.parquet"
    other.write_bytes(b"mine")
    with pytest.raises(TableExistsError, match=r"is not empty: it contains part-0\.parquet"):
        table.clone(tmp_path / "c")
    assert other.read_bytes() == b"mine"
    assert ids(table.clone(tmp_path / "c", shallow=True)) == ids(table)


def test_what_cannot_be_cloned(tmp_path: Path) -> None:
    blobs = DeltaTable.create_for_blobs(tmp_path / "b")
    with pytest.raises(CallError, match="blobs"):
        blobs.clone(tmp_path / "c")
    with pytest.raises(CallError, match=r"cannot be reached|not on the local disk|not in memory"):
        source(tmp_path / "s").clone("memory://elsewhere", shallow=True)
    assert ids(source(tmp_path / "s2").clone("memory://copied")) == [(1,), (2,), (3,), (4,), (5,)]


def test_a_file_of_another_size_is_found(tmp_path: Path) -> None:
    table = source(tmp_path / "s")
    victim = sorted((tmp_path / "s").rglob("*.parquet"))[1]
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(InvalidDataFileError, match="according to the log") as caught:
        table.clone(tmp_path / "c")
    assert caught.value.path == victim.relative_to(tmp_path / "s").as_posix()
    assert [each for each in tree(tmp_path / "c") if not each.endswith("/")] == []


def test_copies_are_deleted_when_it_fails() -> None:
    table = DeltaTable.create(memory(), SCHEMA, data=rows(1), environment=environment())
    table.append(rows(2))
    target = memory()
    failing = FaultyStore(target, lambda call: Fault.FAIL_BEFORE if call.method == "put_if_absent" else None)
    with pytest.raises(StoreError):
        table.clone(failing)
    assert objects(target) == {}
    second = FaultyStore(target, lambda call: Fault.FAIL_BEFORE if call.number == 4 else None)
    with pytest.raises(StoreError):
        table.clone(second)
    assert objects(target) == {}


def test_absolute_paths_are_encoded(tmp_path: Path) -> None:
    table = source(tmp_path / "a b%20ü")
    clone = table.clone(tmp_path / "c", shallow=True)
    paths = clone.snapshot().files(["path"])["path"].to_pylist()
    assert all(path.startswith(f"file:{tmp_path}/a%20b%2520ü/p=") for path in paths)
    assert ids(clone) == ids(table)
    log = (tmp_path / "c" / "_delta_log" / f"{0:020d}.json").read_text()
    assert all(json.loads(line)["add"]["dataChange"] for line in log.splitlines() if line.startswith('{"add"'))


@pytest.mark.parametrize("shallow", [False, True])
def test_the_clone_of_a_managed_table_is_not_managed(tmp_path: Path, shallow: bool) -> None:
    manager = TransactionManager(str(tmp_path / "catalog.db"))
    table = manager.create_table("lake.s", str(tmp_path / "s"), SCHEMA, data=rows(1))
    table.append(rows(2))
    clone = table.clone(tmp_path / "c", shallow=shallow)
    assert ids(clone) == ids(table) == [(1,), (2,)]
    assert "catalogManaged" not in clone.snapshot().table_features
    assert not {key for key in clone.snapshot().metadata.configuration if "catalog" in key.lower()}
    clone.append(rows(3))
    assert ids(clone) == [(1,), (2,), (3,)] and errors(clone) == []
    with manager.transaction() as transaction, pytest.raises(CallError, match="in a transaction"):
        transaction.table("lake.s").clone(tmp_path / "x")
