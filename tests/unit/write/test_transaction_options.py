"""``DeltaTable.with_options``: entries of commitInfo, hooks and attempts of a table's commits."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.errors import CallError

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def table(tmp_path):
    return DeltaTable.create(str(tmp_path), ROWS.schema, properties={"delta.checkpointInterval": "1"})


def test_entries_of_commit_info_are_in_every_commit(table) -> None:
    changed = table.with_options(commit_info={"job": {"id": 7}, "operationParameters": {"x": 1, "mode": "mine"}})
    changed.append(ROWS)
    changed.delete("id = 1")
    deleted, appended, created = table.history()
    assert (deleted.commit_info["job"], appended.commit_info["job"]) == ({"id": 7}, {"id": 7})
    assert appended.operation_parameters == {"x": "1", "mode": "Append", "partitionBy": "[]"}
    assert "job" not in created.commit_info
    table.append(ROWS)
    assert "job" not in table.history(1)[0].commit_info


@pytest.mark.parametrize(
    "entries",
    [
        {"timestamp": 1}, {"inCommitTimestamp": 1}, {"operation": "x"}, {"engineInfo": "x"}, {"txnId": "x"},
        {"deltalog": {}}, {"readVersion": 1.0}, {"readVersion": True}, {"isolationLevel": "None"},
        {"isBlindAppend": 1}, {"userMetadata": {}}, {"operationParameters": []}, {"x": b"not JSON"}, {1: 2},
    ],
    ids=str,
)  # fmt: skip
def test_entries_that_the_commit_writes_or_json_cannot_hold_are_refused(table, entries) -> None:
    with pytest.raises(CallError):
        table.with_options(commit_info=entries)


def test_no_entry_says_what_the_commit_is_not(table) -> None:
    claimed = {"isBlindAppend": True, "isolationLevel": "SnapshotIsolation"}
    table.append(ROWS)
    table.with_options(commit_info=claimed).delete("id = 1")
    entry = table.history(1)[0]
    assert (entry.is_blind_append, entry.isolation_level) == (False, "Serializable")


def test_checkpoints_can_be_left_to_others(table, tmp_path) -> None:
    table.with_options(checkpoint=False).append(ROWS)
    assert not list((tmp_path / "_delta_log").glob("*.checkpoint*"))
    table.append(ROWS)
    assert [path.name for path in (tmp_path / "_delta_log").glob("*.checkpoint.parquet")] == [
        f"{2:020}.checkpoint.parquet"
    ]


def test_missing_files_are_removed_and_kept_versions_stay(tmp_path) -> None:
    table = DeltaTable.create(str(tmp_path), ROWS.schema)
    for number in range(3):
        table.overwrite(pa.table({"id": [number]}))
    report = table.vacuum(0, enforce_retention_duration=False, keep_versions=[1])
    assert len(report.files) == 1
    [path] = table.snapshot().files()["path"].to_pylist()
    assert table.remove_missing_files() == ()
    (tmp_path / path).unlink()
    assert table.remove_missing_files() == (path,)
    assert table.version == 3
    assert table.remove_missing_files(dry_run=False) == (path,)
    assert (table.version, table.to_pyarrow_table().num_rows) == (4, 0)
