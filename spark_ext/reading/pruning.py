"""Translates Spark's conditions into deltalog predicates that skip files. Pure.

Spark still filters the rows. For every row that satisfies Spark's condition the predicate is true or unknown, whatever
the session's time zone, ANSI mode and parser settings. If this cannot be guaranteed for a part of a condition, that
part is dropped and skips no file.
"""

from __future__ import annotations

import datetime
import decimal
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import deltalog
from spark_ext.parse.queries import conjuncts
from spark_ext.parse.trees import trees_of
from spark_ext.types import CHAR_VARCHAR

# Matches SQL text whose meaning depends on settings (escapes, double quotes), and text that sqlglot may misread
# (comments, hints).
_UNSURE = re.compile(r"[\\\"]|--|/\*|\$")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?)?(Z|[+-]\d\d:\d\d)?")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# With more digits than these, Spark may round when it compares numbers of different types.
_MAX_DIGITS, _MAX_LONG_DIGITS, _MAX_FLOAT = 15, 18, 2**24
_INTEGRAL = frozenset(["byte", "short", "integer", "long"])
# Types of partition columns whose text in the log has one meaning in all sessions.
_EXACT_IN_LOG = _INTEGRAL | {"string", "date", "boolean"}
# A timestamp partition column: its text in the log may lack a zone, and Spark then uses the session's time zone.
_TIMESTAMP_TEXT = "timestamp as text"
# The largest offset of a time zone from UTC.
_ZONES = datetime.timedelta(hours=18)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISONS = {"EQ": "=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "NEQ": "!=", "NullSafeEQ": "<=>"}


# Kinds of sqlglot nodes whose value depends only on their operands.
_REPEATABLE = frozenset(
    [
        *("Column", "Dot", "Identifier", "Literal", "Boolean", "Null", "Paren", "And", "Or", "Not", "Is", "In"),
        *("Between", "Neg", "Add", "Sub", "Mul", "Div", "Mod", *_COMPARISONS),
    ]
)
# Names that Spark resolves to functions, even without parentheses, if no column has that name.
_FUNCTIONS = frozenset(["localtime", "localtimestamp", "now", "session_user", "user"])


class _Unsure(Exception):
    """A part of a condition that cannot be translated with certainty."""


def predicate(
    snapshot: deltalog.Snapshot, conditions: Iterable[Any], alias: str | None = None, only_qualified: bool = False
) -> deltalog.Predicate | None:
    """A predicate that is true or unknown for every row that satisfies all ``conditions`` (SQL text in Spark's dialect,
    or sqlglot trees of it); None if it would keep every file. ``alias``: a qualifier of the table's columns; with
    ``only_qualified``, columns without this qualifier belong to other tables. Cost: none."""
    found = []
    for condition in conditions:
        for each in _trees(condition):
            try:
                translated = _Translation(snapshot, alias=alias, only_qualified=only_qualified).positive(each)
                snapshot.scan(where=translated)  # raises if deltalog cannot evaluate it, as with collations
            except (_Unsure, deltalog.DeltaLogError, ValueError, ArithmeticError, RecursionError):
                continue
            found.append(translated)
    return reduce(lambda one, other: one & other, found) if found else None


def exact_predicate(
    snapshot: deltalog.Snapshot, conditions: Iterable[Any], alias: str | None = None
) -> deltalog.Predicate | None:
    """A predicate equivalent to all ``conditions``, which use only partition columns and so have the same value for all
    rows of a file; None if there are no conditions. ``alias``: as for ``predicate``.

    Raises ConditionError if equivalence is not certain. Cost: none."""
    translation = _Translation(snapshot, only_partitions=True, alias=alias)
    found = []
    for condition in conditions:
        trees = _trees(condition)
        if not trees:
            raise ConditionError
        for each in trees:
            try:
                found.append(translation.exact(each))
                snapshot.scan(where=found[-1])
            except (_Unsure, deltalog.DeltaLogError, ValueError, ArithmeticError, RecursionError):
                raise ConditionError from None
    return reduce(lambda one, other: one & other, found) if found else None


def is_repeatable(expressions: Iterable[Any]) -> bool:
    """Whether expressions are deterministic: in every evaluation by the session, they have the same value for the same
    row. True for SQL text that consists of columns, literals, comparisons and arithmetic. A None among ``expressions``
    stands for an omitted expression. Cost: none."""
    for each in expressions:
        if each is None:
            continue
        trees = _trees(each) if isinstance(each, str) else ()
        if not trees or not all(_is_repeatable(node) for tree in trees for node in tree.walk()):
            return False
    return True


def _is_repeatable(node: Any) -> bool:
    kind = type(node).__name__
    if kind == "Column" and len(node.parts) == 1:
        name = node.name.lower()
        return name not in _FUNCTIONS and not name.startswith("current_")
    return kind in _REPEATABLE


def equalities(condition: str, alias: str) -> Iterator[tuple[str, str, str]]:
    """The equalities in a join condition: for each, the column of the table (which the condition qualifies with
    ``alias``), and the qualifier and the name of the column on the other side. Cost: none."""
    for tree in _trees(condition):
        if type(tree).__name__ != "EQ":
            continue
        for left, right in ((tree.this, tree.expression), (tree.expression, tree.this)):
            names = [_qualified(side) for side in (left, right)]
            if all(len(each) == 2 for each in names) and names[0][0].lower() == alias.lower() != names[1][0].lower():
                yield names[0][1], names[1][0], names[1][1]


def _qualified(tree: Any) -> list[str]:
    return [part.name for part in tree.parts] if type(tree).__name__ == "Column" else []


class ConditionError(Exception):
    """A condition is not on partition columns, or may mean something else in Spark."""


def _trees(condition: Any) -> Sequence[Any]:
    """The conditions joined by AND in SQL text or in a tree; empty for text that Spark may interpret differently."""
    if not isinstance(condition, str):
        return conjuncts(condition)
    if _UNSURE.search(condition):
        return ()
    trees = trees_of(condition)
    return () if len(trees) != 1 else conjuncts(trees[0])


class _Translation:
    """Translates sqlglot trees; raises _Unsure. ``only_partitions``: whether to refuse all columns other than partition
    columns. ``alias`` and ``only_qualified``: as for ``predicate``."""

    def __init__(
        self,
        snapshot: deltalog.Snapshot,
        only_partitions: bool = False,
        alias: str | None = None,
        only_qualified: bool = False,
    ) -> None:
        self._only_qualified = only_qualified
        self._alias = None if alias is None else alias.lower()
        self._schema = snapshot.schema
        self._partitioned = frozenset(snapshot.partition_columns)
        self._only_partitions = only_partitions

    def positive(self, tree: Any) -> deltalog.Predicate:
        """A predicate that is true or unknown wherever the tree is true."""
        kind = type(tree).__name__
        if kind == "Paren":
            return self.positive(tree.this)
        if kind == "Or":
            return self.positive(tree.this) | self.positive(tree.expression)
        if kind == "And":
            parts = []
            for part in (tree.this, tree.expression):
                try:
                    parts.append(self.positive(part))
                except _Unsure:
                    continue
            if not parts:
                raise _Unsure
            return reduce(lambda one, other: one & other, parts)
        if kind in ("EQ", "LT", "LTE", "GT", "GTE"):
            wide = self._moments(tree)
            if wide is not None:
                return wide
        if kind == "Between":
            return self.positive(_between(tree))
        return self.exact(tree)

    def exact(self, tree: Any) -> deltalog.Predicate:
        """A predicate whose value is the tree's: true, false or unknown."""
        kind = type(tree).__name__
        if kind == "Paren":
            return self.exact(tree.this)
        if kind == "Not":
            return ~self.exact(tree.this)
        if kind in ("And", "Or"):
            left, right = self.exact(tree.this), self.exact(tree.expression)
            return left & right if kind == "And" else left | right
        if kind == "Between":
            return self.exact(_between(tree))
        if kind in _COMPARISONS:
            return self._compared(tree)
        if kind == "In" and tree.expressions and set(_given(tree)) == {"this", "expressions"}:
            column, data_type = self._column(tree.this)
            if data_type == "timestamp_ntz" and any(type(each).__name__ == "Literal" for each in tree.expressions):
                raise _Unsure  # without ANSI mode, Spark compares these values as text
            found: deltalog.Predicate = column.isin([_value(each, data_type) for each in tree.expressions])
            return found
        if kind == "Is" and type(tree.expression).__name__ == "Null":
            return _is_null(self._column(tree.this)[0])
        if kind == "Like":
            return self._like(tree)
        if kind in ("Column", "Dot"):
            column, data_type = self._column(tree)
            if data_type == "boolean":
                return _comparison(column, "=", True)
        raise _Unsure

    def _compared(self, tree: Any) -> deltalog.Predicate:
        name, left, right = _COMPARISONS[type(tree).__name__], tree.this, tree.expression
        if type(left).__name__ not in ("Column", "Dot"):
            name, left, right = _MIRRORED.get(name, name), right, left
        column, data_type = self._column(left)
        if name == "<=>":
            if type(right).__name__ == "Null":
                return _is_null(column)
            return ~_is_null(column) & _comparison(column, "=", _value(right, data_type))
        return _comparison(column, name, _value(right, data_type))

    def _moments(self, tree: Any) -> deltalog.Predicate | None:
        """A comparison of an instant with a local time, or the reverse, widened so that it is true if the comparison is
        true in any time zone."""
        name, left, right = _COMPARISONS[type(tree).__name__], tree.this, tree.expression
        if type(left).__name__ not in ("Column", "Dot"):
            name, left, right = _MIRRORED[name], right, left
        column, data_type = self._column(left)
        if data_type == _TIMESTAMP_TEXT:
            moment, margin = _moment(right, "timestamp")[0], 2 * _ZONES
        elif data_type in ("timestamp", "timestamp_ntz"):
            moment, is_exact = _moment(right, data_type)
            if is_exact:
                return None
            margin = _ZONES
        else:
            return None
        earliest, latest = moment - margin, moment + margin
        if name == "=":
            return _comparison(column, ">=", earliest) & _comparison(column, "<=", latest)
        return _comparison(column, name, latest if name in ("<", "<=") else earliest)

    def _like(self, tree: Any) -> deltalog.Predicate:
        column, data_type = self._column(tree.this)
        pattern = _string(tree.expression)
        if data_type != "string" or tree.args.get("negate") or pattern[-1:] != "%" or set(pattern[:-1]) & set("%_"):
            raise _Unsure
        found: deltalog.Predicate = column.startswith(pattern[:-1])
        return found

    def _column(self, tree: Any) -> tuple[Any, str]:
        """Resolve a column reference: the column's expression and the name of its type."""
        names: list[str] = []
        while type(tree).__name__ == "Dot" and type(tree.expression).__name__ == "Identifier":
            names.insert(0, tree.expression.name)
            tree = tree.this
        if type(tree).__name__ != "Column":
            raise _Unsure
        names[:0] = [part.name for part in tree.parts]
        if names[0].lower() == self._alias and len(names) > 1:
            if self._schema.find(names[0]) is not None:
                raise _Unsure
            del names[0]
        elif self._only_qualified:
            raise _Unsure
        data_type: Any = self._schema
        for name in names:
            found = data_type.find(name) if isinstance(data_type, deltalog.schema.StructType) else None
            if found is None:
                raise _Unsure
            if str(found.metadata.get(CHAR_VARCHAR, "")).lower().startswith("char"):
                raise _Unsure  # Spark pads literals in some comparisons only
            data_type = found.data_type
        kind, is_partition = str(data_type), self._schema.field(names[0]).name in self._partitioned
        if self._only_partitions and not (is_partition and kind in _EXACT_IN_LOG):
            raise _Unsure
        if is_partition and kind == "timestamp":
            kind = _TIMESTAMP_TEXT
        return deltalog.col(".".join("`" + name.replace("`", "``") + "`" for name in names)), kind


def _between(tree: Any) -> Any:
    """BETWEEN as two comparisons."""
    from sqlglot import exp

    if set(_given(tree)) != {"this", "low", "high"}:
        raise _Unsure
    low, high = tree.args["low"], tree.args["high"]
    return exp.And(this=exp.GTE(this=tree.this, expression=low), expression=exp.LTE(this=tree.this, expression=high))


def _comparison(column: Any, name: str, value: Any) -> deltalog.Predicate:
    found: deltalog.Predicate = _OPERATORS[name](column, value)
    return found


def _is_null(column: Any) -> deltalog.Predicate:
    found: deltalog.Predicate = column.is_null()
    return found


def _given(tree: Any) -> list[str]:
    return [key for key, value in tree.args.items() if value]


def _string(tree: Any) -> str:
    # Spark versions disagree about the meaning of two quotes in a row.
    if type(tree).__name__ != "Literal" or not tree.is_string or "'" in tree.this:
        raise _Unsure
    return str(tree.this)


def _value(tree: Any, data_type: str) -> Any:
    """The Python value of a literal that is compared with a column."""
    kind = type(tree).__name__
    if data_type == "boolean" and kind == "Boolean":
        return bool(tree.this)
    if data_type == "string":
        return _string(tree)
    if data_type == "date":
        text = _of_type(tree, "DATE")
        if not _DATE.fullmatch(text):
            raise _Unsure
        return datetime.date.fromisoformat(text)
    if data_type in ("timestamp", "timestamp_ntz"):
        moment, is_exact = _moment(tree, data_type)
        if not is_exact:
            raise _Unsure
        return moment
    if data_type in _INTEGRAL or data_type in ("float", "double") or data_type.startswith("decimal"):
        return _number(tree, data_type)
    raise _Unsure


def _of_type(tree: Any, *types: str) -> str:
    """The text of a string literal, or of a literal that is cast to one of the given types."""
    if type(tree).__name__ in ("Cast", "TryCast"):
        if tree.to.expressions or getattr(tree.to.this, "value", None) not in types:
            raise _Unsure
        tree = tree.this
    return _string(tree)


def _moment(tree: Any, data_type: str) -> tuple[datetime.datetime, bool]:
    """The time in a literal that is compared with a column, and whether this time is the same in all sessions. It is
    the same if the column is a ``timestamp_ntz`` and the literal is a string without a zone, or if the column is a
    ``timestamp`` and the literal has a zone."""
    is_text = type(tree).__name__ == "Literal"
    text = _of_type(tree, "DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ")
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise _Unsure
    naive = datetime.datetime.fromisoformat(f"{match[1]} {match[2] or '00:00:00'}.{(match[3] or ''):0<6}")
    utc = datetime.timezone.utc
    if match[4] is None:
        if data_type == "timestamp_ntz":
            return naive, is_text
        return naive.replace(tzinfo=utc), False
    if data_type == "timestamp_ntz" or not (match[2] and _is_instant(tree)):
        raise _Unsure
    zone = "+00:00" if match[4] == "Z" else match[4]
    return datetime.datetime.fromisoformat(naive.isoformat(timespec="microseconds") + zone).astimezone(utc), True


def _is_instant(tree: Any) -> bool:
    """Whether Spark certainly uses the time zone in a literal: not for DATE and TIMESTAMP_NTZ, nor for CAST(… AS
    TIMESTAMP), whose type depends on spark.sql.timestampType."""
    kind = type(tree).__name__
    if kind == "Literal":
        return True
    name = getattr(tree.to.this, "value", None)
    return name == "TIMESTAMPLTZ" or (name == "TIMESTAMPTZ" and kind == "Cast")


def _number(tree: Any, data_type: str) -> Any:
    sign = ""
    if type(tree).__name__ == "Neg":
        sign, tree = "-", tree.this
    if type(tree).__name__ in ("Cast", "TryCast"):
        if getattr(tree.to.this, "value", None) != "BIGINT":
            raise _Unsure
        tree = tree.this
        if type(tree).__name__ != "Literal" or not tree.this.isdigit():
            raise _Unsure
    if type(tree).__name__ != "Literal" or tree.is_string or not _NUMBER.fullmatch(tree.this):
        raise _Unsure
    text, is_whole = sign + tree.this, "." not in tree.this
    if len(tree.this) > (_MAX_LONG_DIGITS if is_whole and data_type in _INTEGRAL else _MAX_DIGITS):
        raise _Unsure
    if data_type == "float" and not (is_whole and abs(int(text)) <= _MAX_FLOAT):
        raise _Unsure
    if is_whole:
        return int(text)
    return float(text) if data_type == "double" else decimal.Decimal(text)
