"""Empty datasets of the write contract, and when data becomes visible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, Dataset, DeltaTable, StoreError, TableNotFoundError, VersionNotFoundError
from deltalog.errors import (
    BlobTableRequiredError,
    EmptyDatasetError,
    MissingRecordsError,
    MissingVersionError,
    NotFoundError,
    RowTableRequiredError,
    VersionConflictError,
)
from deltalog.protocol.paths import commit_path
from deltalog.storage import LogStore
from deltalog.testing.stores import CountingStore, Fault, FaultyStore, nth
from tests.support.core import SCHEMA, Clock, environment, ids, memory, overtaken, rows


@pytest.fixture
def empty(any_store: LogStore) -> Dataset:
    return Dataset(any_store, schema=SCHEMA, environment=environment())


def test_an_empty_dataset_has_no_latest_version(empty: Dataset) -> None:
    with pytest.raises(EmptyDatasetError) as caught:
        empty.latest()
    assert isinstance(caught.value, TableNotFoundError) and isinstance(caught.value, LookupError)


def test_an_empty_dataset_has_an_empty_list_of_snapshots(empty: Dataset) -> None:
    assert empty.snapshots() == []


def test_an_empty_dataset_has_no_snapshot_of_any_id(empty: Dataset) -> None:
    for version in (0, 7):
        with pytest.raises(VersionNotFoundError) as caught:
            empty.snapshot(version)
        assert isinstance(caught.value, NotFoundError) and caught.value.latest is None


def test_a_snapshot_that_is_not_there_is_not_found(table: DeltaTable, store: LogStore) -> None:
    for call in (table.snapshot, Dataset(store).snapshot):
        with pytest.raises(VersionNotFoundError):
            call(1)


def test_looking_at_an_empty_dataset_creates_nothing(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path / "nothing")
    assert dataset.snapshots() == [] and not (tmp_path / "nothing").exists()


FIRST_WRITES: dict[str, Callable[[Dataset], Any]] = {
    "write": lambda dataset: dataset.write(rows(1)),
    "records": lambda dataset: dataset.stream_write_records([{"id": 1, "name": "n1"}]),
    "batches": lambda dataset: dataset.stream_write_records(rows(1).to_reader()),
}


@pytest.mark.parametrize("name", FIRST_WRITES)
def test_the_first_write_is_the_first_snapshot(empty: Dataset, name: str) -> None:
    snapshot = FIRST_WRITES[name](empty)
    summary = snapshot.commit_summary
    assert (snapshot.version, summary.parent, summary.row_count, summary.metadata) == (0, None, 1, {})
    assert summary.created_ms == snapshot.in_commit_timestamp_ms is not None
    assert empty.latest().version == 0 and empty.snapshots() == [summary]
    assert empty.write(rows(2)).commit_summary.parent == 0
    assert ids(empty.table()) == [1, 2]


@pytest.mark.parametrize("by_stream", [True, False])
def test_the_first_bytes_make_a_table_of_blobs(store: LogStore, by_stream: bool) -> None:
    dataset = Dataset(store)
    if by_stream:
        with dataset.stream_write() as writer:
            writer.write(b"first")
            assert dataset.snapshots() == []
            snapshot = writer.commit()
    else:
        snapshot = dataset.write(b"first")
    assert (snapshot.version, snapshot.commit_summary.row_count) == (0, 1)
    assert dataset.write(b"second").version == 1
    assert [dataset.open_blob(version=version).read() for version in (0, 1)] == [b"first", b"second"]
    with pytest.raises(RowTableRequiredError):
        dataset.write(rows(1))


def test_a_first_stream_that_is_given_up_leaves_no_table(tmp_path: Path) -> None:
    dataset = Dataset(tmp_path / "table")
    with dataset.stream_write() as writer:
        writer.write(b"bytes")
    assert dataset.snapshots() == [] and not list(tmp_path.rglob("*.json"))


def test_a_dataset_of_rows_takes_no_bytes_first_either(empty: Dataset) -> None:
    for call in (empty.stream_write, lambda: empty.write(b"bytes")):
        with pytest.raises(BlobTableRequiredError):
            call()
    assert empty.snapshots() == []


class Once:
    """A stream that can be read only once, like the result of a query."""

    def __init__(self, data: pa.Table) -> None:
        self._left = [data]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._left.pop().__arrow_c_stream__(requested_schema)


def test_records_need_a_schema_when_they_are_the_first(store: LogStore) -> None:
    dataset = Dataset(store)
    with pytest.raises(CallError, match="schema="):
        dataset.stream_write_records([{"id": 1}])
    with pytest.raises(MissingRecordsError):
        dataset.stream_write_records(None)
    assert dataset.snapshots() == []


@pytest.mark.parametrize("verb", ["write", "stream_write_records"])
def test_a_stream_is_asked_for_once(store: LogStore, verb: str) -> None:
    dataset = Dataset(store)
    for version in range(2):
        asked = Once(rows(version))
        assert getattr(dataset, verb)(asked).version == version
    assert ids(dataset.table()) == [0, 1]


def test_the_first_write_makes_the_table_that_was_asked_for(store: LogStore) -> None:
    properties = {"delta.columnMapping.mode": "name", "delta.enableInCommitTimestamps": "false"}
    dataset = Dataset(store, schema=SCHEMA, partition_by=["name"], properties=properties)
    snapshot = dataset.write(rows(1, 2))
    assert snapshot.partition_columns == ("name",) and not snapshot.in_commit_timestamps_enabled
    assert snapshot.commit_summary.created_ms is not None
    assert ids(dataset.table()) == [1, 2]


def test_there_is_nothing_in_the_way_where_only_files_were_left(store: LogStore) -> None:
    store.put("part-stray.parquet", b"")
    assert Dataset(store).snapshots() == [] and Dataset(store).write(rows(1)).version == 0


# --------------------------------------------------------------------------------------------- concurrent first writes


@pytest.mark.parametrize("retry_count", [0, 2])
def test_the_first_write_of_two_is_the_parent_of_the_other(retry_count: int) -> None:
    store = memory()
    mine = overtaken(store, lambda: Dataset(store, schema=SCHEMA, environment=environment()).write(rows(1)))
    dataset = Dataset(mine, schema=SCHEMA, environment=environment())
    if not retry_count:
        with pytest.raises(VersionConflictError) as caught:
            dataset.write(rows(2))
        assert (caught.value.expected_parent, caught.value.winning_version) == (None, 0)
        assert ids(dataset.table()) == [1]
        return
    snapshot = dataset.write(rows(2), retry_count=retry_count)
    assert (snapshot.version, snapshot.commit_summary.parent) == (1, 0) and ids(dataset.table()) == [1, 2]
    assert len(Dataset(DeltaTable.open(store)).snapshots()) == 2


def test_bytes_that_were_sent_before_another_writer_was_first_are_not_sent_again() -> None:
    store = memory()
    mine = CountingStore(overtaken(store, lambda: Dataset(store, environment=environment()).write(b"theirs")))
    snapshot = Dataset(mine, environment=environment()).write(b"mine", retry_count=1)
    assert (snapshot.version, snapshot.commit_summary.parent) == (1, 0)
    assert [Dataset(DeltaTable.open(store)).open_blob(version=version).read() for version in (0, 1)] == [
        b"theirs",
        b"mine",
    ]
    sent = [path for method, path in mine.calls.elements() if method == "open_output" and path.startswith("_blobs/")]
    assert len(sent) == 1


def test_a_first_write_that_names_a_parent_is_refused(empty: Dataset) -> None:
    with pytest.raises(VersionConflictError, match="version 3 was expected"):
        empty.write(rows(1), expected_parent=3)
    assert empty.snapshots() == []


# ---------------------------------------------------------------------------------------------------------- visibility


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, None])
def test_a_version_is_there_when_its_commit_file_is(fault: Fault | None) -> None:
    store = memory()
    Dataset(store).write(rows(0))
    seen: list[tuple[bool, int]] = []

    def look(call: Any) -> None:
        if call.method in ("put_if_absent", "open_output"):
            there = store.head(commit_path(1)) is not None
            seen.append((there, DeltaTable.open(store).version))

    decide = nth(1, fault, method="put_if_absent") if fault else (lambda call: None)
    table = DeltaTable.open(FaultyStore(store, decide, before=look))
    if fault:
        with pytest.raises(StoreError):
            Dataset(table).write(rows(1))
    else:
        assert Dataset(table).write(rows(1)).version == 1
    look(type("After", (), {"method": "put_if_absent"}))
    assert seen == [(False, 0), (False, 0), (fault is None, int(fault is None))]


def test_a_version_whose_commit_file_is_gone_has_no_commit_summary() -> None:
    clock, store = Clock(), memory()
    dataset = Dataset(store, environment=environment(clock))
    for number in range(12):
        snapshot = dataset.write(rows(number))
    early = dataset.snapshot(3)
    dataset.table().checkpoint()
    for version in range(5):
        store.delete(commit_path(version))
    assert [summary.version for summary in dataset.snapshots()] == list(range(5, 12))
    assert snapshot.commit_summary.version == 11
    with pytest.raises(MissingVersionError):
        _ = early.commit_summary


def test_the_columns_of_the_first_write_are_those_of_the_data(store: LogStore) -> None:
    data = pa.table({"n": [1], "s": ["a"]})
    assert Dataset(store).write(data).schema.names == ["n", "s"]
