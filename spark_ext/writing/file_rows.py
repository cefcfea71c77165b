"""Rows as data files store them: with the table's columns and types, missing values filled in, and constraints checked.

The columns are expressions, which Spark evaluates when it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading.table_columns import named, quoted
from spark_ext.session import paths
from spark_ext.types import CHAR_VARCHAR, SIZED, spark_type
from spark_ext.writing import physical_columns, row_rules
from spark_ext.writing.data_schema import dotted, null_of, required_paths
from spark_ext.writing.new_files import NewFiles
from spark_ext.writing.row_rules import refuse


def new_rows(
    rows: DataFrame,
    data: deltalog.schema.StructType,
    files: NewFiles,
    rules: deltalog.engine.TableRules,
    is_native: bool,
    *,
    replacement: deltalog.engine.Replacement | None = None,
    carried: Sequence[str] = (),
    is_inserted: bool = True,
) -> DataFrame:
    """New rows in the form in which files store them: they are cast to the table's columns, missing columns are filled
    in, and the rows are checked against the table's rules and the condition of ``replacement``.

    ``data``: the schema of the rows, without the columns in ``carried``. ``is_native``: as in ``Job.is_native``.
    ``carried``: columns that are appended unchanged. ``is_inserted``: false for updated rows, in which a NOT NULL field
    of a null struct may stay null.
    """
    target = files.schema
    if not rules and replacement is None and all(_is_ready(data.find(field.name), field) for field in target.fields):
        frame = rows.select(*_ready(rows, data, files, is_native, is_inserted), *map(quoted, carried))
        return _under_stored_names(frame, files, is_native, carried)
    columns = []
    for field in target.fields:
        given = data.find(field.name)
        if given is None:
            column = null_of(field.data_type)
        else:
            column = _value(named(given.name), given.data_type, field.data_type)
            column = _length_checked(column, field)
            if field.name in rules.null_if_empty:
                column = row_rules.null_if_empty(column)
        columns.append(_declared(column, field))
    beside = [named(name) for name in carried]
    frame = rows.select(*columns, *beside)
    if rules:
        absent = {field.name for field in target.fields if data.find(field.name) is None}
        if is_inserted:
            row_rules.check_identities(rules, absent)
        frame = row_rules.filled(frame, rules, target, absent)
        if any(CHAR_VARCHAR in field.metadata for field in target.fields if field.name in absent):
            frame = frame.select(*(_filled(field, field.name in absent) for field in target.fields), *beside)
        frame = row_rules.checked(frame, rules)
    if replacement is not None:
        frame = row_rules.selected(frame, replacement)
    return old_rows(frame, files, is_native, carried, is_inserted)


def old_rows(
    rows: DataFrame, files: NewFiles, is_native: bool, carried: Sequence[str] = (), is_inserted: bool = False
) -> DataFrame:
    """Rows that already have the table's columns, with the values in the form in which files store them. Arguments: as
    for ``new_rows``."""
    partition_columns = files.partition_columns
    columns = (
        _stored(f, named(f.name), f.name in partition_columns, is_native, is_inserted) for f in files.schema.fields
    )
    return _under_stored_names(rows.select(*columns, *map(quoted, carried)), files, is_native, carried)


def _under_stored_names(frame: DataFrame, files: NewFiles, is_native: bool, carried: Sequence[str]) -> DataFrame:
    if not is_native:
        return frame
    held = files.held_schema
    if held != files.schema:
        types = {field.name: field.data_type for field in files.schema.fields}
        columns = [_value(named(f.name), types[f.name], f.data_type).alias(f.name, metadata={}) for f in held.fields]
        frame = frame.select(*columns, *map(quoted, carried))
    return physical_columns.under_stored_names(frame, held, carried) if files.is_mapped else frame


def _ready(
    rows: DataFrame, data: deltalog.schema.StructType, files: NewFiles, is_native: bool, is_inserted: bool
) -> Iterator[Column | str]:
    """The columns of data that already has the table's types; for a column that needs no expression, only its name."""
    exact = {field.name for field in rows.schema.fields if not field.metadata}
    for field in files.schema.fields:
        in_path = field.name in files.partition_columns
        if field.nullable and not in_path and field.name in exact:
            yield quoted(field.name)
        else:
            yield _stored(field, named(data.field(field.name).name), in_path, is_native, is_inserted)


def _is_ready(given: deltalog.schema.StructField | None, field: deltalog.schema.StructField) -> bool:
    """Whether the data's column needs no cast. This is checked because building a cast expression with PySpark takes
    milliseconds."""
    return given is not None and _fits(given.data_type, field.data_type) and CHAR_VARCHAR not in field.metadata


def _declared(column: Column, field: deltalog.schema.StructField) -> Column:
    """The column under its name, with its declared char type, so that Spark pads the literals in conditions."""
    declared = field.metadata.get(CHAR_VARCHAR)
    return column.alias(field.name, metadata={} if declared is None else {CHAR_VARCHAR: declared})


def _filled(field: deltalog.schema.StructField, is_new: bool) -> Column:
    column = named(field.name)
    return _declared(_length_checked(column, field) if is_new else column, field)


def _stored(
    field: deltalog.schema.StructField, column: Column, in_path: bool, in_directory: bool, is_new: bool
) -> Column:
    if in_path:
        column = _partition_value(column, field, in_directory)
    column = _checked_not_null(column, field, field.name, in_path)
    return (_checked_below(column, field) if is_new else column).alias(field.name, metadata={})


def _checked_below(column: Column, field: deltalog.schema.StructField) -> Column:
    """Returns the column with a check that fails the job if a NOT NULL field is null because a struct that contains it
    is null. delta-spark could not delete, update or compact a file with such a row."""
    if not isinstance(field.data_type, deltalog.schema.StructType):
        return column
    checked = column
    for path in (each for below in field.data_type.fields for each in required_paths(below)):
        value = reduce(lambda above, each: above.getField(each.name), path, column)
        fault = refuse(f"column {dotted([field, *path])} is NOT NULL in the table and the data has a NULL in it")
        checked = F.when(value.isNull(), fault).otherwise(checked)
    return checked


def _value(column: Column, have: Any, want: Any) -> Column:
    """A value cast to the table's type. Struct fields are matched by name; missing fields are null."""
    if _fits(have, want):
        return column
    if isinstance(want, deltalog.schema.StructType):
        fields = []
        for field in want.fields:
            given = have.find(field.name)
            value = (
                null_of(field.data_type)
                if given is None
                else _value(column.getField(given.name), given.data_type, field.data_type)
            )
            fields.append(_checked_not_null(value, field, field.name).alias(field.name))
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(want, deltalog.schema.ArrayType):
        element = deltalog.schema.StructField("element", want.element_type, want.contains_null)

        def each(item: Column) -> Column:
            return _checked_not_null(_value(item, have.element_type, want.element_type), element, "element")

        return F.transform(column, each)
    if isinstance(want, deltalog.schema.MapType):
        if not _fits(have.key_type, want.key_type):
            column = F.transform_keys(column, lambda key, _: _value(key, have.key_type, want.key_type))
        entry = deltalog.schema.StructField("value", want.value_type, want.value_contains_null)

        def every(_: Column, item: Column) -> Column:
            return _checked_not_null(_value(item, have.value_type, want.value_type), entry, "value")

        if not want.value_contains_null or not _fits(have.value_type, want.value_type):
            column = F.transform_values(column, every)
        return column
    return column.cast(spark_type(want))


def _fits(have: Any, want: Any) -> bool:
    """Whether a value needs no cast: the names (with their order and case) and the types of its fields are the same,
    and it contains no nested NOT NULL field to check."""
    if isinstance(want, deltalog.schema.StructType) and isinstance(have, deltalog.schema.StructType):
        return have.names == want.names and all(
            w.nullable and _fits(h.data_type, w.data_type) for h, w in zip(have.fields, want.fields, strict=True)
        )
    if isinstance(want, deltalog.schema.ArrayType) and isinstance(have, deltalog.schema.ArrayType):
        return want.contains_null and _fits(have.element_type, want.element_type)
    if isinstance(want, deltalog.schema.MapType) and isinstance(have, deltalog.schema.MapType):
        return (
            want.value_contains_null and _fits(have.key_type, want.key_type) and _fits(have.value_type, want.value_type)
        )
    return bool(have == want)


def _checked_not_null(column: Column, field: deltalog.schema.StructField, name: str, in_path: bool = False) -> Column:
    if field.nullable:
        return column
    null = column.isNull()
    if in_path and str(field.data_type) == "string":
        null = null | (column == "")  # the log stores an empty partition value as null
    return F.when(null, refuse(f"column {name} is NOT NULL in the table and the data has a NULL in it")).otherwise(
        column
    )


def _length_checked(column: Column, field: deltalog.schema.StructField) -> Column:
    """char(n) and varchar(n) as Spark stores them: trailing spaces beyond n are cut; char is padded to n."""
    declared = field.metadata.get(CHAR_VARCHAR)
    if declared is None:
        return column
    match = SIZED.fullmatch(str(declared).replace(" ", "").lower())
    if match is None or str(field.data_type) != "string":
        raise deltalog.UnsupportedFeatureError(
            f"Column {field.name} is declared {declared}; char and varchar inside other types cannot be written.",
            features=("char/varchar",),
        )
    limit = int(match[2])
    cut = F.when(F.length(column) <= limit, column).when(
        F.length(F.rtrim(column)) <= limit, F.substring(column, 1, limit)
    )
    too_long = row_rules.too_long(field.name, f"{match[1]}({limit})")
    checked = F.when(column.isNull(), column).otherwise(cut.otherwise(too_long))
    return F.rpad(checked, limit, " ") if match[1] == "char" else checked


def _partition_value(column: Column, field: deltalog.schema.StructField, in_directory: bool) -> Column:
    """A partition value, checked to be exactly representable in the log and, with ``in_directory``, also in the name of
    the directory that Spark derives from it."""
    name = str(field.data_type)
    if name == "binary":
        raise deltalog.UnsupportedFeatureError(
            f"Column {field.name} is binary, and Delta implementations disagree on how binary partition values are "
            "written. Partition by a string, for example hex(column).",
            features=("binary partition columns",),
        )
    if name == "string":
        message = f"column {field.name} has the value {paths.HIVE_NULL}, which as a partition value means NULL"
        return F.when(column == paths.HIVE_NULL, refuse(message)).otherwise(column)
    if name == "timestamp" and in_directory:
        # The value is written in UTC: in the session time zone, one hour a year is ambiguous.
        seconds = (F.unix_micros(column).cast("decimal(18,0)") / 1_000_000).cast("decimal(18,6)")
        epoch = F.expr("timestamp_ntz'1970-01-01 00:00:00'")
        return epoch + F.make_dt_interval(F.lit(0), F.lit(0), F.lit(0), seconds)
    return column
