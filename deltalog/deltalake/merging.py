"""TableMerger: a merge that is built clause by clause with deltalake's API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from deltalog.deltalake import metrics, nanoseconds
from deltalog.deltalake.arrow import converted, delta_schema, nested_as
from deltalog.deltalake.commit_properties import CommitProperties, PostCommitHookProperties
from deltalog.deltalake.creation import check_generated
from deltalog.deltalake.exceptions import translated
from deltalog.deltalake.raw import RawDeltaTable
from deltalog.deltalake.rewrites import assignments
from deltalog.deltalake.sql import name, spark_sql
from deltalog.deltalake.utc import text_in_utc
from deltalog.expressions.relations import Relation, Relations
from deltalog.expressions.sql import as_predicate
from deltalog.expressions.tree import Predicate
from deltalog.parquet.file_options import FileOptions
from deltalog.protocol.schema import StructType
from deltalog.rows.merge.clauses import Action, Clause, Group
from deltalog.rows.merge.merge import Merge, merge


@dataclass
class MergeBuilder:
    """The arguments of ``DeltaTable.merge``, and the clauses added so far. An alias is None if the program gave
    none."""

    source: pa.RecordBatchReader
    predicate: str
    source_alias: str | None
    target_alias: str | None
    merge_schema: bool
    safe_cast: bool
    files: FileOptions
    commit: CommitProperties | None
    hook: PostCommitHookProperties | None
    clauses: list[Clause] = field(default_factory=list)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the source."""
        return self.source.schema


class TableMerger:
    """A merge: add clauses, then call ``execute``. Among the clauses of one kind, the first one whose predicate is true
    applies.

    Names with spaces or leading digits are in backticks: ``"target.`my column`"``."""

    def __init__(self, builder: MergeBuilder, table: RawDeltaTable) -> None:
        self._builder = builder
        self._table = table

    def when_matched_update(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Update columns of matched rows with SQL expressions."""
        return self._with("matched", "update", predicate, updates)

    def when_matched_update_all(
        self, predicate: str | None = None, except_cols: list[str] | None = None
    ) -> TableMerger:
        """Update matched rows with all columns of the source, except the given ones."""
        return self._with("matched", "update", predicate, self._all(except_cols))

    def when_matched_delete(self, predicate: str | None = None) -> TableMerger:
        """Delete matched rows."""
        return self._with("matched", "delete", predicate)

    def when_not_matched_insert(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Insert the source rows that match no row of the table. The columns in ``updates`` are computed from SQL
        expressions; all other columns are null."""
        return self._with("not matched", "insert", predicate, updates)

    def when_not_matched_insert_all(
        self, predicate: str | None = None, except_cols: list[str] | None = None
    ) -> TableMerger:
        """Insert the source rows that match no row of the table, with all columns except ``except_cols``."""
        return self._with("not matched", "insert", predicate, self._all(except_cols))

    def when_not_matched_by_source_update(self, updates: dict[str, str], predicate: str | None = None) -> TableMerger:
        """Update columns of rows that match no row of the source."""
        return self._with("not matched by source", "update", predicate, updates)

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> TableMerger:
        """Delete rows that match no row of the source."""
        return self._with("not matched by source", "delete", predicate)

    def execute(self) -> dict[str, Any]:
        """Run the merge and commit it. Returns the metrics. Raises DeltaError."""
        builder, timer = self._builder, metrics.Timer()
        with self._table.changing(builder.commit, builder.hook, builder.files) as handle:
            counted = _Counted(builder.source)
            wanted = delta_schema(builder.source.schema, handle.latest.schema.to_arrow(), nanoseconds.enabled())
            own = handle.latest.schema
            check_generated(wanted, own, "merge" if builder.merge_schema else None, False)
            rows = converted(counted.reader, _nested_as(wanted, own.to_arrow()))
            num_files = handle.latest.num_files
            with handle.transaction_for(rows, None) as transaction:
                source = Relation(builder.source_alias or "source", StructType.from_arrow(rows.schema))
                target = Relation(builder.target_alias or "target", transaction.schema)
                asked = Merge(
                    rows,
                    _condition(spark_sql(builder.predicate), target, source),
                    source.alias,
                    target.alias,
                    [each(target, source) for each in self._compiled()],
                    builder.merge_schema,
                )
                result = merge(transaction, asked, None, None)
        return metrics.of_merge(result, counted.rows, num_files, timer)

    def _compiled(self) -> list[Callable[[Relation, Relation], Clause]]:
        builder = self._builder

        def compiled(clause: Clause) -> Callable[[Relation, Relation], Clause]:
            def of(target: Relation, source: Relation) -> Clause:
                shown = {"matched": (target, source), "not matched": (source,)}.get(clause.group, (target,))
                text = clause.condition
                where = _condition(text, *shown) if isinstance(text, str) else text
                if clause.updates is None:
                    return replace(clause, condition=where)
                values = assignments(clause.updates, target.schema, builder.safe_cast, Relations(shown), target.alias)
                return Clause(clause.group, clause.action, where, values, ())

            return of

        return [compiled(each) for each in builder.clauses]

    def _all(self, except_cols: list[str] | None) -> dict[str, str]:
        alias = self._builder.source_alias or "source"
        left_out = set(except_cols or ())
        own = self._table.snapshot.schema
        names = [
            each
            for each in self._builder.arrow_schema.names
            if each not in left_out and (self._builder.merge_schema or own.find(each) is not None)
        ]
        return {name(each): f"{name(alias)}.{name(each)}" for each in names}

    def _with(
        self, group: Group, action: Action, predicate: str | None, updates: dict[str, str] | None = None
    ) -> TableMerger:
        where = None if predicate is None else spark_sql(predicate)
        with translated():
            done = [each for each in self._builder.clauses if each.group == group and each.condition is None]
            if not done:  # otherwise an earlier clause applies to every row, and this clause to none
                self._builder.clauses.append(Clause(group, action, where, updates, ()))
        return self


def _condition(text: str, *shown: Relation) -> Predicate | str:
    written = as_predicate(text)
    assert written is not None
    found: Predicate | str = text_in_utc(text, written, Relations(shown))
    return found


def _nested_as(given: pa.Schema, own: pa.Schema) -> pa.Schema:
    """The source's schema, in which nested columns have the table's types; the clauses cast all other columns."""
    fields = [
        f.with_type(nested_as(f.type, own.field(f.name).type)) if f.name in own.names and _is_nested(f.type) else f
        for f in given
    ]
    return pa.schema(fields)


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


class _Counted:
    """Counts the rows of a stream as they are read."""

    def __init__(self, source: pa.RecordBatchReader) -> None:
        self.rows = 0

        def batches() -> Any:
            for batch in source:
                self.rows += batch.num_rows
                yield batch

        self.reader = pa.RecordBatchReader.from_batches(source.schema, batches())
