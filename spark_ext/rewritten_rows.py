"""All rows of files that are rewritten, changed and unchanged, from one scan of these files.

Unchanged rows are what a scan of their own would return: new values, and the table's conditions on them, are evaluated
for changed rows only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

import deltalog
from spark_ext.assigned import Path, value_of, value_that_fits
from spark_ext.changed_files import ChangedFiles
from spark_ext.conform import stored_schema
from spark_ext.exact import named, quoted
from spark_ext.found_rows import MARK, mark
from spark_ext.scan import OUTCOME, STAYS
from spark_ext.types import CHAR_VARCHAR, from_spark

_NEW = "__deltalog_new_{}_{}"


def of(
    rows: DataFrame,
    files: ChangedFiles,
    updates: Mapping[int, Mapping[Path, Column] | None],
    tracked: Sequence[str],
    column_of: Callable[[str], Column | None] = named,
    is_marked: bool = False,
) -> DataFrame | None:
    """The rows as files hold them. None where one scan is not enough: in a table with rules for its rows, with new
    columns, or for new values that are structs, lists or maps of another type.

    ``rows``: all rows of the files, with OUTCOME. ``updates``: the new values for each outcome except STAYS; None for
    an outcome whose rows are deleted. ``tracked``: the columns of row ids and commit versions. ``column_of``: the old
    value of a column. ``is_marked``: the rows have FILE and ROW, from which changed rows get MARK.
    """
    fields = files.target.fields
    if files.rules or files.changes_columns or any(CHAR_VARCHAR in field.metadata for field in fields):
        return None
    deleted = [outcome for outcome, sets in updates.items() if sets is None]
    if deleted:
        rows = rows.where(~named(OUTCOME).isin(deleted))
    old = {field.name: column_of(field.name) for field in fields}
    new: dict[str, Column] = {}
    for outcome, sets in updates.items():
        for n, field in enumerate(fields) if sets else ():
            before = old[field.name]
            assert sets is not None and before is not None
            value = value_of(field, sets, before)
            if value is not None:
                # The outcome is tested first: a new value that fails for an unchanged row must not fail the job.
                new[_NEW.format(outcome, n)] = F.when(named(OUTCOME) == outcome, value)
    kept = [column.alias(name) for name, column in old.items() if column is not None]
    carried = [*tracked, *([MARK] if is_marked else [])]
    if is_marked:
        rows = rows.select("*", F.when(named(OUTCOME) != STAYS, mark()).alias(MARK))
    frame = rows.select(*kept, OUTCOME, *map(quoted, carried), *(value.alias(name) for name, value in new.items()))
    have = {field.name: field.dataType for field in frame.schema.fields}
    columns = []
    for n, field in enumerate(fields):
        column = named(field.name)
        for outcome in updates:
            name = _NEW.format(outcome, n)
            if name in new:
                if not _can_fit(have[name], field):
                    return None
                fitting = value_that_fits(name, have[name], field)
                column = F.when(named(OUTCOME) == outcome, fitting).otherwise(column)
        columns.append(column.alias(field.name))
    if tracked:
        row_id, version = map(named, tracked)
        columns += [row_id, F.when(named(OUTCOME) == STAYS, version).alias(tracked[1])]
    return files.old_rows(frame.select(*columns, *([MARK] if is_marked else [])), carried)


def _can_fit(given: spark_types.DataType, field: deltalog.StructField) -> bool:
    """Whether ``value_that_fits`` can convert a value to the column's type: it cannot convert structs, lists or maps of
    another type."""
    if isinstance(given, spark_types.NullType):
        return True
    nested = (spark_types.StructType, spark_types.ArrayType, spark_types.MapType)
    if not isinstance(given, nested) and isinstance(field.data_type, deltalog.PrimitiveType):
        return True
    schema = stored_schema(from_spark(spark_types.StructType([spark_types.StructField("value", given)])))
    return schema.fields[0].data_type == field.data_type
