"""StreamWriteRecords of the write contract: pulls records one by one, in bounded memory, and commits all or none."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from deltalog import (
    CallError,
    CommitStateUnknownError,
    ConstraintViolationError,
    Dataset,
    DeltaTable,
    SchemaMismatchError,
    StoreError,
)
from deltalog.errors import (
    MissingRecordsError,
    RowTableRequiredError,
    UnpartitionedTableRequiredError,
    VersionConflictError,
)
from deltalog.schema import PrimitiveType, StructField, StructType
from deltalog.storage import LogStore
from deltalog.testing.stores import CountingStore, Fault, FaultyStore, nth
from deltalog.write import data_files as data_files_module
from tests.support.core import SCHEMA, environment, ids, info, memory, overtaken, rows


def records(count: int) -> Iterator[dict[str, Any]]:
    return ({"id": number, "name": f"n{number}"} for number in range(count))


def data_files(store: LogStore) -> list[str]:
    return [meta.name for meta in store.list_from("") if meta.name.startswith("part-")]


def test_all_records_are_one_version(any_store: LogStore) -> None:
    table = DeltaTable.create(any_store, SCHEMA)
    snapshot = Dataset(table).stream_write_records(records(20_000), {"from": "stream"})
    summary = snapshot.commit_summary
    assert (snapshot.version, summary.parent, summary.row_count) == (1, 0, 20_000)
    assert summary.metadata == {"from": "stream"}
    assert ids(table) == list(range(20_000))


def test_no_metadata_is_empty_metadata(table: DeltaTable, store: LogStore) -> None:
    Dataset(table).stream_write_records(records(1))
    assert info(store, 1)["deltalog"]["metadata"] == {}


def test_no_iterator_is_an_error_and_no_records_are_none(table: DeltaTable) -> None:
    for each in (table, DeltaTable.create_for_blobs(memory())):
        with pytest.raises(MissingRecordsError):
            Dataset(each).stream_write_records(None)
    assert table.snapshot().version == 0
    assert Dataset(table).stream_write_records([]).commit_summary.row_count == 0


@pytest.mark.parametrize("given", [3, "text", [1], [["id", 1]], [None]], ids=str)
def test_what_is_no_stream_of_records_is_refused(table: DeltaTable, store: LogStore, given: Any) -> None:
    with pytest.raises(CallError):
        Dataset(table).stream_write_records(given)
    assert table.snapshot().version == 0 and data_files(store) == []


def test_records_are_pulled_when_they_are_wanted(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is taken from the iterator only after the earlier records have been written to a file."""
    monkeypatch.setattr(data_files_module, "TARGET_BYTES", 1 << 16)
    pulled, ahead = 0, []
    written = data_files_module._write_file

    def write_file(store: LogStore, part: pa.Table, *rest: Any) -> Any:
        write_file.rows += part.num_rows  # type: ignore[attr-defined]
        ahead.append(pulled - write_file.rows)  # type: ignore[attr-defined]
        return written(store, part, *rest)

    write_file.rows = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(data_files_module, "_write_file", write_file)

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal pulled
        for record in records(100_000):
            pulled += 1
            yield record

    summary = Dataset(table).stream_write_records(counted()).commit_summary
    assert summary.row_count == pulled == 100_000 and len(summary.files) > 10
    assert max(ahead) <= 1  # the one record that is read ahead to detect that a batch is full


def test_a_table_of_blobs_has_no_form_for_records(blobs: DeltaTable) -> None:
    for call in (lambda: Dataset(blobs).stream_write_records(records(1)), lambda: blobs.stage(rows(1))):
        with pytest.raises(RowTableRequiredError, match="stream_write"):
            call()


def test_a_partitioned_table_is_refused_before_a_record_is_taken(store: LogStore) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["name"])
    stream = records(1)
    with pytest.raises(UnpartitionedTableRequiredError, match="name"):
        Dataset(table).stream_write_records(stream)
    assert next(stream)["id"] == 0 and data_files(store) == []


def test_each_file_is_written_once_to_a_new_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files_module, "TARGET_BYTES", 1 << 16)
    store = CountingStore(memory())
    table = DeltaTable.create(store, SCHEMA)
    paths: list[str] = []
    for _ in range(2):
        with store.counted() as calls:
            files = Dataset(table).stream_write_records(records(10_000)).commit_summary.files
        written = {path: count for (method, path), count in calls.items() if method == "open_output"}
        assert written == dict.fromkeys([file.path for file in files], 1) and len(files) > 1
        assert calls.of("delete") == 0
        paths += written
    assert len(set(paths)) == len(paths)


class Broken(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1, 9_000])
def test_an_iterator_that_raises_leaves_nothing(
    any_store: LogStore, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files_module, "TARGET_BYTES", 1 << 16)
    table = DeltaTable.create(any_store, SCHEMA)

    def breaking() -> Iterator[dict[str, Any]]:
        yield from records(after)
        raise Broken

    with pytest.raises(Broken):
        Dataset(table).stream_write_records(breaking())
    assert DeltaTable.open(any_store).version == 0 and data_files(any_store) == []


UNFIT = {
    "type": ({"id": "text"}, SchemaMismatchError),
    "fraction": ({"id": 1.5}, SchemaMismatchError),
    "too large": ({"id": 2**63}, SchemaMismatchError),
    "unknown": ({"id": 1, "nmae": "typo"}, SchemaMismatchError),
    "batch": (pa.record_batch({"other": [1]}), SchemaMismatchError),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_record_that_cannot_be_encoded_leaves_nothing(
    table: DeltaTable, store: LogStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files_module, "TARGET_BYTES", 1 << 16)
    record, error = UNFIT[name]
    with pytest.raises(error):
        Dataset(table).stream_write_records([*records(9_000), record])
    assert table.snapshot().version == 0 and data_files(store) == []


EAST = timezone(timedelta(hours=2))
LOSSES: dict[str, tuple[Any, pa.DataType]] = {
    "fraction": (1.5, pa.int32()),
    "decimal": (Decimal("0.1"), pa.int64()),
    "not a number": (math.nan, pa.int64()),
    "in a list": ([1, 1.5], pa.list_(pa.int64())),
    "in a struct": ({"a": 1.5}, pa.struct([("a", pa.int64())])),
    "no field": ({"a": 1, "b": 2}, pa.struct([("a", pa.int64())])),
    "in a map": ({"k": 1.5}, pa.map_(pa.string(), pa.int64())),
    "time of day": (datetime(2026, 11, 20, 1), pa.date32()),
    "part of a microsecond": (0.5, pa.timestamp("us", "UTC")),
    "too large": (1e39, pa.float32()),
    "digits": (Decimal("1.555"), pa.decimal128(5, 2)),
    "of no float": (2**53 + 1, pa.float64()),
    "fraction of a date": (0.5, pa.date32()),
    "a ratio": (Fraction(3, 2), pa.int64()),
    "no number": (Decimal("Infinity"), pa.int64()),
    "too large in a map": ([("k", 1e39)], pa.map_(pa.string(), pa.float32())),
    "in an entry of a map": ([{"key": "k", "value": 1.5}], pa.map_(pa.string(), pa.int64())),
    "no part of an entry": ([{"key": "k", "value": 1, "note": 2}], pa.map_(pa.string(), pa.int64())),
    "no field of pairs": ([("a", 1), ("zz", 2)], pa.struct([("a", pa.int64())])),
    "pairs in a list": ([[("a", 1)]], pa.list_(pa.struct([("a", pa.int64())]))),
    "zone": (datetime(2026, 11, 20, 1, tzinfo=EAST), pa.timestamp("us")),
    "no zone": (datetime(2026, 11, 20, 1), pa.timestamp("us", "UTC")),
    "no zone in a struct": ({"a": datetime(2026, 11, 20, 1)}, pa.struct([("a", pa.timestamp("us", "UTC"))])),
    "zone in a list": ([datetime(2026, 11, 20, 1, tzinfo=timezone.utc)], pa.list_(pa.timestamp("us"))),
    "zone of a day": (datetime(2026, 11, 20, tzinfo=EAST), pa.date32()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_of_a_value_is_lost_silently(name: str) -> None:
    value, data_type = LOSSES[name]
    table = DeltaTable.create(memory(), pa.schema([("x", data_type)]))
    with pytest.raises(SchemaMismatchError, match="column x"):
        Dataset(table).stream_write_records([{"x": value}])
    assert table.snapshot().version == 0


TIMES = pa.list_(pa.timestamp("us"))
NANOSECOND = "2026-11-20 00:00:00.000000001"
FOREIGN_LOSSES: dict[str, tuple[str, Callable[[Any], Any], pa.DataType]] = {
    "fraction": ("numpy", lambda numpy: numpy.float32(1.5), pa.int32()),
    "half": ("numpy", lambda numpy: numpy.float16(1.5), pa.int64()),
    "without a dimension": ("numpy", lambda numpy: numpy.array(1.5), pa.int64()),
    "of a microsecond": ("numpy", lambda numpy: numpy.array(0.5), pa.timestamp("us", "UTC")),
    "too large": ("numpy", lambda numpy: numpy.float64(1e39), pa.float32()),
    "in a list": ("numpy", lambda numpy: [1, numpy.float32(1.5)], pa.list_(pa.int32())),
    "array": ("numpy", lambda numpy: numpy.array([1.5], numpy.float32), pa.list_(pa.int32())),
    "array of doubles": ("numpy", lambda numpy: numpy.array([1.0, 1e39]), pa.list_(pa.float32())),
    "array of nanoseconds": ("numpy", lambda numpy: numpy.array([5], "datetime64[ns]"), TIMES),
    "array of days": ("numpy", lambda numpy: numpy.array(["2026-11-20"], "datetime64[D]"), TIMES),
    "nanoseconds": ("pandas", lambda pandas: pandas.Timestamp(NANOSECOND), pa.timestamp("us")),
    "with a zone": ("pandas", lambda pandas: pandas.Timestamp(NANOSECOND, tz="UTC"), pa.timestamp("us", "UTC")),
    "of a day": ("pandas", lambda pandas: pandas.Timestamp(NANOSECOND), pa.date32()),
    "in a series": ("pandas", lambda pandas: pandas.Series([pandas.Timestamp(NANOSECOND)]), TIMES),
    "no time": ("pandas", lambda pandas: pandas.NaT, pa.date32()),
}


@pytest.mark.parametrize("name", FOREIGN_LOSSES)
def test_nothing_of_the_values_of_other_libraries_is_lost_silently(name: str) -> None:
    library, made, data_type = FOREIGN_LOSSES[name]
    value = made(pytest.importorskip(library))
    table = DeltaTable.create(memory(), pa.schema([("x", data_type)]))
    with pytest.raises(SchemaMismatchError, match="column x"):
        Dataset(table).stream_write_records([{"x": value}])
    assert table.snapshot().version == 0


def test_values_of_other_libraries_that_fit_are_taken(store: LogStore) -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    noon = datetime(2026, 11, 20, 12)
    fitting = {
        "i": (numpy.float32(2), pa.int32(), 2),
        "j": (numpy.int64(3), pa.int64(), 3),
        "f": (numpy.float64(0.5), pa.float32(), 0.5),
        "n": (pandas.Timestamp(noon), pa.timestamp("us"), noon),
        "m": (numpy.datetime64(noon, "us"), pa.timestamp("us"), noon),
        "z": (pandas.Timestamp(noon, tz="UTC"), pa.timestamp("us", "UTC"), noon.replace(tzinfo=timezone.utc)),
        "d": (pandas.Timestamp("2026-11-20"), pa.date32(), date(2026, 11, 20)),
        "l": (numpy.array([1, 2]), pa.list_(pa.int32()), [1, 2]),
        "e": (numpy.array([0.5, numpy.inf], numpy.float32), pa.list_(pa.float32()), [0.5, math.inf]),
        "t": (numpy.array([noon], "datetime64[us]"), pa.list_(pa.timestamp("us")), [noon]),
        "s": (pa.scalar({"a": 1}), pa.struct([("a", pa.int64())]), {"a": 1}),
        "o": (pa.array([1, None]), pa.list_(pa.int64()), [1, None]),
    }
    table = DeltaTable.create(store, pa.schema([(name, data_type) for name, (_, data_type, _) in fitting.items()]))
    Dataset(table).stream_write_records([{name: value for name, (value, _, _) in fitting.items()}])
    assert table.snapshot().scan().to_arrow().to_pylist() == [{name: kept for name, (_, _, kept) in fitting.items()}]


def test_values_of_every_kind_are_read_back_as_they_were(store: LogStore) -> None:
    record = {
        "i": 1, "f": 0.5, "s": "ä", "b": b"\x00", "d": date(2026, 11, 20), "c": Decimal("1.50"), "t": True,
        "at": datetime(2026, 11, 20, 1, tzinfo=timezone.utc), "l": [1, None], "m": [("k", 2)], "o": {"a": 1, "z": None},
    }  # fmt: skip
    types = {
        "i": pa.int32(), "f": pa.float32(), "s": pa.string(), "b": pa.binary(), "d": pa.date32(),
        "c": pa.decimal128(5, 2), "t": pa.bool_(), "at": pa.timestamp("us", "UTC"), "l": pa.list_(pa.int64()),
        "m": pa.map_(pa.string(), pa.int64()), "o": pa.struct([("a", pa.int64()), ("z", pa.string())]),
    }  # fmt: skip
    table = DeltaTable.create(store, pa.schema(list(types.items())))
    Dataset(table).stream_write_records([record, {}])
    assert table.snapshot().scan().to_arrow().to_pylist() == [record, dict.fromkeys(record)]


def test_a_store_that_fails_leaves_nothing(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files_module, "TARGET_BYTES", 1 << 16)
    DeltaTable.create(store, SCHEMA)
    faulty = FaultyStore(store, nth(3, Fault.FAIL_BEFORE, method="open_output"))
    with pytest.raises(StoreError):
        Dataset(DeltaTable.open(faulty)).stream_write_records(records(20_000))
    assert DeltaTable.open(store).version == 0 and data_files(store) == []


def test_errors_of_cleaning_up_are_kept_with_the_cause(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files_module, "TARGET_BYTES", 1 << 16)
    DeltaTable.create(store, SCHEMA)
    faulty = FaultyStore(store, lambda call: Fault.FAIL_BEFORE if call.method == "delete" else None)

    def breaking() -> Iterator[dict[str, Any]]:
        yield from records(20_000)
        raise Broken("the cause")

    with pytest.raises(Broken, match="the cause") as caught:
        Dataset(DeltaTable.open(faulty)).stream_write_records(breaking())
    failures = caught.value.cleanup_errors  # type: ignore[attr-defined]
    assert len(failures) == len(data_files(store)) > 1
    assert all(isinstance(failure, StoreError) for failure in failures)


@pytest.mark.parametrize("keeps", [False, True], ids=["a lost race", "an open outcome"])
def test_files_of_a_commit_that_failed_go_unless_a_version_may_name_them(store: LogStore, keeps: bool) -> None:
    DeltaTable.create(store, SCHEMA)
    if keeps:
        mine: LogStore = FaultyStore(
            store, lambda call: Fault.UNKNOWN_NOT_WRITTEN if call.method == "put_if_absent" else None
        )
    else:
        mine = overtaken(store, lambda: DeltaTable.open(store).append(rows()))
    table = DeltaTable.open(mine, environment=environment())
    with pytest.raises(CommitStateUnknownError if keeps else VersionConflictError):
        Dataset(table).stream_write_records(records(10))
    assert len(data_files(store)) == int(keeps)


def test_mappings_and_batches_may_be_mixed_in_order(table: DeltaTable) -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 2, "name": "b"}, {"id": 3, "name": "c"}])
    snapshot = Dataset(table).stream_write_records([{"id": 1}, batch, {"name": "d", "id": 4}, {}])
    assert snapshot.scan().to_arrow()["id"].to_pylist() == [1, 2, 3, 4, None]
    assert snapshot.scan().to_arrow()["name"].to_pylist() == [None, "b", "c", "d", None]
    assert snapshot.commit_summary.row_count == 5


@pytest.mark.parametrize("made", [lambda t: t.to_reader(), lambda t: t, lambda t: t.to_batches()])
def test_anything_that_speaks_arrow_is_a_stream_of_records(table: DeltaTable, made: Any) -> None:
    assert Dataset(table).stream_write_records(made(rows(1, 2))).commit_summary.row_count == 2


def test_checksums_and_statistics_are_those_of_every_file(any_store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files_module, "TARGET_BYTES", 1 << 16)
    table = DeltaTable.create(any_store, SCHEMA)
    files = Dataset(table).stream_write_records(records(10_000), checksum="sha256").commit_summary.files
    assert len(files) > 1
    first = 0
    for file in files:
        assert file.sha256 == hashlib.sha256(any_store.get(file.path)).hexdigest()
        assert file.statistics is not None and file.row_count is not None
        assert file.statistics["minValues"]["id"] == first
        first += file.row_count
        assert file.statistics["maxValues"]["id"] == first - 1
    assert first == 10_000


def test_times_are_taken_from_the_records_that_have_them(store: LogStore) -> None:
    table = DeltaTable.create(store, pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
    given = [{"id": 1}, {"at": 5}, {"at": None}, {"at": -5}]
    summary = Dataset(table).stream_write_records(given, timestamp_column="at").commit_summary
    assert (summary.min_timestamp_us, summary.max_timestamp_us) == (-5, 5)
    summary = Dataset(table).stream_write_records([{"id": 1}], timestamp_column="at").commit_summary
    assert (summary.min_timestamp_us, summary.max_timestamp_us) == (None, None)
    assert Dataset(table).stream_write_records(given).commit_summary.max_timestamp_us is None


def test_a_column_that_a_record_lacks_gets_its_default_and_one_that_is_none_stays_null(store: LogStore) -> None:
    long, text = PrimitiveType("long"), PrimitiveType("string")
    source = StructField("source", text, True, {"CURRENT_DEFAULT": "'unknown'"})
    twice = StructField("twice", long, True, {"delta.generationExpression": "id * 2"})
    table = DeltaTable.create(store, StructType((StructField("id", long), source, twice)))
    snapshot = Dataset(table).stream_write_records(
        [{"id": 1}, {"id": 2, "source": None}, {"id": 3, "source": "x"}, {"id": 4}]
    )
    assert snapshot.scan().to_arrow()["source"].to_pylist() == ["unknown", None, "x", "unknown"]
    assert snapshot.scan().to_arrow()["twice"].to_pylist() == [2, 4, 6, 8]


def test_rules_of_the_table_hold_for_records(table: DeltaTable, store: LogStore) -> None:
    table.add_constraint("positive", "id > 0")
    with pytest.raises(ConstraintViolationError):
        Dataset(table).stream_write_records([{"id": 1}, {"id": -1}])
    assert table.snapshot().version == 1 and data_files(store) == []


def test_what_others_commit_while_a_stream_is_written_is_no_conflict(table: DeltaTable, store: LogStore) -> None:
    def interrupted() -> Iterator[dict[str, Any]]:
        yield {"id": 1}
        DeltaTable.open(store, environment=environment()).append(rows(2))
        yield {"id": 3}

    snapshot = Dataset(table).stream_write_records(interrupted())
    assert (snapshot.version, snapshot.commit_summary.parent) == (2, 1) and ids(table) == [1, 2, 3]
