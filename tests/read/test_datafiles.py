from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog import InvalidDataFileError, StructType, UnsafePathError
from deltalog.read.datafiles import FileLayout, conform, read_file
from deltalog.storage.base import LogStore
from deltalog.storage.fs import LocalStore
from tests.core_env import memory


def put(store: LogStore, path: str, table: pa.Table, **options: Any) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    store.put(path, sink.getvalue().to_pybytes())


def layout(schema: pa.Schema, *partition_by: str) -> FileLayout:
    return FileLayout(StructType.from_arrow(schema), partition_by)


def read(table: pa.Table, schema: pa.Schema, **options: Any) -> pa.Table:
    store = memory()
    put(store, "x.parquet", table, **options)
    return read_file(store, "x.parquet", {}, None, layout(schema))


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
    found = read_file(store, "x", {"p": "right", "n": None}, None, layout(schema, "P", "n"))
    assert found.to_pylist() == [{"a": 1, "P": "right", "n": None}, {"a": 2, "P": "right", "n": None}]
    only = read_file(store, "x", {"P": "right", "n": "7"}, None, layout(pa.schema([("n", pa.int64())]), "P", "n"))
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
        read_file(store, "d/x.parquet", {}, None, layout(pa.schema([("c", pa.int64())])))
    assert caught.value.path == "d/x.parquet"  # type: ignore[attr-defined]


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
    """Arrow allows a null entry whose range of values is not empty; ``if_else`` and masks make such arrays."""
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


@settings(max_examples=150, deadline=None)
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
        read_file(store, "x.parquet", {}, None, layout(pa.schema([("a", pa.int64())])))


def test_a_file_that_is_gone_is_named_with_the_likely_cause() -> None:
    with pytest.raises(InvalidDataFileError, match=r"x\.parquet is missing.*VACUUM"):
        read_file(memory(), "x.parquet", {}, None, layout(pa.schema([("a", pa.int64())])))


def test_paths_are_decoded_once(tmp_path: Any) -> None:
    store = LocalStore(tmp_path)
    put(store, "p=a b%20c/x?.parquet", pa.table({"a": [1]}))
    found = read_file(store, "p=a%20b%2520c/x%3F.parquet", {}, None, layout(pa.schema([("a", pa.int64())])))
    assert found.to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("path", ["../x.parquet", "/etc/passwd", "..%2fx.parquet", "s3://b/x"])
def test_paths_outside_the_table_are_not_touched(path: str, tmp_path: Any) -> None:
    (tmp_path / "t").mkdir()
    put(LocalStore(tmp_path), "x.parquet", pa.table({"a": [1]}))
    with pytest.raises(UnsafePathError):
        read_file(LocalStore(tmp_path / "t"), path, {}, None, layout(pa.schema([("a", pa.int64())])))
