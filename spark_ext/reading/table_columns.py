"""Converts columns from their form in files to the table's names, types and nullability. Pure."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from spark_ext.types import CHAR_VARCHAR, SIZED

# Column metadata that users of a DataFrame do not need, and that would be wrong in another table.
_INTERNAL = ("delta.columnMapping.", "delta.typeChanges", "delta.generationExpression", "delta.identity.")


def public(schema: spark_types.StructType) -> spark_types.StructType:
    """The schema of a table's DataFrame: without the metadata of column mapping, type changes, generated columns and
    identity columns."""
    return _public(schema)


def _public(data_type: Any) -> Any:
    if isinstance(data_type, spark_types.StructType):
        return spark_types.StructType(
            [
                spark_types.StructField(f.name, _public(f.dataType), f.nullable, public_metadata(f))
                for f in data_type.fields
            ]
        )
    if isinstance(data_type, spark_types.ArrayType):
        return spark_types.ArrayType(_public(data_type.elementType), data_type.containsNull)
    if isinstance(data_type, spark_types.MapType):
        key, value = _public(data_type.keyType), _public(data_type.valueType)
        return spark_types.MapType(key, value, data_type.valueContainsNull)
    return data_type


def public_metadata(field: spark_types.StructField) -> dict[str, Any]:
    return {key: value for key, value in (field.metadata or {}).items() if not key.startswith(_INTERNAL)}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def named(name: str) -> Column:
    return F.col(quoted(name))


def typed(name: str, field: spark_types.StructField) -> Column:
    """A partition value from the log (a string column), cast to the type of the partition column. The query fails for a
    value that cannot be cast."""
    kind = field.dataType.simpleString()
    # The meaning of "timestamp" depends on the session (spark.sql.timestampType).
    value = F.expr(f"try_cast({quoted(name)} as {'timestamp_ltz' if kind == 'timestamp' else kind})")
    wrong = F.raise_error(
        F.concat(
            F.lit(f"DELTALOG: partition column {field.name} has the value "),
            named(name),
            F.lit(", which is not of its type"),
        )
    )
    return F.coalesce(value, F.when(named(name).isNotNull(), wrong))


def is_exact(stored: spark_types.StructField, field: spark_types.StructField) -> bool:
    """Whether a column that is read as ``stored`` needs no conversion."""
    return stored == field and CHAR_VARCHAR not in (field.metadata or {})


def exact(column: Column, have: spark_types.DataType, field: spark_types.StructField) -> Column:
    """The column, which was read as the type ``have`` (everything nullable), converted to the type that the field
    declares, and with the field's metadata."""
    value = _padded(_value(column, have, field.dataType), field)
    if not field.nullable:
        value = _not_null(value, field.dataType, field.name)
    return value.alias(field.name, metadata=field.metadata)


def _padded(column: Column, field: spark_types.StructField) -> Column:
    """char(n) padded to n characters, as delta-spark reads it: other writers may not pad."""
    match = SIZED.fullmatch(str((field.metadata or {}).get(CHAR_VARCHAR, "")).replace(" ", "").lower())
    if match is None or match[1] != "char":
        return column
    size = int(match[2])
    return F.when(F.length(column) < size, F.rpad(column, size, " ")).otherwise(column)


def _value(column: Column, have: Any, want: Any) -> Column:
    """The value in the table's type. A value that already has the table's type is returned unchanged, so that Spark can
    push down filters."""
    if have == want:
        return column
    if isinstance(want, spark_types.NullType):
        return F.lit(None)
    if not _must_be_rebuilt(have, want):
        return column.cast(want)
    if isinstance(want, spark_types.StructType):
        pairs = zip(have.fields, want.fields, strict=True)
        fields = [exact(column.getField(stored.name), stored.dataType, f) for stored, f in pairs]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(want, spark_types.ArrayType):

        def each(item: Column) -> Column:
            value = _value(item, have.elementType, want.elementType)
            return value if want.containsNull else _not_null(value, want.elementType, "element")

        return F.transform(column, each)
    if have.keyType != want.keyType:
        column = F.transform_keys(column, lambda key, _: _value(key, have.keyType, want.keyType))

    def every(_: Column, item: Column) -> Column:
        value = _value(item, have.valueType, want.valueType)
        return value if want.valueContainsNull else _not_null(value, want.valueType, "value")

    return F.transform_values(column, every)


def _must_be_rebuilt(have: Any, want: Any) -> bool:
    """Whether a cast is not enough, because a nested field is NOT NULL or void, or because map keys have another type.
    Spark does not cast map keys if it considers the result of the cast nullable (as for date to timestamp_ntz)."""
    if isinstance(want, spark_types.StructType):
        pairs = zip(have.fields, want.fields, strict=True)
        return any(not f.nullable or _must_be_rebuilt(stored.dataType, f.dataType) for stored, f in pairs)
    if isinstance(want, spark_types.ArrayType):
        return not want.containsNull or _must_be_rebuilt(have.elementType, want.elementType)
    if isinstance(want, spark_types.MapType):
        same_keys = have.keyType == want.keyType
        return not (same_keys and want.valueContainsNull) or _must_be_rebuilt(have.valueType, want.valueType)
    return isinstance(want, spark_types.NullType)


def _not_null(column: Column, data_type: spark_types.DataType, name: str) -> Column:
    # The last argument is never evaluated. This argument is not nullable, so Spark treats the column as NOT NULL.
    found_null = F.raise_error(F.lit(f"DELTALOG: column {name} is NOT NULL, but a data file has a NULL in it"))
    return F.coalesce(column, found_null, _some_value(data_type))


def _some_value(data_type: spark_types.DataType) -> Column:
    if isinstance(data_type, spark_types.StructType):
        return F.struct(*[_some_value(f.dataType).alias(f.name) for f in data_type.fields])
    if isinstance(data_type, spark_types.DecimalType):
        return F.expr("0." + "0" * data_type.scale + "BD" if data_type.scale else "0BD")
    name = data_type.typeName()
    return F.expr(_SOME_VALUES.get(name) or f"cast(0 as {data_type.simpleString()})")


_SOME_VALUES = {
    "array": "array()",
    "binary": "X''",
    "boolean": "false",
    "date": "date'1970-01-01'",
    "map": "map()",
    "string": "''",
    "timestamp": "timestamp_ltz'1970-01-01 00:00:00'",
    "timestamp_ntz": "timestamp_ntz'1970-01-01 00:00:00'",
    "variant": "parse_json('null')",
}
