"""Data that can be read only once, such as a stream, is written exactly once. Passing a stream that was already read
raises an error, instead of writing no rows."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, CommitConflictError, Dataset, DeltaTable, SchemaMismatchError
from deltalog.write import input_streams
from tests.support.core import SCHEMA, environment, ids, memory, overtaken, rows
from tests.support.transactions import A, bank, content
from tests.support.transactions import rows as accounts

VERBS: dict[str, Callable[[DeltaTable, Any], Any]] = {
    "append": lambda table, data: table.append(data),
    "append with a merge": lambda table, data: table.append(data, merge_schema=True),
    "overwrite": lambda table, data: table.overwrite(data),
    "overwrite with a schema": lambda table, data: table.overwrite(data, overwrite_schema=True),
    "overwrite where": lambda table, data: table.overwrite(data, where="id > 5"),
    "overwrite partitions": lambda table, data: table.overwrite(data, partitions="dynamic"),
    "write": lambda table, data: Dataset(table).write(data),
    "stage": lambda table, data: table.commit_staged([table.stage(data)]),
    "stage with times": lambda table, data: table.stage(data, timestamp_column=None),
    "create": lambda table, data: DeltaTable.create(memory(), SCHEMA, data=data),
    "dataset": lambda table, data: Dataset(memory()).write(data),
    "transaction": lambda table, data: _in_transaction(table, data),
}
RECORDS: dict[str, Callable[[DeltaTable, Any], Any]] = {
    "stream": lambda table, data: Dataset(table).stream_write_records(data),
    "dataset": lambda table, data: Dataset(memory(), schema=SCHEMA).stream_write_records(data),
}
ONE_PASS: dict[str, Callable[[], Any]] = {
    "generator": lambda: ({"id": n} for n in (6, 7)),
    "iterator of a list": lambda: iter([{"id": 6}, {"id": 7}]),
    "map": lambda: map(dict, [[("id", 6)], [("id", 7)]]),
    "chain": lambda: itertools.chain([{"id": 6}], [{"id": 7}]),
    "batches": lambda: iter(rows(6, 7).to_batches()),
    "reader": lambda: rows(6, 7).to_reader(),
}


def _in_transaction(table: DeltaTable, data: Any) -> None:
    with table.transaction() as transaction:
        transaction.write(data)
        transaction.commit()


def create() -> DeltaTable:
    return DeltaTable.create(memory(), SCHEMA, partition_by=["name"], environment=environment(), data=rows(1))


@pytest.mark.parametrize("again", list(VERBS))
@pytest.mark.parametrize("first", ["append", "overwrite where", "dataset", "transaction"])
def test_a_reader_is_written_once(first: str, again: str) -> None:
    table, reader = create(), rows(6, 7).to_reader()
    VERBS[first](table, reader)
    version, before = table.version, ids(table)
    with pytest.raises(CallError, match="RecordBatchReader was read before"):
        VERBS[again](table, reader)
    assert (table.snapshot().version, ids(table)) == (version, before)


@pytest.mark.parametrize("verb", list(RECORDS))
@pytest.mark.parametrize("kind", list(ONE_PASS))
def test_records_that_are_pulled_are_pulled_once(verb: str, kind: str) -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    records = ONE_PASS[kind]()
    assert RECORDS[verb](table, records).commit_summary.row_count == 2
    version = table.version
    with pytest.raises(CallError, match="was read before"):
        RECORDS[verb](table, records)
    assert table.snapshot().version == version


@pytest.mark.parametrize("where", [None, "id > 5"])
def test_a_repetition_after_a_conflict_is_no_write_without_rows(where: str | None) -> None:
    inner = memory()
    DeltaTable.create(inner, SCHEMA, environment=environment(), data=rows(1, 6))
    table = DeltaTable.open(
        overtaken(inner, lambda: DeltaTable.open(inner).append(rows(50))), environment=environment()
    )
    reader = rows(7, 8).to_reader()
    with pytest.raises(CallError, match="inside the repeated function") as raised:
        table.retrying(lambda t: t.overwrite(reader, where=where))
    assert isinstance(raised.value.__cause__, CommitConflictError)
    assert ids(table) == [1, 6, 50]
    table.retrying(lambda t: t.overwrite(rows(7, 8).to_reader(), where=where))
    assert ids(table) == ([1, 7, 8] if where else [7, 8])


def test_a_reader_that_failed_half_way_is_not_taken_for_the_rest() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(2).to_batches()
        raise OSError("the source is gone")

    table = create()
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    with pytest.raises(OSError, match="the source is gone"):
        table.append(reader)
    with pytest.raises(CallError, match="was read before"):
        table.append(reader)
    assert ids(table) == [1]


def test_a_reader_that_was_refused_unread_can_be_written() -> None:
    table, reader = create(), rows(2).to_reader()
    other = DeltaTable.create(memory(), pa.schema([("x", pa.int64())]))
    with pytest.raises(SchemaMismatchError):
        other.append(reader)
    table.append(reader)
    assert ids(table) == [1, 2]


def test_an_empty_reader_is_a_write_without_rows() -> None:
    table = create()
    assert table.append(pa.RecordBatchReader.from_batches(SCHEMA, [])).version == 1
    assert table.append(rows().to_reader()).version == 2
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    assert Dataset(table).stream_write_records(iter([])).version == 1
    with pytest.raises(CallError, match="was read before"):  # whoever read it
        Dataset(DeltaTable.create(memory(), SCHEMA)).stream_write_records(_closed())


def _closed() -> Iterator[Any]:
    generator = ({"id": n} for n in (1, 2))
    list(generator)
    return generator


def test_tables_and_lists_can_be_written_again() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    other = DeltaTable.create(memory(), SCHEMA, data=rows(1))
    for data in (rows(1), rows(1).to_batches()[0], other.snapshot().scan()):
        table.append(data)
        table.append(data)
    for records in ([{"id": 2}], ({"id": 3},), rows(4).to_batches()):
        Dataset(table).stream_write_records(records)
        Dataset(table).stream_write_records(records)
    assert ids(table) == [*[1] * 6, 2, 2, 3, 3, 4, 4]


def test_a_transaction_over_tables_takes_a_reader_once() -> None:
    manager, reader = bank(), accounts((3, 30)).to_reader()
    with manager.transaction() as transaction:
        transaction.table(A).append(reader)
    with manager.transaction() as transaction:
        with pytest.raises(CallError, match="was read before"):
            transaction.table(A).append(reader)
        transaction.commit()
    assert content(manager.table(A)) == [(1, 100), (2, 50)]


def test_readers_are_not_kept() -> None:
    table, reader = create(), rows(2).to_reader()
    table.append(reader)
    seen = weakref.ref(reader)
    del reader
    gc.collect()
    assert seen() is None
    for number in range(30):
        Dataset(DeltaTable.create(memory(), SCHEMA)).stream_write_records(iter([{"id": number}]))
    assert len(input_streams._read_strong) <= 8


def test_a_reader_of_another_library_that_is_closed_is_refused_by_name() -> None:
    arro3 = pytest.importorskip("arro3.core")
    table, reader = create(), arro3.RecordBatchReader.from_arrow(rows(2))
    table.append(reader)
    with pytest.raises(CallError, match="cannot be read as an Arrow stream"):
        table.append(reader)
    assert ids(table) == [1, 2]
