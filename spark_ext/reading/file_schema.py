"""The names and types under which data files store a table's columns.

Without column mapping, files use the table's names. With mapping by name, files use the physical names; with mapping by
id, columns are found by the field ids in a file. After type widening, older files have the narrower type. If the files'
schemas can differ, the driver reads their footers, and Spark scans each file with that file's column names and types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark_types

import deltalog
from spark_ext.reading.bounded_footers import schema_of
from spark_ext.reading.table_columns import public, public_metadata
from spark_ext.types import to_spark

PHYSICAL_NAME_KEY, ID_KEY = "delta.columnMapping.physicalName", "delta.columnMapping.id"
_FIELD_ID = b"PARQUET:field_id"
_TYPE_CHANGES = "delta.typeChanges"
_ABSENT = "__deltalog_absent_"
_MAX_THREADS = 16

_INTEGERS: Mapping[pa.DataType, spark_types.DataType] = {
    pa.int8(): spark_types.ByteType(),
    pa.int16(): spark_types.ShortType(),
    pa.int32(): spark_types.IntegerType(),
    pa.int64(): spark_types.LongType(),
}
_NARROWER_THAN_DOUBLE = {**_INTEGERS, pa.float32(): spark_types.FloatType()}
# For each type that a column of the table can have, the narrower types of this column that older files can contain.
_WIDENED_FROM: Mapping[str, Mapping[pa.DataType, spark_types.DataType]] = {
    "short": _INTEGERS,
    "integer": _INTEGERS,
    "long": _INTEGERS,
    "double": _NARROWER_THAN_DOUBLE,
    "decimal": _INTEGERS,
    "timestamp_ntz": {pa.date32(): spark_types.DateType()},
}
_WIDTH = {"byte": 1, "short": 2, "integer": 4, "long": 8}


@dataclass(frozen=True)
class Layout:
    """A table's columns, and the names under which files store them."""

    #: As in the log.
    schema: spark_types.StructType
    #: As in the DataFrame.
    shown: spark_types.StructType
    #: Names in ``schema``.
    partition_by: tuple[str, ...]
    #: The mode of column mapping: ``none``, ``name`` or ``id``.
    mapping: str

    @classmethod
    def of(cls, snapshot: deltalog.Snapshot) -> Layout:
        """The columns of a snapshot's files: schema, partition columns and column mapping. Raises
        UnsupportedFeatureError for a type that this version of Spark lacks."""
        schema = to_spark(snapshot.schema)
        mapping = snapshot.metadata.configuration.get("delta.columnMapping.mode", "none").lower()
        return cls(schema, public(schema), snapshot.partition_columns, mapping)

    @property
    def data_fields(self) -> list[spark_types.StructField]:
        """The fields of ``schema`` that data files store: all except the partition columns."""
        return [f for f in self.schema.fields if f.name not in self.partition_by]

    @property
    def partition_fields(self) -> list[spark_types.StructField]:
        """The partition fields of ``schema``, whose values are stored in the log, in the order of ``partition_by`` and
        under physical names."""
        fields = (self.schema[name] for name in self.partition_by)
        return [spark_types.StructField(self.physical_name(f), f.dataType) for f in fields]

    def physical_name(self, field: spark_types.StructField) -> str:
        """The name of a column in the log and, unless columns are mapped by id, in data files. Raises
        CorruptTableError."""
        if self.mapping == "none":
            return str(field.name)
        name = field.metadata.get(PHYSICAL_NAME_KEY)
        if not isinstance(name, str) or not name:
            raise deltalog.CorruptTableError(
                f"Column {field.name} has no {PHYSICAL_NAME_KEY}, which column mapping needs."
            )
        return name

    @property
    def hides_metadata(self) -> bool:
        """Whether a column of the table hides Spark's column ``_metadata``, which contains the names of files."""
        return any(self.physical_name(field).lower() == "_metadata" for field in self.schema.fields)

    @property
    def needs_footers(self) -> bool:
        """Whether footers must be read, because columns are mapped by id or a type was widened."""
        return self.mapping == "id" or _any_type_changed(self.schema)


def read_schema(layout: Layout) -> spark_types.StructType:
    """The schema with which Spark reads files that have the table's types under physical names; the files' footers are
    not read.

    The fields are in the order of ``layout.data_fields``, and all of them are nullable. Void columns, which files do
    not store, are read as strings.
    """
    return _struct(layout.data_fields, layout, None)


def read_schemas(
    layout: Layout, paths: Iterable[str], source: Callable[[str], Any]
) -> dict[str, spark_types.StructType]:
    """The schemas with which Spark reads files, determined from the files' footers and keyed by absolute path. Files
    with equal schemas share one object. ``source``: a function that opens a path for pyarrow.

    Raises InvalidDataFileError. Cost: 1 small read per file, 16 at a time.
    """
    names, distinct = list(paths), dict[spark_types.StructType, spark_types.StructType]()
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        found = pool.map(lambda path: _struct(layout.data_fields, layout, list(_footer(path, source))), names)
        return {name: distinct.setdefault(schema, schema) for name, schema in zip(names, found, strict=True)}


def _footer(path: str, source: Callable[[str], Any]) -> pa.Schema:
    try:
        return schema_of(source(path))[0]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise deltalog.errors.InvalidDataFileError(
            f"The data file {path} is missing or cannot be read, but the log names it: {error}. Restore it, or "
            "read a version that does not need it.",
            path=path,
        ) from error


def _struct(
    fields: Sequence[spark_types.StructField], layout: Layout, stored: Sequence[Any] | None
) -> spark_types.StructType:
    """The schema for reading one struct. ``stored``: the Arrow fields of the struct in the file; None if the footer was
    not read."""
    find = None if stored is None else _finder(layout, stored)
    found = []
    for number, field in enumerate(fields):
        name, arrow = layout.physical_name(field), None
        if find is not None:
            match = find(field, name)
            # If the file lacks the column, return a name that no file has, since another column may use the physical
            # name.
            name, arrow = (f"{_ABSENT}{number}", None) if match is None else (match.name, match.type)
        data_type = _type(field.dataType, layout, arrow)
        found.append(spark_types.StructField(name, data_type, True, public_metadata(field)))
    return spark_types.StructType(found)


def _finder(layout: Layout, stored: Sequence[Any]) -> Callable[[spark_types.StructField, str], Any]:
    """A function that takes a column and its physical name, and returns the matching field in ``stored``."""
    if layout.mapping == "id":
        ids = {(f.metadata or {}).get(_FIELD_ID): f for f in reversed(stored)}
        return lambda field, name: ids.get(str(field.metadata.get(ID_KEY)).encode())
    exact, folded = {f.name: f for f in reversed(stored)}, {f.name.lower(): f for f in reversed(stored)}
    return lambda field, name: exact.get(name) or folded.get(name.lower())


def _type(data_type: Any, layout: Layout, arrow: Any) -> spark_types.DataType:
    if isinstance(data_type, spark_types.StructType):
        inside = list(arrow.fields) if arrow is not None and pa.types.is_struct(arrow) else None
        return _struct(data_type.fields, layout, inside)
    if isinstance(data_type, spark_types.ArrayType):
        a_list = arrow is not None and (pa.types.is_list(arrow) or pa.types.is_large_list(arrow))
        element = arrow.value_type if a_list else None
        return spark_types.ArrayType(_type(data_type.elementType, layout, element), True)
    if isinstance(data_type, spark_types.MapType):
        key, value = (arrow.key_type, arrow.item_type) if arrow is not None and pa.types.is_map(arrow) else (None, None)
        return spark_types.MapType(
            _type(data_type.keyType, layout, key), _type(data_type.valueType, layout, value), True
        )
    if isinstance(data_type, spark_types.NullType):
        return spark_types.StringType()
    return _narrower(data_type, arrow) or data_type


def _narrower(data_type: spark_types.DataType, arrow: Any) -> spark_types.DataType | None:
    """The column's type in the file, if the table's type is a widening of it."""
    if isinstance(data_type, spark_types.DecimalType) and arrow is not None and pa.types.is_decimal(arrow):
        return spark_types.DecimalType(arrow.precision, arrow.scale)
    found = _WIDENED_FROM.get(data_type.typeName(), {}).get(arrow)
    if found is None or _WIDTH.get(found.typeName(), 0) >= _WIDTH.get(data_type.typeName(), 99):
        return None  # INT32 without an annotation may be the file type of a short column
    return found


def _any_type_changed(data_type: Any) -> bool:
    if isinstance(data_type, spark_types.StructType):
        return any(_TYPE_CHANGES in (f.metadata or {}) or _any_type_changed(f.dataType) for f in data_type.fields)
    if isinstance(data_type, spark_types.ArrayType):
        return _any_type_changed(data_type.elementType)
    if isinstance(data_type, spark_types.MapType):
        return _any_type_changed(data_type.keyType) or _any_type_changed(data_type.valueType)
    return False
