"""DELETE, UPDATE and MERGE in SQL: parsed, and executed by ``DeltaTable``. The results are the same as
delta-spark's."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

import deltalog
from spark_ext.delta_table import DeltaTable
from spark_ext.parse.cursor import Cursor
from spark_ext.parse.table_references import unquoted
from spark_ext.rows.merge_builder import DeltaMergeBuilder
from spark_ext.statements.context import Context, default_of, duplicates


def delete(context: Context, cursor: Cursor) -> DataFrame | None:
    """``DELETE FROM t [AS alias] [WHERE condition]``. Returns num_affected_rows; None for a Spark table."""
    cursor.expect("delete", "from")
    found = _target(context, cursor, "where")
    if found is None:
        return None
    condition = cursor.expression("the condition of DELETE") if cursor.accept("where") else None
    cursor.finish()
    done = found[0].delete(condition)
    return context.numbers(num_affected_rows=done.num_removed_rows)


def update(context: Context, cursor: Cursor) -> DataFrame | None:
    """``UPDATE t [AS alias] SET column = value, … [WHERE condition]``. Returns the same as ``delete``."""
    cursor.expect("update")
    found = _target(context, cursor, "set")
    if found is None:
        return None
    cursor.expect("set")
    sets = _assignments(cursor, found[1], "where")
    condition = cursor.expression("the condition of UPDATE") if cursor.accept("where") else None
    cursor.finish()
    done = found[0].update(condition, sets)
    return context.numbers(num_affected_rows=done.num_rows)


def merge(context: Context, cursor: Cursor) -> DataFrame | None:
    """``MERGE [WITH SCHEMA EVOLUTION] INTO t [AS alias] USING source [AS alias] ON condition WHEN …``. Returns the
    numbers of updated, deleted and inserted rows; None for a Spark table."""
    cursor.expect("merge")
    evolves = cursor.accept("with", "schema", "evolution")
    cursor.expect("into")
    found = _target(context, cursor, "using")
    if found is None:
        return None
    cursor.expect("using")
    start = cursor.at
    end = cursor.skip("on")
    if start == end:
        raise cursor.error("the source of MERGE is missing")
    alias = _source_alias(cursor, start, end)
    source = cursor.text(start, end)
    cursor.expect("on")
    condition = cursor.expression("the condition of MERGE", "when")
    clauses = _clauses(cursor, found[1])
    rows = context.query(f"select * from {source}\n")
    builder = found[0].merge(rows if alias is None else rows.alias(alias), condition)
    builder = builder.withSchemaEvolution() if evolves else builder
    for clause in clauses:
        builder = clause.add_to(builder)
    return builder.execute().rows()


class _Clause:
    """A WHEN clause. ``sets``: assignments; None for ``*``."""

    def __init__(self, group: str, action: str, condition: str | None, sets: Mapping[str, str] | None) -> None:
        self.group, self.action, self.condition, self.sets = group, action, condition, sets

    def add_to(self, builder: DeltaMergeBuilder) -> DeltaMergeBuilder:
        """The builder with the clause."""
        condition, sets = self.condition, self.sets
        if self.group == "matched":
            if self.action == "delete":
                return builder.whenMatchedDelete(condition)
            if sets is None:
                return builder.whenMatchedUpdateAll(condition)
            return builder.whenMatchedUpdate(condition, sets)
        if self.group == "not matched":
            if sets is None:
                return builder.whenNotMatchedInsertAll(condition)
            return builder.whenNotMatchedInsert(condition, sets)
        if self.action == "delete":
            return builder.whenNotMatchedBySourceDelete(condition)
        assert sets is not None
        return builder.whenNotMatchedBySourceUpdate(condition, sets)


def _clauses(cursor: Cursor, schema: deltalog.schema.StructType) -> list[_Clause]:
    found = list[_Clause]()
    while cursor.accept("when"):
        group = "matched"
        if cursor.accept("not"):
            group = "not matched"
            cursor.expect("matched")
            if cursor.accept("by", "source"):
                group = "not matched by source"
            else:
                cursor.accept("by", "target")
        else:
            cursor.expect("matched")
        condition = cursor.expression("the condition of WHEN", "then") if cursor.accept("and") else None
        cursor.expect("then")
        found.append(_action(cursor, schema, group, condition))
    if not found:
        raise cursor.error("expected WHEN")
    cursor.finish()
    return found


def _action(cursor: Cursor, schema: deltalog.schema.StructType, group: str, condition: str | None) -> _Clause:
    if group == "not matched":
        cursor.expect("insert")
        sets = None if cursor.accept("*") else _inserted(cursor, schema)
        return _Clause(group, "insert", condition, sets)
    if cursor.accept("delete"):
        return _Clause(group, "delete", condition, None)
    cursor.expect("update", "set")
    if group == "matched" and cursor.accept("*"):
        return _Clause(group, "update", condition, None)
    return _Clause(group, "update", condition, _assignments(cursor, schema, "when"))


def _inserted(cursor: Cursor, schema: deltalog.schema.StructType) -> dict[str, str]:
    start = cursor.at
    columns = cursor.names()
    cursor.expect("values")
    values = cursor.inside()
    if len(values) != len(columns):
        cursor.at = start
        raise cursor.error(f"INSERT has {len(columns)} columns but {len(values)} values")
    twice = duplicates(columns)
    if twice:
        cursor.at = start
        raise cursor.error(f"column {twice[0]} is inserted twice")
    return {
        column: default_of(schema, column) if value.lower() == "default" else value
        for column, value in zip(columns, values, strict=True)
    }


def _assignments(cursor: Cursor, schema: deltalog.schema.StructType, *stops: str) -> dict[str, str]:
    """``column = value, …``. Raises CallError."""
    found: dict[str, str] = {}
    while True:
        start = cursor.at
        column = cursor.path()
        cursor.expect("=")
        value = cursor.expression(f"the value of {column}", ",", *stops)
        if duplicates([*found, column]):
            cursor.at = start
            raise cursor.error(f"column {column} is set twice")
        found[column] = default_of(schema, column.rpartition(".")[2]) if value.lower() == "default" else value
        if not cursor.accept(","):
            return found


def _target(context: Context, cursor: Cursor, *after: str) -> tuple[DeltaTable, deltalog.schema.StructType] | None:
    """The table's DataFrame with its alias (by default the table's name), and its schema."""
    found = context.target(cursor)
    if found is None:
        return None
    qualifier = found.qualifier
    if cursor.accept("as") or not (cursor.is_at_end or cursor.word() in after):
        qualifier = cursor.identifier()
    return found.table if qualifier is None else found.table.alias(qualifier), found.schema


def _source_alias(cursor: Cursor, start: int, end: int) -> str | None:
    """The alias of the source of a MERGE; None if it has none."""
    statement, tokens = cursor.statement, cursor.statement.tokens
    last = end - 1
    if tokens[last].text == ")":
        depth = 0
        while last >= start:
            depth += (tokens[last].text == ")") - (tokens[last].text == "(")
            if depth == 0:
                break
            last -= 1
        last -= 1  # go to the name before the list of columns, as in ``s (a, b)``
        if last <= start or tokens[last].word == "as":
            return None
    if last < start or tokens[last].kind not in ("word", "quoted"):
        return None
    if last - 2 >= start and statement.names_table(last - 2):
        return None
    return unquoted(tokens[last].text)
