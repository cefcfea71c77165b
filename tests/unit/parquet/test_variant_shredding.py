"""Shredded variants: put together from typed columns, and taken apart into typed columns."""

from __future__ import annotations

import datetime
import decimal
import math
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog.errors import InvalidDataFileError
from deltalog.parquet.variant_shredding import Shredding, unshred
from deltalog.protocol.schema import VARIANT, ArrayType
from deltalog.schema import PrimitiveType, StructField, StructType, variant_from_python
from tests.support.core.strategies import examples
from tests.unit.protocol.test_variant import EMPTY, ID, UTC, names, python


def rebuilt(rows: list[Any], typed: pa.DataType, metadata: bytes = EMPTY) -> list[Any]:
    """The values reconstructed from ``value`` and ``typed_value``."""
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed)])
    column = pa.array([None if row is None else {"metadata": metadata, **row} for row in rows], kind)
    return [None if v is None else python(v, metadata) for v in unshred(column)]


MOMENTS = [datetime.datetime(1960, 1, 2, 3, 4, 5, 678_901)]
ZONED = [moment.replace(tzinfo=UTC) for moment in MOMENTS]
TYPED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128]),
    (pa.int16(), [-32768]),
    (pa.int32(), [2**31 - 1]),
    (pa.int64(), [-(2**63)]),
    (pa.float32(), [1.5]),
    (pa.float64(), [0.1]),
    (pa.decimal128(9, 2), [decimal.Decimal("-1234567.89")]),
    (pa.decimal128(18, 2), [decimal.Decimal("1234567890123456.78")]),
    (pa.decimal128(38, 38), [decimal.Decimal("0." + "9" * 38)]),
    (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    (pa.time64("us"), [datetime.time(23, 59, 59, 999_999)]),
    (pa.timestamp("us", "UTC"), ZONED),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("ns", "UTC"), ZONED),
    (pa.timestamp("ns"), MOMENTS),
    (pa.string(), ["", "short", "x" * 63, "x" * 64]),
    (pa.large_string(), ["é"]),
    (pa.binary(), [b"", b"\x00\xff"]),
    (pa.dictionary(pa.int32(), pa.string()), ["again", "again"]),
]


@pytest.mark.parametrize(("kind", "values"), TYPED, ids=[str(kind) for kind, _ in TYPED])
def test_typed_values_of_every_type(kind: pa.DataType, values: list[Any]) -> None:
    rows = [*({"typed_value": value} for value in values), {"value": b"\x05x"}, {"value": b"\x00"}, {}, None]
    assert rebuilt(rows, kind) == [*values, "x", None, None, None]


def test_uuids() -> None:
    assert rebuilt([{"typed_value": ID.bytes}], pa.binary(16)) == [ID]


def group(typed: pa.DataType) -> pa.DataType:
    return pa.struct([("value", pa.binary()), ("typed_value", typed)])


ONE, TWO = b"\x0c\x01", b"\x0c\x02"


def test_arrays_of_arrays() -> None:
    kind = pa.list_(group(pa.list_(group(pa.int8()))))
    inner = [{"typed_value": 1}, {"value": b"\x05x"}, {}]
    rows = [{"typed_value": [{"typed_value": inner}, {"value": ONE}, {"typed_value": []}]}, {"typed_value": []}, None]
    assert rebuilt(rows, kind) == [[[1, "x", None], 1, []], [], None]


def test_arrays_of_many_elements() -> None:
    rows = [{"typed_value": [{"typed_value": f"{i:030d}"} for i in range(70_000)]}]
    assert rebuilt(rows, pa.list_(group(pa.string()))) == [[f"{i:030d}" for i in range(70_000)]]


def test_objects_with_fields_that_are_absent_null_or_of_another_type() -> None:
    kind = pa.struct([("b", group(pa.int8())), ("é", group(pa.string()))])
    metadata = names("é", "b", "rest")
    rest = b"\x02\x01\x02\x00\x02" + TWO
    rows = [
        {"typed_value": {"b": {"typed_value": 1}, "é": {"typed_value": "x"}}},
        {"typed_value": {"b": {"value": b"\x00"}, "é": {}}, "value": rest},
        {"typed_value": {"b": {}, "é": {}}},
        {"value": b"\x05x"},
        {"value": b"\x02\x01\x01\x00\x02" + ONE},
    ]
    found = rebuilt(rows, kind, metadata)
    assert found == [{"b": 1, "é": "x"}, {"b": None, "rest": 2}, {}, "x", {"b": 1}]
    assert list(found[0]) == ["b", "é"]


def test_a_field_that_is_stored_twice_is_the_typed_one() -> None:
    rest = b"\x02\x01\x00\x00\x02" + TWO
    rows = [{"typed_value": {"a": {"typed_value": 1}}, "value": rest}]
    assert rebuilt(rows, pa.struct([("a", group(pa.int8()))]), names("a")) == [{"a": 1}]


def test_objects_of_many_fields() -> None:
    fields = [f"field{i:04d}" for i in range(300)]
    kind = pa.struct([(name, group(pa.int64())) for name in fields])
    rows = [{"typed_value": {name: {"typed_value": i} for i, name in enumerate(fields)}}]
    expected = {name: i for i, name in enumerate(fields)}
    assert rebuilt(rows, kind, names(*fields, width=2)) == [expected]


def test_slices_and_nulls_that_hide_values() -> None:
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.list_(group(pa.int8())))])
    rows = [{"metadata": EMPTY, "typed_value": [{"typed_value": i}] * i} for i in range(5)]
    column = pa.array(rows, kind)
    expected = [[i] * i for i in range(5)]
    assert [python(v or b"") for v in unshred(column[2:4])] == expected[2:4]
    hidden = pa.StructArray.from_arrays(
        [column.field(i) for i in range(3)], fields=list(kind), mask=pa.array([i == 3 for i in range(5)])
    )
    assert [None if v is None else python(v) for v in unshred(hidden)] == [*expected[:3], None, expected[4]]


REFUSED: dict[str, tuple[Any, pa.DataType]] = {
    "a field that the metadata lacks": (
        {"typed_value": {"a": {"typed_value": 1}}},
        pa.struct([("a", group(pa.int8()))]),
    ),
    "a rest that is no object": ({"typed_value": {"a": {}}, "value": ONE}, pa.struct([("a", group(pa.int8()))])),
    "a type that no variant has": ({"typed_value": 1}, pa.uint8()),
    "no metadata": ({"metadata": None, "typed_value": 1}, pa.int8()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_shredded_values_that_contradict_themselves_are_refused(name: str) -> None:
    row, kind = REFUSED[name]
    with pytest.raises(InvalidDataFileError, match="malformed"):
        rebuilt([row], kind)


# ------------------------------------------------------------------------------------------------ taken apart

COLUMNS = StructType((StructField("v", VARIANT),))


def stored(values: list[Any]) -> pa.Table:
    """Variants as data files store them; None: no variant."""
    kind = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    rows = [None if value is None else variant_from_python(value) for value in values]
    return pa.table({"v": pa.array(rows, kind)})


def shredded(values: list[Any]) -> Any:
    """The variants of ``values`` in typed columns that were chosen by them."""
    rows = stored(values)
    return Shredding.of_rows(rows, COLUMNS).rows(rows)["v"].combine_chunks()


def together(column: Any) -> list[Any]:
    found = unshred(column)
    metadata = column.field("metadata").to_pylist()
    return [None if v is None else python(v, m) for m, v in zip(metadata, found, strict=True)]


def typed(column: Any) -> pa.DataType | None:
    index = column.type.get_field_index("typed_value")
    return None if index < 0 else column.type.field(index).type


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 300, 2**40, None], pa.int64()),
        ([1, decimal.Decimal("2.50")], pa.decimal128(38, 2)),
        ([True, False], pa.bool_()),
        (["a", "b" * 100], pa.string()),
        ([1.5, math.inf], pa.float64()),
        ([b"a"], pa.binary()),
        ([datetime.date(1, 1, 1)], pa.date32()),
        (MOMENTS, pa.timestamp("us")),
        (ZONED, pa.timestamp("us", "UTC")),
        (
            [[1, 2], [], [3]],
            pa.list_(pa.field("element", pa.struct([("value", pa.binary()), ("typed_value", pa.int64())]), False)),
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_values_of_one_type_get_a_typed_column(values: list[Any], kind: pa.DataType) -> None:
    column = shredded(values)
    assert typed(column) == kind
    assert together(column) == values
    assert all(each is None for each in column.field("value").to_pylist())


@pytest.mark.parametrize(
    "values", [[1, "a"], [{}, []], [None], [{}, {}], [ID], [decimal.Decimal("9" * 38), decimal.Decimal("0.1")]]
)
def test_values_of_several_types_stay_together(values: list[Any]) -> None:
    column = shredded(values)
    assert typed(column) is None and together(column) == values


def test_objects_keep_their_rare_fields_as_values() -> None:
    values: list[Any] = [{"a": number, "b": "x", "deep": {"c": [number, 1.5], "d": None}} for number in range(20)]
    values += [{"a": "text", "rare": 1}, {"b": 1.5, "deep": 7}, {}, None, {"A": 1, "x.y": 2, "": 3}]
    column = shredded(values)
    kind = typed(column)
    assert kind is not None and [each.name for each in kind.fields] == ["a", "b", "deep"]
    assert not any(each.nullable for each in kind.fields)
    assert together(column) == values


def test_names_that_readers_of_parquet_mistake_get_no_columns() -> None:
    column = shredded([{"a.b": 1, "": 2, "N": 3, "n": 4, "c": 5}] * 20)
    kind = typed(column)
    assert kind is not None and [each.name for each in kind.fields] == ["N", "c"]
    assert together(column)[0] == {"a.b": 1, "": 2, "N": 3, "n": 4, "c": 5}


def test_the_number_of_columns_is_limited() -> None:
    wide = [{f"f{number:04d}": number for number in range(1000)}] * 3
    column = shredded(wide)
    kind = typed(column)
    assert kind is not None and 100 < kind.num_fields < 200
    assert together(column) == wide
    deep: Any = 1
    for _ in range(190):
        deep = {"d": deep}
    assert together(shredded([deep])) == [deep]


def test_variants_in_structs_are_shredded_and_those_in_lists_are_not() -> None:
    binary = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    kind = pa.struct([pa.field("v", binary), pa.field("n", pa.int64())])
    one, other = variant_from_python({"a": 1}), variant_from_python([1])
    rows = pa.table(
        {
            "s": pa.array([{"v": one, "n": 1}, None, {"v": None, "n": 2}], kind),
            "l": pa.array([[one], None, [other, None]], pa.list_(binary)),
            "row": [1, 2, 3],
        }
    )
    columns = StructType(
        (
            StructField("s", StructType((StructField("v", VARIANT), StructField("n", PrimitiveType("long"))))),
            StructField("l", ArrayType(VARIANT)),
        )
    )
    found = Shredding.of_rows(rows, columns).rows(rows)
    assert found["l"].type == rows["l"].type and found["row"].equals(rows["row"])
    inner = found["s"].combine_chunks().flatten()
    assert typed(inner[0]) is not None and together(inner[0]) == [{"a": 1}, None, None]
    assert inner[1].to_pylist() == [1, None, 2] and found["s"].is_valid().to_pylist() == [True, False, True]


def test_later_rows_of_other_types_fit_into_the_columns_of_a_file() -> None:
    chosen = Shredding.of_rows(stored([{"a": 1, "l": [1]}]), COLUMNS)
    values = [{"a": "x"}, {"a": None, "b": 1}, [1], None, 7, {"a": 2**70}, {"l": ["x", 1, None, {"y": 2}]}, {"l": 1}]
    column = chosen.rows(stored(values))["v"].combine_chunks()
    assert together(column) == values
    decimals = Shredding.of_rows(stored([decimal.Decimal("1.25")]), COLUMNS)
    some = [decimal.Decimal("1.5"), 3, decimal.Decimal("1.255"), decimal.Decimal("9" * 37)]
    column = decimals.rows(stored(some))["v"].combine_chunks()
    assert together(column) == some
    assert [each is None for each in column.field("value").to_pylist()] == [True, True, False, False]


def test_shredded_variants_survive_a_parquet_file(tmp_path: Any) -> None:
    values = [{"a": n, "b": [n, "x"], "c": {"d": 1.5}} if n % 3 else None for n in range(50)]
    rows = stored(values)
    table = Shredding.of_rows(rows, COLUMNS).rows(rows)
    pq.write_table(table, tmp_path / "x.parquet")
    read = pq.read_table(tmp_path / "x.parquet")["v"].combine_chunks()
    assert together(read.storage if isinstance(read, pa.ExtensionArray) else read) == values


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=70)
    | st.binary(max_size=5)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12)
    | st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
    | st.uuids()
)
NAMES = st.sampled_from(["a", "b", "c", "A", "long name", "é"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=12), st.lists(VALUES, max_size=5))
def test_any_variants_are_the_same_after_shredding(first: list[Any], later: list[Any]) -> None:
    chosen = Shredding.of_rows(stored(first), COLUMNS)
    for values in (first, later):
        if values:
            column = chosen.rows(stored(values))["v"].combine_chunks()
            assert together(column) == values if typed(column) is not None else True


MALFORMED = {
    "a value that ends early": b"\x18\x00",
    "an element outside": b"\x03\x01\x09\x01\x00",
    "nothing": b"",
    "an object with a field twice": b"\x02\x02\x00\x00\x00\x01\x02\x00\x00",
    "elements that share a string": b"\x0f\x02" + struct.pack("<3I", 0, 0, 64) + b"\xfd" + b"x" * 63,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_variants_are_not_shredded(name: str) -> None:
    kind = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    rows = pa.table({"v": pa.array([{"metadata": names("a"), "value": MALFORMED[name]}], kind)})
    chosen = Shredding.of_rows(stored([{"a": 1}, [1]][:1]), COLUMNS)
    lists = Shredding.of_rows(stored([["x"]]), COLUMNS)
    with pytest.raises(InvalidDataFileError, match="malformed"):
        chosen.rows(rows)
        lists.rows(rows)
        Shredding.of_rows(rows, COLUMNS)


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=40), st.sampled_from([EMPTY, names("a", "b"), names(*"abcdefgh", width=3)]))
def test_any_bytes_are_shredded_or_refused(value: bytes, metadata: bytes) -> None:
    kind = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    rows = pa.table({"v": pa.array([{"metadata": metadata, "value": value}], kind)})
    try:
        Shredding.of_rows(rows, COLUMNS).rows(rows)
    except InvalidDataFileError:
        return
