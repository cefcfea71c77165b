"""Resolves column names in expressions that use two relations, the target and the source of a merge. Pure.

Each column gets a flat name, the alias and the name joined by a dot, so that a merge's expressions can be bound and
evaluated as if there were only one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from deltalog.errors import CallError
from deltalog.expressions.bind import check_no_column
from deltalog.expressions.tree import MOMENTS, And, Expression, In, Literal, Moment, Name, Or, renamed, replaced, walked
from deltalog.protocol.column_paths import path_text
from deltalog.protocol.schema import StructField, StructType


@dataclass(frozen=True)
class Relation:
    """A table or query with an alias."""

    alias: str
    schema: StructType

    def flat(self, column: str) -> str:
        """The flat name of a column."""
        return f"{self.alias}.{column}"

    def flat_table(self, rows: pa.Table) -> pa.Table:
        """The rows with their columns renamed to the flat names."""
        return rows.rename_columns([self.flat(name) for name in rows.schema.names])

    def flat_fields(self) -> Iterator[StructField]:
        """The columns with flat names."""
        return (StructField(self.flat(f.name), f.data_type, f.nullable, f.metadata) for f in self.schema.fields)


@dataclass(frozen=True)
class Relations:
    """The relations that an expression may refer to. ``hidden``: relations of the merge that the expression may not
    name; ``why``: the reason, for messages.

    A name is ``alias.column``, or just the column if only one relation contains it.
    """

    shown: Sequence[Relation]
    hidden: Sequence[Relation] = ()
    why: str = ""
    schema: StructType = field(init=False)

    def __post_init__(self) -> None:
        fields = [each for relation in self.shown for each in relation.flat_fields()]
        object.__setattr__(self, "schema", StructType(tuple(fields)))

    def resolved(self, tree: Expression) -> Expression:
        """The tree with flat column names. Raises CallError for a name that no relation or several relations have, and
        for a double-quoted string that is a column name."""
        for each in walked(tree):
            texts = each.doubtful if isinstance(each, In) else ()
            if isinstance(each, Literal) and each.in_double_quotes:
                texts = (each.value,)
            for text in texts:
                for relation in (*self.shown, *self.hidden):
                    check_no_column(text, relation.schema)
        return replaced(tree, self._replacement)

    def _replacement(self, each: Expression) -> Expression | None:
        if isinstance(each, Name):
            return self._resolved(each)
        if not isinstance(each, Moment):
            return None
        is_column = isinstance(each.written, Name) and any(_holders(each.written.path, self.shown))
        return self._resolved(each.written) if is_column and isinstance(each.written, Name) else each.literal

    def _resolved(self, name: Name) -> Name:
        found = list(_holders(name.path, self.shown))
        if len(found) == 1:
            relation, rest = found[0]
            column = relation.schema.find(rest[0])
            assert column is not None
            return Name((relation.flat(column.name), *rest[1:]), True)
        text = path_text(name.path)
        if found:
            choices = " or ".join(path_text((relation.alias, *rest)) for relation, rest in found)
            raise CallError(f"The column {text!r} is in both the source and the target. Write {choices}.")
        if len(name.path) == 1 and not name.is_quoted and name.path[0].lower() in MOMENTS:
            return name
        if any(_holders(name.path, self.hidden)):
            raise CallError(f"The column {text!r} cannot be used here: {self.why}.")
        columns = (path_text((each.alias, column)) for each in self.shown for column in each.schema.names[:500])
        raise CallError(f"There is no column {text!r}. Columns: {', '.join(columns)}.")


def _holders(path: Sequence[str], relations: Iterable[Relation]) -> Iterator[tuple[Relation, tuple[str, ...]]]:
    """The relations that contain the column, each with the column's path in it. An alias takes precedence over a column
    of the same name."""
    relations = list(relations)
    for relation in relations:
        if len(path) > 1 and path[0].lower() == relation.alias.lower() and relation.schema.find(path[1]) is not None:
            yield relation, tuple(path[1:])
            return
    for relation in relations:
        if relation.schema.find(path[0]) is not None:
            yield relation, tuple(path)


def flat_columns(tree: Expression) -> set[str]:
    """The flat names (``alias.column``) of the columns in a resolved tree."""
    return {each.path[0] for each in walked(tree) if isinstance(each, Name)}


def restored(tree: Expression, relation: Relation) -> Expression:
    """Rewrite a resolved tree that uses only ``relation``: flat names become the relation's own column names."""
    columns = {relation.flat(name): name for name in relation.schema.names}

    def alone(name: Name) -> Name:
        column = columns.get(name.path[0])
        return name if column is None else Name((column, *name.path[1:]), True)

    return renamed(tree, alone)


def conjuncts(tree: Expression) -> Iterator[Expression]:
    """The operands of a chain of ANDs, in order."""
    todo = [tree]
    while todo:
        each = todo.pop()
        if isinstance(each, And):
            todo += [each.right, each.left]
        else:
            yield each


def joined(parts: Sequence[Expression]) -> Expression | None:
    """Join the parts by AND; returns None if there are no parts."""
    found: Expression | None = None
    for part in parts:
        found = part if found is None else And(found, part)
    return found


def any_of(parts: Sequence[Expression]) -> Expression | None:
    """Join the parts by OR; returns None if there are no parts."""
    found: Expression | None = None
    for part in parts:
        found = part if found is None else Or(found, part)
    return found
