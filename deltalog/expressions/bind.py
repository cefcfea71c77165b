"""Binds expressions to a schema: resolves columns, checks types, and selects the kernel for each operator. Pure.

A literal next to a column is read as a value of the column's type if that loses no information; the result is then the
same as that of Spark's wider comparison. If this is not possible, both sides are cast to a common type as in Spark. An
expression that is not known to mean the same as in Spark is refused, and the error names it.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltalog.errors import CallError, InvalidTimestampError
from deltalog.expressions.bound import (
    Bound,
    BoundAnd,
    BoundColumn,
    BoundComparison,
    BoundConstant,
    BoundIn,
    BoundIsNull,
    BoundNot,
    BoundOr,
    BoundStartsWith,
    BoundValue,
    negated,
)
from deltalog.expressions.comparison import ValueSet
from deltalog.expressions.functions import comparisons, logic, nodes
from deltalog.expressions.functions.nodes import Node
from deltalog.expressions.functions.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGRAL,
    INTERVALS,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    refuse,
)
from deltalog.expressions.literals import coerced, coerced_values
from deltalog.expressions.tree import (
    MIRRORED,
    MOMENTS,
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    Comparison,
    Element,
    Expression,
    Field,
    In,
    IsBoolean,
    IsNull,
    Like,
    Literal,
    Moment,
    Name,
    Negative,
    Not,
    Operator,
    Or,
    RegexLike,
    StartsWith,
    renamed,
    replaced,
    walked,
)
from deltalog.lazy_names import lazy_modules
from deltalog.protocol import limits
from deltalog.protocol.char_varchar import SIZED_KEY, char_length, has_char_inside
from deltalog.protocol.column_paths import path_text
from deltalog.protocol.schema import DataType, DecimalType, PrimitiveType, StructField, StructType

if TYPE_CHECKING:
    from deltalog.expressions.functions import arithmetic, casts, conditional, nested, patterns, registry, text
    from deltalog.protocol import timestamps
else:
    lazy_modules(
        __name__,
        "deltalog.expressions.functions.arithmetic",
        "deltalog.expressions.functions.casts",
        "deltalog.expressions.functions.conditional",
        "deltalog.expressions.functions.nested",
        "deltalog.expressions.functions.patterns",
        "deltalog.expressions.functions.registry",
        "deltalog.expressions.functions.text",
        "deltalog.protocol.timestamps",
    )

_COLLATIONS = "__COLLATIONS"
_SHOWN_NAMES = 1000
# Two different integers whose absolute values are below this limit never become the same double.
_EXACT_IN_DOUBLE = 2**53
_DIGITS_IN_DOUBLE = 15  # decimals with up to this many digits stay distinct as doubles


def bind(condition: Expression, schema: StructType) -> Bound:
    """Bind a condition to a schema. Raises CallError for a column that does not exist, a value that its type cannot
    hold, an unsupported expression, and an expression that is not a condition."""
    try:
        return Binder(schema).condition(_settled(condition, schema))
    except RecursionError:
        raise CallError("The condition is nested too deeply. For many values of a column, use IN or isin.") from None


def _settled(condition: Expression, schema: StructType) -> Expression:
    """The condition, with CURRENT_TIMESTAMP and similar functions replaced by the statement's instant, or by the column
    of that name if there is one."""

    def of_statement(each: Expression) -> Expression | None:
        if not isinstance(each, Moment):
            return None
        is_column = isinstance(each.written, Name) and schema.find(each.written.path[0]) is not None
        return each.written if is_column else each.literal

    if not any(isinstance(each, Moment) for each in walked(condition)):
        return condition
    return replaced(condition, of_statement)


def check_no_column(text: str, schema: StructType) -> None:
    """Raise CallError if a double-quoted string is the name of a column."""
    column = schema.find(text)
    if column is not None:
        quoted = column.name.replace("`", "``")
        raise CallError(
            f'"{text}" in double quotes is a string in Spark\'s SQL, and there is a column with this name. Write '
            f"`{quoted}` for the column, or '{text}' for the string."
        )


def find_column(path: Sequence[str], schema: StructType) -> BoundColumn:
    """The column at a path, ignoring case. Raises CallError."""
    return _bound_column(find_fields(path, schema))


def _bound_column(fields: Sequence[StructField]) -> BoundColumn:
    return BoundColumn(tuple(each.name for each in fields), fields[-1].data_type, char_length(fields))


def find_fields(path: Sequence[str], schema: StructType) -> tuple[StructField, ...]:
    """The column at a path (ignoring case), preceded by the structs that contain the column. Raises CallError."""
    fields: list[StructField] = []
    level: DataType = schema
    for name in path:
        found = level.find(name) if isinstance(level, StructType) else None
        if found is None:
            raise CallError(f"There is no column {path_text(path)!r}. {_hint(path, schema)}")
        fields.append(found)
        level = found.data_type
    return tuple(fields)


def _hint(path: Sequence[str], schema: StructType) -> str:
    joined = ".".join(path)
    if len(path) > 1 and schema.find(joined) is not None:
        return f"For the column whose name contains dots, write `{joined}` in backticks."
    return f"Columns: {', '.join(path_text([name]) for name in schema.names[:_SHOWN_NAMES])}."


def _check_comparable(column: BoundColumn, fields: Sequence[StructField]) -> None:
    """Raise CallError for a column with a collation, whose values are not ordered by their bytes, and for char(n)
    inside a struct."""
    top = fields[0]
    if len(fields) > 1 and has_char_inside(top) and column.data_type == STRING:
        raise CallError(
            f"Column {column.name} is part of {top.metadata[SIZED_KEY]}, where Spark pads the values but not the "
            "literals. Leave it out of where, and filter the rows."
        )
    if any(_COLLATIONS in each.metadata for each in fields):
        raise CallError(
            f"Column {column.name} has a collation, which deltalog does not support in comparisons. Leave it out of "
            "where, and filter the rows with an engine that knows collations."
        )


@dataclass(slots=True)
class Binder:
    """Binds expressions to one schema and records the columns that they read.

    ``now``: the value of CURRENT_TIMESTAMP and CURRENT_DATE; without it they are refused. ``naive_is_utc``: timestamps
    without a zone are UTC, as in a table's own expressions; if false, literals without a zone are refused.
    """

    schema: StructType
    now: datetime.datetime | None = None
    naive_is_utc: bool = False
    columns: dict[tuple[str, ...], BoundColumn] = field(default_factory=dict)
    # Whether the condition is nested in another expression; that expression then uses only the ``node`` of the bound
    # condition.
    is_inside: bool = False

    # ------------------------------------------------------------------------------------------ conditions

    def condition(self, tree: Expression) -> Bound:
        """Bind a condition, pushing negations into its leaves."""
        if isinstance(tree, (And, Or)):
            left, right = self.condition(tree.left), self.condition(tree.right)
            return BoundAnd(left, right) if isinstance(tree, And) else BoundOr(left, right)
        if isinstance(tree, Not):
            return negated(self.condition(tree.operand))
        if isinstance(tree, Literal) and (tree.value is None or isinstance(tree.value, bool)):
            return BoundConstant(tree.value)
        if isinstance(tree, Comparison):
            return self._comparison(tree)
        if isinstance(tree, In):
            return self._in(tree)
        if isinstance(tree, Between):
            return self._between(tree)
        if isinstance(tree, IsNull) and isinstance(tree.operand, Name):
            return BoundIsNull(self._registered(find_column(tree.operand.path, self.schema)))
        if isinstance(tree, StartsWith) and isinstance(tree.operand, Name):
            return self._starts_with(tree.operand, tree.prefix)
        if isinstance(tree, Name) and self._moment(tree) is None:
            column = self._column(tree)
            if column.data_type != BOOLEAN:
                raise CallError(f"Column {column.name} is {column.data_type}, not a condition.")
            return BoundComparison("=", column, True)
        return self._value(tree, self.node(tree))

    def _value(self, tree: Expression, node: Node) -> Bound:
        if node.data_type != BOOLEAN:
            raise CallError(f"The expression is {node.data_type}, not a condition.")
        if node.steps > limits.MAX_EXPRESSION_STEPS:
            raise CallError(f"The number of its steps {limits.over('MAX_EXPRESSION_STEPS', node.steps)}.")
        if self.is_inside:
            return BoundValue(tree, (), node)
        inner = Binder(self.schema, self.now, self.naive_is_utc)
        resolved = renamed(tree, lambda name: inner._resolved(name))
        return BoundValue(resolved, tuple(inner.columns.values()), node)

    def _resolved(self, name: Name) -> Name:
        if self._moment(name) is not None:
            return name
        return self._registered(find_column(name.path, self.schema)).expression

    def _comparison(self, tree: Comparison) -> Bound:
        operator, left, right = tree.operator, self._folded(tree.left), self._folded(tree.right)
        if isinstance(left, Literal) and isinstance(right, Name):
            operator, left, right = MIRRORED.get(operator, operator), right, left
        if not (isinstance(left, Name) and isinstance(right, Literal)) or self._moment(left) is not None:
            return self._value(tree, self._compared(operator, self.node(left), self.node(right)))
        self._check_quotes(right)
        column = self._column(left)
        literal = _at_midnight(self._in_zone(right), column.data_type)
        if not _is_exact(literal, column.data_type):
            return self._value(tree, self._compared(operator, self._column_node(column), self.node(literal)))
        try:
            value = coerced(literal.value, column.data_type, column.name)
        except CallError as error:
            try:
                return self._value(tree, self._compared(operator, self._column_node(column), self.node(literal)))
            except CallError:
                raise error from None
        if value is not None and column.char_length is not None:
            value = value.ljust(column.char_length)
        return _compared_with(operator, column, value)

    def _compared(self, operator: str, left: Node, right: Node) -> Node:
        self._check_zones(operator, left, right)
        return comparisons.compare(operator, left, right)

    def _check_zones(self, what: str, left: Node, right: Node) -> None:
        """Refuse a comparison with a literal if one side is a timestamp and the other side has no time zone, unless
        times without a zone are defined as UTC."""
        for node, other in ((left, right), (right, left)):
            if self.naive_is_utc or node.data_type != TIMESTAMP or not (node.is_literal or other.is_literal):
                continue
            is_naive_text = other.data_type == STRING and other.is_literal and _is_naive(other.value)
            if other.data_type == TIMESTAMP_NTZ or is_naive_text:
                shown = repr(str(other.value)) if other.is_literal else f"a {other.data_type}"
                raise refuse(f"{what} of a timestamp and {shown}, which has no offset or Z,")

    def _between(self, tree: Between) -> Bound:
        parts = (tree.operand, tree.low, tree.high)
        for part in parts:
            if isinstance(part, Name) and self._moment(part) is None and (bound := self._column(part)).char_length:
                raise CallError(
                    f"Column {bound.name} is char({bound.char_length}), which Spark compares without padding in "
                    "BETWEEN. Write the two comparisons, joined by AND."
                )
        if isinstance(tree.operand, Name):
            low, high = Comparison(">=", tree.operand, tree.low), Comparison("<=", tree.operand, tree.high)
            return BoundAnd(self._comparison(low), self._comparison(high))
        value, least, most = map(self.node, parts)
        found = logic.conjunction(self._compared(">=", value, least), self._compared("<=", value, most))
        return self._value(tree, found)

    def _in(self, tree: In) -> Bound:
        if not (tree.values or tree.others):
            if isinstance(tree.operand, Name):
                self._column(tree.operand)
            return BoundConstant(False)
        if not isinstance(tree.operand, Name) or tree.others or self._moment(tree.operand) is not None:
            return self._value(tree, self._membership(self.node(tree.operand), tree))
        self._check_quoted(tree.doubtful)
        column = self._column(tree.operand)
        if all(value is None for value in tree.values):
            return BoundConstant(None)  # any type, even one without an order, can be compared with null
        if not all(_is_exact_value(value, column.data_type) for value in _floats(tree.values)):
            return self._value(tree, self._membership(self._column_node(column), tree))
        try:
            values = coerced_values(tree.values, column.data_type, column.name)
        except CallError as error:
            try:
                return self._value(tree, self._membership(self._column_node(column), tree))
            except CallError:
                raise error from None
        if column.char_length is not None:
            if None in values:
                raise CallError(
                    f"Column {column.name} is char({column.char_length}), which Spark compares without padding if the "
                    "list contains NULL. Leave the NULL out."
                )
            width = max(column.char_length, *map(len, values))
            values = tuple(value.ljust(width) for value in values)
        return BoundIn(column, values, ValueSet.from_values(values, column.data_type))

    def _membership(self, value: Node, tree: In) -> Node:
        self._check_quoted(tree.doubtful)
        choices = [*map(self.node, map(Literal, tree.values)), *map(self.node, tree.others)]
        for choice in choices:
            self._check_zones("IN", value, choice)
        return comparisons.is_in(value, choices)

    def _starts_with(self, name: Name, prefix: str) -> Bound:
        column = self._column(name)
        if column.data_type != STRING:
            raise CallError(
                f"Column {column.name} is {column.data_type}, but startswith and LIKE compare only strings."
            )
        return BoundStartsWith(column, prefix)

    # ---------------------------------------------------------------------------------------------- values

    def node(self, tree: Expression) -> Node:
        """Bind an expression that yields a value for each row."""
        if isinstance(tree, Name):
            return self._moment(tree) or self._column_node(self._column(tree))
        if isinstance(tree, Literal):
            self._check_quotes(tree)
            return self._literal(self._in_zone(tree))
        if isinstance(tree, Arithmetic):
            left, right = self.node(tree.left), self.node(tree.right)
            if tree.operator == "||":
                return text.concat(left, right)
            return arithmetic.arithmetic(tree.operator, left, right)
        if isinstance(tree, Negative):
            return arithmetic.negative(self.node(tree.operand))
        if isinstance(tree, Call):
            return self._call(tree)
        if isinstance(tree, Cast):
            return (casts.try_cast if tree.is_try else casts.cast)(self.node(tree.operand), tree.data_type)
        if isinstance(tree, Case):
            return self._case(tree)
        if isinstance(tree, IsBoolean):
            return logic.is_boolean(self.node(tree.operand), tree.wanted)
        if isinstance(tree, IsNull) and not isinstance(tree.operand, Name):
            return logic.is_null(self.node(tree.operand))
        if isinstance(tree, Like):
            return comparisons.like(self.node(tree.operand), self.node(tree.pattern), tree.any_case)
        if isinstance(tree, RegexLike):
            return patterns.regex_like(self.node(tree.operand), self.node(tree.pattern))
        if isinstance(tree, Field):
            return nested.field(self.node(tree.operand), tree.name)
        if isinstance(tree, Element):
            return nested.element(self.node(tree.operand), self.node(tree.key))
        if isinstance(tree, StartsWith) and not isinstance(tree.operand, Name):
            return comparisons.starts_with(self.node(tree.operand), tree.prefix)
        if isinstance(tree, (And, Or)):
            join = logic.conjunction if isinstance(tree, And) else logic.disjunction
            return join(self.node(tree.left), self.node(tree.right))
        if isinstance(tree, Not):
            return logic.negation(self.node(tree.operand))
        if isinstance(tree, (Comparison, In, Between, IsNull, StartsWith)):
            was_inside, self.is_inside = self.is_inside, True
            try:
                return self.condition(tree).node
            finally:
                self.is_inside = was_inside
        raise CallError(f"{tree!r} is not an expression.")

    def _folded(self, tree: Expression) -> Expression:
        """Replace an expression that consists only of literals with its value as a literal, so that data skipping can
        use it; return any other expression unchanged."""
        if self.is_inside:
            return tree
        if isinstance(tree, (Literal, Name)) and (not isinstance(tree, Name) or self._moment(tree) is None):
            return tree
        if any(isinstance(each, Name) and self._moment(each) is None for each in walked(tree)):
            return tree
        try:
            node = self.node(tree)
            if not node.is_constant or not isinstance(node.data_type, (PrimitiveType, DecimalType)):
                return tree
            if node.steps > _MOST_FOLDED_STEPS:
                return tree
            value = node.value if node.is_literal else node.run(nodes.Rows({}, 0)).as_py()
        except (CallError, pa.ArrowException, ValueError, OverflowError):
            return tree  # the expression then fails when it is evaluated, if there are rows
        if node.data_type == TIMESTAMP and isinstance(value, datetime.datetime):
            value = value.astimezone(datetime.timezone.utc)
        return tree if value is None else Literal(value, _NEEDED.get(node.data_type))

    def _check_quotes(self, literal: Literal) -> None:
        if literal.in_double_quotes:
            self._check_quoted((literal.value,))

    def _check_quoted(self, texts: Sequence[str]) -> None:
        """Raise CallError for a double-quoted string that is the name of a column, because users of other engines would
        mean the column."""
        for each in texts:
            check_no_column(each, self.schema)

    def _call(self, tree: Call) -> Node:
        if not tree.arguments:
            moment = self._moment(Name((tree.name,)))
            if moment is not None:
                return moment
        return registry.call(tree.name, [self.node(each) for each in tree.arguments])

    def _case(self, tree: Case) -> Node:
        subject = None if tree.subject is None else self.node(tree.subject)
        branches = []
        for when, then in tree.branches:
            condition = self.node(when)
            if subject is not None:
                condition = self._compared("=", subject, condition)
            branches.append((condition, self.node(then)))
        return conditional.case(branches, nodes.NULL if tree.otherwise is None else self.node(tree.otherwise))

    def _literal(self, literal: Literal) -> Node:
        value, data_type = literal.value, literal.data_type
        if data_type is not None:
            return nodes.literal(value, data_type)
        if value is None:
            return nodes.NULL
        if isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool):
            return nodes.number(value)
        if isinstance(value, datetime.datetime):
            return nodes.literal(value, TIMESTAMP if value.tzinfo else TIMESTAMP_NTZ)
        for kind, its_type in _NATURAL.items():
            if isinstance(value, kind):
                return nodes.literal(value, its_type)
        raise refuse(f"The literal {value!r}")

    def _in_zone(self, literal: Literal) -> Literal:
        """Convert a timestamp literal whose text has no zone: to UTC if ``naive_is_utc``, else to a comparable literal
        without a zone."""
        value = literal.value
        if literal.data_type != TIMESTAMP or not isinstance(value, datetime.datetime) or value.tzinfo is not None:
            return literal
        if self.naive_is_utc:
            return Literal(value.replace(tzinfo=datetime.timezone.utc), TIMESTAMP)
        return Literal(value)

    def _moment(self, name: Name) -> Node | None:
        """The node for ``name`` if it is CURRENT_TIMESTAMP or a similar function without parentheses and no column has
        this name."""
        folded = name.path[0].lower()
        if folded not in MOMENTS or len(name.path) > 1 or name.is_quoted or self.schema.find(folded) is not None:
            return None
        if self.now is None:
            raise refuse(f"The function {name.path[0]}, whose value changes with each call,")
        if folded in ("current_timestamp", "now"):
            return nodes.literal(self.now, TIMESTAMP)
        return nodes.literal(self.now.date(), DATE)

    # --------------------------------------------------------------------------------------------- columns

    def _column(self, name: Name) -> BoundColumn:
        fields = find_fields(name.path, self.schema)
        column = _bound_column(fields)
        _check_comparable(column, fields)
        return self._registered(column)

    def _registered(self, column: BoundColumn) -> BoundColumn:
        return self.columns.setdefault(column.path, column)

    def _column_node(self, column: BoundColumn) -> Node:
        return nodes.column(column.path, column.data_type, column.char_length)


_MOST_FOLDED_STEPS = 100  # enough for thresholds
# The types that a literal keeps after constant folding; a literal of another type takes the type of the column with
# which it is compared.
_NEEDED: dict[DataType, DataType] = {kind: kind for kind in (BYTE, SHORT, LONG, FLOAT, DOUBLE, *INTERVALS)}
# bool precedes int, its base class; likewise, datetime is handled before date.
_NATURAL: dict[type, DataType] = {
    bool: BOOLEAN,
    float: DOUBLE,
    str: STRING,
    bytes: BINARY,
    bytearray: BINARY,
    datetime.date: DATE,
}


def _compared_with(operator: Operator, column: BoundColumn, value: Any) -> Bound:
    """Bind the comparison of a column with a value of its type or with null."""
    if operator == "<=>" and value is None:
        return BoundIsNull(column)
    if operator == "<=>":
        return BoundAnd(BoundNot(BoundIsNull(column)), BoundComparison("=", column, value))
    return BoundConstant(None) if value is None else BoundComparison(operator, column, value)


def _at_midnight(literal: Literal, data_type: DataType) -> Literal:
    """A date that is compared with a timestamp column stands for the first instant of that day, in UTC."""
    value = literal.value
    if type(value) is not datetime.date or data_type not in (TIMESTAMP, TIMESTAMP_NTZ):
        return literal
    zone = datetime.timezone.utc if data_type == TIMESTAMP else None
    return Literal(datetime.datetime(value.year, value.month, value.day, tzinfo=zone))


def _is_exact(literal: Literal, data_type: DataType) -> bool:
    """Whether reading a literal as a value of the column's type gives the same result as in Spark, which casts literal
    and column to a common wider type."""
    if literal.data_type == FLOAT:
        return False
    return not isinstance(literal.value, float) or _is_exact_value(literal.value, data_type, literal.data_type)


def _is_exact_value(value: float, data_type: DataType, declared: DataType | None = None) -> bool:
    if data_type in INTEGRAL:
        return abs(value) < _EXACT_IN_DOUBLE
    # A Python float counts as the decimal number with which Python writes it; a double in SQL causes the column to be
    # cast to double.
    return not isinstance(data_type, DecimalType) or declared is None or data_type.precision <= _DIGITS_IN_DOUBLE


def _floats(values: Sequence[Any]) -> list[float]:
    has_floats = any(issubclass(kind, float) for kind in set(map(type, values)))
    return [value for value in values if isinstance(value, float)] if has_floats else []


def _is_naive(value: Any) -> bool:
    if value is None:
        return False
    try:
        return timestamps.parse_iso(value).tzinfo is None
    except InvalidTimestampError:
        return False
