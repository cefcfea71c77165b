"""All rows of the rewritten files, both changed and unchanged rows, read by a single scan.

New values and the table's conditions are evaluated only for changed rows, so unchanged rows are the same as if a
separate scan had read them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext.reading.scan import OUTCOME, STAYS
from spark_ext.reading.table_columns import named, quoted
from spark_ext.rows.changed_files import ChangedFiles
from spark_ext.rows.row_positions import MARK, mark
from spark_ext.types import CHAR_VARCHAR
from spark_ext.writing.assignments import Assignments, NewValues, explained_casts, refuse


def from_one_scan(
    rows: DataFrame,
    files: ChangedFiles,
    updates: Mapping[int, Assignments | None],
    tracked: Sequence[str],
    column_of: Callable[[str], Column | None] = named,
    is_marked: bool = False,
    computed: Collection[int] = (),
) -> DataFrame | None:
    """The rows as files store them. None if one scan is not enough, because the table has rules for its rows, because
    it gets new columns, or because a new value contains a nested NOT NULL field.

    ``rows``: all rows of the files, with the column OUTCOME. ``updates``: the new values, keyed by outcome (except
    STAYS); None for an outcome whose rows are deleted. ``tracked``: the columns that contain row ids and row commit
    versions. ``column_of``: for the name of a column, returns the Spark Column with its old values; None if the rows
    lack it. ``is_marked``: whether the rows have the columns FILE and ROW, from which the column MARK of changed rows
    is computed. ``computed``: the outcomes for which the rows already contain the columns of ``NewValues.named``.
    """
    fields = files.schema.fields
    if files.rules or files.changes_columns or any(CHAR_VARCHAR in field.metadata for field in fields):
        return None
    deleted = [outcome for outcome, sets in updates.items() if sets is None]
    if deleted:
        rows = rows.where(~named(OUTCOME).isin(deleted))
    old = {field.name: column_of(field.name) for field in fields}
    new = {outcome: NewValues(sets, outcome) for outcome, sets in updates.items() if sets is not None}
    set_fields = [field for field in fields if any(field.name in each.sets.columns for each in new.values())]
    if any(_has_not_null(field.data_type) for field in set_fields):
        return None
    kept = [column.alias(name) for name, column in old.items() if column is not None]
    carried = [*tracked, *([MARK] if is_marked else [])]
    if is_marked:
        rows = rows.select("*", F.when(named(OUTCOME) != STAYS, mark()).alias(MARK))
    values: list[Any] = []
    for outcome, each in new.items():
        values += each.names if outcome in computed else each.named(named(OUTCOME) == outcome)
    frame = rows.select(*kept, OUTCOME, *map(quoted, carried), *values)
    types = {field.name: field.dataType for field in frame.schema.fields}
    columns, problems = [], list[str]()
    for field in fields:
        column = named(field.name)
        for outcome, each in new.items():
            value = each.value_of(field, types, True, problems)
            if value is not None:
                column = F.when(named(OUTCOME) == outcome, value).otherwise(column)
        columns.append(column.alias(field.name))
    refuse(problems, files.url)
    if tracked:
        row_id, version = map(named, tracked)
        columns += [row_id, F.when(named(OUTCOME) == STAYS, version).alias(tracked[1])]
    with explained_casts(files.url):
        rewritten = frame.select(*columns, *([MARK] if is_marked else []))
    return files.old_rows(rewritten, carried)


def _has_not_null(data_type: Any) -> bool:
    """Whether a type contains a nested NOT NULL field, which ``old_rows`` does not check."""
    if isinstance(data_type, deltalog.schema.StructType):
        return any(not field.nullable or _has_not_null(field.data_type) for field in data_type.fields)
    if isinstance(data_type, deltalog.schema.ArrayType):
        return not data_type.contains_null or _has_not_null(data_type.element_type)
    if isinstance(data_type, deltalog.schema.MapType):
        not_null = not data_type.value_contains_null or _has_not_null(data_type.value_type)
        return not_null or _has_not_null(data_type.key_type)
    return False
