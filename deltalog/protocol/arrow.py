"""Delta types as Arrow types and back.

Timestamps are ``timestamp[us, UTC]``, timestamp_ntz is ``timestamp[us]``; both as Spark and delta-rs have them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from deltalog.arguments import shown
from deltalog.errors import CallError, SchemaMismatchError, UnsupportedFeatureError
from deltalog.protocol.schema import (
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
    return _arrow_field(column.name, column.data_type, column.nullable)


def _arrow_field(name: str, data_type: DataType, nullable: bool) -> pa.Field:
    # Arrow has no field of nothing but nulls that is NOT NULL.
    return pa.field(name, type_to_arrow(data_type), nullable or data_type == VOID)


def type_to_arrow(data_type: DataType) -> pa.DataType:
    """The Arrow type of a Delta type. Raises UnsupportedFeatureError for a type that has none."""
    if isinstance(data_type, StructType):
        return pa.struct([_field_to_arrow(f) for f in data_type.fields])
    if isinstance(data_type, ArrayType):
        return pa.list_(_arrow_field("element", data_type.element_type, data_type.contains_null))
    if isinstance(data_type, MapType):
        if data_type.key_type == VOID:
            raise UnsupportedFeatureError(f"{data_type} is not read or written: its keys have no type.", features=())
        value = _arrow_field("value", data_type.value_type, data_type.value_contains_null)
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
    if not isinstance(schema, pa.Schema):
        raise CallError(f"The columns of a table are a pyarrow Schema or a StructType; got {shown(schema)}.")
    return StructType(tuple(_field_from_arrow(f, "") for f in schema))


def _field_from_arrow(column: Any, where: str) -> StructField:
    name = f"{where}{column.name}"
    return StructField(column.name, _type_from_arrow(column.type, name), column.nullable)


def _type_from_arrow(arrow: pa.DataType, name: str) -> DataType:
    if pt.is_dictionary(arrow) or pt.is_run_end_encoded(arrow):
        return _type_from_arrow(arrow.value_type, name)
    if pt.is_struct(arrow):
        return StructType(tuple(_field_from_arrow(f, f"{name}.") for f in arrow.fields))
    if pt.is_map(arrow):
        value_nullable = arrow.item_field.nullable
        key, value = _type_from_arrow(arrow.key_type, f"{name}.key"), _type_from_arrow(arrow.item_type, name)
        return MapType(key, value, value_nullable)
    if any(is_one(arrow) for is_one in _LISTS):
        return ArrayType(_type_from_arrow(arrow.value_type, f"{name}.element"), arrow.value_field.nullable)
    if pt.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return DecimalType(arrow.precision, arrow.scale)
    if pt.is_timestamp(arrow):
        return PrimitiveType("timestamp_ntz" if arrow.tz is None else "timestamp")
    primitive = _primitive_from_arrow(arrow)
    if primitive is None:
        raise SchemaMismatchError(
            f"Column {name} has the Arrow type {arrow}, which Delta does not have. "
            "Cast it: uint64 to int64 or decimal128(20, 0), time to string or int64, an extension type to its storage."
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
    if arrow in _SIGNED:
        return _SIGNED[arrow]
    return next((name for name, candidate in _TO_ARROW.items() if candidate == arrow), None)


_LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
# The narrowest type of Delta that holds every value.
_SIGNED = {pa.uint8(): "short", pa.uint16(): "integer", pa.uint32(): "long"}
_VIEWS = {"string_view": pa.string(), "binary_view": pa.binary()}


def plain_layout(values: Any) -> Any:
    """The same values in the layout that Delta's types have in Arrow, at the top: neither dictionaries nor runs, and
    lists with 32-bit offsets. Raises pyarrow.ArrowInvalid where these are too short."""
    kind = values.type
    if pt.is_dictionary(kind):
        if str(kind.value_type) in _VIEWS:  # which Arrow cannot take by index
            words = values.dictionary.cast(_VIEWS[str(kind.value_type)])
            values = pa.DictionaryArray.from_arrays(values.indices, words)
        return plain_layout(values.dictionary_decode())
    if pt.is_run_end_encoded(kind):
        return plain_layout(pc.run_end_decode(values))
    if pt.is_list_view(kind) or pt.is_large_list_view(kind):
        # Arrow's cast makes an invalid list where the views have nulls.
        lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum_checked(lengths)])
        return pa.ListArray.from_arrays(offsets, pc.list_flatten(values), mask=values.is_null())
    if pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return values.cast(pa.list_(kind.value_field))
    return values


def as_micros(values: Any, exact: bool) -> Any:
    """Timestamps of any unit in microseconds. What is below one is an error when they are to be ``exact``, else rounded
    down. Raises pyarrow.ArrowInvalid for that, and for what is too large."""
    wanted = pa.timestamp("us", values.type.tz)
    if exact or values.type.unit != "ns":
        return values.cast(wanted)
    nanos = values.cast(pa.int64())
    micros = pc.divide(nanos, 1000)  # towards zero
    return pc.subtract(micros, pc.greater(pc.multiply(micros, 1000), nanos).cast(pa.int64())).cast(wanted)
