"""Rows whose types differ from the table's: values that fit are cast, and others are refused; no value is lost, wrapped
or truncated."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from deltalog import Dataset, DeltaTable, SchemaMismatchError, UnsupportedFeatureError
from deltalog.protocol.arrow_types import plain_layout
from deltalog.schema import ArrayType, MapType, PrimitiveType, StructField, StructType
from tests.support.core import environment, tree

UTC, LONG = "UTC", PrimitiveType("long")
Verb = Callable[[DeltaTable, pa.Table], object]
VERBS: dict[str, Verb] = {
    "append": lambda t, rows: t.append(rows),
    "append a reader": lambda t, rows: t.append(rows.to_reader()),
    "merge": lambda t, rows: t.append(rows, merge_schema=True),
    "overwrite": lambda t, rows: t.overwrite(rows),
    "overwrite where": lambda t, rows: t.overwrite(rows, where="true"),
    "write": lambda t, rows: Dataset(t).write(rows),
    "stream": lambda t, rows: Dataset(t).stream_write_records(rows.to_batches()),
    "stage": lambda t, rows: t.commit_staged([t.stage(rows)]),
}


def create(path: Path, kind: pa.DataType, **more: Any) -> DeltaTable:
    return DeltaTable.create(
        path / "t", pa.schema([("id", pa.int64()), ("x", kind)]), environment=environment(), **more
    )


def rows_of(values: Any) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "x": values})


def read(table: DeltaTable) -> list[Any]:
    found = DeltaTable.open(table.url).snapshot().scan().to_arrow().sort_by("id")
    return list(found["x"].to_pylist())


def refused(path: Path, verb: Verb, table: DeltaTable, rows: pa.Table) -> None:
    before = tree(path)
    with pytest.raises(SchemaMismatchError, match="x"):
        verb(table, rows)
    assert tree(path) == before


# ------------------------------------------------------------------------------------------------- timestamps


def nested(values: pa.Array, place: str) -> pa.Array:
    """Put the values into the kind of column that ``place`` names: a plain column, or a nested one with the values as
    leaves."""
    one = pa.array([0, len(values)], pa.int32())
    return _PLACES[place](values, one)


_PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda values, one: values,
    "struct": lambda values, one: pa.StructArray.from_arrays([values], ["a"]),
    "list": lambda values, one: pa.ListArray.from_arrays(one, values),
    "large list": lambda values, one: pa.LargeListArray.from_arrays(one.cast(pa.int64()), values),
    "map": lambda values, one: pa.MapArray.from_arrays(one, pa.array([str(i) for i in range(len(values))]), values),
    "list of structs": lambda values, one: pa.ListArray.from_arrays(one, pa.StructArray.from_arrays([values], ["a"])),
    "dictionary": lambda values, one: pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int32()), values),
    "runs": lambda values, one: pc.run_end_encode(values),
}
LOST = [("s", 10**15), ("ms", 2**62), ("ns", 1999), ("ns", -1), ("s", -(10**15))]


@pytest.mark.parametrize(("unit", "number"), LOST)
@pytest.mark.parametrize("zone", [None, UTC])
@pytest.mark.parametrize("place", _PLACES)
def test_a_time_that_does_not_fit_is_refused(
    unit: str, number: int, zone: str | None, place: str, tmp_path: Path
) -> None:
    values = nested(pa.array([0, number], pa.timestamp(unit, zone)), place)
    fitting = nested(pa.array([0, 1], pa.timestamp("us", zone)), place)
    table = DeltaTable.create(tmp_path / "t", rows_of(fitting).schema, environment=environment())
    refused(tmp_path, VERBS["append"], table, rows_of(values))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("unit", "number"), LOST)
def test_every_verb_refuses_it(verb: str, unit: str, number: int, tmp_path: Path) -> None:
    table = create(tmp_path, pa.timestamp("us", UTC))
    refused(tmp_path, VERBS[verb], table, rows_of(pa.array([number], pa.timestamp(unit, UTC))))


@pytest.mark.parametrize(("unit", "number"), LOST)
def test_a_partition_or_a_declared_column_refuses_it(unit: str, number: int, tmp_path: Path) -> None:
    rows = rows_of(pa.array([0, number], pa.timestamp(unit, UTC)))
    for name, more in (("a", {"partition_by": ["x"]}), ("b", {})):
        table = create(tmp_path / name, pa.timestamp("us", UTC), **more)
        refused(tmp_path, lambda t, given: Dataset(t).write(given, timestamp_column="x"), table, rows)
    with pytest.raises(SchemaMismatchError, match="x"):
        DeltaTable.create(tmp_path / "c", rows.schema, data=rows)
    with pytest.raises(SchemaMismatchError, match="x"):
        Dataset(tmp_path / "d", schema=rows.schema).write(rows)
    assert not [name for name in tree(tmp_path / "d") if name.endswith(".parquet")] if (tmp_path / "d").exists() else 1


def test_times_of_another_unit_that_fit_are_the_same_times(tmp_path: Path) -> None:
    table = create(tmp_path, pa.timestamp("us", UTC))
    moment = datetime.datetime(2026, 11, 20, 10, tzinfo=datetime.timezone.utc)
    for unit in ("s", "ms", "us", "ns"):
        table.append(rows_of(pa.array([moment, None], pa.timestamp(unit, UTC))))
    assert sorted(read(table), key=str) == [moment] * 4 + [None] * 4
    stats = table.snapshot().statistics(["x"])
    assert set(stats["max"]["x"].to_pylist() if "max" in stats.column_names else [moment]) == {moment}


def test_files_of_others_with_nanoseconds_are_rounded_down_and_never_wrap(tmp_path: Path) -> None:
    table = create(tmp_path, pa.timestamp("us"))
    written = rows_of(pa.array([-1, 1999, -(2**63)], pa.timestamp("ns")))
    pq.write_table(written, tmp_path / "t" / "theirs.parquet")
    with table.transaction() as transaction:
        transaction.add_parquet_files([("theirs.parquet", {})])
        transaction.commit()
    found = table.snapshot().scan().to_arrow()["x"].cast(pa.int64()).to_pylist()
    assert found == [-1, 1, -9223372036854776]


# --------------------------------------------------------------------------------------------- lossless casts

BYTE, SHORT, INT = pa.int8(), pa.int16(), pa.int32()
FITS: list[tuple[pa.DataType, pa.DataType, Any, Any]] = [
    (pa.int64(), INT, 2**31 - 1, 2**31 - 1),
    (pa.int64(), BYTE, -128, -128),
    (pa.int64(), pa.uint8(), 255, 255),
    (pa.int64(), pa.uint32(), 2**32 - 1, 2**32 - 1),
    (INT, pa.uint16(), 65535, 65535),
    (INT, SHORT, -(2**15), -(2**15)),
    (SHORT, pa.uint8(), 255, 255),
    (pa.float64(), pa.float32(), 1.5, 1.5),
    (pa.float64(), INT, 2**31 - 1, float(2**31 - 1)),
    (pa.float32(), SHORT, 2**15 - 1, float(2**15 - 1)),
    (pa.float32(), pa.float16(), np.float16(1.5), 1.5),  # old versions of pyarrow accept only NumPy's float16
    (pa.decimal128(10, 2), pa.decimal128(5, 2), Decimal("123.45"), Decimal("123.45")),
    (pa.decimal128(10, 4), pa.decimal128(5, 2), Decimal("123.45"), Decimal("123.4500")),
    (pa.decimal128(20, 0), pa.int64(), 2**63 - 1, Decimal(2**63 - 1)),
    (pa.decimal128(12, 2), INT, -(2**31), Decimal(-(2**31))),
    (pa.timestamp("us"), pa.date32(), datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1)),
]  # fmt: skip
LOSES: list[tuple[pa.DataType, pa.DataType, Any]] = [
    (INT, pa.int64(), 1),
    (BYTE, pa.uint8(), 1),
    (pa.int64(), pa.uint64(), 1),
    (pa.int64(), pa.float64(), 1.0),
    (pa.int64(), pa.decimal128(5, 0), Decimal(1)),
    (pa.float32(), pa.float64(), 1.5),
    (pa.float32(), INT, 1),
    (pa.float64(), pa.int64(), 1),
    (pa.float64(), pa.decimal128(5, 2), Decimal(1)),
    (pa.decimal128(5, 2), pa.decimal128(10, 2), Decimal(1)),
    (pa.decimal128(10, 2), pa.decimal128(10, 4), Decimal(1)),
    (pa.decimal128(10, 2), INT, 1),
    (pa.string(), pa.int64(), 1),
    (pa.int64(), pa.string(), "1"),
    (pa.int64(), pa.bool_(), True),
    (pa.timestamp("us", UTC), pa.date32(), datetime.date(2026, 1, 1)),
    (pa.timestamp("us", UTC), pa.timestamp("us"), datetime.datetime(2026, 1, 1)),
    (pa.date32(), pa.timestamp("us"), datetime.datetime(2026, 1, 1)),
    (pa.binary(), pa.string(), "x"),
    (pa.string(), pa.binary(), b"x"),
]  # fmt: skip


@pytest.mark.parametrize(("wide", "narrow", "value", "becomes"), FITS, ids=lambda each: str(each)[:20])
def test_a_type_that_holds_every_value_takes_it(
    wide: pa.DataType, narrow: pa.DataType, value: Any, becomes: Any, tmp_path: Path
) -> None:
    rows = rows_of(pa.array([value, None], narrow))
    table = create(tmp_path, wide, data=rows)
    for verb in [*VERBS.values()][FITS.index((wide, narrow, value, becomes)) % 4 :: 4]:
        verb(table, rows)
        assert read(table)[0] == becomes
    assert {str(field.type) for field in table.snapshot().schema.to_arrow()} == {"int64", str(wide)}
    for place in ("struct", "list", "map", "list of structs", "dictionary"):
        inside = nested(pa.array([value], narrow), place)
        deep = DeltaTable.create(tmp_path / place, rows_of(nested(pa.array([None], wide), place)).schema)
        deep.append(rows_of(inside))
        wanted = nested(pa.array([value], narrow).cast(wide), place)
        assert read(deep) == rows_of(plain_layout(wanted))["x"].to_pylist()


@pytest.mark.parametrize(("table_type", "given", "value"), LOSES, ids=lambda each: str(each)[:20])
def test_a_type_that_may_lose_is_refused_whatever_the_values(
    table_type: pa.DataType, given: pa.DataType, value: Any, tmp_path: Path
) -> None:
    table = create(tmp_path, table_type)
    rows = rows_of(pa.array([value], given))
    for verb in [*VERBS.values()][LOSES.index((table_type, given, value)) % 4 :: 4]:
        refused(tmp_path, verb, table, rows)
    for place in ("struct", "list", "map"):
        deep = DeltaTable.create(tmp_path / place, rows_of(nested(pa.array([None], table_type), place)).schema)
        refused(tmp_path, VERBS["append"], deep, rows_of(nested(pa.array([value], given), place)))


def test_a_narrower_partition_column_is_one_value(tmp_path: Path) -> None:
    table = create(tmp_path, pa.int64(), partition_by=["x"])
    for kind in (pa.int64(), INT, pa.uint8()):
        table.append(rows_of(pa.array([5], kind)))
    assert {tuple(values) for values in table.snapshot().files()["partition_values"].to_pylist()} == {(("x", "5"),)}
    assert table.delete("x = 5").version == 4 and read(table) == []


def test_a_narrower_overwrite_counts_by_the_tables_type(tmp_path: Path) -> None:
    table = create(tmp_path, pa.float64(), data=rows_of(pa.array([1.5, 2.5])))
    table.overwrite(rows_of(pa.array([1.5], pa.float32())), where="x < 2")
    assert sorted(read(table)) == [1.5, 2.5]


def test_unsigned_types_make_the_next_wider_column(tmp_path: Path) -> None:
    rows = pa.table(
        {"a": pa.array([255], pa.uint8()), "b": pa.array([1], pa.uint16()), "c": pa.array([1], pa.uint32())}
    )
    table = DeltaTable.create(tmp_path / "t", rows.schema, data=rows)
    assert [str(column.data_type) for column in table.snapshot().schema] == ["short", "integer", "long"]
    assert table.snapshot().scan().to_arrow().to_pylist() == [{"a": 255, "b": 1, "c": 1}]


# ----------------------------------------------------------------------------------------- unusual columns

VOID = PrimitiveType("void")


@pytest.mark.parametrize(
    "column",
    [
        StructType(),
        ArrayType(StructType()),
        MapType(VOID, LONG),
        MapType(LONG, VOID),
        ArrayType(VOID),
        StructType((StructField("a", StructType()),)),
    ],
    ids=str,
)  # fmt: skip
def test_columns_that_no_file_can_hold_are_refused(column: Any, tmp_path: Path) -> None:
    schema = StructType((StructField("i", LONG), StructField("x", column)))
    with pytest.raises(SchemaMismatchError, match="x"):
        DeltaTable.create(tmp_path / "t", schema)
    table = create(tmp_path, pa.int64())
    with pytest.raises(SchemaMismatchError, match="y"):
        table.add_columns([StructField("y", column)])
    if column.__class__ is StructType and not column.fields:
        with pytest.raises(SchemaMismatchError, match="y"):
            table.append(pa.table({"y": pa.array([{}], pa.struct([]))}), merge_schema=True)
    assert table.version == 0


def test_columns_of_others_without_a_type_are_read_where_arrow_has_them(tmp_path: Path) -> None:
    for column in (ArrayType(VOID, False), StructType((StructField("a", VOID, False),)), StructType()):
        assert StructType((StructField("x", column),)).to_arrow()
    with pytest.raises(UnsupportedFeatureError, match="map<void,long>"):
        StructType((StructField("x", MapType(VOID, LONG)),)).to_arrow()


def test_a_column_of_nulls_gets_its_type_when_it_has_values(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "t", pa.schema([("i", pa.int64())]))
    struct = pa.struct([("a", pa.null()), ("b", pa.int64())])
    table.append(
        pa.table({"i": [1], "n": pa.nulls(1), "s": pa.array([{"a": None, "b": 1}], struct)}), merge_schema=True
    )
    more = pa.table({"i": [2], "n": ["x"], "s": [{"a": 1.5, "b": 2}]})
    with pytest.raises(SchemaMismatchError, match=r"n has no type yet.*merge_schema=True"):
        table.append(more)
    table.append(more, merge_schema=True)
    table.append(pa.table({"i": [3], "n": pa.nulls(1)}), merge_schema=True)
    found = DeltaTable.open(table.url).snapshot().scan().to_arrow().sort_by("i")
    assert found["n"].to_pylist() == [None, "x", None]
    assert found["s"].to_pylist() == [{"a": None, "b": 1}, {"a": 1.5, "b": 2}, None]


LISTS = [pa.list_view(pa.int64()), pa.large_list_view(pa.int64()), pa.large_list(pa.int64())]


@pytest.mark.parametrize("kind", LISTS, ids=str)
def test_every_layout_of_lists(kind: pa.DataType, tmp_path: Path) -> None:
    values = [[1, 2], None, [], [3, None]]
    table = create(tmp_path, pa.list_(pa.int64()))
    rows = rows_of(pa.array(values, kind))
    table.append(rows)
    assert read(table) == values
    assert plain_layout(pa.array(values, kind).slice(1, 2)).to_pylist() == values[1:3]
    DeltaTable.create(tmp_path / "of it", rows.schema, data=rows)
    assert read(DeltaTable.open(tmp_path / "of it")) == values


def test_runs_and_dictionaries_at_every_depth(tmp_path: Path) -> None:
    words = pa.array(["a", "a", None, "b"])
    views = pa.DictionaryArray.from_arrays(
        pa.array([0, 0, None, 1], pa.uint32()), pa.array(["a", "b"], pa.string_view())
    )
    layouts = [words, words.dictionary_encode(), views, pc.run_end_encode(words)]
    for number, (values, place) in enumerate(
        itertools.product(layouts, ["plain", "struct", "list", "list of structs"])
    ):
        wanted = nested(words, place)
        table = create(tmp_path / str(number), wanted.type)
        given = values if place == "plain" else nested(values, place)
        table.append(rows_of(given))
        assert read(table) == wanted.to_pylist()


def test_polars_words_of_a_list(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    words, choice = pl.Categorical, pl.Enum(["a", "b"])
    data = pl.DataFrame(
        {"id": [0, 1], "c": ["a", None], "e": ["b", "a"], "l": [["a"], None], "s": [{"a": "b"}, {"a": None}]},
        schema={"id": pl.Int64, "c": words, "e": choice, "l": pl.List(words), "s": pl.Struct({"a": choice})},
    )
    kinds = {"id": pa.int64(), "c": pa.string(), "e": pa.string(), "l": pa.list_(pa.string())}
    table = DeltaTable.create(tmp_path / "t", pa.schema({**kinds, "s": pa.struct([("a", pa.string())])}), data=data)
    table.append(data, merge_schema=True)
    assert table.snapshot().scan().to_arrow().to_pylist() == 2 * data.to_dicts()


def not_utf8() -> pa.Array:
    offsets = pa.array([0, 2, 4], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xffbc")])


@pytest.mark.parametrize("verb", VERBS)
def test_text_that_is_not_utf8_is_refused(verb: str, tmp_path: Path) -> None:
    table = create(tmp_path / "a", pa.string())
    rows = rows_of(not_utf8())
    refused(tmp_path, VERBS[verb], table, rows)
    if verb != "stream":
        parted = create(tmp_path / "b", pa.string(), partition_by=["x"])
        with pytest.raises(SchemaMismatchError, match="UTF"):
            VERBS[verb](parted, rows)
