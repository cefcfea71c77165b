"""The assignments of an UPDATE or of a clause of a MERGE, as Spark columns in the types of the table (``casts``)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import deltalog
from spark_ext import arguments
from spark_ext.errors import explained
from spark_ext.reading.table_columns import named, quoted
from spark_ext.types import spark_type
from spark_ext.writing.casts import Fitting, Missing, Value, extended, is_same, positioned, struct_text, typed

# A value or a condition: SQL text, or a Spark Column.
Expression = Any
Path = tuple[str, ...]
_NEW = "__deltalog_new_{}_{}"


def as_column(expression: Expression, what: str) -> Column:
    """An expression as a Column. Raises ArgumentTypeError for anything but text and columns, CallError for text that
    Spark cannot parse."""
    arguments.expression(what, expression)
    if not isinstance(expression, str):
        return expression
    with explained(f"{what}, {expression!r}, is not an expression"):
        return F.expr(expression)


def text_of(expression: Expression) -> str:
    """An expression as text, for the log and for messages."""
    if isinstance(expression, str):
        return expression
    text = str(expression)
    return text[len("Column<'") : -len("'>")] if text.startswith("Column<'") else text


@dataclass(frozen=True)
class Assignments:
    """The new values that a statement assigns."""

    #: The values, keyed by the path of a column or of a struct field.
    values: Mapping[Path, Column]
    #: How to treat struct fields that a value lacks.
    missing: Missing = "refused"

    @property
    def columns(self) -> set[str]:
        """The columns to which the assignments assign a value, either to the whole column or to a field of it."""
        return {path[0] for path in self.values}


def targets(
    given: Mapping[str, Expression], schema: deltalog.schema.StructType, alias: str | None
) -> dict[Path, Column]:
    """The assignments in ``given``, keyed by path. ``alias``: a qualifier that may precede names. Raises
    CallError."""
    if not isinstance(given, Mapping) or not given:
        raise deltalog.CallError("set must be a non-empty dict from column names to new values.")
    found: dict[Path, Column] = {}
    for name, expression in given.items():
        path = _path(name, schema, alias)
        if any(path[: len(other)] == other or other[: len(path)] == path for other in found):
            raise deltalog.CallError(f"{name} is set twice. Set every column once.")
        found[path] = as_column(expression, f"The value of {name}")
    return found


def _path(name: Any, schema: deltalog.schema.StructType, alias: str | None) -> Path:
    if not isinstance(name, str):
        raise deltalog.CallError(f"The keys of set must be column names, not {name!r}.")
    path, level = list[str](), schema
    for part in parts_of(name, alias, schema):
        field = level.find(part) if isinstance(level, deltalog.schema.StructType) else None
        if field is None:
            raise deltalog.CallError(f"There is no column {name} to set. The table has {', '.join(schema.names)}.")
        path.append(field.name)
        level = field.data_type  # type: ignore[assignment]
    return tuple(path)


def parts_of(name: str, alias: str | None, schema: deltalog.schema.StructType) -> list[str]:
    """The parts of a dotted column name, without a leading table alias. The first part of a name is not an alias if it
    is a column of the schema."""
    parts = _parts(name)
    if alias is not None and len(parts) > 1 and parts[0].lower() == alias.lower() and schema.find(parts[0]) is None:
        return parts[1:]
    return parts


def _parts(name: str) -> list[str]:
    """The parts of a dotted name, without backticks."""
    parts, rest = list[str](), name
    while rest:
        if rest.startswith("`"):
            end = rest.find("`", 1)
            while end != -1 and rest[end : end + 2] == "``":
                end = rest.find("`", end + 2)
            if end == -1:
                raise deltalog.CallError(f"{name!r} is not a column name: a backtick is not closed.")
            parts.append(rest[1:end].replace("``", "`"))
            rest = rest[end + 1 :].removeprefix(".")
        else:
            part, _, rest = rest.partition(".")
            parts.append(part.strip())
    return parts


@dataclass(frozen=True)
class NewValues:
    """The new values that a statement, or one clause of it, assigns, as extra columns of a DataFrame. ``named`` adds
    the values as columns whose names contain ``number``. After the types of the values are known, ``value_of`` casts
    the values.
    """

    sets: Assignments
    number: int = 0

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [_NEW.format(self.number, n) for n in range(len(self.sets.values))]

    def named(self, when: Column | None = None) -> Iterator[Column]:
        """The columns. ``when``: compute the new values only in rows for which this column is true, so that an
        expression that fails on an unchanged row does not fail the job."""
        for name, value in zip(self.names, self.sets.values.values(), strict=True):
            yield (value if when is None else F.when(when, value)).alias(name)

    def value_of(
        self, column: deltalog.schema.StructField, types: Mapping[str, Any], has_old: bool, problems: list[str]
    ) -> Column | None:
        """The new value of a column of the table, cast to the column's type; None if neither the column nor one of its
        fields is assigned.

        ``types``: the types of the frame's columns; in the frame, old values have the table's column names.
        ``has_old``: whether the frame contains the old value of this column. The reasons why a value does not fit are
        added to ``problems``.
        """
        path, want = (column.name,), spark_type(column.data_type)
        old = Value(quoted(column.name), types[column.name]) if has_old else None
        new = {
            each: Value(quoted(name), types[name])
            for name, each in zip(self.names, self.sets.values, strict=True)
            if each[0] == column.name
        }
        if not new:
            return None
        return typed(self._text(path, want, new, old, problems), new.get(path), want)

    def _text(self, path: Path, want: Any, new: Mapping[Path, Value], old: Value | None, problems: list[str]) -> str:
        where = ".".join(path)
        if path in new:
            return Fitting(self.sets.missing, problems).text(new[path], want, where, old)
        if not any(each[: len(path)] == path for each in new):
            return "null" if old is None else Fitting("null", problems).text(old, want, where)
        return struct_text(
            (each.name, self._text((*path, each.name), each.dataType, new, old and old.child(each.name), problems))
            for each in want.fields
        )


def changed(
    rows: DataFrame,
    fields: Sequence[deltalog.schema.StructField],
    sets: Assignments,
    carried: Sequence[Column],
    url: str,
    column_of: Callable[[str], Column | None] = named,
    left_out: Collection[str] = (),
) -> DataFrame:
    """The rows with their new values, cast to the types of the table's ``fields``. Columns that have neither a new nor
    an old value are left out.

    ``carried``: further columns, which are appended. ``column_of``: returns the old value of a column; None if the rows
    lack it. ``left_out``: columns whose old values are dropped, since their values must be computed again. Raises
    SchemaMismatchError.
    """
    new, problems = NewValues(sets), list[str]()
    old = {each.name: column_of(each.name) for each in fields if each.name not in left_out}
    kept = [value.alias(name) for name, value in old.items() if value is not None]
    frame = rows.select(*kept, *new.named(), *carried)
    types = {each.name: each.dataType for each in frame.schema.fields}
    columns = []
    for each in fields:
        has_old = old.get(each.name) is not None
        value = new.value_of(each, types, has_old, problems)
        if value is not None:
            columns.append(value.alias(each.name))
        elif has_old:
            kept_value = Value(quoted(each.name), types[each.name])
            columns.append(Fitting("null").column(kept_value, spark_type(each.data_type), each.name).alias(each.name))
    refuse(problems, url)
    others = frame.columns[len(kept) + len(sets.values) :]
    with explained_casts(url):
        return frame.select(*columns, *map(quoted, others))


def at_their_positions(rows: DataFrame, fields: Sequence[deltalog.schema.StructField], url: str) -> DataFrame:
    """At every depth, rename the struct fields of rows to the names in ``fields``, matching by position. Columns that
    are not in ``fields`` are unchanged. Raises SchemaMismatchError."""
    problems, columns = list[str](), []
    wanted = {each.name: spark_type(each.data_type) for each in fields}
    for each in rows.schema.fields:
        kind = positioned(each.dataType, wanted.get(each.name), each.name, problems)
        is_named = is_same(each.dataType, kind)
        columns.append(named(each.name) if is_named else named(each.name).cast(kind).alias(each.name))
    refuse(problems, url)
    return rows.select(*columns)


def inserted(
    rows: DataFrame, fields: Sequence[deltalog.schema.StructField], carried: Sequence[str], url: str
) -> DataFrame:
    """The rows, cast to the types of ``fields``. Struct fields are matched by name; struct fields that the table lacks
    are kept. ``carried``: further columns, which are appended. Raises SchemaMismatchError."""
    fitting, columns = Fitting(), []
    have = {each.name: each.dataType for each in rows.schema.fields}
    for each in fields:
        value = Value(quoted(each.name), have[each.name])
        want = extended(value.data_type, spark_type(each.data_type))
        columns.append(fitting.column(value, want, each.name).alias(each.name))
    refuse(fitting.problems, url)
    with explained_casts(url):
        return rows.select(*columns, *map(quoted, carried))


def refuse(problems: Sequence[str], url: str) -> None:
    """Raise SchemaMismatchError if there are problems."""
    if problems:
        found = "\n".join(f"- {each}" for each in dict.fromkeys(problems))
        raise deltalog.SchemaMismatchError(f"The new values do not fit the table at {url}:\n{found}")


@contextlib.contextmanager
def explained_casts(url: str) -> Iterator[None]:
    """Convert Spark's error for an unsupported cast, such as from numbers to dates, to SchemaMismatchError."""
    try:
        yield
    except AnalysisException as error:
        text = str(error)
        if "DATATYPE_MISMATCH.CAST" not in text:
            raise
        raise deltalog.SchemaMismatchError(
            f"The new values do not fit the table at {url}: {text.partition(' SQLSTATE')[0]}"
        ) from error
