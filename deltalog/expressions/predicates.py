"""Predicates over the columns of a table: as Python objects, and their value for Arrow rows. Pure.

    from deltalog import col
    col("day") >= datetime.date(2026, 1, 1)
    (col("carrier") == "AA") & ~col("dep_delay").is_null()
    "day >= DATE '2026-01-01' AND carrier IN ('AA', 'UA')"

Three-valued logic as in SQL: a comparison with null is unknown, and only rows that are true are kept. NaN
equals itself and is greater than every other number, as in Spark. Text is never evaluated as code: it is
parsed into the objects below, and what they cannot say is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.arguments import checked
from deltalog.arrow_arrays import combined, scalar
from deltalog.errors import CallError
from deltalog.expressions.comparison import Operator, ValueSet, coerced, coerced_values, compare, plain, plain_values
from deltalog.protocol.char_varchar import SIZED_KEY, char_length, has_char_inside, padded
from deltalog.protocol.column_paths import parse_path, path_text
from deltalog.protocol.schema import DataType, StructField, StructType

_NEGATED: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


_COLLATIONS = "__COLLATIONS"
_SHOWN_NAMES = 1000


class Predicate:
    """A condition on a row. Combine with ``&``, ``|`` and ``~``."""

    def __and__(self, other: Predicate) -> Predicate:
        return And(self, other)

    def __or__(self, other: Predicate) -> Predicate:
        return Or(self, other)

    def __invert__(self) -> Predicate:
        return Not(self)

    def __bool__(self) -> bool:
        raise CallError("A predicate has no truth of its own. Combine predicates with &, | and ~, not and, or, not.")


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column, by its path of names. Comparisons with values make predicates."""

    path: tuple[str, ...]

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return Comparison("=", self, plain(value))

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return Comparison("!=", self, plain(value))

    def __lt__(self, value: Any) -> Predicate:
        return Comparison("<", self, plain(value))

    def __le__(self, value: Any) -> Predicate:
        return Comparison("<=", self, plain(value))

    def __gt__(self, value: Any) -> Predicate:
        return Comparison(">", self, plain(value))

    def __ge__(self, value: Any) -> Predicate:
        return Comparison(">=", self, plain(value))

    __hash__ = None  # type: ignore[assignment]

    def is_null(self) -> Predicate:
        """True where the value is null."""
        return IsNull(self)

    def isin(self, values: Iterable[Any]) -> Predicate:
        """True where the value is one of ``values``; unknown instead of false where they hold a null.

        ``values``: any number, in a list, an Arrow or NumPy array, or a series; they are looked up in one pass over the
        rows. Raises CallError for a single text.
        """
        return In(self, plain_values(values))

    def startswith(self, prefix: str) -> Predicate:
        """True where a text begins so. Raises CallError for a prefix that is no text."""
        if not isinstance(prefix, str):
            raise CallError(f"startswith takes a text, not {prefix!r}.")
        return StartsWith(self, str(prefix))

    @property
    def name(self) -> str:
        """The path as ``col`` takes it."""
        return path_text(self.path)


@checked
def col(name: str) -> Column:
    """A column; ``a.b`` is the field b of the struct a, and a name that has dots is put in backquotes: `` `a.b` ``.

    Raises CallError.
    """
    if not isinstance(name, str):
        raise CallError(f"col takes the name of a column, not {name!r}.")
    return Column(parse_path(name))


@dataclass(frozen=True, slots=True)
class Comparison(Predicate):
    operator: Operator
    column: Column
    value: Any


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    column: Column


@dataclass(frozen=True, slots=True)
class In(Predicate):
    """``found``: the values as they are looked up, when the predicate is bound."""

    column: Column
    values: tuple[Any, ...]
    found: ValueSet | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StartsWith(Predicate):
    column: Column
    prefix: str


@dataclass(frozen=True, slots=True)
class Between(Predicate):
    """``bind`` makes two comparisons of it."""

    column: Column
    low: Any
    high: Any


@dataclass(frozen=True, slots=True)
class And(Predicate):
    left: Predicate
    right: Predicate


@dataclass(frozen=True, slots=True)
class Or(Predicate):
    left: Predicate
    right: Predicate


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    operand: Predicate


@dataclass(frozen=True, slots=True)
class Constant(Predicate):
    """True, false, or None for unknown."""

    value: bool | None


# ------------------------------------------------------------------------------------------------ binding


@dataclass(frozen=True, slots=True)
class Bound:
    """A column found in a schema, with its names as the schema has them."""

    column: Column
    fields: tuple[StructField, ...]

    @property
    def data_type(self) -> DataType:
        return self.fields[-1].data_type

    @property
    def name(self) -> str:
        """The column in messages."""
        return path_text(self.column.path)

    @property
    def char_length(self) -> int | None:
        """n of a column char(n), whose values are compared as they are when padded with blanks to n characters."""
        return char_length(self.fields)


def bind(predicate: Predicate, schema: StructType) -> Predicate:
    """The same predicate with columns as the schema spells them and values of the columns' types.

    Negations are pushed down to the comparisons, so that each leaf can be judged by itself. Raises CallError
    for a column that is not there and for a value that its type cannot hold.
    """
    return _bind(predicate, schema, negate=False)


def _bind(predicate: Predicate, schema: StructType, negate: bool) -> Predicate:
    if isinstance(predicate, Not):
        return _bind(predicate.operand, schema, not negate)
    if isinstance(predicate, (And, Or)):
        left, right = _bind(predicate.left, schema, negate), _bind(predicate.right, schema, negate)
        return And(left, right) if isinstance(predicate, And) != negate else Or(left, right)
    if isinstance(predicate, Constant):
        return Constant(None if predicate.value is None else predicate.value != negate)
    if isinstance(predicate, Between):
        bound = find(predicate.column, schema)
        if bound.char_length is not None:
            raise CallError(
                f"Column {bound.name} is char({bound.char_length}), which Spark compares without padding in BETWEEN. "
                "Write the two comparisons, joined by AND."
            )
        low, high = (Comparison(">=", bound.column, predicate.low), Comparison("<=", bound.column, predicate.high))
        return _bind(And(low, high), schema, negate)
    if isinstance(predicate, Comparison):
        bound = comparable(find(predicate.column, schema))
        value = coerced(predicate.value, bound.data_type, bound.name)
        if bound.char_length is not None and value is not None:
            value = value.ljust(bound.char_length)
        return _bind_comparison(predicate.operator, bound.column, value, negate)
    if isinstance(predicate, In):
        bound = comparable(find(predicate.column, schema))
        if not predicate.values:
            return Constant(negate)
        leaf: Predicate = _bound_in(bound.column, coerced_values(predicate.values, bound.data_type, bound.name), bound)
    elif isinstance(predicate, IsNull):
        leaf = IsNull(find(predicate.column, schema).column)
    elif isinstance(predicate, StartsWith):
        bound = comparable(find(predicate.column, schema))
        if str(bound.data_type) != "string":
            raise CallError(f"Column {bound.name} is {bound.data_type}, and startswith and LIKE compare strings only.")
        leaf = StartsWith(bound.column, predicate.prefix)
    else:
        raise CallError(f"{predicate!r} is not a predicate.")
    return Not(leaf) if negate else leaf


def _bound_in(column: Column, values: tuple[Any, ...], bound: Bound) -> In:
    if bound.char_length is not None:
        if None in values:
            raise CallError(
                f"Column {bound.name} is char({bound.char_length}), which Spark compares without padding where a list "
                "has a NULL. Leave the NULL out."
            )
        width = max(bound.char_length, *map(len, values))
        values = tuple(value.ljust(width) for value in values)
    return In(column, values, ValueSet.of(values, bound.data_type))


def _bind_comparison(operator: Operator, column: Column, value: Any, negate: bool) -> Predicate:
    if operator == "<=>":
        equal: Predicate = IsNull(column)
        if value is not None:
            equal = And(Not(IsNull(column)), Comparison("=", column, value))
            if negate:
                return Or(IsNull(column), Comparison("!=", column, value))
        return Not(equal) if negate else equal
    if value is None:
        return Constant(None)
    return Comparison(_NEGATED[operator] if negate else operator, column, value)


def complement(predicate: Predicate) -> Predicate:
    """True for exactly the rows for which a bound predicate is not: where it is false, and where it is unknown."""
    if isinstance(predicate, And):
        return Or(complement(predicate.left), complement(predicate.right))
    if isinstance(predicate, Or):
        return And(complement(predicate.left), complement(predicate.right))
    if isinstance(predicate, Constant):
        return Constant(predicate.value is not True)
    if isinstance(predicate, IsNull):
        return Not(predicate)
    if isinstance(predicate, Comparison):
        negated = Comparison(_NEGATED[predicate.operator], predicate.column, predicate.value)
        return Or(negated, IsNull(predicate.column))
    inner = predicate.operand if isinstance(predicate, Not) else predicate
    if isinstance(inner, IsNull):
        return inner
    if isinstance(inner, In) and None in inner.values:
        if isinstance(predicate, Not):
            return Constant(True)  # NOT IN of a list with null is never true
        others = tuple(v for v in inner.values if v is not None)
        if not others:
            return Constant(True)  # nothing is IN (NULL)
        assert inner.found is not None
        inner = In(inner.column, others, replace(inner.found, has_null=False))
    assert isinstance(inner, (In, StartsWith))
    return Or(inner if isinstance(predicate, Not) else Not(inner), IsNull(inner.column))


def find(column: Column, schema: StructType) -> Bound:
    """The column in a schema, up to case. Raises CallError."""
    fields: list[StructField] = []
    level: DataType = schema
    for name in column.path:
        found = level.find(name) if isinstance(level, StructType) else None
        if found is None:
            raise CallError(f"There is no column {column.name!r}. {_hint(column, schema)}")
        fields.append(found)
        level = found.data_type
    return Bound(Column(tuple(f.name for f in fields)), tuple(fields))


def _hint(column: Column, schema: StructType) -> str:
    joined = ".".join(column.path)
    if len(column.path) > 1 and schema.find(joined) is not None:
        return f"For the column whose name contains dots, write `{joined}` in backquotes."
    return f"Columns: {', '.join(path_text([name]) for name in schema.names[:_SHOWN_NAMES])}."


def comparable(bound: Bound) -> Bound:
    """Raises CallError for text with a collation, whose order is not that of its bytes, and for char(n) in a struct."""
    if len(bound.fields) > 1 and has_char_inside(bound.fields[0]) and str(bound.data_type) == "string":
        raise CallError(
            f"Column {bound.name} is part of {bound.fields[0].metadata[SIZED_KEY]}, where Spark pads the values "
            "and not the literals. Leave it out of where, and filter the rows."
        )
    if any(_COLLATIONS in field.metadata for field in bound.fields):
        raise CallError(
            f"Column {bound.name} has a collation, which deltalog does not support in comparisons. Leave it out of "
            "where, and filter the rows with an engine that knows collations."
        )
    return bound


def number_of_values(predicate: Predicate) -> int:
    """How many values the lists of a predicate have."""
    if isinstance(predicate, (And, Or)):
        return number_of_values(predicate.left) + number_of_values(predicate.right)
    if isinstance(predicate, Not):
        return number_of_values(predicate.operand)
    return len(predicate.values) if isinstance(predicate, In) else 0


def columns_of(predicate: Predicate) -> list[Column]:
    """The columns that a predicate looks at, each once."""
    found: dict[tuple[str, ...], Column] = {}
    todo = [predicate]
    while todo:
        each = todo.pop()
        if isinstance(each, (And, Or)):
            todo += [each.left, each.right]
        elif isinstance(each, Not):
            todo.append(each.operand)
        elif isinstance(each, (Comparison, IsNull, In, StartsWith, Between)):
            found.setdefault(each.column.path, each.column)
    return list(found.values())


# ---------------------------------------------------------------------------------------------- evaluation


def matches(predicate: Predicate, table: pa.Table, schema: StructType) -> Any:
    """For each row of an Arrow table of the table's types: true, false, or null for unknown.

    ``predicate`` must be bound to ``schema``.
    """
    if isinstance(predicate, And):
        return pc.and_kleene(matches(predicate.left, table, schema), matches(predicate.right, table, schema))
    if isinstance(predicate, Or):
        return pc.or_kleene(matches(predicate.left, table, schema), matches(predicate.right, table, schema))
    if isinstance(predicate, Not):
        return pc.invert(matches(predicate.operand, table, schema))
    if isinstance(predicate, Constant):
        return pa.repeat(scalar(predicate.value, pa.bool_()), table.num_rows)
    if isinstance(predicate, IsNull):
        return pc.is_null(values_of(predicate.column.path, table))
    assert isinstance(predicate, (Comparison, In, StartsWith))
    bound = find(predicate.column, schema)
    values = values_of(predicate.column.path, table)
    if (width := compared_width(predicate, bound)) is not None:
        values = padded(values, width)
    if isinstance(predicate, StartsWith):
        return pc.starts_with(values, predicate.prefix)
    if isinstance(predicate, In):
        assert predicate.found is not None
        return predicate.found.contains(values)
    return compare(values, predicate.operator, predicate.value, bound.data_type)


def compared_width(predicate: Comparison | In | StartsWith, bound: Bound) -> int | None:
    """To how many characters the values of a column char(n) are padded: as the literals are, which have n or more."""
    if bound.char_length is None or isinstance(predicate, StartsWith):
        return bound.char_length
    return len(predicate.values[0] if isinstance(predicate, In) else predicate.value)


def values_of(path: tuple[str, ...], table: pa.Table) -> Any:
    """A column of an Arrow table by its path of names; null where a struct on the way is null."""
    values = combined(table.column(path[0]))
    for name in path[1:]:
        values = values.flatten()[values.type.get_field_index(name)]
    return values
