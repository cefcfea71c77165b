"""Compiles the clauses of a merge, which compute the new values of target rows and the rows to insert.

Spec: PROTOCOL.md#generated-columns, #default-columns.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from deltalog.arrow_arrays import combined
from deltalog.errors import CallError
from deltalog.expressions.assign import Assignment, assigned, check_once, find_assigned, parsed_value
from deltalog.expressions.bind import find_fields
from deltalog.expressions.bound import Bound, columns_of
from deltalog.expressions.compile import CompiledExpression
from deltalog.expressions.relations import Relation, Relations
from deltalog.expressions.sql import as_predicate
from deltalog.expressions.sql_text import shown
from deltalog.expressions.tree import And, Expression, IsNull, Name, Predicate
from deltalog.expressions.tree import Literal as LiteralTree
from deltalog.lazy_arrow import pc
from deltalog.protocol.column_paths import parse_path, path_text
from deltalog.protocol.schema import VOID, ArrayType, DataType, MapType, StructField, StructType
from deltalog.protocol.schema_enforcement import check_writable
from deltalog.rows.merge.condition import bound_condition
from deltalog.write.data_files import conformed
from deltalog.write.table_rules import TableRules

Group = Literal["matched", "not matched", "not matched by source"]
Action = Literal["update", "delete", "insert"]
NULL = LiteralTree(None)
_WHY: Mapping[Group, str] = {
    "matched": "",
    "not matched": "an inserted row has no target row",
    "not matched by source": "a row not matched by source has no source row",
}


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause as the caller passed it. ``updates``: None means all columns except ``except_cols``."""

    group: Group
    action: Action
    condition: Predicate | str | None
    updates: Mapping[str, Any] | None = None
    except_cols: Sequence[str] = ()

    @property
    def entry(self) -> dict[str, str]:
        """The clause's entry in commitInfo, with delta-spark's names."""
        condition = {} if self.condition is None else {"predicate": shown(self.condition)}
        return {**condition, "actionType": self.action}


def check_clauses(clauses: Sequence[Clause]) -> None:
    """Raise CallError if there is no clause, or if a clause can never apply."""
    if not clauses:
        raise CallError("The merge has no clause. Add when_matched_update(…), when_not_matched_insert(…) or another.")
    for group in _WHY:
        of_group = [clause for clause in clauses if clause.group == group]
        if any(clause.condition is None for clause in of_group[:-1]):
            raise CallError(
                f"Only the last clause for {group} rows may omit its predicate: clauses after it would never apply."
            )


@dataclass(frozen=True, slots=True)
class CompiledClause:
    """A clause compiled for rows with flat column names. ``recomputed``: generated columns that the clause does not
    assign. ``absent``: for each struct that is assigned field by field, an expression that is true for rows in which
    the struct is null on both sides and so remains null."""

    clause: Clause
    condition: Bound | None
    assignments: Sequence[Assignment]
    recomputed: Sequence[str]
    absent: Sequence[Assignment] = ()

    @property
    def columns(self) -> set[str]:
        """The flat names of the columns in the clause's condition."""
        return set() if self.condition is None else {column.path[0] for column in columns_of(self.condition)}

    def source_columns(self, names: Sequence[str]) -> list[str]:
        """Those of ``names``, the flat names of source columns, from which the new values are computed."""
        values = [each.value for each in self.assignments]
        used = {path[0] for each in values if isinstance(each, CompiledExpression) for path in each.columns}
        return [name for name in names if name in used]

    def reads(self, name: str, flat: str) -> bool:
        """Whether the new rows depend on the old values of the target column ``name``, which is called ``flat`` in flat
        tables."""
        if self.clause.action != "update":
            return False
        whole = {each.path[0] for each in self.assignments if len(each.path) == 1}
        values = [each.value for each in (*self.assignments, *self.absent)]
        used = {path[0] for each in values if isinstance(each, CompiledExpression) for path in each.columns}
        return flat in used or name not in (*whole, *self.recomputed)

    def updated(self, old: pa.Table, flat: pa.Table, schema: StructType, rules: TableRules) -> pa.Table:
        """The updated rows. ``old``: the rows before the update. ``flat``: the same rows joined with the matching
        source rows, with flat column names. Raises CallError, ConstraintViolationError, SchemaMismatchError."""
        new = assigned(old, self.assignments, flat).drop_columns(list(self.recomputed))
        for each in self.absent:
            index = new.schema.get_field_index(each.path[0])
            values = _nulled(combined(new.column(index)), each.path[1:], each.evaluate(flat))
            new = new.set_column(index, new.schema.field(index), values)
        return conformed(new, schema, rules)

    def inserted(self, flat: pa.Table, schema: StructType, rules: TableRules) -> pa.Table:
        """The rows to insert. ``flat``: source rows, with one column for each source column, under its flat name.
        Raises as ``updated``."""
        columns = {each.path[0]: each.evaluate(flat) for each in self.assignments}
        return conformed(pa.table(columns), schema, rules, is_new=True)


@dataclass(frozen=True, slots=True)
class Compiler:
    """Compiles the clauses of one merge. ``rules``: the TableRules of the table. ``now``: the value
    of CURRENT_TIMESTAMP. ``schema``: the schema of the table after the merge. ``evolves``: whether schema evolution is
    on, so that the source may lack columns of the table. Columns that the source lacks keep their values in updates,
    and are not assigned in inserts."""

    target: Relation
    source: Relation
    rules: TableRules
    now: datetime.datetime
    schema: StructType
    evolves: bool = False

    def __call__(self, clause: Clause) -> CompiledClause:
        """Raises CallError for unsupported expressions and unknown columns."""
        relations = self._relations(clause.group)
        condition = None
        predicate = as_predicate(clause.condition, self.now)
        if predicate is not None:
            condition = bound_condition(relations.resolved(predicate), relations, self.now)
        if clause.action == "delete":
            return CompiledClause(clause, condition, (), ())
        found = self._all(clause) if clause.updates is None else self._given(clause, relations)
        check_once(found)
        own = {each.path[0] for each in found}
        if self.rules.identities is not None:
            check = (
                self.rules.identities.check_given if clause.action == "insert" else self.rules.identities.check_assigned
            )
            check(own)
        generated = [check.generates for check in self.rules.checks if check.generates and check.generates not in own]
        absent = self._absent() if clause.updates is None and clause.action == "update" and self.evolves else ()
        return CompiledClause(clause, condition, found, generated, absent)

    def _relations(self, group: Group) -> Relations:
        if group == "matched":
            return Relations((self.target, self.source))
        shown_one, hidden = (self.source, self.target) if group == "not matched" else (self.target, self.source)
        return Relations((shown_one,), (hidden,), _WHY[group])

    def _given(self, clause: Clause, relations: Relations) -> list[Assignment]:
        updates = clause.updates or {}
        if not updates:
            raise CallError(f"There is no column to {clause.action}: updates is empty.")
        found = []
        for key, value in updates.items():
            path, column = find_assigned(self._unqualified(key), self.schema)
            if clause.action == "insert" and len(path) > 1:
                raise CallError(f"{path_text(path)} is a struct field. An insert assigns whole columns only.")
            tree, text = parsed_value(path, value)
            found.append(self._assignment(path, column, relations.resolved(tree), text, relations))
        return found

    def _unqualified(self, key: Any) -> Any:
        return without_alias(key, self.target.alias, self.schema) if isinstance(key, str) else key

    def _all(self, clause: Clause) -> list[Assignment]:
        """Assign every target column that the source has, ignoring case."""
        left_out = {name.lower() for name in clause.except_cols}
        unknown = [
            name
            for name in clause.except_cols
            if self.schema.find(name) is None and self.source.schema.find(name) is None
        ]
        if unknown:
            raise CallError(f"except_cols contains {unknown[0]!r}, which neither source nor target has as a column.")
        relations, found, missing = Relations((self.source,)), list[Assignment](), list[str]()
        for column in self.schema.fields:
            if column.name.lower() in left_out:
                continue
            given = self.source.schema.find(column.name)
            if given is None:
                if column.name not in self.rules.filled and not self.evolves:
                    missing.append(column.name)
                continue
            by_fields = self.evolves and clause.action == "update"
            name = (self.source.flat(given.name),)
            for path, field, tree in _leaves((column.name,), column, name, given.data_type, by_fields):
                found.append(self._assignment(path, field, tree, path_text(path), relations))
        if missing:
            raise CallError(
                f"The source has no column {', '.join(missing)}, which "
                f"when_{clause.group.replace(' ', '_')}_{clause.action}_all needs. Add it to except_cols, pass the "
                "columns to assign as updates, or call with_schema_evolution()."
            )
        if not found:
            raise CallError(
                f"There is no column to {clause.action}: except_cols excludes all columns, or the source has none of "
                "them."
            )
        return found

    def _absent(self) -> list[Assignment]:
        """For each struct that is assigned field by field, whether it is null on both sides; inner structs first."""
        relations = Relations((self.target, self.source))
        pairs = [
            pair
            for column in self.schema.fields
            if (given := self.source.schema.find(column.name)) is not None
            for pair in _split(((column.name,), column.data_type), ((given.name,), given.data_type))
        ]
        found = []
        for own, other in sorted(pairs, key=lambda pair: -len(pair[0])):
            names = [
                Name((self.target.flat(own[0]), *own[1:]), True),
                Name((self.source.flat(other[0]), *other[1:]), True),
            ]
            tree = And(*(IsNull(name) for name in names))
            found.append(Assignment.from_tree(own, tree, path_text(own), relations.schema, self.now, None))
        return found

    def _assignment(
        self, path: tuple[str, ...], column: StructField, tree: Expression, text: str, relations: Relations
    ) -> Assignment:
        if isinstance(tree, Name) and self._has_no_type(tree, relations):
            tree = NULL
        nested = isinstance(column.data_type, (StructType, ArrayType, MapType))
        if nested and isinstance(tree, Name):
            self._check_nested(path, column, tree, relations)
            return Assignment.from_tree(path, tree, text, relations.schema, self.now, None)
        return Assignment.from_tree(path, tree, text, relations.schema, self.now, column.data_type)

    @staticmethod
    def _has_no_type(name: Name, relations: Relations) -> bool:
        """Whether a column has the type null, like the columns that pandas creates if all values are None."""
        field = relations.schema.find(name.path[0])
        return len(name.path) == 1 and field is not None and field.data_type == VOID

    def _check_nested(self, path: tuple[str, ...], column: StructField, tree: Name, relations: Relations) -> None:
        """Raise an error unless a nested value can be stored in the table's type. The rules are those for an append; in
        addition, a struct must have every field of the table's struct. If the merge evolves the schema, the new value
        of a struct may lack fields; these then keep their old values."""
        given = find_fields(tree.path, relations.schema)[-1]
        name = path_text(path)
        check_writable(
            StructType((StructField(name, column.data_type),)), StructType((StructField(name, given.data_type),))
        )
        missing = None if self.evolves else next(_missing(given.data_type, column.data_type, name), None)
        if missing is not None:
            raise CallError(
                f"The new value of {name} lacks the field {missing}, which the table has. Supply all fields, assign "
                "fields one by one, or call with_schema_evolution()."
            )


def without_alias(key: str, alias: str, *schemas: StructType) -> str:
    """The column name in ``key``: without the alias of the target if one of the schemas contains this column, otherwise
    unchanged."""
    path = parse_path(key)
    is_qualified = len(path) > 1 and path[0].lower() == alias.lower()
    return path_text(path[1:]) if is_qualified and any(each.find(path[1]) is not None for each in schemas) else key


def _leaves(
    path: tuple[str, ...], column: StructField, name: tuple[str, ...], given: DataType, by_fields: bool
) -> Iterator[tuple[tuple[str, ...], StructField, Name]]:
    """The assignments of a column from the source column ``name``: one assignment of the whole column, or, if the
    source's struct lacks fields that must keep their values, an assignment of each field that it has."""
    own = column.data_type
    if not (by_fields and isinstance(own, StructType) and isinstance(given, StructType) and _lacks(given, own)):
        yield path, column, Name(name, True)
        return
    for field in own.fields:
        other = given.find(field.name)
        if other is not None:
            yield from _leaves((*path, field.name), field, (*name, other.name), other.data_type, True)


def _split(
    own: tuple[tuple[str, ...], DataType], given: tuple[tuple[str, ...], DataType]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The pairs of target and source structs that ``_leaves`` assigns field by field."""
    (path, kind), (name, other) = own, given
    if isinstance(kind, StructType) and isinstance(other, StructType) and _lacks(other, kind):
        yield path, name
        for field in kind.fields:
            inner = other.find(field.name)
            if inner is not None:
                yield from _split(((*path, field.name), field.data_type), ((*name, inner.name), inner.data_type))


def _nulled(values: Any, path: Sequence[str], absent: Any) -> Any:
    """A struct array in which the struct at ``path`` is null wherever ``absent`` is true; the validity of enclosing
    structs is unchanged."""
    children, fields = values.flatten(), list(values.type.fields)
    if not path:
        return pa.StructArray.from_arrays(children, fields=fields, mask=pc.or_(values.is_null(), absent))
    index = values.type.get_field_index(path[0])
    children[index] = _nulled(children[index], path[1:], absent)
    return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())


def _lacks(given: DataType, own: DataType) -> bool:
    """Whether a struct lacks a field of another struct, at any depth of nested structs."""
    if not (isinstance(given, StructType) and isinstance(own, StructType)):
        return False
    found = [(given.find(field.name), field) for field in own.fields]
    return any(other is None or _lacks(other.data_type, field.data_type) for other, field in found)


def _missing(given: DataType, own: DataType, where: str) -> Iterator[str]:
    """The paths of fields, at every depth, that ``own`` contains and ``given`` lacks."""
    if isinstance(given, StructType) and isinstance(own, StructType):
        for field in own.fields:
            found, path = given.find(field.name), f"{where}.{field.name}"
            if found is None:
                yield path
            else:
                yield from _missing(found.data_type, field.data_type, path)
    elif isinstance(given, ArrayType) and isinstance(own, ArrayType):
        yield from _missing(given.element_type, own.element_type, f"{where}.element")
    elif isinstance(given, MapType) and isinstance(own, MapType):
        yield from _missing(given.key_type, own.key_type, f"{where}.key")
        yield from _missing(given.value_type, own.value_type, f"{where}.value")


def entries(clauses: Iterable[Clause], group: Group) -> list[dict[str, str]]:
    """The clauses of a group, in the form that commitInfo records."""
    return [clause.entry for clause in clauses if clause.group == group]
