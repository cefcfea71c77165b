"""Restoring tables to an earlier version: the rows, schema and properties afterwards, and what a restore does not
change."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from deltalog import CallError, DeltaTable, SchemaMismatchError, TimestampOutOfRangeError, VersionNotFoundError
from deltalog.errors import ConcurrentAppendError, ConcurrentTransactionError, InvalidActionError, InvalidDataFileError
from deltalog.log.file_tables import add_actions
from deltalog.maintenance.restore import restore
from deltalog.protocol import deletion_vectors
from deltalog.protocol.column_mapping import MAX_ID_KEY, MODE_KEY
from deltalog.protocol.paths import commit_path
from deltalog.schema import StructType
from tests.support.core import ICT, NOW, SCHEMA, Clock, action, environment, ids, info, lines, memory, overtaken, rows


@pytest.fixture
def store() -> Any:
    return memory()


def create(
    store: Any, properties: dict[str, str] | None = None, clock: Clock | None = None, **options: Any
) -> DeltaTable:
    return DeltaTable.create(
        store, SCHEMA, properties=properties, data=rows(1, 2), environment=environment(clock), **options
    )


def paths(table: DeltaTable, version: int | None = None) -> set[str]:
    return set(table.snapshot(version).files()["path"].to_pylist())


def test_rows_come_back_and_go(store: Any) -> None:
    table = create(store)
    table.append(rows(3))
    table.overwrite(rows(4, 5, 6))
    result = table.restore(1)
    assert ids(table) == ids(DeltaTable.open(store)) == [1, 2, 3] and paths(table) == paths(table, 1)
    assert (result.version, result.added_files, result.removed_files, result.files_after) == (1, 2, 1, 2)
    assert result.commit is not None and result.commit.version == 3
    added = [line["add"] for line in lines(store, 3) if "add" in line]
    assert all(add["dataChange"] for add in added) and sum(add["size"] for add in added) == result.added_bytes
    removed = action(store, 3, "remove")
    assert removed is not None and removed["dataChange"] and removed["size"] == result.removed_bytes
    body = info(store, 3)
    assert body["operation"] == "RESTORE" and not body["isBlindAppend"]
    assert body["operationParameters"] == {"version": "1", "timestamp": "null"}
    assert body["operationMetrics"] == {
        "numRestoredFiles": "2", "restoredFilesSize": str(result.added_bytes),
        "numRemovedFiles": "1", "removedFilesSize": str(result.removed_bytes),
        "numOfFilesAfterRestore": "2", "tableSizeAfterRestore": str(result.bytes_after),
        "numOutputRows": "3", "numDeletedRows": "3",
    }  # fmt: skip
    table.restore(2)
    assert ids(table) == [4, 5, 6]


def test_only_the_difference_is_written(store: Any) -> None:
    table = create(store)
    table.append(rows(3))
    result = table.restore(0)
    assert (result.added_files, result.removed_files) == (0, 1) and action(store, 2, "add") is None


def test_a_point_in_time(store: Any) -> None:
    clock = Clock()
    table = create(store, ICT, clock)
    clock.now_ms += 60_000
    table.append(rows(3))
    result = table.restore(timestamp=NOW + 1)
    assert result.version == 0 and ids(table) == [1, 2]
    assert info(store, 2)["operationParameters"] == {"version": "null", "timestamp": "2026-09-21T14:13:20.001Z"}
    for wrong in ({}, {"version": 0, "timestamp": NOW}):
        with pytest.raises(CallError, match="version or the timestamp"):
            table.restore(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TimestampOutOfRangeError):
        table.restore(timestamp=NOW - 1)
    with pytest.raises(VersionNotFoundError):
        table.restore(9)


def test_schema_partitioning_and_properties_come_back(store: Any) -> None:
    table = create(store, {"owner": "me"}, partition_by=["name"], description="then")
    before = table.snapshot().metadata
    with table.transaction() as transaction:
        transaction.remove_all_files()
        transaction.set_schema(StructType.from_arrow(pa.schema([("other", pa.float64())])), [])
        transaction.set_properties({"owner": "you", "delta.checkpointInterval": "3"})
        transaction.set_metadata(description="now")
        transaction.commit("TEST")
    result = table.restore(0)
    assert table.snapshot().metadata == before and result.changes_metadata
    assert ids(table) == [1, 2]


def test_nothing_to_do_makes_no_commit(store: Any) -> None:
    table = create(store)
    result = table.restore(0)
    assert result.changes_nothing and result.commit is not None and result.commit.skipped and table.version == 0


def test_a_dry_run_commits_nothing(store: Any) -> None:
    table = create(store)
    table.overwrite(rows(9))
    gone = paths(table, 0).pop()
    store.delete(gone)
    result = table.restore(0, dry_run=True)
    assert result.commit is None and result.missing_files == (gone,) and result.removed_files == 1
    assert table.version == 1 and ids(table) == [9]


def test_files_that_are_gone(store: Any) -> None:
    table = create(store)
    table.append(rows(3))
    table.overwrite(rows(9))
    gone = paths(table, 0).pop()
    store.delete(gone)
    with pytest.raises(
        InvalidDataFileError, match=r"1 of its files no longer exist.*ignore_missing_files=True"
    ) as caught:
        table.restore(1)
    assert caught.value.facts["path"] == gone and table.version == 2
    result = table.restore(1, ignore_missing_files=True)
    assert ids(table) == [3] and result.missing_files == (gone,) and result.files_after == 1
    assert result.bytes_after == table.snapshot().size_bytes


def test_a_file_behind_another_deletion_vector_is_another_file(store: Any) -> None:
    table = create(store, {"delta.enableDeletionVectors": "true"})
    file = table.snapshot().files()
    vector = deletion_vectors.inline(deletion_vectors.encode(BitMap64([0])), 1)
    (add,) = add_actions(file)
    with table.transaction() as transaction:
        transaction.remove_files(file)
        transaction.add(msgspec.structs.replace(add, deletion_vector=vector, data_change=True))
        transaction.commit("DELETE")
    assert ids(table) == [2]
    result = table.restore(0)
    assert ids(table) == [1, 2] and (result.added_files, result.removed_files) == (1, 1)
    table.restore(1)
    assert ids(table) == [2]
    assert table.snapshot().files()["deletion_vector"].null_count == 0


def test_in_commit_timestamps_stay_on(store: Any) -> None:
    clock = Clock()
    table = create(store, {}, clock)
    table.enable_in_commit_timestamps()
    pair = {k: v for k, v in table.snapshot().metadata.configuration.items() if "Enablement" in k}
    clock.now_ms -= 5_000
    table.append(rows(3))
    table.restore(0)
    snapshot = DeltaTable.open(store).snapshot()
    assert snapshot.in_commit_timestamps_enabled and ids(table) == [1, 2]
    assert pair and pair.items() <= snapshot.metadata.configuration.items()
    times = [entry.timestamp_ms or 0 for entry in table.history(3)]
    assert times == sorted(times, reverse=True) and len(set(times)) == 3


def test_in_commit_timestamps_stay_off(store: Any) -> None:
    table = create(store, ICT)
    table.append(rows(3))
    table.disable_in_commit_timestamps()
    table.restore(0)
    assert not table.snapshot().in_commit_timestamps_enabled and ids(table) == [1, 2]
    assert not any("Enablement" in key for key in table.snapshot().metadata.configuration)


def test_the_protocol_is_never_lowered_and_what_files_need_returns(store: Any) -> None:
    table = create(store)
    table.set_properties({"delta.enableDeletionVectors": "true"})
    raised = table.snapshot().protocol
    table.restore(0)
    assert table.snapshot().protocol == raised
    assert "delta.enableDeletionVectors" not in table.snapshot().metadata.configuration


def test_progress_of_applications_stays_and_domains_return(store: Any) -> None:
    table = create(store)
    table.set_domain_metadata("mine", "then")
    table.set_domain_metadata("gone", "then")
    table.append(rows(3), txn=("app", 7))
    table.set_domain_metadata("mine", "now")
    table.remove_domain_metadata("gone")
    table.set_domain_metadata("new", "now")
    table.restore(2)
    snapshot = DeltaTable.open(store).snapshot()
    assert {d.domain: d.configuration for d in snapshot.domain_metadata} == {"mine": "then", "gone": "then"}
    assert snapshot.transaction_version("app") == 7 and ids(table) == [1, 2]
    assert table.append(rows(3), txn=("app", 7)).skipped


def test_renamed_and_dropped_columns_return(store: Any) -> None:
    table = create(store, {MODE_KEY: "name"})
    before = table.snapshot().schema
    table.rename_column("name", "label")
    table.drop_columns(["id"])
    table.add_columns(pa.schema([("id", pa.string())]))
    table.append(pa.table({"label": ["x"], "id": ["y"]}))
    table.restore(0)
    snapshot = table.snapshot()
    assert snapshot.schema == before and snapshot.scan().to_arrow().to_pylist() == rows(1, 2).to_pylist()
    # No id is reused, not even that of the column that existed before the restore.
    assert snapshot.metadata.configuration[MAX_ID_KEY] == "3"
    table.append(rows(3))
    assert ids(table) == [1, 2, 3]


def test_column_mapping_stays_on(store: Any) -> None:
    table = create(store, partition_by=["name"])
    table.set_properties({MODE_KEY: "name"})
    table.rename_column("id", "key")
    table.append(pa.table({"key": [3], "name": ["n3"]}))
    table.restore(0)
    snapshot = table.snapshot()
    assert snapshot.metadata.configuration[MODE_KEY] == "name" and snapshot.schema.names == ["id", "name"]
    assert ids(table) == [1, 2]
    numbers = [column.metadata["delta.columnMapping.id"] for column in snapshot.schema]
    assert len(set(numbers)) == 2 and int(snapshot.metadata.configuration[MAX_ID_KEY]) >= max(numbers)
    table.append(rows(4))
    assert ids(table) == [1, 2, 4]


def test_a_type_gets_narrow_again_with_its_rows(store: Any) -> None:
    narrow = pa.table({"v": pa.array([1], pa.int32())})
    table = DeltaTable.create(
        store, narrow.schema, properties={"delta.enableTypeWidening": "true"}, data=narrow, environment=environment()
    )
    table.set_column("v", data_type=pa.int64())
    table.append(pa.table({"v": [2**40]}))
    table.restore(0)
    assert table.snapshot().scan().to_arrow().equals(narrow)
    with pytest.raises(SchemaMismatchError):
        table.append(pa.table({"v": [2**40]}))


def test_row_ids_are_those_of_then_and_never_given_out_again(store: Any) -> None:
    table = create(store, {"delta.enableRowTracking": "true"})
    table.append(rows(3))
    tracked = ["id", "_metadata.row_id", "_metadata.row_commit_version"]
    before = table.snapshot().scan(tracked).to_arrow().to_pylist()
    table.overwrite(rows(4, 5))
    mark = table.snapshot().domain_metadata[0].configuration
    table.restore(1)
    assert table.snapshot().scan(tracked).to_arrow().to_pylist() == before
    assert table.snapshot().domain_metadata[0].configuration == mark
    table.append(rows(6))
    found = {row["id"]: row["_metadata.row_id"] for row in table.snapshot().scan(tracked).to_arrow().to_pylist()}
    assert found == {1: 0, 2: 1, 3: 2, 6: 5}


def test_an_append_meanwhile_is_a_conflict(store: Any) -> None:
    table = create(store)
    table.overwrite(rows(3))
    other = DeltaTable.open(store)
    with table.transaction() as transaction:
        target = table.snapshot(0)
        other.append(rows(4))
        with pytest.raises(ConcurrentAppendError):
            restore(transaction, target, None, False, False, None)
    assert ids(other) == [3, 4]


def test_an_append_meanwhile_is_a_conflict_at_every_isolation_level(store: Any) -> None:
    create(store, {"delta.isolationLevel": "WriteSerializable"}).overwrite(rows(3))
    other = DeltaTable.open(store)
    with pytest.raises(ConcurrentAppendError):
        DeltaTable.open(overtaken(store, lambda: other.append(rows(4)))).restore(0)
    assert ids(other) == [3, 4]
    assert DeltaTable.open(store).restore(0).commit is not None
    assert info(store, 3)["isolationLevel"] == "Serializable" and ids(other) == ids(other, version=0)


def test_a_commit_meanwhile_that_changes_no_rows_is_none(store: Any) -> None:
    first = create(store).snapshot()
    DeltaTable.open(store).append(rows(3))

    def rearrange() -> None:
        with DeltaTable.open(store).transaction() as transaction:
            moved = [msgspec.structs.replace(add, path=f"moved-{add.path}") for add in add_actions(first.files())]
            for add in moved:
                store.put(add.path, store.get(add.path.removeprefix("moved-")))
            transaction.remove_files(first.files(), data_change=False)
            transaction.add(*moved, known=True)
            transaction.commit("OPTIMIZE")

    table = DeltaTable.open(overtaken(store, rearrange))
    restored = table.restore(0)
    assert restored.commit is not None and (restored.commit.version, restored.commit.attempts) == (3, 2)
    assert ids(table) == ids(table, version=0) and table.snapshot().files()["path"][0].as_py().startswith("moved-")


def test_a_domain_that_changes_meanwhile_is_a_conflict(store: Any) -> None:
    table = create(store, {"delta.feature.domainMetadata": "supported"})
    table.append(rows(3))

    def other() -> None:
        DeltaTable.open(store).set_domain_metadata("mine", "1")

    with pytest.raises(ConcurrentTransactionError, match="'mine'"):
        DeltaTable.open(overtaken(store, other)).restore(0)
    table.restore(0)
    assert table.snapshot().domain_metadata == []


def test_an_append_only_table_loses_no_rows(store: Any) -> None:
    table = create(store, {"delta.appendOnly": "true"})
    table.append(rows(3))
    with pytest.raises(InvalidActionError, match="append-only"):
        table.restore(0)
    assert table.version == 1 and store.head(commit_path(2)) is None
