"""Column types, columns, schemas, and functions for them."""

from deltalog.protocol.identity_columns import identity_column
from deltalog.protocol.schema import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType
from deltalog.protocol.schema_enforcement import holds_all, merge_schemas, names_twice
from deltalog.protocol.variant import variant_to_python
from deltalog.protocol.variant_encoding import variant_from_json, variant_from_python

__all__ = [
    "ArrayType",
    "DataType",
    "DecimalType",
    "MapType",
    "PrimitiveType",
    "StructField",
    "StructType",
    "holds_all",
    "identity_column",
    "merge_schemas",
    "names_twice",
    "variant_from_json",
    "variant_from_python",
    "variant_to_python",
]
