"""Generates the values of identity columns in a transaction. Pure.

Spec: PROTOCOL.md#identity-columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from deltalog.arrow_arrays import combined, int64s, row_numbers
from deltalog.errors import ConstraintViolationError, SchemaMismatchError
from deltalog.lazy_arrow import pc
from deltalog.protocol.identity_columns import Identity, fits

Marks = Mapping[str, int | None]


class IdentityValues:
    """The identity columns of one transaction, keyed by name, with their high-water marks.

    Two transactions on the same version generate the same values, but the high-water marks are in the metadata, so the
    second commit conflicts with the first.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._columns: dict[str, Identity] = {}

    def resume(self, columns: Iterable[Identity]) -> None:
        """Continue to generate values for the identity columns of a schema, from the high-water mark in the schema or
        the one in this object, whichever is further along."""
        found = dict[str, Identity]()
        for column in columns:
            own = self._columns.get(column.name)
            is_further = own is not None and own.mark is not None and column.is_beyond(own.mark)
            found[column.name] = replace(column, mark=own.mark) if own is not None and is_further else column
        self._columns = found

    def __bool__(self) -> bool:
        return bool(self._columns)

    @property
    def names(self) -> frozenset[str]:
        """The names of the identity columns."""
        return frozenset(self._columns)

    @property
    def marks(self) -> Marks:
        """The current high-water marks, which can be passed to ``reset_to``."""
        return {name: column.mark for name, column in self._columns.items()}

    def reset_to(self, marks: Marks) -> None:
        """Return to earlier high-water marks, so that the same rows in the same order get the same values again."""
        self._columns = {name: replace(column, mark=marks[name]) for name, column in self._columns.items()}

    def check_given(self, names: Iterable[str]) -> None:
        """Raise SchemaMismatchError if ``names``, the columns of new rows, include a GENERATED ALWAYS column."""
        given = {name.lower() for name in names}
        for name, column in self._columns.items():
            if name.lower() in given and not column.is_explicit:
                raise SchemaMismatchError(
                    f"{self._table}: column {name} is {column.text}, but the data has values for it. Drop the column "
                    "from the data, or declare it BY DEFAULT in a new table."
                )

    def check_assigned(self, names: Iterable[str]) -> None:
        """Raise SchemaMismatchError if an update assigns to an identity column."""
        assigned = {name.lower() for name in names}
        for name, column in self._columns.items():
            if name.lower() in assigned:
                raise SchemaMismatchError(
                    f"{self._table}: column {name} is {column.text}, and identity columns cannot be updated. Remove "
                    "it from the assignments."
                )

    def generated(self, name: str, count: int) -> Any:
        """Generate values for the next ``count`` rows, as an Arrow array. Raises ConstraintViolationError if a value
        would overflow."""
        column = self._columns[name]
        first = column.next_value()
        last = first + (count - 1) * column.step
        if count and not (fits(first) and fits(last)):
            raise ConstraintViolationError(
                f"{self._table}: column {name} ({column.text}) has no values left: {count} more rows need the values "
                f"{first} to {last}, beyond 64 bits. Nothing was committed.",
                constraint=f"column {name}",
                expression=column.text,
                violations=count,
            )
        if count:
            self._columns[name] = replace(column, mark=last)
        start, step = int64s([first if count else 0, column.step])
        # If a product overflows, the sum wraps back into range, because the first and the last value fit.
        return pc.add(pc.multiply(row_numbers(count), step), start)

    def note(self, name: str, values: Any) -> None:
        """Advance the high-water mark past the ``values`` in the data, an Arrow array or chunked array."""
        column = self._columns[name]
        bounds = pc.min_max(combined(values)).as_py()
        value = bounds["max" if column.step > 0 else "min"]
        if value is not None:
            self._columns[name] = column.advanced(value)

    def note_all(self, rows: Any) -> None:
        """Like ``note``, for an Arrow table that contains all identity columns."""
        for name in self._columns:
            self.note(name, rows.column(name))
