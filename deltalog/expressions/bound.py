"""Expressions bound to a schema: columns carry their types, and literals have the types of the columns. Pure.

``bind`` returns a tree of AND and OR over leaves. Negations are pushed into the leaves, so that data skipping can
evaluate each leaf separately. A comparison of one column with literals is a ``ColumnCondition``, which data skipping
understands; any other condition is a ``BoundValue``. ``ColumnCondition`` and ``BoundValue`` both provide a node that
evaluates the condition, so all conditions are evaluated in the same way. Two conditions compare equal if they test the
same columns in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from deltalog.expressions.comparison import ValueSet, compare
from deltalog.expressions.functions import logic, nodes
from deltalog.expressions.functions.nodes import Node
from deltalog.expressions.functions.types import BOOLEAN
from deltalog.expressions.tree import (
    NEGATED,
    And,
    Comparison,
    Expression,
    In,
    IsBoolean,
    IsNull,
    Literal,
    Name,
    Not,
    Operator,
    Or,
    StartsWith,
    walked,
)
from deltalog.lazy_arrow import pc
from deltalog.protocol.char_varchar import padded
from deltalog.protocol.column_paths import path_text
from deltalog.protocol.schema import DataType


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """A column, with its names as spelled in the schema.

    ``char_length``: n of a char(n) column, whose values are compared after padding with blanks to n characters.
    """

    path: tuple[str, ...]
    data_type: DataType
    char_length: int | None = None

    @property
    def name(self) -> str:
        """The column's name for messages."""
        return path_text(self.path)

    @property
    def expression(self) -> Name:
        return Name(self.path)


class Bound:
    """A condition on rows of one particular schema."""

    __slots__ = ()

    @property
    def node(self) -> Node:
        """The node that evaluates the condition."""
        raise NotImplementedError

    @property
    def expression(self) -> Expression:
        """The condition as an untyped tree, which can be written as text."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class BoundAnd(Bound):
    left: Bound
    right: Bound

    @property
    def node(self) -> Node:
        return logic.conjunction(self.left.node, self.right.node)

    @property
    def expression(self) -> Expression:
        return And(self.left.expression, self.right.expression)


@dataclass(frozen=True, slots=True)
class BoundOr(Bound):
    left: Bound
    right: Bound

    @property
    def node(self) -> Node:
        return logic.disjunction(self.left.node, self.right.node)

    @property
    def expression(self) -> Expression:
        return Or(self.left.expression, self.right.expression)


@dataclass(frozen=True, slots=True)
class BoundNot(Bound):
    """NOT of a leaf."""

    operand: Bound

    @property
    def node(self) -> Node:
        return logic.negation(self.operand.node)

    @property
    def expression(self) -> Expression:
        return Not(self.operand.expression)


@dataclass(frozen=True, slots=True)
class BoundConstant(Bound):
    """True, False, or None for unknown."""

    value: bool | None

    @property
    def node(self) -> Node:
        return nodes.literal(self.value, BOOLEAN)

    @property
    def expression(self) -> Expression:
        return Literal(self.value)


@dataclass(frozen=True, slots=True)
class BoundComparison(Bound):
    """A column compared with a non-null value of its type; the operator is not ``<=>``."""

    operator: Operator
    column: BoundColumn
    value: Any

    @property
    def width(self) -> int | None:
        """The length to which the values of a char(n) column are padded (None for other columns): the length of the
        literal, which is at least n."""
        return None if self.column.char_length is None else len(self.value)

    @property
    def node(self) -> Node:
        operator, value, data_type = self.operator, self.value, self.column.data_type
        return _over(self.column, self.width, lambda values: compare(values, operator, value, data_type))

    @property
    def expression(self) -> Expression:
        return Comparison(self.operator, self.column.expression, Literal(self.value))


@dataclass(frozen=True, slots=True)
class BoundIn(Bound):
    """The expression ``column IN (values)``, with values of the column's type. ``value_set``: the same values, prepared
    for look-up."""

    column: BoundColumn
    values: tuple[Any, ...]
    value_set: ValueSet = field(compare=False, repr=False)

    @property
    def width(self) -> int | None:
        """Like ``BoundComparison.width``."""
        return None if self.column.char_length is None else len(self.values[0])

    @property
    def node(self) -> Node:
        return _over(self.column, self.width, self.value_set.contains)

    @property
    def expression(self) -> Expression:
        return In(self.column.expression, self.values)


@dataclass(frozen=True, slots=True)
class BoundIsNull(Bound):
    column: BoundColumn

    @property
    def node(self) -> Node:
        return _over(self.column, None, pc.is_null)

    @property
    def expression(self) -> Expression:
        return IsNull(self.column.expression)


@dataclass(frozen=True, slots=True)
class BoundStartsWith(Bound):
    column: BoundColumn
    prefix: str

    @property
    def width(self) -> int | None:
        return self.column.char_length

    @property
    def node(self) -> Node:
        prefix = self.prefix
        return _over(self.column, self.width, lambda values: pc.starts_with(values, prefix))

    @property
    def expression(self) -> Expression:
        return StartsWith(self.column.expression, self.prefix)


@dataclass(frozen=True, slots=True)
class BoundValue(Bound):
    """Any other condition. ``tree``: the expression as written, except that column names are spelled as in the
    schema."""

    tree: Expression
    columns: tuple[BoundColumn, ...]
    compiled: Node = field(compare=False, repr=False)

    @property
    def node(self) -> Node:
        return self.compiled

    @property
    def expression(self) -> Expression:
        return self.tree


# The conditions that data skipping can evaluate; each of them tests a single column.
ColumnCondition = BoundComparison | BoundIn | BoundIsNull | BoundStartsWith


def _over(column: BoundColumn, width: int | None, kernel: Any) -> Node:
    path = column.path
    if width is None:
        return Node(BOOLEAN, lambda rows: kernel(rows.columns[path]))
    return Node(BOOLEAN, lambda rows: kernel(padded(rows.columns[path], width)))


def negated(bound: Bound) -> Bound:
    """The negation of a condition, with NOT pushed down to the leaves."""
    if isinstance(bound, BoundAnd):
        return BoundOr(negated(bound.left), negated(bound.right))
    if isinstance(bound, BoundOr):
        return BoundAnd(negated(bound.left), negated(bound.right))
    if isinstance(bound, BoundNot):
        return bound.operand
    if isinstance(bound, BoundConstant):
        return BoundConstant(None if bound.value is None else not bound.value)
    if isinstance(bound, BoundComparison):
        return BoundComparison(NEGATED[bound.operator], bound.column, bound.value)
    return BoundNot(bound)


def complement(bound: Bound) -> Bound:
    """A condition that is true for exactly the rows where ``bound`` is false or unknown."""
    if isinstance(bound, BoundAnd):
        return BoundOr(complement(bound.left), complement(bound.right))
    if isinstance(bound, BoundOr):
        return BoundAnd(complement(bound.left), complement(bound.right))
    if isinstance(bound, BoundConstant):
        return BoundConstant(bound.value is not True)
    if isinstance(bound, BoundIsNull):
        return BoundNot(bound)
    inner = bound.operand if isinstance(bound, BoundNot) else bound
    if isinstance(inner, BoundIsNull):
        return inner
    if isinstance(inner, BoundValue):
        wanted = inner is bound
        holds = BoundValue(IsBoolean(inner.tree, wanted), inner.columns, logic.is_boolean(inner.node, wanted))
        return BoundNot(holds)
    if isinstance(inner, BoundIn) and None in inner.values:
        if inner is not bound:
            return BoundConstant(True)  # NOT IN with a null in the list is never true
        others = tuple(value for value in inner.values if value is not None)
        inner = bound = BoundIn(inner.column, others, inner.value_set.without_null())
    assert isinstance(inner, (BoundComparison, BoundIn, BoundStartsWith))
    return BoundOr(negated(bound), BoundIsNull(inner.column))


def leaves_of(bound: Bound) -> Iterator[Bound]:
    """The leaves of a condition: the conditions in it that are not themselves an AND, an OR or a NOT."""
    todo = [bound]
    while todo:
        each = todo.pop()
        if isinstance(each, (BoundAnd, BoundOr)):
            todo += [each.left, each.right]
        elif isinstance(each, BoundNot):
            todo.append(each.operand)
        else:
            yield each


def columns_of(bound: Bound) -> list[BoundColumn]:
    """The columns that a condition reads, without duplicates."""
    found: dict[tuple[str, ...], BoundColumn] = {}
    for leaf in leaves_of(bound):
        for column in _columns(leaf):
            found.setdefault(column.path, column)
    return list(found.values())


def _columns(leaf: Bound) -> Iterable[BoundColumn]:
    if isinstance(leaf, BoundValue):
        return leaf.columns
    return (leaf.column,) if isinstance(leaf, ColumnCondition) else ()


def number_of_values(bound: Bound) -> int:
    """The total number of values in the IN lists of a condition."""
    found = 0
    for leaf in leaves_of(bound):
        if isinstance(leaf, BoundIn):
            found += len(leaf.values)
        elif isinstance(leaf, BoundValue):
            found += sum(len(each.values) for each in walked(leaf.tree) if isinstance(each, In))
    return found
