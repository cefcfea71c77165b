from __future__ import annotations

import datetime
import io
import random
import struct
import weakref
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from deltalog import StoreError
from deltalog.engine import DeletionVector
from deltalog.errors import InvalidDataFileError, UnsafePathError
from deltalog.parquet.file_reader import DataFile, FileLayout, OpenFile, conform, open_file, read_file
from deltalog.protocol.row_tracking import RowTrackingColumn
from deltalog.protocol.schema import VARIANT, VOID, variants_as_text
from deltalog.schema import ArrayType, PrimitiveType, StructField, StructType, variant_to_python
from deltalog.storage.base import LogStore
from deltalog.storage.fs import LocalStore
from deltalog.storage.memory import MemoryStore
from deltalog.storage.table_files import TableFiles
from deltalog.testing.stores import Call, FaultyStore
from tests.support.core import memory
from tests.support.core.strategies import examples

ROW_ID = RowTrackingColumn("_metadata.row_id", "_id", True)
VERSION = RowTrackingColumn("_metadata.row_commit_version", "_v", False)


def put(store: LogStore, path: str, table: pa.Table, **options: Any) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    store.put(path, sink.getvalue().to_pybytes())


def layout(schema: pa.Schema, *partition_by: str) -> FileLayout:
    return FileLayout(StructType.from_arrow(schema), partition_by)


def rows_of(
    files: TableFiles, path: str, values: dict[str, str | None], vector: DeletionVector | None, layout: FileLayout
) -> pa.Table:
    """All batches of a file as a table."""
    return pa.Table.from_batches(read_file(files, DataFile(path, values, vector), layout), layout.arrow_schema)


def read(table: pa.Table, schema: pa.Schema, **options: Any) -> pa.Table:
    store = memory()
    put(store, "x.parquet", table, **options)
    return rows_of(TableFiles(store), "x.parquet", {}, None, layout(schema))


def test_columns_come_in_the_order_and_types_of_the_table() -> None:
    stored = pa.table({"b": pa.array([1, 2], pa.int32()), "extra": ["x", "y"], "A": ["p", None]})
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("later", pa.date32())])
    found = read(stored, schema)
    assert found.schema == schema
    assert found.to_pylist() == [{"a": "p", "b": 1, "later": None}, {"a": None, "b": 2, "later": None}]


def test_of_two_names_that_differ_in_case_the_exact_one_is_read() -> None:
    stored = pa.table({"A": [1], "a": [2]})
    assert read(stored, pa.schema([("a", pa.int64())])).to_pylist() == [{"a": 2}]
    assert read(stored, pa.schema([("A", pa.int64())])).to_pylist() == [{"A": 1}]


def test_partition_columns_come_from_the_log_even_where_the_file_has_them() -> None:
    store = memory()
    put(store, "x", pa.table({"p": ["wrong", "wrong"], "a": [1, 2]}))
    schema = pa.schema([("a", pa.int64()), ("P", pa.string()), ("n", pa.int64())])
    found = rows_of(TableFiles(store), "x", {"p": "right", "n": None}, None, layout(schema, "P", "n"))
    assert found.to_pylist() == [{"a": 1, "P": "right", "n": None}, {"a": 2, "P": "right", "n": None}]
    only = rows_of(
        TableFiles(store), "x", {"P": "right", "n": "7"}, None, layout(pa.schema([("n", pa.int64())]), "P", "n")
    )
    assert only.to_pylist() == [{"n": 7}, {"n": 7}]


@pytest.mark.parametrize(
    ("stored", "wanted", "values"),
    [
        (pa.int8(), pa.int16(), [1, None, -128]),
        (pa.int32(), pa.int64(), [1, None]),
        (pa.float32(), pa.float64(), [1.5, None]),
        (pa.int32(), pa.float64(), [1, None]),
        (pa.date32(), pa.timestamp("us"), [datetime.date(2026, 1, 1)]),
        (pa.decimal128(5, 2), pa.decimal128(10, 2), [None]),
        (pa.large_string(), pa.string(), ["x", None]),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), ["x", None, "x"]),
    ],
)
def test_narrower_types_of_older_files_are_widened(stored: pa.DataType, wanted: pa.DataType, values: list[Any]) -> None:
    found = read(pa.table({"c": pa.array(values, stored)}), pa.schema([("c", wanted)]))
    assert found.schema.field("c").type == wanted
    assert found.num_rows == len(values) and found["c"].null_count == values.count(None)


def test_types_that_do_not_fit_are_refused_by_file() -> None:
    store = memory()
    put(store, "d/x.parquet", pa.table({"c": ["text"]}))
    with pytest.raises(InvalidDataFileError, match=r"memory://.*: the data file d/x\.parquet cannot be read") as caught:
        rows_of(TableFiles(store), "d/x.parquet", {}, None, layout(pa.schema([("c", pa.int64())])))
    assert caught.value.path == "d/x.parquet"


MOMENT = datetime.datetime(2026, 11, 20, 10, 0, 0, 123456)


@pytest.mark.parametrize("options", [{}, {"use_deprecated_int96_timestamps": True}])
def test_timestamps_of_every_writer_are_utc(options: dict[str, Any]) -> None:
    for zone in ("UTC", None):
        stored = pa.table({"t": pa.array([MOMENT, None], pa.timestamp("us", zone))})
        found = read(stored, pa.schema([("t", pa.timestamp("us", "UTC"))]), **options)
        assert found["t"].cast(pa.timestamp("us")).to_pylist() == [MOMENT, None]


def test_int96_outside_the_years_of_nanoseconds() -> None:
    values = [datetime.datetime(1, 1, 2), datetime.datetime(1677, 1, 1), datetime.datetime(9999, 12, 30)]
    stored = pa.table({"t": pa.array(values, pa.timestamp("us"))})
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    plain = read(stored, schema)
    assert plain["t"].cast(pa.timestamp("us")).to_pylist() == values


# --------------------------------------------------------------------------------------------- nested values


def test_struct_fields_are_found_by_name() -> None:
    stored = pa.table({"s": [{"b": 1, "A": "x"}, None, {"b": None, "A": "y"}]})
    wanted = pa.schema([("s", pa.struct([("a", pa.string()), ("new", pa.int64()), ("b", pa.int64())]))])
    assert read(stored, wanted).to_pylist() == [
        {"s": {"a": "x", "new": None, "b": 1}},
        {"s": None},
        {"s": {"a": "y", "new": None, "b": None}},
    ]


OLD_MAP = pa.map_(pa.string(), pa.struct([("x", pa.int64())]))


def test_fields_that_came_later_inside_arrays_and_maps() -> None:
    stored = pa.table(
        {
            "l": pa.array([[{"x": 1}], None, [], [None, {"x": 2}]]),
            "m": pa.array(
                [[("k", {"x": 1})], None, [], [("j", None)]], pa.map_(pa.string(), pa.struct([("x", pa.int64())]))
            ),
        }
    )
    element = pa.struct([("x", pa.int64()), ("y", pa.string())])
    wanted = pa.schema([("l", pa.list_(element)), ("m", pa.map_(pa.string(), element))])
    assert read(stored, wanted).to_pylist() == [
        {"l": [{"x": 1, "y": None}], "m": [("k", {"x": 1, "y": None})]},
        {"l": None, "m": None},
        {"l": [], "m": []},
        {"l": [None, {"x": 2, "y": None}], "m": [("j", None)]},
    ]


def test_a_null_list_that_hides_values_lets_none_of_them_out() -> None:
    """Arrow allows a null list entry whose range of values is not empty; ``if_else`` and masks create such arrays."""
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 6], pa.int32()), pa.array([1, 2, 3, 4, 5, 6]), mask=pa.array([False, True, False])
    )
    kind = StructType.from_arrow(pa.schema([("c", hidden.type)])).field("c").data_type
    assert conform(hidden, kind).to_pylist() == hidden.to_pylist() == [[1, 2], None, [5, 6]]
    assert conform(hidden[1:], kind).to_pylist() == [None, [5, 6]]


def test_a_null_map_that_hides_entries_lets_none_of_them_out() -> None:
    keys, items = pa.array(list("abcdef")), pa.array([1, 2, 3, 4, 5, 6])
    mask = pa.array([False, True, False])
    hidden = pa.MapArray.from_arrays(pa.array([0, 2, 4, 6], pa.int32()), keys, items, mask=mask)
    kind = StructType.from_arrow(pa.schema([("c", hidden.type)])).field("c").data_type
    assert conform(hidden, kind).to_pylist() == hidden.to_pylist()


_nested = st.recursive(
    st.sampled_from([pa.int64(), pa.string(), pa.bool_(), pa.date32()]),
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(pa.large_list)
        | st.lists(inner, min_size=1, max_size=3).map(lambda ts: pa.struct([(f"f{i}", t) for i, t in enumerate(ts)]))
        | inner.map(lambda t: pa.map_(pa.string(), t))
    ),
    max_leaves=4,
)


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        each: st.SearchStrategy[Any] = st.fixed_dictionaries({f.name: _values(f.type) for f in kind.fields})
    elif pa.types.is_map(kind):
        each = st.dictionaries(st.text("abc", max_size=2), _values(kind.item_type), max_size=2).map(
            lambda entries: list(entries.items())
        )
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        each = st.lists(_values(kind.value_type), max_size=3)
    else:
        simple = {pa.int64(): st.integers(-9, 9), pa.string(): st.text(max_size=3), pa.bool_(): st.booleans()}
        each = simple.get(kind, st.dates())
    return st.none() | each


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_nested_values_of_any_shape_and_slice_stay_what_they_are(data: st.DataObject) -> None:
    kind = data.draw(_nested)
    array = pa.array(data.draw(st.lists(_values(kind), min_size=1, max_size=6)), kind)
    start = data.draw(st.integers(0, len(array)))
    schema = pa.schema([("c", kind)])
    delta = StructType.from_arrow(schema).field("c").data_type
    for each in (array, array[start:], array[:start], array.take(pa.array([0, None, 0], pa.int64()))):
        assert conform(each, delta).to_pylist() == each.to_pylist()


# --------------------------------------------------------------------------------------------- files and paths


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\0" * 64 + b"PAR1", b"not parquet at all"])
def test_a_file_that_is_no_parquet_is_named(data: bytes) -> None:
    store = memory()
    store.put("x.parquet", data)
    with pytest.raises(InvalidDataFileError, match=r"x\.parquet cannot be read"):
        rows_of(TableFiles(store), "x.parquet", {}, None, layout(pa.schema([("a", pa.int64())])))


def test_a_file_that_is_gone_is_named_with_the_likely_cause() -> None:
    with pytest.raises(InvalidDataFileError, match=r"x\.parquet is missing.*VACUUM"):
        rows_of(TableFiles(memory()), "x.parquet", {}, None, layout(pa.schema([("a", pa.int64())])))


def test_a_store_that_fails_is_no_fault_of_the_file() -> None:
    def down(call: Call) -> None:
        if call.method == "open_input":
            raise StoreError("the network is down")

    store = memory()
    put(store, "x", pa.table({"a": [1]}))
    with pytest.raises(StoreError, match="network"):
        rows_of(TableFiles(FaultyStore(store, before=down)), "x", {}, None, layout(NUMBERS))


def test_paths_are_decoded_once(tmp_path: Any) -> None:
    store = LocalStore(tmp_path)
    put(store, "p=a b%20c/x?.parquet", pa.table({"a": [1]}))
    found = rows_of(TableFiles(store), "p=a%20b%2520c/x%3F.parquet", {}, None, layout(pa.schema([("a", pa.int64())])))
    assert found.to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("path", ["../x.parquet", "/etc/passwd", "..%2fx.parquet", "s3://b/x"])
def test_paths_outside_the_table_are_not_touched(path: str, tmp_path: Any) -> None:
    (tmp_path / "t").mkdir()
    put(LocalStore(tmp_path), "x.parquet", pa.table({"a": [1]}))
    with pytest.raises(UnsafePathError):
        rows_of(TableFiles(LocalStore(tmp_path / "t")), path, {}, None, layout(pa.schema([("a", pa.int64())])))


# ------------------------------------------------------------------------------------------------- parts of files


def inline(positions: list[int]) -> DeletionVector:
    """An inline deletion vector for these positions."""
    body = struct.pack("<i", 1681511377) + BitMap64(positions).serialize()
    padded = body + bytes(-len(body) % 4)
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(padded) // 4}I", padded)
    text = "".join(alphabet[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))
    return DeletionVector("i", text, len(body), len(positions))


NUMBERS = pa.schema([("a", pa.int64())])
WHOLE, SOME, MANY = range(10, 30), [0, 9, 30, 31, 45, 99], range(1, 100)


@pytest.mark.parametrize("deleted", [[], WHOLE, SOME, [*WHOLE, *SOME], MANY, range(100)])
@pytest.mark.parametrize("only", [None, [], [5, 15, 45, 99, 700], range(40, 60)])
@pytest.mark.parametrize("columns", [["a"], []])
def test_positions_are_those_in_the_file_whatever_row_groups_are_read(
    deleted: Sequence[int], only: Sequence[int] | None, columns: list[str]
) -> None:
    store = memory()
    put(store, "x", pa.table({"a": range(100)}), row_group_size=10)
    vector = inline(list(deleted)) if deleted else None
    wanted = FileLayout(StructType.from_arrow(pa.schema([NUMBERS.field(n) for n in columns])), (), tracking=[ROW_ID])
    chosen = None if only is None else BitMap64(only)
    batches = list(read_file(TableFiles(store), DataFile("x", {}, vector, base_row_id=1000), wanted, chosen))
    expected = [i for i in range(100) if i not in deleted and (only is None or i in only)]
    assert all(batch.num_rows for batch in batches)
    found = [row for batch in batches for row in batch.to_pylist()]
    assert found == [{**({"a": i} if columns else {}), "_metadata.row_id": 1000 + i} for i in expected]


@pytest.mark.parametrize("vector", [DeletionVector("i", "", 0, 0), DeletionVector("u", "", 0, 0), inline([])])
def test_a_vector_that_deletes_nothing_needs_no_bitmap(vector: DeletionVector) -> None:
    store = memory()
    put(store, "x", pa.table({"a": range(3)}))
    assert rows_of(TableFiles(store), "x", {}, vector, layout(NUMBERS))["a"].to_pylist() == [0, 1, 2]


def test_row_groups_without_a_wanted_row_are_not_fetched() -> None:
    store = memory()
    noise = pa.array([secrets(i) for i in range(4000)], pa.binary())
    put(store, "x", pa.table({"a": noise}), row_group_size=1000, compression="none", use_dictionary=False)
    wanted = layout(pa.schema([("a", pa.binary())]))
    whole = bytes_read(store, DataFile("x", {}), wanted)
    part = bytes_read(store, DataFile("x", {}, inline(list(range(3000)))), wanted)
    assert part < whole / 2


def secrets(seed: int) -> bytes:
    return random.Random(seed).randbytes(100)


def bytes_read(store: LogStore, file: DataFile, wanted: FileLayout) -> int:
    """The number of bytes that the store reads for one file."""

    class Counting(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            Counting.taken += len(data)
            return data

    class Store(MemoryStore):
        def open_input(self, path: str) -> Any:
            return pa.PythonFile(Counting(store.get(path)), "r")

    list(read_file(TableFiles(Store("memory://counting")), file, wanted))
    return Counting.taken


def test_batches_of_wide_rows_have_few() -> None:
    store = memory()
    text = "x" * 100_000
    put(store, "x", pa.table({"a": [f"{i}{text}" for i in range(600)]}), use_dictionary=False, compression="none")
    batches = list(read_file(TableFiles(store), DataFile("x", {}), layout(pa.schema([("a", pa.string())]))))
    assert sum(batch.num_rows for batch in batches) == 600
    assert max(batch.nbytes for batch in batches) < 20 << 20


@pytest.mark.parametrize("deleted", [[], [5, 20_005, 40_005]])
@pytest.mark.parametrize("read", [OpenFile.batches, OpenFile.placed])
def test_a_batch_is_not_held_while_the_next_one_is_read(read: Any, deleted: list[int]) -> None:
    memory_of: list[weakref.ref[pa.RecordBatch]] = []
    held: list[int] = []

    class Source(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            held.append(sum(each() is not None for each in memory_of))
            return super().read(size)

    class Store(MemoryStore):
        def open_input(self, path: str) -> Any:
            return pa.PythonFile(Source(store.get(path)), "r")

    store = Store("memory://holding")
    put(store, "x", pa.table({"a": range(60_000)}), row_group_size=20_000, use_dictionary=False, compression="none")
    small = 1  # for files above this size, Arrow reads one row group after another, without prefetching
    file, rows = DataFile("x", {}, inline(deleted) if deleted else None, size=small), []
    for each in read(open_file(TableFiles(store), file, layout(NUMBERS)), most_rows=10_000):
        batch = each if read is OpenFile.batches else each[1]
        rows.append(batch.num_rows)
        memory_of.append(weakref.ref(batch))
        del each, batch
    left = len(deleted) if read is OpenFile.batches else 0
    assert max(rows) <= 10_000 and sum(rows) == 60_000 - left
    assert len(held) > 3 and set(held) == {0}


ENCODINGS: list[tuple[str, pa.Array, dict[str, Any]]] = [
    ("delta binary packed", pa.array([1, None, -(2**63)]), {"column_encoding": {"c": "DELTA_BINARY_PACKED"}}),
    ("delta length", pa.array(["x", None, "yy"]), {"column_encoding": {"c": "DELTA_LENGTH_BYTE_ARRAY"}}),
    ("delta strings", pa.array(["xa", None, "xb"]), {"column_encoding": {"c": "DELTA_BYTE_ARRAY"}}),
    ("byte stream split", pa.array([1.5, None, 2.5]), {"column_encoding": {"c": "BYTE_STREAM_SPLIT"}}),
    ("plain", pa.array([1.5, None, 2.5]), {"column_encoding": {"c": "PLAIN"}}),
]


@pytest.mark.parametrize("pages", ["1.0", "2.0"])
@pytest.mark.parametrize(("name", "values", "options"), ENCODINGS, ids=[e[0] for e in ENCODINGS])
def test_pages_of_every_encoding(name: str, values: pa.Array, options: dict[str, Any], pages: str) -> None:
    schema = pa.schema([("c", values.type)])
    found = read(pa.table({"c": values}), schema, use_dictionary=False, data_page_version=pages, **options)
    assert found["c"].combine_chunks() == values


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_files_of_every_compression(codec: str) -> None:
    stored = pa.table({"c": ["x", None] * 500})
    assert read(stored, stored.schema, compression=codec).equals(stored)


# ------------------------------------------------------------------------------------------------------ contents


def test_row_tracking_takes_what_was_kept_and_counts_the_rest() -> None:
    store = memory()
    put(store, "x", pa.table({"a": [1, 2, 3], "_id": [None, 70, None], "_v": [None, 2, None]}))
    wanted = FileLayout(StructType.from_arrow(NUMBERS), (), "none", [ROW_ID, VERSION])
    file = DataFile("x", {}, inline([0]), base_row_id=10, default_row_commit_version=5)
    (batch,) = read_file(TableFiles(store), file, wanted)
    assert batch.to_pylist() == [
        {"a": 2, "_metadata.row_id": 70, "_metadata.row_commit_version": 2},
        {"a": 3, "_metadata.row_id": 12, "_metadata.row_commit_version": 5},
    ]


def test_a_file_without_what_row_tracking_needs_is_named() -> None:
    store = memory()
    put(store, "x", pa.table({"a": [1]}))
    for column, missing in ((ROW_ID, "baseRowId"), (VERSION, "defaultRowCommitVersion")):
        wanted = FileLayout(StructType.from_arrow(NUMBERS), (), "none", [column])
        with pytest.raises(InvalidDataFileError, match=f"no {missing} for the file x"):
            list(read_file(TableFiles(store), DataFile("x", {}), wanted))


def test_void_columns_are_null_whatever_the_file_has() -> None:
    store = memory()
    put(store, "x", pa.table({"n": [1, 2], "s": [{"n": 1, "a": 1}, None]}))
    inner = StructType((StructField("n", VOID), StructField("a", PrimitiveType("long"))))
    fields = (StructField("n", VOID), StructField("later", VOID), StructField("s", inner))
    found = rows_of(TableFiles(store), "x", {}, None, FileLayout(StructType(fields), ()))
    assert found.to_pylist() == [
        {"n": None, "later": None, "s": {"n": None, "a": 1}},
        {"n": None, "later": None, "s": None},
    ]


def test_a_shredded_variant_is_the_variant_it_was() -> None:
    metadata = b"\x01\x01\x00\x01a"
    group = pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])
    shredded = pa.struct(
        [
            pa.field("metadata", pa.binary(), False),
            ("value", pa.binary()),
            ("typed_value", pa.struct([pa.field("a", group, False)])),
        ]
    )
    values = [
        {"metadata": metadata, "typed_value": {"a": {"typed_value": 7}}},
        None,
        {"metadata": metadata, "value": b"\x05x", "typed_value": None},
    ]
    store = memory()
    put(store, "x", pa.table({"v": pa.array(values, shredded), "l": pa.array([values, None, []], pa.list_(shredded))}))
    columns = StructType((StructField("v", VARIANT), StructField("l", ArrayType(VARIANT))))
    expected = [{"a": 7}, None, "x"]
    plain = rows_of(TableFiles(store), "x", {}, None, FileLayout(columns, ()))
    assert [variant_to_python(v) for v in plain["v"].to_pylist()] == expected
    assert [variant_to_python(v) for v in plain["l"].to_pylist()[0]] == expected
    texts = rows_of(TableFiles(store), "x", {}, None, FileLayout(variants_as_text(columns), ()))
    assert texts.to_pylist() == [
        {"v": '{"a":7}', "l": ['{"a":7}', None, '"x"']},
        {"v": None, "l": None},
        {"v": '"x"', "l": []},
    ]


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        (pa.array([{"metadata": b"\x01\x00\x00", "value": b"\xff"}]), "A variant value is malformed"),
        (pa.array([7]), "It has int64 where the table has a variant"),
        (pa.array([{"value": b"\x00"}]), "'metadata'"),
    ],
)
def test_a_malformed_variant_is_named_with_its_file(stored: pa.Array, says: str) -> None:
    store = memory()
    put(store, "x.parquet", pa.table({"v": stored}))
    columns = variants_as_text(StructType((StructField("v", VARIANT),)))
    with pytest.raises(InvalidDataFileError, match=rf"the data file x\.parquet cannot be read: {says}"):
        rows_of(TableFiles(store), "x.parquet", {}, None, FileLayout(columns, ()))


def test_old_calendars_are_those_of_each_file() -> None:
    days, moment = pa.array([-171597], pa.int32()).cast(pa.date32()), pa.array([0], pa.timestamp("us", "UTC"))
    kind = pa.schema([("d", pa.date32()), ("l", pa.list_(pa.date32())), ("t", pa.timestamp("us", "UTC"))])
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), days)
    for version, expected in ((b"2.4.8", datetime.date(1500, 2, 28)), (b"4.2.0", datetime.date(1500, 3, 9))):
        stored = pa.table([days, lists, moment], schema=kind.with_metadata({"org.apache.spark.version": version}))
        found = read(stored, kind)
        assert found["d"].to_pylist() == [expected] and found["l"].to_pylist() == [[expected]]


def test_damage_anywhere_in_a_file_is_refused_by_file_or_not_noticed() -> None:
    """Change each byte of a file, one at a time: reading returns rows or raises a deltalog error."""
    sink = pa.BufferOutputStream()
    stored = pa.table({"a": [1, 2, 3], "s": ["x", None, "z"]})
    pq.write_table(stored, sink, write_page_checksum=True)
    data = sink.getvalue().to_pybytes()
    store = memory()
    refused = 0
    for at in range(len(data)):
        store.put("x", data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            rows_of(TableFiles(store), "x", {}, None, layout(stored.schema))
        except InvalidDataFileError as error:
            assert error.path == "x"
            refused += 1
    assert refused > len(data) / 4
