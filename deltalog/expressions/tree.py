"""Expressions as trees, before they are bound to a schema. Pure.

One tree for conditions (``where``, CHECK) and for values (generated and default columns). ``col`` makes it in Python,
and ``sql.parse`` from text. Two trees are equal when they are written alike: 1, 1.0 and true are three literals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from typing import Literal as OneOf

import msgspec

from deltalog.errors import CallError
from deltalog.protocol.schema import DataType

Operator = OneOf["=", "!=", "<", "<=", ">", ">=", "<=>"]
ArithmeticOperator = OneOf["+", "-", "*", "/", "%", "DIV", "||"]
MIRRORED: dict[Operator, Operator] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
NEGATED: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class Expression(msgspec.Struct, frozen=True):
    """A value of each row."""


class Predicate(Expression, frozen=True):
    """A condition on a row. Combine with ``&``, ``|`` and ``~``."""

    def __and__(self, other: Expression) -> Predicate:
        return And(self, other)

    def __or__(self, other: Expression) -> Predicate:
        return Or(self, other)

    def __invert__(self) -> Predicate:
        return Not(self)

    def __bool__(self) -> bool:
        raise CallError("A predicate has no truth of its own. Combine predicates with &, | and ~, not and, or, not.")


# -------------------------------------------------------------------------------------------------- values


class Name(Expression, frozen=True):
    """A column by its path of names, up to case; ``is_quoted``: in backquotes, so that it is no function."""

    path: tuple[str, ...]
    is_quoted: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)


class Literal(Expression, frozen=True):
    """A value. ``data_type`` where the text names one, as 5L and TIMESTAMP '…' do; else it follows from the value, or
    from the column that the value is compared with."""

    value: Any
    data_type: DataType | None = None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal) and self.data_type == other.data_type and written_alike(self.value, other.value)
        )

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))


def written_alike(one: Any, other: Any) -> bool:
    """Whether two values are of one Python type and equal, NaN being equal to itself and 0.0 not to -0.0."""
    return type(one) is type(other) and (one == other or one != one) and repr(one) == repr(other)


class Arithmetic(Expression, frozen=True):
    """An operator between two values; ``||`` concatenates text."""

    operator: ArithmeticOperator
    left: Expression
    right: Expression


class Negative(Expression, frozen=True):
    operand: Expression


class Call(Expression, frozen=True):
    """A function by its name in SQL."""

    name: str
    arguments: tuple[Expression, ...]


class Cast(Expression, frozen=True):
    operand: Expression
    data_type: DataType


class Case(Expression, frozen=True):
    """``branches``: conditions, or values that ``subject`` is compared with, each with its result."""

    subject: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


# ---------------------------------------------------------------------------------------------- conditions


class Comparison(Predicate, frozen=True):
    operator: Operator
    left: Expression
    right: Expression


class IsNull(Predicate, frozen=True):
    operand: Expression


class IsBoolean(Predicate, frozen=True):
    """IS TRUE, IS FALSE: never unknown."""

    operand: Expression
    wanted: bool


class In(Predicate, frozen=True):
    """``values``: literals without a type of their own, of any number; ``others``: any expressions."""

    operand: Expression
    values: tuple[Any, ...]
    others: tuple[Expression, ...] = ()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, In)
            and (self.operand, self.others) == (other.operand, other.others)
            and len(self.values) == len(other.values)
            and all(map(written_alike, self.values, other.values))
        )

    def __hash__(self) -> int:
        return hash((self.operand, len(self.values), self.others))


class Between(Predicate, frozen=True):
    operand: Expression
    low: Expression
    high: Expression


class Like(Predicate, frozen=True):
    """``pattern``: with ``%`` for any text and ``_`` for one character, without escapes."""

    operand: Expression
    pattern: Expression


class StartsWith(Predicate, frozen=True):
    operand: Expression
    prefix: str


class And(Predicate, frozen=True):
    left: Expression
    right: Expression


class Or(Predicate, frozen=True):
    left: Expression
    right: Expression


class Not(Predicate, frozen=True):
    operand: Expression


def renamed(expression: Expression, rename: Callable[[Name], Name]) -> Expression:
    """The same tree with other names of columns."""
    if isinstance(expression, Name):
        return rename(expression)
    if isinstance(expression, Literal):
        return expression

    def inside(part: Any) -> Any:
        if isinstance(part, Expression):
            return renamed(part, rename)
        return tuple(map(inside, part)) if isinstance(part, tuple) else part

    changed = {name: inside(part) for name, part in _parts(expression)}
    return msgspec.structs.replace(expression, **changed)


def walked(expression: Expression) -> Iterator[Expression]:
    """A tree and all trees in it."""
    todo: list[Any] = [expression]
    while todo:
        each = todo.pop()
        if isinstance(each, Expression):
            yield each
            todo += [part for _, part in _parts(each)]
        elif isinstance(each, tuple):
            todo += each


def _parts(expression: Any) -> Iterator[tuple[str, Any]]:
    """The operands of an expression by the names of their fields."""
    names = expression.__struct_fields__
    return ((name, getattr(expression, name)) for name in names if name not in ("value", "values", "path"))
