from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError, SchemaMismatchError
from deltalog.schema import StructType
from deltalog.write_contract import records as records_module
from deltalog.write_contract.records import record_batches

SCHEMA = StructType.from_arrow(pa.schema([("id", pa.int64()), ("name", pa.string())]))


def batches(records: Any, *filled: str, schema: StructType = SCHEMA) -> list[pa.RecordBatch]:
    return list(record_batches(records, schema, frozenset(filled)))


def test_batches_grow_with_the_number_of_records() -> None:
    found = batches({"id": number} for number in range(1000))
    assert [batch.num_rows for batch in found[:3]] == [64, 128, 256]
    assert [id for batch in found for id in batch.column("id").to_pylist()] == list(range(1000))
    assert found[0].schema.names == ["id", "name"] and found[0].column("name").null_count == 64


def test_batches_of_large_records_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "_BATCH_BYTES", 1 << 10)
    found = batches({"id": number, "name": "x" * 1000} for number in range(200))
    assert max(batch.num_rows for batch in found[1:]) == 1


def test_no_record_is_pulled_before_the_batch_before_it_is_taken() -> None:
    pulled = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal pulled
        for number in range(1000):
            pulled = number + 1
            yield {"id": number}

    first = next(record_batches(counted(), SCHEMA, frozenset()))
    assert (first.num_rows, pulled) == (64, 65)


def test_columns_that_the_table_fills_in_are_left_out_where_they_are_absent() -> None:
    found = batches([{"id": 1}, {"id": 2, "name": "b"}, {"id": 3, "name": None}, {"id": 4}], "name")
    assert [batch.schema.names for batch in found] == [["id"], ["id", "name"], ["id"]]
    assert [batch.to_pylist() for batch in found] == [
        [{"id": 1}], [{"id": 2, "name": "b"}, {"id": 3, "name": None}], [{"id": 4}],
    ]  # fmt: skip


def test_record_batches_pass_as_they_are_in_order() -> None:
    given = pa.record_batch({"id": [7]})
    found = batches([{"id": 1}, given, {"id": 2}])
    assert [batch.column("id").to_pylist() for batch in found] == [[1], [7], [2]] and found[1] is given
    with pytest.raises(SchemaMismatchError):
        batches([pa.record_batch({"id": ["x"]})])


@pytest.mark.parametrize("given", [5, [5], ["text"], [None]], ids=str)
def test_what_is_no_record(given: Any) -> None:
    with pytest.raises(CallError):
        batches(given)


def test_a_column_that_the_table_does_not_have_is_named() -> None:
    with pytest.raises(SchemaMismatchError, match=r"'nmae'.*id, name"):
        batches([{"id": 1, "nmae": "a"}])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 1.5),
        (pa.int32(), 2**31),
        (pa.float32(), 1e39),
        (pa.date32(), dt.datetime(2026, 1, 1, 1)),
        (pa.timestamp("us"), dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)),
        (pa.struct([("a", pa.int64())]), {"a": 1, "b": 2}),
        (pa.list_(pa.int64()), [1, 2.5]),
        (pa.map_(pa.string(), pa.int64()), {"a": 1.5}),
    ],
    ids=str,
)
def test_a_value_that_would_be_kept_in_part_is_refused(kind: pa.DataType, value: Any) -> None:
    schema = StructType.from_arrow(pa.schema([("v", kind)]))
    with pytest.raises(SchemaMismatchError, match="column v"):
        batches([{"v": value}], schema=schema)


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (pa.int64(), 2.0, 2),
        (pa.float64(), float("inf"), float("inf")),
        (pa.date32(), dt.datetime(2026, 1, 1), dt.date(2026, 1, 1)),
        (pa.struct([("a", pa.int64())]), {}, {"a": None}),
        (pa.list_(pa.int64()), (1, 2), [1, 2]),
    ],
    ids=str,
)
def test_a_value_that_is_whole_is_kept(kind: pa.DataType, value: Any, kept: Any) -> None:
    schema = StructType.from_arrow(pa.schema([("v", kind)]))
    (batch,) = batches([{"v": value}], schema=schema)
    assert batch.column("v").to_pylist() == [kept]
