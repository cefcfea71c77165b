"""``DeltaMergeBuilder``: the clauses of a merge, with the names and signatures of delta-spark's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

import deltalog
from spark_ext import arguments
from spark_ext.errors import ArgumentTypeError, explained
from spark_ext.results import MergeResult
from spark_ext.rows.merge_clauses import Action, Clause, Group, Merge
from spark_ext.rows.merging import merge
from spark_ext.writing.assignments import Expression


class DeltaMergeBuilder:
    """A merge that ``DeltaTable.merge`` begins: call the clauses, then ``execute``. Each clause returns a builder.

    Of the clauses of a kind the first whose condition is true for a row decides; rows for which none is true stay as
    they are, or are not inserted. Clauses for rows that match see both sides, ``whenNotMatchedInsert`` the source,
    ``whenNotMatchedBySource…`` the table.
    """

    def __init__(self, spark: SparkSession, table: deltalog.DeltaTable, asked: Merge, alias: str | None) -> None:
        """For ``DeltaTable.merge``."""
        self._spark, self._table, self._alias = spark, table, alias
        self._asked = asked

    def whenMatchedUpdate(
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> DeltaMergeBuilder:
        """Give columns new values in rows that match. Columns that are not named stay, and generated ones follow."""
        return self._with("matched", "update", condition, arguments.values("set", set))

    def whenMatchedUpdateAll(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Give each column of the table that of the source with the same name, up to case. With schema evolution the
        columns that the source lacks keep their values, and so do fields of structs, but for those in lists and maps;
        without it they are refused."""
        return self._with("matched", "update", condition, None)

    def whenMatchedDelete(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Delete rows that match."""
        return self._with("matched", "delete", condition, None)

    def whenNotMatchedInsert(
        self, condition: Expression | None = None, values: Mapping[str, Expression] | None = None
    ) -> DeltaMergeBuilder:
        """Insert a row for each row of the source that matches none. Columns that are not named are generated, or get
        their default, or null."""
        return self._with("not matched", "insert", condition, arguments.values("values", values))

    def whenNotMatchedInsertAll(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Insert each row of the source that matches none, with the columns of the same names."""
        return self._with("not matched", "insert", condition, None)

    def whenNotMatchedBySourceUpdate(
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> DeltaMergeBuilder:
        """Give columns new values in rows of the table that no row of the source matches. Without a condition in one of
        these clauses the whole table is read, and any row that another writer adds is a conflict."""
        return self._with("not matched by source", "update", condition, arguments.values("set", set))

    def whenNotMatchedBySourceDelete(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Delete rows of the table that no row of the source matches. As ``whenNotMatchedBySourceUpdate``."""
        return self._with("not matched by source", "delete", condition, None)

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add the columns, and fields of structs, of the source that the clauses set and the table lacks, also where no
        row changes. Types of the table stay, and values are cast to them, unless ``delta.enableTypeWidening`` allows
        wider ones."""
        return DeltaMergeBuilder(self._spark, self._table, replace(self._asked, evolves=True), self._alias)

    def execute(self) -> MergeResult:
        """Make the commit.

        Several rows of the source that match one row of the table are a CallError, unless the only clause for rows that
        match is a delete without a condition. The source is computed once and cached for the time of the merge, unless
        it is cached already; it should have the same rows if Spark has to compute lost ones again. When nothing changes
        there is no commit, and ``committed`` is false. Files that conditions on the table alone leave out, or the
        bounds of the source's keys, are not read; the table needs an alias for that. Raises as ``DeltaTable.update``.
        Cost: the source; a join that reads the columns of the conditions; a job that joins the rows that change, and
        writes all new ones; with the change data feed one or two more. Inserts alone are one anti join.
        """
        with explained(f"MERGE into {self._table.url}"):
            done = merge(self._spark, self._table, self._asked, self._alias)
        return MergeResult.of(self._spark, done)

    def _with(
        self, group: Group, action: Action, condition: Expression | None, sets: Mapping[str, Expression] | None
    ) -> DeltaMergeBuilder:
        if condition is not None:
            arguments.expression("The condition of a clause", condition)
        clauses = (*self._asked.clauses, Clause(group, action, condition, sets))
        return DeltaMergeBuilder(self._spark, self._table, replace(self._asked, clauses=clauses), self._alias)


def merge_of(
    spark: SparkSession,
    table: deltalog.DeltaTable,
    source: DataFrame,
    condition: Expression,
    alias: str | None,
) -> DeltaMergeBuilder:
    """A merge without clauses. Raises CallError."""
    if not hasattr(source, "sparkSession") or not hasattr(source, "storageLevel"):
        raise ArgumentTypeError(f"The source of a merge must be DataFrame of Spark, not {type(source).__name__}.")
    if condition is None:
        raise deltalog.CallError("The condition of a merge cannot be None. Give one such as 'target.id = source.id'.")
    arguments.expression("The condition of a merge", condition)
    return DeltaMergeBuilder(spark, table, Merge(source, condition), alias)
