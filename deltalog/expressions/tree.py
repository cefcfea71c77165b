"""Expression trees, before they are bound to a schema. Pure.

The same kind of tree is used for conditions (``where``, CHECK) and for values (generated and default columns). Python
code builds a tree with ``col``; ``sql.parse`` builds one from SQL text. Two trees are equal if they are written in the
same way: 1, 1.0 and true are three different literals.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any
from typing import Literal as OneOf

import msgspec

from deltalog.errors import CallError
from deltalog.protocol.schema import DataType

Operator = OneOf["=", "!=", "<", "<=", ">", ">=", "<=>"]
ArithmeticOperator = OneOf["+", "-", "*", "/", "%", "DIV", "||"]
MOMENTS = ("current_timestamp", "now", "current_date", "curdate")  # the functions whose parentheses are optional
MIRRORED: dict[Operator, Operator] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
NEGATED: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class Expression(msgspec.Struct, frozen=True):
    """An expression that has a value for each row."""


class Predicate(Expression, frozen=True):
    """A condition on a row. Predicates can be combined with ``&``, ``|`` and ``~``."""

    def __and__(self, other: Expression) -> Predicate:
        return And(self, other)

    def __or__(self, other: Expression) -> Predicate:
        return Or(self, other)

    def __invert__(self) -> Predicate:
        return Not(self)

    def __bool__(self) -> bool:
        raise CallError("A predicate has no truth value. Combine predicates with &, | and ~, not with and, or, not.")


# -------------------------------------------------------------------------------------------------- values


class Name(Expression, frozen=True):
    """A reference to a column, given as a path of names, ignoring case. ``is_quoted``: whether the name is in
    backticks; such a name cannot be a function."""

    path: tuple[str, ...]
    is_quoted: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)


class Literal(Expression, frozen=True):
    """A literal. ``data_type``: set if the SQL text specifies the type, as in 5L and TIMESTAMP '…'; otherwise the type
    follows from the value, or from the column that the value is compared with."""

    value: Any
    data_type: DataType | None = None
    in_double_quotes: bool = False  # in other engines a string in double quotes is a column name

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal) and self.data_type == other.data_type and written_alike(self.value, other.value)
        )

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))


def written_alike(one: Any, other: Any) -> bool:
    """Whether two values have the same Python type and are equal; NaN equals itself, and 0.0 does not equal -0.0."""
    return type(one) is type(other) and (one == other or one != one) and repr(one) == repr(other)


class Arithmetic(Expression, frozen=True):
    """An arithmetic operator between two values, or ``||``, which concatenates strings."""

    operator: ArithmeticOperator
    left: Expression
    right: Expression


class Negative(Expression, frozen=True):
    operand: Expression


class Call(Expression, frozen=True):
    """A function call, by SQL name."""

    name: str
    arguments: tuple[Expression, ...]


class Cast(Expression, frozen=True):
    """CAST; ``is_try``: TRY_CAST, which returns null for values that the target type cannot represent."""

    operand: Expression
    data_type: DataType
    is_try: bool = False


class Field(Expression, frozen=True):
    """A field of a struct value."""

    operand: Expression
    name: str


class Element(Expression, frozen=True):
    """An array element by its position from 0, a map value by its key, or a struct field by its name."""

    operand: Expression
    key: Expression


class Moment(Expression, frozen=True):
    """CURRENT_TIMESTAMP or a similar function. ``written``: the name or call as it was written. If the table has a
    column of that name, it means this column; otherwise the value is ``literal``, the time of the statement."""

    written: Name | Call
    literal: Literal


class Case(Expression, frozen=True):
    """``branches``: pairs of a condition (or a value that is compared with ``subject``) and a result."""

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
    """IS TRUE and IS FALSE, which never evaluate to unknown."""

    operand: Expression
    wanted: bool


class In(Predicate, frozen=True):
    """``values``: any number of literals without an explicit type; ``others``: other expressions. ``doubtful``: the
    strings among the values that were written in double quotes."""

    operand: Expression
    values: tuple[Any, ...]
    others: tuple[Expression, ...] = ()
    doubtful: tuple[str, ...] = ()

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
    """``pattern``: ``%`` matches any string and ``_`` one character; there are no escapes. ``any_case``: ILIKE."""

    operand: Expression
    pattern: Expression
    any_case: bool = False


class RegexLike(Predicate, frozen=True):
    """RLIKE: whether a Java regular expression matches anywhere in a string."""

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
    """A copy of the tree with columns renamed."""
    return replaced(expression, lambda each: rename(each) if isinstance(each, Name) else None)


def replaced(expression: Expression, replacement: Callable[[Expression], Expression | None]) -> Expression:
    """A copy of the tree in which some nodes are replaced. ``replacement``: a function that returns the replacement for
    a node of the tree, or None to descend into the node."""
    # A chain of ANDs and ORs, outermost first; collected in a loop instead of by recursion, because it can have a
    # thousand operators.
    links = []
    while isinstance(expression, (And, Or)):
        links.append(expression)
        expression = expression.left
    whole = _replaced(expression, replacement)
    for link in reversed(links):
        whole = type(link)(whole, replaced(link.right, replacement))
    return whole


def _replaced(expression: Expression, replacement: Callable[[Expression], Expression | None]) -> Expression:
    found = replacement(expression)
    if found is not None or isinstance(expression, (Literal, Name)):
        return expression if found is None else found

    def inside(part: Any) -> Any:
        if isinstance(part, Expression):
            return replaced(part, replacement)
        return tuple(map(inside, part)) if isinstance(part, tuple) else part

    changed = {name: inside(part) for name, part in _parts(expression)}
    return msgspec.structs.replace(expression, **changed)


def at_instant(expression: Expression, now: datetime.datetime) -> Expression:
    """The tree with CURRENT_TIMESTAMP and similar functions replaced with the same time, in UTC. A tree without such
    functions is returned itself."""
    if not any(map(is_moment, walked(expression))):
        return expression

    def moment(each: Expression) -> Expression | None:
        if isinstance(each, Moment):
            return each
        if not isinstance(each, (Name, Call)) or not is_moment(each):
            return None
        return Moment(each, Literal(now if _word(each) in ("current_timestamp", "now") else now.date()))

    return replaced(expression, moment)


def condition_at_instant(condition: Predicate, now: datetime.datetime) -> Predicate:
    """As ``at_instant``, for a condition."""
    found = at_instant(condition, now)
    assert isinstance(found, Predicate)
    return found


def is_moment(expression: Expression) -> bool:
    """Whether the expression is CURRENT_TIMESTAMP or a similar function, as it was written."""
    return _word(expression) in MOMENTS


def _word(expression: Expression) -> str:
    """The name of a function without arguments, in lower case; the parentheses may be missing."""
    if isinstance(expression, Name):
        return expression.path[0].lower() if len(expression.path) == 1 and not expression.is_quoted else ""
    return expression.name.lower() if isinstance(expression, Call) and not expression.arguments else ""


def walked(expression: Expression) -> Iterator[Expression]:
    """Yields a tree and all its subtrees."""
    todo: list[Any] = [expression]
    while todo:
        each = todo.pop()
        if isinstance(each, Expression):
            yield each
            todo += [part for _, part in _parts(each)]
        elif isinstance(each, tuple):
            todo += each


def height(expression: Expression) -> int:
    """The height of a tree."""
    highest, todo = 0, [(expression, 1)]
    while todo:
        each, depth = todo.pop()
        highest = max(highest, depth)
        for _, part in _parts(each):
            parts = part if isinstance(part, tuple) else (part,)
            for inside in parts:
                pair = inside if isinstance(inside, tuple) else (inside,)  # a branch of CASE
                todo += [(inner, depth + 1) for inner in pair if isinstance(inner, Expression)]
    return highest


def _parts(expression: Any) -> Iterator[tuple[str, Any]]:
    """The (field name, operand) pairs of an expression."""
    names = expression.__struct_fields__
    return ((name, getattr(expression, name)) for name in names if name not in _NO_OPERANDS)


_NO_OPERANDS = frozenset({"value", "values", "path", "doubtful"})
