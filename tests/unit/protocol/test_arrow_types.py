from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given

from deltalog import SchemaMismatchError, UnsupportedFeatureError
from deltalog.protocol import schema
from deltalog.schema import DecimalType, PrimitiveType, StructField, StructType
from tests.support.core import strategies


@given(strategies.schemas())
def test_schemas_survive_arrow(table: StructType) -> None:
    assert StructType.from_arrow(table.to_arrow()) == table


@pytest.mark.parametrize(
    ("given", "delta"),
    [
        (pa.int8(), "byte"),
        (pa.int16(), "short"),
        (pa.int32(), "integer"),
        (pa.int64(), "long"),
        (pa.float16(), "float"),
        (pa.float32(), "float"),
        (pa.float64(), "double"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary(16), "binary"),
        (pa.binary_view(), "binary"),
        (pa.date64(), "date"),
        (pa.timestamp("s", "UTC"), "timestamp"),
        (pa.timestamp("ns", "Asia/Tokyo"), "timestamp"),
        (pa.timestamp("ms"), "timestamp_ntz"),
        (pa.null(), "void"),
        (pa.decimal128(5, 2), "decimal(5,2)"),
        (pa.decimal256(38, 38), "decimal(38,38)"),
        (pa.large_list(pa.int64()), "array<long>"),
        (pa.list_(pa.int64(), 3), "array<long>"),
        (pa.map_(pa.string(), pa.int64()), "map<string,long>"),
        (pa.struct([("a", pa.bool_())]), "struct<a:boolean>"),
    ],
)
def test_arrow_types_that_delta_has(given: pa.DataType, delta: str) -> None:
    assert str(StructType.from_arrow(pa.schema([("c", given)])).field("c").data_type) == delta


@pytest.mark.parametrize(
    "given",
    [
        pa.uint64(),
        pa.time64("us"),
        pa.duration("us"),
        pa.decimal256(39, 0),
        pa.list_(pa.struct([("x", pa.uint64())])),
        pa.month_day_nano_interval(),
    ],
)
def test_arrow_types_that_delta_has_not(given: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match=r"Column c.*Cast it"):
        StructType.from_arrow(pa.schema([("c", given)]))


def test_nullability_goes_all_the_way_down() -> None:
    given = pa.schema(
        [
            pa.field("a", pa.int64(), False),
            pa.field("l", pa.list_(pa.field("item", pa.struct([pa.field("x", pa.string(), False)]), False))),
        ]
    )
    table = StructType.from_arrow(given)
    assert table.field("a").nullable is False and table.field("l").nullable is True
    element = table.field("l").data_type
    assert element.contains_null is False  # type: ignore[union-attr]
    assert element.element_type.field("x").nullable is False  # type: ignore[union-attr]


def test_scans_return_these_types() -> None:
    table = StructType(tuple(StructField(n, PrimitiveType(n)) for n in ("timestamp", "timestamp_ntz", "string")))
    assert table.to_arrow().types == [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.string()]
    assert schema.type_to_arrow(DecimalType(38, 10)) == pa.decimal128(38, 10)


def test_variant_has_an_arrow_type_and_void_too() -> None:
    variant = schema.type_to_arrow(PrimitiveType("variant"))
    assert [f.name for f in variant.fields] == ["metadata", "value"]
    assert schema.type_to_arrow(PrimitiveType("void")) == pa.null()


def test_a_type_without_an_arrow_type_is_named() -> None:
    with pytest.raises(UnsupportedFeatureError, match="geometry") as caught:
        schema.type_to_arrow(PrimitiveType("geometry"))
    assert caught.value.features == ("geometry",)
