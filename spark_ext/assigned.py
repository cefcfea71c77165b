"""Columns of a table as expressions of its rows: what an UPDATE sets, or a clause of a MERGE. Spark evaluates them.

A value becomes one of its column's type as in a checked cast: one that does not fit fails the job, also in sessions
without ANSI mode, whose own casts make it null or another value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

import deltalog
from spark_ext import arguments
from spark_ext.errors import explained
from spark_ext.exact import named, quoted
from spark_ext.rules import refuse
from spark_ext.types import spark_type

# What a caller may give for a value or a condition: SQL text, or a column of Spark.
Expression = Any
_NEW = "__deltalog_new_{}"
_NESTED = (spark_types.StructType, spark_types.ArrayType, spark_types.MapType)


def as_column(expression: Expression, what: str) -> Column:
    """The column of an expression. Raises ArgumentTypeError for anything but text and columns, CallError for text that
    Spark cannot parse."""
    arguments.expression(what, expression)
    if not isinstance(expression, str):
        return expression
    with explained(f"{what}, {expression!r}, is no expression"):
        return F.expr(expression)


def text_of(expression: Expression) -> str:
    """An expression as the log and messages have it."""
    if isinstance(expression, str):
        return expression
    text = str(expression)
    return text[len("Column<'") : -len("'>")] if text.startswith("Column<'") else text


Path = tuple[str, ...]


def targets(given: Mapping[str, Expression], schema: deltalog.StructType, alias: str | None) -> dict[Path, Column]:
    """The columns, or fields of structs, that are set, by their paths. ``alias``: a qualifier that their names may
    have. Raises CallError."""
    if not isinstance(given, Mapping) or not given:
        raise deltalog.CallError("set is a dict that is not empty, from names of columns to their new values.")
    found: dict[Path, Column] = {}
    for name, expression in given.items():
        path = _path(name, schema, alias)
        if any(path[: len(other)] == other or other[: len(path)] == path for other in found):
            raise deltalog.CallError(f"{name} is set twice. Give each column one value.")
        found[path] = as_column(expression, f"The value of {name}")
    return found


def _path(name: Any, schema: deltalog.StructType, alias: str | None) -> Path:
    if not isinstance(name, str):
        raise deltalog.CallError(f"The columns to set are named by text, not by {name!r}.")
    parts = _parts(name)
    if alias is not None and len(parts) > 1 and parts[0].lower() == alias.lower() and schema.find(parts[0]) is None:
        parts = parts[1:]
    path, level = list[str](), schema
    for part in parts:
        field = level.find(part) if isinstance(level, deltalog.StructType) else None
        if field is None:
            raise deltalog.CallError(f"There is no column {name} to set. The table has {', '.join(schema.names)}.")
        path.append(field.name)
        level = field.data_type  # type: ignore[assignment]
    return tuple(path)


def _parts(name: str) -> list[str]:
    """The parts of a dotted name, of which some may be in backticks."""
    parts, rest = list[str](), name
    while rest:
        if rest.startswith("`"):
            end = rest.find("`", 1)
            while end != -1 and rest[end : end + 2] == "``":
                end = rest.find("`", end + 2)
            if end == -1:
                raise deltalog.CallError(f"{name!r} is not the name of a column: a backtick is not closed.")
            parts.append(rest[1:end].replace("``", "`"))
            rest = rest[end + 1 :].removeprefix(".")
        else:
            part, _, rest = rest.partition(".")
            parts.append(part.strip())
    return parts


def value_of(column: deltalog.StructField, sets: Mapping[Path, Column], old: Column) -> Column | None:
    """The new value of a column of which the column itself or fields are set; None where nothing of it is."""
    own = {path: value for path, value in sets.items() if path[0] == column.name}
    return _value((column.name,), column.data_type, own, old) if own else None


def _value(path: Path, data_type: Any, sets: Mapping[Path, Column], old: Column) -> Column:
    if path in sets:
        return sets[path]
    if not any(each[: len(path)] == path for each in sets):
        return old
    fields = []
    for field in data_type.fields:
        below = (*path, field.name)
        value = _value(below, field.data_type, sets, old.getField(field.name))
        if below in sets and not isinstance(spark_type(field.data_type), _NESTED):
            value = value.cast(spark_type(field.data_type))
        fields.append(value.alias(field.name))
    return F.struct(*fields)


def fitted(frame: DataFrame, columns: Sequence[deltalog.StructField], carried: Sequence[str]) -> DataFrame:
    """Rows whose columns are the new values, in the types of the table's ``columns``; structs, lists and maps as they
    are. The columns ``carried`` follow."""
    numbered = frame.select(
        *(named(field.name).alias(_NEW.format(n)) for n, field in enumerate(columns)), *map(quoted, carried)
    )
    have = frame.schema
    fitting = [
        value_that_fits(_NEW.format(n), have[field.name].dataType, field).alias(field.name)
        for n, field in enumerate(columns)
    ]
    return numbered.select(*fitting, *map(quoted, carried))


def value_that_fits(name: str, have: spark_types.DataType, field: deltalog.StructField) -> Column:
    """The column ``name``, whose type is ``have``, in the type of the table's ``field``; structs, lists and maps as
    they are."""
    want = spark_type(field.data_type)
    if isinstance(have, spark_types.NullType):
        return F.lit(None).cast(want)
    if have == want or isinstance(have, _NESTED) or isinstance(want, _NESTED):
        return named(name)
    cast = F.expr(f"try_cast({name} as {_type_name(want)})")
    wrong = refuse(f"a new value of column {field.name} is not one of its type, {field.data_type}")
    return F.coalesce(cast, F.when(named(name).isNotNull(), wrong).cast(want))


def _type_name(data_type: spark_types.DataType) -> str:
    """By a name that does not depend on the session (spark.sql.timestampType)."""
    name = str(data_type.simpleString())
    return "timestamp_ltz" if name == "timestamp" else name
