"""Column mapping on write: gives columns the physical names and field ids that data files use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

import deltalog
from spark_ext.reading.file_schema import ID_KEY, PHYSICAL_NAME_KEY
from spark_ext.reading.table_columns import named, quoted
from spark_ext.types import spark_type

_MODE = "delta.columnMapping.mode"
# Spark's Parquet writer takes the field id of a column from this metadata key.
PARQUET_ID = "parquet.field.id"


def is_mapped(transaction: deltalog.Transaction) -> bool:
    """Whether the table has column mapping after the transaction."""
    return transaction.metadata.configuration.get(_MODE, "none").lower() != "none"


def stored_name(field: deltalog.schema.StructField) -> str:
    """The physical name of a column, as used in the files, paths and log of a table with column mapping. Raises
    CorruptTableError."""
    name = field.metadata.get(PHYSICAL_NAME_KEY)
    if not isinstance(name, str) or not isinstance(field.metadata.get(ID_KEY), int):
        raise deltalog.CorruptTableError(
            f"Column {field.name} has no {PHYSICAL_NAME_KEY} or {ID_KEY}, which mapping needs."
        )
    return name


def stored_names(target: deltalog.schema.StructType, columns: Sequence[str]) -> list[str]:
    """``stored_name`` of columns by their names."""
    return [stored_name(target.field(name)) for name in columns]


def under_stored_names(frame: DataFrame, target: deltalog.schema.StructType, carried: Sequence[str] = ()) -> DataFrame:
    """The rows (columns of ``target``, then ``carried``) with physical names and field ids, at every depth."""
    stored = stored_schema(target)
    columns = []
    for field, given in zip(stored.fields, target.fields, strict=True):
        column = named(given.name)
        if _has_fields(field.data_type):
            column = column.cast(spark_type(field.data_type))  # a cast matches struct fields by position
        columns.append(column.alias(field.name, metadata=dict(field.metadata)))
    return frame.select(*columns, *map(quoted, carried))


def stored_schema(schema: deltalog.schema.StructType) -> deltalog.schema.StructType:
    """The schema with physical names, and with field ids in the fields' metadata."""
    return deltalog.schema.StructType(
        tuple(
            deltalog.schema.StructField(
                stored_name(f), _stored_type(f.data_type), True, {PARQUET_ID: f.metadata[ID_KEY]}
            )
            for f in schema.fields
        )
    )


def _stored_type(data_type: Any) -> Any:
    if isinstance(data_type, deltalog.schema.StructType):
        return stored_schema(data_type)
    if isinstance(data_type, deltalog.schema.ArrayType):
        return replace(data_type, element_type=_stored_type(data_type.element_type), contains_null=True)
    if isinstance(data_type, deltalog.schema.MapType):
        key, value = _stored_type(data_type.key_type), _stored_type(data_type.value_type)
        return replace(data_type, key_type=key, value_type=value, value_contains_null=True)
    return data_type


def _has_fields(data_type: Any) -> bool:
    if isinstance(data_type, deltalog.schema.ArrayType):
        return _has_fields(data_type.element_type)
    if isinstance(data_type, deltalog.schema.MapType):
        return _has_fields(data_type.key_type) or _has_fields(data_type.value_type)
    return isinstance(data_type, deltalog.schema.StructType)
