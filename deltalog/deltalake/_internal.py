"""The names that programs import from deltalake's compiled module."""

from __future__ import annotations

from deltalog.deltalake.creation import convert as convert_to_deltalake
from deltalog.deltalake.creation import create as create_deltalake
from deltalog.deltalake.creation import create_with_files as create_table_with_add_actions
from deltalog.deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)
from deltalog.deltalake.features import TableFeatures
from deltalog.deltalake.nanoseconds import _NANOSECOND_TIMESTAMPS
from deltalog.deltalake.raw import RawDeltaTable, RawDeltaTableMetaData
from deltalog.deltalake.schema import ArrayType, Field, MapType, PrimitiveType, Schema, StructType, VariantType
from deltalog.deltalake.transaction import RemoveAction, Transaction
from deltalog.version import VERSION as __version__

__all__ = [
    "_NANOSECOND_TIMESTAMPS",
    "ArrayType",
    "CommitFailedError",
    "DeltaError",
    "DeltaProtocolError",
    "Field",
    "MapType",
    "PrimitiveType",
    "RawDeltaTable",
    "RawDeltaTableMetaData",
    "RemoveAction",
    "Schema",
    "SchemaMismatchError",
    "StructType",
    "TableFeatures",
    "TableNotFoundError",
    "Transaction",
    "VariantType",
    "__version__",
    "convert_to_deltalake",
    "create_deltalake",
    "create_table_with_add_actions",
    "rust_core_version",
]


def rust_core_version() -> str:
    """The version of deltalog with the prefix ``py-``, because deltalog is written in Python."""
    return f"py-{__version__}"
