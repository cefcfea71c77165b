"""Streams of rows are written to a separate file for each partition."""

from __future__ import annotations

import io
import json
import math
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable, SchemaMismatchError
from deltalog.errors import RowCountError
from deltalog.storage.memory import MemoryStore
from deltalog.write import partition_files
from deltalog.write.transaction import Transaction
from tests.support.core import environment, memory, objects

SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string()), ("x", pa.float64())])


@pytest.fixture
def store() -> MemoryStore:
    return memory()


@pytest.fixture
def transaction(store: MemoryStore) -> Iterator[Transaction]:
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"], environment=environment())
    with table.transaction() as transaction:
        yield transaction


def batch(first: int, partitions: str, x: float = 1.0) -> pa.RecordBatch:
    """One row for each letter."""
    listed = [{"n": first + at, "p": p, "x": x} for at, p in enumerate(partitions)]
    return pa.RecordBatch.from_pylist(listed, schema=SCHEMA)


def held(store: MemoryStore, adds: Any) -> list[tuple[str, list[int], list[int]]]:
    """For each file, its partition, its values of n, and the number of rows in each row group."""
    found = []
    for add in adds:
        file = pq.ParquetFile(io.BytesIO(store.get(add.path)))
        groups = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
        found.append((add.partition_values["p"], file.read(["n"])["n"].to_pylist(), groups))
    return found


def test_rows_that_follow_each_other_are_one_file_of_several_groups(
    store: MemoryStore, transaction: Transaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_files, "GROUP_BYTES", 48)
    stream = [batch(0, "aaa"), batch(3, "aabb"), batch(7, "bbb")]
    adds = transaction.row_writer.write_copies([stream], 10)
    assert held(store, adds) == [("a", [0, 1, 2, 3, 4], [3, 2]), ("b", [5, 6, 7, 8, 9], [5])]
    bounds = [json.loads(add.stats or "")["maxValues"]["n"] for add in adds]
    assert bounds == [4, 9] and transaction.row_writer.written_paths == tuple(add.path for add in adds)


def test_rows_of_other_partitions_wait_until_they_are_many(
    store: MemoryStore, transaction: Transaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = [batch(3 * at, "aab") for at in range(4)]
    everything = [("a", [0, 1, 3, 4, 6, 7, 9, 10], [8]), ("b", [2, 5, 8, 11], [4])]
    assert held(store, transaction.row_writer.write_copies([stream], 12)) == everything
    monkeypatch.setattr(partition_files, "HELD_BYTES", 96)
    found = held(store, transaction.row_writer.write_copies([stream], 12))
    assert [(p, numbers) for p, numbers, _ in found] == [
        ("a", [0, 1, 3, 4]), ("b", [2, 5, 8, 11]), ("a", [6, 7, 9, 10]),
    ]  # fmt: skip


def test_rows_with_nan_begin_a_file_without_bounds(
    store: MemoryStore, transaction: Transaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_files, "GROUP_BYTES", 1)
    stream = [batch(0, "a"), batch(1, "a", math.nan), batch(2, "a", 7.0)]
    adds = transaction.row_writer.write_copies([stream], 3)
    assert held(store, adds) == [("a", [0], [1]), ("a", [1, 2], [1, 1])]
    assert [json.loads(add.stats or "")["maxValues"] for add in adds] == [{"n": 0, "x": 1.0}, {"n": 2}]


def test_streams_are_written_side_by_side(
    store: MemoryStore, transaction: Transaction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_files, "num_writers", lambda: 3)
    meeting = threading.Barrier(3, timeout=60)

    def stream(number: int) -> Iterator[pa.RecordBatch]:
        meeting.wait()  # blocks unless the streams run concurrently
        yield batch(number, "ab"[number % 2])

    adds = transaction.row_writer.write_copies([stream(number) for number in range(3)], 3)
    assert held(store, adds) == [("a", [0], [1]), ("b", [1], [1]), ("a", [2], [1])]


@pytest.mark.parametrize("wrong", [pa.record_batch({"n": ["x"]}), 7], ids=["another type", "no batch"])
def test_streams_that_fail_leave_no_file(store: MemoryStore, transaction: Transaction, wrong: Any) -> None:
    before = set(objects(store))
    good: list[Any] = [batch(0, "aab")]
    with pytest.raises(Exception, match=r"n \(string\)|record batches"):
        transaction.row_writer.write_copies([good, [*good, wrong], good], 9)
    with pytest.raises(RowCountError):
        transaction.row_writer.write_copies([good, good], 5)
    transaction.row_writer.discard()
    assert set(objects(store)) == before


def test_an_open_file_is_removed(store: MemoryStore, transaction: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_files, "GROUP_BYTES", 1)
    before = set(objects(store))

    def stream() -> Iterator[pa.RecordBatch]:
        yield batch(0, "a")
        yield batch(1, "a")
        yield pa.record_batch({"n": ["x"]})

    with pytest.raises(SchemaMismatchError):
        transaction.row_writer.write_copies([stream()], 3)
    assert set(objects(store)) == before and transaction.row_writer.written_paths == ()
