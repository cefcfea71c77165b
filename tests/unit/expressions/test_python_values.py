"""Python values for columns are stored exactly or refused, in the same way at every nesting depth and in records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable, SchemaMismatchError
from deltalog.expressions.python_values import as_scalar
from deltalog.protocol.schema import DataType
from deltalog.schema import StructType
from deltalog.write_contract.records import record_batches

UTC, EAST = dt.timezone.utc, dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(2026, 11, 20, 12)
INSTANT, WALL = pa.timestamp("us", "UTC"), pa.timestamp("us")

#: Values that cannot be stored exactly in the given type.
LOSSES: list[tuple[pa.DataType, Any]] = [
    (pa.int32(), 1.5), (pa.int64(), Decimal("0.1")), (pa.int32(), 2**31), (pa.int64(), 2**70), (pa.int64(), True),
    (pa.int64(), "5"), (pa.int64(), np.float64(0.5)), (pa.int8(), 128), (pa.float32(), 1e39), (pa.float32(), 16777217),
    (pa.float64(), 2**53 + 1), (pa.float64(), "1.5"), (pa.decimal128(5, 2), Decimal("1.005")),
    (pa.decimal128(5, 2), 1.005), (pa.decimal128(5, 2), 10**6), (pa.bool_(), 1), (pa.string(), 5), (pa.string(), b"a"),
    (pa.date32(), NOON), (pa.date32(), dt.datetime(2026, 11, 20, 1, tzinfo=UTC)), (pa.date32(), "noon"),
    (INSTANT, NOON), (INSTANT, pd.Timestamp(NOON)), (INSTANT, dt.date(2026, 11, 20)), (INSTANT, 0.5),
    (WALL, NOON.replace(tzinfo=UTC)), (WALL, NOON.replace(tzinfo=EAST)), (WALL, pd.Timestamp(5)), (WALL, "now"),
    (WALL, np.datetime64(5, "ns")),
]  # fmt: skip
#: Values that are stored exactly, each with its stored form.
WHOLE: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int32(), 1.0, 1), (pa.int64(), Decimal(7), 7), (pa.int64(), np.int16(3), 3), (pa.float32(), 0.5, 0.5),
    (pa.float64(), 2**53, float(2**53)), (pa.float64(), np.float32(0.5), 0.5), (pa.bool_(), np.bool_(True), True),
    (pa.decimal128(5, 2), 1.5, Decimal("1.50")), (pa.decimal128(5, 2), 3, Decimal("3.00")), (pa.string(), "", ""),
    (pa.binary(), bytearray(b"a"), b"a"), (pa.date32(), "2026-11-20", NOON.date()),
    (pa.date32(), NOON.date(), NOON.date()),
    (INSTANT, NOON.replace(tzinfo=EAST), NOON.replace(hour=10, tzinfo=UTC)), (WALL, np.datetime64(NOON), NOON),
    (INSTANT, "2026-11-20T12:00:00Z", NOON.replace(tzinfo=UTC)), (WALL, "2026-11-20 12:00:00", NOON),
    (WALL, pd.Timestamp(NOON), NOON), (INSTANT, pd.Timestamp(NOON, tz="UTC"), NOON.replace(tzinfo=UTC)),
    (pa.int32(), pa.scalar(5), 5), (pa.string(), None, None),
]  # fmt: skip

Depth = tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any]]
DEPTHS: dict[str, Depth] = {
    "top": (lambda kind: kind, lambda value: value),
    "struct": (lambda kind: pa.struct([("a", kind), ("b", pa.int64())]), lambda value: {"a": value, "b": None}),
    "list": (pa.list_, lambda value: [value]),
    "map": (lambda kind: pa.map_(pa.string(), kind), lambda value: {"k": value}),
    "entries": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
    "struct in list": (lambda kind: pa.list_(pa.struct([("a", kind)])), lambda value: [{"a": value}]),
    "list in map in struct": (
        lambda kind: pa.struct([("m", pa.map_(pa.int32(), pa.list_(kind)))]),
        lambda value: {"m": {1: [None, value]}},
    ),
}


def delta_type(kind: pa.DataType) -> DataType:
    return StructType.from_arrow(pa.schema([("v", kind)])).fields[0].data_type


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("kind", "value"), LOSSES, ids=str)
def test_what_would_be_kept_in_part_is_refused_at_every_depth(kind: pa.DataType, value: Any, depth: str) -> None:
    around, inside = DEPTHS[depth]
    with pytest.raises((ValueError, TypeError, OverflowError, pa.ArrowException)):
        as_scalar(inside(value), delta_type(around(kind)))


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("kind", "value", "kept"), WHOLE, ids=str)
def test_what_is_whole_is_kept_at_every_depth(kind: pa.DataType, value: Any, kept: Any, depth: str) -> None:
    around, inside = DEPTHS[depth]
    found = as_scalar(inside(value), delta_type(around(kind)))
    assert found.equals(pa.scalar(inside(kept), found.type))


def test_a_key_of_a_map_is_checked_as_a_value() -> None:
    for kind, value in LOSSES:
        with pytest.raises((ValueError, TypeError, OverflowError, pa.ArrowException)):
            as_scalar({value: 1}, delta_type(pa.map_(kind, pa.int64())))
    for pairs in ([("a", 1), ("a", 2)], [(None, 1)], {None: 1}):
        with pytest.raises(ValueError, match="it has the key"):
            as_scalar(pairs, delta_type(pa.map_(pa.string(), pa.int64())))


POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])
SHAPES: list[tuple[pa.DataType, Any, str]] = [
    (POINT, {"x": 1, "y": 2, "z": 3}, "it has a field 'z', but its fields are x, y"),
    (POINT, {"X": 1, "y": 2}, "it has a field 'X'"),
    (POINT, {"x": 1}, "it lacks the field 'y'; pass None for null"),
    (POINT, [("x", 1), ("y", 2)], "a struct must be a mapping"),
    (pa.list_(POINT), [{"x": 1, "y": None}, {"y": 1}], "element: it lacks the field 'x'"),
    (pa.map_(pa.string(), POINT), {"k": {"x": 1, "y": 1, 3: 4}}, "value: it has a field '3'"),
    (pa.map_(pa.string(), POINT), [("k",)], "a map must be a mapping, or pairs"),
    (pa.list_(pa.string()), "text", "expected a list, not str"),
    (pa.list_(pa.int64()), {1, 2}, "expected a list, not set"),
    (pa.list_(pa.int64()), 5, "expected a list, not int"),
]


@pytest.mark.parametrize(("kind", "value", "message"), SHAPES, ids=str)
def test_the_shape_of_nested_values(kind: pa.DataType, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_scalar(value, delta_type(kind))
    with pytest.raises(ValueError, match=message):
        as_scalar({"a": value}, delta_type(pa.struct([("a", kind)])))


def test_updates_take_whole_values_only(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", POINT), ("l", pa.list_(POINT)), ("at", pa.struct([("t", INSTANT)]))])
    table = DeltaTable.create(tmp_path, schema, data=pa.table({"id": [1]}))
    wrong: list[dict[str, Any]] = [
        {"s": {"nmae": 7, "y": 3}}, {"s": {"x": 1.5, "y": None}}, {"l": [{"x": 1, "y": 2, "q": 5}]},
        {"at": {"t": NOON}}, {"s.x": 1.5}, {"s": {"x": 1}},
    ]  # fmt: skip
    for values in wrong:
        with pytest.raises(CallError, match="not a value for column"):
            table.update(new_values=values)
    assert table.version == 0
    table.update(new_values={"s": {"x": 1.0, "y": None}, "at": {"t": "2026-11-20T12:00:00Z"}, "l": [{"x": 1, "y": 2}]})
    row = table.to_pyarrow_table().select(["s", "l", "at"]).to_pylist()[0]
    assert row == {"s": {"x": 1, "y": None}, "l": [{"x": 1, "y": 2}], "at": {"t": NOON.replace(tzinfo=UTC)}}


@pytest.mark.parametrize("depth", [depth for depth in DEPTHS if depth != "entries"])
@pytest.mark.parametrize(("kind", "value"), [case for case in LOSSES if case[1] != b"a"], ids=str)
def test_records_lose_nothing_at_any_depth(kind: pa.DataType, value: Any, depth: str) -> None:
    around, inside = DEPTHS[depth]
    schema = StructType.from_arrow(pa.schema([("v", around(kind))]))
    with pytest.raises(SchemaMismatchError):
        list(record_batches([{"v": inside(value)}], schema, frozenset()))
