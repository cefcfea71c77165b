"""Delta types as Arrow types and back.

Timestamps are ``timestamp[us, UTC]``, timestamp_ntz is ``timestamp[us]``; both as Spark and delta-rs have them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from deltalog.errors import SchemaMismatchError, UnsupportedFeatureError
from deltalog.spec.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

VARIANT, VOID = PrimitiveType("variant"), PrimitiveType("void")
# Not a type of any table: what a scan gives for a variant where JSON is asked for.
VARIANT_TEXT = PrimitiveType("variant as json")

_TO_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    # The binary encoding of the Parquet format, as files hold it.
    "variant": pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), True)]),
    VARIANT_TEXT.name: pa.string(),
}


def schema_to_arrow(schema: StructType) -> pa.Schema:
    return pa.schema([_field_to_arrow(f) for f in schema.fields])


def _field_to_arrow(column: StructField) -> pa.Field:
    return pa.field(column.name, type_to_arrow(column.data_type), column.nullable)


def type_to_arrow(data_type: DataType) -> pa.DataType:
    """The Arrow type of a Delta type. Raises UnsupportedFeatureError for a type that has none."""
    if isinstance(data_type, StructType):
        return pa.struct([_field_to_arrow(f) for f in data_type.fields])
    if isinstance(data_type, ArrayType):
        element = pa.field("element", type_to_arrow(data_type.element_type), data_type.contains_null)
        return pa.list_(element)
    if isinstance(data_type, MapType):
        value = pa.field("value", type_to_arrow(data_type.value_type), data_type.value_contains_null)
        return pa.map_(type_to_arrow(data_type.key_type), value)
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    arrow = _TO_ARROW.get(data_type.name)
    if arrow is None:
        raise UnsupportedFeatureError(
            f"Columns of type {data_type.name} are not read or written yet.", features=(data_type.name,)
        )
    return arrow


def variants_as_text(schema: StructType) -> StructType:
    """The schema with JSON text in the place of every variant, also inside structs, arrays and maps."""
    text = _variant_as_text(schema)
    assert isinstance(text, StructType)
    return text


def _variant_as_text(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        fields = (replace(f, data_type=_variant_as_text(f.data_type)) for f in data_type.fields)
        return StructType(tuple(fields))
    if isinstance(data_type, ArrayType):
        return ArrayType(_variant_as_text(data_type.element_type), data_type.contains_null)
    if isinstance(data_type, MapType):
        key, value = _variant_as_text(data_type.key_type), _variant_as_text(data_type.value_type)
        return MapType(key, value, data_type.value_contains_null)
    return VARIANT_TEXT if data_type == VARIANT else data_type


def schema_from_arrow(schema: pa.Schema) -> StructType:
    return StructType(tuple(_field_from_arrow(f, "") for f in schema))


def _field_from_arrow(column: Any, where: str) -> StructField:
    name = f"{where}{column.name}"
    return StructField(column.name, _type_from_arrow(column.type, name), column.nullable)


def _type_from_arrow(arrow: pa.DataType, name: str) -> DataType:
    if pt.is_dictionary(arrow):
        return _type_from_arrow(arrow.value_type, name)
    if pt.is_struct(arrow):
        return StructType(tuple(_field_from_arrow(f, f"{name}.") for f in arrow.fields))
    if pt.is_map(arrow):
        value_nullable = arrow.item_field.nullable
        key, value = _type_from_arrow(arrow.key_type, f"{name}.key"), _type_from_arrow(arrow.item_type, name)
        return MapType(key, value, value_nullable)
    if pt.is_list(arrow) or pt.is_large_list(arrow) or pt.is_fixed_size_list(arrow):
        return ArrayType(_type_from_arrow(arrow.value_type, f"{name}.element"), arrow.value_field.nullable)
    if pt.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return DecimalType(arrow.precision, arrow.scale)
    if pt.is_timestamp(arrow):
        return PrimitiveType("timestamp_ntz" if arrow.tz is None else "timestamp")
    primitive = _primitive_from_arrow(arrow)
    if primitive is None:
        raise SchemaMismatchError(
            f"Column {name} has the Arrow type {arrow}, which Delta has not. "
            "Cast it: unsigned integers to the next wider signed type, time to string or long."
        )
    return PrimitiveType(primitive)


def _primitive_from_arrow(arrow: pa.DataType) -> str | None:
    if pt.is_large_string(arrow) or str(arrow) == "string_view":
        return "string"
    if pt.is_large_binary(arrow) or pt.is_fixed_size_binary(arrow) or str(arrow) == "binary_view":
        return "binary"
    if pt.is_date(arrow):
        return "date"
    if pt.is_float16(arrow):
        return "float"
    return next((name for name, candidate in _TO_ARROW.items() if candidate == arrow), None)
