"""Row ids for files that were written before row tracking was enabled."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from deltalog import CommitConflictError, DeltaTable
from deltalog.alter import row_id_backfill
from deltalog.errors import InvalidDataFileError, InvalidPropertyError
from deltalog.log.file_tables import add_actions
from deltalog.protocol.actions import AddFile
from deltalog.protocol.paths import commit_path
from deltalog.testing.stores import Fault, FaultyStore, SimulatedKill, nth
from tests.support.core import environment, memory

ON = {"delta.enableRowTracking": "true"}
SUSPENDED = {"delta.rowTrackingSuspended": "true"}
ID, VERSION = "_metadata.row_id", "_metadata.row_commit_version"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids}, pa.schema([("id", pa.int64())]))


def create(store: Any = None, files: int = 5, **properties: str) -> DeltaTable:
    """A table with two rows in each file."""
    given = {f"delta.{name}": value for name, value in properties.items()}
    made = DeltaTable.create(
        memory() if store is None else store, rows().schema, properties=given, environment=environment()
    )
    for number in range(files):
        made.append(rows(2 * number, 2 * number + 1))
    return made


def operations(table: DeltaTable) -> list[str]:
    return [str(entry.operation) for entry in reversed(table.history())]


def tracked(table: DeltaTable) -> dict[int, tuple[int, int]]:
    """The row id and row commit version of each row, keyed by the column ``id``."""
    found = table.snapshot().scan(["id", ID, VERSION]).to_arrow().to_pylist()
    assert len({row[ID] for row in found}) == len(found)
    return {row["id"]: (row[ID], row[VERSION]) for row in found}


def test_files_are_added_again_with_row_ids() -> None:
    table = create(enableDeletionVectors="true")
    table.delete("id = 3")
    before, version = table.snapshot().files(), table.version
    table.set_properties(ON)
    expected = ["UPGRADE PROTOCOL", "ROW TRACKING BACKFILL", "SET TBLPROPERTIES"]
    assert operations(table)[version + 1 :] == expected
    after = table.snapshot().files()
    kept = [name for name in before.column_names if name not in ("base_row_id", "default_row_commit_version")]
    assert sorted(before.select(kept).to_pylist(), key=str) == sorted(after.select(kept).to_pylist(), key=str)
    found = tracked(table)
    assert sorted(found) == [0, 1, 2, *range(4, 10)]
    assert {commit for _, commit in found.values()} == {version + 2}
    table.append(rows(10))
    assert tracked(table)[10] == (10, table.version)


def test_the_rows_of_every_version_and_the_change_feed_stay() -> None:
    table = create(enableChangeDataFeed="true")
    last = table.version
    table.set_properties(ON)
    assert table.snapshot(version=last).scan().to_arrow()["id"].to_pylist() == list(range(10))
    assert table.version == last + 3
    assert table.changes(last + 1).to_arrow().num_rows == 0


def test_many_files_take_several_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_id_backfill, "FILES_PER_COMMIT", 2)
    table = create()
    table.set_properties(ON)
    assert operations(table)[6:] == ["UPGRADE PROTOCOL", *3 * ["ROW TRACKING BACKFILL"], "SET TBLPROPERTIES"]
    assert [entry.operation_parameters for entry in table.history() if "BACKFILL" in str(entry.operation)] == [
        {"batchId": str(batch)} for batch in (2, 1, 0)
    ]
    assert len(tracked(table)) == 10


def test_nothing_is_added_again_where_all_files_have_ids() -> None:
    table = create(files=0)
    table.set_properties({**ON, "owner": "you"})
    table.append(rows(1))
    table.set_properties({"delta.enableRowTracking": "false"})
    table.set_properties(ON)
    assert "ROW TRACKING BACKFILL" not in operations(table) and "UPGRADE PROTOCOL" not in operations(table)


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any], times: int = 1) -> None:
    """Call ``change``, which commits as another writer, while a batch is being prepared."""
    real, left = row_id_backfill._counted, [times]

    def counted(*given: Any) -> list[AddFile]:
        if left[0]:
            left[0] -= 1
            change()
        return real(*given)

    monkeypatch.setattr(row_id_backfill, "_counted", counted)


def test_files_that_others_remove_or_rewrite_meanwhile_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for change in (
        lambda other: other.delete("id < 4"),
        lambda other: other.optimize.compact(),
        lambda other: other.append(rows(10, 11)),
        lambda other: other.set_properties(ON),
    ):
        table = create()
        other = DeltaTable.open(table._handle.reader.store, environment=environment())
        with monkeypatch.context() as patched:
            meanwhile(patched, lambda change=change, other=other: change(other))  # type: ignore[misc]
            table.set_properties(ON)
        found = table.snapshot().scan().to_arrow()["id"].to_pylist()
        assert len(set(found)) == len(found) and sorted(tracked(table)) == sorted(found)
        assert sorted(found) == sorted(other.snapshot().scan().to_arrow()["id"].to_pylist())


def test_endless_conflicts_end_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(files=30)
    other = DeltaTable.open(table._handle.reader.store, environment=environment())
    ids = iter(range(0, 60, 2))
    meanwhile(monkeypatch, lambda: other.delete(f"id = {next(ids)}"), times=99)
    with pytest.raises(CommitConflictError, match="adds again"):
        table.set_properties(ON)
    assert "delta.enableRowTracking" not in table.snapshot().metadata.configuration


def test_an_interrupted_run_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_id_backfill, "FILES_PER_COMMIT", 2)
    store = memory()
    create(store)
    faulty = FaultyStore(store, nth(1, Fault.KILL_BEFORE, method="put_if_absent", path=commit_path(8)))
    with pytest.raises(SimulatedKill):
        DeltaTable.open(faulty, environment=environment()).set_properties(ON)
    table = DeltaTable.open(store, environment=environment())
    assert table.snapshot().files()["base_row_id"].null_count == 3
    table.append(rows(10, 11))
    table.set_properties(ON)
    assert sorted(tracked(table)) == list(range(12))


def test_rows_of_files_without_statistics_are_counted() -> None:
    table = create(files=2)
    files = add_actions(table.snapshot().files())
    with table.transaction() as transaction:
        transaction.remove([file.path for file in files])
        transaction.commit("DELETE")
    with table.transaction() as transaction:
        bare = [msgspec.structs.replace(file, stats=text) for file, text in zip(files, (None, "{}"), strict=True)]
        transaction.add(*bare, known=True)
        transaction.commit("WRITE")
    table.set_properties(ON)
    assert [json.loads(text) for text in table.snapshot().files()["stats"].to_pylist()] == [{"numRecords": 2}] * 2
    assert sorted(id for id, _ in tracked(table).values()) == [0, 1, 2, 3]


def test_a_file_that_cannot_be_counted_is_named() -> None:
    store = memory()
    table = create(store, files=1)
    (file,) = add_actions(table.snapshot().files())
    with table.transaction() as transaction:
        transaction.remove([file.path])
        transaction.add(msgspec.structs.replace(file, path="gone.parquet", stats=None), known=True)
        transaction.commit("WRITE")
    with pytest.raises(InvalidDataFileError, match=r"gone\.parquet"):
        table.set_properties(ON)


def test_suspended_row_ids() -> None:
    table = create(files=1)
    with pytest.raises(InvalidPropertyError, match="cannot both be true"):
        table.set_properties({**ON, **SUSPENDED})
    table.add_feature("rowTracking")
    table.set_properties(SUSPENDED)
    table.append(rows(2))
    assert table.snapshot().files()["base_row_id"].null_count == 2
    with pytest.raises(InvalidPropertyError, match="cannot both be true"):
        table.set_properties(ON)
    table.unset_properties(["delta.rowTrackingSuspended"])
    table.set_properties(ON)
    assert sorted(tracked(table)) == [0, 1, 2]
    with pytest.raises(InvalidPropertyError, match="cannot both be true"):
        table.set_properties(SUSPENDED)
