"""Rewriting rows into new files, with one thread and with several threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from deltalog import CommitResult, DeltaTable
from deltalog.log.file_tables import add_actions
from deltalog.protocol.actions import AddFile
from deltalog.rows import matched_rows
from deltalog.rows.matched_rows import FileChange, in_range
from deltalog.write import partition_files
from tests.support.core import environment, memory

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int64())])
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
ROWS = 120
NAMES = [*SCHEMA.names, "_metadata.row_id", "_metadata.row_commit_version"]

SOURCE = pa.table({"id": range(0, 200, 5), "p": ["b"] * 40, "n": range(40)}, schema=SCHEMA)
VERBS: Mapping[str, Callable[[DeltaTable], CommitResult]] = {
    "delete": lambda table: table.delete("id % 7 = 1"),
    "update": lambda table: table.update({"n": "n + 1000", "p": "CASE WHEN id % 2 = 0 THEN 'b' ELSE p END"}, "id > 29"),
    "update of whole files": lambda table: table.update({"n": "-n"}, "p <> 'c'"),
    "merge": lambda table: (
        table.merge(SOURCE, "target.id = source.id")
        .when_matched_delete("target.id % 3 = 0")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"n": "-n"}, "target.id % 9 = 1")
        .execute()
    ),
}  # fmt: skip


def changed(verb: str, with_vectors: bool) -> tuple[list[Any], CommitResult, int]:
    """The rows after an operation on a table whose files have deletion vectors."""
    table = DeltaTable.create(memory(), SCHEMA, properties=PROPERTIES, partition_by=["p"], environment=environment())
    for start in range(0, ROWS, 30):
        numbers = range(start, start + 30)
        table.append(pa.table({"id": numbers, "p": ["abc"[n % 3] for n in numbers], "n": numbers}, schema=SCHEMA))
    table.delete("id % 10 = 4")
    if not with_vectors:
        table.set_properties({"delta.enableDeletionVectors": "false"})
    result = VERBS[verb](table)
    snapshot = table.snapshot()
    rows = snapshot.scan(NAMES).to_arrow().sort_by([("id", "ascending"), ("n", "ascending")]).to_pylist()
    return rows, result, snapshot.files().num_rows


def old_values(row: dict[str, Any]) -> dict[str, Any]:
    """A row, with None in place of its row id if the row is new."""
    return {**row, "_metadata.row_id": row["_metadata.row_id"] if row["id"] < ROWS else None}


@pytest.mark.parametrize("with_vectors", [False, True], ids=["moved", "vectors"])
@pytest.mark.parametrize("verb", VERBS)
def test_several_threads_write_the_rows_of_one(verb: str, with_vectors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, result, files = changed(verb, with_vectors)
    monkeypatch.setattr(matched_rows, "_LEAST_STREAM_BYTES", 1)
    monkeypatch.setattr(matched_rows, "_MOST_STREAM_BYTES", 1)
    monkeypatch.setattr(matched_rows, "num_writers", lambda: 3)
    monkeypatch.setattr(partition_files, "num_writers", lambda: 3)
    by_threads, other, more_files = changed(verb, with_vectors)
    assert [old_values(row) for row in by_threads] == [old_values(row) for row in rows]
    assert len({row["_metadata.row_id"] for row in by_threads}) == len(by_threads)
    counts = [name for name in result.operation_metrics if "Rows" in name]
    assert [other.operation_metrics[name] for name in counts] == [result.operation_metrics[name] for name in counts]
    assert more_files > files or (verb == "delete" and with_vectors)


@pytest.mark.parametrize("with_vectors", [False, True], ids=["moved", "vectors"])
@pytest.mark.parametrize("verb", VERBS)
def test_small_batches_give_the_same_rows(verb: str, with_vectors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, result, files = changed(verb, with_vectors)
    monkeypatch.setattr(matched_rows, "_BATCH_ROWS", 3)
    in_small_batches, other, more_files = changed(verb, with_vectors)
    assert (in_small_batches, more_files) == (rows, files)
    counts = [name for name in result.operation_metrics if "Rows" in name]
    assert [other.operation_metrics[name] for name in counts] == [result.operation_metrics[name] for name in counts]


def test_rows_are_moved_in_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matched_rows, "_BATCH_ROWS", 8)
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    table.append(pa.table({"id": range(20), "p": ["a"] * 20, "n": range(20)}, schema=SCHEMA))
    snapshot = table.snapshot()
    [file] = add_actions(snapshot.files())
    changed_rows = BitMap64([3, 9])
    change = FileChange(file, in_range(0, 20) - changed_rows, changed_rows, 20)
    seen: list[tuple[int, list[int]]] = []

    def new_rows(old: pa.RecordBatch, at: int) -> list[pa.RecordBatch]:
        seen.append((at, old.column("id").to_pylist()))
        return [old]

    [stream] = matched_rows.moved_rows(snapshot, [change], new_rows)
    assert [batch.num_rows for batch in stream] == [7, 1, 7, 1, 4]
    assert seen == [(0, [3]), (1, [9])]


def test_whether_most_rows_are_written_again_decides_on_the_threads_that_read() -> None:
    file = AddFile(path="x", partition_values={}, size=1000, modification_time=0, data_change=True)
    few, most = (FileChange(file, BitMap64(), in_range(0, rows), 20) for rows in (2, 18))
    assert [matched_rows._writes_most(each) for each in ([few], [most], [few, most], [few, few, most])] == [
        False, True, False, False,
    ]  # fmt: skip
