"""Conditions in Python: ``col`` and the operators of the Column it returns. Pure.

    from deltalog import col
    col("day") >= datetime.date(2026, 1, 1)
    (col("carrier") == "AA") & ~col("dep_delay").is_null()

A ``Column`` only builds trees and is never part of a tree, so trees can be compared by ``==`` and hashed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deltalog.arguments import checked, safe_repr
from deltalog.errors import CallError
from deltalog.expressions.literals import plain, plain_values
from deltalog.expressions.tree import Comparison, Expression, In, IsNull, Literal, Name, Operator, Predicate, StartsWith
from deltalog.protocol.column_paths import parse_path, path_text


class Column:
    """A column, identified by its path of names. Comparing a column with values and other columns builds predicates."""

    __slots__ = ("path",)

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return self._compared("=", value)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return self._compared("!=", value)

    def __lt__(self, value: Any) -> Predicate:
        return self._compared("<", value)

    def __le__(self, value: Any) -> Predicate:
        return self._compared("<=", value)

    def __gt__(self, value: Any) -> Predicate:
        return self._compared(">", value)

    def __ge__(self, value: Any) -> Predicate:
        return self._compared(">=", value)

    __hash__ = None  # type: ignore[assignment]

    @safe_repr
    def __repr__(self) -> str:
        return f"col({self.name!r})"

    def is_null(self) -> Predicate:
        """True where the value is null."""
        return IsNull(self._tree)

    def isin(self, values: Iterable[Any]) -> Predicate:
        """True where the value is one of ``values``, otherwise false, or unknown if ``values`` contains a null.

        ``values``: any number of values, in a list, an Arrow or NumPy array, or a series; all are looked up in one pass
        over the rows. Raises CallError for a single string.
        """
        return In(self._tree, plain_values(values))

    def startswith(self, prefix: str) -> Predicate:
        """True where a string begins with ``prefix``. Raises CallError if ``prefix`` is not a string."""
        if not isinstance(prefix, str):
            raise CallError(f"startswith takes a string, not {prefix!r}.")
        return StartsWith(self._tree, str(prefix))

    @property
    def name(self) -> str:
        """The path as text that ``col`` accepts."""
        return path_text(self.path)

    @property
    def _tree(self) -> Name:
        return Name(self.path)

    def _compared(self, operator: Operator, value: object) -> Predicate:
        other: Expression = value._tree if isinstance(value, Column) else Literal(plain(value))
        return Comparison(operator, self._tree, other)


@checked
def col(name: str) -> Column:
    """A column; ``a.b`` is the field b of the struct a. Put a name that contains dots in backticks: `` `a.b` ``.

    Raises CallError.
    """
    if not isinstance(name, str):
        raise CallError(f"col takes the name of a column, not {name!r}.")
    return Column(parse_path(name))
