"""Converts between deltalog and Spark schemas, via their common JSON form."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import pyspark
from pyspark.errors import PySparkValueError
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

import deltalog

CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
# The metadata key with the collations of a field's text.
_COLLATIONS = "__COLLATIONS"
# For a top-level char or varchar column, the value of the metadata key CHAR_VARCHAR matches SIZED.
SIZED = re.compile(r"(char|varchar)\((\d+)\)")

_LEAVES = (
    spark_types.BinaryType,
    spark_types.BooleanType,
    spark_types.ByteType,
    spark_types.DateType,
    spark_types.DecimalType,
    spark_types.DoubleType,
    spark_types.FloatType,
    spark_types.IntegerType,
    spark_types.LongType,
    spark_types.ShortType,
    spark_types.TimestampNTZType,
    spark_types.TimestampType,
)


# Absent before Spark 4.0.
_VARIANT = getattr(spark_types, "VariantType", None)


def to_spark(schema: deltalog.schema.StructType) -> spark_types.StructType:
    """The Spark schema of a table schema, with nullability and field metadata. Text whose collation Spark does not know
    is compared by its bytes, as the protocol allows. Cost: none; for each new collation, Spark analyzes a query.

    Raises UnsupportedFeatureError for a type that this version of Spark does not have.
    """
    text = schema.to_json()
    document = json.loads(text)
    spark = SparkSession.getActiveSession() if _COLLATIONS in text else None
    if spark is not None:
        document = _with_known_collations(document, spark)
    try:
        return spark_types.StructType.fromJson(document)
    except (ValueError, PySparkValueError) as error:
        raise deltalog.UnsupportedFeatureError(
            f"The table has a type that PySpark {pyspark.__version__} does not support: {error}", features=()
        ) from error


def _with_known_collations(document: Any, spark: SparkSession) -> Any:
    """A schema in its JSON form, without the collations that the session does not know."""
    if isinstance(document, list):
        return [_with_known_collations(each, spark) for each in document]
    if not isinstance(document, dict):
        return document
    found = {key: _with_known_collations(value, spark) for key, value in document.items()}
    collations = found.get(_COLLATIONS)
    if isinstance(collations, dict):
        found[_COLLATIONS] = {path: name for path, name in collations.items() if _is_collation(str(name), spark)}
    return found


@functools.lru_cache(maxsize=1000)
def _is_collation(identifier: str, spark: SparkSession) -> bool:
    """Whether the session knows a collation, given as ``provider.name``."""
    provider, _, name = identifier.partition(".")
    if provider.lower() not in ("icu", "spark") or not re.fullmatch(r"\w+", name):
        return False
    try:
        return bool(spark.sql(f"SELECT '' COLLATE {name} AS text").schema)
    except Exception as error:  # classic Spark raises the error of the JVM, not one of PySpark's
        if "COLLATION_INVALID" not in str(error):
            raise
        return False


def from_spark(schema: spark_types.StructType) -> deltalog.schema.StructType:
    """The table schema of a Spark schema, with nullability and field metadata. Cost: none.

    ``char(n)`` and ``varchar(n)`` become strings, with their type in the field's metadata, as in Spark.
    Raises SchemaMismatchError, which names the column, for a type that deltalog cannot store in a Delta table.
    """
    plain = spark_types.StructType([_plain_field(field, field.name) for field in schema.fields])
    return deltalog.schema.StructType.from_json(plain.json())


def without_void(schema: spark_types.StructType) -> spark_types.StructType:
    """The schema without untyped NULL columns and struct fields."""
    return spark_types.StructType(_typed_fields(schema))


def _typed_fields(schema: spark_types.StructType) -> list[spark_types.StructField]:
    return [
        spark_types.StructField(field.name, _typed(field.dataType), field.nullable, field.metadata)
        for field in schema.fields
        if not isinstance(field.dataType, spark_types.NullType)
    ]


def _typed(data_type: spark_types.DataType) -> spark_types.DataType:
    if isinstance(data_type, spark_types.StructType):
        return spark_types.StructType(_typed_fields(data_type))
    if isinstance(data_type, spark_types.ArrayType):
        return spark_types.ArrayType(_typed(data_type.elementType), data_type.containsNull)
    if isinstance(data_type, spark_types.MapType):
        value = _typed(data_type.valueType)
        return spark_types.MapType(_typed(data_type.keyType), value, data_type.valueContainsNull)
    return data_type


def _plain_field(field: spark_types.StructField, path: str) -> spark_types.StructField:
    if isinstance(field.dataType, (spark_types.CharType, spark_types.VarcharType)):
        metadata = {**field.metadata, CHAR_VARCHAR: field.dataType.simpleString()}
        return spark_types.StructField(field.name, spark_types.StringType(), field.nullable, metadata)
    return spark_types.StructField(field.name, _plain(field.dataType, path), field.nullable, field.metadata)


def _plain(data_type: spark_types.DataType, path: str) -> spark_types.DataType:
    if isinstance(data_type, spark_types.StructType):
        return spark_types.StructType([_plain_field(f, f"{path}.{f.name}") for f in data_type.fields])
    if isinstance(data_type, spark_types.ArrayType):
        element = _plain(data_type.elementType, f"{path}.element")
        return spark_types.ArrayType(element, data_type.containsNull)
    if isinstance(data_type, spark_types.MapType):
        key = _plain(data_type.keyType, f"{path}.key")
        value = _plain(data_type.valueType, f"{path}.value")
        return spark_types.MapType(key, value, data_type.valueContainsNull)
    if isinstance(data_type, spark_types.StringType):
        if data_type == spark_types.StringType():
            return data_type
    elif isinstance(data_type, _LEAVES) or (_VARIANT is not None and isinstance(data_type, _VARIANT)):
        return data_type
    raise deltalog.SchemaMismatchError(
        f"Column {path} has the type {data_type.simpleString()}, which cannot be stored in the table. "
        f"{_remedy(data_type)}"
    )


def _remedy(data_type: spark_types.DataType) -> str:
    if isinstance(data_type, spark_types.NullType):
        return "Cast its NULLs to a type, for example .cast('string'), or drop the column."
    if isinstance(data_type, (spark_types.CharType, spark_types.VarcharType)):
        return "Inside arrays and maps, cast it to string."
    if isinstance(data_type, spark_types.StringType):
        return "Cast it to a plain string; collations are not supported."
    return "Cast it to a type such as string or bigint, or drop the column."


def spark_type(data_type: Any) -> Any:
    """The Spark type for a Delta type."""
    return to_spark(deltalog.schema.StructType((deltalog.schema.StructField("x", data_type),)))["x"].dataType
