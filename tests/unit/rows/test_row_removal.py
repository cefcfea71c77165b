"""Removal of rows that another engine has found, either by deletion vectors or by new files to which that engine has
written the remaining rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import deltalog

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def create_table(path: Path, **properties: str) -> deltalog.DeltaTable:
    rows = pa.table({"id": pa.array(range(10), pa.int64())})
    table = deltalog.DeltaTable.create(str(path), rows.schema, properties=properties)
    table.append(rows)
    table.append(pa.table({"id": pa.array(range(10, 13), pa.int64())}))
    return table


def ids(table: deltalog.DeltaTable) -> list[int]:
    return sorted(table.snapshot().scan().to_arrow()["id"].to_pylist())


def by_first_id(files: pa.Table) -> list[int]:
    """The row numbers of the two files in ``files``: the file with ids 0 to 9 first, then the one with ids 10 to 12."""
    return sorted(range(files.num_rows), key=lambda number: '"id":10' in files["stats"][number].as_py().split("max")[0])


def test_rows_are_masked(tmp_path: Path) -> None:
    table = create_table(tmp_path / "table", **VECTORS)
    for more in ({1, 2}, {0, 9}):
        with table.transaction() as transaction:
            files = transaction.find_files()
            first, second = by_first_id(files)
            removal = deltalog.engine.RowRemoval(transaction, files, {first: BitMap64(more), second: BitMap64()})
            assert (removal.by_vectors, list(removal.whole), list(removal.partly)) == (True, [], [first])
            assert (removal.num_rows, removal.num_moved_rows, removal.needs_change_files) == (2, 0, False)
            effect = removal.stage()
            transaction.commit("DELETE")
        assert effect["numDeletedRows"] == 2 and effect["numDeletionVectorsAdded"] == 1
    assert effect["numDeletionVectorsUpdated"] == 1
    assert ids(table) == [3, 4, 5, 6, 7, 8, 10, 11, 12]


def test_a_file_without_rows_left_is_removed(tmp_path: Path) -> None:
    table = create_table(tmp_path / "table", **VECTORS)
    table.delete("id = 11")
    with table.transaction() as transaction:
        files = transaction.find_files("id >= 10")
        removal = deltalog.engine.RowRemoval(transaction, files, {0: BitMap64([0, 2])})
        assert (list(removal.whole), removal.num_rows) == ([0], 2)
        assert removal.stage()["numRemovedFiles"] == 1
        transaction.commit("DELETE")
    assert ids(table) == list(range(10))


def test_others_rows_are_moved_by_the_caller_with_change_files(tmp_path: Path) -> None:
    table = create_table(tmp_path / "table", **FEED)
    with table.transaction() as transaction:
        files = transaction.find_files("id < 10")
        removal = deltalog.engine.RowRemoval(transaction, files, {0: BitMap64([4])})
        assert (removal.by_vectors, removal.num_moved_rows, removal.needs_change_files) == (False, 9, True)
        assert removal.has_change_feed and removal.kept_columns is None
        kept = pa.table({"id": pa.array([n for n in range(10) if n != 4], pa.int64())})
        pq.write_table(kept, tmp_path / "table/kept.parquet")
        (tmp_path / "table/_change_data").mkdir()
        change = pa.table({"id": pa.array([4], pa.int64()), "_change_type": ["delete"]})
        pq.write_table(change, tmp_path / "table/_change_data/one.parquet")
        removal.stage()
        transaction.add_parquet_files([("kept.parquet", {})], checked=True, owned=True, num_rows=9)
        described = transaction.add_parquet_files(
            [("_change_data/one.parquet", {})], owned=True, num_rows=1, as_changes=True
        )
        assert [each.path for each in described] == ["_change_data/one.parquet"]
        assert [each.path for each in transaction.staged.adds] == ["kept.parquet"]
        transaction.commit("DELETE")
    assert ids(table) == [n for n in range(13) if n != 4]
    assert table.changes(table.version).to_arrow().select(["id", "_change_type"]).to_pylist() == [
        {"id": 4, "_change_type": "delete"}
    ]


def test_change_files_are_removed_when_the_transaction_is_left(tmp_path: Path) -> None:
    table = create_table(tmp_path / "table", **FEED)
    change = tmp_path / "table/_change_data/one.parquet"
    change.parent.mkdir()
    pq.write_table(pa.table({"id": pa.array([4], pa.int64()), "_change_type": ["delete"]}), change)
    with table.transaction() as transaction:
        transaction.add_parquet_files([("_change_data/one.parquet", {})], owned=True, as_changes=True)
    assert not change.exists()


@pytest.mark.parametrize("positions", [[10], [3, 1 << 40], [5]])
def test_positions_that_are_no_live_rows_are_refused(tmp_path: Path, positions: list[int]) -> None:
    table = create_table(tmp_path / "table", **VECTORS)
    table.delete("id = 5")
    with (
        table.transaction() as transaction,
        pytest.raises(deltalog.errors.RowCountError, match="which has 10 rows, 1 of them deleted"),
    ):
        deltalog.engine.RowRemoval(transaction, transaction.find_files("id < 10"), {0: BitMap64(positions)})


def test_files_without_statistics_are_counted_by_their_footers(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(10), pa.int64())})
    table = deltalog.DeltaTable.create(str(tmp_path / "table"), rows.schema, properties=VECTORS)
    pq.write_table(rows, tmp_path / "table/a.parquet")
    size = (tmp_path / "table/a.parquet").stat().st_size
    with table.transaction() as transaction:
        add = deltalog.engine.AddFile(
            path="a.parquet", partition_values={}, size=size, modification_time=0, data_change=True
        )
        transaction.add(add)
        transaction.commit("WRITE")
    with table.transaction() as transaction:
        removal = deltalog.engine.RowRemoval(transaction, transaction.find_files(), {0: BitMap64([9])})
        removal.stage()
        transaction.commit("DELETE")
    assert ids(table) == list(range(9))
    (stats,) = table.snapshot().files(["stats"])["stats"].to_pylist()
    assert '"numRecords":10' in stats and '"tightBounds":false' in stats


def test_an_append_only_table_is_refused(tmp_path: Path) -> None:
    table = create_table(tmp_path / "table", **{"delta.appendOnly": "true"})
    wrong: Any = {}
    with table.transaction() as transaction, pytest.raises(deltalog.errors.InvalidActionError):
        deltalog.engine.RowRemoval(transaction, transaction.find_files(), wrong)
    with table.transaction() as transaction:
        assert deltalog.engine.RowRemoval(transaction, transaction.find_files(), {}, adds_only=True).is_empty
        with pytest.raises(deltalog.CallError, match="removes no rows"):
            deltalog.engine.RowRemoval(transaction, transaction.find_files(), {0: BitMap64([1])}, adds_only=True)
