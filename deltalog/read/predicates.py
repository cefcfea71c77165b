"""Predicates over the columns of a table: as Python objects, as SQL text, and their value for Arrow rows.

    from deltalog import col
    col("day") >= datetime.date(2026, 1, 1)
    (col("carrier") == "AA") & ~col("dep_delay").is_null()
    "day >= DATE '2026-01-01' AND carrier IN ('AA', 'UA')"

Three-valued logic as in SQL: a comparison with null is unknown, and only rows that are true are kept. NaN
equals itself and is greater than every other number, as in Spark. Text is never evaluated as code: it is
parsed into the objects below, and what they cannot say is refused.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltalog.errors import CallError, InvalidTimestampError
from deltalog.log.columns import combined, scalar
from deltalog.read.comparison import Operator, ValueSet, coerced, coerced_values, compare, plain, plain_values
from deltalog.spec.schema import DataType, StructField, StructType
from deltalog.spec.schema_edits import parse_path, path_text
from deltalog.spec.timestamps import parse_iso

_NEGATED: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED: dict[Operator, Operator] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


_COLLATIONS = "__COLLATIONS"
_PARSER_CLASS = re.compile(r"<class '[\w.]*?(\w+)'>")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN_CHARS, _SHOWN_VALUES = 1000, 1000


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


# ------------------------------------------------------------------------------------------------- text


def parse(text: str) -> Predicate:
    """A predicate from SQL text, in Spark's dialect.

    Comparisons of a column with a literal (also ``<=>``), IN, BETWEEN, LIKE with a prefix, IS NULL, a boolean
    column by itself, AND, OR, NOT, parentheses; DATE and TIMESTAMP literals. Raises CallError for the rest.
    """
    try:
        return _from_sql(sql_tree(text, "spark", f"The predicate {text[:1000]!r}"), text)
    except RecursionError:
        raise CallError(f"The predicate {text[:60]!r}… is nested too deeply.") from None


def sql_tree(text: str, dialect: Any, what: str) -> Any:
    """The parser's tree of one SQL expression, which messages call ``what``. Raises CallError, RecursionError."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        trees = sqlglot.parse(text, dialect=dialect)
    except SqlglotError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        reason = _PARSER_CLASS.sub(r"\1", reason)
        raise CallError(f"{what} cannot be parsed: {reason}") from None
    if len(trees) != 1 or trees[0] is None:
        raise CallError(f"{what} is {f'{len(trees)} statements' if len(trees) > 1 else 'empty'}, not one expression.")
    return trees[0]


# The parts that a kind of tree may have beside ``this`` and ``expression``. Another part is another meaning: in
# ``a NOT IN b`` the list of values is empty, and b a part of its own.
_PARTS: dict[str, set[str]] = {
    "Between": {"low", "high"},
    "In": {"expressions"},
    "Like": {"negate"},
    "Column": {"table", "db", "catalog"},
}


def _from_sql(node: Any, text: str) -> Predicate:
    from sqlglot import exp

    parts = {"this", "expression", *_PARTS.get(type(node).__name__, ())}
    if any(value and part not in parts for part, value in node.args.items()):
        raise _unsupported(node, text)
    comparisons: dict[Any, Operator] = {
        exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>"
    }  # fmt: skip
    kind = type(node)
    if kind is exp.Paren:
        return _from_sql(node.this, text)
    if kind in (exp.And, exp.Or):
        left, right = _from_sql(node.left, text), _from_sql(node.right, text)
        return And(left, right) if kind is exp.And else Or(left, right)
    if kind is exp.Not:
        return Not(_from_sql(node.this, text))
    if kind in comparisons:
        return _comparison(comparisons[kind], node.left, node.right, text)
    if kind is exp.Is and isinstance(node.expression, exp.Null):
        return IsNull(_column(node.this, text))
    if kind is exp.In and node.expressions:
        return In(_column(node.this, text), tuple(_literal(e, text) for e in node.expressions))
    if kind is exp.Between:
        column = _column(node.this, text)
        low, high = _literal(node.args["low"], text), _literal(node.args["high"], text)
        return And(Comparison(">=", column, low), Comparison("<=", column, high))
    if kind is exp.Like:
        # Newer versions of sqlglot say NOT LIKE by an argument of LIKE.
        return Not(_like(node, text)) if node.args.get("negate") else _like(node, text)
    if kind is exp.Boolean:
        return Constant(bool(node.this))
    if kind is exp.Null:
        return Constant(None)
    if kind in (exp.Column, exp.Dot):
        return Comparison("=", _column(node, text), True)
    raise _unsupported(node, text)


def _comparison(operator: Operator, left: Any, right: Any, text: str) -> Predicate:
    if _is_column(left):
        return Comparison(operator, _column(left, text), _literal(right, text))
    if _is_column(right):
        return Comparison(_MIRRORED.get(operator, operator), _column(right, text), _literal(left, text))
    _literal(left, text)  # what is neither column nor literal is to blame, whichever side it is on
    _literal(right, text)
    raise CallError(f"The predicate {_short(text)} compares two literals and no column.")


def _is_column(node: Any) -> bool:
    from sqlglot import exp

    return _is_column(node.this) if isinstance(node, exp.Paren) else isinstance(node, (exp.Column, exp.Dot))


def _like(node: Any, text: str) -> Predicate:
    pattern = _literal(node.expression, text)
    body = pattern[:-1] if isinstance(pattern, str) and pattern.endswith("%") else None
    if body is None or any(c in body for c in "%_\\"):
        raise CallError(f"LIKE is taken with a prefix and one % at its end only, not {pattern!r} (in {_short(text)}).")
    return StartsWith(_column(node.this, text), body)


def _column(node: Any, text: str) -> Column:
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _column(node.this, text)
    if isinstance(node, exp.Column):
        return Column(tuple(part.name for part in node.parts))
    if isinstance(node, exp.Dot):
        return Column((*_column(node.this, text).path, node.expression.name))
    raise _unsupported(node, text)


def _literal(node: Any, text: str) -> Any:
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _literal(node.this, text)
    if isinstance(node, exp.Neg):
        value = _literal(node.this, text)
        if isinstance(value, decimal.Decimal):
            return value.copy_negate()  # the minus of Python rounds to 28 digits
        if isinstance(value, (int, float)):
            return -value
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        return int(node.this) if node.is_int else decimal.Decimal(node.this)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        return _typed_literal(node, text)
    raise _unsupported(node, text)


def _typed_literal(node: Any, text: str) -> Any:
    from sqlglot import exp

    value, kind = str(node.this.this), node.to.this
    types = exp.DataType.Type
    if kind not in (types.DATE, types.TIMESTAMP, types.TIMESTAMPTZ, types.TIMESTAMPLTZ, types.TIMESTAMPNTZ):
        raise _unsupported(node, text)
    try:
        moment = parse_iso(value)
    except InvalidTimestampError:
        form = "yyyy-MM-dd" if kind == types.DATE else "yyyy-MM-dd HH:mm:ss[.ffffff][Z]"
        raise CallError(
            f"The predicate {_short(text)} has {value!r}, which is no literal of the form {form}."
        ) from None
    if kind == types.DATE:
        return moment.date()
    return moment.replace(tzinfo=None) if kind == types.TIMESTAMPNTZ else moment


def _unsupported(node: Any, text: str) -> CallError:
    try:
        part = repr(node.sql(dialect="spark")[:200])
    except Exception:
        part = type(node).__name__
    return CallError(
        f"The predicate {_short(text)} has {part}, which is not taken: compare columns "
        "with literals by =, !=, <, <=, >, >=, <=>, IN, BETWEEN, LIKE 'prefix%', IS NULL, and combine these with AND, "
        "OR, NOT."
    )


def _short(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}…"


def shown(where: Predicate | str) -> str:
    """A predicate in messages and in the log, where a long list of values is not written in full."""
    text = where if isinstance(where, str) else to_sql(where, _SHOWN_VALUES)
    return text if len(text) <= 10 * _SHOWN_CHARS else f"{text[: 10 * _SHOWN_CHARS]}…"


def to_sql(predicate: Predicate, most: int | None = None) -> str:
    """A predicate as SQL text in Spark's dialect; ``most`` values of a list are written, then dots."""
    if isinstance(predicate, (And, Or)):
        word = "AND" if isinstance(predicate, And) else "OR"
        return f"({to_sql(predicate.left, most)} {word} {to_sql(predicate.right, most)})"
    if isinstance(predicate, Not):
        return f"(NOT {to_sql(predicate.operand, most)})"
    if isinstance(predicate, Constant):
        return _literal_sql(predicate.value)
    if isinstance(predicate, IsNull):
        return f"({_column_sql(predicate.column)} IS NULL)"
    if isinstance(predicate, In):
        if not predicate.values:
            return "false"
        texts = [_literal_sql(value) for value in predicate.values[:most]]
        if len(texts) < len(predicate.values):
            texts.append("…")
        return f"({_column_sql(predicate.column)} IN ({', '.join(texts)}))"
    if isinstance(predicate, StartsWith):
        return f"({_column_sql(predicate.column)} LIKE {_literal_sql(predicate.prefix + '%')})"
    assert isinstance(predicate, Comparison)
    return f"({_column_sql(predicate.column)} {predicate.operator} {_literal_sql(predicate.value)})"


def _column_sql(column: Column) -> str:
    quoted = (name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in column.path)
    return ".".join(quoted)


def _literal_sql(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, (bytes, bytearray)):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, datetime.datetime):
        kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
        return f"{kind} '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float) and not math.isfinite(value):
        return f"DOUBLE('{value}')"
    return str(value)


def as_predicate(where: Predicate | str | None) -> Predicate | None:
    """Either form, or None. Raises CallError."""
    if where is None or isinstance(where, Predicate):
        return where
    if isinstance(where, str):
        return parse(where)
    raise CallError(f"where is SQL text or a predicate made with col(…), not {type(where).__name__}.")


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
    if isinstance(predicate, Comparison):
        bound = comparable(find(predicate.column, schema))
        value = coerced(predicate.value, bound.data_type, bound.name)
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
            raise CallError(f"Column {bound.name} is {bound.data_type}, and only text begins with a prefix.")
        leaf = StartsWith(bound.column, predicate.prefix)
    else:
        raise CallError(f"{predicate!r} is not a predicate.")
    return Not(leaf) if negate else leaf


def _bound_in(column: Column, values: tuple[Any, ...], bound: Bound) -> In:
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
        return f"The column whose name has dots is `{joined}`, in backquotes."
    return f"Columns: {', '.join(path_text([name]) for name in schema.names[:_SHOWN_VALUES])}."


def comparable(bound: Bound) -> Bound:
    """Raises CallError for text with a collation, whose order is not that of its bytes."""
    if any(_COLLATIONS in field.metadata for field in bound.fields):
        raise CallError(
            f"Column {bound.name} has a collation, by which deltalog cannot compare. Leave it out of where, "
            "and filter the rows with an engine that knows collations."
        )
    return bound


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
        elif isinstance(each, (Comparison, IsNull, In, StartsWith)):
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
    if isinstance(predicate, StartsWith):
        return pc.starts_with(values_of(predicate.column.path, table), predicate.prefix)
    if isinstance(predicate, In):
        assert predicate.found is not None
        return predicate.found.contains(values_of(predicate.column.path, table))
    assert isinstance(predicate, Comparison)
    data_type = find(predicate.column, schema).data_type
    return compare(values_of(predicate.column.path, table), predicate.operator, predicate.value, data_type)


def values_of(path: tuple[str, ...], table: pa.Table) -> Any:
    """A column of an Arrow table by its path of names; null where a struct on the way is null."""
    values = combined(table.column(path[0]))
    for name in path[1:]:
        values = values.flatten()[values.type.get_field_index(name)]
    return values
