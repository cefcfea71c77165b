"""Statistics read as columns are the same whether they come from JSON text, from a checkpoint's structs, or from
both."""

from __future__ import annotations

import datetime
import decimal
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog import DeltaTable
from deltalog.log import file_statistics
from deltalog.protocol.schema import PrimitiveType, StructField
from deltalog.schema import StructType
from tests.support.core import environment, memory
from tests.support.core.strategies import examples

TEXT_KEY, STRUCT_KEY = "delta.checkpoint.writeStatsAsJson", "delta.checkpoint.writeStatsAsStruct"
SCHEMA = pa.schema(
    [
        ("whole", pa.int32()),
        ("s", pa.struct([("b.c", pa.decimal128(20, 3)), ("wall", pa.timestamp("us"))])),
        ("text", pa.string()),
        ("part", pa.date32()),
        ("flag", pa.bool_()),
        ("moment", pa.timestamp("us", "UTC")),
        ("real", pa.float32()),
    ]
)
DAY = datetime.date(2020, 2, 29)
ROWS: list[dict[str, Any]] = [
    {
        "whole": 1, "s": {"b.c": decimal.Decimal("1.125"), "wall": datetime.datetime(1, 1, 1, 1, 1, 1, 123456)},
        "text": 'ä"\n', "part": DAY, "flag": True, "real": 1.5,
        "moment": datetime.datetime(9999, 12, 31, 23, tzinfo=datetime.timezone.utc),
    },
    {"whole": -2, "s": None, "text": "x" * 50, "part": DAY, "flag": None, "real": 0.25, "moment": None},
]  # fmt: skip


@pytest.mark.parametrize("properties", [{}, {TEXT_KEY: "false"}, {STRUCT_KEY: "false"}])
def test_a_checkpoint_says_what_the_commits_said(properties: dict[str, str]) -> None:
    store = memory()
    table = DeltaTable.create(store, SCHEMA, partition_by=["part"], properties=properties, environment=environment())
    table.append(pa.Table.from_pylist(ROWS, schema=SCHEMA))
    by_commits = DeltaTable.open(store).snapshot()
    (row,) = by_commits.statistics().to_pylist()
    assert (row["num_records"], row["min_values"]["whole"], row["max_values"]["whole"]) == (2, -2, 1)
    assert row["min_values"]["s"] == {
        "b.c": decimal.Decimal("1.125"), "wall": datetime.datetime(1, 1, 1, 1, 1, 1, 123000)
    }  # fmt: skip
    assert row["max_values"]["text"] == 'ä"\n' and row["null_count"]["flag"] == 1
    assert "part" not in row["min_values"]
    table.checkpoint()
    by_checkpoint = DeltaTable.open(store).snapshot()
    assert by_checkpoint.log.segment.checkpoint is not None
    assert by_checkpoint.statistics().to_pylist() == [row]
    assert json.loads(by_checkpoint.files()["stats"][0].as_py()).keys() == {
        "numRecords", "minValues", "maxValues", "nullCount"
    }  # fmt: skip
    assert by_checkpoint.statistics(["whole"]).to_pylist() == [
        {"num_records": 2, "tight_bounds": None, "min_values": {"whole": -2}, "max_values": {"whole": 1},
         "null_count": {"whole": 0}}
    ]  # fmt: skip


def read(texts: list[str | None], kind: str = "long") -> list[dict[str, Any]]:
    fields = [{"name": "x", "type": kind, "nullable": True, "metadata": {}}]
    leaves = file_statistics.leaves_of(StructType.from_json(json.dumps({"type": "struct", "fields": fields})), "none")
    flat = file_statistics.statistics_of_files(pa.table({"stats": pa.array(texts, pa.string())}), leaves)
    names = {"numRecords": "rows", "tightBounds": "tight", "minValues\0x": "low", "maxValues\0x": "high"}
    return flat.rename_columns([names.get(n, n) for n in flat.schema.names]).to_pylist()


def bounds(low: str, high: str) -> str:
    return f'{{"numRecords":5,"minValues":{{"x":{low}}},"maxValues":{{"x":{high}}},"nullCount":{{"x":0}}}}'


def test_one_file_that_makes_no_sense_does_not_cost_the_others() -> None:
    sound = bounds("1", "2")
    texts = [sound, None, "", "x", "[1]", "null", bounds('"a"', "2"), '{"numRecords":"5"}', sound.replace("{", "{\n")]
    found = read([*texts, sound])
    assert [(row["low"], row["high"]) for row in found] == [
        (1, 2),
        *[(None, None)] * 5,
        (None, 2),
        *[(None, None)] * 2,
        (1, 2),
    ]
    assert [row["rows"] for row in found] == [5, None, None, None, None, None, 5, None, None, 5]


D, T = datetime.date, datetime.datetime
UTC = datetime.timezone.utc


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        ("byte", "-128", "128", (-128, None)),
        ("double", "1", '"NaN"', (1.0, None)),
        ("double", "1.5", "-0.0", (1.5, -0.0)),
        ("decimal(5,2)", "1.119", "1.111", (decimal.Decimal("1.11"), decimal.Decimal("1.12"))),
        ("decimal(38,18)", "12345678901234567890.123456789012345678", "1e40",
         (decimal.Decimal("12345678901234567890.123456789012345678"), None)),
        ("date", '"0001-01-01"', '"not a date"', (D(1, 1, 1), None)),
        ("timestamp", '"2020-01-01T00:00:00.123+02:00"', '"2020-01-01 00:00:00"',
         (T(2019, 12, 31, 22, 0, 0, 123000, UTC), T(2020, 1, 1, tzinfo=UTC))),
        ("timestamp_ntz", '"2020-01-01T00:00:00.123"', '"2020-01-01T00:00:00Z"',
         (T(2020, 1, 1, 0, 0, 0, 123000), T(2020, 1, 1))),
        ("string", '"\\u00e4"', '"\\ud800"', ("ä", None)),
    ],
)  # fmt: skip
def test_bounds_in_the_type_of_the_column(kind: str, low: str, high: str, expected: tuple[Any, Any]) -> None:
    (row,) = read([bounds(low, high)], kind)
    assert (row["low"], row["high"]) == expected


BOUNDED = {
    "byte": ["1", "-128", "128", "1.0", "true", "99999999999999999999"],
    "long": ["1", "-9223372036854775808", "9223372036854775808", "1e2"],
    "double": ["1", "1.5", "-0.0", '"NaN"', "1e999"],
    "date": ['"2020-01-01"', '"no date"'],
    "timestamp": ['"2020-01-01T00:00:00.123+02:00"', '"2020-01-01 00:00:00"', '"x"'],
    "string": ['"a"', '"\\u00e4\\""', '"\\ud800"', '"}"', '"{"', '"\\n"'],
}
SHAPES = [
    '{"minValues":{"x":%s},"maxValues":{"x":%s}}', '{"maxValues":{"x":%s,"y":{"x":7}},"nullCount":{"x":%s}}',
    '{"minValues":{"s":{"x":%s},"x":%s}}', '{"minValues":{"x":%s,"x":%s},"numRecords":5,"tightBounds":false}',
    '{ "minValues" : {"\\u0078": %s}, "other": [%s] }',
]  # fmt: skip
ODD = ["{}", "", " {} ", "{}{}", "{", "}", '{"minValues":null}', '{"minValues":[]}', "{} x", '{"a":"}\n{"}', None]


@st.composite
def _texts(draw: st.DrawFn) -> tuple[str, list[str | None]]:
    kind = draw(st.sampled_from(sorted(BOUNDED)))
    values = st.sampled_from([*BOUNDED[kind], "null"])
    sound = st.builds(lambda shape, low, high: shape % (low, high), st.sampled_from(SHAPES), values, values)
    return kind, draw(st.lists(sound, min_size=1, max_size=4)) + draw(st.lists(st.sampled_from(ODD), max_size=1))


@pytest.mark.slow
@settings(max_examples=examples(500), deadline=None)
@given(_texts())
def test_bounds_alone_are_those_among_all_statistics(case: tuple[str, list[str | None]]) -> None:
    kind, texts = case
    leaves = [file_statistics.Leaf(path, path, _type(kind)) for path in (("x",), ("s", "x"))]
    files = pa.table({"stats": pa.array(texts, pa.string())})
    found = file_statistics.bounds_of_files(files, leaves)
    expected = file_statistics.statistics_of_files(files, leaves)
    names = [file_statistics.column_name(group, leaf) for group in ("minValues", "maxValues") for leaf in leaves]
    if found is not None:
        assert found.schema == expected.schema
        assert found.select(names).to_pylist() == expected.select(names).to_pylist()


def _type(kind: str) -> Any:
    fields = [{"name": "x", "type": kind, "nullable": True, "metadata": {}}]
    return StructType.from_json(json.dumps({"type": "struct", "fields": fields})).field("x").data_type


def test_bounds_alone_are_read_from_plain_statistics() -> None:
    leaf = file_statistics.Leaf(("x",), ("x",), _type("long"))
    files = pa.table({"stats": [bounds("1", "2"), '{"numRecords":1}', bounds("3", "4")]})
    found = file_statistics.bounds_of_files(files, [leaf])
    assert found is not None
    assert found["minValues\0x"].to_pylist() == [1, None, 3]
    assert found["numRecords"].null_count == 3


@pytest.mark.parametrize("odd", [each for each in ODD if each not in ("{}",)])
def test_bounds_alone_are_not_read_among_odd_statistics(odd: str | None) -> None:
    leaf = file_statistics.Leaf(("x",), ("x",), _type("long"))
    files = pa.table({"stats": pa.array([bounds("1", "2"), odd, bounds("3", "4")], pa.string())})
    assert file_statistics.bounds_of_files(files, [leaf]) is None


def test_no_first_read_waits_for_pandas(tmp_path: Path) -> None:
    """To convert Python values, Arrow imports pandas if it is installed, which takes a third of a second."""
    DeltaTable.create(tmp_path / "t", SCHEMA, partition_by=["part"]).append(pa.Table.from_pylist(ROWS, schema=SCHEMA))
    program = """
import sys
from deltalog import DeltaTable, col
snapshot = DeltaTable.open(sys.argv[1]).snapshot()
snapshot.files()
snapshot.statistics()
assert snapshot.scan(where=(col("whole") >= 0) & (col("text") < "z")).files().num_rows == 1
assert snapshot.scan().to_arrow().num_rows > 0
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "t")], check=True)


@given(
    st.lists(st.none() | st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.sampled_from("xy")), max_size=2)),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_partition_values_are_the_first_at_their_key(
    maps: list[list[tuple[str, str | None]] | None], skipped: int, left: int
) -> None:
    """Neither the order of map keys nor the offsets of maps in memory matter."""
    regular: list[list[tuple[str, str | None]]] = [[("b", None), ("a", str(number))] for number in range(len(maps))]
    for each in (maps, regular):
        table = pa.table({"partition_values": pa.array(each, pa.map_(pa.string(), pa.string()))})
        part = table.slice(skipped, max(0, table.num_rows - skipped - left))
        found = file_statistics.partition_values(part, StructField("a", PrimitiveType("string")), "none").to_pylist()
        assert found == [
            next((value for key, value in pairs or () if key == "a"), None)
            for pairs in part["partition_values"].to_pylist()
        ]
