"""The Arrow types for primitive Delta types, and conversion of Arrow values to these types. Pure.

Timestamps are ``timestamp[us, UTC]``, timestamp_ntz is ``timestamp[us]``, both as in Spark and delta-rs.
Whole schemas are converted by ``StructType.to_arrow`` and ``StructType.from_arrow``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from deltalog.arrow_arrays import packed_lists
from deltalog.lazy_arrow import pc

# By protocol name.
PRIMITIVES: Mapping[str, pa.DataType] = {
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
    # The Arrow type for the binary encoding of variants in Parquet files.
    "variant": pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), True)]),
}


# The names of Arrow's extension type for variants: the canonical one, and the one of Arrow 21.
_VARIANT_EXTENSIONS = frozenset({"arrow.parquet.variant", "parquet.variant"})
_EXTENSION_NAME = b"ARROW:extension:name"


def is_variant(field: pa.Field) -> bool:
    """Whether a field has Arrow's extension type for variants, also if this version of pyarrow does not know the type.
    The extension's storage is a struct of ``metadata`` and ``value``, and of ``typed_value`` if it is shredded."""
    if isinstance(field.type, pa.BaseExtensionType):
        return field.type.extension_name in _VARIANT_EXTENSIONS
    name = (field.metadata or {}).get(_EXTENSION_NAME, b"").decode(errors="replace")
    return name in _VARIANT_EXTENSIONS and bool(pt.is_struct(field.type))


def is_encoded_variant(arrow: pa.DataType) -> bool:
    """Whether a type is a struct of ``metadata`` and ``value``, both binary, as scans return variants."""
    if not pt.is_struct(arrow) or {field.name for field in arrow.fields} != {"metadata", "value"}:
        return False
    return arrow.num_fields == 2 and all(is_binary(field.type) for field in arrow.fields)


def is_binary(arrow: pa.DataType) -> bool:
    """Whether a type is binary, in any of Arrow's layouts."""
    return bool(pt.is_binary(arrow) or pt.is_large_binary(arrow) or str(arrow) == "binary_view")


def is_text(arrow: pa.DataType) -> bool:
    """Whether a type is text, in any of Arrow's layouts."""
    return bool(pt.is_string(arrow) or pt.is_large_string(arrow) or str(arrow) == "string_view")


def primitive_of(arrow: pa.DataType) -> str | None:
    """The primitive Delta type that can hold every value of an Arrow type; None if no type can.

    None for decimals too, because the Delta type decimal has parameters.
    """
    if pt.is_timestamp(arrow):
        return "timestamp_ntz" if arrow.tz is None else "timestamp"
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
    return next((name for name, candidate in PRIMITIVES.items() if candidate == arrow), None)


def is_encoded(arrow: pa.DataType) -> bool:
    """Whether values are dictionary- or run-end-encoded; ``value_type`` is their actual type."""
    return bool(pt.is_dictionary(arrow) or pt.is_run_end_encoded(arrow))


def is_list(arrow: pa.DataType) -> bool:
    """Whether the type is a list type, in any of Arrow's layouts."""
    return any(is_one(arrow) for is_one in _LISTS)


_LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
# For each unsigned Arrow type, the narrowest Delta type that can hold all its values.
_SIGNED = {pa.uint8(): "short", pa.uint16(): "integer", pa.uint32(): "long"}
_VIEWS = {"string_view": pa.string(), "binary_view": pa.binary()}


def plain_layout(values: Any) -> Any:
    """The same values in the layout of Delta's Arrow types, at the top level only: no dictionary or run-end encoding,
    and lists with 32-bit offsets. Raises pyarrow.ArrowInvalid if the list is too long for these."""
    kind = values.type
    if pt.is_dictionary(kind):
        if str(kind.value_type) in _VIEWS:  # Arrow's take does not support view types
            words = values.dictionary.cast(_VIEWS[str(kind.value_type)])
            values = pa.DictionaryArray.from_arrays(values.indices, words)
        return plain_layout(values.dictionary_decode())
    if pt.is_run_end_encoded(kind):
        return plain_layout(pc.run_end_decode(values))
    if pt.is_list_view(kind) or pt.is_large_list_view(kind):
        # Arrow's cast creates an invalid list array if the list views contain nulls.
        lengths = pc.fill_null(pc.list_value_length(values), 0)
        return packed_lists(pa.list_(kind.value_field), lengths, pc.list_flatten(values), values.is_valid())
    if pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return values.cast(pa.list_(kind.value_field))
    return values


def as_micros(values: Any, exact: bool) -> Any:
    """Convert timestamps of any unit to microseconds. With ``exact``, a fraction of a microsecond is an error;
    otherwise the value is rounded down. Raises pyarrow.ArrowInvalid for such fractions and for values that are too
    large."""
    wanted = pa.timestamp("us", values.type.tz)
    if exact or values.type.unit != "ns":
        return values.cast(wanted)
    nanos = values.cast(pa.int64())
    micros = pc.divide(nanos, 1000)  # towards zero
    return pc.subtract(micros, pc.greater(pc.multiply(micros, 1000), nanos).cast(pa.int64())).cast(wanted)
