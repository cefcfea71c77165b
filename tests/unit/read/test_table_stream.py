"""TableStream on real stores: batches, restarts, errors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import (
    CallError,
    CorruptTableError,
    DeltaTable,
    SchemaMismatchError,
    TimestampOutOfRangeError,
    VersionNotFoundError,
)
from deltalog.engine import StreamOffset
from deltalog.errors import InvalidDataFileError, MissingVersionError

COLUMNS = pa.schema([("id", pa.int64())])


def ids(*values: int) -> pa.Table:
    return pa.table({"id": values}, COLUMNS)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    properties = {"delta.enableInCommitTimestamps": "true", "delta.enableChangeDataFeed": "true"}
    return DeltaTable.create(tmp_path / "table", COLUMNS, properties=properties, data=ids(1, 2))


def read(table: DeltaTable, start: StreamOffset | None = None, **options: Any) -> tuple[list[int], StreamOffset]:
    """The ids in a whole stream, and the last offset. A new TableStream plans each batch."""
    limits = {name: options.pop(name) for name in ("max_files", "max_bytes") if name in options}
    at, found = start or table.stream(**options).first_offset(), list[int]()
    while True:
        stream = DeltaTable.open(table.url).stream(**options)
        end = stream.latest_offset(at, **limits)
        if end == at:
            return found, at
        files = stream.files(at, end)
        reader = pickle.loads(pickle.dumps(stream.reader))
        rows = pa.Table.from_batches(reader.batches(pickle.loads(pickle.dumps(files))), reader.arrow_schema)
        found += rows["id"].to_pylist()
        at = StreamOffset.from_json(end.to_json())


def test_each_file_once(table: DeltaTable) -> None:
    for each in range(3, 8):
        table.append(ids(each))
    found, at = read(table, max_files=2)
    assert found == [1, 2, 3, 4, 5, 6, 7]
    table.append(ids(8))
    table.checkpoint()
    assert read(table, at, max_bytes=1)[0] == [8]
    assert read(table, starting_version=6)[0] == [8]
    assert read(table, starting_version="latest")[0] == []


def test_files_of_the_first_snapshot_stay_the_same_while_the_table_changes(table: DeltaTable) -> None:
    table.append(ids(3))
    stream = table.stream()
    middle = stream.latest_offset(stream.first_offset(), max_files=1)
    assert middle.is_initial and middle.index == 1
    table.append(ids(4))
    found, _ = read(table, middle, max_files=1)
    assert found == [3, 4]


def test_a_first_batch_that_is_repeated_has_the_same_files(table: DeltaTable) -> None:
    table.append(ids(3))
    stream = table.stream()
    end = stream.latest_offset(stream.first_offset(), max_files=1)
    table.delete("id = 3")
    again = DeltaTable.open(table.url).stream()
    files = again.files(again.first_offset(), end)
    assert pa.Table.from_batches(again.reader.batches(files))["id"].to_pylist() == [1, 2]


def test_it_ends_where_it_is_told_to(table: DeltaTable) -> None:
    stream = table.stream()
    until, at = stream.latest_offset(), stream.first_offset()
    table.append(ids(3))
    assert stream.latest_offset(at, max_files=9, until=until) == stream.latest_offset(at, until=until) == until
    assert stream.latest_offset(until, max_files=9, until=until) == until


def test_times_by_the_in_commit_timestamps(table: DeltaTable) -> None:
    second = table.append(ids(3))
    table.append(ids(4))
    assert read(table, starting_timestamp=second.timestamp_ms)[0] == [3, 4]
    assert table.stream(starting_timestamp=second.timestamp_ms + 1).first_offset().version == 2
    with pytest.raises(TimestampOutOfRangeError):
        table.stream(starting_timestamp=second.timestamp_ms + 10**9).first_offset()
    with pytest.raises(CallError, match="not both"):
        table.stream(starting_timestamp=1, starting_version=1)
    with pytest.raises(VersionNotFoundError, match="versions 0 to 2"):
        table.stream(starting_version=9).first_offset()


def test_changes_of_rows(table: DeltaTable) -> None:
    table.update({"id": "id + 10"}, "id = 2")
    stream = table.stream(read_change_feed=True)
    start = table.stream(read_change_feed=True, starting_version=0).first_offset()
    files = stream.files(start, stream.latest_offset(start))
    rows = pa.Table.from_batches(stream.reader.batches(files), stream.arrow_schema)
    found = sorted(zip(*(rows[name].to_pylist() for name in ("_commit_version", "_change_type", "id")), strict=True))
    assert found == [
        (0, "insert", 1),
        (0, "insert", 2),
        (1, "update_postimage", 12),
        (1, "update_preimage", 2),
    ]
    assert (
        rows.select(["_commit_timestamp"]).schema
        == table.changes(0).arrow_schema.empty_table().select(["_commit_timestamp"]).schema
    )
    table.set_properties({"delta.enableChangeDataFeed": "false"})
    with pytest.raises(CallError, match="off at version 2"):
        stream.files(start, stream.latest_offset(start))
    with pytest.raises(CallError, match="off at version 2"):
        table.stream(read_change_feed=True)


def test_other_columns(table: DeltaTable) -> None:
    stream = table.stream()
    at = stream.latest_offset()
    table.append(pa.table({"id": [3], "more": ["x"]}), merge_schema=True)
    with pytest.raises(SchemaMismatchError, match="Restart the stream"):
        stream.files(at, stream.latest_offset(at))
    again = table.stream()
    files = again.files(at, again.latest_offset(at))
    assert pa.Table.from_batches(again.reader.batches(files)).to_pylist() == [{"id": 3, "more": "x"}]
    table.overwrite(pa.table({"id": ["text"]}), overwrite_schema=True)
    later = table.stream(skip_change_commits=True)
    with pytest.raises(SchemaMismatchError, match="new checkpoint"):
        later.files(at, later.latest_offset(at))


def test_log_clean_up(table: DeltaTable) -> None:
    start = table.stream(starting_version=0).first_offset()
    first = table.stream().first_offset()
    table.append(ids(3))
    table.append(ids(4))
    table.checkpoint()
    for version in (0, 1):
        (Path(table.url) / "_delta_log" / f"{version:020d}.json").unlink()
    for at in (start, first):
        with pytest.raises(MissingVersionError, match="failOnDataLoss=false"):
            read(table, at, max_files=5)
    assert read(table, start, fail_on_data_loss=False)[0] == [4]


def test_other_tables_and_older_copies(table: DeltaTable, tmp_path: Path) -> None:
    other = DeltaTable.create(tmp_path / "other", COLUMNS)
    with pytest.raises(CallError, match="created again"):
        table.stream().files(other.stream().first_offset(), other.stream().latest_offset())
    table.append(ids(3))
    end = table.stream().latest_offset()
    (Path(table.url) / "_delta_log" / f"{1:020d}.json").unlink()
    (Path(table.url) / "_delta_log" / f"{1:020d}.crc").unlink()
    with pytest.raises(CorruptTableError, match="older copy"):
        DeltaTable.open(table.url).stream().files(end, end)


def test_files_with_other_numbers_of_rows_are_refused(table: DeltaTable) -> None:
    import pyarrow.parquet as pq

    [file] = Path(table.url).glob("*.parquet")
    pq.write_table(ids(1), file)
    with pytest.raises(InvalidDataFileError, match="has 1 live rows"):
        read(table)
