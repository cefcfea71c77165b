from __future__ import annotations

import datetime
import decimal
import io
import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog.parquet import stats
from deltalog.protocol.schema import leaves
from deltalog.schema import StructType
from tests.support.core import memory
from tests.support.core.strategies import examples

EPOCH = datetime.datetime(1970, 1, 1)


def statistics(table: pa.Table, indexed: int = -1, schema: pa.Schema | None = None, **options: Any) -> dict[str, Any]:
    """The statistics that deltalog writes for a table, with fractional numbers parsed as exact decimals."""
    sink = io.BytesIO()
    options.setdefault("write_statistics", stats.statistics_columns(table))
    pq.write_table(table, sink, **options)
    footer = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata
    columns = StructType.from_arrow(schema or table.schema)
    paths = [path for path, _ in leaves(columns)]
    rows, text = stats.from_footer(footer, columns, paths if indexed < 0 else paths[:indexed])
    parsed: dict[str, Any] = json.loads(text, parse_float=decimal.Decimal)
    assert rows == parsed["numRecords"] == table.num_rows
    return parsed


def column(values: Sequence[Any], kind: pa.DataType, **options: Any) -> dict[str, Any]:
    return statistics(pa.table({"c": pa.array(values, kind)}), **options)


def bounds(found: dict[str, Any], *path: str) -> tuple[Any, Any] | None:
    """The min and max of a column, or None; a column has both or neither."""
    low, high = found.get("minValues", {}), found.get("maxValues", {})
    for name in path or ("c",):
        low, high = low.get(name, {}), high.get(name, {})
    if low == {} or high == {}:
        assert low == high == {}
        return None
    return low, high


def test_an_example() -> None:
    table = pa.table({"a": [3, 1, None], "b": ["x", None, None], "s": [{"t": 1.5}, {"t": None}, None]})
    assert statistics(table) == {
        "numRecords": 3,
        "minValues": {"a": 1, "b": "x", "s": {"t": decimal.Decimal("1.5")}},
        "maxValues": {"a": 3, "b": "x", "s": {"t": decimal.Decimal("1.5")}},
        "nullCount": {"a": 1, "b": 2, "s": {"t": 2}},
    }


INTEGERS = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
}


@pytest.mark.parametrize("name", INTEGERS)
@given(data=st.data())
def test_integers(name: str, data: st.DataObject) -> None:
    kind, values = INTEGERS[name]
    drawn = data.draw(st.lists(st.none() | values, min_size=1))
    found = column(drawn, kind, row_group_size=3)
    present = [v for v in drawn if v is not None]
    assert found["nullCount"] == {"c": len(drawn) - len(present)}
    assert bounds(found) == ((min(present), max(present)) if present else None)


@settings(max_examples=examples(200))
@given(st.lists(st.none() | st.floats() | st.sampled_from([0.0, -0.0, math.nan, 5e-324]), min_size=1), st.booleans())
def test_floats(drawn: list[float | None], single: bool) -> None:
    kind = pa.float32() if single else pa.float64()
    stored = pa.array(drawn, kind)
    found = column(stored.to_pylist(), kind, row_group_size=3)
    limits = bounds(found)
    present = [v for v in stored.to_pylist() if v is not None]
    if any(math.isnan(v) for v in present):
        assert limits is None  # Spark orders NaN above all other values; footer statistics ignore NaN
    if limits is not None:
        low, high = float(limits[0]), float(limits[1])
        assert all(low <= v <= high for v in present)
        # Readers that compare bit patterns place -0.0 below 0.0.
        assert all(math.copysign(1, low) < 0 for v in present if v == 0 == low)
        assert all(math.copysign(1, high) > 0 for v in present if v == 0 == high)
    if "c" in found.get("nullCount", {}):
        assert found["nullCount"]["c"] == len(drawn) - len(present)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_values_that_json_has_not_leave_no_bounds(special: float) -> None:
    assert bounds(column([1.0, special], pa.float64())) is None


def test_a_column_with_nan_keeps_the_bounds_of_the_others() -> None:
    table = pa.table({"a": [1.0, math.nan], "b": [1, 2], "s": [{"x": math.nan, "y": 7}, {"x": 1.0, "y": 8}]})
    found = statistics(table)
    assert bounds(found, "a") is None and bounds(found, "s", "x") is None
    assert bounds(found, "b") == (1, 2) and bounds(found, "s", "y") == (7, 8)


def test_nan_in_the_only_column() -> None:
    assert column([math.nan], pa.float64()) == {"numRecords": 1}


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_long_text = st.builds(
    lambda fill, count, tail: fill * count + tail,
    st.sampled_from(["a", "~", "\x7f", "é", "\ud7ff", "\ue000", "\uffff", "😀", "\U0010ffff"]),
    st.integers(28, 36),
    st.text(st.sampled_from("a\x7f\uffff😀\U0010ffff\x00"), max_size=3),
)


@settings(max_examples=examples(300))
@given(st.lists(st.none() | _text | _long_text, min_size=1))
def test_text(drawn: list[str | None]) -> None:
    """The bounds are correct for readers that compare UTF-8 bytes and for readers that compare UTF-16 units."""
    found = column(drawn, pa.string(), row_group_size=3)
    present = [v for v in drawn if v is not None]
    assert found["nullCount"] == {"c": len(drawn) - len(present)}
    limits = bounds(found)
    if not present:
        assert limits is None
    if limits is None:
        return
    low, high = limits
    assert len(low) <= 32 and len(high) <= 33
    assert all(low.encode() <= v.encode() <= high.encode() for v in present)
    units = "utf-16-be"
    one_plane = all(ord(c) < 0xD800 for v in present for c in v)
    if one_plane or len(present) == 1:  # with several values, the footer's min and max follow UTF-8 order
        assert all(low.encode(units) <= v.encode(units) <= high.encode(units) for v in present)


@pytest.mark.parametrize(
    ("text", "high"),
    [
        ("a" * 32, "a" * 32),
        ("a" * 33, "a" * 32 + "\x7f"),
        ("é" * 40, "é" * 32 + "\uffff"),
        ("a" * 31 + "😀😀", "a" * 31 + "😀\uffff"),
        ("😀" * 40, None),
        ("a" + "\U0010ffff" * 40, None),
    ],
)
def test_the_upper_bound_of_long_text(text: str, high: str | None) -> None:
    found = bounds(column([text], pa.string()))
    if found is None:
        assert high is None
        return
    assert text.encode() <= found[1].encode()
    assert text.encode("utf-16-be") <= found[1].encode("utf-16-be")
    assert len(found[1]) <= 33


MICROS = st.integers(-62135596800000000, 253402300799999999)


@settings(max_examples=examples(200))
@given(st.lists(st.none() | MICROS, min_size=1), st.sampled_from(["UTC", None]))
def test_timestamps(drawn: list[int | None], zone: str | None) -> None:
    found = column(drawn, pa.timestamp("us", zone), row_group_size=3)
    present = [v for v in drawn if v is not None]
    limits = bounds(found)
    if not present:
        assert limits is None
    if limits is None:
        return  # the last millisecond of year 9999 cannot be rounded up
    low, high = (_micros(text, zone) for text in limits)
    assert low <= min(present) and max(present) <= high
    assert min(present) - low < 1000 and high - max(present) < 1000


def _micros(text: str, zone: str | None) -> int:
    assert text.endswith("Z") is (zone is not None)
    body = text.removesuffix("Z")
    assert len(body) == 23  # whole milliseconds, and a year of four digits
    return (datetime.datetime.fromisoformat(body) - EPOCH) // datetime.timedelta(microseconds=1)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_timestamps_of_other_units(unit: str) -> None:
    moment = datetime.datetime(2026, 11, 20, 10, 0, 0, 999_999 if unit != "ms" else 999_000)
    found = bounds(column([moment], pa.timestamp(unit, "UTC"), version="2.6"))
    assert found is not None
    assert found[0] == "2026-11-20T10:00:00.999Z"
    assert found[1] == ("2026-11-20T10:00:00.999Z" if unit == "ms" else "2026-11-20T10:00:01.000Z")


def test_nanoseconds_are_widened() -> None:
    found = bounds(column([1_790_000_000_123_000_001], pa.timestamp("ns", "UTC"), version="2.6"))
    assert found == ("2026-09-21T14:13:20.123Z", "2026-09-21T14:13:20.124Z")


def test_int96_has_no_order() -> None:
    values = [datetime.datetime(2026, 1, 1), datetime.datetime(2025, 1, 1)]
    assert bounds(column(values, pa.timestamp("us"), use_deprecated_int96_timestamps=True)) is None


@given(st.lists(st.none() | st.dates(), min_size=1))
def test_dates(drawn: list[datetime.date | None]) -> None:
    limits = bounds(column(drawn, pa.date32()))
    present = [v for v in drawn if v is not None]
    assert limits == ((min(present).isoformat(), max(present).isoformat()) if present else None)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(st.data())
def test_decimals(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision))
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    exact = decimal.Context(prec=76)
    values = data.draw(st.lists(unscaled.map(lambda n: decimal.Decimal(n).scaleb(-scale, exact)), min_size=1))
    limits = bounds(column(values, pa.decimal128(precision, scale), row_group_size=2))
    assert limits is not None
    assert (decimal.Decimal(limits[0]), decimal.Decimal(limits[1])) == (min(values), max(values))


@pytest.mark.parametrize(
    "kind",
    [
        pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.binary(), pa.date32(),
        pa.timestamp("us", "UTC"), pa.decimal128(38, 10),
    ],
)  # fmt: skip
def test_columns_of_nulls(kind: pa.DataType) -> None:
    assert column([None] * 5, kind, row_group_size=2) == {"numRecords": 5, "nullCount": {"c": 5}}


def test_a_row_group_of_nulls_changes_no_bound() -> None:
    assert bounds(column([None, None, 5, 6, None, None], pa.int64(), row_group_size=2)) == (5, 6)


def test_no_rows() -> None:
    assert column([], pa.int64())["numRecords"] == 0
    assert bounds(column([], pa.int64())) is None


def test_types_without_an_order_have_null_counts_only() -> None:
    table = pa.table({"b": [True, None], "y": [b"x", b"y"]})
    assert statistics(table) == {"numRecords": 2, "nullCount": {"b": 1, "y": 0}}


def test_arrays_and_maps_have_no_statistics_but_take_a_place() -> None:
    table = pa.table(
        {"l": [[1], [2]], "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())), "a": [1, 2], "b": [3, 4]}
    )
    assert statistics(table)["minValues"] == {"a": 1, "b": 3}
    assert statistics(table, indexed=3)["minValues"] == {"a": 1}
    assert statistics(table, indexed=2) == {"numRecords": 2}


@pytest.mark.parametrize(("indexed", "kept"), [(-1, "abc"), (0, ""), (1, "a"), (2, "ab"), (3, "abc"), (32, "abc")])
def test_only_the_first_leaves_are_indexed(indexed: int, kept: str) -> None:
    table = pa.table({"s": [{"a": 1, "b": 2}], "c": [3]})
    found = statistics(table, indexed=indexed)
    nested = found.get("nullCount", {}).get("s", {})
    assert "".join([*nested, *(["c"] if "c" in found.get("nullCount", {}) else [])]) == kept


def test_a_column_that_the_file_lacks_is_null_in_every_row() -> None:
    table = pa.table({"a": [1, 2]})
    wider = pa.schema([("a", pa.int64()), ("later", pa.string())])
    assert statistics(table, schema=wider)["nullCount"] == {"a": 0, "later": 2}


_values = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-100, 100),
        "s": st.none()
        | st.fixed_dictionaries(
            {
                "x": st.none() | st.text(max_size=3),
                "t": st.none() | st.fixed_dictionaries({"d": st.none() | st.dates()}),
            }
        ),
    }
)
NESTED = pa.schema(
    [
        ("i", pa.int64()),
        ("s", pa.struct([("x", pa.string()), ("t", pa.struct([("d", pa.date32())]))])),
    ]
)


@pytest.mark.slow
@given(st.lists(_values, min_size=1))
def test_structs(drawn: list[dict[str, Any]]) -> None:
    found = statistics(pa.Table.from_pylist(drawn, schema=NESTED), row_group_size=3)
    for path in (("i",), ("s", "x"), ("s", "t", "d")):
        present = [v for v in (_dig(row, path) for row in drawn) if v is not None]
        nulls: Any = found["nullCount"]
        for name in path:
            nulls = nulls[name]
        assert nulls == len(drawn) - len(present)
        limits = bounds(found, *path)
        if path[-1] == "d":
            present = [v.isoformat() for v in present]
        assert limits == ((min(present), max(present)) if present else None)


def _dig(row: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        row = None if row is None else row[name]
    return row


def test_a_column_is_found_whatever_its_case() -> None:
    """Readers match the column ``A`` of a file with the table's column ``a``, so the values of ``A`` are not read as
    null."""
    found = statistics(pa.table({"A": [1, 2]}), schema=pa.schema([("a", pa.int64())]))
    assert found.get("nullCount", {}).get("a", 0) == 0


def test_names_with_dots_do_not_mix_two_columns() -> None:
    schema = pa.schema([("a", pa.struct([("b", pa.int64())])), ("a.b", pa.int64())])
    table = pa.Table.from_pylist([{"a": {"b": 1}, "a.b": None}, {"a": {"b": None}, "a.b": 7}], schema=schema)
    found = statistics(table)
    assert found.get("nullCount", {}).get("a", {}).get("b", 1) == 1
    assert found.get("nullCount", {}).get("a.b", 1) == 1
    assert bounds(found, "a", "b") in (None, (1, 1), (1, 7))


def test_the_files_of_other_writers_have_their_own_statistics() -> None:
    """If the footer has no statistics, the commit contains none either."""
    assert column([1, 2], pa.int64(), write_statistics=False) == {"numRecords": 2}


def test_what_an_append_writes() -> None:
    from deltalog import DeltaTable

    store = memory()
    table = DeltaTable.create(store, pa.schema([("p", pa.string()), ("x", pa.float64())]), partition_by=["p"])
    table.append(pa.table({"p": ["a", "b", "a"], "x": [1.0, math.nan, 2.0]}))
    by_partition = {
        dict(f["partition_values"])["p"]: json.loads(f["stats"]) for f in table.snapshot().files().to_pylist()
    }
    assert by_partition["a"] == {
        "numRecords": 2, "minValues": {"x": 1.0}, "maxValues": {"x": 2.0}, "nullCount": {"x": 0},
    }  # fmt: skip
    assert by_partition["b"] == {"numRecords": 1}


class Pair(pa.ExtensionType):
    """An extension type with a struct as storage."""

    def __init__(self) -> None:
        super().__init__(pa.struct([("a", pa.int64()), ("b", pa.int64())]), "deltalog.tests.pair")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Pair:
        return cls()


@pytest.mark.parametrize(
    "kind",
    [
        "extension",
        "list view",
        "large list",
        "fixed list",
        "map",
    ],
)
def test_columns_that_delta_has_not_do_not_shift_the_bounds_of_others(kind: str) -> None:
    """Other writers' files may have additional columns of any type."""
    inner = pa.array([{"a": 1, "b": 2}, {"a": 3, "b": 4}], pa.struct([("a", pa.int64()), ("b", pa.int64())]))
    nested = [[row] for row in inner.to_pylist()]
    other: Any = {
        "extension": lambda: pa.ExtensionArray.from_storage(Pair(), inner),
        "list view": lambda: pa.array(nested, pa.list_view(inner.type)),
        "large list": lambda: pa.array(nested, pa.large_list(inner.type)),
        "fixed list": lambda: pa.array(nested, pa.list_(inner.type, 1)),
        "map": lambda: pa.array([[("k", row)] for row in inner.to_pylist()], pa.map_(pa.string(), inner.type)),
    }[kind]()
    if kind == "list view":
        try:
            pq.write_table(pa.table({"other": other}), io.BytesIO())
        except pa.ArrowNotImplementedError as error:
            pytest.skip(f"cannot write files with list views: {error}")
    if kind == "extension":
        pa.register_extension_type(Pair())
    try:
        table = pa.table({"other": other, "x": [1000, 2000]})
        found = statistics(table, schema=pa.schema([("x", pa.int64())]), write_statistics=True)
    finally:
        if kind == "extension":
            pa.unregister_extension_type("deltalog.tests.pair")
    assert bounds(found, "x") in (None, (1000, 2000))
    assert found.get("nullCount", {}).get("x", 0) == 0
