"""``DeltaMergeBuilder``: builds a merge, with the names and signatures of delta-spark's class."""

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
    """A merge, begun by ``DeltaTable.merge``: add clauses, then call ``execute``. Every clause returns a new builder.

    For each row, the first clause of a kind whose condition is true applies. If no condition is true for a row, a table
    row stays unchanged and a source row is not inserted. ``whenMatched…`` can use columns of both sides,
    ``whenNotMatchedInsert`` only the source's columns, ``whenNotMatchedBySource…`` only the table's.
    """

    def __init__(self, spark: SparkSession, table: deltalog.DeltaTable, asked: Merge, alias: str | None) -> None:
        """Used by ``DeltaTable.merge``."""
        self._spark, self._table, self._alias = spark, table, alias
        self._asked = asked

    def whenMatchedUpdate(
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> DeltaMergeBuilder:
        """Update columns of matched rows. Other columns keep their values; generated columns are computed again."""
        return self._with("matched", "update", condition, arguments.values("set", set))

    def whenMatchedUpdateAll(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Update every column of the table from the source's column of the same name, ignoring case. If the source
        lacks columns or struct fields, an error is raised; with schema evolution, these columns and fields keep their
        values, except in structs in lists and maps, where they become null."""
        return self._with("matched", "update", condition, None)

    def whenMatchedDelete(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Delete matched rows."""
        return self._with("matched", "delete", condition, None)

    def whenNotMatchedInsert(
        self, condition: Expression | None = None, values: Mapping[str, Expression] | None = None
    ) -> DeltaMergeBuilder:
        """Insert a row for every source row that matches no row of the table. A column without a value is generated,
        gets its default, or is null."""
        return self._with("not matched", "insert", condition, arguments.values("values", values))

    def whenNotMatchedInsertAll(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Insert every source row that matches no row of the table, matching columns by name."""
        return self._with("not matched", "insert", condition, None)

    def whenNotMatchedBySourceUpdate(
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> DeltaMergeBuilder:
        """Update columns of rows of the table that no source row matches. If a clause for rows not matched by the
        source has no condition, the merge reads the whole table and conflicts with any row that another writer adds."""
        return self._with("not matched by source", "update", condition, arguments.values("set", set))

    def whenNotMatchedBySourceDelete(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Delete rows of the table that no source row matches. The clause reads the same rows, and conflicts with the
        same writes, as ``whenNotMatchedBySourceUpdate``."""
        return self._with("not matched by source", "delete", condition, None)

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add the source's columns and struct fields that the clauses assign and the table lacks, even if no row
        changes. Values are cast to the types of the existing columns; these types change only if
        ``delta.enableTypeWidening`` allows wider types."""
        return DeltaMergeBuilder(self._spark, self._table, replace(self._asked, evolves=True), self._alias)

    def execute(self) -> MergeResult:
        """Execute the merge as one commit. If no row changes, no commit is made, and ``committed`` is false.

        Raises CallError if several source rows match one row of the table, unless the only ``whenMatched`` clause is a
        delete without a condition; otherwise as ``DeltaTable.update``. The source is computed once and cached during
        the merge, unless it is already cached. The source should be deterministic, because Spark may lose cached rows
        and have to recompute them. If the table has an alias, files are skipped by those conditions that use only the
        table, and by the bounds of the source's keys. Cost: the source; a join that reads the columns of the
        conditions; a job that joins the changing rows and writes all new ones; with the change data feed one or two
        more. For a merge that only inserts, one anti join is sufficient.
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
        raise ArgumentTypeError(f"The source of a merge must be DataFrame (of PySpark), not {type(source).__name__}.")
    if condition is None:
        raise deltalog.CallError("The condition of a merge cannot be None. Pass one such as 'target.id = source.id'.")
    arguments.expression("The condition of a merge", condition)
    return DeltaMergeBuilder(spark, table, Merge(source, condition), alias)
