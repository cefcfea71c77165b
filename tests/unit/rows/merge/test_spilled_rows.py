"""Sources of merges that are spilled to temporary files because they do not fit in memory. Random merges are tested in
test_merge_model.py."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, StoreError
from deltalog.rows.merge import merge as merge_module
from deltalog.rows.merge import source as merge_source
from deltalog.rows.merge.chunked_rows import ChunkedRows, partition_numbers
from deltalog.rows.merge.spilled_rows import HashPartitions, SpilledRows
from deltalog.write.row_writer import RowWriter
from tests.support.core import environment, memory

SCHEMA = pa.schema([("id", pa.int64()), ("t", pa.string())])
ON = "target.id = source.id"
ROWS = 3000


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files. Thresholds are lowered so that every merge source is treated as large."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, value in (
        ("SPILL_BYTES", 4 << 10),
        ("KEY_BYTES", 4 << 10),
        ("_CHUNK_BYTES", 1 << 10),
        ("_CHUNK_ROWS", 64),
    ):
        monkeypatch.setattr(merge_source, name, value)
    return tmp_path


def mapped_files(place: Path) -> int:
    """The number of files in the directory that this process has mapped into memory, including files that are already
    unlinked."""
    return sum(str(place) in line for line in Path("/proc/self/maps").read_text().splitlines())


def batches(first: int = 0) -> Iterator[pa.RecordBatch]:
    for start in range(first, ROWS, 100):
        yield pa.record_batch({"id": range(start, start + 100), "t": [f"new {n}" for n in range(start, start + 100)]})


def table_of() -> DeltaTable:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    for start in range(0, ROWS, 500):
        table.append(pa.table({"id": range(start, start + 250), "t": ["old"] * 250}, schema=SCHEMA))
    return table


def test_a_stream_is_merged_through_files_that_have_no_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, real = table_of(), RowWriter.write_updates
    seen: list[tuple[int, list[str]]] = []

    def write(self: Any, *given: Any) -> Any:
        seen.append((mapped_files(place), os.listdir(place)))
        return real(self, *given)

    monkeypatch.setattr(RowWriter, "write_updates", write)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(1000))
    merger = table.merge(reader, ON).when_matched_update_all().when_not_matched_insert_all()
    merger.when_not_matched_by_source_delete("target.id < 100").execute()
    found = {row["id"]: row["t"] for row in table.snapshot().scan().to_arrow().to_pylist()}
    old = [n for n in range(100, 1000) if n % 500 < 250]
    assert found == {**dict.fromkeys(old, "old"), **{n: f"new {n}" for n in range(1000, ROWS)}}
    assert len(seen) == 1 and seen[0][0] == 2 and seen[0][1] == []
    del reader, merger
    assert os.listdir(place) == [] and mapped_files(place) == 0


def test_nothing_is_left_after_a_failure(place: Path) -> None:
    table = table_of()

    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches()
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        reader = pa.RecordBatchReader.from_batches(SCHEMA, failing())
        table.merge(reader, ON).when_matched_update_all().execute()
    with pytest.raises(CallError, match="cannot be computed for a row"):
        reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
        table.merge(reader, ON).when_matched_update({"id": "source.t"}).execute()
    del reader
    assert os.listdir(place) == [] and mapped_files(place) == 0 and table.version == 6


def test_a_directory_without_room_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "gone"))
    with pytest.raises(StoreError, match=r"gone.*Nothing was committed.*TMPDIR"):
        table.merge(pa.Table.from_batches(batches()), ON).when_matched_delete().execute()
    assert table.version == 6


def test_large_sources_need_an_equality(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_module, "_MAX_UNKEYED", 50)
    table, source = table_of(), pa.Table.from_batches(batches())
    with pytest.raises(CallError, match="no equality between source and table, and 3000 rows"):
        table.merge(source, "target.id < source.id").when_not_matched_insert_all().execute()
    table.merge(source, "target.id > source.id AND source.id < 10").when_matched_delete().execute()
    assert table.snapshot().scan().to_arrow().num_rows == 1
    table.merge(source, "false").when_not_matched_insert_all().execute()
    assert table.snapshot().scan().to_arrow().num_rows == 1 + ROWS


def test_rows_come_back_as_they_were_written() -> None:
    spilled = SpilledRows(SCHEMA)
    given = list(batches())
    assert [spilled.add(batch) for batch in given] == list(range(len(given)))
    assert spilled.batch(7).equals(given[7]) and spilled.table().equals(pa.Table.from_batches(given))
    rows, rng = ChunkedRows.from_table(spilled.table()), random.Random(3)
    numbers = pa.array(rng.choices(range(ROWS), k=500), pa.int64())
    for wanted in (numbers, numbers.slice(100, 7), numbers.slice(0, 0)):
        assert rows.take(wanted).equals(rows.rows.take(wanted))
    assert rows.take(numbers, ["t"]).equals(rows.rows.select(["t"]).take(numbers))


UTC = dt.timezone.utc
VALUES: tuple[tuple[pa.DataType, list[Any]], ...] = (
    (pa.int64(), [n * 2**20 for n in range(4000)]),
    (pa.int8(), list(range(-100, 100))),
    (pa.float64(), [n / 7 for n in range(4000)]),
    (pa.string(), [f"https://example.org/a/rather/long/path/{n}/index.html" for n in range(4000)]),
    (pa.string(), [str(n) for n in range(4000)]),
    (pa.binary(), [n.to_bytes(16, "little") for n in range(4000)]),
    (pa.decimal128(20, 2), [decimal.Decimal(n) / 4 for n in range(4000)]),
    (pa.date32(), [dt.date(2000, 1, 1) + dt.timedelta(n) for n in range(4000)]),
    (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2000, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(n) for n in range(4000)],
    ),
)


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_partitions_depend_on_values_alone_and_are_even(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array([*values, None], kind)
    numbers = partition_numbers({"k": column}, 8).to_pylist()
    alone = [partition_numbers({"k": column.slice(at, 1)}, 8)[0].as_py() for at in (0, 5, 77, len(values))]
    assert alone == [numbers[at] for at in (0, 5, 77, len(values))]
    assert max(Counter(numbers[:-1]).values()) < 1.6 * len(values) / 8
    both = partition_numbers({"k": column, "other": pa.nulls(len(column), pa.string())}, 8).to_pylist()
    assert max(Counter(both).values()) < 1.6 * len(values) / 8


def test_partitions_hold_each_row_once() -> None:
    rows = pa.Table.from_batches(batches())
    partitions = HashPartitions(rows.schema, 4)
    for start in range(0, ROWS, 700):
        some = rows.slice(start, 700)
        partitions.add(some, partition_numbers({"id": some["id"]}, 4))
    found = [pa.Table.from_batches(partitions.read(number)) for number in range(4)]
    assert all(each.num_rows for each in found)
    assert pa.concat_tables(found).sort_by("id").equals(rows.combine_chunks())
    for number, each in enumerate(found):
        assert set(partition_numbers({"id": each["id"]}, 4).to_pylist()) == {number}


def test_texts_of_other_programs_whose_offsets_do_not_start_at_0_are_read_back() -> None:
    """Arrow's Rust libraries write slices whose offsets do not start at 0."""
    offsets = pa.array([3, 5, 5, 8], pa.int32()).buffers()[1]
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"0123456789")])
    batch = pa.record_batch({"id": [1, 2, 3], "t": texts}, schema=SCHEMA)
    spilled = SpilledRows(SCHEMA)
    spilled.add(batch)
    assert spilled.batch(0).to_pylist() == batch.to_pylist()
